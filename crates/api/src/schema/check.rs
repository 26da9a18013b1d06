//! Validates a value against a schema, with the messages of kube-apiserver.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::{Kind, ListType, Schema};
use crate::quantity::Quantity;
use gantry_yaml::node::Path;

/// One violation of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The value.
    pub path: Path,
    /// Which rule it breaks.
    pub rule: Rule,
    /// The message, without the path, as kube-apiserver writes it.
    pub text: String,
    /// What to do about it, if the message does not make that clear.
    pub remedy: String,
}

impl Violation {
    fn new(path: Path, rule: Rule, text: String) -> Self {
        Self { path, rule, text, remedy: String::new() }
    }

    fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }
}

/// The rules a schema can state, as far as callers treat them differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The schema declares no such field. Servers drop it, strict clients reject it.
    Unknown,
    /// A required field is missing.
    Required,
    /// A value of another type.
    Type,
    /// A value out of the allowed set, range, length or form.
    Value,
    /// Two equal elements in a list that forbids them.
    Duplicate,
}

impl Schema {
    /// Returns every violation of this schema in `value`.
    #[must_use]
    pub fn check(&self, value: &Value) -> Vec<Violation> {
        self.check_at(value, &Path::root())
    }

    /// Returns every violation of this schema in `value`, which is at `path` of a larger one.
    #[must_use]
    pub fn check_at(&self, value: &Value, path: &Path) -> Vec<Violation> {
        let mut found = Vec::new();
        self.visit(value, path, &mut found);
        found
    }

    fn visit(&self, value: &Value, path: &Path, found: &mut Vec<Violation>) {
        if value.is_null() && self.nullable {
            return;
        }
        if let Some(expected) = self.type_mismatch(value) {
            let what = type_name(value);
            let text = format!(
                "Invalid value: \"{what}\": {path} in body must be of type {expected}: \"{what}\""
            );
            let violation = Violation::new(path.clone(), Rule::Type, text);
            found.push(violation.with_remedy(hint(expected, value)));
            return;
        }
        if !self.allowed.is_empty() && !self.allowed.contains(value) {
            let mut text = format!("Unsupported value: {value}: supported values: ");
            for (place, allowed) in self.allowed.iter().enumerate() {
                let _ = write!(text, "{}{allowed}", if place > 0 { ", " } else { "" });
            }
            found.push(Violation::new(path.clone(), Rule::Value, text));
            return;
        }
        match value {
            Value::Object(entries) => self.visit_object(entries, path, found),
            Value::Array(items) => self.visit_list(items, path, found),
            Value::String(text) => self.visit_string(text, path, found),
            Value::Number(_) => self.visit_number(value, path, found),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Returns the type the schema requires, if `value` has another.
    fn type_mismatch(&self, value: &Value) -> Option<&'static str> {
        let (fits, expected) = match self.kind {
            Kind::Any => (!value.is_null() || self.preserve_unknown, "any"),
            Kind::Object => (value.is_object(), "object"),
            Kind::Array => (value.is_array(), "array"),
            Kind::String => (value.is_string(), "string"),
            Kind::Integer => (is_integer(value), "integer"),
            Kind::Number => (value.is_number(), "number"),
            Kind::Boolean => (value.is_boolean(), "boolean"),
            Kind::IntOrString => (is_integer(value) || value.is_string(), "integer,string"),
        };
        (!fits).then_some(expected)
    }

    fn visit_object(
        &self,
        entries: &serde_json::Map<String, Value>,
        path: &Path,
        found: &mut Vec<Violation>,
    ) {
        for name in &self.required {
            if !entries.contains_key(name) {
                let text = "Required value".to_owned();
                let violation = Violation::new(path.key(name), Rule::Required, text);
                found.push(violation.with_remedy("add this field"));
            }
        }
        if self.embedded {
            for name in ["apiVersion", "kind"] {
                if entries.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                    let text = "Required value: must not be empty".to_owned();
                    found.push(Violation::new(path.key(name), Rule::Required, text));
                }
            }
        }
        if let Some(most) = self.max_properties {
            too_many(entries.len(), most, path, found);
        }
        for (name, value) in entries {
            match self.entry(name) {
                Some(schema) => schema.visit(value, &path.key(name), found),
                None if self.keeps_unknown() => {}
                None => {
                    let text = format!("unknown field \"{name}\"");
                    let violation = Violation::new(path.key(name), Rule::Unknown, text);
                    found.push(violation.with_remedy(likely_field(name, self.entry_names())));
                }
            }
        }
    }

