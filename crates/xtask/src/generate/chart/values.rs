//! The values of the chart.

use gantry::config::keys::KEYS;
use gantry::config::value_type::ValueType;
use serde_json::{Value, json};

use super::super::chart_values::ChartValue;

/// Keys of the configuration that the Deployment decides: ports, probes, the lease, and the
/// connection to the server.
const RESERVED_KEYS: [&str; 6] = [
    "clientConnection.kubeconfig",
    "health.",
    "leaderElection.leaderElect",
    "leaderElection.resourceName",
    "leaderElection.resourceNamespace",
    "metrics.",
];

/// The values, in the order in which they are shown.
pub(super) fn entries(deployment: &Value) -> Vec<ChartValue> {
    let entry = |section, name, default, form, about| ChartValue {
        path: [section, name],
        default,
        form,
        about,
    };
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let text = || json!({ "type": "string" });
    vec![
        entry(
            "global",
            "imageRegistry",
            json!(""),
            text(),
            "Where the image is: `<imageRegistry>/gantry:<imageTag>`. Empty: `gantry:<imageTag>`.",
        ),
        entry(
            "global",
            "imageTag",
            json!(""),
            text(),
            "The tag of the image. Empty: the version of the chart.",
        ),
        entry(
            "global",
            "nodeViewClusterRole",
            json!(""),
            text(),
            "A ClusterRole that may get, list and watch nodes, which is then bound to the \
             operator's account. Binding it needs an administrator. Empty: no binding.",
        ),
        entry(
            "global",
            "metricsAuthClusterRole",
            json!(""),
            text(),
            "A ClusterRole that may create TokenReviews and SubjectAccessReviews, such as \
             `system:auth-delegator`, which is then bound to the operator's account: metrics are \
             served with TLS to users who may read them, and there are a Service and the \
             ClusterRole `<namespace>-<release>-metrics-reader`. That needs an administrator. \
             Empty: metrics are served only inside the pod, to `kubectl port-forward`.",
        ),
        entry(
            "global",
            "modulesClusterRole",
            json!(""),
            text(),
            "A ClusterRole with the permissions that `operator.config.modules.enabled` needs, such \
             as `gantry-modules` of config/operator/optional/modules.yaml, which is then bound to \
             the operator's account: it creates privileged pods in every namespace and labels \
             nodes. Binding it needs an administrator. Empty: no binding.",
        ),
        entry(
            "global",
            "modulesSecretsClusterRole",
            json!(""),
            text(),
            "A ClusterRole that may get Secrets, such as `gantry-modules-secrets` of the same \
             file, which is then bound to the operator's account in the whole cluster, for the \
             credentials and keys that Modules name. Empty: bind it in the namespaces of Modules, \
             as config/operator/optional/modules-secrets.yaml does.",
        ),
        entry(
            "global",
            "local",
            json!(false),
            json!({ "type": "boolean" }),
            "Whether the nodes have the image already: it is never pulled then.",
        ),
        entry(
            "operator",
            "config",
            json!({ "mcadEnabled": false }),
            configuration(),
            "The configuration of the operator, see docs/operator-configuration.md. What the chart \
             decides is not part of it: ports, probes, the lease and the kubeconfig. The queue is \
             off, because it works on the whole cluster. If it is enabled here, what AppWrappers \
             wrap is created with the permissions of the operator's account, not of their authors; \
             see docs/chart.md.",
        ),
        entry(
            "operator",
            "replicaCount",
            deployment["spec"]["replicas"].clone(),
            json!({ "type": "integer", "minimum": 0 }),
            "How many run; one of them works, the others wait for it to go.",
        ),
        entry(
            "operator",
            "pullPolicy",
            json!("IfNotPresent"),
            json!({ "enum": ["Always", "IfNotPresent", "Never"] }),
            "When the image is pulled, unless `global.local` is set.",
        ),
        entry(
            "operator",
            "imagePullSecrets",
            json!([]),
            json!({ "type": "array", "items": {
                "type": "object",
                "properties": { "name": { "type": "string" } },
                "required": ["name"],
                "additionalProperties": false,
            } }),
            "The Secrets with which it is pulled, each as `name: …`.",
        ),
        entry(
            "operator",
            "networkPolicy",
            json!(true),
            json!({ "type": "boolean" }),
            "Whether a NetworkPolicy lets in only readers of metrics, from namespaces with the \
             label `metrics: enabled`, and callers of webhooks. Kubelets reach the probes in any \
             case.",
        ),
        entry(
            "operator",
            "resources",
            container["resources"].clone(),
            json!({ "type": "object" }),
            "What the container requests, and its limits.",
        ),
        entry(
            "operator",
            "nodeSelector",
            json!({}),
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            "Labels of the nodes it may run on.",
        ),
        entry(
            "operator",
            "tolerations",
            json!([]),
            json!({ "type": "array", "items": { "type": "object" } }),
            "Taints it tolerates.",
        ),
    ]
}

/// Returns the keys of the configuration that are left to the user. Types are checked before
/// anything is installed, everything else when the operator starts.
fn configuration() -> Value {
    let mut root = section();
    let free = KEYS.iter().filter(|key| !RESERVED_KEYS.iter().any(|it| key.path.starts_with(it)));
    for key in free {
        let mut at = &mut root;
        let mut parts = key.path.split('.').peekable();
        while let Some(part) = parts.next() {
            let below = match parts.peek() {
                Some(_) => section(),
                None => form(key.value_type),
            };
            at = match at["properties"].as_object_mut() {
                Some(properties) => properties.entry(part).or_insert(below),
                None => break,
            };
        }
    }
    root
}

fn section() -> Value {
    json!({ "type": ["object", "null"], "properties": {}, "additionalProperties": false })
}

/// Returns the schema of a value; null is the default in every case.
fn form(form: ValueType) -> Value {
    match form {
        ValueType::Bool => json!({ "type": ["boolean", "null"] }),
        ValueType::Integer { .. } => json!({ "type": ["integer", "null"], "maximum": i32::MAX }),
        ValueType::Number => json!({ "type": ["number", "null"] }),
        ValueType::Text
        | ValueType::Duration { .. }
        | ValueType::Address { .. }
        | ValueType::Word(_)
        | ValueType::Name
        | ValueType::Namespace => json!({ "type": ["string", "null"] }),
        ValueType::Texts => json!({ "type": ["array", "null"], "items": { "type": "string" } }),
        ValueType::Switches => json!({ "type": ["object", "array", "null"] }),
        ValueType::Opaque => json!({ "type": ["object", "null"] }),
    }
}
