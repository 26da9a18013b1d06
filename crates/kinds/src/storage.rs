//! Validates volumes, claims, and storage classes.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use gantry_schema::FieldError;
use serde_json::{Value, json};

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::pod::{check_host_path, check_node_selector};
use crate::tree::{
    at, copy_field, entries, equal, is_empty, is_set, list, put, same, set_default, text,
};
use gantry_quantity::Quantity;

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

pub(crate) const VOLUME_RULES: Rules = Rules {
    default: |object| {
        set_default(object, "status.phase", "Pending");
        set_default(object, "spec.persistentVolumeReclaimPolicy", "Retain");
        set_default(object, "spec.volumeMode", "Filesystem");
        if let Some(spec) = crate::tree::at_mut(object, "spec") {
            crate::pod::defaults::source(spec);
        }
    },
    create: |object, now| {
        put(object, "status", json!({ "phase": "Pending", "lastPhaseTransitionTime": now }));
    },
    status: |new, old, now| {
        let field = "status.lastPhaseTransitionTime";
        if same(new, old, "status.phase") {
            if !is_set(new, field) {
                copy_field(new, old, field);
            }
        } else if !is_set(new, field) || same(new, old, field) {
            put(new, field, now);
        }
    },
    validate: |object| check_volume(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = check_volume(new);
        let path = Path::new("spec");
        let source = |object: &Value| source_of(at(object, "spec"));
        if !equal(&source(new), &source(old)) {
            let detail = format!(
                "spec.persistentvolumesource is immutable after creation\n{}",
                changed(&source(new), &source(old))
            );
            faults.forbidden(path.child("persistentvolumesource"), &detail);
        }
        faults.immutable(at(new, "spec"), at(old, "spec"), &path, "volumeMode");
        if is_set(old, "spec.nodeAffinity") {
            faults.immutable(at(new, "spec"), at(old, "spec"), &path, "nodeAffinity");
        }
        faults.into_vec()
    },
    ..Rules::NONE
};

pub(crate) const CLAIM_RULES: Rules = Rules {
    default: default_claim,
    create: |object, _| put(object, "status", json!({ "phase": "Pending" })),
    validate: |object| {
        let mut faults = FieldErrors::new();
        check_claim_spec(at(object, "spec"), &Path::new("spec"), &mut faults);
        faults.into_vec()
    },
    validate_update: update_claim,
    ..Rules::NONE
};

pub(crate) const CLASS_RULES: Rules = Rules {
    default: |object| {
        set_default(object, "reclaimPolicy", "Delete");
        set_default(object, "volumeBindingMode", "Immediate");
    },
    validate: |object| check_class(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = check_class(new);
        for field in ["parameters", "provisioner", "reclaimPolicy"] {
            if !same(new, old, field) {
                let detail = format!("updates to {field} are forbidden.");
                faults.forbidden(Path::new(field), &detail);
            }
        }
        faults.immutable(new, old, &Path::new(""), "volumeBindingMode");
        faults.into_vec()
    },
    ..Rules::NONE
};

pub(crate) const NODE_RULES: Rules = Rules {
    validate: |object| check_node(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = check_node(new);
        for driver in list(new, "spec.drivers") {
            let twin =
                list(old, "spec.drivers").iter().find(|it| at(it, "name") == at(driver, "name"));
            if twin.is_some_and(|twin| !equal(driver, twin)) {
                let shown = json!({
                    "Name": at(driver, "name"),
                    "NodeID": at(driver, "nodeID"),
                    "TopologyKeys": at(driver, "topologyKeys"),
                    "Allocatable": at(driver, "allocatable"),
                });
                faults.value(Path::new("spec").child("drivers"), shown, "field is immutable");
            }
        }
        faults.into_vec()
    },
    ..Rules::NONE
};

pub(crate) const DRIVER_RULES: Rules = Rules {
    default: |object| {
        set_default(object, "spec.attachRequired", true);
        for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
            set_default(object, &format!("spec.{field}"), false);
        }
        set_default(object, "spec.fsGroupPolicy", "ReadWriteOnceWithFSType");
        if is_empty(object, "spec.volumeLifecycleModes") {
            put(object, "spec.volumeLifecycleModes", json!(["Persistent"]));
        }
    },
    ..Rules::NONE
};

