use gantry_reconcile::{Subresource, Write};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A set of `replicas` pods labelled `app: a`.
fn set(replicas: i64) -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "n", "uid": "set", "resourceVersion": "5", "generation": 2,
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a", "tier": "x"}},
                "spec": {"containers": []},
            },
        },
        "status": {"observedGeneration": 2},
    })
}

/// A running, ready pod of the set on node `n1`.
fn pod(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "resourceVersion": "3",
            "labels": {"app": "a", "tier": "x"},
            "creationTimestamp": "2026-01-01T11:00:00Z",
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"nodeName": "n1"},
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"},
            ],
        },
    })
}

/// An object with one field changed.
fn with(mut object: Value, path: &str, value: Value) -> Value {
    let (parent, field) = path.rsplit_once('/').unwrap();
    let parent = parent.split('/').skip(1).fold(&mut object, |at, name| &mut at[name]);
    parent[field] = value;
    object
}

fn world(set: &Value, pods: &[Value]) -> World {
    let world = World::new(ReplicaSetController.kinds());
    world.store::<ReplicaSet>().set(serde_json::from_value(set.clone()).unwrap());
    for pod in pods {
        world.store::<Pod>().set(serde_json::from_value(pod.clone()).unwrap());
    }
    world
}

fn planned(world: &World) -> Plan {
    ReplicaSetController.plan(world, &Key::new("n", "web"), now())
}

/// The writes in short: verb and name, or the status.
fn short(plan: &Plan) -> Vec<String> {
    let one = |step: &Step| match &step.write {
        Write::Merge { subresource: Subresource::Status, body, .. } => {
            format!("status {}", body["status"])
        }
        Write::Merge { body, key, .. } => {
            format!("{} {}", key.name(), body["metadata"]["ownerReferences"])
        }
        write @ (Write::Create { .. }
        | Write::Delete { .. }
        | Write::Apply { .. }
        | Write::Bind { .. }
        | Write::Evict { .. }) => format!("{} {}", write.verb(), write.key().name()),
    };
    plan.steps.iter().map(one).collect()
}

#[test]
fn pods_that_are_missing_are_made_from_the_template() {
    let plan = planned(&world(&set(2), &[]));
    assert_eq!(plan.steps.len(), 2, "{:?}", short(&plan));
    let Write::Create { body, .. } = &plan.steps[0].write else { panic!("{:?}", short(&plan)) };
    let name = body["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == "web-".len() + 5, "{name}");
    assert_eq!(body["metadata"]["generateName"], "web-");
    assert_eq!(body["metadata"]["namespace"], "n");
    assert_eq!(body["metadata"]["labels"], json!({"app": "a", "tier": "x"}));
    assert_eq!(
        body["metadata"]["ownerReferences"],
        json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set",
            "controller": true, "blockOwnerDeletion": true,
        }])
    );
    let done = plan.steps[0].success_events.first().unwrap();
    assert_eq!(
        (done.reason.as_ref(), done.message.clone()),
        ("SuccessfulCreate", format!("Created pod: {name}"))
    );
    let refused = plan.steps[0].refusal_event.as_ref().unwrap();
    assert_eq!(
        (refused.reason.as_ref(), refused.message.as_str()),
        ("FailedCreate", "Error creating")
    );
}

#[test]
fn pod_names_are_deterministic() {
    let first = planned(&world(&set(3), &[]));
    let names: Vec<String> = first.steps.iter().map(|it| it.write.key().name().into()).collect();
    assert_eq!(short(&first), short(&planned(&world(&set(3), &[]))));
    // One of them was created, the responses to the others were lost.
    let young = with(pod(&names[1]), "/metadata/creationTimestamp", json!(NOW));
    let second = planned(&world(&set(3), std::slice::from_ref(&young)));
    assert_eq!(short(&second), [format!("create {}", names[0]), format!("create {}", names[2])]);
    assert_eq!(second.requeue_after, Some(Duration::from_secs(10)), "then the status is due");
    // Nothing more was observed for a while: those creates were rejected, and the status must not
    // wait for them.
    let old = with(young, "/metadata/creationTimestamp", json!("2026-01-01T11:59:50Z"));
    let third = planned(&world(&set(3), &[old]));
    assert_eq!(third.steps.len(), 1);
    assert!(short(&third)[0].starts_with("status "), "{:?}", short(&third));
}

