//! Every transition of the table in `docs/specs/queue.md`, as it is recorded: each status that an
//! AppWrapper ever had, in order.

use std::time::Duration;

use gantry_pods::view::Pod;
use gantry_reconcile::{Key, Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    DEPLOYMENTS, JOBS, SERVICES, Simulation, TestControllers, deployment, item, node, scenario,
    template, wrap,
};
use crate::app_wrapper::AppWrapper;
use crate::{Inference, Settings};

/// Creates a simulation with one node of 2 cpus.
macro_rules! simulation {
    ($sim:ident) => {
        simulation!($sim, Settings::default())
    };
    ($sim:ident, $settings:expr) => {
        let cast = TestControllers::new($settings);
        let controllers = cast.all();
        let scenario = scenario(&controllers, vec![node("a", "2", 0)]);
        let mut $sim = Simulation::new(&scenario);
    };
}

/// Returns every version that an object ever had.
fn versions(sim: &mut Simulation<'_>, resource: &Resource, name: &str) -> Vec<Value> {
    let server = sim.run.server();
    let all =
        server.history(resource).map(|(text, _)| serde_json::from_str::<Value>(text).unwrap());
    all.filter(|it| it["metadata"]["name"] == name).collect()
}

fn message_of(version: &Value) -> String {
    let status = &version["status"];
    let text = |name: &str| status[name].as_str().unwrap_or("-");
    let reserved = if status["canrun"] == true { "R" } else { "-" };
    format!("{} {} {reserved}", text("state"), text("queuejobstate"))
}

/// Returns state, step and reservation, each time one of them changed.
fn steps(sim: &mut Simulation<'_>, name: &str) -> Vec<String> {
    let mut steps: Vec<String> =
        versions(sim, &AppWrapper::RESOURCE, name).iter().map(message_of).collect();
    steps.dedup();
    steps
}

/// Returns the first version with this state, step and reservation.
fn first(sim: &mut Simulation<'_>, name: &str, step: &str) -> Value {
    let mut all = versions(sim, &AppWrapper::RESOURCE, name).into_iter();
    all.find(|it| message_of(it) == step).unwrap_or_else(|| panic!("{name} never was {step}"))
}

fn kinds(version: &Value) -> Vec<&str> {
    let list = version["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|it| it["type"].as_str().unwrap()).collect()
}

fn reason<'v>(version: &'v Value, kind: &str) -> &'v Value {
    let list = version["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().rfind(|it| it["type"] == kind).map_or(&Value::Null, |it| &it["reason"])
}

