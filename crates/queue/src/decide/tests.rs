#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use proptest::prelude::*;
use serde_json::{Value, json};

use gantry_reconcile::{View as _, Write};

use super::tell::TOLD;
use super::*;
use crate::dispatch::LABEL;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn world() -> World {
    World::new(Dispatch::default().kinds())
}

/// Shows an object to a world, and tells of it.
fn show(
    world: &World,
    dispatch: &Dispatch,
    resource: &gantry_reconcile::Resource,
    object: &Value,
) -> bool {
    let shelf = world.find(resource).unwrap();
    let change = shelf.saw(&object.to_string()).unwrap();
    change.is_some_and(|it| enqueues(world, dispatch, &it))
}

/// Whether a change makes a cycle due that was not due before.
fn enqueues(world: &World, dispatch: &Dispatch, change: &Change) -> bool {
    world.kept::<CycleDue>().0.store(false, Ordering::Release);
    dispatch.cache.observe(world, change);
    !dispatch.enqueue(world, change).is_empty()
}

fn end(
    world: &World,
    dispatch: &Dispatch,
    resource: &gantry_reconcile::Resource,
    object: &Value,
) -> bool {
    let shelf = world.find(resource).unwrap();
    let change = shelf.saw_end(&object.to_string()).unwrap();
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
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {LABEL: wrapper},
                     "resourceVersion": revision.to_string()},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    })
}

fn pending() -> Value {
    json!({"state": "Pending", "queuejobstate": "Queueing"})
}

/// The names of those that pass, and of those that are told why they wait.
fn decided(plan: &Plan) -> (Vec<String>, Vec<String>) {
    let (mut passed, mut told) = (Vec::new(), Vec::new());
    for step in &plan.steps {
        let Write::Merge { key, body, .. } = &step.write else { panic!("{step:?}") };
        let list = if body["status"]["canrun"] == true { &mut passed } else { &mut told };
        list.push(key.name().to_owned());
    }
    (passed, told)
}

#[test]
fn one_plan_decides_for_all_and_counts_what_it_gives() {
    let (world, dispatch) = (world(), Dispatch::default());
    show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 10));
    for (at, (name, priority, cpu)) in
        [("low", 1, 2), ("big", 9, 7), ("mid", 5, 4), ("tiny", 0, 1)].into_iter().enumerate()
    {
        let object = wrapper(name, 10 + u64::try_from(at).unwrap(), priority, cpu, pending());
        assert!(show(&world, &dispatch, &AppWrapper::RESOURCE, &object), "who comes wakes");
    }
    let plan = dispatch.plan(&world, &Dispatch::queue(), at(1_800_000_000));
    let (passed, told) = decided(&plan);
    assert_eq!(passed, ["big", "low", "tiny"], "by priority, and past who does not fit");
    assert_eq!(told, ["mid"]);
    assert_eq!(plan.held.len(), 1);
    assert_eq!(plan.held[0].message, "cpu: needs 4, 3 available, 1 missing");
}

#[test]
fn lower_priority_is_no_obstacle_where_preemption_is_on() {
    for (preemption, expected) in [(false, vec![]), (true, vec!["high".to_owned()])] {
        let live = Live::new(Settings { preemption, ..Settings::default() });
        let (world, dispatch) = (world(), Dispatch::new(live));
        show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 10));
        let running = json!({"state": "Running", "queuejobstate": "Running", "canrun": true});
        show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("old", 2, 1, 9, running));
        show(&world, &dispatch, &Pod::RESOURCE, &pod("p", 3, "a", 9, "Running", "old"));
        show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("same", 4, 1, 5, pending()));
        show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("high", 5, 2, 5, pending()));
        let plan = dispatch.plan(&world, &Dispatch::queue(), at(1_800_000_000));
        assert_eq!(decided(&plan).0, expected, "preemption: {preemption}");
    }
}

#[test]
fn only_what_may_let_somebody_pass_wakes() {
    let (world, dispatch) = (world(), Dispatch::default());
    let wakes = |resource: &gantry_reconcile::Resource, object: Value| {
        show(&world, &dispatch, resource, &object)
    };
    assert!(wakes(&Node::RESOURCE, node("a", 1, 10)), "a node");
    assert!(!wakes(&Node::RESOURCE, node("a", 2, 10)), "that says it lives");
    assert!(wakes(&Node::RESOURCE, node("a", 3, 11)), "and grows");
    let passed = json!({"state": "Pending", "queuejobstate": "HeadOfLine", "canrun": true});
    assert!(!wakes(&AppWrapper::RESOURCE, wrapper("w", 4, 0, 5, passed)), "one that passed");
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
        "and was told why"
    );
    assert!(
        wakes(&AppWrapper::RESOURCE, wrapper("v", 11, 3, 5, parked)),
        "and is more important now"
    );
    assert!(
        end(&world, &dispatch, &Node::RESOURCE, &node("a", 12, 11))
            || world.shelf::<Node>().is_empty()
    );
}

