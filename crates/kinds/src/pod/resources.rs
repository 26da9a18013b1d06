//! Validates resource requests of containers and pods.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use gantry_schema::FieldErrorReason;
use serde_json::Value;

use crate::field_errors::{FieldErrors, Path};
use crate::names;
use crate::tree::{at, entries, list, text};
use gantry_quantity::Quantity;

/// Validates limits, requests and device claims.
pub(crate) fn check(
    resources: &Value,
    claims: &BTreeSet<&str>,
    path: &Path,
    faults: &mut FieldErrors,
) {
    for (name, amount) in entries(resources, "limits") {
        let path = path.child("limits").key(name);
        check_container_name(name, &path, faults);
        check_whole_number(name, amount, &path, faults);
    }
    for (name, amount) in entries(resources, "requests") {
        let key = path.child("requests").key(name);
        check_container_name(name, &key, faults);
        check_whole_number(name, amount, &key, faults);
        let limit = at(resources, "limits").get(name).unwrap_or(&Value::Null);
        let (Some(request), limit_amount) =
            (Quantity::from_json(amount), Quantity::from_json(limit))
        else {
            continue;
        };
        let limit = limit.as_str().unwrap_or_default();
        match limit_amount.map(|limit| request.cmp(&limit)) {
            None if !is_overcommittable(name) => {
                let detail = "Limit must be set for non overcommitable resources";
                faults.required(path.child("limits"), detail);
            }
            Some(Ordering::Less | Ordering::Greater) if !is_overcommittable(name) => {
                let detail = format!("must be equal to {name} limit of {limit}");
                faults.value(path.child("requests"), amount.clone(), &detail);
            }
            Some(Ordering::Greater) => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                faults.value(path.child("requests"), amount.clone(), &detail);
            }
            Some(Ordering::Less | Ordering::Equal) | None => {}
        }
    }
    let asked = |names: &dyn Fn(&str) -> bool| {
        ["limits", "requests"]
            .into_iter()
            .any(|field| entries(resources, field).into_iter().any(|(name, _)| names(name)))
    };
    if asked(&|name| name.starts_with("hugepages-"))
        && !asked(&|name| matches!(name, "cpu" | "memory"))
    {
        faults.forbidden(path.clone(), "HugePages require cpu or memory");
    }
    check_claims(resources, claims, path, faults);
}

fn check_claims(resources: &Value, known: &BTreeSet<&str>, path: &Path, faults: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (place, claim) in list(resources, "claims").iter().enumerate() {
        let path = path.child("claims").index(place);
        let name = text(claim, "name");
        if name.is_empty() {
            faults.required(path, "");
            continue;
        }
        if !seen.insert((name, text(claim, "request"))) {
            faults.duplicate(path, name);
        } else if !known.contains(name) {
            let mut message = format!(
                "Not found: \"{name}\": must be one of the names in pod.spec.resourceClaims"
            );
            if known.is_empty() {
                message.push_str(" which is empty");
            } else {
                let known: Vec<&str> = known.iter().copied().collect();
                message.push_str(&format!(": {}", known.join(", ")));
            }
            faults.add_with_message(path, FieldErrorReason::NotFound, message);
        }
    }
}

/// Checks that an amount is not negative, and whole for integer resources.
pub(crate) fn check_whole_number(
    name: &str,
    amount: &Value,
    path: &Path,
    faults: &mut FieldErrors,
) {
    let Some(quantity) = Quantity::from_json(amount) else { return };
    if quantity.sign() == Ordering::Less {
        faults.value(path.clone(), amount.clone(), "must be greater than or equal to 0");
    }
    if is_integer_resource(name) && !quantity.is_whole() {
        faults.value(path.clone(), amount.clone(), "must be an integer");
    }
}

fn check_container_name(name: &str, path: &Path, faults: &mut FieldErrors) {
    check_resource_name(name, path, faults);
    if !name.contains('/') {
        let known = matches!(name, "cpu" | "memory" | "ephemeral-storage");
        if !known && !name.starts_with("hugepages-") {
            faults.value(path.clone(), name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        faults.value(path.clone(), name, "doesn't follow extended resource name standard");
    }
}

/// The names of resources that need no domain.
const STANDARD_RESOURCES: [&str; 23] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
    "requests.hugepages-",
    "hugepages-",
    "limits.hugepages-",
];

/// Validates the name of a resource, wherever it occurs.
pub(crate) fn check_resource_name(name: &str, path: &Path, faults: &mut FieldErrors) {
    let before = faults.len();
    faults.invalid_text(path, name, names::qualified(name));
    if faults.len() == before && !name.contains('/') && !is_standard(name) {
        let detail = "must be a standard resource type or fully qualified";
        faults.value(path.clone(), name, detail);
    }
}

fn is_standard(name: &str) -> bool {
    STANDARD_RESOURCES.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

/// Returns whether a resource is one of Kubernetes' own.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns whether a resource is an extended resource.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified(&format!("requests.{name}")).is_empty()
}

fn is_overcommittable(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

/// Returns whether a resource is an integer resource, of which a fraction means nothing.
fn is_integer_resource(name: &str) -> bool {
    let objects = [
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    objects.contains(&name) || is_extended(name)
}
