use gantry_harness::{Server, UserAction};
use gantry_reconcile::View as _;
use serde_json::{Value, json};

use super::models::*;
use crate::node_group::NODE_GROUP_LABEL;
use crate::settings::Backend;
use crate::view::{ConfigMap, Node};

fn group(name: &str, most: u32) -> (gantry_reconcile::Resource, Value) {
    let node = json!({
        "metadata": {
            "labels": {"node.kubernetes.io/instance-type": name, "zone": "a"},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": []},
    });
    let object = json!({
        "metadata": {"name": name, "namespace": "gantry", "labels": {NODE_GROUP_LABEL: "true"}},
        "data": {"max": most.to_string(), "node": node.to_string()},
    });
    (ConfigMap::RESOURCE, object)
}

fn declared(name: &str) -> (gantry_reconcile::Resource, Value) {
    (Node::RESOURCE, json!({"metadata": {"name": name, "labels": {"a-n": "a-n"}}}))
}

#[test]
fn is_21_simulated_nodes_are_added_for_a_job_and_removed_after() {
    let scaling = scaling(Backend::Groups, 4);
    let controllers = |queue| -> [&dyn gantry_reconcile::Controller; 3] {
        [&scaling, queue, &Kubelet::REPORTS_NODES]
    };
    let waits = Queue { ends: false };
    let running = controllers(&waits);
    let objects = || vec![group("gpu", 3), declared("gpu-0"), job("a", "gpu", &[2])];
    // The declared node has the label as well: it is not counted and stays.
    let ending = final_state_without_faults(&scenario(&running, objects(), vec![]));
    let nodes = ending.server.list(&Node::RESOURCE);
    let made: Vec<_> = nodes.iter().filter(|it| it["metadata"]["name"] != "gpu-0").collect();
    assert_eq!(made.len(), 2);
    for node in made {
        let labels = &node["metadata"]["labels"];
        assert_eq!(
            (&labels["a-n"], &labels["a"], &labels["zone"]),
            (&json!("a-n"), &json!("a"), &json!("a"))
        );
        assert_eq!(labels["kubernetes.io/hostname"], node["metadata"]["name"]);
        assert_eq!(node["metadata"]["annotations"]["kwok.x-k8s.io/node"], "fake");
    }
    let over = Queue { ends: true };
    let controllers = controllers(&over);
    let crowd = || {
        let jobs = [("a", "gpu", 2), ("b", "gpu_cpu", 1), ("c", "cpu", 1), ("d", "gpu", 3)];
        let jobs = jobs.map(|(name, types, count)| job(name, types, &[count, 1]));
        let mut all = vec![group("gpu", 3), group("cpu", 2), declared("gpu-0")];
        all.extend(jobs);
        all
    };
    let check: UserAction = Box::new(|server: &mut Server| {
        assert!(server.get(&Node::RESOURCE, &gantry_reconcile::Key::cluster("gpu-0")).is_some());
    });
    let scenario = scenario(&controllers, crowd(), vec![removes("c"), check]);
    let end = final_state(&final_state_without_faults(&scenario).server);
    assert_eq!((&end["nodes"], &end["granted"]), (&json!(1), &json!([])), "{end:#}");
    proven(scenario.prove_faults(0..4, final_state));
    let few = vec![group("gpu", 3), job("a", "gpu", &[2]), job("b", "gpu", &[2])];
    proven(
        super::models::scenario(&controllers, few, vec![removes("b")])
            .prove_crashes(0, final_state),
    );
}

#[test]
fn is_21_full_and_missing_groups_are_reported() {
    let scaling = scaling(Backend::Groups, 9);
    let queue = Queue { ends: false };
    let controllers: [&dyn gantry_reconcile::Controller; 3] =
        [&scaling, &queue, &Kubelet::REPORTS_NODES];
    let objects = vec![group("gpu", 1), job("a", "gpu", &[2]), job("b", "tpu", &[1])];
    let ending = final_state_without_faults(&scenario(&controllers, objects, vec![]));
    let held: Vec<&str> = ending.held.iter().map(|it| it.reason.as_ref()).collect();
    assert_eq!(held, ["NodeGroupFull", "NoInstanceType"], "{:?}", ending.held);
    assert!(ending.server.list(&Node::RESOURCE).is_empty());
}
