use std::time::Duration;

use gantry_reconcile::{Step, Subresource, Write};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn pod_template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {
            "containers": [{"name": "main", "image": image}],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    })
}

/// Set `db` of image `new`, which was `old` before.
fn set(replicas: i64) -> Value {
    json!({
        "metadata": {
            "name": "db", "namespace": "n", "uid": "db", "resourceVersion": "9", "generation": 2,
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "a"}},
            "template": pod_template("new"),
            "serviceName": "dbs",
            "podManagementPolicy": "OrderedReady",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "revisionHistoryLimit": 1,
        },
        "status": {"currentRevision": "db-old", "updateRevision": "db-new", "observedGeneration": 2},
    })
}

fn owner() -> Value {
    json!([{
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db",
        "controller": true, "blockOwnerDeletion": true,
    }])
}

fn revision(image: &str, number: i64) -> Value {
    json!({
        "metadata": {
            "name": format!("db-{image}"), "namespace": "n", "uid": format!("r-{image}"),
            "resourceVersion": "2", "labels": {"app": "a"}, "ownerReferences": owner(),
        },
        "data": {"spec": {"template": with(pod_template(image), "/$patch", json!("replace"))}},
        "revision": number,
    })
}

/// An available pod of the set.
fn pod(ordinal: i64, image: &str) -> Value {
    let name = format!("db-{ordinal}");
    json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "resourceVersion": "3",
            "labels": {
                "app": "a", "controller-revision-hash": format!("db-{image}"),
                "statefulset.kubernetes.io/pod-name": name,
            },
            "ownerReferences": owner(),
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:59:00Z"},
            ],
        },
    })
}

fn unready(pod: Value) -> Value {
    with(pod, "/status/conditions", json!([]))
}

fn terminating(pod: Value) -> Value {
    with(pod, "/metadata/deletionTimestamp", json!(NOW))
}

fn with(mut object: Value, path: &str, value: Value) -> Value {
    let (parent, field) = path.rsplit_once('/').unwrap();
    let parent = parent.split('/').skip(1).fold(&mut object, |at, name| &mut at[name]);
    parent[field] = value;
    object
}

fn world(set: &Value, pods: &[Value]) -> World {
    let world = World::new(StatefulSetController.kinds());
    world.store::<StatefulSet>().set(serde_json::from_value(set.clone()).unwrap());
    for revision in [revision("old", 1), revision("new", 2)] {
        world.store::<ControllerRevision>().set(serde_json::from_value(revision).unwrap());
    }
    for pod in pods {
        world.store::<Pod>().set(serde_json::from_value(pod.clone()).unwrap());
    }
    world
}

fn planned_in(world: &World) -> Plan {
    StatefulSetController.plan(world, &Key::new("n", "db"), now())
}

fn planned(set: &Value, pods: &[Value]) -> Plan {
    planned_in(&world(set, pods))
}

/// The writes but the status, in short.
fn short(plan: &Plan) -> Vec<String> {
    let one = |step: &Step| match &step.write {
        Write::Merge { subresource: Subresource::Status, .. } => None,
        write @ (Write::Create { .. }
        | Write::Merge { .. }
        | Write::Delete { .. }
        | Write::Apply { .. }
        | Write::Bind { .. }
        | Write::Evict { .. }) => Some(format!("{} {}", write.verb(), write.key().name())),
    };
    plan.steps.iter().filter_map(one).collect()
}

fn status(plan: &Plan) -> Value {
    let mut all = plan.steps.iter().map(|it| &it.write);
    let found = all.find_map(|write| match write {
        Write::Merge { subresource: Subresource::Status, body, .. } => Some(body["status"].clone()),
        Write::Merge { .. }
        | Write::Create { .. }
        | Write::Delete { .. }
        | Write::Apply { .. }
        | Write::Bind { .. }
        | Write::Evict { .. } => None,
    });
    found.unwrap_or_default()
}

fn parallel(set: Value) -> Value {
    with(set, "/spec/podManagementPolicy", json!("Parallel"))
}