#[test]
fn the_status_is_written_before_pods_are_created() {
    let fresh = with(set(1), "/status", json!({}));
    let plan = planned(&world(&fresh, &[]));
    let expected = json!({
        "replicas": 0, "fullyLabeledReplicas": null, "readyReplicas": null,
        "availableReplicas": null, "observedGeneration": 2, "conditions": null,
    });
    assert_eq!(short(&plan), [format!("status {expected}")]);
}

#[test]
fn statuses_are_computed() {
    let ready =
        |seconds: &str| json!([{"type": "Ready", "status": "True", "lastTransitionTime": seconds}]);
    let pods = [
        pod("web-a"),
        with(pod("web-b"), "/status/conditions", json!([])),
        with(pod("web-c"), "/status/conditions", ready("2026-01-01T11:59:55Z")),
        with(pod("web-d"), "/metadata/labels", json!({"app": "a"})),
    ];
    let set = with(set(4), "/spec/minReadySeconds", json!(30));
    let set = with(
        set,
        "/status/conditions",
        json!([
            {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"},
            {"type": "Other", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]),
    );
    let plan = planned(&world(&set, &pods));
    let expected = json!({
        "replicas": 4, "fullyLabeledReplicas": 3, "readyReplicas": 3, "availableReplicas": 2,
        "observedGeneration": 2,
        "conditions": [{"type": "Other", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    assert_eq!(short(&plan), [format!("status {expected}")]);
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(25)), "when the third is available");
}

#[test]
fn finished_and_terminating_pods_are_replaced() {
    let status = json!({
        "observedGeneration": 2, "replicas": 1, "fullyLabeledReplicas": 1, "readyReplicas": 1,
        "availableReplicas": 1,
    });
    let set = with(set(3), "/status", status);
    let pods = [
        pod("web-a"),
        with(pod("web-b"), "/status/phase", json!("Failed")),
        with(pod("web-c"), "/metadata/deletionTimestamp", json!(NOW)),
    ];
    let plan = planned(&world(&set, &pods));
    assert_eq!(plan.steps.len(), 2);
    assert!(short(&plan).iter().all(|it| it.starts_with("create ")), "{:?}", short(&plan));
}

#[test]
fn pods_are_adopted_and_released() {
    let own = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set",
        "controller": true, "blockOwnerDeletion": true,
    });
    let note = json!({"apiVersion": "v1", "kind": "Note", "name": "x", "uid": "x"});
    let other = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "uid": "other",
        "controller": true,
    });
    let owners = "/metadata/ownerReferences";
    let going = "/metadata/deletionTimestamp";
    let stray = |name: &str| with(pod(name), "/metadata/labels", json!({"app": "b"}));
    let table = [
        ("an orphan that fits", with(pod("p"), owners, json!([])), Some(json!([own]))),
        ("beside another owner", with(pod("p"), owners, json!([note])), Some(json!([note, own]))),
        ("an orphan that does not", with(stray("p"), owners, json!([])), None),
        (
            "an orphan that is going",
            with(with(pod("p"), owners, json!([])), going, json!(NOW)),
            None,
        ),
        ("of another set", with(pod("p"), owners, json!([other])), None),
        ("its own that fits no more", stray("p"), Some(json!(null))),
        ("with another owner", with(stray("p"), owners, json!([note, own])), Some(json!([note]))),
    ];
    for (why, pod, expected) in table {
        let plan = planned(&world(&set(0), std::slice::from_ref(&pod)));
        let claims: Vec<String> =
            short(&plan).into_iter().filter(|it| it.starts_with("p ")).collect();
        let expected: Vec<String> = expected.iter().map(|it| format!("p {it}")).collect();
        assert_eq!(claims, expected, "{why}");
        let going = with(set(0), going, json!(NOW));
        let plan = planned(&world(&going, &[pod]));
        assert!(!short(&plan).iter().any(|it| it.starts_with("p ")), "{why}, but the set goes");
    }
}

