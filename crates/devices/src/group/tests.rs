use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::problem::{
    Alternative, Claim, Count, CountedDevices, Device, Node, Pool, PoolDevices, Refusal, Signature,
    Symbols, Term, Verdict,
};

/// The number of kinds of devices.
const KINDS: u32 = 3;

fn pool(name: usize, kinds: &[u32]) -> Pool {
    let device = |(at, kind): (usize, &u32)| Device {
        name: format!("d{at}"),
        signature: Signature(*kind),
        sharing: Device::unlisted_sharing(&[]),
        ..Device::default()
    };
    let stock = PoolDevices::Listed(kinds.iter().enumerate().map(device).collect());
    Pool { name: format!("p{name}"), devices: stock, ..Pool::default() }
}

fn counted(name: usize, count: u32, kind: u32) -> Pool {
    let counted =
        CountedDevices { count, held: 0, signature: Signature(kind), attributes: Vec::new() };
    Pool { name: format!("p{name}"), devices: PoolDevices::Counted(counted), ..Pool::default() }
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

fn pods(count: usize, needs: &[i64], nodes: usize) -> GangMember<'static> {
    GangMember { count, needs: needs.to_vec(), nodes: vec![true; nodes], ..GangMember::default() }
}

fn allocate(gang: &Gang<'_>, inventory: &Inventory) -> GroupOutcome {
    allocate_group(inventory, gang, &Budget::default())
}

fn node_of_each_pod(answer: &GroupOutcome) -> Option<Vec<(usize, usize)>> {
    let GroupOutcome::Placed(pods) = answer else { return None };
    Some(pods.iter().map(|it| (it.member, it.node)).collect())
}

#[test]
fn fragmented_capacity_does_not_fit_a_pod() {
    let shortfall = |member, placed| GroupOutcome::Unsatisfiable(Shortfall { member, placed });
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
    for (why, capacities, members, expected) in table {
        let nodes = capacities.len();
        let capacities = capacities.into_iter().map(|it| vec![it]).collect();
        let members = members.into_iter().map(|(count, need)| pods(count, &[need], nodes));
        let gang =
            Gang { free_capacity: capacities, members: members.collect(), shared: Vec::new() };
        let answer = allocate(&gang, &Inventory::default());
        match expected {
            Ok(expected) => assert_eq!(node_of_each_pod(&answer), Some(expected), "{why}"),
            Err(expected) => assert_eq!(answer, expected, "{why}"),
        }
    }
}

#[test]
fn a_stopped_search_is_indeterminate() {
    // An instance of 3-partition: many ways, and none of them succeeds.
    let capacities: Vec<Vec<i64>> = (0..6).map(|_| vec![100]).collect();
    let sizes = [26, 27, 28, 29, 31, 33, 34, 35, 36, 37, 38, 39, 41, 43, 45];
    let members: Vec<GangMember<'_>> = sizes.iter().map(|size| pods(1, &[*size], 6)).collect();
    let gang = Gang { free_capacity: capacities, members, shared: Vec::new() };
    let budget = Budget { steps: 10, stop: None };
    let answer = allocate_group(&Inventory::default(), &gang, &budget);
    let known = allocate_group(&Inventory::default(), &gang, &Budget::default());
    match known {
        GroupOutcome::Placed(_) => assert!(matches!(answer, GroupOutcome::Placed(_))),
        GroupOutcome::Unsatisfiable(_) | GroupOutcome::Indeterminate(_) => {
            assert_eq!(answer, GroupOutcome::Indeterminate(Undecided::Steps(10)));
        }
    }
}

#[test]
fn device_choices_are_revised_for_later_pods() {
    // The claim that accepts any device chooses first, and must leave the only one of kind 0 to the
    // other.
    let (any, zero) = (want(1, &[0, 1]), want(1, &[0]));
    let inventory = inventory(vec![pool(0, &[0, 1])], &[&[0]]);
    let member = |request| GangMember { request: Some(request), ..pods(1, &[1], 1) };
    let gang = Gang {
        free_capacity: vec![vec![2]],
        members: vec![member(&any), member(&zero)],
        shared: Vec::new(),
    };
    let answer = allocate(&gang, &inventory);
    let GroupOutcome::Placed(pods) = &answer else { panic!("{answer:?}") };
    let devices: Vec<Option<usize>> =
        pods.iter().map(|it| it.claims[0].terms[0].holds[0].device).collect();
    assert_eq!(devices, [Some(1), Some(0)]);
    let both = Gang { members: vec![member(&zero), member(&zero)], ..gang };
    assert!(matches!(allocate(&both, &inventory), GroupOutcome::Unsatisfiable(_)));
}

