//! Pods find nodes, live and leave, whatever goes wrong on the way.

use std::time::Duration;

use gantry_reconcile::harness::{Action, Scenario, Server};
use gantry_reconcile::{Controller, Key, Propagation, Resource, View};
use serde_json::{Value, json};

use super::{Nodes, Pods, Profile, Ranges, Settings};
use crate::scheduler::Scheduler;
use crate::view::{Lease, Node, Pod};

fn node(name: &str) -> (Resource, Value) {
    let capacity = json!({"cpu": "4", "pods": "5"}).to_string();
    let annotations = json!({"kwok.x-k8s.io/node": "fake", "gantry.dev/sim-capacity": capacity});
    let status = json!({"allocatable": {"cpu": "4", "pods": "5"}});
    let meta = json!({"name": name, "annotations": annotations});
    (Node::RESOURCE, json!({"metadata": meta, "spec": {}, "status": status}))
}

fn pod(name: &str, cpu: &str, more: &Value) -> (Resource, Value) {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "default-scheduler",
            "restartPolicy": "Always",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
        },
    });
    for (part, fields) in more.as_object().unwrap() {
        for (name, value) in fields.as_object().unwrap() {
            pod[part][name] = value.clone();
        }
    }
    (Pod::RESOURCE, pod)
}

fn key(name: &str) -> Key {
    Key::new("default", name)
}

/// How far each pod is, whether it has a node, and its restarts.
fn shape(server: &Server) -> Value {
    let all = server.list(&Pod::RESOURCE).into_iter().map(|pod| {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        let placed = pod["spec"]["nodeName"].is_string();
        let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
        (name, json!([pod["status"]["phase"], placed, restarts]))
    });
    all.collect()
}

#[test]
fn pods_end_where_they_should() {
    let settings = Settings { profile: Profile::General, ..Settings::default() };
    let (ranges, pods) = (Ranges::new(settings.clone()), Pods::new(settings));
    let controllers: [&dyn Controller; 3] = [&Scheduler, &ranges, &pods];
    let once = json!({
        "metadata": {"annotations": {"gantry.dev/sim-run-for": "3s", "gantry.dev/sim-exit-code": "1,0"}},
        "spec": {"restartPolicy": "OnFailure"},
    });
    let kept = json!({"metadata": {"finalizers": ["example.com/kept"]}});
    let script: Vec<Action> = vec![
        Box::new(|server| {
            let (resource, node) = node("n2");
            server.create(&resource, node);
        }),
        Box::new(|server| server.delete(&Pod::RESOURCE, &key("a"), Propagation::Background)),
        Box::new(|server| server.delete(&Pod::RESOURCE, &key("kept"), Propagation::Background)),
        Box::new(|server| {
            let (resource, pod) = pod("late", "2", &json!({}));
            server.create(&resource, pod);
        }),
    ];
    let scenario = Scenario {
        controllers: &controllers,
        defaults: |_, _| {},
        objects: vec![
            node("n0"),
            node("n1"),
            pod("a", "2", &json!({})),
            pod("b", "2", &json!({})),
            pod("kept", "2", &kept),
            pod("once", "2", &once),
            pod("large", "5", &json!({})),
        ],
        script,
        replicas: 1,
        horizon: Duration::from_secs(120),
    };
    scenario.prove(0..12, shape).unwrap();
}

/// Nodes never rest; but whatever happens, each ends with a range of its own, ready, and heard of.
#[test]
fn nodes_end_ready() {
    let settings = Settings::default();
    let (ranges, nodes) = (Ranges::new(settings.clone()), Nodes::new(settings));
    let scenario = Scenario {
        controllers: &[&ranges, &nodes],
        defaults: |_, _| {},
        objects: (0..4).map(|n| node(&format!("n{n}"))).collect(),
        script: vec![Box::new(|server| {
            server.edit(&Lease::RESOURCE, &Key::new("kube-node-lease", "n1"), |it| {
                it["spec"]["renewTime"] = Value::Null;
            });
        })],
        replicas: 1,
        horizon: Duration::from_secs(30),
    };
    for seed in 0..12 {
        let ending = scenario.run(seed, gantry_reconcile::harness::Faults::some()).unwrap();
        let nodes = ending.server.list(&Node::RESOURCE);
        let ranges: std::collections::BTreeSet<&str> =
            nodes.iter().map(|it| it["spec"]["podCIDR"].as_str().unwrap()).collect();
        assert_eq!(ranges.len(), 4, "seed {seed}: {ranges:?}");
        for node in nodes {
            assert_eq!(node["status"]["conditions"][0]["status"], "True", "seed {seed}");
            let name = node["metadata"]["name"].as_str().unwrap();
            let lease = ending.server.get(&Lease::RESOURCE, &Key::new("kube-node-lease", name));
            let renewed = lease.unwrap()["spec"]["renewTime"].as_str().unwrap();
            let renewed: jiff::Timestamp = renewed.parse().unwrap();
            let age = ending.server.now().duration_since(renewed).as_secs();
            assert!(age <= 11, "seed {seed}: {name} was heard of {age}s ago");
        }
    }
}
