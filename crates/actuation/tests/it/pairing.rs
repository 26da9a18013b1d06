//! Pairing in the launcher variant, with the stock of launchers beside it.

use std::time::Duration;

use gantry_actuation::{CollectionController, PairingController, PopulationController, Settings};
use gantry_harness::test_world::assert_proof;
use gantry_harness::{Server, TestCluster, UserAction};
use gantry_reconcile::Controller;
use gantry_reconcile::write::PODS;
use serde_json::{Value, json};

use crate::world::{self, Fleet, Inquiries, NodeAgent, create, delete, disturb, shape};

/// Three models share an accelerator one after the other, one of them twice, beside another one.
#[test]
fn as_66_engines_hand_over_despite_faults() {
    let settings = Settings::default();
    let (pairing, inquiries) =
        (PairingController::new(settings.clone()), Inquiries::new(&settings));
    let controllers: [&dyn Controller; 2] = [&pairing, &NodeAgent];
    let scenario = world::scenario(&controllers, &inquiries, Fleet::new(true), script());
    assert_proof(scenario.prove_faults(0..6, shape));
}

fn script() -> Vec<UserAction> {
    vec![
        create("r1", "a", "g0"),
        create("r2", "b", "g1"),
        delete("r1"),
        create("r3", "b", "g0"),
        delete("r3"),
        create("r4", "a", "g0"),
    ]
}

/// The stock is kept, and instances are collected, while requesters come and go.
#[test]
fn as_19_the_stock_of_launchers_is_kept_beside_pairing() {
    let settings = Settings::default();
    let pairing = PairingController::new(settings.clone());
    let population = PopulationController::new(settings.clone());
    let inquiries = Inquiries::new(&settings);
    let controllers: [&dyn Controller; 4] =
        [&pairing, &population, &CollectionController, &NodeAgent];
    let mut scenario = world::scenario(&controllers, &inquiries, Fleet::new(true), script());
    scenario.objects.push(world::policy(3));
    let shape = |server: &Server| {
        let launchers = world::pods(server).iter().filter(|it| it.is_launcher()).count();
        json!([shape(server), launchers])
    };
    assert_proof(scenario.prove_faults(0..2, shape));
}

/// Somebody puts an engine that serves to sleep: it is not routed to, woken, and routed to again.
#[test]
fn as_72_an_engine_that_sleeps_unbidden_is_woken() {
    let settings = Settings::default();
    let pairing = PairingController::new(settings.clone());
    let inquiries = Inquiries::new(&settings);
    let controllers: [&dyn Controller; 2] = [&pairing, &NodeAgent];
    let scenario = world::scenario(&controllers, &inquiries, Fleet::new(true), Vec::new());
    let mut cluster = TestCluster::new(&scenario);
    create("r1", "a", "g0")(cluster.server());
    cluster.advance(Duration::from_secs(20)).unwrap();
    let serving =
        json!({"requesters": [["r1", true, true, true]], "bound": 1, "awake": ["a [\"g0\"]"]});
    assert_eq!(shape(cluster.server()), serving);
    disturb(|fleet| fleet.disturb_awake(|it| it.is_awake = false))(cluster.server());
    cluster.advance(Duration::from_secs(40)).unwrap();
    assert_eq!(shape(cluster.server()), serving);
    let sleeping: Vec<Value> = cluster
        .server()
        .history(&PODS)
        .map(|(text, _)| serde_json::from_str::<Value>(text).unwrap())
        .filter(|it| !it["metadata"]["annotations"]["dual-pods.llm-d.ai/instance-id"].is_null())
        .map(|it| it["metadata"]["labels"]["dual-pods.llm-d.ai/sleeping"].clone())
        .collect();
    let mut states = sleeping.clone();
    states.dedup();
    assert_eq!(states, ["true", "false", "true", "false"], "{sleeping:?}");
}

/// The launcher restarts: its requester is deleted, so that its set creates another one.
#[test]
fn as_32_a_requester_whose_instance_is_gone_is_deleted() {
    let settings = Settings::default();
    let pairing = PairingController::new(settings.clone());
    let inquiries = Inquiries::new(&settings);
    let controllers: [&dyn Controller; 2] = [&pairing, &NodeAgent];
    let scenario = world::scenario(&controllers, &inquiries, Fleet::new(true), Vec::new());
    let mut cluster = TestCluster::new(&scenario);
    create("r1", "a", "g0")(cluster.server());
    cluster.advance(Duration::from_secs(20)).unwrap();
    disturb(Fleet::restart_launchers)(cluster.server());
    cluster.advance(Duration::from_secs(100)).unwrap();
    let nothing = json!({"requesters": [], "bound": 0, "awake": []});
    assert_eq!(shape(cluster.server()), nothing);
    let events = cluster.take_events();
    assert!(events.iter().any(|it| it.reason == "InstanceGone"), "{events:?}");
    create("r2", "a", "g0")(cluster.server());
    cluster.advance(Duration::from_secs(20)).unwrap();
    let launchers = world::pods(cluster.server()).iter().filter(|it| it.is_launcher()).count();
    assert_eq!(launchers, 1, "the replacement is bound to the same launcher");
    assert_eq!(shape(cluster.server())["requesters"], json!([["r2", true, true, true]]));
}

/// The engine of the last requester refuses to sleep for a while: the next one on its accelerator
/// waits, and is served as soon as it sleeps.
#[test]
fn as_66_the_next_engine_waits_for_one_that_refuses_to_sleep() {
    let settings = Settings::default();
    let pairing = PairingController::new(settings.clone());
    let inquiries = Inquiries::new(&settings);
    let controllers: [&dyn Controller; 2] = [&pairing, &NodeAgent];
    let mut fleet = Fleet::new(true);
    fleet.refused_sleeps = 4;
    let scenario = world::scenario(&controllers, &inquiries, fleet, Vec::new());
    let mut cluster = TestCluster::new(&scenario);
    create("r1", "a", "g0")(cluster.server());
    cluster.advance(Duration::from_secs(20)).unwrap();
    delete("r1")(cluster.server());
    create("r2", "b", "g1,g0")(cluster.server());
    cluster.advance(Duration::from_secs(60)).unwrap();
    assert_eq!(shape(cluster.server())["requesters"], json!([["r2", true, true, true]]));
}
