//! Scenarios 94 and 95 on a real Kubernetes: two operators without a lease, both of which act, and
//! one of them killed again and again. Two watches verify it: no device is ever allocated twice, at
//! any revision, and in the end everything was released.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;
use gantry_testkit::http::{Client, Protocol, Request, Target};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::say;
use crate::shared_process::Operator;

/// How long nothing may happen before the run is aborted: many times what a loaded machine needs.
const STALL_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

const PODS: usize = 300;
const NODES: usize = 15;
/// The devices of each node: fewer in all than pods request, so that they wait for one another.
const DEVICES: usize = 8;
/// An operator is killed whenever this number of further pods has its devices.
const PODS_PER_KILL: usize = 25;
const USERS: [&str; 2] = ["operator-a", "operator-b"];

const DEVICES_API: &str = "/apis/devmgmtproto.k8s.io/v1alpha1";
const POOLS: &str = "/apis/devmgmtproto.k8s.io/v1alpha1/devicepools";
const CLAIMS: &str = "/apis/devmgmtproto.k8s.io/v1alpha1/namespaces/default/deviceclaims";
const POD_LIST: &str = "/api/v1/namespaces/default/pods";
/// The annotation of a pod that has all of its devices.
const ALLOCATIONS_ANNOTATION: &str = "devmgmtproto.k8s.io/device-allocations";

/// There is no lease: both act from the start, which is more than a healthy cluster ever has.
const CONFIG: &str = "\
mcadEnabled: false
devices: {enabled: true}
clientConnection: {qps: -1}
leaderElection: {leaderElect: false}
health: {bindAddress: '0'}
metrics: {bindAddress: '0'}
";

/// Every write of the operators, and its result.
const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [operator-a, operator-b]
  verbs: [create, patch, delete]
- level: None
"#;

/// A cluster, and what was observed of it.
struct TestCluster {
    client: Client,
    clock: Clock,
    events: Arc<Mutex<Vec<WatchEvent>>>,
    watches: JoinSet<()>,
}

/// What a watch has shown.
struct WatchEvent {
    revision: u64,
    deleted: bool,
    object: Value,
}

impl TestCluster {
    async fn new(target: &Target, clock: &Clock) -> Self {
        let client = Client::new(target, Protocol::Http2, clock.clone()).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut stage =
            Self { client, clock: clock.clone(), events: seen, watches: JoinSet::new() };
        stage.create_fixtures().await;
        for path in [POOLS, CLAIMS] {
            let client = Client::new(target, Protocol::Http2, clock.clone()).unwrap();
            let seen = Arc::clone(&stage.events);
            stage.watches.spawn(watch(client.with_timeout(STALL_TIMEOUT), path, seen));
        }
        stage
    }

    async fn create(&self, path: &str, object: &Value) {
        let answer = self.client.send(Request::post(path, object)).await.unwrap();
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        let answer = self.client.send(Request::get(path)).await.unwrap();
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
        let mut list: Value = answer.json().unwrap();
        serde_json::from_value(list["items"].take()).unwrap()
    }

    /// Kinds, nodes, and pools of three sorts: with names, counted, and in parts.
    async fn create_fixtures(&self) {
        for kind in gantry_api::object::KINDS {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            self.create(path, &serde_json::to_value(kind.crd()).unwrap()).await;
        }
        let begun = self.clock.moment();
        for path in [POOLS, CLAIMS] {
            // A definition is served a moment after it is there.
            while !self.client.send(Request::get(path)).await.unwrap().status.is_success() {
                assert!(self.clock.moment() - begun < STALL_TIMEOUT, "{path} is not served");
                self.clock.sleep(POLL_INTERVAL).await;
            }
        }
        let driver = json!({
            "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": "DeviceDriver",
            "metadata": {"name": "gpu.example.com"}, "deviceTypes": ["gpu"],
        });
        self.create(&format!("{DEVICES_API}/devicedrivers"), &driver).await;
        let class = object("DeviceClass", "gpu", &json!({"deviceType": "gpu"}));
        self.create(&format!("{DEVICES_API}/deviceclasses"), &class).await;
        for at in 0..NODES {
            let node = format!("node-{at:02}");
            let room = json!({"cpu": "64", "memory": "64Gi", "pods": "110"});
            let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady"});
            let status = json!({"capacity": room, "allocatable": room, "conditions": [ready]});
            let made = json!({"metadata": {"name": node}, "status": status});
            self.create("/api/v1/nodes", &made).await;
            self.create(POOLS, &object("DevicePool", &node, &pool(&node, at))).await;
        }
        for at in 0..PODS / 20 {
            self.create(CLAIMS, &object("DeviceClaim", &shared(at), &device_request(1 + at % 2)))
                .await;
        }
    }

