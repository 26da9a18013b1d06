//! Reads fields of an object for printing: a missing field has the zero value of its type.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::age::age_of;

/// The cell for a missing value.
pub(super) const NONE: &str = "<none>";
/// The cell for a value that was never set.
pub(super) const UNSET: &str = "<unset>";

/// Returns a text, or the empty one.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns a text, or `other` if it is empty.
pub(super) fn text_or<'a>(value: &'a Value, other: &'a str) -> &'a str {
    value.as_str().filter(|it| !it.is_empty()).unwrap_or(other)
}

/// Returns a text, or `other` only if it is missing: an empty one was set to be empty.
pub(super) fn set_or<'a>(value: &'a Value, other: &'a str) -> &'a str {
    value.as_str().unwrap_or(other)
}

/// A whole number, or 0.
pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// Returns a boolean, or `false`.
pub(super) fn truth(value: &Value) -> bool {
    value.as_bool().unwrap_or_default()
}

/// The elements of a list, or none.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The entries of a map, if it has any.
pub(super) fn map(value: &Value) -> Option<&Map<String, Value>> {
    value.as_object().filter(|it| !it.is_empty())
}

/// How many entries a map or list has.
pub(super) fn count(value: &Value) -> i64 {
    let entries = value.as_object().map_or_else(|| list(value).len(), Map::len);
    i64::try_from(entries).unwrap_or(i64::MAX)
}

/// Returns a quantity as it is stored; a missing one is `0`.
pub(super) fn quantity(value: &Value) -> String {
    quantity_or(value, "0")
}

/// Returns a quantity as it is stored, or `other` if it is missing.
pub(super) fn quantity_or(value: &Value, other: &str) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => other.to_owned(),
    }
}

/// The name of an object, as a cell.
pub(super) fn name(object: &Value) -> Value {
    text(&object["metadata"]["name"]).into()
}

/// The age of an object, as a cell.
pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    age_of(&object["metadata"]["creationTimestamp"], now).into()
}

/// Returns whether an object is being deleted.
pub(super) fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The first condition of a type.
pub(super) fn condition<'a>(conditions: &'a Value, of_type: &str) -> Option<&'a Value> {
    list(conditions).iter().find(|it| text(&it["type"]) == of_type)
}

/// Whether the first condition of a type is true.
pub(super) fn is_true(conditions: &Value, of_type: &str) -> bool {
    condition(conditions, of_type).is_some_and(|it| text(&it["status"]) == "True")
}

/// The texts of a field in all elements of a list.
pub(super) fn each<'a>(elements: &'a Value, field: &str) -> Vec<&'a str> {
    list(elements).iter().map(|it| text(&it[field])).collect()
}

/// The texts of a list, joined by commas.
pub(super) fn joined(texts: &Value) -> String {
    let texts: Vec<&str> = list(texts).iter().map(text).collect();
    texts.join(",")
}

/// Names and images of the containers of a pod's specification, as two cells.
pub(super) fn containers(spec: &Value) -> [Value; 2] {
    let joined = |field| each(&spec["containers"], field).join(",").into();
    [joined("name"), joined("image")]
}

/// Returns the first three of `all`, and how many more there are.
pub(super) fn first_three<T: AsRef<str>>(all: &[T]) -> String {
    const MAX_SHOWN: usize = 3;
    let shown: Vec<&str> = all.iter().take(MAX_SHOWN).map(AsRef::as_ref).collect();
    let shown = shown.join(",");
    if all.len() > MAX_SHOWN {
        format!("{shown} + {} more...", all.len() - MAX_SHOWN)
    } else {
        shown
    }
}
