//! What MCAD's own tests expect, by the numbers of section 7.1; names have them in their form `a_1_`.

#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use gantry_pods::view::Pod;
use gantry_reconcile::{Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    Cast, DEPLOYMENTS, JOBS, POD_GROUPS, Play, SERVICES, SETS, deployment, fixture_a, item,
    scenario, template, wrap,
};
use crate::app_wrapper::AppWrapper;
use crate::{Inference, Settings};

/// A stage with fixture A on it.
macro_rules! play {
    ($play:ident) => {
        play!($play, Settings::default())
    };
    ($play:ident, $settings:expr) => {
        let cast = Cast::new($settings);
        let controllers = cast.all();
        let scenario = scenario(&controllers, fixture_a());
        let mut $play = Play::new(&scenario);
    };
}

fn complete(mut item: Value, named: &str) -> Value {
    item["completionstatus"] = json!(named);
    item
}

fn declared(mut item: Value, pods: i64, cpu: &str) -> Value {
    item["custompodresources"] = json!([{"replicas": pods, "requests": {"cpu": cpu}}]);
    item
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "test"},
           "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

#[test]
fn a_1_a_second_job_runs_beside_the_first() {
    play!(play);
    play.create(deployment("one", 2, "550m"));
    assert_eq!((play.state("one"), play.pods("one")), ("Running Running".to_owned(), (2, 2)));
    play.create(deployment("two", 2, "350m"));
    assert_eq!((play.state("two"), play.pods("two")), ("Running Running".to_owned(), (2, 2)));
}

#[test]
fn a_2_who_does_not_fit_is_passed_by_who_does() {
    play!(play);
    play.create(deployment("one", 2, "550m"));
    play.create(deployment("large", 2, "427m"));
    assert_eq!((play.state("large"), play.pods("large")), ("Pending Backoff".to_owned(), (0, 0)));
    play.create(deployment("small", 2, "425m"));
    assert_eq!(play.pods("small"), (2, 2));
    assert_eq!(
        play.status("large")["message"],
        "cpu: needs 854m, 850m available, 4m missing",
        "it was told what was missing when it came"
    );
}

fn slow_job(requeuing: Value, init: &str) -> Value {
    let job =
        template(&JOBS, "slow-j", 3, "500m", json!({"init": init, "seconds": "20", "job": "y"}));
    let spec = json!({"schedulingSpec": {"minAvailable": 3, "requeuing": requeuing}});
    wrap("slow", spec, vec![declared(item(job), 3, "500m")])
}

#[test]
fn a_3_who_needs_longer_is_given_longer() {
    play!(play);
    let rule = json!({"timeInSeconds": 60, "growthType": "exponential", "maxNumRequeuings": 0});
    play.create(slow_job(rule, "200"));
    play.pass(14 * 60);
    let status = play.status("slow");
    assert_eq!(play.pods("slow"), (3, 3), "{status}");
    assert_eq!(status["numberOfRequeueings"], 3, "after 60, 60 and 120 seconds");
    assert_eq!(status["requeueingTimeInSeconds"], 240);
}

#[test]
fn a_4_who_is_requeued_often_enough_is_given_up() {
    play!(play);
    let rule = json!({"timeInSeconds": 1, "growthType": "none", "maxNumRequeuings": 3});
    play.create(slow_job(rule, "200"));
    let mut counts = Vec::new();
    for _ in 0..5 {
        counts.push(play.status("slow")["numberOfRequeueings"].as_i64().unwrap_or_default());
        play.pass(80);
    }
    assert_eq!(counts, [0, 1, 2, 3, 3], "about 80 seconds apart");
    assert_eq!(play.state("slow"), "Deleted Deleted");
    assert_eq!((play.pods("slow"), play.object(&JOBS, "slow-j")), ((0, 0), None));
    play.pass(3600);
    assert_eq!(play.state("slow"), "Deleted Deleted", "for good");
}

#[test]
fn a_5_to_a_8_sets_and_deployments_get_their_pods() {
    play!(play);
    let min = |pods: i64| json!({"schedulingSpec": {"minAvailable": pods}});
    let set = |name: &str| item(template(&SETS, name, 2, "100m", json!({})));
    play.create(wrap("set", min(2), vec![set("set-s")]));
    let mut odd = set("odd-s");
    odd["metadata"] = json!({"name": "ignored"});
    play.create(wrap("odd", min(2), vec![odd]));
    play.create(deployment("three", 3, "100m"));
    let says = item(template(&DEPLOYMENTS, "says-d", 3, "100m", json!({"says": "Progressing"})));
    play.create(wrap("says", min(3), vec![complete(says, "Progressing")]));
    let table = [("set", (2, 2)), ("odd", (2, 2)), ("three", (3, 3)), ("says", (3, 3))];
    for (name, pods) in table {
        assert_eq!(play.pods(name), pods, "{name}");
    }
    assert_eq!(play.state("says"), "RunningHoldCompletion RunningHoldCompletion");
}

