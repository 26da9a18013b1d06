//! Drops what a schema does not know.

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
    let mut found = walk(schema, object, Place::Object);
    found.sort_unstable();
    found.into_iter().map(|(_, path)| path).collect()
}

/// As [`prune`], but the paths come in the order the fields were written, which is how those of
/// built-in kinds are told.
pub fn prune_as_written(schema: &Schema, object: &mut Value) -> Vec<String> {
    walk(schema, object, Place::Object).into_iter().map(|(_, path)| path).collect()
}

/// Removes fields that the schema of a part does not know, and answers whether there were any.
/// Those of embedded metadata do not count.
pub(crate) fn prune_part(schema: &Schema, value: &mut Value) -> bool {
    walk(schema, value, Place::Inside).iter().any(|(part, _)| *part == Part::Field)
}

/// The paths of unknown fields, with the part they are told in.
type Found = Vec<(Part, String)>;

/// The parts in which unknown fields are told, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Metadata,
    Field,
    EmbeddedMetadata,
}

fn walk(schema: &Schema, value: &mut Value, place: Place) -> Found {
    let mut found = Found::new();
    Walk { schema, place }.node(schema.root(), value, &Path::ROOT, &mut found);
    found
}

/// Where a walk is, which decides how unknown fields are told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the root of the object.
    Object,
    Inside,
    Metadata,
    EmbeddedMetadata,
}

#[derive(Clone, Copy)]
struct Walk<'schema> {
    schema: &'schema Schema,
    place: Place,
}

impl Walk<'_> {
    fn node(self, id: NodeId, value: &mut Value, path: &Path<'_>, found: &mut Found) {
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
        found: &mut Found,
    ) {
        let Shape::Struct { fields, preserve_unknown, embedded, .. } = &self.schema.node(id).shape
        else {
            return;
        };
        let rest = self.schema.checks(id).and_then(|checks| checks.rest);
        let in_metadata = matches!(self.place, Place::Metadata | Place::EmbeddedMetadata);
        let is_object = self.place == Place::Object;
        map.retain(|key, value| {
            if let Some(field) = fields.get(key.as_str()) {
                if in_metadata && value.is_null() {
                    return false;
                }
                let place = match key.as_str() {
                    "metadata" if is_object => Place::Metadata,
                    "metadata" if *embedded => Place::EmbeddedMetadata,
                    _ => self.inside().place,
                };
                let walk = Self { place, ..self };
                walk.node(field.node, value, &path.field(key), found);
                return true;
            }
            if let Some(rest) = rest {
                self.inside().node(rest, value, &path.entry(key), found);
                return true;
            }
            if !preserve_unknown {
                self.tell(&path.field(key), found);
            }
            *preserve_unknown
        });
    }

    fn inside(self) -> Self {
        let place = match self.place {
            Place::Object | Place::Inside => Place::Inside,
            Place::Metadata | Place::EmbeddedMetadata => self.place,
        };
        Self { place, ..self }
    }

    /// Empties every object in a value of which nothing is known.
    fn strip(self, value: &mut Value, path: &Path<'_>, found: &mut Found) {
        // Metadata of a wrong type is refused as a whole; there is nothing to save.
        if matches!(self.place, Place::Metadata | Place::EmbeddedMetadata) {
            return;
        }
        match value {
            Value::Object(map) => {
                for key in map.keys() {
                    self.tell(&path.field(key), found);
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

    fn tell(self, path: &Path<'_>, found: &mut Found) {
        found.push(match self.place {
            Place::Object | Place::Inside => (Part::Field, path.in_warning()),
            Place::Metadata => (Part::Metadata, path.in_warning()),
            Place::EmbeddedMetadata => (Part::EmbeddedMetadata, path.in_cause()),
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::compile;

    #[test]
    fn paths_come_by_part_or_as_written() {
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
