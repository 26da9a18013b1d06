//! Values and texts as Go prints them: messages quote what was sent, and clients compare messages.

use std::fmt::Write;

use serde_json::{Number, Value};

/// A value as it stands in a message: texts quoted, numbers plain, the rest as JSON by key.
pub(crate) fn print(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) => self::number(number),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => json(value),
    }
}

/// What a JSON decoder calls a value that it did not expect.
#[must_use]
pub fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The type of a decoded value, as the verb `%T` prints it.
#[must_use]
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A text in double quotes, with escapes for what cannot be read.
///
/// # Panics
/// Never: writing to a string cannot fail.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            _ if is_printable(letter) => out.push(letter),
            _ => escape(&mut out, letter),
        }
    }
    out.push('"');
    out
}

fn escape(out: &mut String, letter: char) {
    let code = u32::from(letter);
    let written = match code {
        0..0x80 => write!(out, "\\x{code:02x}"),
        0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
    written.expect("writing to a string cannot fail");
}

/// Whether a letter leaves ink, or is the plain space.
pub(crate) fn is_printable(letter: char) -> bool {
    letter == ' '
        || !(letter.is_control()
            || letter.is_whitespace()
            || matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}'
                | '\u{fff9}'..='\u{ffff}'))
}

/// A number, whole ones without a point.
pub(crate) fn number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => self::float(float),
        _ => number.to_string(),
    }
}

/// The shortest text that reads back as the number; with an exponent from 1e21 on and below 1e-4.
pub(crate) fn float(number: f64) -> String {
    let size = number.abs();
    if number == 0.0 || (1e-4..1e21).contains(&size) {
        return format!("{number}");
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, power)) => {
            let (sign, power) = match power.strip_prefix('-') {
                Some(power) => ('-', power),
                None => ('+', power),
            };
            format!("{digits}e{sign}{power:0>2}")
        }
        None => text,
    }
}

/// JSON with the entries of objects by key, and without the letters that end a script in HTML.
pub(crate) fn json(value: &Value) -> String {
    let mut out = String::new();
    write_json(&mut out, value);
    out
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (place, (key, value)) in entries.into_iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write_text(out, key);
                out.push(':');
                write_json(out, value);
            }
            out.push('}');
        }
        Value::String(text) => write_text(out, text),
        Value::Number(number) => out.push_str(&self::number(number)),
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
    }
}

fn write_text(out: &mut String, text: &str) {
    for letter in Value::from(text).to_string().chars() {
        match letter {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            _ => out.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_print_as_go_prints_them() {
        let table = [
            (json!("a\"b\u{1}\n"), r#""a\"b\x01\n""#),
            (json!("ä\u{200b}"), r#""ä\u200b""#),
            (json!(3), "3"),
            (json!(1.3), "1.3"),
            (json!(2.0), "2"),
            (json!(1e21), "1e+21"),
            (json!(1.5e-7), "1.5e-07"),
            (json!(true), "true"),
            (json!(null), "null"),
            (json!({ "b": [1, "<"], "a": {} }), r#"{"a":{},"b":[1,"\u003c"]}"#),
        ];
        for (value, text) in table {
            assert_eq!(print(&value), text);
        }
    }
}