#[test]
fn a_set_being_deleted_is_left_alone() {
    let going = with(set(3), "/metadata/deletionTimestamp", json!(NOW));
    let plan = planned(&world(&going, &[pod("web-a")]));
    let short = short(&plan);
    assert!(short.len() == 1 && short[0].starts_with("status "), "{short:?}");
    assert!(planned(&World::new(ReplicaSetController.kinds())).is_noop(), "and a deleted one");
}

#[test]
fn pods_are_deleted_in_order() {
    let ready =
        |time: &str| json!([{"type": "Ready", "status": "True", "lastTransitionTime": time}]);
    let cost = |cost: &str| json!({"controller.kubernetes.io/pod-deletion-cost": cost});
    let restarts = |count: i64| json!([{"name": "main", "restartCount": count}]);
    let table = [
        ("on no node", with(pod("z"), "/spec/nodeName", json!("")), pod("a")),
        ("pending", with(pod("z"), "/status/phase", json!("Pending")), pod("a")),
        (
            "pending before unknown",
            with(pod("z"), "/status/phase", json!("Pending")),
            with(pod("a"), "/status/phase", json!("Unknown")),
        ),
        ("not ready", with(pod("z"), "/status/conditions", json!([])), pod("a")),
        ("cheap", with(pod("z"), "/metadata/annotations", cost("-1")), pod("a")),
        ("dear", pod("z"), with(pod("a"), "/metadata/annotations", cost("10"))),
        ("crowded", pod("z"), with(pod("a"), "/spec/nodeName", json!("n2"))),
        (
            "ready for a shorter time",
            with(pod("z"), "/status/conditions", ready("2026-01-01T11:59:00Z")),
            pod("a"),
        ),
        (
            "restarted",
            with(pod("z"), "/status/containerStatuses", restarts(2)),
            with(pod("a"), "/status/containerStatuses", restarts(1)),
        ),
        (
            "younger",
            with(pod("z"), "/metadata/creationTimestamp", json!("2026-01-01T11:59:00Z")),
            pod("a"),
        ),
        (
            "by name where ages are alike",
            with(pod("a"), "/metadata/creationTimestamp", json!("2026-01-01T10:59:59Z")),
            with(pod("z"), "/metadata/creationTimestamp", json!("2026-01-01T11:00:00Z")),
        ),
        (
            "a cost in unusual digits is none",
            with(pod("a"), "/metadata/annotations", cost("+5")),
            pod("z"),
        ),
    ];
    for (why, first, second) in table {
        for pods in [[first.clone(), second.clone()], [second.clone(), first.clone()]] {
            // A third pod on the first node makes that one the most crowded.
            let third = with(pod("m"), "/metadata/annotations", cost("100"));
            let pods = [pods.as_slice(), &[third]].concat();
            let plan = planned(&world(&set(2), &pods));
            let name = first["metadata"]["name"].as_str().unwrap();
            assert_eq!(short(&plan)[0], format!("delete {name}"), "{why}");
            let done = plan.steps[0].success_events.first().unwrap();
            assert_eq!(done.message, format!("Deleted pod: {name}"));
        }
    }
}

