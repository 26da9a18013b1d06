//! What the queue does beyond MCAD, where it is switched on.

use std::cell::RefCell;
use std::rc::Rc;

use fastrand::Rng;
use gantry_harness::{Action, Faults, Scenario, Server};
use gantry_reconcile::{Controller, Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    Cast, DEPLOYMENTS, Play, deployment, fixture_a, item, node, scenario, template, wrap,
};
use super::laws::{ends, held, job, proven};
use crate::Settings;
use crate::app_wrapper::AppWrapper;

/// A Deployment of one pod that runs for ever.
fn lasting(name: &str, priority: i64, cpu: &str) -> Value {
    let object = template(&DEPLOYMENTS, &format!("{name}-d"), 1, cpu, json!({}));
    wrap(name, json!({"priority": priority}), vec![item(object)])
}

/// Where fixture A18 dispatches what fits on no node, and takes it back later.
#[test]
fn what_fits_on_no_node_is_not_dispatched_where_that_is_looked_at() {
    let cast = Cast::new(Settings { packing_check: true, ..Settings::default() });
    let controllers = cast.all();
    let scenario = scenario(&controllers, fixture_a());
    let mut play = Play::new(&scenario);
    play.create(deployment("first", 2, "550m"));
    play.create(deployment("second", 1, "850m"));
    assert_eq!(play.state("second"), "Pending Backoff");
    assert_eq!(play.pods("second"), (0, 0));
    let said = "fits in total, but no placement: 1 pod of 850m, largest free node has 425m";
    assert_eq!(play.status("second")["message"], said);
    play.create(deployment("third", 2, "340m"));
    assert_eq!(play.state("third"), "Running Running", "and stands in nobody's way");
    play.delete(&AppWrapper::RESOURCE, "first");
    play.pass(30);
    assert_eq!(play.state("second"), "Running Running");
}

fn evicting() -> Settings {
    Settings { preemption: true, active_eviction: true, ..Settings::default() }
}

#[test]
fn the_least_important_make_room_and_wait_again() {
    let cast = Cast::new(evicting());
    let controllers = cast.all();
    let scenario = scenario(&controllers, vec![node("a", "3", 0)]);
    let mut play = Play::new(&scenario);
    play.create(lasting("old", 1, "1"));
    play.create(lasting("late", 1, "1"));
    play.create(lasting("mid", 5, "1"));
    play.create(lasting("same", 5, "3"));
    assert_eq!(play.state("same"), "Pending Backoff", "nobody makes room for an equal");
    play.create(lasting("high", 9, "1"));
    play.pass(30);
    assert_eq!(play.state("high"), "Running Running");
    assert_eq!(play.state("mid"), "Running Running");
    assert_eq!(play.state("old"), "Running Running", "no more than needed");
    assert!(play.state("late").starts_with("Pending"), "who passed last");
    assert!(play.reasons("late").contains(&"PriorityPreempted".to_owned()));
    assert_eq!(play.pods("late"), (0, 0));
    play.delete(&AppWrapper::RESOURCE, "high");
    play.delete(&AppWrapper::RESOURCE, "same");
    play.pass(60);
    assert_eq!(play.state("late"), "Running Running", "it was only sent back");
}

#[test]
fn nobody_makes_room_for_one_who_would_not_find_a_node() {
    let cast = Cast::new(evicting());
    let controllers = cast.all();
    let scenario = scenario(&controllers, vec![node("a", "2", 0), node("b", "2", 0)]);
    let mut play = Play::new(&scenario);
    play.create(lasting("one", 0, "2"));
    play.create(lasting("two", 0, "2"));
    play.create(lasting("whole", 9, "3"));
    play.pass(30);
    assert_eq!(play.state("whole"), "Pending Backoff");
    for name in ["one", "two"] {
        assert_eq!(play.state(name), "Running Running");
    }
}

/// Small jobs run; then a larger one comes that is more important.
fn crowd<'a>(controllers: &'a [&'a dyn Controller]) -> Scenario<'a> {
    let (_, high) = job("high", 5, 1, "2", 5);
    let objects = vec![node("a", "2", 0), job("one", 0, 1, "1", 20), job("two", 1, 1, "1", 20)];
    let come: Action = Box::new(move |server: &mut Server| {
        server.create(&AppWrapper::RESOURCE, high.clone());
    });
    Scenario { script: vec![come], ..scenario(controllers, objects) }
}

#[test]
fn eviction_survives_a_crash_at_every_move_and_faults() {
    let cast = Cast::new(evicting());
    let controllers = cast.all();
    proven(crowd(&controllers).prove_crashes(1, ends));
    proven(crowd(&controllers).prove_faults(0..3, ends));
}

/// A process that leads no more may see a job before the news that its AppWrapper has passed.
#[test]
fn what_others_made_is_not_taken_for_late() {
    let cast = Cast::new(Settings::default());
    let controllers = cast.all();
    let objects = vec![
        node("a", "2", 0),
        node("b", "1", 0),
        job("one", 1, 2, "1", 10),
        job("two", 2, 1, "2", 10),
        job("three", 0, 3, "900m", 10),
    ];
    proven(scenario(&controllers, objects).prove_faults(8..12, ends));
}

#[test]
fn packing_survives_what_goes_wrong() {
    let settings = Settings { packing_check: true, fairness: true, ..Settings::default() };
    let cast = Cast::new(settings);
    let controllers = cast.all();
    let objects = vec![
        node("a", "2", 0),
        node("b", "1", 0),
        job("one", 1, 2, "1", 10),
        job("two", 2, 1, "2", 10),
        job("three", 0, 3, "900m", 10),
    ];
    proven(scenario(&controllers, objects).prove_faults(0..3, ends));
}

fn priority(server: &Server, name: &str) -> i64 {
    let list = server.list(&AppWrapper::RESOURCE);
    let found = list.iter().find(|it| it["metadata"]["name"] == name);
    found.unwrap()["spec"]["priority"].as_i64().unwrap_or_default()
}

/// Who made room for whom, by name.
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
fn nobody_makes_room_for_an_equal_and_nothing_is_promised_twice() {
    let cast = Cast::new(evicting());
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
        let mut script: Vec<Action> = Vec::new();
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
            assert_eq!(
                it["status"]["state"], "Completed",
                "seed {seed}: nobody is forgotten: {it}"
            );
        }
    }
    assert!(made > 0, "somebody made room");
}
