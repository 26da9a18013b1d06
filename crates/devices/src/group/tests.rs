use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::problem::{
    Alternative, Claim, Count, Counted, Device, Node, Pool, Refusal, Signature, Stock, Symbols,
    Term, Verdict,
};

/// Kinds of devices there are.
const KINDS: u32 = 3;

fn pool(name: usize, kinds: &[u32]) -> Pool {
    let device = |(at, kind): (usize, &u32)| Device {
        name: format!("d{at}"),
        signature: Signature(*kind),
        sharing: Device::unlisted_sharing(&[]),
        ..Device::default()
    };
    let stock = Stock::Listed(kinds.iter().enumerate().map(device).collect());
    Pool { name: format!("p{name}"), stock, ..Pool::default() }
}

fn counted(name: usize, count: u32, kind: u32) -> Pool {
    let counted = Counted { count, held: 0, signature: Signature(kind), attributes: Vec::new() };
    Pool { name: format!("p{name}"), stock: Stock::Counted(counted), ..Pool::default() }
}

/// Pools, and for each node those it reaches.
fn inventory(pools: Vec<Pool>, nodes: &[&[usize]]) -> Inventory {
    let nodes = nodes.iter().enumerate();
    let nodes = nodes.map(|(at, pools)| Node { name: format!("n{at}"), pools: pools.to_vec() });
    Inventory::new(Symbols::default(), pools, nodes.collect())
}

/// One claim for so many devices of one of these kinds.
fn want(count: u32, kinds: &[u32]) -> Request {
    let alternative = Alternative { count: Count::exactly(count), ..Alternative::default() };
    let term = Term { name: "t".to_owned(), alternatives: vec![alternative] };
    let claim = Claim { name: "c".to_owned(), terms: vec![term], ..Claim::default() };
    let verdict = |kind: u32| match kinds.contains(&kind) {
        true => Verdict::Met,
        false => Verdict::Refused(Refusal::Constraints),
    };
    let verdicts = vec![(0..KINDS).map(verdict).collect()];
    Request { claims: vec![claim], verdicts, ..Request::default() }
}

fn pods(count: usize, needs: &[i64], nodes: usize) -> Member<'static> {
    Member { count, needs: needs.to_vec(), nodes: vec![true; nodes], ..Member::default() }
}

fn ask(gang: &Gang<'_>, inventory: &Inventory) -> GroupAnswer {
    allocate_group(inventory, gang, &Budget::default())
}

fn places(answer: &GroupAnswer) -> Option<Vec<(usize, usize)>> {
    let GroupAnswer::Placed(pods) = answer else { return None };
    Some(pods.iter().map(|it| (it.member, it.node)).collect())
}

#[test]
fn room_in_pieces_is_no_room() {
    let shortfall = |member, placed| GroupAnswer::Unsatisfiable(Shortfall { member, placed });
    let table = [
        ("in total there is enough", vec![425, 425], vec![(1, 850)], Err(shortfall(0, 0))),
        ("two pieces", vec![500, 500], vec![(2, 500)], Ok(vec![(0, 0), (0, 1)])),
        ("one too many", vec![500, 900], vec![(3, 450)], Ok(vec![(0, 0), (0, 1), (0, 1)])),
        ("one too many", vec![500, 899], vec![(3, 450)], Err(shortfall(0, 0))),
        (
            "the tightest node first would be wrong, and is gone back on",
            vec![6, 7],
            vec![(2, 3), (1, 4), (1, 3)],
            Ok(vec![(0, 0), (0, 1), (1, 1), (2, 0)]),
        ),
    ];
    for (why, rooms, members, expected) in table {
        let nodes = rooms.len();
        let rooms = rooms.into_iter().map(|it| vec![it]).collect();
        let members = members.into_iter().map(|(count, need)| pods(count, &[need], nodes));
        let gang = Gang { rooms, members: members.collect(), shared: Vec::new() };
        let answer = ask(&gang, &Inventory::default());
        match expected {
            Ok(expected) => assert_eq!(places(&answer), Some(expected), "{why}"),
            Err(expected) => assert_eq!(answer, expected, "{why}"),
        }
    }
}

