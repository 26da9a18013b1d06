//! Sets the defaults of absent fields.

use serde_json::{Map, Value};

use crate::tree::{NodeId, Scalar, Schema, Shape};

/// Gives absent fields their defaults.
///
/// Only inside objects that exist: a default deep in an absent object is not applied. Where `null`
/// is no value it counts as absent: it is replaced by the default, or dropped if there is none.
pub fn default(schema: &Schema, object: &mut Value) {
    node(schema, schema.root(), object);
}

fn node(schema: &Schema, id: NodeId, value: &mut Value) {
    match (&schema.node(id).shape, value) {
        (Shape::Struct { .. }, Value::Object(map)) => structure(schema, id, map),
        (Shape::Map { values, .. }, Value::Object(map)) => {
            drop_nulls(map, |_| is_known(schema, *values).then_some(*values), schema);
            for value in map.values_mut() {
                part(schema, *values, value);
            }
        }
        (Shape::List { items, .. }, Value::Array(list)) => {
            for item in list {
                part(schema, *items, item);
            }
        }
        (
            Shape::Struct { .. }
            | Shape::Map { .. }
            | Shape::List { .. }
            | Shape::Scalar(_)
            | Shape::Any,
            _,
        ) => {}
    }
}

fn structure(schema: &Schema, id: NodeId, map: &mut Map<String, Value>) {
    let Shape::Struct { fields, .. } = &schema.node(id).shape else { return };
    let known =
        |key: &str| fields.get(key).map(|field| field.node).filter(|node| is_known(schema, *node));
    drop_nulls(map, known, schema);
    for (name, field) in fields {
        let Some(default) = &schema.node(field.node).default else { continue };
        if !map.contains_key(&**name) {
            map.insert(name.to_string(), default.clone());
        }
    }
    for (key, value) in map.iter_mut() {
        if let Some(field) = fields.get(key.as_str()) {
            part(schema, field.node, value);
        }
    }
}

/// A field, entry or element that is there.
fn part(schema: &Schema, id: NodeId, value: &mut Value) {
    let shape = schema.node(id);
    if let (true, false, Some(default)) = (value.is_null(), shape.nullable, &shape.default) {
        value.clone_from(default);
    }
    node(schema, id, value);
}

/// Removes entries that are `null` where that is no value and nothing replaces it.
fn drop_nulls(
    map: &mut Map<String, Value>,
    known: impl Fn(&str) -> Option<NodeId>,
    schema: &Schema,
) {
    if !map.values().any(Value::is_null) {
        return;
    }
    map.retain(|key, value| {
        if !value.is_null() {
            return true;
        }
        let Some(id) = known(key) else { return true };
        let node = schema.node(id);
        node.nullable || node.default.is_some()
    });
}

/// Whether the schema says something about a value; what is merely kept keeps its nulls.
fn is_known(schema: &Schema, id: NodeId) -> bool {
    !matches!(schema.node(id).shape, Shape::Scalar(Scalar::Untyped))
}
