//! What MCAD's own tests expect, by the numbers of section 7.1; test names begin with `a_1_`.

#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use gantry_pods::view::Pod;
use gantry_reconcile::{Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    DEPLOYMENTS, JOBS, POD_GROUPS, SERVICES, SETS, Simulation, TestControllers, deployment,
    fixture_a, item, scenario, template, wrap,
};
use crate::app_wrapper::AppWrapper;
use crate::{Inference, Settings};

/// Creates a simulation with fixture A.
macro_rules! simulation {
    ($sim:ident) => {
        simulation!($sim, Settings::default())
    };
    ($sim:ident, $settings:expr) => {
        let cast = TestControllers::new($settings);
        let controllers = cast.all();
        let scenario = scenario(&controllers, fixture_a());
        let mut $sim = Simulation::new(&scenario);
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
    simulation!(sim);
    sim.create(deployment("one", 2, "550m"));
    assert_eq!((sim.state("one"), sim.pods("one")), ("Running Running".to_owned(), (2, 2)));
    sim.create(deployment("two", 2, "350m"));
    assert_eq!((sim.state("two"), sim.pods("two")), ("Running Running".to_owned(), (2, 2)));
}

#[test]
fn a_2_a_job_that_fits_is_admitted_before_one_that_does_not() {
    simulation!(sim);
    sim.create(deployment("one", 2, "550m"));
    sim.create(deployment("large", 2, "427m"));
    assert_eq!((sim.state("large"), sim.pods("large")), ("Pending Backoff".to_owned(), (0, 0)));
    sim.create(deployment("small", 2, "425m"));
    assert_eq!(sim.pods("small"), (2, 2));
    assert_eq!(
        sim.status("large")["message"],
        "cpu: needs 854m, 850m available, 4m missing",
        "what was missing was reported at once"
    );
}

fn slow_job(requeuing: Value, init: &str) -> Value {
    let job =
        template(&JOBS, "slow-j", 3, "500m", json!({"init": init, "seconds": "20", "job": "y"}));
    let spec = json!({"schedulingSpec": {"minAvailable": 3, "requeuing": requeuing}});
    wrap("slow", spec, vec![declared(item(job), 3, "500m")])
}

#[test]
fn a_3_a_slow_job_is_given_a_longer_wait() {
    simulation!(sim);
    let rule = json!({"timeInSeconds": 60, "growthType": "exponential", "maxNumRequeuings": 0});
    sim.create(slow_job(rule, "200"));
    sim.advance(14 * 60);
    let status = sim.status("slow");
    assert_eq!(sim.pods("slow"), (3, 3), "{status}");
    assert_eq!(status["numberOfRequeueings"], 3, "after 60, 60 and 120 seconds");
    assert_eq!(status["requeueingTimeInSeconds"], 240);
}

#[test]
fn a_4_a_job_is_given_up_after_max_requeuings() {
    simulation!(sim);
    let rule = json!({"timeInSeconds": 1, "growthType": "none", "maxNumRequeuings": 3});
    sim.create(slow_job(rule, "200"));
    let mut counts = Vec::new();
    for _ in 0..5 {
        counts.push(sim.status("slow")["numberOfRequeueings"].as_i64().unwrap_or_default());
        sim.advance(80);
    }
    assert_eq!(counts, [0, 1, 2, 3, 3], "about 80 seconds apart");
    assert_eq!(sim.state("slow"), "Deleted Deleted");
    assert_eq!((sim.pods("slow"), sim.object(&JOBS, "slow-j")), ((0, 0), None));
    sim.advance(3600);
    assert_eq!(sim.state("slow"), "Deleted Deleted", "for good");
}

#[test]
fn a_5_to_a_8_sets_and_deployments_get_their_pods() {
    simulation!(sim);
    let min = |pods: i64| json!({"schedulingSpec": {"minAvailable": pods}});
    let set = |name: &str| item(template(&SETS, name, 2, "100m", json!({})));
    sim.create(wrap("set", min(2), vec![set("set-s")]));
    let mut odd = set("odd-s");
    odd["metadata"] = json!({"name": "ignored"});
    sim.create(wrap("odd", min(2), vec![odd]));
    sim.create(deployment("three", 3, "100m"));
    let says = item(template(&DEPLOYMENTS, "says-d", 3, "100m", json!({"says": "Progressing"})));
    sim.create(wrap("says", min(3), vec![complete(says, "Progressing")]));
    let table = [("set", (2, 2)), ("odd", (2, 2)), ("three", (3, 3)), ("says", (3, 3))];
    for (name, pods) in table {
        assert_eq!(sim.pods(name), pods, "{name}");
    }
    assert_eq!(sim.state("says"), "RunningHoldCompletion RunningHoldCompletion");
}

#[test]
fn a_9_and_a_15_an_item_without_a_name_fails() {
    simulation!(sim);
    let mut nameless = pod("x", "100m");
    nameless["metadata"] = json!({});
    sim.create(wrap("bare", json!({}), vec![item(nameless.clone())]));
    sim.create(wrap("both", json!({}), vec![item(pod("good", "100m")), item(nameless)]));
    sim.advance(30);
    for name in ["bare", "both"] {
        assert_eq!((sim.state(name), sim.pods(name)), ("Failed Failed".to_owned(), (0, 0)));
    }
    let said = sim.status("both")["message"].clone();
    assert_eq!(said, "test/both creation failure: item 1 has no metadata.name");
    assert_eq!(sim.object(&Pod::RESOURCE, "good"), None, "all or nothing");
}

#[test]
fn a_11_to_a_13_bare_pods_run() {
    simulation!(sim);
    let min = json!({"schedulingSpec": {"minAvailable": 2}});
    sim.create(wrap("two", min, vec![item(pod("p1", "100m")), item(pod("p2", "100m"))]));
    let mut tolerant = pod("p3", "100m");
    tolerant["spec"]["tolerations"] = json!([{"key": "x", "operator": "Exists"}]);
    sim.create(wrap("one", json!({}), vec![item(tolerant)]));
    assert_eq!((sim.pods("two"), sim.pods("one")), ((2, 2), (1, 1)));
    assert!(sim.status("one")["pendingpodconditions"].is_null());
}

#[test]
fn a_14_and_a_26_what_is_larger_than_the_cluster_waits() {
    simulation!(sim);
    sim.create(wrap("huge", json!({}), vec![item(pod("p", "100"))]));
    let mut job = item(template(&JOBS, "j", 1, "100", json!({"gpu": "100"})));
    job["custompodresources"] =
        json!([{"replicas": 1, "requests": {"cpu": 100, "nvidia.com/gpu": 100}}]);
    sim.create(wrap("gpus", json!({}), vec![job]));
    sim.advance(600);
    for name in ["huge", "gpus"] {
        assert_eq!((sim.state(name), sim.pods(name)), ("Pending Backoff".to_owned(), (0, 0)));
    }
    let said = sim.status("gpus")["message"].as_str().unwrap().to_owned();
    assert!(said.contains("nvidia.com/gpu: needs 100, 16 available, 84 missing"), "{said}");
}

#[test]
fn a_16_an_item_without_a_template_fails() {
    simulation!(sim);
    sim.create(wrap("empty", json!({}), vec![json!({"replicas": 1})]));
    assert_eq!(sim.state("empty"), "Failed Failed");
}

#[test]
fn a_17_what_is_declared_counts() {
    simulation!(sim);
    let object = item(template(&DEPLOYMENTS, "d", 2, "550m", json!({})));
    sim.create(wrap(
        "one",
        json!({"schedulingSpec": {"minAvailable": 2}}),
        vec![declared(object, 2, "550m")],
    ));
    assert_eq!(sim.pods("one"), (2, 2));
}

#[test]
fn a_18_a_job_that_fits_on_no_node_is_evicted() {
    simulation!(sim);
    sim.create(deployment("one", 2, "550m"));
    let large = item(template(&DEPLOYMENTS, "large-d", 1, "850m", json!({})));
    sim.create(wrap("large", json!({}), vec![declared(large, 1, "850m")]));
    assert_eq!(sim.pods("large"), (1, 0), "it is dispatched, and no node takes it");
    sim.create(deployment("small", 2, "340m"));
    assert_eq!(sim.pods("small"), (0, 0), "what was promised is not given twice");
    sim.advance(12 * 60);
    assert_eq!(sim.pods("small"), (2, 2));
    assert!(sim.reasons("large").contains(&"PreemptionTriggered".to_owned()));
}

#[test]
fn a_19_and_a_20_a_wrong_declaration_is_trusted() {
    simulation!(sim, Settings { inference: Inference::Compat, ..Settings::default() });
    sim.create(deployment("one", 2, "550m"));
    let modest = item(template(&DEPLOYMENTS, "modest-d", 2, "426m", json!({})));
    sim.create(wrap(
        "modest",
        json!({"schedulingSpec": {"minAvailable": 2}}),
        vec![declared(modest, 2, "425m")],
    ));
    assert_eq!(sim.pods("modest"), (2, 0), "each is larger than what is left of a node");
    let boasting = item(template(&DEPLOYMENTS, "boast-d", 2, "425m", json!({})));
    sim.create(wrap("boast", json!({}), vec![declared(boasting, 2, "4270m")]));
    assert_eq!(sim.pods("boast"), (0, 0));
}

#[test]
fn a_21_a_job_that_exceeds_its_deadline_fails() {
    simulation!(sim);
    let job = item(template(&JOBS, "j", 1, "100m", json!({"init": "5"})));
    sim.create(wrap(
        "long",
        json!({"schedulingSpec": {"dispatchDuration": {"limit": 10}}}),
        vec![job],
    ));
    sim.advance(10);
    assert_eq!(sim.state("long"), "Running Running", "it counts from the first pod that ran");
    sim.advance(5);
    assert_eq!((sim.state("long"), sim.object(&JOBS, "j")), ("Failed Failed".to_owned(), None));
    assert!(sim.reasons("long").contains(&"DispatchDeadlineExceeded".to_owned()));
    assert!(sim.status("long")["canrun"].is_null());
    sim.advance(3600);
    assert_eq!(sim.state("long"), "Failed Failed", "for good");
}

fn job(name: &str) -> Value {
    complete(
        item(template(&JOBS, name, 1, "100m", json!({"seconds": "20", "job": "y"}))),
        "Complete",
    )
}

#[test]
fn a_22_and_a_23_jobs_complete() {
    simulation!(sim);
    sim.create(wrap("one", json!({}), vec![job("j1")]));
    sim.create(wrap("two", json!({}), vec![job("j2"), job("j3")]));
    assert_eq!(sim.state("two"), "Running Running");
    sim.advance(60);
    for name in ["one", "two"] {
        assert_eq!(sim.state(name), "Completed Completed", "{name}");
        assert!(sim.status(name)["canrun"].is_null(), "{name} holds nothing");
    }
    assert!(sim.object(&JOBS, "j3").is_some(), "items stay");
    assert_eq!(sim.status("two")["Succeeded"], 2);
}

#[test]
fn a_24_an_item_in_another_namespace_fails() {
    simulation!(sim);
    let group = json!({"apiVersion": POD_GROUPS.api_version(), "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "elsewhere"}, "spec": {}});
    let good = item(template(&DEPLOYMENTS, "d", 1, "100m", json!({})));
    sim.create(wrap("away", json!({}), vec![good, item(group)]));
    sim.advance(30);
    assert_eq!(
        (sim.state("away"), sim.object(&DEPLOYMENTS, "d")),
        ("Failed Failed".to_owned(), None)
    );
}

#[test]
fn a_25_pods_that_succeeded_are_enough() {
    simulation!(sim);
    let job = item(template(&JOBS, "j", 2, "100m", json!({"seconds": "10", "job": "y"})));
    sim.create(wrap(
        "done",
        json!({"schedulingSpec": {"minAvailable": 2, "requeuing": {"timeInSeconds": 30}}}),
        vec![job],
    ));
    sim.advance(180);
    assert_eq!((sim.state("done"), sim.pods("done")), ("Running Running".to_owned(), (2, 2)));
    assert!(sim.status("done")["numberOfRequeueings"].is_null());
}

#[test]
fn a_27_a_job_that_does_not_fit_never_runs() {
    simulation!(sim);
    sim.create(deployment("one", 2, "550m"));
    sim.create(deployment("large", 2, "427m"));
    sim.advance(3600);
    assert_eq!((sim.state("large"), sim.pods("large")), ("Pending Backoff".to_owned(), (0, 0)));
}

/// Scenario B11 too: one item complete, pods of another still to come.
#[test]
fn a_28_and_b_11_complete_items_wait_for_their_pods() {
    simulation!(sim);
    let says =
        template(&DEPLOYMENTS, "d1", 1, "100m", json!({"says": "Progressing", "init": "200"}));
    let other = item(template(&DEPLOYMENTS, "d2", 1, "100m", json!({})));
    sim.create(wrap("two", json!({}), vec![complete(item(says), "Progressing"), other]));
    assert_eq!(sim.state("two"), "RunningHoldCompletion RunningHoldCompletion");
    sim.delete(&DEPLOYMENTS, "d1");
    sim.delete(&DEPLOYMENTS, "d2");
    sim.advance(5);
    assert_eq!(sim.state("two"), "Completed Completed");
}

#[test]
fn a_29_items_without_conditions_never_complete() {
    simulation!(sim);
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}});
    sim.create(wrap("quiet", json!({}), vec![complete(item(service), "Complete")]));
    sim.advance(600);
    assert_eq!(sim.state("quiet"), "Running Dispatched");
    let made: Resource = SERVICES;
    assert!(sim.object(&made, "s").is_some());
}

