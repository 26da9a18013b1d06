//! Converts manifests for an API server that has no device fields in pods.
//!
//! What a pod says about devices in fields that Kubernetes does not have is moved to annotations,
//! names that differ from valid ones only by upper case letters become valid, and so do values of
//! ConfigMaps. Every change is reported.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use gantry_api::decode::Decoded;
use gantry_api::devices::{
    CONTAINER_DEVICES_ANNOTATION, DEVICE_CLAIMS_ANNOTATION, POD_DEVICES_ANNOTATION, PodClaims,
    PodDeviceClaims,
};
use gantry_api::finding::Findings;
use gantry_api::meta::dns_subdomain_problem;
use serde_json::{Map, Value, json};

/// The scheduler that allocates devices to pods.
pub const SCHEDULER_NAME: &str = "gantry";

/// The scheduling gate that is removed when a pod has its devices.
pub const SCHEDULING_GATE: &str = "devmgmtproto.k8s.io/devices";

/// How a pod that claims devices is kept from starting without them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulingHold {
    /// It waits for the scheduler that allocates devices.
    #[default]
    Scheduler,
    /// It waits behind a scheduling gate, and any scheduler may bind it afterwards.
    Gate,
    /// It is unchanged: another component handles it.
    Unchanged,
}

/// An object for an API server, and the changes that were made.
#[derive(Clone, Debug, PartialEq)]
pub struct Injected {
    /// The object.
    pub object: Value,
    /// The changes, one sentence each.
    pub remarks: Vec<String>,
    /// The original name of an object of the device API group.
    original_name: Option<String>,
}

/// Why something cannot be converted to an object for an API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    /// It is not an API object.
    #[error(
        "not a Kubernetes API object: no API server accepts this file format; write it as API \
         objects"
    )]
    NoObject,
    /// It was rejected when it was parsed.
    #[error("rejected as invalid")]
    Refused,
    /// Its claims cannot be parsed.
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

/// The names of objects, by kind and namespace, that were converted to lower case.
#[derive(Clone, Debug, Default)]
pub struct LowercaseNames(BTreeMap<[String; 3], String>);

impl LowercaseNames {
    /// Reserves a name for an object. The same object may be given again, which updates it.
    ///
    /// # Errors
    /// An object whose name was written differently has it.
    pub fn reserve(&mut self, injected: &Injected) -> Result<(), InjectError> {
        let Some(written) = &injected.original_name else { return Ok(()) };
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

/// Converts a document for an API server.
///
/// # Errors
/// There is nothing that an API server could accept.
pub fn inject(content: &Decoded, keep: SchedulingHold) -> Result<Injected, InjectError> {
    let mut remarks = Vec::new();
    let mut written = None;
    let object = match content {
        Decoded::Nodes(_) | Decoded::CapacityClaim(_) => return Err(InjectError::NoObject),
        Decoded::Refused => return Err(InjectError::Refused),
        Decoded::Object(object) => {
            let object = object.to_value();
            let mut object = object.map_err(|error| InjectError::Unwritable(error.to_string()))?;
            written = object["metadata"]["name"].as_str().map(ToOwned::to_owned);
            lowercase_field(&mut object["metadata"]["name"], "metadata.name", &mut remarks);
            if let Some(spec) = object.get_mut("spec") {
                lowercase_references(spec, &mut remarks);
            }
            object
        }
        Decoded::Foreign(value) => {
            let mut object = value.clone();
            inject_pods(&mut object, keep, &mut remarks)?;
            object
        }
    };
    Ok(Injected { object, remarks, original_name: written })
}

fn inject_pods(
    object: &mut Value,
    keep: SchedulingHold,
    remarks: &mut Vec<String>,
) -> Result<(), InjectError> {
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

/// Quotes values of a ConfigMap that YAML parsed as another type.
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
const CONTAINER_FIELDS: [&str; 2] = ["containers", "initContainers"];

fn inject_pod(
    pod: &mut Value,
    keep: SchedulingHold,
    remarks: &mut Vec<String>,
) -> Result<(), InjectError> {
    let carried =
        PodDeviceClaims::of(pod).map_err(|findings| InjectError::Carrier(problems(&findings)))?;
    match carried {
        None => return Ok(()),
        Some(PodDeviceClaims::Named(_)) => {
            let name = &mut pod["metadata"]["annotations"][POD_DEVICES_ANNOTATION];
            lowercase_field(name, POD_DEVICES_ANNOTATION, remarks);
        }
        Some(PodDeviceClaims::Claims(claims)) => annotate(pod, &claims, remarks)?,
    }
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let waits = spec.contains_key("schedulerName") || is_gated(spec);
    match keep {
        SchedulingHold::Scheduler if !waits => {
            spec.insert("schedulerName".to_owned(), SCHEDULER_NAME.into());
            remarks.push(format!(
                "spec.schedulerName: set to {SCHEDULER_NAME}, which allocates devices"
            ));
        }
        SchedulingHold::Gate if !is_gated(spec) => {
            let gates = spec.entry("schedulingGates").or_insert_with(|| json!([]));
            if let Some(gates) = gates.as_array_mut() {
                gates.push(json!({"name": SCHEDULING_GATE}));
            }
            remarks.push(format!("spec.schedulingGates: added {SCHEDULING_GATE}"));
        }
        SchedulingHold::Scheduler | SchedulingHold::Gate | SchedulingHold::Unchanged => {}
    }
    Ok(())
}

fn is_gated(spec: &Map<String, Value>) -> bool {
    let gates = spec.get("schedulingGates").and_then(Value::as_array);
    gates.into_iter().flatten().any(|gate| gate["name"] == SCHEDULING_GATE)
}

/// Writes the claims of a pod into annotations, in whatever form they were given.
fn annotate(
    pod: &mut Value,
    claims: &PodClaims,
    remarks: &mut Vec<String>,
) -> Result<(), InjectError> {
    let written = |error: serde_json::Error| InjectError::Unwritable(error.to_string());
    let mut listed = serde_json::to_value(&claims.device_claims).map_err(written)?;
    lowercase_references(&mut listed, remarks);
    let used = serde_json::to_value(&claims.containers).map_err(written)?;
    let mut moved = false;
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        moved |= spec.shift_remove("deviceClaims").is_some();
        for list in CONTAINER_FIELDS {
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

/// Fields that name an object of the device API group.
const REFERENCE_FIELDS: [&str; 4] = ["deviceClass", "driver", "claimName", "claimTemplateName"];

/// Maps whose keys are the user's own, and lists that name objects of other groups.
const SKIPPED_FIELDS: [&str; 4] = ["attributes", "configs", "limits", "requests"];

/// Converts every name of an object of the device API group to lower case: a server accepts no
/// other.
fn lowercase_references(value: &mut Value, remarks: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if REFERENCE_FIELDS.contains(&key.as_str()) {
                    lowercase_field(value, key, remarks);
                } else if !SKIPPED_FIELDS.contains(&key.as_str()) {
                    lowercase_references(value, remarks);
                }
            }
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| lowercase_references(item, remarks));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn lowercase_field(value: &mut Value, field: &str, remarks: &mut Vec<String>) {
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
