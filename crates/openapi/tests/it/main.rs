//! Compares documents of custom kinds with those of kube-apiserver, and checks what clients need.

#![expect(clippy::unwrap_used, reason = "a fault in a test ends it")]

use gantry_openapi::OpenApiVersion;
use serde_json::Value;

mod clients;
mod golden;
mod laws;

/// Definitions, and the document Kubernetes v1.34.10 published for them in one group version.
struct Golden {
    name: &'static str,
    group: String,
    version: String,
    definitions: Vec<Value>,
    document: Value,
    /// The fragments of version 2 that it published for them.
    fragment: Value,
}

impl Golden {
    fn all() -> Vec<Self> {
        let files = [
            ("approved", include_str!("../golden/approved.json")),
            ("dashes", include_str!("../golden/dashes.json")),
            ("many", include_str!("../golden/many.json")),
            ("rich", include_str!("../golden/rich.json")),
            ("versions-v1alpha1", include_str!("../golden/versions-v1alpha1.json")),
            ("versions-v2", include_str!("../golden/versions-v2.json")),
        ];
        files.map(|(name, text)| Self::read(name, text)).into()
    }

    fn read(name: &'static str, text: &str) -> Self {
        let mut golden: Value = serde_json::from_str(text).unwrap();
        Self {
            name,
            group: golden["group"].as_str().unwrap().to_owned(),
            version: golden["version"].as_str().unwrap().to_owned(),
            definitions: golden["definitions"].as_array().unwrap().clone(),
            document: golden["document"].take(),
            fragment: golden["fragment"].take(),
        }
    }

    /// The document that this crate builds for the definitions.
    fn generated(&self) -> Value {
        self.generated_in(OpenApiVersion::V3)
    }

    fn generated_in(&self, edition: OpenApiVersion) -> Value {
        let kinds = self.definitions.iter();
        let kinds: Vec<_> =
            kinds.map(|it| gantry_openapi::CustomKind::of(it, &self.version).unwrap()).collect();
        gantry_openapi::custom_document(edition, &self.group, &self.version, &kinds)
    }
}

/// Calls `see` with every value in `value`, itself included, and its place.
fn walk(value: &Value, place: &str, see: &mut impl FnMut(&str, &Value)) {
    see(place, value);
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, it)| walk(it, &format!("{place}/{name}"), see));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, it)| walk(it, &format!("{place}/{at}"), see));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