pub(crate) const ATTACHMENT_RULES: Rules = Rules {
    default: |object| {
        if let Some(spec) = crate::tree::at_mut(object, "spec.source.inlineVolumeSpec") {
            crate::pod::defaults::source(spec);
        }
    },
    create: |object, _| put(object, "status", json!({ "attached": false })),
    validate: |object| {
        let mut faults = FieldErrors::new();
        let (spec, path) = (at(object, "spec"), Path::new("spec"));
        let attacher = text(spec, "attacher").to_lowercase();
        if faults.require(spec, &path, "attacher") {
            faults.invalid_text(&path.child("attacher"), &attacher, names::qualified(&attacher));
        }
        if is_empty(spec, "source.persistentVolumeName") && !is_set(spec, "source.inlineVolumeSpec")
        {
            let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
            faults.required(path.child("source"), detail);
        }
        let node = text(spec, "nodeName");
        faults.invalid_text(&path.child("nodeName"), node, names::subdomain(node));
        // The attacher is also the name of a driver, which is checked separately.
        faults.require(spec, &path, "attacher");
        faults.invalid_text(&path.child("attacher"), &attacher, names::subdomain(&attacher));
        faults.into_vec()
    },
    validate_update: |new, old| {
        let mut faults = FieldErrors::new();
        if !same(new, old, "spec") {
            let spec = at(new, "spec");
            let shown = json!({
                "Attacher": at(spec, "attacher"),
                "Source": {
                    "PersistentVolumeName": at(spec, "source.persistentVolumeName"),
                    "InlineVolumeSpec": at(spec, "source.inlineVolumeSpec"),
                },
                "NodeName": at(spec, "nodeName"),
            });
            faults.value(Path::new("spec"), shown, "field is immutable");
        }
        faults.into_vec()
    },
    ..Rules::NONE
};

/// Fields of a volume's spec that are not its source.
const NO_SOURCE: [&str; 9] = [
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];

fn source_of(spec: &Value) -> Value {
    crate::pod::without(spec, &NO_SOURCE)
}

/// Returns the names of the fields that differ, where kube-apiserver prints a diff line by line.
fn changed(new: &Value, old: &Value) -> String {
    let keys = [new, old].into_iter().filter_map(Value::as_object).flat_map(|it| it.keys());
    let mut keys: Vec<&str> = keys.filter(|key| !same(new, old, key)).map(String::as_str).collect();
    keys.sort_unstable();
    keys.dedup();
    format!("changed: {}", keys.join(", "))
}

fn check_volume(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    faults.require(spec, &path, "accessModes");
    check_modes(spec, &path, &mut faults);
    let capacity = entries(spec, "capacity");
    if capacity.is_empty() {
        faults.required(path.child("capacity"), "");
    }
    if capacity.len() != 1 || capacity[0].0 != "storage" {
        let value = at(spec, "capacity").clone();
        faults.not_supported(path.child("capacity"), value, &["storage"]);
    }
    for (name, amount) in capacity {
        if Quantity::from_json(amount).is_some_and(|it| it.sign() != Ordering::Greater) {
            let place = path.child("capacity").key(name);
            faults.value(place, amount.clone(), "must be greater than zero");
        }
    }
    let policies = ["Delete", "Recycle", "Retain"];
    faults.one_of(spec, &path, "persistentVolumeReclaimPolicy", &policies);
    if is_set(spec, "nodeAffinity.required") {
        let path = path.child("nodeAffinity").child("required");
        check_node_selector(at(spec, "nodeAffinity.required"), &path, &mut faults);
    }
    let sources = source_of(spec);
    let mut kinds: Vec<&str> =
        sources.as_object().into_iter().flat_map(|it| it.keys()).map(String::as_str).collect();
    kinds.sort_unstable();
    for (place, kind) in kinds.iter().enumerate() {
        if place > 0 {
            faults.forbidden(path.child(kind), "may not specify more than 1 volume type");
        } else if *kind == "hostPath" {
            check_host_path(at(spec, "hostPath"), &path.child("hostPath"), &mut faults);
        }
    }
    if kinds.is_empty() {
        faults.required(path.clone(), "must specify a volume type");
    }
    check_class_name(spec, &path, &mut faults);
    faults.one_of(spec, &path, "volumeMode", &VOLUME_MODES);
    faults
}

fn check_modes(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let modes = list(spec, "accessModes");
    for mode in modes.iter().filter_map(Value::as_str).filter(|mode| !MODES.contains(mode)) {
        faults.not_supported(path.child("accessModes"), mode, &MODES);
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        let detail = "may not use ReadWriteOncePod with other access modes";
        faults.forbidden(path.child("accessModes"), detail);
    }
}

fn check_class_name(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let name = text(spec, "storageClassName");
    if !name.is_empty() {
        faults.invalid_text(&path.child("storageClassName"), name, names::subdomain(name));
    }
}

pub(crate) fn default_claim(object: &mut Value) {
    set_default(object, "status.phase", "Pending");
    set_default(object, "spec.volumeMode", "Filesystem");
}

