//! Reads and changes objects as JSON.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// A time as objects have it, in whole seconds.
pub(super) fn stamp(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub(super) fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array();
    list.map(|list| list.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// JSON merge patch.
pub(super) fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Value::Object(target) = into else { return };
    for (name, value) in fields {
        match value.is_null() {
            true => {
                target.shift_remove(name);
            }
            false => merge(target.entry(name.clone()).or_insert(Value::Null), value),
        }
    }
}

/// Removes the nulls that reading an absent field has left behind.
pub(super) fn remove_nulls(object: &mut Value) {
    let absent = |fields: &mut Map<String, Value>| fields.retain(|_, value| !value.is_null());
    if let Some(fields) = object.as_object_mut() {
        absent(fields);
    }
    if let Some(fields) = object["metadata"].as_object_mut() {
        absent(fields);
    }
}
