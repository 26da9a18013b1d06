//! MCAD's own measurement: AppWrappers around Jobs of Kubernetes, on nodes that kwok plays.

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

use super::program::{Cost, Program};
use super::requests::Requests;
use super::scene::lost;
use super::stage::{Limit, Operator, SETTLE, Stage};
use super::watch::{self, Watch};
use super::wrapper::APP_WRAPPERS;

/// Nodes of the measurement; the original leaves their number open.
const NODES: usize = 10;
/// The rate that MCAD has. It cannot be set.
const OWN: Limit = Limit(Some((100, 200)));

/// Where MCAD and its definitions are.
#[derive(Clone, Debug)]
pub(crate) struct Mcad {
    pub(crate) program: PathBuf,
    pub(crate) definitions: PathBuf,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Done {
    /// From the first AppWrapper until the last Job had succeeded.
    pub(crate) wall: Duration,
    pub(crate) cost: Cost,
    pub(crate) requests: Requests,
}

#[derive(Debug, Deserialize)]
struct Job {
    metadata: Name,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
struct Name {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    succeeded: u32,
}

/// Lets so many Jobs wait and run. The controller is MCAD where that is given, else our operator at
/// the same rate.
pub(crate) async fn measure(
    count: usize,
    mcad: Option<&Mcad>,
    clock: &Clock,
    tasks: &mut Tasks,
) -> anyhow::Result<Done> {
    let stage = Stage::whole(clock).await?;
    let nodes: Vec<Value> = (0..NODES).map(node).collect();
    stage.create("/api/v1/nodes", &nodes, tasks).await?;
    let path = format!("{APP_WRAPPERS}/namespaces/default/appwrappers");
    let mut controller = match mcad {
        Some(mcad) => {
            stage.apply(&mcad.definitions).await?;
            let arguments: [OsString; 4] = [
                "--kubeconfig".into(),
                stage.kubeconfig.clone().into(),
                "--healthProbeListenAddr".into(),
                "127.0.0.1:0".into(),
            ];
            Program::start("mcad", &mcad.program, &arguments, &stage.folder())?
        }
        None => {
            stage.define(tasks).await?;
            stage.operator(&Operator { limit: OWN, queue: "" })?
        }
    };
    let mut tasks = tasks.child();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let jobs = Watch::open(&stage.target, jobs, clock).await?;
    let mut events = watch::events::<Job>(jobs, clock, &mut tasks);
    clock.sleep(SETTLE).await;
    controller.must_run()?;
    let before = (controller.cost(), Requests::read(&stage.clients[0]).await?);

    let start = clock.moment();
    let wrapped = (1..=count).map(app_wrapper);
    let wrapped = wrapped.map(|wrapped| Request::post(&path, &wrapped));
    stage.send_all(wrapped, &mut tasks).await?;
    let mut succeeded = HashSet::new();
    let seen = async {
        while succeeded.len() < count {
            let seen = watch::seen(&mut events, clock).await;
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
        lost = lost(&mut tasks) => return Err(lost),
    };
    let (after, requests) = (controller.cost(), Requests::read(&stage.clients[0]).await?);
    controller.must_run()?;
    let cost = Cost { cpu: after.cpu.saturating_sub(before.0.cpu), peak: after.peak };
    Ok(Done { wall, cost, requests: requests.since(&before.1) })
}

/// A node as MCAD's script makes them.
fn node(index: usize) -> Value {
    let name = format!("kwok-node-{index}");
    let room = json!({"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "32", "pods": "110"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"},
        },
        "spec": {"taints": [
            {"effect": "NoSchedule", "key": "kwok.x-k8s.io/node", "value": "fake"}]},
        "status": {"allocatable": room, "capacity": room},
    })
}

/// An AppWrapper as MCAD's script makes them.
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
    use gantry_pods::gang::Gang;
    use gantry_pods::view::Node;
    use gantry_queue::app_wrapper::AppWrapper;

    use super::*;

    #[test]
    fn p_6_a_thousand_jobs_may_be_on_the_nodes_there_are_at_once() {
        let node: Node = serde_json::from_value(node(0)).unwrap();
        let wrapped: AppWrapper = serde_json::from_value(app_wrapper(1_000)).unwrap();
        let gang = Gang::of(&wrapped);
        assert_eq!(gang.count(), 1);
        let pod = &gang.squads[0];
        assert_eq!((pod.requests.cpu, pod.requests.memory), (10, 10_000_000), "as is declared");
        assert!(pod.wishes.allow(&node), "it puts up with nodes that are played");
        let room = |name: &str| node.status.allocatable[name].value_rounded_up();
        let each = i64::try_from(1_000 / NODES).unwrap();
        assert!(room("cpu") * 1_000 / pod.requests.cpu >= each);
        assert!(room("pods") >= each);
    }
}
