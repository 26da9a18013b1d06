//! Reading and filling JSON trees by dotted paths of static field names.
//!
//! `null` and absence are the same everywhere: a typed reader makes no difference either.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// The value at a path; `Null` where there is none.
pub(crate) fn at<'a>(tree: &'a Value, path: &str) -> &'a Value {
    let mut place = tree;
    for key in path.split('.') {
        match place.get(key) {
            Some(next) => place = next,
            None => return &NULL,
        }
    }
    place
}

/// Whether there is anything but `null` at a path.
pub(crate) fn is_set(tree: &Value, path: &str) -> bool {
    !at(tree, path).is_null()
}

/// The text at a path; empty where there is none.
pub(crate) fn text<'a>(tree: &'a Value, path: &str) -> &'a str {
    at(tree, path).as_str().unwrap_or_default()
}

/// The integer at a path.
pub(crate) fn int(tree: &Value, path: &str) -> Option<i64> {
    at(tree, path).as_i64()
}

/// Whether there is a `true` at a path.
pub(crate) fn flag(tree: &Value, path: &str) -> bool {
    at(tree, path).as_bool().unwrap_or_default()
}

/// The elements at a path; none where there is no list.
pub(crate) fn list<'a>(tree: &'a Value, path: &str) -> &'a [Value] {
    at(tree, path).as_array().map_or(&[], Vec::as_slice)
}

/// Returns the entries at a path, sorted by key so that the order is deterministic.
pub(crate) fn entries<'a>(tree: &'a Value, path: &str) -> Vec<(&'a String, &'a Value)> {
    let mut entries: Vec<_> = at(tree, path).as_object().into_iter().flatten().collect();
    entries.sort_by_key(|(key, _)| *key);
    entries
}

/// Whether there is nothing at a path, or an empty text, list or map.
pub(crate) fn is_empty(tree: &Value, path: &str) -> bool {
    match at(tree, path) {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The value at a path to change, if there is one.
pub(crate) fn at_mut<'a>(tree: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut place = tree;
    for key in path.split('.') {
        place = place.get_mut(key)?;
    }
    if place.is_null() { None } else { Some(place) }
}

/// The elements at a path to change.
pub(crate) fn each<'a>(
    tree: &'a mut Value,
    path: &str,
) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    at_mut(tree, path).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Sets a value at a path, creating missing objects on the way.
///
/// A path that leads through something else than an object is left alone: the existing value is
/// wrong, and validation reports it.
pub(crate) fn put(tree: &mut Value, path: &str, value: impl Into<Value>) {
    let mut place = tree;
    for key in path.split('.') {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(fields) = place else { return };
        place = fields.entry(key).or_insert(Value::Null);
    }
    *place = value.into();
}

/// Sets a value that is missing or an empty text.
pub(crate) fn set_default(tree: &mut Value, path: &str, value: impl Into<Value>) {
    if !is_set(tree, path) || at(tree, path).as_str() == Some("") {
        put(tree, path, value);
    }
}

/// Sets a number that is missing or zero: such fields do not distinguish the two.
pub(crate) fn set_default_if_zero(tree: &mut Value, path: &str, value: i64) {
    if int(tree, path).unwrap_or_default() == 0 {
        put(tree, path, value);
    }
}

/// Sets a missing object to an empty one.
pub(crate) fn set_default_object(tree: &mut Value, path: &str) {
    set_default(tree, path, Value::Object(Map::new()));
}

/// Removes the value at a path.
pub(crate) fn remove(tree: &mut Value, path: &str) -> Option<Value> {
    let (parent, key) = match path.rsplit_once('.') {
        Some((parent, key)) => (at_mut(tree, parent)?, key),
        None => (tree, path),
    };
    // `shift_remove` keeps the order of the other fields.
    parent.as_object_mut()?.shift_remove(key)
}

/// Copies the value at a path from `from`.
pub(crate) fn copy_field(tree: &mut Value, from: &Value, path: &str) {
    match at(from, path) {
        Value::Null => drop(remove(tree, path)),
        value => put(tree, path, value.clone()),
    }
}

/// Returns whether two trees are equal at a path; nothing and an empty map or list are equal.
pub(crate) fn same(one: &Value, other: &Value, path: &str) -> bool {
    equal(at(one, path), at(other, path))
}

/// Returns whether two values are equal: absent fields, `null` and empty lists and maps do not
/// differ.
pub(crate) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(key, value)| equal(value, b.get(key).unwrap_or(&NULL)))
                && b.iter().all(|(key, value)| a.contains_key(key) || equal(&NULL, value))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Null, value) | (value, Value::Null) => match value {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        },
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_read_fill_and_remove() {
        let mut tree = json!({ "a": { "b": 1, "n": null, "e": "" } });
        assert_eq!(int(&tree, "a.b"), Some(1));
        assert!(!is_set(&tree, "a.n") && !is_set(&tree, "x.y"));
        set_default(&mut tree, "a.b", 2);
        set_default(&mut tree, "a.n", 3);
        set_default(&mut tree, "a.e", "text");
        set_default(&mut tree, "a.b.c", 4);
        put(&mut tree, "d.e", 5);
        assert_eq!(tree, json!({ "a": { "b": 1, "n": 3, "e": "text" }, "d": { "e": 5 } }));
        assert_eq!(remove(&mut tree, "d.e"), Some(json!(5)));
        assert_eq!(remove(&mut tree, "q.e"), None);
        copy_field(&mut tree, &json!({ "d": { "f": 1 } }), "d.f");
        assert_eq!(at(&tree, "d"), &json!({ "f": 1 }));
    }

    #[test]
    fn absent_and_empty_are_equal() {
        let table = [
            (json!({}), json!({ "a": null, "b": {}, "c": [] }), true),
            (json!({ "a": [] }), json!(null), false),
            (json!({ "a": 0 }), json!({}), false),
            (json!([{}]), json!([{ "a": {} }]), true),
            (json!([1]), json!([1, 2]), false),
        ];
        for (one, other, expected) in table {
            assert_eq!(equal(&one, &other), expected, "{one} {other}");
            assert_eq!(equal(&other, &one), expected, "{other} {one}");
        }
    }
}
