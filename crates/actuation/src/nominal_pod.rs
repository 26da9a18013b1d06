//! The direct provider of a requester: its own pod, changed by its server patch.

use gantry_reconcile::{Key, Uid};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::canonical_json::canonical_text;
use crate::digest::base64_sha256;
use crate::labels::{
    ACCELERATORS_ANNOTATION, BINDING_COUNTER_ANNOTATION, DUAL_LABEL, HOSTNAME_LABEL,
    LAST_USE_ANNOTATION, NOMINAL_ANNOTATION, PROVIDER_FINALIZER, READINESS_GATE,
    REQUESTER_ANNOTATION, RESERVED_PREFIXES, SLEEPING_LABEL, VISIBLE_DEVICES,
};
use crate::object_names::direct_provider;
use crate::pod_copy::{remove_injected, server_container, set_env, set_no_accelerators};
use crate::server_patch_template::{TemplateData, expand};
use crate::view::{ActuationPod, DirectEngine, Variant};

/// The provider that a requester of the direct variant asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct NominalPod {
    /// The hash of the pod, its node and its accelerators: a provider with the same hash serves.
    pub hash: String,
    /// The pod without name and binding.
    body: Value,
}

/// The accelerators of a requester, as its node numbers them.
#[derive(Clone, Copy, Debug)]
pub struct IndexedAccelerators<'a> {
    /// The UUIDs.
    pub uuids: &'a [String],
    /// The index of each.
    pub indices: &'a [u32],
}

impl IndexedAccelerators<'_> {
    fn index_list(&self) -> String {
        self.indices.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Computes the provider of a requester.
///
/// # Errors
/// What is wrong with the server patch, for the requester's status.
pub fn nominal_pod(
    requester: &ActuationPod,
    accelerators: IndexedAccelerators<'_>,
) -> Result<NominalPod, String> {
    let (Some(Variant::Direct(template)), Some(spec)) = (requester.variant(), &requester.spec)
    else {
        return Err("the pod has no server-patch".to_owned());
    };
    let node = &requester.node_name;
    let data = TemplateData { node_name: node, local_volume: "" };
    let text = expand(template, data).map_err(|error| error.to_string())?;
    let patch = read_patch(&text)?;
    let base = base_pod(requester, spec);
    let kind = gantry_builtin::kind_type("", "v1", "Pod").ok_or("the kind Pod is not known")?;
    let schema = gantry_builtin::schema(kind);
    let mut pod = gantry_patch::strategic::apply(&schema, &base, &patch)
        .map_err(|error| format!("server-patch: {error}"))?;
    let indices = accelerators.index_list();
    let parts = [&canonical_text(&pod), ";gpus=", &indices, ";node=", node];
    let hash = base64_sha256(&parts);
    let decoded = gantry_builtin::read(kind, pod.clone())
        .map_err(|error| format!("server-patch: the patched pod is invalid: {error}"))?;
    if let Some(field) = decoded.unknown.first() {
        return Err(format!("server-patch: unknown field \"{field}\"; remove it"));
    }
    let spec = &mut pod["spec"];
    let container = server_container(spec)
        .ok_or("server-patch: the patched pod has no container named \"inference-server\"")?;
    set_env(container, VISIBLE_DEVICES, &indices);
    set_no_accelerators(container, &["limits", "requests"]);
    DirectEngine::of(spec).port.map_err(|problem| format!("server-patch: spec.{problem}"))?;
    spec["nodeSelector"][HOSTNAME_LABEL] = json!(node);
    let metadata = &mut pod["metadata"];
    metadata["annotations"][NOMINAL_ANNOTATION] = json!(hash);
    metadata["annotations"][ACCELERATORS_ANNOTATION] = json!(accelerators.uuids.join(","));
    metadata["labels"][SLEEPING_LABEL] = json!("false");
    Ok(NominalPod { hash, body: pod })
}

impl NominalPod {
    /// The pod, bound to its requester from the start.
    #[must_use]
    pub fn bound_to(&self, requester: &Key, uid: &Uid, now: Timestamp) -> Value {
        let mut pod = self.body.clone();
        let metadata = &mut pod["metadata"];
        metadata["name"] = json!(direct_provider(requester.name(), uid, &self.hash));
        metadata["annotations"][REQUESTER_ANNOTATION] =
            json!(format!("{uid} {}", requester.name()));
        metadata["annotations"][BINDING_COUNTER_ANNOTATION] = json!("1");
        metadata["annotations"][LAST_USE_ANNOTATION] = json!(now.to_string());
        metadata["labels"][DUAL_LABEL] = json!(requester.name());
        let finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
        let own = [json!(PROVIDER_FINALIZER)];
        metadata["finalizers"] = finalizers.into_iter().chain(own).collect();
        pod
    }
}

/// The requester without what makes it a requester.
fn base_pod(requester: &ActuationPod, spec: &Value) -> Value {
    let mut spec = spec.clone();
    remove_injected(&mut spec);
    if let Some(gates) = spec["readinessGates"].as_array_mut() {
        // Nobody would set it on the provider.
        gates.retain(|it| it["conditionType"] != READINESS_GATE);
    } else if let Some(fields) = spec.as_object_mut() {
        fields.shift_remove("readinessGates");
    }
    // The labels that are written when it is bound must not change the hash.
    let labels = requester.metadata.labels.iter();
    let labels = labels.filter(|(key, _)| !key.starts_with(RESERVED_PREFIXES[0]));
    let labels: Map<String, Value> =
        labels.map(|(key, value)| (key.clone(), json!(value))).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": requester.metadata.namespace, "labels": labels},
        "spec": spec,
    })
}

/// Reads the text of a patch.
fn read_patch(text: &str) -> Result<Value, String> {
    let documents = gantry_yaml::read(text)
        .map_err(|error| format!("server-patch line {}: {error}", error.at.line))?;
    let mut documents = documents.iter();
    let patch = documents.next().map_or(Value::Object(Map::new()), |it| it.to_json());
    if documents.next().is_some() {
        return Err("server-patch: more than one YAML document; use one".to_owned());
    }
    match patch {
        Value::Object(_) => Ok(patch),
        other => Err(format!("server-patch: {other} is not a map of fields of a pod")),
    }
}

#[cfg(test)]
mod tests;
