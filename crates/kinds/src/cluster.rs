//! Validates namespaces and nodes.

use std::collections::BTreeSet;

use gantry_schema::{FieldError, FieldErrorReason};
use serde_json::{Value, json};

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::pod::TAINT_EFFECTS;
use crate::tree::{at, copy_field, is_empty, is_set, list, put, remove, same, set_default, text};

/// The label by which selectors find a namespace by its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(crate) const NAMESPACE_RULES: Rules = Rules {
    default: |object| {
        let name = text(object, "metadata.name").to_owned();
        if !name.is_empty() {
            let mut labels = at(object, "metadata.labels").as_object().cloned().unwrap_or_default();
            labels.insert(NAME_LABEL.to_owned(), json!(name));
            put(object, "metadata.labels", Value::Object(labels));
        }
        set_default(object, "status.phase", "Active");
    },
    create: |object, _| {
        put(object, "status", json!({ "phase": "Active" }));
        let mut finalizers = list(object, "spec.finalizers").to_vec();
        if !finalizers.iter().any(|it| it == "kubernetes") {
            finalizers.push(json!("kubernetes"));
            put(object, "spec.finalizers", finalizers);
        }
    },
    // Only `/finalize` removes the finalizers of a namespace.
    update: |new, old| copy_field(new, old, "spec.finalizers"),
    validate_status: |new, _| {
        let mut faults = FieldErrors::new();
        let path = Path::new("status").child("Phase");
        let phase = text(new, "status.phase");
        let terminating = is_set(new, "metadata.deletionTimestamp");
        if !terminating && phase != "Active" {
            let detail = "may only be 'Active' if `deletionTimestamp` is empty";
            faults.value(path, phase, detail);
        } else if terminating && phase != "Terminating" {
            let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
            faults.value(path, phase, detail);
        }
        faults.into_vec()
    },
    ..Rules::NONE
};

pub(crate) const NODE_RULES: Rules = Rules {
    default: |object| {
        if !is_set(object, "status.allocatable") && is_set(object, "status.capacity") {
            let capacity = at(object, "status.capacity").clone();
            put(object, "status.allocatable", capacity);
        }
        let (one, all) =
            (text(object, "spec.podCIDR").to_owned(), is_empty(object, "spec.podCIDRs"));
        if !one.is_empty() && all {
            put(object, "spec.podCIDRs", vec![json!(one)]);
        } else if one.is_empty() && !all {
            let first = list(object, "spec.podCIDRs")[0].clone();
            put(object, "spec.podCIDR", first);
        }
    },
    create: |object, _| {
        for field in ["spec.configSource", "status.config"] {
            remove(object, field);
        }
    },
    validate: |object| check_node(object).into_vec(),
    validate_update: update_node,
    validate_status: update_node,
    ..Rules::NONE
};

fn check_node(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    // kube-apiserver reports taints below `metadata`.
    let path = Path::new("metadata").child("taints");
    let mut seen = BTreeSet::new();
    for (place, taint) in list(object, "spec.taints").iter().enumerate() {
        let path = path.index(place);
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        faults.invalid_text(&path.child("key"), key, names::qualified(key));
        let value = text(taint, "value");
        if !names::label_value(value).is_empty() {
            let complaints = names::label_value(value).join(";");
            faults.value(path.child("value"), value, &complaints);
        }
        faults.require_one_of(taint, &path, "effect", &TAINT_EFFECTS);
        if !seen.insert((key, effect)) {
            let shown = json!({
                "Key": key, "Value": value, "Effect": effect, "TimeAdded": at(taint, "timeAdded"),
            });
            let message =
                format!("Duplicate value: {shown}: taints must be unique by key and effect pair");
            faults.add_with_message(path, FieldErrorReason::Duplicate, message);
        }
    }
    let path = Path::new("spec").child("podCIDRs");
    for (place, cidr) in list(object, "spec.podCIDRs").iter().enumerate() {
        let cidr = cidr.as_str().unwrap_or_default();
        faults.invalid_text(&path.index(place), cidr, names::cidr(cidr));
    }
    faults
}

/// Other components may rely on these fields of a node, so they are immutable once set.
fn update_node(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut faults = check_node(new);
    let path = Path::new("spec");
    if !is_empty(old, "spec.podCIDRs") && !same(new, old, "spec.podCIDRs") {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        faults.forbidden(path.child("podCIDRs"), detail);
    }
    if !is_empty(old, "spec.providerID") && !same(new, old, "spec.providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        faults.forbidden(path.child("providerID"), detail);
    }
    faults.into_vec()
}
