//! Scenarios of actuation on any server whose nodes are simulated on this machine: with real
//! programs in pods, and with the controllers in an operator of their own, which tests restart and
//! give short limits. The same scenarios are run on a real server by `make e2e`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use gantry_engine::ledger::{Change, Ledger};
use gantry_process::clock::Clock;
use gantry_testkit::http::{Client, Protocol, Request, Response, Target};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::shared_process::Operator;

pub(crate) mod bad_input;
pub(crate) mod direct;
pub(crate) mod failures;
pub(crate) mod hand_over;
pub(crate) mod launchers;
pub(crate) mod manifests;
pub(crate) mod population;
pub(crate) mod serving;

/// How long anything may take on a busy machine. It only ensures that a test ends.
pub(crate) const CONDITION_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const KINDS: &str = "/apis/fma.llm-d.ai/v1alpha1/namespaces/default";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
const INSTANCES: &str = "/v2/vllm/instances";

pub(crate) const DUAL: &str = "dual-pods.llm-d.ai/dual";
pub(crate) const REQUESTER: &str = "dual-pods.llm-d.ai/requester";
pub(crate) const STATUS: &str = "dual-pods.llm-d.ai/status";
/// Selects the launchers of LauncherConfig `lc`.
pub(crate) const LAUNCHERS: &str = "dual-pods.llm-d.ai%2Flauncher-config-name%3Dlc";
/// The accelerators of each node.
const ACCELERATORS: [&str; 4] = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"];

/// Starts a cluster whose controllers have these settings of section `actuation`.
pub(crate) type Start = fn(&'static str) -> Pin<Box<dyn Future<Output = Site> + Send>>;

/// Makes a test of each scenario.
macro_rules! scenarios {
    ($start:path: $($file:ident { $($name:ident),* $(,)? })*) => {
        $($(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                Box::pin(crate::shared_actuation::$file::$name($start)).await;
            }
        )*)*
    };
}
pub(crate) use scenarios;

/// A server with simulated nodes on this machine.
pub(crate) struct Server {
    pub(crate) target: Target,
    pub(crate) kubeconfig: String,
    /// The directory with the ledgers of each node.
    pub(crate) ledgers: PathBuf,
    /// The ends of its logs. It owns the server.
    pub(crate) tails: Box<dyn Fn() -> String + Send + Sync>,
}

/// A server with controllers.
pub(crate) struct Site {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    /// The node of the pods, unless a test says otherwise.
    pub(crate) node: String,
    pub(crate) nodes: Vec<String>,
    pub(crate) server: Server,
    controllers: Mutex<Option<Operator>>,
    config: PathBuf,
    _folder: tempfile::TempDir,
}

