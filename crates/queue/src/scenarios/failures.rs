//! Behavior when the server refuses, does not answer, or another writer was first.

use std::cell::Cell;
use std::rc::Rc;

use gantry_pods::view::Pod;
use gantry_reconcile::{Controller as _, Key, Outcome, Refusal, View as _, World, Write};
use jiff::Timestamp;
use serde_json::json;

use super::cluster::{
    DEPLOYMENTS, JOBS, ProgressWithKinds, SERVED, Simulation, TestControllers, deployment,
    fixture_a, item, scenario, template, wrap,
};
use crate::app_wrapper::AppWrapper;
use crate::item_objects::APP_WRAPPER_LABEL;
use crate::{LiveSettings, Progress, Settings, kind_discovery};

macro_rules! simulation {
    ($sim:ident) => {
        let cast = TestControllers::new(Settings::default());
        let controllers = cast.all();
        let scenario = scenario(&controllers, fixture_a());
        let mut $sim = Simulation::new(&scenario);
    };
}

fn makes_deployment(write: &Write) -> bool {
    matches!(write, Write::Create { resource, .. } if *resource == DEPLOYMENTS)
}

#[test]
fn c_1_what_is_refused_fails_at_once_and_with_the_servers_words() {
    simulation!(sim);
    sim.run.server().intercept(|write| {
        let refusal =
            Refusal { code: 403, reason: "Forbidden".to_owned(), message: "not you".to_owned() };
        makes_deployment(write).then_some(Outcome::Refused(refusal))
    });
    sim.create(deployment("one", 1, "100m"));
    assert_eq!(sim.state("one"), "Failed Failed");
    assert_eq!(sim.status("one")["message"], "test/one creation failure: not you");
    assert_eq!(sim.status("one")["conditions"][3]["reason"], "ItemCreationFailure.");
    let told: Vec<String> = sim.run.take_events().iter().map(|it| it.reason.to_string()).collect();
    assert_eq!(told, ["Dispatching", "ItemCreationFailure", "Failed"]);
}

#[test]
fn c_1_what_is_not_answered_is_tried_for_a_minute() {
    for (silent, expected) in [(50, "Running Running"), (90, "Failed Failed")] {
        simulation!(sim);
        let now = Rc::new(Cell::new(true));
        let is_silent = Rc::clone(&now);
        sim.run.server().intercept(move |write| {
            let silent = makes_deployment(write) && is_silent.get();
            silent.then(|| Outcome::Unknown("no".to_owned()))
        });
        sim.create(deployment("one", 1, "100m"));
        assert_eq!(sim.state("one"), "Pending HeadOfLine");
        sim.advance(silent);
        now.set(false);
        sim.advance(60);
        assert_eq!(sim.state("one"), expected, "silent for {silent} seconds");
    }
}

/// A cycle may be late, after a crash or under load. Items that were not tried yet are tried then,
/// together with the report: the next cycle may give up.
#[test]
fn c_1_items_are_not_given_up_before_they_were_tried() {
    let progress = ProgressWithKinds(Progress::new(LiveSettings::new(Settings::default())));
    let world = World::new(progress.kinds());
    kind_discovery::record_served(&world, SERVED, Timestamp::MIN);
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
    world.single_store_for(&AppWrapper::RESOURCE).unwrap().observe(&wrapper.to_string()).unwrap();
    for (seconds, expected) in [(29, vec!["create"]), (31, vec!["create", "patch"])] {
        let plan = progress.plan(&world, &Key::new("test", "one"), at(seconds));
        let verbs: Vec<&str> = plan.steps.iter().map(|it| it.write.verb()).collect();
        assert_eq!(verbs, expected, "after {seconds} seconds");
        assert!(makes_deployment(&plan.steps[0].write));
    }
}

#[test]
fn ds_6_what_is_not_ours_is_left_alone() {
    simulation!(sim);
    let mut foreign = template(&DEPLOYMENTS, "one-d", 0, "0", json!({}));
    foreign["metadata"]["labels"] = json!({APP_WRAPPER_LABEL: "one", "resourceName": "one-d"});
    sim.run.server().create(&DEPLOYMENTS, foreign);
    sim.create(deployment("one", 1, "100m"));
    assert_eq!(sim.state("one"), "Failed Failed");
    let said = sim.status("one")["message"].as_str().unwrap().to_owned();
    assert!(
        said.ends_with(
            "deployments.apps \"one-d\" already exists and does not belong to this AppWrapper"
        ),
        "{said}"
    );
    assert!(sim.object(&DEPLOYMENTS, "one-d").is_some());
}

