//! Nodes that are chosen by asking the queue, with the queue itself deciding.

use std::sync::Arc;

use gantry_harness::{FinalState, Server};
use gantry_queue::{Dispatch, LiveSettings};
use gantry_reconcile::{
    Change, Controller, Key, Kind, Plan, Resource, Subresource, View as _, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::models::*;
use crate::ShapeInference;
use crate::node_group::NODE_GROUP_LABEL;
use crate::owner_labels::FINALIZER;
use crate::settings::Backend;
use crate::view::{
    AppWrapper, ConfigMap, NODES_ANNOTATION, Node, ORDERED_INSTANCE_LABEL, SHAPES_ANNOTATION,
};

const CAPACITY: &str = "gantry.dev/sim-capacity";

/// Reports every node as ready, with the resources of its annotation.
struct NodeReadiness;

impl Controller for NodeReadiness {
    fn name(&self) -> &'static str {
        "nodes"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Node>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        vec![change.key.clone()]
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(node) = world.store::<Node>().get(key) else { return plan };
        if node.is_ready() || node.metadata.is_terminating() {
            return plan;
        }
        let has: Value = serde_json::from_str(&node.metadata.annotations[CAPACITY]).unwrap();
        let status =
            json!({"allocatable": has, "conditions": [{"type": "Ready", "status": "True"}]});
        plan.write(Write::Merge {
            resource: Node::RESOURCE,
            key: key.clone(),
            subresource: Subresource::Status,
            fence: node.metadata.fence(),
            body: json!({"status": status}),
        });
        plan
    }
}

fn group(name: &str, most: u32, has: &Value) -> (Resource, Value) {
    let node = json!({"metadata": {
        "labels": {"node.kubernetes.io/instance-type": name},
        "annotations": {CAPACITY: has.to_string()},
    }});
    let object = json!({
        "metadata": {"name": name, "namespace": "gantry", "labels": {NODE_GROUP_LABEL: "true"}},
        "data": {"max": most.to_string(), "node": node.to_string()},
    });
    (ConfigMap::RESOURCE, object)
}

/// Returns a job that names no types, with this many pods of this size.
fn job_without_types(name: &str, priority: i64, pods: i64, asks: &Value) -> (Resource, Value) {
    let object = json!({
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"priority": priority, "resources": {"GenericItems": [
            {"custompodresources": [{"replicas": pods, "requests": asks}]}]}},
    });
    (AppWrapper::RESOURCE, object)
}

/// Marks every job as observed by the queue before the run begins.
fn mark_queued(resource: &Resource, object: &mut Value) {
    if *resource == AppWrapper::RESOURCE && object["status"].is_null() {
        object["status"] = json!({
            "state": "Pending", "queuejobstate": "Queueing",
            "systempriority": object["spec"]["priority"],
            "controllerfirsttimestamp": "1970-01-01T00:00:00.000000Z",
        });
    }
}

struct TestControllers {
    scaling: Arc<crate::Scaling>,
    shapes: ShapeInference,
    queue: Dispatch,
}

fn test_controllers(nodes: u32) -> TestControllers {
    let scaling = Arc::new(scaling(Backend::Groups, nodes));
    // Where sums alone count, a job that fits on no node may use what was bought for another.
    let live =
        LiveSettings::new(gantry_queue::Settings { packing_check: true, ..Default::default() });
    let shapes = ShapeInference::new(Arc::clone(&scaling), live.clone());
    TestControllers { scaling, shapes, queue: Dispatch::new(live) }
}

impl TestControllers {
    fn all(&self) -> [&dyn Controller; 4] {
        [self.scaling.as_ref(), &self.shapes, &self.queue, &NodeReadiness]
    }
}

fn is_admitted(server: &Server, name: &str) -> bool {
    field(server, &AppWrapper::RESOURCE, &key(name), "/status/canrun") == true
}

fn annotation(ending: &FinalState, name: &str, which: &str) -> String {
    let job = ending.server.get(&AppWrapper::RESOURCE, &key(name)).unwrap();
    job["metadata"]["annotations"][which].as_str().unwrap_or_default().to_owned()
}

fn types(server: &Server) -> Vec<Value> {
    let nodes = server.list(&Node::RESOURCE);
    let types =
        nodes.iter().map(|it| it["metadata"]["labels"]["node.kubernetes.io/instance-type"].clone());
    let mut types: Vec<Value> = types.collect();
    types.sort_by_key(Value::to_string);
    types
}

