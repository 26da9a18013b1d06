//! The golden sequence, step by step.

use super::*;

const TREE: &str = "
    A: cpu=10
    B < A: cpu=2
    E < B: cpu=1
    F < B: cpu=1
    C < A: cpu=6
    G < C: cpu=3
    K < G: cpu=1
    L < G: cpu=2
    H < C: cpu=3
    M < H: cpu=1
    N < H: cpu=2
    D < A: cpu=2
    I < D: cpu=1
    J < D: cpu=1";

/// Allocates where there is a leaf, else releases; then all placements must be as in the picture.
#[test]
fn qu_11_and_b_12_golden_sequence() {
    let table = [
        // who  leaf    cpu  priority  outcome           picture
        ("a", Some("N"), 1, 0, "N", "N: a"),
        ("b", Some("N"), 1, 0, "N", "N: a b"),
        ("c", Some("N"), 1, 0, "H", "H: c, N: a b"),
        ("a", None, 0, 0, "", "N: b c"),
        ("d", Some("N"), 2, 1, "N", "C: b, H: c, N: d"),
        ("e", Some("L"), 3, 0, "G", "A: b, G: e, H: c, N: d"),
        ("f", Some("E"), 3, 0, "A", "A: b f, G: e, H: c, N: d"),
        ("g", Some("J"), 1, 0, "J, without b", "A: f, G: e, H: c, J: g, N: d"),
        ("h", Some("K"), 1, 0, "K, without f", "A: e, H: c, J: g, K: h, N: d"),
        ("i", Some("I"), 3, 1, "A, without e", "A: i, H: c, J: g, K: h, N: d"),
        ("j", Some("F"), 2, 0, "B", "A: i, B: j, H: c, J: g, K: h, N: d"),
    ];
    let mut forest = forest(&[("t", TREE)]);
    for (step, (who, leaf, cpu, priority, expected, after)) in table.into_iter().enumerate() {
        match leaf {
            Some(leaf) => {
                let asks = consumer(who, &format!("t={leaf}"), &format!("cpu={cpu}"), priority);
                let before = forest.clone();
                let tried = forest.try_allocate(&asks).unwrap();
                forest.undo(tried).unwrap();
                assert_eq!(forest, before, "step {step} is undone");
                assert_eq!(outcome(&mut forest, &asks), expected, "step {step}: {who}");
            }
            None => assert!(forest.release(&id(who)), "step {step}: {who}"),
        }
        assert_eq!(placements_of(&forest, "t"), after, "step {step}: {who}");
    }
    let charged = |node: &str| forest.usage()["t"][node].allocated["cpu"];
    let sums: Vec<(&str, i128)> =
        ["A", "B", "C", "D", "G", "H", "N"].into_iter().map(|node| (node, charged(node))).collect();
    assert_eq!(
        sums,
        [
            ("A", 10000),
            ("B", 2000),
            ("C", 4000),
            ("D", 1000),
            ("G", 1000),
            ("H", 3000),
            ("N", 2000)
        ]
    );
}

/// Releasing all consumers, in any order, leaves the forest as it began.
#[test]
fn qu_11_ends_empty() {
    let empty = forest(&[("t", TREE)]);
    let mut forest = empty.clone();
    for (who, leaf, cpu, priority) in
        [("a", "N", 1, 0), ("b", "N", 2, 1), ("c", "L", 3, 0), ("d", "E", 3, 0)]
    {
        let asks = consumer(who, &format!("t={leaf}"), &format!("cpu={cpu}"), priority);
        forest.try_allocate(&asks).unwrap();
    }
    for who in ["c", "a", "d", "b"] {
        assert!(forest.release(&id(who)));
        assert!(!forest.release(&id(who)), "{who} is gone already");
    }
    assert_eq!(forest.usage(), empty.usage());
    assert_eq!(forest.consumers().count(), 0);
}