#[test]
fn nodes_that_reach_one_pool_compete_for_it() {
    let one = want(1, &[0]);
    let inventory = inventory(vec![counted(0, 2, 0)], &[&[0], &[0], &[0]]);
    for (count, expected) in [(2, true), (3, false)] {
        let member = GangMember { request: Some(&one), ..pods(count, &[1], 3) };
        let gang =
            Gang { free_capacity: vec![vec![1]; 3], members: vec![member], shared: Vec::new() };
        let answer = allocate(&gang, &inventory);
        assert_eq!(node_of_each_pod(&answer).is_some(), expected, "{count} pods: {answer:?}");
        assert!(!matches!(answer, GroupOutcome::Indeterminate(_)));
    }
}

#[test]
fn pods_that_share_a_claim_are_on_one_node() {
    let one = want(1, &[0]);
    let local = inventory(vec![pool(0, &[0]), pool(1, &[0])], &[&[0], &[1]]);
    let remote = inventory(vec![pool(0, &[0, 0])], &[&[0], &[0]]);
    let member = |count| GangMember { shared: vec![0], ..pods(count, &[1], 2) };
    let gang = |capacities: [i64; 2], members| Gang {
        free_capacity: capacities.iter().map(|it| vec![*it]).collect(),
        members,
        shared: vec![&one],
    };
    let all = allocate(&gang([2, 3], vec![member(3)]), &local);
    assert_eq!(node_of_each_pod(&all), Some(vec![(0, 1); 3]), "all three");
    let two = allocate(&gang([2, 3], vec![member(1), member(2)]), &local);
    assert_eq!(
        node_of_each_pod(&two),
        Some(vec![(0, 1), (1, 1), (1, 1)]),
        "whatever else they are"
    );
    let apart = allocate(&gang([2, 2], vec![member(3)]), &local);
    assert!(matches!(apart, GroupOutcome::Unsatisfiable(_)), "{apart:?}");
    let maybe = allocate(&gang([2, 2], vec![member(3)]), &remote);
    assert_eq!(maybe, GroupOutcome::Indeterminate(Undecided::TooLarge), "no certain no");
}

#[test]
fn many_nodes_need_no_backtracking() {
    let capacities = vec![vec![8, 64]; 5_000];
    let members = vec![pods(5_000, &[5, 10], 5_000), pods(5_000, &[3, 10], 5_000)];
    let mut gang = Gang { free_capacity: capacities, members, shared: Vec::new() };
    let answer = allocate(&gang, &Inventory::default());
    assert_eq!(node_of_each_pod(&answer).map(|it| it.len()), Some(10_000));
    gang.members[1].count = 5_001;
    assert!(matches!(allocate(&gang, &Inventory::default()), GroupOutcome::Unsatisfiable(_)));
}

