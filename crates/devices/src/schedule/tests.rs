use gantry_api::decode::{self, Options as Reading};
use gantry_api::finding::Source;

use super::*;
use crate::dump::file::Wording;

fn objects(text: &str) -> Objects {
    let mut objects = Objects::of(Source::File);
    for document in decode::documents(text, Reading::default()).unwrap() {
        assert_eq!(document.errors, [], "{}", document.subject);
        assert!(objects.add(document.content), "{}", document.subject);
    }
    objects
}

const GPUS: &str = "
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: node-a-gpus}
spec:
  nodeName: node-a
  driver: gpu.example.com
  attributes: [{name: model, stringValue: h100}]
  devices: [{name: gpu-0, attributes: [{name: numa, stringValue: '0'}]}, {name: gpu-1, attributes: [{name: numa, stringValue: '1'}]}]
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: nics}
spec: {nodeName: node-b, driver: nic.example.com, deviceCount: 3}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClaim
metadata: {name: train, namespace: default}
spec: {claims: [{deviceType: gpu, driver: gpu.example.com}]}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceDriver
metadata: {name: gpu.example.com}
deviceTypes: [gpu]
";

fn pod(claims: &str) -> String {
    format!(
        "{GPUS}---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  deviceClaims: {claims}\n  containers: [{{name: c, image: i}}]\n"
    )
}

fn ask_pod(text: &str) -> Result<Decision, ScheduleError> {
    let asked = ScheduleTarget::Pod { namespace: "default", name: "p" };
    decide(&objects(text), asked, &Options::default())
}

fn decide_what_if(text: &str, changes: &[&str]) -> Decision {
    let mut objects = objects(text);
    for change in changes {
        change.parse::<WhatIfChange>().unwrap().apply(&mut objects).unwrap();
    }
    decide(&objects, ScheduleTarget::Claims, &Options { explain: true, ..Options::default() })
        .unwrap()
}

