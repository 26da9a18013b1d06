//! A whole cluster in one process, as its users meet it.

use std::path::Path;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::{EmbeddedServer, Plan};
use gantry_testkit::http::{Client, Protocol, Request};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::gantry;

mod actuation;
mod autoscaling;
mod device_attacks;
mod devices;
mod images;
mod kernel_module_admission;
mod kernel_module_builder;
mod kernel_module_contents;
mod kernel_module_images;
mod kernel_module_upgrade;
mod kernel_modules;
mod model_programs;
mod ports;
pub(crate) mod programs;
mod queue;
mod resource_claims;
mod scaling;
mod storage;

/// How long anything may take on a busy machine. It only ensures that a test ends.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

struct Cluster {
    process: EmbeddedServer,
    client: Client,
    clock: Clock,
}

impl Cluster {
    async fn start(plan: Plan) -> Self {
        let clock = Clock::system();
        let process = plan.whole_cluster().start(&clock).await.unwrap();
        let client = Client::new(process.target(), Protocol::Http1, clock.clone()).unwrap();
        Self { process, client, clock }
    }

    async fn ephemeral() -> Self {
        Self::start(Plan::new(env!("CARGO_BIN_EXE_gantry")).flag("--ephemeral")).await
    }

    async fn get(&self, path: &str) -> Value {
        self.client.send(Request::get(path)).await.unwrap().json().unwrap()
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.client.send(Request::post(path, body)).await.unwrap();
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
        answer.json().unwrap()
    }

    async fn merge(&self, path: &str, body: &Value) {
        let kind = "application/merge-patch+json";
        let answer = self.client.send(Request::patch(path, kind, body)).await.unwrap();
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
    }

    /// Waits until an object is as expected.
    async fn wait_until(&self, path: &str, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        let began = self.clock.moment();
        loop {
            let seen = self.get(path).await;
            if good(&seen) {
                return seen;
            }
            assert!(
                self.clock.moment() - began < CONDITION_TIMEOUT,
                "{path} never {what}:\n{seen:#}\n{}",
                self.process.tails()
            );
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// Pods with this label, by name and identity.
    async fn pods(&self, app: &str) -> Vec<(String, String)> {
        let list = self.get(&format!("{PODS}?labelSelector=app%3D{app}")).await;
        let pod = |it: &Value| {
            let text = |field: &str| it["metadata"][field].as_str().unwrap().to_owned();
            (text("name"), text("uid"))
        };
        list["items"].as_array().unwrap().iter().map(pod).collect()
    }

    async fn stop(mut self, signal: Signal) {
        self.process.signal(signal).unwrap();
        let ended = self.process.wait_for_exit(CONDITION_TIMEOUT, &self.clock).await;
        assert!(ended.is_some(), "it did not end:\n{}", self.process.tails());
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    })
}

fn deployment(app: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": app}},
            "template": template(app, "example.com/web:1"),
        },
    })
}

