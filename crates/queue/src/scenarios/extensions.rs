//! Features of the queue beyond MCAD, where they are enabled.

use std::cell::RefCell;
use std::rc::Rc;

use fastrand::Rng;
use gantry_harness::{Faults, Scenario, Server, UserAction};
use gantry_reconcile::{Controller, Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    DEPLOYMENTS, Simulation, TestControllers, deployment, fixture_a, item, node, scenario,
    template, wrap,
};
use super::properties::{final_states, held, job, proven};
use crate::Settings;
use crate::app_wrapper::AppWrapper;

/// Returns a Deployment of one pod that runs for ever.
fn lasting(name: &str, priority: i64, cpu: &str) -> Value {
    let object = template(&DEPLOYMENTS, &format!("{name}-d"), 1, cpu, json!({}));
    wrap(name, json!({"priority": priority}), vec![item(object)])
}

/// Where fixture A18 dispatches what fits on no node, and evicts it later.
#[test]
fn a_job_that_fits_on_no_node_is_not_dispatched_with_packing() {
    let cast = TestControllers::new(Settings { packing_check: true, ..Settings::default() });
    let controllers = cast.all();
    let scenario = scenario(&controllers, fixture_a());
    let mut sim = Simulation::new(&scenario);
    sim.create(deployment("first", 2, "550m"));
    sim.create(deployment("second", 1, "850m"));
    assert_eq!(sim.state("second"), "Pending Backoff");
    assert_eq!(sim.pods("second"), (0, 0));
    let said = "fits in total, but no placement: 1 pod of 850m, largest free node has 425m";
    assert_eq!(sim.status("second")["message"], said);
    sim.create(deployment("third", 2, "340m"));
    assert_eq!(sim.state("third"), "Running Running", "and blocks no other");
    sim.delete(&AppWrapper::RESOURCE, "first");
    sim.advance(30);
    assert_eq!(sim.state("second"), "Running Running");
}

fn evicting() -> Settings {
    Settings { preemption: true, active_eviction: true, ..Settings::default() }
}

#[test]
fn the_lowest_priorities_are_evicted_and_requeued() {
    let cast = TestControllers::new(evicting());
    let controllers = cast.all();
    let scenario = scenario(&controllers, vec![node("a", "3", 0)]);
    let mut sim = Simulation::new(&scenario);
    sim.create(lasting("old", 1, "1"));
    sim.create(lasting("late", 1, "1"));
    sim.create(lasting("mid", 5, "1"));
    sim.create(lasting("same", 5, "3"));
    assert_eq!(sim.state("same"), "Pending Backoff", "equals are not preempted");
    sim.create(lasting("high", 9, "1"));
    sim.advance(30);
    assert_eq!(sim.state("high"), "Running Running");
    assert_eq!(sim.state("mid"), "Running Running");
    assert_eq!(sim.state("old"), "Running Running", "no more than needed");
    assert!(sim.state("late").starts_with("Pending"), "the one admitted last");
    assert!(sim.reasons("late").contains(&"PriorityPreempted".to_owned()));
    assert_eq!(sim.pods("late"), (0, 0));
    sim.delete(&AppWrapper::RESOURCE, "high");
    sim.delete(&AppWrapper::RESOURCE, "same");
    sim.advance(60);
    assert_eq!(sim.state("late"), "Running Running", "it was only sent back");
}

#[test]
fn nothing_is_evicted_for_a_job_that_fits_on_no_node() {
    let cast = TestControllers::new(evicting());
    let controllers = cast.all();
    let scenario = scenario(&controllers, vec![node("a", "2", 0), node("b", "2", 0)]);
    let mut sim = Simulation::new(&scenario);
    sim.create(lasting("one", 0, "2"));
    sim.create(lasting("two", 0, "2"));
    sim.create(lasting("whole", 9, "3"));
    sim.advance(30);
    assert_eq!(sim.state("whole"), "Pending Backoff");
    for name in ["one", "two"] {
        assert_eq!(sim.state(name), "Running Running");
    }
}

