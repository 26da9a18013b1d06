use serde_json::{Value, json};

use super::*;

fn requester(patch: &str, labels: &Value) -> ActuationPod {
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "n", "name": "web-0", "uid": "u1", "labels": labels,
            "annotations": {"dual-pods.llm-d.ai/server-patch": patch},
        },
        "spec": {
            "nodeName": "n1",
            "readinessGates": [{"conditionType": READINESS_GATE}],
            "volumes": [{"name": "kube-api-access-x7"}, {"name": "data", "emptyDir": {}}],
            "containers": [
                {
                    "name": "inference-server", "image": "stub",
                    "args": ["--stub"],
                    "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "1"}},
                    "volumeMounts": [{"name": "kube-api-access-x7", "mountPath": "/token"}],
                    "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
                },
                {"name": "proxy", "image": "p"},
            ],
        },
    }))
    .unwrap()
}

const PATCH: &str = "metadata:\n  labels: {app: engine, set: null}\nspec:\n  containers:\n  - name: \
                     inference-server\n    image: engine\n    args: [--port, '8000']\n    \
                     readinessProbe:\n      httpGet: {path: /health, port: 8000}\n    env:\n    - \
                     {name: NODE, value: '{{ .NodeName }}'}\n";

fn nominal(patch: &str) -> Result<NominalPod, String> {
    let uuids = ["GPU-1".to_owned(), "GPU-0".to_owned()];
    let accelerators = IndexedAccelerators { uuids: &uuids, indices: &[1, 0] };
    nominal_pod(&requester(patch, &json!({"set": "s"})), accelerators)
}

#[test]
fn as_14_provider_runs_on_the_same_node_with_the_same_accelerators() {
    let pod = nominal(PATCH).unwrap();
    let key = Key::new("n", "web-0");
    let body = pod.bound_to(&key, &Uid::new("u1"), Timestamp::UNIX_EPOCH);
    let container = &body["spec"]["containers"][0];
    assert_eq!(container["image"], "engine");
    assert_eq!(container["args"], json!(["--port", "8000"]));
    assert_eq!(container["resources"]["limits"], json!({"nvidia.com/gpu": "0", "cpu": "1"}));
    assert_eq!(container["resources"]["requests"], json!({"nvidia.com/gpu": "0"}));
    assert_eq!(
        container["env"],
        json!([
            {"name": "NODE", "value": "n1"}, {"name": "CUDA_VISIBLE_DEVICES", "value": "1,0"}
        ])
    );
    assert_eq!(container["volumeMounts"], json!([]));
    assert_eq!(body["spec"]["volumes"], json!([{"name": "data", "emptyDir": {}}]));
    assert_eq!(body["spec"]["nodeName"], "n1");
    assert_eq!(body["spec"]["nodeSelector"], json!({"kubernetes.io/hostname": "n1"}));
    assert_eq!(body["spec"]["readinessGates"], json!([]));
    assert_eq!(body["spec"]["containers"][1]["name"], "proxy");
    let metadata = &body["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({
            "app": "engine", "dual-pods.llm-d.ai/sleeping": "false",
            "dual-pods.llm-d.ai/dual": "web-0",
        })
    );
    assert_eq!(metadata["annotations"]["dual-pods.llm-d.ai/requester"], "u1 web-0");
    assert_eq!(metadata["annotations"]["dual-pods.llm-d.ai/accelerators"], "GPU-1,GPU-0");
    assert_eq!(metadata["annotations"]["dual-pods.llm-d.ai/nominal"], pod.hash.as_str());
    assert_eq!(pod.hash.len(), 43);
    assert_eq!(metadata["finalizers"], json!(["dual-pods.llm-d.ai/provider"]));
    let name = metadata["name"].as_str().unwrap();
    assert!(name.starts_with("web-0-dual-"), "{name}");
    let view: ActuationPod = serde_json::from_value(body).unwrap();
    assert_eq!(view.engine.unwrap().port, Ok(8000));
}

#[test]
fn the_hash_depends_on_the_pod_the_node_and_the_accelerators() {
    let uuids = ["GPU-0".to_owned()];
    let hash = |pod: &ActuationPod, indices: &[u32]| {
        nominal_pod(pod, IndexedAccelerators { uuids: &uuids, indices }).unwrap().hash
    };
    let pod = requester(PATCH, &json!({"set": "s"}));
    assert_eq!(hash(&pod, &[0]), "ML5l7RAv3P4vP+JnYA4urIuTg4cPQihjGeoWfScALU8");
    assert_ne!(hash(&pod, &[0]), hash(&pod, &[1]));
    // What binding writes does not change it.
    let bound = json!({"set": "s", "dual-pods.llm-d.ai/dual": "x"});
    assert_eq!(hash(&pod, &[0]), hash(&requester(PATCH, &bound), &[0]));
    // The patch removes this label.
    assert_eq!(hash(&pod, &[0]), hash(&requester(PATCH, &json!({"set": "t"})), &[0]));
    assert_ne!(hash(&pod, &[0]), hash(&requester(PATCH, &json!({"a": "t"})), &[0]));
    let elsewhere = ActuationPod { node_name: "n2".to_owned(), ..pod.clone() };
    assert_ne!(hash(&pod, &[0]), hash(&elsewhere, &[0]));
}

#[test]
fn as_17_bad_patches_are_reported() {
    let server = |probe: &str| {
        format!("spec: {{containers: [{{name: inference-server, readinessProbe: {probe}}}]}}")
    };
    let table = [
        ("spec: {containerz: []}".to_owned(), "unknown field \"spec.containerz\""),
        ("- a".to_owned(), "is not a map of fields"),
        ("a: b: c".to_owned(), "server-patch line 1"),
        ("spec:\n  nodeName: {{ .Node }}".to_owned(), "line 2: unknown field .Node"),
        ("a: {}\n---\nb: {}".to_owned(), "more than one YAML document"),
        ("spec: {containers: 5}".to_owned(), "server-patch"),
        (server("null"), "readinessProbe: required"),
        (server("{httpGet: null, exec: {command: [a]}}"), "readinessProbe.httpGet: required"),
        (server("{httpGet: {port: web}}"), "\"web\" is not supported"),
        (
            "spec: {containers: [{$patch: delete, name: inference-server}]}".to_owned(),
            "no container named",
        ),
    ];
    for (patch, expected) in table {
        let error = nominal(&patch).unwrap_err();
        assert!(error.contains(expected), "{patch}: {error}");
    }
    assert_eq!(
        DirectEngine::of(&json!({"containers": [
            {"name": "inference-server", "readinessProbe": {"httpGet": {"port": "http"}}}
        ]}))
        .port,
        Ok(80)
    );
}
