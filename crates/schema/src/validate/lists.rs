//! Uniqueness in lists of type set and map.

use std::collections::HashMap;
use std::hash::Hash;

use serde_json::{Map, Value};

use crate::field_error::{FieldError, FieldErrorReason};
use crate::go;
use crate::path::Path;
use crate::tree::{ListType, NodeId, Schema, Shape};

/// Checks that elements of sets and keys of maps occur once. On an update this is asked only if the
/// old object had it.
#[must_use]
pub fn validate_lists(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let find = |object| {
        let mut faults = Vec::new();
        node(schema, schema.root(), object, &Path::ROOT, &mut faults);
        faults
    };
    let faults = find(object);
    match old {
        Some(old) if !faults.is_empty() && !find(old).is_empty() => Vec::new(),
        Some(_) | None => faults,
    }
}

fn node(schema: &Schema, id: NodeId, value: &Value, path: &Path<'_>, faults: &mut Vec<FieldError>) {
    // What the definition does not describe, as the object's own metadata, is looked at elsewhere.
    if schema.checks(id).is_none() {
        return;
    }
    match (&schema.node(id).shape, value) {
        (Shape::List { items, list_type }, Value::Array(list)) => {
            match list_type {
                ListType::Atomic => {}
                ListType::Set => set(list, path, faults),
                ListType::Map(keys) => map(list, keys, path, faults),
            }
            for (index, item) in list.iter().enumerate() {
                node(schema, *items, item, &path.index(index), faults);
            }
        }
        (Shape::Map { values, .. }, Value::Object(map)) => {
            for (key, value) in by_name(map) {
                node(schema, *values, value, &path.entry(key), faults);
            }
        }
        (Shape::Struct { fields, .. }, Value::Object(map)) => {
            for (name, field) in fields {
                if let Some(value) = map.get(&**name) {
                    node(schema, field.node, value, &path.field(name), faults);
                }
            }
        }
        (
            Shape::List { .. }
            | Shape::Map { .. }
            | Shape::Struct { .. }
            | Shape::Scalar(_)
            | Shape::Any,
            _,
        ) => {}
    }
}

fn by_name(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

fn set(list: &[Value], path: &Path<'_>, faults: &mut Vec<FieldError>) {
    for index in duplicates(list) {
        faults.push(duplicate(path, index, &list[index]));
    }
}

fn map(list: &[Value], keys: &[Box<str>], path: &Path<'_>, faults: &mut Vec<FieldError>) {
    if let Some(index) = list.iter().position(|item| !item.is_object() && !item.is_null()) {
        let message = format!(
            "Invalid value: {}: must be an object for an array of list-type map",
            go::print(&list[index])
        );
        faults.push(FieldError::new(
            path.index(index).in_cause(),
            FieldErrorReason::Invalid,
            message,
        ));
        return;
    }
    // Nearly all maps are keyed by one text, and it is worth not to copy it.
    let names = match keys {
        [key] => all_texts(list.iter().map(|item| item.get(&**key))),
        _ => None,
    };
    let repeated = match names {
        Some(names) => second_occurrences(names),
        None => duplicates(&list.iter().map(|item| identity(item, keys)).collect::<Vec<_>>()),
    };
    for index in repeated {
        faults.push(duplicate(path, index, &identity(&list[index], keys)));
    }
}

/// The values as texts, if all of them are.
fn all_texts<'list>(values: impl Iterator<Item = Option<&'list Value>>) -> Option<Vec<&'list str>> {
    values.map(|value| value?.as_str()).collect()
}

/// The keys of an element, without those it does not have.
fn identity(item: &Value, keys: &[Box<str>]) -> Value {
    let entry = |key: &str| Some((key.to_owned(), item.get(key)?.clone()));
    keys.iter().filter_map(|key| entry(key)).collect::<Map<_, _>>().into()
}

fn duplicate(path: &Path<'_>, index: usize, value: &Value) -> FieldError {
    let message = format!("Duplicate value: {}", go::print(value));
    FieldError::new(path.index(index).in_cause(), FieldErrorReason::Duplicate, message)
}

/// The elements that occur for the second time; later repetitions are not reported.
fn duplicates(list: &[Value]) -> Vec<usize> {
    if list.len() < 2 {
        return Vec::new();
    }
    if let Some(texts) = all_texts(list.iter().map(Some)) {
        return second_occurrences(texts);
    }
    // A float is never the same element as a whole number.
    let mark = |value: &Value| if value.is_f64() { "~" } else { "" };
    second_occurrences(list.iter().map(|value| format!("{}{}", mark(value), go::json(value))))
}

/// The places at which something is for the second time.
fn second_occurrences<T: Eq + Hash>(values: impl IntoIterator<Item = T>) -> Vec<usize> {
    let mut seen: HashMap<T, usize> = HashMap::new();
    let mut second = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        let times = seen.entry(value).or_insert(0);
        *times += 1;
        if *times == 2 {
            second.push(index);
        }
    }
    second
}
