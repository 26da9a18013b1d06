//! Every transition of the table in `docs/specs/queue.md`, as it is written down: each status that an
//! AppWrapper ever had, in order.

use std::time::Duration;

use gantry_pods::view::Pod;
use gantry_reconcile::{Key, Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    Cast, DEPLOYMENTS, JOBS, Play, SERVICES, deployment, item, node, scenario, template, wrap,
};
use crate::app_wrapper::AppWrapper;
use crate::{Inference, Settings};

/// A stage with one node of 2 cpus.
macro_rules! play {
    ($play:ident) => {
        play!($play, Settings::default())
    };
    ($play:ident, $settings:expr) => {
        let cast = Cast::new($settings);
        let controllers = cast.all();
        let scenario = scenario(&controllers, vec![node("a", "2", 0)]);
        let mut $play = Play::new(&scenario);
    };
}

/// Every state that an object ever had.
fn versions(play: &mut Play<'_>, resource: &Resource, name: &str) -> Vec<Value> {
    let server = play.stage.server();
    let all =
        server.history(resource).map(|(text, _)| serde_json::from_str::<Value>(text).unwrap());
    all.filter(|it| it["metadata"]["name"] == name).collect()
}

fn told(version: &Value) -> String {
    let status = &version["status"];
    let text = |name: &str| status[name].as_str().unwrap_or("-");
    let reserved = if status["canrun"] == true { "R" } else { "-" };
    format!("{} {} {reserved}", text("state"), text("queuejobstate"))
}

/// State, step and reservation, each time one of them was another.
fn steps(play: &mut Play<'_>, name: &str) -> Vec<String> {
    let mut steps: Vec<String> =
        versions(play, &AppWrapper::RESOURCE, name).iter().map(told).collect();
    steps.dedup();
    steps
}

