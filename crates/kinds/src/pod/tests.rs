use super::*;
use crate::behaviour::{SubresourceKind, behaviour};
use serde_json::json;

fn running() -> Value {
    let mut pod = json!({
        "metadata": { "name": "a", "namespace": "n", "generation": 1 },
        "spec": { "containers": [{ "name": "c", "image": "i:1" }], "nodeName": "n" },
    });
    behaviour("", "pods").default(&mut pod);
    behaviour("", "pods").prepare_create(&mut pod, "now");
    pod
}

#[test]
fn few_fields_of_a_pod_are_mutable() {
    let table = [
        ("image", "/spec/containers/0/image", json!("i:2"), None),
        ("restart policy", "/spec/restartPolicy", json!("Never"), Some("changed: restartPolicy")),
        ("host network", "/spec/hostNetwork", json!(true), Some("changed: hostNetwork")),
        ("deadline", "/spec/activeDeadlineSeconds", json!(5), None),
    ];
    for (why, pointer, value, expected) in table {
        let old = running();
        let mut new = old.clone();
        match pointer.strip_prefix("/spec/containers/0/") {
            Some(field) => put(&mut new["spec"]["containers"][0], field, value),
            None => put(&mut new, &pointer[1..].replace('/', "."), value),
        }
        let faults = behaviour("", "pods").validate_update(&new, &old, SubresourceKind::Main);
        let said: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), usize::from(expected.is_some()), "{why}: {said:?}");
        assert!(
            said.iter().all(|it| it.ends_with(expected.unwrap_or_default())),
            "{why}: {said:?}"
        );
    }
}

#[test]
fn containers_cannot_change_in_number() {
    let old = running();
    let mut new = old.clone();
    new["spec"]["containers"] = json!([old["spec"]["containers"][0], old["spec"]["containers"][0]]);
    new["spec"]["containers"][1]["name"] = json!("d");
    let faults = behaviour("", "pods").validate_update(&new, &old, SubresourceKind::Main);
    let said = "spec.containers: Forbidden: pod updates may not add or remove containers";
    assert_eq!(faults[0].to_string(), said);
}

#[test]
fn negative_grace_period_may_become_1() {
    let mut old = running();
    old["spec"]["terminationGracePeriodSeconds"] = json!(-1);
    for (seconds, allowed) in [(1, true), (2, false)] {
        let mut new = old.clone();
        new["spec"]["terminationGracePeriodSeconds"] = json!(seconds);
        let faults = behaviour("", "pods").validate_update(&new, &old, SubresourceKind::Main);
        assert_eq!(faults.is_empty(), allowed, "{seconds}");
    }
}

#[test]
fn ephemeral_containers_are_only_added() {
    let mut old = running();
    let debug = json!({ "name": "e", "image": "i", "imagePullPolicy": "Always",
        "terminationMessagePolicy": "File" });
    let mut new = old.clone();
    new["spec"]["ephemeralContainers"] = json!([debug]);
    new["spec"]["restartPolicy"] = json!("Never");
    behaviour("", "pods").prepare_update(
        &mut new,
        &old,
        SubresourceKind::EphemeralContainers,
        "now",
    );
    assert_eq!(new["spec"]["restartPolicy"], "Always", "nothing else changes");
    assert_eq!(new["metadata"]["generation"], 2);
    assert_eq!(
        behaviour("", "pods").validate_update(&new, &old, SubresourceKind::EphemeralContainers),
        []
    );
    old["spec"]["ephemeralContainers"] = json!([debug]);
    let mut gone = old.clone();
    gone["spec"]["ephemeralContainers"] = json!([]);
    let faults =
        behaviour("", "pods").validate_update(&gone, &old, SubresourceKind::EphemeralContainers);
    assert_eq!(faults.len(), 1);
}
