//! The pod of a launcher, as a LauncherConfig describes it.

use std::collections::BTreeMap;

use gantry_reconcile::View as _;
use serde_json::{Map, Value, json};

use crate::canonical_json::canonical_text;
use crate::digest::base64_sha256;
use crate::labels::{
    COMPONENT_LABEL, GPU_RESOURCE, HOSTNAME_LABEL, INFERENCE_SERVER, LAUNCHER_COMPONENT,
    LAUNCHER_CONFIG_LABEL, LAUNCHER_HASH_ANNOTATION, LAUNCHER_PORT, NODE_LABEL, NOTIFIER,
    SLEEPING_LABEL, TEMPLATE_HASH_ANNOTATION,
};
use crate::object_names::length_problem;
use crate::pod_copy::{remove_injected, server_container, set_env};
use crate::view::LauncherConfig;

/// The environment that every launcher has.
const FORCED_ENV: [(&str, &str); 4] = [
    ("PYTHONPATH", "/app"),
    ("NVIDIA_VISIBLE_DEVICES", "all"),
    ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
    ("VLLM_SERVER_DEV_MODE", "1"),
];

/// The command of the sidecar unless the settings say otherwise.
pub const DEFAULT_NOTIFIER_COMMAND: [&str; 2] = ["python3", "/app/launcher_pod_notifier.py"];

/// The pod of a launcher on any node.
#[derive(Clone, Debug, PartialEq)]
pub struct LauncherTemplate {
    /// The hash of the template.
    pub hash: String,
    config: String,
    body: Value,
}

/// Makes the template of a LauncherConfig's launchers.
///
/// # Errors
/// What is wrong with the LauncherConfig, for its status.
pub fn launcher_template(
    config: &LauncherConfig,
    notifier_command: &[String],
) -> Result<LauncherTemplate, String> {
    let meta = &config.metadata;
    if let Some(problem) = length_problem("LauncherConfig", &meta.name) {
        return Err(problem);
    }
    let template = &config.spec.pod_template;
    let mut spec = match &template["spec"] {
        spec @ Value::Object(_) => spec.clone(),
        _ => return Err(no_container()),
    };
    remove_injected(&mut spec);
    sort_lists(&mut spec);
    let owner = json!({
        "apiVersion": LauncherConfig::RESOURCE.api_version(),
        "kind": LauncherConfig::RESOURCE.kind,
        "name": meta.name,
        "uid": meta.uid.as_str(),
        "controller": false,
        "blockOwnerDeletion": false,
    });
    let object = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let mut labels: Map<String, Value> = object(&template["metadata"]["labels"]);
    let annotations: Map<String, Value> = object(&template["metadata"]["annotations"]);
    labels.insert(COMPONENT_LABEL.to_owned(), json!(LAUNCHER_COMPONENT));
    labels.insert(LAUNCHER_CONFIG_LABEL.to_owned(), json!(meta.name));
    labels.insert(SLEEPING_LABEL.to_owned(), json!("true"));
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": meta.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": spec,
    });
    let hash = base64_sha256(&[&canonical_text(&pod)]);
    pod["metadata"]["annotations"][TEMPLATE_HASH_ANNOTATION] = json!(hash);
    let spec = &mut pod["spec"];
    let container = server_container(spec).ok_or_else(no_container)?;
    prepare_server(container);
    let sidecar = notifier(container, notifier_command);
    add_sidecar(spec, sidecar);
    if let Some(overhead) = spec["overhead"].as_object_mut() {
        overhead.shift_remove(GPU_RESOURCE);
    } else if let Some(fields) = spec.as_object_mut() {
        fields.shift_remove("overhead");
    }
    Ok(LauncherTemplate { hash, config: meta.name.clone(), body: pod })
}

impl LauncherTemplate {
    /// The hash of the launcher's pod on this node.
    #[must_use]
    pub fn hash_on(&self, node: &str) -> String {
        base64_sha256(&[&self.hash, ";node=", node])
    }

    /// The pod on this node.
    #[must_use]
    pub fn pod(&self, name: &str, node: &str) -> Value {
        let mut pod = self.body.clone();
        let metadata = &mut pod["metadata"];
        metadata["name"] = json!(name);
        metadata["labels"][NODE_LABEL] = json!(node);
        metadata["annotations"][LAUNCHER_HASH_ANNOTATION] = json!(self.hash_on(node));
        pod["spec"]["nodeSelector"][HOSTNAME_LABEL] = json!(node);
        pod
    }

