//! Schemas of the Kubernetes types that Gantry's kinds embed.
//!
//! They are data, dumped from a real API server by `cargo xtask kubernetes-schemas`: the only
//! source that has list keys and defaults as well as types. The Rust types come from `k8s-openapi`.

use std::sync::OnceLock;

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

/// The Kubernetes release the schemas were taken from.
pub const VERSION: &str = "v1.34";

/// The full names of the types that `schema` can be asked for by their last part.
///
/// The dump holds these and whatever they refer to.
pub const ROOTS: [&str; 11] = [
    "io.k8s.api.core.v1.Container",
    "io.k8s.api.core.v1.LocalObjectReference",
    "io.k8s.api.core.v1.NodeSelector",
    "io.k8s.api.core.v1.PodCondition",
    "io.k8s.api.core.v1.PodSpec",
    "io.k8s.api.core.v1.ServiceSpec",
    "io.k8s.api.core.v1.Toleration",
    "io.k8s.api.core.v1.Volume",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Condition",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
];

const DUMP: &str = include_str!("kubernetes/v1.34.json");

/// The structural schema of a type in [`ROOTS`], named by its last part (`PodSpec`).
///
/// References are inlined. Closed value lists are left out: which values a field takes is decided
/// by the Kubernetes release that runs the pod, not by the one this dump was taken from.
///
/// # Panics
/// If `name` is not in [`ROOTS`]: callers name it in source text.
#[must_use]
pub fn schema(name: &str) -> Value {
    let full = ROOTS
        .into_iter()
        .find(|root| root.rsplit('.').next() == Some(name))
        .expect("callers ask for types listed in ROOTS");
    let mut schema = inline(dump(), full);
    if name == "ObjectMeta" {
        // What a server writes there has the names of all fields of the object in it.
        let owners = &mut schema["properties"]["managedFields"]["items"]["properties"]["fieldsV1"];
        owners["x-kubernetes-preserve-unknown-fields"] = true.into();
    }
    schema
}

/// Schema of a list of core/v1 volumes.
pub(crate) fn volumes(_: &mut SchemaGenerator) -> schemars::Schema {
    list_by("Volume", &["name"])
}

/// Schema of a list of core/v1 tolerations.
pub(crate) fn tolerations(_: &mut SchemaGenerator) -> schemars::Schema {
    list_by("Toleration", &[])
}

/// Schema of a core/v1 ServiceSpec.
pub(crate) fn service_spec(_: &mut SchemaGenerator) -> schemars::Schema {
    derived(schema("ServiceSpec"))
}

/// Schema of a label selector.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> schemars::Schema {
    derived(schema("LabelSelector"))
}

/// Schema of a core/v1 NodeSelector.
pub(crate) fn node_selector(_: &mut SchemaGenerator) -> schemars::Schema {
    derived(schema("NodeSelector"))
}

/// Schema of a list of meta/v1 conditions, one per type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> schemars::Schema {
    list_by("Condition", &["type"])
}

/// Schema of a list of pod conditions as another object repeats them.
pub(crate) fn pod_conditions(_: &mut SchemaGenerator) -> schemars::Schema {
    list_by("PodCondition", &[])
}

/// Schema of `metadata`, which every API server fills in for itself.
pub(crate) fn metadata(_: &mut SchemaGenerator) -> schemars::Schema {
    derived(json!({"type": "object"}))
}

/// Schema of raw content that is kept as it is.
pub(crate) fn raw(_: &mut SchemaGenerator) -> schemars::Schema {
    derived(json!({"x-kubernetes-preserve-unknown-fields": true}))
}

/// Schema of a whole object inside another.
pub(crate) fn embedded_object(_: &mut SchemaGenerator) -> schemars::Schema {
    derived(json!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    }))
}

fn list_by(element: &str, keys: &[&str]) -> schemars::Schema {
    let mut list = json!({"type": "array", "items": schema(element)});
    if keys.is_empty() {
        list["x-kubernetes-list-type"] = json!("atomic");
    } else {
        list["x-kubernetes-list-type"] = json!("map");
        list["x-kubernetes-list-map-keys"] = json!(keys);
    }
    derived(list)
}

fn derived(schema: Value) -> schemars::Schema {
    schemars::Schema::try_from(schema).expect("the schemas built here are objects")
}

