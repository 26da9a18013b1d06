//! Defaults and validates HorizontalPodAutoscalers.

use serde_json::{Value, json};

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::tree::{at, at_mut, int, is_set, list, put, set_default, text};

pub(crate) const RULES: Rules = Rules {
    default,
    validate: |object| validate(object).into_vec(),
    validate_update: |new, _| validate(new).into_vec(),
    ..Rules::NONE
};

/// The metric sources: each has a type and a field of that name.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

fn default(object: &mut Value) {
    let first_version = text(object, "apiVersion") == "autoscaling/v1";
    set_default(object, "spec.minReplicas", 1);
    if first_version {
        return;
    }
    if list(object, "spec.metrics").is_empty() {
        let target = json!({ "type": "Utilization", "averageUtilization": 80 });
        let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
        put(object, "spec.metrics", vec![metric]);
    }
    if is_set(object, "spec.behavior") {
        let percent = json!({ "type": "Percent", "value": 100, "periodSeconds": 15 });
        let pods = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
        rules(object, "spec.behavior.scaleUp", Some(0), json!([pods, percent]));
        rules(object, "spec.behavior.scaleDown", None, json!([percent]));
    }
}

fn rules(object: &mut Value, path: &str, window: Option<i64>, policies: Value) {
    if !is_set(object, path) {
        put(object, path, json!({}));
    }
    if let Some(rules) = at_mut(object, path) {
        if let Some(window) = window {
            set_default(rules, "stabilizationWindowSeconds", window);
        }
        set_default(rules, "selectPolicy", "Max");
        if !is_set(rules, "policies") {
            put(rules, "policies", policies);
        }
    }
}

fn validate(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    let least = int(spec, "minReplicas");
    if let Some(least) = least.filter(|it| *it < 1) {
        let detail = "must be greater than or equal to 1";
        faults.value(path.child("minReplicas"), least, detail);
    }
    let most = int(spec, "maxReplicas").unwrap_or_default();
    if most < 1 {
        faults.value(path.child("maxReplicas"), most, "must be greater than 0");
    }
    if least.is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        faults.value(path.child("maxReplicas"), most, detail);
    }
    check_target(at(spec, "scaleTargetRef"), &path.child("scaleTargetRef"), &mut faults);
    check_metrics(spec, &path, &mut faults);
    for side in ["scaleUp", "scaleDown"] {
        check_behaviour(at(spec, "behavior"), side, &path.child("behavior"), &mut faults);
    }
    faults
}

fn check_target(target: &Value, path: &Path, faults: &mut FieldErrors) {
    for field in ["kind", "name"] {
        if faults.require(target, path, field) {
            let name = text(target, field);
            faults.invalid_text(&path.child(field), name, crate::names::path_segment(name, false));
        }
    }
    // Kinds of the core group have no scale, but the two that do are allowed.
    let version = text(target, "apiVersion");
    if version.is_empty() || (!version.contains('/') && version != "v1") {
        let detail = "apiVersion must specify API group";
        faults.value(path.child("apiVersion"), version, detail);
    }
}

fn check_metrics(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let metrics = list(spec, "metrics");
    let names: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).collect();
    for (place, metric) in metrics.iter().enumerate() {
        let path = path.child("metrics").index(place);
        let kind = text(metric, "type");
        if kind.is_empty() {
            faults.required(path.child("type"), "must specify a metric source type");
            continue;
        }
        if !names.contains(&kind) {
            // Two layers of kube-apiserver check it, and both report it.
            for _ in 0..2 {
                faults.not_supported(path.child("type"), kind, &names);
            }
            continue;
        }
        for (name, field) in SOURCES {
            if name == kind && !is_set(metric, field) {
                let detail = "must populate information for the given metric source";
                faults.required(path.child(field), detail);
            } else if name != kind && is_set(metric, field) {
                let detail = "must populate the given metric source only";
                faults.forbidden(path.child(field), detail);
            }
        }
    }
    let outside = |metric: &Value| matches!(text(metric, "type"), "Object" | "External");
    if int(spec, "minReplicas") == Some(0) && !metrics.iter().any(outside) {
        let detail = "must specify at least one Object or External metric to support scaling to \
                      zero replicas";
        faults.forbidden(path.child("metrics"), detail);
    }
}

fn check_behaviour(behaviour: &Value, side: &str, path: &Path, faults: &mut FieldErrors) {
    let rules = at(behaviour, side);
    let path = path.child(side);
    if rules.is_null() {
        return;
    }
    if let Some(window) = int(rules, "stabilizationWindowSeconds") {
        let place = path.child("stabilizationWindowSeconds");
        if window < 0 {
            faults.value(place, window, "must be greater than or equal to zero");
        } else if window > 3600 {
            faults.value(place, window, "must be less than or equal to 3600");
        }
    }
    faults.one_of(rules, &path, "selectPolicy", &["Disabled", "Max", "Min"]);
    let policies = list(rules, "policies");
    if policies.is_empty() {
        faults.required(path.child("policies"), "must specify at least one Policy");
    }
    for (place, policy) in policies.iter().enumerate() {
        let path = path.child("policies").index(place);
        faults.one_of(policy, &path, "type", &["Percent", "Pods"]);
        faults.positive(policy, &path, "value", "must be greater than zero");
        faults.positive(policy, &path, "periodSeconds", "must be greater than zero");
    }
}
