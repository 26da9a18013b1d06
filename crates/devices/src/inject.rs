//! Manifests made fit for an API server that knows nothing of devices in pods.
//!
//! What a pod says about devices in fields that Kubernetes does not have is moved to annotations,
//! names that only differ from legal ones by upper case letters become legal, and so do values of
//! ConfigMaps. Everything that was done is said.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use gantry_api::decode::Decoded;
use gantry_api::devices::{
    CONTAINER_DEVICES_ANNOTATION, Carried, DEVICE_CLAIMS_ANNOTATION, POD_DEVICES_ANNOTATION,
    PodClaims,
};
use gantry_api::finding::Findings;
use gantry_api::meta::dns_subdomain_problem;
use serde_json::{Map, Value, json};

/// The scheduler that gives pods their devices.
pub const SCHEDULER: &str = "gantry";

/// The scheduling gate that is opened when a pod has its devices.
pub const GATE: &str = "devmgmtproto.k8s.io/devices";

/// How a pod that wants devices is kept from being started without them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// It waits for the scheduler that knows of devices.
    #[default]
    Scheduler,
    /// It waits behind a gate, and any scheduler may place it after.
    Gate,
    /// It is not: something else sees to it.
    Not,
}

/// An object for an API server, and what was done to make it one.
#[derive(Clone, Debug, PartialEq)]
pub struct Injected {
    /// The object.
    pub object: Value,
    /// What was done, a sentence each.
    pub remarks: Vec<String>,
    /// The name as it was written, of an object of ours.
    written: Option<String>,
}

/// Why something cannot be made an object for an API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    /// It is no object at all.
    #[error("a file from before there were API objects; no API server takes it")]
    NoObject,
    /// It was refused when it was read.
    #[error("it is refused")]
    Refused,
    /// What it says about devices cannot be read.
    #[error("{0}")]
    Carrier(String),
    /// It cannot be written.
    #[error("cannot be written: {0}")]
    Unwritable(String),
    /// Another object has the name that it would get.
    #[error("\"{other}\" and \"{written}\" differ only in upper case; give one another name")]
    Clash {
        /// The other's name.
        other: String,
        /// Its own name.
        written: String,
    },
}

/// The names of objects, by kind and namespace, that were given out in lower case.
#[derive(Clone, Debug, Default)]
pub struct Names(BTreeMap<[String; 3], String>);

impl Names {
    /// Takes a name for an object. The same object may come again, which changes it.
    ///
    /// # Errors
    /// An object whose name was written differently has it.
    pub fn take(&mut self, injected: &Injected) -> Result<(), InjectError> {
        let Some(written) = &injected.written else { return Ok(()) };
        let object = &injected.object;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let key = [&object["kind"], &metadata["namespace"], &metadata["name"]].map(text);
        let other = self.0.entry(key).or_insert_with(|| written.clone());
        match other == written {
            true => Ok(()),
            false => Err(InjectError::Clash { other: other.clone(), written: written.clone() }),
        }
    }
}

/// Makes a document fit for an API server.
///
/// # Errors
/// There is nothing that an API server could take.
pub fn inject(content: &Decoded, keep: Keep) -> Result<Injected, InjectError> {
    let mut remarks = Vec::new();
    let mut written = None;
    let object = match content {
        Decoded::Nodes(_) | Decoded::CapacityClaim(_) => return Err(InjectError::NoObject),
        Decoded::Refused => return Err(InjectError::Refused),
        Decoded::Object(object) => {
            let object = object.to_value();
            let mut object = object.map_err(|error| InjectError::Unwritable(error.to_string()))?;
            written = object["metadata"]["name"].as_str().map(ToOwned::to_owned);
            lower(&mut object["metadata"]["name"], "metadata.name", &mut remarks);
            if let Some(spec) = object.get_mut("spec") {
                references(spec, &mut remarks);
            }
            object
        }
        Decoded::Foreign(value) => {
            let mut object = value.clone();
            foreign(&mut object, keep, &mut remarks)?;
            object
        }
    };
    Ok(Injected { object, remarks, written })
}

fn foreign(object: &mut Value, keep: Keep, remarks: &mut Vec<String>) -> Result<(), InjectError> {
    let template = match (object["apiVersion"].as_str(), object["kind"].as_str()) {
        (Some("v1"), Some("ConfigMap")) => {
            quote(object, remarks);
            return Ok(());
        }
        (Some("v1"), Some("Pod")) => "",
        (_, Some("Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job")) => {
            "/spec/template"
        }
        (_, Some("CronJob")) => "/spec/jobTemplate/spec/template",
        _ => return Ok(()),
    };
    match object.pointer_mut(template) {
        Some(pod) => inject_pod(pod, keep, remarks),
        None => Ok(()),
    }
}

