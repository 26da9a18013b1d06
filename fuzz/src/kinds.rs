//! Kinds from which the targets make objects.

use std::sync::{Arc, LazyLock};

use arbitrary::{Result, Unstructured};
use gantry_builtin::TypeId;
use gantry_schema::Schema;
use serde_json::{Value, json};

/// A kind of Kubernetes itself.
#[derive(Debug)]
pub struct Kind {
    pub group: &'static str,
    pub plural: String,
    pub api_version: String,
    pub name: String,
    pub namespaced: bool,
    pub type_id: TypeId,
    pub schema: Arc<Schema>,
}

/// Chooses one of the kinds of Kubernetes itself.
pub fn builtin(u: &mut Unstructured<'_>) -> Result<&'static Kind> {
    static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
        let groups = gantry_builtin::groups().iter().flat_map(|group| &group.versions);
        let resources = groups.flat_map(|version| &version.resources);
        let kind = |it: &gantry_builtin::Resource| Kind {
            group: it.group,
            plural: it.plural.clone(),
            api_version: match it.group {
                "" => it.version.to_owned(),
                group => format!("{group}/{}", it.version),
            },
            name: it.kind.clone(),
            namespaced: it.namespaced,
            type_id: it.type_id,
            schema: gantry_builtin::schema(it.type_id),
        };
        resources.map(kind).collect()
    });
    u.choose(&KINDS)
}

/// Chooses a schema of a custom kind; together the schemas have every sort of list and map.
pub fn custom(u: &mut Unstructured<'_>) -> Result<&'static Schema> {
    static SCHEMAS: LazyLock<Vec<Schema>> = LazyLock::new(|| {
        let text = json!({ "type": "string" });
        let item = json!({
            "type": "object", "required": ["a"],
            "properties": { "a": text, "b": { "type": "integer", "default": 1 }, "c": text },
        });
        let spec = json!({ "type": "object", "properties": {
            "name": text,
            "a": { "type": "array", "items": item, "x-kubernetes-list-type": "map",
                   "x-kubernetes-list-map-keys": ["a"] },
            "b": { "type": "array", "items": item, "x-kubernetes-list-type": "map",
                   "x-kubernetes-list-map-keys": ["a", "b"] },
            "c": { "type": "array", "items": text, "x-kubernetes-list-type": "set" },
            "labels": { "type": "object", "additionalProperties": text },
            "A": { "type": "object", "x-kubernetes-map-type": "atomic",
                   "additionalProperties": { "type": "integer" } },
            "80": { "x-kubernetes-int-or-string": true },
            "x/y": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "1": { "type": "array", "items": { "type": "array", "items": item } },
        } });
        let whole = json!({ "type": "object", "properties": { "spec": spec, "status": spec } });
        let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let schemas = [whole, open].map(|it| gantry_schema::compile(&it));
        schemas.into_iter().collect::<std::result::Result<_, _>>().expect("these are structural")
    });
    u.choose(&SCHEMAS)
}

/// Sets the API version, kind and name of an object, and removes its `managedFields`.
pub fn named(mut object: Value, api_version: &str, kind: &str) -> Value {
    if let Some(entries) = object.as_object_mut() {
        entries.insert("apiVersion".to_owned(), api_version.into());
        entries.insert("kind".to_owned(), kind.into());
        let metadata = entries.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("name".to_owned(), "a".into());
            metadata.remove("managedFields");
        }
    }
    object
}
