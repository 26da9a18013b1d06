//! Validates PodDisruptionBudgets, PriorityClasses and RuntimeClasses.

use serde_json::{Value, json};

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::selector;
use crate::tree::{at, int, is_set, same, set_default, text};
use crate::workloads::{check_count, check_percent_at_most_100};

pub(crate) const BUDGET_RULES: Rules = Rules {
    validate: |object| check_budget(object).into_vec(),
    validate_update: |new, _| check_budget(new).into_vec(),
    validate_status: |new, _| {
        let mut faults = FieldErrors::new();
        let path = Path::new("status");
        let fields = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
        for field in fields {
            faults.not_negative(at(new, "status"), &path, field);
        }
        faults.into_vec()
    },
    ..Rules::NONE
};

fn check_budget(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    let (least, most) = (at(spec, "minAvailable"), at(spec, "maxUnavailable"));
    if !least.is_null() && !most.is_null() {
        let shown = json!({
            "MinAvailable": least,
            "Selector": at(spec, "selector"),
            "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": at(spec, "unhealthyPodEvictionPolicy"),
        });
        let detail = "minAvailable and maxUnavailable cannot be both set";
        faults.value(path.clone(), shown, detail);
    }
    for field in ["minAvailable", "maxUnavailable"] {
        let (value, place) = (at(spec, field), path.child(field));
        check_count(value, &place, &mut faults);
        check_percent_at_most_100(value, &place, &mut faults);
    }
    if is_set(spec, "selector") {
        selector::check(at(spec, "selector"), &path.child("selector"), &mut faults);
    }
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    faults.one_of(spec, &path, "unhealthyPodEvictionPolicy", &policies);
    faults
}

/// The highest priority of user-defined classes.
const HIGHEST: i64 = 1_000_000_000;

/// The priority classes that exist from the beginning, with their values.
pub(crate) const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

pub(crate) const PRIORITY_RULES: Rules = Rules {
    default: |object| set_default(object, "preemptionPolicy", "PreemptLowerPriority"),
    validate: |object| {
        let mut faults = FieldErrors::new();
        let name = text(object, "metadata.name");
        let value = int(object, "value").unwrap_or_default();
        let system = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name);
        if name.starts_with("system-") {
            let known = system.is_some_and(|(_, worth)| *worth == value);
            if !known {
                let detail = format!(
                    "priority class names with 'system-' prefix are reserved for system use only. \
                     error: {name} is not a known system priority class"
                );
                faults.forbidden(Path::new("metadata").child("name"), &detail);
            }
        } else if value > HIGHEST {
            let detail = format!("maximum allowed value of a user defined priority is {HIGHEST}");
            faults.forbidden(Path::new("value"), &detail);
        }
        let policies = ["PreemptLowerPriority", "Never"];
        faults.one_of(object, &Path::new(""), "preemptionPolicy", &policies);
        faults.into_vec()
    },
    validate_update: |new, old| {
        let mut faults = FieldErrors::new();
        if !same(new, old, "value") {
            faults.forbidden(Path::new("value"), "may not be changed in an update.");
        }
        faults.immutable(new, old, &Path::new(""), "preemptionPolicy");
        faults.into_vec()
    },
    ..Rules::NONE
};

pub(crate) const RUNTIME_RULES: Rules = Rules {
    validate: |object| check_runtime(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = check_runtime(new);
        faults.immutable(new, old, &Path::new(""), "handler");
        faults.into_vec()
    },
    ..Rules::NONE
};

fn check_runtime(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let handler = text(object, "handler");
    faults.invalid_text(&Path::new("handler"), handler, names::label(handler));
    faults
}
