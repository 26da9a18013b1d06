//! Rules about AppWrappers, their items and their end, by the numbers of `docs/specs/queue.md`.

use gantry_reconcile::{Key, View as _};
use serde_json::{Value, json};

use super::cluster::{
    DEPLOYMENTS, JOBS, RAY_CLUSTERS, Simulation, TestControllers, fixture_a, item, scenario,
    template, wrap,
};
use crate::Settings;
use crate::app_wrapper::AppWrapper;
use crate::item_objects::{APP_WRAPPER_LABEL, ITEM_LABEL};

macro_rules! simulation {
    ($sim:ident) => {
        let cast = TestControllers::new(Settings::default());
        let controllers = cast.all();
        let scenario = scenario(&controllers, fixture_a());
        let mut $sim = Simulation::new(&scenario);
    };
}

/// Returns a job of one pod that runs for this long, and when it counts as finished.
fn job(name: &str, seconds: i64, named: &str) -> Value {
    let notes = json!({"seconds": seconds.to_string(), "job": "y"});
    let mut item = item(template(&JOBS, name, 1, "100m", notes));
    if !named.is_empty() {
        item["completionstatus"] = json!(named);
    }
    item
}

#[test]
fn q_6_each_is_evaluated_against_remaining_capacity() {
    simulation!(sim);
    let mut all = item(template(&DEPLOYMENTS, "all-d", 1, "400m", json!({})));
    all["custompodresources"] = json!([{"replicas": 1, "requests": {"cpu": "1950m"}}]);
    sim.create(wrap("all", json!({}), vec![all]));
    for (name, priority) in [("low", 0), ("mid", 1), ("high", 2)] {
        let mut object = item(template(&DEPLOYMENTS, &format!("{name}-d"), 1, "400m", json!({})));
        object["custompodresources"] = json!([{"replicas": 1, "requests": {"cpu": "900m"}}]);
        let wrapper = wrap(name, json!({"priority": priority}), vec![object]);
        sim.create(wrapper);
    }
    sim.delete(&AppWrapper::RESOURCE, "all");
    sim.advance(5);
    let states = ["high", "mid", "low"].map(|name| sim.state(name));
    assert_eq!(states, ["Running Running", "Running Running", "Pending Backoff"]);
    sim.advance(30);
    assert_eq!(sim.status("low")["message"], "cpu: needs 900m, 150m available, 750m missing");
}

#[test]
fn co_1_items_without_completion_conditions_are_ignored() {
    simulation!(sim);
    sim.create(wrap("silent", json!({}), vec![job("j1", 10, "")]));
    sim.create(wrap("mixed", json!({}), vec![job("j2", 10, "Complete"), job("j3", 20, "")]));
    sim.advance(120);
    assert_eq!(sim.state("silent"), "Running Running", "it runs until it is deleted");
    assert_eq!(sim.state("mixed"), "Completed Completed");
}

#[test]
fn co_3_what_is_gone_has_not_finished() {
    simulation!(sim);
    sim.create(wrap("two", json!({}), vec![job("j1", 5, "Complete"), job("j2", 40, "Complete")]));
    sim.advance(15);
    sim.delete(&JOBS, "j1");
    sim.advance(120);
    assert_eq!(sim.state("two"), "Running Running");
}

#[test]
fn co_4_all_items_with_conditions_must_have_finished() {
    simulation!(sim);
    sim.create(wrap("two", json!({}), vec![job("j1", 5, "Complete"), job("j2", 60, "Complete")]));
    sim.advance(30);
    assert_eq!(sim.state("two"), "Running Running", "one of two has");
    sim.advance(60);
    assert_eq!(sim.state("two"), "Completed Completed");
}

#[test]
fn co_5_pods_that_run_hold_the_end() {
    simulation!(sim);
    sim.create(wrap("two", json!({}), vec![job("j1", 5, "Complete"), job("j2", 60, "")]));
    sim.advance(30);
    assert_eq!(sim.state("two"), "RunningHoldCompletion RunningHoldCompletion");
    sim.advance(60);
    assert_eq!(sim.state("two"), "Completed Completed");
    let kinds = sim.conditions("two");
    let end: Vec<&str> = kinds.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(end, ["Completed", "RunningHoldCompletion"]);
}

#[test]
fn co_7_a_failed_job_ends_only_what_counts_failure_as_an_end() {
    for (named, expected) in
        [("Complete,Failed", "Completed Completed"), ("Complete", "Running Running")]
    {
        simulation!(sim);
        let notes = json!({"seconds": "10", "says": "Failed"});
        let mut failed = item(template(&JOBS, "j", 1, "100m", notes));
        failed["completionstatus"] = json!(named);
        sim.create(wrap("one", json!({}), vec![failed]));
        sim.advance(120);
        assert_eq!(sim.state("one"), expected, "{named}");
    }
}

#[test]
fn rq_3_too_few_pods_are_fewer_than_the_minimum() {
    for (minimum, requeued) in [(1, false), (2, false), (3, true)] {
        simulation!(sim);
        let rule = json!({"minAvailable": minimum, "requeuing": {"timeInSeconds": 60}});
        let object = item(template(&DEPLOYMENTS, "d", 2, "100m", json!({})));
        sim.create(wrap("one", json!({"schedulingSpec": rule}), vec![object]));
        sim.advance(70);
        let status = sim.status("one");
        assert_eq!(status["numberOfRequeueings"] == 1, requeued, "{minimum}: {status}");
        if requeued {
            let list = status["conditions"].as_array().unwrap();
            let said = list.iter().find(|it| it["reason"] == "MinPodsNotRunning").unwrap();
            let expected = "Insufficient number of Running and Completed pods, minimum=3, \
                            running=2, completed=0.";
            assert_eq!(said["message"], expected);
        }
    }
}

