//! Properties that hold in any world, whatever faults occur.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use gantry_harness::{
    CONFLICTED_PREFIX, Failure, Faults, REFUSED_PREFIX, Scenario, Server, UNREADABLE_PREFIX,
    UserAction, prove_worlds,
};
use gantry_pods::view::{Node, Pod};
use gantry_reconcile::{Controller, Key, Propagation, Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    JOBS, Simulation, TestControllers, deployment, final_state, item, node, scenario, template,
    wrap,
};
use crate::Settings;
use crate::app_wrapper::AppWrapper;
use crate::item_objects::APP_WRAPPER_LABEL;

pub(super) fn proven(proof: Result<(), Box<Failure>>) {
    if let Err(failure) = proof {
        panic!("{failure}");
    }
}

/// Returns a job that completes.
pub(super) fn job(
    name: &str,
    priority: i64,
    pods: i64,
    cpu: &str,
    seconds: i64,
) -> (Resource, Value) {
    let job = template(
        &JOBS,
        &format!("{name}-j"),
        pods,
        cpu,
        json!({"seconds": seconds.to_string(), "job": "y"}),
    );
    let mut item = item(job);
    item["completionstatus"] = json!("Complete");
    item["custompodresources"] = json!([{"replicas": pods, "requests": {"cpu": cpu}}]);
    (AppWrapper::RESOURCE, wrap(name, json!({"priority": priority}), vec![item]))
}

/// Returns final states by names and states alone: the order of arrival decides about the rest.
pub(super) fn final_states(server: &Server) -> Value {
    let end = |it: &&Value| {
        let status = &it["status"];
        json!([it["metadata"]["name"], status["state"], status["canrun"]])
    };
    let bad = |it: &&&Value| {
        let name = it["metadata"]["name"].as_str().unwrap();
        ![REFUSED_PREFIX, CONFLICTED_PREFIX, UNREADABLE_PREFIX]
            .iter()
            .any(|wrong| name.starts_with(wrong))
    };
    let list = server.list(&AppWrapper::RESOURCE);
    let jobs = server.list(&JOBS);
    let names = jobs.iter().filter(bad).map(|it| it["metadata"]["name"].clone());
    json!({
        "wrappers": list.iter().filter(bad).map(end).collect::<Vec<_>>(),
        "jobs": names.collect::<Vec<_>>(),
    })
}

fn edit(name: &'static str, path: &'static str, value: Value) -> UserAction {
    Box::new(move |server: &mut Server| {
        server.edit(&AppWrapper::RESOURCE, &Key::new("test", name), |it| {
            *it.pointer_mut(path).unwrap() = value.clone();
        });
    })
}

fn remove(name: &'static str) -> UserAction {
    Box::new(move |server: &mut Server| {
        let key = Key::new("test", name);
        server.delete(&AppWrapper::RESOURCE, &key, Propagation::Background);
    })
}

#[test]
fn jobs_converge_despite_faults() {
    let cast = TestControllers::new(Settings::default());
    let controllers = cast.all();
    let bad_item = wrap("bad", json!({}), vec![json!({})]);
    let objects = vec![
        node("a", "1", 0),
        job("one", 1, 2, "400m", 10),
        job("two", 2, 1, "800m", 10),
        job("huge", 3, 1, "4", 10),
        (AppWrapper::RESOURCE, bad_item),
    ];
    let scenario = Scenario {
        script: vec![edit("one", "/spec/priority", json!(7))],
        ..scenario(&controllers, objects)
    };
    proven(scenario.prove_faults(0..6, final_states));
    let bad: Vec<(Resource, Value)> = [REFUSED_PREFIX, CONFLICTED_PREFIX, UNREADABLE_PREFIX]
        .into_iter()
        .map(|wrong| {
            let (resource, mut object) = job(&format!("{wrong}-w"), 9, 1, "100m", 5);
            if wrong == UNREADABLE_PREFIX {
                object["spec"]["priority"] = json!("high");
            }
            (resource, object)
        })
        .collect();
    proven(scenario.prove_isolation(&bad, 0..2, final_states));
}

/// DS-7 and DS-8: a process that dies leaves nothing half done, and nothing is done twice.
#[test]
fn ds_8_progress_resumes_after_a_crash_at_every_step() {
    let cast = TestControllers::new(Settings::default());
    let controllers = cast.all();
    let (_, mut both) = job("both", 1, 1, "400m", 5);
    let second = template(&JOBS, "second-j", 1, "400m", json!({"seconds": "5", "job": "y"}));
    both["spec"]["resources"]["GenericItems"].as_array_mut().unwrap().push(item(second));
    let objects = vec![node("a", "1", 0), (AppWrapper::RESOURCE, both)];
    proven(
        scenario(&controllers, objects)
            .prove_crashes(1, |server| json!([final_states(server), final_state(server)])),
    );
}