#[test]
fn pods_of_sibling_sets_are_counted_per_node() {
    let owner = json!([{
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true,
    }]);
    let mine = with(set(1), "/metadata/ownerReferences", owner);
    let mut sibling = mine.clone();
    sibling["metadata"]["name"] = json!("web2");
    sibling["metadata"]["uid"] = json!("set2");
    let mut cousin = with(pod("c"), "/spec/nodeName", json!("n2"));
    cousin["metadata"]["ownerReferences"][0]["uid"] = json!("set2");
    let pods = [pod("a"), with(pod("b"), "/spec/nodeName", json!("n2")), cousin];
    let world = world(&mine, &pods);
    world.store::<ReplicaSet>().set(serde_json::from_value(sibling).unwrap());
    assert_eq!(short(&planned(&world))[0], "delete b");
}

#[test]
fn a_plan_makes_and_removes_no_more_than_fits() {
    let plan = planned(&world(&set(501), &[]));
    assert_eq!((plan.steps.len(), plan.requeue_after), (500, Some(Duration::ZERO)));
    let pods: Vec<Value> = (0..502).map(|n| pod(&format!("p{n}"))).collect();
    let plan = planned(&world(&set(1), &pods));
    let deletes = short(&plan).iter().filter(|it| it.starts_with("delete ")).count();
    assert_eq!((deletes, plan.requeue_after), (500, Some(Duration::ZERO)));
}