    /// How much the ledgers have, and how much claims have or keep.
    async fn remaining_allocations(&self) -> (usize, usize) {
        let pools = self.list(POOLS).await;
        let entries = pools.iter().map(|it| list(&it["status"]["allocations"]).len()).sum();
        let claims = self.list(CLAIMS).await;
        let kept = claims.iter().filter(|it| {
            let named = it["metadata"]["name"].as_str().unwrap().starts_with("shared-");
            !named
                || it["metadata"]["finalizers"].is_array()
                || it["status"]["allocations"].is_array()
        });
        (entries, kept.count())
    }

    /// Waits until the watches have shown everything that has happened by now.
    async fn wait_for_watches(&self) {
        let mark = json!({"metadata": {"labels": {"seen": "all"}}});
        let claim = format!("{CLAIMS}/{}", shared(0));
        for path in [format!("{POOLS}/node-00"), claim] {
            let request = Request::patch(path.as_str(), "application/merge-patch+json", &mark);
            let answer = self.client.send(request).await.unwrap();
            assert!(answer.status.is_success(), "{path}: {}", answer.text());
        }
        let begun = self.clock.moment();
        let marked = || {
            let seen = self.events.lock().unwrap();
            seen.iter().filter(|it| it.object["metadata"]["labels"]["seen"] == "all").count()
        };
        while marked() < 2 {
            assert!(self.clock.moment() - begun < STALL_TIMEOUT, "the watches are silent");
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }
}

/// Reads a watch for as long as the test runs; one that ends is resumed where it was.
async fn watch(client: Client, path: &'static str, seen: Arc<Mutex<Vec<WatchEvent>>>) {
    let mut last = String::new();
    loop {
        let from = if last.is_empty() { String::new() } else { format!("&resourceVersion={last}") };
        let request = Request::get(format!("{path}?watch=true&timeoutSeconds=3600{from}"));
        let mut stream = client.open(request).await.unwrap();
        assert!(stream.status.is_success(), "{path}: {}", stream.status);
        while let Some(line) = stream.next_line(Duration::from_secs(3600)).await.unwrap() {
            let mut event: Value = serde_json::from_slice(&line).unwrap();
            // No event may be missed.
            assert_ne!(event["type"], "ERROR", "{path}: {event}");
            let object = event["object"].take();
            object["metadata"]["resourceVersion"].as_str().unwrap().clone_into(&mut last);
            let event = WatchEvent {
                revision: last.parse().unwrap(),
                deleted: event["type"] == "DELETED",
                object,
            };
            seen.lock().unwrap().push(event);
        }
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": kind,
        "metadata": {"name": name}, "spec": spec,
    })
}

fn pool(node: &str, at: usize) -> Value {
    let mut spec = json!({"nodeName": node, "driver": "gpu.example.com", "deviceType": "gpu"});
    let device = |name: String, takes: &str| json!({"name": name, "requests": {"memory": takes}});
    match at % 3 {
        0 => spec["devices"] = (0..DEVICES).map(|at| json!({"name": format!("d{at}")})).collect(),
        1 => spec["deviceCount"] = json!(DEVICES),
        _ => {
            let wholes = (0..DEVICES / 2).map(|at| device(format!("whole{at}"), "2"));
            let halves = (0..DEVICES).map(|at| device(format!("half{at}"), "1"));
            spec["resources"] = json!([{"name": "memory", "capacity": DEVICES.to_string()}]);
            spec["devices"] = wholes.chain(halves).collect();
        }
    }
    spec
}

fn shared(at: usize) -> String {
    format!("shared-{at:02}")
}

