//! The rules that are not about sliding, each by its number.

use super::*;

#[test]
fn qu_1_tracked_resources() {
    let lines = "root: cpu=9 memory=9 nvidia.com/gpu=9 example.com/nic=2
        leaf < root: cpu=4 memory=4
        rich < root: cpu=4 memory=4 nvidia.com/gpu=9 example.com/nic=1 hard";
    let table = [
        // why                                   leaf    request                  outcome
        ("what is listed", "leaf", "cpu=4 memory=4", "leaf"),
        ("of the three, what is not listed is 0", "leaf", "nvidia.com/gpu=1", "root"),
        ("others count where they are listed", "leaf", "example.com/nic=2", "leaf"),
        (
            "and only there",
            "leaf",
            "example.com/nic=3",
            "node \"root\" of quota tree t lacks 1 of example.com/nic",
        ),
        (
            "a leaf that lists it",
            "rich",
            "example.com/nic=2",
            "node \"rich\" of quota tree t lacks 1 of example.com/nic",
        ),
        ("what no node lists is free", "rich", "example.com/other=99", "rich"),
        ("nothing at all", "leaf", "", "leaf"),
        ("below zero is zero", "leaf", "cpu=-5", "leaf"),
        (
            "every resource that is short",
            "rich",
            "cpu=5 memory=5 nvidia.com/gpu=9",
            "node \"rich\" of quota tree t lacks 1 of cpu, 1 of memory",
        ),
    ];
    for (why, leaf, request, expected) in table {
        let mut forest = forest(&[("t", lines)]);
        let asks = consumer("a", &format!("t={leaf}"), request, 0);
        assert_eq!(outcome(&mut forest, &asks), expected, "{why}");
    }
}

/// A resource that is not requested is no reason for a refusal, even where an edit left too little.
#[test]
fn qu_1_only_what_is_asked_is_compared() {
    let mut forest =
        forest(&[("t", "root: cpu=9 nvidia.com/gpu=1\n leaf < root: cpu=9 nvidia.com/gpu=1")]);
    forest.force_place(&consumer("over", "t=leaf", "nvidia.com/gpu=4", 0));
    assert_eq!(outcome(&mut forest, &consumer("a", "t=leaf", "cpu=1", 0)), "leaf");
}

#[test]
fn qu_2_missing_labels() {
    let forest = forest(&[("a", "root: cpu=1"), ("b", "root: cpu=1")]);
    let labels = |text: &str| consumer("x", text, "", 0).labels;
    let table = [
        ("none", "", "a=default b=default"),
        ("others are of no matter", "team=gold", "a=default b=default"),
        ("one", "b=gold", "a=default"),
        ("both", "b=gold a=", ""),
    ];
    for (why, given, expected) in table {
        assert_eq!(forest.missing_labels(&labels(given)), labels(expected), "{why}");
    }
    assert_eq!(Forest::default().missing_labels(&labels("a=b")), labels(""), "no trees");
}

#[test]
fn qu_3_only_leaves_are_charged() {
    let trees =
        [("a", "root: cpu=9\n mid < root: cpu=9\n leaf < mid: cpu=9"), ("b", "only: cpu=9")];
    let table = [
        ("a root may be a leaf", "a=leaf b=only", "leaf only"),
        ("an unknown node", "a=gold b=only", "quota tree a has no node \"gold\""),
        ("an empty name", "a= b=only", "quota tree a has no node \"\""),
        ("an inner node", "a=mid b=only", "node \"mid\" of quota tree a is not a leaf"),
        ("a tree it does not name", "a=leaf", "quota tree b has no node \"default\""),
    ];
    for (why, labels, expected) in table {
        let mut forest = forest(&trees);
        let before = forest.clone();
        assert_eq!(outcome(&mut forest, &consumer("x", labels, "cpu=1", 9)), expected, "{why}");
        assert_eq!(forest.holds(&id("x")), expected == "leaf only", "{why}");
        assert_eq!(forest == before, expected != "leaf only", "{why}");
    }
}

#[test]
fn qu_3_no_tree_no_limit() {
    let mut forest = Forest::default();
    assert!(forest.is_empty());
    let allocation = forest.try_allocate(&consumer("x", "", "cpu=1000", 0)).unwrap();
    assert!(allocation.placed.is_empty() && allocation.victims.is_empty());
    forest.undo(allocation).unwrap();
    assert_eq!(forest, Forest::default());
}

