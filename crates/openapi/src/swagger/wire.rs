//! Encodes a document of version 2 as a message in protocol buffers, as kubectl requests it.
//!
//! The messages are those of gnostic's `openapi.v2`, and mirror the document: a field for each key,
//! a list of names and values for each map, and extensions (`x-`) in a list of their own. It
//! supports the keys that Kubernetes' documents have; other keys would not be written.

use serde_json::{Map, Value};

/// The whole document.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut message = Message::of(document);
    message.text(1, "swagger");
    message.one(2, "info", info);
    message.one(8, "paths", |it| {
        let mut message = Message::of(it);
        message.entries(2, it, path);
        message.bytes
    });
    message.one(9, "definitions", |it| named(it, schema));
    message.one(10, "parameters", |it| named(it, parameter));
    message.many(12, "security", |it| named(it, texts));
    message.one(13, "securityDefinitions", |it| named(it, scheme));
    message.bytes
}

fn info(info: &Value) -> Vec<u8> {
    let mut message = Message::of(info);
    message.text(1, "title");
    message.text(2, "version");
    message.bytes
}

/// Security by a key in a header, the second of several kinds.
fn scheme(scheme: &Value) -> Vec<u8> {
    let mut key = Message::of(scheme);
    key.text(1, "type");
    key.text(2, "name");
    key.text(3, "in");
    key.text(4, "description");
    choice(2, &key.bytes)
}

fn path(item: &Value) -> Vec<u8> {
    let mut message = Message::of(item);
    let methods = ["get", "put", "post", "delete", "options", "head", "patch"];
    for (number, method) in (2..).zip(methods) {
        message.one(number, method, operation);
    }
    message.many(9, "parameters", parameter_or_reference);
    message.bytes
}

fn operation(operation: &Value) -> Vec<u8> {
    let mut message = Message::of(operation);
    message.texts(1, "tags");
    message.text(3, "description");
    message.text(5, "operationId");
    message.texts(6, "produces");
    message.texts(7, "consumes");
    message.many(8, "parameters", parameter_or_reference);
    message.one(9, "responses", |it| named(it, |response| choice(1, &response_object(response))));
    message.texts(10, "schemes");
    message.flag(11, "deprecated");
    message.extensions(13);
    message.bytes
}

fn response_object(response: &Value) -> Vec<u8> {
    let mut message = Message::of(response);
    message.text(1, "description");
    message.one(2, "schema", |it| choice(1, &schema(it)));
    message.bytes
}

fn parameter_or_reference(it: &Value) -> Vec<u8> {
    if it.get("$ref").is_none() {
        return choice(1, &parameter(it));
    }
    let mut reference = Message::of(it);
    reference.text(1, "$ref");
    choice(2, &reference.bytes)
}

fn parameter(parameter: &Value) -> Vec<u8> {
    let mut message = Message::of(parameter);
    if parameter["in"] == "body" {
        message.text(1, "description");
        message.text(2, "name");
        message.text(3, "in");
        message.flag(4, "required");
        message.one(5, "schema", schema);
        return choice(1, &message.bytes);
    }
    message.flag(1, "required");
    message.text(2, "in");
    message.text(3, "description");
    message.text(4, "name");
    // The following numbers differ by one: a query may also be allowed to be empty.
    let (kind, number) = if parameter["in"] == "query" { (3, 6) } else { (4, 5) };
    message.text(number, "type");
    message.text(number + 1, "format");
    message.flag(number + 14, "uniqueItems");
    choice(2, &choice(kind, &message.bytes))
}

fn schema(schema: &Value) -> Vec<u8> {
    let mut message = Message::of(schema);
    message.text(1, "$ref");
    message.text(2, "format");
    message.text(3, "title");
    message.text(4, "description");
    message.float(6, "multipleOf");
    message.float(7, "maximum");
    message.flag(8, "exclusiveMaximum");
    message.float(9, "minimum");
    message.flag(10, "exclusiveMinimum");
    message.count(11, "maxLength");
    message.count(12, "minLength");
    message.text(13, "pattern");
    message.count(14, "maxItems");
    message.count(15, "minItems");
    message.flag(16, "uniqueItems");
    message.count(17, "maxProperties");
    message.count(18, "minProperties");
    message.texts(19, "required");
    message.many(20, "enum", any);
    message.one(21, "additionalProperties", |it| match it {
        Value::Bool(allowed) => {
            let mut bytes = Vec::new();
            number(&mut bytes, 2, u64::from(*allowed));
            bytes
        }
        _ => choice(1, &self::schema(it)),
    });
    message.one(22, "type", |it| choice(1, it.as_str().unwrap_or_default().as_bytes()));
    message.one(23, "items", |it| choice(1, &self::schema(it)));
    message.one(25, "properties", |it| named(it, self::schema));
    message.extensions(31);
    message.bytes
}

