//! Pods find nodes, live and leave, whatever goes wrong on the way.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_harness::{Action, Faults, Scenario, Server, prove_worlds};
use gantry_reconcile::{Controller, Key, Note, Propagation, Resource, View};
use serde_json::{Value, json};

use super::{Nodes, Pods, Profile, Ranges, Settings};
use crate::scheduler::Scheduler;
use crate::stand::{bad, is_bad, proven};
use crate::view::{Lease, Node, Pod};

fn node(name: &str) -> (Resource, Value) {
    let capacity = json!({"cpu": "4", "pods": "5"}).to_string();
    let annotations = json!({"kwok.x-k8s.io/node": "fake", "gantry.dev/sim-capacity": capacity});
    let meta = json!({"name": name, "annotations": annotations});
    (Node::RESOURCE, json!({"metadata": meta, "spec": {"unschedulable": false}}))
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

/// What the server fills in: here a node says what it has when it is made.
fn defaults(resource: &Resource, object: &mut Value) {
    if *resource == Node::RESOURCE && object["status"].is_null() {
        object["status"] = json!({"allocatable": {"cpu": "4", "pods": "5"}});
    }
}

fn key(name: &str) -> Key {
    Key::new("default", name)
}

/// How far each pod is, whether it has a node, and its restarts.
fn shape(server: &Server) -> Value {
    let all = server.list(&Pod::RESOURCE).into_iter();
    let all = all.filter(|it| !is_bad(&it["metadata"]["name"])).map(|pod| {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        let placed = pod["spec"]["nodeName"].is_string();
        let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
        // How far it was when it was told to go is a matter of time.
        let said = match pod["metadata"]["deletionTimestamp"].is_string() {
            true => json!("going"),
            false => json!([pod["status"]["phase"], placed, restarts]),
        };
        (name, said)
    });
    all.collect()
}

#[test]
fn pods_end_where_they_should() {
    let settings = Settings { profile: Profile::General, ..Settings::default() };
    let (ranges, pods) = (Ranges::new(settings.clone()), Pods::new(settings));
    let controllers: [&dyn Controller; 3] = [&Scheduler, &ranges, &pods];
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
        defaults,
        objects: vec![
            node("n0"),
            node("n1"),
            pod("a", "2", &json!({})),
            pod("b", "2", &json!({})),
            pod("kept", "2", &kept),
            pod("once", "2", &once()),
            pod("large", "5", &json!({})),
        ],
        script,
        replicas: 1,
        horizon: Duration::from_secs(120),
        ..Scenario::default()
    };
    let calm = scenario.run(0, Faults::none()).unwrap();
    let expected = json!({
        "b": ["Running", true, 0],
        "kept": "going",
        "large": [null, false, null],
        "late": ["Running", true, 0],
        "once": ["Succeeded", true, 1],
    });
    assert_eq!(shape(&calm.server), expected);
    proven(scenario.prove_faults(0..4, shape));
    let mut wrong = bad("pod", "/spec/containers", |name| pod(name, "100m", &json!({})));
    wrong.extend(bad("node", "/spec/unschedulable", |name| {
        let (resource, mut node) = node(name);
        // Nobody shall be given to a node that gets no range.
        node["spec"]["unschedulable"] = json!(true);
        (resource, node)
    }));
    proven(scenario.prove_apart(&wrong, 0..2, shape));
}

/// The controllers of pods, before a world with two nodes.
fn pods<'a>(
    controllers: &'a [&'a dyn Controller],
    pods: Vec<(Resource, Value)>,
    script: Vec<Action>,
) -> Scenario<'a> {
    let objects = [node("n0"), node("n1")].into_iter().chain(pods).collect();
    let horizon = Duration::from_secs(60);
    Scenario { controllers, defaults, objects, script, replicas: 1, horizon, ..Scenario::default() }
}

/// Fails once and is started again.
fn once() -> Value {
    json!({
        "metadata": {"annotations": {"gantry.dev/sim-run-for": "3s", "gantry.dev/sim-exit-code": "1,0"}},
        "spec": {"restartPolicy": "OnFailure"},
    })
}

#[test]
fn pods_survive_a_crash_at_every_move() {
    let settings = Settings { profile: Profile::General, ..Settings::default() };
    let (ranges, kubelet) = (Ranges::new(settings.clone()), Pods::new(settings));
    let controllers: [&dyn Controller; 3] = [&Scheduler, &ranges, &kubelet];
    let delete: Action =
        Box::new(|server| server.delete(&Pod::RESOURCE, &key("goes"), Propagation::Background));
    let all = vec![pod("goes", "1", &json!({})), pod("once", "1", &once())];
    let scenario = pods(&controllers, all, vec![delete]);
    proven(scenario.prove_crashes(1, shape));
}

