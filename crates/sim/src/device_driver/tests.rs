use std::time::Duration;

use gantry_api::decode::{self, Options};
use gantry_harness::{ExternalSystems, Scenario, Server};
use gantry_reconcile::{Controller, Key, Plan, Resource, View as _, World, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

const POOLS: &str = "
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: a}
spec: {nodeName: node-1, driver: gpu.example.com, deviceType: gpu, devices: [{name: g0}, {name: g1, taints: [{key: hot, effect: NoSchedule}]}]}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: b}
spec: {nodeName: node-1, driver: nic.example.com, deviceCount: 2}
";

fn parse_config(text: &str, driver: Option<&str>) -> Result<DriverConfig, DriverConfigError> {
    let documents = decode::documents(text, Options::default()).unwrap();
    driver_config(documents.into_iter().map(|it| (it.subject, it.content)), driver)
}

#[test]
fn a_file_configures_one_driver() {
    let gpu = parse_config(POOLS, Some("gpu.example.com")).unwrap();
    let names: Vec<_> = gpu.publications.iter().map(|it| it.key.name()).collect();
    assert_eq!(names, ["devicedrivers/gpu.example.com", "devicepools/a"]);
    assert_eq!(gpu.publications[0].object["deviceTypes"], json!(["gpu"]), "of its pools");
    let nic = parse_config(POOLS, Some("nic.example.com")).unwrap();
    assert_eq!((nic.publications.len(), nic.notes.len()), (1, 1), "it has no type");
    let driver = "{apiVersion: devmgmtproto.k8s.io/v1alpha1, kind: DeviceDriver, metadata: {name: nic.example.com}, deviceTypes: [nic, vlan]}";
    let registered =
        parse_config(&format!("{POOLS}---\n{driver}"), Some("nic.example.com")).unwrap();
    assert_eq!(registered.publications[0].object["deviceTypes"], json!(["nic", "vlan"]));
    let table = [
        (POOLS, None, "name one of them: gpu.example.com, nic.example.com"),
        (POOLS, Some("x"), "no DevicePool of driver \"x\""),
        (driver, None, "it has no DevicePool"),
        ("{apiVersion: v1, kind: Pod, metadata: {name: p}}", None, "Pod p is not an object that"),
    ];
    for (text, driver, expected) in table {
        let error = parse_config(text, driver).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

fn publisher() -> Publisher {
    Publisher { name: "sample".to_owned() }
}

fn reporter() -> DeviceStatusReporter {
    DeviceStatusReporter { driver: "gpu.example.com".to_owned() }
}

/// A world with these objects in it.
fn world(objects: &[(Resource, Value)]) -> World {
    let kinds = publisher().kinds().into_iter().chain(reporter().kinds());
    let world = World::new(kinds);
    for (resource, object) in objects {
        if resource.plural == "publications" {
            let (key, object) = (Key::cluster(object["key"].as_str().unwrap()), &object["object"]);
            let fact = Publication { key: key.clone(), object: object.clone() };
            let _ = world.facts().record(key, fact, Timestamp::UNIX_EPOCH);
            continue;
        }
        let text = object.to_string();
        let seen = world.single_store_for(resource).unwrap().observe(&text);
        assert!(seen.is_ok(), "{text}");
    }
    world
}

fn pool(name: &str, labels: &Value, status: &Value) -> (Resource, Value) {
    let spec = json!({"driver": "gpu.example.com", "nodeName": "node-1", "deviceType": "gpu",
        "devices": [{"name": "g0"}, {"name": "g1", "taints": [{"key": "hot", "effect": "NoSchedule"}]}]});
    let metadata =
        json!({"name": name, "uid": format!("u-{name}"), "resourceVersion": "7", "labels": labels});
    (DevicePool::RESOURCE, json!({"metadata": metadata, "spec": spec, "status": status}))
}

fn wanted(name: &str) -> (Resource, Value) {
    let config = parse_config(POOLS, Some("gpu.example.com")).unwrap();
    let fact = config.publications.into_iter().find(|it| it.key.name() == name).unwrap();
    let publications = Resource::namespaced("", "v1", "publications", "Publication");
    (publications, json!({"key": name, "object": fact.object}))
}

fn plan(objects: &[(Resource, Value)]) -> Plan {
    publisher().plan(&world(objects), &Key::cluster("devicepools/a"), Timestamp::UNIX_EPOCH)
}

/// The writes, as verbs and bodies.
fn written(plan: &Plan) -> Vec<(String, Value)> {
    let writes = plan.steps.iter().map(|step| match &step.write {
        Write::Apply { subresource: part, body, .. } => (format!("apply {part:?}"), body.clone()),
        Write::Delete { .. } => ("delete".to_owned(), Value::Null),
        other => panic!("{other:?}"),
    });
    writes.collect()
}

#[test]
fn published_pools_are_reconciled() {
    let own = json!({PUBLISHED_BY_LABEL: "sample"});
    let theirs = json!({PUBLISHED_BY_LABEL: "another"});
    let ready = json!({"availableDevices": 1});
    let held = json!({"availableDevices": 1, "allocations": [{"deviceName": "g0"}]});
    let is_published = |plan: &Plan| {
        let steps = written(plan);
        steps.len() == 1 && steps[0].0 == "apply Main" && steps[0].1["metadata"]["labels"] == own
    };
    assert!(is_published(&plan(&[wanted("devicepools/a")])), "it is missing");
    let labelled = plan(&[wanted("devicepools/a"), pool("a", &json!({}), &ready)]);
    assert!(is_published(&labelled), "it has no owner");
    let mut changed = pool("a", &own, &ready);
    changed.1["spec"]["devices"][0]["name"] = "other".into();
    assert!(is_published(&plan(&[wanted("devicepools/a"), changed])), "it was changed");
    assert!(plan(&[wanted("devicepools/a"), pool("a", &own, &ready)]).is_noop(), "as it should be");
    let counted = plan(&[wanted("devicepools/a"), pool("a", &own, &json!({}))]);
    let expected = ("apply Status".to_owned(), json!({"status": {"availableDevices": 1}}));
    assert_eq!(written(&counted), [expected], "a tainted device cannot be used");
    let gone = plan(&[pool("a", &own, &ready)]);
    assert_eq!(written(&gone), [("delete".to_owned(), Value::Null)], "deleted");
    assert!(plan(&[pool("a", &theirs, &ready)]).is_noop(), "another driver's");
    let used = plan(&[pool("a", &own, &held)]);
    assert!(used.is_noop() && used.held[0].reason == "InUse", "{used:?}");
}

fn claim(status: &Value) -> (Resource, Value) {
    let metadata = json!({"name": "c", "namespace": "ns", "uid": "c", "resourceVersion": "3"});
    (DeviceClaim::RESOURCE, json!({"metadata": metadata, "status": status}))
}

fn statuses(status: &Value) -> Option<Value> {
    let foreign = {
        let (resource, mut object) = pool("theirs", &json!({}), &json!({}));
        object["spec"]["driver"] = "nic.example.com".into();
        (resource, object)
    };
    let objects = [pool("a", &json!({}), &json!({})), foreign, claim(status)];
    let plan = reporter().plan(&world(&objects), &Key::new("ns", "c"), Timestamp::UNIX_EPOCH);
    let mut steps = written(&plan);
    assert!(steps.len() <= 1);
    steps.pop().map(|(verb, body)| {
        assert_eq!(verb, "apply Status");
        body["status"]["deviceStatuses"].clone()
    })
}

#[test]
fn only_devices_of_the_driver_are_reported() {
    let allocations = json!([
        {"devicePoolName": "a", "deviceName": "g0", "allocations": [{"name": "memory", "allocation": "1Gi"}]},
        {"devicePoolName": "theirs", "deviceName": "v0"},
        {"devicePoolName": "gone", "deviceName": "x"},
        {"devicePoolName": "a", "deviceCount": 2},
    ]);
    let reported = statuses(&json!({"allocations": allocations})).unwrap();
    let names: Vec<_> = reported.as_array().unwrap().iter().map(|it| &it["deviceName"]).collect();
    assert_eq!(names, ["g0"]);
    assert_eq!(reported[0]["allocations"][0]["allocation"], "1Gi");
    assert_eq!(reported[0]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
    let mut all = reported.as_array().unwrap().clone();
    all.push(json!({"devicePoolName": "theirs", "deviceName": "v0"}));
    let settled = json!({"allocations": allocations, "deviceStatuses": all});
    assert_eq!(statuses(&settled), None, "reported once");
    let released = json!({"deviceStatuses": all});
    assert_eq!(statuses(&released), Some(json!([])), "only its own are removed");
}

#[test]
fn publications_converge() {
    let (publisher, reporter) = (publisher(), reporter());
    let controllers: [&dyn Controller; 2] = [&publisher, &reporter];
    // The file of the driver, read by every process that starts.
    let publications = |world: &World| {
        let config = parse_config(POOLS, Some("gpu.example.com")).unwrap();
        let names = ["devicepools/a", "devicedrivers/gpu.example.com"];
        let wanted = config.publications.into_iter().filter(|it| names.contains(&it.key.name()));
        let record =
            |it: Publication| world.facts().record(it.key.clone(), it, Timestamp::UNIX_EPOCH);
        wanted.map(record).collect()
    };
    let stray = pool("stray", &json!({PUBLISHED_BY_LABEL: "sample"}), &json!({}));
    let scenario = Scenario {
        controllers: &controllers,
        defaults: |_, _| {},
        objects: vec![stray, claim(&json!({}))],
        external: ExternalSystems {
            initial_facts: vec![&publications],
            ..ExternalSystems::default()
        },
        script: vec![
            Box::new(|server: &mut Server| {
                server.edit(&DeviceClaim::RESOURCE, &Key::new("ns", "c"), |claim| {
                    let given = json!([{"devicePoolName": "a", "deviceName": "g0"}]);
                    claim["status"]["allocations"] = given;
                });
            }),
            Box::new(|server: &mut Server| {
                server.edit(&DevicePool::RESOURCE, &Key::cluster("a"), |pool| {
                    pool["spec"]["devices"] = json!([]);
                });
            }),
        ],
        replicas: 1,
        horizon: Duration::from_secs(600),
    };
    let shape = |server: &Server| {
        let get = |resource: &Resource, key: &Key| server.get(resource, key).cloned();
        let claim = get(&DeviceClaim::RESOURCE, &Key::new("ns", "c")).unwrap_or_default();
        json!({
            "pool": get(&DevicePool::RESOURCE, &Key::cluster("a")).unwrap_or_default()["spec"],
            "stray": get(&DevicePool::RESOURCE, &Key::cluster("stray")),
            "driver": get(&DeviceDriver::RESOURCE, &Key::cluster("gpu.example.com"))
                .unwrap_or_default()["deviceTypes"],
            "ready": claim["status"]["deviceStatuses"][0]["conditions"][0]["status"],
        })
    };
    scenario.prove(0..20, shape).unwrap();
    let end = scenario.run(0, gantry_harness::Faults::none()).unwrap();
    let end = shape(&end.server);
    assert_eq!(end["stray"], Value::Null);
    assert_eq!(end["ready"], "True");
    assert_eq!(end["pool"]["devices"][0]["name"], "g0");
}