    /// The labels and the annotations that every launcher has.
    #[must_use]
    pub fn metadata(&self) -> [BTreeMap<String, String>; 2] {
        ["labels", "annotations"].map(|part| {
            let fields = self.body["metadata"][part].as_object().into_iter().flatten();
            let text = |(key, value): (&String, &Value)| {
                value.as_str().map(|value| (key.clone(), value.to_owned()))
            };
            fields.filter_map(text).collect()
        })
    }

    /// The name of its LauncherConfig.
    #[must_use]
    pub fn config(&self) -> &str {
        &self.config
    }
}

fn no_container() -> String {
    format!("spec.podTemplate.spec.containers: no container is named \"{INFERENCE_SERVER}\"")
}

/// Sets what every launcher's container has: environment, probes, no accelerators.
fn prepare_server(container: &mut Value) {
    for (name, value) in FORCED_ENV {
        set_env(container, name, value);
    }
    let probe = |path: &str, delay: i32, period: i32, timeout: i32| {
        json!({
            "httpGet": {"path": path, "port": LAUNCHER_PORT},
            "initialDelaySeconds": delay,
            "periodSeconds": period,
            "timeoutSeconds": timeout,
            "successThreshold": 1,
            "failureThreshold": 3,
        })
    };
    container["livenessProbe"] = probe("/health", 10, 20, 1);
    container["readinessProbe"] = probe(crate::labels::INSTANCES_PATH, 2, 5, 2);
    // Named without need, the resource would involve the device plugin of the node.
    for field in ["limits", "requests"] {
        if let Some(amounts) = container["resources"][field].as_object_mut()
            && amounts.contains_key(GPU_RESOURCE)
        {
            amounts.insert(GPU_RESOURCE.to_owned(), json!("0"));
        }
    }
    remove_nulls(&mut container["resources"]);
}

fn remove_nulls(object: &mut Value) {
    match object.as_object_mut() {
        Some(fields) => fields.retain(|_, value| !value.is_null()),
        None => *object = json!({}),
    }
}

/// The sidecar that reports changes of instances.
fn notifier(server: &Value, command: &[String]) -> Value {
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let mut sidecar = json!({
        "name": NOTIFIER,
        "image": server["image"],
        "command": command,
        "env": [
            {"name": "LAUNCHER_BASE_URL", "value": format!("http://127.0.0.1:{LAUNCHER_PORT}")},
            {"name": "POD_NAME", "valueFrom": field("metadata.name")},
            {"name": "NAMESPACE", "valueFrom": field("metadata.namespace")},
        ],
        "resources": {
            "requests": {"cpu": "10m", "memory": "64Mi"},
            "limits": {"cpu": "100m", "memory": "128Mi"},
        },
    });
    if let Some(policy) = server.get("imagePullPolicy") {
        sidecar["imagePullPolicy"] = policy.clone();
    }
    sidecar
}

fn add_sidecar(spec: &mut Value, sidecar: Value) {
    let Some(containers) = spec["containers"].as_array_mut() else { return };
    match containers.iter_mut().find(|it| it["name"] == NOTIFIER) {
        Some(old) => *old = sidecar,
        None => containers.push(sidecar),
    }
}

/// Sorts the lists whose order has no meaning, so that it does not change the hash.
fn sort_lists(spec: &mut Value) {
    sort(spec, "volumes", &["/name"]);
    sort(spec, "tolerations", &["/key", "/operator", "/value", "/effect"]);
    sort(spec, "imagePullSecrets", &["/name"]);
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            sort(container, "volumeMounts", &["/name", "/mountPath"]);
            sort(container, "ports", &["/name", "/containerPort", "/protocol"]);
            let source = ["/prefix", "/configMapRef/name", "/secretRef/name"];
            sort(container, "envFrom", &source);
        }
    }
}

fn sort(object: &mut Value, list: &str, keys: &[&str]) {
    let key = |item: &Value| -> Vec<(u64, String)> {
        let part = |path: &&str| match item.pointer(path) {
            Some(Value::Number(number)) => (number.as_u64().unwrap_or_default(), String::new()),
            Some(Value::String(text)) => (0, text.clone()),
            Some(_) | None => (0, String::new()),
        };
        keys.iter().map(part).collect()
    };
    if let Some(items) = object.get_mut(list).and_then(Value::as_array_mut) {
        items.sort_by_cached_key(key);
    }
}

#[cfg(test)]
mod tests;
