use serde_json::json;

use super::super::PodCidrAllocator;
use super::*;
use crate::test_world::TestWorld;
use crate::view::DevicePluginKey;

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
    assert_eq!(status["nodeInfo"]["kernelVersion"], "6.8.0-gantry");
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
    assert_eq!(of(&world, "nodeInfo")["kernelVersion"], "5.15.0");
    assert_eq!(of(&world, "conditions")[0]["status"], "False", "it reboots");
    world.advance_time(2);
    world.reconcile_until_stable(0, &key());
    assert_eq!(of(&world, "conditions")[0]["status"], "True");
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
    assert_eq!(ready["lastTransitionTime"], "2026-01-01T00:10:02Z");
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

/// What a kernel has loaded is written once, belongs to one boot, and is gone after a reboot.
#[test]
fn loaded_modules_are_written_and_forgotten() {
    let nodes = SimulatedNodes::default();
    let mut world = TestWorld::new(&[&nodes]);
    let mut node = simulated_node("n1");
    node["spec"] = json!({"podCIDR": "127.32.0.0/20"});
    world.put::<Node>(node);
    world.reconcile_until_stable(0, &key());
    let get = |world: &TestWorld<'_>, annotation: &str| {
        world.object::<Node>(&key()).unwrap()["metadata"]["annotations"][annotation].clone()
    };
    let observe = |world: &mut TestWorld<'_>, boot: &str| {
        let boot_id = match boot {
            "" => world.object::<Node>(&key()).unwrap()["status"]["nodeInfo"]["bootID"].clone(),
            boot => json!(boot),
        };
        let module = json!({"name": "hello", "size": 16384, "origin": "container"});
        let state = json!({"bootID": boot_id, "taint": 4096, "modules": [module]});
        let state: KernelState = serde_json::from_value(state).unwrap();
        let now = world.now;
        world.world.facts().record(key(), state, now);
        world.reconcile_until_stable(0, &key());
    };
    observe(&mut world, "another");
    assert_eq!(get(&world, annotation::LOADED_MODULES), Value::Null);
    observe(&mut world, "");
    let written = get(&world, annotation::LOADED_MODULES);
    let text = written.as_str().unwrap();
    assert!(text.contains("\"name\":\"hello\""), "{text}");
    let before = world.world.store::<Node>().get(&key()).unwrap();
    let spec = KernelSpec::of(&before).unwrap();
    assert_eq!(spec.kernel().modules().count(), 1);

    let set_kernel = |world: &mut TestWorld<'_>, release: &str| {
        world.edit::<Node>(&key(), |it| {
            it["metadata"]["annotations"][annotation::KERNEL] = json!(release);
        });
        world.reconcile_until_stable(0, &key());
    };
    let old = before.status.node_info.kernel_version.clone();
    set_kernel(&mut world, "6.9.0");
    assert_eq!(get(&world, annotation::LOADED_MODULES), text);
    // Called off before the other kernel runs: nothing was rebooted.
    set_kernel(&mut world, &old);
    assert_eq!(get(&world, annotation::BOOT), Value::Null);
    let after = world.world.store::<Node>().get(&key()).unwrap();
    assert_eq!(after.status.node_info.boot_id, before.status.node_info.boot_id);
    assert!(after.is_ready() && kernel::boot_time(&after).is_none());
    set_kernel(&mut world, "6.9.0");
    world.advance_time(2);
    world.reconcile_until_stable(0, &key());
    let after = world.world.store::<Node>().get(&key()).unwrap();
    assert_ne!(after.status.node_info.boot_id, before.status.node_info.boot_id);
    assert_eq!(kernel::boot_time(&after), Some(world.now));
    assert_eq!(KernelSpec::of(&after).unwrap().kernel().modules().count(), 0);
    // What the kernel before had loaded is no news of this one.
    assert_eq!(get(&world, annotation::LOADED_MODULES), Value::Null);
    world.edit::<Node>(&key(), |it| {
        it["metadata"]["annotations"][annotation::MODULE_SIGNATURES] = json!("sometimes");
    });
    assert_eq!(world.reconcile_until_stable(0, &key()).held[0].reason, "UnreadableAnnotation");
}

/// The kubelet keeps the resource of a plugin that is gone with 0 devices, also after this process
/// was restarted, and the node's own amounts as they are.
#[test]
fn resources_of_device_plugins_are_reported() {
    let shape = json!({"cpu": "8"}).to_string();
    let table = [
        (json!({"capacity": {"cpu": "8"}, "allocatable": {"cpu": "7"}}), None, ["8", "7"]),
        (json!({}), Some(shape), ["8", "8"]),
    ];
    for (status, capacity, cpus) in table {
        let nodes = SimulatedNodes::default();
        let mut world = TestWorld::new(&[&nodes]);
        let mut node = simulated_node("n1");
        node["spec"] = json!({"podCIDR": "127.32.0.0/20"});
        node["status"] = status;
        if let Some(capacity) = capacity {
            node["metadata"]["annotations"][annotation::CAPACITY] = json!(capacity);
        }
        world.put::<Node>(node);
        world.reconcile_until_stable(0, &key());
        let registration = |number| DevicePluginKey { node: "n1".to_owned(), number };
        let devices =
            |count| RegisteredDevices { resource: "example.com/gpu".to_owned(), count, pool: None };
        let check = |world: &mut TestWorld<'_>, expected: Value| {
            world.reconcile_until_stable(0, &key());
            let status = &world.object::<Node>(&key()).unwrap()["status"];
            for (field, cpu) in ["capacity", "allocatable"].iter().zip(cpus) {
                assert_eq!(status[field]["cpu"], cpu, "{field}");
                assert_eq!(status[field]["example.com/gpu"], expected, "{field}");
            }
        };
        check(&mut world, Value::Null);
        let change = world.world.facts().record(registration(1), devices(4), world.now);
        assert_eq!(nodes.enqueue_for_fact(&world.world, &change), [key()]);
        check(&mut world, json!("4"));
        let _ = world.world.facts().record(registration(2), devices(3), world.now);
        check(&mut world, json!("3"));
        let _ = world.world.facts::<RegisteredDevices>().forget(&registration(2));
        check(&mut world, json!("4"));
        let change = world.world.facts::<RegisteredDevices>().forget(&registration(1)).unwrap();
        assert_eq!(nodes.enqueue_for_fact(&world.world, &change), [key()]);
        check(&mut world, json!("0"));
    }
}
