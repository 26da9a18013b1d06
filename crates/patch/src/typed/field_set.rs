//! The fields an object mentions.

use serde_json::{Map, Value};

use super::key::element_of;
use super::types::{Form, List, MapForm, Type};
use crate::path::PathElement;
use crate::set::Set;

pub(super) fn field_set(of: Type<'_>, object: &Value) -> Set {
    let mut set = Set::new();
    collect(of, object, &mut Vec::new(), &mut set);
    set
}

fn collect(of: Type<'_>, value: &Value, way: &mut Vec<PathElement>, set: &mut Set) {
    match (of.form(Some(value)), value) {
        (Form::Scalar(_), _) => set.insert(way),
        (Form::List(list), _) if list.is_atomic() => set.insert(way),
        (Form::Map(map), _) if map.atomic => set.insert(way),
        (Form::List(list), Value::Array(elements)) => collect_list(list, elements, way, set),
        (Form::Map(map), Value::Object(entries)) => collect_map(map, entries, way, set),
        (Form::List(_) | Form::Map(_), _) => {}
    }
}

fn collect_map(
    map: MapForm<'_>,
    entries: &Map<String, Value>,
    way: &mut Vec<PathElement>,
    set: &mut Set,
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

fn collect_list(list: List<'_>, elements: &[Value], way: &mut Vec<PathElement>, set: &mut Set) {
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