impl Site {
    /// Starts controllers, and creates what scenarios need.
    pub(crate) async fn new(server: Server, settings: &str) -> Self {
        let clock = Clock::system();
        let client = Client::new(&server.target, Protocol::Http1, clock.clone()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("gantry.yaml");
        let text = format!(
            "mcadEnabled: false\nclientConnection: {{qps: -1}}\n\
             health: {{bindAddress: '127.0.0.1:0'}}\n\
             metrics: {{bindAddress: '127.0.0.1:0', secureServing: false}}\n\
             actuation: {{enabled: true, allowLoopback: true, {settings}}}\n"
        );
        std::fs::write(&config, text).unwrap();
        let (node, nodes) = (String::new(), Vec::new());
        let mut site = Self {
            client,
            clock,
            node,
            nodes,
            server,
            controllers: Mutex::default(),
            config,
            _folder: folder,
        };
        let is_ready = |list: &Value| {
            let nodes = list["items"].as_array().cloned().unwrap_or_default();
            nodes.len() > 1 && nodes.iter().all(is_ready)
        };
        let nodes = site.wait_until("/api/v1/nodes", "had nodes that are ready", is_ready).await;
        let nodes = nodes["items"].as_array().unwrap().iter();
        site.nodes = nodes.map(name).collect();
        for node in site.nodes.clone() {
            let object = site.get(&format!("/api/v1/nodes/{node}")).await;
            if object["status"]["allocatable"]["nvidia.com/gpu"].is_string() {
                site.node = node;
            }
        }
        assert!(!site.node.is_empty(), "a node has accelerators: {:?}", site.nodes);
        site.prepare().await;
        site.start_controllers();
        site
    }

    async fn prepare(&self) {
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        self.post(accounts, &json!({"metadata": {"name": "models"}})).await;
        let verbs = ["get", "list", "watch", "create", "update", "patch"];
        let rules = json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
        ]);
        let role = json!({"metadata": {"name": "models"}, "rules": rules});
        self.post(&format!("{RBAC}/roles"), &role).await;
        let binding = json!({
            "metadata": {"name": "models"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "models"},
            "subjects": [{"kind": "ServiceAccount", "name": "models", "namespace": "default"}],
        });
        self.post(&format!("{RBAC}/rolebindings"), &binding).await;
        let places = (0_u32..).zip(ACCELERATORS).map(|(place, uuid)| (uuid, place));
        let places = json!(places.collect::<BTreeMap<_, _>>()).to_string();
        let data: BTreeMap<&String, &String> = self.nodes.iter().map(|it| (it, &places)).collect();
        self.post(MAPS, &json!({"metadata": {"name": "gpu-map"}, "data": data})).await;
    }

    pub(crate) fn start_controllers(&self) {
        let flags = ["--config-file", self.config.to_str().unwrap()];
        let flags = [&flags[..], &["--kubeconfig", &self.server.kubeconfig]].concat();
        *self.controllers.lock().unwrap() = Some(Operator::start(&flags));
    }

    /// Kills the controllers without warning.
    pub(crate) fn kill_controllers(&self) {
        drop(self.controllers.lock().unwrap().take());
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.client.send(Request::get(path)).await.unwrap().json().unwrap()
    }

    pub(crate) async fn try_post(&self, path: &str, body: &Value) -> Response {
        // Bodies of custom objects name their kind.
        let kinds = [
            ("launcherconfigs", "LauncherConfig"),
            ("inferenceserverconfigs", "InferenceServerConfig"),
            ("launcherpopulationpolicies", "LauncherPopulationPolicy"),
        ];
        let mut body = body.clone();
        if let Some((_, kind)) = kinds.iter().find(|(plural, _)| path.ends_with(plural)) {
            body["apiVersion"] = json!("fma.llm-d.ai/v1alpha1");
            body["kind"] = json!(kind);
        }
        self.client.send(Request::post(path, &body)).await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.try_post(path, body).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
        answer.json().unwrap()
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) {
        let kind = "application/merge-patch+json";
        let answer = self.client.send(Request::patch(path, kind, body)).await.unwrap();
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
    }

    pub(crate) async fn delete(&self, path: &str) {
        let answer = self.client.send(Request::delete(path)).await.unwrap();
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
    }

    /// Waits until a condition holds.
    pub(crate) async fn eventually(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let began = self.clock.moment();
        while !holds().await {
            let is_late = self.clock.moment() - began > CONDITION_TIMEOUT;
            assert!(!is_late, "never {what}:\n{}", (self.server.tails)());
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until an object is as expected.
    pub(crate) async fn wait_until(
        &self,
        path: &str,
        what: &str,
        good: impl Fn(&Value) -> bool,
    ) -> Value {
        let began = self.clock.moment();
        loop {
            let found = self.get(path).await;
            if good(&found) {
                return found;
            }
            let is_late = self.clock.moment() - began > CONDITION_TIMEOUT;
            assert!(!is_late, "{path} never {what}:\n{found:#}\n{}", (self.server.tails)());
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    pub(crate) async fn pods(&self, label: &str) -> Vec<Value> {
        let list = self.get(&format!("{PODS}?labelSelector={label}")).await;
        list["items"].as_array().unwrap().clone()
    }

    /// Waits until there is a pod with this label that is as expected.
    pub(crate) async fn pod(&self, label: &str, good: impl Fn(&Value) -> bool) -> Value {
        let path = format!("{PODS}?labelSelector={label}");
        let has_one = |it: &Value| it["items"].as_array().is_some_and(|it| it.iter().any(&good));
        let list = self.wait_until(&path, "had such a pod", has_one).await;
        list["items"].as_array().unwrap().iter().find(|it| good(it)).unwrap().clone()
    }

    /// Waits until there is no pod with this label.
    pub(crate) async fn gone(&self, label: &str) {
        let path = format!("{PODS}?labelSelector={label}");
        let is_empty = |it: &Value| it["items"].as_array().is_some_and(Vec::is_empty);
        self.wait_until(&path, "had no pods", is_empty).await;
    }

    /// Waits until the requester of a set is ready.
    pub(crate) async fn ready(&self, set: &str) -> Value {
        self.pod(&format!("app%3D{set}"), is_ready).await
    }

    /// Waits until a requester with another UID is ready.
    pub(crate) async fn replaced(&self, set: &str, before: &Value) -> Value {
        self.pod(&format!("app%3D{set}"), |it| uid(it) != uid(before) && is_ready(it)).await
    }

    /// The provider of a requester.
    pub(crate) async fn provider(&self, requester: &Value) -> Value {
        self.get(&format!("{PODS}/{}", label(requester, DUAL))).await
    }

    /// Waits until an event has this reason and is about this object, and returns its message.
    pub(crate) async fn event(&self, reason: &str, object: &Value) -> String {
        let path = "/api/v1/namespaces/default/events";
        let is_it =
            |it: &&Value| it["reason"] == reason && it["involvedObject"]["uid"] == *uid(object);
        let find =
            |list: &Value| list["items"].as_array().into_iter().flatten().find(is_it).cloned();
        let what = format!("had {reason} of {}", name(object));
        let list = self.wait_until(path, &what, |it| find(it).is_some()).await;
        find(&list).unwrap()["message"].as_str().unwrap().to_owned()
    }

    /// The set of a requester on the first accelerator, with these annotations.
    pub(crate) fn set(&self, name: &str, annotations: &Value) -> Value {
        let labels = json!({"app": name});
        json!({
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
                            "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "GPU-a"}],
                            "readinessProbe": {
                                "httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1,
                            },
                        }],
                    },
                },
            },
        })
    }

    /// Creates the set of a requester of a model on an accelerator.
    pub(crate) async fn request(&self, set: &str, model: &str, accelerator: &str) {
        let mut object = self.set(set, &of(model));
        object["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = json!(accelerator);
        self.post(SETS, &object).await;
    }

    pub(crate) async fn scale(&self, set: &str, replicas: u32) {
        let body = json!({"spec": {"replicas": replicas}});
        self.merge(&format!("{SETS}/{set}"), &body).await;
    }

    /// Scales a set to nothing, and waits until its requester is gone.
    pub(crate) async fn stop(&self, set: &str) {
        self.scale(set, 0).await;
        self.gone(&format!("app%3D{set}")).await;
    }

    /// Creates a model: engine `tiny/NAME` with these options beside.
    pub(crate) async fn model(&self, name: &str, port: u16, options: &str) {
        self.post(&format!("{KINDS}/inferenceserverconfigs"), &model(name, port, options)).await;
    }

    /// Creates LauncherConfig `lc` with models `a`, `b` and `c`, and keeps one launcher in stock.
    pub(crate) async fn stock(&self, max_instances: u32) -> Value {
        let config = launcher_config("lc", max_instances);
        self.post(&format!("{KINDS}/launcherconfigs"), &config).await;
        for (name, port) in [("a", 8005), ("b", 8006), ("c", 8007)] {
            self.model(name, port, "").await;
        }
        self.policy("one", &self.node, 1).await;
        self.pod(LAUNCHERS, is_ready).await
    }

    /// Creates a policy for the launchers `lc` of a node.
    pub(crate) async fn policy(&self, name: &str, node: &str, count: u32) {
        let policy = json!({
            "metadata": {"name": name},
            "spec": {
                "enhancedNodeSelector":
                    {"labelSelector": {"matchLabels": {"kubernetes.io/hostname": node}}},
                "countForLauncher": [{"launcherConfigName": "lc", "launcherCount": count}],
            },
        });
        self.post(&format!("{KINDS}/launcherpopulationpolicies"), &policy).await;
    }

    /// The instances of a launcher, by the name of their InferenceServerConfig.
    pub(crate) async fn instances(&self, launcher: &Value) -> BTreeMap<String, Value> {
        let (code, text) = ask("GET", &address(launcher, 8001), INSTANCES, "").await;
        assert_eq!(code, 200, "{text}");
        let list: Value = serde_json::from_str(&text).unwrap();
        let named =
            |it: &Value| (it["annotations"]["isc-name"].as_str().unwrap().to_owned(), it.clone());
        list["instances"].as_array().unwrap().iter().map(named).collect()
    }

    /// Waits until controllers give a status to a requester whose model does not exist.
    pub(crate) async fn are_at_work(&self, set: &str) {
        self.request(set, "none", "GPU-d").await;
        let has_status = |it: &Value| annotation(it, STATUS).contains("none");
        self.pod(&format!("app%3D{set}"), has_status).await;
    }

    /// Waits until the controllers hold a pod for this reason, with these words.
    pub(crate) async fn held(&self, pod: &Value, reason: &str, words: &str) {
        let is_held = async || {
            let page: Value = serde_json::from_str(&self.page("probes", "/status").await).unwrap();
            page["held"].as_array().into_iter().flatten().any(|it| {
                let message = it["message"].as_str().unwrap_or_default();
                it["name"] == name(pod) && it["reason"] == reason && message.contains(words)
            })
        };
        self.eventually(&format!("held {} with {reason}: {words}", name(pod)), is_held).await;
    }

    /// The metrics of the controllers.
    pub(crate) async fn metrics(&self) -> String {
        self.page("metrics", "/metrics").await
    }

    /// A page that the controllers serve.
    async fn page(&self, server: &str, path: &str) -> String {
        let began = self.clock.moment();
        let address = loop {
            let said = self.controllers.lock().unwrap().as_mut().unwrap().said();
            // One port may serve both, and is then named after both.
            let line = said.lines().find(|it| it.contains("\"listening\"") && it.contains(server));
            if let Some((_, rest)) = line.and_then(|it| it.split_once("address=")) {
                break rest.trim_matches('"').split(['"', ' ']).next().unwrap().to_owned();
            }
            let is_late = self.clock.moment() - began > CONDITION_TIMEOUT;
            assert!(!is_late, "it does not listen:\n{said}");
            self.clock.sleep(POLL_INTERVAL).await;
        };
        let (code, text) = ask("GET", &address, path, "").await;
        assert_eq!(code, 200, "{text}");
        text
    }

    /// Lets others have the accelerators of pods whose containers have ended, as a real device
    /// plugin does, and a requester without one does not: its pod exists until its engine sleeps.
    pub(crate) async fn free_accelerators(&self, pod: &Value, accelerators: &[&str]) {
        let path = format!("{PODS}/{}", name(pod));
        let has_ended = |it: &Value| {
            it["code"] == 404
                || it["status"]["containerStatuses"][0]["state"]["terminated"].is_object()
        };
        self.wait_until(&path, "ended its container", has_ended).await;
        let none: BTreeMap<_, _> = accelerators.iter().map(|it| (it, Value::Null)).collect();
        self.merge(&format!("{MAPS}/gpu-allocs"), &json!({"data": none})).await;
    }

    /// Checks the ledgers of the node: no two engines were awake on one accelerator at any time.
    /// Returns how often one woke or was started.
    pub(crate) fn assert_one_awake(&self) -> usize {
        let mut began = 0;
        for ledger in Ledger::all(&self.server.ledgers.join(&self.node)).unwrap() {
            let mut awake = BTreeSet::new();
            for entry in ledger.read().unwrap().entries {
                let is_awake = match entry.change {
                    Change::Load | Change::Sleep | Change::Wake => entry.awake,
                    Change::Release | Change::Reap => false,
                };
                match is_awake {
                    true => began += usize::from(awake.insert(entry.holder.clone())),
                    false => drop(awake.remove(&entry.holder)),
                }
                assert!(awake.len() < 2, "{}: {awake:?} at {entry:?}", ledger.uuid());
            }
        }
        began
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Before the server: the controllers would report that it is gone.
        self.kill_controllers();
    }
}

