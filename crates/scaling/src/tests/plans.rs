//! Single plans, where it matters what is written first.

use gantry_reconcile::{Controller as _, Key, Resource, View as _, World, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::models::*;
use crate::owner_labels::{FINALIZER, RETURNED_ANNOTATION};
use crate::settings::Backend;
use crate::view::{AppWrapper, ConfigMap, DELETE_FIRST, Machine, MachineSet, SET_LABEL};

/// Returns what a plan about job `a` writes: the name of each object, and the body.
fn writes(objects: &[(Resource, Value)]) -> Vec<(String, Value)> {
    let scaling = scaling(Backend::Reuse, 9);
    let world = World::new(scaling.kinds());
    for (number, (resource, object)) in objects.iter().enumerate() {
        let mut object = object.clone();
        object["metadata"]["uid"] = json!(format!("uid-{}", object["metadata"]["name"]));
        object["metadata"]["resourceVersion"] = json!((number + 1).to_string());
        object["metadata"]["generation"] = json!(1);
        world.single_store_for(resource).unwrap().observe(&object.to_string()).unwrap();
    }
    let plan = scaling.plan(&world, &key("a"), Timestamp::UNIX_EPOCH);
    let body = |write: &Write| match write {
        Write::Merge { body, .. } | Write::Create { body, .. } => body.clone(),
        Write::Apply { .. } | Write::Delete { .. } | Write::Bind { .. } | Write::Evict { .. } => {
            Value::Null
        }
    };
    plan.steps.iter().map(|it| (it.write.key().name().to_owned(), body(&it.write))).collect()
}

fn running(state: &str) -> (Resource, Value) {
    let (resource, mut job) = job("a", "g", &[1]);
    job["metadata"]["finalizers"] = json!([FINALIZER]);
    job["status"] = json!({"state": state});
    (resource, job)
}

fn granted(id: &str) -> (Resource, Value) {
    let grant = json!({
        "id": id, "uid": "uid-\"a\"", "since": "1970-01-01T00:00:00Z",
        "lots": [{"instance": "g", "count": 1, "place": format!("{NAMESPACE}/s")}],
    });
    let object = json!({
        "metadata": {"name": "ledger", "namespace": "gantry"}, "data": {"n.a": grant.to_string()},
    });
    (ConfigMap::RESOURCE, object)
}

/// Returns the set, of which one machine was bought.
fn bought(replicas: i64) -> (Resource, Value) {
    let (resource, mut set) = set("s", "g", replicas);
    set["metadata"]["labels"]["instascale.codeflare.dev-a-n"] = json!("1");
    set["status"] = json!({"replicas": replicas, "observedGeneration": 1});
    (resource, set)
}

fn machine(name: &str, day: u32, phase: &str, marks: &[&str]) -> (Resource, Value) {
    let mut labels = json!({SET_LABEL: "s"});
    for mark in marks {
        labels[*mark] = json!(mark);
    }
    let object = json!({
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": labels,
            "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z"),
        },
        "status": {"phase": phase},
    });
    (Machine::RESOURCE, object)
}

#[test]
fn is_14_only_unowned_purchased_machines_are_labelled() {
    let fleet = |newest: &str| {
        let (resource, mut set) = bought(4);
        set["metadata"]["labels"]["instascale.codeflare.dev-b-n"] = json!("1");
        vec![
            running("Running"),
            granted("g1"),
            (resource, set),
            machine("older", 1, "Running", &[]),
            machine("old", 2, "Running", &[]),
            machine("of-b", 3, "Running", &["b-n"]),
            machine("new", 4, newest, &[]),
        ]
    };
    let mark = json!({"metadata": {"labels": {"a-n": "a-n"}}});
    assert_eq!(writes(&fleet("Running")), [("new".to_owned(), mark)]);
    assert_eq!(writes(&fleet("Provisioning")), [], "nothing else is taken instead");
}