#[test]
fn many_that_are_alike_cost_no_more_than_one() {
    let (world, dispatch) = (world(), Dispatch::default());
    show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 10));
    for number in 0..500_u64 {
        let object = wrapper(&format!("w{number:03}"), 10 + number, 0, 3, pending());
        show(&world, &dispatch, &AppWrapper::RESOURCE, &object);
    }
    let plan = dispatch.plan(&world, &Dispatch::queue(), at(1_800_000_000));
    let (passed, told) = decided(&plan);
    assert_eq!((passed.len(), told.len(), plan.held.len()), (3, TOLD.1, 1));
    assert_eq!(plan.look_again, Some(Duration::ZERO), "the others are told next");
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
    /// However the books got there, they are those of the world as it is.
    #[test]
    fn books_follow_from_the_world(
        events in prop::collection::vec(event(), 0..60),
        preemption in any::<bool>(),
        wake_on_release in any::<bool>(),
    ) {
        let settings = Settings { preemption, wake_on_release, ..Settings::default() };
        let (world, dispatch) = (world(), Dispatch::new(Live::new(settings)));
        for (revision, event) in (1..).zip(&events) {
            let (resource, object, is_there) = object(event, revision);
            match is_there {
                true => { show(&world, &dispatch, &resource, &object); }
                false => { end(&world, &dispatch, &resource, &object); }
            }
        }
        let now = "2026-01-01T00:00:50Z".parse().unwrap();
        let mut fresh = Books::of(&world, &settings);
        fresh.wake(&world, &settings, now);
        let kept = world.kept::<Mutex<Books>>();
        let mut books = open(&kept);
        books.keep_by(&world, &settings);
        books.wake(&world, &settings, now);
        prop_assert_eq!(&*books, &fresh);
    }
}

#[test]
fn namespaces_take_turns_where_that_is_chosen() {
    for (fairness, expected) in [(false, ["a0", "a1", "a2"]), (true, ["a0", "b0", "a1"])] {
        let live = Live::new(Settings { fairness, ..Settings::default() });
        let (world, dispatch) = (world(), Dispatch::new(live));
        show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 3));
        // Names decide among equals, so all of one namespace come before the other.
        for (at, name) in ["a0", "a1", "a2", "b0"].into_iter().enumerate() {
            let mut object = wrapper(name, 10 + u64::try_from(at).unwrap(), 0, 1, pending());
            object["metadata"]["namespace"] = json!(&name[..1]);
            show(&world, &dispatch, &AppWrapper::RESOURCE, &object);
        }
        let plan = dispatch.plan(&world, &Dispatch::queue(), at(1_800_000_000));
        assert_eq!(decided(&plan).0, expected, "fairness: {fairness}");
    }
}

#[test]
fn who_has_nothing_is_next_and_priority_goes_before() {
    let live = Live::new(Settings { fairness: true, ..Settings::default() });
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
    let plan = dispatch.plan(&world, &Dispatch::queue(), at(1_800_000_000));
    assert_eq!(decided(&plan).0, ["a2", "b0", "b1"], "priority first, then who has less");
}

#[test]
fn one_who_does_not_fit_in_pieces_is_told_so() {
    let live = Live::new(Settings { packing_check: true, ..Settings::default() });
    let (world, dispatch) = (world(), Dispatch::new(live));
    show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 2));
    show(&world, &dispatch, &Node::RESOURCE, &node("b", 2, 2));
    show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("whole", 3, 1, 3, pending()));
    show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("first", 4, 0, 2, pending()));
    show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("second", 5, 0, 2, pending()));
    let plan = dispatch.plan(&world, &Dispatch::queue(), at(1_800_000_000));
    let (passed, told) = decided(&plan);
    assert_eq!(
        (passed, told),
        (vec!["first".to_owned(), "second".to_owned()], vec!["whole".to_owned()])
    );
    let said = "fits in total, but no placement: 1 pod of 3, largest free node has 2";
    assert_eq!(plan.held[0].message, said);
}

