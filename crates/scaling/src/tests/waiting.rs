use std::time::Duration;

use gantry_harness::{CONFLICTED_PREFIX, REFUSED_PREFIX, Server, UNREADABLE_PREFIX};
use gantry_reconcile::View as _;
use serde_json::{Value, json};

use super::models::*;
use crate::Scaling;
use crate::owner_labels::{FINALIZER, MESSAGE_ANNOTATION};
use crate::settings::{Backend, Limits};
use crate::view::{AppWrapper, ConfigMap, MachineSet, Node};

fn replicas(server: &Server, name: &str) -> i64 {
    field(server, &MachineSet::RESOURCE, &set_key(name), "/spec/replicas").as_i64().unwrap()
}

fn prioritised(name: &str, count: i64, priority: i64) -> (gantry_reconcile::Resource, Value) {
    // Ready to be granted nodes from the first moment.
    let (resource, mut job) = job(name, "g", &[count]);
    job["metadata"]["finalizers"] = json!([FINALIZER]);
    job["metadata"]["labels"]["priority"] = json!(priority.to_string());
    (resource, job)
}

#[test]
fn is_1_only_jobs_with_the_label_that_are_not_over_are_held() {
    let scaling = scaling(Backend::Reuse, 3);
    let controllers: [&dyn gantry_reconcile::Controller; 1] = [&scaling];
    let mut unlabelled = job("plain", "", &[1]);
    unlabelled.1["metadata"]["labels"] = json!({});
    let objects = vec![
        set("s", "g", 0),
        job("a", "g", &[1]),
        job("empty", "", &[1]),
        unlabelled,
        job("over", "g", &[1]),
    ];
    let mut scenario = scenario(&controllers, objects, vec![]);
    scenario.defaults = |resource, object| {
        if *resource == AppWrapper::RESOURCE && object["metadata"]["name"] == "over" {
            object["status"]["state"] = json!("Completed");
        }
    };
    let ending = final_state_without_faults(&scenario);
    let held = |name: &str| {
        field(&ending.server, &AppWrapper::RESOURCE, &key(name), "/metadata/finalizers")
    };
    assert_eq!(held("a"), json!([FINALIZER]));
    for name in ["empty", "plain", "over"] {
        assert_eq!(held(name), Value::Null, "{name}");
    }
    assert_eq!(replicas(&ending.server, "s"), 0, "it does not wait for room");
}

#[test]
fn is_7_the_limit_is_for_all_jobs_together_and_the_first_goes_first() {
    let scaling = scaling(Backend::Reuse, 3);
    let controllers: [&dyn gantry_reconcile::Controller; 1] = [&scaling];
    let objects = vec![
        set("s", "g", 0),
        prioritised("low", 1, 1),
        prioritised("high", 2, 9),
        prioritised("middle", 2, 5),
        prioritised("huge", 4, 99),
    ];
    let mut scenario = scenario(&controllers, objects, vec![]);
    scenario.defaults = queued;
    let ending = final_state_without_faults(&scenario);
    let bought = |name: &str| {
        let path = format!("/metadata/labels/instascale.codeflare.dev-{name}-n");
        field(&ending.server, &MachineSet::RESOURCE, &set_key("s"), &path)
    };
    assert_eq!(bought("high"), "2");
    assert_eq!(bought("low"), Value::Null, "no small job goes before one that waits longer");
    assert_eq!(replicas(&ending.server, "s"), 2);
    let message = |name: &str| {
        let job = ending.server.get(&AppWrapper::RESOURCE, &key(name)).unwrap();
        job["metadata"]["annotations"][MESSAGE_ANNOTATION].as_str().unwrap_or_default().to_owned()
    };
    assert!(message("middle").contains("waits until others have given theirs back"));
    assert!(message("huge").contains("raise instascale.maxScaleoutAllowed"), "{}", message("huge"));
    assert_eq!(message("high"), "");
    let told: Vec<_> = ending.events.iter().filter(|it| it.reason == "ScaleOutLimit").collect();
    let about: Vec<&str> = told.iter().map(|it| it.about.key.name()).collect();
    assert!(["low", "middle", "huge"].iter().all(|name| about.contains(name)), "{about:?}");

    // When the first is over, pending ones are next.
    scenario.script = vec![state("high", "Completed")];
    let ending = final_state_without_faults(&scenario);
    assert_eq!(
        replicas(&ending.server, "s"),
        3,
        "middle and low: {:#?}",
        (&ending.held, final_state(&ending.server))
    );
}

