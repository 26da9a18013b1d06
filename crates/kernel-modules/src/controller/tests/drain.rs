//! Pods that use devices, in ordered upgrades.

use std::cell::Cell;
use std::rc::Rc;

use gantry_harness::Server;
use gantry_reconcile::write::Refusal;
use gantry_reconcile::{Key, Outcome, View as _, Write};
use serde_json::{Value, json};

use super::cluster::{EL8, NAMESPACE, Simulation, edit_module, node, node_labels, stored};
use super::deletion::{ready_version, versioned, want, with};
use super::proofs::device_user;
use crate::labels::DRAIN_ANNOTATION;
use crate::node_labels::device_user::{DRAIN_BLOCKED, DRAIN_NOT_POSSIBLE, DRAINING};
use crate::settings::Settings;
use crate::view::{Module, ModulePod};

fn drained(version: &str, resources: &str) -> Value {
    let mut module = versioned(version);
    module["metadata"]["annotations"] = json!({DRAIN_ANNOTATION: resources});
    module
}

fn exists(server: &Server, pod: &str) -> bool {
    server.get(&ModulePod::RESOURCE, &Key::new("team", pod)).is_some()
}

/// Changes the Module to version 2, and node `a` after it.
fn upgrade(it: &mut Simulation<'_>) {
    it.act(|server| edit_module(server, "hello", |spec| *spec = versioned("2")["spec"].clone()));
    it.act(|server| want(server, "a", Some("2")));
}

#[test]
fn kms_82_a_driver_waits_for_evictions_that_a_budget_refuses() {
    let settings = Settings { drain_device_users: true, ..Settings::default() };
    let objects = vec![node("a", EL8), stored(drained("1", "example.com/gpu"))];
    with(settings, objects, |it| {
        it.act(|server| want(server, "a", Some("1")));
        for (name, resource) in [("gpu", "example.com/gpu"), ("other", "example.com/other")] {
            let (kind, pod) = device_user(name, resource);
            it.run.server().create(&kind, pod);
        }
        let is_allowed = Rc::new(Cell::new(false));
        let policy = Rc::clone(&is_allowed);
        it.run.server().intercept(move |write| {
            let refused = matches!(write, Write::Evict { .. }) && !policy.get();
            refused.then(|| {
                Outcome::Refused(Refusal {
                    code: 429,
                    reason: "TooManyRequests".to_owned(),
                    message: "The disruption budget b needs 1 healthy pods".to_owned(),
                })
            })
        });
        upgrade(it);
        assert_eq!(ready_version(it.run.server(), "a"), "1", "the driver stays");
        let labels = node_labels(it.run.server(), "a");
        assert!(!labels.keys().any(|it| it.contains("version-plugin")), "{labels:?}");
        assert!(exists(it.run.server(), "gpu"));
        let held = it.held();
        let why = held.iter().find(|it| it.starts_with(DRAIN_BLOCKED)).expect("it is held");
        for part in ["node a", "team/gpu: The disruption budget b needs 1 healthy pods"] {
            assert!(why.contains(part), "{why}");
        }
        assert!(!why.contains("team/other"), "{why}");
        assert!(it.event_reasons().contains(&DRAIN_BLOCKED.to_owned()));

        is_allowed.set(true);
        it.advance(400);
        assert_eq!(ready_version(it.run.server(), "a"), "2");
        assert_eq!(
            (exists(it.run.server(), "gpu"), exists(it.run.server(), "other")),
            (false, true)
        );
        assert!(!it.holds(DRAIN_BLOCKED) && !it.holds(DRAINING), "{:?}", it.held());
        assert!(it.event_reasons().contains(&"DeviceUserEvicted".to_owned()));
        // Out for maintenance: the same wait.
        let (kind, pod) = device_user("late", "example.com/gpu");
        it.run.server().create(&kind, pod);
        it.act(|server| want(server, "a", None));
        assert!(!exists(it.run.server(), "late"));
        assert_eq!(node_labels(it.run.server(), "a").len(), 0);
    });
}

#[test]
fn kms_82_nothing_is_evicted_unless_both_ask_for_it() {
    let on = || Settings { drain_device_users: true, ..Settings::default() };
    let table = [
        (Settings::default(), Some("example.com/gpu"), Some("modules.upgrade.drain is true")),
        (on(), None, None),
        (on(), Some("cpu"), Some("\"cpu\" is no resource of a device plugin")),
    ];
    for (settings, resources, expected) in table {
        let hello = resources.map_or_else(|| versioned("1"), |it| drained("1", it));
        let objects = vec![node("a", EL8), stored(hello), device_user("gpu", "example.com/gpu")];
        with(settings, objects, |it| {
            it.act(|server| want(server, "a", Some("1")));
            let held = it.held();
            let why = held.iter().find(|it| it.starts_with(DRAIN_NOT_POSSIBLE));
            match expected {
                Some(part) => assert!(why.is_some_and(|it| it.contains(part)), "{held:?}"),
                None => assert_eq!(why, None),
            }
            upgrade(it);
            assert_eq!(ready_version(it.run.server(), "a"), "2", "{resources:?}");
            assert!(exists(it.run.server(), "gpu"), "{resources:?}");
        });
    }
}

/// An annotation that is added to a Module counts from its next upgrade on.
#[test]
fn kms_82_an_annotation_takes_effect_when_it_is_added() {
    let settings = Settings { drain_device_users: true, ..Settings::default() };
    let objects = vec![node("a", EL8), stored(versioned("1"))];
    with(settings, objects, |it| {
        it.act(|server| want(server, "a", Some("1")));
        let (kind, pod) = device_user("gpu", "example.com/gpu");
        it.run.server().create(&kind, pod);
        let key = Key::new(NAMESPACE, "hello");
        it.act(|server| {
            server.edit(&Module::RESOURCE, &key, |it| {
                it["metadata"]["annotations"][DRAIN_ANNOTATION] = json!("example.com/gpu");
            });
        });
        assert!(exists(it.run.server(), "gpu"), "no node changes");
        upgrade(it);
        assert_eq!(ready_version(it.run.server(), "a"), "2");
        assert!(!exists(it.run.server(), "gpu"));
    });
}
