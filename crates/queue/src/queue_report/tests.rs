#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use std::time::Duration;

use gantry_pods::view::{Node, Pod};
use gantry_reconcile::{Controller as _, Kind};
use serde_json::{Value, json};

use super::*;
use crate::access::{self, AccessReview, AuthorRecording};
use crate::quota::Subtree;
use crate::{Dispatch, LiveSettings};

/// Returns a world of two nodes with 2 cpus each, with these objects.
fn world(wrappers: &[Value], subtrees: &[Value]) -> World {
    let world = World::new([
        Kind::of::<AppWrapper>(),
        Kind::of::<Pod>(),
        Kind::of::<Node>(),
        Kind::of::<Subtree>(),
    ]);
    for name in ["a", "b"] {
        let node = json!({"metadata": {"name": name, "resourceVersion": "1"}, "status": {
            "allocatable": {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "0"},
            "conditions": [{"type": "Ready", "status": "True"}]}});
        put::<Node>(&world, node);
    }
    wrappers.iter().for_each(|it| put::<AppWrapper>(&world, it.clone()));
    subtrees.iter().for_each(|it| put::<Subtree>(&world, it.clone()));
    world
}

fn put<V: gantry_reconcile::View>(world: &World, object: Value) {
    world.store::<V>().set(serde_json::from_value(object).unwrap());
}

fn wrapper(name: &str, priority: i32, cpu: &str, status: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"priority": priority, "resources": {"GenericItems": [
            {"custompodresources": [{"replicas": 1, "requests": {"cpu": cpu}}]}]}},
        "status": status,
    })
}

fn pending() -> Value {
    json!({"state": "Pending", "queuejobstate": "Queueing",
        "controllerfirsttimestamp": "2026-01-01T00:00:01.000000Z",
        "conditions": [{"type": "Queueing", "status": "True", "reason": "AwaitingHeadOfLine",
            "lastTransitionMicroTime": "2026-01-01T00:00:01.000000Z"}]})
}

fn running(since: &str) -> Value {
    json!({"state": "Running", "queuejobstate": "Running", "canrun": true, "running": 1,
        "controllerfirstdispatchtimestamp": since,
        "conditions": [{"type": "Dispatched", "status": "True", "lastTransitionMicroTime": since}]})
}

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

fn lines(rows: &[QueueRow]) -> Vec<String> {
    let place = |it: &QueueRow| it.position.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let wait = |it: &QueueRow| {
        let wait = it.waits_for.as_ref();
        wait.map_or_else(|| "-".to_owned(), |it| format!("{}: {}", it.reason.as_str(), it.message))
    };
    rows.iter().map(|it| format!("{} {} {}", place(it), it.name, wait(it))).collect()
}

#[test]
fn ds_9_an_authorization_problem_is_reported_for_its_author_only() {
    let by = |user: &str, name: &str, priority: i32, cpu: &str| {
        let mut object = wrapper(name, priority, cpu, pending());
        let author = json!({"username": user}).to_string();
        object["metadata"]["annotations"] = json!({crate::app_wrapper::AUTHOR_ANNOTATION: author});
        let template = json!({"apiVersion": "v1", "kind": "Pod"});
        object["spec"]["resources"]["GenericItems"][0]["generictemplate"] = template;
        object
    };
    let wrappers = [
        by("bob", "open", 9, "1"),
        wrapper("nobody", 8, "1", pending()),
        by("alice", "runs", 7, "1"),
        by("bob", "open-too", 6, "5"),
        by("alice", "large", 5, "5"),
        by("alice", "large-too", 4, "5"),
    ];
    let plain = world(&wrappers, &[]);
    let settings = Settings { user_access: crate::UserAccess::Reviewed, ..Settings::default() };
    let kinds = Dispatch::new(LiveSettings::new(settings)).kinds();
    let world = World::new(kinds);
    plain
        .store::<Node>()
        .list()
        .iter()
        .for_each(|it| drop(world.store::<Node>().set(Node::clone(it))));
    wrappers.iter().for_each(|it| put::<AppWrapper>(&world, it.clone()));
    let recording = AuthorRecording { since: Some(Timestamp::UNIX_EPOCH) };
    world.facts::<AuthorRecording>().record((), recording, now());
    let runs = world.store::<AppWrapper>().get(&Key::new("n", "runs")).unwrap();
    let asked = access::questions(&runs, crate::UserAccess::Reviewed);
    world.facts::<AccessReview>().record(asked[0].clone(), AccessReview::Allowed, now());
    let open = "Access: whether user \"bob\" may create Pod of v1 in the namespace \"n\" is being \
                checked";
    let unrecorded = "Access: its author is not recorded, so its permissions cannot be \
                      checked; create it again";
    let lacks = "Resources: cpu: needs 5, 3 available, 2 missing";
    assert_eq!(
        lines(&rows(&world, &settings, Visibility::Full, now())),
        [
            format!("1 open {open}"),
            format!("2 nobody {unrecorded}"),
            "3 runs NextCycle: there is free capacity for it".to_owned(),
            format!("4 open-too {open}"),
            format!("5 large {lacks}"),
            format!("6 large-too {lacks}"),
        ]
    );
}

