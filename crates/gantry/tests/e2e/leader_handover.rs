//! Two operators on a real Kubernetes, and the handover of the lease when one of them is killed,
//! stopped or terminated. The server's audit log verifies it: it has every accepted write, in the
//! order of the server, with its user.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::RealCluster;
use gantry_testkit::http::Request;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::say;
use crate::shared_operator::{Site, manifests};
use crate::shared_process::Operator;

/// The timeout for what must happen: many times what a loaded machine needs.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(40);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How often a leader is stopped in the middle of its work.
const ROUNDS: usize = 5;
/// How many pods it has to bring up then.
const BURST: usize = 80;
const USERS: [&str; 2] = ["operator-a", "operator-b"];
const NODES: usize = 3;
const PODS: &str = "/api/v1/namespaces/load/pods";

/// Every write of the operators, with the server's response.
const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: RequestResponse
  users: [operator-a, operator-b]
  verbs: [create, update, patch, delete, deletecollection]
- level: None
"#;

const CONFIG: &str = "\
mcadEnabled: false
simulation: {enabled: true}
clientConnection: {qps: -1}
leaderElection: {leaderElect: true, leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
health: {bindAddress: '0'}
metrics: {bindAddress: '0'}
";

impl Operator {
    /// Returns whether it has ever acquired the lease, according to its log.
    fn is_leader(&mut self) -> bool {
        self.read.extend(self.lines.try_iter());
        self.read.iter().any(|line| line.contains("acquired the lease"))
    }

    /// How it ended, if it has.
    fn try_exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }
}

/// One of the two, with a user of its own.
struct OperatorReplica<'stage> {
    user: &'static str,
    flags: Vec<String>,
    clock: &'stage Clock,
    operator: Operator,
}

impl<'stage> OperatorReplica<'stage> {
    fn start(real: &RealCluster, user: &'static str, config: &str, clock: &'stage Clock) -> Self {
        let made = real.user(user, &[]).unwrap();
        let kubeconfig = made.kubeconfig().to_str().unwrap();
        let flags = ["--config-file", config, "--kubeconfig", kubeconfig].map(str::to_owned);
        Self { user, operator: start_operator(&flags), flags: flags.to_vec(), clock }
    }

    /// Starts a new process in its place.
    fn restart(&mut self) {
        self.operator = start_operator(&self.flags);
    }

    /// Waits until it is the leader, and returns how long that took.
    async fn wait_until_leader(&mut self) -> Duration {
        let began = self.clock.moment();
        while !self.operator.is_leader() {
            let ended = self.operator.try_exit_status();
            assert_eq!(ended, None, "{}: {}", self.user, self.operator.said());
            let waited = self.clock.moment() - began;
            assert!(
                waited < CONDITION_TIMEOUT,
                "{} never led: {}",
                self.user,
                self.operator.said()
            );
            self.clock.sleep(POLL_INTERVAL).await;
        }
        self.clock.moment() - began
    }

    /// Waits for its end, and gives its code.
    async fn wait_until_exit(&mut self) -> Option<i32> {
        let began = self.clock.moment();
        loop {
            if let Some(status) = self.operator.try_exit_status() {
                return status.code();
            }
            assert!(self.clock.moment() - began < CONDITION_TIMEOUT, "{} does not end", self.user);
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }
}

fn start_operator(flags: &[String]) -> Operator {
    Operator::start(&flags.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Grants the users the permissions of the operator's service account, and nothing else.
async fn grant_access(site: &Site) {
    site.apply_file(&manifests().join("optional/simulation.yaml")).await;
    let wanted = |file: &str| !file.starts_with("optional/") || file.ends_with("simulation.yaml");
    let files = gantry::manifests::manifests().into_iter().filter(|it| wanted(it.file));
    for mut object in files.flat_map(|it| it.objects) {
        if !object["kind"].as_str().unwrap().ends_with("Binding") {
            continue;
        }
        let name = format!("{}-people", object["metadata"]["name"].as_str().unwrap());
        object["metadata"]["name"] = name.into();
        let person =
            |name| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name});
        object["subjects"] = USERS.into_iter().map(person).collect();
        site.apply(&object).await;
    }
}

fn pod(name: &str, nth: usize) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": format!("fake-{}", nth % NODES),
            "containers": [{ "name": "c", "image": "registry.test/c:1" }],
        },
    })
}

