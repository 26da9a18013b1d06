//! Limit ranges: defaults for containers without requests or limits, and the bounds of both.

use serde_json::{Map, Value, json};

use crate::resources::{ResourceList, containers, pod_resources, resource_list};
use gantry_quantity::Quantity;

const LIMIT_RANGER_ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Sets the defaults of a range on the containers of a pod that specify nothing, and annotates it.
pub fn apply_pod_defaults(range: &Value, pod: &mut Value) {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for item in limits_of(range, "Container") {
        requests.extend(item["defaultRequest"].as_object().cloned().unwrap_or_default());
        limits.extend(item["default"].as_object().cloned().unwrap_or_default());
    }
    let mut notes = Vec::new();
    for (field, what) in [("containers", "container"), ("initContainers", "init container")] {
        let list = pod["spec"].get_mut(field).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            for (kind, given) in [("requests", &requests), ("limits", &limits)] {
                let set = apply_container_defaults(container, kind, given);
                if !set.is_empty() {
                    let word = kind.trim_end_matches('s');
                    notes.push(format!("{} {word} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        pod["metadata"]["annotations"][LIMIT_RANGER_ANNOTATION] = json!(note);
    }
}

/// Fills in what is missing and returns the names of it.
fn apply_container_defaults(
    container: &mut Value,
    kind: &str,
    given: &Map<String, Value>,
) -> Vec<String> {
    let known = &container["resources"][kind];
    let mut missing: Vec<(String, Value)> = given
        .iter()
        .filter(|(name, _)| known.get(name.as_str()).is_none())
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    missing.sort_by(|one, other| one.0.cmp(&other.0));
    for (name, amount) in &missing {
        container["resources"][kind][name] = amount.clone();
    }
    missing.into_iter().map(|(name, _)| name).collect()
}

fn limits_of<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let items = range["spec"]["limits"].as_array().into_iter().flatten();
    items.filter(move |item| item["type"] == kind)
}

/// What a range has against a pod.
#[must_use]
pub fn check_pod(range: &Value, pod: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let items = range["spec"]["limits"].as_array().into_iter().flatten();
    for item in items {
        match item["type"].as_str() {
            Some("Container") => {
                for container in containers(pod) {
                    let requests = resource_list(&container["resources"]["requests"]);
                    let limits = resource_list(&container["resources"]["limits"]);
                    check_item(item, "Container", &requests, &limits, &mut faults);
                }
            }
            Some("Pod") => {
                let (requests, limits) =
                    (pod_resources(pod, "requests"), pod_resources(pod, "limits"));
                check_item(item, "Pod", &requests, &limits, &mut faults);
            }
            _ => {}
        }
    }
    deduplicated(faults)
}

/// What a range has against a claim.
#[must_use]
pub fn check_claim(range: &Value, claim: &Value) -> Vec<String> {
    const KIND: &str = "PersistentVolumeClaim";
    let requests = resource_list(&claim["spec"]["resources"]["requests"]);
    let mut faults = Vec::new();
    for item in limits_of(range, KIND) {
        for (name, least) in resource_list(&item["min"]) {
            faults.extend(below(KIND, &name, least, &requests, &ResourceList::new()));
        }
        for (name, most) in resource_list(&item["max"]) {
            let says = format!("maximum {name} usage per {KIND} is {most}");
            match requests.get(&name) {
                None => faults.push(format!("{says}.  No request is specified")),
                Some(asked) if *asked > most => {
                    faults.push(format!("{says}, but request is {asked}"));
                }
                Some(_) => {}
            }
        }
    }
    deduplicated(faults)
}

/// The same words are said once.
fn deduplicated(faults: Vec<String>) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for fault in faults {
        if !said.contains(&fault) {
            said.push(fault);
        }
    }
    said
}

fn check_item(
    item: &Value,
    kind: &str,
    requests: &ResourceList,
    limits: &ResourceList,
    faults: &mut Vec<String>,
) {
    for (name, least) in resource_list(&item["min"]) {
        faults.extend(below(kind, &name, least, requests, limits));
    }
    for (name, most) in resource_list(&item["max"]) {
        let says = format!("maximum {name} usage per {kind} is {most}");
        match (limits.get(&name), requests.get(&name)) {
            (None, _) => faults.push(format!("{says}.  No limit is specified")),
            (Some(limit), _) if *limit > most => {
                faults.push(format!("{says}, but limit is {limit}"));
            }
            (Some(_), Some(asked)) if *asked > most => {
                faults.push(format!("{says}, but request is {asked}"));
            }
            (Some(_), _) => {}
        }
    }
    for (name, most) in resource_list(&item["maxLimitRequestRatio"]) {
        let says = format!("{name} max limit to request ratio per {kind} is {most}, but");
        let set = |amounts: &ResourceList| amounts.get(&name).copied().filter(|it| !it.is_zero());
        match (set(requests), set(limits)) {
            (None, _) => faults.push(format!("{says} no request is specified or request is 0")),
            (_, None) => faults.push(format!("{says} no limit is specified or limit is 0")),
            (Some(asked), Some(limit)) if limit.exceeds_times(asked, most) => {
                faults.push(format!("{says} provided ratio is {:.6}", limit.ratio(asked)));
            }
            (Some(_), Some(_)) => {}
        }
    }
}

fn below(
    kind: &str,
    name: &str,
    least: Quantity,
    requests: &ResourceList,
    limits: &ResourceList,
) -> Option<String> {
    let says = format!("minimum {name} usage per {kind} is {least}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => Some(format!("{says}.  No request is specified")),
        (Some(asked), _) if *asked < least => Some(format!("{says}, but request is {asked}")),
        (_, Some(limit)) if *limit < least => Some(format!("{says}, but limit is {limit}")),
        (Some(_), _) => None,
    }
}

#[cfg(test)]
mod tests;
