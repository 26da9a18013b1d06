//! Images that are built again, and images that several want.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gantry_reconcile::{Key, Propagation, View as _};
use serde_json::{Value, json};

use super::cluster::{
    EL9, NAMESPACE, built, container, edit_module, jobs, node, set_outside, signed, stored,
};
use super::images::{created, keys, running, target, with};
use super::invariants::daemon_sets_deleted;
use super::runners::IMAGES;
use crate::job::image_hash;
use crate::settings::Settings;
use crate::view::{DockerfileMap, Job, Module};

#[test]
fn kms_47_another_trigger_builds_and_signs_again() {
    let mut module = signed("hello");
    module["spec"]["imageRebuildTriggerGeneration"] = json!(7);
    let objects: Vec<_> = keys().into_iter().chain([stored(module)]).collect();
    with(Settings::default(), objects, |it| {
        it.advance(60);
        assert_eq!(created(it.run.server()), [1, 1], "the first number is no change");
        for (round, trigger) in [json!(8), json!(7), Value::Null, json!(9)].into_iter().enumerate()
        {
            let expected = match round {
                0 => [2, 2],
                1 | 2 => [3, 3],
                _ => [4, 4],
            };
            it.act(|server| {
                edit_module(server, "hello", |spec| {
                    spec["imageRebuildTriggerGeneration"] = trigger.clone();
                });
            });
            it.advance(60);
            assert_eq!(created(it.run.server()), expected, "{trigger}");
            it.run.restart();
            it.advance(600);
            assert_eq!(created(it.run.server()), expected, "{trigger} once");
            assert_eq!((jobs(it.run.server()), running(it.run.server())), (vec![], vec![target()]));
        }
        assert_eq!(daemon_sets_deleted(it.run.server()), 0);
    });
}

#[test]
fn kms_47_a_first_trigger_is_a_change() {
    with(Settings::default(), vec![stored(built("hello"))], |it| {
        it.act(|server| {
            edit_module(server, "hello", |spec| {
                spec["imageRebuildTriggerGeneration"] = json!(1);
            });
        });
        assert_eq!(created(it.run.server()), [2, 0]);
        it.advance(600);
        assert_eq!((created(it.run.server()), jobs(it.run.server())), ([2, 0], vec![]));
    });
}

/// What the registry says is older than the Job that made the image again: that Job counts.
#[test]
fn kms_47_a_trigger_for_a_lost_image_builds_once() {
    with(Settings::default(), vec![stored(built("hello"))], |it| {
        it.act(|server| {
            server.delete(&IMAGES, &Key::cluster(&image_hash(&target())), Propagation::Background);
            edit_module(server, "hello", |spec| spec["imageRebuildTriggerGeneration"] = json!(1));
        });
        it.advance(600);
        assert_eq!((created(it.run.server()), jobs(it.run.server())), ([2, 0], vec![]));
    });
    with(Settings::default(), Vec::new(), |it| {
        set_outside(it.run.server(), "build", "fail");
        it.act(|server| {
            server.create(&Module::RESOURCE, built("hello"));
        });
        set_outside(it.run.server(), "build", "succeed");
        it.act(|server| {
            edit_module(server, "hello", |spec| spec["imageRebuildTriggerGeneration"] = json!(1));
        });
        it.advance(600);
        assert_eq!((created(it.run.server()), jobs(it.run.server())), ([2, 0], vec![]));
    });
}

/// A process that has just started knows no image yet; the number is not forgotten for that.
#[test]
fn kms_47_a_trigger_survives_a_restart_and_a_registry_that_is_down() {
    with(Settings::default(), vec![stored(built("hello"))], |it| {
        set_outside(it.run.server(), "registryError", "503");
        it.run.restart();
        it.act(|server| {
            edit_module(server, "hello", |spec| {
                spec["imageRebuildTriggerGeneration"] = json!(1);
            });
        });
        assert_eq!(created(it.run.server()), [1, 0]);
        set_outside(it.run.server(), "registryError", "");
        it.advance(600);
        assert_eq!((created(it.run.server()), jobs(it.run.server())), ([2, 0], vec![]));
    });
}