/// The first version in which state, step and reservation are these.
fn first(play: &mut Play<'_>, name: &str, step: &str) -> Value {
    let mut all = versions(play, &AppWrapper::RESOURCE, name).into_iter();
    all.find(|it| told(it) == step).unwrap_or_else(|| panic!("{name} never was {step}"))
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

/// A job of one pod that runs for so long.
fn job(name: &str, seconds: i64, named: &str) -> Value {
    let notes = json!({"seconds": seconds.to_string(), "job": "y"});
    let mut item = item(template(&JOBS, name, 1, "100m", notes));
    if !named.is_empty() {
        item["completionstatus"] = json!(named);
    }
    item
}

/// One whose only pod never runs, and that has to run.
fn stuck(requeuing: &Value, minimum: i64) -> Value {
    let object = item(template(&JOBS, "stuck-j", 1, "100m", json!({"init": "100000"})));
    let spec = json!({"schedulingSpec": {"minAvailable": minimum, "requeuing": requeuing}});
    wrap("stuck", spec, vec![object])
}

const STRAIGHT: [&str; 4] =
    ["- - -", "Pending HeadOfLine R", "Running Dispatched R", "Running Running R"];

#[test]
fn t_1_who_is_seen_first_waits_by_one_write() {
    play!(play);
    let mut large = deployment("large", 1, "3");
    large["spec"]["priority"] = json!(7);
    play.create(large);
    assert_eq!(steps(&mut play, "large")[..2], ["- - -", "Pending Backoff -"]);
    let seen = first(&mut play, "large", "Pending Backoff -");
    assert_eq!(kinds(&seen)[..2], ["Init", "Queueing"], "with why it waits");
    assert_eq!(seen["status"]["systempriority"], 7.0);
    assert!(seen["status"]["controllerfirsttimestamp"].is_string());
    // Behind one who holds the line nobody is looked at.
    play!(play, Settings { holding: Duration::from_secs(60), ..Settings::default() });
    play.create(deployment("large", 1, "3"));
    play.create(deployment("small", 1, "1"));
    assert_eq!(steps(&mut play, "small"), ["- - -", "Pending Queueing -"]);
    assert_eq!(kinds(&first(&mut play, "small", "Pending Queueing -")), ["Init", "Queueing"]);
}

#[test]
fn t_2_looking_at_one_writes_nothing() {
    play!(play);
    play.create(deployment("one", 1, "1"));
    assert_eq!(steps(&mut play, "one"), STRAIGHT);
    play.create(deployment("large", 1, "2"));
    let before = versions(&mut play, &AppWrapper::RESOURCE, "large").len();
    // It is looked at with every one that comes.
    for at in 0..5 {
        play.create(deployment(&format!("other-{at}"), 1, "50m"));
    }
    assert_eq!(versions(&mut play, &AppWrapper::RESOURCE, "large").len(), before);
}

#[test]
fn t_3_who_fits_is_reserved_for_before_anything_is_made() {
    play!(play);
    play.create(deployment("one", 1, "1"));
    let passed = first(&mut play, "one", "Pending HeadOfLine R");
    assert_eq!(kinds(&passed), ["Init", "Queueing", "HeadOfLine"]);
    let made = versions(&mut play, &DEPLOYMENTS, "one-d");
    assert!(revision(&made[0]) > revision(&passed));
}

#[test]
fn t_4_who_holds_the_line_passes_first() {
    play!(play, Settings { holding: Duration::from_secs(60), ..Settings::default() });
    play.create(deployment("runs", 1, "1"));
    play.create(deployment("large", 1, "2"));
    play.create(deployment("small", 1, "1"));
    assert_eq!(play.state("large"), "Pending HeadOfLine");
    assert_eq!(
        kinds(&first(&mut play, "large", "Pending HeadOfLine -")).last(),
        Some(&"HeadOfLine")
    );
    assert_eq!(play.state("small"), "Pending Queueing");
    play.delete(&AppWrapper::RESOURCE, "runs");
    play.pass(5);
    assert_eq!(play.state("large"), "Running Running");
    assert_ne!(play.state("small"), "Running Running", "there is no room beside it");
}

#[test]
fn t_5_who_does_not_fit_pauses_and_is_told_why() {
    for holding in [0, 5] {
        play!(play, Settings { holding: Duration::from_secs(holding), ..Settings::default() });
        play.create(deployment("large", 1, "3"));
        play.pass(10);
        let paused = first(&mut play, "large", "Pending Backoff -");
        assert_eq!(kinds(&paused), ["Init", "Queueing", "HeadOfLine", "Backoff"], "{holding}");
        assert_eq!(*reason(&paused, "Backoff"), "AppWrapperNotRunnable.");
        let said = "cpu: needs 3, 2 available, 1 missing";
        assert_eq!(paused["status"]["message"], said, "{holding}");
    }
}

#[test]
fn t_6_a_release_ends_a_pause_and_time_alone_tells_nothing() {
    play!(play);
    play.create(deployment("runs", 1, "2"));
    play.create(deployment("waits", 1, "1"));
    let before = versions(&mut play, &AppWrapper::RESOURCE, "waits").len();
    play.pass(300);
    let after = versions(&mut play, &AppWrapper::RESOURCE, "waits").len();
    assert_eq!(after, before, "the pause ended many times");
    play.delete(&AppWrapper::RESOURCE, "runs");
    play.pass(3);
    assert_eq!(play.state("waits"), "Running Running");
    let steps = steps(&mut play, "waits");
    assert_eq!(steps[1..3], ["Pending Backoff -", "Pending HeadOfLine R"]);
}

#[test]
fn t_7_all_items_are_there_when_it_is_dispatched() {
    play!(play);
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}});
    let items = vec![item(service.clone()), job("j", 100, "")];
    play.create(wrap("pods", json!({}), items));
    let dispatched = first(&mut play, "pods", "Running Dispatched R");
    assert_eq!(*reason(&dispatched, "Dispatched"), "AppWrapperRunnable");
    for (resource, name) in [(SERVICES, "s"), (JOBS, "j")] {
        let made = versions(&mut play, &resource, name);
        assert!(revision(&made[0]) < revision(&dispatched), "{name}");
    }
    assert!(dispatched["status"]["pendingpodconditions"].is_null());
    assert!(dispatched["status"]["controllerfirstdispatchtimestamp"].is_null(), "no pod runs yet");
    let mut alone = item(service);
    alone["generictemplate"]["metadata"]["name"] = json!("alone");
    play.create(wrap("none", json!({}), vec![alone]));
    let dispatched = first(&mut play, "none", "Running Dispatched R");
    let since = &dispatched["status"]["controllerfirstdispatchtimestamp"];
    assert!(since.is_string(), "none will ever run");
}

#[test]
fn t_8_what_cannot_be_made_fails_it_and_takes_the_rest_along() {
    play!(play);
    play.stage.server().refuse(|write| write.key().name() == "bad");
    play.create(wrap("one", json!({}), vec![job("good", 100, ""), job("bad", 100, "")]));
    play.pass(90);
    let steps = steps(&mut play, "one");
    assert_eq!(steps[1..], ["Pending HeadOfLine R", "Pending Failed R", "Failed Failed -"]);
    let failed = first(&mut play, "one", "Pending Failed R");
    assert_eq!(*reason(&failed, "Failed"), "ItemCreationFailure.");
    let said = failed["status"]["message"].as_str().unwrap();
    assert!(said.starts_with("test/one creation failure: "), "{said}");
    assert_eq!((play.object(&JOBS, "good"), play.pods("one")), (None, (0, 0)));
    play.pass(3600);
    assert_eq!(play.state("one"), "Failed Failed", "for good");
}

