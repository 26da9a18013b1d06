//! A schema as it stands in a definition: `JSONSchemaProps`, read in place.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// One node of a schema. Members of another type than they should have count as absent: whether
/// a definition can be read at all is decided before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Props<'schema> {
    raw: &'schema Map<String, Value>,
}

/// What is said about entries that are not declared.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Additional<'schema> {
    /// Nothing.
    Absent,
    /// Whether they are allowed.
    Allowed(bool),
    /// What they are.
    Schema(Props<'schema>),
}

/// What is said about elements.
#[derive(Clone, Debug)]
pub(crate) enum Items<'schema> {
    /// Nothing.
    Absent,
    /// What all of them are.
    Schema(Props<'schema>),
    /// What each of them is; never valid.
    Each(Vec<Props<'schema>>),
}

impl<'schema> Props<'schema> {
    /// Reads a schema, if the value is an object.
    pub(crate) fn of(value: &'schema Value) -> Option<Self> {
        value.as_object().map(|raw| Self { raw })
    }

    /// A member that is there and not null.
    pub(crate) fn get(self, name: &str) -> Option<&'schema Value> {
        self.raw.get(name).filter(|value| !value.is_null())
    }

    /// A text, empty if absent.
    pub(crate) fn text(self, name: &str) -> &'schema str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// A text that tells absent from empty.
    pub(crate) fn optional_text(self, name: &str) -> Option<&'schema str> {
        self.get(name).and_then(Value::as_str)
    }

    /// A flag, off if absent.
    pub(crate) fn flag(self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or_default()
    }

    /// A flag that tells absent from off.
    pub(crate) fn optional_flag(self, name: &str) -> Option<bool> {
        self.get(name).and_then(Value::as_bool)
    }

    /// A whole number.
    pub(crate) fn integer(self, name: &str) -> Option<i64> {
        self.get(name).and_then(Value::as_i64)
    }

    /// A number.
    pub(crate) fn number(self, name: &str) -> Option<f64> {
        self.get(name).and_then(Value::as_f64)
    }

    /// The values of a list.
    pub(crate) fn list(self, name: &str) -> &'schema [Value] {
        self.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// The texts of a list.
    pub(crate) fn texts(self, name: &str) -> Vec<&'schema str> {
        self.list(name).iter().filter_map(Value::as_str).collect()
    }

    /// A schema.
    pub(crate) fn schema(self, name: &str) -> Option<Self> {
        self.get(name).and_then(Self::of)
    }

    /// A list of schemas.
    pub(crate) fn schemas(self, name: &str) -> Vec<Self> {
        self.list(name).iter().filter_map(Self::of).collect()
    }

    /// Schemas by name.
    pub(crate) fn table(self, name: &str) -> BTreeMap<&'schema str, Self> {
        let table = self.get(name).and_then(Value::as_object);
        let entries = table.into_iter().flatten();
        entries.filter_map(|(key, value)| Some((key.as_str(), Self::of(value)?))).collect()
    }

    /// The declared entries.
    pub(crate) fn properties(self) -> BTreeMap<&'schema str, Self> {
        self.table("properties")
    }

    /// `items`.
    pub(crate) fn items(self) -> Items<'schema> {
        match self.get("items") {
            Some(Value::Array(each)) => Items::Each(each.iter().filter_map(Self::of).collect()),
            Some(value) => Self::of(value).map_or(Items::Absent, Items::Schema),
            None => Items::Absent,
        }
    }

    /// The one schema of all elements.
    pub(crate) fn item(self) -> Option<Self> {
        match self.items() {
            Items::Schema(schema) => Some(schema),
            Items::Absent | Items::Each(_) => None,
        }
    }

    /// `additionalProperties`.
    pub(crate) fn additional(self) -> Additional<'schema> {
        match self.get("additionalProperties") {
            Some(Value::Bool(allowed)) => Additional::Allowed(*allowed),
            Some(value) => Self::of(value).map_or(Additional::Absent, Additional::Schema),
            None => Additional::Absent,
        }
    }

    /// The value of absent fields.
    pub(crate) fn default_value(self) -> Option<&'schema Value> {
        self.get("default")
    }

    /// `x-kubernetes-preserve-unknown-fields`.
    pub(crate) fn preserves_unknown_fields(self) -> bool {
        self.flag("x-kubernetes-preserve-unknown-fields")
    }

    /// `x-kubernetes-embedded-resource`.
    pub(crate) fn is_embedded(self) -> bool {
        self.flag("x-kubernetes-embedded-resource")
    }

    /// `x-kubernetes-int-or-string`.
    pub(crate) fn is_int_or_string(self) -> bool {
        self.flag("x-kubernetes-int-or-string")
    }

    /// `x-kubernetes-list-type`.
    pub(crate) fn list_type(self) -> Option<&'schema str> {
        self.optional_text("x-kubernetes-list-type")
    }

    /// `x-kubernetes-map-type`.
    pub(crate) fn map_type(self) -> Option<&'schema str> {
        self.optional_text("x-kubernetes-map-type")
    }

    /// `x-kubernetes-list-map-keys`.
    pub(crate) fn map_keys(self) -> Vec<&'schema str> {
        self.texts("x-kubernetes-list-map-keys")
    }

    /// Whether a member is there and says something: not null, off, empty or zero.
    pub(crate) fn is_set(self, name: &str) -> bool {
        self.get(name).is_some_and(|value| match value {
            Value::Null => false,
            Value::Bool(flag) => *flag,
            Value::Number(_) => true,
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
        })
    }

    /// The names of all members.
    pub(crate) fn members(self) -> impl Iterator<Item = &'schema str> {
        self.raw.keys().map(String::as_str)
    }
}