#[test]
fn kms_48_of_two_modules_that_want_one_image_one_builds() {
    let both = |name: &str| {
        let mut module = built(name);
        container(&mut module["spec"])["containerImage"] = json!("quay.io/vendor/shared:1");
        stored(module)
    };
    with(Settings::default(), vec![both("one"), both("two")], |it| {
        it.advance(60);
        assert_eq!((created(it.run.server()), jobs(it.run.server())), ([1, 0], vec![]));
        assert_eq!(running(it.run.server()), ["quay.io/vendor/shared:1"; 2]);
    });
    // Its failure is that of both, until its owner is gone.
    with(Settings::default(), Vec::new(), |it| {
        set_outside(it.run.server(), "build", "fail");
        for name in ["one", "two"] {
            let (resource, module) = both(name);
            it.act(|server| {
                server.create(&resource, module);
            });
        }
        assert_eq!(created(it.run.server()), [1, 0]);
        let held = it.held();
        let reason = |it: &String| it.starts_with("BuildFailed");
        assert_eq!(held.iter().filter(|it| reason(it)).count(), 2, "{held:?}");
        set_outside(it.run.server(), "build", "succeed");
        let key = Key::new(NAMESPACE, "one");
        it.act(|server| server.delete(&Module::RESOURCE, &key, Propagation::Background));
        assert_eq!((created(it.run.server()), running(it.run.server()).len()), ([2, 0], 1));
    });
}

/// Two kernels of one Module with one image: the Job of the first serves both.
#[test]
fn kms_48_of_two_kernels_that_want_one_image_one_builds() {
    let mut module = built("hello");
    container(&mut module["spec"])["containerImage"] = json!("quay.io/vendor/shared:1");
    with(Settings::default(), vec![node("b", EL9)], |it| {
        let creates = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&creates);
        it.run.server().intercept(move |write| {
            if *write.resource() == Job::RESOURCE && write.verb() == "create" {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            None
        });
        it.act(|server| {
            server.create(&Module::RESOURCE, module);
        });
        assert_eq!(creates.load(Ordering::Relaxed), 1, "the second is not even tried");
        assert_eq!((created(it.run.server()), jobs(it.run.server())), ([1, 0], vec![]));
        assert_eq!(running(it.run.server()), ["quay.io/vendor/shared:1"; 2]);
        assert!(it.holds("ImageOutdated"), "it was made for one of them: {:?}", it.held());
        it.act(|server| {
            edit_module(server, "hello", |spec| {
                spec["imageRebuildTriggerGeneration"] = json!(1);
            });
        });
        it.advance(600);
        assert_eq!((created(it.run.server()), jobs(it.run.server())), ([2, 0], vec![]));
    });
}

/// A Module that is built from an inline Dockerfile and the files of a ConfigMap.
fn with_context() -> Value {
    let mut module = built("hello");
    container(&mut module["spec"])["build"] = json!({
        "dockerfile": "FROM a\nCOPY a.c /", "contextConfigMap": {"name": "files"},
        "rebuild": "onChange",
    });
    module
}

fn context_files(text: &str) -> Value {
    json!({"metadata": {"name": "files", "namespace": NAMESPACE}, "data": {"a.c": text}})
}

#[test]
fn kms_43_missing_files_of_a_build_are_reported_and_waited_for() {
    with(Settings::default(), vec![stored(with_context())], |it| {
        assert!(it.event_reasons().contains(&"BuildContextNotFound".to_owned()));
        let held = it.held();
        let expected = "ConfigMap drivers/files does not exist; create it, or change \
                        build.contextConfigMap";
        assert!(held[0].contains(expected), "{held:?}");
        assert_eq!(created(it.run.server()), [0, 0]);
        it.act(|server| {
            server.create(&DockerfileMap::RESOURCE, context_files("1"));
        });
        assert_eq!((created(it.run.server()), running(it.run.server())), ([1, 0], vec![target()]));
    });
}

#[test]
fn kms_42_other_files_of_a_build_build_again() {
    let files = (DockerfileMap::RESOURCE, context_files("1"));
    with(Settings::default(), vec![stored(with_context()), files], |it| {
        assert_eq!(created(it.run.server()), [1, 0]);
        it.advance(300);
        assert_eq!(created(it.run.server()), [1, 0], "nothing has changed");
        let key = Key::new(NAMESPACE, "files");
        it.act(|server| {
            server.edit(&DockerfileMap::RESOURCE, &key, |it| it["data"] = json!({"a.c": "2"}));
        });
        assert_eq!((created(it.run.server()), running(it.run.server())), ([2, 0], vec![target()]));
    });
}