#[test]
fn ds_6_what_is_ours_already_counts_as_made() {
    simulation!(sim);
    // Nothing fits yet, so nothing is created.
    sim.create(deployment("one", 1, "4"));
    let uid = sim.object(&AppWrapper::RESOURCE, "one").unwrap()["metadata"]["uid"].clone();
    let mut ours = template(&DEPLOYMENTS, "one-d", 1, "100m", json!({}));
    ours["metadata"]["labels"] = json!({APP_WRAPPER_LABEL: "one"});
    ours["metadata"]["ownerReferences"] = json!([{"apiVersion": "workload.codeflare.dev/v1beta1",
        "kind": "AppWrapper", "name": "one", "uid": uid, "controller": true}]);
    sim.run.server().create(&DEPLOYMENTS, ours.clone());
    sim.advance(20);
    assert!(sim.object(&DEPLOYMENTS, "one-d").is_some(), "there may be news that make it right");
    sim.advance(20);
    assert_eq!(sim.object(&DEPLOYMENTS, "one-d"), None, "what comes before its time goes");
}

#[test]
fn rq_6_a_requeuing_removes_what_has_finished_too() {
    simulation!(sim);
    let done = item(template(&JOBS, "done-j", 1, "100m", json!({"seconds": "5", "job": "y"})));
    let never = item(template(&JOBS, "never-j", 1, "100m", json!({"init": "100000"})));
    let rule = json!({"timeInSeconds": 60});
    let spec = json!({"schedulingSpec": {"minAvailable": 2, "requeuing": rule}});
    sim.create(wrap("one", spec, vec![done, never]));
    let first = sim.object(&JOBS, "done-j").unwrap()["metadata"]["uid"].clone();
    sim.advance(70);
    assert_eq!(sim.status("one")["numberOfRequeueings"], 1);
    assert_eq!((sim.object(&JOBS, "done-j"), sim.pods("one")), (None, (0, 0)));
    sim.advance(20);
    let second = sim.object(&JOBS, "done-j").unwrap()["metadata"]["uid"].clone();
    assert_ne!(first, second, "it is recreated");
}

#[test]
fn rq_7_unschedulable_pods_evict_only_without_a_minimum() {
    for (minimum, reason) in [(0, "PodsFailedScheduling"), (1, "MinPodsNotRunning")] {
        simulation!(sim);
        let mut large = item(template(&DEPLOYMENTS, "d", 1, "1700m", json!({})));
        large["custompodresources"] = json!([{"replicas": 1, "requests": {"cpu": "1700m"}}]);
        sim.create(wrap(
            "large",
            json!({"schedulingSpec": {"minAvailable": minimum}}),
            vec![large],
        ));
        assert_eq!(sim.pods("large"), (1, 0));
        assert!(sim.status("large")["pendingpodconditions"][0]["podname"].is_string());
        sim.advance(290);
        assert!(
            !sim.reasons("large").contains(&"PreemptionTriggered".to_owned()),
            "the wait is 300 s"
        );
        sim.advance(30);
        assert!(sim.reasons("large").contains(&reason.to_owned()), "{reason}");
        let count = sim.status("large")["numberOfRequeueings"].as_i64().unwrap_or_default();
        assert_eq!(count, i64::from(minimum > 0), "T14 does not count");
    }
}

#[test]
fn waiting_for_pods_is_bounded() {
    simulation!(sim);
    let never = item(template(&JOBS, "j", 1, "100m", json!({"init": "100000"})));
    let rule = json!({"timeInSeconds": 60, "maxNumRequeuings": 1, "numRequeuings": 1});
    sim.create(wrap(
        "one",
        json!({"schedulingSpec": {"minAvailable": 2, "requeuing": rule}}),
        vec![never],
    ));
    // A pod of a user carries the label by mistake.
    let stray = json!({
        "metadata": {
            "name": "stray", "namespace": "test", "labels": {APP_WRAPPER_LABEL: "one"},
        },
        "spec": {"containers": []},
    });
    sim.run.server().create(&Pod::RESOURCE, stray);
    sim.advance(120);
    assert_eq!(sim.state("one"), "Running PreemptCandidate", "it still holds its reservation");
    assert!(sim.run.held().iter().any(|it| it.reason == "PodsRemain"));
    sim.advance(300);
    assert_eq!(sim.state("one"), "Deleted Deleted");
    assert!(sim.object(&Pod::RESOURCE, "stray").is_some(), "it is not ours to remove");
}

#[test]
fn co_6_counts_follow_the_pods() {
    simulation!(sim);
    sim.create(deployment("one", 3, "100m"));
    assert_eq!(
        (sim.status("one")["running"].clone(), sim.status("one")["totalcpu"].clone()),
        (json!(3), json!(300))
    );
    let key = Key::new("test", "one-d-1");
    sim.run.server().edit(&Pod::RESOURCE, &key, |pod| pod["status"]["phase"] = json!("Failed"));
    sim.advance(2);
    let status = sim.status("one");
    assert_eq!((&status["running"], &status["failed"]), (&json!(2), &json!(1)));
}