/// Whether a deployment is rolled out, by the rule of `kubectl rollout status`.
fn is_rolled_out(deployment: &Value, replicas: u64) -> bool {
    let status = &deployment["status"];
    let count = |field: &str| status[field].as_u64().unwrap_or(0);
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && count("updatedReplicas") == replicas
        && count("replicas") == replicas
        && count("availableReplicas") == replicas
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_run_on_simulated_nodes() {
    let cluster = Cluster::ephemeral().await;
    let web = format!("{DEPLOYMENTS}/web");

    // Rolled out, changed, and rolled back.
    cluster.post(DEPLOYMENTS, &deployment("web", 3)).await;
    cluster.wait_until(&web, "was rolled out", |it| is_rolled_out(it, 3)).await;
    let first = cluster.pods("web").await;
    cluster.merge(&web, &json!({"spec": {"template": template("web", "example.com/web:2")}})).await;
    cluster
        .wait_until(&web, "was rolled out again", |it| {
            it["metadata"]["generation"].as_u64() > Some(1) && is_rolled_out(it, 3)
        })
        .await;
    // Terminating pods are not counted, and exist a little longer.
    let old = |it: &Value| first.iter().any(|(_, uid)| it["metadata"]["uid"] == uid.as_str());
    let only_new = |list: &Value| {
        let pods = list["items"].as_array().unwrap();
        pods.len() == 3 && !pods.iter().any(old)
    };
    cluster
        .wait_until(&format!("{PODS}?labelSelector=app%3Dweb"), "were all others", only_new)
        .await;

    // One on each node, also on one that comes later.
    let daemon = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": template("agent", "example.com/agent:1"),
        },
    });
    cluster.post(DAEMON_SETS, &daemon).await;
    let agent = format!("{DAEMON_SETS}/agent");
    let ready = |count: u64| move |it: &Value| it["status"]["numberReady"] == count;
    let seen = cluster.wait_until(&agent, "was everywhere", |it| {
        let status = &it["status"];
        status["numberReady"].as_u64() > Some(0)
            && status["numberReady"] == status["desiredNumberScheduled"]
    });
    let before = seen.await["status"]["numberReady"].as_u64().unwrap();
    let kubeconfig = cluster.process.kubeconfig().to_str().unwrap().to_owned();
    let run = gantry(&["node", "add", "late", "--kubeconfig", &kubeconfig]);
    assert_eq!((run.code, run.out.as_str()), (0, "node/late-0 added\n"), "{}", run.err);
    cluster.wait_until(&agent, "followed the new node", ready(before + 1)).await;

    // Every container fails once and is started again; the job is done in the end.
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"},
        "spec": {
            "completions": 5, "parallelism": 5, "backoffLimit": 6,
            "template": {
                "metadata": {"annotations": {"gantry.dev/sim-exit-code": "1,0"}},
                "spec": {
                    "restartPolicy": "OnFailure",
                    "containers": [{"name": "main", "image": "example.com/work:1"}],
                },
            },
        },
    });
    cluster.post(JOBS, &job).await;
    let done = cluster
        .wait_until(&format!("{JOBS}/work"), "was done", |it| {
            let conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|it| it["type"] == "Complete" && it["status"] == "True")
        })
        .await;
    assert_eq!(done["status"]["succeeded"], 5, "{done:#}");

    // `gantry status` shows all of it.
    let run = gantry(&["status", "--kubeconfig", &kubeconfig]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("deployments   1 of 1 healthy"), "{}", run.out);
    let server = &cluster.process.target().base;
    assert!(run.out.contains(&format!("{server} (v1.34.")), "{}", run.out);
    assert!(run.out.contains(&format!("gantry of {kubeconfig}\n")), "{}", run.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_keeps_pods_until_others_are_ready() {
    let cluster = Cluster::ephemeral().await;
    cluster.post(DEPLOYMENTS, &deployment("web", 2)).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    });
    cluster.post(BUDGETS, &budget).await;
    let path = format!("{BUDGETS}/web");
    cluster.wait_until(&path, "counted both", |it| it["status"]["currentHealthy"] == 2).await;
    let (name, _) = cluster.pods("web").await.remove(0);
    let evict = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let eviction = || Request::post(format!("{PODS}/{name}/eviction"), &evict);
    let refused = cluster.client.send(eviction()).await.unwrap();
    assert_eq!(refused.status.as_u16(), 429, "{}", refused.text());
    cluster.merge(&format!("{DEPLOYMENTS}/web"), &json!({"spec": {"replicas": 3}})).await;
    cluster.wait_until(&path, "allowed one", |it| it["status"]["disruptionsAllowed"] == 1).await;
    let allowed = cluster.client.send(eviction()).await.unwrap();
    assert!(allowed.status.is_success(), "{}", allowed.text());
    cluster.wait_until(&path, "was whole again", |it| it["status"]["currentHealthy"] == 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_survive_a_stop_and_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |folder: &Path| {
        // Keys are only read if no other user can read them: the server creates the directory
        // itself.
        Plan::new(env!("CARGO_BIN_EXE_gantry")).data(folder.join("data"))
    };
    let web = format!("{DEPLOYMENTS}/web");
    let cluster = Cluster::start(plan(folder.path())).await;
    cluster.post(DEPLOYMENTS, &deployment("web", 2)).await;
    cluster.wait_until(&web, "was rolled out", |it| is_rolled_out(it, 2)).await;
    let pods = cluster.pods("web").await;
    cluster.stop(Signal::TERM).await;

    let cluster = Cluster::start(plan(folder.path())).await;
    assert_eq!(cluster.pods("web").await, pods, "the same pods, not others like them");
    cluster.merge(&web, &json!({"spec": {"replicas": 3}})).await;
    cluster.wait_until(&web, "grew", |it| is_rolled_out(it, 3)).await;
    let pods = cluster.pods("web").await;
    cluster.stop(Signal::KILL).await;

    let cluster = Cluster::start(plan(folder.path())).await;
    assert_eq!(cluster.pods("web").await, pods);
    let nodes = cluster.get("/api/v1/nodes").await["items"].as_array().unwrap().len();
    assert_eq!(nodes, 3, "no node was added again");
    cluster.merge(&web, &json!({"spec": {"replicas": 1}})).await;
    cluster.wait_until(&web, "shrank", |it| is_rolled_out(it, 1)).await;
    cluster.stop(Signal::TERM).await;

    // `--reset` starts with an empty cluster.
    let cluster = Cluster::start(plan(folder.path()).flag("--reset")).await;
    assert!(cluster.pods("web").await.is_empty());
}

