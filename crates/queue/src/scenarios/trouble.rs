//! What is done when the server says no, or nothing, or somebody else was first.

use std::cell::Cell;
use std::rc::Rc;

use gantry_pods::view::Pod;
use gantry_reconcile::{Controller as _, Key, Outcome, Refusal, View as _, World, Write};
use jiff::Timestamp;
use serde_json::json;

use super::cluster::{
    Cast, DEPLOYMENTS, Following, JOBS, Play, SERVED, deployment, fixture_a, item, scenario,
    template, wrap,
};
use crate::app_wrapper::AppWrapper;
use crate::dispatch::LABEL;
use crate::{Live, Progress, Settings, kind_discovery};

macro_rules! play {
    ($play:ident) => {
        let cast = Cast::new(Settings::default());
        let controllers = cast.all();
        let scenario = scenario(&controllers, fixture_a());
        let mut $play = Play::new(&scenario);
    };
}

fn makes_deployment(write: &Write) -> bool {
    matches!(write, Write::Create { resource, .. } if *resource == DEPLOYMENTS)
}

#[test]
fn c_1_what_is_refused_fails_at_once_and_with_the_servers_words() {
    play!(play);
    play.stage.server().intercept(|write| {
        let refusal =
            Refusal { code: 403, reason: "Forbidden".to_owned(), message: "not you".to_owned() };
        makes_deployment(write).then_some(Outcome::Refused(refusal))
    });
    play.create(deployment("one", 1, "100m"));
    assert_eq!(play.state("one"), "Failed Failed");
    assert_eq!(play.status("one")["message"], "test/one creation failure: not you");
    assert_eq!(play.status("one")["conditions"][3]["reason"], "ItemCreationFailure.");
    let told: Vec<String> = play.stage.told().iter().map(|it| it.reason.to_string()).collect();
    assert_eq!(told, ["Dispatching", "ItemCreationFailure", "Failed"]);
}

#[test]
fn c_1_what_is_not_answered_is_tried_for_a_minute() {
    for (silent, expected) in [(50, "Running Running"), (90, "Failed Failed")] {
        play!(play);
        let now = Rc::new(Cell::new(true));
        let is_silent = Rc::clone(&now);
        play.stage.server().intercept(move |write| {
            let silent = makes_deployment(write) && is_silent.get();
            silent.then(|| Outcome::Unanswered("no".to_owned()))
        });
        play.create(deployment("one", 1, "100m"));
        assert_eq!(play.state("one"), "Pending HeadOfLine");
        play.pass(silent);
        now.set(false);
        play.pass(60);
        assert_eq!(play.state("one"), expected, "silent for {silent} seconds");
    }
}

/// A turn may come late, after a death or behind a crowd. What nobody has tried yet is tried then, together
/// with saying so: who comes next may give it up.
#[test]
fn c_1_what_nobody_tried_is_not_given_up() {
    let progress = Following(Progress::new(Live::new(Settings::default())));
    let world = World::new(progress.kinds());
    kind_discovery::record(&world, SERVED, Timestamp::MIN);
    let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
    let mut wrapper = deployment("one", 1, "100m");
    wrapper["metadata"]["uid"] = json!("u");
    wrapper["metadata"]["resourceVersion"] = json!("1");
    wrapper["status"] = json!({
        "state": "Pending", "queuejobstate": "HeadOfLine", "canrun": true,
        "conditions": [{
            "type": "HeadOfLine", "status": "True", "reason": "FrontOfQueue.",
            "lastTransitionMicroTime": at(0), "lastUpdateMicroTime": at(0),
        }],
    });
    world.find(&AppWrapper::RESOURCE).unwrap().saw(&wrapper.to_string()).unwrap();
    for (seconds, expected) in [(29, vec!["create"]), (31, vec!["create", "patch"])] {
        let plan = progress.plan(&world, &Key::new("test", "one"), at(seconds));
        let verbs: Vec<&str> = plan.steps.iter().map(|it| it.write.verb()).collect();
        assert_eq!(verbs, expected, "after {seconds} seconds");
        assert!(makes_deployment(&plan.steps[0].write));
    }
}

#[test]
fn ds_6_what_is_not_ours_is_left_alone() {
    play!(play);
    let mut foreign = template(&DEPLOYMENTS, "one-d", 0, "0", json!({}));
    foreign["metadata"]["labels"] = json!({LABEL: "one", "resourceName": "one-d"});
    play.stage.server().create(&DEPLOYMENTS, foreign);
    play.create(deployment("one", 1, "100m"));
    assert_eq!(play.state("one"), "Failed Failed");
    let said = play.status("one")["message"].as_str().unwrap().to_owned();
    assert!(
        said.ends_with(
            "deployments.apps \"one-d\" already exists and does not belong to this AppWrapper"
        ),
        "{said}"
    );
    assert!(play.object(&DEPLOYMENTS, "one-d").is_some());
}