fn revision(version: &Value) -> u64 {
    version["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Returns a job of one pod that runs for this long.
fn job(name: &str, seconds: i64, named: &str) -> Value {
    let notes = json!({"seconds": seconds.to_string(), "job": "y"});
    let mut item = item(template(&JOBS, name, 1, "100m", notes));
    if !named.is_empty() {
        item["completionstatus"] = json!(named);
    }
    item
}

/// Returns an AppWrapper whose only pod never runs, and that has to run.
fn stuck(requeuing: &Value, minimum: i64) -> Value {
    let object = item(template(&JOBS, "stuck-j", 1, "100m", json!({"init": "100000"})));
    let spec = json!({"schedulingSpec": {"minAvailable": minimum, "requeuing": requeuing}});
    wrap("stuck", spec, vec![object])
}

const STRAIGHT: [&str; 4] =
    ["- - -", "Pending HeadOfLine R", "Running Dispatched R", "Running Running R"];

#[test]
fn t_1_a_new_app_wrapper_is_queued_by_one_write() {
    simulation!(sim);
    let mut large = deployment("large", 1, "3");
    large["spec"]["priority"] = json!(7);
    sim.create(large);
    assert_eq!(steps(&mut sim, "large")[..2], ["- - -", "Pending Backoff -"]);
    let seen = first(&mut sim, "large", "Pending Backoff -");
    assert_eq!(kinds(&seen)[..2], ["Init", "Queueing"], "with why it waits");
    assert_eq!(seen["status"]["systempriority"], 7.0);
    assert!(seen["status"]["controllerfirsttimestamp"].is_string());
    // Behind the head of the line no AppWrapper is evaluated.
    simulation!(sim, Settings { holding: Duration::from_secs(60), ..Settings::default() });
    sim.create(deployment("large", 1, "3"));
    sim.create(deployment("small", 1, "1"));
    assert_eq!(steps(&mut sim, "small"), ["- - -", "Pending Queueing -"]);
    assert_eq!(kinds(&first(&mut sim, "small", "Pending Queueing -")), ["Init", "Queueing"]);
}

#[test]
fn t_2_evaluation_writes_nothing() {
    simulation!(sim);
    sim.create(deployment("one", 1, "1"));
    assert_eq!(steps(&mut sim, "one"), STRAIGHT);
    sim.create(deployment("large", 1, "2"));
    let before = versions(&mut sim, &AppWrapper::RESOURCE, "large").len();
    // It is evaluated with every AppWrapper that arrives.
    for at in 0..5 {
        sim.create(deployment(&format!("other-{at}"), 1, "50m"));
    }
    assert_eq!(versions(&mut sim, &AppWrapper::RESOURCE, "large").len(), before);
}

#[test]
fn t_3_a_reservation_is_written_before_items_are_created() {
    simulation!(sim);
    sim.create(deployment("one", 1, "1"));
    let passed = first(&mut sim, "one", "Pending HeadOfLine R");
    assert_eq!(kinds(&passed), ["Init", "Queueing", "HeadOfLine"]);
    let made = versions(&mut sim, &DEPLOYMENTS, "one-d");
    assert!(revision(&made[0]) > revision(&passed));
}

#[test]
fn t_4_the_held_head_of_line_is_admitted_first() {
    simulation!(sim, Settings { holding: Duration::from_secs(60), ..Settings::default() });
    sim.create(deployment("runs", 1, "1"));
    sim.create(deployment("large", 1, "2"));
    sim.create(deployment("small", 1, "1"));
    assert_eq!(sim.state("large"), "Pending HeadOfLine");
    assert_eq!(
        kinds(&first(&mut sim, "large", "Pending HeadOfLine -")).last(),
        Some(&"HeadOfLine")
    );
    assert_eq!(sim.state("small"), "Pending Queueing");
    sim.delete(&AppWrapper::RESOURCE, "runs");
    sim.advance(5);
    assert_eq!(sim.state("large"), "Running Running");
    assert_ne!(sim.state("small"), "Running Running", "there is no capacity beside it");
}

#[test]
fn t_5_an_app_wrapper_that_does_not_fit_backs_off_with_a_reason() {
    for holding in [0, 5] {
        simulation!(sim, Settings { holding: Duration::from_secs(holding), ..Settings::default() });
        sim.create(deployment("large", 1, "3"));
        sim.advance(10);
        let paused = first(&mut sim, "large", "Pending Backoff -");
        assert_eq!(kinds(&paused), ["Init", "Queueing", "HeadOfLine", "Backoff"], "{holding}");
        assert_eq!(*reason(&paused, "Backoff"), "AppWrapperNotRunnable.");
        let said = "cpu: needs 3, 2 available, 1 missing";
        assert_eq!(paused["status"]["message"], said, "{holding}");
    }
}

#[test]
fn t_6_a_release_ends_a_backoff_and_time_alone_writes_nothing() {
    simulation!(sim);
    sim.create(deployment("runs", 1, "2"));
    sim.create(deployment("waits", 1, "1"));
    let before = versions(&mut sim, &AppWrapper::RESOURCE, "waits").len();
    sim.advance(300);
    let after = versions(&mut sim, &AppWrapper::RESOURCE, "waits").len();
    assert_eq!(after, before, "the pause ended many times");
    sim.delete(&AppWrapper::RESOURCE, "runs");
    sim.advance(3);
    assert_eq!(sim.state("waits"), "Running Running");
    let steps = steps(&mut sim, "waits");
    assert_eq!(steps[1..3], ["Pending Backoff -", "Pending HeadOfLine R"]);
}

#[test]
fn t_7_all_items_are_there_when_it_is_dispatched() {
    simulation!(sim);
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}});
    let items = vec![item(service.clone()), job("j", 100, "")];
    sim.create(wrap("pods", json!({}), items));
    let dispatched = first(&mut sim, "pods", "Running Dispatched R");
    assert_eq!(*reason(&dispatched, "Dispatched"), "AppWrapperRunnable");
    for (resource, name) in [(SERVICES, "s"), (JOBS, "j")] {
        let made = versions(&mut sim, &resource, name);
        assert!(revision(&made[0]) < revision(&dispatched), "{name}");
    }
    assert!(dispatched["status"]["pendingpodconditions"].is_null());
    assert!(dispatched["status"]["controllerfirstdispatchtimestamp"].is_null(), "no pod runs yet");
    let mut alone = item(service);
    alone["generictemplate"]["metadata"]["name"] = json!("alone");
    sim.create(wrap("none", json!({}), vec![alone]));
    let dispatched = first(&mut sim, "none", "Running Dispatched R");
    let since = &dispatched["status"]["controllerfirstdispatchtimestamp"];
    assert!(since.is_string(), "none will ever run");
}