#[test]
fn pods_of_any_world_end_in_one_place() {
    let settings = Settings { profile: Profile::General, ..Settings::default() };
    let (ranges, kubelet) = (Ranges::new(settings.clone()), Pods::new(settings));
    let controllers: [&dyn Controller; 3] = [&Scheduler, &ranges, &kubelet];
    let world = |seed| {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let names = ["a", "b", "c"];
        let all = names.map(|name| {
            let more = match rng.u32(..5) {
                0 => once(),
                1 => json!({"spec": {"restartPolicy": "Never"}, "metadata": {"annotations": {
                    "gantry.dev/sim-run-for": "2s", "gantry.dev/sim-exit-code": "3",
                }}}),
                2 => json!({"spec": {"initContainers": [{"name": "i", "image": "i"}]}}),
                3 => json!({"metadata": {"annotations": {"gantry.dev/sim-never-ready": "true"}}}),
                _ => json!({}),
            };
            pod(name, ["1", "2", "9"][rng.usize(..3)], &more)
        });
        let gone = names[rng.usize(..3)];
        let delete: Action = Box::new(move |server| {
            server.delete(&Pod::RESOURCE, &key(gone), Propagation::Background);
        });
        pods(&controllers, all.to_vec(), if rng.bool() { vec![delete] } else { vec![] })
    };
    proven(prove_worlds(0..12, world, shape));
}

/// However late the news, and with two processes that both believe to lead: what is told of a pod
/// is told when the write it belongs to has landed, and so once.
#[test]
fn what_happens_to_a_pod_is_told_once() {
    let settings = Settings { profile: Profile::General, ..Settings::default() };
    let (ranges, kubelet) = (Ranges::new(settings.clone()), Pods::new(settings));
    let controllers: [&dyn Controller; 3] = [&Scheduler, &ranges, &kubelet];
    let all = vec![pod("runs", "1", &json!({})), pod("once", "1", &once())];
    let mut scenario = pods(&controllers, all, vec![]);
    scenario.replicas = 2;
    for seed in 0..10 {
        let faults = Faults { relists: 20, ..Faults::none() };
        let ending = scenario.run(seed, faults).unwrap_or_else(|failure| panic!("{failure}"));
        let count = |name: &str, reason: &str| {
            let about = |it: &&Note| it.about.key.name() == name && it.reason == reason;
            ending.notes.iter().filter(about).count()
        };
        for (reason, starts) in [("Scheduled", 1), ("Pulled", 2), ("Created", 2), ("Started", 2)] {
            assert_eq!(count("runs", reason), 1, "seed {seed}: {reason}");
            assert_eq!(count("once", reason), starts, "seed {seed}: {reason}");
        }
    }
}

/// Nodes never rest; but whatever happens, each ends with a range of its own, ready, and heard of.
#[test]
fn nodes_end_ready() {
    let settings = Settings::default();
    let (ranges, nodes) = (Ranges::new(settings.clone()), Nodes::new(settings));
    let scenario = Scenario {
        controllers: &[&ranges, &nodes],
        defaults,
        objects: (0..2).map(|n| node(&format!("n{n}"))).collect(),
        script: vec![Box::new(|server| {
            server.edit(&Lease::RESOURCE, &Key::new("kube-node-lease", "n1"), |it| {
                it["spec"]["renewTime"] = Value::Null;
            });
        })],
        replicas: 1,
        horizon: Duration::from_secs(30),
        ..Scenario::default()
    };
    // How many ranges there are; and of each node whether it is ready and was heard of lately.
    let shape = |server: &Server| {
        let nodes = server.list(&Node::RESOURCE).into_iter();
        let nodes: Vec<&Value> = nodes.filter(|it| !is_bad(&it["metadata"]["name"])).collect();
        let ranges: BTreeSet<&str> =
            nodes.iter().filter_map(|it| it["spec"]["podCIDR"].as_str()).collect();
        let well = nodes.iter().map(|node| {
            let name = node["metadata"]["name"].as_str().unwrap();
            let lease = server.get(&Lease::RESOURCE, &Key::new("kube-node-lease", name));
            let renewed = lease.and_then(|it| it["spec"]["renewTime"].as_str());
            let renewed = renewed.and_then(|it| it.parse::<jiff::Timestamp>().ok());
            let age = renewed.map(|it| server.now().duration_since(it).as_secs());
            json!([node["status"]["conditions"][0]["status"], age.is_some_and(|age| age <= 11)])
        });
        json!([ranges.len(), well.collect::<Vec<_>>()])
    };
    let calm = scenario.run(0, Faults::none()).unwrap();
    assert_eq!(shape(&calm.server), json!([2, [["True", true], ["True", true]]]));
    proven(scenario.prove_restless(0..4, shape));
    proven(scenario.prove_apart(&bad("node", "/spec/unschedulable", node), 0..2, shape));
}
