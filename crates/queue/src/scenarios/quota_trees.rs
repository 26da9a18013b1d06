//! What MCAD's own tests expect with quota trees, by the numbers of section 7.2.

#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use gantry_reconcile::{Outcome, Resource, View as _, Write};
use serde_json::{Value, json};

use super::cluster::{
    DEPLOYMENTS, JOBS, Simulation, TestControllers, fixture_a, item, scenario, template, wrap,
};
use crate::Settings;
use crate::app_wrapper::AppWrapper;
use crate::quota::Subtree;

fn subtree(tree: &str, name: &str, spec: Value) -> (Resource, Value) {
    let metadata = json!({"name": name, "namespace": "test", "labels": {"tree": tree}});
    let object = json!({"metadata": metadata, "spec": spec});
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
            json!({
                "parent": "service-root",
                "children": [node("gold", "1075m", "1045Mi", 16, false), none()],
            }),
        ),
    ]
}

/// Creates a simulation with fixture A, quota, and these objects.
macro_rules! simulation {
    ($sim:ident, $objects:expr) => {
        let settings = Settings { quota: true, preemption: true, ..Settings::default() };
        let cast = TestControllers::new(settings);
        let controllers = cast.all();
        let scenario = scenario(&controllers, fixture_a().into_iter().chain($objects).collect());
        let mut $sim = Simulation::new(&scenario);
    };
}

/// Returns a Deployment that is charged to nodes of both trees.
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
fn b_1_a_charged_job_runs_and_can_be_recreated() {
    simulation!(sim, trees());
    for _ in 0..2 {
        sim.create(charged("one", both("silver", "gold"), 0, 1, "100m"));
        assert_eq!(sim.state("one"), RUNS);
        let made = sim.object(&DEPLOYMENTS, "one-d").unwrap();
        let labels = &made["metadata"]["labels"];
        assert_eq!(
            (&labels["appwrapper.mcad.ibm.com"], &labels["resourceName"]),
            (&json!("one"), &json!("one-d"))
        );
        sim.delete(&AppWrapper::RESOURCE, "one");
        sim.advance(5);
        assert_eq!(sim.object(&DEPLOYMENTS, "one-d"), None);
    }
}

#[test]
fn b_2_and_b_3_priority_decides_within_a_node() {
    simulation!(sim, trees());
    sim.create(charged("low", both("gold", "gold"), 0, 1, "600m"));
    assert_eq!(sim.state("low"), RUNS);
    sim.create(charged("lost", both("nickel", "gold"), 0, 1, "100m"));
    assert_eq!(sim.state("lost"), "Pending Backoff");
    assert_eq!(sim.status("lost")["message"], "quota tree quota_context has no node \"nickel\"");
    assert!(sim.reasons("lost").contains(&"quota limit exceeded".to_owned()));
    sim.create(charged("high", both("gold", "gold"), 1000, 1, "600m"));
    sim.advance(5);
    assert_eq!((sim.state("high"), sim.pods("high")), (RUNS.to_owned(), (1, 1)));
    assert_eq!((sim.status("low")["state"].clone(), sim.pods("low")), (json!("Pending"), (0, 0)));
    assert!(sim.reasons("low").contains(&"QuotaReclaimed".to_owned()));
    // B3: bronze is hard, and has free quota of its own.
    sim.create(charged("bronze", both("bronze", "gold"), 1000, 1, "400m"));
    assert_eq!(sim.state("bronze"), RUNS);
    sim.create(charged("more", both("bronze", "gold"), 1000, 1, "400m"));
    assert_eq!(sim.state("more"), "Pending Backoff", "equals are not preempted");
}

#[test]
fn b_4_jobs_of_one_quota_take_turns() {
    simulation!(sim, trees());
    for name in ["one", "two"] {
        let job =
            template(&JOBS, &format!("{name}-j"), 1, "900m", json!({"seconds": "20", "job": "y"}));
        let mut job = item(job);
        job["completionstatus"] = json!("Complete");
        let mut wrapper = wrap(name, json!({}), vec![job]);
        wrapper["metadata"]["labels"] = both("bronze", "gold");
        sim.create(wrapper);
    }
    assert_eq!((sim.state("one").as_str(), sim.state("two").as_str()), (RUNS, "Pending Backoff"));
    sim.advance(60);
    assert_eq!(sim.state("one"), "Completed Completed");
    assert_eq!(sim.state("two"), "Completed Completed");
}

#[test]
fn b_5_a_job_without_labels_is_charged_to_the_default() {
    simulation!(sim, trees());
    sim.create(charged("none", json!({}), 0, 1, "100m"));
    sim.create(charged("other", json!({"app": "x"}), 0, 1, "100m"));
    for name in ["none", "other"] {
        assert_eq!(sim.state(name), RUNS, "{name}");
        let labels = sim.object(&AppWrapper::RESOURCE, name).unwrap()["metadata"]["labels"].clone();
        assert_eq!(
            (&labels["quota_context"], &labels["quota_service"]),
            (&json!("default"), &json!("default"))
        );
    }
}

