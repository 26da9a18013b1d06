//! The labels of nodes.

#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use gantry_harness::test_world::TestWorld;
use gantry_reconcile::{Controller as _, Key, View as _};
use serde_json::{Value, json};

use super::NodeLabelController;
use crate::labels::{KERNEL_LABEL, MODULE_LABEL, NodeLabelKind, ROLE_LABEL};
use crate::settings::{KernelLabeling, LiveSettings, Settings};
use crate::view::{Module, ModulePod, Node};

fn node() -> Key {
    Key::cluster("a")
}

/// A pod of a Module.
fn pod(namespace: &str, name: &str, part: &str, ready: bool) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"),
            "labels": {MODULE_LABEL: "hello", ROLE_LABEL: part},
        },
        "spec": {"nodeName": "a"},
        "status": {
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            "containerStatuses": [{"name": part, "image": "quay.io/a/b:1"}],
        },
    })
}

/// Runs a test in a world with one node.
fn with(settings: Settings, test: impl FnOnce(&mut TestWorld<'_>)) {
    let controller = NodeLabelController::new(LiveSettings::new(settings));
    let mut world = TestWorld::new(&[&controller]);
    world.put::<Node>(json!({
        "metadata": {"name": "a", "labels": {"own": "x"}},
        "status": {"nodeInfo": {"kernelVersion": "5.10.133+"}},
    }));
    test(&mut world);
}

/// The labels of the node after everything that there is to do, without its own and its kernel.
fn labels(world: &mut TestWorld<'_>) -> Vec<(String, String)> {
    world.reconcile_until_stable(0, &node());
    let labels = world.object::<Node>(&node()).unwrap()["metadata"]["labels"].as_object().unwrap();
    assert_eq!(labels["own"], "x", "labels of others stay");
    let ours = labels.iter().filter(|(key, _)| *key != "own" && *key != KERNEL_LABEL);
    ours.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect()
}

fn label(kind: NodeLabelKind, namespace: &str) -> (String, String) {
    (kind.key(namespace, "hello"), String::new())
}

fn driver_ready() -> Vec<(String, String)> {
    vec![label(NodeLabelKind::Ready, "drivers")]
}

#[test]
fn the_kernel_of_a_node_is_a_label() {
    let kernel = |world: &TestWorld<'_>| {
        world.object::<Node>(&node()).unwrap()["metadata"]["labels"][KERNEL_LABEL].clone()
    };
    with(Settings::default(), |world| {
        labels(world);
        assert_eq!(kernel(world), "5.10.133");
        for (release, expected) in
            [("5.4.0-1089-azure", json!("5.4.0-1089-azure")), ("test", Value::Null)]
        {
            world.edit::<Node>(&node(), |it| {
                it["status"]["nodeInfo"]["kernelVersion"] = json!(release);
            });
            labels(world);
            assert_eq!(kernel(world), expected, "{release}");
        }
    });
    let settings =
        Settings { kernel_labeling: KernelLabeling::NodeFeatureDiscovery, ..Settings::default() };
    with(settings, |world| {
        assert!(world.plan(0, &node()).steps.is_empty(), "it is not ours to write");
    });
}

#[test]
fn kms_33_the_label_follows_readiness_and_goes_with_a_terminating_pod() {
    with(Settings::default(), |world| {
        let key = Key::new("drivers", "p");
        world.put::<ModulePod>(pod("drivers", "p", "driver-container", false));
        assert_eq!(labels(world), []);
        world.put::<ModulePod>(pod("drivers", "p", "driver-container", true));
        world.take_events();
        assert_eq!(labels(world), driver_ready());
        let loaded =
            "ModuleLoaded: Module drivers/hello is loaded on kernel 5.10.133+: quay.io/a/b:1";
        assert_eq!(world.take_events(), [loaded]);
        world.put::<ModulePod>(pod("drivers", "p", "driver-container", false));
        assert_eq!(labels(world), []);
        assert!(world.take_events()[0].starts_with("ModuleUnloaded: Module drivers/hello"));
        world.put::<ModulePod>(pod("drivers", "p", "driver-container", true));
        assert_eq!(labels(world), driver_ready());
        world.edit::<ModulePod>(&key, |it| {
            it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        });
        assert_eq!(labels(world), [], "also while it still says that it is ready");
    });
}

#[test]
fn kms_33_device_plugins_have_a_label_of_their_own() {
    let settings = Settings { kmm_labels: true, ..Settings::default() };
    with(settings, |world| {
        world.put::<ModulePod>(pod("drivers", "p", "device-plugin", true));
        let kmm = "kmm.node.kubernetes.io/drivers.hello.device-plugin-ready".to_owned();
        let expected = [label(NodeLabelKind::DevicePluginReady, "drivers"), (kmm, String::new())];
        assert_eq!(labels(world), expected);
        world.put::<ModulePod>(pod("drivers", "p", "device-plugin", false));
        assert_eq!(labels(world), []);
        // The pods of Jobs have no part.
        let mut build = pod("drivers", "b", "", true);
        build["metadata"]["labels"] = json!({MODULE_LABEL: "hello"});
        world.put::<ModulePod>(build);
        assert_eq!(labels(world), []);
    });
}