/// Returns for each pod its member.
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
    capacities: &mut Vec<Vec<i64>>,
    held: &mut BTreeSet<(usize, usize)>,
) -> bool {
    let Some((pod, others)) = left.split_first() else { return true };
    let member = &gang.members[*pod];
    for node in 0..capacities.len() {
        let free = capacities[node].clone();
        if !member.nodes[node] || member.needs.iter().zip(&free).any(|(need, left)| need > left) {
            continue;
        }
        for (left, need) in capacities[node].iter_mut().zip(&member.needs) {
            *left -= need;
        }
        let devices: Vec<(usize, usize)> = match &wants[*pod] {
            None => Vec::new(),
            Some((_, kinds)) => {
                let pools = inventory.nodes()[node].pools.iter().copied();
                let devices = pools.flat_map(|at| match &inventory.pools()[at].devices {
                    PoolDevices::Listed(devices) => devices
                        .iter()
                        .enumerate()
                        .filter(|(_, it)| kinds.contains(&it.signature.0))
                        .map(|(place, _)| (at, place))
                        .collect::<Vec<_>>(),
                    PoolDevices::Counted(_) => Vec::new(),
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
            let found = exists(gang, inventory, wants, others, capacities, held);
            chosen.iter().for_each(|it| {
                held.remove(it);
            });
            if found {
                capacities[node] = free;
                return true;
            }
        }
        capacities[node] = free;
    }
    false
}

/// Checks that a placement of all pods keeps every rule.
fn check(
    gang: &Gang<'_>,
    inventory: &Inventory,
    wants: &[Option<(usize, Vec<u32>)>],
    pods: &[PlacedPod],
) {
    let mut members: Vec<usize> = pods.iter().map(|it| it.member).collect();
    members.sort_unstable();
    assert_eq!(members, each(gang), "every pod is placed once");
    let mut capacities = gang.free_capacity.clone();
    let mut held = BTreeSet::new();
    for pod in pods {
        let member = &gang.members[pod.member];
        assert!(member.nodes[pod.node], "where it may be");
        for (left, need) in capacities[pod.node].iter_mut().zip(&member.needs) {
            *left -= need;
        }
        let Some((count, kinds)) = &wants[pod.member] else { continue };
        let holds: Vec<_> = pod.claims.iter().flat_map(|it| &it.terms[0].holds).collect();
        assert_eq!(holds.len(), *count, "as many devices as it wants");
        for hold in holds {
            assert!(inventory.nodes()[pod.node].pools.contains(&hold.pool), "of its node");
            let PoolDevices::Listed(devices) = &inventory.pools()[hold.pool].devices else {
                panic!()
            };
            let at = hold.device.unwrap();
            assert!(kinds.contains(&devices[at].signature.0), "of a kind it wants");
            assert!(held.insert((hold.pool, at)), "and held by no other claim");
        }
    }
    assert!(capacities.iter().flatten().all(|left| *left >= 0), "within every node");
}

prop_compose! {
    fn any_member(nodes: usize)(
        count in 1..4_usize,
        needs in prop::collection::vec(0..5_i64, 2),
        nodes in prop::collection::vec(prop::bool::weighted(0.8), nodes),
    ) -> GangMember<'static> {
        GangMember { count, needs, nodes, ..GangMember::default() }
    }
}

fn any_gang() -> impl Strategy<Value = Gang<'static>> {
    (1..4_usize).prop_flat_map(|nodes| {
        let capacities = prop::collection::vec(prop::collection::vec(0..9_i64, 2), nodes);
        let members = prop::collection::vec(any_member(nodes), 1..4);
        (capacities, members).prop_map(|(capacities, members)| Gang {
            free_capacity: capacities,
            members,
            shared: Vec::new(),
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Pods are placed if and only if an exhaustive search finds a node for all of them.
    #[test]
    fn pods_find_places_if_there_are_any(gang in any_gang()) {
        let wants = vec![None; gang.members.len()];
        let inventory = Inventory::default();
        let left = each(&gang);
        let expected =
            exists(&gang, &inventory, &wants, &left, &mut gang.free_capacity.clone(), &mut BTreeSet::new());
        match allocate(&gang, &inventory) {
            GroupOutcome::Placed(pods) => {
                prop_assert!(expected);
                check(&gang, &inventory, &wants, &pods);
            }
            GroupOutcome::Unsatisfiable(_) => prop_assert!(!expected),
            GroupOutcome::Indeterminate(why) => prop_assert!(false, "so small a world: {:?}", why),
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
        capacities in prop::collection::vec(prop::collection::vec(0..4_i64, 1), 2..4),
        members in prop::collection::vec(
            (1..3_usize, 0..3_i64, prop::option::weighted(0.8, any_want())), 1..3),
        stocks in prop::collection::vec(prop::collection::vec(0..KINDS, 0..3), 1..4),
        reach in prop::collection::vec(prop::collection::vec(prop::bool::ANY, 4), 4),
    ) {
        let nodes = capacities.len();
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
        let list = members.iter().zip(&requests).map(|((count, need, _), request)| GangMember {
            request: request.as_ref(),
            ..pods(*count, &[*need], nodes)
        });
        let gang = Gang { free_capacity: capacities, members: list.collect(), shared: Vec::new() };
        let left = each(&gang);
        let expected =
            exists(&gang, &inventory, &wants, &left, &mut gang.free_capacity.clone(), &mut BTreeSet::new());
        match allocate(&gang, &inventory) {
            GroupOutcome::Placed(pods) => {
                prop_assert!(expected);
                check(&gang, &inventory, &wants, &pods);
            }
            GroupOutcome::Unsatisfiable(_) => prop_assert!(!expected),
            GroupOutcome::Indeterminate(why) => prop_assert!(false, "so small a world: {:?}", why),
        }
    }
}
