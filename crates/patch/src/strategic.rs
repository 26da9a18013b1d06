//! Strategic merge patch: a merge patch whose lists merge where the schema says how.
//!
//! Directives in the patch say more than values can: `$patch` deletes or replaces,
//! `$deleteFromPrimitiveList/<field>` takes scalars out, `$setElementOrder/<field>` orders,
//! `$retainKeys` drops what it does not name.

mod list;

use gantry_schema::{MergeStrategy, NodeId, Schema, Shape};
use serde_json::{Map, Value};

use crate::golang;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Why a patch failed, by the response the client gets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// The patch is not one: 400 with this text.
    #[error("{0}")]
    BadPatch(String),
    /// The patch cannot be applied: 422 with the generic text; this one is for logs.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch contradicts itself or the object: 500 with this text, as in the original server.
    #[error("{0}")]
    Failed(String),
}

/// Applies a strategic merge patch to an object.
///
/// # Errors
/// If the patch is not an object, or what it asks for cannot be done.
pub fn apply(schema: &Schema, document: &Value, patch: &Value) -> Result<Value, StrategicError> {
    let patch = match patch {
        Value::Object(patch) => patch.clone(),
        Value::Null => return Ok(document.clone()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(StrategicError::BadPatch(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                gantry_schema::json_kind(patch)
            )));
        }
    };
    let original = document.as_object().cloned().unwrap_or_default();
    let of = Some(SchemaNode { schema, node: schema.root() });
    merge_maps(of, original, patch).map(Value::Object)
}

/// A node of the schema; none where the schema says nothing.
type OptionalSchemaNode<'a> = Option<SchemaNode<'a>>;

#[derive(Clone, Copy)]
struct SchemaNode<'a> {
    schema: &'a Schema,
    node: NodeId,
}

/// What a field holds and how it merges.
struct FieldMergeRule<'a> {
    schema_node: OptionalSchemaNode<'a>,
    strategy: MergeStrategy,
}

/// What the schema says about the field `name` of a struct.
fn field_merge_rule<'a>(
    of: OptionalSchemaNode<'a>,
    name: &str,
) -> Result<FieldMergeRule<'a>, StrategicError> {
    let free = FieldMergeRule { schema_node: None, strategy: MergeStrategy::default() };
    let Some(SchemaNode { schema, node }) = of else { return Ok(free) };
    match &schema.node(node).shape {
        Shape::Struct { fields, .. } => Ok(fields.get(name).map_or(free, |field| FieldMergeRule {
            schema_node: Some(SchemaNode { schema, node: field.node }),
            strategy: field.merge.clone(),
        })),
        // The original server cannot merge inside the values of a map, and says so.
        Shape::Map { .. } => Err(StrategicError::Failed(
            "merging an object in json but data type is not struct, instead is: map".to_owned(),
        )),
        Shape::Any | Shape::Scalar(_) | Shape::List { .. } => Ok(free),
    }
}

/// What the schema says about the elements of the list `name` of a struct.
fn element_merge_rule<'a>(
    of: OptionalSchemaNode<'a>,
    name: &str,
) -> Result<FieldMergeRule<'a>, StrategicError> {
    let FieldMergeRule { schema_node: of, strategy: merge } = field_merge_rule(of, name)?;
    let items = of.and_then(|SchemaNode { schema, node }| match &schema.node(node).shape {
        Shape::List { items, .. } => Some(SchemaNode { schema, node: *items }),
        Shape::Any | Shape::Scalar(_) | Shape::Map { .. } | Shape::Struct { .. } => None,
    });
    Ok(FieldMergeRule { schema_node: items, strategy: merge })
}

