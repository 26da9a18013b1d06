//! How many allocations a second: trees of a thousand nodes, ten thousand consumers. Build with
//! optimisation for figures that mean something.
#![expect(clippy::print_stdout, reason = "a measurement prints what it measured")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::time::{Duration, Instant};

use gantry_queue::quota::{Consumer, ConsumerId, Forest, Subtree};
use serde_json::{Value, json};

/// Groups below the root, and leaves below each: 1 + 31 + 31 * 31 = 993 nodes.
const WIDTH: usize = 31;
const CONSUMERS: usize = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "{:>5} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}   per second",
        "trees", "nodes", "give", "replace", "refuse", "reclaim", "undo", "take"
    );
    for trees in [1, 2, 4] {
        measure(trees)?;
    }
    Ok(())
}

fn measure(trees: usize) -> Result<(), Box<dyn std::error::Error>> {
    let objects: Vec<Subtree> =
        (0..trees).flat_map(tree).map(serde_json::from_value).collect::<Result<_, _>>()?;
    let (mut forest, problems) = Forest::new(&objects);
    if let Some(problem) = problems.into_iter().next() {
        return Err(problem.into());
    }
    // The quota of the root suffices for all of them; four in ten borrow, as their leaf is full.
    let consumers: Vec<Consumer> = (0..CONSUMERS).map(|n| consumer(trees, n, n, 0)).collect();
    let start = Instant::now();
    for consumer in &consumers {
        forest.try_allocate(consumer)?;
    }
    let give = start.elapsed();

    // Full: one ends, another arrives.
    let start = Instant::now();
    for (n, consumer) in consumers.iter().enumerate() {
        forest.release(&consumer.id);
        forest.try_allocate(&self::consumer(trees, n + CONSUMERS, n, 0))?;
    }
    let replace = start.elapsed();

    // One more whose leaf and group are full already.
    let late = consumer(trees, usize::MAX, 6, 0);
    let start = Instant::now();
    for _ in 0..1000 {
        if forest.try_allocate(&late).is_ok() {
            return Err("there was room for one too many".into());
        }
    }
    let refuse = start.elapsed();

    // One more whose leaf is not: a borrower is preempted, and comes back.
    let owner = consumer(trees, usize::MAX, 0, 0);
    let (mut reclaim, mut undo) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..1000 {
        let start = Instant::now();
        let allocation = forest.try_allocate(&owner)?;
        reclaim += start.elapsed();
        let start = Instant::now();
        forest.undo(allocation)?;
        undo += start.elapsed();
    }

    let start = Instant::now();
    for n in 0..CONSUMERS {
        forest.release(&id(n + CONSUMERS));
    }
    let take = start.elapsed();
    let rate = |count: u32, time: Duration| f64::from(count) / time.as_secs_f64();
    println!(
        "{trees:>5} {:>6} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0}",
        trees * (1 + WIDTH + WIDTH * WIDTH),
        rate(10_000, give),
        rate(10_000, replace),
        rate(1000, refuse),
        rate(1000, reclaim),
        rate(1000, undo),
        rate(10_000, take),
    );
    Ok(())
}

fn id(n: usize) -> ConsumerId {
    ConsumerId::new("bench", &format!("job-{n}"))
}

/// Returns a consumer of one cpu; six of ten use leaves in turn, four of ten share twelve leaves.
fn consumer(trees: usize, n: usize, turn: usize, priority: i32) -> Consumer {
    let leaf = if turn % 10 < 6 { turn % (WIDTH * WIDTH) } else { turn % 30 };
    let label = |tree: usize| (format!("tree-{tree}"), format!("leaf-{leaf}"));
    Consumer {
        id: id(n),
        priority,
        preemptable: true,
        preempt_first: false,
        request: [("cpu".to_owned(), 1000), ("memory".to_owned(), 1 << 30)].into(),
        labels: (0..trees).map(label).collect(),
    }
}

/// Returns root, groups and leaves of one tree.
fn tree(number: usize) -> Vec<Value> {
    let tree = format!("tree-{number}");
    let child = |name: String, cpus: usize| {
        json!({
            "name": name, "quotas": {"requests": {"cpu": cpus, "memory": format!("{cpus}Gi")}},
        })
    };
    let object = |name: &str, parent: Option<String>, children: Vec<Value>| {
        json!({
            "metadata": {
                "name": format!("{tree}-{name}"), "namespace": "q", "labels": {"tree": tree},
            },
            "spec": {"parent": parent, "children": children},
        })
    };
    let groups = (0..WIDTH).map(|group| child(format!("group-{group}"), 330)).collect();
    let mut objects = vec![
        object("top", None, vec![child("root".to_owned(), CONSUMERS)]),
        object("groups", Some("root".to_owned()), groups),
    ];
    for group in 0..WIDTH {
        let leaves = (0..WIDTH).map(|leaf| child(format!("leaf-{}", group * WIDTH + leaf), 10));
        objects.push(object(
            &format!("leaves-{group}"),
            Some(format!("group-{group}")),
            leaves.collect(),
        ));
    }
    objects
}
