//! JSON trees seen through their types, without a copy.

use serde_json::Value as Json;

use crate::error::EvalError;
use crate::library::time;
use crate::types::{ListKind, Type};
use crate::value::{List, Map, Text, Value};

/// What an expression sees where the tree has `json` and the schema says `ty`.
///
/// A value that does not have the shape its type promises is seen as it is: validation has its own
/// words for that, and an expression that runs all the same meets "no such overload".
///
/// # Errors
/// When text is not the time, duration or bytes its type promises.
pub fn view<'v>(json: &'v Json, ty: &'v Type) -> Result<Value<'v>, EvalError> {
    Ok(match (json, ty) {
        (Json::String(text), Type::Timestamp) => time::parse_date_time(text)
            .map(Value::Timestamp)
            .ok_or_else(|| invalid("date-time", text))?,
        (Json::String(text), Type::Date) => {
            time::parse_date(text).map(Value::Timestamp).ok_or_else(|| invalid("date", text))?
        }
        (Json::String(text), Type::Duration) => time::parse_loose_duration(text)
            .map(Value::Duration)
            .ok_or_else(|| invalid("duration", text))?,
        (Json::String(text), Type::Bytes { .. }) => {
            let bytes = decode_base64(text).ok_or_else(|| invalid("byte", text))?;
            Value::Bytes(bytes.into())
        }
        (Json::Number(number), Type::Double) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        (Json::Array(items), Type::List(list)) => {
            Value::List(List::View { items, element: &list.element, kind: &list.kind })
        }
        (Json::Object(entries), Type::Map(map)) => {
            Value::Map(Map::View { entries, value: &map.value })
        }
        (Json::Object(entries), Type::Object(ty)) => Value::Map(Map::Object { entries, ty }),
        (Json::Null, _) => Value::Null,
        (Json::Bool(truth), _) => Value::Bool(*truth),
        (Json::Number(number), _) => match number.as_i64() {
            Some(number) => Value::Int(number),
            None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        (Json::String(text), _) => Value::String(Text::Borrowed(text)),
        (Json::Array(items), _) => {
            Value::List(List::View { items, element: &Type::Dyn, kind: &ListKind::Atomic })
        }
        (Json::Object(entries), _) => Value::Map(Map::View { entries, value: &Type::Dyn }),
    })
}

fn invalid(format: &str, text: &str) -> EvalError {
    EvalError::failed(format!("Invalid {format} formatted string {text}"))
}

/// The tree that a value is, if JSON can say it.
///
/// # Errors
/// When the value, or one inside it, has no form in JSON.
pub(crate) fn to_json(value: &Value<'_>) -> Result<Json, EvalError> {
    Ok(match value {
        Value::Null | Value::Optional(None) => Json::Null,
        Value::Bool(truth) => Json::Bool(*truth),
        Value::Int(number) => (*number).into(),
        Value::Uint(number) => (*number).into(),
        Value::Double(number) => (*number).into(),
        Value::String(text) => Json::String((**text).to_owned()),
        Value::Bytes(bytes) => Json::String(encode_base64(bytes)),
        Value::Timestamp(at) => Json::String(time::show_timestamp(*at)),
        Value::Duration(nanos) => Json::String(time::show_duration(*nanos)),
        Value::List(list) => {
            list.iter().map(|item| to_json(&item?)).collect::<Result<Vec<_>, _>>()?.into()
        }
        Value::Map(map) => {
            let mut entries = serde_json::Map::new();
            for key in map.keys() {
                let value = map.at(&key)?.unwrap_or(Value::Null);
                let name = crate::library::convert::to_text(&key.into())?;
                entries.insert(name, to_json(&value)?);
            }
            Json::Object(entries)
        }
        Value::Optional(Some(inner)) => to_json(inner)?,
        Value::Type(name) => Json::String(name.to_string()),
        Value::Ip(ip) => Json::String(ip.to_string()),
        Value::Cidr(cidr) => Json::String(cidr.to_string()),
        Value::Quantity(_)
        | Value::Url(_)
        | Value::Semver(_)
        | Value::Format(_)
        | Value::Host(_) => {
            return Err(EvalError::failed(format!(
                "type conversion error from '{}' to JSON",
                value.type_name()
            )));
        }
    })
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes of padded standard base64; line breaks are ignored.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let letters: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let (groups, []) = letters.as_chunks::<4>() else { return None };
    for (place, group) in groups.iter().enumerate() {
        let padding = group.iter().rev().take_while(|letter| **letter == b'=').count();
        if padding > 2 || (padding > 0 && place + 1 < groups.len()) {
            return None;
        }
        let mut bits = 0_u32;
        for letter in &group[..4 - padding] {
            let digit = ALPHABET.iter().position(|known| known == letter)?;
            bits = bits << 6 | u32::try_from(digit).ok()?;
        }
        bits <<= 6 * padding;
        let [_, three @ ..] = bits.to_be_bytes();
        bytes.extend_from_slice(&three[..3 - padding]);
    }
    Some(bytes)
}

/// Padded standard base64.
pub(crate) fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0_u8; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(group);
        for place in 0..4 {
            if place > chunk.len() {
                text.push('=');
            } else {
                let digit = (bits >> (18 - 6 * place)) & 63;
                text.push(char::from(ALPHABET[usize::try_from(digit).unwrap_or(0)]));
            }
        }
    }
    text
}

/// A value for a variable.
#[derive(Clone, Debug)]
pub enum Binding<'v> {
    /// A tree, seen through its type.
    Tree(&'v Json, &'v Type),
    /// A tree that may be missing, which the expression sees as an optional.
    OptionalTree(Option<&'v Json>, &'v Type),
    /// A computed value.
    Value(Value<'v>),
}

impl<'v> Binding<'v> {
    pub(crate) fn value(&self) -> Result<Value<'v>, EvalError> {
        match self {
            Self::Tree(json, ty) => view(json, ty),
            Self::OptionalTree(None, _) => Ok(Value::none()),
            Self::OptionalTree(Some(json), ty) => Ok(Value::some(view(json, ty)?)),
            Self::Value(value) => Ok(value.clone()),
        }
    }
}