#[test]
fn kms_34_a_second_ready_pod_keeps_the_label() {
    with(Settings::default(), |world| {
        for (old, new) in [("p", "q"), ("q", "p")] {
            world.put::<ModulePod>(pod("drivers", old, "driver-container", true));
            world.put::<ModulePod>(pod("drivers", new, "driver-container", true));
            assert_eq!(labels(world), driver_ready());
            world.put::<ModulePod>(pod("drivers", old, "driver-container", false));
            assert!(world.plan(0, &node()).steps.is_empty(), "{new} is ready");
        }
    });
}

#[test]
fn kms_35_a_pod_without_a_node_is_ignored() {
    with(Settings::default(), |world| {
        let mut unscheduled = pod("drivers", "p", "driver-container", true);
        unscheduled["spec"] = json!({});
        world.put::<ModulePod>(unscheduled);
        assert_eq!(labels(world), []);
        let controller = NodeLabelController::new(LiveSettings::default());
        let store = world.world.single_store_for(&ModulePod::RESOURCE).unwrap();
        let change = store.as_change(&Key::new("drivers", "p")).unwrap();
        assert_eq!(controller.enqueue(&world.world, &change), []);
    });
}

#[test]
fn kms_36_one_name_in_two_namespaces_gives_two_labels() {
    with(Settings::default(), |world| {
        world.put::<ModulePod>(pod("drivers", "p", "driver-container", true));
        world.put::<ModulePod>(pod("other", "p", "driver-container", true));
        let both = [label(NodeLabelKind::Ready, "drivers"), label(NodeLabelKind::Ready, "other")];
        assert_eq!(labels(world), both);
        world.put::<ModulePod>(pod("drivers", "p", "driver-container", false));
        assert_eq!(labels(world), both[1..]);
    });
}

#[test]
fn kms_37_labels_without_their_module_are_removed() {
    with(Settings::default(), |world| {
        let kinds = NodeLabelKind::ALL;
        world.edit::<Node>(&node(), |it| {
            for kind in kinds {
                it["metadata"]["labels"][kind.key("drivers", "gone")] = json!("1");
            }
        });
        let left = [(NodeLabelKind::WantedVersion.key("drivers", "gone"), "1".to_owned())];
        assert_eq!(labels(world), left, "that of the administrator stays");
    });
}

/// A Module with a version; its rules are not checked.
fn versioned(spec: Value) -> Value {
    json!({"metadata": {"name": "hello", "namespace": "drivers"}, "spec": spec})
}

#[test]
fn kms_82_versions_follow_the_label_of_the_administrator_only_where_a_module_has_versions() {
    let spec = |version: &str| {
        json!({"selector": {}, "driverContainer": {"container": {
            "kernelMappings": [{"literal": "5.1.0"}], "containerImage": "a/b:1", "version": version,
        }}})
    };
    let [wanted, driver, plugin] =
        [NodeLabelKind::WantedVersion, NodeLabelKind::DriverVersion, NodeLabelKind::PluginVersion]
            .map(|kind| kind.key("drivers", "hello"));
    let version = |key: &String| (key.clone(), "1".to_owned());
    with(Settings::default(), |world| {
        world.edit::<Node>(&node(), |it| it["metadata"]["labels"][&wanted] = json!("1"));
        assert_eq!(labels(world), [version(&wanted)], "there is no such Module");
        world.put::<Module>(versioned(spec("")));
        assert_eq!(labels(world), [version(&wanted)], "it has no versions");
        world.put::<Module>(versioned(spec("1")));
        assert_eq!(labels(world), [version(&wanted), version(&driver), version(&plugin)]);
        // A Module that breaks a rule keeps what there is.
        world.put::<Module>(versioned(json!({"selector": {}})));
        assert_eq!(labels(world).len(), 3);
        world.put::<Module>(versioned(spec("")));
        assert_eq!(labels(world), [version(&wanted)]);
        world.put::<Module>(versioned(spec("1")));
        assert_eq!(labels(world).len(), 3);
        world.edit::<Module>(&Key::new("drivers", "hello"), |it| {
            it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        });
        assert_eq!(labels(world), [version(&wanted)]);
    });
}

#[test]
fn nodes_are_planned_when_their_labels_may_change() {
    with(Settings::default(), |world| {
        let controller = NodeLabelController::new(LiveSettings::default());
        let key = Key::new("drivers", "hello");
        world.edit::<Node>(&node(), |it| {
            it["metadata"]["labels"][NodeLabelKind::Ready.key("drivers", "hello")] = json!("");
        });
        world.put::<Node>(json!({"metadata": {"name": "b"}}));
        let store = world.world.store::<Module>();
        let module = |spec: Value| -> Module { serde_json::from_value(versioned(spec)).unwrap() };
        let added = store.set(module(json!({"selector": {}})));
        assert_eq!(controller.enqueue(&world.world, &added), [node()], "those with its labels");
        let changed = store.set(module(json!({"selector": {"x": "y"}})));
        assert_eq!(controller.enqueue(&world.world, &changed), []);
        let removed = store.unset(&key).unwrap();
        assert_eq!(controller.enqueue(&world.world, &removed), [node()]);
        let nodes = world.world.store::<Node>();
        let unchanged = nodes.set(Node::clone(&nodes.get(&node()).unwrap()));
        assert_eq!(controller.enqueue(&world.world, &unchanged), []);
    });
}
