//! No AppWrapper gets more than it is entitled to: foreign leaves, small declarations, and pods
//! that are added later.

use gantry_reconcile::{Key, Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    DEPLOYMENTS, Simulation, TestControllers, item, node, scenario, template, wrap,
};
use crate::app_wrapper::AppWrapper;
use crate::quota::{BINDINGS_ANNOTATION, Subtree};
use crate::{Inference, Settings};

const RUNS: &str = "Running Running";

/// Returns one tree of four cpus, with a leaf of two that has no binding yet, and one of two for
/// others.
fn tree() -> Vec<(Resource, Value)> {
    let leaf = |name: &str, cpu: &str| {
        let requests = json!({"cpu": cpu, "memory": "64Gi", "nvidia.com/gpu": 8});
        json!({"name": name, "quotas": {"requests": requests}})
    };
    let subtree = |name: &str, spec: Value| {
        let meta = json!({"name": name, "namespace": "test", "labels": {"tree": "team"}});
        (Subtree::RESOURCE, json!({"metadata": meta, "spec": spec}))
    };
    vec![
        node("a", "16", 16),
        subtree("root", json!({"children": [leaf("all", "4")]})),
        subtree(
            "leaves",
            json!({"parent": "all", "children": [leaf("gold", "2"), leaf("silver", "2")]}),
        ),
    ]
}

macro_rules! simulation {
    ($sim:ident, $settings:expr) => {
        let cast = TestControllers::new(Settings { quota: true, preemption: true, ..$settings });
        let controllers = cast.all();
        let scenario = scenario(&controllers, tree());
        let mut $sim = Simulation::new(&scenario);
    };
}

fn charged(name: &str, leaf: &str, priority: i64, pods: i64, cpu: &str) -> Value {
    let object = template(&DEPLOYMENTS, &format!("{name}-d"), pods, cpu, json!({}));
    let mut wrapper = wrap(name, json!({"priority": priority}), vec![item(object)]);
    wrapper["metadata"]["labels"] = json!({"team": leaf});
    wrapper
}

fn bind(sim: &mut Simulation<'_>, bindings: &str) {
    let key = Key::new("test", "leaves");
    sim.run.server().edit(&Subtree::RESOURCE, &key, |it| {
        it["metadata"]["annotations"] = json!({BINDINGS_ANNOTATION: bindings});
    });
    sim.advance(30);
}

