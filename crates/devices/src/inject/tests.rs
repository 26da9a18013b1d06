use gantry_api::decode::{self, Options};

use super::*;

fn injected(text: &str, keep: SchedulingHold) -> Injected {
    let mut documents = decode::documents(text, Options::default()).unwrap();
    assert_eq!(documents.len(), 1);
    let document = documents.remove(0);
    assert_eq!(document.errors, [], "{text}");
    inject(&document.content, keep).unwrap()
}

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: p, annotations: {mine: stays}}
spec:
  deviceClaims:
  - {name: nic, claim: {deviceClass: sriov-nic-1Gbps}}
  initContainers: [{name: first, image: i, devices: [{name: nic}]}]
  containers: [{name: main, image: i, devices: [{name: nic}]}, {name: side, image: i}]
";

#[test]
fn fields_that_kubernetes_lacks_become_annotations() {
    let Injected { object, remarks, .. } = injected(POD, SchedulingHold::Scheduler);
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {
            "mine": "stays",
            "devmgmtproto.k8s.io/device-claims":
                r#"[{"name":"nic","claim":{"claims":[{"name":"main","deviceClass":"sriov-nic-1gbps"}]}}]"#,
            "devmgmtproto.k8s.io/container-devices":
                r#"{"first":[{"name":"nic"}],"main":[{"name":"nic"}]}"#,
        }},
        "spec": {
            "initContainers": [{"name": "first", "image": "i"}],
            "containers": [{"name": "main", "image": "i"}, {"name": "side", "image": "i"}],
            "schedulerName": "gantry",
        },
    });
    assert_eq!(object, expected);
    let expected = [
        "deviceClass: \"sriov-nic-1Gbps\" written in lower case: \"sriov-nic-1gbps\"",
        "spec.deviceClaims and devices of containers: moved to annotations",
        "spec.schedulerName: set to gantry, which allocates devices",
    ];
    assert_eq!(remarks, expected);
    let again = inject(&Decoded::Foreign(object.clone()), SchedulingHold::Scheduler).unwrap();
    assert_eq!((again.object, again.remarks), (object, Vec::new()), "once is enough");
}

#[test]
fn pods_with_claims_get_scheduler_or_gate() {
    let gated = injected(POD, SchedulingHold::Gate);
    assert_eq!(gated.object["spec"]["schedulingGates"], json!([{"name": SCHEDULING_GATE}]));
    assert_eq!(gated.object["spec"]["schedulerName"], Value::Null);
    let free = injected(POD, SchedulingHold::Unchanged);
    assert_eq!(free.object["spec"]["schedulerName"], Value::Null);
    let own = POD.replace("spec:\n", "spec:\n  schedulerName: mine\n");
    assert_eq!(injected(&own, SchedulingHold::Scheduler).object["spec"]["schedulerName"], "mine");
}

#[test]
fn pods_in_templates_are_found() {
    let text = "
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: '0 0 * * *'
  jobTemplate: {spec: {template: {spec: {
    restartPolicy: Never, deviceClaims: [{name: a, claimTemplateName: Tmpl}],
    containers: [{name: c, image: i, devices: [{name: a}]}]}}}}
";
    let Injected { object, .. } = injected(text, SchedulingHold::Scheduler);
    let pod = &object["spec"]["jobTemplate"]["spec"]["template"];
    assert_eq!(pod["spec"].get("deviceClaims"), None);
    let annotations = &pod["metadata"]["annotations"];
    let claims = annotations[DEVICE_CLAIMS_ANNOTATION].as_str().unwrap();
    assert_eq!(claims, r#"[{"name":"a","claimTemplateName":"tmpl"}]"#);
}

#[test]
fn names_and_references_are_written_in_lower_case() {
    let class = "{apiVersion: devmgmtproto.k8s.io/v1alpha1, kind: DeviceClass, metadata: {name: Nic-1Gbps}, spec: {deviceType: nic, driver: Sriov, configs: [{apiVersion: v1, kind: ConfigMap, namespace: ns, name: KeepThis}]}}";
    let Injected { object, remarks, .. } = injected(class, SchedulingHold::Scheduler);
    assert_eq!(object["metadata"]["name"], "nic-1gbps");
    assert_eq!(object["spec"]["driver"], "sriov");
    assert_eq!(object["spec"]["configs"][0]["name"], "KeepThis", "not a name of ours");
    assert_eq!(remarks.len(), 2, "{remarks:?}");
    let claim = "{apiVersion: devmgmtproto.k8s.io/v1alpha1, kind: DeviceClaim, metadata: {name: c}, spec: {claims: [{oneOf: [{deviceClass: A}, {deviceClass: b}]}]}}";
    let Injected { object, .. } = injected(claim, SchedulingHold::Scheduler);
    assert_eq!(object["spec"]["claims"][0]["oneOf"][0]["deviceClass"], "a");
}

#[test]
fn values_of_config_maps_are_put_in_quotes() {
    let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: vlan}, data: {vlanID: 2000, on: true, text: x}}";
    let Injected { object, remarks, .. } = injected(text, SchedulingHold::Scheduler);
    assert_eq!(object["data"], json!({"vlanID": "2000", "true": "true", "text": "x"}));
    assert_eq!(remarks[0], "data.vlanID: put in quotes: \"2000\"");
}

#[test]
fn what_is_no_object_is_refused() {
    let nodes =
        decode::documents("[{name: node-1, pools: []}]", Options::default()).unwrap().remove(0);
    assert_eq!(inject(&nodes.content, SchedulingHold::Scheduler), Err(InjectError::NoObject));
    let others = "{apiVersion: example.com/v1, kind: FoozerConfig, metadata: {name: X}, spec: {deviceClass: Q}}";
    let Injected { object, remarks, .. } = injected(others, SchedulingHold::Scheduler);
    assert_eq!((object["metadata"]["name"].as_str(), remarks.len()), (Some("X"), 0));
}

#[test]
fn names_that_differ_only_in_case_clash() {
    let class = |name: &str| {
        let text = format!(
            "{{apiVersion: devmgmtproto.k8s.io/v1alpha1, kind: DeviceClass, metadata: {{name: {name}}}, spec: {{deviceType: nic}}}}"
        );
        injected(&text, SchedulingHold::Scheduler)
    };
    let mut names = LowercaseNames::default();
    assert_eq!(names.reserve(&class("nic-1Gbps")), Ok(()));
    assert_eq!(names.reserve(&class("nic-1Gbps")), Ok(()), "applied again");
    assert_eq!(names.reserve(&class("other")), Ok(()));
    let clash = names.reserve(&class("nic-1gbps")).unwrap_err().to_string();
    assert!(clash.starts_with("\"nic-1Gbps\" and \"nic-1gbps\" differ only"), "{clash}");
}
