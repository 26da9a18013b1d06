//! Models that share an accelerator: served, put to sleep, and woken, by launchers and by pods of
//! their own, with real programs in the pods.

use super::programs::{ask, is_ready};
use super::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const KINDS: &str = "/apis/fma.llm-d.ai/v1alpha1/namespaces/default";
const MAP: &str = "/api/v1/namespaces/default/configmaps/gpu-map";
const ACCELERATOR: &str = "GPU-a";

/// A cluster whose first node has one accelerator, and an account for its pods.
struct Models {
    cluster: Cluster,
    node: String,
}

impl Models {
    async fn start() -> Self {
        Self::on(Cluster::ephemeral().await).await
    }

    async fn on(cluster: Cluster) -> Self {
        let nodes = cluster
            .wait_until("/api/v1/nodes", "had a node", |it| it["items"][0].is_object())
            .await;
        let node = nodes["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        cluster.post(accounts, &json!({"metadata": {"name": "models"}})).await;
        let verbs = ["get", "list", "watch", "create", "update", "patch"];
        let rules = json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
        ]);
        let role = json!({"metadata": {"name": "models"}, "rules": rules});
        cluster.post(&format!("{RBAC}/roles"), &role).await;
        let binding = json!({
            "metadata": {"name": "models"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "models"},
            "subjects": [{"kind": "ServiceAccount", "name": "models", "namespace": "default"}],
        });
        cluster.post(&format!("{RBAC}/rolebindings"), &binding).await;
        Self { cluster, node }
    }

    /// The ConfigMap that says which accelerators the node has.
    fn map(&self, indices: &Value) -> Value {
        json!({"metadata": {"name": "gpu-map"}, "data": {&self.node: indices.to_string()}})
    }

    /// Creates the set of a requester, with these annotations.
    async fn create_set(&self, name: &str, annotations: Value) {
        let labels = json!({"app": name});
        let set = json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": annotations},
                    "spec": {
                        "nodeName": self.node, "serviceAccountName": "models",
                        "terminationGracePeriodSeconds": 5,
                        "containers": [{
                            "name": "inference-server", "image": "gantry.dev/test-requester:v1",
                            "command": ["/ko-app/test-requester"],
                            "readinessProbe": {
                                "httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1,
                            },
                        }],
                    },
                },
            },
        });
        self.cluster.post(SETS, &set).await;
    }

    async fn scale(&self, name: &str, replicas: u32) {
        let body = json!({"spec": {"replicas": replicas}});
        self.cluster.merge(&format!("{SETS}/{name}"), &body).await;
    }

    /// Waits until there is a pod with this label that is as expected.
    async fn pod(&self, label: &str, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        let path = format!("{PODS}?labelSelector={label}");
        let list = self
            .cluster
            .wait_until(&path, what, |it| {
                it["items"].as_array().is_some_and(|it| it.iter().any(&good))
            })
            .await;
        list["items"].as_array().unwrap().iter().find(|it| good(it)).unwrap().clone()
    }

    /// Waits until there is no pod with this label.
    async fn gone(&self, label: &str) {
        let path = format!("{PODS}?labelSelector={label}");
        let is_empty = |it: &Value| it["items"].as_array().is_some_and(Vec::is_empty);
        self.cluster.wait_until(&path, "had no pods", is_empty).await;
    }

    /// The events with this reason about a pod.
    async fn messages(&self, reason: &str, pod: &Value) -> Vec<String> {
        let list = self.cluster.get("/api/v1/namespaces/default/events").await;
        let uid = &pod["metadata"]["uid"];
        let events = list["items"].as_array().unwrap().iter();
        let events =
            events.filter(|it| it["reason"] == reason && it["involvedObject"]["uid"] == *uid);
        events.map(|it| it["message"].as_str().unwrap().to_owned()).collect()
    }
}

fn address(pod: &Value, port: u16) -> String {
    format!("{}:{port}", pod["status"]["podIP"].as_str().unwrap())
}

fn annotation<'a>(pod: &'a Value, key: &str) -> &'a str {
    pod["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

fn label<'a>(pod: &'a Value, key: &str) -> &'a str {
    pod["metadata"]["labels"][key].as_str().unwrap_or_default()
}

