//! What is counted.

use gantry_reconcile::{Kind, Resource, View as _};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::facts::image_queries;
use crate::labels::{MODULE_LABEL, ROLE_LABEL};
use crate::selected_nodes::NodeGrouper;
use crate::view::Node;

const KERNEL: &str = "5.10.133";

fn observe(world: &World, resource: &Resource, object: &Value) {
    let store = world.single_store_for(resource).unwrap();
    store.observe(&object.to_string()).unwrap().unwrap();
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": "drivers", "uid": name, "resourceVersion": "1"})
}

/// A world with a node, a Module of that name, and its DaemonSets.
fn world() -> World {
    let world = World::new([
        Kind::of::<Module>(),
        Kind::of::<Node>(),
        Kind::of::<DaemonSet>(),
        Kind::of::<Job>(),
        Kind::of::<ModulePod>(),
    ]);
    let node = json!({
        "metadata": {"name": "a", "uid": "a", "resourceVersion": "1", "labels": {"gpu": "yes"}},
        "status": {"nodeInfo": {"kernelVersion": KERNEL, "architecture": "amd64"}},
    });
    observe(&world, &Node::RESOURCE, &node);
    let full = json!({
        "metadata": metadata("full"),
        "spec": {
            "selector": {"gpu": "yes"},
            "driverContainer": {"container": {
                "kernelMappings": [{"regexp": ".", "sign": {
                    "keySecret": "k", "certSecret": "c", "filesToSign": ["/a.ko"],
                }}],
                "containerImage": "quay.io/a/b:${KERNEL_VERSION}",
                "build": {"dockerfile": "FROM a"},
            }},
            "devicePlugin": {"container": {"image": "quay.io/a/p:1"}},
        },
    });
    observe(&world, &Module::RESOURCE, &full);
    let plugin = json!({
        "metadata": metadata("plugin"),
        "spec": {"selector": {}, "devicePlugin": {"container": {"image": "quay.io/a/p:1"}}},
    });
    observe(&world, &Module::RESOURCE, &plugin);
    observe(&world, &Module::RESOURCE, &json!({"metadata": metadata("broken"), "spec": {}}));
    for (name, role, desired, ready) in
        [("d", "driver-container", 3, 2), ("p", "device-plugin", 2, 2)]
    {
        let mut metadata = metadata(name);
        metadata["labels"] = json!({MODULE_LABEL: "full", ROLE_LABEL: role});
        if role == "driver-container" {
            metadata["annotations"] = json!({KERNEL_ANNOTATION: KERNEL});
        }
        metadata["ownerReferences"] = json!([{
            "apiVersion": "ooto.sigs.k8s.io/v1alpha1", "kind": "Module", "name": "full",
            "uid": "full", "controller": true,
        }]);
        let status = json!({"desiredNumberScheduled": desired, "numberReady": ready});
        observe(&world, &DaemonSet::RESOURCE, &json!({"metadata": metadata, "status": status}));
    }
    NodeGrouper::group_all(&world);
    world
}

#[test]
fn modules_nodes_and_stages_are_counted() {
    let world = world();
    let settings = Settings::default();
    let key = Key::new("drivers", "full");
    let module = module_kernels(&world, &key, &settings).unwrap();
    let (kernel, plan) = module.plans().next().unwrap();
    let unsigned = image_queries(&module, kernel, plan).pop().unwrap();
    let present = ImageState::Present { digest: "d".to_owned(), input_hash: None };
    let _ = world.facts::<ImageState>().record(unsigned, present, Timestamp::UNIX_EPOCH);
    let counts = ModuleCounts::of(&world, &settings);
    let numbers = (counts.modules, counts.with_build, counts.with_sign, counts.with_device_plugin);
    assert_eq!(numbers, (3, 1, 1, 2));
    let plugin = Key::new("drivers", "plugin");
    let nodes = [
        ((key.clone(), "device-plugin"), (2, 2)),
        ((key.clone(), "driver-container"), (3, 2)),
        ((plugin.clone(), "device-plugin"), (0, 0)),
    ];
    assert_eq!(counts.nodes, nodes.into());
    let stage = |kernel: &str, stage, done| ((key.clone(), kernel.to_owned(), stage), done);
    let stages = [
        stage("", "device-plugin", true),
        stage(KERNEL, "build", true),
        stage(KERNEL, "sign", false),
        stage(KERNEL, "driver-container", false),
        ((plugin, String::new(), "device-plugin"), false),
    ];
    assert_eq!(counts.stages, stages.into());
}

fn job(status: &Value) -> Job {
    let metadata = json!({
        "name": "j", "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {JOB_TYPE_LABEL: "build"},
    });
    serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
}

#[test]
fn jobs_are_counted_once_when_they_end() {
    let at = "2026-01-01T00:01:30Z";
    let active = job(&json!({}));
    let succeeded = job(&json!({"succeeded": 1, "completionTime": at}));
    let failed = job(&json!({"conditions": [
        {"type": "Failed", "status": "True", "lastTransitionTime": at},
    ]}));
    let ended = |result, seconds| Some(EndedJob { job_type: "build".to_owned(), result, seconds });
    let table = [
        (&active, &active, None),
        (&active, &succeeded, ended("succeeded", Some(90.0))),
        (&active, &failed, ended("failed", Some(90.0))),
        (&succeeded, &succeeded, None),
        (&failed, &failed, None),
    ];
    for (before, after, expected) in table {
        assert_eq!(ended_job(before, after), expected, "{after:?}");
    }
    let unknown = job(&json!({"failed": 1}));
    assert_eq!(ended_job(&active, &unknown), ended("failed", None));
}

#[test]
fn files_are_counted_once_when_their_pod_ends() {
    let pod = |job_type: &str, state: Value| -> ModulePod {
        let labels = json!({JOB_TYPE_LABEL: job_type});
        let statuses = json!([{"name": "sign", "state": state}]);
        let status = json!({"containerStatuses": statuses});
        serde_json::from_value(json!({"metadata": {"labels": labels}, "status": status})).unwrap()
    };
    let files = json!([{"path": "/a", "result": "signed"}, {"path": "/b", "result": "skipped"}]);
    let message = json!({"image": "a", "files": files}).to_string();
    let message = message.as_str();
    let ended = |message: &str| json!({"terminated": {"exitCode": 0, "message": message}});
    let runs = || json!({"running": {}});
    let table = [
        (pod("sign", runs()), pod("sign", ended(message)), vec!["signed", "skipped"]),
        (pod("sign", ended(message)), pod("sign", ended(message)), vec![]),
        (pod("build", runs()), pod("build", ended(message)), vec![]),
        (pod("sign", runs()), pod("sign", ended("{\"files\":[")), vec![]),
        (pod("sign", runs()), pod("sign", runs()), vec![]),
    ];
    for (before, after, expected) in table {
        assert_eq!(signed_files(&before, &after), expected, "{after:?}");
    }
}