#[test]
fn pods_enqueue_their_set_and_orphans_matching_sets() {
    let world = world(&set(1), &[]);
    let shelf = world.store::<Pod>();
    let wakes = |pod: Value| {
        let change = shelf.set(serde_json::from_value(pod).unwrap());
        let keys = ReplicaSetController.enqueue(&world, &change);
        keys.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let owners = "/metadata/ownerReferences";
    assert_eq!(wakes(pod("a")), ["n/web"]);
    assert_eq!(wakes(with(pod("b"), owners, json!([]))), ["n/web"]);
    let stray = with(with(pod("c"), owners, json!([])), "/metadata/labels", json!({}));
    assert!(wakes(stray).is_empty());
    let other = json!([{"kind": "Job", "name": "j", "uid": "j", "controller": true}]);
    assert!(wakes(with(pod("d"), owners, other)).is_empty());
    assert_eq!(wakes(with(pod("a"), owners, json!([]))), ["n/web"], "the former owner too");
}

proptest! {
    /// Whatever exists, the plan leads exactly to the desired number, and deletes no pod while one
    /// of lower rank stays.
    #[test]
    fn a_plan_reaches_the_desired_replicas(
        replicas in 0_i64..8,
        states in proptest::collection::vec((any::<bool>(), any::<bool>(), 0_u8..3), 0..8),
    ) {
        let pods: Vec<Value> = states.iter().enumerate().map(|(n, (ready, placed, phase))| {
            let pod = pod(&format!("p{n}"));
            let pod = if *ready { pod } else { with(pod, "/status/conditions", json!([])) };
            let pod = if *placed { pod } else { with(pod, "/spec/nodeName", json!("")) };
            let phase = ["Pending", "Running", "Failed"][usize::from(*phase)];
            with(pod, "/status/phase", json!(phase))
        }).collect();
        let active = states.iter().filter(|(_, _, phase)| *phase < 2).count();
        let ready = states.iter().filter(|(ready, _, phase)| *ready && *phase < 2).count();
        let status = json!({
            "replicas": active, "fullyLabeledReplicas": active, "readyReplicas": ready,
            "availableReplicas": ready, "observedGeneration": 2,
        });
        let plan = planned(&world(&with(set(replicas), "/status", status), &pods));
        let count = |verb: &str| plan.steps.iter().filter(|it| it.write.verb() == verb).count();
        prop_assert_eq!(
            i64::try_from(active + count("create")).unwrap(),
            replicas + i64::try_from(count("delete")).unwrap()
        );
        prop_assert!(count("create") == 0 || count("delete") == 0);
        let deleted: Vec<String> =
            plan.steps.iter().map(|it| it.write.key().name().to_owned()).collect();
        let placed_and_ready = |(ready, placed, phase): &(bool, bool, u8)| *ready && *placed && *phase == 1;
        let good_gone = states.iter().enumerate()
            .any(|(n, it)| placed_and_ready(it) && deleted.contains(&format!("p{n}")));
        let bad_left = states.iter().enumerate().any(|(n, it)| {
            it.2 < 2 && !placed_and_ready(it) && !deleted.contains(&format!("p{n}"))
        });
        prop_assert!(!(good_gone && bad_left && count("delete") > 0));
    }
}

fn refused(verb: &'static str, message: &str) -> RefusedWrite {
    let refusal = gantry_reconcile::Refusal {
        code: 403,
        reason: "Forbidden".to_owned(),
        message: message.to_owned(),
    };
    RefusedWrite { verb, resource: Pod::RESOURCE, key: Key::new("n", "web-x"), refusal }
}

#[test]
fn rejected_creates_are_reported_until_they_succeed() {
    let failure = |reason: &str, message: &str| {
        json!([{
            "type": "ReplicaFailure", "status": "True", "lastTransitionTime": NOW,
            "reason": reason, "message": message,
        }])
    };
    let counted = |set: Value, replicas: i64, conditions: Value| {
        let mut set = set;
        set["status"] = json!({
            "replicas": replicas, "fullyLabeledReplicas": replicas, "readyReplicas": replicas,
            "availableReplicas": replicas, "observedGeneration": 2, "conditions": conditions,
        });
        set
    };
    let said = counted(set(2), 1, failure("FailedCreate", "full"));
    let well = counted(set(1), 1, failure("FailedCreate", "full"));
    let (full, kept) = (refused("create", "full"), refused("delete", "kept"));
    let table = [
        ("nothing was rejected", counted(set(2), 1, json!([])), 1, vec![], None, "create"),
        (
            "pods are",
            counted(set(2), 1, json!([])),
            1,
            vec![full.clone()],
            Some(failure("FailedCreate", "full")),
            "status",
        ),
        (
            "it is reported once, and retried",
            said.clone(),
            1,
            vec![refused("create", "fuller")],
            None,
            "create",
        ),
        ("a restarted process tries again", said, 1, vec![], None, "create"),
        ("there is quota again", well, 1, vec![], Some(Value::Null), "status"),
        (
            "pods stay",
            counted(set(1), 2, json!([])),
            2,
            vec![kept],
            Some(failure("FailedDelete", "kept")),
            "delete",
        ),
        (
            "it was about something else",
            counted(set(1), 2, json!([])),
            2,
            vec![full],
            None,
            "delete",
        ),
    ];
    for (why, set, pods, refusals, conditions, first) in table {
        let pods: Vec<Value> = ["a", "b"][..pods].iter().map(|it| pod(it)).collect();
        let world = world(&set, &pods);
        world.record_refusals("replicaset", &Key::new("n", "web"), refusals);
        let plan = planned(&world);
        let written = plan.steps.iter().find_map(|step| match &step.write {
            Write::Merge { body, .. } => Some(body["status"]["conditions"].clone()),
            Write::Create { .. }
            | Write::Delete { .. }
            | Write::Apply { .. }
            | Write::Bind { .. }
            | Write::Evict { .. } => None,
        });
        assert_eq!(written, conditions, "{why}");
        assert!(short(&plan)[0].starts_with(first), "{why}: {:?}", short(&plan));
    }
}

#[test]
fn a_rejected_create_is_reported_beside_new_pods() {
    let first = planned(&world(&set(3), &[]));
    let name = short(&first)[0].strip_prefix("create ").unwrap().to_owned();
    let young = with(pod(&name), "/metadata/creationTimestamp", json!(NOW));
    let world = world(&set(3), &[young]);
    assert!(short(&planned(&world))[0].starts_with("create"), "more may be under way");
    world.record_refusals("replicaset", &Key::new("n", "web"), vec![refused("create", "full")]);
    assert!(short(&planned(&world))[0].contains("FailedCreate"));
}
