//! What pods, services and claims ask for.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::amount::Amount;

/// Amounts by the name of what they are of.
pub type Amounts = BTreeMap<String, Amount>;

/// The amounts in a tree.
#[must_use]
pub fn amounts(tree: &Value) -> Amounts {
    let entries = tree.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), Amount::of(value)?))).collect()
}

fn items(tree: &Value) -> impl Iterator<Item = &Value> {
    tree.as_array().into_iter().flatten()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_default();
        *entry = entry.plus(*amount);
    }
}

fn raise(most: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let entry = most.entry(name.clone()).or_insert(*amount);
        *entry = (*entry).max(*amount);
    }
}

/// What a pod asks for as a whole: `field` is `requests` or `limits`.
///
/// Containers count together; one that only prepares counts if it alone asks for more, together with
/// those that were started before it and stay.
#[must_use]
pub fn pod_total(pod: &Value, field: &str) -> Amounts {
    let spec = &pod["spec"];
    let mut total = Amounts::new();
    for container in items(&spec["containers"]) {
        add(&mut total, &amounts(&container["resources"][field]));
    }
    let (mut staying, mut peak) = (Amounts::new(), Amounts::new());
    for container in items(&spec["initContainers"]) {
        let own = amounts(&container["resources"][field]);
        if container["restartPolicy"] == "Always" {
            add(&mut total, &own);
            add(&mut staying, &own);
            raise(&mut peak, &staying);
        } else {
            let mut during = own;
            add(&mut during, &staying);
            raise(&mut peak, &during);
        }
    }
    raise(&mut total, &peak);
    for (name, amount) in amounts(&spec["resources"][field]) {
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
pub(crate) fn counted(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::new();
    usage.insert("pods".to_owned(), Amount::count(1));
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
