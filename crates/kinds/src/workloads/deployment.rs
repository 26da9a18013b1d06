//! Defaults and validates Deployments.

use gantry_schema::FieldError;
use serde_json::{Value, json};

use super::{
    check_count, check_counters, check_percent_at_most_100, check_restart_policy,
    check_selected_template, check_selector, default_template, is_zero,
};
use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::tree::{at, int, is_set, set_default, text};

pub(crate) const RULES: Rules = Rules {
    default,
    validate: |object| validate(object).into_vec(),
    validate_update,
    validate_status,
    warnings: crate::warnings::workload,
    ..Rules::NONE
};

fn default(object: &mut Value) {
    default_template(object, "spec.template");
    set_default(object, "spec.replicas", 1);
    set_default(object, "spec.strategy.type", "RollingUpdate");
    if text(object, "spec.strategy.type") == "RollingUpdate" {
        set_default(object, "spec.strategy.rollingUpdate.maxUnavailable", "25%");
        set_default(object, "spec.strategy.rollingUpdate.maxSurge", "25%");
    }
    set_default(object, "spec.revisionHistoryLimit", 10);
    set_default(object, "spec.progressDeadlineSeconds", 600);
}

fn validate(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    faults.not_negative(spec, &path, "replicas");
    if check_selector(spec, "deployment", &path, &mut faults) {
        check_selected_template(spec, &path, &mut faults);
        check_restart_policy(spec, "ReplicaSet", &path, &mut faults);
    }
    check_strategy(at(spec, "strategy"), &path.child("strategy"), &mut faults);
    faults.not_negative(spec, &path, "minReadySeconds");
    faults.not_negative(spec, &path, "revisionHistoryLimit");
    if let Some(deadline) = int(spec, "progressDeadlineSeconds") {
        faults.not_negative(spec, &path, "progressDeadlineSeconds");
        if deadline <= int(spec, "minReadySeconds").unwrap_or_default() {
            let detail = "must be greater than minReadySeconds";
            faults.value(path.child("progressDeadlineSeconds"), deadline, detail);
        }
    }
    faults
}

fn check_strategy(strategy: &Value, path: &Path, faults: &mut FieldErrors) {
    let rolling = at(strategy, "rollingUpdate");
    match text(strategy, "type") {
        "Recreate" => {
            if !rolling.is_null() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                faults.forbidden(path.child("rollingUpdate"), detail);
            }
        }
        "RollingUpdate" => {
            let path = path.child("rollingUpdate");
            if rolling.is_null() {
                faults.required(path, "this should be defaulted and never be nil");
                return;
            }
            let (unavailable, surge) = (at(rolling, "maxUnavailable"), at(rolling, "maxSurge"));
            check_count(unavailable, &path.child("maxUnavailable"), faults);
            check_count(surge, &path.child("maxSurge"), faults);
            if is_zero(unavailable) && is_zero(surge) {
                let detail = "may not be 0 when `maxSurge` is 0";
                faults.value(path.child("maxUnavailable"), unavailable.clone(), detail);
            }
            check_percent_at_most_100(unavailable, &path.child("maxUnavailable"), faults);
        }
        other => {
            let shown = json!({ "Type": other, "RollingUpdate": rolling });
            faults.not_supported(path.clone(), shown, &["Recreate", "RollingUpdate"]);
        }
    }
}

fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut faults = validate(new);
    faults.immutable(at(new, "spec"), at(old, "spec"), &Path::new("spec"), "selector");
    faults.into_vec()
}

fn validate_status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let fields = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "collisionCount",
    ];
    let parts = [
        ("updatedReplicas", "replicas"),
        ("readyReplicas", "replicas"),
        ("availableReplicas", "replicas"),
        ("availableReplicas", "readyReplicas"),
    ];
    check_counters(new, &fields, &parts, &mut faults);
    let count = |object: &Value| int(object, "status.collisionCount");
    if is_set(old, "status.collisionCount") && count(new) < count(old) {
        let path = Path::new("status").child("collisionCount");
        let value = at(new, "status.collisionCount").clone();
        faults.value(path, value, "cannot be decremented");
    }
    faults.into_vec()
}
