//! How long one pod takes: fleets of 100 to 5,000 nodes, filled and drained, and questions that
//! have no solution. Build with `--release` for figures that mean something.
#![expect(clippy::print_stdout, reason = "a measurement prints what it measured")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_devices::problem::{
    Alternative, Budget, Charge, Claim, Count, Device, Granularity, Hold, Inventory, Node, Pool,
    PoolDevices, PoolResource, Request, Symbols, Term, Value, Verdict,
};
use gantry_devices::{FeasibleNode, Packing, allocate, choose};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "{:>6} {:>8} {:>12} {:>12} {:>12}",
        "nodes", "pods", "fill/pod", "drain/pod", "no fit"
    );
    for nodes in [100, 200, 500, 1000, 2000, 5000] {
        fleet(nodes, 8)?;
    }
    println!();
    println!("{:>6} {:>14} {:>14}", "n", "n+1 devices", "n+1 terms");
    for n in [8, 9, 10, 16, 32, 64, 1000] {
        too_many(n);
    }
    println!();
    slices();
    Ok(())
}

/// Fills a fleet with pods of one device each, asks for one more, and drains it.
fn fleet(nodes: usize, devices: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut inventory = inventory(nodes, devices);
    let request = request(&[1]);
    let offers: Vec<FeasibleNode> = (0..nodes).map(|node| FeasibleNode { node, load: 0 }).collect();
    let mut held: Vec<Hold> = Vec::new();
    let start = Instant::now();
    let pods = nodes * devices;
    for _ in 0..pods {
        let chosen = choose(&inventory, &offers, &request, Packing::BinPack, &Budget::default());
        let placement = chosen.placement.ok_or("a device is free, and it was not found")?;
        for hold in placement.allocation.holds() {
            inventory.hold(hold)?;
            held.push(hold.clone());
        }
    }
    let fill = start.elapsed();
    let start = Instant::now();
    let full = choose(&inventory, &offers, &request, Packing::BinPack, &Budget::default());
    let no_room = start.elapsed();
    if full.placement.is_some() {
        return Err("a device was given away twice".into());
    }
    let start = Instant::now();
    for hold in &held {
        inventory.release(hold)?;
    }
    let drain = start.elapsed();
    println!(
        "{nodes:>6} {pods:>8} {:>12} {:>12} {:>12}",
        per(fill, pods),
        per(drain, pods),
        per(no_room, 1)
    );
    Ok(())
}

/// Asks for one more device, and for one more term, than there are devices.
fn too_many(n: u32) {
    let count = usize::try_from(n).unwrap_or(usize::MAX);
    let inventory = inventory(1, count);
    let terms = vec![1; count.min(64) + 1];
    let inventory_of_terms = self::inventory(1, count.min(64));
    let questions = [(&inventory, request(&[n + 1])), (&inventory_of_terms, request(&terms))];
    let measured = questions.map(|(inventory, request)| {
        let start = Instant::now();
        let chosen = choose(
            inventory,
            &[FeasibleNode { node: 0, load: 0 }],
            &request,
            Packing::BinPack,
            &Budget::default(),
        );
        assert!(chosen.placement.is_none() && chosen.undecided.is_empty(), "{n}");
        per(start.elapsed(), 1)
    });
    println!("{n:>6} {:>14} {:>14}", measured[0], measured[1]);
}

/// Seven of eight partitions of a card, the first of which is too large.
fn slices() {
    let mut symbols = Symbols::default();
    let memory = symbols.intern("memory");
    let devices = (0..8).map(|at| Device {
        name: format!("slice-{at}"),
        charges: vec![Charge {
            resource: 0,
            amount: if at == 0 { 20 } else { 10 } * Granularity::UNIT,
        }],
        ..Device::default()
    });
    let pool = Pool {
        name: "card".to_owned(),
        resources: vec![PoolResource { name: memory, capacity: 70 * Granularity::UNIT, used: 0 }],
        devices: PoolDevices::Listed(devices.collect()),
        ..Pool::default()
    };
    let node = Node { name: "n".to_owned(), pools: vec![0] };
    let inventory = Inventory::new(symbols, vec![pool], vec![node]);
    let request = request(&[7]);
    let start = Instant::now();
    let times = 1000;
    for _ in 0..times {
        std::hint::black_box(allocate(&inventory, 0, &request, &Budget::default()));
    }
    println!("7 of 8 slices: {}", per(start.elapsed(), times));
}

/// Nodes with one pool of equal devices each; every device has a number of its own.
fn inventory(nodes: usize, devices: usize) -> Inventory {
    let mut symbols = Symbols::default();
    let numa = symbols.intern("numa");
    let values: Vec<_> = (0..devices)
        .map(|at| symbols.intern_value(&Value::Int(i64::try_from(at / 4).unwrap_or(0))))
        .collect();
    let pools = (0..nodes).map(|node| {
        let listed = values.iter().enumerate().map(|(at, value)| Device {
            name: format!("instance-{at}"),
            attributes: vec![(numa, *value)],
            ..Device::default()
        });
        let stock = PoolDevices::Listed(listed.collect());
        Pool { name: format!("node-{node:04}-gpu"), devices: stock, ..Pool::default() }
    });
    let nodes_of = (0..nodes).map(|at| Node { name: format!("node-{at:04}"), pools: vec![at] });
    Inventory::new(symbols, pools.collect(), nodes_of.collect())
}

/// One claim with a term for each number, of so many devices.
fn request(counts: &[u32]) -> Request {
    let term = |count: &u32| Term {
        name: "main".to_owned(),
        alternatives: vec![Alternative { count: Count::exactly(*count), ..Alternative::default() }],
    };
    let terms = counts.iter().map(term).collect();
    let claim = Claim { name: "claim".to_owned(), terms, ..Claim::default() };
    let verdicts: Vec<Arc<[Verdict]>> = vec![Arc::from(vec![Verdict::Met])];
    Request { claims: vec![claim], verdicts, ..Request::default() }
}

fn per(elapsed: Duration, count: usize) -> String {
    let nanos = elapsed.as_nanos() / u128::try_from(count.max(1)).unwrap_or(1);
    format!("{}.{:02} µs", nanos / 1000, nanos % 1000 / 10)
}
