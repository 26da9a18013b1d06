//! Converts objects that two versions show differently: events, and autoscalers.
//!
//! They are stored in one form, see [`Resource::stored_as`](crate::Resource::stored_as), and
//! converted for clients that request the other. Input and output are objects as
//! [`read`](crate::read()) returns them.

use serde_json::{Map, Value};

use crate::read::{TypeError, read};
use crate::types::kind_type;

mod autoscaler;

/// The fields of events that have other names: in the core group, and in `events.k8s.io`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("source", "deprecatedSource"),
    ("message", "note"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Converts an event of `events.k8s.io/v1` to the core group.
///
/// # Errors
/// If it is not such an event.
pub fn event_to_core(event: Value) -> Result<Value, TypeError> {
    let renamed = rename(event, |name| {
        EVENT_FIELDS.iter().find(|(_, newer)| *newer == name).map(|(core, _)| *core)
    });
    typed("", "v1", "Event", renamed)
}

/// Converts an event of the core group to `events.k8s.io/v1`.
///
/// # Errors
/// If it is not such an event.
pub fn event_from_core(event: Value) -> Result<Value, TypeError> {
    let renamed = rename(event, |name| {
        EVENT_FIELDS.iter().find(|(core, _)| *core == name).map(|(_, newer)| *newer)
    });
    typed("events.k8s.io", "v1", "Event", renamed)
}

/// Converts an autoscaler of `autoscaling/v1` to `v2`: fields that `v1` does not have are read from
/// annotations, and without any metric the CPU is the one.
///
/// # Errors
/// If it is not such an autoscaler.
pub fn autoscaler_to_v2(autoscaler: Value) -> Result<Value, TypeError> {
    typed("autoscaling", "v2", "HorizontalPodAutoscaler", autoscaler::to_v2(object(autoscaler)))
}

/// Converts an autoscaler of `autoscaling/v2` to `v1`: fields that `v1` does not have go into
/// annotations.
///
/// # Errors
/// If it is not such an autoscaler.
pub fn autoscaler_to_v1(autoscaler: Value) -> Result<Value, TypeError> {
    typed("autoscaling", "v1", "HorizontalPodAutoscaler", autoscaler::to_v1(object(autoscaler)))
}

fn typed(
    group: &str,
    version: &str,
    kind: &str,
    mut entries: Map<String, Value>,
) -> Result<Value, TypeError> {
    let api_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    if let Some(stated) = entries.get_mut("apiVersion") {
        *stated = Value::String(api_version);
    }
    let id = kind_type(group, version, kind).expect("events and autoscalers are built in");
    Ok(read(id, Value::Object(entries))?.value)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(entries) => entries,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

fn rename(event: Value, name: impl Fn(&str) -> Option<&'static str>) -> Map<String, Value> {
    let renamed = object(event).into_iter().map(|(key, value)| match name(&key) {
        Some(other) => (other.to_owned(), value),
        None => (key, value),
    });
    renamed.collect()
}