fn merge_maps(
    of: OptionalSchemaNode<'_>,
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
) -> Result<Map<String, Value>, StrategicError> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                patch.shift_remove(PATCH);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    list::apply_set_element_orders(of, &mut original, &mut patch)?;
    for (key, change) in patch {
        let deletes = key.starts_with(DELETE_FROM_LIST);
        let name = if deletes {
            let name = after_slash(&key, DELETE_FROM_LIST);
            name.ok_or_else(|| bad_patch("invalid patch format of primitive list"))?.to_owned()
        } else {
            key
        };
        if change.is_null() {
            original.shift_remove(&name);
            continue;
        }
        let same_sort =
            original.get(&name).is_some_and(|was| go_type_name(was) == go_type_name(&change));
        if !same_sort {
            if !deletes {
                put(&mut original, name, without_directives(without_nulls(change)));
            }
            continue;
        }
        let merged = match (original.get_mut(&name).map(Value::take), change) {
            (Some(Value::Object(was)), Value::Object(change)) => {
                let FieldMergeRule { schema_node: of, strategy: merge } =
                    field_merge_rule(of, &name)?;
                if merge.replace { change } else { merge_maps(of, was, change)? }.into()
            }
            (Some(Value::Array(was)), Value::Array(change)) => {
                let FieldMergeRule { schema_node: of, strategy: merge } =
                    element_merge_rule(of, &name)?;
                if merge.merge || deletes {
                    let key = merge.merge_key.as_deref().unwrap_or_default();
                    list::merge(of, was, change, key, deletes)?.into()
                } else {
                    change.into()
                }
            }
            (_, change) => change,
        };
        original.insert(name, merged);
    }
    Ok(original)
}

/// Sets or, if nothing is left of the value, removes an entry. A new entry goes to the end.
fn put(entries: &mut Map<String, Value>, name: String, value: Option<Value>) {
    match value {
        Some(value) => {
            entries.insert(name, value);
        }
        None => {
            entries.shift_remove(&name);
        }
    }
}

/// Drops what `$retainKeys` does not name. The patch may only set what it names.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), StrategicError> {
    let Some(named) = patch.shift_remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || bad_patch("invalid patch format of retainKeys");
    let named = named.as_array().ok_or_else(bad)?;
    let named = |name: &str| named.iter().any(|retained| retained == name);
    for (name, value) in patch.iter() {
        let directive = name.starts_with(DELETE_FROM_LIST) || name.starts_with(SET_ORDER);
        if !value.is_null() && !directive && !named(name) {
            return Err(bad());
        }
    }
    original.retain(|name, _| named(name));
    Ok(())
}

/// A value in which no object has a `null` member.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(entries) => entries
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        Value::Array(values) => values.into_iter().map(without_nulls).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// A value without the objects that only carry a directive; nothing if it is one itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(entries) if entries.contains_key(PATCH) => None,
        Value::Object(entries) => Some(
            entries
                .into_iter()
                .filter_map(|(name, value)| Some((name, without_directives(value)?)))
                .collect(),
        ),
        Value::Array(values) => Some(values.into_iter().filter_map(without_directives).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value),
    }
}

/// What stands behind the slash of a directive.
fn after_slash<'a>(key: &'a str, directive: &str) -> Option<&'a str> {
    key.strip_prefix(directive)?.strip_prefix('/')
}

/// The sort of a value; only values of one sort merge.
fn go_type_name(value: &Value) -> &'static str {
    gantry_schema::go_type(value)
}

fn bad_patch(text: &str) -> StrategicError {
    StrategicError::BadPatch(text.to_owned())
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> StrategicError {
    StrategicError::Failed(format!(
        "unknown patch type: {} in map: {}",
        golang::plain(directive),
        golang::plain(&Value::Object(patch.clone()))
    ))
}

fn no_merge_key(element: &Map<String, Value>, key: &str) -> StrategicError {
    StrategicError::Failed(format!(
        "map: {} does not contain declared merge key: {key}",
        golang::plain(&Value::Object(element.clone()))
    ))
}

fn wrong_type(expected: &str, value: &Value) -> StrategicError {
    let received = if value.is_null() { "%!s(<nil>)" } else { go_type_name(value) };
    StrategicError::Failed(format!("expected a {expected}, but received a {received}"))
}

#[cfg(test)]
mod tests;
