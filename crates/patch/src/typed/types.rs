//! The type of a value, for ownership.

use gantry_schema::{ListType, NodeId, Scalar, Schema, Shape};
use serde_json::Value;

use super::metadata;
use crate::path::PathElement;

/// The type of one value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Type<'a> {
    /// A node of a schema. A whole object always has `apiVersion`, `kind` and `metadata`.
    Declared { schema: &'a Schema, node: NodeId, whole_object: bool },
    /// Taken from the value: maps by field, lists as a whole.
    Deduced,
    /// Taken from the value, which is one as a whole.
    Opaque,
    /// Text.
    Text,
}

/// What a type is for a value at hand.
#[derive(Clone, Copy, Debug)]
pub(super) enum TypeForm<'a> {
    Scalar(Scalar),
    List(List<'a>),
    Map(MapForm<'a>),
}

/// A list type.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<'a> {
    pub(super) items: Type<'a>,
    pub(super) list_type: &'a ListType,
}

/// A struct or map type.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapForm<'a> {
    declared: Option<(&'a Schema, NodeId)>,
    whole_object: bool,
    /// The type of entries that are not declared, if there may be any.
    pub(super) others: Option<Type<'a>>,
    pub(super) atomic: bool,
}

static ATOMIC: ListType = ListType::Atomic;

impl<'a> Type<'a> {
    /// The type of the objects of a schema.
    pub(super) fn root(schema: &'a Schema) -> Self {
        Self::Declared { schema, node: schema.root(), whole_object: true }
    }

    /// What the type is for `value`. Where a value does not tell, a type that leaves it open is a
    /// map.
    pub(super) fn form(self, value: Option<&Value>) -> TypeForm<'a> {
        let (schema, node, whole_object) = match self {
            Self::Declared { schema, node, whole_object } => (schema, node, whole_object),
            Self::Deduced => return open_form(value, Self::Deduced, false),
            Self::Opaque => return open_form(value, Self::Opaque, true),
            Self::Text => return TypeForm::Scalar(Scalar::String),
        };
        let declared = Some((schema, node));
        // Entries that are declared without a type bind maps only; anything else may stand there.
        let untyped = schema.checks(node).is_some_and(|checks| checks.kind.is_none());
        match &schema.node(node).shape {
            Shape::Struct { .. } if untyped && value.is_some_and(is_no_map) => {
                open_form(value, Self::Deduced, false)
            }
            Shape::Any => open_form(value, Self::Deduced, false),
            Shape::Scalar(scalar) => TypeForm::Scalar(*scalar),
            Shape::List { items, list_type } => {
                let items = Self::Declared { schema, node: *items, whole_object: false };
                TypeForm::List(List { items, list_type })
            }
            Shape::Map { values, atomic } => {
                let others = Self::Declared { schema, node: *values, whole_object: false };
                TypeForm::Map(MapForm {
                    declared: None,
                    whole_object: false,
                    others: Some(others),
                    atomic: *atomic,
                })
            }
            Shape::Struct { fields, atomic, preserve_unknown, embedded } => {
                // An object that declares nothing is as open as one that says so.
                let open = *preserve_unknown || fields.is_empty();
                TypeForm::Map(MapForm {
                    declared,
                    whole_object: whole_object || *embedded,
                    others: open.then_some(Self::Deduced),
                    atomic: *atomic,
                })
            }
        }
    }

    /// Whether the type is taken from the value, maps by field.
    pub(super) fn is_deduced(self) -> bool {
        match self {
            Self::Declared { schema, node, .. } => matches!(schema.node(node).shape, Shape::Any),
            Self::Deduced => true,
            Self::Opaque | Self::Text => false,
        }
    }

    /// Whether `element` is a declared field of this type, and the type behind it.
    pub(super) fn step(self, element: &PathElement) -> (bool, Option<Self>) {
        match (element, self.form(None)) {
            (PathElement::Field(name), TypeForm::Map(map)) => match map.field(name) {
                Some(field) => (true, Some(field)),
                None => (false, map.others),
            },
            (PathElement::Key(_), TypeForm::List(list)) => (false, Some(list.items)),
            _ => (false, None),
        }
    }
}

fn is_no_map(value: &Value) -> bool {
    match value {
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => true,
        Value::Null | Value::Object(_) => false,
    }
}

fn open_form<'a>(value: Option<&Value>, others: Type<'a>, atomic: bool) -> TypeForm<'a> {
    match value {
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            TypeForm::Scalar(Scalar::Untyped)
        }
        Some(Value::Array(_)) => TypeForm::List(List { items: Type::Opaque, list_type: &ATOMIC }),
        None | Some(Value::Null | Value::Object(_)) => TypeForm::Map(MapForm {
            declared: None,
            whole_object: false,
            others: Some(others),
            atomic,
        }),
    }
}

impl<'a> MapForm<'a> {
    /// The type of the declared entry `name`.
    pub(super) fn field(self, name: &str) -> Option<Type<'a>> {
        let declared = self.declared.and_then(|(schema, node)| {
            let node = schema.entry(node, name)?;
            Some(Type::Declared { schema, node, whole_object: false })
        });
        if !self.whole_object {
            return declared;
        }
        match name {
            "apiVersion" | "kind" => Some(declared.unwrap_or(Type::Text)),
            // Definitions may restrict the metadata, but they do not say how it is owned.
            "metadata" => declared
                .filter(|declared| metadata::is_object_metadata(*declared))
                .or_else(|| Some(Type::root_of_metadata())),
            _ => declared,
        }
    }

    /// The type of the entry `name`, declared or not.
    pub(super) fn entry(self, name: &str) -> Option<Type<'a>> {
        self.field(name).or(self.others)
    }
}

impl Type<'_> {
    fn root_of_metadata() -> Self {
        let schema = metadata::object_metadata();
        Self::Declared { schema, node: schema.root(), whole_object: false }
    }
}

impl List<'_> {
    /// Whether the list is one value.
    pub(super) fn is_atomic(self) -> bool {
        *self.list_type == ListType::Atomic
    }
}
