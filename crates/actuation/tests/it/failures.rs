//! What goes wrong with engines, launchers and records, one thing at a time.

use std::time::Duration;

use gantry_actuation::{CollectionController, PairingController, Settings};
use gantry_harness::{Scenario, TestCluster};
use gantry_reconcile::write::PODS;
use gantry_reconcile::{Controller, Key, View as _};
use serde_json::{Value, json};

use gantry_actuation::view::{ActuationPod, InferenceServerConfig};

use crate::world::{
    self, Fleet, Inquiries, NAMESPACE, NodeAgent, create, delete, disturb, edit, shape,
};

/// Runs a test with these launchers and engines.
fn with_cluster(fleet: Fleet, test: impl FnOnce(&mut TestCluster<'_>)) {
    let settings = Settings::default();
    let pairing = PairingController::new(settings.clone());
    let inquiries = Inquiries::new(&settings);
    let controllers: [&dyn Controller; 3] = [&pairing, &CollectionController, &NodeAgent];
    let scenario: Scenario<'_> = world::scenario(&controllers, &inquiries, fleet, Vec::new());
    test(&mut TestCluster::new(&scenario));
}

fn advance(cluster: &mut TestCluster<'_>, seconds: u64) {
    cluster.advance(Duration::from_secs(seconds)).unwrap();
}

fn requesters(cluster: &mut TestCluster<'_>) -> Value {
    shape(cluster.server())["requesters"].clone()
}

fn launchers(cluster: &mut TestCluster<'_>) -> Vec<ActuationPod> {
    world::pods(cluster.server()).into_iter().filter(ActuationPod::is_launcher).collect()
}

/// The only launcher.
fn launcher(cluster: &mut TestCluster<'_>) -> ActuationPod {
    let mut all = launchers(cluster);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn status_of(cluster: &mut TestCluster<'_>, name: &str) -> String {
    let pod = cluster.server().get(&PODS, &Key::new(NAMESPACE, name)).cloned().unwrap();
    let status = pod["metadata"]["annotations"]["dual-pods.llm-d.ai/status"].clone();
    status.as_str().unwrap_or_default().to_owned()
}

fn is_held(cluster: &TestCluster<'_>, reason: &str, text: &str) -> bool {
    cluster.held().iter().any(|it| it.reason == reason && it.message.contains(text))
}

/// Three wakes are refused: the instance is deleted, and the event has the engine's words and the
/// end of its log. The replacement is served by a new instance.
#[test]
fn as_71_an_engine_that_refuses_to_wake_is_discarded() {
    let mut fleet = Fleet::new(true);
    fleet.refused_wakes = 9;
    with_cluster(fleet, |cluster| {
        create("r1", "a", "g0")(cluster.server());
        advance(cluster, 20);
        delete("r1")(cluster.server());
        advance(cluster, 20);
        create("r2", "a", "g0")(cluster.server());
        advance(cluster, 30);
        assert_eq!(requesters(cluster), json!([]), "r2 is deleted");
        let events = cluster.take_events();
        let wedged = events.iter().find(|it| it.reason == "EngineWedged").unwrap();
        let words = ["CUDA error", "the end of its log: the log of I"];
        assert!(words.iter().all(|it| wedged.message.contains(it)), "{}", wedged.message);
        create("r3", "a", "g0")(cluster.server());
        advance(cluster, 20);
        assert_eq!(requesters(cluster), json!([["r3", true, true, true]]));
        let record = launcher(cluster).metadata.annotations["actuation.gantry.dev/record"].clone();
        // In simulated time the list of instances may be as old as the deletion.
        assert!(record.contains("\"created\"") && !record.contains("\"woken\""), "{record}");
    });
}

/// An engine that says that memory is short is discarded after the first refusal.
#[test]
fn g_36_an_engine_without_memory_is_discarded_at_once() {
    let mut fleet = Fleet::new(true);
    (fleet.refused_wakes, fleet.wake_error) = (1, "CUDA out of memory");
    with_cluster(fleet, |cluster| {
        create("r1", "a", "g0")(cluster.server());
        advance(cluster, 20);
        delete("r1")(cluster.server());
        advance(cluster, 20);
        create("r2", "a", "g0")(cluster.server());
        advance(cluster, 30);
        let events = cluster.take_events();
        let words = |it: &&gantry_reconcile::Event| it.message.contains("out of memory");
        let is_wedged = events.iter().filter(words).any(|it| it.reason == "EngineWedged");
        let is_served = requesters(cluster) == json!([["r2", true, true, true]]);
        assert!(is_wedged != is_served, "woken while its log was read, or discarded");
    });
}

/// An engine that ends again and again: its second replacement waits, also across a restart of the
/// controller, and says why. Another model on the same accelerator does not wait.
#[test]
fn g_8_a_crash_loop_waits_longer_each_time() {
    with_cluster(Fleet::new(true), |cluster| {
        create("r1", "a", "g0")(cluster.server());
        advance(cluster, 20);
        disturb(Fleet::crash_awake)(cluster.server());
        // Nothing announces it: the launcher is asked at its next renewal.
        advance(cluster, 35);
        assert_eq!(requesters(cluster), json!([]));
        let events = cluster.take_events();
        assert!(events.iter().any(|it| it.reason == "InstanceStopped"), "{events:?}");
        create("r2", "a", "g0")(cluster.server());
        advance(cluster, 5);
        assert_eq!(requesters(cluster), json!([["r2", true, true, true]]), "one may be chance");
        disturb(Fleet::crash_awake)(cluster.server());
        cluster.advance(Duration::from_secs(35)).unwrap();
        let failures =
            launcher(cluster).metadata.annotations["actuation.gantry.dev/engine-failures"].clone();
        assert!(failures.contains("\"count\":2"), "{failures}");
        // The time of the second failure is not that of the check.
        let failed: Value = serde_json::from_str(&failures).unwrap();
        let failed = failed.as_object().unwrap().values().next().unwrap().clone();
        let failed: jiff::Timestamp = failed["last"].as_str().unwrap().parse().unwrap();
        let left = 10 - cluster.server().now().duration_since(failed).as_secs();
        create("r3", "a", "g0")(cluster.server());
        create("r4", "b", "g1")(cluster.server());
        if left > 1 {
            cluster.restart();
            cluster.advance(Duration::from_millis(900)).unwrap();
            let status = status_of(cluster, "r3");
            assert!(status.contains("failed 2 times in a row"), "{status}");
            assert!(status.contains("ended"), "{status}");
        }
        advance(cluster, 20);
        let served = json!([["r3", true, true, true], ["r4", true, true, true]]);
        assert_eq!(requesters(cluster), served);
    });
}

/// Somebody removes what a bound launcher records: the launcher and its requester are deleted, and
/// a new pair is served.
#[test]
fn as_79_a_launcher_without_its_bookkeeping_is_replaced() {
    with_cluster(Fleet::new(true), |cluster| {
        create("r1", "a", "g0")(cluster.server());
        advance(cluster, 20);
        let lost = launcher(cluster).metadata;
        cluster.server().edit(&PODS, &lost.key(), |it| {
            let annotations = it["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.remove("dual-pods.llm-d.ai/vllm-config").unwrap();
        });
        advance(cluster, 20);
        assert_eq!(shape(cluster.server()), json!({"requesters": [], "bound": 0, "awake": []}));
        let events = cluster.take_events();
        assert!(events.iter().any(|it| it.reason == "BookkeepingLost"), "{events:?}");
        create("r2", "a", "g0")(cluster.server());
        advance(cluster, 20);
        assert_eq!(requesters(cluster), json!([["r2", true, true, true]]));
        assert_ne!(launcher(cluster).metadata.uid, lost.uid);
    });
}

/// A second launcher claims a requester that is served: it is unbound, and the first one serves on.
#[test]
fn fd_11_of_two_providers_the_one_that_the_requester_names_is_kept() {
    with_cluster(Fleet::new(true), |cluster| {
        create("r1", "a", "g0")(cluster.server());
        advance(cluster, 20);
        let first = launcher(cluster).metadata;
        let mut second = cluster.server().get(&PODS, &first.key()).cloned().unwrap();
        second["metadata"]["name"] = json!("another");
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            second["metadata"][field] = Value::Null;
        }
        second["status"] = Value::Null;
        cluster.server().create(&PODS, second);
        advance(cluster, 90);
        assert_eq!(requesters(cluster), json!([["r1", true, true, true]]));
        for pod in launchers(cluster) {
            let is_first = pod.metadata.uid == first.uid;
            assert_eq!(pod.binding().is_some(), is_first, "{}", pod.metadata.name);
        }
    });
}

/// A launcher is not ready for a while: its requester is reported as unready and is not routed to
/// after ten seconds, and is again when the launcher is ready.
#[test]
fn fd_7_readiness_follows_the_launcher() {
    with_cluster(Fleet::new(true), |cluster| {
        create("r1", "a", "g0")(cluster.server());
        advance(cluster, 20);
        let key = launcher(cluster).metadata.key();
        let set_ready = |cluster: &mut TestCluster<'_>, ready: &'static str| {
            let now = cluster.server().now().to_string();
            cluster.server().edit(&PODS, &key, |it| {
                it["status"]["conditions"][0]["status"] = json!(ready);
                it["status"]["conditions"][0]["lastTransitionTime"] = json!(now);
            });
        };
        set_ready(cluster, "False");
        advance(cluster, 5);
        assert_eq!(requesters(cluster), json!([["r1", true, true, true]]), "not at once");
        advance(cluster, 20);
        assert_eq!(requesters(cluster), json!([["r1", false, true, true]]));
        assert_eq!(launcher(cluster).label("model"), None, "it is not routed to");
        assert!(is_held(cluster, "LauncherUnready", "is not ready"));
        set_ready(cluster, "True");
        advance(cluster, 20);
        assert_eq!(requesters(cluster), json!([["r1", true, true, true]]));
        assert_eq!(launcher(cluster).label("model"), Some("a"));
    });
}

/// A requester that declares the gate gets its condition with the relay.
#[test]
fn g_45_the_readiness_gate_is_set_beside_the_relay() {
    with_cluster(Fleet::new(true), |cluster| {
        let mut pod = world::requester("r1", "a", "g0");
        pod["spec"]["readinessGates"] = json!([{"conditionType": "actuation.gantry.dev/serving"}]);
        cluster.server().create(&PODS, pod);
        advance(cluster, 20);
        let gate = |cluster: &mut TestCluster<'_>| {
            let pod = cluster.server().get(&PODS, &Key::new(NAMESPACE, "r1")).cloned().unwrap();
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let gate = conditions.iter().find(|it| it["type"] == "actuation.gantry.dev/serving");
            gate.map(|it| it["status"].clone())
        };
        // The kubelet of the simulation writes all conditions: it is there until the next probe.
        let was_set = cluster.server().history(&PODS).any(|(text, _)| {
            let pod: Value = serde_json::from_str(text).unwrap();
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let gate = "actuation.gantry.dev/serving";
            conditions.iter().any(|it| it["type"] == gate && it["status"] == "True")
        });
        assert!(was_set);
        assert_eq!(gate(cluster), Some(json!("True")));
    });
}

/// The engine of the last requester of the same model refuses to sleep for a while: the next one
/// waits for its launcher by name, gets no other, and is served by the instance that exists.
#[test]
fn as_66_no_second_launcher_is_made_for_an_instance_that_is_being_unbound() {
    let mut fleet = Fleet::new(true);
    fleet.refused_sleeps = 6;
    with_cluster(fleet, |cluster| {
        create("r1", "a", "g0")(cluster.server());
        advance(cluster, 20);
        let first = launcher(cluster).metadata;
        delete("r1")(cluster.server());
        create("r2", "a", "g0")(cluster.server());
        cluster.advance(Duration::from_millis(500)).unwrap();
        assert!(is_held(cluster, "AwaitingUnbinding", &first.name), "{:?}", cluster.held());
        advance(cluster, 60);
        assert_eq!(requesters(cluster), json!([["r2", true, true, true]]));
        let kept = launcher(cluster);
        assert_eq!(kept.metadata.uid, first.uid, "no second launcher");
        let record = &kept.metadata.annotations["actuation.gantry.dev/record"];
        assert!(record.contains("\"path\":\"hot\""), "{record}");
    });
}

/// Two accelerators for each server, one of them shared and named in another order.
#[test]
fn as_68_sets_of_accelerators_that_overlap_hand_over() {
    let mut fleet = Fleet::new(true);
    fleet.refused_sleeps = 6;
    with_cluster(fleet, |cluster| {
        create("r1", "a", "g0,g1")(cluster.server());
        advance(cluster, 20);
        let first = launcher(cluster).metadata.name;
        delete("r1")(cluster.server());
        create("r2", "b", "g2,g1")(cluster.server());
        cluster.advance(Duration::from_millis(500)).unwrap();
        assert!(is_held(cluster, "AwaitingUnbinding", &first), "{:?}", cluster.held());
        advance(cluster, 60);
        assert_eq!(requesters(cluster), json!([["r2", true, true, true]]));
    });
}

/// Instances that nothing would make any more are deleted while they sleep.
#[test]
fn g_6_sleeping_instances_go_when_their_config_changes() {
    with_cluster(Fleet::new(true), |cluster| {
        create("r1", "a", "g0")(cluster.server());
        create("r2", "b", "g1")(cluster.server());
        advance(cluster, 20);
        delete("r1")(cluster.server());
        advance(cluster, 20);
        let count = |cluster: &mut TestCluster<'_>| -> usize {
            let fleet = cluster.server().peer::<Fleet>(gantry_actuation::calls::PROTOCOL);
            fleet.launchers.values().map(|it| it.instances.len()).sum()
        };
        assert_eq!(count(cluster), 2);
        for name in ["a", "b"] {
            edit(InferenceServerConfig::RESOURCE, name, |it| {
                it["spec"]["modelServerConfig"]["options"] = json!("--changed");
            })(cluster.server());
        }
        advance(cluster, 60);
        assert_eq!(count(cluster), 1, "the one that serves is left alone");
        assert_eq!(requesters(cluster), json!([["r2", true, true, true]]));
    });
}

/// A provider that is not bound, and about which nothing is known, may have an engine that is
/// awake: its accelerators are not used until it answers, and it is deleted if it never does.
#[test]
fn fd_1_a_provider_that_does_not_answer_blocks_its_accelerators() {
    with_cluster(Fleet::new(true), |cluster| {
        create("r1", "a", "g0")(cluster.server());
        advance(cluster, 20);
        delete("r1")(cluster.server());
        advance(cluster, 20);
        let silent = launcher(cluster).metadata;
        disturb(|fleet| fleet.is_silent = true)(cluster.server());
        // Nothing is known after a restart.
        cluster.restart();
        create("r2", "b", "g0")(cluster.server());
        advance(cluster, 20);
        let is_unserved = requesters(cluster) == json!([["r2", false, false, false]]);
        let named = |it: &gantry_reconcile::Held| it.message.contains(&silent.name);
        assert!(is_unserved && cluster.held().iter().any(named), "{:?}", cluster.held());
        disturb(|fleet| fleet.is_silent = false)(cluster.server());
        advance(cluster, 30);
        assert_eq!(requesters(cluster), json!([["r2", true, true, true]]));
    });
}