/// Puts values of a ConfigMap in quotes that YAML took for something else.
fn quote(config_map: &mut Value, remarks: &mut Vec<String>) {
    let data = config_map.get_mut("data").and_then(Value::as_object_mut);
    for (key, value) in data.into_iter().flatten() {
        if let Value::Number(_) | Value::Bool(_) = value {
            let text = value.to_string();
            remarks.push(format!("data.{key}: put in quotes: \"{text}\""));
            *value = Value::String(text);
        }
    }
}

/// The lists of containers that can have devices.
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

fn inject_pod(pod: &mut Value, keep: Keep, remarks: &mut Vec<String>) -> Result<(), InjectError> {
    let carried = Carried::of(pod).map_err(|findings| InjectError::Carrier(problems(&findings)))?;
    match carried {
        None => return Ok(()),
        Some(Carried::Named(_)) => {
            let name = &mut pod["metadata"]["annotations"][POD_DEVICES_ANNOTATION];
            lower(name, POD_DEVICES_ANNOTATION, remarks);
        }
        Some(Carried::Claims(claims)) => annotate(pod, &claims, remarks)?,
    }
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let waits = spec.contains_key("schedulerName") || is_gated(spec);
    match keep {
        Keep::Scheduler if !waits => {
            spec.insert("schedulerName".to_owned(), SCHEDULER.into());
            remarks.push(format!("spec.schedulerName: set to {SCHEDULER}, which knows of devices"));
        }
        Keep::Gate if !is_gated(spec) => {
            let gates = spec.entry("schedulingGates").or_insert_with(|| json!([]));
            if let Some(gates) = gates.as_array_mut() {
                gates.push(json!({"name": GATE}));
            }
            remarks.push(format!("spec.schedulingGates: added {GATE}"));
        }
        Keep::Scheduler | Keep::Gate | Keep::Not => {}
    }
    Ok(())
}

fn is_gated(spec: &Map<String, Value>) -> bool {
    let gates = spec.get("schedulingGates").and_then(Value::as_array);
    gates.into_iter().flatten().any(|gate| gate["name"] == GATE)
}

/// Writes the claims of a pod into annotations, whatever carried them before.
fn annotate(
    pod: &mut Value,
    claims: &PodClaims,
    remarks: &mut Vec<String>,
) -> Result<(), InjectError> {
    let written = |error: serde_json::Error| InjectError::Unwritable(error.to_string());
    let mut listed = serde_json::to_value(&claims.device_claims).map_err(written)?;
    references(&mut listed, remarks);
    let used = serde_json::to_value(&claims.containers).map_err(written)?;
    let mut moved = false;
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        moved |= spec.shift_remove("deviceClaims").is_some();
        for list in CONTAINERS {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let fields = container.as_object_mut();
                moved |= fields.is_some_and(|fields| fields.shift_remove("devices").is_some());
            }
        }
    }
    for (name, value) in [(DEVICE_CLAIMS_ANNOTATION, listed), (CONTAINER_DEVICES_ANNOTATION, used)]
    {
        let empty = match &value {
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        };
        if !empty {
            pod["metadata"]["annotations"][name] = value.to_string().into();
        }
    }
    if moved {
        remarks
            .push("spec.deviceClaims and devices of containers: moved to annotations".to_owned());
    }
    Ok(())
}

/// Fields that name an object of ours.
const REFERENCES: [&str; 4] = ["deviceClass", "driver", "claimName", "claimTemplateName"];

/// Maps whose keys are the user's own, and lists that name other people's objects.
const NOT_OURS: [&str; 4] = ["attributes", "configs", "limits", "requests"];

/// Writes every name of an object of ours in lower case: no server has another.
fn references(value: &mut Value, remarks: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if REFERENCES.contains(&key.as_str()) {
                    lower(value, key, remarks);
                } else if !NOT_OURS.contains(&key.as_str()) {
                    references(value, remarks);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| references(item, remarks)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn lower(value: &mut Value, field: &str, remarks: &mut Vec<String>) {
    let Some(name) = value.as_str() else { return };
    let lower = name.to_lowercase();
    if lower != name && dns_subdomain_problem(&lower).is_none() {
        remarks.push(format!("{field}: \"{name}\" written in lower case: \"{lower}\""));
        *value = lower.into();
    }
}

fn problems(findings: &Findings) -> String {
    let told = findings.errors.iter().map(|error| format!("{}: {}", error.path, error.text));
    told.collect::<Vec<_>>().join("; ")
}
