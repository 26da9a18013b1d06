//! Types of values.

use serde_json::Value;

use super::number;
use crate::checks::{Checks, Kind};

/// The name of a value's type.
fn kind_of(value: &Value) -> Option<Kind> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) => Kind::Boolean,
        Value::Number(number) if number.is_i64() => Kind::Integer,
        Value::Number(_) => Kind::Number,
        Value::String(_) => Kind::String,
        Value::Array(_) => Kind::Array,
        Value::Object(_) => Kind::Object,
    })
}

/// The type a value should have and the one it has, if they differ.
pub(super) fn type_mismatch<'schema>(
    checks: &'schema Checks,
    value: &Value,
) -> Option<(&'schema str, &'static str)> {
    let expected = checks.kind;
    let Some(is) = kind_of(value) else {
        return expected.filter(|_| !checks.nullable).map(|expected| (expected.name(), "null"));
    };
    let is_meant = expected.is_some_and(|expected| {
        let is_whole = || value.as_f64().is_some_and(number::is_whole);
        match expected {
            Kind::Integer => is == Kind::Integer || (is == Kind::Number && is_whole()),
            Kind::Number => matches!(is, Kind::Number | Kind::Integer),
            Kind::IntegerOrString => {
                matches!(is, Kind::Integer | Kind::String) || (is == Kind::Number && is_whole())
            }
            Kind::Object | Kind::Array | Kind::String | Kind::Boolean => is == expected,
        }
    });
    if let Some(format) = &checks.format {
        // A format stands for the type: texts and lists are left to it, others are named by the
        // format that their own type has.
        if !matches!(is, Kind::String | Kind::Array) {
            let own = match is {
                Kind::Integer => "int64",
                Kind::Number => "float64",
                Kind::Object
                | Kind::Array
                | Kind::String
                | Kind::Boolean
                | Kind::IntegerOrString => "",
            };
            return (!is_meant).then(|| (format.name(), own));
        }
        if !expected.is_some_and(Kind::is_numeric) {
            return None;
        }
    }
    let expected = expected?;
    (!is_meant).then(|| (expected.name(), is.name()))
}

/// Whether a value is one of the choices. Numbers are compared as what the choice is.
pub(super) fn is_enum_value(value: &Value, choice: &Value) -> bool {
    match (value, choice) {
        (Value::Null, _) => false,
        (Value::Number(value), Value::Number(choice)) if choice.is_f64() => {
            value.as_f64() == choice.as_f64()
        }
        (Value::Number(value), Value::Number(choice)) if value.is_f64() => {
            value.as_f64().map(f64::trunc) == choice.as_f64()
        }
        (
            Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_),
            _,
        ) => value == choice,
    }
}
