//! The row of a HorizontalPodAutoscaler, most of which compares metrics with their targets.
//!
//! The object is read as `autoscaling/v2`; the first version does not have all of its fields.

use jiff::Timestamp;
use serde_json::Value;

use super::fields::{NONE, UNSET, age, list, name, number, quantity_or, text};

pub(super) fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let target = &spec["scaleTargetRef"];
    let least = spec["minReplicas"].as_i64();
    vec![
        name(object),
        format!("{}/{}", text(&target["kind"]), text(&target["name"])).into(),
        metrics(list(&spec["metrics"]), list(&status["currentMetrics"])).into(),
        least.map_or_else(|| UNSET.to_owned(), |it| it.to_string()).into(),
        number(&spec["maxReplicas"]).into(),
        number(&status["currentReplicas"]).into(),
        age(object, now),
    ]
}

/// Formats the first two metrics, each as current over target, and how many more there are.
fn metrics(wanted: &[Value], found: &[Value]) -> String {
    const MAX_METRICS_SHOWN: usize = 2;
    if wanted.is_empty() {
        return NONE.to_owned();
    }
    let place = |at: usize| found.get(at).unwrap_or(&Value::Null);
    let shown: Vec<String> = wanted
        .iter()
        .take(MAX_METRICS_SHOWN)
        .enumerate()
        .map(|(at, it)| metric(it, place(at)))
        .collect();
    let shown = shown.join(", ");
    if wanted.len() > MAX_METRICS_SHOWN {
        format!("{shown} + {} more...", wanted.len() - MAX_METRICS_SHOWN)
    } else {
        shown
    }
}

fn metric(wanted: &Value, found: &Value) -> String {
    match text(&wanted["type"]) {
        "External" => of_value(&wanted["external"], &found["external"]),
        "Object" => of_value(&wanted["object"], &found["object"]),
        "Pods" => {
            let (wanted, found) = (&wanted["pods"], &found["pods"]);
            format!("{}/{}", measured(found, "averageValue"), target(wanted, "averageValue"))
        }
        "Resource" => of_resource(&wanted["resource"], &found["resource"]),
        "ContainerResource" => {
            of_resource(&wanted["containerResource"], &found["containerResource"])
        }
        _ => "<unknown type>".to_owned(),
    }
}

/// Formats a metric that is one number, or one number per pod.
fn of_value(wanted: &Value, found: &Value) -> String {
    if wanted["target"]["averageValue"].is_null() {
        return format!("{}/{}", measured(found, "value"), target(wanted, "value"));
    }
    let average = quantity_or(&found["current"]["averageValue"], UNKNOWN);
    format!("{average}/{} (avg)", target(wanted, "averageValue"))
}

/// Formats a resource metric: an amount per pod, or a percentage of the requests.
fn of_resource(wanted: &Value, found: &Value) -> String {
    let of_name = text(&wanted["name"]);
    if !wanted["target"]["averageValue"].is_null() {
        let found = measured(found, "averageValue");
        return format!("{of_name}: {found}/{}", target(wanted, "averageValue"));
    }
    let share = |part: &Value, other: &str| match part["averageUtilization"].as_i64() {
        Some(share) => format!("{share}%"),
        None => other.to_owned(),
    };
    let (found, wanted) = (share(&found["current"], UNKNOWN), share(&wanted["target"], "<auto>"));
    format!("{of_name}: {found}/{wanted}")
}

const UNKNOWN: &str = "<unknown>";

/// Returns the current value. A value of another target type prints as Go's nil.
fn measured(found: &Value, field: &str) -> String {
    if found.is_object() { quantity_or(&found["current"][field], NIL) } else { UNKNOWN.to_owned() }
}

fn target(wanted: &Value, field: &str) -> String {
    quantity_or(&wanted["target"][field], NIL)
}

const NIL: &str = "<nil>";