fn dump() -> &'static Map<String, Value> {
    static PARSED: OnceLock<Map<String, Value>> = OnceLock::new();
    PARSED.get_or_init(|| serde_json::from_str(DUMP).expect("the dump in the binary is JSON"))
}

fn inline(dump: &Map<String, Value>, name: &str) -> Value {
    match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => quantity(),
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => {
            json!({
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": true,
            })
        }
        _ => structural(dump, dump.get(name).expect("the dump is closed under references")),
    }
}

/// The shape of a resource quantity in a schema.
#[must_use]
pub fn quantity() -> Value {
    json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
        "x-kubernetes-int-or-string": true,
    })
}

fn structural(dump: &Map<String, Value>, schema: &Value) -> Value {
    let Some(fields) = schema.as_object() else { return schema.clone() };
    if let Some(target) = reference(fields) {
        let mut target = inline(dump, target);
        if let Some(text) = fields.get("description") {
            target["description"] = text.clone();
        }
        return target;
    }
    let required: Vec<&str> = fields
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut out = Map::new();
    for (name, value) in fields {
        match name.as_str() {
            // Written for other readers than a CustomResourceDefinition has.
            "enum"
            | "x-kubernetes-patch-merge-key"
            | "x-kubernetes-patch-strategy"
            | "x-kubernetes-unions"
            | "x-kubernetes-group-version-kind" => {}
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                let properties = properties.map(|(name, part)| {
                    let mut part = structural(dump, part);
                    drop_artificial_default(&mut part, required.contains(&name.as_str()));
                    (name.clone(), part)
                });
                out.insert(name.clone(), properties.collect());
            }
            "items" | "additionalProperties" => {
                let mut part = structural(dump, value);
                drop_artificial_default(&mut part, true);
                out.insert(name.clone(), part);
            }
            _ => {
                out.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(out)
}

/// The name of the type a property refers to, with or without the `allOf` that lets it have
/// siblings.
fn reference(fields: &Map<String, Value>) -> Option<&str> {
    let direct = fields.get("$ref");
    let wrapped = || fields.get("allOf")?.as_array()?.first()?.get("$ref");
    direct.or_else(wrapped)?.as_str()?.rsplit('/').next()
}

/// The published documents give every required field and every element its Go zero value as a
/// default, which would make nothing required. Defaults that the API really applies stay.
fn drop_artificial_default(schema: &mut Value, always_present: bool) {
    let Some(fields) = schema.as_object_mut() else { return };
    if always_present || fields.get("default") == Some(&json!({})) {
        fields.shift_remove("default");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    fn at<'a>(schema: &'a Value, path: &str) -> &'a Value {
        path.split('.').fold(schema, |schema, step| match step {
            "[]" => &schema["items"],
            name => &schema["properties"][name],
        })
    }

    #[test]
    fn every_root_is_structural() {
        for root in ROOTS {
            let schema = schema(root.rsplit('.').next().unwrap());
            let text = schema.to_string();
            assert!(!text.contains("$ref") && !text.contains("\"allOf\""), "{root}");
            Schema::compile(&schema).unwrap();
        }
    }

    #[test]
    fn list_keys_and_real_defaults_survive() {
        let pod = schema("PodSpec");
        let ports = at(&pod, "containers.[].ports");
        assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
        assert_eq!(at(ports, "[].protocol")["default"], json!("TCP"));
        assert_eq!(at(&pod, "imagePullSecrets.[].name")["default"], json!(""));
    }

    #[test]
    fn required_fields_have_no_default() {
        let pod = schema("PodSpec");
        assert_eq!(at(&pod, "containers.[].name").get("default"), None);
        assert_eq!(at(&pod, "containers.[].ports.[].containerPort").get("default"), None);
        assert_eq!(at(&pod, "containers.[].resources").get("default"), None);
        assert_eq!(at(&pod, "containers.[].args.[]").get("default"), None);
    }

    #[test]
    fn quantities_are_int_or_string() {
        let pod = schema("PodSpec");
        let requests = at(&pod, "containers.[].resources.requests");
        assert_eq!(requests["additionalProperties"]["x-kubernetes-int-or-string"], json!(true));
    }
}
