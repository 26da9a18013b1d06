//! Structural schemas: the content of a CustomResourceDefinition, and validation of objects with
//! it.
//!
//! One schema has three readers: the API server that enforces it, `kubectl explain` that prints it,
//! and `gantry check` that applies it without a server, with the messages a server would use.

mod check;
mod structural;

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

pub use check::{Rule, Violation, nearest};
pub use structural::{described, of};

/// A structural schema, compiled for checking.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    kind: Kind,
    nullable: bool,
    preserve_unknown: bool,
    embedded: bool,
    properties: BTreeMap<String, Schema>,
    additional: Option<Box<Schema>>,
    required: Vec<String>,
    items: Option<Box<Schema>>,
    list: ListType,
    allowed: Vec<Value>,
    pattern: Option<Regex>,
    format: Option<String>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    max_properties: Option<u64>,
}

/// The type of value a schema requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// Which elements of a list may not be equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SchemaError {
    /// A part that must be an object (or a list, or a text) is not.
    #[error("schema at {at}: {name} has the wrong shape")]
    Shape {
        /// Where in the schema.
        at: String,
        /// The key.
        name: &'static str,
    },
    /// A type that structural schemas do not have.
    #[error("schema at {at}: unknown type \"{found}\"")]
    Type {
        /// Where in the schema.
        at: String,
        /// The type given.
        found: String,
    },
    /// A pattern that is not a regular expression.
    #[error("schema at {at}: pattern does not compile")]
    Pattern {
        /// Where in the schema.
        at: String,
        /// The message of the engine.
        source: regex::Error,
    },
}

impl Schema {
    /// Compiles an OpenAPI v3 structural schema.
    ///
    /// # Errors
    /// Names the place of the first part that is not a structural schema.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        compile(schema, "")
    }

    /// The schema of entry `name`, if objects of this schema may have it.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    /// The schema of list elements.
    #[must_use]
    pub fn element(&self) -> Option<&Self> {
        self.items.as_deref()
    }

    /// The names of the declared entries.
    pub fn entry_names(&self) -> impl Iterator<Item = &str> {
        self.properties.keys().map(String::as_str)
    }

    /// Whether objects of this schema keep entries that it does not declare.
    #[must_use]
    pub fn keeps_unknown(&self) -> bool {
        self.preserve_unknown || (self.kind == Kind::Any && self.properties.is_empty())
    }

    /// Whether this is an amount: a whole number, or a text such as `500m`.
    #[must_use]
    pub fn is_quantity(&self) -> bool {
        self.kind == Kind::IntOrString && self.pattern.is_some()
    }

    /// Returns whether `null` is a value here and not a way to leave the field out.
    #[must_use]
    pub fn is_nullable(&self) -> bool {
        self.nullable
    }
}

fn compile(schema: &Value, at: &str) -> Result<Schema, SchemaError> {
    let shape = |name| SchemaError::Shape { at: at.to_owned(), name };
    let fields = schema.as_object().ok_or_else(|| shape("schema"))?;
    let flag = |name: &str| fields.get(name).and_then(Value::as_bool).unwrap_or(false);
    let count = |name: &str| fields.get(name).and_then(Value::as_f64).map(whole);

    let mut compiled = Schema {
        kind: kind(fields, at)?,
        nullable: flag("nullable"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        list: list_type(fields),
        format: fields.get("format").and_then(Value::as_str).map(str::to_owned),
        minimum: fields.get("minimum").and_then(Value::as_f64),
        maximum: fields.get("maximum").and_then(Value::as_f64),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        max_properties: count("maxProperties"),
        ..Schema::default()
    };
    if let Some(properties) = fields.get("properties") {
        for (name, part) in properties.as_object().ok_or_else(|| shape("properties"))? {
            let part = compile(part, &format!("{at}.{name}"))?;
            compiled.properties.insert(name.clone(), part);
        }
    }
    match fields.get("additionalProperties") {
        None | Some(Value::Bool(false)) => {}
        Some(Value::Bool(true)) => compiled.preserve_unknown = true,
        Some(part) => compiled.additional = Some(Box::new(compile(part, &format!("{at}[*]"))?)),
    }
    if let Some(items) = fields.get("items") {
        compiled.items = Some(Box::new(compile(items, &format!("{at}[]"))?));
    }
    if let Some(required) = fields.get("required") {
        let required = required.as_array().ok_or_else(|| shape("required"))?;
        compiled.required = required.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    }
    if let Some(allowed) = fields.get("enum") {
        compiled.allowed.clone_from(allowed.as_array().ok_or_else(|| shape("enum"))?);
    }
    if let Some(pattern) = fields.get("pattern").and_then(Value::as_str) {
        let pattern = Regex::new(pattern)
            .map_err(|source| SchemaError::Pattern { at: at.to_owned(), source })?;
        compiled.pattern = Some(pattern);
    }
    Ok(compiled)
}

/// Counts in schemas are small; derive macros write some of them as `2.0`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float beyond u64 saturates, which is what an absurd limit should do"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

fn kind(fields: &Map<String, Value>, at: &str) -> Result<Kind, SchemaError> {
    if fields.get("x-kubernetes-int-or-string").and_then(Value::as_bool) == Some(true) {
        return Ok(Kind::IntOrString);
    }
    match fields.get("type").and_then(Value::as_str) {
        None => Ok(Kind::Any),
        Some("object") => Ok(Kind::Object),
        Some("array") => Ok(Kind::Array),
        Some("string") => Ok(Kind::String),
        Some("integer") => Ok(Kind::Integer),
        Some("number") => Ok(Kind::Number),
        Some("boolean") => Ok(Kind::Boolean),
        Some(other) => Err(SchemaError::Type { at: at.to_owned(), found: other.to_owned() }),
    }
}

fn list_type(fields: &Map<String, Value>) -> ListType {
    match fields.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => {
            let keys = fields.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let keys = keys.into_iter().flatten().filter_map(Value::as_str);
            ListType::Map(keys.map(str::to_owned).collect())
        }
        _ => ListType::Atomic,
    }
}
