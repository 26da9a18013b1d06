//! Removes fields that a schema does not declare.

use serde_json::{Map, Value};

use crate::path::Path;
use crate::tree::{NodeId, Schema, Shape};

/// Removes fields that the schema does not know, and answers their paths as warnings name them:
/// first those of the object's metadata, then all others, then those of embedded metadata, each
/// part in order.
///
/// Nothing is removed where unknown fields are preserved, but declared fields in there are again
/// pruned. `null` in known fields of metadata is taken for absence.
pub fn prune(schema: &Schema, object: &mut Value) -> Vec<String> {
    let mut found = walk(schema, object, WalkContext::Object);
    found.sort_unstable();
    found.into_iter().map(|(_, path)| path).collect()
}

/// As [`prune`], but the paths come in the order the fields were written, which is how those of
/// built-in kinds are reported.
pub fn prune_as_written(schema: &Schema, object: &mut Value) -> Vec<String> {
    walk(schema, object, WalkContext::Object).into_iter().map(|(_, path)| path).collect()
}

/// Removes fields that the schema of a part does not know, and answers whether there were any.
/// Those of embedded metadata do not count.
pub(crate) fn prune_part(schema: &Schema, value: &mut Value) -> bool {
    walk(schema, value, WalkContext::Inside).iter().any(|(part, _)| *part == WarningGroup::Field)
}

/// The paths of unknown fields, with the group they are reported in.
type UnknownFields = Vec<(WarningGroup, String)>;

/// The groups in which unknown fields are reported, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WarningGroup {
    Metadata,
    Field,
    EmbeddedMetadata,
}

fn walk(schema: &Schema, value: &mut Value, place: WalkContext) -> UnknownFields {
    let mut found = UnknownFields::new();
    Walk { schema, context: place }.node(schema.root(), value, &Path::ROOT, &mut found);
    found
}

/// Where a walk is, which decides how unknown fields are reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WalkContext {
    /// At the root of the object.
    Object,
    Inside,
    Metadata,
    EmbeddedMetadata,
}

#[derive(Clone, Copy)]
struct Walk<'schema> {
    schema: &'schema Schema,
    context: WalkContext,
}

impl Walk<'_> {
    fn node(self, id: NodeId, value: &mut Value, path: &Path<'_>, found: &mut UnknownFields) {
        match (&self.schema.node(id).shape, value) {
            (Shape::Struct { .. }, Value::Object(map)) => self.structure(id, map, path, found),
            (Shape::Map { values, .. }, Value::Object(map)) => {
                let walk = self.inside();
                for (key, value) in map.iter_mut() {
                    walk.node(*values, value, &path.entry(key), found);
                }
            }
            (Shape::List { items, .. }, Value::Array(list)) => {
                let walk = self.inside();
                for (index, item) in list.iter_mut().enumerate() {
                    walk.node(*items, item, &path.index(index), found);
                }
            }
            (Shape::Any | Shape::Struct { preserve_unknown: true, .. }, _) => {}
            // The value has another type than the schema says, so nothing in it is known.
            (
                Shape::Struct { .. } | Shape::Map { .. } | Shape::List { .. } | Shape::Scalar(_),
                value,
            ) => self.strip(value, path, found),
        }
    }

    fn structure(
        self,
        id: NodeId,
        map: &mut Map<String, Value>,
        path: &Path<'_>,
        found: &mut UnknownFields,
    ) {
        let Shape::Struct { fields, preserve_unknown, embedded, .. } = &self.schema.node(id).shape
        else {
            return;
        };
        let rest = self.schema.checks(id).and_then(|checks| checks.additional);
        let in_metadata =
            matches!(self.context, WalkContext::Metadata | WalkContext::EmbeddedMetadata);
        let is_object = self.context == WalkContext::Object;
        map.retain(|key, value| {
            if let Some(field) = fields.get(key.as_str()) {
                if in_metadata && value.is_null() {
                    return false;
                }
                let place = match key.as_str() {
                    "metadata" if is_object => WalkContext::Metadata,
                    "metadata" if *embedded => WalkContext::EmbeddedMetadata,
                    _ => self.inside().context,
                };
                let walk = Self { context: place, ..self };
                walk.node(field.node, value, &path.field(key), found);
                return true;
            }
            if let Some(rest) = rest {
                self.inside().node(rest, value, &path.entry(key), found);
                return true;
            }
            if !preserve_unknown {
                self.report(&path.field(key), found);
            }
            *preserve_unknown
        });
    }

    fn inside(self) -> Self {
        let place = match self.context {
            WalkContext::Object | WalkContext::Inside => WalkContext::Inside,
            WalkContext::Metadata | WalkContext::EmbeddedMetadata => self.context,
        };
        Self { context: place, ..self }
    }

    /// Empties every object in a value of which nothing is known.
    fn strip(self, value: &mut Value, path: &Path<'_>, found: &mut UnknownFields) {
        // Metadata of a wrong type is refused as a whole; there is nothing to save.
        if matches!(self.context, WalkContext::Metadata | WalkContext::EmbeddedMetadata) {
            return;
        }
        match value {
            Value::Object(map) => {
                for key in map.keys() {
                    self.report(&path.field(key), found);
                }
                map.clear();
            }
            Value::Array(list) => {
                for (index, item) in list.iter_mut().enumerate() {
                    self.strip(item, &path.index(index), found);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn report(self, path: &Path<'_>, found: &mut UnknownFields) {
        found.push(match self.context {
            WalkContext::Object | WalkContext::Inside => (WarningGroup::Field, path.in_warning()),
            WalkContext::Metadata => (WarningGroup::Metadata, path.in_warning()),
            WalkContext::EmbeddedMetadata => (WarningGroup::EmbeddedMetadata, path.in_cause()),
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::compile;

    #[test]
    fn paths_are_grouped_or_as_written() {
        let schema = compile(&json!({ "type": "object", "properties": {
            "spec": { "type": "object", "properties": { "a": { "type": "string" } } },
        } }))
        .unwrap();
        let object = json!({
            "spec": { "z": 1, "a": "x", "b": 2 }, "metadata": { "foo": 1, "name": "n", "uid": null },
            "bar": 2,
        });
        let (mut one, mut other) = (object.clone(), object);
        assert_eq!(prune(&schema, &mut one), ["metadata.foo", "bar", "spec.b", "spec.z"]);
        let written = prune_as_written(&schema, &mut other);
        assert_eq!(written, ["spec.z", "spec.b", "metadata.foo", "bar"]);
        assert_eq!(one, json!({ "spec": { "a": "x" }, "metadata": { "name": "n" } }));
        assert_eq!(one, other);
    }
}
