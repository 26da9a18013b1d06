//! Every oddity of the published manifests, row by row.

use serde_json::{Value, json};

use super::{documents, error_paths, manifest, only, value, warning_paths};
use crate::decode::{self, Options};

/// The expected result of a manifest.
enum Outcome {
    /// This, at the pointer, with warnings at these paths.
    Becomes(&'static str, Value, &'static [&'static str]),
    /// Errors at these paths.
    Refused(&'static [&'static str]),
}
use Outcome::{Becomes, Refused};

fn class(spec: &str) -> String {
    manifest("DeviceClass", &format!("spec: {{{spec}}}\n"))
}

fn claim(spec: &str) -> String {
    manifest("DeviceClaim", &format!("spec: {{{spec}}}\n"))
}

fn pool(spec: &str) -> String {
    manifest("DevicePool", &format!("spec: {{{spec}}}\n"))
}

fn pod(claim: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{deviceClaims: [{{{claim}}}], containers: [{{name: c, image: i}}]}}\n"
    )
}

fn check(table: impl IntoIterator<Item = (&'static str, String, Outcome)>) {
    for (why, text, outcome) in table {
        let document = only(&text);
        match outcome {
            Becomes(pointer, expected, warnings) => {
                assert_eq!(document.errors, [], "{why}");
                assert_eq!(value(&document).pointer(pointer), Some(&expected), "{why}");
                assert_eq!(warning_paths(&document), warnings, "{why}");
            }
            Refused(paths) => {
                assert_eq!(error_paths(&document), paths, "{why}: {:?}", document.errors);
            }
        }
    }
}

#[test]
fn drivers_and_classes() {
    check([
        (
            "deviceTypes at top level is canonical",
            manifest("DeviceDriver", "deviceTypes: [a, b]\n"),
            Becomes("/deviceTypes", json!(["a", "b"]), &[]),
        ),
        (
            "spec.deviceTypes is accepted silently",
            manifest("DeviceDriver", "spec: {deviceTypes: [a]}\n"),
            Becomes("/deviceTypes", json!(["a"]), &[]),
        ),
        (
            "both places that differ",
            manifest("DeviceDriver", "deviceTypes: [a]\nspec: {deviceTypes: [b]}\n"),
            Refused(&["spec.deviceTypes"]),
        ),
        (
            "a driver's spec holds nothing else",
            manifest("DeviceDriver", "spec: {deviceTypes: [a], x: 1}\n"),
            Refused(&["spec.x"]),
        ),
        (
            "maxDeviceCount is the canonical name",
            class("deviceType: a, maxDeviceCount: 1"),
            Becomes("/spec/maxDeviceCount", json!(1), &[]),
        ),
        (
            "deviceMaxCount is accepted with a warning",
            class("deviceType: a, deviceMaxCount: 1"),
            Becomes("/spec/maxDeviceCount", json!(1), &["spec.deviceMaxCount"]),
        ),
        (
            "deviceMaxCount and maxDeviceCount differ",
            class("deviceType: a, deviceMaxCount: 1, maxDeviceCount: 2"),
            Refused(&["spec.deviceMaxCount"]),
        ),
        (
            "deviceMinCount is accepted for symmetry",
            class("deviceType: a, deviceMinCount: 2"),
            Becomes("/spec/minDeviceCount", json!(2), &["spec.deviceMinCount"]),
        ),
        (
            "a scalar under deviceTypes of a class",
            class("deviceTypes: sriov-nic"),
            Becomes("/spec/deviceType", json!("sriov-nic"), &["spec.deviceTypes"]),
        ),
        (
            "a list of one under deviceTypes of a class",
            class("deviceTypes: [sriov-nic]"),
            Becomes("/spec/deviceType", json!("sriov-nic"), &["spec.deviceTypes"]),
        ),
        (
            "a list of two under deviceTypes of a class",
            class("deviceTypes: [a, b], deviceType: a"),
            Refused(&["spec.deviceTypes"]),
        ),
        (
            "deviceType and deviceTypes differ",
            class("deviceTypes: b, deviceType: a"),
            Refused(&["spec.deviceTypes"]),
        ),
        (
            "contstraints is read, and loudly",
            class("deviceType: a, contstraints: device.x"),
            Becomes("/spec/constraints", json!("device.x"), &["spec.contstraints"]),
        ),
        (
            "attributeMatches loses one prefix, which alone is worth a warning",
            class("deviceType: a, attributeMatches: [device.model, device.device.x, numa]"),
            Becomes(
                "/spec/matchAttributes",
                json!(["model", "device.x", "numa"]),
                &["spec.attributeMatches[0]", "spec.attributeMatches[1]"],
            ),
        ),
        (
            "matchAttributes keeps what it says",
            class("deviceType: a, matchAttributes: [device.model]"),
            Becomes("/spec/matchAttributes", json!(["device.model"]), &[]),
        ),
        (
            "attributeMatches and matchAttributes differ",
            class("deviceType: a, attributeMatches: [device.a], matchAttributes: [b]"),
            Refused(&["spec.attributeMatches"]),
        ),
        (
            "a constraint with `=` is accepted and never rewritten",
            class("deviceType: a, constraints: device.speed = '1G'"),
            Becomes("/spec/constraints", json!("device.speed = '1G'"), &["spec.constraints"]),
        ),
        (
            "a quantity compared with a text is valid",
            class("deviceType: a, constraints: device.speed >= '1G'"),
            Becomes("/spec/constraints", json!("device.speed >= '1G'"), &[]),
        ),
        (
            "upper case letters in a name",
            class("deviceType: a").replace("name: x", "name: sriov-nic-1Gbps"),
            Becomes("/metadata/name", json!("sriov-nic-1Gbps"), &["metadata.name"]),
        ),
        (
            "names in the case of the old encoder",
            class("DeviceType: a, Driver: b, MaxDeviceCount: 3"),
            Becomes(
                "/spec",
                json!({"deviceType": "a", "driver": "b", "maxDeviceCount": 3}),
                &["spec.MaxDeviceCount", "spec.Driver", "spec.DeviceType"],
            ),
        ),
        (
            "any other letter case",
            class("devicetype: a, DRIVER: b"),
            Becomes(
                "/spec",
                json!({"deviceType": "a", "driver": "b"}),
                &["spec.devicetype", "spec.DRIVER"],
            ),
        ),
    ]);
}

#[test]
fn claims() {
    check([
        (
            "a flat spec is one entry named main",
            claim(
                "deviceClass: a, matchAttributes: [numa], configs: [{apiVersion: v1, kind: ConfigMap, name: c}]",
            ),
            Becomes(
                "/spec",
                json!({
                    "matchAttributes": ["numa"],
                    "claims": [{"name": "main", "deviceClass": "a", "configs": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}]}],
                }),
                &[],
            ),
        ),
        (
            "flat fields beside claims",
            claim("deviceClass: a, claims: [{deviceClass: b}]"),
            Refused(&["spec.deviceClass"]),
        ),
        (
            "entries without a name are numbered",
            claim("claims: [{deviceClass: a}, {name: b, deviceClass: a}, {deviceClass: a}]"),
            Becomes(
                "/spec/claims",
                json!([
                    {"name": "claim-0", "deviceClass": "a"},
                    {"name": "b", "deviceClass": "a"},
                    {"name": "claim-2", "deviceClass": "a"},
                ]),
                &[],
            ),
        ),
        (
            "count is short for requests.count",
            claim("claims: [{deviceClass: a, count: 4}]"),
            Becomes("/spec/claims/0/requests", json!({"count": "4"}), &[]),
        ),
        (
            "count beside an equal requests.count",
            claim("claims: [{deviceClass: a, count: 4, requests: {count: \"4\"}}]"),
            Becomes("/spec/claims/0/requests", json!({"count": "4"}), &[]),
        ),
        (
            "count beside another requests.count",
            claim("claims: [{deviceClass: a, count: 4, requests: {count: 5}}]"),
            Refused(&["spec.claims[0].count"]),
        ),
        (
            "least and most become requests and limits",
            claim("deviceClass: a, minDeviceCount: 2, maxDeviceCount: 4"),
            Becomes(
                "/spec/claims/0",
                json!({"name": "main", "deviceClass": "a", "requests": {"count": "2"}, "limits": {"count": "4"}}),
                &[],
            ),
        ),
        (
            "their older names, in an alternative",
            claim(
                "claims: [{oneOf: [{deviceClass: a, deviceMaxCount: 4}, {deviceClass: b, deviceMinCount: 1}]}]",
            ),
            Becomes(
                "/spec/claims/0/oneOf",
                json!([{"deviceClass": "a", "limits": {"count": "4"}}, {"deviceClass": "b", "requests": {"count": "1"}}]),
                &[
                    "spec.claims[0].oneOf[0].deviceMaxCount",
                    "spec.claims[0].oneOf[1].deviceMinCount",
                ],
            ),
        ),
        (
            "count in a list of typed requests",
            claim(
                "claims: [{deviceClass: a, minDeviceCount: 2, requests: [{name: cores, counter: {request: 1}}]}]",
            ),
            Becomes(
                "/spec/claims/0/requests",
                json!([{"name": "cores", "counter": {"request": 1}}, {"name": "count", "counter": {"request": 2}}]),
                &[],
            ),
        ),
        (
            "capacity and resource both name the resource of a request",
            claim(
                "claims: [{deviceClass: a, requests: [{capacity: a, counter: {request: 1}}, {resource: b, quantity: {request: 1Gi}}]}]",
            ),
            Becomes(
                "/spec/claims/0/requests",
                json!([{"name": "a", "counter": {"request": 1}}, {"name": "b", "quantity": {"request": "1Gi"}}]),
                &[],
            ),
        ),
        (
            "a request with two names",
            claim(
                "claims: [{deviceClass: a, requests: [{capacity: a, name: b, counter: {request: 1}}]}]",
            ),
            Refused(&["spec.claims[0].requests[0].capacity"]),
        ),
        (
            "access modes in words",
            claim(
                "claims: [{deviceClass: a, accessMode: readonly-shared, requests: [{name: access, accessMode: {request: Exclusive}}]}]",
            ),
            Becomes(
                "/spec/claims/0",
                json!({
                    "name": "main", "deviceClass": "a", "accessMode": "ReadOnlyShared",
                    "requests": [{"name": "access", "accessMode": {"request": "ReadWriteExclusive"}}],
                }),
                &[],
            ),
        ),
        (
            "an access mode that is none",
            claim("claims: [{deviceClass: a, accessMode: shared}]"),
            Refused(&["spec.claims[0].accessMode"]),
        ),
        (
            "distinctAttributes is implemented",
            claim("distinctAttributes: [pf], claims: [{deviceClass: a}]"),
            Becomes("/spec/distinctAttributes", json!(["pf"]), &[]),
        ),
        (
            "a class that does not exist, in files",
            claim("deviceClass: not implemented yet, driver: example.com-foozer"),
            Becomes("/spec/claims/0/deviceClass", json!("not implemented yet"), &[]),
        ),
        (
            "a driver alone, in files",
            claim("driver: example.com/foozer"),
            Becomes(
                "/spec/claims/0/driver",
                json!("example.com/foozer"),
                &["spec.claims[0].driver"],
            ),
        ),
        (
            "a set claim is a claim with an entry per spec",
            manifest(
                "DeviceSetClaim",
                "spec: {matchAttributes: [numa], claimSpec: [{deviceClass: a}, {deviceClass: b}]}\n",
            ),
            Becomes(
                "",
                json!({
                    "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
                    "kind": "DeviceClaim",
                    "metadata": {"name": "x"},
                    "spec": {
                        "matchAttributes": ["numa"],
                        "claims": [{"name": "claim-0", "deviceClass": "a"}, {"name": "claim-1", "deviceClass": "b"}],
                    },
                }),
                &["kind"],
            ),
        ),
        (
            "an early allocation of a pool that counts",
            manifest(
                "DeviceClaim",
                "spec: {deviceClass: a}\nstatus: {allocations: [{devicePoolName: p, count: 2}]}\n",
            ),
            Becomes("/status/allocations", json!([{"devicePoolName": "p", "deviceCount": 2}]), &[]),
        ),
    ]);
}