#[test]
fn a_pod_is_created_with_its_identity() {
    let mut plain = set(1);
    plain["spec"]["ordinals"] = json!({"start": 5});
    let plan = planned(&plain, &[]);
    assert_eq!(short(&plan), ["create db-5"]);
    let Write::Create { body, .. } = &plan.steps[0].write else { panic!("{plan:?}") };
    assert_eq!(
        body["metadata"]["labels"],
        json!({
            "app": "a",
            "statefulset.kubernetes.io/pod-name": "db-5",
            "apps.kubernetes.io/pod-index": "5",
            "controller-revision-hash": "db-new",
        })
    );
    assert_eq!(body["metadata"]["generateName"], "db-");
    assert_eq!(body["metadata"]["ownerReferences"], owner());
    assert_eq!(
        (&body["spec"]["hostname"], &body["spec"]["subdomain"]),
        (&json!("db-5"), &json!("dbs"))
    );
    let note = plan.steps[0].success_events.first().unwrap();
    assert_eq!(note.reason, "SuccessfulCreate");
    assert_eq!(note.message, "create Pod db-5 in StatefulSet db successful");
    let note = plan.steps[0].refusal_event.as_ref().unwrap();
    assert_eq!(note.message, "create Pod db-5 in StatefulSet db failed error");
}

