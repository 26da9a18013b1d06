//! Defaults and validates ReplicaSets and ReplicationControllers.

use gantry_schema::FieldError;
use serde_json::{Value, json};

use super::{
    check_counters, check_restart_policy, check_selected_template, check_selector, default_template,
};
use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::tree::{at, is_empty, is_set, put, set_default};

pub(crate) const RULES: Rules = Rules {
    default: |object| {
        default_template(object, "spec.template");
        set_default(object, "spec.replicas", 1);
    },
    validate: |object| validate(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = validate(new);
        faults.immutable(at(new, "spec"), at(old, "spec"), &Path::new("spec"), "selector");
        faults.into_vec()
    },
    validate_status,
    warnings: crate::warnings::workload,
    ..Rules::NONE
};

pub(crate) const CONTROLLER_RULES: Rules = Rules {
    default: default_controller,
    validate: |object| validate_controller(object).into_vec(),
    validate_update: |new, _| validate_controller(new).into_vec(),
    validate_status,
    warnings: crate::warnings::workload,
    ..Rules::NONE
};

fn validate(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    faults.not_negative(spec, &path, "replicas");
    faults.not_negative(spec, &path, "minReadySeconds");
    if check_selector(spec, "deployment", &path, &mut faults) {
        check_selected_template(spec, &path, &mut faults);
        check_restart_policy(spec, "ReplicaSet", &path, &mut faults);
    }
    faults
}

fn validate_status(new: &Value, _old: &Value) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let fields = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
    ];
    let parts = [
        ("fullyLabeledReplicas", "replicas"),
        ("readyReplicas", "replicas"),
        ("availableReplicas", "replicas"),
        ("availableReplicas", "readyReplicas"),
    ];
    check_counters(new, &fields, &parts, &mut faults);
    faults.into_vec()
}

fn default_controller(object: &mut Value) {
    if is_set(object, "spec.template") {
        default_template(object, "spec.template");
    }
    set_default(object, "spec.replicas", 1);
    let labels = at(object, "spec.template.metadata.labels").clone();
    if labels.is_object() {
        for path in ["spec.selector", "metadata.labels"] {
            if is_empty(object, path) {
                put(object, path, labels.clone());
            }
        }
    }
}

fn validate_controller(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    faults.not_negative(spec, &path, "replicas");
    faults.not_negative(spec, &path, "minReadySeconds");
    if is_empty(spec, "selector") {
        faults.required(path.child("selector"), "");
    }
    if !is_set(spec, "template") {
        faults.required(path.child("template"), "");
        return faults;
    }
    let as_selector = json!({
        "selector": { "matchLabels": at(spec, "selector") },
        "template": at(spec, "template"),
    });
    check_selected_template(&as_selector, &path, &mut faults);
    check_restart_policy(spec, "ReplicationController", &path, &mut faults);
    faults
}