#[test]
fn a_file_of_nodes_is_refused_with_all_that_is_wrong_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nodes.yaml");
    std::fs::write(&file, "nodes:\n- name: gpu\n  cpu: many\n  colour: red\n").unwrap();
    let run = gantry(&["up", "--ephemeral", "--port", "0", "--nodes", file.to_str().unwrap()]);
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.err.contains("line 3") && run.err.contains("cpu"), "{}", run.err);
    assert!(run.err.contains("line 4") && run.err.contains("colour"), "{}", run.err);
}

/// A quota that rejects pods is shown on the ReplicaSet and on its Deployment, as `kubectl
/// describe` shows it, until there is free quota.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_quota_is_reported_and_cleared() {
    const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
    const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
    let cluster = Cluster::ephemeral().await;
    let quota = |pods: &str| json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": pods}}});
    cluster.post(QUOTAS, &quota("1")).await;
    let counted = |it: &Value| it["status"]["hard"]["pods"] == "1";
    cluster.wait_until(&format!("{QUOTAS}/q"), "was counted", counted).await;
    cluster.post(DEPLOYMENTS, &deployment("full", 3)).await;

    let failure = |object: &Value| -> Value {
        let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = list.into_iter().find(|it| it["type"] == "ReplicaFailure");
        found.unwrap_or_default()
    };
    let full = format!("{DEPLOYMENTS}/full");
    let refused = |it: &Value| failure(it)["reason"] == "FailedCreate";
    let seen = cluster.wait_until(&full, "said that pods are refused", refused).await;
    let condition = failure(&seen);
    assert_eq!(condition["status"], "True");
    let words = condition["message"].as_str().unwrap();
    assert!(words.contains("exceeded quota: q, requested: pods=1, used: pods=1"), "{words}");
    assert!(words.starts_with("pods \"full-"), "{words}");
    let sets = cluster.get(&format!("{SETS}?labelSelector=app%3Dfull")).await;
    let set = &sets["items"][0];
    assert_eq!(failure(set)["message"], condition["message"], "{set:#}");
    assert_eq!(failure(set)["lastUpdateTime"], Value::Null, "sets have no such field");
    let name = set["metadata"]["name"].as_str().unwrap().to_owned();
    let events = format!(
        "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}%2Creason%3DFailedCreate"
    );
    let told = |it: &Value| it["items"].as_array().is_some_and(|it| !it.is_empty());
    let events = cluster.wait_until(&events, "told of it", told).await;
    let words = events["items"][0]["message"].as_str().unwrap();
    assert!(words.starts_with("Error creating: pods \"full-"), "{words}");

    cluster.merge(&format!("{QUOTAS}/q"), &quota("10")).await;
    // Rejected pods are retried after a backoff; any change ends it.
    cluster.merge(&full, &json!({"spec": {"minReadySeconds": 1}})).await;
    let well = |it: &Value| is_rolled_out(it, 3) && failure(it).is_null();
    cluster.wait_until(&full, "was rolled out", well).await;
    let good = |it: &Value| failure(it).is_null() && it["status"]["readyReplicas"] == 3;
    cluster.wait_until(&format!("{SETS}/{name}"), "was well", good).await;
    cluster.stop(Signal::TERM).await;
}
