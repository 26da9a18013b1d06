//! Several trees at once: each of two jobs may own what the other has borrowed, in another tree
//! each.

use fastrand::Rng;
use proptest::prelude::*;

use super::*;

/// A tree: its leaves, the percentage of the root's quota each has, and whether it may not borrow.
type Leaves = &'static [(&'static str, usize, bool)];

const TEAMS: Leaves =
    &[("gold", 50, false), ("silver", 30, false), ("bronze", 15, true), ("default", 5, false)];
const PROJECTS: Leaves = &[("research", 75, false), ("serving", 20, false), ("default", 5, false)];
const TREES: [(&str, Leaves); 2] = [("team", TEAMS), ("project", PROJECTS)];

/// The cpus of all nodes together, and of the roots.
const CLUSTER_CPUS: usize = 80;
/// How many cpus jobs request, as often as they are listed.
const SIZES: [usize; 10] = [1, 1, 1, 4, 4, 4, 16, 16, 32, 72];

fn forest(trees: &[(&str, Leaves)]) -> Vec<Value> {
    let mut all = Vec::new();
    for (tree, leaves) in trees {
        let subtree = |name: String, parent: Option<&str>, children: Vec<Value>| {
            json!({"metadata": {"name": name, "namespace": "test", "labels": {"tree": tree}},
                   "spec": {"parent": parent, "children": children}})
        };
        let child = |name: &str, cpu: usize, hard: bool| {
            let requests = json!({"cpu": cpu.to_string()});
            json!({"name": name, "quotas": {"requests": requests, "hardLimit": hard}})
        };
        let leaf = |(name, share, hard): &(&str, usize, bool)| {
            child(name, CLUSTER_CPUS * share / 100, *hard)
        };
        all.push(subtree(format!("{tree}-top"), None, vec![child("root", CLUSTER_CPUS, false)]));
        let leaves = leaves.iter().map(leaf).collect();
        all.push(subtree((*tree).to_owned(), Some("root"), leaves));
    }
    all
}

/// Returns jobs of all sizes and priorities that all arrive within a second, and run this many
/// times longer.
fn jobs(
    trees: &[(&str, Leaves)],
    count: usize,
    longer: u64,
    rng: &mut Rng,
) -> Vec<(Micros, Value)> {
    let job = |nth: usize, rng: &mut Rng| {
        let mut most = CLUSTER_CPUS;
        let mut labels = serde_json::Map::new();
        for (tree, leaves) in trees {
            let (leaf, share, hard) = leaves[rng.usize(..leaves.len())];
            labels.insert((*tree).to_owned(), json!(leaf));
            if hard {
                most = most.min(CLUSTER_CPUS * share / 100);
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

/// Returns the results of this many jobs on these trees.
fn run_jobs(
    trees: &[(&str, Leaves)],
    (count, longer): (usize, u64),
    evicts: bool,
    seed: u64,
) -> LoadResults {
    let settings =
        Settings { quota: true, preemption: true, active_eviction: evicts, ..Settings::default() };
    let live = LiveSettings::new(settings);
    let dispatch = Dispatch::new(live.clone());
    let progress = ProgressWithKinds(Progress::new(live));
    let mut crowd = LoadSimulation::new(&[(&dispatch, 1), (&progress, MAX_IN_FLIGHT_WRITES)], None);
    // One after the other they would take half of that.
    crowd.end = 60 * longer * SECOND;
    // One node: where others are preempted for an AppWrapper, each of its pods must fit on a node.
    let node = json!({"metadata": {"name": "node"}, "spec": {},
                      "made": {"cpu": CLUSTER_CPUS.to_string(), "gpu": 0}});
    crowd.server.create(&Node::RESOURCE, node);
    for subtree in forest(trees) {
        crowd.server.create(&Subtree::RESOURCE, subtree);
    }
    for (when, wrapper) in jobs(trees, count, longer, &mut Rng::with_seed(seed)) {
        crowd.schedule_event(when, Event::Arrive(wrapper));
    }
    crowd.run()
}

/// Jobs run for as long as ten of those that arrive take to do so, and each may own what another
/// has borrowed. Three and more of them were preempted for each that ran to its end when preempted
/// AppWrappers went on preempting others.
#[test]
fn few_are_preempted_with_mutual_borrowing() {
    for (seed, evicts) in [(1, false), (1, true), (2, false), (2, true)] {
        let figures = run_jobs(&TREES, (100, 10), evicts, seed);
        assert_eq!(figures.completed, 100, "seed {seed}, evicts {evicts}: {figures:?}");
        assert!(figures.total_preemptions() <= 200, "seed {seed}, evicts {evicts}: {figures:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 4,
        max_shrink_iters: 16,
        ..ProptestConfig::default()
    })]

    /// No AppWrapper is preempted without end, and none waits for ever: with jobs that are done
    /// before the shortest exemption ends, and with others.
    #[test]
    fn all_complete_with_mutual_borrowing(
        seed in any::<u64>(), count in 2..24_usize, one in any::<bool>(), evicts in any::<bool>(),
        slow in any::<bool>(),
    ) {
        let trees = if one { &TREES[..1] } else { &TREES[..] };
        let longer = if slow { 100 } else { 1 };
        let figures = run_jobs(trees, (count, longer), evicts, seed);
        prop_assert_eq!(figures.completed, count, "{:?}", figures);
        prop_assert!(figures.total_preemptions() <= 8 * count, "{:?}", figures);
    }
}
