//! Acceptance scenarios that need no API objects, at the level of problems.

use gantry_api::devices::{AccessMode, RequestedCapacity, Sharing, TopologyPolicy};

use super::build::*;
use crate::problem::Reason;

/// Nodes of the pools-only model: pools of two devices, one for each NUMA node.
fn shape_one() -> InventoryBuilder {
    let numa = |numa: &str| -> Vec<Dev> {
        devs("d", 2, 0).into_iter().map(|dev| dev.attr("numa", numa)).collect()
    };
    InventoryBuilder::default().pool("foozer-00", numa("0")).pool("foozer-01", numa("1"))
}

#[test]
fn scenario_49_and_50_fewest_pools_first() {
    let world = shape_one().build();
    let found = granted(&world, &request(&[&[&[want(2, &[0])]]]));
    assert_eq!(found.holds().map(|hold| hold.pool).collect::<Vec<_>>(), [0, 0]);
    let found = granted(&world, &request(&[&[&[want(4, &[0])]]]));
    assert_eq!(found.holds().map(|hold| hold.pool).collect::<Vec<_>>(), [0, 0, 1, 1]);
    assert_eq!(found.score, 100);
}

#[test]
fn scenario_53_a_match_that_no_numa_node_has() {
    let world = shape_one().build();
    let report = refused(&world, &request(&[&[&[want(4, &[0]).matching("numa")]]]));
    assert_eq!(report.terms[0].alternatives[0].candidates, 4);
    let found = granted(&world, &request(&[&[&[want(2, &[0]).matching("numa")]]]));
    assert_eq!(found.holds().map(|hold| hold.pool).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn scenario_54_and_56_held_devices_are_not_free() {
    let world = InventoryBuilder::default().counted("none", 0, 0).counted("two", 2, 0).build();
    let two = [want(2, &[0])];
    let report = refused(&world, &request(&[&[&two], &[&two]]));
    assert_eq!(report.claims, [Some(true), Some(false)]);
    let pools = &report.terms[0].alternatives[0].pools;
    assert_eq!(pools[0].reason, Some(Reason::NoneAvailable));
    assert_eq!((pools[1].candidates, &pools[1].reason), (2, &None));
    let found = granted(&world, &request(&[&[&two]]));
    assert_eq!(names(&world, &found), [["two", "two"]]);
}

#[test]
fn scenario_57_nothing_asked_is_granted() {
    let found = granted(&InventoryBuilder::default().build(), &request(&[]));
    assert_eq!((found.score, found.claims.len()), (100, 0));
}

#[test]
fn scenario_59_two_matches_do_not_mix_vendors() {
    let nic = |vendor: &str, count: usize| -> Vec<Dev> {
        let vfs = devs(vendor, count, 0).into_iter();
        vfs.map(|dev| dev.attr("vendor", vendor).attr("pf", "pf0")).collect()
    };
    let asked = request(&[&[&[want(4, &[0]).matching("vendor").matching("pf")]]]);
    let mixed = InventoryBuilder::default().pool("a", nic("a", 3)).pool("b", nic("b", 3)).build();
    assert_eq!(refused(&mixed, &asked).terms[0].alternatives[0].candidates, 6);
    let enough = InventoryBuilder::default().pool("a", nic("a", 3)).pool("b", nic("b", 4)).build();
    assert_eq!(names(&enough, &granted(&enough, &asked)), [["b0", "b1", "b2", "b3"]]);
}

/// A100 is kind 0, H100 kind 1, L4 kind 2, a VF kind 3.
fn roots() -> InventoryBuilder {
    let on = |name: &str, kind: u32, root: &str| dev(name, kind).attr("root", root);
    InventoryBuilder::default()
        .pool("a100", vec![on("a", 0, "r0")])
        .pool("h100", vec![on("h", 1, "r1")])
        .pool("l4", vec![on("l0", 2, "r0"), on("l1", 2, "r2"), on("l2", 2, "r2")])
        .pool("vf", vec![on("v", 3, "r2")])
}

#[test]
fn scenario_61_and_62_a_claim_on_one_root() {
    let world = roots().build();
    let mut asked = request(&[&[&[want(1, &[2])], &[want(1, &[3])]]]);
    assert_eq!(names(&world, &granted(&world, &asked)), [["l0"], ["v"]]);
    asked.claims[0].match_attributes.push("root".to_owned());
    assert_eq!(names(&world, &granted(&world, &asked)), [["l1"], ["v"]]);
}

#[test]
fn scenario_63_the_first_alternative_that_is_free() {
    let mut world = roots().build();
    let l4 = want(2, &[2]).matching("root");
    let asked = request(&[&[&[want(1, &[0]), want(1, &[1]), l4]]]);
    for (expected, score) in [(vec!["a"], 100), (vec!["h"], 90), (vec!["l1", "l2"], 80)] {
        let found = granted(&world, &asked);
        assert_eq!(names(&world, &found), [expected]);
        assert_eq!(found.score, score);
        for hold in found.holds() {
            world.hold(hold).unwrap();
        }
    }
    let report = refused(&world, &asked);
    let [a100, h100, l4] = report.terms[0].alternatives.as_slice() else { panic!("{report:?}") };
    assert_eq!(a100.pools[0].reason, Some(Reason::NoneAvailable));
    assert_eq!((h100.candidates, l4.candidates, l4.wanted), (0, 1, 2));
}

#[test]
fn scenario_64_back_to_an_alternative_on_the_right_root() {
    let world = roots().build();
    let gpu = [want(1, &[0]), want(1, &[1]), want(2, &[2])];
    let mut asked = request(&[&[&[want(1, &[3])], &gpu]]);
    asked.claims[0].match_attributes.push("root".to_owned());
    let found = granted(&world, &asked);
    assert_eq!(names(&world, &found), [vec!["v"], vec!["l1", "l2"]]);
    assert_eq!(found.claims[0].terms[1].alternative, 2);
    // The same the other way round: the choice of the first term is undone.
    asked.claims[0].terms.reverse();
    assert_eq!(names(&world, &granted(&world, &asked)), [vec!["l1", "l2"], vec!["v"]]);
}

#[test]
fn scenario_65_and_81_distinct_values() {
    let vf = |name: &str, pf: &str| dev(name, 0).attr("pf", pf);
    let asked = |count| request(&[&[&[want(count, &[0]).distinct("pf")]]]);
    let pool = vec![vf("a", "0"), vf("b", "1"), vf("c", "0"), dev("d", 0), vf("e", "2")];
    let world = InventoryBuilder::default().pool("p", pool).build();
    assert_eq!(names(&world, &granted(&world, &asked(3))), [["a", "b", "e"]]);
    refused(&world, &asked(4));
}

#[test]
fn scenario_66_eight_claims_share_a_device() {
    let pool = vec![dev("h0", 0).entry("memory", 64), dev("h1", 0).entry("memory", 64)];
    let mut world = InventoryBuilder::default().pool("p", pool).build();
    let asked = request(&[&[&[want(1, &[0]).together("memory", "8")]]]);
    let mut given = Vec::new();
    for _ in 0..9 {
        let found = granted(&world, &asked);
        given.extend(names(&world, &found).concat());
        for hold in found.holds() {
            assert_eq!(hold.mode, AccessMode::ReadWriteShared);
            world.hold(hold).unwrap();
        }
    }
    assert_eq!(given, ["h0", "h0", "h0", "h0", "h0", "h0", "h0", "h0", "h1"]);
    // A claim for a whole device finds none.
    refused(&world, &request(&[&[&[want(1, &[0])]]]));
}

#[test]
fn identical_devices_differ_once_one_is_drawn_from() {
    let pool = vec![dev("h0", 0).entry("memory", 64), dev("h1", 0).entry("memory", 64)];
    let world = InventoryBuilder::default().pool("p", pool).build();
    let memory = |amount| [want(1, &[0]).together("memory", amount)];
    let asked = request(&[&[&memory("60")], &[&memory("8")], &[&memory("4")]]);
    let found = granted(&world, &asked);
    assert_eq!(names(&world, &found), [["h0"], ["h1"], ["h0"]]);
}

#[test]
fn scenario_67_partitions_of_one_card() {
    let card = vec![
        dev("full", 0).charge(&[8, 7]),
        dev("half-a", 1).charge(&[4, 3]),
        dev("half-b", 1).charge(&[4, 3]),
        dev("q1", 2).charge(&[2, 1]),
        dev("q2", 2).charge(&[2, 1]),
    ];
    let mut world = InventoryBuilder::default().pool("p", card).resources(&[8, 7]).build();
    let half = granted(&world, &request(&[&[&[want(1, &[1])]]]));
    let held = half.holds().next().unwrap().clone();
    world.hold(&held).unwrap();
    let report = refused(&world, &request(&[&[&[want(1, &[0])]]]));
    let reason = report.terms[0].alternatives[0].pools[0].devices[0].reason.to_string();
    assert_eq!(reason, "not enough \"r0\" is left in the pool for the device");
    granted(&world, &request(&[&[&[want(1, &[1])]]]));
    granted(&world, &request(&[&[&[want(2, &[2])]]]));
    refused(&world, &request(&[&[&[want(1, &[1])]], &[&[want(1, &[2])]]]));
    world.release(&held).unwrap();
    granted(&world, &request(&[&[&[want(1, &[0])]]]));
    assert!(world.release(&held).is_err());
}

#[test]
fn scenario_68_amounts_of_several_devices_add_up() {
    let devices = devs("d", 5, 0).into_iter().map(|dev| dev.entry("memory", 16)).collect();
    let world = InventoryBuilder::default().pool("p", devices).build();
    let asked = |most| request(&[&[&[want(1, &[0]).at_most(most).together("memory", "40")]]]);
    let found = granted(&world, &asked(4));
    assert_eq!(names(&world, &found), [["d0", "d1", "d2"]]);
    assert_eq!(amounts(&found), [[16], [16], [8]]);
    refused(&world, &asked(2));
}

#[test]
fn scenario_86_a_rejected_device_gives_back_its_charge() {
    let on = |name: &str, numa: &str| dev(name, 0).attr("numa", numa).charge(&[1]);
    let pool = vec![on("d0", "0"), on("d1", "1"), on("d2", "0")];
    let world = InventoryBuilder::default().pool("p", pool).resources(&[2]).build();
    let found = granted(&world, &request(&[&[&[want(2, &[0]).matching("numa")]]]));
    assert_eq!(names(&world, &found), [["d0", "d2"]]);
}

#[test]
fn scenario_77_all_takes_every_candidate_or_nothing() {
    let world =
        InventoryBuilder::default().pool("p", devs("d", 2, 0)).pool("q", devs("e", 1, 0)).build();
    let all = [want(1, &[0]).all()];
    assert_eq!(names(&world, &granted(&world, &request(&[&[&all]]))), [["d0", "d1", "e0"]]);
    refused(&world, &request(&[&[&all], &[&[want(1, &[0])]]]));
    refused(&world, &request(&[&[&[want(1, &[0])]], &[&all]]));
    let none = request(&[&[&[want(1, &[9]).all()]]]);
    refused(&world, &none);
    let watch = [want(1, &[0]).all().admin()];
    let found = granted(&world, &request(&[&[&all], &[&watch]]));
    assert_eq!(names(&world, &found)[0], names(&world, &found)[1]);
    refused(&world, &request(&[&[&watch, &[want(1, &[0]).admin()]]]));
}

#[test]
fn requests_are_served_from_entries_in_listed_order() {
    let numa =
        dev("d", 0).entry_at("memory", 40, "numa-0", true).entry_at("memory", 64, "numa-1", true);
    let world = InventoryBuilder::default().pool("p", vec![numa]).build();
    let plain = want(1, &[0]).each(&[("memory", amount("48"))]);
    let found = granted(&world, &request(&[&[std::slice::from_ref(&plain)]]));
    assert_eq!((amounts(&found), found.score), (vec![vec![40, 8]], 95));
    for policy in [TopologyPolicy::Prefer, TopologyPolicy::Require] {
        let found = granted(&world, &request(&[&[&[plain.clone().numa(policy)]]]));
        assert_eq!((amounts(&found), found.score), (vec![vec![48]], 100), "{policy:?}");
    }
    let large =
        |policy| request(&[&[&[want(1, &[0]).each(&[("memory", amount("100"))]).numa(policy)]]]);
    let found = granted(&world, &large(TopologyPolicy::Prefer));
    assert_eq!((amounts(&found), found.score), (vec![vec![40, 60]], 75));
    refused(&world, &large(TopologyPolicy::Require));
    let whole =
        dev("d", 0).entry_at("memory", 40, "numa-0", false).entry_at("memory", 64, "numa-1", true);
    let world = InventoryBuilder::default().pool("p", vec![whole]).build();
    assert_eq!(amounts(&granted(&world, &request(&[&[&[plain]]]))), [[48]]);
}

#[test]
fn scenario_44_and_45_writers_want_devices_of_their_own() {
    let readers =
        Sharing { allow_read_only_shared: true, allow_write_exclusive: true, ..Sharing::default() };
    let foozer = |name: &str| dev(name, 0).entry("cores", 8).sharing(readers.clone());
    let writer = || {
        let access = RequestedCapacity::AccessMode { request: AccessMode::WriteExclusive };
        want(1, &[0]).each(&[("access", access), ("cores", amount("1"))])
    };
    let asked = request(&[&[&[writer()]], &[&[writer()]]]);
    let two = InventoryBuilder::default()
        .pool("p", vec![foozer("dev-foo-0"), foozer("dev-foo-1")])
        .build();
    assert_eq!(names(&two, &granted(&two, &asked)), [["dev-foo-0"], ["dev-foo-1"]]);
    let mut one = InventoryBuilder::default().pool("p", vec![foozer("dev-foo-0")]).build();
    assert_eq!(refused(&one, &asked).claims, [Some(true), Some(false)]);
    let first = request(&[&[&[writer()]]]);
    for hold in granted(&one, &first).holds() {
        one.hold(hold).unwrap();
    }
    let report = refused(&one, &first);
    let told = report.terms[0].alternatives[0].pools[0].devices[0].reason.to_string();
    assert_eq!(told, "insufficient capacity \"access\" present in device \"dev-foo-0\"");
}

/// Entries of one claim share a device as those of different claims do.
#[test]
fn terms_of_one_claim_share_a_device_that_has_enough() {
    let one = |device: Dev| InventoryBuilder::default().pool("p", vec![device]).build();
    let mem = |units: i128| one(dev("d", 0).entry("mem", units));
    let sum = |amount: &str| want(1, &[0]).together("mem", amount);
    let alone = |text: &str| want(1, &[0]).each(&[("mem", amount(text))]);
    let table = [
        ("amounts in sum", sum("4"), sum("6"), sum("7")),
        ("quantities of each", alone("4"), alone("6"), alone("7")),
        ("one of either form", sum("4"), alone("6"), alone("6500m")),
    ];
    for (why, first, second, more) in table {
        let both = request(&[&[std::slice::from_ref(&first), &[second]]]);
        let found = granted(&mem(10), &both);
        assert_eq!(names(&mem(10), &found), [["d"], ["d"]], "{why}");
        assert_eq!(amounts(&found), [[4], [6]], "{why}");
        refused(&mem(10), &request(&[&[&[first], &[more]]]));
    }
    // What is shared is charged to the pool once.
    let charged = InventoryBuilder::default()
        .pool("p", vec![dev("d", 0).entry("mem", 10).charge(&[3])])
        .resources(&[3])
        .build();
    granted(&charged, &request(&[&[&[sum("4")], &[sum("6")]]]));
    // Readers share, a writer excludes them, and a claim that requests no part requests the whole.
    let readers =
        Sharing { allow_read_only_shared: true, allow_write_exclusive: true, ..Sharing::default() };
    let shared = one(dev("d", 0).entry("mem", 10).sharing(readers));
    let access =
        |mode| want(1, &[0]).each(&[("access", RequestedCapacity::AccessMode { request: mode })]);
    let (reader, writer) = (AccessMode::ReadOnlyShared, AccessMode::WriteExclusive);
    for modes in [[reader, reader], [reader, writer], [writer, reader]] {
        let [first, second] = modes.map(|mode| [access(mode)]);
        let found = granted(&shared, &request(&[&[&first, &second]]));
        assert_eq!(names(&shared, &found), [["d"], ["d"]], "{modes:?}");
    }
    let writers = [access(writer)];
    refused(&shared, &request(&[&[&writers, &writers]]));
    refused(&mem(10), &request(&[&[&[sum("4")], &[want(1, &[0])]]]));
    refused(&mem(10), &request(&[&[&[want(1, &[0])], &[sum("4")]]]));
    // A claim that needs different devices specifies it; one term never has a device twice.
    let mut distinct = request(&[&[&[sum("4")], &[sum("6")]]]);
    distinct.claims[0].distinct_attributes.push("id".to_owned());
    let two = |count: usize| {
        let all = (0..count).map(|at| dev(&format!("d{at}"), 0).entry("mem", 10));
        let all = all.enumerate().map(|(at, dev)| dev.attr("id", &at.to_string()));
        InventoryBuilder::default().pool("p", all.collect()).build()
    };
    refused(&two(1), &distinct);
    assert_eq!(names(&two(2), &granted(&two(2), &distinct)), [["d0"], ["d1"]]);
    refused(&two(1), &request(&[&[&[want(2, &[0]).together("mem", "4")]]]));
    // All of them, beside one that has a part of the first.
    let all = request(&[&[&[sum("4")], &[want(1, &[0]).together("mem", "6").all()]]]);
    assert_eq!(names(&two(2), &granted(&two(2), &all)), [vec!["d0"], vec!["d0", "d1"]]);
    // A hold with administrator access is exclusive within its claim.
    let watch = [want(1, &[0]).admin()];
    refused(&mem(10), &request(&[&[&[sum("4")], &watch]]));
    refused(&mem(10), &request(&[&[&watch, &[sum("4")]]]));
    granted(&mem(10), &request(&[&[&[sum("4")]], &[&watch]]));
    // An earlier choice is undone for a later one that needs the whole device.
    let free = request(&[&[&[sum("4")], &[sum("6")], &[want(1, &[0])]]]);
    assert_eq!(names(&two(2), &granted(&two(2), &free)), [["d0"], ["d0"], ["d1"]]);
}