#[test]
fn pools_and_files() {
    check([
        (
            "count of a pool",
            pool("driver: d, count: 2"),
            Becomes("/spec", json!({"driver": "d", "deviceCount": 2}), &[]),
        ),
        (
            "count and deviceCount differ",
            pool("driver: d, count: 2, deviceCount: 3"),
            Refused(&["spec.count"]),
        ),
        (
            "NodeName of the old encoder",
            pool("driver: d, NodeName: node"),
            Becomes("/spec/nodeName", json!("node"), &["spec.NodeName"]),
        ),
        (
            "devices that were called resources",
            pool("driver: d, resources: [{name: a, capacities: [{name: m, counter: {capacity: 1}}]}]"),
            Becomes(
                "/spec/devices",
                json!([{"name": "a", "resources": [{"name": "m", "counter": {"capacity": 1}}]}]),
                &[],
            ),
        ),
        (
            "a slash in the driver of a file",
            pool("driver: example.com/foozer"),
            Becomes("/spec/driver", json!("example.com/foozer"), &["spec.driver"]),
        ),
        (
            "the first files: resources, groupInResource, a slash",
            "- name: node\n  pools:\n  - name: p\n    driver: example.com/foozer\n    resources:\n    - name: d\n      capacities:\n      - {name: c, counter: {capacity: 1}, topologies: [{type: numa, name: a, groupInResource: false}]}\n".to_owned(),
            Becomes(
                "",
                json!([{"name": "node", "pools": [{"name": "p", "driver": "example.com/foozer", "devices": [
                    {"name": "d", "capacities": [{"name": "c", "counter": {"capacity": 1}, "topologies": [{"type": "numa", "name": "a", "groupInDevice": false}]}]},
                ]}]}]),
                &[],
            ),
        ),
        (
            "nodes under the name of their type",
            "NodeResources: [{name: node, pools: []}]\n".to_owned(),
            Becomes("", json!([{"name": "node"}]), &[]),
        ),
        (
            "a single node",
            "name: node\npools: [{name: p, driver: d}]\n".to_owned(),
            Becomes("/0/pools/0/name", json!("p"), &[]),
        ),
        (
            "nodes are strict after that",
            "- {name: node, pools: [{name: p, driver: d, devises: []}, {name: p}]}\n".to_owned(),
            Refused(&["[0].pools[0].devises", "[0].pools[1].driver"]),
        ),
        (
            "capacities of a claim",
            "podClaim: {name: p, claims: [{name: a, driver: kubelet, capacities: [{capacity: pods, counter: {request: 1}}]}]}\n".to_owned(),
            Becomes("/podClaim/claims/0/requests", json!([{"name": "pods", "counter": {"request": 1}}]), &[]),
        ),
        (
            "a whole claim in the place of an entry",
            "containerClaims: [{name: c, claims: [{kind: DeviceClaim, metadata: {name: a}, spec: {driver: d, matchAttributes: [numa]}}]}]\n".to_owned(),
            Becomes("/containerClaims/0/claims", json!([{"name": "a", "driver": "d", "matchAttributes": ["numa"]}]), &[]),
        ),
        (
            "capacity claims are strict after that",
            "podClaim: {claims: [{name: a, request: 1}]}\ncontainerClaims: [{name: c, claims: [{spec: {claims: []}}, {kind: Pod}]}]\n".to_owned(),
            Refused(&[
                "containerClaims[0].claims[0].spec.claims",
                "containerClaims[0].claims[1].kind",
                "podClaim.name",
                "podClaim.claims[0].request",
                "containerClaims[0].claims[0].name",
                "containerClaims[0].claims[1].name",
                "containerClaims[0].claims[1].kind",
            ]),
        ),
    ]);
}