#[test]
fn is_27_the_smallest_nodes_that_make_a_job_fit_come_and_go_with_it() {
    let parts = test_controllers(9);
    let controllers = parts.all();
    let groups = || {
        vec![
            group("gpu", 3, &json!({"cpu": "8", "nvidia.com/gpu": "2"})),
            group("big-gpu", 3, &json!({"cpu": "64", "nvidia.com/gpu": "8"})),
            group("plain", 3, &json!({"cpu": "64"})),
        ]
    };
    let asks = json!({"cpu": "2", "nvidia.com/gpu": 1});
    let mut objects = groups();
    objects.push(job_without_types("a", 0, 3, &asks));
    let mut scenario = scenario(&controllers, objects.clone(), vec![]);
    scenario.defaults = mark_queued;
    let ending = final_state_without_faults(&scenario);
    assert_eq!(types(&ending.server), ["gpu", "gpu"]);
    assert!(is_admitted(&ending.server, "a"));
    assert_eq!(annotation(&ending, "a", NODES_ANNOTATION), "gpu=2");
    let told = annotation(&ending, "a", SHAPES_ANNOTATION);
    assert!(told.starts_with("needs 2 more nodes of gpu; plain: with 3 more"), "{told}");
    let notes: Vec<&str> = ending.events.iter().map(|it| it.reason.as_ref()).collect();
    assert!(notes.contains(&"NodesChosen") && notes.contains(&"ScaleOut"), "{notes:?}");

    // Whatever faults occur, they are released when it is over.
    scenario.script =
        (0..300).map(|_| -> gantry_harness::UserAction { Box::new(|_| {}) }).collect();
    scenario.script.push(state("a", "Completed"));
    let end = |server: &Server| {
        json!([
            types(server),
            field(server, &AppWrapper::RESOURCE, &key("a"), "/metadata/finalizers")
        ])
    };
    let ending = final_state_without_faults(&scenario);
    assert_eq!(types(&ending.server), [] as [Value; 0]);
    let held = field(&ending.server, &AppWrapper::RESOURCE, &key("a"), "/metadata/finalizers");
    assert_ne!(held, json!([FINALIZER]));
    scenario.script.clear();
    proven(scenario.prove_faults(0..3, end));
}

#[test]
fn is_27_a_label_overrides_inference() {
    let parts = test_controllers(9);
    let controllers = parts.all();
    let (resource, mut named) = job_without_types("a", 0, 1, &json!({"cpu": 2}));
    named["metadata"]["labels"] = json!({ORDERED_INSTANCE_LABEL: "dear"});
    let objects = vec![
        group("dear", 3, &json!({"cpu": "64"})),
        group("cheap", 3, &json!({"cpu": "2"})),
        (resource, named),
    ];
    let mut scenario = scenario(&controllers, objects, vec![]);
    scenario.defaults = mark_queued;
    let ending = final_state_without_faults(&scenario);
    assert_eq!(types(&ending.server), ["dear"]);
    assert_eq!(annotation(&ending, "a", NODES_ANNOTATION), "");
}

#[test]
fn is_29_one_job_at_a_time_and_unhelpable_jobs_are_skipped() {
    let parts = test_controllers(9);
    let controllers = parts.all();
    let objects = vec![
        group("s", 4, &json!({"cpu": "4"})),
        job_without_types("huge", 9, 1, &json!({"cpu": 5})),
        job_without_types("a", 5, 2, &json!({"cpu": 4})),
        job_without_types("b", 1, 1, &json!({"cpu": 4})),
    ];
    let mut scenario = scenario(&controllers, objects, vec![]);
    scenario.defaults = mark_queued;
    let ending = final_state_without_faults(&scenario);
    assert_eq!(types(&ending.server), ["s", "s", "s"]);
    assert!(is_admitted(&ending.server, "a") && is_admitted(&ending.server, "b"));
    assert!(!is_admitted(&ending.server, "huge"));
    assert_eq!(
        annotation(&ending, "huge", SHAPES_ANNOTATION),
        "more nodes of s would not make it fit; s: with 4 more of them still fits in total, but no \
         placement: 1 pod of 5, largest free node has 4"
    );
    assert_eq!(annotation(&ending, "huge", NODES_ANNOTATION), "");
    let held: Vec<&str> = ending.held.iter().map(|it| it.reason.as_ref()).collect();
    assert!(held.contains(&"NoNodesHelp"), "{held:?}");
    // Two processes that decide at once may both admit on what one job needs: the final number of
    // nodes differs then, and is never more than allowed.
    let end = |server: &Server| {
        assert!(types(server).len() <= 4);
        json!(["huge", "a", "b"].map(|name| is_admitted(server, name)))
    };
    proven(scenario.prove_faults(0..3, end));
}

#[test]
fn is_29_nodes_that_others_took_are_bought_again_and_useless_ones_are_not() {
    // The nodes have less than their group says.
    let parts = test_controllers(9);
    let controllers = parts.all();
    let (resource, mut liar) = group("s", 4, &json!({"cpu": "3"}));
    let text = liar["data"]["node"].as_str().unwrap();
    let mut node: Value = serde_json::from_str(text).unwrap();
    node["metadata"]["annotations"]["gantry.dev/sim-allocatable"] = json!("{\"cpu\": \"4\"}");
    liar["data"]["node"] = json!(node.to_string());
    let objects = vec![(resource, liar), job_without_types("a", 0, 1, &json!({"cpu": 4}))];
    let mut scenario = scenario(&controllers, objects, vec![]);
    scenario.defaults = mark_queued;
    let ending = final_state_without_faults(&scenario);
    assert_eq!(types(&ending.server), ["s"], "one that is no use is enough");
    let held: Vec<&str> = ending.held.iter().map(|it| it.message.as_str()).collect();
    assert!(held.iter().any(|it| it.starts_with("its nodes are ready")), "{held:?}");

    // One of higher priority arrives when the other's node is ready.
    let objects =
        vec![group("s", 4, &json!({"cpu": "4"})), job_without_types("b", 0, 1, &json!({"cpu": 4}))];
    let late = |server: &mut Server| {
        let (resource, mut job) = job_without_types("first", 9, 1, &json!({"cpu": 4}));
        mark_queued(&resource, &mut job);
        server.create(&resource, job);
    };
    let mut scenario = super::models::scenario(&controllers, objects, vec![Box::new(late)]);
    scenario.defaults = mark_queued;
    let ending = final_state_without_faults(&scenario);
    assert!(is_admitted(&ending.server, "first") && is_admitted(&ending.server, "b"));
    assert_eq!(types(&ending.server), ["s", "s"]);
}