#[test]
fn qu_4_consumers() {
    assert_eq!(ConsumerId::new("team", "job").to_string(), "NAMESPACE_team_AWNAME_job");
    // The names of the original can collide; ours are namespace and name.
    let [a, b] = [ConsumerId::new("a_AWNAME_b", "c"), ConsumerId::new("a", "b_AWNAME_c")];
    assert_ne!(a, b);
    // A consumer that is not preemptable stays on the root even for the owner of the quota.
    let lines = "root: cpu=2\n own < root: cpu=2\n default < root: cpu=0";
    for (preemptable, expected) in
        [(true, "own, without x"), (false, "node \"root\" of quota tree t lacks 1 of cpu")]
    {
        let mut forest = forest(&[("t", lines)]);
        let bound = Consumer { preemptable, ..consumer("x", "", "cpu=1", 0) };
        assert_eq!(outcome(&mut forest, &bound), "root");
        assert_eq!(outcome(&mut forest, &consumer("w", "t=own", "cpu=2", 9)), expected);
    }
}

/// A consumer that holds quota already is not charged again, and undoing that releases nothing.
#[test]
fn a_second_allocation_changes_nothing() {
    let mut forest = forest(&[("t", "root: cpu=1")]);
    let asks = consumer("x", "t=root", "cpu=1", 0);
    forest.try_allocate(&asks).unwrap();
    let before = forest.clone();
    let again = forest.try_allocate(&asks).unwrap();
    assert_eq!((again.placed["t"].as_str(), again.victims.len()), ("root", 0));
    forest.undo(again).unwrap();
    assert_eq!(forest, before);
    assert!(forest.holds(&id("x")));
}

#[test]
fn qu_7_all_trees_or_none() {
    let trees = [
        ("a", "root: cpu=2\n own < root: cpu=1\n default < root: cpu=0"),
        ("b", "root: cpu=2\n own < root: cpu=2\n default < root: cpu=0"),
    ];
    let mut forest = forest(&trees);
    forest.try_allocate(&consumer("x", "a=own b=default", "cpu=1", 0)).unwrap();
    forest.try_allocate(&consumer("y", "a=default b=own", "cpu=1", 0)).unwrap();
    let before = forest.clone();
    // Tree a would preempt for an owner, tree b has no node for it.
    let refused = forest.try_allocate(&consumer("w", "a=own b=gone", "cpu=1", 0));
    assert_eq!(refused.unwrap_err().to_string(), "quota tree b has no node \"gone\"");
    assert_eq!(forest, before);
    // In a, y is the borrower and is preempted; in b it held its own quota, which is free then.
    let allocation = forest.try_allocate(&consumer("w", "a=default b=own", "cpu=1", 1)).unwrap();
    assert_eq!(names(&allocation.victims), "y");
    assert_eq!(
        (placements_of(&forest, "a"), placements_of(&forest, "b")),
        ("own: x, root: w".into(), "own: w, root: x".into())
    );
    assert!(!forest.holds(&id("y")));
    forest.undo(allocation).unwrap();
    assert_eq!(forest, before);
}

/// The first tree has quota for all and learns only later which consumers had to leave.
#[test]
fn qu_7_victims_leave_trees_that_have_agreed() {
    let room = "root: cpu=9\n own < root: cpu=9\n default < root: cpu=0";
    let mut forest = forest(&[("a", room), ("b", "root: cpu=1")]);
    forest.try_allocate(&consumer("x", "b=root", "cpu=1", 0)).unwrap();
    let asks = consumer("w", "a=own b=root", "cpu=1", 1);
    assert_eq!(outcome(&mut forest, &asks), "own root, without x");
    assert_eq!(placements_of(&forest, "a"), "own: w");
    assert_eq!(forest.usage()["a"]["root"].allocated["cpu"], 1000);
}

