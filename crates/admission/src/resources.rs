//! The resources that pods, services and claims request.

use std::collections::BTreeMap;

use serde_json::Value;

use gantry_quantity::Quantity;

/// Amounts by the name of what they are of.
pub type ResourceList = BTreeMap<String, Quantity>;

/// The amounts in a tree.
#[must_use]
pub fn resource_list(tree: &Value) -> ResourceList {
    let entries = tree.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), Quantity::from_json(value)?))).collect()
}

fn items(tree: &Value) -> impl Iterator<Item = &Value> {
    tree.as_array().into_iter().flatten()
}

fn add(sum: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_default();
        *entry = entry.plus(*amount);
    }
}

fn raise_to_max(most: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        let entry = most.entry(name.clone()).or_insert(*amount);
        *entry = (*entry).max(*amount);
    }
}

/// What a pod asks for as a whole: `field` is `requests` or `limits`.
///
/// Containers count together; one that only prepares counts if it alone asks for more, together
/// with those that were started before it and stay.
#[must_use]
pub fn pod_resources(pod: &Value, field: &str) -> ResourceList {
    let spec = &pod["spec"];
    let mut total = ResourceList::new();
    for container in items(&spec["containers"]) {
        add(&mut total, &resource_list(&container["resources"][field]));
    }
    let (mut staying, mut peak) = (ResourceList::new(), ResourceList::new());
    for container in items(&spec["initContainers"]) {
        let own = resource_list(&container["resources"][field]);
        if container["restartPolicy"] == "Always" {
            add(&mut total, &own);
            add(&mut staying, &own);
            raise_to_max(&mut peak, &staying);
        } else {
            let mut during = own;
            add(&mut during, &staying);
            raise_to_max(&mut peak, &during);
        }
    }
    raise_to_max(&mut total, &peak);
    for (name, amount) in resource_list(&spec["resources"][field]) {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            total.insert(name, amount);
        }
    }
    total
}

/// All containers of a pod that run to its end or before it begins.
pub(crate) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    items(&pod["spec"]["containers"]).chain(items(&pod["spec"]["initContainers"]))
}

/// What amounts of a pod or a container count as: requests and limits under the names of quotas.
pub(crate) fn quota_usage(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut usage = ResourceList::new();
    usage.insert("pods".to_owned(), Quantity::from_count(1));
    for (name, amount) in requests {
        let native = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if native || name.starts_with("hugepages-") {
            usage.insert(name.clone(), *amount);
            usage.insert(format!("requests.{name}"), *amount);
        } else if name.contains('/') && !name.contains("kubernetes.io/") {
            usage.insert(format!("requests.{name}"), *amount);
        }
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = limits.get(name) {
            usage.insert(format!("limits.{name}"), *amount);
        }
    }
    usage
}
