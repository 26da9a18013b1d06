//! Objects inside an object.

use serde_json::{Map, Value};

use crate::field_error::{FieldError, FieldErrorReason};
use crate::go;
use crate::metadata::{self, invalid_value};
use crate::names;
use crate::path::Path;
use crate::tree::{NodeId, Schema, Shape};

/// Checks that embedded objects say what they are and have proper metadata. The object itself is
/// not looked at.
#[must_use]
pub fn validate_embedded(schema: &Schema, object: &Value) -> Vec<FieldError> {
    let mut faults = Vec::new();
    parts(schema, schema.root(), object, &Path::ROOT, "", &mut faults);
    faults
}

/// Checks a value that may itself be an embedded object and stands in the field `above`.
pub(crate) fn validate_part(schema: &Schema, value: &Value, above: &str) -> Vec<FieldError> {
    let mut faults = Vec::new();
    node(schema, schema.root(), value, &Path::ROOT, above, &mut faults);
    faults
}

fn node(
    schema: &Schema,
    id: NodeId,
    value: &Value,
    path: &Path<'_>,
    above: &str,
    faults: &mut Vec<FieldError>,
) {
    if schema.checks(id).is_none() {
        return;
    }
    if let (Shape::Struct { embedded: true, .. }, Value::Object(map)) =
        (&schema.node(id).shape, value)
    {
        resource(map, &path.in_cause_under(above), faults);
    }
    parts(schema, id, value, path, above, faults);
}

fn parts(
    schema: &Schema,
    id: NodeId,
    value: &Value,
    path: &Path<'_>,
    above: &str,
    faults: &mut Vec<FieldError>,
) {
    match (&schema.node(id).shape, value) {
        (Shape::List { items, .. }, Value::Array(list)) => {
            for (index, item) in list.iter().enumerate() {
                node(schema, *items, item, &path.index(index), above, faults);
            }
        }
        (Shape::Map { values, .. }, Value::Object(map)) => {
            for (key, value) in map {
                node(schema, *values, value, &path.entry(key), above, faults);
            }
        }
        (Shape::Struct { fields, .. }, Value::Object(map)) => {
            for (name, field) in fields {
                if let Some(value) = map.get(&**name) {
                    node(schema, field.node, value, &path.field(name), above, faults);
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

/// Checks what every object must say of itself.
pub(crate) fn resource(map: &Map<String, Value>, field: &str, faults: &mut Vec<FieldError>) {
    let child = |name: &str| match field {
        "" => name.to_owned(),
        _ => format!("{field}.{name}"),
    };
    for name in ["apiVersion", "kind"] {
        let field = child(name);
        match map.get(name) {
            None => faults.push(FieldError::required(field, "")),
            Some(Value::String(text)) if text.is_empty() => {
                faults.push(invalid_value(&field, text, "must not be empty"));
            }
            Some(Value::String(text)) if name == "kind" => {
                let wrong = names::dns1035_label(&text.to_lowercase());
                if !wrong.is_empty() {
                    let detail = format!(
                        "may have mixed case, but should otherwise match: {}",
                        wrong.join(",")
                    );
                    faults.push(invalid_value(&field, text, &detail));
                }
            }
            Some(Value::String(text)) if text.matches('/').count() > 1 => {
                let detail = format!("unexpected GroupVersion string: {text}");
                faults.push(invalid_value(&field, text, &detail));
            }
            Some(Value::String(_)) => {}
            Some(other) => {
                let message = format!("Invalid value: {}: must be a string", go::print(other));
                faults.push(FieldError::new(field, FieldErrorReason::Invalid, message));
            }
        }
    }
    let Some(Value::Object(meta)) = map.get("metadata") else { return };
    let field = child("metadata");
    let text = |name: &str| meta.get(name).and_then(Value::as_str).unwrap_or_default();
    for name in ["generateName", "name"] {
        let wrong = names::path_segment(text(name));
        let field = format!("{field}.{name}");
        faults.extend(wrong.iter().map(|detail| invalid_value(&field, text(name), detail)));
    }
    let namespace = text("namespace");
    if !namespace.is_empty() {
        let field = format!("{field}.namespace");
        let wrong = names::dns1123_label(namespace);
        faults.extend(wrong.iter().map(|detail| invalid_value(&field, namespace, detail)));
    }
    faults.append(&mut metadata::validate(meta, &field));
}