/// Small jobs run; then a larger one arrives that has a higher priority.
fn contending_jobs<'a>(controllers: &'a [&'a dyn Controller]) -> Scenario<'a> {
    let (_, high) = job("high", 5, 1, "2", 5);
    let objects = vec![node("a", "2", 0), job("one", 0, 1, "1", 20), job("two", 1, 1, "1", 20)];
    let come: UserAction = Box::new(move |server: &mut Server| {
        server.create(&AppWrapper::RESOURCE, high.clone());
    });
    Scenario { script: vec![come], ..scenario(controllers, objects) }
}

#[test]
fn eviction_survives_crashes_and_faults() {
    let cast = TestControllers::new(evicting());
    let controllers = cast.all();
    proven(contending_jobs(&controllers).prove_crashes(1, final_states));
    proven(contending_jobs(&controllers).prove_faults(0..3, final_states));
}

/// A former leader may observe a job before the update that admitted its AppWrapper.
#[test]
fn objects_of_others_are_not_treated_as_late() {
    let cast = TestControllers::new(Settings::default());
    let controllers = cast.all();
    let objects = vec![
        node("a", "2", 0),
        node("b", "1", 0),
        job("one", 1, 2, "1", 10),
        job("two", 2, 1, "2", 10),
        job("three", 0, 3, "900m", 10),
    ];
    proven(scenario(&controllers, objects).prove_faults(8..12, final_states));
}

#[test]
fn packing_survives_faults() {
    let settings = Settings { packing_check: true, fairness: true, ..Settings::default() };
    let cast = TestControllers::new(settings);
    let controllers = cast.all();
    let objects = vec![
        node("a", "2", 0),
        node("b", "1", 0),
        job("one", 1, 2, "1", 10),
        job("two", 2, 1, "2", 10),
        job("three", 0, 3, "900m", 10),
    ];
    proven(scenario(&controllers, objects).prove_faults(0..3, final_states));
}

fn priority(server: &Server, name: &str) -> i64 {
    let list = server.list(&AppWrapper::RESOURCE);
    let found = list.iter().find(|it| it["metadata"]["name"] == name);
    found.unwrap()["spec"]["priority"].as_i64().unwrap_or_default()
}

/// Returns preempted AppWrappers and their preemptors, by name.
fn evictions(server: &Server) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for it in server.list(&AppWrapper::RESOURCE) {
        let conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
        for condition in conditions.iter().filter(|it| it["reason"] == "PriorityPreempted") {
            let text = condition["message"].as_str().unwrap();
            let by = text.split(['/', ',']).nth(1).unwrap().to_owned();
            all.push((it["metadata"]["name"].as_str().unwrap().to_owned(), by));
        }
    }
    all
}

#[test]
fn nothing_is_evicted_for_equal_priority_or_reserved_twice() {
    let cast = TestControllers::new(evicting());
    let controllers = cast.all();
    let mut made = 0;
    for seed in 0..8 {
        let mut rng = Rng::with_seed(seed);
        let mut some = |at: usize| -> (Resource, Value) {
            let cpu = ["500m", "1", "2"][rng.usize(..3)];
            job(&format!("w{at}"), rng.i64(0..3), rng.i64(1..3), cpu, rng.i64(5..30))
        };
        let mut objects = vec![node("a", "2", 0), node("b", "2", 0)];
        objects.extend((0..4).map(&mut some));
        let later: Vec<(Resource, Value)> = (4..8).map(&mut some).collect();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut script: Vec<UserAction> = Vec::new();
        for (resource, object) in later {
            script.push(Box::new(move |server: &mut Server| {
                server.create(&resource, object.clone());
            }));
            for _ in 0..8 {
                let seen = Rc::clone(&seen);
                script.push(Box::new(move |server: &mut Server| {
                    let (demand, room) = held(server);
                    assert!(demand <= room, "seed {seed}: {demand} of {room}");
                    seen.borrow_mut().extend(evictions(server));
                }));
            }
        }
        let scenario = Scenario { script, ..scenario(&controllers, objects) };
        let ending = scenario.run(seed, Faults::none()).unwrap();
        for (victim, by) in seen.borrow().iter().chain(&evictions(&ending.server)) {
            let (lower, higher) = (priority(&ending.server, victim), priority(&ending.server, by));
            assert!(lower < higher, "seed {seed}: {victim} ({lower}) for {by} ({higher})");
            made += 1;
        }
        for it in ending.server.list(&AppWrapper::RESOURCE) {
            assert_eq!(it["status"]["state"], "Completed", "seed {seed}: none is forgotten: {it}");
        }
    }
    assert!(made > 0, "some were preempted");
}