#[test]
fn every_app_wrapper_is_listed_once_in_evaluation_order() {
    let world = world(
        &[
            wrapper("done", 9, "1", json!({"state": "Completed", "queuejobstate": "Completed"})),
            wrapper("runs", 1, "1", running("2026-01-01T00:05:00.000000Z")),
            wrapper("new", 9, "1", json!({})),
            wrapper("small", 1, "1", pending()),
            wrapper("large", 5, "5", pending()),
            wrapper("large-too", 4, "5", pending()),
        ],
        &[],
    );
    let rows = rows(&world, &Settings::default(), Visibility::Full, now());
    // The new one is first, and uses one of three.
    let lacks = "Resources: cpu: needs 5, 2 available, 3 missing";
    assert_eq!(
        lines(&rows),
        [
            &format!("1 large {lacks}"),
            &format!("2 large-too {lacks}"),
            "3 small NextCycle: there is free capacity for it",
            "- new Unseen: the queue has not seen it yet",
            "- runs -",
            "- done -",
        ]
    );
    assert_eq!(rows[2].expected, Some(ExpectedTime { what: ExpectedEvent::Starts, at: now() }));
    assert_eq!(rows[0].since, Some("2026-01-01T00:00:01Z".parse().unwrap()));
    assert_eq!(rows[0].expected, None, "it is unknown when others end");
}

#[test]
fn deadlines_of_others_forecast_the_start() {
    let mut limited = wrapper("limited", 1, "3", running("2026-01-01T00:05:00.000000Z"));
    limited["spec"]["schedulingSpec"] = json!({"dispatchDuration": {"limit": 600}});
    let mut long = wrapper("long", 1, "1", running("2026-01-01T00:05:00.000000Z"));
    long["spec"]["schedulingSpec"] = json!({"dispatchDuration": {"limit": 3600}});
    let waiting = [
        wrapper("first", 3, "2", pending()),
        wrapper("second", 2, "2", pending()),
        wrapper("third", 1, "9", pending()),
    ];
    let world = world(&[&[limited, long], waiting.as_slice()].concat(), &[]);
    let rows = rows(&world, &Settings::default(), Visibility::Full, now());
    let at = |row: &QueueRow| row.expected.map(|it| (it.what, it.at.to_string()));
    let after = |at: &str| Some((ExpectedEvent::StartsAfterDeadlines, at.to_owned()));
    let ends = |at: &str| Some((ExpectedEvent::EndsAtLatest, at.to_owned()));
    assert_eq!(at(&rows[0]), after("2026-01-01T00:15:00Z"));
    assert_eq!(at(&rows[1]), after("2026-01-01T01:05:00Z"), "both of them fit only then");
    assert_eq!(at(&rows[2]), None, "it never fits");
    assert_eq!(at(&rows[3]), ends("2026-01-01T00:15:00Z"));
    assert_eq!(at(&rows[4]), ends("2026-01-01T01:05:00Z"));
}