#[test]
fn a_higher_limit_unblocks_pending_jobs() {
    let scaling = scaling(Backend::Reuse, 1);
    let controllers: [&dyn gantry_reconcile::Controller; 1] = [&scaling];
    let mut scenario =
        scenario(&controllers, vec![set("s", "g", 0), prioritised("a", 2, 0)], vec![]);
    scenario.defaults = queued;
    assert_eq!(replicas(&final_state_without_faults(&scenario).server, "s"), 0);
    scaling.set_limits(Limits { max_nodes: 2, ..settings(Backend::Reuse, 0).limits });
    assert_eq!(replicas(&final_state_without_faults(&scenario).server, "s"), 2);
}

#[test]
fn is_24_nodes_stay_for_a_while_if_that_is_wanted() {
    let mut settings = settings(Backend::Reuse, 3);
    settings.limits.cooldown = Duration::from_secs(300);
    let scaling = Scaling::new(settings);
    let controllers: [&dyn gantry_reconcile::Controller; 1] = [&scaling];
    // It is bought as soon as the job is observed; that it is over comes later.
    let mut objects = vec![set("s", "g", 2), prioritised("a", 2, 0)];
    objects[0].1["metadata"]["labels"]["instascale.codeflare.dev-a-n"] = json!("2");
    let mut scenario = scenario(&controllers, objects, vec![]);
    scenario.defaults = queued;
    scenario.script =
        (0..200).map(|_| state("a", "Pending")).chain([state("a", "Completed")]).collect();
    scenario.horizon = Duration::from_secs(100);
    let ending = final_state_without_faults(&scenario);
    assert_eq!(replicas(&ending.server, "s"), 2);
    let held: Vec<&str> = ending.held.iter().map(|it| it.reason.as_ref()).collect();
    assert_eq!(held, ["CoolingDown"]);
    scenario.horizon = Duration::from_secs(900);
    let ending = final_state_without_faults(&scenario);
    assert_eq!(replicas(&ending.server, "s"), 0);
    assert_eq!(field(&ending.server, &ConfigMap::RESOURCE, &ledger(), "/data"), json!({}));
}

#[test]
fn is_10_jobs_with_the_same_labels_wait_for_each_other() {
    let scaling = scaling(Backend::Reuse, 9);
    let controllers: [&dyn gantry_reconcile::Controller; 1] = [&scaling];
    let named = |namespace: &str, name: &str, priority| {
        let (resource, mut job) = prioritised(name, 1, priority);
        job["metadata"]["namespace"] = json!(namespace);
        (resource, job)
    };
    let objects = vec![set("s", "g", 0), named("c", "a-b", 9), named("b-c", "a", 1)];
    let mut scenario = scenario(&controllers, objects, vec![]);
    scenario.defaults = queued;
    let ending = final_state_without_faults(&scenario);
    assert_eq!(replicas(&ending.server, "s"), 1);
    let held: Vec<&str> = ending.held.iter().map(|it| it.reason.as_ref()).collect();
    assert!(held.contains(&"MarksTaken"), "{held:?}");
}

#[test]
fn is_6_an_unreadable_grant_record_stops_scaling_and_is_reported() {
    let scaling = scaling(Backend::Reuse, 9);
    let controllers: [&dyn gantry_reconcile::Controller; 1] = [&scaling];
    let broken =
        json!({"metadata": {"name": "ledger", "namespace": "gantry"}, "data": {"n.x": "?"}});
    let objects = vec![set("s", "g", 0), prioritised("a", 1, 0), (ConfigMap::RESOURCE, broken)];
    let mut scenario = scenario(&controllers, objects, vec![]);
    scenario.defaults = queued;
    let ending = final_state_without_faults(&scenario);
    assert_eq!(replicas(&ending.server, "s"), 0);
    assert_eq!(ending.held[0].reason, "LedgerUnreadable", "{:?}", ending.held);
}