#[test]
fn is_15_machines_are_marked_for_deletion_before_scale_down() {
    let fleet = |machine: (Resource, Value)| {
        vec![
            running("Completed"),
            granted("g1"),
            bought(2),
            self::machine("old", 1, "Running", &[]),
            machine,
        ]
    };
    let first = writes(&fleet(machine("new", 2, "Running", &["a-n"])));
    let told =
        json!({"metadata": {"labels": {"a-n": "a-n"}, "annotations": {DELETE_FIRST: "true"}}});
    assert_eq!(first, [("new".to_owned(), told.clone())]);
    // One that is not in use yet is as good.
    let early = writes(&fleet(machine("new", 2, "Provisioning", &[])));
    assert_eq!(early, [("new".to_owned(), told)]);

    let (resource, mut going) = machine("new", 2, "Running", &["a-n"]);
    going["metadata"]["annotations"] = json!({DELETE_FIRST: "true"});
    let second = writes(&fleet((resource, going)));
    let label = "instascale.codeflare.dev-a-n";
    let smaller = json!({
        "metadata": {"labels": {label: null}, "annotations": {label: null, RETURNED_ANNOTATION: "g1"}},
        "spec": {"replicas": 1},
    });
    assert_eq!(second, [("s".to_owned(), smaller)]);
}

#[test]
fn is_16_a_set_remembers_what_was_given_back() {
    // Nothing was bought; a request in flight must find the set changed.
    let over = [running("Completed"), granted("g1"), set("s", "g", 0)];
    let fence = json!({"metadata": {"annotations": {RETURNED_ANNOTATION: "g1"}}});
    assert_eq!(writes(&over), [("s".to_owned(), fence)]);
    // A process whose cache does not show that the grant is over does not buy again.
    let (resource, mut returned) = set("s", "g", 0);
    returned["metadata"]["annotations"][RETURNED_ANNOTATION] = json!("g2,g1");
    let late = [running("Pending"), granted("g1"), (resource.clone(), returned.clone())];
    assert_eq!(writes(&late), []);
    let other = [running("Pending"), granted("g3"), (resource, returned)];
    assert_eq!(writes(&other).len(), 1, "another grant is another matter");
}

#[test]
fn is_2_a_grant_is_seen_before_anything_is_bought() {
    let (resource, mut job) = running("Pending");
    job["status"]["conditions"] =
        json!([{"type": "Backoff", "status": "True", "message": NO_CAPACITY_MESSAGE}]);
    let written = writes(&[(resource, job), set("s", "g", 0)]);
    let names: Vec<&str> = written.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ledger"]);
    // And the job has its finalizer before that.
    let (resource, mut free) = super::models::job("a", "g", &[1]);
    free["status"] = json!({"state": "Pending", "conditions": [{"type": "Backoff", "status": "True", "message": NO_CAPACITY_MESSAGE}]});
    let written = writes(&[(resource, free), set("s", "g", 0)]);
    assert_eq!(written, [("a".to_owned(), json!({"metadata": {"finalizers": [FINALIZER]}}))]);
}

#[test]
fn is_11_an_unreadable_set_is_reported() {
    let scaling = scaling(Backend::Reuse, 9);
    let controllers: [&dyn gantry_reconcile::Controller; 1] = [&scaling];
    let (resource, mut broken) = set("s", "g", 0);
    broken["spec"]["template"]["spec"]["providerSpec"]["value"] = json!("g");
    let mut scenario =
        scenario(&controllers, vec![(resource, broken), job("a", "g", &[1])], vec![]);
    scenario.defaults = queued;
    let ending = final_state_without_faults(&scenario);
    assert_eq!(ending.held[0].reason, "MachineSetUnreadable", "{:?}", ending.held);
    assert!(ending.held[0].message.contains("openshift-machine-api/s"), "{:?}", ending.held);
    let job = ending.server.get(&AppWrapper::RESOURCE, &Key::new("n", "a")).unwrap();
    assert!(job["metadata"]["annotations"].to_string().contains("providerSpec"), "{job}");
    assert!(ending.server.get(&MachineSet::RESOURCE, &set_key("s")).is_some());
}