#[test]
fn t_9_the_first_pod_that_runs_sets_the_clock() {
    play!(play);
    play.create(wrap(
        "one",
        json!({}),
        vec![item(template(&JOBS, "j", 2, "100m", json!({"init": "30"})))],
    ));
    assert_eq!(play.state("one"), "Running Dispatched");
    play.pass(60);
    assert_eq!(steps(&mut play, "one"), STRAIGHT);
    let runs = first(&mut play, "one", "Running Running R");
    assert_eq!(*reason(&runs, "Running"), "PodsRunning");
    assert!(runs["status"]["running"].as_i64().unwrap() >= 1);
    let since = runs["status"]["controllerfirstdispatchtimestamp"].clone();
    assert_eq!(since, reason_time(&runs, "Running"));
    assert_eq!(play.status("one")["running"], 2);
}

fn reason_time(version: &Value, kind: &str) -> Value {
    let list = version["status"]["conditions"].as_array().unwrap();
    list.iter().rfind(|it| it["type"] == kind).unwrap()["lastTransitionMicroTime"].clone()
}

#[test]
fn t_10_who_is_complete_waits_for_its_pods() {
    play!(play);
    let spec = json!({"schedulingSpec": {"minAvailable": 2, "requeuing": {"timeInSeconds": 60}}});
    play.create(wrap("two", spec, vec![job("j1", 5, "Complete"), job("j2", 400, "")]));
    play.pass(300);
    let held = first(&mut play, "two", "RunningHoldCompletion RunningHoldCompletion R");
    assert_eq!(*reason(&held, "RunningHoldCompletion"), "SomeItemsCompleted");
    assert_eq!(
        play.state("two"),
        "RunningHoldCompletion RunningHoldCompletion",
        "it is not requeued, and does not go back"
    );
}

#[test]
fn t_11_who_is_complete_and_has_no_pods_ends_and_keeps_its_items() {
    play!(play);
    play.create(wrap("held", json!({}), vec![job("j1", 5, "Complete"), job("j2", 30, "")]));
    play.create(wrap("once", json!({}), vec![job("j3", 5, "Complete")]));
    play.pass(60);
    let steps_of_held = steps(&mut play, "held");
    let end = ["RunningHoldCompletion RunningHoldCompletion R", "Completed Completed -"];
    assert_eq!(steps_of_held[STRAIGHT.len()..], end);
    assert_eq!(steps(&mut play, "once")[STRAIGHT.len()..], end[1..]);
    for name in ["j1", "j2", "j3"] {
        assert!(play.object(&JOBS, name).is_some(), "{name}");
    }
    let completed = first(&mut play, "once", "Completed Completed -");
    assert_eq!(*reason(&completed, "Completed"), "PodsCompleted");
}

#[test]
fn t_12_too_few_pods_are_taken_back_and_it_waits_longer() {
    play!(play);
    play.create(stuck(&json!({"timeInSeconds": 60, "growthType": "exponential"}), 1));
    play.pass(62);
    let steps = steps(&mut play, "stuck");
    let end = ["Running Dispatched R", "Running PreemptCandidate R", "Pending Backoff -"];
    assert_eq!(steps[2..5], end);
    let told = first(&mut play, "stuck", end[1]);
    assert_eq!(*reason(&told, "PreemptCandidate"), "MinPodsNotRunning");
    let back = first(&mut play, "stuck", end[2]);
    assert_eq!(*reason(&back, "Backoff"), "PreemptionTriggered");
    let status = &back["status"];
    assert_eq!(
        (&status["numberOfRequeueings"], &status["requeueingTimeInSeconds"]),
        (&json!(1), &json!(60))
    );
    // What it reserves is given up when nothing of it is left.
    let gone = versions(&mut play, &Pod::RESOURCE, "stuck-j-0");
    assert!(gone.iter().all(|it| revision(it) < revision(&back)), "its pod went first");
}

#[test]
fn t_13_who_was_requeued_often_enough_is_given_up() {
    play!(play);
    play.create(stuck(&json!({"timeInSeconds": 60, "numRequeuings": 2, "maxNumRequeuings": 2}), 1));
    play.pass(62);
    let steps = steps(&mut play, "stuck");
    assert_eq!(steps[3..], ["Running PreemptCandidate R", "Deleted Deleted -"]);
    let status = play.status("stuck");
    assert!(status["numberOfRequeueings"].is_null(), "it is not counted: {status}");
    assert!(status["requeueingTimeInSeconds"].is_null(), "and does not grow: {status}");
    assert_eq!(play.object(&JOBS, "stuck-j"), None);
}

