use std::time::Duration;

use gantry_harness::{ExternalSystems, Scenario, Server};
use gantry_reconcile::Write;
use serde_json::Value;

use super::*;
use crate::device_driver::PUBLISHED_BY_LABEL;
use crate::view::DevicePluginKey;

fn register(world: &World, number: u64, count: u32, driver: Option<&str>) -> FactChange {
    let pool = driver.map(|driver| PluginPool {
        driver: driver.to_owned(),
        attributes: BTreeMap::from([("model".to_owned(), "a100".to_owned())]),
    });
    let devices = RegisteredDevices { resource: "example.com/gpu".to_owned(), count, pool };
    let key = DevicePluginKey { node: "n1".to_owned(), number };
    world.facts().record(key, devices, Timestamp::UNIX_EPOCH)
}

fn world() -> World {
    World::new(DevicePluginPools::default().kinds())
}

fn observe<V: View>(world: &World, object: &Value) {
    let seen = world.single_store_for(&V::RESOURCE).unwrap().observe(&object.to_string());
    assert!(seen.is_ok(), "{object}");
}

/// The objects that a plan applies or deletes.
fn writes(world: &World, key: &Key) -> Vec<Value> {
    let plan = DevicePluginPools::default().plan(world, key, Timestamp::UNIX_EPOCH);
    let steps = plan.steps.iter().map(|step| match &step.write {
        Write::Apply { body, .. } => body.clone(),
        Write::Delete { key, .. } => json!({"deleted": key.name()}),
        other => panic!("{other:?}"),
    });
    steps.collect()
}

fn pool(spec: &Value, status: &Value) -> Value {
    json!({
        "metadata": {
            "name": pool_name("n1", "example.com/gpu"), "uid": "u", "resourceVersion": "7",
            "labels": {PUBLISHED_BY_LABEL: PUBLISHER_NAME},
        },
        "spec": spec, "status": status,
    })
}

#[test]
fn pools_come_and_go_with_registrations() {
    let (world, node) = (world(), node_key("n1"));
    register(&world, 1, 9, None);
    assert!(writes(&world, &node).is_empty(), "no driver was named");
    let change = register(&world, 2, 2, Some("gpu.example.com"));
    let keys = DevicePluginPools::default().enqueue_for_fact(&world, &change);
    assert_eq!(keys, [driver_key("gpu.example.com"), node.clone()]);
    let made = writes(&world, &node);
    let spec = json!({
        "nodeName": "n1", "driver": "gpu.example.com", "deviceType": "gpu",
        "attributes": [{"name": "model", "stringValue": "a100"}],
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
    });
    assert_eq!(made.len(), 1);
    assert_eq!(made[0]["spec"], spec);
    assert_eq!(made[0]["metadata"]["labels"], json!({PUBLISHED_BY_LABEL: PUBLISHER_NAME}));
    let types = json!(["gpu"]);
    assert_eq!(writes(&world, &driver_key("gpu.example.com"))[0]["deviceTypes"], types);

    let available = json!({"availableDevices": 2});
    observe::<DevicePool>(&world, &pool(&spec, &available));
    assert!(writes(&world, &node).is_empty(), "as it should be");
    let key = DevicePluginKey { node: "n1".to_owned(), number: 2 };
    let gone = world.facts::<RegisteredDevices>().forget(&key).unwrap();
    assert_eq!(DevicePluginPools::default().enqueue_for_fact(&world, &gone).len(), 2);
    let name = pool_name("n1", "example.com/gpu");
    assert_eq!(writes(&world, &node), [json!({"deleted": name})]);

    // A device that is held stays, and no other claim gets one of them.
    let held = json!({"availableDevices": 2, "allocations": [{"deviceName": "gpu-0"}]});
    let mut pool = pool(&spec, &held);
    pool["metadata"]["resourceVersion"] = json!("8");
    observe::<DevicePool>(&world, &pool);
    let kept = writes(&world, &node);
    let taint = json!([{"key": PLUGIN_GONE_TAINT, "effect": "NoSchedule"}]);
    assert_eq!(kept[0]["spec"]["devices"][1]["taints"], taint);
}

#[test]
fn drivers_of_others_are_left_alone() {
    let world = world();
    register(&world, 1, 1, Some("gpu.example.com"));
    let driver = json!({"metadata": {"name": "gpu.example.com", "uid": "u", "resourceVersion": "1"},
        "deviceTypes": ["other"]});
    observe::<DeviceDriver>(&world, &driver);
    assert!(writes(&world, &driver_key("gpu.example.com")).is_empty());
}

#[test]
fn names_are_valid_and_distinct() {
    let long = format!("{}.example.com", "n".repeat(241));
    let resource = format!("example.com/a_B.c{}", "-d".repeat(23));
    let name = pool_name(&long, &resource);
    assert!(name.len() <= 253, "{name}");
    assert_eq!(device_type("example.com/a_B.c"), "a-b-c");
    assert_ne!(pool_name("n", "a-b.com/c"), pool_name("n-a", "b.com/c"));
    assert_ne!(pool_name("n", "a.com/x_y"), pool_name("n", "a.com/x-y"));
}

#[test]
fn pools_of_plugins_converge() {
    let controller = DevicePluginPools::default();
    // Every process that starts runs the plugins again.
    let registered = |world: &World| vec![register(world, 1, 2, Some("gpu.example.com"))];
    let mut stray = pool(&json!({"nodeName": "n2", "driver": "d"}), &json!({}));
    stray["metadata"] = json!({"name": "stray", "labels": {PUBLISHED_BY_LABEL: PUBLISHER_NAME}});
    let scenario = Scenario {
        controllers: &[&controller],
        defaults: |_, _| {},
        objects: vec![(DevicePool::RESOURCE, stray)],
        external: ExternalSystems {
            initial_facts: vec![&registered],
            ..ExternalSystems::default()
        },
        script: vec![Box::new(|server: &mut Server| {
            let key = Key::cluster(&pool_name("n1", "example.com/gpu"));
            server.edit(&DevicePool::RESOURCE, &key, |it| it["spec"]["devices"] = json!([]));
        })],
        replicas: 1,
        horizon: Duration::from_secs(600),
    };
    let shape = |server: &Server| {
        let pools = server.list(&DevicePool::RESOURCE).into_iter();
        let pools: Vec<Value> = pools.map(|it| it["spec"]["devices"].clone()).collect();
        let drivers = server.list(&DeviceDriver::RESOURCE).len();
        json!([pools, drivers])
    };
    let calm = scenario.run(0, gantry_harness::Faults::none()).unwrap();
    let devices = json!([{"name": "gpu-0"}, {"name": "gpu-1"}]);
    assert_eq!(shape(&calm.server), json!([[devices], 1]));
    scenario.prove(0..20, shape).unwrap();
}
