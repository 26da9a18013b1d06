//! The table of types: the fields of each kind, in the order and with the names of Go.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use gantry_schema::{ListType, MergeStrategy};
use serde_json::Value;

mod load;

/// The index of a type in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(u16);

/// Returns the type of a kind, if Kubernetes has it. `group` is empty for the core kinds.
///
/// The kinds are those of every served group and version, with their lists and options, and the
/// options in `meta.k8s.io/v1`.
#[must_use]
pub fn kind_type(group: &str, version: &str, kind: &str) -> Option<TypeId> {
    let versions = table().kinds.get(kind)?;
    let found = versions.iter().find(|known| &*known.group == group && &*known.version == version);
    found.map(|known| known.id)
}

/// Returns the type that OpenAPI calls `name`, as in `io.k8s.api.core.v1.PodSpec`.
#[must_use]
pub fn named_type(name: &str) -> Option<TypeId> {
    table().names.get(name).copied()
}

impl TypeId {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns its OpenAPI name, as in `io.k8s.api.core.v1.PodSpec`.
    #[must_use]
    pub fn name(self) -> &'static str {
        &table().get(self).name
    }

    /// Returns the names of its fields in the order in which they are written.
    pub fn fields(self) -> impl Iterator<Item = &'static str> {
        table().get(self).fields.iter().map(|field| &*field.name)
    }

    /// Returns the closed set of values of a field (or of its elements), if it has one.
    #[must_use]
    pub fn enum_of(self, field: &str) -> Option<&'static [Box<str>]> {
        let field = table().get(self).field(field)?;
        if field.allowed.is_empty() { None } else { Some(&field.allowed) }
    }

    /// Returns whether OpenAPI requires a field.
    #[must_use]
    pub fn requires(self, field: &str) -> bool {
        table().get(self).field(field).is_some_and(|field| field.required)
    }
}

/// The whole table.
#[derive(Debug)]
pub(crate) struct Table {
    types: Vec<Type>,
    names: HashMap<Box<str>, TypeId>,
    kinds: HashMap<Box<str>, Vec<KindVersion>>,
}

/// One kind of one version of one group.
#[derive(Debug)]
struct KindVersion {
    group: Box<str>,
    version: Box<str>,
    id: TypeId,
}

/// One Go struct.
#[derive(Debug)]
pub(crate) struct Type {
    /// Its OpenAPI name.
    pub(crate) name: Box<str>,
    /// Its Go name, as in `v1.PodSpec`.
    pub(crate) go: Box<str>,
    /// Owned and replaced as a whole.
    pub(crate) atomic: bool,
    /// Whether an empty list that must be written stays a list. The wire format does not
    /// distinguish an empty list from none, so kinds that are stored in it write `null`; CRDs and
    /// APIServices are stored as JSON.
    pub(crate) keeps_empty: bool,
    /// The fields in the order in which Go writes them, those of embedded structs included.
    pub(crate) fields: Vec<Field>,
    /// The meaning of the field numbers on the wire, ascending.
    pub(crate) wire: Vec<(u32, Wire)>,
    field_indexes: HashMap<Box<str>, usize>,
    zero: OnceLock<Value>,
}

/// The meaning of a field number on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wire {
    /// The field at this index.
    Field(usize),
    /// An embedded struct: a message of its own on the wire, but not in JSON.
    Embedded(TypeId),
}

/// One field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    /// Its name in JSON.
    pub(crate) name: Box<str>,
    /// Its type.
    pub(crate) slot: Slot,
    /// When it is left out.
    pub(crate) omit: Omit,
    /// Its strategic merge patch behaviour.
    pub(crate) merge: MergeStrategy,
    /// The keys of its elements.
    pub(crate) list_type: ListType,
    /// Owned and replaced as a whole.
    pub(crate) atomic: bool,
    required: bool,
    allowed: Vec<Box<str>>,
    /// The default according to OpenAPI.
    pub(crate) default: Option<Value>,
}

/// When a field is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Omit {
    /// Never.
    Never,
    /// When it is empty; a struct never is.
    Empty,
    /// When it is zero, a struct too.
    Zero,
}

/// The type of a value.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The type itself.
    pub(crate) value_type: ValueType,
    /// Its Go name, as in `[]v1.Container`.
    pub(crate) go: Box<str>,
    /// Whether zero is a value and not the absence of one.
    pub(crate) pointer: bool,
}

/// The kinds of types.
#[derive(Debug)]
pub(crate) enum ValueType {
    String,
    Int32,
    Int64,
    Float,
    Bool,
    Bytes,
    /// A time, in seconds.
    Time,
    /// A time, in microseconds.
    MicroTime,
    Quantity,
    IntOrString,
    /// Any JSON, kept as it is.
    Raw(RawKind),
    SchemaOrBool(TypeId),
    SchemaOrArray(TypeId),
    SchemaOrStrings(TypeId),
    Struct(TypeId),
    List {
        items: Box<Slot>,
        /// A message of its own on the wire, with the elements inside.
        wrapped: bool,
    },
    Map(Box<Slot>),
}

