//! Tests the choice of the node.

use super::build::*;
use crate::problem::{Budget, Inventory, Node};
use crate::{FeasibleNode, Packing, choose};

/// Node `b` has two free devices, node `a` three, node `c` two, each in a pool of its own.
fn fleet() -> Inventory {
    let one = InventoryBuilder::default().pool("pb", devs("b", 2, 0)).pool("pa", devs("a", 3, 0));
    let built = one.pool("pc", devs("c", 2, 0)).build();
    let node = |name: &str, pool: usize| Node { name: name.to_owned(), pools: vec![pool] };
    let nodes = vec![node("b", 0), node("a", 1), node("c", 2)];
    Inventory::new(built.symbols().clone(), built.pools().to_vec(), nodes)
}

#[test]
fn the_tightest_then_the_least_loaded_then_the_first_by_name() {
    let mut fleet = fleet();
    let asked = request(&[&[&[want(1, &[0])]]]);
    let table = [
        ("fewest left, then the name", Packing::BinPack, [0, 0, 0], 0),
        ("fewest left, then the load", Packing::BinPack, [1, 0, 0], 2),
        ("most left", Packing::Spread, [0, 9, 0], 1),
    ];
    for (why, packing, loads, expected) in table {
        let mut offers: Vec<FeasibleNode> = loads
            .iter()
            .enumerate()
            .map(|(node, load)| FeasibleNode { node, load: *load })
            .collect();
        for _ in 0..2 {
            let chosen = choose(&fleet, &offers, &asked, packing, &Budget::default());
            let placement = chosen.placement.unwrap();
            assert_eq!((placement.node, chosen.fitting), (expected, 3), "{why}");
            let pools: Vec<usize> = placement.allocation.holds().map(|hold| hold.pool).collect();
            assert_eq!(pools, [expected], "{why}");
            offers.reverse();
        }
    }
    // Filled one by one, the fleet allocates every device once and no more.
    let offers = [0, 1, 2].map(|node| FeasibleNode { node, load: 0 });
    let mut given = Vec::new();
    loop {
        let chosen = choose(&fleet, &offers, &asked, Packing::BinPack, &Budget::default());
        let Some(placement) = chosen.placement else { break };
        for hold in placement.allocation.holds() {
            fleet.hold(hold).unwrap();
        }
        given.extend(names(&fleet, &placement.allocation).concat());
    }
    assert_eq!(given, ["b0", "b1", "c0", "c1", "a0", "a1", "a2"]);
}

#[test]
fn a_better_alternative_outweighs_everything_else() {
    let built =
        InventoryBuilder::default().pool("p", devs("l", 1, 1)).pool("q", devs("h", 1, 0)).build();
    let node = |name: &str, pool: usize| Node { name: name.to_owned(), pools: vec![pool] };
    let nodes = vec![node("a", 0), node("b", 1)];
    let fleet = Inventory::new(built.symbols().clone(), built.pools().to_vec(), nodes);
    let asked = request(&[&[&[want(1, &[0]), want(1, &[1])]]]);
    let offers = [FeasibleNode { node: 0, load: 0 }, FeasibleNode { node: 1, load: 100 }];
    let chosen = choose(&fleet, &offers, &asked, Packing::BinPack, &Budget::default());
    assert_eq!(chosen.placement.unwrap().node, 1);
}

#[test]
fn undecided_nodes_are_not_refusals() {
    let fleet = fleet();
    let asked = request(&[&[&[want(2, &[0])]]]);
    let offers = [0, 1, 2].map(|node| FeasibleNode { node, load: 0 });
    let budget = Budget { steps: 2, stop: None };
    let chosen = choose(&fleet, &offers, &asked, Packing::BinPack, &budget);
    assert_eq!(chosen.placement, None);
    assert_eq!(chosen.undecided.len(), 3);
}
