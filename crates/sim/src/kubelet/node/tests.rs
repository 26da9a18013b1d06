use serde_json::json;

use super::super::PodCidrAllocator;
use super::*;
use crate::test_world::TestWorld;

fn simulated_node(name: &str) -> Value {
    json!({"metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}}, "spec": {}})
}

fn key() -> Key {
    Key::cluster("n1")
}

#[test]
fn a_node_reports_its_status_and_renews_its_lease() {
    let (nodes, ranges) = (SimulatedNodes::default(), PodCidrAllocator::default());
    let mut world = TestWorld::new(&[&nodes, &ranges]);
    world.put::<Node>(simulated_node("n1"));
    world.reconcile(0, &key());
    assert!(world.object::<Node>(&key()).unwrap()["status"].is_null(), "it has no addresses yet");
    world.reconcile(1, &Key::cluster("ranges"));
    world.reconcile_until_stable(0, &key());
    let node = world.object::<Node>(&key()).unwrap().clone();
    assert_eq!(node["spec"]["podCIDR"], "127.16.0.0/20");
    let status = &node["status"];
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["capacity"], json!({"cpu": "1k", "memory": "1Ti", "pods": "1M"}));
    assert_eq!(status["allocatable"], status["capacity"]);
    assert_eq!(status["nodeInfo"]["kernelVersion"], DEFAULT_KERNEL_VERSION);
    assert_eq!(
        status["addresses"],
        json!([{"type": "InternalIP", "address": "127.16.0.1"}, {"type": "Hostname", "address": "n1"}])
    );
    let conditions = status["conditions"].as_array().unwrap().iter();
    let conditions: Vec<String> = conditions
        .map(|it| format!("{}={} {}", it["type"], it["status"], it["reason"]).replace('"', ""))
        .collect();
    assert_eq!(
        conditions,
        [
            "Ready=True KubeletReady",
            "MemoryPressure=False KubeletHasSufficientMemory",
            "DiskPressure=False KubeletHasNoDiskPressure",
            "PIDPressure=False KubeletHasSufficientPID",
            "NetworkUnavailable=False RouteCreated",
        ]
    );
    let lease = Key::new("kube-node-lease", "n1");
    let first = world.object::<Lease>(&lease).unwrap().clone();
    assert_eq!(first["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(first["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(first["metadata"]["ownerReferences"][0]["kind"], "Node");
    // Renewals come every ten seconds, a little more or less; reports every five minutes.
    let (mut renewals, mut reports) = (Vec::new(), 0);
    while renewals.len() < 60 {
        let wait = world.reconcile_until_stable(0, &key()).requeue_after.unwrap();
        world.now += SignedDuration::try_from(wait).unwrap();
        for step in world.reconcile(0, &key()).steps {
            match step.write.resource().plural.as_ref() {
                "leases" => renewals.push(world.now),
                _ => reports += 1,
            }
        }
    }
    let waits: Vec<f64> =
        renewals.windows(2).map(|it| it[1].duration_since(it[0]).as_secs_f64()).collect();
    assert!(waits.iter().all(|it| (9.59..=10.41).contains(it)), "{waits:?}");
    assert!(waits.iter().any(|it| *it < 9.9) && waits.iter().any(|it| *it > 10.1), "{waits:?}");
    assert!((1..=2).contains(&reports), "{reports}");
}

#[test]
fn given_node_status_is_preserved() {
    let nodes = SimulatedNodes::default();
    let mut world = TestWorld::new(&[&nodes]);
    let mut node = simulated_node("n1");
    node["spec"] = json!({"podCIDR": "127.32.0.0/20"});
    node["status"] = json!({
        "capacity": {"cpu": "8", "example.com/gpu": "2"},
        "nodeInfo": {"kernelVersion": "5.15.0"},
        "conditions": [{"type": "Theirs", "status": "True", "reason": "R", "message": "m"}],
    });
    world.put::<Node>(node);
    world.reconcile_until_stable(0, &key());
    let of = |world: &TestWorld<'_>, name: &str| {
        world.object::<Node>(&key()).unwrap()["status"][name].clone()
    };
    assert_eq!(of(&world, "allocatable"), json!({"cpu": "8", "example.com/gpu": "2"}));
    assert_eq!(of(&world, "nodeInfo")["kernelVersion"], "5.15.0");
    assert_eq!(of(&world, "conditions").as_array().unwrap().len(), 6);
    let boot = of(&world, "nodeInfo")["bootID"].clone();
    world.edit::<Node>(&key(), |it| {
        it["metadata"]["annotations"]["gantry.dev/sim-kernel-version"] = json!("6.1.0");
        it["metadata"]["annotations"]["gantry.dev/sim-capacity"] = json!("{\"cpu\": \"16\"}");
    });
    world.reconcile_until_stable(0, &key());
    assert_eq!(of(&world, "nodeInfo")["kernelVersion"], "6.1.0");
    assert_ne!(of(&world, "nodeInfo")["bootID"], boot, "it was started again");
    assert_eq!(of(&world, "allocatable"), json!({"cpu": "16"}));
    // Without power it reports nothing, and reports again when it is back.
    world.edit::<Node>(&key(), |it| {
        it["metadata"]["annotations"]["gantry.dev/sim-node"] = json!("down");
        it["status"]["conditions"][0]["status"] = json!("Unknown");
    });
    world.advance_time(600);
    let plan = world.reconcile(0, &key());
    assert!(plan.is_noop() && plan.held[0].reason == "NoPower");
    world.edit::<Node>(&key(), |it| {
        it["metadata"]["annotations"].as_object_mut().unwrap().remove("gantry.dev/sim-node");
    });
    world.reconcile_until_stable(0, &key());
    let ready = of(&world, "conditions")[0].clone();
    assert_eq!(ready["status"], "True");
    assert_eq!(ready["lastTransitionTime"], "2026-01-01T00:10:00Z");
    world.edit::<Node>(&key(), |it| {
        it["metadata"]["annotations"]["gantry.dev/sim-capacity"] = json!("lots");
    });
    assert_eq!(world.reconcile_until_stable(0, &key()).held[0].reason, "UnreadableAnnotation");
}

#[test]
fn pod_cidrs_never_overlap() {
    let ranges = PodCidrAllocator::default();
    let mut world = TestWorld::new(&[&ranges]);
    let given = |name: &str, range: &str| {
        let mut node = simulated_node(name);
        node["spec"] = json!({"podCIDR": range});
        node
    };
    world.put::<Node>(given("a", "127.16.16.0/20"));
    world.put::<Node>(given("b", "127.16.32.0/19"));
    world.put::<Node>(json!({"metadata": {"name": "real"}}));
    for n in 0..6 {
        world.put::<Node>(simulated_node(&format!("n{n}")));
    }
    world.reconcile_until_stable(0, &Key::cluster("ranges"));
    let range =
        |name: &str| world.object::<Node>(&Key::cluster(name)).unwrap()["spec"]["podCIDR"].clone();
    let all: Vec<Value> = (0..6).map(|n| range(&format!("n{n}"))).collect();
    assert_eq!(
        all,
        [
            "127.16.0.0/20",
            "127.16.64.0/20",
            "127.16.80.0/20",
            "127.16.96.0/20",
            "127.16.112.0/20",
            "127.16.128.0/20",
        ]
    );
    assert!(range("real").is_null(), "it is not ours");
}