/// The tree that comes first by name refuses until the victim of the other is gone. The original
/// handled this only if it happened to try the other tree first.
#[test]
fn qu_7_a_tree_is_asked_again() {
    let full = "root: cpu=2\n one < root: cpu=1 hard\n two < root: cpu=1 hard";
    let lent = "root: cpu=2\n own < root: cpu=2\n default < root: cpu=0";
    for (first, second) in [("a", "b"), ("b", "a")] {
        let mut forest = forest(&[(first, full), (second, lent)]);
        let asks = |name: &str, leaf: &str, other: &str| {
            consumer(name, &format!("{first}={leaf} {second}={other}"), "cpu=1", 0)
        };
        forest.try_allocate(&asks("x", "one", "default")).unwrap();
        forest.try_allocate(&asks("y", "two", "own")).unwrap();
        let before = forest.clone();
        let allocation = forest.try_allocate(&asks("w", "one", "own")).unwrap();
        assert_eq!(names(&allocation.victims), "x", "{first} is full");
        assert_eq!(placements_of(&forest, first), "one: w, two: y");
        assert_eq!(placements_of(&forest, second), "own: y w");
        forest.undo(allocation).unwrap();
        assert_eq!(forest, before);
        // On the other leaf the victim would not help: nothing may have changed.
        let refusal = forest.try_allocate(&asks("w", "two", "own")).unwrap_err();
        assert_eq!((refusal.tree.as_str(), refusal.node.as_str()), (first, "two"));
        assert_eq!(forest, before);
    }
}

/// The undo of the dispatcher when the quota suffices and the cluster does not.
#[test]
fn qu_8_undo_takes_everything_back() {
    let lines = "root: cpu=2\n own < root: cpu=2\n default < root: cpu=0";
    let mut forest = forest(&[("t", lines)]);
    forest.try_allocate(&consumer("x", "", "cpu=1", 0)).unwrap();
    forest.try_allocate(&consumer("y", "", "cpu=1", 0)).unwrap();
    let before = forest.clone();
    let first = forest.try_allocate(&consumer("v", "t=own", "cpu=1", 0)).unwrap();
    let between = forest.clone();
    let second = forest.try_allocate(&consumer("w", "t=own", "cpu=1", 0)).unwrap();
    assert_eq!((names(&first.victims), names(&second.victims)), ("x".into(), "y".into()));
    // Only in the opposite order.
    forest.undo(second).unwrap();
    assert_eq!(forest, between);
    forest.undo(first).unwrap();
    assert_eq!(forest, before);
    assert_eq!(format!("{forest:?}"), format!("{before:?}"), "to the last byte");

    let first = forest.try_allocate(&consumer("v", "t=own", "cpu=1", 0)).unwrap();
    forest.release(&id("y"));
    let after = forest.clone();
    let refused = forest.undo(first).unwrap_err();
    let text = "cannot undo the allocation of NAMESPACE_n_AWNAME_v: quota was given or taken since";
    assert_eq!(refused.to_string(), text);
    assert_eq!(forest, after);
}

#[test]
fn qu_9_force_placement() {
    let mut forest =
        forest(&[("t", "root: cpu=2\n own < root: cpu=1 hard\n default < root: cpu=0")]);
    for (name, labels) in
        [("a", "t=own"), ("b", "t=own"), ("c", ""), ("d", "t=gone"), ("e", "t=root")]
    {
        forest.force_place(&consumer(name, labels, "cpu=1", 0));
        forest.force_place(&consumer(name, labels, "cpu=1", 0));
    }
    assert_eq!(placements_of(&forest, "t"), "default: c, own: a b, root: d e");
    assert_eq!(forest.usage()["t"]["root"].allocated["cpu"], 5000, "over quota");
    let refusal = forest.try_allocate(&consumer("w", "t=own", "cpu=1", 0)).unwrap_err();
    let missing = QuotaRefusalReason::Exceeded { missing: [("cpu".to_owned(), 2000)].into() };
    assert_eq!((refusal.node.as_str(), refusal.reason), ("own", missing));
}

