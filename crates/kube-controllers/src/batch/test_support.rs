//! Fakes of nodes and of the server's defaults for tests.

use gantry_harness::{Kubelet, KubeletNodes, KubeletPod, PodLifecycle};
use gantry_reconcile::{Resource, View as _};
use serde_json::{Value, json};

use crate::view::{Job, Pod};

/// Runs pods. Each exits with the code that is given for it, or does not exit by itself.
pub(crate) fn kubelet(
    exit: fn(&Pod) -> Option<i64>,
) -> Kubelet<impl Fn(&KubeletPod) -> PodLifecycle + Send + Sync> {
    let lifecycle = move |pod: &KubeletPod| {
        let pod = Pod { metadata: pod.metadata.clone(), ..Pod::default() };
        PodLifecycle { exit_code: exit(&pod), ..PodLifecycle::default() }
    };
    Kubelet { nodes: KubeletNodes::Ignored, lifecycle, reports_termination: true }
}

/// The defaults of the server.
pub(crate) fn defaults(resource: &Resource, object: &mut Value) {
    if *resource != Job::RESOURCE || !object["spec"]["selector"].is_null() {
        return;
    }
    let labels = json!({"batch.kubernetes.io/controller-uid": object["metadata"]["uid"]});
    object["spec"]["selector"] = json!({"matchLabels": labels});
    object["spec"]["template"]["metadata"]["labels"] = labels;
}

/// A job with a spec.
pub(crate) fn job(name: &str, spec: Value) -> (Resource, Value) {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "n"},
        "spec": {
            "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
            "podReplacementPolicy": "TerminatingOrFailed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]}},
        },
    });
    if let Value::Object(fields) = spec {
        for (name, value) in fields {
            object["spec"][name] = value;
        }
    }
    (Job::RESOURCE, object)
}
