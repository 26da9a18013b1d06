//! Defaults and validates kinds that create pods.

use serde_json::Value;

use crate::field_errors::{FieldErrors, Path};
use crate::tree::{at, at_mut, int, is_set, list, put, text};
use crate::{names, pod, selector};

pub(crate) mod autoscaler;
pub(crate) mod cron_job;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod job;
pub(crate) mod replica_set;
pub(crate) mod stateful_set;

/// Sets the defaults of a workload's template.
fn default_template(object: &mut Value, path: &str) {
    if !is_set(object, path) {
        put(object, path, Value::Object(serde_json::Map::new()));
    }
    if let Some(template) = at_mut(object, path) {
        pod::defaults::template(template);
    }
}

/// Checks that a selector is set and not empty. `kind` is the name of the workload in messages.
fn check_selector(spec: &Value, kind: &str, path: &Path, faults: &mut FieldErrors) -> bool {
    let path = path.child("selector");
    let before = faults.len();
    let value = at(spec, "selector");
    if value.is_null() {
        faults.required(path, "");
        return true;
    }
    selector::check(value, &path, faults);
    if selector::is_empty(value) {
        let detail = format!("empty selector is invalid for {kind}");
        faults.value(path.clone(), value.clone(), &detail);
    }
    let operators = ["In", "NotIn", "Exists", "DoesNotExist"];
    let broken = list(value, "matchExpressions").iter().any(|expression| {
        let operator = text(expression, "operator");
        let values = list(expression, "values").is_empty();
        !operators.contains(&operator) || values == matches!(operator, "In" | "NotIn")
    });
    if broken && faults.len() > before {
        faults.value(path, value.clone(), "invalid label selector");
        return false;
    }
    true
}

/// Validates a template whose pods the selector must match.
fn check_selected_template(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    check_selected_pods(spec, at(spec, "template"), path, faults);
}

/// Does the same for a template that is validated in a modified form.
fn check_selected_pods(spec: &Value, template: &Value, path: &Path, faults: &mut FieldErrors) {
    let path = path.child("template");
    let selector = at(spec, "selector");
    if !selector::is_empty(selector) || selector.is_null() {
        let labels = at(spec, "template.metadata.labels");
        if !selector::matches(selector, labels) {
            let path = path.child("metadata").child("labels");
            let detail = "`selector` does not match template `labels`";
            faults.value(path, labels.clone(), detail);
        }
    }
    pod::check_template(template, &path, faults);
}

/// Checks that the pods of a workload that replaces them always restart and have no deadline.
fn check_restart_policy(spec: &Value, deadline: &str, path: &Path, faults: &mut FieldErrors) {
    let path = path.child("template").child("spec");
    let policy = text(spec, "template.spec.restartPolicy");
    if policy != "Always" {
        faults.not_supported(path.child("restartPolicy"), policy, &["Always"]);
    }
    if is_set(spec, "template.spec.activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {deadline} is not Supported");
        faults.forbidden(path.child("activeDeadlineSeconds"), &detail);
    }
}

/// Checks that a count or a percentage is not negative.
pub(crate) fn check_count(value: &Value, path: &Path, faults: &mut FieldErrors) {
    match value {
        Value::String(text) => faults.invalid_text(path, text, names::percent(text)),
        other => {
            if other.as_i64().is_some_and(|number| number < 0) {
                let detail = "must be greater than or equal to 0";
                faults.value(path.clone(), other.clone(), detail);
            }
        }
    }
}

/// Checks that a percentage is at most 100.
pub(crate) fn check_percent_at_most_100(value: &Value, path: &Path, faults: &mut FieldErrors) {
    let percents = value.as_str().and_then(|text| text.strip_suffix('%'));
    if percents.and_then(|digits| digits.parse::<u64>().ok()).is_some_and(|it| it > 100) {
        faults.value(path.clone(), value.clone(), "must not be greater than 100%");
    }
}

/// Returns whether a count or a percentage is zero.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            text.strip_suffix('%').and_then(|it| it.parse::<u64>().ok()) == Some(0)
        }
        other => other.as_i64().unwrap_or_default() == 0,
    }
}

/// Checks the counters of a status: none is negative, and no part exceeds its total.
fn check_counters(new: &Value, fields: &[&str], parts: &[(&str, &str)], faults: &mut FieldErrors) {
    let path = Path::new("status");
    let status = at(new, "status");
    for field in fields {
        faults.not_negative(status, &path, field);
    }
    for (part, whole) in parts {
        let count = |field: &str| int(status, field).unwrap_or_default();
        if count(part) > count(whole) {
            let detail = format!("cannot be greater than status.{whole}");
            faults.value(path.child(part), count(part), &detail);
        }
    }
}
