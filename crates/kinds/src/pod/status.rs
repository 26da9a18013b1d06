//! Sets the initial status of a pod, and validates its updates.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::tree::{at, copy_field, each, entries, int, list, put, text};
use gantry_quantity::Quantity;

/// Sets the status of a new pod: it is pending, with a condition if it is gated.
pub(crate) fn create(object: &mut Value, now: &str) {
    // A template may have a negative grace period; a pod gets the shortest one instead.
    if int(object, "spec.terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        put(object, "spec.terminationGracePeriodSeconds", 1);
    }
    let class = qos_class(at(object, "spec"));
    put(object, "status", json!({ "phase": "Pending", "qosClass": class }));
    if !list(object, "spec.schedulingGates").is_empty() {
        let condition = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": now,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
        put(object, "status.conditions", condition);
    }
    match_label_keys(object);
}

/// Copies the values of a pod's labels under `matchLabelKeys` into its spread constraints and
/// affinity, so that later changes of the labels do not affect earlier scheduling decisions.
fn match_label_keys(object: &mut Value) {
    let labels = at(object, "metadata.labels").clone();
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for side in ["podAffinity", "podAntiAffinity"] {
        for term in each(object, &format!("spec.affinity.{side}.{required}")) {
            add_label_keys(term, &labels);
        }
        for weighted in each(object, &format!("spec.affinity.{side}.{preferred}")) {
            if let Some(term) = weighted.get_mut("podAffinityTerm") {
                add_label_keys(term, &labels);
            }
        }
    }
}

fn add_label_keys(term: &mut Value, labels: &Value) {
    if !at(term, "labelSelector").is_object() {
        return;
    }
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys: Vec<String> =
            list(term, field).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        for key in keys {
            let Some(value) = labels.get(&key) else { continue };
            let expression = json!({ "key": key, "operator": operator, "values": [value] });
            let mut expressions = list(term, "labelSelector.matchExpressions").to_vec();
            if !expressions.contains(&expression) {
                expressions.push(expression);
                put(term, "labelSelector.matchExpressions", expressions);
            }
        }
    }
}

/// Preserves fields that a status write may leave out.
pub(crate) fn update_status(new: &mut Value, old: &Value, _now: &str) {
    if text(new, "status.qosClass").is_empty() {
        copy_field(new, old, "status.qosClass");
    }
    if int(new, "status.observedGeneration").unwrap_or_default() == 0 {
        copy_field(new, old, "status.observedGeneration");
    }
    let mut known: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for condition in list(old, "status.conditions").iter().rev() {
        let generation = int(condition, "observedGeneration").unwrap_or_default();
        known.entry(text(condition, "type").to_owned()).or_default().push(generation);
    }
    for condition in each(new, "status.conditions") {
        let before = known.get_mut(text(condition, "type")).and_then(Vec::pop).unwrap_or_default();
        if int(condition, "observedGeneration").unwrap_or_default() == 0 && before != 0 {
            put(condition, "observedGeneration", before);
        }
    }
}

/// Returns the sum of a pod's container requests, as a scheduler computes it.
pub(crate) fn container_requests(spec: &Value) -> BTreeMap<String, Quantity> {
    let mut sums = amounts(list(spec, "containers"), "resources.requests");
    // Sidecars run beside the containers; the other init containers run before them, one by one.
    let mut beside: BTreeMap<String, Quantity> = BTreeMap::new();
    let mut peak: BTreeMap<String, Quantity> = BTreeMap::new();
    for container in list(spec, "initContainers") {
        let own = amounts(std::slice::from_ref(container), "resources.requests");
        if text(container, "restartPolicy") == "Always" {
            add(&mut beside, &own);
            add(&mut sums, &own);
            raise_to_maximum(&mut peak, &beside);
        } else {
            let mut with = beside.clone();
            add(&mut with, &own);
            raise_to_maximum(&mut peak, &with);
        }
    }
    raise_to_maximum(&mut sums, &peak);
    sums
}

fn amounts(containers: &[Value], field: &str) -> BTreeMap<String, Quantity> {
    let mut sums = BTreeMap::new();
    for container in containers {
        let own = entries(container, field);
        let own =
            own.into_iter().filter_map(|(name, it)| Some((name.clone(), Quantity::from_json(it)?)));
        add(&mut sums, &own.collect());
    }
    sums
}

fn add(sums: &mut BTreeMap<String, Quantity>, more: &BTreeMap<String, Quantity>) {
    for (name, amount) in more {
        let sum = sums.entry(name.clone()).or_default();
        *sum = sum.plus(*amount);
    }
}

fn raise_to_maximum(sums: &mut BTreeMap<String, Quantity>, to: &BTreeMap<String, Quantity>) {
    for (name, amount) in to {
        let sum = sums.entry(name.clone()).or_default();
        *sum = (*sum).max(*amount);
    }
}

/// Returns the QoS class of a pod. Only CPU and memory count.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    let counted = |tree: &Value, field: &str| -> BTreeMap<String, Quantity> {
        let found = entries(tree, field).into_iter();
        let found = found.filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory"));
        found
            .filter_map(|(name, it)| Some((name.clone(), Quantity::from_json(it)?)))
            .filter(|(_, it)| it.sign() == Ordering::Greater)
            .collect()
    };
    let own = at(spec, "resources");
    if !counted(own, "requests").is_empty() || !counted(own, "limits").is_empty() {
        let limits = counted(own, "limits");
        let whole = limits.len() == 2 && counted(own, "requests") == limits;
        return if whole { "Guaranteed" } else { "Burstable" };
    }
    let mut guaranteed = true;
    let mut requests = BTreeMap::new();
    let mut limits = BTreeMap::new();
    for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
        let own = counted(container, "resources.limits");
        guaranteed &= own.len() == 2;
        add(&mut limits, &own);
        add(&mut requests, &counted(container, "resources.requests"));
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qos_class_follows_from_requests() {
        let all = json!({ "cpu": "1", "memory": "1Gi" });
        let table = [
            ("nothing", json!({}), "BestEffort"),
            ("zero is nothing", json!({ "requests": { "cpu": "0" } }), "BestEffort"),
            ("another resource", json!({ "limits": { "a.test/gpu": "1" } }), "BestEffort"),
            ("requests alone", json!({ "requests": all }), "Burstable"),
            ("equal", json!({ "requests": all, "limits": all }), "Guaranteed"),
            (
                "one of two",
                json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "1" } }),
                "Burstable",
            ),
        ];
        for (why, resources, expected) in table {
            let spec = json!({ "containers": [{ "resources": resources }] });
            assert_eq!(qos_class(&spec), expected, "{why}");
            let spec = json!({ "resources": resources, "containers": [{}] });
            assert_eq!(qos_class(&spec), expected, "{why}, of the whole pod");
        }
        let spec = json!({ "containers": [{ "resources": { "requests": all, "limits": all } }],
            "initContainers": [{}] });
        assert_eq!(qos_class(&spec), "Burstable", "one container without limits");
    }

    #[test]
    fn init_containers_peak_sidecars_sum() {
        let ask = |cpu: &str| json!({ "requests": { "cpu": cpu } });
        let spec = json!({
            "containers": [{ "resources": ask("1") }, { "resources": ask("500m") }],
            "initContainers": [
                { "resources": ask("1"), "restartPolicy": "Always" },
                { "resources": ask("3") },
            ],
        });
        assert_eq!(container_requests(&spec)["cpu"].to_string(), "4");
    }
}