fn devices(decision: &Decision) -> Vec<String> {
    let tree = decision.tree();
    let given = tree["allocations"].as_array().cloned().unwrap_or_default();
    given.iter().map(|it| it["deviceName"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn what_if_changes_affect_the_decision() {
    /// The purpose, the hypothetical changes, the node that is chosen then, and the devices.
    type Row<'a> = (&'a str, &'a [&'a str], Option<&'a str>, &'a [&'a str]);
    let table: [Row<'_>; 9] = [
        ("nothing", &[], Some("node-a"), &["gpu-0"]),
        ("the first is used", &["used=node-a-gpus/gpu-0"], Some("node-a"), &["gpu-1"]),
        ("both are used", &["used=node-a-gpus/*"], None, &[]),
        (
            "the first is tainted",
            &["tainted=node-a-gpus/gpu-0:NoSchedule"],
            Some("node-a"),
            &["gpu-1"],
        ),
        ("a taint without effect", &["tainted=node-a-gpus/*:None"], Some("node-a"), &["gpu-0"]),
        ("the node is gone", &["remove-node=node-a"], None, &[]),
        (
            "there is another like it",
            &["add-node=node-c:like=node-a", "used=node-a-gpus/*"],
            Some("node-c"),
            &["gpu-0"],
        ),
        (
            "changes come in order",
            &["used=node-a-gpus/*", "add-node=x:like=node-a"],
            Some("x"),
            &["gpu-0"],
        ),
        ("a node without pools", &["add-node=bare", "remove-node=node-a"], None, &[]),
    ];
    for (why, changes, node, expected) in table {
        let decision = decide_what_if(GPUS, changes);
        assert_eq!(decision.node.as_deref(), node, "{why}");
        assert_eq!(devices(&decision), expected, "{why}");
        let verdict = if node.is_some() { Verdict::Satisfied } else { Verdict::Unsatisfied };
        assert_eq!(decision.verdict, verdict, "{why}");
    }
}

#[test]
fn invalid_what_if_changes_are_errors() {
    let table = [
        ("remove-node=z", "cannot apply remove-node=z: there is no node z"),
        ("add-node=node-a", "there is a node node-a"),
        ("add-node=x:like=z", "there is no node z"),
        ("used=z/gpu-0", "there is no pool z"),
        ("used=node-b/node-a-gpus/gpu-0", "node node-b has no pool node-a-gpus"),
        ("used=node-a-gpus/gpu-7", "pool node-a-gpus has no device gpu-7"),
        ("used=nics/4", "pool nics counts 3 devices without names"),
        ("used=nics/eth0", "write how many of them, or *"),
        ("tainted=nics/1:NoSchedule", "they have no taints"),
    ];
    for (change, expected) in table {
        let mut objects = objects(GPUS);
        let error =
            change.parse::<WhatIfChange>().unwrap().apply(&mut objects).unwrap_err().to_string();
        assert!(error.contains(expected), "{change}: {error}");
    }
    let nodes = "[{name: a, pools: [{name: p, driver: d, devices: [{name: x}]}]}, {name: b, pools: [{name: p, driver: d, devices: [{name: x}]}]}]";
    let mut several = objects(nodes);
    let change: WhatIfChange = "used=p/x".parse().unwrap();
    let error = change.apply(&mut several).unwrap_err().to_string();
    assert!(error.ends_with("several nodes have a pool p; write NODE/p/x"), "{error}");
    let change: WhatIfChange = "used=a/p/x".parse().unwrap();
    change.apply(&mut several).unwrap();
}

#[test]
fn changes_round_trip_as_text() {
    for text in [
        "add-node=x",
        "add-node=x:like=y",
        "remove-node=x",
        "used=pool/device",
        "used=node/pool/*",
        "tainted=pool/device:NoExecute",
    ] {
        assert_eq!(text.parse::<WhatIfChange>().unwrap().to_string(), text);
    }
    let table = [
        ("used", "write add-node=NAME"),
        ("add-node=", "write add-node=NAME"),
        ("break=x", "write add-node=NAME"),
        ("add-node=x:as=y", "write like=NODE"),
        ("add-node=x:like=", "write like=NODE"),
        ("used=pool", "write POOL/DEVICE"),
        ("used=a/b/c/d", "write POOL/DEVICE"),
        ("used=/x", "write POOL/DEVICE"),
        ("tainted=pool/device", "write the effect after a colon"),
        ("tainted=pool/device:Never", "\"Never\" is not a taint effect"),
    ];
    for (text, expected) in table {
        let error = text.parse::<WhatIfChange>().unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn every_refusal_is_explained() {
    let decision = decide_what_if(
        GPUS,
        &["tainted=node-a-gpus/gpu-0:NoSchedule", "used=node-a-gpus/gpu-1", "add-node=bare"],
    );
    let expected = [
        "node bare is refused: it cannot satisfy train",
        "  claim train needs 1 device; only 0 of 0 here qualify",
        "node node-a is refused: it cannot satisfy train",
        "  claim train needs 1 device; only 0 of 2 here qualify",
        "    pool node-a-gpus: none of 2 devices: no available devices",
        "      device gpu-0: taint \"what-if\" is not tolerated",
        "      device gpu-1: no available devices",
        "node node-b is refused: it cannot satisfy train",
        "  claim train needs 1 device; only 0 of 3 here qualify",
        "    pool nics: none of 3 devices: claim and pool driver do not match",
    ];
    assert_eq!(decision.explanation, expected);
    let text = decision.text(false).unwrap();
    assert!(text.contains("\n\nEXPLANATION\n-----------\nnode bare is refused"), "{text}");
    let both = GPUS.replace(
        "spec: {claims: [{deviceType: gpu, driver: gpu.example.com}]}",
        "spec: {claims: [{deviceType: gpu, requests: {count: 2}, matchAttributes: [numa]}]}",
    );
    let apart = decide_what_if(&both, &["remove-node=node-b"]);
    let expected = "  claim train needs 2 devices; 2 of 2 here qualify, but no choice of them satisfies everything at once: they must have the same numa";
    assert_eq!(apart.explanation[1], expected);
}

#[test]
fn pod_claims_are_found_in_fields_and_annotations() {
    let native = "[{name: t, claimName: train}]";
    let decision = ask_pod(&pod(native)).unwrap();
    assert_eq!(devices(&decision), ["gpu-0"]);
    let table = [
        ("[{name: t, claimTemplateName: train}]", vec!["entry t: claim used as template"]),
        ("[{name: t, claim: {deviceType: gpu}}]", vec![]),
    ];
    for (claims, notes) in table {
        let decision = ask_pod(&pod(claims)).unwrap();
        assert_eq!(
            (devices(&decision), decision.notes),
            (vec!["gpu-0".to_owned()], notes.into_iter().map(str::to_owned).collect()),
            "{claims}"
        );
    }
    let named = format!(
        "{GPUS}---\n{{apiVersion: v1, kind: Pod, metadata: {{name: p, annotations: {{devmgmtproto.k8s.io/pod-devices: mine}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}\n"
    );
    let missing = ask_pod(&named).unwrap_err().to_string();
    assert_eq!(missing, "pod default/p: PodDevices \"mine\" not found");
    let there = format!(
        "{named}---\n{{apiVersion: devmgmtproto.k8s.io/v1alpha1, kind: PodDevices, metadata: {{name: mine}}, spec: {{deviceClaims: [{{claimName: train}}]}}}}\n"
    );
    assert_eq!(devices(&ask_pod(&there).unwrap()), ["gpu-0"]);
}

#[test]
fn missing_objects_are_named() {
    let table = [
        ("[{name: t, claimName: other}]", "pod default/p: claim \"other\" not found"),
        (
            "[{name: t, claimTemplateName: other}]",
            "pod default/p: claim template \"other\" not found",
        ),
    ];
    for (claims, expected) in table {
        assert_eq!(ask_pod(&pod(claims)).unwrap_err().to_string(), expected);
    }
    assert_eq!(ask_pod(GPUS).unwrap_err().to_string(), "there is no pod default/p");
}

#[test]
fn a_claim_that_has_its_devices_pins_the_pod_and_holds_them() {
    let held = pod("[{name: t, claimName: train}, {name: u, claim: {deviceType: gpu}}]").replace(
        "spec: {claims: [{deviceType: gpu, driver: gpu.example.com}]}",
        "spec: {claims: [{deviceType: gpu, driver: gpu.example.com}]}\nstatus: {nodeName: node-a, allocations: [{devicePoolName: node-a-gpus, deviceName: gpu-0}]}",
    );
    let decision = ask_pod(&held).unwrap();
    assert_eq!(devices(&decision), ["gpu-1"], "the first is held by the claim itself");
    assert_eq!(decision.notes, ["claim train has its devices already, on node node-a"]);
    let nodes = decision.tree()["nodeResults"].as_array().unwrap().len();
    assert_eq!(nodes, 1, "no other node is asked");
    let elsewhere = held.replace("status: {nodeName: node-a,", "status: {nodeName: node-z,");
    let decision = ask_pod(&elsewhere).unwrap();
    assert_eq!((decision.verdict, decision.node), (Verdict::Unsatisfied, None));
}

#[test]
fn an_exhausted_budget_is_undecided() {
    let options = Options { steps: 0, explain: true, wording: Wording::Device };
    let decision = decide(&objects(GPUS), ScheduleTarget::Claims, &options).unwrap();
    assert_eq!(decision.verdict, Verdict::Undecided);
    let told = "node node-a is undecided: the search was given up after 0 steps";
    assert!(decision.explanation.iter().any(|line| line == told), "{:?}", decision.explanation);
}

#[test]
fn a_repeated_object_replaces_the_first() {
    let more = GPUS.replace("deviceCount: 3", "deviceCount: 7");
    let objects = objects(&format!("{GPUS}---\n{more}"));
    assert_eq!(objects.pools.len(), 2);
    assert_eq!(objects.pools[1].spec.device_count, Some(7));
}
