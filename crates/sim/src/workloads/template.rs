//! Templates of pods: copying, comparing and naming them.

use std::borrow::Cow;

use gantry_reconcile::object::controlled_by;
use gantry_reconcile::{Meta, View, names};
use serde_json::{Map, Value, json};

/// The label that tells the pods of one template from those of another.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// A pod of `owner` made from a template.
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
    metadata["ownerReferences"] = json!([controlled_by(&O::RESOURCE, owner)]);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": template["spec"],
    })
}

/// Whether two templates make the same pods, whatever hash their labels carry.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    plain(one) == plain(other)
}

/// What stands for a template in names and labels. `collisions` says how often what it gave was
/// taken.
pub(super) fn hash(template: &Value, collisions: Option<i64>) -> String {
    let text = sorted(&plain(template)).to_string();
    match collisions {
        None => names::fingerprint(&[&text]),
        Some(count) => names::fingerprint(&[&text, &count.to_string()]),
    }
}

/// A template without its hash, and without what means the same as nothing.
fn plain(template: &Value) -> Value {
    let mut template = without_nothing(template);
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
const EMPTY_IS_NOTHING: [&str; 8] = [
    "annotations",
    "labels",
    "limits",
    "metadata",
    "nodeSelector",
    "requests",
    "resources",
    "securityContext",
];

fn without_nothing(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter_map(|(name, value)| {
                let value = without_nothing(value);
                let nothing = match &value {
                    Value::Null => true,
                    Value::Array(items) => items.is_empty(),
                    Value::Object(fields) => {
                        fields.is_empty() && EMPTY_IS_NOTHING.contains(&name.as_str())
                    }
                    Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
                };
                (!nothing).then(|| (name.clone(), value))
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.iter().map(without_nothing).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// The same value with all fields in order of their names.
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

/// A copy of an object's field with some more labels.
pub(super) fn with_label(labels: Option<&Value>, name: &str, value: &str) -> Value {
    let mut labels = match labels.and_then(Value::as_object).map(Cow::Borrowed) {
        Some(labels) => labels.into_owned(),
        None => Map::new(),
    };
    labels.insert(name.to_owned(), json!(value));
    Value::Object(labels)
}
