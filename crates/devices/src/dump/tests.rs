use std::collections::BTreeSet;

use gantry_api::decode::{self, Decoded, Options};
use gantry_api::devices::{DeviceAllocation, DeviceClaim, DevicePool};
use gantry_api::finding::Source;
use gantry_api::object::Object;

use super::*;
use crate::constraint::Constraints;
use crate::lower::{Catalog, ClaimSpecRef, NodeLabels, Snapshot, allocations};
use crate::problem::{Allocation, Budget};
use crate::{FeasibleNode, Packing, allocate, choose};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios");

/// Allocates the claims of one file from the pools of others, and returns the result of each node.
fn run(pools: &[&str], claims: &str) -> (Option<Vec<DeviceAllocation>>, Vec<NodeResult>) {
    let mut found: (Vec<DevicePool>, Vec<DeviceClaim>) = Default::default();
    let pools = pools.iter().map(|name| format!("pools/{name}"));
    for file in pools.chain([format!("claims/{claims}")]) {
        let text = std::fs::read_to_string(format!("{FOLDER}/{file}.yaml")).unwrap();
        for document in decode::documents(&text, Options::default()).unwrap() {
            match document.content {
                Decoded::Object(Object::DevicePool(pool)) => found.0.push(*pool),
                Decoded::Object(Object::DeviceClaim(claim)) => found.1.push(*claim),
                other => panic!("{file}: {other:?}"),
            }
        }
    }
    let (pools, claims) = found;
    let names: BTreeSet<_> = pools.iter().filter_map(|pool| pool.spec.node_name.clone()).collect();
    let nodes: Vec<_> =
        names.into_iter().map(|name| NodeLabels { name, ..NodeLabels::default() }).collect();
    let catalog = Catalog::new(Source::File, &[], &[]);
    let mut snapshot = Snapshot::new(&catalog, &nodes, &pools);
    let names: Vec<_> = claims.iter().map(|claim| claim.metadata.name.clone().unwrap()).collect();
    let wanted: Vec<_> = names
        .iter()
        .zip(&claims)
        .map(|(n, c)| (n.as_str(), ClaimSpecRef::Claim(&c.spec)))
        .collect();
    let request = snapshot.request(&catalog, &Constraints::default(), &wanted).unwrap().request;
    let inventory = &snapshot.inventory;
    let results = (0..nodes.len()).map(|node| {
        let answer = allocate(inventory, node, &request, &Budget::default());
        node_result(inventory, node, &request, &answer)
    });
    let results = results.collect();
    let offers: Vec<FeasibleNode> =
        (0..nodes.len()).map(|node| FeasibleNode { node, load: 0 }).collect();
    let chosen = choose(inventory, &offers, &request, Packing::BinPack, &Budget::default());
    let given = |allocation: &Allocation| {
        let claims = request.claims.iter().zip(&allocation.claims);
        claims.flat_map(|(claim, given)| allocations(inventory, claim, given)).collect()
    };
    (chosen.placement.map(|placement| given(&placement.allocation)), results)
}

fn texts(pools: &[&str], claims: &str) -> (String, String) {
    let (given, nodes) = run(pools, claims);
    let given = given.as_deref();
    (normal(given, &nodes).unwrap(), verbose(given, &nodes).unwrap())
}

#[test]
fn single_by_driver_prints_what_the_original_printed() {
    let (short, long) = texts(&["shape-zero", "shape-three"], "46-by-driver");
    let expected = "\
ALLOCATIONS
-----------
- deviceCount: 1
  devicePoolName: shape-zero-00-foozer-00

NODE RESULTS
------------
shape-three-00: could not satisfy these claims: myclaim
shape-three-01: could not satisfy these claims: myclaim
shape-zero-00: satisfied all claims with score 100
shape-zero-01: satisfied all claims with score 100
";
    assert_eq!(short, expected);
    let ignored = |node: &str| {
        let pools = (0..4).map(|at| {
            format!(
                "    - deviceCount: 0
      failureReason: claim and pool driver do not match
      poolName: {node}-barzer-0{at}
"
            )
        });
        format!(
            "- DeviceClaimResults:
  - best: -1
    claimName: myclaim
    ignoredPools:
{}    poolSetResults: null
  NodeName: {node}
",
            pools.collect::<String>()
        )
    };
    let served = |node: &str| {
        format!(
            "- DeviceClaimResults:
  - best: 0
    claimName: myclaim
    poolSetResults:
    - poolResults:
      - deviceCount: 1
        poolName: {node}-foozer-00
      score: 100
  NodeName: {node}
"
        )
    };
    let head = expected.split_inclusive("------------\n").take(1).collect::<String>();
    let body = [
        ignored("shape-three-00"),
        ignored("shape-three-01"),
        served("shape-zero-00"),
        served("shape-zero-01"),
    ];
    assert_eq!(long, head + &body.concat());
}

#[test]
fn sets_are_listed_up_to_the_size_that_suffices() {
    let (_, long) = texts(&["shape-one"], "50-four");
    let expected = "\
- DeviceClaimResults:
  - best: 2
    claimName: myclaim
    poolSetResults:
    - failureReason: unable to satisfy 2 of 4 device requests
      poolResults:
      - deviceCount: 2
        poolName: shape-one-00-foozer-00
      score: 0
    - failureReason: unable to satisfy 2 of 4 device requests
      poolResults:
      - deviceCount: 2
        poolName: shape-one-00-foozer-01
      score: 0
    - poolResults:
      - deviceCount: 2
        poolName: shape-one-00-foozer-00
      - deviceCount: 2
        poolName: shape-one-00-foozer-01
      score: 100
  NodeName: shape-one-00
";
    let (_, nodes) = long.split_once("NODE RESULTS\n------------\n").unwrap();
    assert!(nodes.starts_with(expected), "{nodes}");
}

#[test]
fn a_set_that_does_not_match_says_which_pool_broke_it() {
    let (short, long) = texts(&["shape-one"], "53-four-on-one-numa");
    assert!(short.starts_with("ALLOCATIONS\n-----------\nnull\n\nNODE RESULTS\n"), "{short}");
    let expected = "\
    - failureReason: unable to satisfy 2 of 4 device requests
      poolResults:
      - deviceCount: 2
        poolName: shape-one-00-foozer-00
      - deviceCount: 0
        failureReason: claim MatchAttributes constraint failed
        poolName: shape-one-00-foozer-01
      score: 0
  NodeName: shape-one-00
";
    assert!(long.contains(expected), "{long}");
}

#[test]
fn only_claims_that_do_not_fit_are_unsatisfied() {
    let (short, _) = texts(&["shape-zero", "shape-three"], "51-foozers-and-barzers");
    let lines: Vec<&str> = short.lines().skip(6).collect();
    let expected = [
        "shape-three-00: could not satisfy these claims: foozers",
        "shape-three-01: could not satisfy these claims: foozers",
        "shape-zero-00: could not satisfy these claims: barzers",
        "shape-zero-01: could not satisfy these claims: barzers",
    ];
    assert_eq!(lines, expected);
}