/// The annotations of a requester of a model.
pub(crate) fn of(model: &str) -> Value {
    json!({"dual-pods.llm-d.ai/inference-server-config": model})
}

/// A LauncherConfig of Gantry's launcher.
pub(crate) fn launcher_config(name: &str, max_instances: u32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"maxInstances": max_instances, "podTemplate": {
            "metadata": {"labels": {"from": "template"}, "annotations": {"made": "by template"}},
            "spec": {
                "serviceAccountName": "models", "terminationGracePeriodSeconds": 5,
                "containers": [{
                    "name": "inference-server", "image": "gantry.dev/launcher:v1",
                    "command": ["/bin/bash", "-c"],
                    "args": ["python3 launcher.py --host 0.0.0.0 --port 8001"],
                }],
            },
        }},
    })
}

/// An InferenceServerConfig of engine `tiny/NAME`.
pub(crate) fn model(name: &str, port: u16, options: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"launcherConfigName": "lc", "modelServerConfig": {
            "port": port, "options": format!("--model tiny/{name} {options}"),
            "labels": {"model": name}, "annotations": {"serves": name},
        }},
    })
}

/// Sends a request to a pod, and returns the code and the body of the response.
pub(crate) async fn ask(method: &str, address: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = begin(method, address, path, body).await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.trim_end().to_owned())
}

