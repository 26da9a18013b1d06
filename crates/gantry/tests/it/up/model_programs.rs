//! Programs that serve models in simulated pods: a model is served, sleeps and wakes; nothing is
//! left; and nobody who writes a pod or calls a launcher decides what runs.

use std::path::Path;

use gantry_engine::ledger::Ledger;
use tokio::net::TcpStream;

use super::programs::{ask, is_ready};
use super::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
const INSTANCES: &str = "/v2/vllm/instances";

async fn started(folder: &Path) -> (Cluster, String) {
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).data(folder.join("data"));
    let cluster = Cluster::start(plan).await;
    let nodes =
        cluster.wait_until("/api/v1/nodes", "had a node", |it| it["items"][0].is_object()).await;
    let node = nodes["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    (cluster, node)
}

/// The processes of simulated pods of a cluster, with their variables.
fn processes(folder: &Path) -> Vec<(i32, Vec<String>)> {
    let mark = format!("GANTRY_SIMULATED_POD={}", folder.join("data").display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        let id = path.file_name().and_then(|it| it.to_str()).and_then(|it| it.parse().ok());
        // A process may end while the directory is read; those of others are not read.
        let (Some(id), Ok(variables)) = (id, std::fs::read(path.join("environ"))) else { continue };
        let text = String::from_utf8_lossy(&variables);
        let variables: Vec<String> = text.split('\0').map(str::to_owned).collect();
        if variables.iter().any(|it| it.starts_with(&mark)) {
            found.push((id, variables));
        }
    }
    found
}

impl Cluster {
    async fn eventually(&self, what: &str, mut good: impl AsyncFnMut() -> bool) {
        let began = self.clock.moment();
        while !good().await {
            let late = self.clock.moment() - began > CONDITION_TIMEOUT;
            assert!(!late, "never {what}:\n{}", self.process.tails());
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until a port of a pod listens.
    async fn wait_for_port(&self, address: &str) {
        self.eventually(address, async || TcpStream::connect(address).await.is_ok()).await;
    }

    async fn put_instance(&self, launcher: &str, id: &str, body: &Value) -> (u16, Value) {
        let (code, text) =
            ask("PUT", launcher, &format!("{INSTANCES}/{id}"), &body.to_string()).await;
        (code, serde_json::from_str(&text).unwrap())
    }

    async fn delete_pod(&self, path: &str) {
        let answer = self.client.send(Request::delete(path)).await.unwrap();
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
    }
}

/// A pod that runs on a node; its account may read and allocate accelerators.
fn pod(name: &str, node: &str, containers: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 20,
            "serviceAccountName": "models", "containers": containers,
        },
    })
}

async fn allow(cluster: &Cluster) {
    cluster
        .post(
            "/api/v1/namespaces/default/serviceaccounts",
            &json!({"metadata": {"name": "models"}}),
        )
        .await;
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch"]},
    ]);
    let role = json!({"metadata": {"name": "models"}, "rules": rules});
    cluster.post(&format!("{RBAC}/roles"), &role).await;
    let binding = json!({
        "metadata": {"name": "models"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "models"},
        "subjects": [{"kind": "ServiceAccount", "name": "models", "namespace": "default"}],
    });
    cluster.post(&format!("{RBAC}/rolebindings"), &binding).await;
}