#[test]
fn t_14_who_no_node_takes_is_taken_back_and_not_counted() {
    play!(play, Settings { inference: Inference::Compat, ..Settings::default() });
    let mut large = item(template(&JOBS, "j", 1, "3", json!({})));
    large["custompodresources"] = json!([{"replicas": 1, "requests": {"cpu": "1"}}]);
    let spec = json!({"schedulingSpec": {"requeuing": {"timeInSeconds": 60}}});
    play.create(wrap("one", spec, vec![large]));
    play.pass(62);
    let steps = steps(&mut play, "one");
    assert_eq!(steps[3..5], ["Running PreemptCandidate R", "Pending Backoff -"]);
    let told = first(&mut play, "one", "Running PreemptCandidate R");
    assert_eq!(*reason(&told, "PreemptCandidate"), "PodsFailedScheduling");
    let status = play.status("one");
    assert!(status["numberOfRequeueings"].is_null() && status["requeueingTimeInSeconds"].is_null());
}

#[test]
fn t_15_who_runs_for_too_long_fails() {
    play!(play);
    let spec = json!({"schedulingSpec": {"dispatchDuration": {"limit": 30}}});
    play.create(wrap("one", spec, vec![job("j", 1000, "")]));
    play.pass(60);
    let steps = steps(&mut play, "one");
    assert_eq!(steps[STRAIGHT.len()..], ["Running PreemptCandidate R", "Failed Failed -"]);
    let told = first(&mut play, "one", "Running PreemptCandidate R");
    assert_eq!(*reason(&told, "PreemptCandidate"), "DispatchDeadlineExceeded");
    assert_eq!(play.object(&JOBS, "j"), None);
}

#[test]
fn t_16_who_makes_room_waits_again() {
    play!(play, Settings { preemption: true, active_eviction: true, ..Settings::default() });
    play.create(deployment("low", 1, "2"));
    let mut high = deployment("high", 1, "2");
    high["spec"]["priority"] = json!(9);
    play.create(high);
    play.pass(10);
    let steps = steps(&mut play, "low");
    let end = ["Running Preempted R", "Pending Queueing -"];
    assert_eq!(steps[STRAIGHT.len()..STRAIGHT.len() + 2], end);
    let told = first(&mut play, "low", end[0]);
    assert_eq!(*reason(&told, "Preempted"), "PriorityPreempted");
    // The other one passes when it is gone.
    let all = versions(&mut play, &AppWrapper::RESOURCE, "low");
    let gone = all.iter().find(|it| told_after(it, &all, end[1])).map(revision).unwrap();
    assert!(revision(&first(&mut play, "high", "Pending HeadOfLine R")) > gone);
    assert_eq!(play.state("high"), "Running Running");
}

/// Whether a version is the first after the step `Preempted` that is at this step.
fn told_after(version: &Value, all: &[Value], step: &str) -> bool {
    let yields = all.iter().position(|it| told(it) == "Running Preempted R").unwrap();
    all[yields..]
        .iter()
        .find(|it| told(it) == step)
        .is_some_and(|it| revision(it) == revision(version))
}

#[test]
fn t_17_who_is_deleted_leaves_nothing() {
    play!(play);
    play.create(deployment("runs", 1, "2"));
    play.create(deployment("waits", 1, "2"));
    play.delete(&AppWrapper::RESOURCE, "runs");
    play.pass(5);
    assert_eq!(play.object(&AppWrapper::RESOURCE, "runs"), None);
    assert_eq!((play.object(&DEPLOYMENTS, "runs-d"), play.pods("runs")), (None, (0, 0)));
    assert_eq!(play.state("waits"), "Running Running", "its reservation ended with it");
}

#[test]
fn t_18_another_priority_is_another_place_at_once() {
    play!(play);
    play.create(deployment("runs", 1, "2"));
    for (name, priority) in [("one", 5), ("two", 1)] {
        let mut waits = deployment(name, 1, "2");
        waits["spec"]["priority"] = json!(priority);
        play.create(waits);
    }
    let key = Key::new("test", "two");
    play.stage.server().edit(&AppWrapper::RESOURCE, &key, |it| it["spec"]["priority"] = json!(9));
    play.pass(2);
    assert_eq!(play.status("two")["systempriority"], 9.0);
    play.delete(&AppWrapper::RESOURCE, "runs");
    play.pass(5);
    assert_eq!(play.state("two"), "Running Running");
    assert_ne!(play.state("one"), "Running Running");
}
