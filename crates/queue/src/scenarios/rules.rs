//! Rules about many AppWrappers, their items and their end, by the numbers of `docs/specs/queue.md`.

use gantry_reconcile::{Key, View as _};
use serde_json::{Value, json};

use super::cluster::{
    Cast, DEPLOYMENTS, JOBS, Play, RAY_CLUSTERS, fixture_a, item, scenario, template, wrap,
};
use crate::Settings;
use crate::app_wrapper::AppWrapper;
use crate::dispatch::{ITEM_LABEL, LABEL};

macro_rules! play {
    ($play:ident) => {
        let cast = Cast::new(Settings::default());
        let controllers = cast.all();
        let scenario = scenario(&controllers, fixture_a());
        let mut $play = Play::new(&scenario);
    };
}

/// A job of one pod that runs for so long, and when it counts as finished.
fn job(name: &str, seconds: i64, named: &str) -> Value {
    let notes = json!({"seconds": seconds.to_string(), "job": "y"});
    let mut item = item(template(&JOBS, name, 1, "100m", notes));
    if !named.is_empty() {
        item["completionstatus"] = json!(named);
    }
    item
}

#[test]
fn q_6_each_is_held_against_what_those_before_it_left() {
    play!(play);
    let mut all = item(template(&DEPLOYMENTS, "all-d", 1, "400m", json!({})));
    all["custompodresources"] = json!([{"replicas": 1, "requests": {"cpu": "1950m"}}]);
    play.create(wrap("all", json!({}), vec![all]));
    for (name, priority) in [("low", 0), ("mid", 1), ("high", 2)] {
        let mut object = item(template(&DEPLOYMENTS, &format!("{name}-d"), 1, "400m", json!({})));
        object["custompodresources"] = json!([{"replicas": 1, "requests": {"cpu": "900m"}}]);
        let wrapper = wrap(name, json!({"priority": priority}), vec![object]);
        play.create(wrapper);
    }
    play.delete(&AppWrapper::RESOURCE, "all");
    play.pass(5);
    let states = ["high", "mid", "low"].map(|name| play.state(name));
    assert_eq!(states, ["Running Running", "Running Running", "Pending Backoff"]);
    play.pass(30);
    assert_eq!(play.status("low")["message"], "cpu: needs 900m, 150m available, 750m missing");
}

#[test]
fn co_1_items_that_say_nothing_do_not_matter() {
    play!(play);
    play.create(wrap("silent", json!({}), vec![job("j1", 10, "")]));
    play.create(wrap("mixed", json!({}), vec![job("j2", 10, "Complete"), job("j3", 20, "")]));
    play.pass(120);
    assert_eq!(play.state("silent"), "Running Running", "it runs until it is deleted");
    assert_eq!(play.state("mixed"), "Completed Completed");
}

#[test]
fn co_3_what_is_gone_has_not_finished() {
    play!(play);
    play.create(wrap("two", json!({}), vec![job("j1", 5, "Complete"), job("j2", 40, "Complete")]));
    play.pass(15);
    play.delete(&JOBS, "j1");
    play.pass(120);
    assert_eq!(play.state("two"), "Running Running");
}

#[test]
fn co_4_all_that_say_so_must_have_finished() {
    play!(play);
    play.create(wrap("two", json!({}), vec![job("j1", 5, "Complete"), job("j2", 60, "Complete")]));
    play.pass(30);
    assert_eq!(play.state("two"), "Running Running", "one of two has");
    play.pass(60);
    assert_eq!(play.state("two"), "Completed Completed");
}

#[test]
fn co_5_pods_that_run_hold_the_end() {
    play!(play);
    play.create(wrap("two", json!({}), vec![job("j1", 5, "Complete"), job("j2", 60, "")]));
    play.pass(30);
    assert_eq!(play.state("two"), "RunningHoldCompletion RunningHoldCompletion");
    play.pass(60);
    assert_eq!(play.state("two"), "Completed Completed");
    let kinds = play.conditions("two");
    let end: Vec<&str> = kinds.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(end, ["Completed", "RunningHoldCompletion"]);
}

#[test]
fn co_7_a_failed_job_ends_only_what_counts_failure_as_an_end() {
    for (named, expected) in
        [("Complete,Failed", "Completed Completed"), ("Complete", "Running Running")]
    {
        play!(play);
        let notes = json!({"seconds": "10", "says": "Failed"});
        let mut failed = item(template(&JOBS, "j", 1, "100m", notes));
        failed["completionstatus"] = json!(named);
        play.create(wrap("one", json!({}), vec![failed]));
        play.pass(120);
        assert_eq!(play.state("one"), expected, "{named}");
    }
}

#[test]
fn rq_3_too_few_pods_are_fewer_than_the_minimum() {
    for (minimum, requeued) in [(1, false), (2, false), (3, true)] {
        play!(play);
        let rule = json!({"minAvailable": minimum, "requeuing": {"timeInSeconds": 60}});
        let object = item(template(&DEPLOYMENTS, "d", 2, "100m", json!({})));
        play.create(wrap("one", json!({"schedulingSpec": rule}), vec![object]));
        play.pass(70);
        let status = play.status("one");
        assert_eq!(status["numberOfRequeueings"] == 1, requeued, "{minimum}: {status}");
        if requeued {
            let list = status["conditions"].as_array().unwrap();
            let said = list.iter().find(|it| it["reason"] == "MinPodsNotRunning").unwrap();
            let expected = "Insufficient number of Running and Completed pods, minimum=3, running=2, \
                            completed=0.";
            assert_eq!(said["message"], expected);
        }
    }
}

