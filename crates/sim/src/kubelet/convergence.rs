//! Convergence tests: pods are scheduled, run and are deleted, whatever goes wrong on the way.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_harness::{ExternalSystems, Faults, Scenario, Server, UserAction, prove_worlds};
use gantry_reconcile::{Controller, Event, Key, Propagation, Resource, View, World};
use serde_json::{Value, json};

use super::{PodCidrAllocator, Profile, Settings, SimulatedNodes, SimulatedPods, annotation};
use crate::test_world::{assert_proof, faulty_objects, is_faulty};
use crate::view::{DevicePluginKey, Lease, Node, Pod, RegisteredDevices};
use gantry_kube_controllers::scheduler::Scheduler;

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

/// The defaults of the server: a created node has its capacity.
fn defaults(resource: &Resource, object: &mut Value) {
    if *resource == Node::RESOURCE && object["status"].is_null() {
        object["status"] = json!({"allocatable": {"cpu": "4", "pods": "5"}});
    }
}

fn key(name: &str) -> Key {
    Key::new("default", name)
}

/// Returns each pod's phase, whether it has a node, and its restarts.
fn summary(server: &Server) -> Value {
    let all = server.list(&Pod::RESOURCE).into_iter();
    let all = all.filter(|it| !is_faulty(&it["metadata"]["name"])).map(|pod| {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        let placed = pod["spec"]["nodeName"].is_string();
        let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
        // The phase of a pod at its deletion is a matter of timing.
        let said = match pod["metadata"]["deletionTimestamp"].is_string() {
            true => json!("going"),
            false => json!([pod["status"]["phase"], placed, restarts]),
        };
        (name, said)
    });
    all.collect()
}

#[test]
fn pods_converge() {
    let settings = Settings { profile: Profile::General, ..Settings::default() };
    let (ranges, pods) = (PodCidrAllocator::new(settings.clone()), SimulatedPods::new(settings));
    let controllers: [&dyn Controller; 3] = [&Scheduler, &ranges, &pods];
    let kept = json!({"metadata": {"finalizers": ["example.com/kept"]}});
    let script: Vec<UserAction> = vec![
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
            pod("once", "2", &fails_once()),
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
    assert_eq!(summary(&calm.server), expected);
    assert_proof(scenario.prove_faults(0..4, summary));
    let mut wrong = faulty_objects("pod", "/spec/containers", |name| pod(name, "100m", &json!({})));
    wrong.extend(faulty_objects("node", "/spec/unschedulable", |name| {
        let (resource, mut node) = node(name);
        // No pod must be bound to a node that gets no pod CIDR.
        node["spec"]["unschedulable"] = json!(true);
        (resource, node)
    }));
    assert_proof(scenario.prove_isolation(&wrong, 0..2, summary));
}

/// A scenario with the controllers of pods and two nodes.
fn pods<'a>(
    controllers: &'a [&'a dyn Controller],
    pods: Vec<(Resource, Value)>,
    script: Vec<UserAction>,
) -> Scenario<'a> {
    let objects = [node("n0"), node("n1")].into_iter().chain(pods).collect();
    let horizon = Duration::from_secs(60);
    Scenario { controllers, defaults, objects, script, replicas: 1, horizon, ..Scenario::default() }
}

/// A pod that fails once and is restarted.
fn fails_once() -> Value {
    json!({
        "metadata": {"annotations": {
            "gantry.dev/sim-run-for": "3s",
            "gantry.dev/sim-exit-code": "1,0",
        }},
        "spec": {"restartPolicy": "OnFailure"},
    })
}

#[test]
fn pods_survive_a_crash_at_every_step() {
    let settings = Settings { profile: Profile::General, ..Settings::default() };
    let (ranges, kubelet) = (PodCidrAllocator::new(settings.clone()), SimulatedPods::new(settings));
    let controllers: [&dyn Controller; 3] = [&Scheduler, &ranges, &kubelet];
    let delete: UserAction =
        Box::new(|server| server.delete(&Pod::RESOURCE, &key("goes"), Propagation::Background));
    let all = vec![pod("goes", "1", &json!({})), pod("once", "1", &fails_once())];
    let scenario = pods(&controllers, all, vec![delete]);
    assert_proof(scenario.prove_crashes(1, summary));
}

