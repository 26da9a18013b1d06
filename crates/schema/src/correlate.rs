//! Correlates new values with the old values they come from.

use std::collections::HashMap;
use std::fmt::Write;

use serde_json::Value;

use crate::tree::{ListType, NodeId, Schema, Shape};

/// The old entry of the object at `id` that belongs to the new entry `key`. None if there was none,
/// or if the schema says nothing about it.
pub(crate) fn entry<'old>(
    schema: &Schema,
    id: NodeId,
    key: &str,
    old: Option<&'old Value>,
) -> Option<&'old Value> {
    let old = old?.as_object()?.get(key)?;
    let entry = schema.entry(id, key)?;
    schema.checks(entry).map(|_| old)
}

/// The elements of an old list, by their keys. Only lists of type map have elements that can be
/// told apart.
pub(crate) struct OldItems<'old> {
    keys: &'old [Box<str>],
    by_key: HashMap<String, &'old Value>,
}

impl<'old> OldItems<'old> {
    /// The elements of `old`, a former value of the list at `id`.
    pub(crate) fn new(schema: &'old Schema, id: NodeId, old: Option<&'old Value>) -> Self {
        let none = Self { keys: &[], by_key: HashMap::new() };
        let Shape::List { list_type: ListType::Map(keys), .. } = &schema.node(id).shape else {
            return none;
        };
        let Some(Value::Array(items)) = old else { return none };
        let mut by_key = HashMap::with_capacity(items.len());
        for item in items {
            if let Some(key) = key_of(item, keys) {
                by_key.entry(key).or_insert(item);
            }
        }
        Self { keys, by_key }
    }

    /// The old element with the keys of `item`.
    pub(crate) fn get(&self, item: &Value) -> Option<&'old Value> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&key_of(item, self.keys)?).copied()
    }
}

/// The values of the keys as one text. None if one is absent or no scalar.
fn key_of(item: &Value, keys: &[Box<str>]) -> Option<String> {
    let item = item.as_object()?;
    let mut text = String::new();
    for key in keys {
        match item.get(&**key)? {
            value @ (Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                write!(text, "{value}\0").expect("writing to a string cannot fail");
            }
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        }
    }
    Some(text)
}

/// Whether a value is what it was. Lists of type map may be in another order. An object with
/// entries that the schema does not describe never is.
pub(crate) fn is_unchanged(schema: &Schema, id: NodeId, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Array(new), Value::Array(old_items)) => {
            if new.len() != old_items.len() {
                return false;
            }
            let Shape::List { items, list_type: ListType::Map(_) } = &schema.node(id).shape else {
                return new == old_items;
            };
            let olds = OldItems::new(schema, id, Some(old));
            new.iter().all(|item| {
                olds.get(item).is_some_and(|old| is_unchanged(schema, *items, item, old))
            })
        }
        (Value::Object(new), Value::Object(old_map)) => {
            new.len() == old_map.len()
                && new.iter().all(|(key, value)| {
                    let part = schema.entry(id, key).zip(entry(schema, id, key, Some(old)));
                    part.is_some_and(|(part, old)| is_unchanged(schema, part, value, old))
                })
        }
        (
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_),
            _,
        ) => new == old,
    }
}