/// A pod whose node does not answer never terminates by itself.
#[test]
fn rq_9_late_objects_are_force_deleted_and_the_backoff_is_configurable() {
    for (limit, pause, gone_at, back_at) in [(20, 45, 85, 130), (0, 0, 665, 685)] {
        simulation!(sim);
        let notes = json!({"init": "100000", "lost": "y"});
        let object = item(template(&JOBS, "j", 1, "100m", notes));
        let requeuing = json!({"timeInSeconds": 60, "pauseTimeInSeconds": pause});
        let rule = json!({"minAvailable": 1, "requeuing": requeuing,
            "forceDeletionTimeInSeconds": limit});
        sim.create(wrap("one", json!({"schedulingSpec": rule}), vec![object]));
        sim.advance(gone_at - 10);
        assert_eq!(sim.state("one"), "Running PreemptCandidate", "{limit}: its pod is there");
        assert_eq!((sim.pods("one").0, sim.object(&JOBS, "j")), (1, None), "{limit}");
        sim.advance(10);
        assert_eq!(sim.state("one"), "Pending Backoff", "{limit}");
        assert_eq!(sim.pods("one").0, 0, "{limit}: there is a limit where none is set");
        sim.advance(back_at - gone_at - 10);
        assert_eq!(sim.state("one"), "Pending Backoff", "{limit}: it pauses");
        sim.advance(20);
        assert_eq!(sim.state("one"), "Running Dispatched", "{limit}");
    }
}

#[test]
fn b_10_pods_of_items_carry_both_labels() {
    simulation!(sim);
    sim.create(wrap("one", json!({}), vec![item(template(&JOBS, "j", 1, "100m", json!({})))]));
    let made = sim.object(&JOBS, "j").unwrap();
    for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
        let labels = made.pointer(labels).unwrap();
        assert_eq!((&labels[APP_WRAPPER_LABEL], &labels[ITEM_LABEL]), (&json!("one"), &json!("j")));
    }
}

/// The template has no labels; its pods are counted all the same.
#[test]
fn e_1_a_job_runs_and_completes() {
    simulation!(sim);
    let one = job("j", 20, "Complete");
    assert!(one["generictemplate"]["spec"]["template"]["metadata"].is_null());
    sim.create(wrap("one", json!({"schedulingSpec": {"minAvailable": 1}}), vec![one]));
    assert_eq!((sim.state("one"), sim.pods("one")), ("Running Running".to_owned(), (1, 1)));
    sim.advance(60);
    assert_eq!(sim.state("one"), "Completed Completed");
}

/// The declared demand is charged, and both groups of its pods are labelled, so that they are
/// counted. That it serves jobs is up to its own operator.
#[test]
fn e_2_a_ray_cluster_runs() {
    simulation!(sim);
    let group = json!({"template": {"spec": {"containers": [{"name": "ray"}]}}});
    let mut worker = group.clone();
    worker["replicas"] = json!(2);
    let cluster = json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": "ray", "annotations": {"pods": "3", "cpu": "100m"}},
        "spec": {"headGroupSpec": group, "workerGroupSpecs": [worker]},
    });
    let mut one = item(cluster);
    one["custompodresources"] = json!([
        {"replicas": 1, "requests": {"cpu": "100m"}},
        {"replicas": 2, "requests": {"cpu": "100m"}},
    ]);
    sim.create(wrap("ray", json!({"schedulingSpec": {"minAvailable": 3}}), vec![one.clone()]));
    assert_eq!((sim.state("ray"), sim.pods("ray")), ("Running Running".to_owned(), (3, 3)));
    let made = sim.object(&RAY_CLUSTERS, "ray").unwrap();
    for place in ["/spec/headGroupSpec/template", "/spec/workerGroupSpecs/0/template"] {
        assert_eq!(
            made.pointer(place).unwrap()["metadata"]["labels"][APP_WRAPPER_LABEL],
            "ray",
            "{place}"
        );
    }
    one["generictemplate"]["metadata"]["name"] = json!("large");
    one["custompodresources"][1]["replicas"] = json!(18);
    sim.create(wrap("large", json!({}), vec![one]));
    assert_eq!(sim.state("large"), "Pending Backoff", "what it declares does not fit");
}

/// A job that creates no pods until a user resumes it; meanwhile another process takes over.
#[test]
fn e_3_a_dispatched_job_is_adopted_by_the_next_operator() {
    simulation!(sim);
    let mut suspended = item(template(&JOBS, "j", 0, "100m", json!({})));
    suspended["completionstatus"] = json!("Complete");
    sim.create(wrap("one", json!({}), vec![suspended]));
    assert_eq!(sim.state("one"), "Running Dispatched");
    let before = sim.object(&JOBS, "j").unwrap()["metadata"]["uid"].clone();
    sim.run.restart();
    sim.advance(30);
    assert_eq!(sim.state("one"), "Running Dispatched", "nothing is recreated or evicted");
    sim.run.server().edit(&JOBS, &Key::new("test", "j"), |job| {
        job["metadata"]["annotations"] =
            json!({"pods": "1", "cpu": "100m", "seconds": "20", "job": "y"});
    });
    sim.advance(60);
    assert_eq!(sim.state("one"), "Completed Completed");
    assert_eq!(sim.object(&JOBS, "j").unwrap()["metadata"]["uid"], before);
}