#[test]
fn random_pods_converge() {
    let settings = Settings { profile: Profile::General, ..Settings::default() };
    let (ranges, kubelet) = (PodCidrAllocator::new(settings.clone()), SimulatedPods::new(settings));
    let controllers: [&dyn Controller; 3] = [&Scheduler, &ranges, &kubelet];
    let world = |seed| {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let names = ["a", "b", "c"];
        let all = names.map(|name| {
            let more = match rng.u32(..5) {
                0 => fails_once(),
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
        let delete: UserAction = Box::new(move |server| {
            server.delete(&Pod::RESOURCE, &key(gone), Propagation::Background);
        });
        pods(&controllers, all.to_vec(), if rng.bool() { vec![delete] } else { vec![] })
    };
    assert_proof(prove_worlds(0..12, world, summary));
}

/// Events of a pod are recorded when the write they belong to has succeeded, and so once, however
/// late the watch events are, and with two processes that both believe to lead.
#[test]
fn pod_events_are_recorded_once() {
    let settings = Settings { profile: Profile::General, ..Settings::default() };
    let (ranges, kubelet) = (PodCidrAllocator::new(settings.clone()), SimulatedPods::new(settings));
    let controllers: [&dyn Controller; 3] = [&Scheduler, &ranges, &kubelet];
    let all = vec![pod("runs", "1", &json!({})), pod("once", "1", &fails_once())];
    let mut scenario = pods(&controllers, all, vec![]);
    scenario.replicas = 2;
    for seed in 0..10 {
        let faults = Faults { relists: 20, ..Faults::none() };
        let ending = scenario.run(seed, faults).unwrap_or_else(|failure| panic!("{failure}"));
        let count = |name: &str, reason: &str| {
            let about = |it: &&Event| it.about.key.name() == name && it.reason == reason;
            ending.events.iter().filter(about).count()
        };
        for (reason, starts) in [("Scheduled", 1), ("Pulled", 2), ("Created", 2), ("Started", 2)] {
            assert_eq!(count("runs", reason), 1, "seed {seed}: {reason}");
            assert_eq!(count("once", reason), starts, "seed {seed}: {reason}");
        }
    }
}

/// Nodes report periodically without end; but whatever happens, each ends with its own pod CIDR,
/// ready, and with a recent heartbeat.
#[test]
fn nodes_become_ready() {
    let settings = Settings::default();
    let (ranges, nodes) = (PodCidrAllocator::new(settings.clone()), SimulatedNodes::new(settings));
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
    // The number of distinct pod CIDRs; and of each node whether it is ready and has a recent
    // heartbeat.
    let shape = |server: &Server| {
        let nodes = server.list(&Node::RESOURCE).into_iter();
        let nodes: Vec<&Value> = nodes.filter(|it| !is_faulty(&it["metadata"]["name"])).collect();
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
    assert_proof(scenario.prove_without_quiescence(0..4, shape));
    assert_proof(scenario.prove_isolation(
        &faulty_objects("node", "/spec/unschedulable", node),
        0..2,
        shape,
    ));
}

/// Whatever happens while a node reboots with another kernel, it ends with that kernel, ready, and
/// its container was started after the boot.
#[test]
fn reboots_converge() {
    // Containers start at once, so that most reboots find one that runs.
    let settings = Settings::default();
    let ranges = PodCidrAllocator::new(settings.clone());
    let nodes = SimulatedNodes::new(settings.clone());
    let pods = SimulatedPods::new(settings);
    let reboot = |release: &'static str| -> UserAction {
        Box::new(move |server| {
            server.edit(&Node::RESOURCE, &Key::cluster("n0"), |it| {
                it["metadata"]["annotations"]["gantry.dev/sim-kernel-version"] = json!(release);
            });
        })
    };
    let scenario = Scenario {
        controllers: &[&Scheduler, &ranges, &nodes, &pods],
        defaults,
        objects: vec![node("n0"), pod("runs", "1", &json!({}))],
        script: vec![reboot("6.1.0"), reboot("6.2.0")],
        replicas: 1,
        horizon: Duration::from_secs(60),
        ..Scenario::default()
    };
    let shape = |server: &Server| {
        let node = server.get(&Node::RESOURCE, &Key::cluster("n0")).unwrap();
        let view: Node = serde_json::from_value(node.clone()).unwrap();
        let pod = server.get(&Pod::RESOURCE, &key("runs")).unwrap();
        let started = &pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"];
        let started = started.as_str().and_then(|it| it.parse::<jiff::Timestamp>().ok());
        // A node whose first kernel is the last one was never rebooted.
        let boot = crate::kernel::boot_time(&view);
        let fresh = started.is_some_and(|it| boot.is_none_or(|boot| it >= boot));
        let status = &node["status"];
        json!([status["nodeInfo"]["kernelVersion"], status["conditions"][0]["status"], fresh])
    };
    let calm = scenario.run(0, Faults::none()).unwrap();
    assert_eq!(shape(&calm.server), json!(["6.2.0", "True", true]));
    assert_proof(scenario.prove_without_quiescence(0..4, shape));
}

/// Whatever happens, a node ends with the devices that its plugins registered, and with 0 of a
/// resource whose plugin does not run any more.
#[test]
fn devices_of_plugins_converge() {
    let settings = Settings::default();
    let (ranges, nodes) = (PodCidrAllocator::new(settings.clone()), SimulatedNodes::new(settings));
    // Every process that starts runs the plugins again.
    let registered = |world: &World| {
        let key = DevicePluginKey { node: "n0".to_owned(), number: 1 };
        let resource = "example.com/gpu".to_owned();
        let devices = RegisteredDevices { resource, count: 4, pool: None };
        vec![world.facts().record(key, devices, jiff::Timestamp::UNIX_EPOCH)]
    };
    let (resource, mut before) = node("n0");
    before["metadata"]["annotations"][annotation::DEVICE_PLUGINS] = json!("example.com/nic");
    let scenario = Scenario {
        controllers: &[&ranges, &nodes],
        defaults,
        objects: vec![(resource, before), node("n1")],
        external: ExternalSystems {
            initial_facts: vec![&registered],
            ..ExternalSystems::default()
        },
        script: vec![Box::new(|server| {
            server.edit(&Node::RESOURCE, &Key::cluster("n0"), |it| {
                it["status"]["capacity"] = json!({"cpu": "4", "example.com/nic": "9"});
            });
        })],
        replicas: 1,
        horizon: Duration::from_secs(30),
    };
    let shape = |server: &Server| {
        let capacities = ["n0", "n1"].map(|name| {
            let node = server.get(&Node::RESOURCE, &Key::cluster(name)).unwrap();
            json!([node["status"]["capacity"], node["status"]["allocatable"]])
        });
        json!(capacities)
    };
    let calm = scenario.run(0, Faults::none()).unwrap();
    let plugins = json!({"cpu": "4", "pods": "5", "example.com/gpu": "4", "example.com/nic": "0"});
    let own = json!({"cpu": "4", "pods": "5"});
    assert_eq!(shape(&calm.server), json!([[plugins, plugins], [own, own]]));
    assert_proof(scenario.prove_without_quiescence(0..4, shape));
}