/// The types that keep JSON as it is; on the wire they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawKind {
    /// `runtime.RawExtension`: JSON, or a whole object in an envelope.
    Extension,
    /// `FieldsV1` and `JSON`: JSON alone.
    Json,
}

impl Table {
    pub(crate) fn get(&self, id: TypeId) -> &Type {
        &self.types[id.index()]
    }

    pub(crate) fn count(&self) -> u16 {
        u16::try_from(self.types.len()).expect("the table is loaded with checked places")
    }
}

impl Type {
    /// Returns its Go name inside its package.
    pub(crate) fn short(&self) -> &str {
        self.go.rsplit('.').next().unwrap_or(&self.go)
    }

    pub(crate) fn field_index(&self, name: &str) -> Option<usize> {
        self.field_indexes.get(name).copied()
    }

    fn field(&self, name: &str) -> Option<&Field> {
        self.field_index(name).map(|place| &self.fields[place])
    }

    /// Returns what Go writes when nothing was set.
    pub(crate) fn zero(&self, table: &Table) -> Value {
        let written = self.zero.get_or_init(|| {
            let unset = self.fields.iter().filter(|field| field.is_written_unset());
            unset.map(|field| (field.name.to_string(), field.slot.zero(table))).collect()
        });
        written.clone()
    }
}

impl Field {
    /// Returns whether it is written although nothing was set.
    pub(crate) fn is_written_unset(&self) -> bool {
        match self.omit {
            Omit::Never => true,
            Omit::Zero => false,
            Omit::Empty => !self.slot.pointer && self.slot.value_type.is_go_struct(),
        }
    }
}

impl Slot {
    /// Returns what Go writes when nothing was set.
    pub(crate) fn zero(&self, table: &Table) -> Value {
        if self.pointer {
            return Value::Null;
        }
        match &self.value_type {
            ValueType::String => Value::from(""),
            ValueType::Int32 | ValueType::Int64 | ValueType::Float | ValueType::IntOrString => {
                Value::from(0)
            }
            ValueType::Bool => Value::from(false),
            ValueType::Quantity => Value::from("0"),
            ValueType::Struct(id) => table.get(*id).zero(table),
            ValueType::Bytes
            | ValueType::Time
            | ValueType::MicroTime
            | ValueType::Raw(_)
            | ValueType::SchemaOrBool(_)
            | ValueType::SchemaOrArray(_)
            | ValueType::SchemaOrStrings(_)
            | ValueType::List { .. }
            | ValueType::Map(_) => Value::Null,
        }
    }
}

impl ValueType {
    fn is_go_struct(&self) -> bool {
        match self {
            Self::Time
            | Self::MicroTime
            | Self::Quantity
            | Self::IntOrString
            | Self::Raw(_)
            | Self::SchemaOrBool(_)
            | Self::SchemaOrArray(_)
            | Self::SchemaOrStrings(_)
            | Self::Struct(_) => true,
            Self::String
            | Self::Int32
            | Self::Int64
            | Self::Float
            | Self::Bool
            | Self::Bytes
            | Self::List { .. }
            | Self::Map(_) => false,
        }
    }
}

/// The table, loaded at first use.
pub(crate) fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(load::table);
    &TABLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_group_version_and_kind() {
        let table = [
            ("", "v1", "Pod", Some("io.k8s.api.core.v1.Pod")),
            ("apps", "v1", "Deployment", Some("io.k8s.api.apps.v1.Deployment")),
            ("events.k8s.io", "v1", "Event", Some("io.k8s.api.events.v1.Event")),
            ("", "v1", "Event", Some("io.k8s.api.core.v1.Event")),
            (
                "policy",
                "v1",
                "DeleteOptions",
                Some("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"),
            ),
            (
                "meta.k8s.io",
                "v1",
                "DeleteOptions",
                Some("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"),
            ),
            ("apps", "v1beta1", "Deployment", None),
            ("", "v1", "Widget", None),
        ];
        for (group, version, kind, expected) in table {
            assert_eq!(kind_type(group, version, kind).map(TypeId::name), expected, "{kind}");
        }
    }

    #[test]
    fn closed_sets_and_required_fields_are_known() {
        let container = named_type("io.k8s.api.core.v1.Container").unwrap();
        let pull = container.enum_of("imagePullPolicy").unwrap();
        assert_eq!(
            pull.iter().map(|word| &**word).collect::<Vec<_>>(),
            ["Always", "IfNotPresent", "Never"]
        );
        assert_eq!(container.enum_of("image"), None);
        assert!(container.requires("name"));
        assert!(!container.requires("image"));
    }

    #[test]
    fn every_type_can_be_written_unset() {
        for place in 0..table().count() {
            assert!(table().get(TypeId(place)).zero(table()).is_object());
        }
    }
}
