//! Pod templates: copying, comparing and hashing them.

use std::borrow::Cow;

use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{Meta, View, names};
use serde_json::{Map, Value, json};

/// The label with the hash of a pod's template.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// Returns a pod of `owner` from a template.
pub(super) fn pod<O: View>(template: &Value, owner: &Meta, name: &str) -> Value {
    let mut metadata = json!({
        "name": name,
        "generateName": format!("{}-", owner.name),
        "namespace": owner.namespace,
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field)
            && !value.is_null()
        {
            metadata[field] = value.clone();
        }
    }
    metadata["ownerReferences"] = json!([controller_reference(&O::RESOURCE, owner)]);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": template["spec"],
    })
}

/// Returns whether two templates lead to the same pods, whatever hash their labels have.
pub(super) fn is_same_template(one: &Value, other: &Value) -> bool {
    normalized(one) == normalized(other)
}

/// Returns the hash of a template for names and labels. `collisions` is how often the resulting
/// name was in use.
pub(super) fn hash(template: &Value, collisions: Option<i64>) -> String {
    let text = sorted(&normalized(template)).to_string();
    match collisions {
        None => names::fingerprint(&[&text]),
        Some(count) => names::fingerprint(&[&text, &count.to_string()]),
    }
}

/// Returns a template without its hash, and without empty values that mean the same as absent ones.
fn normalized(template: &Value) -> Value {
    let mut template = without_empty_values(template);
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH_LABEL);
        if labels.is_empty()
            && let Some(metadata) = template["metadata"].as_object_mut()
        {
            metadata.remove("labels");
        }
    }
    template
}

/// Fields that are written as empty objects by some clients and left out by others. In most places
/// the two differ: a volume with `emptyDir: {}` is not one without.
const EMPTY_MEANS_ABSENT: [&str; 8] = [
    "annotations",
    "labels",
    "limits",
    "metadata",
    "nodeSelector",
    "requests",
    "resources",
    "securityContext",
];

fn without_empty_values(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter_map(|(name, value)| {
                let value = without_empty_values(value);
                let nothing = match &value {
                    Value::Null => true,
                    Value::Array(items) => items.is_empty(),
                    Value::Object(fields) => {
                        fields.is_empty() && EMPTY_MEANS_ABSENT.contains(&name.as_str())
                    }
                    Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
                };
                (!nothing).then(|| (name.clone(), value))
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.iter().map(without_empty_values).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Returns the same value with all fields in order of their names.
pub(super) fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            Value::Object(fields.into_iter().map(|(k, v)| (k.clone(), sorted(v))).collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Returns a copy of labels with one more.
pub(super) fn with_label(labels: Option<&Value>, name: &str, value: &str) -> Value {
    let mut labels = match labels.and_then(Value::as_object).map(Cow::Borrowed) {
        Some(labels) => labels.into_owned(),
        None => Map::new(),
    };
    labels.insert(name.to_owned(), json!(value));
    Value::Object(labels)
}
