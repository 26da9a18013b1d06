use serde_json::json;

use super::*;

fn config(spec: &Value) -> LauncherConfig {
    serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": "lc", "uid": "u1"},
        "spec": {
            "maxInstances": 2,
            "podTemplate": {
                "metadata": {"labels": {"app.kubernetes.io/component": "x", "a": "b"}},
                "spec": spec,
            },
        },
    }))
    .unwrap()
}

fn spec() -> Value {
    json!({
        "volumes": [{"name": "b"}, {"name": "kube-api-access-abc"}, {"name": "a"}],
        "overhead": {"cpu": "1", "nvidia.com/gpu": "1"},
        "containers": [{
            "name": "inference-server", "image": "i", "imagePullPolicy": "Never",
            "env": [{"name": "B", "value": "1"}, {"name": "PYTHONPATH", "value": "/x"},
                    {"name": "A", "value": "1"}],
            "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "2"}, "requests": {"cpu": "1"}},
        }],
    })
}

fn template(spec: &Value) -> LauncherTemplate {
    launcher_template(&config(spec), &DEFAULT_NOTIFIER_COMMAND.map(str::to_owned)).unwrap()
}

#[test]
fn as_56_the_hash_depends_on_content_and_not_on_the_order_of_sortable_lists() {
    let one = template(&spec());
    assert_eq!(one.hash, "4BQIqnD5NvpSST5FqwPdmyWLHgxjEvhY9ak7qBVK7kI");
    let mut other = spec();
    other["volumes"].as_array_mut().unwrap().reverse();
    assert_eq!(template(&other).hash, one.hash);
    other["containers"][0]["env"].as_array_mut().unwrap().reverse();
    assert_ne!(template(&other).hash, one.hash, "the order of variables has a meaning");
    let mut again = config(&spec());
    again.metadata.uid = gantry_reconcile::Uid::new("u2");
    let again = launcher_template(&again, &[]).unwrap();
    assert_ne!(again.hash, one.hash, "a recreated LauncherConfig is another one");
    let mut more = config(&spec());
    more.spec.max_instances = 9;
    assert_eq!(launcher_template(&more, &[]).unwrap().hash, one.hash);
    assert_eq!(one.hash_on("n1"), base64_sha256(&[&one.hash, ";node=n1"]));
    assert_ne!(one.hash_on("n1"), one.hash_on("n2"));
}

#[test]
fn as_57_forced_variables_replace_in_place_or_follow_in_order() {
    let pod = template(&spec()).pod("l", "n1");
    let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    let env: Vec<(&str, &str)> = env
        .iter()
        .map(|it| (it["name"].as_str().unwrap(), it["value"].as_str().unwrap()))
        .collect();
    assert_eq!(
        env,
        [
            ("B", "1"),
            ("PYTHONPATH", "/app"),
            ("A", "1"),
            ("NVIDIA_VISIBLE_DEVICES", "all"),
            ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
            ("VLLM_SERVER_DEV_MODE", "1"),
        ]
    );
}

#[test]
fn the_pod_is_that_of_the_specification() {
    let pod = template(&spec()).pod("l", "n1");
    assert_eq!(
        pod["metadata"]["labels"],
        json!({
            "app.kubernetes.io/component": "launcher", "a": "b",
            "dual-pods.llm-d.ai/launcher-config-name": "lc",
            "dual-pods.llm-d.ai/sleeping": "true",
            "dual-pods.llm-d.ai/node-name": "n1",
        })
    );
    let owner = &pod["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["controller"], &owner["uid"]), (&json!(false), &json!("u1")));
    assert_eq!(pod["spec"]["volumes"], json!([{"name": "a"}, {"name": "b"}]));
    assert_eq!(pod["spec"]["overhead"], json!({"cpu": "1"}));
    assert_eq!(pod["spec"]["nodeSelector"], json!({"kubernetes.io/hostname": "n1"}));
    let [server, sidecar] = pod["spec"]["containers"].as_array().unwrap().as_slice() else {
        panic!("two containers");
    };
    assert_eq!(server["resources"]["limits"]["nvidia.com/gpu"], "0");
    assert_eq!(server["resources"]["requests"], json!({"cpu": "1"}), "not named, not added");
    assert_eq!(server["readinessProbe"]["httpGet"]["path"], "/v2/vllm/instances");
    assert_eq!(server["livenessProbe"]["periodSeconds"], 20);
    assert_eq!((&sidecar["image"], &sidecar["imagePullPolicy"]), (&json!("i"), &json!("Never")));
    assert_eq!(sidecar["command"], json!(["python3", "/app/launcher_pod_notifier.py"]));
    let kind = gantry_builtin::kind_type("", "v1", "Pod").unwrap();
    assert_eq!(gantry_builtin::read(kind, pod.clone()).unwrap().unknown, Vec::<String>::new());
}

#[test]
fn malformed_configs_are_reported() {
    for spec in [json!(null), json!({"containers": [{"name": "x"}]})] {
        let error = launcher_template(&config(&spec), &[]).unwrap_err();
        assert!(error.contains("no container is named \"inference-server\""), "{error}");
    }
    let mut long = config(&spec());
    long.metadata.name = "x".repeat(64);
    assert!(launcher_template(&long, &[]).unwrap_err().contains("64 characters"));
}
