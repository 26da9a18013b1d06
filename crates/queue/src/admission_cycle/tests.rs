#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use proptest::prelude::*;
use serde_json::{Value, json};

use gantry_pods::view::{Node, Pod};
use gantry_reconcile::{View as _, Write};

use super::reporting::MAX_REPORTS;
use super::*;
use crate::item_objects::APP_WRAPPER_LABEL;
use crate::quota::Subtree;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn world() -> World {
    World::new(Dispatch::default().kinds())
}

/// Adds an object to a world, and returns the change.
fn show(
    world: &World,
    dispatch: &Dispatch,
    resource: &gantry_reconcile::Resource,
    object: &Value,
) -> bool {
    let store = world.single_store_for(resource).unwrap();
    let change = store.observe(&object.to_string()).unwrap();
    change.is_some_and(|it| enqueues(world, dispatch, &it))
}

/// Returns whether a change makes a cycle due that was not due before.
fn enqueues(world: &World, dispatch: &Dispatch, change: &Change) -> bool {
    world.derived::<CycleDue>().0.store(false, Ordering::Release);
    dispatch.cache.observe(world, change);
    !dispatch.enqueue(world, change).is_empty()
}

fn end(
    world: &World,
    dispatch: &Dispatch,
    resource: &gantry_reconcile::Resource,
    object: &Value,
) -> bool {
    let store = world.single_store_for(resource).unwrap();
    let change = store.observe_deletion(&object.to_string()).unwrap();
    change.is_some_and(|it| enqueues(world, dispatch, &it))
}

fn wrapper(name: &str, revision: u64, priority: i64, cpu: i64, status: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": revision.to_string(),
                     "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"priority": priority, "resources": {"GenericItems": [
            {"custompodresources": [{"replicas": 1, "requests": {"cpu": cpu}}]}]}},
        "status": status,
    })
}

fn node(name: &str, revision: u64, cpu: i64) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": revision.to_string()},
        "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pod(name: &str, revision: u64, node: &str, cpu: i64, phase: &str, wrapper: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {APP_WRAPPER_LABEL: wrapper},
                     "resourceVersion": revision.to_string()},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    })
}

fn pending() -> Value {
    json!({"state": "Pending", "queuejobstate": "Queueing"})
}

/// Returns the names of admitted AppWrappers, and of those whose wait is reported.
fn decided(plan: &Plan) -> (Vec<String>, Vec<String>) {
    let (mut admitted, mut reported) = (Vec::new(), Vec::new());
    for step in &plan.steps {
        let Write::Merge { key, body, .. } = &step.write else { panic!("{step:?}") };
        let list = if body["status"]["canrun"] == true { &mut admitted } else { &mut reported };
        list.push(key.name().to_owned());
    }
    (admitted, reported)
}

#[test]
fn one_cycle_admits_all_that_fit_together() {
    let (world, dispatch) = (world(), Dispatch::default());
    show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 10));
    for (at, (name, priority, cpu)) in
        [("low", 1, 2), ("big", 9, 7), ("mid", 5, 4), ("tiny", 0, 1)].into_iter().enumerate()
    {
        let object = wrapper(name, 10 + u64::try_from(at).unwrap(), priority, cpu, pending());
        assert!(
            show(&world, &dispatch, &AppWrapper::RESOURCE, &object),
            "a new AppWrapper makes a cycle due"
        );
    }
    let plan = dispatch.plan(&world, &Dispatch::queue_key(), at(1_800_000_000));
    let (admitted, reported) = decided(&plan);
    assert_eq!(admitted, ["big", "low", "tiny"], "by priority, skipping those that do not fit");
    assert_eq!(reported, ["mid"]);
    assert_eq!(plan.held.len(), 1);
    assert_eq!(plan.held[0].message, "cpu: needs 4, 3 available, 1 missing");
}

