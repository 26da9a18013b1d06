//! An AppWrapper that needs two more nodes with accelerators gets them and releases them, on a real
//! Kubernetes and for each back end there is. The queue and scaling run in `gantry operator`, with
//! the permissions of its manifests; nodes are created by simulated back ends.

mod simulated_cloud;

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::cluster::{Nodes, RealCluster};
use gantry_testkit::http::Request;
use gantry_testkit::ocm::{CLUSTER, EXTERNAL_CLUSTER_ID, Fault, OFFLINE_TOKEN, OcmServer};
use serde_json::{Value, json};

use super::say;
use crate::shared_operator::{Site, done, manifests};
use crate::shared_process::Operator;
use simulated_cloud::{API, NAMESPACE, SET_LABEL, list, run_cloud, run_machine_api};

const WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const GRANT_RECORD: &str = "/api/v1/namespaces/gantry-system/configmaps/gantry-scaling";
const MERGE: &str = "application/merge-patch+json";
const INSTANCE: &str = "g4dn.xlarge";
const FINALIZER: &str = "instascale.codeflare.dev/finalizer";

/// As many nodes as one job needs, and not one more.
const CONFIG: &str = "\
mcad: {backoffTime: 1}
clientConnection: {qps: -1}
health: {bindAddress: '0'}
metrics: {bindAddress: '0'}
instascale:
  enabled: true
  maxScaleoutAllowed: 2
";

#[tokio::test(flavor = "multi_thread")]
async fn d_4_to_d_6_two_nodes_come_and_go_with_every_back_end() {
    let clock = Clock::system();
    let plan = RealCluster::plan().controllers().nodes(Nodes::Simulated(1));
    let real = Box::pin(plan.start()).await.unwrap();
    let site = Site::new(real.admin().target(), &clock).await;
    prepare(&site).await;
    let (pools, hosted) =
        (OcmServer::start(false).await.unwrap(), OcmServer::start(true).await.unwrap());
    tokio::select! {
        // It is dropped when the others are done, as intended.
        () = run_machine_api(&site, &clock) => unreachable!("it never ends"),
        () = async {
            reuse(&site, &clock).await;
            managed(&site, &clock, &pools, "machine_pools").await;
            managed(&site, &clock, &hosted, "node_pools").await;
            // Last: a real garbage collector takes half a minute to discover new kinds.
            duplicate(&site, &clock).await;
        } => {}
    }
}

/// The objects of an OpenShift cluster: its kinds, its identity, a MachineSet for each of two
/// zones, one of them with a machine that existed before.
async fn prepare(site: &Site) {
    site.apply_file(&manifests().join("optional/scaling.yaml")).await;
    site.install_definitions().await;
    let kinds = gantry_yaml::read(include_str!("scaling/openshift.yaml")).unwrap();
    let kinds: Vec<Value> = kinds.iter().map(|it| it.to_json()).collect();
    for kind in &kinds {
        site.apply(kind).await;
    }
    let names = kinds.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned());
    let ours = gantry_api::object::KINDS.iter().map(|it| it.crd_name());
    for name in names.chain(ours) {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        site.until(&path, established).await;
    }
    let union = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gantry-wrapped";
    site.until(union, |it| it["rules"].to_string().contains("jobs")).await;
    let version = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
        "metadata": {"name": "version"}, "spec": {"clusterID": EXTERNAL_CLUSTER_ID, "channel": "stable-4.18"},
    });
    site.apply(&version).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"token": OFFLINE_TOKEN},
        "metadata": {"name": "instascale-ocm-secret", "namespace": "gantry-system"},
    });
    site.apply(&secret).await;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    site.apply(&namespace).await;
    for (name, replicas) in [("gpu-a", 1), ("gpu-b", 0)] {
        site.apply(&set(name, replicas)).await;
    }
}

fn established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Established" && it["status"] == "True")
}

fn set(name: &str, replicas: u32) -> Value {
    const CLUSTER_LABEL: &str = "machine.openshift.io/cluster-api-cluster";
    json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {CLUSTER_LABEL: "c-x2k9"}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {CLUSTER_LABEL: "c-x2k9", SET_LABEL: name}},
            "template": {
                "metadata": {"labels": {
                    CLUSTER_LABEL: "c-x2k9", SET_LABEL: name,
                    "machine.openshift.io/cluster-api-machine-role": "worker",
                    "machine.openshift.io/cluster-api-machine-type": "worker",
                }},
                "spec": {"providerSpec": {"value": {
                    "apiVersion": "machine.openshift.io/v1beta1", "kind": "AWSMachineProviderConfig",
                    "instanceType": INSTANCE, "ami": {"id": "ami-0"},
                    "placement": {"region": "eu-west-1", "availabilityZone": name},
                }}},
            },
        },
    })
}