#[test]
fn t_8_what_cannot_be_made_fails_it_and_takes_the_rest_along() {
    simulation!(sim);
    sim.run.server().refuse(|write| write.key().name() == "bad");
    sim.create(wrap("one", json!({}), vec![job("good", 100, ""), job("bad", 100, "")]));
    sim.advance(90);
    let steps = steps(&mut sim, "one");
    assert_eq!(steps[1..], ["Pending HeadOfLine R", "Pending Failed R", "Failed Failed -"]);
    let failed = first(&mut sim, "one", "Pending Failed R");
    assert_eq!(*reason(&failed, "Failed"), "ItemCreationFailure.");
    let said = failed["status"]["message"].as_str().unwrap();
    assert!(said.starts_with("test/one creation failure: "), "{said}");
    assert_eq!((sim.object(&JOBS, "good"), sim.pods("one")), (None, (0, 0)));
    sim.advance(3600);
    assert_eq!(sim.state("one"), "Failed Failed", "for good");
}

#[test]
fn t_9_the_first_pod_that_runs_sets_the_clock() {
    simulation!(sim);
    sim.create(wrap(
        "one",
        json!({}),
        vec![item(template(&JOBS, "j", 2, "100m", json!({"init": "30"})))],
    ));
    assert_eq!(sim.state("one"), "Running Dispatched");
    sim.advance(60);
    assert_eq!(steps(&mut sim, "one"), STRAIGHT);
    let runs = first(&mut sim, "one", "Running Running R");
    assert_eq!(*reason(&runs, "Running"), "PodsRunning");
    assert!(runs["status"]["running"].as_i64().unwrap() >= 1);
    let since = runs["status"]["controllerfirstdispatchtimestamp"].clone();
    assert_eq!(since, reason_time(&runs, "Running"));
    assert_eq!(sim.status("one")["running"], 2);
}

fn reason_time(version: &Value, kind: &str) -> Value {
    let list = version["status"]["conditions"].as_array().unwrap();
    list.iter().rfind(|it| it["type"] == kind).unwrap()["lastTransitionMicroTime"].clone()
}

#[test]
fn t_10_a_complete_app_wrapper_waits_for_its_pods() {
    simulation!(sim);
    let spec = json!({"schedulingSpec": {"minAvailable": 2, "requeuing": {"timeInSeconds": 60}}});
    sim.create(wrap("two", spec, vec![job("j1", 5, "Complete"), job("j2", 400, "")]));
    sim.advance(300);
    let held = first(&mut sim, "two", "RunningHoldCompletion RunningHoldCompletion R");
    assert_eq!(*reason(&held, "RunningHoldCompletion"), "SomeItemsCompleted");
    assert_eq!(
        sim.state("two"),
        "RunningHoldCompletion RunningHoldCompletion",
        "it is not requeued, and does not go back"
    );
}