#[test]
fn lower_priority_counts_as_free_with_preemption() {
    for (preemption, expected) in [(false, vec![]), (true, vec!["high".to_owned()])] {
        let live = LiveSettings::new(Settings { preemption, ..Settings::default() });
        let (world, dispatch) = (world(), Dispatch::new(live));
        show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 10));
        let running = json!({"state": "Running", "queuejobstate": "Running", "canrun": true});
        show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("old", 2, 1, 9, running));
        show(&world, &dispatch, &Pod::RESOURCE, &pod("p", 3, "a", 9, "Running", "old"));
        show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("same", 4, 1, 5, pending()));
        show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("high", 5, 2, 5, pending()));
        let plan = dispatch.plan(&world, &Dispatch::queue_key(), at(1_800_000_000));
        assert_eq!(decided(&plan).0, expected, "preemption: {preemption}");
    }
}

#[test]
fn only_changes_that_may_admit_enqueue_the_queue() {
    let (world, dispatch) = (world(), Dispatch::default());
    let wakes = |resource: &gantry_reconcile::Resource, object: Value| {
        show(&world, &dispatch, resource, &object)
    };
    assert!(wakes(&Node::RESOURCE, node("a", 1, 10)), "a node");
    assert!(!wakes(&Node::RESOURCE, node("a", 2, 10)), "that says it lives");
    assert!(wakes(&Node::RESOURCE, node("a", 3, 11)), "and grows");
    let admitted = json!({"state": "Pending", "queuejobstate": "HeadOfLine", "canrun": true});
    assert!(!wakes(&AppWrapper::RESOURCE, wrapper("w", 4, 0, 5, admitted)), "an admitted one");
    assert!(!wakes(&Pod::RESOURCE, pod("p", 5, "a", 5, "Pending", "w")), "a pod that came");
    assert!(!wakes(&Pod::RESOURCE, pod("p", 6, "a", 5, "Running", "w")), "and runs");
    assert!(wakes(&Pod::RESOURCE, pod("p", 7, "a", 5, "Succeeded", "w")), "and ends");
    let done = json!({"state": "Completed", "queuejobstate": "Completed"});
    assert!(!wakes(&AppWrapper::RESOURCE, wrapper("w", 8, 0, 5, done)), "nothing more was held");
    assert!(wakes(&AppWrapper::RESOURCE, wrapper("v", 9, 0, 5, pending())), "one that waits");
    let parked = json!({"state": "Pending", "queuejobstate": "Backoff", "conditions": [
        {"type": "Backoff", "status": "True", "reason": "AppWrapperNotRunnable."}]});
    assert!(
        !wakes(&AppWrapper::RESOURCE, wrapper("v", 10, 0, 5, parked.clone())),
        "and has a reported reason"
    );
    assert!(
        wakes(&AppWrapper::RESOURCE, wrapper("v", 11, 3, 5, parked)),
        "and is more important now"
    );
    assert!(
        end(&world, &dispatch, &Node::RESOURCE, &node("a", 12, 11))
            || world.store::<Node>().is_empty()
    );
}

#[test]
fn equal_app_wrappers_are_evaluated_once() {
    let (world, dispatch) = (world(), Dispatch::default());
    show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 10));
    for number in 0..500_u64 {
        let object = wrapper(&format!("w{number:03}"), 10 + number, 0, 3, pending());
        show(&world, &dispatch, &AppWrapper::RESOURCE, &object);
    }
    let plan = dispatch.plan(&world, &Dispatch::queue_key(), at(1_800_000_000));
    let (admitted, reported) = decided(&plan);
    assert_eq!((admitted.len(), reported.len(), plan.held.len()), (3, MAX_REPORTS.1, 1));
    assert_eq!(plan.requeue_after, Some(Duration::ZERO), "the others are reported next");
}

#[derive(Clone, Debug)]
enum Event {
    Wrapper(usize, Option<(i64, i64, usize)>),
    Node(usize, Option<i64>),
    Pod(usize, Option<(usize, i64, usize, usize)>),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..5_usize, prop::option::weighted(0.8, (0..3_i64, 1..3_i64, 0..6_usize)))
            .prop_map(|(at, it)| Event::Wrapper(at, it)),
        (0..3_usize, prop::option::weighted(0.8, 1..9_i64))
            .prop_map(|(at, it)| Event::Node(at, it)),
        (0..6_usize, prop::option::weighted(0.7, (0..3_usize, 1..3_i64, 0..3_usize, 0..5_usize)))
            .prop_map(|(at, it)| Event::Pod(at, it)),
    ]
}