#[test]
fn who_ends_the_search_is_told_that_nobody_knows() {
    // 3-partition in disguise: plenty of ways, none of them leads anywhere.
    let rooms: Vec<Vec<i64>> = (0..6).map(|_| vec![100]).collect();
    let sizes = [26, 27, 28, 29, 31, 33, 34, 35, 36, 37, 38, 39, 41, 43, 45];
    let members: Vec<Member<'_>> = sizes.iter().map(|size| pods(1, &[*size], 6)).collect();
    let gang = Gang { rooms, members, shared: Vec::new() };
    let budget = Budget { steps: 10, stop: None };
    let answer = allocate_group(&Inventory::default(), &gang, &budget);
    let known = allocate_group(&Inventory::default(), &gang, &Budget::default());
    match known {
        GroupAnswer::Placed(_) => assert!(matches!(answer, GroupAnswer::Placed(_))),
        GroupAnswer::Unsatisfiable(_) | GroupAnswer::Indeterminate(_) => {
            assert_eq!(answer, GroupAnswer::Indeterminate(Undecided::Steps(10)));
        }
    }
}

#[test]
fn no_choice_of_devices_is_in_the_way_of_another() {
    // What may be any device is asked first, and must leave the only one of kind 0 to the other.
    let (any, zero) = (want(1, &[0, 1]), want(1, &[0]));
    let inventory = inventory(vec![pool(0, &[0, 1])], &[&[0]]);
    let member = |request| Member { request: Some(request), ..pods(1, &[1], 1) };
    let gang = Gang {
        rooms: vec![vec![2]],
        members: vec![member(&any), member(&zero)],
        shared: Vec::new(),
    };
    let answer = ask(&gang, &inventory);
    let GroupAnswer::Placed(pods) = &answer else { panic!("{answer:?}") };
    let devices: Vec<Option<usize>> =
        pods.iter().map(|it| it.claims[0].terms[0].holds[0].device).collect();
    assert_eq!(devices, [Some(1), Some(0)]);
    let both = Gang { members: vec![member(&zero), member(&zero)], ..gang };
    assert!(matches!(ask(&both, &inventory), GroupAnswer::Unsatisfiable(_)));
}

#[test]
fn nodes_that_reach_one_pool_compete_for_it() {
    let one = want(1, &[0]);
    let inventory = inventory(vec![counted(0, 2, 0)], &[&[0], &[0], &[0]]);
    for (count, expected) in [(2, true), (3, false)] {
        let member = Member { request: Some(&one), ..pods(count, &[1], 3) };
        let gang = Gang { rooms: vec![vec![1]; 3], members: vec![member], shared: Vec::new() };
        let answer = ask(&gang, &inventory);
        assert_eq!(places(&answer).is_some(), expected, "{count} pods: {answer:?}");
        assert!(!matches!(answer, GroupAnswer::Indeterminate(_)));
    }
}

#[test]
fn who_shares_a_claim_is_on_one_node() {
    let one = want(1, &[0]);
    let local = inventory(vec![pool(0, &[0]), pool(1, &[0])], &[&[0], &[1]]);
    let remote = inventory(vec![pool(0, &[0, 0])], &[&[0], &[0]]);
    let member = |count| Member { shared: vec![0], ..pods(count, &[1], 2) };
    let gang = |rooms: [i64; 2], members| Gang {
        rooms: rooms.iter().map(|it| vec![*it]).collect(),
        members,
        shared: vec![&one],
    };
    let all = ask(&gang([2, 3], vec![member(3)]), &local);
    assert_eq!(places(&all), Some(vec![(0, 1); 3]), "all three");
    let two = ask(&gang([2, 3], vec![member(1), member(2)]), &local);
    assert_eq!(places(&two), Some(vec![(0, 1), (1, 1), (1, 1)]), "whatever else they are");
    let apart = ask(&gang([2, 2], vec![member(3)]), &local);
    assert!(matches!(apart, GroupAnswer::Unsatisfiable(_)), "{apart:?}");
    let maybe = ask(&gang([2, 2], vec![member(3)]), &remote);
    assert_eq!(maybe, GroupAnswer::Indeterminate(Undecided::TooLarge), "no certain no");
}

