//! Nobody gets more than is theirs: foreign leaves, small declarations, and pods that come later.

use gantry_reconcile::{Key, Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{Cast, DEPLOYMENTS, Play, item, node, scenario, template, wrap};
use crate::app_wrapper::AppWrapper;
use crate::quota::{BINDINGS, Subtree};
use crate::{Inference, Settings};

const RUNS: &str = "Running Running";

/// One tree of four cpus, with a leaf of two that is bound to nobody yet, and one of two for others.
fn tree() -> Vec<(Resource, Value)> {
    let leaf = |name: &str, cpu: &str| json!({"name": name, "quotas": {"requests": {"cpu": cpu, "memory": "64Gi", "nvidia.com/gpu": 8}}});
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

macro_rules! play {
    ($play:ident, $settings:expr) => {
        let cast = Cast::new(Settings { quota: true, preemption: true, ..$settings });
        let controllers = cast.all();
        let scenario = scenario(&controllers, tree());
        let mut $play = Play::new(&scenario);
    };
}

fn charged(name: &str, leaf: &str, priority: i64, pods: i64, cpu: &str) -> Value {
    let object = template(&DEPLOYMENTS, &format!("{name}-d"), pods, cpu, json!({}));
    let mut wrapper = wrap(name, json!({"priority": priority}), vec![item(object)]);
    wrapper["metadata"]["labels"] = json!({"team": leaf});
    wrapper
}

fn bind(play: &mut Play<'_>, bindings: &str) {
    let key = Key::new("test", "leaves");
    play.stage.server().edit(&Subtree::RESOURCE, &key, |it| {
        it["metadata"]["annotations"] = json!({BINDINGS: bindings});
    });
    play.pass(30);
}

#[test]
fn qu_12_a_leaf_that_is_bound_to_others_is_not_charged() {
    play!(play, Settings::default());
    bind(&mut play, r#"{"gold": {"namespaces": ["elsewhere"]}}"#);
    play.create(charged("thief", "gold", 9, 1, "1"));
    assert_eq!(play.state("thief"), "Pending Backoff");
    assert!(play.reasons("thief").contains(&"QuotaLeafForbidden".to_owned()));
    let message = play.status("thief")["message"].as_str().unwrap().to_owned();
    let said = "leaf \"gold\" of quota tree team is bound to namespace elsewhere, and namespace \"test\" is not \
                among them; use another leaf by the label team (silver)";
    assert!(message.starts_with(said), "{message}");
    play.create(charged("honest", "silver", 0, 1, "1"));
    assert_eq!(play.state("honest"), RUNS, "and keeps nobody waiting");
    bind(&mut play, r#"{"gold": {"namespaces": ["elsewhere", "test"]}}"#);
    assert_eq!(play.state("thief"), RUNS, "what is bound to it is its own");
}

/// Who holds the line holds it for something that it may have.
#[test]
fn qu_12_nobody_waits_for_one_that_may_not_use_its_leaf() {
    let holding = std::time::Duration::from_secs(600);
    play!(play, Settings { holding, ..Settings::default() });
    bind(&mut play, r#"{"gold": {"namespaces": ["elsewhere"]}}"#);
    play.create(charged("thief", "gold", 9, 1, "1"));
    play.create(charged("honest", "silver", 0, 1, "1"));
    assert_eq!(play.state("honest"), RUNS);
}

/// A label that is changed when everything runs takes the quota of others; it is the first to give it back.
#[test]
fn qu_12_who_moves_to_a_foreign_leaf_is_the_first_to_go() {
    play!(play, Settings::default());
    bind(
        &mut play,
        r#"{"gold": {"namespaces": ["test"]}, "silver": {"namespaces": ["elsewhere"]}}"#,
    );
    play.create(charged("thief", "gold", 9, 1, "2"));
    assert_eq!(play.state("thief"), RUNS);
    let key = Key::new("test", "thief");
    play.stage.server().edit(&AppWrapper::RESOURCE, &key, |it| {
        it["metadata"]["labels"]["team"] = json!("silver");
    });
    play.pass(5);
    let mut owner = charged("owner", "silver", 0, 1, "2");
    owner["metadata"]["namespace"] = json!("elsewhere");
    owner["spec"]["resources"]["GenericItems"][0]["generictemplate"]["metadata"]["namespace"] =
        json!("elsewhere");
    play.stage.server().create(&AppWrapper::RESOURCE, owner);
    play.create(charged("filler", "gold", 0, 1, "2"));
    play.pass(60);
    let found = play.stage.server().get(&AppWrapper::RESOURCE, &Key::new("elsewhere", "owner"));
    assert_eq!(found.unwrap()["status"]["state"], "Running", "the leaf is its own");
    assert!(play.state("thief").starts_with("Pending"), "{}", play.state("thief"));
}

/// What is declared is less than what the templates ask for.
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
        play!(play, Settings::default());
        play.create(charged("other", "silver", 0, 1, "2"));
        play.create(small(declared));
        assert_eq!(play.state("small"), "Pending Backoff", "three cpus, and two are left");
        let message = play.status("small")["message"].as_str().unwrap().to_owned();
        assert!(message.contains("of quota tree team lacks 1 of cpu"), "{message}");
    }
    // As MCAD charges, and it is said.
    play!(play, Settings { inference: Inference::Compat, ..Settings::default() });
    play.create(charged("other", "silver", 0, 1, "2"));
    play.create(small(ten));
    assert_eq!(play.state("small"), RUNS);
    let told: Vec<String> = play.stage.told().iter().map(|it| it.message.clone()).collect();
    let said = "its templates ask for more than it is charged for (cpu 10m of 3): declare it in \
                custompodresources";
    assert!(told.iter().any(|it| it == said), "{told:?}");
    assert!(
        play.status("small")["message"].as_str().unwrap().contains("cpu 3 of 10m"),
        "and noticed"
    );
}

/// A Deployment is scaled up when it is admitted: it is charged for all of it, and goes first.
#[test]
fn qu_13_who_grows_after_admission_is_charged_and_the_first_to_go() {
    for active_eviction in [false, true] {
        play!(play, Settings { active_eviction, ..Settings::default() });
        play.create(charged("grows", "gold", 9, 1, "1"));
        play.create(charged("other", "silver", 0, 1, "1"));
        let key = Key::new("test", "grows-d");
        play.stage.server().edit(&DEPLOYMENTS, &key, |it| {
            it["metadata"]["annotations"]["pods"] = json!("3");
        });
        play.pass(5);
        assert_eq!(play.pods("grows"), (3, 3));
        let message = play.status("grows")["message"].as_str().unwrap().to_owned();
        assert!(
            message.starts_with("its pods ask for more than was admitted (cpu 3 of 1)"),
            "{message}"
        );
        let told: Vec<String> = play.stage.told().iter().map(|it| it.reason.to_string()).collect();
        assert!(told.contains(&"DemandExceeded".to_owned()), "{told:?}");
        // All four cpus are used: without the growth there would be two left.
        play.create(charged("next", "silver", 0, 1, "1"));
        play.pass(60);
        assert_eq!(play.state("next"), RUNS, "{active_eviction}");
        assert_eq!(
            play.state("other"),
            RUNS,
            "{active_eviction}: who kept to what was admitted stays"
        );
        assert!(play.reasons("grows").contains(&"QuotaReclaimed".to_owned()), "{active_eviction}");
    }
}

/// What is scaled up before its first pods run is reported too, beside that they run.
#[test]
fn qu_13_who_begins_with_more_than_was_admitted_is_reported() {
    play!(play, Settings::default());
    play.create(charged("begins", "gold", 9, 0, "1"));
    play.pass(5);
    let key = Key::new("test", "begins-d");
    play.stage.server().edit(&DEPLOYMENTS, &key, |it| {
        it["metadata"]["annotations"]["pods"] = json!("3");
    });
    play.pass(5);
    assert_eq!(play.pods("begins"), (3, 3));
    let told: Vec<String> = play.stage.told().iter().map(|it| it.reason.to_string()).collect();
    assert!(told.contains(&"DemandExceeded".to_owned()), "{told:?}");
}

/// Without quota trees, who grows goes first where somebody more important needs room, whatever its priority.
#[test]
fn qu_13_who_grows_is_evicted_before_those_of_lower_priority() {
    let settings = Settings { preemption: true, active_eviction: true, ..Settings::default() };
    let cast = Cast::new(settings);
    let controllers = cast.all();
    let scenario = scenario(&controllers, vec![node("a", "4", 0)]);
    let mut play = Play::new(&scenario);
    let lasting = |name: &str, priority: i64| charged(name, "x", priority, 1, "1");
    play.create(lasting("low", 0));
    play.create(lasting("grows", 7));
    play.stage.server().edit(&DEPLOYMENTS, &Key::new("test", "grows-d"), |it| {
        it["metadata"]["annotations"]["pods"] = json!("3");
    });
    play.pass(5);
    assert_eq!(play.pods("grows"), (3, 3));
    play.create(lasting("next", 5));
    play.pass(60);
    assert_eq!((play.state("next"), play.state("low")), (RUNS.to_owned(), RUNS.to_owned()));
    assert!(play.reasons("grows").contains(&"PriorityPreempted".to_owned()));
}