fn object(event: &Event, revision: u64) -> (gantry_reconcile::Resource, Value, bool) {
    match event {
        Event::Wrapper(at, it) => {
            let time = |second: u64| format!("2026-01-01T00:00:{:02}.000000Z", second % 60);
            let statuses = [
                json!({}),
                json!({"state": "Pending", "queuejobstate": "Queueing", "controllerfirsttimestamp": time(revision)}),
                json!({"state": "Pending", "queuejobstate": "HeadOfLine"}),
                json!({"state": "Pending", "queuejobstate": "Backoff", "conditions": [
                    {"type": "Backoff", "status": "True", "reason": "PreemptionTriggered", "lastTransitionMicroTime": time(revision)}]}),
                json!({"state": "Running", "queuejobstate": "Running", "canrun": true}),
                json!({"state": "Completed", "queuejobstate": "Completed"}),
            ];
            let (priority, cpu, status) = it.unwrap_or_default();
            let object =
                wrapper(&format!("w{at}"), revision, priority, cpu, statuses[status].clone());
            (AppWrapper::RESOURCE, object, it.is_some())
        }
        Event::Node(at, it) => (
            Node::RESOURCE,
            node(&format!("n{at}"), revision, it.unwrap_or_default()),
            it.is_some(),
        ),
        Event::Pod(at, it) => {
            let (on, cpu, phase, of) = it.unwrap_or_default();
            let phase = ["Pending", "Running", "Succeeded"][phase];
            let object =
                pod(&format!("p{at}"), revision, &format!("n{on}"), cpu, phase, &format!("w{of}"));
            (Pod::RESOURCE, object, it.is_some())
        }
    }
}

proptest! {
    /// Whatever the history of changes, the cache equals one built from the current world.
    #[test]
    fn the_cache_follows_from_the_world(
        events in prop::collection::vec(event(), 0..60),
        preemption in any::<bool>(),
        wake_on_release in any::<bool>(),
    ) {
        let settings = Settings { preemption, wake_on_release, ..Settings::default() };
        let (world, dispatch) = (world(), Dispatch::new(LiveSettings::new(settings)));
        for (revision, event) in (1..).zip(&events) {
            let (resource, object, is_there) = object(event, revision);
            match is_there {
                true => { show(&world, &dispatch, &resource, &object); }
                false => { end(&world, &dispatch, &resource, &object); }
            }
        }
        let now = "2026-01-01T00:00:50Z".parse().unwrap();
        let mut fresh = QueueCache::of(&world, &settings);
        fresh.end_backoffs(&world, &settings, now);
        let kept = world.derived::<Mutex<QueueCache>>();
        let mut cache = lock_cache(&kept);
        cache.rebuild_if_changed(&world, &settings);
        cache.end_backoffs(&world, &settings, now);
        prop_assert_eq!(&*cache, &fresh);
    }
}

#[test]
fn namespaces_take_turns_with_fairness() {
    for (fairness, expected) in [(false, ["a0", "a1", "a2"]), (true, ["a0", "b0", "a1"])] {
        let live = LiveSettings::new(Settings { fairness, ..Settings::default() });
        let (world, dispatch) = (world(), Dispatch::new(live));
        show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 3));
        // Names decide among equals, so all of one namespace come before the other.
        for (at, name) in ["a0", "a1", "a2", "b0"].into_iter().enumerate() {
            let mut object = wrapper(name, 10 + u64::try_from(at).unwrap(), 0, 1, pending());
            object["metadata"]["namespace"] = json!(&name[..1]);
            show(&world, &dispatch, &AppWrapper::RESOURCE, &object);
        }
        let plan = dispatch.plan(&world, &Dispatch::queue_key(), at(1_800_000_000));
        assert_eq!(decided(&plan).0, expected, "fairness: {fairness}");
    }
}

