//! DaemonSets, service accounts and status.

use gantry_harness::{Scenario, Server};
use gantry_reconcile::{Key, Propagation, Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    EL8, EL9, NAMESPACE, Simulation, TestControllers, built, container, daemon_sets, edit_module,
    for_any_kernel, module, node, node_labels, set_kernel, set_node, stored, text,
};
use super::invariants::{daemon_sets_deleted, jobs_created};
use crate::settings::{KernelLabeling, PodSecurity, Settings};
use crate::view::{DaemonSet, Job, Module, ModulePod, Namespace, Node, ServiceAccount};

const DRIVER: &str = "driver-container";
const PLUGIN: &str = "device-plugin";
pub(super) const ROLE_BINDINGS: Resource =
    Resource::namespaced("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
        .without_status();

/// Runs a test in a cluster with these objects.
fn with(
    settings: Settings,
    objects: Vec<(Resource, Value)>,
    test: impl FnOnce(&mut Simulation<'_>),
) {
    let controllers = TestControllers::new(settings);
    let all = controllers.all();
    let scenario: Scenario<'_> = controllers.scenario(&all, objects);
    test(&mut Simulation::new(&scenario));
}

fn two_kernels() -> Vec<(Resource, Value)> {
    vec![node("a", EL8), node("b", EL9), stored(module("hello"))]
}

fn image(kernel: &str) -> (String, String) {
    (kernel.to_owned(), format!("quay.io/vendor/hello:{kernel}"))
}

/// The nodes that pods of a part run on.
fn nodes_of(server: &Server, part: &str) -> Vec<String> {
    let pods = server.list(&ModulePod::RESOURCE);
    let of_part =
        pods.iter().filter(|it| text(it, "/metadata/labels/ooto.sigs.k8s.io~1role") == part);
    let mut nodes: Vec<String> = of_part.map(|it| text(it, "/spec/nodeName").to_owned()).collect();
    nodes.sort();
    nodes
}

/// The status of a Module.
fn status(server: &Server, name: &str) -> Value {
    server.get(&Module::RESOURCE, &Key::new(NAMESPACE, name)).unwrap()["status"].clone()
}

fn counts(number: i64) -> Value {
    json!({"desiredNumberScheduled": number, "numberReady": number, "numberAvailable": number})
}

#[test]
fn kms_22_each_kernel_has_a_daemon_set_while_a_node_runs_it() {
    with(Settings::default(), two_kernels(), |it| {
        assert_eq!(daemon_sets(it.run.server(), DRIVER), [image(EL8), image(EL9)]);
        assert_eq!(nodes_of(it.run.server(), DRIVER), ["a", "b"]);
        it.act(|server| set_kernel(server, "b", EL8));
        assert_eq!(daemon_sets(it.run.server(), DRIVER), [image(EL8)]);
        assert_eq!(nodes_of(it.run.server(), DRIVER), ["a", "b"]);
        assert_eq!(jobs_created(it.run.server(), "build"), 0);
    });
}

/// The generation of each DaemonSet of a part.
fn generations(server: &Server, part: &str) -> Vec<(String, i64)> {
    let all = server.list(&DaemonSet::RESOURCE);
    let of_part =
        all.iter().filter(|it| text(it, "/metadata/labels/ooto.sigs.k8s.io~1role") == part);
    let describe = |it: &&Value| {
        (text(it, "/metadata/uid").to_owned(), it["metadata"]["generation"].as_i64().unwrap())
    };
    of_part.map(describe).collect()
}

#[test]
fn kms_23_another_plugin_image_leaves_drivers_untouched() {
    with(Settings::default(), two_kernels(), |it| {
        let before = generations(it.run.server(), DRIVER);
        let plugin = generations(it.run.server(), PLUGIN);
        it.act(|server| {
            edit_module(server, "hello", |spec| {
                spec["devicePlugin"]["container"]["image"] = json!("quay.io/vendor/plugin:2");
            });
        });
        assert_eq!(generations(it.run.server(), DRIVER), before);
        let expected: Vec<_> = plugin.into_iter().map(|(uid, number)| (uid, number + 1)).collect();
        assert_eq!(generations(it.run.server(), PLUGIN), expected, "patched, not replaced");
        assert_eq!(daemon_sets(it.run.server(), PLUGIN)[0].1, "quay.io/vendor/plugin:2");
    });
}

#[test]
fn kms_24_another_driver_image_patches_the_same_daemon_sets() {
    with(Settings::default(), two_kernels(), |it| {
        let before = generations(it.run.server(), DRIVER);
        it.act(|server| {
            edit_module(server, "hello", |spec| {
                container(spec)["containerImage"] = json!("quay.io/vendor/hello:v2");
            });
        });
        let expected: Vec<_> = before.into_iter().map(|(uid, number)| (uid, number + 1)).collect();
        assert_eq!(generations(it.run.server(), DRIVER), expected);
        let images = daemon_sets(it.run.server(), DRIVER);
        assert!(images.iter().all(|it| it.1 == "quay.io/vendor/hello:v2"), "{images:?}");
    });
}

#[test]
fn kms_25_a_node_that_loses_its_label_loses_its_pod() {
    let mut objects = two_kernels();
    objects.push(node("c", EL9));
    with(Settings::default(), objects, |it| {
        let unlabel = |node: &mut Value| node["metadata"]["labels"]["gpu"] = json!("no");
        it.act(|server| set_node(server, "c", unlabel));
        assert_eq!(nodes_of(it.run.server(), DRIVER), ["a", "b"]);
        assert_eq!(daemon_sets(it.run.server(), DRIVER).len(), 2);
        it.act(|server| set_node(server, "b", unlabel));
        assert_eq!(
            daemon_sets(it.run.server(), DRIVER),
            [image(EL8)],
            "the last one of its kernel"
        );
        assert_eq!(node_labels(it.run.server(), "b").len(), 0);
        assert_eq!(nodes_of(it.run.server(), PLUGIN), ["a"]);
    });
}

#[test]
fn kms_26_cordoned_and_broken_nodes_delete_nothing() {
    with(Settings::default(), two_kernels(), |it| {
        it.act(|server| {
            set_node(server, "a", |node| {
                node["spec"] = json!({"unschedulable": true, "taints": [
                    {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                ]});
            });
        });
        it.act(|server| {
            set_node(server, "b", |node| {
                node["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
                node["spec"]["taints"] =
                    json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]);
            });
        });
        assert_eq!(daemon_sets(it.run.server(), DRIVER), [image(EL8), image(EL9)]);
        assert_eq!(daemon_sets_deleted(it.run.server()), 0);
    });
}

#[test]
fn kms_27_a_daemon_set_survives_an_error_in_a_template() {
    with(Settings::default(), two_kernels(), |it| {
        it.event_reasons();
        let before = generations(it.run.server(), DRIVER);
        it.act(|server| {
            edit_module(server, "hello", |spec| {
                // A variable that these kernels lack, then one that nothing has, then no template.
                container(spec)["containerImage"] = json!("quay.io/a/b:${KERNEL_UBUNTU_FLAVOR}");
            });
        });
        assert!(it.holds("TemplateError"), "{:?}", it.held());
        assert!(it.event_reasons().contains(&"TemplateError".to_owned()));
        for invalid in ["quay.io/a/b:${NOPE}", "quay.io/a/b:${", "quay.io/a/b", ""] {
            it.act(|server| {
                edit_module(server, "hello", |spec| {
                    container(spec)["containerImage"] = json!(invalid);
                });
            });
            assert_eq!(generations(it.run.server(), DRIVER), before, "{invalid}");
            assert!(!it.held().is_empty(), "{invalid}");
        }
        // Nor does a Module that breaks a rule lose anything.
        it.act(|server| {
            edit_module(server, "hello", |spec| {
                container(spec)["kernelMappings"] = json!([{"regexp": "("}]);
                spec["devicePlugin"]["container"]["image"] = json!("quay.io/${KERNEL_X}");
            });
        });
        assert_eq!(generations(it.run.server(), DRIVER), before);
        assert_eq!(daemon_sets(it.run.server(), PLUGIN).len(), 1);
        assert_eq!(daemon_sets_deleted(it.run.server()), 0);
        assert_eq!(node_labels(it.run.server(), "a").len(), 2, "it is still loaded");
    });
}

/// An image of a device plugin that depends on the kernel is an error, and it keeps the DaemonSet.
#[test]
fn kms_27_a_device_plugin_survives_an_error_in_its_image() {
    with(Settings::default(), two_kernels(), |it| {
        for image in ["quay.io/a/b:${KERNEL_X}", "quay.io/a/b:${"] {
            it.act(|server| {
                edit_module(server, "hello", |spec| {
                    spec["devicePlugin"]["container"]["image"] = json!(image);
                });
            });
            assert!(!it.held().is_empty(), "{image}");
            let found = daemon_sets(it.run.server(), PLUGIN);
            assert_eq!(found, [(String::new(), "quay.io/vendor/plugin:1".to_owned())]);
        }
        it.act(|server| {
            edit_module(server, "hello", |spec| {
                spec["devicePlugin"]["container"]["image"] =
                    json!("quay.io/${MOD_NAMESPACE}/${MOD_NAME}:1");
            });
        });
        assert_eq!(daemon_sets(it.run.server(), PLUGIN)[0].1, "quay.io/drivers/hello:1");
    });
}

#[test]
fn kms_28_modules_do_not_affect_each_other() {
    let mut other = module("other");
    other["spec"]["selector"] = json!({"gpu": "other"});
    let mut objects = vec![node("a", EL8), node("b", EL8), stored(module("hello")), stored(other)];
    objects[1].1["metadata"]["labels"]["gpu"] = json!("other");
    with(Settings::default(), objects, |it| {
        let labels = |server: &Server, node: &str| -> Vec<String> {
            node_labels(server, node).into_keys().collect()
        };
        let of = |name: &str| {
            vec![format!("drivers.{name}.device-plugin-ready"), format!("drivers.{name}.ready")]
        };
        assert_eq!(labels(it.run.server(), "a"), of("hello"));
        assert_eq!(labels(it.run.server(), "b"), of("other"));
        let key = Key::new(NAMESPACE, "other");
        it.act(|server| server.delete(&Module::RESOURCE, &key, Propagation::Background));
        assert_eq!(labels(it.run.server(), "a"), of("hello"));
        assert_eq!(labels(it.run.server(), "b"), Vec::<String>::new());
        assert_eq!(daemon_sets(it.run.server(), DRIVER), [image(EL8)]);
        let namespace =
            it.run.server().get(&Namespace::RESOURCE, &Key::cluster(NAMESPACE)).unwrap();
        let label = &namespace["metadata"]["labels"]["ooto.sigs.k8s.io/contains-modules"];
        assert_eq!(label, "", "one is left");
    });
}

#[test]
fn kms_29_labels_of_node_feature_discovery_are_read_and_ours_are_not_written() {
    const LABEL: &str = "feature.node.kubernetes.io/kernel-version.full";
    let settings =
        Settings { kernel_labeling: KernelLabeling::NodeFeatureDiscovery, ..Settings::default() };
    with(settings, two_kernels(), |it| {
        assert_eq!(daemon_sets(it.run.server(), DRIVER), [], "no node has the label yet");
        assert!(it.holds("NoKernelLabel"), "{:?}", it.held());
        it.act(|server| {
            set_node(server, "a", |node| {
                node["metadata"]["labels"][LABEL] = json!("the-label");
            });
        });
        assert_eq!(daemon_sets(it.run.server(), DRIVER), [image(EL8)]);
        assert_eq!(nodes_of(it.run.server(), DRIVER), ["a"]);
        // The selector of a DaemonSet cannot be changed: another value is another DaemonSet.
        it.act(|server| {
            set_node(server, "a", |node| {
                node["metadata"]["labels"][LABEL] = json!("changed");
            });
        });
        assert_eq!(daemon_sets(it.run.server(), DRIVER), [image(EL8)]);
        assert_eq!(nodes_of(it.run.server(), DRIVER), ["a"]);
        for name in ["a", "b"] {
            let node = it.run.server().get(&Node::RESOURCE, &Key::cluster(name)).unwrap();
            let own = &node["metadata"]["labels"]["oot.node.kubernetes.io/kernel-version.full"];
            assert_eq!(*own, Value::Null, "{name}");
        }
        // A label that is gone for a while does not unload anything.
        it.act(|server| {
            set_node(server, "a", |node| {
                node["metadata"]["labels"].as_object_mut().unwrap().shift_remove(LABEL);
            });
        });
        assert_eq!(daemon_sets(it.run.server(), DRIVER), [image(EL8)]);
    });
}

#[test]
fn kms_30_a_removed_device_plugin_takes_everything_with_it() {
    with(Settings::default(), two_kernels(), |it| {
        assert_eq!(status(it.run.server(), "hello")["devicePlugin"], counts(2));
        it.act(|server| {
            edit_module(server, "hello", |spec| {
                spec.as_object_mut().unwrap().shift_remove("devicePlugin");
            });
        });
        let server = it.run.server();
        assert_eq!(daemon_sets(server, PLUGIN), []);
        assert_eq!(nodes_of(server, PLUGIN), Vec::<String>::new());
        let labels: Vec<String> = node_labels(server, "a").into_keys().collect();
        assert_eq!(labels, ["drivers.hello.ready"]);
        assert_eq!(status(server, "hello"), json!({"driverContainer": counts(2)}));
        assert_eq!(daemon_sets(server, DRIVER).len(), 2);
    });
}

fn names(server: &Server, resource: &Resource) -> Vec<String> {
    server.list(resource).iter().map(|it| text(it, "/metadata/name").to_owned()).collect()
}

#[test]
fn kms_31_service_accounts_are_created_bound_and_left_to_the_user() {
    let both = ["hello-device-plugin", "hello-driver-container"];
    with(Settings::default(), two_kernels(), |it| {
        assert_eq!(names(it.run.server(), &ServiceAccount::RESOURCE), both);
        assert_eq!(names(it.run.server(), &ROLE_BINDINGS), [""; 0]);
    });
    let bound =
        Settings { pod_security: PodSecurity::SecurityContextConstraints, ..Settings::default() };
    with(bound.clone(), two_kernels(), |it| {
        assert_eq!(names(it.run.server(), &ServiceAccount::RESOURCE), both);
        let bindings = it.run.server().list(&ROLE_BINDINGS);
        let bound: Vec<(&str, &str)> = bindings
            .iter()
            .map(|it| (text(it, "/subjects/0/name"), text(it, "/roleRef/name")))
            .collect();
        let roles = ["gantry-modules-device-plugin", "gantry-modules-driver"];
        assert_eq!(bound, both.into_iter().zip(roles).collect::<Vec<_>>());
        assert_eq!(text(bindings[0], "/metadata/ownerReferences/0/name"), "hello");
    });
    let mut named = module("hello");
    named["spec"]["driverContainer"]["serviceAccountName"] = json!("mine");
    with(bound, vec![node("a", EL8), stored(named)], |it| {
        assert_eq!(names(it.run.server(), &ServiceAccount::RESOURCE), ["hello-device-plugin"]);
        assert_eq!(names(it.run.server(), &ROLE_BINDINGS).len(), 1);
        let sets = it.run.server().list(&DaemonSet::RESOURCE);
        let accounts: Vec<&str> =
            sets.iter().map(|it| text(it, "/spec/template/spec/serviceAccountName")).collect();
        assert_eq!(accounts, ["hello-device-plugin", "mine"]);
    });
    let none = Settings { create_service_accounts: false, ..Settings::default() };
    with(none, two_kernels(), |it| {
        assert_eq!(names(it.run.server(), &ServiceAccount::RESOURCE), [""; 0]);
    });
}

/// Where the cluster has a registry, the Jobs of a Module push to it as an account of their own.
#[test]
fn kms_31_jobs_have_an_account_that_is_bound_to_the_role_of_the_registry() {
    let mut settings = Settings::default();
    settings.jobs.registry_role = Some("pusher".to_owned());
    settings.jobs.collection_delay = std::time::Duration::from_secs(3600);
    let accounts = ["hello-device-plugin", "hello-driver-container", "hello-image-jobs"];
    with(settings.clone(), vec![node("a", EL8), stored(built("hello"))], |it| {
        assert_eq!(names(it.run.server(), &ServiceAccount::RESOURCE), accounts);
        let bindings = it.run.server().list(&ROLE_BINDINGS);
        let bound = bindings.iter().map(|it| {
            let of = ["/subjects/0/name", "/roleRef/name", "/metadata/namespace"];
            of.map(|pointer| text(it, pointer))
        });
        let bound: Vec<_> = bound.collect();
        assert_eq!(bound, [["hello-image-jobs", "pusher", NAMESPACE]]);
        assert_eq!(text(bindings[0], "/metadata/ownerReferences/0/name"), "hello");
        let jobs = it.run.server().list(&Job::RESOURCE);
        let account = text(jobs[0], "/spec/template/spec/serviceAccountName");
        assert_eq!((jobs.len(), account), (1, "hello-image-jobs"));
    });
    // One whose images exist has no Jobs, and none of its pods may push.
    with(settings, vec![node("a", EL8), stored(module("hello"))], |it| {
        assert_eq!(names(it.run.server(), &ServiceAccount::RESOURCE), accounts[..2]);
        assert_eq!(names(it.run.server(), &ROLE_BINDINGS), [""; 0]);
    });
}

/// Accounts that existed before are bound when that is configured later; those of others are not.
#[test]
fn kms_31_accounts_are_bound_later() {
    let account = |name: &str, owned: bool| {
        let owner =
            json!([{"kind": "Module", "name": "hello", "uid": "uid-4", "controller": true}]);
        let owners = if owned { owner } else { json!([]) };
        let metadata = json!({"name": name, "namespace": NAMESPACE, "ownerReferences": owners});
        (ServiceAccount::RESOURCE, json!({"metadata": metadata}))
    };
    let objects = vec![
        node("a", EL8),
        stored(module("hello")),
        account("hello-driver-container", true),
        account("hello-device-plugin", false),
    ];
    let bound =
        Settings { pod_security: PodSecurity::SecurityContextConstraints, ..Settings::default() };
    with(bound, objects, |it| {
        let module = it.run.server().get(&Module::RESOURCE, &Key::new(NAMESPACE, "hello")).unwrap();
        assert_eq!(text(module, "/metadata/uid"), "uid-4", "as the account says");
        assert_eq!(names(it.run.server(), &ROLE_BINDINGS), ["hello-driver-container"]);
    });
}

#[test]
fn a_strict_namespace_is_reported_and_left_alone() {
    with(Settings::default(), two_kernels(), |it| {
        it.act(|server| {
            server.edit(&Namespace::RESOURCE, &Key::cluster(NAMESPACE), |it| {
                it["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = json!("baseline");
            });
        });
        assert!(it.holds("PodSecurityTooStrict"), "{:?}", it.held());
        let namespace =
            it.run.server().get(&Namespace::RESOURCE, &Key::cluster(NAMESPACE)).unwrap();
        let label = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
        assert_eq!(label, "baseline");
    });
}

#[test]
fn kms_32_the_status_sums_over_kernels_and_shows_zeros() {
    let mut objects = two_kernels();
    objects.push(node("c", EL9));
    let mut unused = module("unused");
    unused["spec"]["selector"] = json!({"gpu": "none"});
    unused["spec"].as_object_mut().unwrap().shift_remove("devicePlugin");
    objects.push(stored(unused));
    let mut plugin = module("plugin");
    plugin["spec"].as_object_mut().unwrap().shift_remove("driverContainer");
    objects.push(stored(plugin));
    with(Settings::default(), objects, |it| {
        let server = it.run.server();
        let expected = json!({"driverContainer": counts(3), "devicePlugin": counts(3)});
        assert_eq!(status(server, "hello"), expected);
        assert_eq!(status(server, "unused"), json!({"driverContainer": counts(0)}));
        assert_eq!(status(server, "plugin"), json!({"devicePlugin": counts(3)}));
    });
}

#[test]
fn of_two_kernels_with_one_label_the_first_is_served() {
    // Characters that labels do not have become the same one.
    let (first, second) = ("5.10.0+a", "5.10.0~a");
    let objects = vec![node("a", second), stored(for_any_kernel(module("hello")))];
    with(Settings::default(), objects, |it| {
        let image = |kernel: &str| (kernel.to_owned(), "quay.io/vendor/hello:5.10.0_a".to_owned());
        assert_eq!(daemon_sets(it.run.server(), DRIVER), [image(second)]);
        it.act(|server| {
            let (resource, node) = node("b", first);
            server.create(&resource, node);
        });
        assert!(it.holds("KernelLabelCollision"), "{:?}", it.held());
        assert_eq!(daemon_sets(it.run.server(), DRIVER), [image(first)]);
    });
}

#[test]
fn a_kernel_that_cannot_be_read_affects_its_nodes_only() {
    let objects = vec![
        node("a", EL8),
        node("b", "test"),
        node("c", ""),
        stored(for_any_kernel(module("hello"))),
    ];
    with(Settings::default(), objects, |it| {
        assert_eq!(daemon_sets(it.run.server(), DRIVER), [image(EL8)]);
        assert!(it.holds("InvalidKernelVersion"), "{:?}", it.held());
        assert_eq!(nodes_of(it.run.server(), DRIVER), ["a"]);
    });
}

#[test]
fn a_daemon_set_of_somebody_else_is_left_alone() {
    with(Settings::default(), two_kernels(), |it| {
        let server = it.run.server();
        let set = server.list(&DaemonSet::RESOURCE)[0].clone();
        let key = Key::new(NAMESPACE, text(&set, "/metadata/name"));
        server.delete(&DaemonSet::RESOURCE, &key, Propagation::Orphan);
        let mut foreign = json!({"metadata": {"name": key.name(), "namespace": NAMESPACE}});
        foreign["spec"] = json!({"template": {"spec": {"containers": [{"image": "theirs:1"}]}}});
        server.create(&DaemonSet::RESOURCE, foreign);
        it.advance(60);
        assert!(it.holds("NameTaken"), "{:?}", it.held());
        let found = it.run.server().get(&DaemonSet::RESOURCE, &key).unwrap();
        assert_eq!(text(found, "/spec/template/spec/containers/0/image"), "theirs:1");
        it.act(|server| server.delete(&DaemonSet::RESOURCE, &key, Propagation::Background));
        let found = it.run.server().get(&DaemonSet::RESOURCE, &key).unwrap();
        assert_eq!(text(found, "/metadata/ownerReferences/0/name"), "hello");
    });
}

#[test]
fn stages_that_do_not_run_here_are_reported_and_ignored() {
    let mut settings = Settings::default();
    settings.stages.build = false;
    let objects = vec![node("a", EL8), stored(built("hello"))];
    with(settings, objects, |it| {
        assert_eq!(jobs_created(it.run.server(), "build"), 0);
        assert_eq!(daemon_sets(it.run.server(), DRIVER), [image(EL8)]);
        assert!(it.event_reasons().contains(&"FeatureDisabled".to_owned()));
    });
}