/// Rebuilt in the order of dispatch, a forest knows again which consumers borrowed.
#[test]
fn qu_9_restore_keeps_borrowers_movable() {
    let lines =
        "root: cpu=4\n gold < root: cpu=2\n silver < root: cpu=2\n bronze < root: cpu=1 hard";
    let running = [
        consumer("a", "t=silver", "cpu=2", 0),
        consumer("b", "t=silver", "cpu=2", 0),
        consumer("c", "t=bronze", "cpu=2", 0),
    ];
    let mut lived = forest(&[("t", lines)]);
    for consumer in &running[..2] {
        lived.try_allocate(consumer).unwrap();
    }
    let mut rebuilt = forest(&[("t", lines)]);
    for consumer in &running[..2] {
        rebuilt.restore(consumer);
    }
    assert_eq!(placements_of(&rebuilt, "t"), placements_of(&lived, "t"));
    assert_eq!(outcome(&mut rebuilt, &consumer("w", "t=gold", "cpu=2", 0)), "gold, without b");
    assert!(rebuilt.release(&id("w")) && rebuilt.release(&id("a")));
    // There is quota above its hard node, but no way there: it is charged as if forced.
    rebuilt.restore(&running[2]);
    assert_eq!(placements_of(&rebuilt, "t"), "bronze: c");
}

