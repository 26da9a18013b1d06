//! Decodes Kubernetes' own wire format: protocol buffers in an envelope, read into the same trees
//! as JSON.
//!
//! Clients generated from Kubernetes' types send it, and only send it. The messages mirror the Go
//! structs: a field that is no pointer is sent even when it is zero, one that is a pointer only
//! when it is set. [`read`](crate::read()) knows which is which and drops zero values that mean
//! nothing.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::read::{TypeError, float, read};
use crate::time::{self, TimePrecision};
use crate::types::{RawKind, Slot, Table, Type, TypeId, ValueType, Wire, kind_type, table};

mod cursor;

use cursor::{Cursor, Payload};

/// The magic bytes of an envelope.
const MAGIC: &[u8] = b"k8s\0";

/// How deep messages may be nested: as deep as JSON.
const DEEPEST: u32 = 128;

/// How many messages a body may hold. A message with content takes a dozen bytes, so the largest
/// body that is accepted at all, 3 MiB, stays below; one of empty messages would otherwise take a
/// hundred times its length in memory.
const MOST_MESSAGES: u32 = 1 << 18;

/// An object that came in the wire format.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// Its version, as in `apps/v1`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// The object, as [`read`](crate::read()) returns it.
    pub value: Value,
}

/// The envelope of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The version of the object, as in `apps/v1`.
    pub api_version: Cow<'a, str>,
    /// The kind of the object.
    pub kind: Cow<'a, str>,
    /// The message of the kind.
    pub raw: &'a [u8],
    /// The media type of `raw`; empty for the wire format itself.
    pub content_type: Cow<'a, str>,
}

/// Why bytes are not an object.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The bytes do not start with the magic of an envelope.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    NotAnEnvelope,
    /// The bytes end too early, or a length reaches beyond the end.
    #[error("unexpected EOF")]
    Truncated,
    /// A number of more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// The tag of a field is invalid.
    #[error("proto: illegal tag {tag} (wire type {wire_type})")]
    IllegalTag {
        /// The number of the field.
        tag: u64,
        /// The wire type of its value.
        wire_type: u8,
    },
    /// A field's wire type does not match its type.
    #[error("proto: wrong wireType = {wire_type} for field {field}")]
    WrongWireType {
        /// The field.
        field: String,
        /// The wire type of its value.
        wire_type: u8,
    },
    /// Messages are nested too deep.
    #[error("proto: exceeded max depth of {DEEPEST}")]
    TooDeep,
    /// The body holds more messages than allowed.
    #[error("proto: exceeded max number of messages of {MOST_MESSAGES}")]
    TooMany,
    /// The kind is not a built-in one.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// The version in the envelope.
        api_version: String,
        /// The kind in the envelope.
        kind: String,
    },
    /// JSON inside the message cannot be read.
    #[error("cannot read the JSON inside the message")]
    Json(#[source] serde_json::Error),
    /// A value does not fit its field.
    #[error(transparent)]
    Type(#[from] TypeError),
}

/// Decodes an object in its envelope.
///
/// # Errors
/// If the bytes are not an object of a built-in kind.
pub fn decode(bytes: &[u8]) -> Result<Decoded, WireError> {
    Decoder::new().enveloped(bytes, 0)
}

/// Decodes the message of a kind, without its envelope. The object has neither kind nor version.
///
/// # Errors
/// If the bytes are not a message of that kind.
pub fn decode_message(id: TypeId, bytes: &[u8]) -> Result<Value, WireError> {
    let entries = Decoder::new().message(id, bytes, Map::new(), 0)?;
    Ok(read(id, Value::Object(entries))?.value)
}

/// Decodes an envelope without the object inside.
///
/// # Errors
/// If the bytes are not an envelope.
pub fn envelope(bytes: &[u8]) -> Result<Envelope<'_>, WireError> {
    let message = bytes.strip_prefix(MAGIC).ok_or(WireError::NotAnEnvelope)?;
    let mut envelope = Envelope {
        api_version: Cow::Borrowed(""),
        kind: Cow::Borrowed(""),
        raw: &[],
        content_type: Cow::Borrowed(""),
    };
    let mut fields = Cursor::new(message);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => {
                let mut meta = Cursor::new(payload.bytes("typeMeta")?);
                while let Some((number, payload)) = meta.next()? {
                    match number {
                        1 => envelope.api_version = payload.text("apiVersion")?,
                        2 => envelope.kind = payload.text("kind")?,
                        _ => {}
                    }
                }
            }
            2 => envelope.raw = payload.bytes("raw")?,
            4 => envelope.content_type = payload.text("contentType")?,
            _ => {}
        }
    }
    Ok(envelope)
}

struct Decoder {
    table: &'static Table,
    left: u32,
}