/// Creates and deletes pods without end, so that the leader is always about to write.
async fn run_pod_stream(site: &Site) {
    for nth in 0_usize.. {
        site.create(PODS, &pod(&format!("p-{nth}"), nth)).await;
        if let Some(old) = nth.checked_sub(40) {
            let answer = site.admin.send(Request::delete(format!("{PODS}/p-{old}"))).await.unwrap();
            assert!(answer.status.is_success(), "{}", answer.text());
        }
    }
}

/// Creates a pod, and waits until the leader has brought it up.
async fn wait_for_running_pod(site: &Site, name: &str) {
    site.create(PODS, &pod(name, 0)).await;
    site.until(&format!("{PODS}/{name}"), |it| it["status"]["phase"] == "Running").await;
}

/// Creates more pods at once than a leader handles at once; it is in the middle of that on return.
/// Returns how many it had not handled.
async fn burst(site: &Site, round: usize) -> usize {
    let mut making = JoinSet::new();
    for nth in 0..BURST {
        let mut object = pod(&format!("burst-{round}-{nth}"), nth);
        object["metadata"]["labels"] = json!({ "burst": round.to_string() });
        let admin = site.admin.clone();
        making.spawn(async move { admin.send(Request::post(PODS, &object)).await.unwrap().status });
    }
    assert!(making.join_all().await.iter().all(|status| status.as_u16() == 201));
    let list = site.until(&burst_path(round), |list| running(list) > 0).await;
    BURST - running(&list)
}

fn burst_path(round: usize) -> String {
    format!("{PODS}?labelSelector=burst%3D{round}")
}

