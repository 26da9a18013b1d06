//! Pods and their carriers.

use serde_json::json;

use super::{error_paths, only};
use crate::devices::{ClaimSource, PodDeviceClaims};

/// A pod with these annotations, these fields in its spec and these in its container.
fn pod(annotations: &str, spec: &str, container: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, annotations: {{{annotations}}}}}\nspec: {{{spec} containers: [{{name: main, image: i{container}}}]}}\n"
    )
}

#[test]
fn each_violation_names_its_path() {
    let claims = "devmgmtproto.k8s.io/device-claims";
    let devices = "devmgmtproto.k8s.io/container-devices";
    let table: Vec<(&str, String, Vec<String>)> = vec![
        (
            "annotations and native fields",
            pod(&format!("{claims}: '[]'"), "deviceClaims: [],", ""),
            vec!["spec.deviceClaims".to_owned()],
        ),
        (
            "annotations and a companion",
            pod(&format!("{claims}: '[]', devmgmtproto.k8s.io/pod-devices: x"), "", ""),
            vec!["metadata.annotations[devmgmtproto.k8s.io/pod-devices]".to_owned()],
        ),
        (
            "a companion and devices of a container",
            pod("devmgmtproto.k8s.io/pod-devices: x", "", ", devices: []"),
            vec!["spec.containers[0].devices".to_owned()],
        ),
        (
            "no source",
            pod("", "deviceClaims: [{name: a}],", ""),
            vec!["spec.deviceClaims[0]".to_owned()],
        ),
        (
            "two sources",
            pod("", "deviceClaims: [{name: a, claimName: b, claim: {deviceClass: c}}],", ""),
            vec!["spec.deviceClaims[0].claim".to_owned()],
        ),
        (
            "two claims of one name",
            pod("", "deviceClaims: [{name: a, claimName: b}, {name: a, claimName: c}],", ""),
            vec!["spec.deviceClaims[1].name".to_owned()],
        ),
        (
            "a reference to nothing",
            pod("", "deviceClaims: [{name: a, claimName: b}],", ", devices: [{name: c}]"),
            vec!["spec.containers[0].devices[0].name".to_owned()],
        ),
        (
            "a reference to an entry of two claims",
            pod(
                "",
                "deviceClaims: [{template: {claims: [{name: x, deviceType: t}]}}, {template: {claims: [{name: x, deviceType: t}]}}],",
                ", devices: [{name: x}]",
            ),
            vec!["spec.containers[0].devices[0].name".to_owned()],
        ),
        (
            "a wrong term inside",
            pod("", "deviceClaims: [{claim: {claims: [{name: x}]}}],", ""),
            vec!["spec.deviceClaims[0].claim.claims[0].deviceClass".to_owned()],
        ),
        (
            "an unknown field of the pod",
            pod("", "deviceClaims: [{claimName: b}], hostNetwrk: true,", ""),
            vec!["spec.hostNetwrk".to_owned()],
        ),
        (
            "an unknown field of a claim in an annotation",
            pod(&format!("{claims}: '[{{\"claimNme\": \"x\", \"claimName\": \"y\"}}]'"), "", ""),
            vec![format!("metadata.annotations[{claims}][0].claimNme")],
        ),
        (
            "an annotation that is no YAML",
            pod(&format!("{claims}: '[{{'"), "", ""),
            vec![format!("metadata.annotations[{claims}]")],
        ),
        (
            "an annotation that is empty",
            pod(&format!("{claims}: ''"), "", ""),
            vec![format!("metadata.annotations[{claims}]")],
        ),
        (
            "an annotation that is no list",
            pod(&format!("{claims}: '{{}}'"), "", ""),
            vec![format!("metadata.annotations[{claims}]")],
        ),
        (
            "devices of a container that is not there",
            pod(
                &format!(
                    "{claims}: '[{{name: a, claimName: b}}]', {devices}: '{{side: [{{name: a}}]}}'"
                ),
                "",
                "",
            ),
            vec![format!("metadata.annotations[{devices}].side")],
        ),
        (
            "devices without claims",
            pod(&format!("{devices}: '{{main: [{{name: a}}]}}'"), "", ""),
            vec![format!("metadata.annotations[{devices}].main[0].name")],
        ),
        (
            "a companion that cannot be an object",
            pod("devmgmtproto.k8s.io/pod-devices: Not A Name", "", ""),
            vec!["metadata.annotations[devmgmtproto.k8s.io/pod-devices]".to_owned()],
        ),
    ];
    for (why, text, paths) in table {
        let document = only(&text);
        assert_eq!(error_paths(&document), paths, "{why}: {:?}", document.errors);
    }
}

#[test]
fn every_carrier_gives_the_same_claims() {
    let claims = json!([
        {"name": "gpu", "claim": {"deviceClass": "h100"}},
        {"template": {"claims": [{"name": "nic", "deviceType": "sriov"}]}},
    ]);
    let devices = json!([{"name": "gpu"}, {"name": "nic"}]);
    let native = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {
            "deviceClaims": claims,
            "futureField": 1,
            "containers": [{"name": "main", "image": "i", "devices": devices}],
        },
    });
    let annotated = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "annotations": {
            "devmgmtproto.k8s.io/device-claims": claims.to_string(),
            "devmgmtproto.k8s.io/container-devices": json!({"main": devices}).to_string(),
        }},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    });
    let read = |pod| PodDeviceClaims::of(&pod).unwrap().unwrap();
    let (native, annotated) = (read(native), read(annotated));
    assert_eq!(native, annotated);
    let PodDeviceClaims::Claims(carried) = native else { panic!("{native:?}") };
    assert_eq!(carried.resolve("gpu"), [0]);
    assert_eq!(carried.resolve("nic"), [1], "the name of an entry");
    assert_eq!(carried.resolve("h100"), Vec::<usize>::new());
    assert!(matches!(carried.device_claims[0].source, ClaimSource::Claim(_)));
}

#[test]
fn a_pod_without_devices_carries_nothing() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}});
    assert_eq!(PodDeviceClaims::of(&pod).unwrap(), None);
    let named = json!({"metadata": {"annotations": {"devmgmtproto.k8s.io/pod-devices": "x"}}});
    assert_eq!(PodDeviceClaims::of(&named).unwrap(), Some(PodDeviceClaims::Named("x".to_owned())));
    let two = json!({"metadata": {"annotations": {
        "devmgmtproto.k8s.io/pod-devices": "x",
        "devmgmtproto.k8s.io/device-claims": "[]",
    }}});
    assert!(PodDeviceClaims::of(&two).is_err());
}

#[test]
fn annotation_findings_have_a_position() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  annotations:\n    devmgmtproto.k8s.io/device-claims: |\n      - claim:\n          deviceMaxCount: 1\n          deviceClass: a\nspec: {containers: []}\n";
    let document = only(text);
    assert_eq!(document.errors, []);
    assert_eq!(document.warnings[0].at.line, 6, "{:?}", document.warnings);
}