#[test]
fn a_preempted_app_wrapper_waits_for_its_backoff() {
    let mut status = pending();
    status["queuejobstate"] = json!("Backoff");
    status["conditions"] = json!([{"type": "Backoff", "status": "True", "reason": "PreemptionTriggered",
        "message": "Pods failed scheduling failed=1, running=0.",
        "lastTransitionMicroTime": "2026-01-01T00:09:50.000000Z"}]);
    let world = world(&[wrapper("back", 1, "1", status)], &[]);
    let rows = rows(&world, &Settings::default(), Visibility::Full, now());
    assert_eq!(lines(&rows), ["1 back Backoff: Pods failed scheduling failed=1, running=0."]);
    let until = "2026-01-01T00:10:10Z".parse().unwrap();
    assert_eq!(
        rows[0].expected,
        Some(ExpectedTime { what: ExpectedEvent::StartsNotBefore, at: until })
    );
    assert_eq!(
        rows[0].since,
        Some("2026-01-01T00:09:50Z".parse().unwrap()),
        "since it waits again"
    );
}

#[test]
fn the_head_of_line_is_reported_to_pending_app_wrappers() {
    let settings = Settings { holding: Duration::from_secs(60), ..Settings::default() };
    let mut head = pending();
    head["queuejobstate"] = json!("HeadOfLine");
    head["conditions"] = json!([{"type": "HeadOfLine", "status": "True", "reason": "FrontOfQueue.",
        "lastTransitionMicroTime": "2026-01-01T00:09:30.000000Z"}]);
    let behind = wrapper("behind", 1, "1", pending());
    let world = world(&[wrapper("large", 5, "5", head), behind], &[]);
    let rows = rows(&world, &settings, Visibility::Full, now());
    assert_eq!(
        lines(&rows),
        [
            "1 large Resources: cpu: needs 5, 4 available, 1 missing",
            "2 behind HeadOfLine: AppWrapper n/large holds the head of the line",
        ]
    );
    let until = Some("2026-01-01T00:10:30Z".parse().unwrap());
    assert_eq!([0, 1].map(|at: usize| rows[at].waits_for.as_ref().unwrap().until), [until; 2]);
}

fn subtree(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "n", "labels": {"tree": "team"}}, "spec": spec})
}

fn trees() -> Vec<Value> {
    vec![
        subtree("root", json!({"children": [{"name": "all", "quotas": {"requests": {"cpu": 2}}}]})),
        subtree(
            "leaves",
            json!({"parent": "all", "children": [
                {"name": "gold", "quotas": {"requests": {"cpu": 2}}},
                {"name": "default", "quotas": {"requests": {"cpu": 0}}}]}),
        ),
    ]
}

fn labelled(mut wrapper: Value, node: &str) -> Value {
    wrapper["metadata"]["labels"] = json!({"team": node});
    wrapper
}

#[test]
fn missing_quota_and_missing_capacity_are_distinguished() {
    let settings = Settings { quota: true, preemption: true, ..Settings::default() };
    let runs = wrapper("runs", 1, "1500m", running("2026-01-01T00:05:00.000000Z"));
    let table = [
        ("its labels come first", wrapper("w", 1, "1", pending()), "Labels", "team=default"),
        (
            "an owner gets it back",
            labelled(wrapper("w", 1, "1", pending()), "gold"),
            "Victims",
            "n/runs must be preempted for it",
        ),
        (
            "one that owns nothing does not",
            labelled(wrapper("w", 1, "1", pending()), "default"),
            "Quota",
            "lacks 500m of cpu",
        ),
        (
            "a node must exist",
            labelled(wrapper("w", 1, "1", pending()), "silver"),
            "Quota",
            "quota tree team has no node \"silver\"",
        ),
    ];
    for (why, waiting, reason, message) in table {
        let world = world(&[labelled(runs.clone(), "default"), waiting], &trees());
        let rows = rows(&world, &settings, Visibility::Full, now());
        let wait = rows[0].waits_for.as_ref().unwrap();
        assert_eq!(wait.reason.as_str(), reason, "{why}: {wait:?}");
        assert!(wait.message.contains(message), "{why}: {wait:?}");
    }
}