#[test]
fn a_9_and_a_15_an_item_without_a_name_fails() {
    play!(play);
    let mut nameless = pod("x", "100m");
    nameless["metadata"] = json!({});
    play.create(wrap("bare", json!({}), vec![item(nameless.clone())]));
    play.create(wrap("both", json!({}), vec![item(pod("good", "100m")), item(nameless)]));
    play.pass(30);
    for name in ["bare", "both"] {
        assert_eq!((play.state(name), play.pods(name)), ("Failed Failed".to_owned(), (0, 0)));
    }
    let said = play.status("both")["message"].clone();
    assert_eq!(said, "test/both creation failure: item 1 has no metadata.name");
    assert_eq!(play.object(&Pod::RESOURCE, "good"), None, "all or nothing");
}

#[test]
fn a_11_to_a_13_bare_pods_run() {
    play!(play);
    let min = json!({"schedulingSpec": {"minAvailable": 2}});
    play.create(wrap("two", min, vec![item(pod("p1", "100m")), item(pod("p2", "100m"))]));
    let mut tolerant = pod("p3", "100m");
    tolerant["spec"]["tolerations"] = json!([{"key": "x", "operator": "Exists"}]);
    play.create(wrap("one", json!({}), vec![item(tolerant)]));
    assert_eq!((play.pods("two"), play.pods("one")), ((2, 2), (1, 1)));
    assert!(play.status("one")["pendingpodconditions"].is_null());
}

#[test]
fn a_14_and_a_26_what_is_larger_than_the_cluster_waits() {
    play!(play);
    play.create(wrap("huge", json!({}), vec![item(pod("p", "100"))]));
    let mut job = item(template(&JOBS, "j", 1, "100", json!({"gpu": "100"})));
    job["custompodresources"] =
        json!([{"replicas": 1, "requests": {"cpu": 100, "nvidia.com/gpu": 100}}]);
    play.create(wrap("gpus", json!({}), vec![job]));
    play.pass(600);
    for name in ["huge", "gpus"] {
        assert_eq!((play.state(name), play.pods(name)), ("Pending Backoff".to_owned(), (0, 0)));
    }
    let said = play.status("gpus")["message"].as_str().unwrap().to_owned();
    assert!(said.contains("nvidia.com/gpu: needs 100, 16 available, 84 missing"), "{said}");
}

#[test]
fn a_16_an_item_without_a_template_fails() {
    play!(play);
    play.create(wrap("empty", json!({}), vec![json!({"replicas": 1})]));
    assert_eq!(play.state("empty"), "Failed Failed");
}

#[test]
fn a_17_what_is_declared_counts() {
    play!(play);
    let object = item(template(&DEPLOYMENTS, "d", 2, "550m", json!({})));
    play.create(wrap(
        "one",
        json!({"schedulingSpec": {"minAvailable": 2}}),
        vec![declared(object, 2, "550m")],
    ));
    assert_eq!(play.pods("one"), (2, 2));
}

#[test]
fn a_18_what_fits_in_the_sum_and_on_no_node_makes_room_again() {
    play!(play);
    play.create(deployment("one", 2, "550m"));
    let large = item(template(&DEPLOYMENTS, "large-d", 1, "850m", json!({})));
    play.create(wrap("large", json!({}), vec![declared(large, 1, "850m")]));
    assert_eq!(play.pods("large"), (1, 0), "it is dispatched, and no node takes it");
    play.create(deployment("small", 2, "340m"));
    assert_eq!(play.pods("small"), (0, 0), "what was promised is not given twice");
    play.pass(12 * 60);
    assert_eq!(play.pods("small"), (2, 2));
    assert!(play.reasons("large").contains(&"PreemptionTriggered".to_owned()));
}

#[test]
fn a_19_and_a_20_a_wrong_declaration_is_trusted() {
    play!(play, Settings { inference: Inference::Compat, ..Settings::default() });
    play.create(deployment("one", 2, "550m"));
    let modest = item(template(&DEPLOYMENTS, "modest-d", 2, "426m", json!({})));
    play.create(wrap(
        "modest",
        json!({"schedulingSpec": {"minAvailable": 2}}),
        vec![declared(modest, 2, "425m")],
    ));
    assert_eq!(play.pods("modest"), (2, 0), "each is larger than what is left of a node");
    let boasting = item(template(&DEPLOYMENTS, "boast-d", 2, "425m", json!({})));
    play.create(wrap("boast", json!({}), vec![declared(boasting, 2, "4270m")]));
    assert_eq!(play.pods("boast"), (0, 0));
}

#[test]
fn a_21_who_runs_for_too_long_fails() {
    play!(play);
    let job = item(template(&JOBS, "j", 1, "100m", json!({"init": "5"})));
    play.create(wrap(
        "long",
        json!({"schedulingSpec": {"dispatchDuration": {"limit": 10}}}),
        vec![job],
    ));
    play.pass(10);
    assert_eq!(play.state("long"), "Running Running", "it counts from the first pod that ran");
    play.pass(5);
    assert_eq!((play.state("long"), play.object(&JOBS, "j")), ("Failed Failed".to_owned(), None));
    assert!(play.reasons("long").contains(&"DispatchDeadlineExceeded".to_owned()));
    assert!(play.status("long")["canrun"].is_null());
    play.pass(3600);
    assert_eq!(play.state("long"), "Failed Failed", "for good");
}

