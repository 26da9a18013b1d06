//! Rows of volumes and storage classes.

use jiff::Timestamp;
use serde_json::Value;

use super::fields::{
    NONE, UNSET, age, count, each, is_deleted, joined, list, name, quantity, set_or, text, truth,
};

pub(super) fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let claim = &spec["claimRef"];
    let claim = if claim.is_object() {
        format!("{}/{}", text(&claim["namespace"]), text(&claim["name"]))
    } else {
        String::new()
    };
    vec![
        name(object),
        quantity(&spec["capacity"]["storage"]).into(),
        access_modes(&spec["accessModes"]).into(),
        text(&spec["persistentVolumeReclaimPolicy"]).into(),
        phase(object).into(),
        claim.into(),
        class_of(object).into(),
        set_or(&spec["volumeAttributesClassName"], UNSET).into(),
        text(&status["reason"]).into(),
        age(object, now),
        set_or(&spec["volumeMode"], UNSET).into(),
    ]
}

pub(super) fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let volume = text(&spec["volumeName"]);
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        (quantity(&status["capacity"]["storage"]), access_modes(&status["accessModes"]))
    };
    vec![
        name(object),
        phase(object).into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class_of(object).into(),
        set_or(&spec["volumeAttributesClassName"], UNSET).into(),
        age(object, now),
        set_or(&spec["volumeMode"], UNSET).into(),
    ]
}

fn phase(object: &Value) -> &str {
    if is_deleted(object) { "Terminating" } else { text(&object["status"]["phase"]) }
}

/// The storage class of a volume or claim: an annotation named it before a field did.
fn class_of(object: &Value) -> &str {
    let annotation = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    set_or(annotation, text(&object["spec"]["storageClassName"]))
}

fn access_modes(modes: &Value) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let there = |mode: &str| list(modes).iter().any(|it| text(it) == mode);
    let shown: Vec<&str> =
        short.iter().filter(|(mode, _)| there(mode)).map(|(_, short)| *short).collect();
    shown.join(",")
}

pub(super) fn class(object: &Value, now: Timestamp) -> Vec<Value> {
    let annotations = &object["metadata"]["annotations"];
    let default = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ]
    .iter()
    .any(|it| text(&annotations[it]) == "true");
    let name = text(&object["metadata"]["name"]);
    let name = if default { format!("{name} (default)") } else { name.to_owned() };
    vec![
        name.into(),
        text(&object["provisioner"]).into(),
        set_or(&object["reclaimPolicy"], "Delete").into(),
        set_or(&object["volumeBindingMode"], "Immediate").into(),
        truth(&object["allowVolumeExpansion"]).into(),
        age(object, now),
    ]
}

pub(super) fn attributes_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(&object["driverName"]).into(), age(object, now)]
}

pub(super) fn attachment(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    vec![
        name(object),
        text(&spec["attacher"]).into(),
        text(&spec["source"]["persistentVolumeName"]).into(),
        text(&spec["nodeName"]).into(),
        truth(&status["attached"]).into(),
        age(object, now),
    ]
}

pub(super) fn driver(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let modes = joined(&spec["volumeLifecycleModes"]);
    let audiences = each(&spec["tokenRequests"], "audience");
    vec![
        name(object),
        spec["attachRequired"].as_bool().unwrap_or(true).into(),
        truth(&spec["podInfoOnMount"]).into(),
        truth(&spec["storageCapacity"]).into(),
        if audiences.is_empty() { UNSET.into() } else { audiences.join(",").into() },
        truth(&spec["requiresRepublish"]).into(),
        if modes.is_empty() { NONE.into() } else { modes.into() },
        age(object, now),
    ]
}

pub(super) fn driver_node(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), count(&object["spec"]["drivers"]).into(), age(object, now)]
}