#[test]
fn ds_6_what_is_ours_already_counts_as_made() {
    play!(play);
    // Nothing fits yet, so nothing is made.
    play.create(deployment("one", 1, "4"));
    let uid = play.object(&AppWrapper::RESOURCE, "one").unwrap()["metadata"]["uid"].clone();
    let mut ours = template(&DEPLOYMENTS, "one-d", 1, "100m", json!({}));
    ours["metadata"]["labels"] = json!({LABEL: "one"});
    ours["metadata"]["ownerReferences"] = json!([{"apiVersion": "workload.codeflare.dev/v1beta1",
        "kind": "AppWrapper", "name": "one", "uid": uid, "controller": true}]);
    play.stage.server().create(&DEPLOYMENTS, ours.clone());
    play.pass(20);
    assert!(play.object(&DEPLOYMENTS, "one-d").is_some(), "there may be news that make it right");
    play.pass(20);
    assert_eq!(play.object(&DEPLOYMENTS, "one-d"), None, "what comes before its time goes");
}

#[test]
fn rq_6_a_requeuing_removes_what_has_finished_too() {
    play!(play);
    let done = item(template(&JOBS, "done-j", 1, "100m", json!({"seconds": "5", "job": "y"})));
    let never = item(template(&JOBS, "never-j", 1, "100m", json!({"init": "100000"})));
    let rule = json!({"timeInSeconds": 60});
    let spec = json!({"schedulingSpec": {"minAvailable": 2, "requeuing": rule}});
    play.create(wrap("one", spec, vec![done, never]));
    let first = play.object(&JOBS, "done-j").unwrap()["metadata"]["uid"].clone();
    play.pass(70);
    assert_eq!(play.status("one")["numberOfRequeueings"], 1);
    assert_eq!((play.object(&JOBS, "done-j"), play.pods("one")), (None, (0, 0)));
    play.pass(20);
    let second = play.object(&JOBS, "done-j").unwrap()["metadata"]["uid"].clone();
    assert_ne!(first, second, "it is made anew");
}

#[test]
fn rq_7_who_no_node_takes_is_taken_back_only_without_a_minimum() {
    for (minimum, reason) in [(0, "PodsFailedScheduling"), (1, "MinPodsNotRunning")] {
        play!(play);
        let mut large = item(template(&DEPLOYMENTS, "d", 1, "1700m", json!({})));
        large["custompodresources"] = json!([{"replicas": 1, "requests": {"cpu": "1700m"}}]);
        play.create(wrap(
            "large",
            json!({"schedulingSpec": {"minAvailable": minimum}}),
            vec![large],
        ));
        assert_eq!(play.pods("large"), (1, 0));
        assert!(play.status("large")["pendingpodconditions"][0]["podname"].is_string());
        play.pass(290);
        assert!(
            !play.reasons("large").contains(&"PreemptionTriggered".to_owned()),
            "the wait is 300 s"
        );
        play.pass(30);
        assert!(play.reasons("large").contains(&reason.to_owned()), "{reason}");
        let count = play.status("large")["numberOfRequeueings"].as_i64().unwrap_or_default();
        assert_eq!(count, i64::from(minimum > 0), "T14 does not count");
    }
}

#[test]
fn pods_that_stay_are_not_waited_for_for_ever() {
    play!(play);
    let never = item(template(&JOBS, "j", 1, "100m", json!({"init": "100000"})));
    let rule = json!({"timeInSeconds": 60, "maxNumRequeuings": 1, "numRequeuings": 1});
    play.create(wrap(
        "one",
        json!({"schedulingSpec": {"minAvailable": 2, "requeuing": rule}}),
        vec![never],
    ));
    // Somebody else's pod carries the label by mistake.
    let stray = json!({"metadata": {"name": "stray", "namespace": "test", "labels": {LABEL: "one"}},
        "spec": {"containers": []}});
    play.stage.server().create(&Pod::RESOURCE, stray);
    play.pass(120);
    assert_eq!(play.state("one"), "Running PreemptCandidate", "it still holds its reservation");
    assert!(play.stage.held().iter().any(|it| it.reason == "PodsRemain"));
    play.pass(300);
    assert_eq!(play.state("one"), "Deleted Deleted");
    assert!(play.object(&Pod::RESOURCE, "stray").is_some(), "it is not ours to remove");
}

#[test]
fn co_6_counts_follow_the_pods() {
    play!(play);
    play.create(deployment("one", 3, "100m"));
    assert_eq!(
        (play.status("one")["running"].clone(), play.status("one")["totalcpu"].clone()),
        (json!(3), json!(300))
    );
    let key = Key::new("test", "one-d-1");
    play.stage.server().edit(&Pod::RESOURCE, &key, |pod| pod["status"]["phase"] = json!("Failed"));
    play.pass(2);
    let status = play.status("one");
    assert_eq!((&status["running"], &status["failed"]), (&json!(2), &json!(1)));
}
