//! Schemas of the built-in kinds: list keys, atomic fields, defaults.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, OnceLock};

use gantry_schema::{Builder, Field as SchemaField, Node, NodeId, Scalar, Schema, Shape};
use serde_json::Value;

use crate::types::{Field, Slot, Table, TypeId, ValueType, table};

/// Returns the schema of a type, built at first use.
///
/// Defaults are those of OpenAPI: values that belong to the identity of list elements, and Go's
/// zero values. They are not the defaults an API server sets.
#[must_use]
pub fn schema(id: TypeId) -> Arc<Schema> {
    static SCHEMAS: LazyLock<Vec<OnceLock<Arc<Schema>>>> =
        LazyLock::new(|| (0..table().count()).map(|_| OnceLock::new()).collect());
    let made = SCHEMAS[id.index()].get_or_init(|| {
        let mut maker =
            SchemaMaker { table: table(), builder: Builder::new(), nodes: HashMap::new() };
        let root = maker.object(id, false, None);
        Arc::new(maker.builder.build(root))
    });
    Arc::clone(made)
}

struct SchemaMaker {
    table: &'static Table,
    builder: Builder,
    /// Types refer to themselves; a node is built once for each way a type is used.
    nodes: HashMap<(TypeId, bool, Option<String>), NodeId>,
}

impl SchemaMaker {
    fn object(&mut self, id: TypeId, atomic: bool, default: Option<&Value>) -> NodeId {
        let ty = self.table.get(id);
        let atomic = atomic || ty.atomic;
        let key = (id, atomic, default.map(Value::to_string));
        if let Some(node) = self.nodes.get(&key) {
            return *node;
        }
        let node = self.builder.reserve();
        self.nodes.insert(key, node);
        let mut fields = BTreeMap::new();
        for field in &ty.fields {
            let made = SchemaField { node: self.field(field), merge: field.merge.clone() };
            fields.insert(field.name.clone(), made);
        }
        let shape = Shape::Struct { fields, atomic, preserve_unknown: false, embedded: false };
        self.builder.set(node, Node { shape, nullable: false, default: default.cloned() });
        node
    }

    fn field(&mut self, field: &'static Field) -> NodeId {
        let default = field.default.as_ref();
        let shape = match &field.slot.value_type {
            ValueType::Struct(id) => return self.object(*id, field.atomic, default),
            ValueType::List { items, .. } => {
                Shape::List { items: self.slot(items), list_type: field.list_type.clone() }
            }
            ValueType::Map(values) => {
                Shape::Map { values: self.slot(values), atomic: field.atomic }
            }
            other => leaf(other),
        };
        self.builder.add(Node { shape, nullable: false, default: default.cloned() })
    }

    fn slot(&mut self, slot: &'static Slot) -> NodeId {
        let shape = match &slot.value_type {
            ValueType::Struct(id) => return self.object(*id, false, None),
            ValueType::List { items, .. } => {
                let items = self.slot(items);
                Shape::List { items, list_type: gantry_schema::ListType::Atomic }
            }
            ValueType::Map(values) => Shape::Map { values: self.slot(values), atomic: false },
            other => leaf(other),
        };
        self.builder.add(Node { shape, nullable: false, default: None })
    }
}

fn leaf(make: &ValueType) -> Shape {
    match make {
        ValueType::String | ValueType::Bytes | ValueType::Time | ValueType::MicroTime => {
            Shape::Scalar(Scalar::String)
        }
        ValueType::Int32 | ValueType::Int64 => Shape::Scalar(Scalar::Integer),
        ValueType::Float => Shape::Scalar(Scalar::Number),
        ValueType::Bool => Shape::Scalar(Scalar::Boolean),
        ValueType::Quantity | ValueType::IntOrString => Shape::Scalar(Scalar::IntOrString),
        ValueType::Raw(_)
        | ValueType::SchemaOrBool(_)
        | ValueType::SchemaOrArray(_)
        | ValueType::SchemaOrStrings(_)
        | ValueType::Struct(_)
        | ValueType::List { .. }
        | ValueType::Map(_) => Shape::Any,
    }
}