#[test]
fn unrelated_labels_do_not_change_the_wait_reason() {
    let settings = Settings { quota: true, preemption: true, ..Settings::default() };
    let mut all = vec![wrapper("runs", 1, "1500m", running("2026-01-01T00:05:00.000000Z"))];
    all.extend(["v", "w"].map(|name| wrapper(name, 1, "1", pending())));
    let all: Vec<Value> = all
        .into_iter()
        .map(|it| {
            let mut labelled = labelled(it, "default");
            labelled["metadata"]["labels"]["app"] = labelled["metadata"]["name"].clone();
            labelled
        })
        .collect();
    let rows = rows(&world(&all, &trees()), &settings, Visibility::Full, now());
    let words = rows[..2].iter().map(|it| it.waits_for.as_ref().unwrap().reason.as_str());
    assert_eq!(words.collect::<Vec<_>>(), ["Quota", "Quota"]);
}

#[test]
fn without_nodes_the_reported_status_is_shown() {
    let mut status = pending();
    status["queuejobstate"] = json!("Backoff");
    status["message"] = json!("cpu: needs 9, 1 available, 8 missing");
    status["conditions"] = json!([{"type": "Backoff", "status": "True", "reason": "quota limit exceeded",
        "lastTransitionMicroTime": "2026-01-01T00:09:50.000000Z"}]);
    let world = world(&[wrapper("w", 1, "1", status), wrapper("x", 0, "1", pending())], &[]);
    let rows = rows(&world, &Settings::default(), Visibility::StatusOnly, now());
    assert_eq!(
        lines(&rows),
        [
            "1 w Quota: cpu: needs 9, 1 available, 8 missing",
            "2 x NextCycle: no reason is reported yet",
        ]
    );
}

#[test]
fn app_wrappers_from_files_are_initialized() {
    let settings = Settings { quota: true, ..Settings::default() };
    let world = world(
        &[wrapper("one", 1, "1", json!({})), labelled(wrapper("two", 2, "1", json!({})), "gold")],
        &trees(),
    );
    initialize_unseen(&world, &settings, now());
    let rows = rows(&world, &settings, Visibility::Full, now());
    assert_eq!(
        lines(&rows),
        [
            "1 two NextCycle: there is free capacity for it",
            "2 one NextCycle: there is free capacity for it"
        ]
    );
    let one = world.store::<AppWrapper>().get(&Key::new("n", "one")).unwrap();
    assert_eq!(one.metadata.labels["team"], "default");
}

#[test]
fn dispatched_app_wrappers_report_pod_problems() {
    let mut short = wrapper("short", 0, "1", running("2026-01-01T00:05:00.000000Z"));
    short["spec"]["schedulingSpec"] = json!({"minAvailable": 3});
    let mut leaving = running("2026-01-01T00:05:00.000000Z");
    leaving["queuejobstate"] = json!("Preempted");
    leaving["message"] = json!("Quota was reclaimed by AppWrapper n/x.");
    let mut items = pending();
    items["canrun"] = json!(true);
    let mut holds = running("2026-01-01T00:05:00.000000Z");
    holds["state"] = json!("RunningHoldCompletion");
    let world = world(
        &[
            short,
            wrapper("leaving", 0, "1", leaving),
            wrapper("items", 0, "1", items),
            wrapper("holds", 0, "1", holds),
        ],
        &[],
    );
    let rows = rows(&world, &Settings::default(), Visibility::Full, now());
    let removed = "its objects are being removed: Quota was reclaimed by AppWrapper n/x.";
    assert_eq!(
        lines(&rows),
        [
            "- items Items: its items are being created",
            &format!("- leaving Removal: {removed}"),
            "- short Pods: 1 of 3 pods run or have succeeded",
            "- holds Pods: its items are complete, and 1 of its pods run or wait",
        ]
    );
    let next = rows[2].waits_for.as_ref().unwrap().until;
    assert_eq!(next, Some("2026-01-01T00:11:00Z".parse().unwrap()), "at the next check");
}