#[test]
fn many_nodes_are_no_matter_where_nothing_must_be_gone_back_on() {
    let rooms = vec![vec![8, 64]; 5_000];
    let members = vec![pods(5_000, &[5, 10], 5_000), pods(5_000, &[3, 10], 5_000)];
    let mut gang = Gang { rooms, members, shared: Vec::new() };
    let answer = ask(&gang, &Inventory::default());
    assert_eq!(places(&answer).map(|it| it.len()), Some(10_000));
    gang.members[1].count = 5_001;
    assert!(matches!(ask(&gang, &Inventory::default()), GroupAnswer::Unsatisfiable(_)));
}

/// A pod: of which member it is.
fn each(gang: &Gang<'_>) -> Vec<usize> {
    let members = gang.members.iter().enumerate();
    members.flat_map(|(at, member)| vec![at; member.count]).collect()
}

/// Tries every pod on every node with every set of devices.
fn exists(
    gang: &Gang<'_>,
    inventory: &Inventory,
    wants: &[Option<(usize, Vec<u32>)>],
    left: &[usize],
    rooms: &mut Vec<Vec<i64>>,
    held: &mut BTreeSet<(usize, usize)>,
) -> bool {
    let Some((pod, others)) = left.split_first() else { return true };
    let member = &gang.members[*pod];
    for node in 0..rooms.len() {
        let room = rooms[node].clone();
        if !member.nodes[node] || member.needs.iter().zip(&room).any(|(need, left)| need > left) {
            continue;
        }
        for (left, need) in rooms[node].iter_mut().zip(&member.needs) {
            *left -= need;
        }
        let devices: Vec<(usize, usize)> = match &wants[*pod] {
            None => Vec::new(),
            Some((_, kinds)) => {
                let pools = inventory.nodes()[node].pools.iter().copied();
                let devices = pools.flat_map(|at| match &inventory.pools()[at].stock {
                    Stock::Listed(devices) => devices
                        .iter()
                        .enumerate()
                        .filter(|(_, it)| kinds.contains(&it.signature.0))
                        .map(|(place, _)| (at, place))
                        .collect::<Vec<_>>(),
                    Stock::Counted(_) => Vec::new(),
                });
                devices.filter(|it| !held.contains(it)).collect()
            }
        };
        let count = wants[*pod].as_ref().map_or(0, |(count, _)| *count);
        for set in 0_u32..1 << devices.len() {
            if usize::try_from(set.count_ones()).unwrap() != count {
                continue;
            }
            let chosen = devices.iter().enumerate().filter(|(at, _)| set & 1 << at != 0);
            let chosen: Vec<(usize, usize)> = chosen.map(|(_, it)| *it).collect();
            held.extend(&chosen);
            let found = exists(gang, inventory, wants, others, rooms, held);
            chosen.iter().for_each(|it| {
                held.remove(it);
            });
            if found {
                rooms[node] = room;
                return true;
            }
        }
        rooms[node] = room;
    }
    false
}

/// Whether an answer that says where everybody is keeps every rule.
fn check(
    gang: &Gang<'_>,
    inventory: &Inventory,
    wants: &[Option<(usize, Vec<u32>)>],
    pods: &[Placed],
) {
    let mut members: Vec<usize> = pods.iter().map(|it| it.member).collect();
    members.sort_unstable();
    assert_eq!(members, each(gang), "everybody is somewhere, once");
    let mut rooms = gang.rooms.clone();
    let mut held = BTreeSet::new();
    for pod in pods {
        let member = &gang.members[pod.member];
        assert!(member.nodes[pod.node], "where it may be");
        for (left, need) in rooms[pod.node].iter_mut().zip(&member.needs) {
            *left -= need;
        }
        let Some((count, kinds)) = &wants[pod.member] else { continue };
        let holds: Vec<_> = pod.claims.iter().flat_map(|it| &it.terms[0].holds).collect();
        assert_eq!(holds.len(), *count, "as many devices as it wants");
        for hold in holds {
            assert!(inventory.nodes()[pod.node].pools.contains(&hold.pool), "of its node");
            let Stock::Listed(devices) = &inventory.pools()[hold.pool].stock else { panic!() };
            let at = hold.device.unwrap();
            assert!(kinds.contains(&devices[at].signature.0), "of a kind it wants");
            assert!(held.insert((hold.pool, at)), "and nobody else's");
        }
    }
    assert!(rooms.iter().flatten().all(|left| *left >= 0), "within every node");
}

