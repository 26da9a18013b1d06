//! The types that expressions get from a schema.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gantry_cel::{Field, ListKind, ListType as CelList, MapType, ObjectType, Type, escape};
use serde_json::Value;

use crate::checks::{Checks, Kind};
use crate::tree::{ListType, NodeId, Schema, Shape};

/// What `self` is to the rules of a node; none where the schema says too little: of content that is
/// merely kept, expressions see nothing.
///
/// The root of the schema and embedded objects have `apiVersion`, `kind` and the names in
/// `metadata` whether the schema declares them or not. That a value may be null is not part of its
/// type.
///
/// The schema is expected to be one of a definition: those of built-in kinds declare no types.
#[must_use]
pub fn cel_type(schema: &Schema, node: NodeId) -> Option<Type> {
    Types::new(schema).of(node, node == schema.root(), "self")
}

/// The types of a schema, each made once: those of parts are shared by the types around them.
pub(super) struct Types<'schema> {
    schema: &'schema Schema,
    cache: HashMap<NodeId, Option<Type>>,
}

impl<'schema> Types<'schema> {
    pub(super) fn new(schema: &'schema Schema) -> Self {
        Self { schema, cache: HashMap::new() }
    }

    /// The type of a node. `name` is what messages call it if it is an object; with `is_object` it
    /// is a whole one although the schema does not say that it is embedded.
    pub(super) fn of(&mut self, id: NodeId, is_object: bool, name: &str) -> Option<Type> {
        if let Some(known) = self.cache.get(&id) {
            return known.clone();
        }
        let ty = self.declared(id, is_object, name);
        self.cache.insert(id, ty.clone());
        ty
    }

    fn declared(&mut self, id: NodeId, is_object: bool, name: &str) -> Option<Type> {
        let schema = self.schema;
        let checks = schema.checks(id)?;
        Some(match checks.kind? {
            Kind::IntegerOrString => Type::IntOrString { max_length: size(checks.max_length) },
            Kind::Boolean => Type::Bool,
            Kind::Integer => Type::Int,
            Kind::Number => Type::Double,
            Kind::String => text(checks),
            Kind::Array => {
                let Shape::List { items, list_type } = &schema.node(id).shape else { return None };
                let kind = match list_type {
                    ListType::Atomic => ListKind::Atomic,
                    ListType::Set => ListKind::Set,
                    ListType::Map(keys) => {
                        ListKind::Map(keys.iter().map(|key| (**key).into()).collect())
                    }
                };
                let element = self.of(*items, false, &format!("{name}.@idx"))?;
                Type::List(Arc::new(CelList { element, kind, max_items: size(checks.max_items) }))
            }
            Kind::Object => match &schema.node(id).shape {
                Shape::Map { values, .. } if schema.checks(*values).is_some() => {
                    let value = self.of(*values, false, &format!("{name}.@elem"))?;
                    let max_properties = size(checks.max_properties);
                    Type::Map(Arc::new(MapType { key: Type::string(), value, max_properties }))
                }
                Shape::Struct { embedded, .. } => self.object(id, is_object || *embedded, name),
                Shape::Map { .. } | Shape::List { .. } | Shape::Scalar(_) | Shape::Any => {
                    object(name, BTreeMap::new())
                }
            },
        })
    }

    fn object(&mut self, id: NodeId, is_object: bool, name: &str) -> Type {
        let schema = self.schema;
        let Shape::Struct { fields, .. } = &schema.node(id).shape else {
            return object(name, BTreeMap::new());
        };
        let required =
            schema.checks(id).map(|checks| checks.required.as_slice()).unwrap_or_default();
        let mut seen = BTreeMap::new();
        let mut see = |json: &str, ty: Type, has_default: bool| {
            if let Some(escaped) = escape(json) {
                let required = !has_default && required.iter().any(|name| **name == *json);
                seen.insert(escaped, Field { json: json.to_owned(), ty, required });
            }
        };
        let is_completed = is_object && !self.declares_names(id);
        for (json, field) in fields {
            if is_completed && matches!(&**json, "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let part = format!("{name}.{}", escape(json).unwrap_or_default());
            if let Some(ty) = self.of(field.node, false, &part) {
                see(json, ty, schema.node(field.node).default.is_some());
            }
        }
        if is_completed {
            let names = ["name", "generateName"].map(|name| (name.to_owned(), Type::string()));
            let metadata = Type::object(&format!("{name}.metadata"), names);
            if let Some(field) = fields.get("metadata") {
                self.cache.insert(field.node, Some(metadata.clone()));
            }
            see("metadata", metadata, false);
            see("apiVersion", Type::string(), false);
            see("kind", Type::string(), false);
        }
        object(name, seen)
    }

    /// Whether a schema declares all that expressions see of a whole object. If not, none of what
    /// it declares of them counts.
    fn declares_names(&self, id: NodeId) -> bool {
        let schema = self.schema;
        let is = |id: NodeId, name: &str, kind: Kind| {
            let part = schema.entry(id, name)?;
            (schema.checks(part)?.kind? == kind).then_some(part)
        };
        is(id, "kind", Kind::String).is_some()
            && is(id, "apiVersion", Kind::String).is_some()
            && is(id, "metadata", Kind::Object).is_some_and(|metadata| {
                ["name", "generateName"]
                    .into_iter()
                    .all(|name| is(metadata, name, Kind::String).is_some())
            })
    }
}

fn object(name: &str, fields: BTreeMap<String, Field>) -> Type {
    Type::Object(Arc::new(ObjectType { name: name.into(), fields }))
}

fn text(checks: &Checks) -> Type {
    let max_length = size(checks.max_length);
    match checks.format.as_ref().map(crate::format::Format::name) {
        Some("byte") => Type::Bytes { max_length },
        Some("duration") => Type::Duration,
        Some("date") => Type::Date,
        Some("date-time") => Type::Timestamp,
        Some(_) | None => {
            let longest = || {
                let texts = checks.enum_values.iter().filter_map(Value::as_str);
                // A limit counts characters of up to four bytes, and the bytes are known here.
                texts.map(|text| u64::try_from(text.len().div_ceil(4)).unwrap_or(u64::MAX)).max()
            };
            let chosen = if checks.enum_values.is_empty() { None } else { longest().or(Some(0)) };
            Type::String { max_length: max_length.or(chosen) }
        }
    }
}

/// A declared limit; one below zero is as good as zero.
fn size(limit: Option<i64>) -> Option<u64> {
    limit.map(|limit| u64::try_from(limit).unwrap_or(0))
}
