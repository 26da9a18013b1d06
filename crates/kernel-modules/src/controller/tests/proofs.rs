//! Every order of events, with lost requests, crashes and two leaders, ends in the same state.

use std::time::Duration;

use gantry_harness::test_world::{assert_proof, faulty_objects, is_faulty};
use gantry_harness::{Scenario, Server, UserAction};
use gantry_reconcile::{Key, Propagation, Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    EL8, EL9, NAMESPACE, SECRETS, TestControllers, built, container, daemon_sets, edit_module,
    invariant, jobs, module, node, secret, set_kernel, set_node, set_outside, shape, signed,
    stored, text,
};
use super::invariants::{assert_failures_are_not_repeated, daemon_sets_deleted};
use super::parts::ROLE_BINDINGS;
use crate::labels::{DRAIN_ANNOTATION, NodeLabelKind, REBUILD_ANNOTATION};
use crate::settings::{PodSecurity, Settings};
use crate::view::{DaemonSet, Module, ModulePod, Node, ServiceAccount};

/// Proves a scenario, and what `check` asserts of every end: for each seed with all kinds of
/// faults, also with two leaders.
pub(super) fn prove(
    objects: Vec<(Resource, Value)>,
    script: Vec<UserAction>,
    seeds: u64,
    check: impl Fn(&Server),
) {
    prove_with(objects, script, seeds, |_| {}, check);
}

/// How long Jobs and pods take: shorter than until a registry is asked again.
const SHORT: Duration = Duration::from_secs(60);
/// How long it takes besides until a changed Secret is noticed.
pub(super) const SECRETS_NOTICED: Duration = Duration::from_secs(150);

/// Proves the same with a crash at every move; it goes on for as long as `horizon` afterwards.
pub(super) fn prove_crashes(
    objects: Vec<(Resource, Value)>,
    script: Vec<UserAction>,
    horizon: Duration,
    check: impl Fn(&Server),
) {
    let controllers = TestControllers::new(Settings::default());
    let all = controllers.all();
    let mut scenario = controllers.scenario(&all, objects);
    scenario.script = script;
    scenario.horizon = horizon;
    let proof = scenario.prove_crashes(1, |server| {
        check(server);
        shape(server)
    });
    assert_proof(proof);
}

fn prove_with(
    objects: Vec<(Resource, Value)>,
    script: Vec<UserAction>,
    seeds: u64,
    prepare: impl Fn(&mut Scenario<'_>),
    check: impl Fn(&Server),
) {
    prove_in(Settings::default(), objects, script, seeds, prepare, check);
}

fn prove_in(
    settings: Settings,
    objects: Vec<(Resource, Value)>,
    script: Vec<UserAction>,
    seeds: u64,
    prepare: impl Fn(&mut Scenario<'_>),
    check: impl Fn(&Server),
) {
    let controllers = TestControllers::new(settings);
    let all = controllers.all();
    let mut scenario = controllers.scenario(&all, objects);
    scenario.script = script;
    prepare(&mut scenario);
    let proof = scenario.prove_faults(0..seeds, |server| {
        check(server);
        shape(server)
    });
    assert_proof(proof);
}

pub(super) fn action(action: impl Fn(&mut Server) + 'static) -> UserAction {
    Box::new(action)
}

fn module_key() -> Key {
    Key::new(NAMESPACE, "hello")
}

/// How many images the drivers of a Module run.
pub(super) fn drivers(server: &Server) -> usize {
    daemon_sets(server, "driver-container").len()
}

#[test]
fn prebuilt_images_are_loaded_whatever_happens() {
    let objects = vec![node("a", EL8), node("b", EL9), stored(module("hello"))];
    let script = vec![
        action(|server| set_kernel(server, "b", EL8)),
        action(|server| {
            edit_module(server, "hello", |spec| {
                container(spec)["containerImage"] = json!("quay.io/vendor/hello:v2");
            });
        }),
        action(|server| set_kernel(server, "a", EL9)),
    ];
    prove(objects, script, 12, |server| {
        assert_eq!(drivers(server), 2);
        assert_eq!(jobs(server), []);
    });
}

#[test]
fn images_are_built_and_signed_whatever_happens() {
    let objects = || vec![node("a", EL8), secret("key"), secret("cert"), stored(signed("hello"))];
    let check = |server: &Server| {
        assert_eq!((drivers(server), jobs(server)), (1, vec![]));
        assert_failures_are_not_repeated(server);
    };
    prove(objects(), Vec::new(), 12, check);
    prove_crashes(objects(), Vec::new(), SHORT, check);
}

/// Two Modules want one image: at no moment do two Jobs push it.
#[test]
fn kms_48_one_image_is_never_pushed_twice_at_a_time() {
    let shared = |name: &str| {
        let mut module = built(name);
        container(&mut module["spec"])["containerImage"] = json!("quay.io/vendor/shared:1");
        module["spec"].as_object_mut().unwrap().shift_remove("devicePlugin");
        stored(module)
    };
    let objects = vec![node("a", EL8), node("b", EL9), shared("one"), shared("two")];
    prove(objects, Vec::new(), 8, |server| {
        assert_eq!((drivers(server), jobs(server)), (4, vec![]));
    });
}

#[test]
fn kms_41_failed_jobs_are_never_repeated() {
    for stage in ["build", "sign"] {
        let objects = vec![node("a", EL8), secret("key"), secret("cert")];
        let script = vec![
            action(|server| {
                server.create(&Module::RESOURCE, signed("hello"));
            }),
            action(|server| {
                set_node(server, "a", |node| node["spec"]["unschedulable"] = json!(true));
            }),
        ];
        let prepare = |scenario: &mut Scenario<'_>| {
            scenario.objects[1].1[stage] = json!("fail");
        };
        prove_with(objects, script, 6, prepare, |server| {
            assert_failures_are_not_repeated(server);
            assert_eq!(drivers(server), 0);
            assert!(jobs(server).iter().any(|it| it.0 == stage && it.2 == "failed"));
        });
    }
}

/// While a registry has answered with nothing but errors, nothing is built.
#[test]
fn kms_46_no_job_is_created_before_a_registry_answers() {
    for error in ["401 Unauthorized", "403 Forbidden", "429 Too Many Requests", "503 Unavailable"] {
        let objects = vec![node("a", EL8), stored(built("hello"))];
        let script = vec![action(|server| set_outside(server, "registryError", ""))];
        let prepare = |scenario: &mut Scenario<'_>| {
            scenario.objects[1].1["registryError"] = json!(error);
            scenario.horizon = Duration::from_secs(900);
            scenario.external.invariants.push(invariant("no Job without an answer", |server| {
                let outside = super::cluster::registry_error(server);
                match outside.is_empty() || jobs(server).is_empty() {
                    true => Ok(()),
                    false => Err(format!("the registry only said {outside}")),
                }
            }));
        };
        prove_with(objects, script, 4, prepare, |server| {
            assert_eq!((drivers(server), jobs(server)), (1, vec![]));
        });
    }
}

