//! Validates ResourceQuotas and LimitRanges.

use std::collections::BTreeSet;

use gantry_schema::FieldError;
use serde_json::Value;

use crate::behaviour::Rules;
use crate::field_errors::{FieldErrors, Path};
use crate::pod::{check_resource_name, check_whole_number, defaults};
use crate::tree::{at, entries, is_empty, list, text};
use gantry_quantity::Quantity;

pub(crate) const QUOTA_RULES: Rules = Rules {
    validate: |object| check_quota(object).into_vec(),
    validate_update: |new, old| {
        let mut faults = check_quota(new);
        faults.immutable(at(new, "spec"), at(old, "spec"), &Path::new("spec"), "scopes");
        faults.into_vec()
    },
    validate_status: |new, _| -> Vec<FieldError> {
        let mut faults = FieldErrors::new();
        for field in ["hard", "used"] {
            check_amounts(at(new, "status"), field, &Path::new("status"), &mut faults);
        }
        faults.into_vec()
    },
    ..Rules::NONE
};

pub(crate) const RANGE_RULES: Rules = Rules {
    default: defaults::limit_range,
    validate: |object| check_range(object).into_vec(),
    validate_update: |new, _| check_range(new).into_vec(),
    ..Rules::NONE
};

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

fn check_quota(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let (spec, path) = (at(object, "spec"), Path::new("spec"));
    check_amounts(spec, "hard", &path, &mut faults);
    check_scopes(spec, &path, &mut faults);
    faults
}

fn check_amounts(holder: &Value, field: &str, path: &Path, faults: &mut FieldErrors) {
    for (name, amount) in entries(holder, field) {
        let path = path.child(field).key(name);
        check_resource_name(name, &path, faults);
        if !name.contains('/') && !is_quota_name(name) {
            faults.value(path.clone(), name.as_str(), "must be a standard resource for quota");
        }
        check_whole_number(name, amount, &path, faults);
    }
}

/// Names of resources that a quota may limit without a domain.
fn is_quota_name(name: &str) -> bool {
    let known = [
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "persistentvolumeclaims",
        "configmaps",
        "services.nodeports",
        "services.loadbalancers",
    ];
    known.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

/// Checks that scopes which select pods by their requests do not limit resources that some pods
/// never request.
fn check_scopes(spec: &Value, path: &Path, faults: &mut FieldErrors) {
    let scopes = list(spec, "scopes");
    let path = path.child("scopes");
    let shown = || at(spec, "scopes").clone();
    for scope in scopes.iter().filter_map(Value::as_str) {
        if !SCOPES.contains(&scope) {
            faults.value(path.clone(), shown(), "unsupported scope");
            continue;
        }
        for (name, _) in entries(spec, "hard") {
            let pods = matches!(
                name.as_str(),
                "pods"
                    | "cpu"
                    | "memory"
                    | "requests.cpu"
                    | "requests.memory"
                    | "limits.cpu"
                    | "limits.memory"
            );
            let fits = match scope {
                "BestEffort" => name == "pods",
                "Terminating"
                | "NotTerminating"
                | "NotBestEffort"
                | "PriorityClass"
                | "CrossNamespacePodAffinity" => pods,
                _ => true,
            };
            if !fits {
                faults.value(path.clone(), shown(), "unsupported scope applied to resource");
            }
        }
    }
    let has = |word: &str| scopes.iter().any(|it| it == word);
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if has(one) && has(other) {
            faults.value(path.clone(), shown(), "conflicting scopes");
        }
    }
}

fn check_range(object: &Value) -> FieldErrors {
    let mut faults = FieldErrors::new();
    let mut seen = BTreeSet::new();
    for (place, item) in list(object, "spec.limits").iter().enumerate() {
        let path = Path::new("spec").child("limits").index(place);
        let kind = text(item, "type");
        if !seen.insert(kind) {
            faults.duplicate(path.child("type"), kind);
        }
        check_item(item, kind, &path, &mut faults);
    }
    faults
}

fn check_item(item: &Value, kind: &str, path: &Path, faults: &mut FieldErrors) {
    if kind == "Pod" {
        for field in ["default", "defaultRequest"] {
            if !is_empty(item, field) {
                let detail = "may not be specified when `type` is 'Pod'";
                faults.forbidden(path.child(field), detail);
            }
        }
    }
    if kind == "PersistentVolumeClaim" {
        let has = |field: &str| at(item, field).get("storage").is_some();
        if !has("min") && !has("max") {
            let detail = "either minimum or maximum storage value is required, but neither was \
                          provided";
            faults.required(path.child("limits"), detail);
        }
    }
    let fields = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
    let names: BTreeSet<&String> =
        fields.iter().flat_map(|field| entries(item, field)).map(|(name, _)| name).collect();
    for name in names {
        check_amounts_of(item, name, path, faults);
    }
}

/// Validates the amounts of one resource: minimum, default and maximum must be in that order.
fn check_amounts_of(item: &Value, name: &str, path: &Path, faults: &mut FieldErrors) {
    let written = |field: &str| {
        let value = at(item, field).get(name)?;
        Some((value.as_str().unwrap_or_default().to_owned(), Quantity::from_json(value)?))
    };
    let above =
        |one: &Option<(String, Quantity)>, other: &Option<(String, Quantity)>| match (one, other) {
            (Some((a, one)), Some((b, other))) if one > other => Some((a.clone(), b.clone())),
            _ => None,
        };
    let (least, most) = (written("min"), written("max"));
    let (request, limit) = (written("defaultRequest"), written("default"));
    let place = |field: &str| path.child(field).key(name);
    if let Some((least, most)) = above(&least, &most) {
        let detail = format!("min value {least} is greater than max value {most}");
        faults.value(place("min"), least.as_str(), &detail);
    }
    if let Some((least, request)) = above(&least, &request) {
        let detail = format!("min value {least} is greater than default request value {request}");
        faults.value(place("defaultRequest"), request.as_str(), &detail);
    }
    if let Some((request, most)) = above(&request, &most) {
        let detail = format!("default request value {request} is greater than max value {most}");
        faults.value(place("defaultRequest"), request.as_str(), &detail);
    }
    if let Some((request, limit)) = above(&request, &limit) {
        let detail =
            format!("default request value {request} is greater than default limit value {limit}");
        faults.value(place("defaultRequest"), request.as_str(), &detail);
    }
    if let Some((least, limit)) = above(&least, &limit) {
        // kube-apiserver reports the other amount in these two.
        let detail = format!("min value {least} is greater than default value {limit}");
        faults.value(place("default"), least.as_str(), &detail);
    }
    if let Some((limit, most)) = above(&limit, &most) {
        let detail = format!("default value {limit} is greater than max value {most}");
        faults.value(place("default"), most.as_str(), &detail);
    }
}
