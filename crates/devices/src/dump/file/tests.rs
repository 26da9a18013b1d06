use gantry_api::decode::{self, Decoded, Options};
use gantry_api::finding::Source;

use super::*;
use crate::constraint::Constraints;
use crate::lower::{Catalog, Snapshot, file_pools};
use crate::problem::Budget;

/// Returns the result for claims on a node, with so many steps.
fn file_result_for(nodes: &str, claims: &str, steps: u64) -> FileResult {
    let read = |text: &str| {
        let mut documents = decode::documents(text, Options::default()).unwrap();
        assert_eq!(documents[0].errors, []);
        documents.remove(0).content
    };
    let (Decoded::Nodes(nodes), Decoded::CapacityClaim(pod)) = (read(nodes), read(claims)) else {
        panic!("not what it should be")
    };
    let (labels, pools) = file_pools(&nodes);
    let catalog = Catalog::new(Source::File, &[], &[]);
    let mut snapshot = Snapshot::new(&catalog, &labels, &pools);
    let request = snapshot.file_request(&catalog, &Constraints::default(), &pod).unwrap().request;
    let question = FileQuery {
        inventory: &snapshot.inventory,
        pools: &pools,
        request: &request,
        pod: &pod,
        budget: Budget { steps, stop: None },
        wording: Wording::Device,
    };
    file_result(&question, 0)
}

const NODE: &str = "
- name: node-1
  pools:
  - name: p
    driver: d
    devices:
    - {name: a, attributes: [{name: model, stringValue: x}], capacities: [{name: m, quantity: {capacity: '4'}}, {name: c, counter: {capacity: 1}}]}
    - {name: b, attributes: [{name: model, stringValue: z}], capacities: [{name: m, quantity: {capacity: '8'}}]}
    - {name: e, capacities: [{name: m, counter: {capacity: 8}}]}
";

/// Returns the reason of each device, as `name: reason`.
fn reasons(result: &FileResult, claim: usize) -> Vec<String> {
    let claim = &result.capacity_claim_results[0].device_claim_results[claim];
    let devices = claim.pool_results[0].device_results.as_deref().unwrap_or_default();
    let told = devices.iter().map(|device| {
        let reason = device.failure_reason.as_deref().unwrap_or("fits");
        format!("{}: {reason}", device.device_name)
    });
    told.collect()
}

#[test]
fn every_device_has_a_failure_reason() {
    let claims = |extra: &str, request: &str| {
        format!(
            "podClaim: {{name: pod, claims: [{{name: x, driver: d{extra}, requests: [{{name: m, {request}}}]}}]}}"
        )
    };
    let table = [
        (
            claims("", "quantity: {request: '6'}"),
            vec![
                "a: insufficient capacity \"m\" present in device \"a\"",
                "b: fits",
                "e: error evaluating capacity \"m\" in device \"e\": request/capacity type mismatch",
            ],
        ),
        (
            claims(", constraints: device.model == 'x'", "quantity: {request: '1'}"),
            vec![
                "a: fits",
                "b: does not meet constraints",
                "e: error evaluating against constraints: no such key: model",
            ],
        ),
        (
            claims("", "quantity: {request: '1'}").replace("name: m", "name: z"),
            vec![
                "a: no capacity \"z\" present in device \"a\"",
                "b: no capacity \"z\" present in device \"b\"",
                "e: no capacity \"z\" present in device \"e\"",
            ],
        ),
    ];
    for (claims, expected) in table {
        assert_eq!(
            reasons(&file_result_for(NODE, &claims, Budget::STEPS), 0),
            expected,
            "{claims}"
        );
    }
}

#[test]
fn later_claims_see_remaining_capacity() {
    let claim = |name: &str, amount: u32| {
        format!(
            "{{name: {name}, driver: d, requests: [{{name: m, quantity: {{request: '{amount}'}}}}]}}"
        )
    };
    let claims = format!(
        "podClaim: {{name: pod, claims: [{}, {}, {}]}}",
        claim("first", 8),
        claim("second", 5),
        claim("third", 4)
    );
    let result = file_result_for(NODE, &claims, Budget::STEPS);
    assert_eq!(result.outcome, FileOutcome::Failed);
    let claims = &result.capacity_claim_results[0].device_claim_results;
    let served: Vec<u32> = claims.iter().map(|claim| claim.score).collect();
    assert_eq!(served, [100, 0, 100], "the third does not wait for the second");
    assert_eq!(reasons(&result, 1)[1], "b: insufficient capacity \"m\" present in device \"b\"");
    assert_eq!(result.capacity_claim_results[0].score, 0);
    let third = &claims[2].pool_results[0].device_results.as_ref().unwrap()[0];
    assert_eq!(third.capacity_results.as_ref().unwrap()[0].quantity.unwrap().request, 4.into());
}

#[test]
fn an_exhausted_budget_is_undecided() {
    let claims = "podClaim: {name: pod, claims: [{name: x, driver: d}]}";
    let result = file_result_for(NODE, claims, 0);
    assert_eq!(result.outcome, FileOutcome::Undecided);
    let text = file_text(&[result], true, Wording::Device).unwrap();
    assert!(text.contains("node \"node-1\" (0): the search ended without a result\n"), "{text}");
}

#[test]
fn a_pod_without_claims_fits() {
    let result = file_result_for(NODE, "podClaim: {name: pod, claims: []}", Budget::STEPS);
    assert_eq!((result.outcome, result.score), (FileOutcome::Succeeded, 100));
}