fn address(pod: &Value, port: u16) -> String {
    format!("{}:{port}", pod["status"]["podIP"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launcher_serves_a_model_on_the_accelerator_of_a_requester() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, node) = started(folder.path()).await;
    allow(&cluster).await;
    let places = json!({"GPU-a": 0, "GPU-b": 1}).to_string();
    let map = json!({"metadata": {"name": "gpu-map"}, "data": {&node: places}});
    cluster.post("/api/v1/namespaces/default/configmaps", &map).await;

    // The requester: not ready, and with an accelerator of the node.
    let probe = |path: &str, port: u16| json!({"httpGet": {"path": path, "port": port}, "periodSeconds": 1});
    let requester = json!([{
        "name": "inference-server", "image": "gantry.dev/test-requester:v1",
        "command": ["/ko-app/test-requester"], "readinessProbe": probe("/ready", 8080),
    }]);
    let path = format!("{PODS}/requester");
    cluster.post(PODS, &pod("requester", &node, &requester)).await;
    let has_address = |it: &Value| it["status"]["podIP"].is_string();
    let requester = cluster.wait_until(&path, "had an address", has_address).await;
    let spi = address(&requester, 8081);
    cluster.wait_for_port(&spi).await;
    let mut accelerators = Vec::<String>::new();
    cluster
        .eventually("had an accelerator", async || {
            let (code, body) = ask("GET", &spi, "/v1/dual-pods/accelerators", "").await;
            accelerators = serde_json::from_str(&body).unwrap_or_default();
            code == 200
        })
        .await;
    assert_eq!(accelerators.len(), 1, "{accelerators:?}");
    assert!(!is_ready(&cluster.get(&path).await));
    assert_eq!(ask("POST", &spi, "/v1/become-ready", "").await.0, 200);
    cluster.wait_until(&path, "became ready", is_ready).await;

    // The launcher, as manifests of the original project have it, with its sidecar.
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let image = "ghcr.io/llm-d-incubation/llm-d-fast-model-actuation/launcher:v0.9";
    let launcher = json!([
        {
            "name": "inference-server", "image": image,
            "command": ["/bin/bash", "-c"],
            "args": ["python3 launcher.py --host 0.0.0.0 --port 8001 --log-level info"],
            "env": [{"name": "VLLM_SERVER_DEV_MODE", "value": "1"}],
            "readinessProbe": probe("/v2/vllm/instances", 8001),
        },
        {
            "name": "state-change-reflector", "image": image,
            "command": ["python3", "/app/launcher_pod_notifier.py"],
            "env": [
                {"name": "LAUNCHER_BASE_URL", "value": "http://127.0.0.1:8001"},
                {"name": "POD_NAME", "valueFrom": field("metadata.name")},
                {"name": "NAMESPACE", "valueFrom": field("metadata.namespace")},
            ],
        },
    ]);
    let path = format!("{PODS}/launcher");
    cluster.post(PODS, &pod("launcher", &node, &launcher)).await;
    let launcher = cluster.wait_until(&path, "became ready", is_ready).await;
    let (api, engine) = (address(&launcher, 8001), address(&launcher, 8005));

    // An instance, on the accelerator of the requester.
    let body = json!({"options": "--model tiny/a --port 8005", "gpu_uuids": accelerators});
    let (code, state) = cluster.put_instance(&api, "a", &body).await;
    assert_eq!(code, 201, "{state}");
    let place = if accelerators[0] == "GPU-a" { "0" } else { "1" };
    assert_eq!(state["env_vars"]["CUDA_VISIBLE_DEVICES"], place);
    cluster.wait_for_port(&engine).await;
    let prompt = json!({"prompt": "Hello"}).to_string();
    let (code, text) = ask("POST", &engine, "/v1/completions", &prompt).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &answer["model"]), (200, &json!("tiny/a")), "{answer}");
    let signature = "dual-pods.llm-d.ai/vllm-instance-signature";
    cluster
        .wait_until(&path, "had a signature", |it| {
            it["metadata"]["annotations"][signature].is_string()
        })
        .await;

    // Its memory is that of the node's accelerator, while it is awake.
    let ledgers = folder.path().join("data/accelerators").join(&node);
    let ledger = Ledger::find(&ledgers, &accelerators[0]).unwrap();
    let used = || ledger.read().unwrap().used();
    let awake = used();
    assert_eq!(ask("POST", &api, &format!("{INSTANCES}/a/sleep"), "").await.0, 200);
    let asleep = used();
    assert!(0 < asleep && asleep < awake, "{asleep} of {awake}");
    let (_, body) = ask("GET", &api, &format!("{INSTANCES}/a/is_sleeping"), "").await;
    assert_eq!(body, r#"{"is_sleeping":true}"#);
    assert_eq!(ask("POST", &api, &format!("{INSTANCES}/a/wake_up"), "").await.0, 200);
    assert_eq!(used(), awake);
    let (_, again) = ask("POST", &engine, "/v1/completions", &prompt).await;
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["choices"], answer["choices"], "the same model");

    // The launcher, its engine, and the engine's core.
    assert_eq!(processes(folder.path()).len(), 3);
    cluster.delete_pod(&path).await;
    cluster.wait_until(&path, "was gone", |it| it["code"] == 404).await;
    cluster.eventually("ended", async || processes(folder.path()).is_empty()).await;
    cluster.eventually("freed", async || used() == 0).await;

    // Without notice.
    let direct = json!([{
        "name": "inference-server", "image": "gantry.dev/engine",
        "args": ["--model", "tiny/b", "--port", "8005"],
        "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": place}],
    }]);
    cluster.post(PODS, &pod("direct", &node, &direct)).await;
    let path = format!("{PODS}/direct");
    let direct = cluster.wait_until(&path, "became ready", is_ready).await;
    let engine = address(&direct, 8005);
    cluster.wait_for_port(&engine).await;
    let (_, text) = ask("POST", &engine, "/v1/completions", &prompt).await;
    assert!(text.contains("tiny/b"), "{text}");
    assert!(used() > 0);
    cluster.delete_pod(&format!("{path}?gracePeriodSeconds=0")).await;
    cluster.eventually("ended", async || processes(folder.path()).is_empty()).await;
    cluster.eventually("freed", async || used() == 0).await;
    cluster.stop(Signal::TERM).await;
}