#[test]
fn pods_are_created_and_deleted_in_order() {
    type Row = (&'static str, i64, Vec<Value>, Vec<&'static str>, Vec<&'static str>);
    // why, size, pods, in order, in parallel
    let table: [Row; 11] = [
        (
            "one after the other",
            3,
            vec![],
            vec!["create db-0"],
            vec!["create db-0", "create db-1", "create db-2"],
        ),
        (
            "when the one before is available",
            2,
            vec![pod(0, "new")],
            vec!["create db-1"],
            vec!["create db-1"],
        ),
        ("not before", 2, vec![unready(pod(0, "new"))], vec![], vec!["create db-1"]),
        ("nor while it goes", 2, vec![terminating(pod(0, "new"))], vec![], vec!["create db-1"]),
        (
            "a gap is filled first",
            3,
            vec![pod(0, "new"), pod(2, "new")],
            vec!["create db-1"],
            vec!["create db-1"],
        ),
        (
            "a finished one is deleted first",
            2,
            vec![with(pod(0, "new"), "/status/phase", json!("Failed")), pod(1, "new")],
            vec!["delete db-0"],
            vec!["delete db-0"],
        ),
        (
            "also one that succeeded",
            1,
            vec![with(pod(0, "new"), "/status/phase", json!("Succeeded"))],
            vec!["delete db-0"],
            vec!["delete db-0"],
        ),
        (
            "the highest goes first",
            1,
            vec![pod(0, "new"), pod(1, "new"), pod(2, "new")],
            vec!["delete db-2"],
            vec!["delete db-2", "delete db-1"],
        ),
        (
            "one at a time",
            1,
            vec![pod(0, "new"), pod(1, "new"), terminating(pod(2, "new"))],
            vec![],
            vec!["delete db-1"],
        ),
        (
            "none while another is unavailable",
            1,
            vec![pod(0, "new"), unready(pod(1, "new")), unready(pod(2, "new"))],
            vec![],
            vec!["delete db-2", "delete db-1"],
        ),
        (
            "but the unavailable one itself",
            1,
            vec![pod(0, "new"), pod(1, "new"), unready(pod(2, "new"))],
            vec!["delete db-2"],
            vec!["delete db-2", "delete db-1"],
        ),
    ];
    for (why, size, pods, ordered, at_once) in table {
        assert_eq!(short(&planned(&set(size), &pods)), ordered, "{why}, in order");
        assert_eq!(short(&planned(&parallel(set(size)), &pods)), at_once, "{why}, in parallel");
    }
    let waits = planned(&set(2), &[unready(pod(0, "new"))]);
    assert_eq!(waits.held[0].message, "waits for pod db-0 to be running and ready");
}

#[test]
fn pods_of_a_former_template_are_replaced() {
    let partition = "/spec/updateStrategy/rollingUpdate/partition";
    let from = |place: i64| with(set(3), partition, json!(place));
    let on_delete = with(set(3), "/spec/updateStrategy", json!({"type": "OnDelete"}));
    let (o, n) = (|at| pod(at, "old"), |at| pod(at, "new"));
    let table: [(&str, Value, Vec<Value>, Vec<&str>); 8] = [
        ("the highest first", set(3), vec![o(0), o(1), o(2)], vec!["delete db-2"]),
        ("then the next", set(3), vec![o(0), o(1), n(2)], vec!["delete db-1"]),
        ("when it is available", set(3), vec![o(0), o(1), unready(n(2))], vec![]),
        ("down to the partition", from(2), vec![o(0), o(1), n(2)], vec![]),
        ("and not below", from(1), vec![o(0), o(1), n(2)], vec!["delete db-1"]),
        ("or by hand", on_delete, vec![o(0), o(1), o(2)], vec![]),
        ("in parallel too", parallel(set(3)), vec![o(0), o(1), o(2)], vec!["delete db-2"]),
        ("one at a time", parallel(set(3)), vec![o(0), o(1), terminating(o(2))], vec![]),
    ];
    for (why, set, pods, expected) in table {
        assert_eq!(short(&planned(&set, &pods)), expected, "{why}");
    }
    // A pod that is recreated below the partition has the former template.
    let plan = planned(&from(2), &[pod(0, "old"), pod(2, "new")]);
    let Write::Create { body, .. } = &plan.steps[0].write else { panic!("{plan:?}") };
    assert_eq!(body["spec"]["containers"][0]["image"], "old");
    assert_eq!(body["metadata"]["labels"]["controller-revision-hash"], "db-old");
}

#[test]
fn statuses_are_computed() {
    let plan = planned(&set(3), &[pod(0, "old"), pod(1, "new"), unready(pod(2, "new"))]);
    let expected = json!({
        "observedGeneration": 2, "replicas": 3, "readyReplicas": 2, "currentReplicas": 1,
        "updatedReplicas": 2, "currentRevision": "db-old", "updateRevision": "db-new",
        "collisionCount": 0, "availableReplicas": 2,
    });
    assert_eq!(status(&plan), expected);
    let done = planned(&set(2), &[pod(0, "new"), pod(1, "new")]);
    let found = status(&done);
    assert_eq!(
        (&found["currentRevision"], &found["currentReplicas"]),
        (&json!("db-new"), &json!(2))
    );
    let slow = with(set(1), "/spec/minReadySeconds", json!(90));
    let plan = planned(&slow, &[pod(0, "new")]);
    assert_eq!(
        (&status(&plan)["readyReplicas"], &status(&plan)["availableReplicas"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(30)));
}

#[test]
fn templates_are_kept_as_revisions() {
    let table = [
        ("the latest is used", "new", vec!["create db-0".to_owned()]),
        ("an earlier one is promoted", "old", vec!["patch db-old".to_owned()]),
    ];
    for (why, image, expected) in table {
        let set = with(set(1), "/spec/template", pod_template(image));
        assert_eq!(short(&planned(&set, &[])), expected, "{why}");
    }
    let third = with(set(1), "/spec/template", pod_template("third"));
    let third = with(third, "/metadata/annotations", json!({"kubernetes.io/change-cause": "x"}));
    let plan = planned(&third, &[]);
    let Write::Create { body, .. } = &plan.steps[0].write else { panic!("{plan:?}") };
    let name = body["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(format!("db-{}", body["metadata"]["labels"][HASH_LABEL].as_str().unwrap()), name);
    assert_eq!(body["metadata"]["annotations"]["kubernetes.io/change-cause"], "x");
    assert_eq!(body["revision"], 3);
    assert_eq!(
        body["data"].to_string(),
        concat!(
            r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"a"}},"#,
            r#""spec":{"containers":[{"image":"third","name":"main"}],"#,
            r#""volumes":[{"emptyDir":{},"name":"tmp"}]}}}}"#
        )
    );
    // Another object has the name.
    let world = world(&third, &[]);
    let mut other = with(revision("other", 1), "/metadata/name", json!(name));
    other["metadata"]["ownerReferences"] = json!([]);
    other["metadata"]["labels"] = json!({});
    world.store::<ControllerRevision>().set(serde_json::from_value(other).unwrap());
    assert_eq!(status(&planned_in(&world)), json!({"collisionCount": 1}));
}

#[test]
fn old_revisions_beyond_the_limit_are_deleted() {
    let settled = with(set(1), "/status/currentRevision", json!("db-new"));
    let world = world(&settled, &[pod(0, "new")]);
    for (image, number) in [("older", 0), ("oldest", -1)] {
        let revision = serde_json::from_value(revision(image, number)).unwrap();
        world.store::<ControllerRevision>().set(revision);
    }
    assert_eq!(short(&planned_in(&world)), ["delete db-oldest", "delete db-older"]);
    let used = serde_json::from_value(pod(0, "oldest")).unwrap();
    world.store::<Pod>().set(used);
    let plan = planned_in(&world);
    assert!(!short(&plan).contains(&"delete db-oldest".to_owned()), "a pod has it");
}

#[test]
fn volumes_are_claimed_before_the_pod_is_made() {
    let template = json!({
        "metadata": {"name": "data", "labels": {"x": "y"}},
        "spec": {"accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Pending"},
    });
    let claiming = with(set(1), "/spec/volumeClaimTemplates", json!([template]));
    let plan = planned(&claiming, &[]);
    assert_eq!(short(&plan), ["create data-db-0"]);
    let Write::Create { body, .. } = &plan.steps[0].write else { panic!("{plan:?}") };
    assert_eq!(body["metadata"]["labels"], json!({"x": "y", "app": "a"}));
    assert_eq!((body.get("status"), body["metadata"].get("ownerReferences")), (None, None));
    let note = plan.steps[0].success_events.first().unwrap();
    assert_eq!(note.message, "create Claim data-db-0 Pod db-0 in StatefulSet db success");
    let world = world(&claiming, &[]);
    let claim = |owners: Value| {
        let claim = json!({"metadata": {
            "name": "data-db-0", "namespace": "n", "uid": "c", "resourceVersion": "4",
            "ownerReferences": owners,
        }});
        serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap()
    };
    let change = world.store::<PersistentVolumeClaim>().set(claim(json!([])));
    assert_eq!(StatefulSetController.enqueue(&world, &change), [Key::new("n", "db")]);
    let plan = planned_in(&world);
    assert_eq!(short(&plan), ["create db-0"]);
    let Write::Create { body, .. } = &plan.steps[0].write else { panic!("{plan:?}") };
    assert_eq!(
        body["spec"]["volumes"],
        json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
            {"name": "tmp", "emptyDir": {}},
        ])
    );
    // A pending pod whose claim was deleted gets it again.
    let pending = with(pod(0, "new"), "/status/phase", json!("Pending"));
    assert_eq!(short(&planned(&claiming, &[pending])), ["create data-db-0"]);
}

