//! Converts a document of version 3 to version 2.
//!
//! Kubernetes generates both versions from one description, and version 3 can express more. Going
//! back is therefore a matter of leaving out: no defaults, one type for each value, media types for
//! a whole operation instead of each response, and parameters that many operations share defined
//! once.

use serde_json::{Map, Value, json};

use super::DEFINITIONS;
use crate::shared_definitions::SCHEMAS;

/// The prefix of references to shared parameters.
const PARAMETERS: &str = "#/parameters/";

/// The media types in the order in which Kubernetes lists them. Version 3 has them as keys of a
/// map, and so in no order.
const MEDIA_TYPES: [&str; 10] = [
    "text/plain",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// The media types of responses for custom kinds.
const CUSTOM_MEDIA_TYPES: [&str; 2] = ["application/json", "application/yaml"];

/// A schema.
pub(super) fn schema(schema: Value) -> Value {
    let Value::Object(fields) = schema else { return schema };
    let mut out = Map::new();
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("default", _) => {}
            // A value of several types is one that can be written as text.
            ("oneOf", _) => {
                out.insert("type".to_owned(), json!("string"));
            }
            ("$ref", Value::String(target)) => {
                out.insert(name, definition(&target));
            }
            // A reference that has other fields beside it.
            ("allOf", Value::Array(all)) => {
                let target = all.first().and_then(|it| it["$ref"].as_str());
                if let Some(target) = target {
                    out.insert("$ref".to_owned(), definition(target));
                }
            }
            ("items" | "additionalProperties", inner) => {
                out.insert(name, self::schema(inner));
            }
            ("properties", Value::Object(properties)) => {
                let properties = properties.into_iter().map(|(name, it)| (name, self::schema(it)));
                out.insert(name, Value::Object(properties.collect()));
            }
            (_, value) => {
                out.insert(name, value);
            }
        }
    }
    Value::Object(out)
}

fn definition(target: &str) -> Value {
    let name = target.strip_prefix(SCHEMAS).unwrap_or(target);
    format!("{DEFINITIONS}{name}").into()
}

/// Converts a path with its operations. Parameters that may be shared go to `shared`.
pub(super) fn path(item: Value, shared: &mut Map<String, Value>) -> Value {
    let Value::Object(item) = item else { return item };
    let mut out = Map::new();
    for (name, value) in item {
        let value = match name.as_str() {
            "parameters" => parameters(value, shared).into(),
            _ => operation(value, shared),
        };
        out.insert(name, value);
    }
    Value::Object(out)
}

fn operation(operation: Value, shared: &mut Map<String, Value>) -> Value {
    let Value::Object(mut operation) = operation else { return operation };
    let mut own = Vec::new();
    let mut consumes = None;
    if let Some(body) = operation.remove("requestBody") {
        let (types, schema) = content(&body);
        consumes = Some(types);
        let mut parameter = json!({ "name": "body", "in": "body", "schema": schema });
        if body["required"] == true {
            parameter["required"] = true.into();
        }
        own.push(share(parameter, shared));
    }
    own.extend(parameters(operation.remove("parameters").unwrap_or_default(), shared));
    if !own.is_empty() {
        operation.insert("parameters".to_owned(), own.into());
    }
    let mut produces = Vec::new();
    if let Some(Value::Object(responses)) = operation.get_mut("responses") {
        for (_, response) in responses.iter_mut() {
            let (types, schema) = content(response);
            let Value::Object(response) = response else { continue };
            if response.remove("content").is_some() {
                response.insert("schema".to_owned(), schema);
                produces = types;
            }
        }
    }
    let consumes = consumes.unwrap_or_else(|| consumes_without_body(&operation, &produces));
    for (name, types) in [("consumes", consumes), ("produces", produces)] {
        if !types.is_empty() {
            operation.insert(name.to_owned(), types.into());
        }
    }
    operation.insert("schemes".to_owned(), json!(["https"]));
    Value::Object(operation)
}

/// Returns the media types that Kubernetes publishes for the bodies of an operation that has none:
/// any for built-in kinds, which also have a binary form, and elsewhere the types of its responses.
/// The keys of tokens are published by another component of it, which lists none.
fn consumes_without_body(operation: &Map<String, Value>, produces: &[Value]) -> Vec<Value> {
    let action = operation.get("x-kubernetes-action");
    let tag = operation.get("tags").map(|tags| &tags[0]);
    match (action, tag.and_then(Value::as_str)) {
        (Some(_), _) if produces != CUSTOM_MEDIA_TYPES => vec!["*/*".into()],
        (None, Some("WellKnown" | "openid")) => Vec::new(),
        (Some(_) | None, _) => produces.to_vec(),
    }
}

/// Returns the media types of a body or a response, and the one schema they have.
fn content(of: &Value) -> (Vec<Value>, Value) {
    let Value::Object(content) = &of["content"] else { return (Vec::new(), Value::Null) };
    let mut types: Vec<&String> = content.keys().collect();
    let place = |it: &str| MEDIA_TYPES.iter().position(|known| *known == it);
    types.sort_by_key(|it| place(it).unwrap_or(MEDIA_TYPES.len()));
    let first = content.values().next().map(|it| it["schema"].clone()).unwrap_or_default();
    (types.into_iter().map(|it| Value::from(it.as_str())).collect(), schema(first))
}

fn parameters(all: Value, shared: &mut Map<String, Value>) -> Vec<Value> {
    let Value::Array(all) = all else { return Vec::new() };
    let flat = all.into_iter().map(|parameter| {
        let Value::Object(mut parameter) = parameter else { return parameter };
        if let Some(Value::Object(schema)) = parameter.remove("schema") {
            parameter.extend(schema);
        }
        Value::Object(parameter)
    });
    flat.map(|parameter| share(parameter, shared)).collect()
}

/// Returns a reference to a shared parameter, or the parameter itself if it is not to be shared.
///
/// Names of objects are described with their kind, and bodies are of a kind, so that sharing these
/// would save nothing. The other two are read by older clients at the operation itself.
fn share(parameter: Value, shared: &mut Map<String, Value>) -> Value {
    let text = |name: &str| parameter[name].as_str().unwrap_or_default();
    let own = match (text("in"), text("name")) {
        ("query" | "path", "name") | ("query", "fieldValidation" | "dryRun") => true,
        ("body", "body") => {
            let target = parameter["schema"]["$ref"].as_str().unwrap_or_default();
            let name = target.strip_prefix(DEFINITIONS).unwrap_or_default();
            !name.starts_with("io.k8s.apimachinery")
        }
        _ => false,
    };
    if own {
        return parameter;
    }
    let name = format!("{}-{}", text("name"), fingerprint(&parameter));
    let reference = json!({ "$ref": format!("{PARAMETERS}{name}") });
    shared.insert(name, parameter);
    reference
}

/// Returns eight letters that identify a parameter: the start of a hash of its text, the fields of
/// which have an order of their own there.
fn fingerprint(parameter: &Value) -> String {
    const FIELDS: [&str; 8] =
        ["uniqueItems", "type", "format", "description", "name", "in", "required", "schema"];
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let fields =
        FIELDS.iter().filter_map(|&name| Some((name.to_owned(), parameter.get(name)?.clone())));
    let text = Value::Object(fields.collect()).to_string();
    // FNV-1 in 64 bits, of which the upper 48 are kept.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        hash = hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte);
    }
    let letters = (0..8).map(|place| {
        let bits = (hash >> (58 - 6 * place)) & 63;
        char::from(LETTERS[usize::try_from(bits).expect("six bits fit")])
    });
    letters.collect()
}

#[cfg(test)]
mod tests;
