//! Typed reading: returns what Go's decoder would take from a JSON tree, as Go's encoder would
//! write it.
//!
//! Kubernetes reads its own kinds into structs and writes structs, so clients receive fields in one
//! order, quantities and times in one form, and required fields even when they were never set.
//! Walking a tree along the [table](crate::types) of those structs gives the same result.

use gantry_schema::json_kind;
use serde_json::{Map, Value};

use crate::time::{self, TimePrecision};
use crate::types::{Field, Omit, Slot, Table, Type, TypeId, ValueType, table};
use gantry_quantity::QuantityError;

mod number;

pub(crate) use number::float;

#[cfg(test)]
mod tests;

/// An object as its kind defines it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedObject {
    /// The object, in the order and the form in which kube-apiserver writes it.
    pub value: Value,
    /// The paths of fields that the kind does not have, as in `spec.containers[0].foo`, in the
    /// order in which they came. At most a hundred, each once.
    pub unknown: Vec<String>,
}

/// Why a tree is not an object of a kind, with Go's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// A value of another type.
    #[error("json: cannot unmarshal {value} into Go {target} of type {expected}")]
    Wrong {
        /// The value, as in `number 1.5`.
        value: String,
        /// The place, as in `struct field PodSpec.spec.containers`, or just `value`.
        target: String,
        /// Go's name of the expected type.
        expected: String,
    },
    /// The text is not a quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// The text is not a time.
    #[error("{0}")]
    Time(String),
    /// The text is not base64.
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
    /// The value is neither a schema nor a boolean.
    #[error("boolean or JSON schema expected")]
    Schema,
}

/// How many unknown fields are reported.
const MAX_UNKNOWN_FIELDS: usize = 100;

/// Reads `value` as an object of a kind.
///
/// Reading is idempotent. Kind and version are read like other fields: the caller checks whether
/// they are the right ones.
///
/// # Errors
/// If a field holds a value that its type cannot.
pub fn read(id: TypeId, value: Value) -> Result<DecodedObject, TypeError> {
    let mut reader = Reader::new(Some(Vec::new()));
    let value = reader.root(id, value)?;
    Ok(DecodedObject { value, unknown: reader.unknown.unwrap_or_default() })
}

struct Reader {
    table: &'static Table,
    path: Vec<Step>,
    /// `None` inside types with a custom decoder in Go, which does not look for unknown fields.
    unknown: Option<Vec<String>>,
    /// Go continues after a value of another type, and only then gives up: it reports a worse error
    /// further on instead.
    first_error: Option<TypeError>,
}

enum Step {
    Field(&'static Type, &'static Field),
    Key(String),
    Index(usize),
}

impl Reader {
    fn new(unknown: Option<Vec<String>>) -> Self {
        Self { table: table(), path: Vec::new(), unknown, first_error: None }
    }

    fn root(&mut self, id: TypeId, value: Value) -> Result<Value, TypeError> {
        let ty = self.table.get(id);
        let value = match value {
            Value::Object(entries) => self.object(ty, entries)?,
            Value::Null => ty.zero(self.table),
            other => {
                self.record_type_error(&other, &ty.go);
                Value::Null
            }
        };
        self.first_error.take().map_or(Ok(value), Err)
    }

    /// Reads the entries of a struct. They come in any order and are returned in Go's.
    fn object(
        &mut self,
        ty: &'static Type,
        entries: Map<String, Value>,
    ) -> Result<Value, TypeError> {
        let mut read: Vec<Option<(String, Value)>> = Vec::new();
        read.resize_with(ty.fields.len(), || None);
        for (key, value) in entries {
            let Some(place) = ty.field_index(&key) else {
                self.report_unknown(&key);
                continue;
            };
            let field = &ty.fields[place];
            self.path.push(Step::Field(ty, field));
            let value = match self.slot(&field.slot, value)? {
                Some(Value::Array(items)) if items.is_empty() => {
                    let kept = ty.keeps_empty && field.omit == Omit::Never;
                    kept.then_some(Value::Array(items))
                }
                other => other,
            };
            self.path.pop();
            read[place] = value.map(|value| (key, value));
        }
        let mut written = Map::with_capacity(ty.fields.len().min(8));
        for (field, read) in ty.fields.iter().zip(read) {
            match read {
                Some((key, value)) => {
                    written.insert(key, value);
                }
                None if field.is_written_unset() => {
                    written.insert(field.name.to_string(), field.slot.zero(self.table));
                }
                None => {}
            }
        }
        Ok(Value::Object(written))
    }