/// Registries that fail, lie and are full, Secrets that change, nodes that break: nothing that runs
/// is unloaded.
#[test]
fn kms_26_nothing_is_unloaded_because_something_is_down() {
    let objects = vec![
        node("a", EL8),
        node("b", EL9),
        secret("key"),
        secret("cert"),
        stored(signed("hello")),
    ];
    let all_loaded = |server: &Server| drivers(server) == 2;
    let once_loaded = move |act: fn(&mut Server)| {
        action(move |server| {
            if all_loaded(server) {
                act(server);
            }
        })
    };
    let script = vec![
        once_loaded(|server| set_outside(server, "registryError", "503")),
        once_loaded(|server| {
            set_node(server, "a", |node| {
                node["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
            });
        }),
        once_loaded(|server| {
            server.edit(&SECRETS, &Key::new(NAMESPACE, "key"), |it| {
                it["data"] = json!("2");
            });
        }),
        once_loaded(|server| {
            set_node(server, "b", |node| node["spec"]["unschedulable"] = json!(true));
        }),
        action(|server| set_outside(server, "registryError", "")),
    ];
    prove(objects, script, 6, |server| {
        assert_eq!(drivers(server), 2);
        assert_eq!(daemon_sets_deleted(server), 0);
        assert_failures_are_not_repeated(server);
    });
}

/// The Secrets of a build exist before its Job does.
#[test]
fn secrets_are_waited_for_in_every_order() {
    let mut module = built("hello");
    container(&mut module["spec"])["build"]["secrets"] = json!([{"name": "git"}]);
    let script = vec![action(|server| {
        let (resource, object) = secret("git");
        server.create(&resource, object);
    })];
    let prepare = |scenario: &mut Scenario<'_>| {
        scenario.external.invariants.push(invariant("no Job without its Secret", |server| {
            match server.list(&SECRETS).is_empty() && !jobs(server).is_empty() {
                true => Err("a Job exists".to_owned()),
                false => Ok(()),
            }
        }));
    };
    prove_with(vec![node("a", EL8), stored(module)], script, 8, prepare, |server| {
        assert_eq!((drivers(server), jobs(server)), (1, vec![]));
    });
}