#[test]
fn claims_follow_the_retention_policy() {
    let (pod_ref, set_ref) = (json!(["Pod", "db-0"]), json!(["StatefulSet", "db"]));
    let foreign =
        json!({"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": true});
    // when scaled, when deleted, whether the pod is surplus, owners
    let table = [
        ("Retain", "Retain", false, json!([])),
        ("Retain", "Retain", true, json!([])),
        ("Retain", "Delete", false, json!([set_ref])),
        ("Retain", "Delete", true, json!([set_ref])),
        ("Delete", "Retain", false, json!([])),
        ("Delete", "Retain", true, json!([pod_ref])),
        ("Delete", "Delete", false, json!([set_ref])),
        ("Delete", "Delete", true, json!([pod_ref])),
    ];
    for (scaled, deleted, surplus, expected) in table {
        let why = format!("{scaled} {deleted} {surplus}");
        let template = json!({"metadata": {"name": "data"}, "spec": {}});
        let set = with(set(i64::from(!surplus)), "/spec/volumeClaimTemplates", json!([template]));
        let policy = json!({"whenScaled": scaled, "whenDeleted": deleted});
        let set = with(set, "/spec/persistentVolumeClaimRetentionPolicy", policy);
        let owners_after = |before: Value| -> Option<Value> {
            let world = world(&set, &[pod(0, "new")]);
            let claim = json!({"metadata": {
                "name": "data-db-0", "namespace": "n", "uid": "c", "ownerReferences": before,
            }});
            world.store::<PersistentVolumeClaim>().set(serde_json::from_value(claim).unwrap());
            let plan = planned_in(&world);
            let mut steps = plan.steps.iter();
            let write = steps.find(|it| it.write.key().name() == "data-db-0")?;
            assert!(!short(&plan).contains(&"delete db-0".to_owned()), "{why}: not yet");
            let Write::Merge { body, .. } = &write.write else { panic!("{plan:?}") };
            Some(body["metadata"]["ownerReferences"].clone())
        };
        let short_owners = |owners: &Value| -> Value {
            let list = owners.as_array().cloned().unwrap_or_default();
            list.iter().map(|it| json!([it["kind"], it["name"]])).collect()
        };
        let first = owners_after(json!([]));
        assert_eq!(first.as_ref().map_or(json!([]), short_owners), expected, "{why}");
        if let Some(owners) = first {
            assert_eq!(owners_after(owners), None, "{why}: once is enough");
        }
        assert_eq!(owners_after(json!([foreign])), None, "{why}: another's is left alone");
    }
}

