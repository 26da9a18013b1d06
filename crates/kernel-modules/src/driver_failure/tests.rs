//! Which driver containers are reported, and with which words.

use gantry_reconcile::{Kind, Resource, View as _};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::labels::{MODULE_LABEL, ROLE_LABEL};

const KERNEL: &str = "5.10.133+";

fn module() -> Key {
    Key::new("drivers", "hello")
}

/// A world with a DaemonSet of a kernel and these pods: name, and status of the container.
fn world(pods: &[(&str, Value)]) -> World {
    let world = World::new([Kind::of::<ModulePod>(), Kind::of::<DaemonSet>()]);
    let observe = |resource: &Resource, object: &Value| {
        let store = world.single_store_for(resource).unwrap();
        store.observe(&object.to_string()).unwrap().unwrap();
    };
    let labels = json!({MODULE_LABEL: "hello", ROLE_LABEL: "driver-container"});
    observe(
        &DaemonSet::RESOURCE,
        &json!({"metadata": {
            "name": "set", "namespace": "drivers", "uid": "set", "resourceVersion": "1",
            "labels": labels, "annotations": {KERNEL_ANNOTATION: KERNEL},
        }}),
    );
    for (name, status) in pods {
        let mut status = status.clone();
        status["name"] = json!("driver-container");
        status["image"] = json!("quay.io/a/driver:1");
        let ready = if status["ready"] == true { "True" } else { "False" };
        observe(
            &ModulePod::RESOURCE,
            &json!({
                "metadata": {
                    "name": name, "namespace": "drivers", "uid": name, "resourceVersion": "1",
                    "labels": labels,
                    "ownerReferences": [{
                        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "set", "uid": "set",
                        "controller": true,
                    }],
                },
                "spec": {"nodeName": format!("node-{name}")},
                "status": {
                    "conditions": [{"type": "Ready", "status": ready}],
                    "containerStatuses": [status],
                },
            }),
        );
    }
    world
}

fn messages(world: &World) -> Vec<String> {
    driver_failures(world, &module()).iter().map(DriverFailure::message).collect()
}

fn backs_off(code: i32, message: &str) -> Value {
    json!({
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
        "lastState": {"terminated": {"exitCode": code, "message": message}},
    })
}

const REJECTED: &str = "modprobe: ERROR: could not insert 'hello': Key was rejected by service";

#[test]
fn every_known_text_has_a_hint() {
    let table = [
        ("could not insert 'a': Key was rejected by service", "sign the module and enroll"),
        ("Key was rejected by service", "for which the kernel logs nothing"),
        ("could not insert 'a': Operation not permitted", "locked down"),
        ("could not insert 'a': Required key not available", "enroll the signing certificate"),
        ("could not insert 'a': Bad message", "build and sign the module again"),
        ("insmod: can't insert 'a.ko': invalid module format", "built for another kernel"),
        ("ERROR: could not insert 'a': Invalid module format", "built for another kernel"),
        ("could not insert 'a': Exec format error", "built for another kernel"),
        ("could not insert 'a': Unknown symbol in module", "modulesLoadingOrder"),
    ];
    for (text, part) in table {
        let hint = hint(text).unwrap_or_default();
        assert!(hint.contains(part), "{text}: {hint}");
    }
    assert_eq!(hint("hello"), None);
}

#[test]
fn containers_that_do_not_stay_up_are_reported() {
    let known = |state: Value| (state, vec![REJECTED]);
    let silent = "see `kubectl describe pod --namespace drivers p` for the output of its hooks, \
                  and `kubectl logs --namespace drivers p --container driver-container --previous`";
    let table: [(Value, Vec<&str>); 10] = [
        known(backs_off(1, REJECTED)),
        (backs_off(1, ""), vec![silent]),
        (backs_off(0, ""), vec!["end the command with `sleep infinity`"]),
        known(json!({"state": {"waiting": {
            "reason": "PostStartHookError", "message": REJECTED,
        }}})),
        known(json!({"state": {"terminated": {"exitCode": 137, "message": REJECTED}}})),
        // It runs again, and will fail again.
        known(json!({
            "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 137, "message": REJECTED}},
        })),
        // The node may have been restarted.
        (
            json!({
                "state": {"running": {}},
                "lastState": {"terminated": {"exitCode": 255, "message": ""}},
            }),
            vec![],
        ),
        // What happened before it became ready is over.
        (
            json!({
                "state": {"running": {}}, "ready": true,
                "lastState": {"terminated": {"exitCode": 1, "message": REJECTED}},
            }),
            vec![],
        ),
        (json!({"state": {"waiting": {"reason": "ContainerCreating"}}}), vec![]),
        (json!({"state": {"waiting": {"reason": "ImagePullBackOff"}}}), vec![]),
    ];
    for (status, expected) in table {
        let found = messages(&world(&[("p", status.clone())]));
        assert_eq!(found.len(), expected.len(), "{status}: {found:?}");
        for (message, part) in found.iter().zip(expected) {
            assert!(message.contains(part), "{status}: {message}");
            for part in ["node node-p,", "kernel 5.10.133+,", "image quay.io/a/driver:1 "] {
                assert!(message.contains(part), "{message}");
            }
        }
    }
}

#[test]
fn a_failure_on_many_nodes_is_reported_once() {
    let world = world(&[
        ("a", backs_off(1, "")),
        ("c", backs_off(1, REJECTED)),
        ("b", backs_off(1, REJECTED)),
    ]);
    let found = messages(&world);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("node node-b,"), "the first that tells why: {}", found[0]);
}

#[test]
fn the_end_of_a_message_is_quoted() {
    let long = format!("begin {}\n  end of it\n", "ä".repeat(600));
    let found = messages(&world(&[("p", backs_off(1, &long))]));
    let quote = found[0].split('"').nth(1).unwrap();
    assert!(quote.len() <= QUOTED_BYTES && quote.len() > QUOTED_BYTES - 8, "{}", quote.len());
    assert!(quote.ends_with("ä end of it") && !quote.contains("begin"), "{quote}");
}

/// Hooks have no words in the status of a container that backs off: its events are asked for.
#[test]
fn the_words_of_a_failed_hook_are_read_from_events() {
    let world = world(&[("p", backs_off(137, "")), ("q", backs_off(1, ""))]);
    let wanted = wanted_hooks(&world, &module());
    let names: Vec<&str> = wanted.iter().map(|it| it.pod.as_str()).collect();
    assert_eq!(names, ["p"], "one of each kernel");
    assert!(!messages(&world)[0].contains(REJECTED));
    let hook = FailedHook { message: REJECTED.to_owned() };
    let _ = world.facts::<FailedHook>().record(wanted[0].clone(), hook, Timestamp::UNIX_EPOCH);
    let found = messages(&world);
    assert!(found[0].contains(REJECTED) && found[0].contains("enroll"), "{found:?}");
    assert_eq!(wanted_hooks(&world, &module()), wanted, "asked as long as the container fails");
}