fn running(list: &Value) -> usize {
    let pods = list["items"].as_array().into_iter().flatten();
    pods.filter(|it| it["status"]["phase"] == "Running").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_of_an_old_leader_lands_after_the_hand_over() {
    let clock = Clock::system();
    let folder = tempfile::tempdir().unwrap();
    let [policy, log, config] = ["policy.yaml", "audit.log", "gantry.yaml"]
        .map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    std::fs::write(&policy, POLICY).unwrap();
    std::fs::write(&config, CONFIG).unwrap();
    let plan = RealCluster::plan().controllers();
    let plan = plan.api_server_flag(format!("--audit-policy-file={policy}"));
    let plan = plan.api_server_flag(format!("--audit-log-path={log}"));
    let real = Box::pin(plan.start()).await.unwrap();
    let site = Site::new(real.admin().target(), &clock).await;
    grant_access(&site).await;
    site.create("/api/v1/namespaces", &json!({ "metadata": { "name": "load" } })).await;
    let account = "/api/v1/namespaces/load/serviceaccounts/default";
    site.until(account, |it| it["kind"] == "ServiceAccount").await;
    for nth in 0..NODES {
        let node = json!({ "metadata": {
            "name": format!("fake-{nth}"), "annotations": { "kwok.x-k8s.io/node": "fake" },
        } });
        site.create("/api/v1/nodes", &node).await;
    }
    let began = clock.moment();
    let one = OperatorReplica::start(&real, USERS[0], &config, &clock);
    let two = OperatorReplica::start(&real, USERS[1], &config, &clock);
    tokio::select! {
        // It is dropped when the other is done, as intended.
        () = run_pod_stream(&site) => unreachable!("it never ends"),
        () = run_handovers(&site, one, two) => {}
    }
    say(&format!("the contest took {:.1?}", clock.moment() - began));
    check_writes(Path::new(&log));
}

/// Hands the lease over several times. Both operators have exited at the end.
async fn run_handovers(site: &Site, one: OperatorReplica<'_>, two: OperatorReplica<'_>) {
    let (mut leader, mut other) = (one, two);
    // The first one that is elected.
    while !leader.operator.is_leader() {
        std::mem::swap(&mut leader, &mut other);
        leader.clock.sleep(POLL_INTERVAL).await;
    }
    for nth in 0..NODES {
        let ready = |it: &Value| {
            let all = it["status"]["conditions"].as_array().into_iter().flatten();
            all.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
        };
        site.until(&format!("/api/v1/nodes/fake-{nth}"), ready).await;
    }
    wait_for_running_pod(site, "first").await;
    assert!(!other.operator.is_leader(), "one leads");

    leader.operator.signal(Signal::KILL);
    let took = other.wait_until_leader().await;
    say(&format!("killed: the other led after {took:.1?}"));
    // The lease, the longest pause between two looks, and much for a loaded machine.
    assert!(took < Duration::from_secs(3 + 1 + 10), "{took:?}");
    wait_for_running_pod(site, "after-a-kill").await;
    assert_eq!(leader.wait_until_exit().await, None, "by a signal");
    leader.restart();
    std::mem::swap(&mut leader, &mut other);

    for round in 0..ROUNDS {
        let left = burst(site, round).await;
        leader.operator.signal(Signal::STOP);
        let took = other.wait_until_leader().await;
        // At once: what the old leader still has to write is what the new one begins to write.
        leader.operator.signal(Signal::CONT);
        let code = leader.wait_until_exit().await;
        assert_eq!(code, Some(4), "{}: {}", leader.user, leader.operator.said());
        say(&format!("stopped with {left} pods to go: the other led after {took:.1?}"));
        site.until(&burst_path(round), |list| running(list) == BURST).await;
        leader.restart();
        std::mem::swap(&mut leader, &mut other);
    }

    leader.operator.signal(Signal::TERM);
    let took = other.wait_until_leader().await;
    say(&format!("told to go: the other led after {took:.1?}"));
    assert_eq!(leader.wait_until_exit().await, Some(0), "{}", leader.operator.said());
    wait_for_running_pod(site, "after-all").await;
    other.operator.signal(Signal::TERM);
    assert_eq!(other.wait_until_exit().await, Some(0), "{}", other.operator.said());
}

/// A write that the server accepted.
struct AcceptedWrite {
    user: String,
    revision: u64,
    what: String,
    /// The new holder of the lease, if it is a write of the lease; empty if it was released.
    holder: Option<String>,
    is_lease: bool,
}

fn parse_audit_line(line: &str) -> Option<AcceptedWrite> {
    let event: Value = serde_json::from_str(line).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let code = event["responseStatus"]["code"].as_u64().unwrap();
    if event["stage"] != "ResponseComplete" || !(200..300).contains(&code) {
        return None;
    }
    let what = format!("{} {}", text(&event["verb"]), text(&event["requestURI"]));
    let made = &event["responseObject"];
    let metadata = &made["metadata"];
    let revision = text(&metadata["resourceVersion"]);
    assert_ne!(revision, "", "{what}: {made:#}");
    let revision = revision.parse().unwrap();
    let user = text(&event["user"]["username"]);
    let is_lease = made["kind"] == "Lease" && metadata["namespace"] == "gantry-system";
    let held = made["spec"]["holderIdentity"].as_str().is_some_and(|it| !it.is_empty());
    // Each writes its own name, so that the writer is the holder.
    let holder = (is_lease && held).then(|| user.clone());
    Some(AcceptedWrite { user, revision, what, holder, is_lease })
}

/// Every accepted write lies in a time in which its author held the lease, by the server's own
/// order.
fn check_writes(log: &Path) {
    let text = std::fs::read_to_string(log).unwrap();
    let mut writes: Vec<AcceptedWrite> = text.lines().filter_map(parse_audit_line).collect();
    writes.sort_by_key(|write| write.revision);
    let mut holder: Option<String> = None;
    let (mut terms, mut late) = (Vec::new(), Vec::new());
    let mut counts = [0_usize; USERS.len()];
    for write in writes {
        if write.is_lease {
            if write.holder != holder {
                terms.push(write.holder.clone());
            }
            holder = write.holder;
        } else if holder.as_ref() == Some(&write.user) {
            counts[USERS.iter().position(|it| *it == write.user).unwrap()] += 1;
        } else {
            late.push(format!("{} by {}, while {holder:?} led", write.what, write.user));
        }
    }
    say(&format!("writes of the leaders: {counts:?}; late: {}; terms: {terms:?}", late.len()));
    assert!(late.is_empty(), "{late:#?}");
    assert!(counts.iter().all(|count| *count > 50), "both wrote: {counts:?}");
    let led: Vec<&String> = terms.iter().flatten().collect();
    assert_eq!(led.len(), 1 + 1 + ROUNDS + 1, "{terms:?}");
    assert!(led.windows(2).all(|pair| pair[0] != pair[1]), "{terms:?}");
    // An operator that is terminated releases the lease before the next one acquires it; no other
    // does.
    let given_back = terms.iter().filter(|term| term.is_none()).count();
    assert_eq!(given_back, 2, "{terms:?}");
    assert!(terms[terms.len() - 3].is_none() && terms[terms.len() - 1].is_none(), "{terms:?}");
}