    /// Reads a value; `None` is what Go does not distinguish from nothing.
    fn slot(&mut self, slot: &'static Slot, value: Value) -> Result<Option<Value>, TypeError> {
        let keep_zero = slot.pointer;
        match (&slot.value_type, value) {
            (ValueType::SchemaOrBool(_), Value::Null) if !slot.pointer => Err(TypeError::Schema),
            (_, Value::Null) => Ok(None),
            (ValueType::String, Value::String(text)) => {
                Ok((keep_zero || !text.is_empty()).then_some(Value::String(text)))
            }
            (ValueType::Bool, Value::Bool(truth)) => {
                Ok((keep_zero || truth).then_some(Value::Bool(truth)))
            }
            (ValueType::Int32 | ValueType::Int64 | ValueType::Float, Value::Number(read)) => {
                let Some(kept) = number::fit(&slot.value_type, &read) else {
                    self.record_number_error(&read, &slot.go);
                    return Ok(None);
                };
                Ok((keep_zero || !number::is_zero(&kept)).then_some(Value::Number(kept)))
            }
            (ValueType::Bytes, Value::String(text)) => match crate::base64::canonical(text) {
                Ok(text) => Ok((keep_zero || !text.is_empty()).then_some(Value::String(text))),
                Err(at) => {
                    self.record_error(TypeError::Base64(at));
                    Ok(None)
                }
            },
            (ValueType::Time, value) => self.timestamp(&value, TimePrecision::Seconds),
            (ValueType::MicroTime, value) => self.timestamp(&value, TimePrecision::Micros),
            (ValueType::Quantity, value) => quantity_of(value).map(Some),
            (ValueType::IntOrString, value) => self.int_or_string(value).map(Some),
            (ValueType::Raw(_), value) => Ok(Some(value)),
            (ValueType::SchemaOrBool(id), value) => match value {
                Value::Object(_) => self.read_with_own_decoder(*id, value).map(Some),
                Value::Bool(_) => Ok(Some(value)),
                Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    Err(TypeError::Schema)
                }
            },
            (ValueType::SchemaOrArray(id), value) => self.schemas(*id, value),
            (ValueType::SchemaOrStrings(id), value) => self.schema_or_strings(*id, value),
            (ValueType::Struct(id), Value::Object(entries)) => {
                self.object(self.table.get(*id), entries).map(Some)
            }
            (ValueType::List { items, .. }, Value::Array(read)) => self.list(items, read).map(Some),
            (ValueType::Map(values), Value::Object(entries)) => self.map(values, entries),
            (_, other) => {
                self.record_type_error(&other, &slot.go);
                Ok(None)
            }
        }
    }

    fn list(&mut self, items: &'static Slot, read: Vec<Value>) -> Result<Value, TypeError> {
        let mut list = Vec::with_capacity(read.len());
        for (place, value) in read.into_iter().enumerate() {
            self.path.push(Step::Index(place));
            list.push(self.element(items, value)?);
            self.path.pop();
        }
        Ok(Value::Array(list))
    }

    fn map(
        &mut self,
        values: &'static Slot,
        entries: Map<String, Value>,
    ) -> Result<Option<Value>, TypeError> {
        if entries.is_empty() {
            return Ok(None);
        }
        let composite = matches!(
            values.value_type,
            ValueType::Struct(_) | ValueType::List { .. } | ValueType::Map(_)
        );
        let mut written = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            // Only types with fields can report them, and a key costs a copy.
            self.path.push(Step::Key(if composite { key.clone() } else { String::new() }));
            let value = self.element(values, value)?;
            self.path.pop();
            written.push((key, value));
        }
        if !written.is_sorted_by(|a, b| a.0 <= b.0) {
            written.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        }
        Ok(Some(Value::Object(written.into_iter().collect())))
    }

    /// Reads the elements of a list or a map: nothing is left out here.
    fn element(&mut self, slot: &'static Slot, value: Value) -> Result<Value, TypeError> {
        if let Some(value) = self.slot(slot, value)? {
            return Ok(value);
        }
        Ok(match &slot.value_type {
            // On the wire an entry always has a value, which may be empty.
            ValueType::Bytes => Value::from(""),
            ValueType::List { .. } => Value::Array(Vec::new()),
            _ => slot.zero(self.table),
        })
    }

    fn timestamp(
        &mut self,
        value: &Value,
        grain: TimePrecision,
    ) -> Result<Option<Value>, TypeError> {
        let Value::String(text) = value else {
            return Err(self.type_error(json_kind(value).to_owned(), "string"));
        };
        let written = time::canonical(text, grain).map_err(TypeError::Time)?;
        Ok(written.map(Value::String))
    }

    fn int_or_string(&self, value: Value) -> Result<Value, TypeError> {
        match value {
            Value::String(_) => Ok(value),
            Value::Number(read) => match number::fit(&ValueType::Int32, &read) {
                Some(kept) => Ok(Value::Number(kept)),
                None => Err(self.type_error(format!("number {read}"), "int32")),
            },
            other => Err(self.type_error(json_kind(&other).to_owned(), "int32")),
        }
    }

    fn schemas(&self, id: TypeId, value: Value) -> Result<Option<Value>, TypeError> {
        match value {
            Value::Object(_) => self.read_with_own_decoder(id, value).map(Some),
            Value::Array(schemas) => {
                let schemas: Result<Vec<Value>, TypeError> = schemas
                    .into_iter()
                    .map(|schema| self.read_with_own_decoder(id, schema))
                    .collect();
                // An empty list and any other value count as no schema, which Go writes so.
                Ok(Some(
                    schemas.map(|list| if list.is_empty() { Value::Null } else { list.into() })?,
                ))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Ok(Some(Value::Null))
            }
        }
    }

    fn schema_or_strings(&self, id: TypeId, value: Value) -> Result<Option<Value>, TypeError> {
        match value {
            Value::Object(_) => self.read_with_own_decoder(id, value).map(Some),
            Value::Array(words) => {
                if let Some(word) = words.iter().find(|word| !word.is_string() && !word.is_null()) {
                    return Err(self.type_error(json_kind(word).to_owned(), "string"));
                }
                let words =
                    words.into_iter().map(|word| if word.is_null() { "".into() } else { word });
                let words: Vec<Value> = words.collect();
                Ok(Some(if words.is_empty() { Value::Null } else { words.into() }))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Ok(Some(Value::Null))
            }
        }
    }

    /// Reads a struct with a custom decoder in Go: unknown fields are ignored silently, and an
    /// error inside is reported as one of the field that holds it.
    fn read_with_own_decoder(&self, id: TypeId, value: Value) -> Result<Value, TypeError> {
        Reader::new(None).root(id, value).map_err(|fault| match fault {
            TypeError::Wrong { value, target: _, expected } => self.type_error(value, &expected),
            other @ (TypeError::Quantity(_)
            | TypeError::Time(_)
            | TypeError::Base64(_)
            | TypeError::Schema) => other,
        })
    }

    fn record_type_error(&mut self, value: &Value, expected: &str) {
        let fault = self.type_error(json_kind(value).to_owned(), expected);
        self.record_error(fault);
    }

    fn record_number_error(&mut self, number: &serde_json::Number, expected: &str) {
        let fault = self.type_error(format!("number {number}"), expected);
        self.record_error(fault);
    }

    fn record_error(&mut self, fault: TypeError) {
        self.first_error.get_or_insert(fault);
    }

    fn type_error(&self, value: String, expected: &str) -> TypeError {
        let mut owner = None;
        let mut names = Vec::new();
        for step in &self.path {
            if let Step::Field(ty, field) = step {
                owner = Some(ty.short());
                names.push(&*field.name);
            }
        }
        let target = match owner {
            Some(owner) => format!("struct field {owner}.{}", names.join(".")),
            None => "value".to_owned(),
        };
        TypeError::Wrong { value, target, expected: expected.to_owned() }
    }

    fn report_unknown(&mut self, key: &str) {
        let Some(unknown) = &mut self.unknown else { return };
        if unknown.len() >= MAX_UNKNOWN_FIELDS {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Field(_, field) => push_name(&mut path, &field.name),
                Step::Key(key) => push_name(&mut path, key),
                Step::Index(place) => path.push_str(&format!("[{place}]")),
            }
        }
        push_name(&mut path, key);
        unknown.push(path);
    }
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

fn quantity_of(value: Value) -> Result<Value, TypeError> {
    let text = match value {
        Value::String(text) => text,
        // Go reads the text of any value.
        other => other.to_string(),
    };
    let written = gantry_quantity::canonical(text.trim())?;
    if *written == text { Ok(Value::String(text)) } else { Ok(Value::String(written.into_owned())) }
}
