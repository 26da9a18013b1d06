//! Which consumers slide up, slide down and are preempted: one node at a time.

use super::super::allocate::SlideUpScope;
use super::super::journal::Journal;
use super::*;

/// Three consumers of one cpu each are placed on the node `mid`; a fourth requests quota there.
#[test]
fn qu_5_slide_up() {
    let soft = "root: cpu=9\n mid < root: cpu=3\n leaf < mid: cpu=9";
    let hard = "root: cpu=9\n mid < root: cpu=3 hard\n leaf < mid: cpu=9";
    let top = "mid: cpu=3\n leaf < mid: cpu=9";
    let hard_top = "mid: cpu=3 hard\n leaf < mid: cpu=9";
    // Name, priority, and whether it may be preempted.
    let plain = [("x", 0, true), ("y", 2, true), ("z", 1, true)];
    let bound = [("x", 0, false), ("y", 2, true), ("z", 1, true)];
    let (lower, anyone) = (SlideUpScope::LowerPriority, SlideUpScope::All);
    let table = [
        // why                                  tree  there  priority cpu push  moved     victims
        ("one is enough", soft, plain, 5, 1, lower, Some(("x", ""))),
        ("first come, first moved", soft, plain, 5, 2, lower, Some(("x y", ""))),
        ("equal priority stays", soft, plain, 2, 2, lower, Some(("x z", ""))),
        ("not enough, none moves", soft, plain, 1, 2, lower, None),
        ("none is lower", soft, plain, 0, 1, lower, None),
        ("owners ignore priorities", soft, plain, -7, 2, anyone, Some(("x y", ""))),
        ("more than the node has", soft, plain, 9, 4, anyone, None),
        ("off the root is out", top, plain, 5, 2, lower, Some(("", "x y"))),
        ("the root keeps bound ones", top, bound, 5, 2, lower, Some(("", "y z"))),
        ("below the root bound ones move", soft, bound, 5, 2, lower, Some(("x y", ""))),
        ("too many are bound", top, bound, 5, 3, anyone, None),
        ("a hard node moves none", hard, plain, 5, 1, lower, None),
        ("nor for owners", hard, plain, 5, 1, anyone, None),
        ("a hard root does", hard_top, plain, 5, 1, anyone, Some(("", "x"))),
    ];
    for (why, lines, there, priority, cpu, push, expected) in table {
        let (mut trees, _) = build::trees(&subtrees("t", lines));
        let leaf = |name, priority, cpu| consumer(name, "t=leaf", &format!("cpu={cpu}"), priority);
        let tree = &mut trees[0];
        let mut journal = Journal::default();
        let mid = tree.by_name["mid"];
        for (name, priority, preemptable) in there {
            let holder = tree.holder_or_root(&Consumer { preemptable, ..leaf(name, priority, 1) });
            tree.force_place(mid, &holder, &mut journal);
        }
        let before = tree.clone();
        let wants = tree.holder_or_root(&leaf("w", priority, cpu));
        let (mut victims, start) = (Vec::new(), journal.len());
        let moved = tree.slide_up(mid, (&wants, &|_| false), push, &mut victims, &mut journal);
        assert_eq!(moved, expected.is_some(), "{why}");
        if let Some((up, out)) = expected {
            let parent: Vec<ConsumerId> = tree.placed_on("root").cloned().collect();
            assert_eq!((names(&parent).as_str(), names(&victims).as_str()), (up, out), "{why}");
            assert!(tree.nodes[mid].fits(&wants.request), "{why}");
        } else {
            assert_eq!((&*tree, victims.len()), (&before, 0), "{why}");
        }
        tree.rollback(&mut journal, start);
        assert_eq!(*tree, before, "{why}: undone");
    }
}