#[test]
fn qu_12_a_leaf_that_is_bound_to_others_is_not_charged() {
    simulation!(sim, Settings::default());
    bind(&mut sim, r#"{"gold": {"namespaces": ["elsewhere"]}}"#);
    sim.create(charged("thief", "gold", 9, 1, "1"));
    assert_eq!(sim.state("thief"), "Pending Backoff");
    assert!(sim.reasons("thief").contains(&"QuotaLeafForbidden".to_owned()));
    let message = sim.status("thief")["message"].as_str().unwrap().to_owned();
    let said = "leaf \"gold\" of quota tree team is bound to namespace elsewhere, and namespace \
                \"test\" is not among them; use another leaf by the label team (silver)";
    assert!(message.starts_with(said), "{message}");
    sim.create(charged("honest", "silver", 0, 1, "1"));
    assert_eq!(sim.state("honest"), RUNS, "and blocks no other");
    bind(&mut sim, r#"{"gold": {"namespaces": ["elsewhere", "test"]}}"#);
    assert_eq!(sim.state("thief"), RUNS, "what is bound to it is its own");
}

/// The head of the line is held only for an AppWrapper that may be charged to its leaf.
#[test]
fn qu_12_a_job_with_a_forbidden_leaf_blocks_no_other() {
    let holding = std::time::Duration::from_secs(600);
    simulation!(sim, Settings { holding, ..Settings::default() });
    bind(&mut sim, r#"{"gold": {"namespaces": ["elsewhere"]}}"#);
    sim.create(charged("thief", "gold", 9, 1, "1"));
    sim.create(charged("honest", "silver", 0, 1, "1"));
    assert_eq!(sim.state("honest"), RUNS);
}

/// A label that is changed while everything runs uses the quota of others; it is the first to be
/// preempted.
#[test]
fn qu_12_a_job_moved_to_a_forbidden_leaf_is_preempted_first() {
    simulation!(sim, Settings::default());
    bind(
        &mut sim,
        r#"{"gold": {"namespaces": ["test"]}, "silver": {"namespaces": ["elsewhere"]}}"#,
    );
    sim.create(charged("thief", "gold", 9, 1, "2"));
    assert_eq!(sim.state("thief"), RUNS);
    let key = Key::new("test", "thief");
    sim.run.server().edit(&AppWrapper::RESOURCE, &key, |it| {
        it["metadata"]["labels"]["team"] = json!("silver");
    });
    sim.advance(5);
    let mut owner = charged("owner", "silver", 0, 1, "2");
    owner["metadata"]["namespace"] = json!("elsewhere");
    owner["spec"]["resources"]["GenericItems"][0]["generictemplate"]["metadata"]["namespace"] =
        json!("elsewhere");
    sim.run.server().create(&AppWrapper::RESOURCE, owner);
    sim.create(charged("filler", "gold", 0, 1, "2"));
    sim.advance(60);
    let found = sim.run.server().get(&AppWrapper::RESOURCE, &Key::new("elsewhere", "owner"));
    assert_eq!(found.unwrap()["status"]["state"], "Running", "the leaf is its own");
    assert!(sim.state("thief").starts_with("Pending"), "{}", sim.state("thief"));
}

/// The declared demand is less than what the templates request.
#[test]
fn qu_13_a_small_declaration_is_charged_for_its_template() {
    let small = |declared: Value| {
        let mut wrapper = charged("small", "gold", 0, 3, "1");
        wrapper["spec"]["resources"]["GenericItems"][0]["custompodresources"] = declared;
        wrapper
    };
    let ten = json!([{"replicas": 1, "requests": {"cpu": "10m"}}]);
    let none = json!([{"replicas": 0, "requests": {"cpu": "8"}}]);
    for declared in [ten.clone(), none] {
        simulation!(sim, Settings::default());
        sim.create(charged("other", "silver", 0, 1, "2"));
        sim.create(small(declared));
        assert_eq!(sim.state("small"), "Pending Backoff", "three cpus, and two are left");
        let message = sim.status("small")["message"].as_str().unwrap().to_owned();
        assert!(message.contains("of quota tree team lacks 1 of cpu"), "{message}");
    }
    // It is charged as in MCAD, and that is reported.
    simulation!(sim, Settings { inference: Inference::Compat, ..Settings::default() });
    sim.create(charged("other", "silver", 0, 1, "2"));
    sim.create(small(ten));
    assert_eq!(sim.state("small"), RUNS);
    let told: Vec<String> = sim.run.take_events().iter().map(|it| it.message.clone()).collect();
    let said = "its templates ask for more than it is charged for (cpu 10m of 3): declare it in \
                custompodresources";
    assert!(told.iter().any(|it| it == said), "{told:?}");
    assert!(
        sim.status("small")["message"].as_str().unwrap().contains("cpu 3 of 10m"),
        "and noticed"
    );
}

/// A Deployment is scaled up when it is admitted: it is charged for all of it, and preempted first.
#[test]
fn qu_13_a_job_that_grows_is_charged_and_preempted_first() {
    for active_eviction in [false, true] {
        simulation!(sim, Settings { active_eviction, ..Settings::default() });
        sim.create(charged("grows", "gold", 9, 1, "1"));
        sim.create(charged("other", "silver", 0, 1, "1"));
        let key = Key::new("test", "grows-d");
        sim.run.server().edit(&DEPLOYMENTS, &key, |it| {
            it["metadata"]["annotations"]["pods"] = json!("3");
        });
        sim.advance(5);
        assert_eq!(sim.pods("grows"), (3, 3));
        let message = sim.status("grows")["message"].as_str().unwrap().to_owned();
        assert!(
            message.starts_with("its pods ask for more than was admitted (cpu 3 of 1)"),
            "{message}"
        );
        let told: Vec<String> =
            sim.run.take_events().iter().map(|it| it.reason.to_string()).collect();
        assert!(told.contains(&"DemandExceeded".to_owned()), "{told:?}");
        // All four cpus are used: without the growth there would be two left.
        sim.create(charged("next", "silver", 0, 1, "1"));
        sim.advance(60);
        assert_eq!(sim.state("next"), RUNS, "{active_eviction}");
        assert_eq!(sim.state("other"), RUNS, "{active_eviction}: one within its admission stays");
        assert!(sim.reasons("grows").contains(&"QuotaReclaimed".to_owned()), "{active_eviction}");
    }
}

/// What is scaled up before its first pods run is reported too, beside that they run.
#[test]
fn qu_13_a_job_that_starts_over_its_admission_is_reported() {
    simulation!(sim, Settings::default());
    sim.create(charged("begins", "gold", 9, 0, "1"));
    sim.advance(5);
    let key = Key::new("test", "begins-d");
    sim.run.server().edit(&DEPLOYMENTS, &key, |it| {
        it["metadata"]["annotations"]["pods"] = json!("3");
    });
    sim.advance(5);
    assert_eq!(sim.pods("begins"), (3, 3));
    let told: Vec<String> = sim.run.take_events().iter().map(|it| it.reason.to_string()).collect();
    assert!(told.contains(&"DemandExceeded".to_owned()), "{told:?}");
}

/// Without quota trees, a job that grows is preempted first where a higher priority needs capacity,
/// whatever its own priority.
#[test]
fn qu_13_a_job_that_grows_is_evicted_before_lower_priorities() {
    let settings = Settings { preemption: true, active_eviction: true, ..Settings::default() };
    let cast = TestControllers::new(settings);
    let controllers = cast.all();
    let scenario = scenario(&controllers, vec![node("a", "4", 0)]);
    let mut sim = Simulation::new(&scenario);
    let lasting = |name: &str, priority: i64| charged(name, "x", priority, 1, "1");
    sim.create(lasting("low", 0));
    sim.create(lasting("grows", 7));
    sim.run.server().edit(&DEPLOYMENTS, &Key::new("test", "grows-d"), |it| {
        it["metadata"]["annotations"]["pods"] = json!("3");
    });
    sim.advance(5);
    assert_eq!(sim.pods("grows"), (3, 3));
    sim.create(lasting("next", 5));
    sim.advance(60);
    assert_eq!((sim.state("next"), sim.state("low")), (RUNS.to_owned(), RUNS.to_owned()));
    assert!(sim.reasons("grows").contains(&"PriorityPreempted".to_owned()));
}
