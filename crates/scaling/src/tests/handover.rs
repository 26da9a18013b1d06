use gantry_harness::{Server, UserAction};
use gantry_reconcile::View as _;
use serde_json::{Value, json};

use super::models::*;
use crate::owner_labels::OwnerLabels;
use crate::settings::Backend;
use crate::view::{AppWrapper, Machine, MachineSet, Node};

/// Returns how many machines each job has, and the labels of the sets.
fn holders(server: &Server) -> Value {
    let count = |resource: &gantry_reconcile::Resource, name: &str| {
        let mark = OwnerLabels::of(&key(name)).owner_label;
        let objects = server.list(resource);
        objects.iter().filter(|it| it["metadata"]["labels"][&mark] == mark.as_str()).count()
    };
    let set = server.get(&MachineSet::RESOURCE, &set_key("s")).unwrap();
    let labels = set["metadata"]["labels"].as_object().unwrap();
    let bought = labels.iter().filter(|(key, _)| key.starts_with("instascale"));
    let bought: Vec<String> = bought.map(|(key, value)| format!("{key}={value}")).collect();
    let machines = ["a", "b", "c"].map(|name| count(&Machine::RESOURCE, name));
    let nodes = ["a", "b", "c"].map(|name| count(&Node::RESOURCE, name));
    json!({
        "machines": machines,
        "nodes": nodes,
        "replicas": set["spec"]["replicas"],
        "bought": bought,
    })
}

fn ends(name: &'static str) -> UserAction {
    Box::new(move |server: &mut Server| {
        server.edit(&AppWrapper::RESOURCE, &key(name), |it| {
            if it["status"]["state"] == "Running" {
                it["status"]["state"] = json!("Completed");
            }
        });
    })
}

#[test]
fn is_23_machines_are_handed_over_to_the_next_that_asks_for_the_same() {
    let (scaling, api) = (scaling(Backend::Reuse, 2), MachineApi::new(2));
    let queue = Queue { ends: true };
    let last = Queue { ends: false };
    let objects = |names: &[&str]| {
        let jobs = names.iter().map(|name| {
            let (resource, mut job) = job(name, "g", &[2]);
            job["metadata"]["finalizers"] = json!([crate::owner_labels::FINALIZER]);
            (resource, job)
        });
        [set("s", "g", 0)].into_iter().chain(jobs).collect::<Vec<_>>()
    };
    // All of them, one after the other, on the same two machines.
    let controllers: [&dyn gantry_reconcile::Controller; 4] =
        [&scaling, &queue, &api, &Kubelet::REPORTS_NODES];
    let whole = scenario(&controllers, objects(&["a", "b", "c"]), vec![]);
    let end = final_state(&final_state_without_faults(&whole).server);
    assert_eq!((&end["machines"], &end["granted"]), (&json!(0), &json!([])), "{end:#}");
    proven(whole.prove_faults(0..4, final_state));
    let two = scenario(&controllers, objects(&["a", "b"]), vec![]);
    proven(two.prove_crashes(0, final_state));

    // One ends, another takes over: the set is not changed but for its labels.
    let controllers: [&dyn gantry_reconcile::Controller; 4] =
        [&scaling, &last, &api, &Kubelet::REPORTS_NODES];
    let mut pair = scenario(&controllers, objects(&["a", "b"]), vec![]);
    pair.defaults = queued;
    let first = final_state_without_faults(&pair);
    let held = holders(&first.server);
    assert_eq!((&held["machines"], &held["replicas"]), (&json!([2, 0, 0]), &json!(2)), "{held}");
    let mut taken_over = scenario(&controllers, objects(&["a", "b"]), vec![]);
    // Jobs run only when their nodes are ready, so what ends `a` must come late: after a while.
    taken_over.defaults = queued;
    taken_over.script = (0..200).map(|_| ends("a")).collect();
    let ending = final_state_without_faults(&taken_over);
    let held = holders(&ending.server);
    assert_eq!(held["machines"], json!([0, 2, 0]), "{held}");
    assert_eq!(held["nodes"], json!([0, 2, 0]), "{held}");
    assert_eq!(held["bought"], json!(["instascale.codeflare.dev-b-n=\"2\""]), "{held}");
    let set = ending.server.get(&MachineSet::RESOURCE, &set_key("s")).unwrap();
    assert_eq!(set["metadata"]["generation"], 2, "nothing was given back or bought again");
    assert!(ending.events.iter().any(|it| it.reason == "TakeOver"));
    let granted = &final_state(&ending.server)["granted"];
    assert_eq!(*granted, json!(["n.b"]));
}
