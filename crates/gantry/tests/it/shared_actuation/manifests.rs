//! The manifests of the original and our samples, applied to a cluster: they pair. Only the names
//! of images are mapped to ours, and the node has the name that they expect.

use std::path::Path;

use gantry_testkit::http::Request;
use serde_json::{Value, json};

use super::*;

/// The documents of a file, with our images.
fn documents(path: &str) -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let text = std::fs::read_to_string(file).unwrap();
    let text = text.replace("registry.example.com/", "gantry.dev/");
    gantry_yaml::read(&text).unwrap().iter().map(|it| it.to_json()).collect()
}

impl Site {
    /// Applies an object, as `kubectl apply --server-side` does.
    async fn apply(&self, object: &Value) {
        let rbac = "apis/rbac.authorization.k8s.io/v1";
        let models = "apis/fma.llm-d.ai/v1alpha1";
        let kinds = [
            ("ServiceAccount", "api/v1", "serviceaccounts"),
            ("ConfigMap", "api/v1", "configmaps"),
            ("Role", rbac, "roles"),
            ("RoleBinding", rbac, "rolebindings"),
            ("ReplicaSet", "apis/apps/v1", "replicasets"),
            ("InferenceServerConfig", models, "inferenceserverconfigs"),
            ("LauncherConfig", models, "launcherconfigs"),
            ("LauncherPopulationPolicy", models, "launcherpopulationpolicies"),
        ];
        let (_, group, plural) = kinds.iter().find(|it| object["kind"] == it.0).unwrap();
        let path = format!(
            "/{group}/namespaces/default/{plural}/{}?fieldManager=it&force=true",
            name(object)
        );
        let request = Request::patch(path, "application/apply-patch+yaml", object);
        let answer = self.client.send(request).await.unwrap();
        assert!(answer.status.is_success(), "{}: {}", name(object), answer.text());
    }

    /// Adds a simulated node with two accelerators, or labels the one that there is.
    async fn add_node(&self, name: &str, labels: &Value) {
        let path = format!("/api/v1/nodes/{name}");
        if self.nodes.iter().any(|it| it == name) {
            return self.merge(&path, &json!({"metadata": {"labels": labels}})).await;
        }
        let mut labels = labels.clone();
        labels["kubernetes.io/hostname"] = json!(name);
        let node = json!({"metadata": {
            "name": name, "labels": labels,
            "annotations": {
                "kwok.x-k8s.io/node": "fake",
                "gantry.dev/sim-capacity": json!({
                    "cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "2",
                }).to_string(),
            },
        }});
        self.post("/api/v1/nodes", &node).await;
        self.wait_until(&path, "was ready", is_ready).await;
    }
}

pub(crate) async fn as_13_manifests_of_the_original_pair(start: Start) {
    let site = start("").await;
    let labels = json!({"fma-hpa-poc": "true", "nvidia.com/gpu.present": "true"});
    site.add_node("worker", &labels).await;
    let fixtures = "crates/api/tests/manifests/models";
    // Accounts and the map of accelerators; the records of a cluster that is not this one are left
    // out.
    for object in documents(&format!("{fixtures}/around.yaml")) {
        let is_other = object["kind"] == "ClusterRole" || name(&object) == "gpu-allocs";
        if !is_other {
            site.apply(&object).await;
        }
    }
    site.apply(&json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "testreq"},
    }))
    .await;
    site.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "testreq"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "testreq"},
        "subjects": [{"kind": "ServiceAccount", "name": "testreq"}],
    }))
    .await;
    for kind in ["launcherconfig", "inferenceserverconfig", "launcherpopulationpolicy"] {
        for object in documents(&format!("{fixtures}/{kind}-shapes.yaml")) {
            site.apply(&object).await;
        }
    }
    let requesters = documents(&format!("{fixtures}/requesters-launcher.yaml"));
    site.apply(&requesters[0]).await;
    let requester = site.ready("ask").await;
    assert_eq!(annotation(&requester, "dual-pods.llm-d.ai/accelerators"), "GPU-0");
    let launcher = site.provider(&requester).await;
    assert_eq!(label(&launcher, "e2e-test.fma.llm-d.ai/isc-label"), "test-value");
    let template = label(&launcher, "e2e-test.fma.llm-d.ai/template-label");
    assert_eq!(template, "from-launcher-config");
    assert_eq!(answering(&launcher, 8005).await, "org/small-360M-Instruct");
}