/// Returns a Deployment of pods with GPUs.
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
    simulation!(sim, trees());
    sim.create(gpus("silver", "silver", 2));
    assert_eq!((sim.state("silver"), sim.pods("silver")), (RUNS.to_owned(), (2, 2)), "it borrows");
    sim.create(gpus("gold", "gold", 1));
    sim.advance(5);
    assert_eq!((sim.state("gold"), sim.pods("gold")), (RUNS.to_owned(), (1, 1)));
    assert_eq!(
        (sim.status("silver")["state"].clone(), sim.pods("silver")),
        (json!("Pending"), (0, 0))
    );
    sim.delete(&AppWrapper::RESOURCE, "gold");
    sim.advance(5);
    assert_eq!(sim.pods("silver"), (2, 2), "and lends it again");
}

#[test]
fn b_7_and_b_9_trees_that_come_later_count_from_then_on() {
    simulation!(sim, Vec::new());
    sim.create(charged("old", both("gold", "gold"), 0, 1, "600m"));
    assert_eq!(sim.state("old"), RUNS, "without a tree there is no limit");
    for (resource, object) in trees() {
        sim.run.server().create(&resource, object);
    }
    sim.create(charged("new", both("silver", "gold"), 0, 1, "600m"));
    assert_eq!(sim.state("new"), "Pending Backoff", "what ran before is counted");
    sim.delete(&AppWrapper::RESOURCE, "old");
    sim.advance(5);
    assert_eq!(sim.state("new"), RUNS);
    // B9: a third tree.
    let children = [node("team", "200m", "1Gi", 0, false), node("default", "0", "0", 0, false)];
    let leaves = json!({"parent": "top", "children": children});
    for (resource, object) in [
        subtree("third", "third-root", json!({"children": [node("top", "900m", "1Gi", 0, false)]})),
        subtree("third", "third-leaves", leaves),
    ] {
        sim.run.server().create(&resource, object);
    }
    sim.create(charged("third", json!({"third": "team", "quota_context": "gold"}), 0, 1, "200m"));
    assert_eq!(sim.state("third"), RUNS);
    sim.create(charged("fourth", json!({"third": "team"}), 0, 1, "200m"));
    assert_eq!(sim.state("fourth"), "Pending Backoff", "of 900m are 800m taken");
}

#[test]
fn b_8_a_restart_keeps_what_was_charged() {
    simulation!(sim, trees());
    sim.create(charged("one", both("gold", "gold"), 0, 1, "600m"));
    sim.run.restart();
    sim.create(charged("two", both("gold", "gold"), 0, 1, "600m"));
    sim.create(charged("three", both("gold", "gold"), 0, 1, "400m"));
    assert_eq!(sim.state("one"), RUNS);
    assert_eq!(sim.state("two"), "Pending Backoff");
    assert_eq!(sim.state("three"), RUNS);
}

/// An AppWrapper whose quota was reclaimed does not get it again before its owner has it, and
/// neither do others that were refused before, whatever their priority.
#[test]
fn qu_5_an_owner_reclaims_quota_from_higher_priority_borrowers() {
    for active_eviction in [false, true] {
        let settings =
            Settings { quota: true, preemption: true, active_eviction, ..Settings::default() };
        let cast = TestControllers::new(settings);
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
        let mut sim = Simulation::new(&scenario);
        // There is capacity for one of them at a time, and quota as well.
        for (name, leaf, priority) in [("borrows", "guest", 9), ("waits", "guest", 8)] {
            sim.create(charged(name, json!({"team": leaf}), priority, 1, "1000m"));
        }
        assert_eq!(sim.state("borrows"), RUNS, "{active_eviction}");
        sim.create(charged("owner", json!({"team": "own"}), 0, 1, "1000m"));
        sim.advance(60);
        let states = ["owner", "borrows", "waits"].map(|it| sim.state(it));
        assert_eq!(states, [RUNS, "Pending Backoff", "Pending Backoff"], "{active_eviction}");
        let back = sim.reasons("waits").iter().filter(|it| *it == "QuotaReclaimed").count();
        assert_eq!(back, 0, "it was never admitted: {active_eviction}");
    }
}

/// One releases more than the other uses. Before that is stored, the rest is not given to a third.
#[test]
fn qu_8_released_quota_is_not_given_away_before_it_is_stored() {
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
    simulation!(sim, tree);
    sim.create(charged("borrows", json!({"team": "guest"}), 0, 1, "1000m"));
    assert_eq!(sim.state("borrows"), RUNS);
    // The status writes of preempted AppWrappers are lost.
    sim.run.server().intercept(|write| {
        let is_preemption = matches!(
            write,
            Write::Merge { body, .. } if body["status"]["queuejobstate"] == "Preempted"
        );
        is_preemption.then(|| Outcome::Conflict("another writer was first".to_owned()))
    });
    for (name, priority) in [("owner", 5), ("third", 0)] {
        sim.create(charged(name, json!({"team": "own"}), priority, 1, "300m"));
    }
    for name in ["owner", "third"] {
        assert_eq!(sim.status(name)["canrun"], Value::Null, "{name} holds what another has");
    }
}
