//! Simulated nodes on the embedded server, through an operator that holds a lease.

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use gantry_process::clock::Clock;
use gantry_testkit::http::Request;

use super::{get, site};
use crate::shared_operator::{Site, done, manifests};
use crate::shared_process::Operator;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/gantry-system/leases/gantry-operator";
const CONFIG: &str = "\
simulation: {enabled: true}
leaderElection: {leaderElect: true, leaseDuration: 90s, renewDeadline: 60s, retryPeriod: 500ms}
health: {bindAddress: '127.0.0.1:0'}
metrics: {bindAddress: '[::1]:0', secureServing: false}
";
const MERGE: &str = "application/merge-patch+json";

/// An operator with this configuration and the rights of the manifests.
pub(super) async fn start(site: &Site, config: &str) -> (Operator, tempfile::TempDir) {
    let kubeconfig = site.kubeconfig().await;
    let (folder, file) = super::file(config);
    let flags = ["--config-file", &file, "--kubeconfig", kubeconfig.to_str().unwrap()];
    (Operator::start(&flags), folder)
}

pub(super) async fn allow(site: &Site) {
    site.apply_file(&manifests().join("optional/simulation.yaml")).await;
}

/// Reads a page until it has the expected content.
pub(super) async fn wait_for_page(
    address: &str,
    path: &str,
    wanted: impl Fn(u16, &str) -> bool,
) -> String {
    let clock = Clock::system();
    let give_up = clock.moment() + std::time::Duration::from_secs(60);
    loop {
        let (status, page) = get(address, path).await;
        if wanted(status, &page) {
            return page;
        }
        assert!(clock.moment() < give_up, "{path}: last answer: {status} {page}");
        clock.sleep(std::time::Duration::from_millis(10)).await;
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_simulated_node_becomes_ready() {
    let (_server, site) = site().await;
    site.install_definitions().await;
    let (mut operator, _folder) = start(&site, CONFIG).await;
    let (probes, metrics) = (operator.address(), operator.address());
    // Without the permissions of the subsystem it is not ready, and names what it lacks.
    let missing = "controllers failed: caches not synced yet: leases.coordination.k8s.io (the \
                   server answered 403 Forbidden: ";
    wait_for_page(&probes, "/readyz", |_, page| page.contains(missing)).await;
    allow(&site).await;
    wait_for_page(&probes, "/readyz", |status, _| status == 200).await;

    let fake = json!({ "metadata": {
        "name": "fake", "annotations": { "kwok.x-k8s.io/node": "fake" },
    } });
    site.create("/api/v1/nodes", &fake).await;
    site.create("/api/v1/nodes", &json!({ "metadata": { "name": "real" } })).await;
    site.until("/api/v1/nodes/fake", is_ready).await;
    let namespace = "/api/v1/namespaces/default";
    let account = json!({ "metadata": { "name": "default" } });
    site.create(&format!("{namespace}/serviceaccounts"), &account).await;
    let pod = json!({
        "metadata": { "name": "p" },
        "spec": { "nodeName": "fake", "containers": [{ "name": "c", "image": "registry.test/c" }] },
    });
    site.create(&format!("{namespace}/pods"), &pod).await;
    let path = format!("{namespace}/pods/p");
    site.until(&path, |it| it["status"]["phase"] == "Running").await;
    let events = format!("{namespace}/events?fieldSelector=reason%3DStarted");
    site.until(&events, |it| it["items"].as_array().is_some_and(|all| all.len() == 1)).await;
    site.admin.send(Request::delete(path.clone())).await.unwrap();
    site.until(&path, |it| it["code"] == 404).await;
    let real = done(&site.get("/api/v1/nodes/real").await);
    assert!(!is_ready(&real), "it is no business of ours: {real:#}");

    // A program runs in the operator, with the account of its pod.
    let roots = json!({ "metadata": { "name": "kube-root-ca.crt" }, "data": { "ca.crt": "none" } });
    site.create(&format!("{namespace}/configmaps"), &roots).await;
    let allow = json!([{ "name": "ECHO_ALLOW", "value": "api" }]);
    let pod = json!({
        "metadata": { "name": "echo" },
        "spec": { "nodeName": "fake", "containers": [{
            "name": "c", "image": "gantry.dev/echo", "env": allow, "ports": [{ "containerPort": 18083 }],
        }] },
    });
    site.create(&format!("{namespace}/pods"), &pod).await;
    let path = format!("{namespace}/pods/echo");
    let echo = site.until(&path, is_ready).await;
    let address = format!("{}:18083", echo["status"]["podIP"].as_str().unwrap());
    let (status, refused) = get(&address, "/api?path=/api/v1/namespaces/default/secrets").await;
    let whose = "system:serviceaccount:default:default";
    assert!(status == 403 && refused.contains(whose), "{status} {refused}");
    site.admin.send(Request::delete(path.clone())).await.unwrap();
    site.until(&path, |it| it["code"] == 404).await;

    // The status shows what is held, and whether this replica is the leader.
    let down = json!({ "metadata": { "annotations": { "gantry.dev/sim-node": "down" } } });
    done(&site.admin.send(Request::patch("/api/v1/nodes/fake", MERGE, &down)).await.unwrap());
    let shown = |_, page: &str| {
        let page: Value = serde_json::from_str(page).unwrap();
        let held = &page["held"][0];
        page["ready"] == true
            && page["leading"] == true
            && page["heldCount"] == 1
            && held["reason"] == "NoPower"
            && held["controller"] == "kubelet-nodes"
            && held["name"] == "fake"
    };
    wait_for_page(&probes, "/status", shown).await;
    wait_for_page(&metrics, "/metrics", |_, page| page.contains("gantry_controller_leading 1\n"))
        .await;
    assert!(get(&probes, "/healthz?verbose").await.1.contains("[+]lease ok"));

    // An operator that stops releases the lease for the next one.
    let identity = done(&site.get(LEASE).await)["spec"]["holderIdentity"].clone();
    assert!(identity.as_str().is_some_and(|it| it.contains('_')), "{identity}");
    operator.signal(Signal::TERM);
    let (status, log) = spawn_blocking(|| operator.wait_for_exit()).await.unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("released the lease"), "{log}");
    assert_eq!(done(&site.get(LEASE).await)["spec"]["holderIdentity"], "");
}

/// A lease that another identity holds is lost, no matter which client wrote it.
#[tokio::test(flavor = "multi_thread")]
async fn losing_the_lease_exits_with_code_4() {
    let (_server, site) = site().await;
    allow(&site).await;
    let config = format!("mcadEnabled: false\n{CONFIG}");
    let (mut operator, _folder) = start(&site, &config).await;
    operator.wait_for_line("acquired the lease");
    let taken = json!({ "spec": { "holderIdentity": "somebody" } });
    done(&site.admin.send(Request::patch(LEASE, MERGE, &taken)).await.unwrap());
    let (status, log) = spawn_blocking(|| operator.wait_for_exit()).await.unwrap();
    assert_eq!(status.code(), Some(4), "{log}");
    let said = "error: lost the lease gantry-system/gantry-operator: somebody holds it";
    assert!(log.ends_with(said), "{log}");
    let lease = done(&site.get(LEASE).await);
    assert_eq!(lease["spec"]["holderIdentity"], "somebody", "it is left as it is");
}

/// Without leader election there is no lease, and the only operator is the leader.
#[tokio::test(flavor = "multi_thread")]
async fn without_leader_election_no_lease_is_needed() {
    let (_server, site) = site().await;
    allow(&site).await;
    let config = CONFIG.replace("leaderElect: true", "leaderElect: false");
    let (mut operator, _folder) = start(&site, &format!("mcadEnabled: false\n{config}")).await;
    let (probes, metrics) = (operator.address(), operator.address());
    wait_for_page(&probes, "/readyz", |status, _| status == 200).await;
    wait_for_page(&metrics, "/metrics", |_, page| page.contains("gantry_controller_leading 1\n"))
        .await;
    assert_eq!(site.get(LEASE).await.status.as_u16(), 404);
}
