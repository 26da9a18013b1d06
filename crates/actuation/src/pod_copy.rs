//! What is left out of a pod that is copied: what the server and kubelets add to each pod.

use serde_json::{Value, json};

use crate::labels::{GPU_RESOURCE, INFERENCE_SERVER};

/// The beginning of the name of the volume with the API credentials that admission adds.
const API_ACCESS_PREFIX: &str = "kube-api-access-";

/// Removes ephemeral containers, and the volume with API credentials with its mounts.
pub(crate) fn remove_injected(spec: &mut Value) {
    if let Some(fields) = spec.as_object_mut() {
        fields.shift_remove("ephemeralContainers");
    }
    retain(&mut spec["volumes"], |it| !is_api_access(&it["name"]));
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            retain(&mut container["volumeMounts"], |it| !is_api_access(&it["name"]));
            remove_null(container, "volumeMounts");
        }
        remove_null(spec, list);
    }
    remove_null(spec, "volumes");
}

/// The container `inference-server`.
pub(crate) fn server_container(spec: &mut Value) -> Option<&mut Value> {
    let containers = spec["containers"].as_array_mut()?;
    containers.iter_mut().find(|it| it["name"] == INFERENCE_SERVER)
}

/// Sets an environment variable: replaces the entry of this name, or appends one.
pub(crate) fn set_env(container: &mut Value, name: &str, value: &str) {
    let entry = json!({"name": name, "value": value});
    let Some(env) = container["env"].as_array_mut() else {
        container["env"] = json!([entry]);
        return;
    };
    match env.iter_mut().find(|it| it["name"] == name) {
        Some(old) => *old = entry,
        None => env.push(entry),
    }
}

/// Sets the accelerators of a container to none, in each of these fields of its resources.
pub(crate) fn set_no_accelerators(container: &mut Value, fields: &[&str]) {
    for field in fields {
        container["resources"][field][GPU_RESOURCE] = json!("0");
    }
}

fn is_api_access(name: &Value) -> bool {
    let suffix = name.as_str().and_then(|it| it.strip_prefix(API_ACCESS_PREFIX));
    let is_part = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    suffix.is_some_and(|it| !it.is_empty() && it.bytes().all(is_part))
}

fn retain(list: &mut Value, keep: impl Fn(&Value) -> bool) {
    if let Some(items) = list.as_array_mut() {
        items.retain(keep);
    }
}

/// Removes a field that indexing has created.
fn remove_null(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut()
        && fields.get(field).is_some_and(Value::is_null)
    {
        fields.shift_remove(field);
    }
}