#[test]
fn orphans_are_adopted_by_name() {
    let orphan = |name: &str| {
        let pod = with(pod(0, "new"), "/metadata/ownerReferences", json!([]));
        with(pod, "/metadata/name", json!(name))
    };
    let table = [("db-0", true), ("db-x", false), ("db-0-1", false), ("other-0", false)];
    for (name, adopted) in table {
        let plan = planned(&set(0), &[orphan(name)]);
        assert_eq!(short(&plan).contains(&format!("patch {name}")), adopted, "{name}");
    }
    let leaving = planned(&set(0), &[terminating(orphan("db-0"))]);
    assert_eq!(short(&leaving), Vec::<String>::new(), "not a terminating one");
    let unnamed = with(
        pod(0, "new"),
        "/metadata/labels",
        json!({
            "app": "a", "controller-revision-hash": "db-new",
        }),
    );
    let plan = planned(&set(1), &[unnamed]);
    assert_eq!(short(&plan), ["patch db-0"], "it gets its identity labels");
}

#[test]
fn a_set_being_deleted_is_left_alone() {
    let plan = planned(&with(set(3), "/metadata/deletionTimestamp", json!(NOW)), &[pod(7, "new")]);
    assert_eq!(short(&plan), Vec::<String>::new());
    assert_eq!(status(&plan)["replicas"], 1);
}

proptest! {
    /// In order, whatever exists: at most one pod is created or deleted, it is created only after
    /// all before it are available, and deleted only when no higher one is left.
    #[test]
    fn one_step_at_a_time(
        replicas in 0_i64..5,
        states in proptest::collection::vec(0_u8..5, 0..6),
    ) {
        let pods: Vec<Value> = states.iter().enumerate().filter_map(|(at, state)| {
            let at = i64::try_from(at).unwrap();
            Some(match state {
                0 => return None,
                1 => pod(at, "new"),
                2 => pod(at, "old"),
                3 => unready(pod(at, "new")),
                _ => terminating(pod(at, "new")),
            })
        }).collect();
        let steps = short(&planned(&set(replicas), &pods));
        prop_assert!(steps.len() <= 1, "{:?}", steps);
        let Some(step) = steps.first() else { return Ok(()) };
        let (verb, name) = step.split_once(" db-").unwrap();
        let at: usize = name.parse().unwrap();
        let available = |state: &u8| *state == 1 || *state == 2;
        if verb == "create" {
            prop_assert!(states.iter().take(at).all(available) && states.len().min(at) == at);
            prop_assert!(i64::try_from(at).unwrap() < replicas);
        } else {
            let surplus = i64::try_from(at).unwrap() >= replicas;
            let mut above = states.iter().skip(at + 1);
            let right = if surplus { above.all(|it| *it == 0) } else { states[at] == 2 };
            prop_assert!(right, "{:?}", step);
            let kept = usize::try_from(replicas).unwrap();
            prop_assert!(states.iter().take(kept).all(available), "all that stay are available");
        }
    }
}
