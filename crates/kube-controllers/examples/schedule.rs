//! Measures the scheduler: `cargo run -p gantry-kube-controllers --example schedule -- 500 20000`.
//!
//! Pods are pending in a world of nodes; plans are made and executed in memory until no pod is
//! pending.

use std::io::Write as _;

use gantry_kube_controllers::scheduler::Scheduler;
use gantry_kube_controllers::view::{Namespace, Node, Pod};
use gantry_process::clock::Clock;
use gantry_reconcile::{Controller, Key, View, World, Write};
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut counts = std::env::args().skip(1).map(|it| it.parse::<u32>());
    let nodes = counts.next().transpose()?.unwrap_or(500);
    let pods = counts.next().transpose()?.unwrap_or(20_000);
    let clock = Clock::system();
    let world = World::new(Scheduler.kinds());
    world.store::<Namespace>().set(serde_json::from_value(json!({"metadata": {"name": "d"}}))?);
    for n in 0..nodes {
        let name = format!("n{n}");
        let labels = json!({
            "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("z{}", n % 3),
        });
        world.store::<Node>().set(serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}},
        }))?);
    }
    for n in 0..pods {
        let owner = format!("rs{}", n % 100);
        world.store::<Pod>().set(serde_json::from_value(json!({
            "metadata": {
                "name": format!("p{n}"), "namespace": "d", "uid": format!("u{n}"),
                "labels": {"app": owner},
                "ownerReferences": [{
                    "kind": "ReplicaSet",
                    "name": owner,
                    "uid": owner,
                    "controller": true,
                }],
            },
            "spec": {"schedulerName": "default-scheduler", "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
            ]},
        }))?);
    }
    let (begin, mut plans, mut bound) = (clock.moment(), 0_u32, 0_u32);
    let mut longest = std::time::Duration::ZERO;
    loop {
        let before = clock.moment();
        let plan = Scheduler.plan(&world, &Key::cluster("all"), clock.now());
        longest = longest.max(clock.moment() - before);
        plans += 1;
        for step in &plan.steps {
            if let Write::Bind { key, .. } = &step.write {
                let pod = world.store::<Pod>().get(key);
                if let Some(next) = pod.and_then(|it| it.after(&step.write)) {
                    world.store::<Pod>().set(next);
                    bound += 1;
                }
            }
        }
        if plan.requeue_after.is_none() {
            break;
        }
    }
    let took = clock.moment() - begin;
    writeln!(
        std::io::stdout(),
        "{nodes} nodes, {pods} pods: {bound} placed by {plans} plans in {took:.2?}, the longest \
         {longest:.2?}"
    )?;
    Ok(())
}
