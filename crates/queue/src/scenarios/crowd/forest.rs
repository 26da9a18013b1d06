//! Several trees at once: each of two jobs may own what the other has borrowed, in another tree each.

use fastrand::Rng;
use proptest::prelude::*;

use super::*;

/// A tree: its leaves, what hundredth of the root's quota each has, and whether it may not borrow.
type Leaves = &'static [(&'static str, usize, bool)];

const TEAMS: Leaves =
    &[("gold", 50, false), ("silver", 30, false), ("bronze", 15, true), ("default", 5, false)];
const PROJECTS: Leaves = &[("research", 75, false), ("serving", 20, false), ("default", 5, false)];
const TREES: [(&str, Leaves); 2] = [("team", TEAMS), ("project", PROJECTS)];

/// Cpus of all nodes together, and of the roots.
const ROOM: usize = 80;
/// How many cpus jobs ask for, as often as they are listed.
const SIZES: [usize; 10] = [1, 1, 1, 4, 4, 4, 16, 16, 32, 72];

fn forest(trees: &[(&str, Leaves)]) -> Vec<Value> {
    let mut all = Vec::new();
    for (tree, leaves) in trees {
        let subtree = |name: String, parent: Option<&str>, children: Vec<Value>| {
            json!({"metadata": {"name": name, "namespace": "test", "labels": {"tree": tree}},
                   "spec": {"parent": parent, "children": children}})
        };
        let child = |name: &str, cpu: usize, hard: bool| json!({"name": name, "quotas": {"requests": {"cpu": cpu.to_string()}, "hardLimit": hard}});
        let leaf =
            |(name, share, hard): &(&str, usize, bool)| child(name, ROOM * share / 100, *hard);
        all.push(subtree(format!("{tree}-top"), None, vec![child("root", ROOM, false)]));
        let leaves = leaves.iter().map(leaf).collect();
        all.push(subtree((*tree).to_owned(), Some("root"), leaves));
    }
    all
}

/// Jobs of all sizes and priorities that all come within a second, and run for so many times longer.
fn jobs(
    trees: &[(&str, Leaves)],
    count: usize,
    longer: u64,
    rng: &mut Rng,
) -> Vec<(Micros, Value)> {
    let job = |nth: usize, rng: &mut Rng| {
        let mut most = ROOM;
        let mut labels = serde_json::Map::new();
        for (tree, leaves) in trees {
            let (leaf, share, hard) = leaves[rng.usize(..leaves.len())];
            labels.insert((*tree).to_owned(), json!(leaf));
            if hard {
                most = most.min(ROOM * share / 100);
            }
        }
        let fitting: Vec<usize> = SIZES.into_iter().filter(|it| *it <= most).collect();
        let cpu = u32::try_from(fitting[rng.usize(..fitting.len())]).unwrap();
        let (runs, priority) = (rng.u64(200..=1000) * longer, [0, 0, 0, 5, 5, 9][rng.usize(..6)]);
        let class = ("job", 1, 0, runs, priority, cpu);
        let mut wrapper = wrapper("test", &format!("job-{nth}"), &class);
        wrapper["metadata"]["labels"] = Value::Object(labels);
        (rng.u64(..SECOND), wrapper)
    };
    (0..count).map(|nth| job(nth, rng)).collect()
}

/// What comes of so many jobs on these trees.
fn figures(
    trees: &[(&str, Leaves)],
    (count, longer): (usize, u64),
    evicts: bool,
    seed: u64,
) -> Figures {
    let settings =
        Settings { quota: true, preemption: true, active_eviction: evicts, ..Settings::default() };
    let live = Live::new(settings);
    let dispatch = Dispatch::new(live.clone());
    let progress = Following(Progress::new(live));
    let mut crowd = Crowd::new(&[(&dispatch, 1), (&progress, LANES)], None);
    // One after the other they would take half of that.
    crowd.end = 60 * longer * SECOND;
    // One node: where others make room for somebody, each of its pods must find a place.
    let node = json!({"metadata": {"name": "node"}, "spec": {},
                      "made": {"cpu": ROOM.to_string(), "gpu": 0}});
    crowd.server.create(&Node::RESOURCE, node);
    for subtree in forest(trees) {
        crowd.server.create(&Subtree::RESOURCE, subtree);
    }
    for (when, wrapper) in jobs(trees, count, longer, &mut Rng::with_seed(seed)) {
        crowd.at(when, Event::Arrive(wrapper));
    }
    crowd.run()
}

/// Jobs run for as long as ten of those that come take to do so, and each may own what another has borrowed.
/// Three and more of them were taken back for each that ran to its end when those who had been taken back went
/// on taking.
#[test]
fn few_are_taken_back_though_each_owns_what_others_borrow() {
    for (seed, evicts) in [(1, false), (1, true), (2, false), (2, true)] {
        let figures = figures(&TREES, (100, 10), evicts, seed);
        assert_eq!(figures.completed, 100, "seed {seed}, evicts {evicts}: {figures:?}");
        assert!(figures.taken_back() <= 200, "seed {seed}, evicts {evicts}: {figures:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 4,
        max_shrink_iters: 16,
        ..ProptestConfig::default()
    })]

    /// Nobody is taken back without end, and nobody waits for ever: with jobs that are done before anybody
    /// pauses for as long as one must, and with others.
    #[test]
    fn all_complete_though_each_owns_what_others_borrow(
        seed in any::<u64>(), count in 2..24_usize, one in any::<bool>(), evicts in any::<bool>(),
        slow in any::<bool>(),
    ) {
        let trees = if one { &TREES[..1] } else { &TREES[..] };
        let longer = if slow { 100 } else { 1 };
        let figures = figures(trees, (count, longer), evicts, seed);
        prop_assert_eq!(figures.completed, count, "{:?}", figures);
        prop_assert!(figures.taken_back() <= 8 * count, "{:?}", figures);
    }
}