/// Validates the spec of a claim, wherever it occurs.
pub(crate) fn check_claim_spec(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    if is_empty(spec, "accessModes") {
        faults.required(path.child("accessModes"), "at least 1 access mode is required");
    }
    if is_set(spec, "selector") {
        crate::selector::check(at(spec, "selector"), &path.child("selector"), faults);
    }
    check_modes(spec, path, faults);
    // kube-apiserver leaves `requests` out of the path.
    let place = path.child("resources").key("storage");
    let storage = at(spec, "resources.requests.storage");
    match Quantity::from_json(storage) {
        None => faults.required(place, ""),
        Some(amount) if amount.sign() == Ordering::Greater => {}
        Some(_) => faults.value(place, storage.clone(), "must be greater than zero"),
    }
    check_class_name(spec, path, faults);
    faults.one_of(spec, path, "volumeMode", &VOLUME_MODES);
}

/// Checks that a bound claim only grows; nothing else of it changes.
fn update_claim(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let path = Path::new("spec");
    check_claim_spec(at(new, "spec"), &path, &mut faults);
    let bound = text(old, "status.phase") == "Bound";
    let mut allowed: Vec<&str> = Vec::new();
    // The binder sets the volume, and a default class is set once.
    if is_empty(old, "spec.volumeName") {
        allowed.push("volumeName");
    }
    if !is_set(old, "spec.storageClassName") {
        allowed.push("storageClassName");
    }
    if bound {
        allowed.extend(["resources.requests", "volumeAttributesClassName"]);
    }
    if !crate::pod::equal_except(at(new, "spec"), at(old, "spec"), &allowed) {
        let detail = format!(
            "spec is immutable after creation except resources.requests and \
             volumeAttributesClassName for bound claims\n{}",
            changed(at(new, "spec"), at(old, "spec"))
        );
        faults.forbidden(path.clone(), &detail);
    }
    let storage =
        |object: &Value| Quantity::from_json(at(object, "spec.resources.requests.storage"));
    if bound && storage(new) < storage(old) {
        let place = path.child("resources").child("requests").child("storage");
        faults.forbidden(place, "field can not be less than status.capacity");
    }
    faults.into_vec()
}

fn check_class(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let root = Path::new("");
    if faults.require(object, &root, "provisioner") {
        let name = text(object, "provisioner");
        faults.invalid_text(
            &root.child("provisioner"),
            name,
            names::qualified(&name.to_lowercase()),
        );
    }
    for (key, _) in entries(object, "parameters") {
        if key.is_empty() {
            faults.value(root.child("parameters"), key.as_str(), "field can not be empty.");
        }
    }
    faults.one_of(object, &root, "reclaimPolicy", &["Delete", "Retain"]);
    let modes = ["Immediate", "WaitForFirstConsumer"];
    faults.require_one_of(object, &root, "volumeBindingMode", &modes);
    faults
}

fn check_node(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let mut seen = BTreeSet::new();
    for (place, driver) in list(object, "spec.drivers").iter().enumerate() {
        let path = Path::new("spec").child("drivers").index(place);
        let name = text(driver, "name");
        if faults.require(driver, &path, "name") {
            faults.invalid_text(&path.child("name"), name, names::subdomain(&name.to_lowercase()));
        }
        faults.require(driver, &path, "nodeID");
        if !seen.insert(name) {
            faults.duplicate(path.child("name"), name);
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use gantry_schema::FieldErrorReason;

    use super::*;

    #[test]
    fn a_bound_claim_may_grow_and_not_shrink() {
        let claim = |size: &str, phase: &str| {
            json!({
                "spec": { "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": size } } },
                "status": { "phase": phase },
            })
        };
        let table = [
            ("1Gi", "2Gi", "Bound", None),
            ("2Gi", "1Gi", "Bound", Some("spec.resources.requests.storage")),
            ("1Gi", "2Gi", "Pending", Some("spec")),
            ("1Gi", "1Gi", "Pending", None),
        ];
        for (had, wanted, phase, expected) in table {
            let faults = update_claim(&claim(wanted, phase), &claim(had, phase));
            let fields: Vec<&str> = faults.iter().map(|it| it.field.as_str()).collect();
            assert_eq!(fields, expected.into_iter().collect::<Vec<_>>(), "{had} {wanted} {phase}");
            assert!(faults.iter().all(|it| it.reason == FieldErrorReason::Forbidden));
        }
    }

    #[test]
    fn a_change_of_phase_is_dated() {
        let object = |phase: &str, time: &str| json!({ "status": { "phase": phase, "lastPhaseTransitionTime": time } });
        let old = object("Pending", "then");
        let mut new = object("Bound", "then");
        (VOLUME_RULES.status)(&mut new, &old, "now");
        assert_eq!(new, object("Bound", "now"));
        let mut new = json!({ "status": { "phase": "Pending" } });
        (VOLUME_RULES.status)(&mut new, &old, "now");
        assert_eq!(new, object("Pending", "then"));
    }
}