fn job(name: &str) -> Value {
    complete(
        item(template(&JOBS, name, 1, "100m", json!({"seconds": "20", "job": "y"}))),
        "Complete",
    )
}

#[test]
fn a_22_and_a_23_jobs_complete() {
    play!(play);
    play.create(wrap("one", json!({}), vec![job("j1")]));
    play.create(wrap("two", json!({}), vec![job("j2"), job("j3")]));
    assert_eq!(play.state("two"), "Running Running");
    play.pass(60);
    for name in ["one", "two"] {
        assert_eq!(play.state(name), "Completed Completed", "{name}");
        assert!(play.status(name)["canrun"].is_null(), "{name} holds nothing");
    }
    assert!(play.object(&JOBS, "j3").is_some(), "items stay");
    assert_eq!(play.status("two")["Succeeded"], 2);
}

#[test]
fn a_24_an_item_elsewhere_fails() {
    play!(play);
    let group = json!({"apiVersion": POD_GROUPS.api_version(), "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "elsewhere"}, "spec": {}});
    let good = item(template(&DEPLOYMENTS, "d", 1, "100m", json!({})));
    play.create(wrap("away", json!({}), vec![good, item(group)]));
    play.pass(30);
    assert_eq!(
        (play.state("away"), play.object(&DEPLOYMENTS, "d")),
        ("Failed Failed".to_owned(), None)
    );
}

#[test]
fn a_25_pods_that_succeeded_are_enough() {
    play!(play);
    let job = item(template(&JOBS, "j", 2, "100m", json!({"seconds": "10", "job": "y"})));
    play.create(wrap(
        "done",
        json!({"schedulingSpec": {"minAvailable": 2, "requeuing": {"timeInSeconds": 30}}}),
        vec![job],
    ));
    play.pass(180);
    assert_eq!((play.state("done"), play.pods("done")), ("Running Running".to_owned(), (2, 2)));
    assert!(play.status("done")["numberOfRequeueings"].is_null());
}

#[test]
fn a_27_who_does_not_fit_never_runs() {
    play!(play);
    play.create(deployment("one", 2, "550m"));
    play.create(deployment("large", 2, "427m"));
    play.pass(3600);
    assert_eq!((play.state("large"), play.pods("large")), ("Pending Backoff".to_owned(), (0, 0)));
}

/// Scenario B11 too: one item complete, pods of another still to come.
#[test]
fn a_28_and_b_11_complete_items_wait_for_their_pods() {
    play!(play);
    let says =
        template(&DEPLOYMENTS, "d1", 1, "100m", json!({"says": "Progressing", "init": "200"}));
    let other = item(template(&DEPLOYMENTS, "d2", 1, "100m", json!({})));
    play.create(wrap("two", json!({}), vec![complete(item(says), "Progressing"), other]));
    assert_eq!(play.state("two"), "RunningHoldCompletion RunningHoldCompletion");
    play.delete(&DEPLOYMENTS, "d1");
    play.delete(&DEPLOYMENTS, "d2");
    play.pass(5);
    assert_eq!(play.state("two"), "Completed Completed");
}

#[test]
fn a_29_what_never_says_anything_never_completes() {
    play!(play);
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}});
    play.create(wrap("quiet", json!({}), vec![complete(item(service), "Complete")]));
    play.pass(600);
    assert_eq!(play.state("quiet"), "Running Dispatched");
    let made: Resource = SERVICES;
    assert!(play.object(&made, "s").is_some());
}

#[test]
fn a_30_fifty_small_ones_run_at_once() {
    play!(play);
    for at in 0..50 {
        play.stage.server().create(&AppWrapper::RESOURCE, deployment(&format!("w{at}"), 2, "5m"));
    }
    play.pass(20);
    for at in 0..50 {
        assert_eq!(play.pods(&format!("w{at}")), (2, 2));
    }
}

#[test]
fn a_31_what_is_deleted_takes_its_pods_along() {
    play!(play);
    play.create(deployment("one", 2, "550m"));
    play.delete(&AppWrapper::RESOURCE, "one");
    play.pass(90);
    assert_eq!((play.pods("one"), play.object(&DEPLOYMENTS, "one-d")), ((0, 0), None));
}

#[test]
fn a_32_who_waits_says_so_and_runs_when_it_can() {
    play!(play);
    play.create(deployment("first", 3, "500m"));
    play.create(deployment("second", 3, "500m"));
    assert_eq!(play.conditions("second"), ["Init", "Queueing", "HeadOfLine", "Backoff"]);
    assert_eq!(play.state("second"), "Pending Backoff");
    play.delete(&AppWrapper::RESOURCE, "first");
    play.pass(3);
    assert_eq!(play.pods("second"), (3, 3), "long before its pause is over");
}