/// What happens to the consumers of small trees when one more arrives.
#[test]
fn qu_5_which_consumers_move_up() {
    let two = "root: cpu=4\n own < root: cpu=2\n idle < root: cpu=2\n default < root: cpu=0";
    let hard = "root: cpu=4\n own < root: cpu=2 hard\n idle < root: cpu=2\n";
    let deep = "root: cpu=4\n mid < root: cpu=2 hard\n own < mid: cpu=1\n idle < root: cpu=4";
    let tall = "root: cpu=9\n top < root: cpu=1\n mid < top: cpu=2 hard\n own < mid: cpu=2";
    // Name, leaf, cpus and priority.
    type Placed<'a> = &'a [(&'a str, &'a str, i32, i32)];
    type Row<'a> = (&'a str, &'a str, Placed<'a>, (&'a str, i32, i32), &'a str);
    let table: [Row<'_>; 16] = [
        // why              tree  there: name, leaf, cpu, priority          asks       outcome
        ("quota on the leaf", two, &[], ("own", 2, 0), "own"),
        ("borrowing", two, &[("x", "own", 2, 0)], ("own", 2, 0), "root"),
        ("reclaim from a borrower", two, &[("x", "own", 4, 0)], ("idle", 1, 0), "idle, without x"),
        ("of any priority", two, &[("x", "own", 4, 9)], ("idle", 1, 0), "idle, without x"),
        (
            "no victim without need",
            two,
            &[("x", "default", 1, 0), ("y", "default", 3, 0)],
            ("idle", 2, 0),
            "idle, without y",
        ),
        (
            "within its quota it stays",
            two,
            &[("x", "own", 2, 0), ("y", "idle", 2, 0)],
            ("own", 1, 0),
            "node \"root\" of quota tree t lacks 1 of cpu",
        ),
        (
            "higher priority takes the leaf",
            two,
            &[("x", "own", 2, 0), ("y", "idle", 2, 0)],
            ("own", 1, 1),
            "own, without x",
        ),
        (
            "but not from others' leaves",
            two,
            &[("x", "idle", 2, 0), ("y", "own", 2, 5)],
            ("own", 1, 5),
            "node \"root\" of quota tree t lacks 1 of cpu",
        ),
        (
            "the default node has nothing of its own",
            two,
            &[("x", "default", 3, 0)],
            ("own", 2, 0),
            "own, without x",
        ),
        (
            "too large for all",
            two,
            &[],
            ("own", 5, 9),
            "node \"root\" of quota tree t lacks 1 of cpu",
        ),
        (
            "a hard node does not borrow",
            hard,
            &[("x", "own", 2, 0)],
            ("own", 1, 0),
            "node \"own\" of quota tree t lacks 1 of cpu",
        ),
        (
            "a hard leaf preempts by priority",
            hard,
            &[("x", "own", 1, 0), ("y", "own", 1, 0)],
            ("own", 1, 1),
            "own, without x",
        ),
        ("up to a hard node and no further", deep, &[("x", "own", 1, 0)], ("own", 1, 0), "mid"),
        (
            "behind a hard node there is no way round",
            deep,
            &[("x", "idle", 4, 0)],
            ("own", 1, 0),
            "node \"root\" of quota tree t lacks 1 of cpu",
        ),
        (
            "nor where there is room behind it",
            tall,
            &[],
            ("own", 2, 0),
            "node \"top\" of quota tree t lacks 1 of cpu",
        ),
        (
            "a borrower on the root is no obstacle to a hard node",
            deep,
            &[("y", "idle", 2, 0), ("z", "own", 1, 0), ("x", "own", 1, 0)],
            ("own", 2, 3),
            "mid, without x z",
        ),
    ];
    for (why, lines, there, (leaf, cpu, priority), expected) in table {
        let mut forest = forest(&[("t", lines)]);
        let asks = |name: &str, leaf: &str, cpu: i32, priority: i32| {
            consumer(name, &format!("t={leaf}"), &format!("cpu={cpu}"), priority)
        };
        for (name, leaf, cpu, priority) in there {
            forest.try_allocate(&asks(name, leaf, *cpu, *priority)).unwrap();
        }
        let before = forest.clone();
        assert_eq!(outcome(&mut forest, &asks("w", leaf, cpu, priority)), expected, "{why}");
        if expected.contains("lacks") {
            assert_eq!(forest, before, "{why}: a refusal changes nothing");
        }
    }
}

/// Preemption within the path stops as soon as the request fits, and spares consumers that are not
/// preemptable.
#[test]
fn qu_5_preemption_by_priority() {
    let lines = "root: cpu=3\n leaf < root: cpu=3 hard";
    let table = [
        // why                        priorities and whether preemptable         asks       outcome
        ("the first that is lower", [(1, true), (0, true), (0, true)], (1, 1), "leaf, without y"),
        ("until there is room", [(0, true), (0, true), (0, true)], (2, 1), "leaf, without x y"),
        ("bound ones are skipped", [(0, false), (0, true), (0, true)], (1, 1), "leaf, without y"),
        (
            "not without a positive priority",
            [(-2, true), (-2, true), (-2, true)],
            (1, 0),
            "node \"leaf\" of quota tree t lacks 1 of cpu",
        ),
        (
            "no victim without need",
            [(0, true), (2, true), (0, true)],
            (3, 1),
            "node \"leaf\" of quota tree t lacks 3 of cpu",
        ),
    ];
    for (why, there, (cpu, priority), expected) in table {
        let mut forest = forest(&[("t", lines)]);
        for (name, (priority, preemptable)) in ["x", "y", "z"].into_iter().zip(there) {
            let asks = consumer(name, "t=leaf", "cpu=1", priority);
            forest.try_allocate(&Consumer { preemptable, ..asks }).unwrap();
        }
        let asks = consumer("w", "t=leaf", &format!("cpu={cpu}"), priority);
        assert_eq!(outcome(&mut forest, &asks), expected, "{why}");
    }
}

/// Release goes up the path, and on each step consumers placed above slide down if they fit.
#[test]
fn qu_6_release_slides_down() {
    let lines = "root: cpu=9\n mid < root: cpu=3\n leaf < mid: cpu=2\n side < mid: cpu=1\n far < root: cpu=1";
    let mut forest = forest(&[("t", lines)]);
    for (name, leaf, cpu) in
        [("a", "leaf", 2), ("b", "leaf", 1), ("c", "leaf", 2), ("d", "far", 2), ("e", "side", 1)]
    {
        forest
            .try_allocate(&consumer(name, &format!("t={leaf}"), &format!("cpu={cpu}"), 0))
            .unwrap();
    }
    // b had borrowed on mid until e claimed its own quota.
    assert_eq!(placements_of(&forest, "t"), "leaf: a, root: c d b, side: e");
    forest.release(&id("a"));
    // No consumer on mid belongs to the leaf; then c and b are on the root, and c, which arrived
    // first, fits.
    assert_eq!(placements_of(&forest, "t"), "mid: c, root: d b, side: e");
    forest.release(&id("c"));
    assert_eq!(placements_of(&forest, "t"), "mid: b, root: d, side: e");
    // A consumer of another branch does not slide down here.
    forest.release(&id("b"));
    forest.release(&id("e"));
    assert_eq!(placements_of(&forest, "t"), "root: d");
}