/// What asks for so many devices.
fn device_request(count: usize) -> Value {
    let count = json!({"count": count.to_string()});
    json!({"claims": [{"name": "main", "deviceClass": "gpu", "requests": count, "limits": count}]})
}

/// A pod that wants one device, two, or what others want too.
fn pod(at: usize) -> Value {
    let claim = match at % 10 {
        0..6 => json!({"name": "gpu", "claim": device_request(1)}),
        6..8 => json!({"name": "gpu", "claim": device_request(2)}),
        _ => json!({"name": "gpu", "claimName": shared(at % (PODS / 20))}),
    };
    json!({
        "metadata": {
            "name": format!("pod-{at:03}"),
            "annotations": {
                "devmgmtproto.k8s.io/device-claims": json!([claim]).to_string(),
                "devmgmtproto.k8s.io/container-devices": r#"{"main":[{"name":"gpu"}]}"#,
            },
        },
        "spec": {
            "schedulerName": "gantry",
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10.1"}],
        },
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What must hold at every revision, in the order of the server: (I1) no ledger allocates more than
/// is published, (I2) the devices of claims are in ledgers, (I3) no device is held twice. All pods
/// here request devices only.
fn check_invariants(events: &mut [WatchEvent]) {
    events.sort_by_key(|it| it.revision);
    let mut pools: BTreeMap<String, Value> = BTreeMap::new();
    let mut claims: BTreeMap<String, Value> = BTreeMap::new();
    for WatchEvent { revision, deleted: gone, object } in events {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
        let (all, key) = match object["kind"] == "DevicePool" {
            true => (&mut pools, name),
            false => (&mut claims, uid),
        };
        match gone {
            true => drop(all.remove(&key)),
            false => drop(all.insert(key.clone(), object.clone())),
        }
        if object["kind"] == "DevicePool" {
            check_pool(*revision, object);
            let holders = claims.values().filter(|it| {
                list(&it["status"]["allocations"]).iter().any(|it| it["devicePoolName"] == *key)
            });
            holders.for_each(|claim| check_claim(*revision, claim, &pools));
        } else if let Some(claim) = claims.get(&key) {
            check_claim(*revision, claim, &pools);
        }
    }
}

/// I1 and I3.
fn check_pool(revision: u64, pool: &Value) {
    let (spec, entries) = (&pool["spec"], list(&pool["status"]["allocations"]));
    let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
    let (mut counted, mut taken) = (0, 0);
    let mut holders: BTreeMap<&str, &Value> = BTreeMap::new();
    for entry in entries {
        assert_eq!(entry["accessMode"], "ReadWriteExclusive", "{entry}");
        let Some(device) = entry["deviceName"].as_str() else {
            counted += entry["count"].as_u64().unwrap();
            continue;
        };
        let other = holders.insert(device, entry);
        assert_eq!(other, None, "revision {revision}: beside {entry}");
        let published = list(&spec["devices"]).iter().find(|it| it["name"] == device);
        let takes = &published.unwrap()["requests"]["memory"];
        taken += if takes.is_null() { 0 } else { number(takes) };
    }
    let most = spec["deviceCount"].as_u64().unwrap_or_default();
    assert!(counted <= most, "revision {revision}: {counted} of {most}: {pool}");
    let most = &spec["resources"][0]["capacity"];
    let most = if most.is_null() { 0 } else { number(most) };
    assert!(taken <= most, "revision {revision}: {taken} of {most}: {pool}");
}

/// I2.
fn check_claim(revision: u64, claim: &Value, pools: &BTreeMap<String, Value>) {
    for held in list(&claim["status"]["allocations"]) {
        let pool = pools.get(held["devicePoolName"].as_str().unwrap());
        let entries = pool.map(|it| list(&it["status"]["allocations"])).unwrap_or_default();
        let stands = entries.iter().any(|entry| {
            entry["claimRef"]["uid"] == claim["metadata"]["uid"]
                && entry["term"] == held["claimName"]
                && entry["deviceName"] == held["deviceName"]
                && entry["count"] == held["deviceCount"]
        });
        assert!(stands, "revision {revision}: {} has {held}", claim["metadata"]["name"]);
    }
}

/// The number of accepted writes of each operator, and of conflicts.
fn writes(log: &Path) -> BTreeMap<String, (usize, usize)> {
    let mut counts = BTreeMap::<String, (usize, usize)>::new();
    for line in std::fs::read_to_string(log).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let user = event["user"]["username"].as_str().unwrap();
        let count = counts.entry(user.to_owned()).or_default();
        match event["responseStatus"]["code"].as_u64() {
            Some(200..300) => count.0 += 1,
            Some(409) => count.1 += 1,
            _ => {}
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn scenarios_94_and_95_hold_on_kubernetes() {
    let clock = Clock::system();
    let folder = tempfile::tempdir().unwrap();
    let [policy, log, config] = ["policy.yaml", "audit.log", "gantry.yaml"]
        .map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    std::fs::write(&policy, POLICY).unwrap();
    std::fs::write(&config, CONFIG).unwrap();
    // Nodes exist without a kubelet, and pods without an account.
    let plan = RealCluster::plan()
        .claims()
        .api_server_flag(
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority",
        )
        .api_server_flag(format!("--audit-policy-file={policy}"))
        .api_server_flag(format!("--audit-log-path={log}"));
    let real = Box::pin(plan.start()).await.unwrap();
    let stage = TestCluster::new(real.admin().target(), &clock).await;
    let start = |user: &str| {
        let made = real.user(user, &["system:masters"]).unwrap();
        let kubeconfig = made.kubeconfig().to_str().unwrap();
        Operator::start(&["--config-file", &config, "--kubeconfig", kubeconfig])
    };
    let mut operators = USERS.map(start);
    let began = clock.moment();
    for at in 0..PODS {
        stage.create(POD_LIST, &pod(at)).await;
    }

    let (mut served, mut kills) = (0, 0);
    let mut last = clock.moment();
    loop {
        let pods = stage.list(POD_LIST).await;
        let has_all = |it: &&Value| {
            it["spec"]["nodeName"].is_string()
                && it["metadata"]["annotations"][ALLOCATIONS_ANNOTATION].is_string()
        };
        let names = pods.iter().filter(has_all).map(|it| it["metadata"]["name"].as_str().unwrap());
        let names: Vec<&str> = names.collect();
        if pods.is_empty() {
            break;
        }
        if !names.is_empty() {
            last = clock.moment();
        }
        if clock.moment() - last > STALL_TIMEOUT {
            let said = operators.each_mut().map(Operator::said).join("\n");
            panic!("{} pods wait\n{said}", pods.len());
        }
        for name in names {
            // Whatever its grace period, there is no kubelet on its node: it is deleted at once.
            let path = format!("{POD_LIST}/{name}?gracePeriodSeconds=0");
            let answer = stage.client.send(Request::delete(path)).await.unwrap();
            assert!(answer.status.is_success(), "{}", answer.text());
            served += 1;
            if served % PODS_PER_KILL == 0 {
                let at = kills % operators.len();
                operators[at].signal(Signal::KILL);
                operators[at] = start(USERS[at]);
                kills += 1;
            }
        }
        clock.sleep(POLL_INTERVAL).await;
    }
    let begun = clock.moment();
    loop {
        let left = stage.remaining_allocations().await;
        if left == (0, 0) {
            break;
        }
        assert!(clock.moment() - begun < STALL_TIMEOUT, "entries and claims are left: {left:?}");
        clock.sleep(POLL_INTERVAL).await;
    }
    stage.wait_for_watches().await;
    let took = clock.moment() - began;
    let mut events = std::mem::take(&mut *stage.events.lock().unwrap());
    check_invariants(&mut events);
    let counts = writes(Path::new(&log));
    let revisions = events.len();
    say(&format!(
        "{PODS} pods on {NODES} nodes in {took:.1?}: {kills} kills, {revisions} revisions of pools and \
         claims, writes accepted and too late by operator: {counts:?}"
    ));
    assert_eq!(served, PODS);
    assert!(kills >= PODS / PODS_PER_KILL, "{kills}");
    assert!(USERS.iter().all(|user| counts[*user].0 > 0), "both wrote: {counts:?}");
}
