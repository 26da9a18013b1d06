//! Validates Leases and Events.

use serde_json::Value;

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::tree::{at, is_empty, is_set, text};

pub(crate) const LEASE_RULES: Rules = Rules {
    validate: |object| check_lease(object).into_vec(),
    validate_update: |new, _| check_lease(new).into_vec(),
    ..Rules::NONE
};

pub(crate) const EVENT_RULES: Rules = Rules {
    validate: |object| check_event(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = check_event(new);
        if is_set(old, "eventTime") {
            let fields = ["reason", "action", "reportingComponent", "reportingInstance"];
            for field in fields {
                faults.immutable(new, old, &Path::new(""), field);
            }
        }
        faults.into_vec()
    },
    ..Rules::NONE
};

fn check_lease(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    faults.positive(spec, &path, "leaseDurationSeconds", "must be greater than 0");
    faults.not_negative(spec, &path, "leaseTransitions");
    faults
}

/// The longest message that a structured event may carry.
const LONGEST_NOTE: usize = 1024;

fn check_event(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let root = Path::new("");
    check_namespace(object, &mut faults);
    // Events of the core API have no `eventTime` and are not checked further.
    if !is_set(object, "eventTime") && text(object, "apiVersion") != "events.k8s.io/v1" {
        return faults;
    }
    let group = text(object, "apiVersion") == "events.k8s.io/v1";
    let by = if group { "reportingController" } else { "reportingComponent" };
    let name = text(object, by);
    faults.require(object, &root, by);
    faults.invalid_text(&root.child(by), name, names::qualified(name));
    for (field, most) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        if is_empty(object, field) {
            faults.required(root.child(field), "");
        }
        if text(object, field).len() > most {
            faults.value(root.child(field), "", &format!("can have at most {most} characters"));
        }
    }
    let note = if group { "note" } else { "message" };
    if text(object, note).len() > LONGEST_NOTE {
        let detail = format!("can have at most {LONGEST_NOTE} characters");
        faults.value(root.child("message"), "", &detail);
    }
    if !matches!(text(object, "type"), "Normal" | "Warning") {
        faults.value(root.child("type"), "", "has invalid value: ");
    }
    faults
}

/// Checks that an event is in the namespace of its object; events of cluster-scoped objects are in
/// `default`.
fn check_namespace(object: &Value, faults: &mut FieldErrors) {
    let about = if is_set(object, "regarding") { "regarding" } else { "involvedObject" };
    let of = at(object, about).get("namespace").and_then(Value::as_str).unwrap_or_default();
    let own = text(object, "metadata.namespace");
    let path = Path::new("involvedObject").child("namespace");
    if of.is_empty() {
        if !matches!(own, "default" | "kube-system") {
            faults.value(path, of, "does not match event.namespace");
        }
    } else if of != own {
        faults.value(path, of, "does not match event.namespace");
    }
}