impl Decoder {
    fn new() -> Self {
        Self { table: table(), left: MOST_MESSAGES }
    }

    fn enveloped(&mut self, bytes: &[u8], depth: u32) -> Result<Decoded, WireError> {
        let Envelope { api_version, kind, raw, content_type: _ } = envelope(bytes)?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let (api_version, kind) = (api_version.clone().into_owned(), kind.into_owned());
        let Some(id) = kind_type(group, version, &kind) else {
            return Err(WireError::UnknownKind { api_version, kind });
        };
        let mut start = Map::new();
        start.insert("kind".to_owned(), Value::from(kind.as_str()));
        start.insert("apiVersion".to_owned(), Value::from(api_version.as_str()));
        let entries = self.message(id, raw, start, depth)?;
        let value = read(id, Value::Object(entries))?.value;
        Ok(Decoded { api_version, kind, value })
    }

    /// Adds the fields of a message to `entries`. A message may come in parts.
    fn message(
        &mut self,
        id: TypeId,
        bytes: &[u8],
        mut entries: Map<String, Value>,
        depth: u32,
    ) -> Result<Map<String, Value>, WireError> {
        if depth >= DEEPEST {
            return Err(WireError::TooDeep);
        }
        self.left = self.left.checked_sub(1).ok_or(WireError::TooMany)?;
        let ty: &'static Type = self.table.get(id);
        let mut fields = Cursor::new(bytes);
        while let Some((number, payload)) = fields.next()? {
            let Ok(place) = ty.wire.binary_search_by_key(&number, |(number, _)| u64::from(*number))
            else {
                continue;
            };
            match ty.wire[place].1 {
                Wire::Embedded(id) => {
                    let bytes = payload.bytes(&self.table.get(id).name)?;
                    entries = self.message(id, bytes, entries, depth + 1)?;
                }
                Wire::Field(place) => {
                    let field = &ty.fields[place];
                    let before = entries.get_mut(&*field.name).map(Value::take);
                    let value = self.value(&field.slot, &field.name, before, &payload, depth)?;
                    entries.insert(field.name.to_string(), value);
                }
            }
        }
        Ok(entries)
    }

    fn value(
        &mut self,
        slot: &'static Slot,
        name: &str,
        before: Option<Value>,
        payload: &Payload<'_>,
        depth: u32,
    ) -> Result<Value, WireError> {
        Ok(match &slot.value_type {
            ValueType::String => Value::String(payload.text(name)?.into_owned()),
            ValueType::Int32 => Value::from(low_word(payload.varint(name)?)),
            ValueType::Int64 => Value::from(payload.varint(name)?.cast_signed()),
            ValueType::Bool => Value::from(payload.varint(name)? != 0),
            ValueType::Float => Value::Number(float(f64::from_bits(payload.fixed64(name)?))),
            ValueType::Bytes => Value::from(crate::base64::encode(payload.bytes(name)?)),
            ValueType::Time => timestamp(payload.bytes(name)?, TimePrecision::Seconds)?,
            ValueType::MicroTime => timestamp(payload.bytes(name)?, TimePrecision::Micros)?,
            ValueType::Quantity => quantity(payload.bytes(name)?)?,
            ValueType::IntOrString => int_or_string(payload.bytes(name)?)?,
            ValueType::Raw(kind) => self.raw(*kind, payload.bytes(name)?, depth)?,
            ValueType::SchemaOrBool(id)
            | ValueType::SchemaOrArray(id)
            | ValueType::SchemaOrStrings(id) => {
                self.schema_or(&slot.value_type, *id, payload.bytes(name)?, depth)?
            }
            ValueType::Struct(id) => {
                let entries = match before {
                    Some(Value::Object(entries)) => entries,
                    _ => Map::new(),
                };
                Value::Object(self.message(*id, payload.bytes(name)?, entries, depth + 1)?)
            }
            ValueType::List { items, wrapped } => {
                let mut list = match before {
                    Some(Value::Array(list)) => list,
                    _ => Vec::new(),
                };
                if *wrapped {
                    let mut elements = Cursor::new(payload.bytes(name)?);
                    while let Some((number, payload)) = elements.next()? {
                        if number == 1 {
                            self.elements(items, name, &mut list, &payload, depth)?;
                        }
                    }
                } else {
                    self.elements(items, name, &mut list, payload, depth)?;
                }
                Value::Array(list)
            }
            ValueType::Map(values) => {
                let mut map = match before {
                    Some(Value::Object(map)) => map,
                    _ => Map::new(),
                };
                self.entry(values, name, &mut map, payload.bytes(name)?, depth)?;
                Value::Object(map)
            }
        })
    }