/// A launcher that cannot read `gpu-map` knows the accelerators of claims of its node, also those
/// of pods that came after it.
#[tokio::test(flavor = "multi_thread")]
async fn accelerators_of_claims_are_known_to_the_launchers_of_their_node() {
    const RESOURCES: &str = "/apis/resource.k8s.io/v1";
    let folder = tempfile::tempdir().unwrap();
    let (cluster, node) = started(folder.path()).await;
    let probe = json!({"httpGet": {"path": "/health", "port": 8001}, "periodSeconds": 1});
    let launcher = json!({
        "metadata": {"name": "launcher"},
        "spec": {"nodeName": node, "containers": [{
            "name": "c", "image": "gantry.dev/launcher", "readinessProbe": probe,
        }]},
    });
    cluster.post(PODS, &launcher).await;
    let launcher = cluster.wait_until(&format!("{PODS}/launcher"), "became ready", is_ready).await;

    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
        "metadata": {"name": "gpus"}, "spec": {},
    });
    cluster.post(&format!("{RESOURCES}/deviceclasses"), &class).await;
    let exactly = json!({"deviceClassName": "gpus"});
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "mine"},
        "spec": {"devices": {"requests": [{"name": "one", "exactly": exactly}]}},
    });
    let claims = format!("{RESOURCES}/namespaces/default/resourceclaims");
    cluster.post(&claims, &claim).await;
    let results =
        json!([{"request": "one", "driver": "gpu.example.com", "pool": "p", "device": "gpu-1"}]);
    let allocation = json!({"status": {"allocation": {"devices": {"results": results}}}});
    cluster.merge(&format!("{claims}/mine/status"), &allocation).await;
    let requester = json!({
        "metadata": {"name": "requester"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{
                "name": "inference-server", "image": "gantry.dev/requester",
                "resources": {"claims": [{"name": "gpu"}]},
            }],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
        },
    });
    cluster.post(PODS, &requester).await;
    let requester = cluster.wait_until(&format!("{PODS}/requester"), "ran", is_ready).await;
    let spi = address(&requester, 8081);
    cluster.wait_for_port(&spi).await;
    let (code, uuids) = ask("GET", &spi, "/v1/dual-pods/accelerators", "").await;
    assert_eq!((code, uuids.as_str()), (200, r#"["p/gpu-1"]"#));

    let api = address(&launcher, 8001);
    let body = json!({"options": "--model tiny/a --port 8005", "gpu_uuids": ["p/gpu-1"]});
    let (code, state) = cluster.put_instance(&api, "a", &body).await;
    assert_eq!((code, &state["env_vars"]["CUDA_VISIBLE_DEVICES"]), (201, &json!("0")), "{state}");
    let ledgers = folder.path().join("data/accelerators").join(&node);
    let ledger = Ledger::find(&ledgers, "p/gpu-1").unwrap();
    cluster.eventually("took memory", async || ledger.read().unwrap().used() > 0).await;
    let unknown = json!({"options": "--port 8006", "gpu_uuids": ["p/gpu-2"]});
    assert_eq!(cluster.put_instance(&api, "b", &unknown).await.0, 400);
    stop(cluster, Signal::TERM, folder.path()).await;
}

/// A launcher of a simulated pod runs as the user who started the cluster. Its author,
/// and those who reach its port, cannot have anything run but the small engine, with variables of a
/// list.
#[tokio::test(flavor = "multi_thread")]
async fn attack_nobody_decides_what_a_launcher_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, node) = started(folder.path()).await;
    allow(&cluster).await;
    let container = |image: &str, fields: Value| {
        let mut container = json!({"name": "c", "image": format!("gantry.dev/{image}")});
        for (name, value) in fields.as_object().unwrap() {
            container[name] = value.clone();
        }
        json!([container])
    };

    // What names a program or a file is refused, and says so.
    let marker = folder.path().join("marker");
    let touch = format!("/usr/bin/touch {}", marker.display());
    let command = json!([{"name": "GANTRY_ENGINE_COMMAND", "value": touch}]);
    let token = json!([{"name": "GANTRY_TOKEN_FILE", "value": "/etc/passwd"}]);
    let url = json!([{"name": "LAUNCHER_BASE_URL", "value": "http://127.0.0.2:8001"}]);
    let table = [
        ("launcher", json!({"args": ["--engine-command", touch]}), "--engine-command"),
        ("launcher", json!({"env": command}), "GANTRY_ENGINE_COMMAND"),
        ("launcher", json!({"args": ["--mode", "zygote"]}), "--mode zygote"),
        ("launcher", json!({"args": ["--token-file", "/etc/passwd"]}), "--token-file /etc/passwd"),
        (
            "launcher",
            json!({"command": ["/bin/sh", "-c", "launcher.py; id"]}),
            "cannot run the line",
        ),
        ("launcher", json!({"command": ["/usr/bin/env"]}), "/usr/bin/env: no such program"),
        ("engine", json!({"command": ["engine-core", "x"]}), "is started by engines only"),
        ("requester", json!({"env": token}), "GANTRY_TOKEN_FILE"),
        ("notifier", json!({"env": url}), ""),
    ];
    for (number, (image, fields, expected)) in table.into_iter().enumerate() {
        let name = format!("refused-{number}");
        cluster.post(PODS, &pod(&name, &node, &container(image, fields))).await;
        let failed = |it: &Value| it["status"]["phase"] == "Failed";
        let seen = cluster.wait_until(&format!("{PODS}/{name}"), "failed", failed).await;
        let end = &seen["status"]["containerStatuses"][0]["state"]["terminated"];
        let message = end["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{image}: {end}");
    }

    // Variables of the pod and of callers.
    let variables = json!([
        {"name": "LD_PRELOAD", "value": "/tmp/evil.so"}, {"name": "PATH", "value": "/tmp"},
        {"name": "PYTHONPATH", "value": "/app"}, {"name": "VLLM_SERVER_DEV_MODE", "value": "1"},
        {"name": "GANTRY_ACCELERATOR_LEDGERS", "value": "/tmp/other"},
    ]);
    let probe = json!({"httpGet": {"path": "/health", "port": 8001}, "periodSeconds": 1});
    let fields = json!({"env": variables, "readinessProbe": probe});
    cluster.post(PODS, &pod("launcher", &node, &container("launcher", fields))).await;
    let launcher = cluster.wait_until(&format!("{PODS}/launcher"), "became ready", is_ready).await;
    let (api, engine) = (address(&launcher, 8001), address(&launcher, 8005));
    let body = json!({
        "options": "--model tiny/a --port 8005 --host 127.0.0.1 --config /etc/passwd",
        "env_vars": {
            "LD_PRELOAD": "/tmp/evil.so", "GLIBC_TUNABLES": "x", "MALLOC_CONF": "x", "VLLM_A": "b",
            "GANTRY_SIMULATED_POD": "/tmp", "GANTRY_ENGINE_COMMAND": touch,
        },
    });
    let (code, state) = cluster.put_instance(&api, "a", &body).await;
    assert_eq!(code, 201, "{state}");
    // On the address of its pod, whatever it was told.
    cluster.wait_for_port(&engine).await;
    let running = processes(folder.path());
    assert_eq!(running.len(), 3, "{running:?}");
    for (process, variables) in &running {
        for variable in variables {
            let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
            let ours = ["POD_ADDRESS", "ACCELERATOR_LEDGERS", "SIMULATED_POD", "POD_RUN"];
            let ours = ours.iter().any(|it| name.strip_prefix("GANTRY_") == Some(it));
            let passed = ours || name == "GANTRY_ENGINE_INSTANCE" || name.starts_with("VLLM_");
            assert!(passed || name.is_empty(), "process {process} has {variable}");
            assert!(!value.starts_with("/tmp/other") && value != "/tmp", "{variable}");
        }
        let program = std::fs::read_link(format!("/proc/{process}/exe")).unwrap();
        assert_eq!(program, Path::new(env!("CARGO_BIN_EXE_gantry")).canonicalize().unwrap());
    }
    assert!(running.iter().any(|(_, it)| it.contains(&"VLLM_A=b".to_owned())));
    assert!(!marker.exists());
    let (_, log) = ask("GET", &api, &format!("{INSTANCES}/a/log"), "").await;
    let withheld = "do not get: GANTRY_ENGINE_COMMAND, GANTRY_SIMULATED_POD, GLIBC_TUNABLES, \
                    LD_PRELOAD, MALLOC_CONF";
    assert!(log.contains(withheld), "{log}");
    assert!(!log.contains("root:"), "{log}");

    // Memory beyond what a simulated pod may take.
    let huge = json!({"options": "--port 8006 --weight-bytes 17179869184"});
    assert_eq!(cluster.put_instance(&api, "huge", &huge).await.0, 201);
    cluster
        .eventually("ended", async || {
            let (_, state) = ask("GET", &api, &format!("{INSTANCES}/huge"), "").await;
            let state: Value = serde_json::from_str(&state).unwrap();
            state["status"] == "stopped" && state["exit_code"] == 2
        })
        .await;

    // A requester reaches pods, and nothing else of this machine.
    let fields = json!({"command": ["/app/requester"]});
    cluster.post(PODS, &pod("requester", &node, &container("requester", fields))).await;
    let requester = cluster.wait_until(&format!("{PODS}/requester"), "ran", is_ready).await;
    let spi = address(&requester, 8081);
    cluster.wait_for_port(&spi).await;
    let target = |address: &str| json!({"address": address, "port": 8005}).to_string();
    for other in ["127.0.0.1", "localhost", "169.254.169.254", "127.1.1.1"] {
        let (code, text) = ask("PUT", &spi, "/v1/proxy/config", &target(other)).await;
        assert_eq!(code, 400, "{other}: {text}");
    }
    let own = engine.split(':').next().unwrap();
    assert_eq!(ask("PUT", &spi, "/v1/proxy/config", &target(own)).await.0, 200);
    let (code, _) = ask("GET", &address(&requester, 8082), "/health", "").await;
    assert_eq!(code, 200);

    // Nothing survives the cluster, however it ends.
    assert_eq!(processes(folder.path()).len(), 3);
    stop(cluster, Signal::KILL, folder.path()).await;
}

/// Ends a cluster, and waits until no process of its pods is left.
async fn stop(cluster: Cluster, signal: Signal, folder: &Path) {
    let clock = cluster.clock.clone();
    cluster.stop(signal).await;
    let began = clock.moment();
    while !processes(folder).is_empty() {
        assert!(clock.moment() - began < CONDITION_TIMEOUT, "{:?}", processes(folder));
        clock.sleep(POLL_INTERVAL).await;
    }
}
