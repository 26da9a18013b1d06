//! Measures what an admission cycle costs: 5,000 nodes, 50,000 pods, and up to 100,000 pending
//! AppWrappers; then the same where they are charged to 300 leaves of a quota tree, and 5,000
//! others are already. Build with optimisation for figures that mean something.
#![expect(clippy::print_stdout, reason = "a measurement prints what it measured")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::time::{Duration, Instant};

use gantry_pods::view::{Node, Pod};
use gantry_queue::app_wrapper::AppWrapper;
use gantry_queue::quota::Subtree;
use gantry_queue::{Dispatch, LiveSettings, Settings};
use gantry_reconcile::{Controller as _, Resource, View as _, World, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

const NODES: usize = 5_000;
const PODS: usize = 50_000;
/// The leaves of the quota tree, and the AppWrappers that hold some of its quota.
const LEAVES: usize = 300;
const ADMITTED: usize = 5_000;
/// The number of admissions that are measured.
const ROUNDS: u32 = 200;

type BoxError = Box<dyn std::error::Error>;

fn main() -> Result<(), BoxError> {
    for quota in [false, true] {
        let live = LiveSettings::new(Settings { quota, ..Settings::default() });
        println!(
            "{:>9} {:>12} {:>12} {:>12}   microseconds{}",
            "waiting",
            "a change",
            "no room",
            "a passage",
            if quota { ", with a quota tree" } else { "" }
        );
        for waiting in [1_000, 10_000, 100_000] {
            measure(&Dispatch::new(live.clone()), waiting, quota)?;
        }
    }
    Ok(())
}

fn measure(dispatch: &Dispatch, waiting: usize, quota: bool) -> Result<(), BoxError> {
    let world = World::new(dispatch.kinds());
    let mut revision = 0;
    let mut show = |resource: &Resource, mut object: Value| -> Result<bool, BoxError> {
        revision += 1;
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        let store = world.single_store_for(resource).ok_or("the world has no such kind")?;
        let change = store.observe(&object.to_string())?;
        Ok(change.is_some_and(|it| !dispatch.enqueue(&world, &it).is_empty()))
    };
    for at in 0..NODES {
        show(&Node::RESOURCE, node(at, 10))?;
    }
    for at in 0..PODS {
        show(&Pod::RESOURCE, pod(at, "1"))?;
    }
    if quota {
        for subtree in tree() {
            show(&Subtree::RESOURCE, subtree)?;
        }
        for at in 0..ADMITTED {
            let mut holder = wrapper(waiting + at);
            holder["status"] =
                json!({"state": "Running", "queuejobstate": "Running", "canrun": true});
            show(&AppWrapper::RESOURCE, holder)?;
        }
        for at in 0..ADMITTED {
            // What they reserve is used by a pod of theirs on a node of its own.
            let (node, pod) = held(waiting + at);
            show(&Node::RESOURCE, node)?;
            show(&Pod::RESOURCE, pod)?;
        }
    }
    for at in 0..waiting {
        show(&AppWrapper::RESOURCE, wrapper(at))?;
    }
    let now: Timestamp = "2026-01-02T00:00:00Z".parse()?;
    let queue = Dispatch::queue_key();

    // Every node is full, and none is admitted.
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let plan = dispatch.plan(&world, &queue, now);
        if plan.steps.iter().any(|step| admits(&step.write)) {
            return Err("there was room in a full cluster".into());
        }
    }
    let misfit = start.elapsed();

    // One pod ends, one AppWrapper is admitted.
    let (mut change, mut passage) = (Duration::ZERO, Duration::ZERO);
    for at in 0..usize::try_from(ROUNDS)? {
        let start = Instant::now();
        show(&Pod::RESOURCE, pod(at, "0"))?;
        change += start.elapsed();
        let start = Instant::now();
        let plan = dispatch.plan(&world, &queue, now);
        passage += start.elapsed();
        let passed: Vec<&Write> =
            plan.steps.iter().map(|it| &it.write).filter(|it| admits(it)).collect();
        let [Write::Merge { key, body, .. }] = passed[..] else {
            return Err(format!("{} admitted instead of one", passed.len()).into());
        };
        let number: usize = key.name().trim_start_matches("job-").parse()?;
        let mut after = wrapper(number);
        after["status"] = body["status"].clone();
        after["status"]["state"] = json!("Pending");
        show(&AppWrapper::RESOURCE, after)?;
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(ROUNDS);
    println!("{waiting:>9} {:>12.1} {:>12.1} {:>12.1}", each(change), each(misfit), each(passage));
    Ok(())
}

fn admits(write: &Write) -> bool {
    matches!(write, Write::Merge { body, .. } if body["status"]["canrun"] == true)
}

fn node(at: usize, cpu: i64) -> Value {
    json!({
        "metadata": {"name": format!("node-{at}"), "uid": format!("n{at}")},
        "status": {"allocatable": {"cpu": cpu, "memory": "64Gi"},
                   "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pod(at: usize, cpu: &str) -> Value {
    json!({
        "metadata": {"name": format!("pod-{at}"), "namespace": "bench", "uid": format!("p{at}")},
        "spec": {"nodeName": format!("node-{}", at % NODES),
                 "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Running"},
    })
}

/// Returns priority and cpus of a job.
fn demand(at: usize) -> (i32, i64) {
    [(200, 1), (100, 5), (50, 20)][at % 3]
}

/// Returns jobs of three sizes and priorities, the smallest of which has the highest priority.
fn wrapper(at: usize) -> Value {
    let (priority, cpu) = demand(at);
    json!({
        "metadata": {
            "name": format!("job-{at}"), "namespace": "bench", "uid": format!("w{at}"),
            "labels": {"tree": format!("leaf-{}", at % LEAVES), "app": format!("job-{at}")},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"priority": priority, "resources": {"GenericItems": [
            {"custompodresources": [{"replicas": 1, "requests": {"cpu": cpu}}]}]}},
        "status": {"state": "Pending", "queuejobstate": "Queueing"},
    })
}

/// Returns a node, and a pod of an AppWrapper that uses all of it.
fn held(at: usize) -> (Value, Value) {
    let mut taken = pod(at + PODS, &demand(at).1.to_string());
    taken["metadata"]["labels"] = json!({"appwrapper.mcad.ibm.com": format!("job-{at}")});
    taken["spec"]["nodeName"] = json!(format!("node-{}", at + NODES));
    (node(at + NODES, demand(at).1), taken)
}

/// Returns one tree: a root with enough for all, and leaves below it.
fn tree() -> [Value; 2] {
    let leaf = |at| json!({"name": format!("leaf-{at}"), "quotas": {"requests": {"cpu": 100}}});
    let mut leaves: Vec<Value> = (0..LEAVES).map(leaf).collect();
    leaves.push(json!({"name": "default"}));
    let subtree = |name: &str, spec: Value| {
        json!({
            "metadata": {
                "name": name, "namespace": "bench", "uid": name, "labels": {"tree": "tree"},
            },
            "spec": spec,
        })
    };
    let root = json!([{"name": "root", "quotas": {"requests": {"cpu": 1_000_000}}}]);
    [
        subtree("top", json!({"children": root})),
        subtree("leaves", json!({"parent": "root", "children": leaves})),
    ]
}