/// Which model answers.
async fn model(provider: &Value, port: u16) -> String {
    let prompt = json!({"prompt": "Hello"}).to_string();
    let (code, text) = ask("POST", &address(provider, port), "/v1/completions", &prompt).await;
    assert_eq!(code, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    answer["model"].as_str().unwrap().to_owned()
}

async fn is_sleeping(provider: &Value, port: u16) -> bool {
    let (code, text) = ask("GET", &address(provider, port), "/is_sleeping", "").await;
    assert_eq!(code, 200, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["is_sleeping"].as_bool().unwrap()
}

const DUAL: &str = "dual-pods.llm-d.ai/dual";
const REQUESTER: &str = "dual-pods.llm-d.ai/requester";
const STATUS: &str = "dual-pods.llm-d.ai/status";

/// AS-19, AS-20, AS-21, AS-24, AS-25, AS-26, AS-33, AS-83.
#[tokio::test(flavor = "multi_thread")]
async fn as_19_to_as_21_and_as_24_to_as_26_models_share_a_launcher() {
    let models = Models::start().await;
    let cluster = &models.cluster;
    let maps = "/api/v1/namespaces/default/configmaps";
    cluster.post(maps, &models.map(&json!({ACCELERATOR: 0}))).await;
    let launcher_config = json!({
        "apiVersion": "fma.llm-d.ai/v1alpha1", "kind": "LauncherConfig",
        "metadata": {"name": "lc"},
        "spec": {"maxInstances": 2, "podTemplate": {
            "metadata": {"labels": {"from": "template"}},
            "spec": {
                "serviceAccountName": "models", "terminationGracePeriodSeconds": 5,
                "containers": [{
                    "name": "inference-server", "image": "gantry.dev/launcher:v1",
                    "command": ["/bin/bash", "-c"],
                    "args": ["python3 launcher.py --host 0.0.0.0 --port 8001"],
                }],
            },
        }},
    });
    cluster.post(&format!("{KINDS}/launcherconfigs"), &launcher_config).await;
    for (name, port) in [("a", 8005), ("b", 8006)] {
        let config = json!({
            "apiVersion": "fma.llm-d.ai/v1alpha1", "kind": "InferenceServerConfig",
        "metadata": {"name": name},
            "spec": {"launcherConfigName": "lc", "modelServerConfig": {
                "port": port, "options": format!("--model tiny/{name}"),
                "labels": {"model": name}, "annotations": {"serves": name},
            }},
        });
        cluster.post(&format!("{KINDS}/inferenceserverconfigs"), &config).await;
    }
    let policy = json!({
        "apiVersion": "fma.llm-d.ai/v1alpha1", "kind": "LauncherPopulationPolicy",
        "metadata": {"name": "one"},
        "spec": {
            "enhancedNodeSelector":
                {"labelSelector": {"matchLabels": {"kubernetes.io/hostname": models.node}}},
            "countForLauncher": [{"launcherConfigName": "lc", "launcherCount": 1}],
        },
    });
    cluster.post(&format!("{KINDS}/launcherpopulationpolicies"), &policy).await;

    // AS-19: the stock.
    let launchers = "dual-pods.llm-d.ai%2Flauncher-config-name%3Dlc";
    let stocked = models.pod(launchers, "had a launcher that is ready", is_ready).await;
    let uid = stocked["metadata"]["uid"].clone();
    assert_eq!(label(&stocked, "dual-pods.llm-d.ai/sleeping"), "true");

    // AS-20, AS-21: bound both ways, routed to by the time the requester is ready.
    let of = |config: &str| json!({"dual-pods.llm-d.ai/inference-server-config": config});
    models.create_set("a", of("a")).await;
    let requester = models.pod("app%3Da", "had a requester that is ready", is_ready).await;
    let launcher = models.pod("model%3Da", "had a launcher that serves a", |_| true).await;
    assert_eq!(launcher["metadata"]["uid"], uid, "the launcher of the stock");
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(label(&requester, DUAL), name(&launcher));
    assert_eq!(label(&launcher, DUAL), name(&requester));
    assert_eq!(annotation(&requester, "dual-pods.llm-d.ai/accelerators"), ACCELERATOR);
    assert_eq!(annotation(&requester, STATUS), r#"{"Errors":null}"#);
    assert_eq!((annotation(&launcher, "serves"), label(&launcher, "from")), ("a", "template"));
    assert_eq!(model(&launcher, 8005).await, "tiny/a");
    assert!(models.messages("Bound", &requester).await[0].ends_with("(warm)"));

    // AS-24: it sleeps, and nothing is routed to it.
    models.scale("a", 0).await;
    models.gone("app%3Da").await;
    let is_idle = |it: &Value| annotation(it, REQUESTER).is_empty();
    let idle = models.pod(launchers, "had an idle launcher", is_idle).await;
    assert_eq!(idle["metadata"]["uid"], uid);
    assert_eq!((label(&idle, "model"), label(&idle, DUAL)), ("", ""));
    assert_eq!((annotation(&idle, "serves"), label(&idle, "from")), ("", "template"));
    assert_eq!(idle["metadata"]["finalizers"], Value::Null);
    assert!(is_sleeping(&idle, 8005).await);

    // AS-25: another model, in the same launcher.
    models.create_set("b", of("b")).await;
    let requester = models.pod("app%3Db", "had a requester that is ready", is_ready).await;
    let launcher = models.pod("model%3Db", "had a launcher that serves b", |_| true).await;
    assert_eq!(launcher["metadata"]["uid"], uid);
    assert_eq!(model(&launcher, 8006).await, "tiny/b");
    assert!(is_sleeping(&launcher, 8005).await, "the other one sleeps on");
    assert!(models.messages("Bound", &requester).await[0].ends_with("(warm)"));
    models.scale("b", 0).await;

    // AS-26: back to the first, which is woken.
    models.scale("a", 1).await;
    let requester = models.pod("app%3Da", "had a requester that is ready", is_ready).await;
    let launcher = models.pod("model%3Da", "had a launcher that serves a", |_| true).await;
    assert_eq!(launcher["metadata"]["uid"], uid);
    assert_eq!(model(&launcher, 8005).await, "tiny/a");
    assert!(is_sleeping(&launcher, 8006).await);
    assert!(models.messages("Bound", &requester).await[0].ends_with("(hot)"));

    // AS-83: by which path, and what took how long.
    let kubeconfig = cluster.process.kubeconfig().to_str().unwrap();
    let pod = format!("pod/{}", name(&requester));
    let explained = gantry(&["explain", &pod, "--kubeconfig", kubeconfig]);
    let text = explained.out;
    assert!(text.contains("path: hot; there is no better one"), "{text}");
    assert!(text.contains("time line from its creation: "), "{text}");

    // AS-33: with the names of the original.
    // Gauges follow the caches.
    let bound = "fma_launcher_pod_count{lcfg_name=\"lc\",phase=\"bound\"} 1";
    let began = cluster.clock.moment();
    let page = loop {
        let page = cluster.client.send(Request::get("/metrics")).await.unwrap().text();
        if page.contains(bound) {
            break page;
        }
        assert!(cluster.clock.moment() - began < CONDITION_TIMEOUT, "{page}");
        cluster.clock.sleep(POLL_INTERVAL).await;
    };
    let of_hot = page
        .lines()
        .find(|it| it.starts_with("fma_actuation_seconds_count") && it.contains("path=\"hot\""));
    assert!(of_hot.is_some_and(|it| it.ends_with(" 1") && it.contains("isc_name=\"a\"")), "{page}");
    assert!(page.contains("fma_duality{exported_namespace=\"default\""), "{page}");
    assert!(page.contains("fma_http_latency_seconds_count{purpose=\"wake\""), "{page}");
    models.cluster.stop(Signal::TERM).await;
}

/// Makes the provider of a requester: it has an engine, and no label of the requester's set.
const PATCH: &str = r#"
metadata:
  labels: {app: "", provides: direct, at: "{{ .NodeName }}"}
spec:
  containers:
  - name: inference-server
    image: gantry.dev/test-server:v1
    command: [/ko-app/test-server]
    args: [--port, "8000", --startup-delay, "1"]
    readinessProbe: {httpGet: {path: /health, port: 8000}, periodSeconds: 1}
"#;

/// AS-1, AS-2, AS-4, AS-5, AS-6, AS-10, AS-12, AS-14, AS-15, AS-16.
#[tokio::test(flavor = "multi_thread")]
async fn as_1_as_2_as_4_to_as_6_as_10_as_12_and_as_14_to_as_16_a_direct_provider() {
    let models = Models::start().await;
    let cluster = &models.cluster;
    let maps = "/api/v1/namespaces/default/configmaps";
    cluster.post(maps, &models.map(&json!({}))).await;
    models.create_set("direct", json!({"dual-pods.llm-d.ai/server-patch": PATCH})).await;

    // AS-1, AS-10, AS-15: alone without accelerators, and the status explains it.
    let explains = |it: &Value| annotation(it, STATUS).contains("accelerators");
    models.pod("app%3Ddirect", "had a requester with a status", explains).await;
    models.gone("provides%3Ddirect").await;
    cluster.merge(MAP, &models.map(&json!({ACCELERATOR: 0}))).await;

    // AS-2, AS-14: a pair, on the same node with the same accelerators.
    let requester = models.pod("app%3Ddirect", "had a requester that is ready", is_ready).await;
    let provider = models.pod("provides%3Ddirect", "had a provider that is ready", is_ready).await;
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name(&provider).starts_with(&format!("{}-dual-", name(&requester))));
    assert_eq!(label(&requester, DUAL), name(&provider));
    assert_eq!(label(&provider, DUAL), name(&requester));
    assert_eq!(provider["spec"]["nodeName"], requester["spec"]["nodeName"]);
    assert_eq!(annotation(&provider, "dual-pods.llm-d.ai/accelerators"), ACCELERATOR);
    assert_eq!(label(&provider, "at"), models.node, "AS-12");
    assert_eq!(annotation(&requester, STATUS), r#"{"Errors":null}"#);
    assert!(!is_sleeping(&provider, 8000).await);

    // AS-4, AS-16: the provider stays, unbound and asleep.
    models.scale("direct", 0).await;
    models.gone("app%3Ddirect").await;
    let is_idle = |it: &Value| annotation(it, REQUESTER).is_empty();
    let idle = models.pod("provides%3Ddirect", "had an idle provider", is_idle).await;
    assert_eq!(idle["metadata"]["uid"], provider["metadata"]["uid"]);
    assert_eq!(idle["metadata"]["finalizers"], Value::Null);
    assert!(is_sleeping(&idle, 8000).await);

    // AS-5: it serves the next one.
    models.scale("direct", 1).await;
    let requester = models.pod("app%3Ddirect", "had a requester that is ready", is_ready).await;
    assert_eq!(label(&requester, DUAL), name(&provider));
    assert!(!is_sleeping(&idle, 8000).await);

    // AS-6: without its provider, the requester is replaced, and gets another.
    let path = format!("{PODS}/{}", name(&provider));
    let answer = cluster.client.send(Request::delete(&path)).await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.text());
    let is_another =
        |it: &Value| it["metadata"]["uid"] != requester["metadata"]["uid"] && is_ready(it);
    let next = models.pod("app%3Ddirect", "had another requester", is_another).await;
    assert_ne!(label(&next, DUAL), name(&provider));
    models.cluster.stop(Signal::TERM).await;
}

/// The controllers as processes of their own, one of which is killed.
struct Controllers {
    kubeconfig: String,
}

impl Controllers {
    fn start(&self, command: &str) -> crate::shared_process::Operator {
        crate::shared_process::Operator::start_command(
            command,
            &[
                "--namespace=default",
                "--kubeconfig",
                &self.kubeconfig,
                "--metrics-port=0",
                "--debug-port=0",
                "--debug-accelerator-memory=false",
                "--allow-loopback",
            ],
        )
    }
}

/// AS-9: what is deleted while no controller runs is put to sleep, or relayed, by the next one.
#[tokio::test(flavor = "multi_thread")]
async fn as_9_deletions_are_completed_by_the_next_controller() {
    let plan = Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral").flag("--no-actuation");
    let models = Models::on(Cluster::start(plan).await).await;
    let cluster = &models.cluster;
    let kubeconfig = cluster.process.kubeconfig().to_str().unwrap().to_owned();
    let controllers = Controllers { kubeconfig };
    let first = controllers.start("dual-pods-controller");
    let maps = "/api/v1/namespaces/default/configmaps";
    cluster.post(maps, &models.map(&json!({ACCELERATOR: 0}))).await;
    models.create_set("direct", json!({"dual-pods.llm-d.ai/server-patch": PATCH})).await;
    models.pod("app%3Ddirect", "had a requester that is ready", is_ready).await;
    let provider = models.pod("provides%3Ddirect", "had a provider that is ready", is_ready).await;

    // The requester is deleted while nobody is there to put its engine to sleep.
    first.signal(Signal::KILL);
    drop(first);
    models.scale("direct", 0).await;
    let is_leaving = |it: &Value| !it["metadata"]["deletionTimestamp"].is_null();
    models.pod("app%3Ddirect", "had a requester that is being deleted", is_leaving).await;
    assert!(!is_sleeping(&provider, 8000).await, "nobody has put it to sleep");
    let second = controllers.start("dual-pods-controller");
    models.gone("app%3Ddirect").await;
    assert!(is_sleeping(&provider, 8000).await);

    // The provider is deleted while nobody is there to relay it.
    models.scale("direct", 1).await;
    let requester = models.pod("app%3Ddirect", "had a requester that is ready", is_ready).await;
    second.signal(Signal::KILL);
    drop(second);
    let path = format!("{PODS}/{}", provider["metadata"]["name"].as_str().unwrap());
    let answer = cluster.client.send(Request::delete(&path)).await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.text());
    let third = controllers.start("dual-pods-controller");
    let is_another =
        |it: &Value| it["metadata"]["uid"] != requester["metadata"]["uid"] && is_ready(it);
    models.pod("app%3Ddirect", "had another requester", is_another).await;
    drop(third);
    models.cluster.stop(Signal::TERM).await;
}