#[test]
fn the_namespace_with_least_is_next_after_priority() {
    let live = LiveSettings::new(Settings { fairness: true, ..Settings::default() });
    let (world, dispatch) = (world(), Dispatch::new(live));
    show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 4));
    let show_one = |name: &str, revision: u64, priority: i64, status: Value| {
        let mut object = wrapper(name, revision, priority, 1, status);
        object["metadata"]["namespace"] = json!(&name[..1]);
        show(&world, &dispatch, &AppWrapper::RESOURCE, &object);
    };
    show_one("a0", 2, 0, json!({"state": "Running", "canrun": true}));
    show_one("a1", 3, 0, pending());
    show_one("b0", 4, 0, pending());
    show_one("b1", 5, 0, pending());
    show_one("a2", 6, 7, pending());
    let plan = dispatch.plan(&world, &Dispatch::queue_key(), at(1_800_000_000));
    assert_eq!(decided(&plan).0, ["a2", "b0", "b1"], "priority first, then the smaller share");
}

#[test]
fn fragmented_capacity_is_reported() {
    let live = LiveSettings::new(Settings { packing_check: true, ..Settings::default() });
    let (world, dispatch) = (world(), Dispatch::new(live));
    show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 2));
    show(&world, &dispatch, &Node::RESOURCE, &node("b", 2, 2));
    show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("whole", 3, 1, 3, pending()));
    show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("first", 4, 0, 2, pending()));
    show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("second", 5, 0, 2, pending()));
    let plan = dispatch.plan(&world, &Dispatch::queue_key(), at(1_800_000_000));
    let (admitted, reported) = decided(&plan);
    assert_eq!(
        (admitted, reported),
        (vec!["first".to_owned(), "second".to_owned()], vec!["whole".to_owned()])
    );
    let said = "fits in total, but no placement: 1 pod of 3, largest free node has 2";
    assert_eq!(plan.held[0].message, said);
}

/// Returns an AppWrapper that was admitted this many seconds before noon, and has no items yet.
fn in_flight(name: &str, revision: u64, ago: i64) -> Value {
    let since = at(NOW_SECONDS - ago).to_string();
    let head = json!({"type": "HeadOfLine", "status": "True", "lastTransitionMicroTime": since});
    let status = json!({"state": "Pending", "queuejobstate": "HeadOfLine", "canrun": true,
                        "conditions": [head]});
    wrapper(name, revision, 0, 1, status)
}

const NOW_SECONDS: i64 = 1_800_000_000;

#[test]
fn q_6_nothing_is_admitted_while_too_many_are_in_flight() {
    let table = [
        ("many, and for too long", 16, 2, false),
        ("fewer", 15, 2, true),
        ("many, and only just", 16, 0, true),
        ("many, that will never be made", 16, 11, true),
    ];
    for (why, count, ago, passes) in table {
        let (world, dispatch) = (world(), Dispatch::default());
        show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 100));
        for number in 0..count {
            let object = in_flight(&format!("w{number}"), 10 + number, ago);
            show(&world, &dispatch, &AppWrapper::RESOURCE, &object);
        }
        show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("next", 50, 9, 1, pending()));
        let plan = dispatch.plan(&world, &Dispatch::queue_key(), at(NOW_SECONDS));
        assert_eq!(decided(&plan).0.len(), usize::from(passes), "{why}");
        if !passes {
            assert_eq!(
                plan.requeue_after,
                Some(Duration::from_millis(8001)),
                "{why}: not for ever"
            );
            let running =
                json!({"state": "Running", "queuejobstate": "Dispatched", "canrun": true});
            let made = wrapper("w3", 60, 0, 1, running);
            assert!(
                show(&world, &dispatch, &AppWrapper::RESOURCE, &made),
                "one is made, and wakes"
            );
            let plan = dispatch.plan(&world, &Dispatch::queue_key(), at(NOW_SECONDS));
            assert_eq!(decided(&plan).0, ["next"], "{why}: and lets the next one pass");
        }
    }
}

