//! The Deployments of the chart, and the volume for coverage data.

use serde_json::{Map, Value, json};

use super::{labels, selector};
use crate::image::PROGRAM;

/// The commands of the controllers, which are also what their Deployments end in, and the values of
/// `app.kubernetes.io/component`.
const PAIRING: &str = "dual-pods-controller";
const POPULATION: &str = "launcher-populator";

/// The port of the controllers' metrics.
const METRICS_PORT: u16 = 8002;

/// Where the Secret with the bearer token is mounted, and its key.
const TOKEN_FOLDER: &str = "/etc/gantry/token";
const TOKEN_KEY: &str = "token";

/// Where coverage data is written.
const COVERAGE_FOLDER: &str = "/var/coverdata";

/// Returns the Deployment of the controller that pairs requesters and providers.
pub(super) fn pairing() -> Value {
    let pattern = format!("{COVERAGE_FOLDER}/%p-%m.profraw");
    let env = json!({ "name": "LLVM_PROFILE_FILE", "value": pattern });
    let container = object(json!({
        "name": "controller",
        "image": "HELM_IMAGE_OF_PAIRING",
        "imagePullPolicy": "HELM_PULL_OF_PAIRING",
        "command": [PROGRAM, PAIRING],
        "args": [
            "-v=5",
            "--namespace=HELM_NAMESPACE",
            "--leader-elect",
            "--sleeper-limit=HELM_SLEEPER_LIMIT",
            "--debug-accelerator-memory=HELM_DEBUG_MEMORY",
            "HELM_IF_TOKEN",
            format!("--token-file={TOKEN_FOLDER}/{TOKEN_KEY}"),
            "HELM_END",
        ],
        "HELM_IF_COVERAGE": null,
        "env": [env],
        "HELM_END_ENV": null,
        "ports": metrics_ports(),
        "securityContext": restricted(),
        "HELM_IF_VOLUMES": null,
        "volumeMounts": [
            "HELM_IF_COVERAGE",
            { "name": "coverdata", "mountPath": COVERAGE_FOLDER },
            "HELM_END",
            "HELM_IF_TOKEN",
            token_mount(),
            "HELM_END",
        ],
        "HELM_END_VOLUMES": null,
    }));
    let volumes = json!([
        "HELM_IF_COVERAGE",
        { "name": "coverdata", "persistentVolumeClaim": { "claimName": "HELM_CLAIM" } },
        "HELM_END",
        "HELM_IF_TOKEN",
        token_volume(),
        "HELM_END",
    ]);
    let mut pod = pod(&container);
    pod.insert("HELM_IF_VOLUMES".to_owned(), Value::Null);
    pod.insert("volumes".to_owned(), volumes);
    pod.insert("HELM_END".to_owned(), Value::Null);
    deployment("HELM_PAIRING", PAIRING, &json!(1), &pod)
}

/// Returns the Deployment of the controller that keeps the stock of launchers.
pub(super) fn population() -> Value {
    let container = object(json!({
        "name": "launcher-populator",
        "image": "HELM_IMAGE_OF_POPULATION",
        "imagePullPolicy": "HELM_PULL_OF_POPULATION",
        "command": [PROGRAM, POPULATION],
        "args": [
            "--namespace=HELM_NAMESPACE",
            "--leader-elect",
            "HELM_IF_RETENTION",
            "--retention-time=HELM_RETENTION",
            "HELM_END",
            "HELM_IF_TOKEN",
            format!("--token-file={TOKEN_FOLDER}/{TOKEN_KEY}"),
            "HELM_END",
        ],
        "ports": metrics_ports(),
        "resources": "HELM_RESOURCES",
        "securityContext": restricted(),
        "HELM_IF_TOKEN": null,
        "volumeMounts": [token_mount()],
        "HELM_END": null,
    }));
    let mut pod = pod(&container);
    pod.insert("HELM_IF_TOKEN".to_owned(), Value::Null);
    pod.insert("volumes".to_owned(), json!([token_volume()]));
    pod.insert("HELM_END".to_owned(), Value::Null);
    deployment("HELM_POPULATION", POPULATION, &json!("HELM_REPLICAS"), &pod)
}

/// Returns a Deployment that ends the old process before it starts the new one: the original has no
/// lease, so that it must not run beside ours while a release of it is upgraded.
fn deployment(name: &str, component: &str, replicas: &Value, pod: &Map<String, Value>) -> Value {
    let mut own_labels = labels();
    own_labels["app.kubernetes.io/component"] = json!(component);
    let mut pod_labels = selector(Some(component));
    pod_labels["scrape"] = json!("true");
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "labels": own_labels },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": selector(Some(component)) },
            "strategy": { "type": "Recreate" },
            "template": { "metadata": { "labels": pod_labels }, "spec": pod },
        },
    })
}

/// Returns what the pods of both controllers have. There is no user: the image names one by number,
/// and platforms that assign users to namespaces assign theirs.
fn pod(container: &Map<String, Value>) -> Map<String, Value> {
    object(json!({
        "serviceAccountName": "HELM_ACCOUNT",
        "securityContext": {
            "runAsNonRoot": true,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [container],
    }))
}

fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "readOnlyRootFilesystem": true,
    })
}

fn metrics_ports() -> Value {
    json!([{ "name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP" }])
}

fn token_mount() -> Value {
    json!({ "name": "token", "mountPath": TOKEN_FOLDER, "readOnly": true })
}

fn token_volume() -> Value {
    let items = json!([{ "key": TOKEN_KEY, "path": TOKEN_KEY }]);
    json!({ "name": "token", "secret": { "secretName": "HELM_TOKEN_SECRET", "items": items } })
}

/// Returns the claim of the volume for coverage data.
pub(super) fn coverage_claim() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "HELM_CLAIM", "labels": labels() },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    })
}

/// Returns a Deployment of no pods; one that is started by hand has the coverage data.
pub(super) fn coverage_inspector() -> Value {
    let component = "dpc-coverdata-inspector";
    let mut own_labels = labels();
    own_labels["app.kubernetes.io/component"] = json!(component);
    let container = json!({
        "name": "inspector",
        "image": "HELM_IMAGE_OF_INSPECTOR",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "86400"],
        "volumeMounts": [{ "name": "coverdata", "mountPath": COVERAGE_FOLDER }],
    });
    let volume =
        json!({ "name": "coverdata", "persistentVolumeClaim": { "claimName": "HELM_CLAIM" } });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "HELM_INSPECTOR_NAME", "labels": own_labels },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": selector(Some(component)) },
            "template": {
                "metadata": { "labels": selector(Some(component)) },
                "spec": {
                    "serviceAccountName": "HELM_ACCOUNT",
                    "containers": [container],
                    "volumes": [volume],
                },
            },
        },
    })
}

/// Returns the fields of an object that was written as one.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}
