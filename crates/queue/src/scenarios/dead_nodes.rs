//! Nodes that die under the pods of AppWrappers. No kubelet ends what is on them.

use gantry_pods::view::{Node, Pod};
use gantry_reconcile::{Key, View as _};
use serde_json::{Value, json};

use super::cluster::{Cast, Play, deployment, fixture_a, scenario, wrap};
use crate::Settings;
use crate::app_wrapper::AppWrapper;

macro_rules! play {
    ($play:ident) => {
        let cast = Cast::new(Settings::default());
        let controllers = cast.all();
        let scenario = scenario(&controllers, fixture_a());
        let mut $play = Play::new(&scenario);
    };
}

/// Pods that nothing but their AppWrapper makes.
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

fn held(play: &Play<'_>, reason: &str) -> Vec<String> {
    let held = play.stage.held();
    held.iter().filter(|it| it.reason == reason).map(|it| it.message.clone()).collect()
}

/// Three of four pods are on node a, and one is on node b, which dies.
#[test]
fn rq_10_a_gang_on_a_dead_node_is_requeued_and_releases_what_it_holds() {
    play!(play);
    play.create(deployment("gang", 4, "400m"));
    assert_eq!((play.state("gang"), play.pods("gang")), ("Running Running".to_owned(), (4, 4)));
    play.pass(400);
    play.set_ready("b", "Unknown");
    let status = play.status("gang");
    assert_eq!(status["running"], 3, "the phase of the fourth is still Running");
    let said = "1 pod on node \"b\", which is not ready: what is there does not count as running";
    assert_eq!(status["message"], said);
    let told: Vec<String> = play.stage.told().iter().map(|it| it.reason.to_string()).collect();
    assert!(told.contains(&"PodsUnreachable".to_owned()), "{told:?}");
    // Another one that would fit waits: the gang still has its reservation.
    play.create(deployment("next", 3, "400m"));
    assert_eq!(play.state("next"), "Pending Backoff");

    play.pass(30);
    assert_eq!(play.state("gang"), "Running PreemptCandidate", "at the next check, not before");
    let message = play.status("gang")["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("1 pod on node \"b\", which is not ready."), "{message}");
    assert_eq!(play.pods("gang").0, 1, "the one that nobody can end");
    let said = held(&play, "PodsRemain");
    let expected =
        "pod \"gang-d-3\" on node \"b\", which is not ready,; it is deleted without grace at ";
    assert!(said.iter().any(|it| it.contains(expected)), "{said:?}");

    play.pass(60);
    assert_eq!(play.pods("gang").0, 0, "it was deleted without grace");
    let told: Vec<String> = play.stage.told().iter().map(|it| it.message.clone()).collect();
    let expected =
        "Deleted pods \"gang-d-3\" without grace: it is on node \"b\", which is not ready";
    assert!(told.iter().any(|it| it == expected), "{told:?}");
    assert_eq!(play.state("gang"), "Pending Backoff");
    assert_eq!(play.state("next"), "Running Running", "what the gang held is free");
    play.pass(60);
    play.delete(&AppWrapper::RESOURCE, "next");
    play.set_ready("b", "True");
    play.pass(30);
    assert_eq!(play.state("gang"), "Running Running", "it waited for the node");
}

/// Nothing makes bare pods again, and nobody else ends them: without a limit they froze everything.
#[test]
fn rq_10_bare_pods_on_a_dead_node_are_requeued() {
    for gone in [false, true] {
        play!(play);
        play.create(bare("gang", 4, 4, "400m"));
        assert_eq!(play.pods("gang"), (4, 4));
        play.pass(130);
        match gone {
            true => play.delete_node("b"),
            false => play.set_ready("b", "False"),
        }
        play.pass(60);
        assert_eq!(play.state("gang"), "Running PreemptCandidate", "{gone}");
        play.pass(70);
        assert_eq!(
            (play.state("gang"), play.pods("gang").0),
            ("Pending Backoff".to_owned(), 0),
            "{gone}"
        );
    }
}

/// `minAvailable: 0` switches requeuing off, but nothing can run here any more.
#[test]
fn rq_10_who_can_run_nothing_any_more_is_taken_back_without_a_minimum() {
    play!(play);
    play.create(bare("gang", 0, 2, "400m"));
    play.pass(130);
    play.set_ready("b", "Unknown");
    play.pass(70);
    assert_eq!(play.state("gang"), "Running Running", "both are on node a");
    play.set_ready("a", "Unknown");
    play.pass(120);
    assert!(play.reasons("gang").contains(&"PodsUnreachable".to_owned()));
    play.pass(20);
    assert_eq!((play.state("gang"), play.pods("gang").0), ("Pending Backoff".to_owned(), 0));
    assert!(play.status("gang")["canrun"].is_null(), "it holds nothing");
}

/// A node that is back before the next check costs nothing.
#[test]
fn rq_10_a_node_that_comes_back_in_time_changes_nothing() {
    play!(play);
    play.create(deployment("gang", 4, "400m"));
    play.pass(305);
    play.set_ready("b", "Unknown");
    assert_eq!(play.status("gang")["running"], 3);
    play.set_ready("b", "True");
    let status = play.status("gang");
    assert_eq!((&status["running"], &status["message"]), (&json!(4), &Value::Null));
    play.pass(120);
    assert_eq!(play.state("gang"), "Running Running");
}

/// What is deleted with its AppWrapper does not keep its name, or an AppWrapper that waits for it.
#[test]
fn rq_10_pods_of_a_deleted_app_wrapper_go_with_a_dead_node() {
    play!(play);
    play.create(bare("gang", 4, 4, "400m"));
    play.set_ready("b", "Unknown");
    let key = Key::new("test", "gang");
    let how = gantry_reconcile::Propagation::Foreground;
    play.stage.server().delete(&AppWrapper::RESOURCE, &key, how);
    play.pass(50);
    assert_eq!(play.pods("gang").0, 1, "the node has some time to come back");
    assert!(play.object(&AppWrapper::RESOURCE, "gang").is_some(), "it waits for its pods");
    play.pass(20);
    assert_eq!(play.pods("gang").0, 0);
    assert!(play.object(&AppWrapper::RESOURCE, "gang").is_none());
}

/// Pods that have time of their own to end well have it, on nodes that answer.
#[test]
fn rq_9_pods_on_nodes_that_answer_keep_their_grace() {
    play!(play);
    let mut slow = bare("slow", 2, 1, "400m");
    slow["spec"]["resources"]["GenericItems"][0]["generictemplate"]["metadata"]["annotations"] =
        json!({"lost": "y"});
    play.create(slow);
    play.pass(70);
    assert_eq!(play.state("slow"), "Running PreemptCandidate");
    play.pass(400);
    assert_eq!(play.pods("slow").0, 1, "it is ending, and its node answers");
    assert_eq!(
        play.state("slow"),
        "Running PreemptCandidate",
        "and what it takes is still its own"
    );
    play.pass(195);
    assert_eq!((play.state("slow"), play.pods("slow").0), ("Pending Backoff".to_owned(), 0));
    assert!(play.stage.server().get(&Node::RESOURCE, &Key::cluster("a")).is_some());
    assert!(play.stage.server().list(&Pod::RESOURCE).is_empty());
}