/// One that passed so many seconds before noon, and has no items yet.
fn under_way(name: &str, revision: u64, ago: i64) -> Value {
    let since = at(NOON - ago).to_string();
    let head = json!({"type": "HeadOfLine", "status": "True", "lastTransitionMicroTime": since});
    let status = json!({"state": "Pending", "queuejobstate": "HeadOfLine", "canrun": true,
                        "conditions": [head]});
    wrapper(name, revision, 0, 1, status)
}

const NOON: i64 = 1_800_000_000;

#[test]
fn q_6_nobody_passes_while_too_many_are_under_way() {
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
            let object = under_way(&format!("w{number}"), 10 + number, ago);
            show(&world, &dispatch, &AppWrapper::RESOURCE, &object);
        }
        show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("next", 50, 9, 1, pending()));
        let plan = dispatch.plan(&world, &Dispatch::queue(), at(NOON));
        assert_eq!(decided(&plan).0.len(), usize::from(passes), "{why}");
        if !passes {
            assert_eq!(plan.look_again, Some(Duration::from_millis(8001)), "{why}: not for ever");
            let running =
                json!({"state": "Running", "queuejobstate": "Dispatched", "canrun": true});
            let made = wrapper("w3", 60, 0, 1, running);
            assert!(
                show(&world, &dispatch, &AppWrapper::RESOURCE, &made),
                "one is made, and wakes"
            );
            let plan = dispatch.plan(&world, &Dispatch::queue(), at(NOON));
            assert_eq!(decided(&plan).0, ["next"], "{why}: and lets the next one pass");
        }
    }
}

#[test]
fn labels_that_name_no_tree_make_no_difference() {
    let live = Live::new(Settings { quota: true, ..Settings::default() });
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
    let asked = || dispatch.plan(&world, &Dispatch::queue(), at(NOON)).held.len();
    assert_eq!(asked(), 1, "all are alike");
    assert!(wakes(subtree("app", 50, Value::Null)), "another tree");
    assert_eq!(asked(), 20, "and now they are not");
    let settings = Settings { quota: true, ..Settings::default() };
    assert_eq!(*open(&world.kept::<Mutex<Books>>()), Books::of(&world, &settings));
}

#[test]
fn who_was_not_seen_yet_is_decided_about_in_the_same_write() {
    let (world, dispatch) = (world(), Dispatch::default());
    show(&world, &dispatch, &Node::RESOURCE, &node("a", 1, 2));
    for (revision, name) in (10..).zip(["a", "b", "c"]) {
        let mut object = wrapper(name, revision, 0, 1, json!({}));
        object["metadata"]["creationTimestamp"] = json!(at(NOON));
        assert!(show(&world, &dispatch, &AppWrapper::RESOURCE, &object), "who comes wakes");
    }
    let seen = json!({"state": "Pending", "queuejobstate": "Queueing",
                      "controllerfirsttimestamp": at(NOON + 1).to_string()});
    show(&world, &dispatch, &AppWrapper::RESOURCE, &wrapper("z", 20, 0, 1, seen));
    let plan = dispatch.plan(&world, &Dispatch::queue(), at(NOON + 2));
    let (passed, told) = decided(&plan);
    assert_eq!(passed, ["z", "a"], "Q-2: who was seen goes first");
    assert_eq!(told, ["b", "c"]);
    for step in &plan.steps[1..] {
        let Write::Merge { body, .. } = &step.write else { panic!("{step:?}") };
        let status = &body["status"];
        assert_eq!(
            (&status["state"], &status["conditions"][0]["type"]),
            (&json!("Pending"), &json!("Init"))
        );
    }
    let late = dispatch.plan(&world, &Dispatch::queue(), at(NOON + 20));
    assert_eq!(decided(&late).1, [""; 0], "who waits for long is told that it does first");
}

/// Who is made the author of one that waits for one is news, though its place is the same.
#[test]
fn ds_9_another_author_wakes_the_queue() {
    let settings = Settings { user_access: crate::UserAccess::Reviewed, ..Settings::default() };
    let dispatch = Dispatch::new(Live::new(settings));
    let world = World::new(dispatch.kinds());
    let resource = AppWrapper::RESOURCE;
    let mut object = wrapper("a", 1, 0, 1, pending());
    assert!(show(&world, &dispatch, &resource, &object), "it came");
    object["metadata"]["resourceVersion"] = json!("2");
    object["metadata"]["annotations"] = json!({"other": "word"});
    assert!(!show(&world, &dispatch, &resource, &object), "nothing that matters");
    object["metadata"]["resourceVersion"] = json!("3");
    object["metadata"]["annotations"] = json!({crate::app_wrapper::AUTHOR: "{}"});
    assert!(show(&world, &dispatch, &resource, &object), "an author");
}