/// A process may end between any two objects of a service account.
#[test]
fn kms_31_accounts_are_bound_whatever_happens() {
    let settings =
        Settings { pod_security: PodSecurity::SecurityContextConstraints, ..Settings::default() };
    let controllers = TestControllers::new(settings);
    let all = controllers.all();
    let mut scenario = controllers.scenario(&all, vec![stored(module("hello"))]);
    scenario.horizon = Duration::from_secs(30);
    let names = |server: &Server, resource: &Resource| -> Vec<Value> {
        server.list(resource).iter().map(|it| it["metadata"]["name"].clone()).collect()
    };
    let proof = scenario.prove(0..4, |server| {
        let accounts = names(server, &ServiceAccount::RESOURCE);
        assert_eq!(accounts.len(), 2);
        assert_eq!(names(server, &ROLE_BINDINGS), accounts);
        json!(accounts)
    });
    assert_proof(proof);
}

/// A registry that denies what it has leads to another build and to nothing worse.
#[test]
fn a_registry_that_lies_unloads_nothing() {
    let objects = vec![node("a", EL8), stored(built("hello"))];
    let script = vec![
        action(|server| set_outside(server, "denied", "hello")),
        action(|server| set_outside(server, "denied", "")),
    ];
    prove(objects, script, 8, |server| {
        assert_eq!((drivers(server), jobs(server)), (1, vec![]));
        assert_eq!(daemon_sets_deleted(server), 0);
    });
}

#[test]
fn kms_47_a_trigger_is_acted_on_once_whatever_happens() {
    let objects = || vec![node("a", EL8), secret("key"), secret("cert"), stored(signed("hello"))];
    let script = || {
        vec![action(|server| {
            edit_module(server, "hello", |spec| {
                spec["imageRebuildTriggerGeneration"] = json!(1);
            });
        })]
    };
    let check = |server: &Server| {
        assert_eq!((drivers(server), jobs(server)), (1, vec![]));
        assert_eq!(daemon_sets_deleted(server), 0);
        let module = server.get(&Module::RESOURCE, &module_key()).unwrap();
        assert_eq!(module["metadata"]["annotations"][REBUILD_ANNOTATION], "1", "it was acted on");
    };
    prove(objects(), script(), 8, check);
    prove_crashes(objects(), script(), SHORT, check);
}

#[test]
fn kms_84_deletion_keeps_its_order_whatever_happens() {
    let delete = || {
        action(|server| server.delete(&Module::RESOURCE, &module_key(), Propagation::Background))
    };
    let check = |server: &Server| {
        assert_eq!(server.list(&Module::RESOURCE).len(), 0);
        assert_eq!(server.list(&DaemonSet::RESOURCE).len(), 0);
    };
    let objects = vec![node("a", EL8), node("b", EL9), stored(module("hello"))];
    let script = vec![delete(), action(|server| set_kernel(server, "b", EL8))];
    prove(objects, script, 12, check);
    let one = vec![node("a", EL8), stored(module("hello"))];
    prove_crashes(one, vec![delete()], SHORT, check);
}

/// The last two Modules of a namespace go at once: its label goes as well.
#[test]
fn kms_84_the_label_of_a_namespace_goes_with_its_last_module() {
    let objects = vec![node("a", EL8), stored(module("one")), stored(module("two"))];
    let delete = |name: &'static str| {
        action(move |server: &mut Server| {
            let key = Key::new(NAMESPACE, name);
            server.delete(&Module::RESOURCE, &key, Propagation::Background);
        })
    };
    prove(objects, vec![delete("one"), delete("two")], 8, |server| {
        let namespaces = server.list(&crate::view::Namespace::RESOURCE);
        let labels = &namespaces[0]["metadata"]["labels"];
        assert!(labels.get("ooto.sigs.k8s.io/contains-modules").is_none(), "{labels}");
    });
}

#[test]
fn kms_83_ordered_upgrades_end_whatever_happens() {
    prove_upgrade(Settings::default(), |server| {
        assert_eq!(device_users(server), ["gpu", "other"], "nothing is evicted by default");
    });
}

/// The driver never goes while a pod uses its devices, and only those pods are evicted.
#[test]
fn kms_82_devices_are_drained_whatever_happens() {
    let settings = Settings { drain_device_users: true, ..Settings::default() };
    prove_upgrade(settings, |server| assert_eq!(device_users(server), ["other"]));
}

/// The pods of users.
fn device_users(server: &Server) -> Vec<&str> {
    let pods = server.list(&ModulePod::RESOURCE);
    let names = pods.iter().filter(|it| it["metadata"]["namespace"] == "team");
    names.map(|it| text(it, "/metadata/name")).collect()
}