/// Two pods with eight accelerators each. The Job is suspended, so that the test has time to check.
fn wrapper(name: &str) -> Value {
    let takes = json!({"cpu": "1", "nvidia.com/gpu": "8"});
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": name, "labels": {"orderedinstance": INSTANCE}},
        "spec": {"resources": {"GenericItems": [{
            "completionstatus": "Complete",
            "custompodresources": [{"replicas": 2, "requests": takes, "limits": takes}],
            "generictemplate": {
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                "spec": {
                    "suspend": true, "parallelism": 2, "completions": 2,
                    "template": {"spec": {
                        "restartPolicy": "Never",
                        "containers": [{
                            "name": "c", "image": "registry.k8s.io/pause:3.10.1",
                            "resources": {"requests": takes, "limits": takes},
                        }],
                    }},
                },
            },
        }]}},
    })
}

async fn operator(site: &Site, more: &str) -> Operator {
    let file = site.folder.path().join("gantry.yaml");
    std::fs::write(&file, format!("{CONFIG}{more}")).unwrap();
    let kubeconfig = site.kubeconfig().await;
    let flags =
        ["--config-file", file.to_str().unwrap(), "--kubeconfig", kubeconfig.to_str().unwrap()];
    Operator::start(&flags)
}

fn nodes_of(job: &str) -> String {
    format!("/api/v1/nodes?labelSelector={job}-default%3D{job}-default%2C{job}%3D{job}")
}