    fn visit_list(&self, items: &[Value], path: &Path, found: &mut Vec<Violation>) {
        if let Some(most) = self.max_items {
            too_many(items.len(), most, path, found);
        }
        if let Some(least) = self.min_items
            && (items.len() as u64) < least
        {
            let text = format!(
                "Invalid value: {}: {path} in body should have at least {least} items",
                items.len()
            );
            found.push(Violation::new(path.clone(), Rule::Value, text));
        }
        if let Some(schema) = &self.items {
            for (index, item) in items.iter().enumerate() {
                schema.visit(item, &path.index(index), found);
            }
        }
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let key = match &self.list {
                ListType::Atomic => break,
                ListType::Set => item.clone(),
                ListType::Map(keys) => keys
                    .iter()
                    .filter_map(|key| item.get(key).map(|value| (key.clone(), value.clone())))
                    .collect::<serde_json::Map<_, _>>()
                    .into(),
            };
            let key = key.to_string();
            if seen.contains(&key) {
                let text = format!("Duplicate value: {key}");
                found.push(Violation::new(path.index(index), Rule::Duplicate, text));
            }
            seen.insert(key);
        }
    }

    fn visit_string(&self, text: &str, path: &Path, found: &mut Vec<Violation>) {
        let mut add = |text: String| found.push(Violation::new(path.clone(), Rule::Value, text));
        let length = text.chars().count() as u64;
        if let Some(most) = self.max_length
            && length > most
        {
            add(format!("Too long: may not be more than {most} bytes"));
        }
        if let Some(least) = self.min_length
            && length < least
        {
            add(format!(
                "Invalid value: {text:?}: {path} in body should be at least {least} chars long"
            ));
        }
        if let Some(pattern) = &self.pattern
            && !pattern.is_match(text)
        {
            add(format!(
                "Invalid value: {text:?}: {path} in body should match '{}'",
                pattern.as_str()
            ));
        } else if let Some(problem) = self.quantity_problem(text) {
            add(problem);
        }
        if let Some(format) = &self.format
            && !fits_format(format, text)
        {
            add(format!(
                "Invalid value: {text:?}: {path} in body must be of type {format}: {text:?}"
            ));
        }
    }

    /// Returns why a quantity is out of range. The published pattern is wider than that.
    fn quantity_problem(&self, text: &str) -> Option<String> {
        if self.kind != Kind::IntOrString || self.pattern.is_none() {
            return None;
        }
        Quantity::parse(text).err().map(|error| format!("Invalid value: {text:?}: {error}"))
    }

    fn visit_number(&self, value: &Value, path: &Path, found: &mut Vec<Violation>) {
        let mut add = |text: String| found.push(Violation::new(path.clone(), Rule::Value, text));
        let Some(number) = value.as_f64() else { return };
        if let Some(problem) = self.quantity_problem(&value.to_string()) {
            add(problem);
        }
        if let Some(most) = self.maximum
            && number > most
        {
            add(format!(
                "Invalid value: {value}: {path} in body should be less than or equal to {most}"
            ));
        }
        if let Some(least) = self.minimum
            && number < least
        {
            add(format!(
                "Invalid value: {value}: {path} in body should be greater than or equal to {least}"
            ));
        }
        if self.format.as_deref() == Some("int32")
            && value.as_i64().is_some_and(|number| i32::try_from(number).is_err())
        {
            add(format!(
                "Invalid value: {value}: {path} in body must fit 32 bits (-2147483648 to \
                 2147483647)"
            ));
        }
    }
}

fn too_many(have: usize, most: u64, path: &Path, found: &mut Vec<Violation>) {
    if have as u64 > most {
        let text = format!("Too many: {have}: must have at most {most} items");
        found.push(Violation::new(path.clone(), Rule::Value, text));
    }
}

fn is_integer(value: &Value) -> bool {
    // A server accepts 3.0 as the integer 3.
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns a hint about the mistake behind most type errors in hand-written YAML.
fn hint(expected: &str, value: &Value) -> &'static str {
    match (expected, value) {
        ("string", Value::Bool(_) | Value::Number(_)) => "put it in quotes",
        ("integer" | "number" | "boolean", Value::String(_)) => "remove the quotes",
        ("array", Value::Object(_) | Value::String(_)) => {
            "write a list: start each entry with `- `"
        }
        ("object", Value::Array(_)) => "remove the `- ` in front of the entries",
        _ => "",
    }
}

fn fits_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "byte" => {
            let body = text.trim_end_matches('=');
            text.len().is_multiple_of(4)
                && text.len() - body.len() <= 2
                && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
        }
        _ => true,
    }
}

/// The field that was probably meant by one that does not exist.
fn likely_field<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    match nearest(name, known) {
        Some(candidate) => format!("did you mean \"{candidate}\"?"),
        None => "remove it, or check where it belongs".to_owned(),
    }
}