#[test]
fn t_11_a_complete_app_wrapper_without_pods_ends_and_keeps_items() {
    simulation!(sim);
    sim.create(wrap("held", json!({}), vec![job("j1", 5, "Complete"), job("j2", 30, "")]));
    sim.create(wrap("once", json!({}), vec![job("j3", 5, "Complete")]));
    sim.advance(60);
    let steps_of_held = steps(&mut sim, "held");
    let end = ["RunningHoldCompletion RunningHoldCompletion R", "Completed Completed -"];
    assert_eq!(steps_of_held[STRAIGHT.len()..], end);
    assert_eq!(steps(&mut sim, "once")[STRAIGHT.len()..], end[1..]);
    for name in ["j1", "j2", "j3"] {
        assert!(sim.object(&JOBS, name).is_some(), "{name}");
    }
    let completed = first(&mut sim, "once", "Completed Completed -");
    assert_eq!(*reason(&completed, "Completed"), "PodsCompleted");
}

#[test]
fn t_12_too_few_pods_requeue_with_a_longer_wait() {
    simulation!(sim);
    sim.create(stuck(&json!({"timeInSeconds": 60, "growthType": "exponential"}), 1));
    sim.advance(62);
    let steps = steps(&mut sim, "stuck");
    let end = ["Running Dispatched R", "Running PreemptCandidate R", "Pending Backoff -"];
    assert_eq!(steps[2..5], end);
    let told = first(&mut sim, "stuck", end[1]);
    assert_eq!(*reason(&told, "PreemptCandidate"), "MinPodsNotRunning");
    let back = first(&mut sim, "stuck", end[2]);
    assert_eq!(*reason(&back, "Backoff"), "PreemptionTriggered");
    let status = &back["status"];
    assert_eq!(
        (&status["numberOfRequeueings"], &status["requeueingTimeInSeconds"]),
        (&json!(1), &json!(60))
    );
    // Its reservation is released when none of its objects is left.
    let gone = versions(&mut sim, &Pod::RESOURCE, "stuck-j-0");
    assert!(gone.iter().all(|it| revision(it) < revision(&back)), "its pod went first");
}

#[test]
fn t_13_an_app_wrapper_is_given_up_after_max_requeuings() {
    simulation!(sim);
    sim.create(stuck(&json!({"timeInSeconds": 60, "numRequeuings": 2, "maxNumRequeuings": 2}), 1));
    sim.advance(62);
    let steps = steps(&mut sim, "stuck");
    assert_eq!(steps[3..], ["Running PreemptCandidate R", "Deleted Deleted -"]);
    let status = sim.status("stuck");
    assert!(status["numberOfRequeueings"].is_null(), "it is not counted: {status}");
    assert!(status["requeueingTimeInSeconds"].is_null(), "and does not grow: {status}");
    assert_eq!(sim.object(&JOBS, "stuck-j"), None);
}

#[test]
fn t_14_an_unschedulable_app_wrapper_is_requeued_uncounted() {
    simulation!(sim, Settings { inference: Inference::Compat, ..Settings::default() });
    let mut large = item(template(&JOBS, "j", 1, "3", json!({})));
    large["custompodresources"] = json!([{"replicas": 1, "requests": {"cpu": "1"}}]);
    let spec = json!({"schedulingSpec": {"requeuing": {"timeInSeconds": 60}}});
    sim.create(wrap("one", spec, vec![large]));
    sim.advance(62);
    let steps = steps(&mut sim, "one");
    assert_eq!(steps[3..5], ["Running PreemptCandidate R", "Pending Backoff -"]);
    let told = first(&mut sim, "one", "Running PreemptCandidate R");
    assert_eq!(*reason(&told, "PreemptCandidate"), "PodsFailedScheduling");
    let status = sim.status("one");
    assert!(status["numberOfRequeueings"].is_null() && status["requeueingTimeInSeconds"].is_null());
}

