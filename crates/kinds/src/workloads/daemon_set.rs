//! Defaults and validates DaemonSets.

use gantry_schema::FieldError;
use serde_json::{Value, json};

use super::{
    check_count, check_counters, check_percent_at_most_100, check_restart_policy, default_template,
    is_zero,
};
use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::pod::check_template;
use crate::selector;
use crate::tree::{at, put, same, set_default, text};

/// The annotation with the template generation; the field it came from is no longer served.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(crate) const RULES: Rules = Rules {
    default,
    create: |object, _| set_template_generation(object, 1),
    update: |new, old| {
        let before = template_generation(old);
        let changed = !same(new, old, "spec.template");
        set_template_generation(new, before + i64::from(changed));
    },
    validate: |object| validate(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = validate(new);
        faults.immutable(at(new, "spec"), at(old, "spec"), &Path::new("spec"), "selector");
        faults.into_vec()
    },
    validate_status,
    warnings: crate::warnings::template,
    ..Rules::NONE
};

fn default(object: &mut Value) {
    default_template(object, "spec.template");
    set_default(object, "spec.updateStrategy.type", "RollingUpdate");
    if text(object, "spec.updateStrategy.type") == "RollingUpdate" {
        set_default(object, "spec.updateStrategy.rollingUpdate.maxUnavailable", 1);
        set_default(object, "spec.updateStrategy.rollingUpdate.maxSurge", 0);
    }
    set_default(object, "spec.revisionHistoryLimit", 10);
}

fn template_generation(object: &Value) -> i64 {
    let annotation = at(object, "metadata.annotations").get(TEMPLATE_GENERATION);
    annotation.and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn set_template_generation(object: &mut Value, generation: i64) {
    let mut annotations =
        at(object, "metadata.annotations").as_object().cloned().unwrap_or_default();
    annotations.insert(TEMPLATE_GENERATION.to_owned(), json!(generation.to_string()));
    put(object, "metadata.annotations", Value::Object(annotations));
}

fn validate(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    let select = at(spec, "selector");
    if !select.is_null() {
        selector::check(select, &path.child("selector"), &mut faults);
    }
    let labels = at(spec, "template.metadata.labels");
    if select.is_null() || (!selector::is_empty(select) && !selector::matches(select, labels)) {
        let path = path.child("template").child("metadata").child("labels");
        faults.value(path, labels.clone(), "`selector` does not match template `labels`");
    }
    if !select.is_null() && selector::is_empty(select) {
        let detail = "empty selector is invalid for daemonset";
        faults.value(path.child("selector"), select.clone(), detail);
    }
    check_template(at(spec, "template"), &path.child("template"), &mut faults);
    check_restart_policy(spec, "DaemonSet", &path, &mut faults);
    faults.not_negative(spec, &path, "minReadySeconds");
    check_strategy(at(spec, "updateStrategy"), &path.child("updateStrategy"), &mut faults);
    faults.not_negative(spec, &path, "revisionHistoryLimit");
    faults
}

fn check_strategy(strategy: &Value, path: &Path, faults: &mut FieldErrors) {
    let rolling = at(strategy, "rollingUpdate");
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let path = path.child("rollingUpdate");
            if rolling.is_null() {
                faults.required(path, "");
                return;
            }
            let (unavailable, surge) = (at(rolling, "maxUnavailable"), at(rolling, "maxSurge"));
            check_count(unavailable, &path.child("maxUnavailable"), faults);
            check_count(surge, &path.child("maxSurge"), faults);
            check_percent_at_most_100(unavailable, &path.child("maxUnavailable"), faults);
            check_percent_at_most_100(surge, &path.child("maxSurge"), faults);
            if is_zero(unavailable) && is_zero(surge) {
                let detail = "cannot be 0 when maxSurge is 0";
                faults.required(path.child("maxUnavailable"), detail);
            } else if !is_zero(unavailable) && !is_zero(surge) {
                let detail = "may not be set when maxUnavailable is non-zero";
                faults.value(path.child("maxSurge"), surge.clone(), detail);
            }
        }
        other => {
            let shown = json!({ "Type": other, "RollingUpdate": rolling });
            faults.not_supported(path.clone(), shown, &["RollingUpdate", "OnDelete"]);
        }
    }
}

fn validate_status(new: &Value, _old: &Value) -> Vec<FieldError> {
    let mut faults = FieldErrors::new();
    let fields = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    check_counters(new, &fields, &[], &mut faults);
    faults.into_vec()
}
