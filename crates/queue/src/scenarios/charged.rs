//! What MCAD's own tests expect with quota trees, by the numbers of section 7.2.

#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use gantry_reconcile::{Outcome, Resource, View as _, Write};
use serde_json::{Value, json};

use super::cluster::{Cast, DEPLOYMENTS, JOBS, Play, fixture_a, item, scenario, template, wrap};
use crate::Settings;
use crate::app_wrapper::AppWrapper;
use crate::quota::Subtree;

fn subtree(tree: &str, name: &str, spec: Value) -> (Resource, Value) {
    let object = json!({"metadata": {"name": name, "namespace": "test", "labels": {"tree": tree}}, "spec": spec});
    (Subtree::RESOURCE, object)
}

fn node(name: &str, cpu: &str, memory: &str, gpu: i64, hard: bool) -> Value {
    json!({"name": name, "quotas": {"hardLimit": hard,
        "requests": {"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpu}}})
}

fn trees() -> Vec<(Resource, Value)> {
    let root = |name: &str| node(name, "1075m", "1045Mi", 16, false);
    let none = || node("default", "0", "0", 0, false);
    vec![
        subtree("quota_context", "context-root", json!({"children": [root("context-root")]})),
        subtree(
            "quota_context",
            "context-children",
            json!({"parent": "context-root", "children": [
                node("gold", "1075m", "450Mi", 8, false),
                node("silver", "1075m", "400Mi", 8, false),
                node("bronze", "900m", "300Mi", 8, true),
                none(),
            ]}),
        ),
        subtree("quota_service", "service-root", json!({"children": [root("service-root")]})),
        subtree(
            "quota_service",
            "service-children",
            json!({"parent": "service-root", "children": [node("gold", "1075m", "1045Mi", 16, false), none()]}),
        ),
    ]
}

/// A stage with fixture A, quota, and these objects on it.
macro_rules! play {
    ($play:ident, $objects:expr) => {
        let settings = Settings { quota: true, preemption: true, ..Settings::default() };
        let cast = Cast::new(settings);
        let controllers = cast.all();
        let scenario = scenario(&controllers, fixture_a().into_iter().chain($objects).collect());
        let mut $play = Play::new(&scenario);
    };
}

/// A Deployment that is charged to nodes of both trees.
fn charged(name: &str, labels: Value, priority: i64, pods: i64, cpu: &str) -> Value {
    let object = template(&DEPLOYMENTS, &format!("{name}-d"), pods, cpu, json!({}));
    let mut wrapper = wrap(name, json!({"priority": priority}), vec![item(object)]);
    wrapper["metadata"]["labels"] = labels;
    wrapper
}

fn both(context: &str, service: &str) -> Value {
    json!({"quota_context": context, "quota_service": service})
}

const RUNS: &str = "Running Running";

#[test]
fn b_1_who_is_charged_runs_and_may_come_again() {
    play!(play, trees());
    for _ in 0..2 {
        play.create(charged("one", both("silver", "gold"), 0, 1, "100m"));
        assert_eq!(play.state("one"), RUNS);
        let made = play.object(&DEPLOYMENTS, "one-d").unwrap();
        let labels = &made["metadata"]["labels"];
        assert_eq!(
            (&labels["appwrapper.mcad.ibm.com"], &labels["resourceName"]),
            (&json!("one"), &json!("one-d"))
        );
        play.delete(&AppWrapper::RESOURCE, "one");
        play.pass(5);
        assert_eq!(play.object(&DEPLOYMENTS, "one-d"), None);
    }
}

#[test]
fn b_2_and_b_3_priority_decides_within_a_node() {
    play!(play, trees());
    play.create(charged("low", both("gold", "gold"), 0, 1, "600m"));
    assert_eq!(play.state("low"), RUNS);
    play.create(charged("lost", both("nickel", "gold"), 0, 1, "100m"));
    assert_eq!(play.state("lost"), "Pending Backoff");
    assert_eq!(play.status("lost")["message"], "quota tree quota_context has no node \"nickel\"");
    assert!(play.reasons("lost").contains(&"quota limit exceeded".to_owned()));
    play.create(charged("high", both("gold", "gold"), 1000, 1, "600m"));
    play.pass(5);
    assert_eq!((play.state("high"), play.pods("high")), (RUNS.to_owned(), (1, 1)));
    assert_eq!((play.status("low")["state"].clone(), play.pods("low")), (json!("Pending"), (0, 0)));
    assert!(play.reasons("low").contains(&"QuotaReclaimed".to_owned()));
    // B3: bronze is hard, and has room of its own.
    play.create(charged("bronze", both("bronze", "gold"), 1000, 1, "400m"));
    assert_eq!(play.state("bronze"), RUNS);
    play.create(charged("more", both("bronze", "gold"), 1000, 1, "400m"));
    assert_eq!(play.state("more"), "Pending Backoff", "nobody gives way to an equal");
}

#[test]
fn b_4_jobs_of_one_quota_take_turns() {
    play!(play, trees());
    for name in ["one", "two"] {
        let job =
            template(&JOBS, &format!("{name}-j"), 1, "900m", json!({"seconds": "20", "job": "y"}));
        let mut job = item(job);
        job["completionstatus"] = json!("Complete");
        let mut wrapper = wrap(name, json!({}), vec![job]);
        wrapper["metadata"]["labels"] = both("bronze", "gold");
        play.create(wrapper);
    }
    assert_eq!((play.state("one").as_str(), play.state("two").as_str()), (RUNS, "Pending Backoff"));
    play.pass(60);
    assert_eq!(play.state("one"), "Completed Completed");
    assert_eq!(play.state("two"), "Completed Completed");
}

#[test]
fn b_5_who_names_nothing_is_charged_to_the_default() {
    play!(play, trees());
    play.create(charged("none", json!({}), 0, 1, "100m"));
    play.create(charged("other", json!({"app": "x"}), 0, 1, "100m"));
    for name in ["none", "other"] {
        assert_eq!(play.state(name), RUNS, "{name}");
        let labels =
            play.object(&AppWrapper::RESOURCE, name).unwrap()["metadata"]["labels"].clone();
        assert_eq!(
            (&labels["quota_context"], &labels["quota_service"]),
            (&json!("default"), &json!("default"))
        );
    }
}

/// A Deployment of pods with GPUs.
fn gpus(name: &str, context: &str, pods: i64) -> Value {
    let mut item =
        item(template(&DEPLOYMENTS, &format!("{name}-d"), pods, "425m", json!({"gpu": "8"})));
    item["custompodresources"] = json!([{"replicas": pods,
        "requests": {"cpu": "500m", "memory": "300Mi", "nvidia.com/gpu": 8}}]);
    let mut wrapper = wrap(name, json!({}), vec![item]);
    wrapper["metadata"]["labels"] = both(context, "gold");
    wrapper
}

#[test]
fn b_6_an_owner_gets_back_what_was_lent() {
    play!(play, trees());
    play.create(gpus("silver", "silver", 2));
    assert_eq!(
        (play.state("silver"), play.pods("silver")),
        (RUNS.to_owned(), (2, 2)),
        "it borrows"
    );
    play.create(gpus("gold", "gold", 1));
    play.pass(5);
    assert_eq!((play.state("gold"), play.pods("gold")), (RUNS.to_owned(), (1, 1)));
    assert_eq!(
        (play.status("silver")["state"].clone(), play.pods("silver")),
        (json!("Pending"), (0, 0))
    );
    play.delete(&AppWrapper::RESOURCE, "gold");
    play.pass(5);
    assert_eq!(play.pods("silver"), (2, 2), "and lends it again");
}

#[test]
fn b_7_and_b_9_trees_that_come_later_count_from_then_on() {
    play!(play, Vec::new());
    play.create(charged("old", both("gold", "gold"), 0, 1, "600m"));
    assert_eq!(play.state("old"), RUNS, "without a tree there is no limit");
    for (resource, object) in trees() {
        play.stage.server().create(&resource, object);
    }
    play.create(charged("new", both("silver", "gold"), 0, 1, "600m"));
    assert_eq!(play.state("new"), "Pending Backoff", "what ran before is counted");
    play.delete(&AppWrapper::RESOURCE, "old");
    play.pass(5);
    assert_eq!(play.state("new"), RUNS);
    // B9: a third tree.
    let leaves = json!({"parent": "top", "children": [node("team", "200m", "1Gi", 0, false), node("default", "0", "0", 0, false)]});
    for (resource, object) in [
        subtree("third", "third-root", json!({"children": [node("top", "900m", "1Gi", 0, false)]})),
        subtree("third", "third-leaves", leaves),
    ] {
        play.stage.server().create(&resource, object);
    }
    play.create(charged("third", json!({"third": "team", "quota_context": "gold"}), 0, 1, "200m"));
    assert_eq!(play.state("third"), RUNS);
    play.create(charged("fourth", json!({"third": "team"}), 0, 1, "200m"));
    assert_eq!(play.state("fourth"), "Pending Backoff", "of 900m are 800m taken");
}

#[test]
fn b_8_a_restart_keeps_what_was_charged() {
    play!(play, trees());
    play.create(charged("one", both("gold", "gold"), 0, 1, "600m"));
    play.stage.restart();
    play.create(charged("two", both("gold", "gold"), 0, 1, "600m"));
    play.create(charged("three", both("gold", "gold"), 0, 1, "400m"));
    assert_eq!(play.state("one"), RUNS);
    assert_eq!(play.state("two"), "Pending Backoff");
    assert_eq!(play.state("three"), RUNS);
}

/// Whoever gave its quota up does not take it again before its owner has it, and neither do others who were
/// refused before, however important they are.
#[test]
fn qu_5_an_owner_gets_its_own_back_from_more_important_borrowers_for_good() {
    for active_eviction in [false, true] {
        let settings =
            Settings { quota: true, preemption: true, active_eviction, ..Settings::default() };
        let cast = Cast::new(settings);
        let controllers = cast.all();
        let tree = [
            subtree("team", "root", json!({"children": [node("all", "1000m", "1Gi", 0, false)]})),
            subtree(
                "team",
                "leaves",
                json!({"parent": "all", "children": [
                    node("own", "1000m", "1Gi", 0, false),
                    node("guest", "0", "0", 0, false),
                ]}),
            ),
        ];
        let scenario = scenario(&controllers, fixture_a().into_iter().chain(tree).collect());
        let mut play = Play::new(&scenario);
        // There is room for one of them at a time, and quota as well.
        for (name, leaf, priority) in [("borrows", "guest", 9), ("waits", "guest", 8)] {
            play.create(charged(name, json!({"team": leaf}), priority, 1, "1000m"));
        }
        assert_eq!(play.state("borrows"), RUNS, "{active_eviction}");
        play.create(charged("owner", json!({"team": "own"}), 0, 1, "1000m"));
        play.pass(60);
        let states = ["owner", "borrows", "waits"].map(|it| play.state(it));
        assert_eq!(states, [RUNS, "Pending Backoff", "Pending Backoff"], "{active_eviction}");
        let back = play.reasons("waits").iter().filter(|it| *it == "QuotaReclaimed").count();
        assert_eq!(back, 0, "it never passed: {active_eviction}");
    }
}

/// One gives up more than the other takes. Before it is stored that it does, the rest is not given to a third.
#[test]
fn qu_8_what_is_given_up_is_nobodys_before_that_is_stored() {
    let tree = [
        subtree("team", "root", json!({"children": [node("all", "1000m", "1Gi", 0, false)]})),
        subtree(
            "team",
            "leaves",
            json!({"parent": "all", "children": [
                node("own", "1000m", "1Gi", 0, false),
                node("guest", "0", "0", 0, false),
            ]}),
        ),
    ];
    play!(play, tree);
    play.create(charged("borrows", json!({"team": "guest"}), 0, 1, "1000m"));
    assert_eq!(play.state("borrows"), RUNS);
    // Nobody who is told to go hears of it.
    play.stage.server().intercept(|write| {
        let told = matches!(write, Write::Merge { body, .. } if body["status"]["queuejobstate"] == "Preempted");
        told.then(|| Outcome::Stale("somebody was first".to_owned()))
    });
    for (name, priority) in [("owner", 5), ("third", 0)] {
        play.create(charged(name, json!({"team": "own"}), priority, 1, "300m"));
    }
    for name in ["owner", "third"] {
        assert_eq!(play.status(name)["canrun"], Value::Null, "{name} holds what another has");
    }
}
