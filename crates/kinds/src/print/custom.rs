//! Renders the tables of custom kinds, whose definitions declare the columns.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use gantry_schema::FieldError;
use jiff::Timestamp;
use serde_json::{Number, Value};

use super::Row;
use super::age::{age, parse};
use super::columns::{CUSTOM_AGE, Column, NAME};
use super::fields::{list, name, number, text};
use super::json_path::{self, JsonPath, Literal, PathValue, SyntaxError};

/// The columns of one version of a custom kind.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomColumns {
    columns: Vec<Column>,
    /// One less than there are columns: the first is the name.
    paths: Vec<JsonPath>,
}

impl CustomColumns {
    /// Compiles `additionalPrinterColumns`; without any there is an age beside the name.
    ///
    /// # Errors
    ///
    /// A path is invalid. No definition is rejected for that; a server shows the columns before the
    /// invalid one, and the error holds them.
    pub fn compile(declared: &Value) -> Result<Self, Box<UnrecognizedColumn>> {
        let mut compiled = Self { columns: vec![NAME], paths: Vec::new() };
        if list(declared).is_empty() {
            let created = Value::from(".metadata.creationTimestamp");
            compiled.add(CUSTOM_AGE, &created)?;
        }
        for column in list(declared) {
            let path = text(&column["jsonPath"]);
            let owned = |field: &str| Cow::Owned(text(&column[field]).to_owned());
            let description = match text(&column["description"]) {
                "" => format!("Custom resource definition column (in JSONPath format): {path}"),
                description => description.to_owned(),
            };
            let heading = Column {
                name: owned("name"),
                kind: owned("type"),
                format: owned("format"),
                description: Cow::Owned(description),
                priority: number(&column["priority"]),
            };
            compiled.add(heading, &column["jsonPath"])?;
        }
        Ok(compiled)
    }

    fn add(&mut self, column: Column, path: &Value) -> Result<(), Box<UnrecognizedColumn>> {
        match JsonPath::parse(text(path)) {
            Ok(path) => {
                self.columns.push(column);
                self.paths.push(path);
                Ok(())
            }
            Err(cause) => {
                let (usable, path) = (self.clone(), text(path).to_owned());
                Err(Box::new(UnrecognizedColumn { usable, path, cause }))
            }
        }
    }

    /// The columns, the name first.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The row of an object.
    #[must_use]
    pub fn row(&self, object: &Value, now: Timestamp) -> Row {
        let mut cells = Vec::with_capacity(self.columns.len());
        cells.push(name(object));
        for (column, path) in self.columns.iter().skip(1).zip(&self.paths) {
            let found = path.first(object);
            cells.push(found.map_or(Value::Null, |found| cell(&column.kind, &found, now)));
        }
        Row { cells, conditions: Vec::new() }
    }
}

/// The path of a column in a definition is invalid.
#[derive(Clone, Debug, PartialEq)]
pub struct UnrecognizedColumn {
    /// The columns before it, which are shown all the same.
    pub usable: CustomColumns,
    /// The path.
    pub path: String,
    /// What is wrong with it.
    pub cause: SyntaxError,
}

impl fmt::Display for UnrecognizedColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unrecognized column definition {:?}", self.path)
    }
}

impl std::error::Error for UnrecognizedColumn {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Validates `additionalPrinterColumns` in a definition that is being written.
///
/// `field` is their path. kube-apiserver reports `spec.additionalPrinterColumns` if all versions
/// have the same ones, as the only version does, and `spec.versions[0].additionalPrinterColumns` if
/// not.
#[must_use]
pub fn check_columns(declared: &Value, field: &str) -> Vec<FieldError> {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] =
        ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    let mut faults = Vec::new();
    for (place, column) in list(declared).iter().enumerate() {
        let at = |part: &str| format!("{field}[{place}].{part}");
        let one_of = |words: &[&str]| format!("must be one of {}", words.join(","));
        if text(&column["name"]).is_empty() {
            faults.push(FieldError::required(at("name"), ""));
        }
        match text(&column["type"]) {
            "" => faults.push(FieldError::required(at("type"), &one_of(&TYPES))),
            kind if !TYPES.contains(&kind) => {
                faults.push(FieldError::invalid(at("type"), &column["type"], &one_of(&TYPES)));
            }
            _ => {}
        }
        match text(&column["format"]) {
            format if format.is_empty() || FORMATS.contains(&format) => {}
            _ => {
                faults.push(FieldError::invalid(
                    at("format"),
                    &column["format"],
                    &one_of(&FORMATS),
                ));
            }
        }
        // kube-apiserver names the field as its own struct does.
        match text(&column["jsonPath"]) {
            "" => faults.push(FieldError::required(at("JSONPath"), "")),
            path => faults.extend(json_path::check(path, &at("JSONPath"))),
        }
    }
    faults
}

