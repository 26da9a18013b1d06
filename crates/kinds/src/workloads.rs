//! Kinds that make pods.

use serde_json::Value;

use crate::faults::{Faults, Path};
use crate::tree::{at, at_mut, int, is_set, list, put, text};
use crate::{names, pod, selector};

pub(crate) mod autoscaler;
pub(crate) mod cron_job;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod job;
pub(crate) mod replica_set;
pub(crate) mod stateful_set;

/// Fills in the template of a workload.
fn default_template(object: &mut Value, path: &str) {
    if !is_set(object, path) {
        put(object, path, Value::Object(serde_json::Map::new()));
    }
    if let Some(template) = at_mut(object, path) {
        pod::defaults::template(template);
    }
}

/// A selector that must be there and say something. `kind` is how messages name the workload.
fn check_selector(spec: &Value, kind: &str, path: &Path, faults: &mut Faults) -> bool {
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

/// A template whose pods the selector must pick.
fn check_selected_template(spec: &Value, path: &Path, faults: &mut Faults) {
    check_selected_pods(spec, at(spec, "template"), path, faults);
}

/// The same for a template that is not checked as it is written.
fn check_selected_pods(spec: &Value, template: &Value, path: &Path, faults: &mut Faults) {
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

/// Pods of a workload that replaces them start again by themselves, without an end.
fn check_restarting(spec: &Value, deadline: &str, path: &Path, faults: &mut Faults) {
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

/// A count or a percentage that is not negative.
pub(crate) fn check_count(value: &Value, path: &Path, faults: &mut Faults) {
    match value {
        Value::String(text) => faults.text(path, text, names::percent(text)),
        other => {
            if other.as_i64().is_some_and(|number| number < 0) {
                let detail = "must be greater than or equal to 0";
                faults.value(path.clone(), other.clone(), detail);
            }
        }
    }
}

/// A percentage is a part of the whole.
pub(crate) fn check_at_most_all(value: &Value, path: &Path, faults: &mut Faults) {
    let percents = value.as_str().and_then(|text| text.strip_suffix('%'));
    if percents.and_then(|digits| digits.parse::<u64>().ok()).is_some_and(|it| it > 100) {
        faults.value(path.clone(), value.clone(), "must not be greater than 100%");
    }
}

/// Whether a count or a percentage is nothing.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            text.strip_suffix('%').and_then(|it| it.parse::<u64>().ok()) == Some(0)
        }
        other => other.as_i64().unwrap_or_default() == 0,
    }
}

/// Counters of a status: none negative, and parts no larger than their whole.
fn check_counters(new: &Value, fields: &[&str], parts: &[(&str, &str)], faults: &mut Faults) {
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
