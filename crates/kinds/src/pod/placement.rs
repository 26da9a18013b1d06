//! Validates where a pod may run: affinity, spread, tolerations.

use serde_json::Value;

use crate::field_errors::{FieldErrors, Path};
use crate::tree::{at, int, is_empty, is_set, list, text};
use crate::{names, selector};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn check_affinity(affinity: &Value, path: &Path, faults: &mut FieldErrors) {
    let node = at(affinity, "nodeAffinity");
    let node_path = path.child("nodeAffinity");
    if is_set(node, REQUIRED) {
        check_node_selector(at(node, REQUIRED), &node_path.child(REQUIRED), faults);
    }
    for (place, preferred) in list(node, PREFERRED).iter().enumerate() {
        let path = node_path.child(PREFERRED).index(place);
        check_weight(preferred, &path, faults);
        check_term(at(preferred, "preference"), &path.child("preference"), faults);
    }
    for side in ["podAffinity", "podAntiAffinity"] {
        let path = path.child(side);
        for (place, term) in list(at(affinity, side), REQUIRED).iter().enumerate() {
            check_pod_term(term, &path.child(REQUIRED).index(place), faults);
        }
        for (place, preferred) in list(at(affinity, side), PREFERRED).iter().enumerate() {
            let path = path.child(PREFERRED).index(place);
            check_weight(preferred, &path, faults);
            check_pod_term(
                at(preferred, "podAffinityTerm"),
                &path.child("podAffinityTerm"),
                faults,
            );
        }
    }
}

fn check_weight(preferred: &Value, path: &Path, faults: &mut FieldErrors) {
    let weight = int(preferred, "weight").unwrap_or_default();
    if !(1..=100).contains(&weight) {
        faults.value(path.child("weight"), weight, "must be in the range 1-100");
    }
}

/// Validates a node selector.
pub(crate) fn check_node_selector(selector: &Value, path: &Path, faults: &mut FieldErrors) {
    let terms = list(selector, "nodeSelectorTerms");
    let path = path.child("nodeSelectorTerms");
    if terms.is_empty() {
        faults.required(path, "must have at least one node selector term");
        return;
    }
    for (place, term) in terms.iter().enumerate() {
        check_term(term, &path.index(place), faults);
    }
}

fn check_term(term: &Value, path: &Path, faults: &mut FieldErrors) {
    for (place, expression) in list(term, "matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(place);
        if matches!(text(expression, "operator"), "Gt" | "Lt") {
            if list(expression, "values").len() != 1 {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                faults.required(path.child("values"), detail);
            }
            let key = text(expression, "key");
            faults.invalid_text(&path.child("key"), key, names::qualified(key));
        } else {
            selector::check_expression(expression, &path, faults);
        }
    }
    for (place, field) in list(term, "matchFields").iter().enumerate() {
        let path = path.child("matchFields").index(place);
        match text(field, "operator") {
            "In" | "NotIn" => {
                if list(field, "values").len() != 1 {
                    let detail = "must be only one value when `operator` is 'In' or 'NotIn' for \
                                  node field selector";
                    faults.required(path.child("values"), detail);
                }
            }
            other => faults.value(path.child("operator"), other, "not a valid selector operator"),
        }
        let key = text(field, "key");
        if key != "metadata.name" {
            faults.value(path.child("key"), key, "not a valid field selector key");
        }
    }
}

fn check_pod_term(term: &Value, path: &Path, faults: &mut FieldErrors) {
    for field in ["labelSelector", "namespaceSelector"] {
        if is_set(term, field) {
            selector::check(at(term, field), &path.child(field), faults);
        }
    }
    for (place, name) in list(term, "namespaces").iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        // kube-apiserver reports this field by its singular.
        faults.invalid_text(&path.child("namespace").index(place), name, names::label(name));
    }
    let key = text(term, "topologyKey");
    if key.is_empty() {
        faults.required(path.child("topologyKey"), "can not be empty");
    }
    faults.invalid_text(&path.child("topologyKey"), key, names::qualified(key));
}

pub(super) fn check_spread(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let constraints = list(spec, "topologySpreadConstraints");
    let all = path.child("topologySpreadConstraints");
    let pair =
        |it: &Value| (text(it, "topologyKey").to_owned(), text(it, "whenUnsatisfiable").to_owned());
    for (place, constraint) in constraints.iter().enumerate() {
        let path = all.index(place);
        let skew = int(constraint, "maxSkew").unwrap_or_default();
        if skew <= 0 {
            faults.value(path.child("maxSkew"), skew, "must be greater than zero");
        }
        if is_empty(constraint, "topologyKey") {
            faults.required(path.child("topologyKey"), "can not be empty");
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        let action = text(constraint, "whenUnsatisfiable");
        if !actions.contains(&action) {
            faults.not_supported(path.child("whenUnsatisfiable"), action, &actions);
        }
        if constraints[place + 1..].iter().any(|later| pair(later) == pair(constraint)) {
            let (key, action) = pair(constraint);
            let place = path.child("{topologyKey, whenUnsatisfiable}");
            faults.duplicate(place, format!("{{{key}, {action}}}"));
        }
        if let Some(domains) = int(constraint, "minDomains") {
            let place = path.child("minDomains");
            if domains <= 0 {
                faults.value(place.clone(), domains, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                let detail = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                );
                faults.value(place, domains, &detail);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            faults.one_of(constraint, &path, field, &["Honor", "Ignore"]);
        }
        if is_set(constraint, "labelSelector") {
            selector::check(at(constraint, "labelSelector"), &path.child("labelSelector"), faults);
        }
    }
}

pub(super) fn check_tolerations(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    for (place, toleration) in list(spec, "tolerations").iter().enumerate() {
        let path = path.child("tolerations").index(place);
        let key = text(toleration, "key");
        if !key.is_empty() {
            faults.invalid_text(&path.child("key"), key, names::qualified(key));
        }
        let operator = text(toleration, "operator");
        let at_operator = path.child("operator");
        if key.is_empty() && operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all \
                          values and all keys\"";
            faults.value(at_operator.clone(), operator, detail);
        }
        let effect = text(toleration, "effect");
        if is_set(toleration, "tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            faults.value(path.child("effect"), effect, detail);
        }
        let value = text(toleration, "value");
        match operator {
            "Equal" | "" => {
                if !names::label_value(value).is_empty() {
                    let complaints = names::label_value(value).join(";");
                    faults.value(at_operator, value, &complaints);
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    faults.value(at_operator, value, detail);
                }
            }
            other => faults.not_supported(at_operator, other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            faults.not_supported(path.child("effect"), effect, &EFFECTS);
        }
    }
}

/// The effects of a taint.
pub(crate) const TAINT_EFFECTS: [&str; 3] = EFFECTS;
