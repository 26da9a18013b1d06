//! Values as Go prints them: clients read these texts in the messages of an API server.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// A value as the verb `%v` prints it.
pub(crate) fn plain(value: &Value) -> String {
    let mut text = String::new();
    write_plain(&mut text, value);
    text
}

/// Values as the verb `%v` prints a slice of them.
pub(crate) fn plain_list(values: &[Value]) -> String {
    let mut text = String::new();
    write_plain_list(&mut text, values);
    text
}

fn write_plain(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("<nil>"),
        Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Number(value) => text.push_str(&number(value)),
        Value::String(value) => text.push_str(value),
        Value::Array(values) => write_plain_list(text, values),
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(name, _)| *name);
            text.push_str("map[");
            for (place, (name, value)) in entries.into_iter().enumerate() {
                if place > 0 {
                    text.push(' ');
                }
                text.push_str(name);
                text.push(':');
                write_plain(text, value);
            }
            text.push(']');
        }
    }
}

fn write_plain_list(text: &mut String, values: &[Value]) {
    text.push('[');
    for (place, value) in values.iter().enumerate() {
        if place > 0 {
            text.push(' ');
        }
        write_plain(text, value);
    }
    text.push(']');
}

/// A value as the verb `%#v` prints it: as Go source.
pub(crate) fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(_) | Value::Number(_) => plain(value),
        Value::String(value) => quoted(value),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", values.join(", "))
        }
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(name, _)| *name);
            let entries: Vec<String> = entries
                .into_iter()
                .map(|(name, value)| format!("{}:{}", quoted(name), go_syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
    }
}

/// Text as the verb `%q` prints it.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            letter if u32::from(letter) < 0x20 || letter == '\u{7f}' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\x{:02x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// A number as the verb `%v` prints it.
pub(crate) fn number(number: &Number) -> String {
    match number.as_f64() {
        Some(value) if number.is_f64() => float(value),
        Some(_) | None => number.to_string(),
    }
}

/// The shortest text that reads back as `value`, with an exponent from 1e21 on and below 1e-4.
fn float(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        format!("{digits}e{sign}{exponent:0>2}")
    } else {
        format!("{value}")
    }
}

/// Appends a value as compact JSON in which, as in Go, `<`, `>`, `&` and the line separators are
/// escaped. These texts are parts of keys, so another escaping would be another key.
pub(crate) fn write_json(text: &mut String, value: &Value) {
    match value {
        Value::String(value) => write_json_string(text, value),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            let _ = write!(text, "{value}");
        }
        Value::Array(values) => {
            text.push('[');
            for (place, value) in values.iter().enumerate() {
                if place > 0 {
                    text.push(',');
                }
                write_json(text, value);
            }
            text.push(']');
        }
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (place, (name, value)) in entries.into_iter().enumerate() {
                if place > 0 {
                    text.push(',');
                }
                write_json_string(text, name);
                text.push(':');
                write_json(text, value);
            }
            text.push('}');
        }
    }
}

/// Appends text as a JSON string, escaped as [`write_json`] does.
pub(crate) fn write_json_string(text: &mut String, value: &str) {
    text.push('"');
    for letter in value.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(letter));
            }
            letter => text.push(letter),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_print_as_in_go() {
        let value = json!({ "b": [1, "x", null, true], "a": { "n": 1.5 } });
        assert_eq!(plain(&value), "map[a:map[n:1.5] b:[1 x <nil> true]]");
        assert_eq!(
            go_syntax(&value),
            r#"map[string]interface {}{"a":map[string]interface {}{"n":1.5}, "b":[]interface {}{1, "x", interface {}(nil), true}}"#
        );
    }

    #[test]
    fn floats_have_exponents_where_go_has_them() {
        let table = [
            (1.5, "1.5"),
            (3.0, "3"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1e-5, "1e-05"),
        ];
        for (value, text) in table {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn text_is_quoted_as_in_go() {
        assert_eq!(quoted("a\"b\\\n\u{1}é"), r#""a\"b\\\n\x01é""#);
        let mut text = String::new();
        write_json(&mut text, &json!("a<b&\u{1}"));
        assert_eq!(text, r#""a\u003cb\u0026\u0001""#);
    }
}