#[test]
fn labels_that_name_no_tree_make_no_difference() {
    let live = LiveSettings::new(Settings { quota: true, ..Settings::default() });
    let dispatch = Dispatch::new(live);
    let world = World::new(dispatch.kinds());
    let subtree = |tree: &str, revision: u64, status: Value| {
        json!({"metadata": {"name": tree, "namespace": "n", "uid": tree, "labels": {"tree": tree},
                            "resourceVersion": revision.to_string()},
               "spec": {"children": [{"name": "leaf", "quotas": {"requests": {"cpu": 1}}}]},
               "status": status})
    };
    let wakes = |object: Value| show(&world, &dispatch, &Subtree::RESOURCE, &object);
    show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 100));
    assert!(wakes(subtree("t", 2, Value::Null)), "a tree");
    assert!(
        !wakes(subtree("t", 3, json!({"totalAllocation": {"cpu": "1"}}))),
        "what is said of it"
    );
    for number in 0..20_u64 {
        let name = format!("w{number:02}");
        let mut object = wrapper(&name, 10 + number, 0, 3, pending());
        object["metadata"]["labels"] = json!({"t": "leaf", "app": name});
        show(&world, &dispatch, &AppWrapper::RESOURCE, &object);
    }
    let asked = || dispatch.plan(&world, &Dispatch::queue_key(), at(NOW_SECONDS)).held.len();
    assert_eq!(asked(), 1, "all are alike");
    assert!(wakes(subtree("app", 50, Value::Null)), "another tree");
    assert_eq!(asked(), 20, "and now they are not");
    let settings = Settings { quota: true, ..Settings::default() };
    assert_eq!(
        *lock_cache(&world.derived::<Mutex<QueueCache>>()),
        QueueCache::of(&world, &settings)
    );
}

#[test]
fn a_new_app_wrapper_is_queued_and_admitted_in_one_write() {
    let (world, dispatch) = (world(), Dispatch::default());
    show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 2));
    for (revision, name) in (10..).zip(["a", "b", "c"]) {
        let mut object = wrapper(name, revision, 0, 1, json!({}));
        object["metadata"]["creationTimestamp"] = json!(at(NOW_SECONDS));
        assert!(
            show(&world, &dispatch, &AppWrapper::RESOURCE, &object),
            "a new AppWrapper makes a cycle due"
        );
    }
    let seen = json!({"state": "Pending", "queuejobstate": "Queueing",
                      "controllerfirsttimestamp": at(NOW_SECONDS + 1).to_string()});
    show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("z", 20, 0, 1, seen));
    let plan = dispatch.plan(&world, &Dispatch::queue_key(), at(NOW_SECONDS + 2));
    let (admitted, reported) = decided(&plan);
    assert_eq!(admitted, ["z", "a"], "Q-2: observed ones are first");
    assert_eq!(reported, ["b", "c"]);
    for step in &plan.steps[1..] {
        let Write::Merge { body, .. } = &step.write else { panic!("{step:?}") };
        let status = &body["status"];
        assert_eq!(
            (&status["state"], &status["conditions"][0]["type"]),
            (&json!("Pending"), &json!("Init"))
        );
    }
    let late = dispatch.plan(&world, &Dispatch::queue_key(), at(NOW_SECONDS + 20));
    assert_eq!(decided(&late).1, [""; 0], "first it is reported as queued");
}

/// A new author of an AppWrapper that waits for one makes a cycle due, though its position is the
/// same.
#[test]
fn ds_9_a_changed_author_enqueues_the_queue() {
    let settings = Settings { user_access: crate::UserAccess::Reviewed, ..Settings::default() };
    let dispatch = Dispatch::new(LiveSettings::new(settings));
    let world = World::new(dispatch.kinds());
    let resource = AppWrapper::RESOURCE;
    let mut object = wrapper("a", 1, 0, 1, pending());
    assert!(show(&world, &dispatch, &resource, &object), "it came");
    object["metadata"]["resourceVersion"] = json!("2");
    object["metadata"]["annotations"] = json!({"other": "word"});
    assert!(!show(&world, &dispatch, &resource, &object), "nothing that matters");
    object["metadata"]["resourceVersion"] = json!("3");
    object["metadata"]["annotations"] = json!({crate::app_wrapper::AUTHOR_ANNOTATION: "{}"});
    assert!(show(&world, &dispatch, &resource, &object), "an author");
}
