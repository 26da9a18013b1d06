//! The path to a field, through named fields and keyed elements.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use crate::golang;

/// One step on the way to a field.
///
/// Steps are ordered by their variant and then by what they hold; the order decides how sets are
/// written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// The entry of a struct or map.
    Field(Box<str>),
    /// The element of a list whose key fields have these values, sorted by name.
    Key(Vec<(Box<str>, ComparableValue)>),
    /// The element of a set.
    Value(ComparableValue),
    /// The element of a list that is not identified by its content.
    Index(i64),
}

/// A value that can be compared: numbers by size, and before text, truth values, lists, maps and
/// null.
#[derive(Clone, Debug)]
pub struct ComparableValue(pub Value);

/// The way to a field from the top of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<PathElement>);

impl PathElement {
    /// The entry `name` of a struct or map.
    #[must_use]
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// The step as it is written in a set: `f:name`, `k:{"name":"c"}`, `v:"a"`, `i:0`.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let mut text = "k:{".to_owned();
                for (place, (name, value)) in fields.iter().enumerate() {
                    if place > 0 {
                        text.push(',');
                    }
                    golang::write_json_string(&mut text, name);
                    text.push(':');
                    golang::write_json(&mut text, &value.0);
                }
                text.push('}');
                text
            }
            Self::Value(value) => {
                let mut text = "v:".to_owned();
                golang::write_json(&mut text, &value.0);
                text
            }
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Reads what [`to_text`](Self::to_text) writes. A step of an unknown sort is none: a later
    /// version may know it, and what is not understood is not kept.
    ///
    /// # Errors
    /// If the text is not a step.
    pub fn from_text(text: &str) -> Result<Option<Self>, PathElementError> {
        let bad = || PathElementError(text.to_owned());
        let (sort, rest) = text.split_at_checked(2).ok_or_else(bad)?;
        match sort {
            "f:" => Ok(Some(Self::Field(rest.into()))),
            "v:" => {
                let value = serde_json::from_str(rest).map_err(|_| bad())?;
                Ok(Some(Self::Value(ComparableValue(value))))
            }
            "k:" => {
                let Ok(Value::Object(fields)) = serde_json::from_str(rest) else {
                    return Err(bad());
                };
                let mut fields: Vec<_> = fields
                    .into_iter()
                    .map(|(name, value)| (name.into(), ComparableValue(value)))
                    .collect();
                fields.sort_by(|(one, _): &(Box<str>, ComparableValue), (other, _)| one.cmp(other));
                Ok(Some(Self::Key(fields)))
            }
            "i:" => Ok(Some(Self::Index(rest.parse().map_err(|_| bad())?))),
            _ if sort.ends_with(':') => Ok(None),
            _ => Err(bad()),
        }
    }
}

/// Text that is not a step of a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {0:?} as a path element")]
pub struct PathElementError(String);

impl Path {
    /// The way through these entries of structs and maps.
    #[must_use]
    pub fn fields(names: &[&str]) -> Self {
        Self(names.iter().map(|name| PathElement::field(name)).collect())
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (place, (name, value)) in fields.iter().enumerate() {
                    let comma = if place > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={value}")?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

impl fmt::Display for ComparableValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => value.fmt(f),
            Value::Number(value) => f.write_str(&golang::number(value)),
            Value::String(value) => f.write_str(&golang::quoted(value)),
            Value::Array(values) => {
                f.write_str("[")?;
                for (place, value) in values.iter().enumerate() {
                    let comma = if place > 0 { "," } else { "" };
                    write!(f, "{comma}{}", Self(value.clone()))?;
                }
                f.write_str("]")
            }
            Value::Object(entries) => entries
                .iter()
                .try_for_each(|(name, value)| write!(f, "{name}={}", Self(value.clone()))),
        }
    }
}

impl PartialEq for ComparableValue {
    fn eq(&self, other: &Self) -> bool {
        compare(&self.0, &other.0) == Ordering::Equal
    }
}

impl Eq for ComparableValue {}

impl PartialOrd for ComparableValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ComparableValue {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

/// Orders two values; equal numbers are equal whichever way they are written.
fn compare(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare_numbers(one, other),
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => {
            let pairs = one.iter().zip(other).map(|(one, other)| compare(one, other));
            let first = pairs.into_iter().find(|order| order.is_ne());
            first.unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) => {
            let sorted = |entries: &serde_json::Map<String, Value>| {
                let mut entries: Vec<_> = entries
                    .iter()
                    .map(|(name, value)| (name.clone(), ComparableValue(value.clone())))
                    .collect();
                entries.sort();
                entries
            };
            sorted(one).cmp(&sorted(other))
        }
        _ => rank(one).cmp(&rank(other)),
    }
}

fn compare_numbers(one: &serde_json::Number, other: &serde_json::Number) -> Ordering {
    if let (Some(one), Some(other)) = (one.as_i64(), other.as_i64()) {
        return one.cmp(&other);
    }
    if let (Some(one), Some(other)) = (one.as_u64(), other.as_u64()) {
        return one.cmp(&other);
    }
    let float = |number: &serde_json::Number| number.as_f64().unwrap_or(f64::NAN);
    let (one, other) = (float(one), float(other));
    one.partial_cmp(&other).unwrap_or(Ordering::Equal)
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Whether two values are the same; unlike `==`, a whole float equals the integer.
pub(crate) fn is_same_value(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same_value(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, one)| {
                    other.get(name).is_some_and(|other| is_same_value(one, other))
                })
        }
        (Value::Number(one), Value::Number(other)) => {
            one == other || compare_numbers(one, other).is_eq()
        }
        _ => one == other,
    }
}