/// The known name that was probably meant by an unknown one; none if all are too far off.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let close = known
        .map(|candidate| (distance(name, candidate), candidate))
        .min()
        .filter(|(distance, _)| *distance <= 1 + name.chars().count() / 4);
    close.map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace) between two names, letter case aside.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.to_lowercase().chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = corner + usize::from(from != *to);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: &Value, value: &Value) -> Vec<(String, Rule, String)> {
        Schema::compile(schema)
            .unwrap()
            .check(value)
            .into_iter()
            .map(|v| (v.path.to_string(), v.rule, v.text))
            .collect()
    }

    fn remedy(schema: &Value, value: &Value) -> String {
        Schema::compile(schema).unwrap().check(value).remove(0).remedy
    }

    #[test]
    fn common_mistakes_get_a_remedy() {
        let table = [
            ("string", json!(true), "quotes"),
            ("string", json!(1), "quotes"),
            ("integer", json!("1"), "remove the quotes"),
            ("array", json!({}), "write a list"),
            ("object", json!([]), "remove the `- `"),
            ("object", json!(1), ""),
        ];
        for (kind, value, expected) in table {
            let remedy = remedy(&json!({"type": kind}), &value);
            assert!(remedy.contains(expected), "{kind} {value}: {remedy}");
            assert_eq!(remedy.is_empty(), expected.is_empty(), "{kind} {value}: {remedy}");
        }
    }

    /// The messages are those of kube-apiserver (apiserver specification, 4.3).
    #[test]
    fn messages_match_the_server() {
        let field = |schema: Value| json!({"type": "object", "properties": {"x": schema}});
        let table = [
            (
                json!({"type": "integer"}),
                json!("three"),
                Rule::Type,
                "Invalid value: \"string\": x in body must be of type integer: \"string\"",
            ),
            (
                json!({"type": "string"}),
                json!(true),
                Rule::Type,
                "Invalid value: \"boolean\": x in body must be of type string: \"boolean\"",
            ),
            (
                json!({"type": "string", "enum": ["red", "blue"]}),
                json!("green"),
                Rule::Value,
                "Unsupported value: \"green\": supported values: \"red\", \"blue\"",
            ),
            (
                json!({"type": "integer", "maximum": 10.0}),
                json!(20),
                Rule::Value,
                "Invalid value: 20: x in body should be less than or equal to 10",
            ),
            (
                json!({"type": "integer", "minimum": 1}),
                json!(0),
                Rule::Value,
                "Invalid value: 0: x in body should be greater than or equal to 1",
            ),
            (
                json!({"type": "string", "maxLength": 3}),
                json!("abcd"),
                Rule::Value,
                "Too long: may not be more than 3 bytes",
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
                json!(["a", "b"]),
                Rule::Value,
                "Too many: 2: must have at most 1 items",
            ),
            (
                json!({"type": "string", "pattern": "^[a-z]+$"}),
                json!("X"),
                Rule::Value,
                "Invalid value: \"X\": x in body should match '^[a-z]+$'",
            ),
            (
                json!({"type": "string", "format": "date-time"}),
                json!("zz"),
                Rule::Value,
                "Invalid value: \"zz\": x in body must be of type date-time: \"zz\"",
            ),
            (
                json!({"x-kubernetes-int-or-string": true}),
                json!(1.5),
                Rule::Type,
                "Invalid value: \"number\": x in body must be of type integer,string: \"number\"",
            ),
            (
                json!({"type": "string"}),
                json!(null),
                Rule::Type,
                "Invalid value: \"null\": x in body must be of type string: \"null\"",
            ),
        ];
        for (schema, value, rule, text) in table {
            let found = check(&field(schema), &json!({"x": value}));
            assert_eq!(found, [("x".to_owned(), rule, text.to_owned())]);
        }
    }

    #[test]
    fn unknown_fields_name_the_likely_one() {
        let schema =
            json!({"type": "object", "properties": {"kernelMappings": {"type": "string"}}});
        let table = [
            ("kernelMapings", "did you mean \"kernelMappings\"?"),
            ("KernelMappings", "did you mean \"kernelMappings\"?"),
            ("replicas", "remove it, or check where it belongs"),
        ];
        for (name, expected) in table {
            let value = json!({name: "x"});
            let text = format!("unknown field \"{name}\"");
            assert_eq!(check(&schema, &value), [(name.to_owned(), Rule::Unknown, text)]);
            assert_eq!(remedy(&schema, &value), expected, "{name}");
        }
    }

    #[test]
    fn quantities_must_be_in_range() {
        let schema = crate::kubernetes::quantity();
        for value in [json!("8Ei"), json!("1e1.5"), json!(1e30), json!(0.5)] {
            assert_eq!(check(&schema, &value).len(), 1, "{value}");
        }
        for value in [json!("7Ei"), json!("0"), json!(7)] {
            assert_eq!(check(&schema, &value), [], "{value}");
        }
    }

    #[test]
    fn lists_refuse_equal_keys() {
        let schema = json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}},
        });
        let found = check(&schema, &json!([{"k": "a", "v": 1}, {"k": "b"}, {"k": "a", "v": 2}]));
        assert_eq!(
            found,
            [("[2]".to_owned(), Rule::Duplicate, "Duplicate value: {\"k\":\"a\"}".to_owned())]
        );
    }

    #[test]
    fn open_objects_keep_anything() {
        for open in [
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "additionalProperties": true}),
            json!({"x-kubernetes-preserve-unknown-fields": true}),
        ] {
            assert_eq!(check(&open, &json!({"a": {"b": null}})), [], "{open}");
        }
    }

    #[test]
    fn embedded_objects_need_a_type() {
        let schema = json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(check(&schema, &json!({"kind": "Job"})).len(), 1);
        assert_eq!(check(&schema, &json!({"kind": "Job", "apiVersion": "batch/v1"})).len(), 0);
    }
}
