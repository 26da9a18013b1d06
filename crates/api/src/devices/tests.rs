mod manifests;
mod oddities;
mod pods;
mod round_trip;
mod rules;

use serde_json::Value;

use crate::decode::{self, Decoded, Document, Options};

/// The documents of a text that is YAML.
fn documents(text: &str) -> Vec<Document> {
    decode::documents(text, Options::default()).unwrap()
}

/// The only document of a text.
fn only(text: &str) -> Document {
    let mut documents = documents(text);
    assert_eq!(documents.len(), 1, "{text}");
    documents.remove(0)
}

/// Returns the decoded document as a value.
fn value(document: &Document) -> Value {
    match &document.content {
        Decoded::Object(object) => object.to_value().unwrap(),
        Decoded::Nodes(nodes) => serde_json::to_value(nodes).unwrap(),
        Decoded::CapacityClaim(claim) => serde_json::to_value(claim).unwrap(),
        Decoded::Foreign(value) => value.clone(),
        Decoded::Refused => panic!("{}: {:?}", document.subject, document.errors),
    }
}

fn warning_paths(document: &Document) -> Vec<String> {
    document.warnings.iter().map(|remark| remark.path.to_string()).collect()
}

fn error_paths(document: &Document) -> Vec<String> {
    document.errors.iter().map(|remark| remark.path.to_string()).collect()
}

/// A manifest of one of the kinds; `rest` is what follows the metadata.
fn manifest(kind: &str, rest: &str) -> String {
    format!("apiVersion: devmgmtproto.k8s.io/v1alpha1\nkind: {kind}\nmetadata: {{name: x}}\n{rest}")
}