/// A job is submitted and gets its two nodes; it is dispatched, and holds them.
async fn wait_for_two_nodes(site: &Site, job: &str) -> Vec<String> {
    site.create(WRAPPERS, &wrapper(job)).await;
    let seen =
        site.until(&format!("{WRAPPERS}/{job}"), |it| it["status"]["state"] == "Running").await;
    let conditions = seen["status"]["conditions"].as_array().unwrap();
    let waited = |it: &Value| {
        it["type"] == "Backoff" && it["message"].to_string().contains("Insufficient resources")
    };
    assert!(conditions.iter().any(waited), "there was room before: {seen:#}");
    assert!(seen["metadata"]["finalizers"].to_string().contains(FINALIZER), "{seen:#}");
    let marked = |it: &Value| it["items"].as_array().is_some_and(|all| all.len() == 2);
    let nodes = site.until(&nodes_of(job), marked).await;
    let ledger = done(&site.get(GRANT_RECORD).await);
    let entries = ledger["data"].as_object().unwrap();
    assert_eq!(entries.len(), 1, "{ledger:#}");
    nodes["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

/// The job is resumed, and completes by itself.
async fn wait_for_completion(site: &Site, job: &str) {
    let on = json!({"spec": {"suspend": false}});
    done(&site.admin.send(Request::patch(format!("{JOBS}/{job}"), MERGE, &on)).await.unwrap());
    site.until(&format!("{WRAPPERS}/{job}"), |it| it["status"]["state"] == "Completed").await;
}

/// Nothing that was acquired is left: no node, no grant, no finalizer.
async fn wait_for_release(site: &Site, job: &str, nodes: &[String]) {
    for node in nodes {
        site.until(&format!("/api/v1/nodes/{node}"), |it| it["code"] == 404).await;
    }
    site.until(GRANT_RECORD, |it| it["data"].as_object().is_none_or(|it| it.is_empty())).await;
    let let_go = |it: &Value| !it["metadata"]["finalizers"].to_string().contains(FINALIZER);
    site.until(&format!("{WRAPPERS}/{job}"), let_go).await;
}

async fn machines(site: &Site) -> Vec<Value> {
    list(site, &format!("{API}/machines")).await
}

fn set_path(name: &str) -> String {
    format!("{API}/namespaces/{NAMESPACE}/machinesets/{name}")
}

async fn replicas(site: &Site) -> [u64; 2] {
    let of =
        async |name| done(&site.get(&set_path(name)).await)["spec"]["replicas"].as_u64().unwrap();
    [of("gpu-a").await, of("gpu-b").await]
}

async fn wait_until_idle(site: &Site) -> Value {
    let one = |it: &Value| it["items"].as_array().is_some_and(|all| all.len() == 1);
    let in_use = |it: &Value| one(it) && it["items"][0]["status"]["phase"] == "Running";
    site.until(&format!("{API}/machines"), in_use).await["items"][0].clone()
}

/// The sets of both zones are scaled up and down again; the machine that existed before stays.
async fn reuse(site: &Site, clock: &Clock) {
    let began = clock.moment();
    let old = wait_until_idle(site).await;
    let mut operator = operator(site, "  machineSetsStrategy: reuse\n").await;
    let nodes = wait_for_two_nodes(site, "again").await;
    assert_eq!(replicas(site).await, [2, 1], "the zones share it: {}", operator.said());
    let marked = machines(site).await;
    let marked =
        marked.iter().filter(|it| it["metadata"]["labels"]["again-default"] == "again-default");
    let mut names: Vec<&str> = marked.map(|it| it["metadata"]["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let mut expected = nodes.clone();
    expected.sort_unstable();
    assert_eq!(names, expected, "machines and nodes bear the same marks");
    assert!(!names.contains(&old["metadata"]["name"].as_str().unwrap()), "{names:?}");
    wait_for_completion(site, "again").await;
    wait_for_release(site, "again", &nodes).await;
    let left = wait_until_idle(site).await;
    assert_eq!(left["metadata"]["uid"], old["metadata"]["uid"], "it was there before");
    assert_eq!(left["metadata"]["labels"], old["metadata"]["labels"], "it is nobody's");
    assert_eq!(replicas(site).await, [1, 0]);
    assert!(operator.child.try_wait().unwrap().is_none(), "{}", operator.said());
    say(&format!(
        "two nodes came and went with MachineSets, reuse, in {:.1?}",
        clock.moment() - began
    ));
}

/// A copy of the set is created, and deleted with the job.
async fn duplicate(site: &Site, clock: &Clock) {
    let began = clock.moment();
    let before = done(&site.get(&set_path("gpu-a")).await);
    let mut operator = operator(site, "  machineSetsStrategy: duplicate\n").await;
    let nodes = wait_for_two_nodes(site, "copied").await;
    let path = set_path(&format!("copied-default-{INSTANCE}"));
    let copy = done(&site.get(&path).await);
    assert_eq!(copy["spec"]["replicas"], 2, "{copy:#}");
    assert_eq!(
        copy["metadata"]["labels"]["instascale.codeflare.dev-aw"], "copied-default",
        "{copy:#}"
    );
    let taint = json!([{"key": "copied", "value": "value1", "effect": "PreferNoSchedule"}]);
    assert_eq!(copy["spec"]["template"]["spec"]["taints"], taint, "{copy:#}");
    let value = |it: &Value| it["spec"]["template"]["spec"]["providerSpec"]["value"].clone();
    assert_eq!(value(&copy), value(&before), "unknown fields are copied");
    // This one does not end: it is deleted.
    done(&site.admin.send(Request::delete(format!("{WRAPPERS}/copied"))).await.unwrap());
    wait_for_release(site, "copied", &nodes).await;
    for path in [path, format!("{WRAPPERS}/copied"), format!("{JOBS}/copied")] {
        site.until(&path, |it| it["code"] == 404).await;
    }
    wait_until_idle(site).await;
    let after = done(&site.get(&set_path("gpu-a")).await);
    assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"], "{after:#}");
    assert!(operator.child.try_wait().unwrap().is_none(), "{}", operator.said());
    say(&format!(
        "two nodes came and went with MachineSets, duplicate, in {:.1?}",
        clock.moment() - began
    ));
}

/// One pool is created and deleted, though the service fails in every way it can.
async fn managed(site: &Site, clock: &Clock, service: &OcmServer, plural: &str) {
    let began = clock.moment();
    let job = plural.replace('_', "-");
    let place = format!("/api/clusters_mgmt/v1/clusters/{CLUSTER}/{plural}");
    let more = format!(
        "  ocmSecretRef: {{name: instascale-ocm-secret, namespace: gantry-system}}\n  \
         ocmUrl: {}\n  ocmTokenUrl: {}\n",
        service.url(),
        service.token_url()
    );
    let mut operator = operator(site, &more).await;
    let asked = format!("GET {place}?page=1&size=100");
    wait_until(clock, || service.requests().contains(&asked)).await;

    // The token has expired; then the service is unavailable, busy, and loses a response, so that
    // what is requested again exists already.
    service.revoke();
    service.inject_faults([Fault::Status(503, None), Fault::Status(429, Some(1)), Fault::Lost]);
    let nodes = tokio::select! {
        // Dropped when the nodes exist, and started again below.
        () = run_cloud(site, service, clock) => unreachable!("it never ends"),
        nodes = wait_for_two_nodes(site, &job) => nodes,
    };
    assert_eq!(service.pending_faults(), 0, "{:?}", service.requests());
    let pools = service.pools();
    assert_eq!(pools.len(), 1, "what was asked for twice was made once: {pools:?}");
    let id = pools[0]["id"].as_str().unwrap();
    assert_eq!(pools[0]["replicas"], 2, "{pools:?}");
    let tokens = service.tokens();
    assert!(tokens >= 2, "{tokens}");

    service.revoke();
    service.inject_faults([Fault::Status(503, None), Fault::Closed]);
    tokio::select! {
        // As above.
        () = run_cloud(site, service, clock) => unreachable!("it never ends"),
        () = async {
            wait_for_completion(site, &job).await;
            wait_for_release(site, &job, &nodes).await;
        } => {}
    }
    assert!(service.pools().is_empty(), "{:?}", service.pools());
    assert!(
        service.requests().contains(&format!("DELETE {place}/{id}")),
        "{:?}",
        service.requests()
    );
    assert!(service.tokens() > tokens, "{:?}", service.requests());
    assert!(operator.child.try_wait().unwrap().is_none(), "{}", operator.said());
    assert!(!operator.said().contains(OFFLINE_TOKEN), "the token is in no log");
    say(&format!("two nodes came and went with {plural} in {:.1?}", clock.moment() - began));
}

async fn wait_until(clock: &Clock, come: impl Fn() -> bool) {
    let give_up = clock.moment() + Duration::from_secs(60);
    while !come() {
        assert!(clock.moment() < give_up, "it does not come");
        clock.sleep(Duration::from_millis(10)).await;
    }
}
