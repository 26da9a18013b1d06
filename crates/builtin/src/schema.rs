//! The kinds as schemas: how their lists are keyed, what is replaced as a whole, what defaults.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, OnceLock};

use gantry_schema::{Builder, Field as SchemaField, Node, NodeId, Scalar, Schema, Shape};
use serde_json::Value;

use crate::types::{Field, Make, Slot, Table, TypeId, table};

/// The schema of a type, made at first use.
///
/// Defaults are those of OpenAPI: what decides the identity of list elements, and what Go's zero
/// values look like. They are not the defaults an API server sets.
#[must_use]
pub fn schema(id: TypeId) -> Arc<Schema> {
    static MADE: LazyLock<Vec<OnceLock<Arc<Schema>>>> =
        LazyLock::new(|| (0..table().count()).map(|_| OnceLock::new()).collect());
    let made = MADE[id.place()].get_or_init(|| {
        let mut maker = Maker { table: table(), builder: Builder::new(), made: HashMap::new() };
        let root = maker.object(id, false, None);
        Arc::new(maker.builder.build(root))
    });
    Arc::clone(made)
}

struct Maker {
    table: &'static Table,
    builder: Builder,
    /// Types refer to themselves; a node is made once for each way a type is used.
    made: HashMap<(TypeId, bool, Option<String>), NodeId>,
}

impl Maker {
    fn object(&mut self, id: TypeId, atomic: bool, default: Option<&Value>) -> NodeId {
        let ty = self.table.get(id);
        let atomic = atomic || ty.atomic;
        let key = (id, atomic, default.map(Value::to_string));
        if let Some(node) = self.made.get(&key) {
            return *node;
        }
        let node = self.builder.reserve();
        self.made.insert(key, node);
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
        let shape = match &field.slot.make {
            Make::Struct(id) => return self.object(*id, field.atomic, default),
            Make::List { items, .. } => {
                Shape::List { items: self.slot(items), list_type: field.list_type.clone() }
            }
            Make::Map(values) => Shape::Map { values: self.slot(values), atomic: field.atomic },
            other => leaf(other),
        };
        self.builder.add(Node { shape, nullable: false, default: default.cloned() })
    }

    fn slot(&mut self, slot: &'static Slot) -> NodeId {
        let shape = match &slot.make {
            Make::Struct(id) => return self.object(*id, false, None),
            Make::List { items, .. } => {
                let items = self.slot(items);
                Shape::List { items, list_type: gantry_schema::ListType::Atomic }
            }
            Make::Map(values) => Shape::Map { values: self.slot(values), atomic: false },
            other => leaf(other),
        };
        self.builder.add(Node { shape, nullable: false, default: None })
    }
}

fn leaf(make: &Make) -> Shape {
    match make {
        Make::String | Make::Bytes | Make::Time | Make::MicroTime => Shape::Scalar(Scalar::String),
        Make::Int32 | Make::Int64 => Shape::Scalar(Scalar::Integer),
        Make::Float => Shape::Scalar(Scalar::Number),
        Make::Bool => Shape::Scalar(Scalar::Boolean),
        Make::Quantity | Make::IntOrString => Shape::Scalar(Scalar::IntOrString),
        Make::Raw(_)
        | Make::SchemaOrBool(_)
        | Make::SchemaOrArray(_)
        | Make::SchemaOrStrings(_)
        | Make::Struct(_)
        | Make::List { .. }
        | Make::Map(_) => Shape::Any,
    }
}
