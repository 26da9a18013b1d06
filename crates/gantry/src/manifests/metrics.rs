//! Access to the operator's metrics: permissions and network policy.

use serde_json::{Value, json};

use super::{cluster_binding, cluster_wide, in_namespace, rule};

/// The Service of the metrics.
pub const METRICS_SERVICE: &str = "manager-metrics";
/// The ClusterRole with which the operator sends reviews of readers of its metrics.
pub const METRICS_AUTH: &str = "gantry-metrics-auth";
/// The ClusterRole for reading the metrics; bind it to the account of Prometheus.
pub const METRICS_READER: &str = "gantry-metrics-reader";
/// Namespaces with this label, set to `enabled`, may connect to the metrics port.
pub const METRICS_LABEL: &str = "metrics";

/// Returns the permission to send reviews, and the permission to read metrics.
pub(super) fn access() -> Vec<Value> {
    let about = "Lets the operator ask the API server whose token a reader of its metrics shows, \
                 and whether that user may read them.";
    let reviews = [
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ];
    let reader = json!([{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }]);
    let mut read = cluster_wide(
        METRICS_READER,
        "Lets somebody read the operator's metrics. Bind it to the account of Prometheus.",
        &[],
    );
    read["rules"] = reader;
    vec![cluster_wide(METRICS_AUTH, about, &reviews), cluster_binding(METRICS_AUTH), read]
}

/// Returns the policy for the ports of the operator. Its probes are for the kubelet of its node,
/// which no policy blocks; webhooks are called by API servers, which are in no namespace.
pub(super) fn network_policy() -> Value {
    let port = |port: Value| json!([{ "protocol": "TCP", "port": port }]);
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": in_namespace("gantry-operator"),
        "spec": {
            "podSelector": { "matchLabels": { "app.kubernetes.io/name": "gantry-operator" } },
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [{
                        "namespaceSelector": { "matchLabels": { METRICS_LABEL: "enabled" } },
                    }],
                    "ports": port(json!("metrics")),
                },
                { "ports": port(json!(9443)) },
            ],
        },
    })
}
