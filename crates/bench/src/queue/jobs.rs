//! Runs MCAD's own benchmark: AppWrappers around Kubernetes Jobs, on nodes that kwok simulates.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use gantry_process::clock::Clock;
use gantry_process::tasks::Tasks;
use gantry_testkit::http::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use super::bench_server::{BenchServer, CONTROLLER_WARM_UP, OperatorSettings, RateLimit};
use super::operator_run::task_failure;
use super::program::{Cost, Program};
use super::requests::Requests;
use super::watch::{self, Watch};
use super::wrapper::APP_WRAPPERS;

/// Nodes of the benchmark; the original leaves their number open.
const NODES: usize = 10;
/// MCAD's client rate limit. It cannot be configured.
const MCAD_RATE_LIMIT: RateLimit = RateLimit(Some((100, 200)));

/// Paths of MCAD and its CRDs.
#[derive(Clone, Debug)]
pub(crate) struct Mcad {
    pub(crate) program: PathBuf,
    pub(crate) definitions: PathBuf,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct JobsOutcome {
    /// Time from the first AppWrapper until the last Job had succeeded.
    pub(crate) wall_time: Duration,
    pub(crate) cost: Cost,
    pub(crate) requests: Requests,
}

#[derive(Debug, Deserialize)]
struct Job {
    metadata: JobMetadata,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
struct JobMetadata {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    succeeded: u32,
}

/// Submits this many Jobs and waits until all have completed. The controller is MCAD if that is
/// given, else Gantry's operator at the same rate limit.
pub(crate) async fn measure(
    count: usize,
    mcad: Option<&Mcad>,
    clock: &Clock,
    tasks: &mut Tasks,
) -> anyhow::Result<JobsOutcome> {
    let server = BenchServer::real_with_controllers(clock).await?;
    let nodes: Vec<Value> = (0..NODES).map(node).collect();
    server.create("/api/v1/nodes", &nodes, tasks).await?;
    let path = format!("{APP_WRAPPERS}/namespaces/default/appwrappers");
    let mut controller = match mcad {
        Some(mcad) => {
            server.apply(&mcad.definitions).await?;
            let arguments: [OsString; 4] = [
                "--kubeconfig".into(),
                server.kubeconfig.clone().into(),
                "--healthProbeListenAddr".into(),
                "127.0.0.1:0".into(),
            ];
            Program::start("mcad", &mcad.program, &arguments, &server.folder())?
        }
        None => {
            server.create_definitions(tasks).await?;
            server.start_operator(&OperatorSettings { limit: MCAD_RATE_LIMIT, queue: "" })?
        }
    };
    let mut tasks = tasks.child();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let jobs = Watch::open(&server.target, jobs, clock).await?;
    let mut events = watch::events::<Job>(jobs, clock, &mut tasks);
    clock.sleep(CONTROLLER_WARM_UP).await;
    controller.ensure_running()?;
    let before = (controller.cost(), Requests::read(&server.clients[0]).await?);

    let start = clock.moment();
    let wrapped = (1..=count).map(app_wrapper);
    let wrapped = wrapped.map(|wrapped| Request::post(&path, &wrapped));
    server.send_all(wrapped, &mut tasks).await?;
    let mut succeeded = HashSet::new();
    let seen = async {
        while succeeded.len() < count {
            let seen = watch::next_event(&mut events, clock).await;
            let (event, _) = seen.with_context(|| {
                format!("{} of {count} jobs succeeded\n{}", succeeded.len(), controller.tail())
            })?;
            if event.object.status.succeeded > 0 {
                succeeded.insert(event.object.metadata.name);
            }
        }
        anyhow::Ok(clock.moment() - start)
    };
    let wall = tokio::select! {
        wall = seen => wall?,
        lost = task_failure(&mut tasks) => return Err(lost),
    };
    let (after, requests) = (controller.cost(), Requests::read(&server.clients[0]).await?);
    controller.ensure_running()?;
    let cost = Cost { cpu: after.cpu.saturating_sub(before.0.cpu), peak: after.peak };
    Ok(JobsOutcome { wall_time: wall, cost, requests: requests.since(&before.1) })
}

/// A node as MCAD's script creates them.
fn node(index: usize) -> Value {
    let name = format!("kwok-node-{index}");
    let capacity = json!({"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "32", "pods": "110"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"},
        },
        "spec": {"taints": [
            {"effect": "NoSchedule", "key": "kwok.x-k8s.io/node", "value": "fake"}]},
        "status": {"allocatable": capacity, "capacity": capacity},
    })
}

/// An AppWrapper as MCAD's script creates them.
fn app_wrapper(index: usize) -> Value {
    let name = format!("fake-defaultaw-schd-spec-with-timeout-{index}");
    let on_kwok = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [
            {"key": "type", "operator": "In", "values": ["kwok"]}]}]}}});
    let pod = json!({
        "metadata": {"labels": {"appwrapper.mcad.ibm.com": name}},
        "spec": {
            "affinity": on_kwok,
            "tolerations": [
                {"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [{"name": "main", "image": "fake-image"}],
            "restartPolicy": "Never",
        },
    });
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulingSpec": {
                "minAvailable": 1,
                "requeuing": {"timeInSeconds": 120, "growthType": "exponential"},
            },
            "priority": 9,
            "resources": {"GenericItems": [{
                "replicas": 1,
                "completionstatus": "Complete",
                "custompodresources": [{
                    "replicas": 1,
                    "requests": {"cpu": "10m", "memory": "10M", "nvidia.com/gpu": 0},
                    "limits": {"cpu": "500m", "memory": "128M", "nvidia.com/gpu": 0},
                }],
                "generictemplate": {
                    "apiVersion": "batch/v1", "kind": "Job",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {"parallelism": 1, "completions": 1, "template": pod},
                },
            }]},
        },
    })
}

#[cfg(test)]
mod tests {
    use gantry_pods::view::Node;
    use gantry_queue::app_wrapper::AppWrapper;
    use gantry_queue::gang::Gang;

    use super::*;

    #[test]
    fn p_6_a_thousand_jobs_may_be_on_the_nodes_there_are_at_once() {
        let node: Node = serde_json::from_value(node(0)).unwrap();
        let wrapped: AppWrapper = serde_json::from_value(app_wrapper(1_000)).unwrap();
        let gang = Gang::of(&wrapped);
        assert_eq!(gang.count(), 1);
        let pod = &gang.pods[0];
        assert_eq!(
            (pod.requests.cpu, pod.requests.memory),
            (10, 10_000_000),
            "the declared requests"
        );
        assert!(pod.node_constraints.allows_node(&node), "it tolerates simulated nodes");
        let capacity = |name: &str| node.status.allocatable[name].value_rounded_up();
        let each = i64::try_from(1_000 / NODES).unwrap();
        assert!(capacity("cpu") * 1_000 / pod.requests.cpu >= each);
        assert!(capacity("pods") >= each);
    }
}