#[test]
fn pods_and_config_maps() {
    check([
        (
            "a claim named as a template",
            pod("name: a, claimTemplateName: foozer"),
            Becomes(
                "/spec/deviceClaims",
                json!([{"name": "a", "claimTemplateName": "foozer"}]),
                &[],
            ),
        ),
        (
            "an inline entry",
            pod("claim: {name: card, deviceClass: a, count: 2}"),
            Becomes(
                "/spec/deviceClaims/0/claim/claims",
                json!([{"name": "card", "deviceClass": "a", "requests": {"count": 2}}]),
                &[],
            ),
        ),
        (
            "claims beside an empty template",
            pod("template: null, matchAttributes: [numa], claims: [{deviceClass: a}]"),
            Becomes(
                "/spec/deviceClaims/0/template",
                json!({"matchAttributes": ["numa"], "claims": [{"deviceClass": "a", "name": "main"}]}),
                &["spec.deviceClaims[0].claims"],
            ),
        ),
        (
            "claims beside a template that has some",
            pod("template: {claims: [{deviceClass: a}]}, claims: [{deviceClass: a}]"),
            Refused(&["spec.deviceClaims[0].claims"]),
        ),
        (
            "a number in a ConfigMap",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {vlanID: 2000, name: x}\n"
                .to_owned(),
            Becomes("/data/vlanID", json!(2000), &["data.vlanID"]),
        ),
    ]);
}

#[test]
fn a_document_with_two_lists_of_claims_must_be_split() {
    let error =
        decode::documents("deviceClaims: []\ndeviceClaims: []\n", Options::default()).unwrap_err();
    assert_eq!(error.at.line, 2);
    assert!(error.to_string().contains("duplicate key \"deviceClaims\""), "{error}");
    assert!(error.to_string().contains("split the document"), "{error}");
}

#[test]
fn conflicting_aliases_name_both_fields() {
    let document = only(&class("deviceType: a, deviceMaxCount: 1, maxDeviceCount: 2"));
    assert!(document.errors[0].text.contains("keep spec.maxDeviceCount"), "{:?}", document.errors);
    let document = only(&claim("claims: [{deviceClass: a, count: 4, requests: {count: 5}}]"));
    let text = &document.errors[0].text;
    assert!(text.contains("keep spec.claims[0].requests.count"), "{text}");
}

#[test]
fn what_is_moved_is_still_found_on_its_line() {
    let text = manifest("DeviceClaim", "spec:\n  deviceClass: a\n  requests:\n    count: none\n");
    let document = documents(&text).remove(0);
    assert_eq!(document.errors[0].at.line, 7, "{:?}", document.errors);
}
