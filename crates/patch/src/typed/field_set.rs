//! The set of fields in an object.

use serde_json::{Map, Value};

use super::key::element_of;
use super::types::{List, MapForm, Type, TypeForm};
use crate::path::PathElement;
use crate::set::FieldSet;

pub(super) fn field_set(of: Type<'_>, object: &Value) -> FieldSet {
    let mut set = FieldSet::new();
    collect(of, object, &mut Vec::new(), &mut set);
    set
}

fn collect(of: Type<'_>, value: &Value, way: &mut Vec<PathElement>, set: &mut FieldSet) {
    match (of.form(Some(value)), value) {
        (TypeForm::Scalar(_), _) => set.insert(way),
        (TypeForm::List(list), _) if list.is_atomic() => set.insert(way),
        (TypeForm::Map(map), _) if map.atomic => set.insert(way),
        (TypeForm::List(list), Value::Array(elements)) => collect_list(list, elements, way, set),
        (TypeForm::Map(map), Value::Object(entries)) => collect_map(map, entries, way, set),
        (TypeForm::List(_) | TypeForm::Map(_), _) => {}
    }
}

fn collect_map(
    map: MapForm<'_>,
    entries: &Map<String, Value>,
    way: &mut Vec<PathElement>,
    set: &mut FieldSet,
) {
    for (name, value) in entries {
        let declared = map.field(name);
        way.push(PathElement::field(name));
        if let Some(of) = declared.or(map.others) {
            collect(of, value, way, set);
        }
        let empty = match value {
            Value::Null => true,
            Value::Object(entries) => entries.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
        };
        if empty || declared.is_none() {
            set.insert(way);
        }
        way.pop();
    }
}

fn collect_list(
    list: List<'_>,
    elements: &[Value],
    way: &mut Vec<PathElement>,
    set: &mut FieldSet,
) {
    // Elements without key were reported when the object was checked.
    let keyed: Vec<_> = elements
        .iter()
        .filter_map(|child| element_of(list, child).ok().map(|element| (element, child)))
        .collect();
    let mut sorted: Vec<&PathElement> = keyed.iter().map(|(element, _)| element).collect();
    sorted.sort_unstable();
    for (element, child) in &keyed {
        let first = sorted.partition_point(|other| *other < element);
        let twice = sorted.get(first + 1).is_some_and(|next| *next == element);
        way.push(element.clone());
        // Elements with one key are owned together, not field by field.
        if !twice {
            collect(list.items, child, way, set);
        }
        set.insert(way);
        way.pop();
    }
}
