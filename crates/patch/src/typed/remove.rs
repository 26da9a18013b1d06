//! Removes fields from an object.

use serde_json::{Map, Value};

use super::key::element_of;
use super::types::{List, MapForm, Type, TypeForm};
use crate::path::PathElement;
use crate::set::FieldSet;

pub(super) fn remove(of: Type<'_>, value: &Value, fields: &FieldSet) -> Value {
    match (of.form(Some(value)), value) {
        (TypeForm::Scalar(_), _) => value.clone(),
        (TypeForm::List(list), Value::Array(elements)) if !list.is_atomic() => {
            remove_elements(list, elements, fields)
        }
        (TypeForm::Map(map), Value::Object(entries)) if !map.atomic => {
            remove_entries(map, entries, fields)
        }
        (TypeForm::List(_) | TypeForm::Map(_), _) => Value::Null,
    }
}

fn remove_entries(map: MapForm<'_>, entries: &Map<String, Value>, fields: &FieldSet) -> Value {
    let mut kept = Map::new();
    for (name, value) in entries {
        let element = PathElement::field(name);
        if fields.has(&element) {
            continue;
        }
        let value = match (fields.below(&element), map.entry(name)) {
            (Some(below), Some(of)) => remove(of, value, below),
            (None, _) | (_, None) => value.clone(),
        };
        kept.insert(name.clone(), value);
    }
    if kept.is_empty() { Value::Null } else { Value::Object(kept) }
}

fn remove_elements(list: List<'_>, elements: &[Value], fields: &FieldSet) -> Value {
    let mut kept = Vec::new();
    for child in elements {
        let Ok(element) = element_of(list, child) else {
            kept.push(child.clone());
            continue;
        };
        if fields.has(&element) {
            continue;
        }
        kept.push(match fields.below(&element) {
            Some(below) => remove(list.items, child, below),
            None => child.clone(),
        });
    }
    if kept.is_empty() { Value::Null } else { Value::Array(kept) }
}

pub(super) fn extract(of: Type<'_>, value: &Value, fields: &FieldSet) -> Value {
    match (of.form(Some(value)), value) {
        (TypeForm::List(list), Value::Array(elements)) if !list.is_atomic() => {
            let kept: Vec<Value> = elements
                .iter()
                .filter_map(|child| {
                    let element = element_of(list, child).ok()?;
                    match fields.below(&element) {
                        Some(below) => Some(extract(list.items, child, below)),
                        None => fields.has(&element).then(|| child.clone()),
                    }
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (TypeForm::Map(map), Value::Object(entries)) if !map.atomic => {
            let kept: Map<String, Value> = entries
                .iter()
                .filter_map(|(name, value)| {
                    let element = PathElement::field(name);
                    let value = match (fields.below(&element), map.entry(name)) {
                        (Some(below), Some(of)) => extract(of, value, below),
                        (None, _) | (_, None) if fields.has(&element) => value.clone(),
                        (None, _) | (_, None) => return None,
                    };
                    Some((name.clone(), value))
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (TypeForm::Scalar(_) | TypeForm::List(_) | TypeForm::Map(_), _) => value.clone(),
    }
}