/// A rebuilt forest preempts the same consumers as the original one: owners are not taken for
/// borrowers because they came later, nor those of high priority.
#[test]
fn qu_9_rebuild_distinguishes_owners_from_borrowers() {
    let lines = "root: cpu=6
        left < root: cpu=2
        gold < left: cpu=2
        iron < left: cpu=2
        right < root: cpu=4";
    type Placed<'a> = &'a [(&'a str, &'a str, i32, i32)];
    let table: [(&str, Placed<'_>, &str); 3] = [
        // why                  who, leaf, cpus, priority                              picture
        ("the first one stays", &[("a", "gold", 2, 0), ("b", "gold", 2, 0)], "gold: a, root: b"),
        ("high priority stays", &[("a", "gold", 2, 0), ("b", "gold", 2, 5)], "gold: b, root: a"),
        (
            "owners push borrowers up",
            &[("a", "gold", 1, 0), ("b", "gold", 2, 0), ("c", "iron", 1, 0)],
            "gold: a, iron: c, root: b",
        ),
    ];
    for (why, there, expected) in table {
        let mut lived = forest(&[("t", lines)]);
        let mut standing = Vec::new();
        for (second, (name, leaf, cpu, priority)) in (0..).zip(there) {
            let asks = consumer(name, &format!("t={leaf}"), &format!("cpu={cpu}"), *priority);
            lived.try_allocate(&asks).unwrap();
            let since = jiff::Timestamp::from_second(second).unwrap();
            standing.push(QuotaHolder { since, consumer: asks });
        }
        for _ in 0..2 {
            let (rebuilt, _) = Forest::rebuild(subtrees("t", lines), standing.clone());
            assert_eq!(
                (placements_of(&lived, "t").as_str(), placements_of(&rebuilt, "t").as_str()),
                (expected, expected),
                "{why}"
            );
            standing.reverse();
        }
    }
}

#[test]
fn qu_10_edits() {
    let before = "root: cpu=9\n mid < root: cpu=2\n own < mid: cpu=1\n default < root: cpu=0";
    let table = [
        ("the same", before, "default: d, mid: b, own: a, root: c"),
        (
            "less for everyone",
            "root: cpu=1\n mid < root: cpu=0\n own < mid: cpu=0\n default < root: cpu=0",
            "default: d, mid: b, own: a, root: c",
        ),
        (
            "their node is gone, the leaf is not",
            "root: cpu=9\n own < root: cpu=1\n default < root: cpu=0",
            "default: d, own: a b, root: c",
        ),
        (
            "their node is elsewhere",
            "root: cpu=9\n mid < root: cpu=1\n own < root: cpu=1\n default < root: cpu=0",
            "default: d, own: a b, root: c",
        ),
        ("their leaf is gone", "root: cpu=9\n mid < root: cpu=2", "root: a d b c"),
        (
            "another root",
            "top: cpu=9\n mid < top: cpu=2\n own < mid: cpu=1\n default < top: cpu=0",
            "default: d, mid: b, own: a c",
        ),
        (
            "the leaf has children now",
            "root: cpu=9\n own < root: cpu=1\n new < own: cpu=1\n default < root: cpu=0",
            "default: d, own: a b, root: c",
        ),
    ];
    for (why, after, expected) in table {
        let mut forest = forest(&[("t", before)]);
        for name in ["a", "b"] {
            forest.try_allocate(&consumer(name, "t=own", "cpu=1", 0)).unwrap();
        }
        forest.try_allocate(&consumer("c", "t=own", "cpu=3", 0)).unwrap();
        forest.force_place(&consumer("d", "t=default", "cpu=1", 0));
        assert_eq!(forest.edit(subtrees("t", after)), [], "{why}");
        assert_eq!(placements_of(&forest, "t"), expected, "{why}");
        for name in ["a", "b", "c", "d"] {
            assert!(forest.release(&id(name)), "{why}: {name} was not forgotten");
        }
        assert!(forest.usage()["t"].values().all(|node| node.allocated["cpu"] == 0), "{why}");
    }
}

/// Trees come and go while consumers hold quota; running consumers are charged to a new tree.
#[test]
fn qu_10_trees_come_and_go() {
    let mut forest = Forest::default();
    forest.try_allocate(&consumer("a", "t=own", "cpu=1", 0)).unwrap();
    forest.try_allocate(&consumer("b", "", "cpu=1", 0)).unwrap();
    forest.edit(subtrees("t", "root: cpu=2\n own < root: cpu=1\n default < root: cpu=0"));
    assert_eq!(placements_of(&forest, "t"), "default: b, own: a");
    let refusal = forest.try_allocate(&consumer("c", "t=own", "cpu=1", 0)).unwrap_err();
    assert_eq!(refusal.node, "root");
    let problems = forest.edit::<Subtree>([]);
    assert_eq!((problems.len(), forest.is_empty(), forest.holds(&id("a"))), (0, true, true));
    forest.try_allocate(&consumer("c", "t=own", "cpu=1", 0)).unwrap();
    assert_eq!(forest.consumers().count(), 3);
}

#[test]
fn the_status_of_a_subtree() {
    let objects = subtrees(
        "t",
        "root: cpu=4 memory=1Gi\n gold < root: cpu=2 memory=1Gi\n idle < root: cpu=1",
    );
    let (mut forest, _) = Forest::new(&objects);
    let amounts = "cpu=1500m memory=512Mi nvidia.com/gpu=0";
    forest.try_allocate(&consumer("a", "t=gold", amounts, 0)).unwrap();
    forest.force_place(&consumer("b", "t=idle", "nvidia.com/gpu=2", 0));
    let status = |object: &Subtree| serde_json::to_value(forest.status(object)).unwrap();
    assert_eq!(
        objects.iter().map(status).collect::<Vec<_>>(),
        [
            json!({
                "totalAllocation": {"cpu": "1500m", "memory": "512Mi", "nvidia.com/gpu": "2"},
                "children": [
                    {"name": "root", "allocated": {"cpu": "1500m", "memory": "512Mi", "nvidia.com/gpu": "2"}},
                ],
            }),
            json!({
                "totalAllocation": {"cpu": "1500m", "memory": "512Mi", "nvidia.com/gpu": "2"},
                "children": [
                    {"name": "gold", "allocated": {"cpu": "1500m", "memory": "512Mi"}},
                    {"name": "idle", "allocated": {"cpu": "0", "nvidia.com/gpu": "2"}},
                ],
            }),
        ]
    );
    // Objects that are ignored have an empty status: no tree label, or a node that another object
    // has.
    let twice = subtree(
        "zz",
        &json!({"tree": "t"}),
        &json!({"parent": "root", "children": [{"name": "gold"}]}),
    );
    let alone = subtree("zz", &json!({}), &json!({"children": [{"name": "gold"}]}));
    for object in [twice, alone] {
        assert_eq!(status(&object), json!({}), "{object:?}");
    }
}

/// Amounts as large as can be written do not overflow.
#[test]
fn amounts_do_not_overflow() {
    let mut forest = forest(&[("t", "root: memory=8E\n own < root: memory=8E")]);
    for name in 0..20 {
        let asks = consumer(&name.to_string(), "t=own", "", 0);
        forest.force_place(&Consumer { request: [("memory".to_owned(), i64::MAX)].into(), ..asks });
    }
    assert_eq!(forest.usage()["t"]["root"].allocated["memory"], i128::from(i64::MAX) * 20);
    let refusal = forest.try_allocate(&consumer("w", "t=own", "memory=1", 0)).unwrap_err();
    assert!(refusal.to_string().contains("lacks"), "{refusal}");
}
