//! Definitions that documents of custom kinds share with those of built-in kinds, taken from them.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Map, Value};

/// The prefix of references to schemas.
pub(crate) const SCHEMAS: &str = "#/components/schemas/";

/// The schemas that custom kinds refer to.
pub(crate) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
pub(crate) const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(crate) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
pub(crate) const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";
pub(crate) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

/// Parameters and schemas every custom kind has.
pub(crate) static COMMON: LazyLock<CommonDefinitions> = LazyLock::new(CommonDefinitions::load);

/// The schema of the scale subresource and those it refers to.
///
/// Separate from [`COMMON`], for few definitions have the subresource and the document it is taken
/// from is several times larger.
pub(crate) static SCALE_SCHEMAS: LazyLock<Map<String, Value>> =
    LazyLock::new(|| referenced_schemas(&load_builtin_document("apis/apps/v1"), &[SCALE]));

/// The content of every document of custom kinds, whatever its kinds are.
pub(crate) struct CommonDefinitions {
    /// The schemas of metadata, options and answers, with all they refer to.
    pub(crate) schemas: Map<String, Value>,
    /// The property `apiVersion` of every object.
    pub(crate) api_version: Value,
    /// The property `kind` of every object.
    pub(crate) kind: Value,
    pub(crate) namespace: Value,
    pub(crate) pretty: Value,
    /// The options of each action, sorted by name.
    pub(crate) list: Vec<Value>,
    pub(crate) get: Vec<Value>,
    pub(crate) create: Vec<Value>,
    pub(crate) replace: Vec<Value>,
    pub(crate) patch: Vec<Value>,
    pub(crate) delete: Vec<Value>,
}

/// The smallest document with one ordinary namespaced kind.
const MODEL: &str = "apis/coordination.k8s.io/v1";
const MODEL_COLLECTION: &str = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases";
const MODEL_ITEM: &str = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}";
const MODEL_SCHEMA: &str = "io.k8s.api.coordination.v1.Lease";

/// Groups that have delete options of their own but are not for clients: the documents of custom
/// kinds leave them out.
const SERVER_GROUPS: [&str; 4] =
    ["admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "imagepolicy.k8s.io"];

impl CommonDefinitions {
    fn load() -> Self {
        let document = load_builtin_document(MODEL);
        let mut schemas =
            referenced_schemas(&document, &[DELETE_OPTIONS, LIST_META, OBJECT_META, PATCH, STATUS]);
        if let Some(Value::Array(kinds)) =
            schemas[DELETE_OPTIONS].get_mut("x-kubernetes-group-version-kind")
        {
            kinds.retain(|kind| {
                !kind["group"].as_str().is_some_and(|group| SERVER_GROUPS.contains(&group))
            });
        }
        let collection = &document["paths"][MODEL_COLLECTION];
        let item = &document["paths"][MODEL_ITEM];
        let list = parameters(&collection["get"]);
        let properties = &document["components"]["schemas"][MODEL_SCHEMA]["properties"];
        Self {
            schemas,
            api_version: properties["apiVersion"].clone(),
            kind: properties["kind"].clone(),
            namespace: parameter(&parameters(item), "namespace"),
            pretty: parameter(&parameters(item), "pretty"),
            get: vec![parameter(&list, "resourceVersion")],
            list,
            create: parameters(&collection["post"]),
            replace: parameters(&item["put"]),
            patch: parameters(&item["patch"]),
            delete: parameters(&item["delete"]),
        }
    }
}

/// The parameters of an operation or of all operations of a path.
fn parameters(of: &Value) -> Vec<Value> {
    of["parameters"].as_array().cloned().unwrap_or_default()
}

fn parameter(all: &[Value], name: &str) -> Value {
    all.iter().find(|it| it["name"] == name).cloned().unwrap_or_default()
}

/// Returns the built-in document at `path`, which must exist.
pub(crate) fn load_builtin_document(path: &str) -> Value {
    let text = gantry_builtin::openapi::document(path).expect("the path is one of the built-in");
    serde_json::from_slice(&text).expect("built-in documents are well formed")
}

/// Returns the schemas called `names` and all they refer to.
fn referenced_schemas(document: &Value, names: &[&str]) -> Map<String, Value> {
    let all = &document["components"]["schemas"];
    let mut found = Map::new();
    let mut open: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
    while let Some(name) = open.pop_first() {
        let schema = all[&name].clone();
        references(&schema, &mut |to| {
            if !found.contains_key(to) && to != name {
                open.insert(to.to_owned());
            }
        });
        found.insert(name, schema);
    }
    found
}

/// Calls `see` with the name of every schema that `value` refers to.
fn references(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            let target = fields.get("$ref").and_then(Value::as_str);
            if let Some(name) = target.and_then(|target| target.strip_prefix(SCHEMAS)) {
                see(name);
            }
            fields.values().for_each(|field| references(field, see));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, see)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_common_definitions_exist() {
        let common = &*COMMON;
        let options = [
            ("list", &common.list, 10),
            ("get", &common.get, 1),
            ("create", &common.create, 3),
            ("replace", &common.replace, 3),
            ("patch", &common.patch, 4),
            ("delete", &common.delete, 5),
        ];
        for (action, options, expected) in options {
            assert_eq!(options.len(), expected, "{action}");
            assert!(options.iter().all(|option| option["in"] == "query"), "{action}");
        }
        assert_eq!(common.namespace["in"], "path");
        assert_eq!(common.pretty["in"], "query");
        assert_eq!(common.api_version["type"], "string");
        assert_eq!(common.kind["type"], "string");
        assert!(common.schemas.values().chain(SCALE_SCHEMAS.values()).all(Value::is_object));
        assert_eq!(common.schemas.len(), 12);
        assert!(SCALE_SCHEMAS.contains_key(SCALE));
    }
}