    /// One element, or several numbers packed into one field.
    fn elements(
        &mut self,
        items: &'static Slot,
        name: &str,
        list: &mut Vec<Value>,
        payload: &Payload<'_>,
        depth: u32,
    ) -> Result<(), WireError> {
        if let (ValueType::Int32 | ValueType::Int64 | ValueType::Bool, Payload::Bytes(packed)) =
            (&items.value_type, payload)
        {
            let mut numbers = Cursor::new(packed);
            while !numbers.is_empty() {
                let number = Payload::Varint(numbers.varint()?);
                list.push(self.value(items, name, None, &number, depth)?);
            }
            return Ok(());
        }
        list.push(self.value(items, name, None, payload, depth)?);
        Ok(())
    }

    fn entry(
        &mut self,
        values: &'static Slot,
        name: &str,
        map: &mut Map<String, Value>,
        bytes: &[u8],
        depth: u32,
    ) -> Result<(), WireError> {
        let mut key = Cow::Borrowed("");
        // An entry without a value has an empty one, which typed reading adds.
        let mut value = Value::Null;
        let mut parts = Cursor::new(bytes);
        while let Some((number, payload)) = parts.next()? {
            match number {
                1 => key = payload.text(name)?,
                2 => value = self.value(values, name, None, &payload, depth)?,
                _ => {}
            }
        }
        map.insert(key.into_owned(), value);
        Ok(())
    }

    fn raw(&mut self, kind: RawKind, bytes: &[u8], depth: u32) -> Result<Value, WireError> {
        let mut raw: &[u8] = &[];
        let mut fields = Cursor::new(bytes);
        while let Some((number, payload)) = fields.next()? {
            if number == 1 {
                raw = payload.bytes("raw")?;
            }
        }
        if raw.is_empty() {
            return Ok(Value::Null);
        }
        if kind == RawKind::Extension && raw.starts_with(MAGIC) {
            if depth >= DEEPEST {
                return Err(WireError::TooDeep);
            }
            return Ok(self.enveloped(raw, depth + 1)?.value);
        }
        serde_json::from_slice(raw).map_err(WireError::Json)
    }

    /// Decodes the messages that hold a schema or another value.
    fn schema_or(
        &mut self,
        make: &ValueType,
        id: TypeId,
        bytes: &[u8],
        depth: u32,
    ) -> Result<Value, WireError> {
        let (mut allows, mut schema, mut list) = (false, None, Vec::new());
        let mut fields = Cursor::new(bytes);
        while let Some((number, payload)) = fields.next()? {
            match (make, number) {
                (ValueType::SchemaOrBool(_), 1) => allows = payload.varint("allows")? != 0,
                (ValueType::SchemaOrBool(_), 2) | (_, 1) => {
                    let bytes = payload.bytes("schema")?;
                    let entries = self.message(id, bytes, Map::new(), depth + 1)?;
                    schema = Some(Value::Object(entries));
                }
                (ValueType::SchemaOrArray(_), 2) => {
                    let bytes = payload.bytes("jSONSchemas")?;
                    let entries = self.message(id, bytes, Map::new(), depth + 1)?;
                    list.push(Value::Object(entries));
                }
                (ValueType::SchemaOrStrings(_), 2) => {
                    list.push(Value::String(payload.text("property")?.into_owned()));
                }
                _ => {}
            }
        }
        Ok(match (make, schema) {
            (_, _) if !list.is_empty() => Value::Array(list),
            (_, Some(schema)) => schema,
            (ValueType::SchemaOrBool(_), None) => Value::from(allows),
            (_, None) => Value::Null,
        })
    }
}

fn timestamp(bytes: &[u8], grain: TimePrecision) -> Result<Value, WireError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut fields = Cursor::new(bytes);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => seconds = payload.varint("seconds")?.cast_signed(),
            2 => nanos = low_word(payload.varint("nanos")?),
            _ => {}
        }
    }
    let written = time::from_unix(seconds, nanos, grain).map_err(TypeError::Time)?;
    Ok(written.map_or(Value::Null, Value::String))
}

fn quantity(bytes: &[u8]) -> Result<Value, WireError> {
    let mut text = Cow::Borrowed("0");
    let mut fields = Cursor::new(bytes);
    while let Some((number, payload)) = fields.next()? {
        if number == 1 {
            text = payload.text("string")?;
        }
    }
    Ok(Value::String(text.into_owned()))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, WireError> {
    let (mut is_text, mut int, mut text) = (false, 0, Cow::Borrowed(""));
    let mut fields = Cursor::new(bytes);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => is_text = payload.varint("type")? != 0,
            2 => int = low_word(payload.varint("intVal")?),
            3 => text = payload.text("strVal")?,
            _ => {}
        }
    }
    Ok(if is_text { Value::String(text.into_owned()) } else { Value::from(int) })
}

/// Returns the low 32 bits, which are all that Go keeps.
fn low_word(number: u64) -> i32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}