fn cell(kind: &str, found: &PathValue<'_>, now: Timestamp) -> Value {
    match (kind, found) {
        ("string", _) => go_text(found).into(),
        (
            "boolean",
            PathValue::Value(Value::Bool(truth)) | PathValue::Literal(Literal::Bool(truth)),
        ) => (*truth).into(),
        ("integer", PathValue::Value(Value::Number(number))) => match number.as_i64() {
            Some(int) => int.into(),
            None => number.as_f64().map_or(Value::Null, |it| truncate(it).into()),
        },
        ("integer", PathValue::Literal(Literal::Float(float))) => truncate(*float).into(),
        ("number", PathValue::Value(Value::Number(number))) => {
            number.as_f64().map_or(Value::Null, float_cell)
        }
        ("number", PathValue::Literal(Literal::Float(float))) => float_cell(*float),
        (
            "date",
            PathValue::Value(Value::String(time)) | PathValue::Literal(Literal::Text(time)),
        ) => date(time, now).into(),
        _ => Value::Null,
    }
}

fn date(time: &str, now: Timestamp) -> String {
    match time {
        // Both are historic forms of a time that is not set.
        "" | "null" => age(None, now),
        _ => match parse(time) {
            Ok(time) => age(Some(time), now),
            Err(_) => "<invalid>".to_owned(),
        },
    }
}

/// Returns a float without its fraction. Out of the range of `i64`, Go on common machines returns
/// the least `i64`, whatever the sign.
fn truncate(float: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "the fraction is what is to go")]
    if float.abs() < I64_BOUND { float as i64 } else { i64::MIN }
}

/// Two to the power of 63, the first float that is no `i64`.
const I64_BOUND: f64 = 9_223_372_036_854_775_808.0;

/// Formats a float as Go prints it in JSON: without a fraction where there is none.
fn float_cell(float: f64) -> Value {
    if float.fract() == 0.0 && float.abs() < I64_BOUND {
        return truncate(float).into();
    }
    Number::from_f64(float).map_or(Value::Null, Value::Number)
}

/// Formats a value as Go prints it: texts bare, lists and maps as JSON.
fn go_text(found: &PathValue<'_>) -> String {
    match found {
        PathValue::Byte(byte) => byte.to_string(),
        PathValue::Literal(Literal::Text(text)) | PathValue::Value(Value::String(text)) => {
            text.clone()
        }
        PathValue::Literal(Literal::Int(int)) => int.to_string(),
        PathValue::Literal(Literal::Float(float)) => go_float(*float, GO_TEXT),
        PathValue::Literal(Literal::Bool(truth)) | PathValue::Value(Value::Bool(truth)) => {
            truth.to_string()
        }
        PathValue::Value(Value::Null) => "<no value>".to_owned(),
        PathValue::Value(Value::Number(number)) => go_number(number, GO_TEXT),
        PathValue::Value(tree @ (Value::Array(_) | Value::Object(_))) => {
            let mut out = String::new();
            go_json(tree, &mut out);
            out
        }
    }
}

/// Formats JSON as Go writes it: fields in order, and HTML characters in texts escaped.
fn go_json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&go_number(number, GO_JSON)),
        Value::String(text) => go_quote(text, out),
        Value::Array(elements) => {
            out.push('[');
            for (place, element) in elements.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                go_json(element, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (place, (key, field)) in fields.into_iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                go_quote(key, out);
                out.push(':');
                go_json(field, out);
            }
            out.push('}');
        }
    }
}

fn go_quote(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\x1f' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
}

/// The powers of ten from which on a float is written with an exponent, and the least number of
/// exponent digits.
#[derive(Clone, Copy)]
struct Exponents {
    down: i32,
    up: i32,
    digits: usize,
}

const GO_TEXT: Exponents = Exponents { down: -5, up: 6, digits: 2 };
const GO_JSON: Exponents = Exponents { down: -7, up: 21, digits: 1 };

fn go_number(number: &Number, exponents: Exponents) -> String {
    match (number.as_i64(), number.as_f64()) {
        (Some(int), _) => int.to_string(),
        (None, Some(float)) => go_float(float, exponents),
        (None, None) => number.to_string(),
    }
}

/// Formats a float in the fewest digits that identify it.
fn go_float(float: f64, exponents: Exponents) -> String {
    let Exponents { down, up, digits } = exponents;
    let text = format!("{float:e}");
    let parts = text.split_once('e');
    match parts.and_then(|(mantissa, power)| Some((mantissa, power.parse::<i32>().ok()?))) {
        Some((mantissa, power)) if power <= down || power >= up => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:0digits$}", power.unsigned_abs())
        }
        _ => float.to_string(),
    }
}
