//! Problems that take other allocators minutes are solved by counting.

use super::build::*;

#[test]
fn one_more_than_there_are_is_refused_by_counting() {
    for n in [8, 10, 32, 64] {
        let world = InventoryBuilder::default().pool("p", devs("d", n, 0)).build();
        let asked = request(&[&[&[want(u32::try_from(n).unwrap() + 1, &[0])]]]);
        assert!(refused(&world, &asked).steps <= 1, "{n}");
    }
}

#[test]
fn one_more_term_than_devices_is_refused_by_counting() {
    for n in [9, 32, 64] {
        // Devices that differ, so that no symmetry helps.
        let devices = devs("d", n, 0).into_iter().enumerate();
        let devices = devices.map(|(at, dev)| dev.attr("serial", &at.to_string()));
        let world = InventoryBuilder::default().pool("p", devices.collect()).build();
        let terms: Vec<Vec<TermRequest>> = vec![vec![want(1, &[0])]; n + 1];
        let one_claim: Vec<&[TermRequest]> = terms.iter().map(Vec::as_slice).collect();
        let steps = refused(&world, &request(&[&one_claim])).steps;
        assert!(steps <= 1, "{n} in one claim: {steps}");
        let claims: Vec<&[&[TermRequest]]> = one_claim.iter().map(std::slice::from_ref).collect();
        let steps = refused(&world, &request(&claims)).steps;
        assert!(steps <= 1, "{n} claims: {steps}");
    }
}

#[test]
fn a_term_leaves_others_what_only_they_can_use() {
    // The first term may have any of 32, the second only eight of them; the canonical solution
    // takes what it can from the front and leaves exactly enough.
    let devices = devs("d", 32, 0).into_iter().enumerate();
    let devices = devices.map(|(at, dev)| dev.attr("serial", &at.to_string()));
    let mut devices: Vec<Dev> = devices.collect();
    for (at, device) in devs("e", 8, 1).into_iter().enumerate() {
        devices[at] = device.attr("serial", &at.to_string());
    }
    let world = InventoryBuilder::default().pool("p", devices).build();
    let asked = request(&[&[&[want(8, &[0, 1])], &[want(4, &[1])]]]);
    let found = granted(&world, &asked);
    let expected =
        [vec!["e0", "e1", "e2", "e3", "d8", "d9", "d10", "d11"], vec!["e4", "e5", "e6", "e7"]];
    assert_eq!(names(&world, &found), expected);
    assert!(found.steps < 200, "{}", found.steps);
}

#[test]
fn an_unaffordable_device_is_skipped() {
    let devices = devs("d", 8, 0).into_iter().enumerate();
    let devices = devices.map(|(at, dev)| dev.charge(&[if at == 0 { 20 } else { 10 }]));
    let world = InventoryBuilder::default().pool("p", devices.collect()).resources(&[70]).build();
    let found = granted(&world, &request(&[&[&[want(7, &[0])]]]));
    assert_eq!(names(&world, &found)[0], ["d1", "d2", "d3", "d4", "d5", "d6", "d7"]);
    assert!(found.steps < 50, "{}", found.steps);
    assert!(refused(&world, &request(&[&[&[want(8, &[0])]]])).steps < 50);
}

#[test]
fn unaffordable_charges_are_pruned_early() {
    // Devices that all differ, of which any four exceed the pool's resource by one, and no three
    // do.
    let devices = devs("d", 24, 0).into_iter().enumerate();
    let devices = devices.map(|(at, dev)| dev.attr("serial", &at.to_string()).charge(&[10]));
    let world = InventoryBuilder::default().pool("p", devices.collect()).resources(&[39]).build();
    let four = |name: &str| request(&[&[&[want(4, &[0]).distinct(name)]]]);
    assert!(refused(&world, &four("serial")).steps < 10);
    granted(&world, &request(&[&[&[want(3, &[0]).distinct("serial")]]]));
}

#[test]
fn equal_pools_are_not_tried_one_after_another() {
    let mut world = InventoryBuilder::default();
    for at in 0..64 {
        world = world.pool(&format!("p{at}"), vec![dev("d", 0).charge(&[2])]).resources(&[3]);
    }
    // Both terms need a device of each of 33 pools, and each pool has one.
    let world = world.build();
    let one = [want(33, &[0])];
    let steps = refused(&world, &request(&[&[&one], &[&one]])).steps;
    assert!(steps < 10, "{steps}");
    // A third of each pool's resource is left over, and no other device can use it.
    let found = granted(&world, &request(&[&[&[want(32, &[0])]], &[&[want(32, &[0])]]]));
    assert!(found.steps < 5000, "{}", found.steps);
}

#[test]
fn an_exhausted_budget_is_indeterminate() {
    use crate::allocate;
    use crate::problem::{AllocationOutcome, Budget, Undecided};
    let world = InventoryBuilder::default().pool("p", devs("d", 8, 0)).build();
    let asked = request(&[&[&[want(4, &[0])]]]);
    let budget = Budget { steps: 3, stop: None };
    let answer = allocate(&world, 0, &asked, &budget);
    assert_eq!(answer, AllocationOutcome::Indeterminate(Undecided::Steps(3)));
}
