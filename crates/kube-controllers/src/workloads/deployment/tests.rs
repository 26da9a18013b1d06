use std::time::Duration;

use gantry_reconcile::{Step, Subresource, Write};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::limits::RolloutLimits;
use super::*;

const NOW: &str = "2026-01-01T12:00:00Z";
const AGO: &str = "2026-01-01T11:55:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn pod_template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    })
}

/// Deployment `web` of image `new`, with one pod of surge and one of unavailability.
fn deployment(replicas: i64) -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "n", "uid": "web", "resourceVersion": "9", "generation": 3,
            "creationTimestamp": "2026-01-01T10:00:00Z",
            "annotations": {"deployment.kubernetes.io/revision": "2"},
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "a"}},
            "template": pod_template("new"),
            "strategy": {
                "type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1},
            },
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": 600,
        },
        "status": {
            "observedGeneration": 3,
            "conditions": [
                {
                    "type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated",
                    "message": "x", "lastUpdateTime": AGO, "lastTransitionTime": AGO,
                },
            ],
        },
    })
}

/// A set of image `image`; the revision determines its age as well. All its pods exist.
fn set(image: &str, revision: i64, size: i64, available: i64, desired: i64) -> Value {
    let template = with(pod_template(image), "/metadata/labels/pod-template-hash", json!(image));
    json!({
        "metadata": {
            "name": format!("web-{image}"), "namespace": "n", "uid": image, "resourceVersion": "5",
            "generation": 1,
            "creationTimestamp": format!("2026-01-01T11:00:0{revision}Z"),
            "labels": {"app": "a", "pod-template-hash": image},
            "annotations": {
                "deployment.kubernetes.io/revision": revision.to_string(),
                "deployment.kubernetes.io/desired-replicas": desired.to_string(),
                "deployment.kubernetes.io/max-replicas": (desired + 1).to_string(),
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "replicas": size,
            "selector": {"matchLabels": {"app": "a", "pod-template-hash": image}},
            "template": template,
        },
        "status": {
            "replicas": size, "readyReplicas": available, "availableReplicas": available,
            "observedGeneration": 1,
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

fn world(deployment: &Value, sets: &[Value]) -> World {
    let world = World::new(DeploymentController.kinds());
    world.store::<Deployment>().set(serde_json::from_value(deployment.clone()).unwrap());
    for set in sets {
        world.store::<ReplicaSet>().set(serde_json::from_value(set.clone()).unwrap());
    }
    world
}

fn planned(deployment: &Value, sets: &[Value]) -> Plan {
    DeploymentController.plan(&world(deployment, sets), &Key::new("n", "web"), now())
}

/// The sizes of scaled sets, and created and deleted sets.
fn sizes(plan: &Plan) -> Vec<String> {
    let one = |step: &Step| match &step.write {
        Write::Merge { subresource: Subresource::Main, key, body, .. } => {
            body["spec"]["replicas"].as_i64().map(|size| format!("{} {size}", key.name()))
        }
        Write::Create { body, .. } => Some(format!("new {}", body["spec"]["replicas"])),
        Write::Delete { key, .. } => Some(format!("delete {}", key.name())),
        Write::Merge { .. } | Write::Apply { .. } | Write::Bind { .. } | Write::Evict { .. } => {
            None
        }
    };
    plan.steps.iter().filter_map(one).collect()
}

fn status(plan: &Plan) -> Option<&Value> {
    plan.steps.iter().find_map(|step| match &step.write {
        Write::Merge { subresource: Subresource::Status, body, .. } => Some(body),
        Write::Merge { .. }
        | Write::Create { .. }
        | Write::Delete { .. }
        | Write::Apply { .. }
        | Write::Bind { .. }
        | Write::Evict { .. } => None,
    })
}

/// A condition as it is written, without its times.
fn condition(plan: &Plan, kind: &str) -> Value {
    let Some(body) = status(plan) else { return Value::Null };
    let list = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.iter().find(|it| it["type"] == kind);
    found.map_or(Value::Null, |it| json!([it["status"], it["reason"], it["message"]]))
}

#[test]
fn limits_follow_from_the_size() {
    let table = [
        (10, json!("25%"), json!("25%"), 3, 2),
        (1, json!("25%"), json!("25%"), 1, 0),
        (2, json!("0%"), json!("1%"), 0, 1),
        (1, json!(0), json!("50%"), 0, 1),
        (3, json!(5), json!(0), 5, 0),
        (3, json!(0), json!(5), 0, 3),
        (0, json!("25%"), json!("25%"), 0, 0),
    ];
    for (replicas, surge, unavailable, expected_surge, expected_unavailable) in table {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        let deployment =
            with(deployment(replicas), "/spec/strategy/rollingUpdate", rolling.clone());
        let limits = RolloutLimits::of(&serde_json::from_value(deployment).unwrap());
        let expected = RolloutLimits { surge: expected_surge, unavailable: expected_unavailable };
        assert_eq!(limits, expected, "{replicas} with {rolling}");
    }
}

#[test]
fn a_new_template_gets_a_set() {
    let deployment = with(deployment(4), "/metadata/annotations/kubernetes.io~1x", json!("y"));
    let plan = planned(&deployment, &[set("old", 2, 4, 4, 4)]);
    assert_eq!(sizes(&plan), ["new 1"]);
    let Write::Create { body, .. } = &plan.steps[0].write else { panic!("{plan:?}") };
    let name = body["metadata"]["name"].as_str().unwrap();
    let hash = name.strip_prefix("web-").unwrap();
    assert!((8..=10).contains(&hash.len()), "{name}");
    let labels = json!({"app": "a", "pod-template-hash": hash});
    assert_eq!(body["metadata"]["labels"], labels);
    assert_eq!(body["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(body["spec"]["selector"], json!({"matchLabels": labels}));
    assert_eq!(
        body["metadata"]["annotations"],
        json!({
            "kubernetes.io~1x": "y",
            "deployment.kubernetes.io/revision": "3",
            "deployment.kubernetes.io/desired-replicas": "4",
            "deployment.kubernetes.io/max-replicas": "5",
        })
    );
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "web");
    let done = plan.steps[0].success_events.first().unwrap();
    assert_eq!(done.reason, "ScalingReplicaSet");
    assert_eq!(done.message, format!("Scaled up replica set {name} from 0 to 1"));
    let refused = plan.steps[0].refusal_event.as_ref().unwrap();
    assert_eq!(refused.reason, "ReplicaSetCreateError");
    assert_eq!(refused.message, format!("Failed to create new replica set \"{name}\""));
    assert_eq!(sizes(&planned(&deployment, &[])), ["new 4"], "the first one gets all");
}

#[test]
fn a_colliding_name_is_not_retried() {
    let first = planned(&deployment(1), &[]);
    let name = first.steps[0].write.key().name().to_owned();
    let mut other = with(set("other", 1, 0, 0, 0), "/metadata/name", json!(name));
    other["metadata"]["ownerReferences"] = json!([]);
    other["metadata"]["labels"] = json!({});
    let plan = planned(&deployment(1), &[other]);
    assert_eq!(sizes(&plan), Vec::<String>::new());
    assert_eq!(status(&plan).unwrap()["status"]["collisionCount"], 1);
    let later = with(deployment(1), "/status/collisionCount", json!(1));
    assert_ne!(planned(&later, &[]).steps[0].write.key().name(), name);
}

#[test]
fn rollouts_go_step_by_step() {
    let old = |size, available| set("old", 1, size, available, 4);
    let new = |size, available| set("new", 2, size, available, 4);
    let table: [(&str, Vec<Value>, Vec<&str>); 13] = [
        ("one more than wanted allows a new one", vec![old(4, 4), new(0, 0)], vec!["web-new 1"]),
        ("no surge left: an old one is deleted", vec![old(4, 4), new(1, 0)], vec!["web-old 3"]),
        ("then a new one comes", vec![old(3, 3), new(1, 0)], vec!["web-new 2"]),
        ("both may be missing no more", vec![old(3, 3), new(2, 0)], vec![]),
        ("nor an ill one that may recover", vec![old(3, 2), new(2, 0)], vec![]),
        ("an available one replaces an old one", vec![old(3, 3), new(2, 1)], vec!["web-old 2"]),
        ("the last ones", vec![old(1, 1), new(4, 4)], vec!["web-old 0"]),
        ("done", vec![old(0, 0), new(4, 4)], vec![]),
        ("ill ones go first", vec![old(4, 2), new(1, 1)], vec!["web-old 2"]),
        (
            "ill ones of all",
            vec![set("other", 1, 2, 0, 4), old(3, 3), new(0, 0)],
            vec!["web-other 0"],
        ),
        ("pods about to go are not counted twice", vec![old(2, 4), new(3, 1)], vec![]),
        ("a new set that is too large shrinks", vec![old(0, 0), new(6, 6)], vec!["web-new 4"]),
        (
            "the older of two goes first",
            vec![set("other", 1, 2, 2, 4), set("old", 1, 2, 2, 4), new(1, 1)],
            vec!["web-old 0"],
        ),
    ];
    for (why, sets, expected) in table {
        assert_eq!(sizes(&planned(&deployment(4), &sets)), expected, "{why}");
    }
    let plan = planned(&deployment(4), &[old(1, 1), new(4, 4)]);
    let note = plan.steps[0].success_events.first().unwrap();
    assert_eq!(note.message, "Scaled down replica set web-old from 1 to 0");
}

#[test]
fn sizes_spread_in_proportion() {
    let old = |size, desired| set("old", 1, size, size, desired);
    let new = |size, desired| set("new", 2, size, 0, desired);
    let table: [(&str, i64, Vec<Value>, Vec<&str>); 7] = [
        ("the only set gets all", 6, vec![new(4, 4)], vec!["web-new 6"]),
        ("and less", 1, vec![new(4, 4)], vec!["web-new 1"]),
        ("both grow", 10, vec![old(3, 4), new(2, 4)], vec!["web-old 7", "web-new 4"]),
        ("both shrink", 2, vec![old(8, 10), new(3, 10)], vec!["web-old 2", "web-new 1"]),
        ("to nothing", 0, vec![old(3, 4), new(2, 4)], vec!["web-old 0", "web-new 0"]),
        (
            "of the same size the new one grows first",
            5,
            vec![old(2, 3), new(2, 3)],
            vec!["web-old 3", "web-new 3"],
        ),
        (
            "a full new set leaves nothing",
            4,
            vec![set("other", 1, 2, 2, 3), with(new(4, 4), "/status/availableReplicas", json!(4))],
            vec!["web-other 0"],
        ),
    ];
    for (why, replicas, sets, expected) in table {
        let plan = planned(&deployment(replicas), &sets);
        assert_eq!(sizes(&plan), expected, "{why}");
        let Write::Merge { body, .. } = &plan.steps[0].write else { panic!("{why}") };
        let annotations = &body["metadata"]["annotations"];
        let desired = &annotations["deployment.kubernetes.io/desired-replicas"];
        assert_eq!(*desired, replicas.to_string(), "{why}");
        let most = &annotations["deployment.kubernetes.io/max-replicas"];
        assert_eq!(*most, (replicas + 1).to_string(), "{why}");
    }
}

#[test]
fn a_paused_deployment_is_sized_and_not_rolled_out() {
    let paused = with(deployment(4), "/spec/paused", json!(true));
    let plan = planned(&paused, &[set("old", 1, 4, 4, 4)]);
    assert_eq!(sizes(&plan), Vec::<String>::new());
    assert_eq!(plan.held[0].reason, "DeploymentPaused");
    let expected = json!(["Unknown", "DeploymentPaused", "Deployment is paused"]);
    assert_eq!(condition(&plan, "Progressing"), expected);
    let larger = with(paused, "/spec/replicas", json!(6));
    assert_eq!(sizes(&planned(&larger, &[set("old", 1, 4, 4, 4)])), ["web-old 6"]);
    let reason = "/status/conditions/0/reason";
    let mut resumed = deployment(4);
    *resumed.pointer_mut(reason).unwrap() = json!("DeploymentPaused");
    *resumed.pointer_mut("/status/conditions/0/status").unwrap() = json!("Unknown");
    let plan = planned(&resumed, &[set("new", 2, 4, 2, 4)]);
    let expected = json!(["Unknown", "DeploymentResumed", "Deployment is resumed"]);
    let at_once = with(resumed, "/status/readyReplicas", json!(9));
    let plan_without_news =
        planned(&with(at_once, "/status/availableReplicas", json!(9)), &[set("new", 2, 0, 0, 4)]);
    assert_eq!(condition(&plan_without_news, "Progressing"), expected);
    assert_eq!(condition(&plan, "Progressing")[1], "ReplicaSetUpdated", "progress says more");
}

#[test]
fn pods_are_recreated_when_the_old_ones_are_gone() {
    let recreate = with(deployment(4), "/spec/strategy", json!({"type": "Recreate"}));
    let old = |size, there| with(set("old", 1, size, size, 4), "/status/replicas", json!(there));
    assert_eq!(sizes(&planned(&recreate, &[old(4, 4)])), ["web-old 0"]);
    let waits = planned(&recreate, &[old(0, 1)]);
    assert_eq!(sizes(&waits), Vec::<String>::new());
    assert_eq!(waits.held[0].reason, "OldPodsRunning");
    assert_eq!(sizes(&planned(&recreate, &[old(0, 0)])), ["new 4"]);
    assert_eq!(sizes(&planned(&recreate, &[old(0, 0), set("new", 2, 0, 0, 4)])), ["web-new 4"]);
    // The set reports no pods, but one is still terminating.
    let world = world(&recreate, &[old(0, 0)]);
    let going = json!({
        "metadata": {
            "name": "p", "namespace": "n", "uid": "p", "deletionTimestamp": NOW,
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-old", "uid": "old", "controller": true}],
        },
        "status": {"phase": "Running"},
    });
    let change = world.store::<Pod>().set(serde_json::from_value(going).unwrap());
    let key = Key::new("n", "web");
    assert_eq!(sizes(&DeploymentController.plan(&world, &key, now())), Vec::<String>::new());
    assert!(DeploymentController.enqueue(&world, &change).is_empty());
    let gone = world.store::<Pod>().unset(&change.key).unwrap();
    assert_eq!(
        DeploymentController.enqueue(&world, &gone),
        std::slice::from_ref(&key),
        "it waits for this"
    );
    assert_eq!(sizes(&DeploymentController.plan(&world, &key, now())), ["new 4"]);
}

#[test]
fn revisions_are_numbered() {
    let back = set("new", 1, 0, 0, 4);
    let sets = [back.clone(), set("old", 2, 4, 4, 4)];
    let plan = planned(&deployment(4), &sets);
    let merge = plan.steps.iter().find(|it| it.write.key().name() == "web-new").unwrap();
    let Write::Merge { body, .. } = &merge.write else { panic!("{plan:?}") };
    let annotations = &body["metadata"]["annotations"];
    assert_eq!(annotations["deployment.kubernetes.io/revision"], "3");
    assert_eq!(annotations["deployment.kubernetes.io/revision-history"], "1");
    assert_eq!(status(&plan).unwrap().get("metadata"), None, "not while the number changes");
    // When the set has its revision, the deployment takes it over.
    let mut back = with(back, "/metadata/annotations/deployment.kubernetes.io~1x", json!(""));
    back["metadata"]["annotations"] = json!({
        "deployment.kubernetes.io/revision": "3",
        "deployment.kubernetes.io/revision-history": "1",
    });
    let plan = planned(&deployment(4), &[back, set("old", 2, 4, 4, 4)]);
    let taken = &status(&plan).unwrap()["metadata"]["annotations"];
    assert_eq!(*taken, json!({"deployment.kubernetes.io/revision": "3"}));
    assert_eq!(condition(&plan, "Progressing")[1], "ReplicaSetUpdated", "nothing was created");
}

#[test]
fn old_sets_beyond_the_limit_are_deleted() {
    let complete = json!({
        "observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
        "availableReplicas": 2,
    });
    let done = with(deployment(2), "/status", complete);
    let old = |name: &str, revision| set(name, revision, 0, 0, 2);
    let sets =
        [old("a", 3), old("b", 1), old("c", 2), set("d", 4, 0, 0, 2), set("new", 5, 2, 2, 2)];
    assert_eq!(sizes(&planned(&done, &sets)), ["delete web-b", "delete web-c"]);
    let mut busy = sets.clone();
    busy[1]["status"]["replicas"] = json!(1);
    busy[2]["metadata"]["generation"] = json!(2);
    assert_eq!(sizes(&planned(&done, &busy)), Vec::<String>::new());
    let running = with(done, "/status/availableReplicas", json!(1));
    assert_eq!(sizes(&planned(&running, &sets)), Vec::<String>::new(), "only when all is done");
}

#[test]
fn progress_is_reported() {
    let counts = |replicas: i64, updated: i64, available: i64, reason: &str, since: &str| {
        json!({
            "observedGeneration": 3, "replicas": replicas, "updatedReplicas": updated,
            "readyReplicas": available, "availableReplicas": available,
            "conditions": [{
                "type": "Progressing", "status": "True", "reason": reason, "message": "m",
                "lastUpdateTime": since, "lastTransitionTime": since,
            }],
        })
    };
    let long_ago = "2026-01-01T11:00:00Z";
    let sets = |available| vec![set("new", 2, 4, available, 4)];
    let table = [
        (
            "all are available",
            counts(4, 4, 3, "ReplicaSetUpdated", AGO),
            sets(4),
            json!([
                "True",
                "NewReplicaSetAvailable",
                "ReplicaSet \"web-new\" has successfully progressed."
            ]),
        ),
        (
            "one more is",
            counts(4, 4, 2, "NewReplicaSetCreated", AGO),
            sets(3),
            json!(["True", "ReplicaSetUpdated", "ReplicaSet \"web-new\" is progressing."]),
        ),
        (
            "for too long none was",
            counts(4, 4, 2, "ReplicaSetUpdated", long_ago),
            sets(2),
            json!([
                "False",
                "ProgressDeadlineExceeded",
                "ReplicaSet \"web-new\" has timed out progressing."
            ]),
        ),
        (
            "what was done is not undone by a pod that fails",
            counts(4, 4, 4, "NewReplicaSetAvailable", long_ago),
            sets(3),
            json!(["True", "NewReplicaSetAvailable", "m"]),
        ),
    ];
    for (why, before, sets, expected) in table {
        let plan = planned(&with(deployment(4), "/status", before), &sets);
        assert_eq!(condition(&plan, "Progressing"), expected, "{why}");
    }
    // Nothing happens for now: it is requeued when the deadline has passed.
    let waiting = with(deployment(4), "/status", counts(4, 4, 2, "ReplicaSetUpdated", AGO));
    let plan = planned(&waiting, &sets(2));
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(301)));
    // A set that was just created, or existed before the deployment.
    let first = with(deployment(4), "/metadata/annotations", json!({}));
    let first = with(first, "/status", json!({"observedGeneration": 3}));
    let mut fresh = set("new", 1, 4, 0, 4);
    fresh["status"] = json!({});
    let plan = planned(&first, std::slice::from_ref(&fresh));
    let expected = json!(["True", "NewReplicaSetCreated", "Created new replica set \"web-new\""]);
    assert_eq!(condition(&plan, "Progressing"), expected);
    fresh["metadata"]["creationTimestamp"] = json!("2026-01-01T09:00:00Z");
    let plan = planned(&first, &[fresh]);
    let expected = json!(["True", "FoundNewReplicaSet", "Found new replica set \"web-new\""]);
    assert_eq!(condition(&plan, "Progressing"), expected);
}

#[test]
fn availability_is_reported() {
    let available =
        json!(["True", "MinimumReplicasAvailable", "Deployment has minimum availability."]);
    let unavailable = json!([
        "False",
        "MinimumReplicasUnavailable",
        "Deployment does not have minimum availability."
    ]);
    for (count, expected) in [(4, &available), (3, &available), (2, &unavailable)] {
        let plan = planned(&deployment(4), &[set("new", 2, 4, count, 4)]);
        assert_eq!(condition(&plan, "Available"), *expected, "{count} of 4");
    }
    let plan = planned(&deployment(4), &[set("old", 1, 2, 2, 4), set("new", 2, 3, 1, 4)]);
    let mut found = status(&plan).unwrap()["status"].clone();
    found.as_object_mut().unwrap().remove("conditions");
    assert_eq!(
        found,
        json!({
            "observedGeneration": 3, "replicas": 5, "updatedReplicas": 3, "readyReplicas": 3,
            "availableReplicas": 3, "unavailableReplicas": 2, "collisionCount": null,
        })
    );
}

#[test]
fn sets_are_adopted_and_released() {
    let orphan = with(set("new", 1, 4, 4, 4), "/metadata/ownerReferences", json!([]));
    let plan = planned(&deployment(4), &[orphan]);
    assert_eq!(plan.steps.len(), 1, "alone");
    let Write::Merge { body, .. } = &plan.steps[0].write else { panic!("{plan:?}") };
    assert_eq!(body["metadata"]["ownerReferences"][0]["name"], "web");
    let provided = plan.steps[0].require_present.as_ref().map(|it| it.key.name().to_owned());
    assert_eq!(provided.as_deref(), Some("web"), "it is not adopted by an owner being deleted");
    let stray = with(set("new", 1, 4, 4, 4), "/metadata/labels", json!({"app": "b"}));
    let plan = planned(&deployment(4), &[stray]);
    let Write::Merge { body, .. } = &plan.steps[0].write else { panic!("{plan:?}") };
    assert_eq!(body["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(plan.steps[0].require_present, None, "an owner being deleted may still release");
}

#[test]
fn templates_are_the_same_whatever_wrote_them() {
    let stored = json!({
        "metadata": {"creationTimestamp": null, "labels": {"app": "a", "pod-template-hash": "x"}},
        "spec": {
            "containers": [{"name": "main", "image": "new", "resources": {}, "env": []}],
            "securityContext": {},
        },
    });
    assert!(template::is_same_template(&stored, &pod_template("new")));
    let other = with(pod_template("new"), "/spec/volumes", json!([{"name": "v", "emptyDir": {}}]));
    let none = with(pod_template("new"), "/spec/volumes", json!([{"name": "v"}]));
    assert!(!template::is_same_template(&other, &none), "here, empty is not nothing");
    assert_eq!(template::hash(&stored, None), template::hash(&pod_template("new"), None));
    assert_ne!(template::hash(&stored, None), template::hash(&stored, Some(1)));
}

proptest! {
    /// From any rollout within its limits, whatever becomes available or is lost on the way, no
    /// step exceeds them, and it ends with all pods new.
    #[test]
    fn rollouts_stay_within_their_limits(
        replicas in 1_i64..12,
        (surge, unavailable) in (0_i64..4, 0_i64..4),
        olds in proptest::collection::vec(0_i64..6, 1..3),
        mut chance in any::<u64>(),
    ) {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        let deployment = with(deployment(replicas), "/spec/strategy/rollingUpdate", rolling);
        let limits = RolloutLimits::of(&serde_json::from_value(deployment.clone()).unwrap());
        // Old sets share the size; all of their pods are available.
        let mut left = replicas;
        let mut sets: Vec<(String, i64, i64)> = olds.iter().enumerate().map(|(n, size)| {
            let size = (*size).min(left);
            left -= size;
            (format!("old{n}"), size, size)
        }).collect();
        sets[0].1 += left;
        sets[0].2 += left;
        sets.push(("new".to_owned(), 0, 0));
        let objects = |sets: &[(String, i64, i64)]| -> Vec<Value> {
            sets.iter().enumerate().map(|(n, (image, size, available))| {
                set(image, i64::try_from(n).unwrap() + 1, *size, *available, replicas)
            }).collect()
        };
        for round in 0..200 {
            let plan = planned(&deployment, &objects(&sets));
            let steps = sizes(&plan);
            for step in &steps {
                let (name, size) = step.split_once(' ').unwrap();
                let size: i64 = size.parse().unwrap();
                let set = sets.iter_mut().find(|it| format!("web-{}", it.0) == name).unwrap();
                // Pods that are not available are deleted first.
                set.2 = set.2.min(size);
                set.1 = size;
            }
            let size: i64 = sets.iter().map(|it| it.1).sum();
            let available: i64 = sets.iter().map(|it| it.2).sum();
            prop_assert!(size <= replicas + limits.surge, "round {}: {:?}", round, sets);
            prop_assert!(available >= replicas - limits.unavailable, "round {}: {:?}", round, sets);
            if sets.iter().all(|it| it.1 == if it.0 == "new" { replicas } else { 0 }) {
                return Ok(());
            }
            // Some pods become available; later all do.
            let mut moved = !steps.is_empty();
            for set in &mut sets {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if set.2 < set.1 && (chance >> 60 < 8 || round > 50) {
                    set.2 += 1;
                    moved = true;
                }
            }
            prop_assert!(moved || round <= 50, "stuck with {:?}", sets);
        }
        prop_assert!(false, "never done: {:?}", sets);
    }
}

#[test]
fn a_rejected_set_is_reported_and_retried() {
    let fresh = {
        let mut it = deployment(2);
        it["status"] = json!({});
        it
    };
    let plan = planned(&fresh, &[]);
    assert_eq!(
        (sizes(&plan), status(&plan)),
        (vec!["new 2".to_owned()], None),
        "nothing is reported yet"
    );
    let name = plan.steps[0].write.key().name().to_owned();
    let refusal = gantry_reconcile::Refusal {
        code: 403,
        reason: "Forbidden".to_owned(),
        message: "replicasets are full".to_owned(),
    };
    let refused = |name: &str| RefusedWrite {
        verb: "create",
        resource: ReplicaSet::RESOURCE,
        key: Key::new("n", name),
        refusal: refusal.clone(),
    };
    let planned = |deployment: &Value, name: &str| {
        let world = world(deployment, &[]);
        world.record_refusals("deployment", &Key::new("n", "web"), vec![refused(name)]);
        DeploymentController.plan(&world, &Key::new("n", "web"), now())
    };
    let plan = planned(&fresh, &name);
    assert_eq!(sizes(&plan), ["new 2"], "it is tried again");
    let said = &status(&plan).unwrap()["status"];
    let message = format!("Failed to create new replica set \"{name}\": replicasets are full");
    assert_eq!(
        said["conditions"],
        json!([{
            "type": "Progressing", "status": "False", "reason": "ReplicaSetCreateError",
            "message": message, "lastUpdateTime": NOW, "lastTransitionTime": NOW,
        }])
    );
    assert_eq!(said["observedGeneration"], Value::Null, "nothing else is reported");
    let mut known = fresh.clone();
    known["status"]["conditions"] = said["conditions"].clone();
    assert_eq!(status(&planned(&known, &name)), None, "and this once");
    assert_eq!(status(&planned(&fresh, "web-other")), None, "another set is another matter");
    let mut patient = fresh;
    patient["spec"]["progressDeadlineSeconds"] = Value::Null;
    assert_eq!(status(&planned(&patient, &name)), None, "without a deadline nothing is reported");
}
