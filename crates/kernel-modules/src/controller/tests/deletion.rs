//! Modules that are deleted, and old versions.

use gantry_harness::Server;
use gantry_reconcile::{Key, Propagation, Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    EL8, EL9, NAMESPACE, Simulation, TestControllers, built, container, daemon_sets, edit_module,
    module, node, node_labels, set_node, stored, text,
};
use crate::labels::NodeLabelKind;
use crate::settings::Settings;
use crate::view::{DaemonSet, Job, Module, ModulePod, Namespace, Node};

const OWNERS: Resource =
    Resource::namespaced("test", "v1", "operators", "Operator").without_status();

pub(super) fn with(
    settings: Settings,
    objects: Vec<(Resource, Value)>,
    test: impl FnOnce(&mut Simulation<'_>),
) {
    let controllers = TestControllers::new(settings);
    let all = controllers.all();
    let scenario = controllers.scenario(&all, objects);
    test(&mut Simulation::new(&scenario));
}

/// Asserts that nothing of any Module is left.
fn assert_unloaded(server: &Server) {
    for resource in [Module::RESOURCE, DaemonSet::RESOURCE, ModulePod::RESOURCE, Job::RESOURCE] {
        assert_eq!(server.list(&resource), Vec::<&Value>::new(), "{resource}");
    }
    for node in server.list(&Node::RESOURCE) {
        let labels = node_labels(server, text(node, "/metadata/name"));
        assert_eq!(labels.len(), 0, "{labels:?}");
    }
    let namespace = server.get(&Namespace::RESOURCE, &Key::cluster(NAMESPACE)).unwrap();
    let label = namespace["metadata"]["labels"].get("ooto.sigs.k8s.io/contains-modules");
    assert_eq!(label, None);
}

/// When the last object of a kind with this role was gone, as a revision.
fn gone_at(server: &Server, resource: &Resource, role: &str) -> u64 {
    let states = server.history(resource).filter(|(_, is_last)| *is_last);
    let revisions = states.filter_map(|(state, _)| {
        let object: Value = serde_json::from_str(state).unwrap();
        let is_role = text(&object, "/metadata/labels/ooto.sigs.k8s.io~1role") == role;
        is_role.then(|| text(&object, "/metadata/resourceVersion").parse::<u64>().unwrap())
    });
    revisions.max().unwrap()
}

/// When the first object of a kind with this role was asked to go.
fn deleted_at(server: &Server, resource: &Resource, role: &str) -> u64 {
    let revisions = server.history(resource).filter_map(|(state, _)| {
        let object: Value = serde_json::from_str(state).unwrap();
        let is_role = text(&object, "/metadata/labels/ooto.sigs.k8s.io~1role") == role;
        let is_deleted = object["metadata"]["deletionTimestamp"].is_string();
        let revision = || text(&object, "/metadata/resourceVersion").parse::<u64>().unwrap();
        (is_role && is_deleted).then(revision)
    });
    revisions.min().unwrap()
}

#[test]
fn kms_84_deletion_goes_from_plugin_to_driver_to_labels() {
    let objects = vec![node("a", EL8), node("b", EL9), stored(module("hello"))];
    let settings = Settings { kmm_labels: true, ..Settings::default() };
    with(settings, objects, |it| {
        assert_eq!(node_labels(it.run.server(), "a").len(), 4, "two of each kind");
        let key = Key::new(NAMESPACE, "hello");
        it.act(|server| server.delete(&Module::RESOURCE, &key, Propagation::Background));
        let server = it.run.server();
        assert_unloaded(server);
        let plugins = gone_at(server, &ModulePod::RESOURCE, "device-plugin");
        let drivers = deleted_at(server, &DaemonSet::RESOURCE, "driver-container");
        assert!(plugins < drivers, "drivers stay until the last plugin is gone");
        let unloaded = gone_at(server, &ModulePod::RESOURCE, "driver-container");
        let module = server.history(&Module::RESOURCE).last().unwrap();
        let module: Value = serde_json::from_str(module.0).unwrap();
        let removed: u64 = text(&module, "/metadata/resourceVersion").parse().unwrap();
        assert!(unloaded < removed, "the Module stays until all is unloaded");
    });
}

/// A process may end between the last Module and the label of its namespace.
#[test]
fn kms_84_a_namespace_without_modules_loses_its_label() {
    with(Settings::default(), vec![node("a", EL8)], |it| {
        server_label(it.run.server());
        it.run.restart();
        it.advance(30);
        assert_unloaded(it.run.server());
    });
}

/// Labels the namespace as one with Modules.
fn server_label(server: &mut Server) {
    server.edit(&Namespace::RESOURCE, &Key::cluster(NAMESPACE), |it| {
        it["metadata"]["labels"] = json!({"ooto.sigs.k8s.io/contains-modules": ""});
    });
}

/// Somebody has deleted a DaemonSet and left its pods: they are waited for as well.
#[test]
fn kms_84_pods_without_a_daemon_set_are_waited_for() {
    with(Settings::default(), vec![node("a", EL8), stored(module("hello"))], |it| {
        let server = it.run.server();
        let sets = server.list(&DaemonSet::RESOURCE);
        let role = "/metadata/labels/ooto.sigs.k8s.io~1role";
        let plugin = sets.iter().find(|it| text(it, role) == "device-plugin").unwrap();
        let set = Key::new(NAMESPACE, text(plugin, "/metadata/name"));
        let pod = set.in_same_namespace(&format!("{}-a", set.name()));
        let key = Key::new(NAMESPACE, "hello");
        server.delete(&Module::RESOURCE, &key, Propagation::Background);
        server.delete(&DaemonSet::RESOURCE, &set, Propagation::Orphan);
        it.advance(60);
        assert!(it.holds("Unloading"), "{:?}", it.held());
        assert_eq!(daemon_sets(it.run.server(), "driver-container").len(), 1);
        it.act(|server| server.delete(&ModulePod::RESOURCE, &pod, Propagation::Background));
        assert_unloaded(it.run.server());
    });
}

/// Nothing but its finalizer keeps a Module whose labels somebody else has put back.
#[test]
fn kms_84_labels_are_removed_from_every_node() {
    let objects = vec![node("a", EL8), node("b", EL8), stored(module("hello"))];
    let settings = Settings { kmm_labels: true, ..Settings::default() };
    with(settings, objects, |it| {
        let wanted = NodeLabelKind::WantedVersion.key(NAMESPACE, "hello");
        let version = NodeLabelKind::DriverVersion.key(NAMESPACE, "hello");
        it.run.server().intercept(|write| {
            // Nothing of what it loaded goes yet.
            let is_set = *write.resource() == DaemonSet::RESOURCE && write.verb() == "delete";
            is_set.then(|| gantry_reconcile::Outcome::Conflict("later".to_owned()))
        });
        let key = Key::new(NAMESPACE, "hello");
        it.run.server().delete(&Module::RESOURCE, &key, Propagation::Background);
        set_node(it.run.server(), "b", |node| {
            node["metadata"]["labels"][&wanted] = json!("1");
            node["metadata"]["labels"]["gpu"] = json!("no longer");
        });
        let (resource, mut third) = node("c", EL8);
        third["metadata"]["labels"] = json!({"kmm.node.kubernetes.io/drivers.hello.ready": ""});
        it.run.server().create(&resource, third);
        it.run.server().edit(&Node::RESOURCE, &Key::cluster("c"), |node| {
            node["metadata"]["labels"]["own"] = json!("x");
        });
        it.advance(60);
        assert!(it.holds("Unloading"), "{:?}", it.held());
        set_node(it.run.server(), "a", |node| node["metadata"]["labels"][&version] = json!("1"));
        it.run.server().intercept(|_| None);
        it.advance(120);
        let left = node_labels(it.run.server(), "b");
        assert_eq!(left.len(), 1, "that of the administrator stays: {left:?}");
        set_node(it.run.server(), "b", |node| {
            node["metadata"]["labels"].as_object_mut().unwrap().shift_remove(&wanted);
        });
        assert_unloaded(it.run.server());
    });
}

#[test]
fn kms_84_a_deletion_that_stalls_is_reported_and_may_be_skipped() {
    with(Settings::default(), vec![node("a", EL8), stored(module("hello"))], |it| {
        let key = Key::new(NAMESPACE, "hello");
        // The kubelet does not answer, so its pods stay.
        it.run.server().intercept(|write| {
            let is_pod = *write.resource() == ModulePod::RESOURCE && write.verb() == "delete";
            is_pod.then(|| gantry_reconcile::Outcome::Unknown("no kubelet".to_owned()))
        });
        it.act(|server| server.delete(&Module::RESOURCE, &key, Propagation::Background));
        assert!(it.holds("Unloading"), "{:?}", it.held());
        it.event_reasons();
        it.advance(600);
        let held = it.held().into_iter().find(|it| it.starts_with("UnloadStalled")).unwrap();
        assert!(held.contains("-a on a") && held.contains("skip-unload=true"), "{held}");
        assert!(it.event_reasons().contains(&"UnloadStalled".to_owned()));
        let drivers = daemon_sets(it.run.server(), "driver-container");
        assert_eq!(drivers.len(), 1, "the driver waits for the plugin");
        it.act(|server| {
            server.edit(&Module::RESOURCE, &key, |it| {
                it["metadata"]["annotations"] = json!({"ooto.sigs.k8s.io/skip-unload": "true"});
            });
        });
        it.run.server().intercept(|_| None);
        // Until the kubelet tries again.
        it.advance(600);
        assert_unloaded(it.run.server());
    });
}

#[test]
fn kms_85_deleting_the_owner_of_a_module_unloads_it() {
    let owner = json!({"metadata": {"name": "operator", "namespace": NAMESPACE}});
    with(Settings::default(), vec![node("a", EL8), (OWNERS, owner)], |it| {
        let key = Key::new(NAMESPACE, "operator");
        let uid = text(it.run.server().get(&OWNERS, &key).unwrap(), "/metadata/uid").to_owned();
        let mut module = built("hello");
        module["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "test/v1", "kind": "Operator", "name": "operator", "uid": uid}]);
        it.act(|server| {
            server.create(&Module::RESOURCE, module);
        });
        assert_eq!(daemon_sets(it.run.server(), "driver-container").len(), 1);
        it.act(|server| server.delete(&OWNERS, &key, Propagation::Background));
        assert_unloaded(it.run.server());
        let server = it.run.server();
        let plugins = gone_at(server, &ModulePod::RESOURCE, "device-plugin");
        assert!(plugins < deleted_at(server, &DaemonSet::RESOURCE, "driver-container"));
    });
}

/// A Module of the same name comes before the old one is quite gone.
#[test]
fn a_module_that_is_recreated_is_loaded_again() {
    with(Settings::default(), vec![node("a", EL8), stored(module("hello"))], |it| {
        let key = Key::new(NAMESPACE, "hello");
        for _ in 0..3 {
            it.run.server().delete(&Module::RESOURCE, &key, Propagation::Background);
            for _ in 0..5 {
                it.advance(1);
                it.run.server().create(&Module::RESOURCE, module("hello"));
            }
            it.advance(60);
            assert_eq!(node_labels(it.run.server(), "a").len(), 2);
            let namespace = it.run.server().get(&Namespace::RESOURCE, &Key::cluster(NAMESPACE));
            let label =
                &namespace.unwrap()["metadata"]["labels"]["ooto.sigs.k8s.io/contains-modules"];
            assert_eq!(label, "");
        }
    });
}

/// Sets the version that a node should have.
pub(super) fn want(server: &mut Server, node: &str, version: Option<&str>) {
    let key = NodeLabelKind::WantedVersion.key(NAMESPACE, "hello");
    set_node(server, node, |it| it["metadata"]["labels"][&key] = json!(version));
    set_node(server, node, |it| {
        if version.is_none() {
            it["metadata"]["labels"].as_object_mut().unwrap().shift_remove(&key);
        }
    });
}

pub(super) fn ready_version(server: &Server, node: &str) -> String {
    let labels = node_labels(server, node);
    labels.get("drivers.hello.version.ready").cloned().unwrap_or_default()
}

pub(super) fn versioned(version: &str) -> Value {
    let mut module = module("hello");
    let fields = container(&mut module["spec"]);
    fields["version"] = json!(version);
    fields["containerImage"] = json!(format!("quay.io/vendor/hello:{version}"));
    module
}

#[test]
fn kms_83_an_old_version_is_deleted_when_no_node_wants_it() {
    let objects = vec![node("a", EL8), node("b", EL8), stored(versioned("1"))];
    with(Settings::default(), objects, |it| {
        for name in ["a", "b"] {
            assert_eq!(node_labels(it.run.server(), name).len(), 0, "nobody wants it yet");
            it.act(|server| want(server, name, Some("1")));
            assert_eq!(ready_version(it.run.server(), name), "1");
        }
        it.act(|server| {
            edit_module(server, "hello", |spec| *spec = versioned("2")["spec"].clone());
        });
        let versions = |server: &Server| -> Vec<String> {
            daemon_sets(server, "driver-container").into_iter().map(|(_, image)| image).collect()
        };
        let [one, two] = ["quay.io/vendor/hello:1".to_owned(), "quay.io/vendor/hello:2".to_owned()];
        assert_eq!(versions(it.run.server()), [one.clone(), two.clone()], "both versions");
        assert_eq!(daemon_sets(it.run.server(), "device-plugin").len(), 2);
        it.act(|server| want(server, "a", Some("2")));
        assert_eq!(ready_version(it.run.server(), "a"), "2");
        assert_eq!(ready_version(it.run.server(), "b"), "1", "at the administrator's pace");
        assert_eq!(versions(it.run.server()), [one, two.clone()]);
        it.act(|server| want(server, "b", Some("2")));
        assert_eq!(ready_version(it.run.server(), "b"), "2");
        assert_eq!(versions(it.run.server()), [two], "no node wants the old one");
        assert_eq!(daemon_sets(it.run.server(), "device-plugin").len(), 1);
        // A node is taken out for maintenance.
        it.act(|server| want(server, "a", None));
        assert_eq!(node_labels(it.run.server(), "a").len(), 0);
        it.act(|server| want(server, "a", Some("2")));
        assert_eq!(ready_version(it.run.server(), "a"), "2");
        let key = Key::new(NAMESPACE, "hello");
        it.act(|server| server.delete(&Module::RESOURCE, &key, Propagation::Background));
        for name in ["a", "b"] {
            assert_eq!(node_labels(it.run.server(), name).len(), 1, "that of the administrator");
        }
    });
}