/// A pod that uses a device of node `a`.
pub(super) fn device_user(name: &str, resource: &str) -> (Resource, Value) {
    let limits = json!({resource: "1"});
    let pod = json!({
        "metadata": {"name": name, "namespace": "team"},
        "spec": {
            "nodeName": "a", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "a", "resources": {"limits": limits}}],
        },
    });
    (ModulePod::RESOURCE, pod)
}

/// Proves an upgrade of a Module that asks for evictions, on a node whose devices are used.
fn prove_upgrade(settings: Settings, check: impl Fn(&Server)) {
    let is_drained = settings.drain_device_users;
    let version = |version: &str| {
        let mut module = module("hello");
        let fields = container(&mut module["spec"]);
        fields["version"] = json!(version);
        fields["containerImage"] = json!(format!("quay.io/vendor/hello:{version}"));
        module["metadata"]["annotations"] = json!({DRAIN_ANNOTATION: "example.com/gpu"});
        module
    };
    let wanted = NodeLabelKind::WantedVersion.key(NAMESPACE, "hello");
    let driver = NodeLabelKind::DriverVersion.key(NAMESPACE, "hello");
    let objects = || {
        let mut labelled = node("a", EL8);
        for kind in [NodeLabelKind::DriverVersion, NodeLabelKind::PluginVersion] {
            labelled.1["metadata"]["labels"][kind.key(NAMESPACE, "hello")] = json!("1");
        }
        labelled.1["metadata"]["labels"][&wanted] = json!("1");
        vec![
            labelled,
            stored(version("1")),
            device_user("gpu", "example.com/gpu"),
            device_user("other", "example.com/other"),
        ]
    };
    let script = || {
        let (next, wanted) = (version("2")["spec"].clone(), wanted.clone());
        vec![
            action(move |server| edit_module(server, "hello", |spec| *spec = next.clone())),
            action(move |server| {
                set_node(server, "a", |node| {
                    node["metadata"]["labels"][&wanted] = json!("2");
                });
            }),
        ]
    };
    let prepare = |scenario: &mut Scenario<'_>| {
        let driver = driver.clone();
        let always = move |server: &Server| {
            let node = server.get(&Node::RESOURCE, &Key::cluster("a")).ok_or("no node")?;
            let is_old = node["metadata"]["labels"][&driver] == "1";
            let is_used = device_users(server).contains(&"gpu");
            match is_drained && is_used && !is_old {
                true => Err("the driver goes while its device is used".to_owned()),
                false => Ok(()),
            }
        };
        scenario.external.invariants.push(invariant("devices are free", always));
    };
    let check_driver = |server: &Server| {
        let driver = [(EL8.to_owned(), "quay.io/vendor/hello:2".to_owned())];
        assert_eq!(daemon_sets(server, "driver-container"), driver);
        let ready = NodeLabelKind::VersionReady.key(NAMESPACE, "hello");
        let node = server.get(&Node::RESOURCE, &Key::cluster("a")).unwrap();
        assert_eq!(node["metadata"]["labels"][ready], "2");
    };
    prove_in(settings, objects(), script(), 8, prepare, |server| {
        check_driver(server);
        check(server);
    });
    prove_crashes(objects(), script(), SHORT, check_driver);
}

/// Modules that cannot be read or written do not keep others from being loaded.
#[test]
fn a_bad_module_does_not_affect_others() {
    let controllers = TestControllers::new(Settings::default());
    let all = controllers.all();
    let objects = vec![node("a", EL8), stored(built("hello"))];
    let scenario = controllers.scenario(&all, objects);
    let bad = faulty_objects("module", "/metadata/generateName", |name| {
        let mut module = module(name);
        module["metadata"]["generateName"] = json!("");
        stored(module)
    });
    let shape = |server: &Server| {
        let mut shape = shape(server);
        let modules = shape["modules"].as_object_mut().unwrap();
        modules.retain(|name, _| !is_faulty(&json!(name)));
        let good = |it: &Value| it.to_string().contains("/hello:");
        for field in ["drivers", "plugins"] {
            shape[field].as_array_mut().unwrap().retain(good);
        }
        shape["pods"].as_array_mut().unwrap().retain(|it| !is_faulty(it));
        let labels = shape["nodes"]["a"].as_object_mut().unwrap();
        labels.retain(|name, _| name.contains("hello"));
        shape
    };
    let bad: Vec<(Resource, Value)> = bad
        .into_iter()
        .map(|(resource, mut object)| {
            // What cannot be read of a Module is its metadata: an invalid spec is reported.
            let metadata = object["metadata"].as_object_mut().unwrap();
            if metadata["generateName"] == json!(1.5) {
                metadata.insert("finalizers".to_owned(), json!(1.5));
            }
            (resource, object)
        })
        .collect();
    assert_proof(scenario.prove_isolation(&bad, 0..6, shape));
}