/// Sends a request to a pod, and returns the connection.
pub(crate) async fn begin(method: &str, address: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: pod\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Which model answers.
pub(crate) async fn answering(provider: &Value, port: u16) -> String {
    let prompt = json!({"prompt": "Hello"}).to_string();
    let (code, text) = ask("POST", &address(provider, port), "/v1/completions", &prompt).await;
    assert_eq!(code, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    answer["model"].as_str().unwrap().to_owned()
}

pub(crate) async fn is_sleeping(provider: &Value, port: u16) -> bool {
    let (code, text) = ask("GET", &address(provider, port), "/is_sleeping", "").await;
    assert_eq!(code, 200, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["is_sleeping"].as_bool().unwrap()
}

/// The processes of a pod, in which these words are part of the command line: the launcher, an
/// engine (`--port 8005`).
pub(crate) fn processes(pod: &Value, words: &str) -> Vec<i32> {
    let mark = format!("GANTRY_POD_ADDRESS={}", pod["status"]["podIP"].as_str().unwrap());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        let id = path.file_name().and_then(|it| it.to_str()).and_then(|it| it.parse().ok());
        // A process may end while the directory is read; those of others are not read.
        let (Some(id), Ok(variables), Ok(line)) =
            (id, std::fs::read(path.join("environ")), std::fs::read(path.join("cmdline")))
        else {
            continue;
        };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let variables = String::from_utf8_lossy(&variables).into_owned();
        if variables.split('\0').any(|it| it == mark) && line.contains(words) {
            found.push(id);
        }
    }
    found
}

/// Sends a signal to the only process of a pod with these words.
pub(crate) fn signal(pod: &Value, words: &str, signal: Signal) {
    let found = processes(pod, words);
    assert_eq!(found.len(), 1, "{words} in {}: {found:?}", name(pod));
    kill_process(Pid::from_raw(found[0]).unwrap(), signal).unwrap();
}

pub(crate) fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// Whether a provider is bound to nobody.
pub(crate) fn is_idle(pod: &Value) -> bool {
    annotation(pod, REQUESTER).is_empty()
}

pub(crate) fn address(pod: &Value, port: u16) -> String {
    format!("{}:{port}", pod["status"]["podIP"].as_str().unwrap())
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

pub(crate) fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"][key].as_str().unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

pub(crate) fn uid(object: &Value) -> &Value {
    &object["metadata"]["uid"]
}
