use proptest::prelude::*;

use super::*;

fn amounts(text: &str) -> BTreeMap<String, i64> {
    let pair = |word: &str| {
        let (name, amount) = word.split_once('=').unwrap();
        (name.to_owned(), amount.parse().unwrap())
    };
    text.split_whitespace().map(pair).collect()
}

/// Returns the order of `namespace:demand` words, as namespaces.
fn fair_order_of(queue: &[(&str, &str)], held: &[(&str, &str)], capacity: &str) -> String {
    let demands: Vec<_> = queue.iter().map(|(_, demand)| amounts(demand)).collect();
    let waiting: Vec<_> = queue
        .iter()
        .zip(&demands)
        .map(|((namespace, _), demand)| PendingDemand { namespace, demand })
        .collect();
    let held = held.iter().map(|(name, text)| (*name, amounts(text))).collect();
    let order = fair_order(&waiting, &held, &amounts(capacity));
    order.iter().map(|place| format!("{}{place}", queue[*place].0)).collect::<Vec<_>>().join(" ")
}

#[test]
fn namespaces_take_turns() {
    let one = "cpu=1";
    let table = [
        ("none pending", vec![], vec![], ""),
        ("one namespace keeps its order", vec![("a", one), ("a", one)], vec![], "a0 a1"),
        (
            "a crowd does not hold up the other",
            vec![("a", one), ("a", one), ("a", one), ("b", one)],
            vec![],
            "a0 b3 a1 a2",
        ),
        (
            "a namespace that holds something waits",
            vec![("a", one), ("a", one), ("b", one), ("b", one)],
            vec![("a", "cpu=1")],
            "b2 a0 b3 a1",
        ),
        (
            "large requests count as such",
            vec![("a", "cpu=3"), ("a", one), ("b", one), ("b", one), ("b", one), ("b", one)],
            vec![],
            "a0 b2 b3 b4 a1 b5",
        ),
        (
            "the largest part of any resource counts",
            vec![("a", "cpu=1"), ("a", "cpu=1"), ("b", "gpu=1"), ("b", "gpu=1")],
            vec![],
            // One of ten cpus is less than one of four gpus.
            "a0 b2 a1 b3",
        ),
        (
            "what there is none of is not compared",
            vec![("a", "disk=9"), ("a", "disk=9"), ("b", one)],
            vec![],
            "a0 a1 b2",
        ),
    ];
    for (why, queue, held, expected) in table {
        assert_eq!(fair_order_of(&queue, &held, "cpu=10 gpu=4 disk=0"), expected, "{why}");
    }
}

#[test]
fn large_amounts_are_compared_exactly() {
    let share = |part, whole| DominantShare { part, whole };
    assert!(share(i64::MAX - 1, i64::MAX) < share(1, 1));
    assert!(share(i64::MAX - 1, i64::MAX) > share(i64::MAX - 2, i64::MAX - 1));
    assert_eq!(share(2, 4), share(1, 2));
}

fn any_queue() -> impl Strategy<Value = Vec<(String, BTreeMap<String, i64>)>> {
    let amount = |name: &'static str| (0..6_i64).prop_map(move |amount| (name.to_owned(), amount));
    let demand = (amount("cpu"), amount("gpu")).prop_map(|(cpu, gpu)| [cpu, gpu].into());
    proptest::collection::vec(("[a-d]", demand), 0..40)
}

proptest! {
    /// Every AppWrapper is in the order, none overtakes within a namespace, and the next one is of
    /// a namespace with the smallest share of all that are pending.
    #[test]
    fn the_order_is_fair(
        queue in any_queue(),
        start in proptest::collection::btree_map("[a-d]", (0..9_i64, 0..9_i64), 0..4),
        (cpu, gpu) in (0..50_i64, 0..50_i64),
    ) {
        let waiting: Vec<_> = queue
            .iter()
            .map(|(namespace, demand)| PendingDemand { namespace, demand })
            .collect();
        let capacity: BTreeMap<String, i64> = [("cpu".to_owned(), cpu), ("gpu".to_owned(), gpu)].into();
        let amounts = |(cpu, gpu): (i64, i64)| [("cpu".to_owned(), cpu), ("gpu".to_owned(), gpu)].into();
        let held: BTreeMap<&str, BTreeMap<String, i64>> =
            start.iter().map(|(name, both)| (name.as_str(), amounts(*both))).collect();
        let order = fair_order(&waiting, &held, &capacity);

        let mut sorted = order.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..queue.len()).collect::<Vec<_>>());

        let mut has = held.clone();
        // The dominant share with the product of all amounts as denominator: another way to the
        // same comparison.
        let share = |has: &BTreeMap<&str, BTreeMap<String, i64>>, name: &str| -> i64 {
            let of = |resource: &str| has.get(name).and_then(|it| it.get(resource)).copied().unwrap_or(0);
            let cpu_part = if cpu > 0 { of("cpu") * gpu.max(1) } else { 0 };
            let gpu_part = if gpu > 0 { of("gpu") * cpu.max(1) } else { 0 };
            cpu_part.max(gpu_part)
        };
        for (turn, &place) in order.iter().enumerate() {
            let (name, demand) = &queue[place];
            for &other in &order[turn + 1..] {
                let (theirs, _) = &queue[other];
                prop_assert!(share(&has, name) <= share(&has, theirs), "{} before {}", place, other);
                prop_assert!(theirs != name || place < other, "{} before {}", place, other);
            }
            let mine = has.entry(name).or_default();
            for (resource, amount) in demand {
                *mine.entry(resource.clone()).or_default() += amount;
            }
        }
    }

    /// With equal demands and nothing held, no namespace is ever more than one turn ahead of
    /// another that is pending.
    #[test]
    fn equals_alternate(names in proptest::collection::vec("[a-c]", 0..40)) {
        let demand: BTreeMap<String, i64> = [("cpu".to_owned(), 3)].into();
        let waiting: Vec<_> =
            names.iter().map(|name| PendingDemand { namespace: name, demand: &demand }).collect();
        let order = fair_order(&waiting, &BTreeMap::new(), &[("cpu".to_owned(), 7)].into());
        let mut had: BTreeMap<&str, usize> = BTreeMap::new();
        for (turn, &place) in order.iter().enumerate() {
            *had.entry(&names[place]).or_default() += 1;
            for &other in &order[turn + 1..] {
                let theirs = had.get(names[other].as_str()).copied().unwrap_or(0);
                prop_assert!(had[names[place].as_str()] <= theirs + 1);
            }
        }
    }
}
