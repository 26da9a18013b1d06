//! Nodes that fail under the pods of AppWrappers. No kubelet ends their pods.

use gantry_pods::view::{Node, Pod};
use gantry_reconcile::{Key, View as _};
use serde_json::{Value, json};

use super::cluster::{Simulation, TestControllers, deployment, fixture_a, scenario, wrap};
use crate::Settings;
use crate::app_wrapper::AppWrapper;

macro_rules! simulation {
    ($sim:ident) => {
        let cast = TestControllers::new(Settings::default());
        let controllers = cast.all();
        let scenario = scenario(&controllers, fixture_a());
        let mut $sim = Simulation::new(&scenario);
    };
}

/// Returns pods that only their AppWrapper creates.
fn bare(name: &str, minimum: i64, pods: i64, cpu: &str) -> Value {
    let pod = |at: i64| {
        json!({"generictemplate": {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{name}-{at}"), "namespace": "test"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        }})
    };
    let spec =
        json!({"schedulingSpec": {"minAvailable": minimum, "requeuing": {"timeInSeconds": 60}}});
    wrap(name, spec, (0..pods).map(pod).collect())
}

fn held(sim: &Simulation<'_>, reason: &str) -> Vec<String> {
    let held = sim.run.held();
    held.iter().filter(|it| it.reason == reason).map(|it| it.message.clone()).collect()
}

/// Three of four pods are on node a, and one is on node b, which fails.
#[test]
fn rq_10_a_gang_on_a_dead_node_is_requeued_and_releases_what_it_holds() {
    simulation!(sim);
    sim.create(deployment("gang", 4, "400m"));
    assert_eq!((sim.state("gang"), sim.pods("gang")), ("Running Running".to_owned(), (4, 4)));
    sim.advance(400);
    sim.set_ready("b", "Unknown");
    let status = sim.status("gang");
    assert_eq!(status["running"], 3, "the phase of the fourth is still Running");
    let said = "1 pod on node \"b\", which is not ready: what is there does not count as running";
    assert_eq!(status["message"], said);
    let told: Vec<String> = sim.run.take_events().iter().map(|it| it.reason.to_string()).collect();
    assert!(told.contains(&"PodsUnreachable".to_owned()), "{told:?}");
    // Another one that would fit waits: the gang still has its reservation.
    sim.create(deployment("next", 3, "400m"));
    assert_eq!(sim.state("next"), "Pending Backoff");

    sim.advance(30);
    assert_eq!(sim.state("gang"), "Running PreemptCandidate", "at the next check, not before");
    let message = sim.status("gang")["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("1 pod on node \"b\", which is not ready."), "{message}");
    assert_eq!(sim.pods("gang").0, 1, "the one that no kubelet can end");
    let said = held(&sim, "PodsRemain");
    let expected =
        "pod \"gang-d-3\" on node \"b\", which is not ready,; it is deleted without grace at ";
    assert!(said.iter().any(|it| it.contains(expected)), "{said:?}");

    sim.advance(60);
    assert_eq!(sim.pods("gang").0, 0, "it was deleted without grace");
    let told: Vec<String> = sim.run.take_events().iter().map(|it| it.message.clone()).collect();
    let expected =
        "Deleted pods \"gang-d-3\" without grace: it is on node \"b\", which is not ready";
    assert!(told.iter().any(|it| it == expected), "{told:?}");
    assert_eq!(sim.state("gang"), "Pending Backoff");
    assert_eq!(sim.state("next"), "Running Running", "what the gang held is free");
    sim.advance(60);
    sim.delete(&AppWrapper::RESOURCE, "next");
    sim.set_ready("b", "True");
    sim.advance(30);
    assert_eq!(sim.state("gang"), "Running Running", "it waited for the node");
}

/// Nothing recreates bare pods, and no component ends them: without a limit they blocked
/// everything.
#[test]
fn rq_10_bare_pods_on_a_dead_node_are_requeued() {
    for gone in [false, true] {
        simulation!(sim);
        sim.create(bare("gang", 4, 4, "400m"));
        assert_eq!(sim.pods("gang"), (4, 4));
        sim.advance(130);
        match gone {
            true => sim.delete_node("b"),
            false => sim.set_ready("b", "False"),
        }
        sim.advance(60);
        assert_eq!(sim.state("gang"), "Running PreemptCandidate", "{gone}");
        sim.advance(70);
        assert_eq!(
            (sim.state("gang"), sim.pods("gang").0),
            ("Pending Backoff".to_owned(), 0),
            "{gone}"
        );
    }
}

/// `minAvailable: 0` switches requeuing off, but nothing can run here any more.
#[test]
fn rq_10_a_job_with_only_unreachable_pods_is_evicted() {
    simulation!(sim);
    sim.create(bare("gang", 0, 2, "400m"));
    sim.advance(130);
    sim.set_ready("b", "Unknown");
    sim.advance(70);
    assert_eq!(sim.state("gang"), "Running Running", "both are on node a");
    sim.set_ready("a", "Unknown");
    sim.advance(120);
    assert!(sim.reasons("gang").contains(&"PodsUnreachable".to_owned()));
    sim.advance(20);
    assert_eq!((sim.state("gang"), sim.pods("gang").0), ("Pending Backoff".to_owned(), 0));
    assert!(sim.status("gang")["canrun"].is_null(), "it holds nothing");
}

/// A node that is back before the next check has no effect.
#[test]
fn rq_10_a_node_that_comes_back_in_time_changes_nothing() {
    simulation!(sim);
    sim.create(deployment("gang", 4, "400m"));
    sim.advance(305);
    sim.set_ready("b", "Unknown");
    assert_eq!(sim.status("gang")["running"], 3);
    sim.set_ready("b", "True");
    let status = sim.status("gang");
    assert_eq!((&status["running"], &status["message"]), (&json!(4), &Value::Null));
    sim.advance(120);
    assert_eq!(sim.state("gang"), "Running Running");
}

/// A pod that is deleted with its AppWrapper does not block its name, or an AppWrapper that waits
/// for it.
#[test]
fn rq_10_pods_of_a_deleted_app_wrapper_go_with_a_dead_node() {
    simulation!(sim);
    sim.create(bare("gang", 4, 4, "400m"));
    sim.set_ready("b", "Unknown");
    let key = Key::new("test", "gang");
    let how = gantry_reconcile::Propagation::Foreground;
    sim.run.server().delete(&AppWrapper::RESOURCE, &key, how);
    sim.advance(50);
    assert_eq!(sim.pods("gang").0, 1, "the node has some time to come back");
    assert!(sim.object(&AppWrapper::RESOURCE, "gang").is_some(), "it waits for its pods");
    sim.advance(20);
    assert_eq!(sim.pods("gang").0, 0);
    assert!(sim.object(&AppWrapper::RESOURCE, "gang").is_none());
}

/// Pods with a grace period of their own have it, on nodes that answer.
#[test]
fn rq_9_pods_on_nodes_that_answer_keep_their_grace() {
    simulation!(sim);
    let mut slow = bare("slow", 2, 1, "400m");
    slow["spec"]["resources"]["GenericItems"][0]["generictemplate"]["metadata"]["annotations"] =
        json!({"lost": "y"});
    sim.create(slow);
    sim.advance(70);
    assert_eq!(sim.state("slow"), "Running PreemptCandidate");
    sim.advance(400);
    assert_eq!(sim.pods("slow").0, 1, "it is ending, and its node answers");
    assert_eq!(sim.state("slow"), "Running PreemptCandidate", "and what it takes is still its own");
    sim.advance(195);
    assert_eq!((sim.state("slow"), sim.pods("slow").0), ("Pending Backoff".to_owned(), 0));
    assert!(sim.run.server().get(&Node::RESOURCE, &Key::cluster("a")).is_some());
    assert!(sim.run.server().list(&Pod::RESOURCE).is_empty());
}