/// Encodes any value: its text in YAML, of which JSON is a part.
fn any(value: &Value) -> Vec<u8> {
    choice(2, value.to_string().as_bytes())
}

fn texts(list: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in list.as_array().into_iter().flatten().filter_map(Value::as_str) {
        piece(&mut bytes, 1, text.as_bytes());
    }
    bytes
}

/// Encodes a message with nothing but a list of names and values, in the first field.
fn named(map: &Value, write: impl Fn(&Value) -> Vec<u8>) -> Vec<u8> {
    let mut message = Message::of(map);
    message.entries(1, map, write);
    message.bytes
}

/// Encodes a message with nothing but this field.
fn choice(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 6);
    piece(&mut out, number, bytes);
    out
}

/// A message while it is written, field by field in the order of their numbers.
struct Message<'a> {
    from: Option<&'a Map<String, Value>>,
    bytes: Vec<u8>,
}

impl<'a> Message<'a> {
    fn of(value: &'a Value) -> Self {
        Self { from: value.as_object(), bytes: Vec::new() }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.from?.get(key)
    }

    fn text(&mut self, number: u32, key: &str) {
        if let Some(text) = self.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()) {
            piece(&mut self.bytes, number, text.as_bytes());
        }
    }

    fn flag(&mut self, number: u32, key: &str) {
        if self.get(key) == Some(&Value::Bool(true)) {
            self::number(&mut self.bytes, number, 1);
        }
    }

    fn count(&mut self, number: u32, key: &str) {
        if let Some(count) = self.get(key).and_then(Value::as_u64).filter(|count| *count != 0) {
            self::number(&mut self.bytes, number, count);
        }
    }

    fn float(&mut self, number: u32, key: &str) {
        if let Some(float) = self.get(key).and_then(Value::as_f64).filter(|float| *float != 0.0) {
            varint(&mut self.bytes, (u64::from(number) << 3) | 1);
            self.bytes.extend(float.to_le_bytes());
        }
    }

    fn texts(&mut self, number: u32, key: &str) {
        for text in self.get(key).and_then(Value::as_array).into_iter().flatten() {
            piece(&mut self.bytes, number, text.as_str().unwrap_or_default().as_bytes());
        }
    }

    fn one(&mut self, number: u32, key: &str, write: impl Fn(&Value) -> Vec<u8>) {
        if let Some(value) = self.get(key) {
            piece(&mut self.bytes, number, &write(value));
        }
    }

    fn many(&mut self, number: u32, key: &str, write: impl Fn(&Value) -> Vec<u8>) {
        for value in self.get(key).and_then(Value::as_array).into_iter().flatten() {
            piece(&mut self.bytes, number, &write(value));
        }
    }

    fn entries(&mut self, number: u32, map: &Value, write: impl Fn(&Value) -> Vec<u8>) {
        for (name, value) in map.as_object().into_iter().flatten() {
            self.entry(number, name, &write(value));
        }
    }

    fn entry(&mut self, number: u32, name: &str, value: &[u8]) {
        let mut entry = choice(1, name.as_bytes());
        piece(&mut entry, 2, value);
        piece(&mut self.bytes, number, &entry);
    }

    fn extensions(&mut self, number: u32) {
        for (name, value) in self.from.into_iter().flatten() {
            if name.starts_with("x-") {
                self.entry(number, name, &any(value));
            }
        }
    }
}

/// A field of text or bytes, or of a message.
fn piece(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    varint(out, (u64::from(number) << 3) | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A field of a number.
fn number(out: &mut Vec<u8>, number: u32, value: u64) {
    varint(out, u64::from(number) << 3);
    varint(out, value);
}

/// Encodes a varint: seven bits in each byte, the lowest first; the eighth marks that more follow.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 127 {
        out.push(value.to_le_bytes()[0] | 128);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests;