/// DS-7: of an AppWrapper that cannot be created as a whole nothing is left, whenever a process
/// dies.
#[test]
fn ds_7_a_crash_leaves_no_partial_failure() {
    let cast = TestControllers::new(Settings::default());
    let controllers = cast.all();
    let good = item(template(&JOBS, "good-j", 1, "400m", json!({})));
    // The server refuses objects of this name.
    let bad = item(template(&JOBS, "forbidden-j", 1, "400m", json!({})));
    let wrapper = wrap("half", json!({}), vec![good, bad]);
    let forbid: UserAction = Box::new(|server: &mut Server| {
        server.refuse(|write| write.key().name().starts_with("forbidden"));
    });
    let create: UserAction = Box::new(move |server: &mut Server| {
        server.create(&AppWrapper::RESOURCE, wrapper.clone());
    });
    let objects = vec![node("a", "1", 0)];
    let scenario = Scenario { script: vec![forbid, create], ..scenario(&controllers, objects) };
    let state = |server: &Server| {
        let wrapper = server.get(&AppWrapper::RESOURCE, &Key::new("test", "half")).unwrap();
        json!([wrapper["status"]["state"], wrapper["status"]["canrun"], server.list(&JOBS).len()])
    };
    let ending = scenario.run(1, Faults::none()).unwrap();
    assert_eq!(state(&ending.server), json!(["Failed", null, 0]));
    proven(scenario.prove_crashes(1, state));
}

#[test]
fn eviction_survives_a_crash_at_every_step() {
    let cast = TestControllers::new(Settings::default());
    let controllers = cast.all();
    // It never comes up, and is given up after one more try.
    let never = template(&JOBS, "never-j", 1, "400m", json!({"init": "100000"}));
    let rule = json!({"timeInSeconds": 1, "growthType": "none", "maxNumRequeuings": 1});
    let spec = json!({"schedulingSpec": {"minAvailable": 1, "requeuing": rule}});
    let objects = vec![
        node("a", "1", 0),
        (AppWrapper::RESOURCE, wrap("never", spec, vec![item(never)])),
        job("other", 0, 1, "800m", 5),
    ];
    let scenario = scenario(&controllers, objects);
    let ending = scenario.run(1, Faults::none()).unwrap();
    let end = final_states(&ending.server);
    assert_eq!(end["wrappers"], json!([["never", "Deleted", null], ["other", "Completed", null]]));
    proven(scenario.prove_crashes(1, final_states));
}