/// A pod whose node does not answer never goes by itself.
#[test]
fn rq_9_what_does_not_go_in_time_is_removed_and_a_pause_may_be_ones_own() {
    for (limit, pause, gone_at, back_at) in [(20, 45, 85, 130), (0, 0, 665, 685)] {
        play!(play);
        let notes = json!({"init": "100000", "lost": "y"});
        let object = item(template(&JOBS, "j", 1, "100m", notes));
        let requeuing = json!({"timeInSeconds": 60, "pauseTimeInSeconds": pause});
        let rule = json!({"minAvailable": 1, "requeuing": requeuing,
            "forceDeletionTimeInSeconds": limit});
        play.create(wrap("one", json!({"schedulingSpec": rule}), vec![object]));
        play.pass(gone_at - 10);
        assert_eq!(play.state("one"), "Running PreemptCandidate", "{limit}: its pod is there");
        assert_eq!((play.pods("one").0, play.object(&JOBS, "j")), (1, None), "{limit}");
        play.pass(10);
        assert_eq!(play.state("one"), "Pending Backoff", "{limit}");
        assert_eq!(play.pods("one").0, 0, "{limit}: there is a limit where none is set");
        play.pass(back_at - gone_at - 10);
        assert_eq!(play.state("one"), "Pending Backoff", "{limit}: it pauses");
        play.pass(20);
        assert_eq!(play.state("one"), "Running Dispatched", "{limit}");
    }
}

#[test]
fn b_10_pods_of_items_carry_both_labels() {
    play!(play);
    play.create(wrap("one", json!({}), vec![item(template(&JOBS, "j", 1, "100m", json!({})))]));
    let made = play.object(&JOBS, "j").unwrap();
    for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
        let labels = made.pointer(labels).unwrap();
        assert_eq!((&labels[LABEL], &labels[ITEM_LABEL]), (&json!("one"), &json!("j")));
    }
}

/// The template says nothing about labels; its pods are counted all the same.
#[test]
fn e_1_a_job_runs_and_completes() {
    play!(play);
    let one = job("j", 20, "Complete");
    assert!(one["generictemplate"]["spec"]["template"]["metadata"].is_null());
    play.create(wrap("one", json!({"schedulingSpec": {"minAvailable": 1}}), vec![one]));
    assert_eq!((play.state("one"), play.pods("one")), ("Running Running".to_owned(), (1, 1)));
    play.pass(60);
    assert_eq!(play.state("one"), "Completed Completed");
}

/// What the declaration says is charged, and both groups of its pods are labelled, so that they are
/// counted. That it serves jobs is the business of its own operator.
#[test]
fn e_2_a_ray_cluster_runs() {
    play!(play);
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
        {"replicas": 1, "requests": {"cpu": "100m"}}, {"replicas": 2, "requests": {"cpu": "100m"}}]);
    play.create(wrap("ray", json!({"schedulingSpec": {"minAvailable": 3}}), vec![one.clone()]));
    assert_eq!((play.state("ray"), play.pods("ray")), ("Running Running".to_owned(), (3, 3)));
    let made = play.object(&RAY_CLUSTERS, "ray").unwrap();
    for place in ["/spec/headGroupSpec/template", "/spec/workerGroupSpecs/0/template"] {
        assert_eq!(made.pointer(place).unwrap()["metadata"]["labels"][LABEL], "ray", "{place}");
    }
    one["generictemplate"]["metadata"]["name"] = json!("large");
    one["custompodresources"][1]["replicas"] = json!(18);
    play.create(wrap("large", json!({}), vec![one]));
    assert_eq!(play.state("large"), "Pending Backoff", "what it declares does not fit");
}

/// A job that makes no pods until somebody resumes it; meanwhile another process takes over.
#[test]
fn e_3_a_job_that_was_dispatched_is_looked_after_by_the_next_operator() {
    play!(play);
    let mut suspended = item(template(&JOBS, "j", 0, "100m", json!({})));
    suspended["completionstatus"] = json!("Complete");
    play.create(wrap("one", json!({}), vec![suspended]));
    assert_eq!(play.state("one"), "Running Dispatched");
    let before = play.object(&JOBS, "j").unwrap()["metadata"]["uid"].clone();
    play.stage.restart();
    play.pass(30);
    assert_eq!(play.state("one"), "Running Dispatched", "nothing is made anew or taken back");
    play.stage.server().edit(&JOBS, &Key::new("test", "j"), |job| {
        job["metadata"]["annotations"] =
            json!({"pods": "1", "cpu": "100m", "seconds": "20", "job": "y"});
    });
    play.pass(60);
    assert_eq!(play.state("one"), "Completed Completed");
    assert_eq!(play.object(&JOBS, "j").unwrap()["metadata"]["uid"], before);
}
