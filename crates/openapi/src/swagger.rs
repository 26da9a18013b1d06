//! Builds everything that is served as one document of OpenAPI version 2.
//!
//! kubectl requests it where version 3 does not have enough: to validate a list of objects, or one
//! of a kind that cannot be patched, before it is sent.

mod convert;
mod wire;

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::document::{builtin_paths, hash};
use crate::shared_definitions::load_builtin_document;

/// The prefix of references to schemas.
const DEFINITIONS: &str = "#/definitions/";

/// The document in both forms it is sent in.
#[derive(Debug)]
pub struct Swagger {
    json: Bytes,
    protobuf: Bytes,
    hash: String,
}

impl Swagger {
    /// Builds the document of everything built in, and the fragments in `custom`, as [`fragment`]
    /// builds them.
    pub(crate) fn new(custom: impl IntoIterator<Item = Value>) -> Self {
        let document = assemble(custom);
        let json = Bytes::from(document.to_string());
        Self { hash: hash(&json), json, protobuf: wire::document(&document).into() }
    }

    /// The document as JSON.
    #[must_use]
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// The document as a message `openapi.v2.Document` in protocol buffers.
    #[must_use]
    pub fn protobuf(&self) -> &Bytes {
        &self.protobuf
    }

    /// Returns the [`hash`](crate::hash()) of the document as JSON, which is used for both forms.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// Converts a document of version 3 to its fragment of the version 2 document.
pub(crate) fn fragment(mut document: Value) -> Value {
    let mut parameters = Map::new();
    let paths = entries(document["paths"].take());
    let paths = paths.into_iter().map(|(name, it)| (name, convert::path(it, &mut parameters)));
    let paths: Map<_, _> = paths.collect();
    let schemas = entries(document["components"]["schemas"].take());
    let definitions = schemas.into_iter().map(|(name, it)| (name, convert::schema(it)));
    let definitions: Map<_, _> = definitions.collect();
    json!({ "paths": paths, "definitions": definitions, "parameters": parameters })
}

/// The fragment of everything built in. It is cached: building it takes most of the time, and
/// definitions come in dozens, each of which changes the whole.
static BUILT_IN: LazyLock<Value> = LazyLock::new(|| {
    let mut whole = json!({ "definitions": {}, "parameters": {}, "paths": {} });
    for path in builtin_paths() {
        add(&mut whole, fragment(load_builtin_document(path)));
    }
    let model = load_builtin_document("api/v1");
    let schemes = &model["components"]["securitySchemes"];
    let names = entries(schemes.clone()).into_iter().map(|(name, _)| (name, json!([])));
    whole["swagger"] = "2.0".into();
    whole["info"] = model["info"].clone();
    whole["security"] = json!([names.collect::<Map<_, _>>()]);
    whole["securityDefinitions"] = schemes.clone();
    whole.sort_all_objects();
    whole
});

fn assemble(custom: impl IntoIterator<Item = Value>) -> Value {
    let mut document = BUILT_IN.clone();
    for mut fragment in custom {
        fragment.sort_all_objects();
        // Built-in definitions are kept, whatever a CRD contains.
        add(&mut document, fragment);
    }
    for part in ["definitions", "parameters", "paths"] {
        if let Value::Object(entries) = &mut document[part] {
            entries.sort_keys();
        }
    }
    document
}

/// Adds missing entries.
fn add(whole: &mut Value, fragment: Value) {
    for (part, new) in entries(fragment) {
        if let Value::Object(known) = &mut whole[&part] {
            for (name, value) in entries(new) {
                known.entry(name).or_insert(value);
            }
        }
    }
}

fn entries(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(entries) => entries,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

#[cfg(test)]
mod tests;