prop_compose! {
    fn any_member(nodes: usize)(
        count in 1..4_usize,
        needs in prop::collection::vec(0..5_i64, 2),
        nodes in prop::collection::vec(prop::bool::weighted(0.8), nodes),
    ) -> Member<'static> {
        Member { count, needs, nodes, ..Member::default() }
    }
}

fn any_gang() -> impl Strategy<Value = Gang<'static>> {
    (1..4_usize).prop_flat_map(|nodes| {
        let rooms = prop::collection::vec(prop::collection::vec(0..9_i64, 2), nodes);
        let members = prop::collection::vec(any_member(nodes), 1..4);
        (rooms, members).prop_map(|(rooms, members)| Gang { rooms, members, shared: Vec::new() })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Pods are placed if and only if trying everything finds a place for all of them.
    #[test]
    fn pods_find_places_if_there_are_any(gang in any_gang()) {
        let wants = vec![None; gang.members.len()];
        let inventory = Inventory::default();
        let left = each(&gang);
        let expected =
            exists(&gang, &inventory, &wants, &left, &mut gang.rooms.clone(), &mut BTreeSet::new());
        match ask(&gang, &inventory) {
            GroupAnswer::Placed(pods) => {
                prop_assert!(expected);
                check(&gang, &inventory, &wants, &pods);
            }
            GroupAnswer::Unsatisfiable(_) => prop_assert!(!expected),
            GroupAnswer::Indeterminate(why) => prop_assert!(false, "so small a world: {:?}", why),
        }
    }
}

prop_compose! {
    fn any_want()(count in 1..3_usize, kinds in prop::collection::btree_set(0..KINDS, 1..3)) -> (usize, Vec<u32>) {
        (count, kinds.into_iter().collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The same with devices, on nodes that have some in common.
    #[test]
    fn pods_find_devices_if_there_are_any(
        rooms in prop::collection::vec(prop::collection::vec(0..4_i64, 1), 2..4),
        members in prop::collection::vec(
            (1..3_usize, 0..3_i64, prop::option::weighted(0.8, any_want())), 1..3),
        stocks in prop::collection::vec(prop::collection::vec(0..KINDS, 0..3), 1..4),
        reach in prop::collection::vec(prop::collection::vec(prop::bool::ANY, 4), 4),
    ) {
        let nodes = rooms.len();
        let reached: Vec<Vec<usize>> = (0..nodes)
            .map(|node| (0..stocks.len()).filter(|at| reach[node][*at]).collect())
            .collect();
        let reached: Vec<&[usize]> = reached.iter().map(Vec::as_slice).collect();
        let pools = stocks.iter().enumerate().map(|(at, kinds)| pool(at, kinds)).collect();
        let inventory = inventory(pools, &reached);
        let wants: Vec<Option<(usize, Vec<u32>)>> =
            members.iter().map(|(_, _, want)| want.clone()).collect();
        let requests: Vec<Option<Request>> = wants
            .iter()
            .map(|it| it.as_ref().map(|(count, kinds)| want(u32::try_from(*count).unwrap(), kinds)))
            .collect();
        let list = members.iter().zip(&requests).map(|((count, need, _), request)| Member {
            request: request.as_ref(),
            ..pods(*count, &[*need], nodes)
        });
        let gang = Gang { rooms, members: list.collect(), shared: Vec::new() };
        let left = each(&gang);
        let expected =
            exists(&gang, &inventory, &wants, &left, &mut gang.rooms.clone(), &mut BTreeSet::new());
        match ask(&gang, &inventory) {
            GroupAnswer::Placed(pods) => {
                prop_assert!(expected);
                check(&gang, &inventory, &wants, &pods);
            }
            GroupAnswer::Unsatisfiable(_) => prop_assert!(!expected),
            GroupAnswer::Indeterminate(why) => prop_assert!(false, "so small a world: {:?}", why),
        }
    }
}