/// Returns a scenario with everything that can happen to jobs on a small cluster.
fn world<'a>(controllers: &'a [&'a dyn Controller], seed: u64) -> Scenario<'a> {
    let mut rng = Rng::with_seed(seed);
    let mut objects = vec![node("a", "2", 0)];
    for at in 0..rng.u32(2..6) {
        let cpu = ["200m", "500m", "900m", "5"][rng.usize(..4)];
        let pods = rng.i64(1..3);
        objects.push(job(&format!("w{at}"), rng.i64(-2..3), pods, cpu, rng.i64(1..20)));
    }
    if rng.bool() {
        objects.push((AppWrapper::RESOURCE, wrap("bad", json!({}), vec![json!({})])));
    }
    let mut script: Vec<UserAction> = Vec::new();
    if rng.bool() {
        script.push(edit("w0", "/spec/priority", json!(9)));
    }
    if rng.bool() {
        script.push(remove("w1"));
    }
    Scenario { script, ..scenario(controllers, objects) }
}

#[test]
fn random_worlds_converge() {
    for (settings, worlds) in [
        (Settings::default(), 0..5),
        // One that does not fit holds the line again whenever it is evaluated after its backoff,
        // after a restart too: only worlds that end within a backoff are at rest.
        (Settings { holding: Duration::from_secs(5), ..Settings::default() }, 0..4),
        (Settings { dynamic_priority: true, wake_on_release: false, ..Settings::default() }, 0..5),
    ] {
        let cast = TestControllers::new(settings);
        let controllers = cast.all();
        proven(prove_worlds(worlds, |seed| world(&controllers, seed), final_states));
    }
}

/// Returns what all admitted AppWrappers request that are not complete, and what the cluster has.
pub(super) fn held(server: &Server) -> (i64, i64) {
    let milli = |it: &Value| match it.as_str().unwrap() {
        text if text.ends_with('m') => text.trim_end_matches('m').parse::<i64>().unwrap(),
        text => text.parse::<i64>().unwrap() * 1000,
    };
    let wrappers = server.list(&AppWrapper::RESOURCE);
    let passed = wrappers.iter().filter(|it| it["status"]["canrun"] == true);
    let demand = passed.flat_map(|it| it["spec"]["resources"]["GenericItems"].as_array().unwrap());
    let demand = demand.flat_map(|it| it["custompodresources"].as_array().unwrap());
    let demand = demand.map(|it| it["replicas"].as_i64().unwrap() * milli(&it["requests"]["cpu"]));
    let pods = server.list(&Pod::RESOURCE);
    let done = pods.iter().filter(|it| it["status"]["phase"] == "Succeeded").filter(|pod| {
        wrappers.iter().any(|it| {
            it["status"]["canrun"] == true
                && it["metadata"]["name"] == pod["metadata"]["labels"][APP_WRAPPER_LABEL]
        })
    });
    let done = done.map(|it| milli(&it["spec"]["containers"][0]["resources"]["requests"]["cpu"]));
    let nodes = server.list(&Node::RESOURCE);
    (
        demand.sum::<i64>() - done.sum::<i64>(),
        nodes.iter().map(|it| milli(&it["status"]["allocatable"]["cpu"])).sum(),
    )
}

#[test]
fn nothing_is_admitted_beyond_capacity() {
    let cast = TestControllers::new(Settings::default());
    let controllers = cast.all();
    for seed in 0..12 {
        let mut rng = Rng::with_seed(seed);
        let mut objects = vec![node("a", "2", 0)];
        for at in 0..8 {
            let cpu = ["200m", "500m", "900m", "5"][rng.usize(..4)];
            objects.push(job(&format!("w{at}"), rng.i64(0..3), rng.i64(1..3), cpu, rng.i64(1..20)));
        }
        let most = Rc::new(RefCell::new(0));
        let check = || -> UserAction {
            let most = Rc::clone(&most);
            Box::new(move |server: &mut Server| {
                let (demand, room) = held(server);
                assert!(demand <= room, "seed {seed}: {demand} of {room}");
                let mut most = most.borrow_mut();
                *most = demand.max(*most);
            })
        };
        let script = (0..60).map(|_| check()).collect();
        let scenario = Scenario { script, ..scenario(&controllers, objects) };
        scenario.run(seed, Faults::none()).unwrap();
        assert!(*most.borrow() > 0, "seed {seed}: some were admitted meanwhile");
    }
}

#[test]
fn priority_decides_the_order() {
    let cast = TestControllers::new(Settings::default());
    let controllers = cast.all();
    for seed in 0..10 {
        let scenario = scenario(&controllers, vec![]);
        let mut sim = Simulation::new(&scenario);
        let mut rng = Rng::with_seed(seed);
        let mut wanted = BTreeMap::new();
        for at in 0..7 {
            let priority = rng.i64(-3..4);
            let (resource, object) = job(&format!("w{at}"), priority, 1, "1", 3);
            sim.run.server().create(&resource, object);
            // Among equals the one that arrived first is first.
            sim.advance(1);
            wanted.insert((-priority, at), format!("w{at}"));
        }
        let (resource, object) = node("a", "1", 0);
        sim.run.server().create(&resource, object);
        sim.advance(200);
        let mut order: Vec<(String, String)> = (0..7)
            .map(|at| {
                let name = format!("w{at}");
                let status = sim.status(&name);
                assert_eq!(status["state"], "Completed", "none is forgotten: {status}");
                (status["controllerfirstdispatchtimestamp"].as_str().unwrap().to_owned(), name)
            })
            .collect();
        order.sort();
        let order: Vec<String> = order.into_iter().map(|(_, name)| name).collect();
        assert_eq!(order, wanted.into_values().collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn a_large_job_is_admitted_with_head_of_line_holding() {
    for (holding, expected) in [(0, "Pending"), (30, "Completed")] {
        let settings = Settings { holding: Duration::from_secs(holding), ..Settings::default() };
        let cast = TestControllers::new(settings);
        let controllers = cast.all();
        let scenario = scenario(&controllers, vec![node("a", "2", 0)]);
        let mut sim = Simulation::new(&scenario);
        for at in 0..40 {
            let (resource, object) = job(&format!("small{at}"), 0, 1, "1", 12);
            sim.run.server().create(&resource, object);
            if at == 3 {
                let (resource, object) = job("large", 0, 1, "2", 3);
                sim.run.server().create(&resource, object);
            }
            sim.advance(5);
        }
        assert_eq!(sim.status("large")["state"], expected, "holding for {holding} s");
    }
}

#[test]
fn q_5_head_of_line_holding_ends_after_its_time() {
    let settings = Settings { holding: Duration::from_secs(30), ..Settings::default() };
    let cast = TestControllers::new(settings);
    let controllers = cast.all();
    let scenario = scenario(&controllers, vec![node("a", "1", 0)]);
    let mut sim = Simulation::new(&scenario);
    sim.create(deployment("huge", 1, "4"));
    sim.create(deployment("small", 1, "500m"));
    assert_eq!(sim.state("huge"), "Pending HeadOfLine");
    assert_eq!(sim.state("small"), "Pending Queueing", "no other is evaluated");
    sim.advance(30);
    assert_eq!(sim.state("huge"), "Pending Backoff");
    assert_eq!(sim.state("small"), "Running Running");
}

#[test]
fn released_capacity_is_used_at_once() {
    for (wake_on_release, expected) in [(true, "Running Running"), (false, "Pending Backoff")] {
        let cast = TestControllers::new(Settings { wake_on_release, ..Settings::default() });
        let controllers = cast.all();
        let scenario = scenario(&controllers, vec![node("a", "1", 0)]);
        let mut sim = Simulation::new(&scenario);
        sim.create(deployment("first", 1, "1"));
        sim.create(deployment("second", 1, "1"));
        sim.advance(3);
        sim.delete(&AppWrapper::RESOURCE, "first");
        sim.advance(4);
        assert_eq!(sim.state("second"), expected, "woken: {wake_on_release}");
        sim.advance(20);
        assert_eq!(sim.state("second"), "Running Running", "in the end in any case");
    }
}

#[test]
fn added_nodes_add_capacity_and_removed_nodes_do_not() {
    let cast = TestControllers::new(Settings::default());
    let controllers = cast.all();
    let scenario = scenario(&controllers, vec![node("a", "1", 0)]);
    let mut sim = Simulation::new(&scenario);
    sim.create(deployment("two", 2, "1"));
    assert_eq!(sim.state("two"), "Pending Backoff");
    let (resource, object) = node("b", "1", 0);
    sim.run.server().create(&resource, object);
    sim.advance(3);
    assert_eq!(sim.state("two"), "Running Running");
}

/// P3: what is written on the straight path, and where there is too little capacity at first.
#[test]
fn p_3_a_straight_path_takes_three_writes_and_a_wait_one_more() {
    let patch = "patch appwrappers.workload.codeflare.dev";
    let create = "create jobs.batch";
    assert_eq!(status_writes(false), [patch, create, patch, patch]);
    assert_eq!(status_writes(true), [patch, patch, create, patch, patch]);
}

/// Returns what is written about an AppWrapper that has to wait for a node, or not.
fn status_writes(waits: bool) -> Vec<String> {
    let cast = TestControllers::new(Settings::default());
    let controllers = cast.all();
    let first = (!waits).then(|| node("a", "1", 0));
    let scenario = scenario(&controllers, first.into_iter().collect());
    let mut sim = Simulation::new(&scenario);
    let mut item = item(template(&JOBS, "j", 0, "0", json!({"job": "y"})));
    item["completionstatus"] = json!("Complete");
    item["custompodresources"] = json!([{"replicas": 1, "requests": {"cpu": 1}}]);
    let writes = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&writes);
    sim.run.server().intercept(move |write| {
        seen.borrow_mut().push(format!("{} {}", write.verb(), write.resource()));
        None
    });
    sim.create(wrap("one", json!({}), vec![item]));
    if waits {
        sim.advance(9);
        let (resource, object) = node("a", "1", 0);
        sim.run.server().create(&resource, object);
    }
    sim.advance(60);
    assert_eq!(sim.state("one"), "Completed Completed");
    // Writes of users, and the status that the job's controller writes, are not ours.
    let others = ["create appwrappers.workload.codeflare.dev", "create nodes", "patch jobs.batch"];
    let writes = writes.borrow();
    writes.iter().filter(|it| !others.contains(&it.as_str())).cloned().collect()
}

/// T17 and 4.16: a process that restarts continues where the other was.
#[test]
fn a_restart_changes_nothing() {
    let cast = TestControllers::new(Settings::default());
    let controllers = cast.all();
    let scenario = scenario(&controllers, vec![node("a", "1", 0)]);
    let mut sim = Simulation::new(&scenario);
    sim.create(deployment("runs", 1, "600m"));
    sim.create(deployment("waits", 1, "600m"));
    let before = final_state(sim.run.server());
    sim.run.restart();
    sim.advance(60);
    assert_eq!(final_state(sim.run.server()), before);
    sim.delete(&AppWrapper::RESOURCE, "runs");
    sim.advance(3);
    assert_eq!(sim.state("waits"), "Running Running");
    assert!(sim.run.server().list(&Pod::RESOURCE).len() == 1);
}