#[test]
fn a_30_fifty_small_ones_run_at_once() {
    simulation!(sim);
    for at in 0..50 {
        sim.run.server().create(&AppWrapper::RESOURCE, deployment(&format!("w{at}"), 2, "5m"));
    }
    sim.advance(20);
    for at in 0..50 {
        assert_eq!(sim.pods(&format!("w{at}")), (2, 2));
    }
}

#[test]
fn a_31_what_is_deleted_takes_its_pods_along() {
    simulation!(sim);
    sim.create(deployment("one", 2, "550m"));
    sim.delete(&AppWrapper::RESOURCE, "one");
    sim.advance(90);
    assert_eq!((sim.pods("one"), sim.object(&DEPLOYMENTS, "one-d")), ((0, 0), None));
}

#[test]
fn a_32_a_pending_job_reports_it_and_runs_when_it_fits() {
    simulation!(sim);
    sim.create(deployment("first", 3, "500m"));
    sim.create(deployment("second", 3, "500m"));
    assert_eq!(sim.conditions("second"), ["Init", "Queueing", "HeadOfLine", "Backoff"]);
    assert_eq!(sim.state("second"), "Pending Backoff");
    sim.delete(&AppWrapper::RESOURCE, "first");
    sim.advance(3);
    assert_eq!(sim.pods("second"), (3, 3), "long before its pause is over");
}
