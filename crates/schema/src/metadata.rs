//! Metadata of objects: names, labels, annotations, owners, finalizers.

use serde_json::{Map, Value};

use crate::field_error::{FieldError, FieldErrorReason};
use crate::go;
use crate::names;

/// The most that all annotations of an object may take, keys included.
const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

/// Checks what metadata of any object must satisfy, as it is on a create. The name and the
/// namespace are the caller's: their rules depend on the kind.
pub(crate) fn validate(metadata: &Map<String, Value>, field: &str) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let generation = metadata.get("generation").and_then(Value::as_i64);
    if let Some(generation) = generation.filter(|generation| *generation < 0) {
        let message = format!("Invalid value: {generation}: must be greater than or equal to 0");
        faults.push(FieldError::new(
            format!("{field}.generation"),
            FieldErrorReason::Invalid,
            message,
        ));
    }
    labels(metadata, &format!("{field}.labels"), &mut faults);
    annotations(metadata, &format!("{field}.annotations"), &mut faults);
    owners(metadata, &format!("{field}.ownerReferences"), &mut faults);
    finalizers(metadata, &format!("{field}.finalizers"), &mut faults);
    faults
}

/// A fault whose value is a text.
pub(crate) fn invalid_value(field: &str, value: &str, detail: &str) -> FieldError {
    let message = format!("Invalid value: {}: {detail}", go::quote(value));
    FieldError::new(field, FieldErrorReason::Invalid, message)
}

fn texts<'meta>(metadata: &'meta Map<String, Value>, name: &str) -> Vec<(&'meta str, &'meta str)> {
    let map = metadata.get(name).and_then(Value::as_object).into_iter().flatten();
    let mut texts: Vec<_> =
        map.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect();
    texts.sort_unstable();
    texts
}

fn labels(metadata: &Map<String, Value>, field: &str, faults: &mut Vec<FieldError>) {
    for (key, value) in texts(metadata, "labels") {
        let wrong = names::qualified_name(key);
        faults.extend(wrong.iter().map(|detail| invalid_value(field, key, detail)));
        let wrong = names::label_value(value);
        faults.extend(wrong.iter().map(|detail| invalid_value(field, value, detail)));
    }
}

fn annotations(metadata: &Map<String, Value>, field: &str, faults: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in texts(metadata, "annotations") {
        size += key.len() + value.len();
        let wrong = names::qualified_name(&key.to_lowercase());
        faults.extend(wrong.iter().map(|detail| invalid_value(field, key, detail)));
    }
    if size > MAX_ANNOTATIONS_BYTES {
        faults.push(FieldError::too_long(field, MAX_ANNOTATIONS_BYTES));
    }
}

fn owners(metadata: &Map<String, Value>, field: &str, faults: &mut Vec<FieldError>) {
    let owners = metadata.get("ownerReferences").and_then(Value::as_array);
    let Some(owners) = owners else { return };
    let mut first: Option<String> = None;
    for owner in owners {
        let text = |name: &str| owner.get(name).and_then(Value::as_str).unwrap_or_default();
        let version = text("apiVersion");
        if version.rsplit('/').next().unwrap_or_default().is_empty() {
            let detail = "version must not be empty";
            faults.push(invalid_value(&format!("{field}.apiVersion"), version, detail));
        }
        for name in ["kind", "name", "uid"] {
            if text(name).is_empty() {
                faults.push(invalid_value(&format!("{field}.{name}"), "", "must not be empty"));
            }
        }
        if version == "v1" && text("kind") == "Event" {
            let message = format!(
                "Invalid value: {}: /v1, Kind=Event is disallowed from being an owner",
                go::print(owner)
            );
            faults.push(FieldError::new(field, FieldErrorReason::Invalid, message));
        }
        if owner.get("controller") != Some(&Value::Bool(true)) {
            continue;
        }
        let name = format!("{}/{}", text("kind"), text("name"));
        match &first {
            None => first = Some(name),
            Some(first) => {
                let message = format!(
                    "Invalid value: {}: Only one reference can have Controller set to true. Found \
                     \"true\" in references for {first} and {name}",
                    shown(owners)
                );
                faults.push(FieldError::new(field, FieldErrorReason::Invalid, message));
            }
        }
    }
}

/// References in the order of upstream's own fields.
fn shown(owners: &[Value]) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let entry = |owner: &Value, name: &str| {
        owner.get(name).map(|value| format!("{}:{}", go::quote(name), go::json(value)))
    };
    let owner = |owner: &Value| {
        let entries: Vec<_> = fields.iter().filter_map(|name| entry(owner, name)).collect();
        format!("{{{}}}", entries.join(","))
    };
    let owners: Vec<_> = owners.iter().map(owner).collect();
    format!("[{}]", owners.join(","))
}

fn finalizers(metadata: &Map<String, Value>, field: &str, faults: &mut Vec<FieldError>) {
    let finalizers = metadata.get("finalizers").and_then(Value::as_array);
    let Some(finalizers) = finalizers else { return };
    let names: Vec<&str> = finalizers.iter().filter_map(Value::as_str).collect();
    for name in &names {
        let wrong = names::qualified_name(name);
        faults.extend(wrong.iter().map(|detail| invalid_value(field, name, detail)));
    }
    if names.contains(&"orphan") && names.contains(&"foregroundDeletion") {
        let message = format!(
            "Invalid value: {}: finalizer orphan and foregroundDeletion cannot be both set",
            go::json(&Value::Array(finalizers.clone()))
        );
        faults.push(FieldError::new(field, FieldErrorReason::Invalid, message));
    }
}