#[test]
fn one_bad_job_does_not_block_others() {
    let (scaling, api) = (scaling(Backend::Reuse, 3), MachineApi::new(3));
    let queue = Queue { ends: true };
    let controllers: [&dyn gantry_reconcile::Controller; 4] =
        [&scaling, &queue, &api, &Kubelet::REPORTS_NODES];
    let bad = [REFUSED_PREFIX, CONFLICTED_PREFIX, UNREADABLE_PREFIX].map(|wrong| {
        let (resource, mut object) = job(&format!("{wrong}-job"), "g", &[1]);
        if wrong == UNREADABLE_PREFIX {
            object["spec"]["resources"]["GenericItems"][0]["custompodresources"][0]["replicas"] =
                json!(1.5);
        }
        (resource, object)
    });
    let objects = vec![set("s", "g", 0), job("a", "g", &[2]), job("b", "g", &[1])];
    let scenario = scenario(&controllers, objects, vec![removes("b")]);
    let good = |server: &Server| {
        let mut shape = final_state(server);
        let jobs = shape["jobs"].as_array_mut().unwrap();
        jobs.retain(|it| {
            !["refused-job", "conflicted-job", "unreadable-job"].iter().any(|bad| it[0] == *bad)
        });
        shape
    };
    proven(scenario.prove_isolation(&bad, 0..10, good));
}

#[test]
fn is_4_neither_sizes_nor_free_nodes_count() {
    let scaling = scaling(Backend::Reuse, 9);
    let controllers: [&dyn gantry_reconcile::Controller; 1] = [&scaling];
    // A node of the type exists and is empty, and no machine would ever have so much.
    let free = json!({
        "metadata": {"name": "free", "labels": {"node.kubernetes.io/instance-type": "g"}},
        "status": {"allocatable": {"cpu": "96"}, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let (resource, mut job) = prioritised("a", 2, 0);
    let pods = &mut job["spec"]["resources"]["GenericItems"][0]["custompodresources"][0];
    pods["requests"] = json!({"cpu": 1_000_000, "memory": "1Pi"});
    let objects = vec![set("s", "g", 1), (Node::RESOURCE, free), (resource, job)];
    let mut scenario = scenario(&controllers, objects, vec![]);
    scenario.defaults = queued;
    assert_eq!(
        replicas(&final_state_without_faults(&scenario).server, "s"),
        3,
        "two more, one for each pod"
    );
}

#[test]
fn is_8_jobs_are_ordered_by_priority_then_age() {
    // Name, priority, the second it was first seen, type, nodes.
    type Job<'a> = (&'a str, f64, i64, &'a str, i64);
    let table: [(&str, Vec<Job<'_>>, &[&str]); 6] = [
        ("priority", vec![("low", 1.0, 1, "g", 1), ("high", 2.0, 9, "g", 1)], &["high", "low"]),
        ("then age", vec![("b", 0.0, 1, "g", 1), ("a", 0.0, 2, "g", 1)], &["b", "a"]),
        ("then name", vec![("b", 0.0, 1, "g", 1), ("a", 0.0, 1, "g", 1)], &["a", "b"]),
        (
            "a waiting job blocks those behind it",
            vec![("a", 3.0, 1, "g", 2), ("b", 2.0, 1, "g", 2), ("c", 1.0, 1, "g", 1)],
            &["a"],
        ),
        (
            "one that can never fit does not",
            vec![("a", 3.0, 1, "g", 4), ("b", 2.0, 1, "g", 3)],
            &["b"],
        ),
        (
            "nor does one that nothing gives nodes for",
            vec![("a", 3.0, 1, "unknown", 1), ("b", 2.0, 1, "g", 3)],
            &["b"],
        ),
    ];
    for (why, jobs, expected) in table {
        let settings = settings(Backend::Reuse, 3);
        let scaling = Scaling::new(settings.clone());
        let world = gantry_reconcile::World::new(gantry_reconcile::Controller::kinds(&scaling));
        let mut objects = vec![set("s", "g", 0)];
        for (name, priority, second, instance, count) in jobs {
            let (resource, mut job) = job(name, instance, &[count]);
            job["metadata"]["finalizers"] = json!([FINALIZER]);
            let seen = jiff::Timestamp::from_second(second).unwrap();
            job["status"] = json!({
                "state": "Pending", "systempriority": priority,
                "controllerfirsttimestamp": seen.to_string(),
                "conditions": [{"type": "Backoff", "status": "True", "message": NO_CAPACITY_MESSAGE}],
            });
            objects.push((resource, job));
        }
        for (resource, mut object) in objects {
            object["metadata"]["uid"] = object["metadata"]["name"].clone();
            object["metadata"]["resourceVersion"] = json!("1");
            world.single_store_for(&resource).unwrap().observe(&object.to_string()).unwrap();
        }
        let granted = crate::grant_record::GrantRecord::read(&world, &ledger()).unwrap();
        let next = crate::limits::grantable_jobs(&world, &granted, &settings);
        let names: Vec<&str> = next.iter().map(|it| it.name()).collect();
        assert_eq!(names, expected, "{why}");
    }
}
