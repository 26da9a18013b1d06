use std::collections::BTreeSet;

use super::*;
use crate::{CustomKind, Documents, OpenApiVersion, custom_document};

fn whole(swagger: &Swagger) -> Value {
    serde_json::from_slice(swagger.json()).unwrap()
}

/// Calls `see` with every key and value below `value`.
fn walk(value: &Value, see: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, it)| {
            see(name, it);
            walk(it, see);
        }),
        Value::Array(items) => items.iter().for_each(|it| walk(it, see)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The numbers are those of Kubernetes v1.34 with default flags.
#[test]
fn all_builtin_kinds_in_one_document() {
    let swagger = Swagger::new([]);
    let document = whole(&swagger);
    let count = |part: &str| document[part].as_object().unwrap().len();
    assert_eq!([count("paths"), count("definitions"), count("parameters")], [400, 569, 46]);
    assert_eq!(document["info"], json!({ "title": "Kubernetes", "version": "1.34" }));
    assert_eq!(document["security"], json!([{ "BearerToken": [] }]));
    assert_eq!(document["securityDefinitions"]["BearerToken"]["in"], "header");
    let mut dangling = BTreeSet::new();
    let mut left = BTreeSet::new();
    walk(&document["paths"], &mut |name, value| {
        if name == "$ref" {
            let target = value.as_str().and_then(|it| it.strip_prefix('#')).unwrap();
            if document.pointer(target).is_none() {
                dangling.insert(target.to_owned());
            }
        }
        if ["requestBody", "content"].contains(&name) {
            left.insert(name.to_owned());
        }
    });
    assert!(dangling.is_empty(), "{dangling:?}");
    assert!(left.is_empty(), "words of the third version: {left:?}");
    assert_eq!(swagger.hash(), hash(swagger.json()));
    let wire = swagger.protobuf();
    assert!(wire.starts_with(b"\x0a\x032.0"), "the first field is the version");
    assert!(wire.len() > 1_500_000, "{}", wire.len());
}

#[test]
fn custom_kinds_are_added_and_removed() {
    let definition = json!({ "spec": {
        "names": { "plural": "widgets", "kind": "Widget", "listKind": "WidgetList" },
        "scope": "Namespaced",
        "versions": [{ "name": "v1", "served": true, "schema": { "openAPIV3Schema": {
            "type": "object", "properties": { "spec": { "type": "object", "nullable": true } },
        } } }],
    } });
    let documents = Documents::new();
    let alone = documents.swagger();
    documents.set_custom("a.io", "v1", move |edition| {
        let kind = CustomKind::of(&definition, "v1").unwrap();
        custom_document(edition, "a.io", "v1", &[kind])
    });
    // Built-in definitions cannot be overridden.
    documents.set_custom("policy", "v1", |edition| match edition {
        OpenApiVersion::V2 => json!({ "definitions": { "io.k8s.api.core.v1.Pod": {} } }),
        OpenApiVersion::V3 => json!({}),
    });
    let with = documents.swagger();
    assert_ne!(alone.hash(), with.hash());
    assert_eq!(documents.swagger().hash(), with.hash());
    let document = whole(&with);
    let widget = &document["definitions"]["io.a.v1.Widget"];
    assert_eq!(widget["properties"]["spec"], json!({}));
    let count = |it: &Value, part: &str| it[part].as_object().unwrap().len();
    assert_eq!(count(&document, "definitions"), 571, "the kind and its list");
    assert_eq!(count(&document, "parameters"), 46, "the parameters are those of built-in kinds");
    assert_eq!(document["definitions"]["io.k8s.api.core.v1.Pod"]["type"], "object");
    documents.remove_custom("a.io", "v1");
    documents.remove_custom("policy", "v1");
    assert_eq!(documents.swagger().hash(), alone.hash());
}
