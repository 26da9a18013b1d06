//! The keys that identify the elements of a list.

use gantry_schema::{ListType, Shape};
use serde_json::Value;

use super::types::{List, Type, TypeForm};
use crate::golang;
use crate::path::{ComparableValue, PathElement};

/// The step to an element of a set or keyed list. The text says what is wrong with an element that
/// has none.
pub(super) fn element_of(list: List<'_>, child: &Value) -> Result<PathElement, String> {
    match list.list_type {
        ListType::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListType::Set => match child {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => {
                Err("not supported: associative list with lists as elements".to_owned())
            }
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null"
                    .to_owned())
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Ok(PathElement::Value(ComparableValue(child.clone())))
            }
        },
        ListType::Map(keys) => keyed(list, keys, child),
    }
}

fn keyed(list: List<'_>, keys: &[Box<str>], child: &Value) -> Result<PathElement, String> {
    let child = match child {
        Value::Object(child) => child,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err("associative list with keys may not have non-map elements".to_owned());
        }
    };
    let mut fields: Vec<(Box<str>, ComparableValue)> = Vec::with_capacity(keys.len());
    for name in keys {
        // A key that is absent and has no default is left out: such an element is another one
        // than any that has the key.
        if let Some(value) = child.get(&**name).or_else(|| default_of(list.items, name)) {
            fields.push((name.clone(), ComparableValue(value.clone())));
        }
    }
    if fields.is_empty() && !keys.is_empty() {
        let names: Vec<String> = keys.iter().map(|name| golang::quoted(name)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and \
             doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(PathElement::Key(fields))
}

fn default_of<'a>(items: Type<'a>, name: &str) -> Option<&'a Value> {
    let TypeForm::Map(map) = items.form(None) else { return None };
    match map.field(name)? {
        Type::Declared { schema, node, .. } => match schema.node(node) {
            node if matches!(node.shape, Shape::Scalar(_)) => node.default.as_ref(),
            _ => None,
        },
        Type::Deduced | Type::Opaque | Type::Text => None,
    }
}
