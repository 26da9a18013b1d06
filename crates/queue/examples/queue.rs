//! What a decision costs: 5,000 nodes, 50,000 pods, and up to 100,000 AppWrappers that wait. Build with
//! optimisation for figures that mean something.
#![expect(clippy::print_stdout, reason = "a measurement prints what it measured")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::time::{Duration, Instant};

use gantry_pods::view::{Node, Pod};
use gantry_queue::app_wrapper::AppWrapper;
use gantry_queue::{Dispatch, Live, Settings};
use gantry_reconcile::{Controller as _, Key, Resource, View as _, World, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

const NODES: usize = 5_000;
const PODS: usize = 50_000;
/// Admissions that are measured.
const ROUNDS: u32 = 200;

type Fault = Box<dyn std::error::Error>;

fn main() -> Result<(), Fault> {
    let live = Live::new(Settings::default());
    println!(
        "{:>9} {:>12} {:>12} {:>12}   microseconds",
        "waiting", "a change", "no room", "a passage"
    );
    for waiting in [1_000, 10_000, 100_000] {
        measure(&Dispatch::new(live.clone()), waiting)?;
    }
    Ok(())
}

fn measure(dispatch: &Dispatch, waiting: usize) -> Result<(), Fault> {
    let world = World::new(dispatch.kinds());
    let mut revision = 0;
    let mut show = |resource: &Resource, mut object: Value| -> Result<bool, Fault> {
        revision += 1;
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        let shelf = world.find(resource).ok_or("the world has no such kind")?;
        let change = shelf.saw(&object.to_string())?;
        Ok(change.is_some_and(|it| !dispatch.wakes(&world, &it).is_empty()))
    };
    for at in 0..NODES {
        show(&Node::RESOURCE, node(at, 10))?;
    }
    for at in 0..PODS {
        show(&Pod::RESOURCE, pod(at, "1"))?;
    }
    for at in 0..waiting {
        show(&AppWrapper::RESOURCE, wrapper(at))?;
    }
    let now: Timestamp = "2026-01-02T00:00:00Z".parse()?;
    let queue = Key::cluster("queue");

    // Every node is full, and nobody passes.
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let plan = dispatch.plan(&world, &queue, now);
        if plan.steps.iter().any(|step| passes(&step.write)) {
            return Err("there was room in a full cluster".into());
        }
    }
    let misfit = start.elapsed();

    // One pod ends, one passes.
    let (mut change, mut passage) = (Duration::ZERO, Duration::ZERO);
    for at in 0..usize::try_from(ROUNDS)? {
        let start = Instant::now();
        show(&Pod::RESOURCE, pod(at, "0"))?;
        change += start.elapsed();
        let start = Instant::now();
        let plan = dispatch.plan(&world, &queue, now);
        passage += start.elapsed();
        let passed: Vec<&Write> =
            plan.steps.iter().map(|it| &it.write).filter(|it| passes(it)).collect();
        let [Write::Merge { key, body, .. }] = passed[..] else {
            return Err(format!("{} passed instead of one", passed.len()).into());
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

fn passes(write: &Write) -> bool {
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

/// Jobs of three sizes and priorities, the smallest of which is the most important.
fn wrapper(at: usize) -> Value {
    let (priority, cpu) = [(200, 1), (100, 5), (50, 20)][at % 3];
    json!({
        "metadata": {"name": format!("job-{at}"), "namespace": "bench", "uid": format!("w{at}"),
                     "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"priority": priority, "resources": {"GenericItems": [
            {"custompodresources": [{"replicas": 1, "requests": {"cpu": cpu}}]}]}},
        "status": {"state": "Pending", "queuejobstate": "Queueing"},
    })
}
