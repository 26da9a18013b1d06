//! Programs that serve models in simulated pods.

use gantry_testkit::http::Request;
use serde_json::{Value, json};

use super::programs::{ask, is_ready};
use super::{Cluster, PODS};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

fn pod(name: &str, node: &str, container: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container]}})
}

/// A requester gets accelerators of its node, and a launcher serves a model on them; when the
/// launcher is deleted nothing of it is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_requester_and_a_launcher_serve_a_model() {
    let cluster = Cluster::ephemeral().await;
    let nodes = cluster.get("/api/v1/nodes").await;
    let node = nodes["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let map = json!({"GPU-0": 0, "GPU-1": 1}).to_string();
    cluster
        .post(CONFIG_MAPS, &json!({"metadata": {"name": "gpu-map"}, "data": {&node: map}}))
        .await;
    let role = json!({"metadata": {"name": "models"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch"]},
    ]});
    cluster.post(&format!("{RBAC}/roles"), &role).await;
    let binding = json!({
        "metadata": {"name": "models"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "models"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    });
    cluster.post(&format!("{RBAC}/rolebindings"), &binding).await;
    let requester = json!({
        "name": "inference-server", "image": "gantry.dev/test-requester:1",
        "command": ["/ko-app/test-requester"], "args": ["--num-gpus=1"],
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "GPU-1"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1},
    });
    cluster.post(PODS, &pod("requester", &node, &requester)).await;
    let launcher = json!({
        "name": "inference-server", "image": "gantry.dev/launcher:1",
        "command": ["/bin/bash", "-c"], "args": ["python3 launcher.py --mock-gpus"],
        "env": [{"name": "VLLM_SERVER_DEV_MODE", "value": "1"}],
        "readinessProbe": {
            "httpGet": {"path": "/v2/vllm/instances", "port": 8001}, "periodSeconds": 1,
        },
    });
    let mut pair = pod("launcher", &node, &launcher);
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    pair["spec"]["containers"].as_array_mut().unwrap().push(json!({
        "name": "state-change-reflector", "image": "gantry.dev/launcher:1",
        "command": ["python3", "/app/launcher_pod_notifier.py"],
        "env": [
            {"name": "LAUNCHER_BASE_URL", "value": "http://127.0.0.1:8001"},
            {"name": "POD_NAME", "valueFrom": field("metadata.name")},
            {"name": "NAMESPACE", "valueFrom": field("metadata.namespace")},
        ],
    }));
    cluster.post(PODS, &pair).await;
    let path = |name: &str| format!("{PODS}/{name}");
    let allocated = |it: &Value| it["data"]["GPU-1"].is_string();
    cluster.wait_until(&format!("{CONFIG_MAPS}/gpu-allocs"), "has GPU-1", allocated).await;
    let seen = cluster.get(&path("requester")).await;
    let stub = seen["status"]["podIP"].as_str().unwrap().to_owned();
    let spi = format!("{stub}:8081");
    let (mut code, mut body) = ask("GET", &spi, "/v1/dual-pods/accelerators", "").await;
    while code == 500 {
        (code, body) = ask("GET", &spi, "/v1/dual-pods/accelerators", "").await;
    }
    assert_eq!(body, r#"["GPU-1"]"#);
    assert!(!is_ready(&seen), "nobody told it to be ready");
    assert_eq!(ask("POST", &spi, "/v1/become-ready", "").await.0, 200);
    cluster.wait_until(&path("requester"), "is ready", is_ready).await;

    let seen = cluster.wait_until(&path("launcher"), "is ready", is_ready).await;
    let address = seen["status"]["podIP"].as_str().unwrap().to_owned();
    let api = format!("{address}:8001");
    let instance = json!({"options": "--model tiny/a --port 8005", "gpu_uuids": ["GPU-1"]});
    let created = ask("PUT", &api, "/v2/vllm/instances/a", &instance.to_string()).await;
    assert_eq!(created.0, 201, "{}", created.1);
    assert!(created.1.contains(r#""CUDA_VISIBLE_DEVICES":"1""#), "{}", created.1);
    let signed = |it: &Value| {
        let key = "dual-pods.llm-d.ai/vllm-instance-signature";
        it["metadata"]["annotations"][key].is_string()
    };
    cluster.wait_until(&path("launcher"), "has a signature", signed).await;
    let engine = format!("{address}:8005");
    let mut asleep = (502, String::new());
    while asleep.0 == 502 {
        asleep = ask("GET", &api, "/v2/vllm/instances/a/is_sleeping", "").await;
    }
    assert_eq!(asleep, (200, r#"{"is_sleeping":false}"#.to_owned()));
    let prompt = json!({"prompt": "Hello", "max_tokens": 4}).to_string();
    let (code, answer) = ask("POST", &engine, "/v1/completions", &prompt).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((code, &answer["model"]), (200, &json!("tiny/a")));
    let usage = ask("GET", &spi, "/v1/dual-pods/accelerator-memory-usage", "").await;
    let usage: Value = serde_json::from_str(&usage.1).unwrap();
    assert!(usage["GPU-1"].as_u64().unwrap() > 0, "{usage}");

    cluster.client.send(Request::delete(&path("launcher"))).await.unwrap();
    cluster.wait_until(&path("launcher"), "is gone", |it| it["code"] == 404).await;
    let usage = ask("GET", &spi, "/v1/dual-pods/accelerator-memory-usage", "").await;
    assert_eq!(usage.1, r#"{"GPU-1":0}"#);
}