#[test]
fn t_15_an_exceeded_deadline_fails_the_app_wrapper() {
    simulation!(sim);
    let spec = json!({"schedulingSpec": {"dispatchDuration": {"limit": 30}}});
    sim.create(wrap("one", spec, vec![job("j", 1000, "")]));
    sim.advance(60);
    let steps = steps(&mut sim, "one");
    assert_eq!(steps[STRAIGHT.len()..], ["Running PreemptCandidate R", "Failed Failed -"]);
    let told = first(&mut sim, "one", "Running PreemptCandidate R");
    assert_eq!(*reason(&told, "PreemptCandidate"), "DispatchDeadlineExceeded");
    assert_eq!(sim.object(&JOBS, "j"), None);
}

#[test]
fn t_16_a_preempted_app_wrapper_is_requeued() {
    simulation!(sim, Settings { preemption: true, active_eviction: true, ..Settings::default() });
    sim.create(deployment("low", 1, "2"));
    let mut high = deployment("high", 1, "2");
    high["spec"]["priority"] = json!(9);
    sim.create(high);
    sim.advance(10);
    let steps = steps(&mut sim, "low");
    let end = ["Running Preempted R", "Pending Queueing -"];
    assert_eq!(steps[STRAIGHT.len()..STRAIGHT.len() + 2], end);
    let told = first(&mut sim, "low", end[0]);
    assert_eq!(*reason(&told, "Preempted"), "PriorityPreempted");
    // The other one is admitted when it is gone.
    let all = versions(&mut sim, &AppWrapper::RESOURCE, "low");
    let gone = all.iter().find(|it| message_written_after(it, &all, end[1])).map(revision).unwrap();
    assert!(revision(&first(&mut sim, "high", "Pending HeadOfLine R")) > gone);
    assert_eq!(sim.state("high"), "Running Running");
}

/// Returns whether a version is the first after the step `PreemptionReason` that is at this step.
fn message_written_after(version: &Value, all: &[Value], step: &str) -> bool {
    let yields = all.iter().position(|it| message_of(it) == "Running Preempted R").unwrap();
    all[yields..]
        .iter()
        .find(|it| message_of(it) == step)
        .is_some_and(|it| revision(it) == revision(version))
}

#[test]
fn t_17_a_deleted_app_wrapper_leaves_nothing() {
    simulation!(sim);
    sim.create(deployment("runs", 1, "2"));
    sim.create(deployment("waits", 1, "2"));
    sim.delete(&AppWrapper::RESOURCE, "runs");
    sim.advance(5);
    assert_eq!(sim.object(&AppWrapper::RESOURCE, "runs"), None);
    assert_eq!((sim.object(&DEPLOYMENTS, "runs-d"), sim.pods("runs")), (None, (0, 0)));
    assert_eq!(sim.state("waits"), "Running Running", "its reservation ended with it");
}

#[test]
fn t_18_another_priority_is_another_place_at_once() {
    simulation!(sim);
    sim.create(deployment("runs", 1, "2"));
    for (name, priority) in [("one", 5), ("two", 1)] {
        let mut waits = deployment(name, 1, "2");
        waits["spec"]["priority"] = json!(priority);
        sim.create(waits);
    }
    let key = Key::new("test", "two");
    sim.run.server().edit(&AppWrapper::RESOURCE, &key, |it| it["spec"]["priority"] = json!(9));
    sim.advance(2);
    assert_eq!(sim.status("two")["systempriority"], 9.0);
    sim.delete(&AppWrapper::RESOURCE, "runs");
    sim.advance(5);
    assert_eq!(sim.state("two"), "Running Running");
    assert_ne!(sim.state("one"), "Running Running");
}
