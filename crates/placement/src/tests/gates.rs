//! Gated pods: what is allocated to them, how their gate is removed, and what happens to those that
//! their scheduler rejects.

use std::time::Duration;

use gantry_harness::{Faults, Scenario, Server, TestCluster, UserAction};
use gantry_pods::fit;
use gantry_pods::pod_condition::{PodConditionUpdate, update_pod_status};
use gantry_pods::view::{ConditionStatus, Node, Pod};
use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{
    Change, Controller, Key, Kind, Meta, ObjectReference, Plan, Resource, Step, View, World, Write,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::build::*;
use crate::scheduling_gate::{GATE_OPENED_ANNOTATION, SCHEDULING_GATE};

/// The label of nodes that the other scheduler rejects, for reasons of its own.
const REFUSES: &str = "refuses";

/// Another scheduler: it binds ungated pods to a node that they select, and checks something that
/// ours does not.
struct OtherScheduler;

impl Controller for OtherScheduler {
    fn name(&self) -> &'static str {
        "other-scheduler"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>(), Kind::of::<Node>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        match change.is::<Pod>() {
            true => vec![change.key.clone()],
            false => world.store::<Pod>().list().iter().map(|it| it.metadata.key()).collect(),
        }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.store::<Pod>().get(key) else { return plan };
        let spec = &pod.spec;
        if spec.scheduler_name != "default-scheduler"
            || !spec.scheduling_gates.is_empty()
            || !spec.node_name.is_empty()
            || pod.metadata.is_terminating()
        {
            return plan;
        }
        let nodes = world.store::<Node>().list();
        let wanted = nodes.iter().filter(|it| {
            fit::matches_node_affinity(&spec.node_selector, &spec.affinity, it)
                && !it.metadata.labels.contains_key(REFUSES)
        });
        let wanted = wanted.map(|it| it.metadata.name.clone()).next();
        let Some(node) = wanted else {
            let said = PodConditionUpdate {
                kind: "PodScheduled",
                status: ConditionStatus::False,
                reason: "Unschedulable".to_owned(),
                message: "no node will do".to_owned(),
            };
            if !said.is_set_on(&pod) {
                plan.write(update_pod_status(&pod, Some(&said), None, now));
            }
            return plan;
        };
        let uid = pod.metadata.uid.clone();
        plan.write(Write::bind(key.clone(), uid, node));
        plan
    }
}

/// An object that creates pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct StatefulSet {
    metadata: Meta,
}

impl View for StatefulSet {
    const RESOURCE: Resource = Resource::namespaced("apps", "v1", "statefulsets", "StatefulSet");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Creates the pod of its owner whenever it is missing, with the gate, as the webhook would.
struct StatefulSetController;

impl Controller for StatefulSetController {
    fn name(&self) -> &'static str {
        "makers"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<StatefulSet>(), Kind::of::<Pod>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        match change.is::<StatefulSet>() {
            true => vec![change.key.clone()],
            false => vec![change.key.in_same_namespace("maker")],
        }
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(maker) = world.store::<StatefulSet>().get(key) else { return plan };
        if world.store::<Pod>().get(&key.in_same_namespace("a")).is_none() {
            let mut body = gated(pod_with_template("a", "t")).1;
            body["metadata"]["ownerReferences"] =
                json!([controller_reference(&StatefulSet::RESOURCE, &maker.metadata)]);
            let step = Step::new(Write::Create { resource: PODS, body });
            plan.steps.push(
                step.require_present(ObjectReference::to(&StatefulSet::RESOURCE, &maker.metadata)),
            );
        }
        plan
    }
}

/// Adds the gate to a pod.
fn gated(mut pod: (Resource, Value)) -> (Resource, Value) {
    pod.1["spec"]["schedulerName"] = json!("default-scheduler");
    pod.1["spec"]["schedulingGates"] = json!([{"name": SCHEDULING_GATE}]);
    pod
}

fn refusing(name: &str) -> (Resource, Value) {
    let mut node = node(name);
    node.1["metadata"]["labels"][REFUSES] = json!("");
    node
}

fn base(nodes: [(Resource, Value); 2]) -> Objects {
    let mut objects = Vec::from(nodes);
    objects.extend([
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 1),
        pool("p2", "n2", 1),
        template("t", &device_request("gpu", 1)),
    ]);
    objects
}

fn stateful_set() -> (Resource, Value) {
    (StatefulSet::RESOURCE, json!({"metadata": {"name": "maker", "namespace": "default"}}))
}

/// Returns a scenario that is long enough for refusals to expire.
fn long_scenario<'a>(
    controllers: &'a [&'a dyn Controller],
    objects: Objects,
    script: Vec<UserAction>,
) -> Scenario<'a> {
    Scenario { horizon: Duration::from_secs(1000), ..scenario(controllers, objects, script) }
}

/// Checks that whenever an ungated pod has no node, or gets one, it is pinned to it and has its
/// claim.
fn check_ungated_pods_are_pinned(server: &Server) {
    for (text, _) in server.history(&PODS) {
        let pod: Value = serde_json::from_str(text).unwrap();
        if pod["spec"]["schedulingGates"].as_array().is_some_and(|it| !it.is_empty()) {
            assert!(pod["spec"]["nodeName"].is_null(), "{pod}");
            continue;
        }
        let opened = pod["metadata"]["annotations"][GATE_OPENED_ANNOTATION].as_str().unwrap();
        let opened: Value = serde_json::from_str(opened).unwrap();
        let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"];
        let pin = json!({"key": "metadata.name", "operator": "In", "values": [opened["node"]]});
        assert_eq!(*terms, json!([{"matchFields": [pin]}]), "{pod}");
        let node = &pod["spec"]["nodeName"];
        assert!(node.is_null() || *node == opened["node"], "{pod}");
    }
}

#[test]
fn a_gated_pod_gets_its_devices_and_is_bound_by_its_own_scheduler() {
    let team = Controllers::new();
    let mut all = team.all();
    all.push(&OtherScheduler);
    let mut objects = base([node("n1"), node("n2")]);
    objects.extend([
        gated(pod_with_template("a", "t")),
        claim("shared", &device_request("gpu", 1)),
        gated(pod_with_claim("b", "shared")),
        pod_with_claim("c", "shared"),
    ]);
    let script = vec![remove("a")];
    assert_proven(long_scenario(&all, objects, script).prove(0..3, |server| {
        let shape = checked_summary(server);
        assert_eq!(shape["pods"], json!({"b": [true, true], "c": [true, true]}));
        shape
    }));
}

#[test]
fn other_scheduling_gates_are_respected() {
    let team = Controllers::new();
    let mut all = team.all();
    all.push(&OtherScheduler);
    let mut pod = gated(pod_with_template("a", "t"));
    pod.1["spec"]["schedulingGates"] =
        json!([{"name": "x.example.com/y"}, {"name": SCHEDULING_GATE}]);
    let mut objects = base([node("n1"), node("n2")]);
    objects.push(pod);
    let scenario = long_scenario(&all, objects, vec![]);
    let mut test_cluster = TestCluster::new(&scenario);
    test_cluster.advance(Duration::from_secs(60)).unwrap();
    assert_eq!(
        summary(test_cluster.server())["entries"],
        json!({}),
        "nothing is set aside meanwhile"
    );
    test_cluster.server().edit(&PODS, &key("a"), |it| {
        it["spec"]["schedulingGates"] = json!([{"name": SCHEDULING_GATE}]);
    });
    test_cluster.advance(Duration::from_secs(60)).unwrap();
    assert_eq!(summary(test_cluster.server())["pods"], json!({"a": [true, true]}));
}

#[test]
fn a_gate_before_a_pod_that_claims_nothing_is_opened() {
    let team = Controllers::new();
    let mut all = team.all();
    all.push(&OtherScheduler);
    let mut pod = gated(pod_with_template("a", "t"));
    pod.1["metadata"].as_object_mut().unwrap().remove("annotations");
    let mut objects = base([node("n1"), node("n2")]);
    objects.push(pod);
    let ending = long_scenario(&all, objects, vec![]).run(0, Faults::none()).unwrap();
    assert_eq!(summary(&ending.server)["pods"], json!({"a": [true, false]}));
    let pod = ending.server.get(&PODS, &key("a")).unwrap();
    assert!(pod["spec"]["affinity"].is_null(), "it may go anywhere");
}

#[test]
fn pending_gated_pods_have_a_reason_that_is_no_refusal() {
    let team = Controllers::new();
    let mut all = team.all();
    all.push(&OtherScheduler);
    let mut objects = base([node("n1"), node("n2")]);
    objects.extend([gated(pod("a", &json!([{"name": "gpu", "claim": device_request("gpu", 3)}])))]);
    let ending = long_scenario(&all, objects, vec![]).run(0, Faults::none()).unwrap();
    let pod = ending.server.get(&PODS, &key("a")).unwrap();
    let said = &pod["status"]["conditions"][0];
    assert_eq!(
        (&said["type"], &said["reason"]),
        (&json!("PodScheduled"), &json!("SchedulingGated"))
    );
    assert!(said["message"].as_str().unwrap().starts_with("0/2 nodes: "), "{said}");
}

/// The first node is rejected by the other scheduler, and the pod is recreated for the second.
#[test]
fn scenario_102_a_refused_node_is_replaced() {
    let team = Controllers::new();
    let mut all = team.all();
    all.extend([&OtherScheduler as &dyn Controller, &StatefulSetController]);
    let mut objects = base([refusing("n1"), node("n2")]);
    objects.push(stateful_set());
    assert_proven(long_scenario(&all, objects, vec![]).prove(0..3, |server| {
        let pod = server.get(&PODS, &key("a")).unwrap();
        assert_eq!(pod["spec"]["nodeName"], "n2");
        for pool in server.list(&POOLS) {
            assert!(
                pool["status"]["refusals"].is_null() || pool["status"]["refusals"] == json!([])
            );
        }
        let shape = checked_summary(server);
        check_ungated_pods_are_pinned(server);
        assert_eq!(
            shape["entries"].as_object().unwrap().len(),
            1,
            "what was refused is given back"
        );
        shape
    }));
}

#[test]
fn scenario_102_a_refusal_survives_restarts_and_expires() {
    let team = Controllers::new();
    let mut all = team.all();
    all.extend([&OtherScheduler as &dyn Controller, &StatefulSetController]);
    let mut objects = base([refusing("n1"), refusing("n2")]);
    objects.push(stateful_set());
    let scenario = long_scenario(&all, objects, vec![]);
    let mut test_cluster = TestCluster::new(&scenario);
    test_cluster.advance(Duration::from_secs(60)).unwrap();
    let refused = |server: &Server| -> Vec<Value> {
        let pools = server.list(&POOLS);
        let all = pools.iter().flat_map(|it| it["status"]["refusals"].as_array().into_iter());
        all.flatten().map(|it| it["nodeName"].clone()).collect()
    };
    assert_eq!(refused(test_cluster.server()), ["n1", "n2"], "both were tried");
    let message = |server: &Server| {
        let pod = server.get(&PODS, &key("a")).unwrap();
        pod["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned()
    };
    let expected = "0/2 nodes: 2 node(s) were recently rejected by the pod's scheduler";
    assert_eq!(message(test_cluster.server()), expected);
    test_cluster.server().edit(&Node::RESOURCE, &Key::cluster("n1"), |it| {
        it["metadata"]["labels"] = json!({});
    });
    test_cluster.restart();
    test_cluster.advance(Duration::from_secs(60)).unwrap();
    assert_eq!(message(test_cluster.server()), expected, "the refusal survives the restart");
    test_cluster.advance(Duration::from_secs(300)).unwrap();
    assert_eq!(
        summary(test_cluster.server())["pods"],
        json!({"a": [true, true]}),
        "the node is tried again"
    );
    test_cluster.advance(Duration::from_secs(300)).unwrap();
    assert!(refused(test_cluster.server()).is_empty(), "and forgotten");
}

#[test]
fn scenario_102_an_unowned_pod_keeps_its_devices_and_is_stuck() {
    let team = Controllers::new();
    let mut all = team.all();
    all.push(&OtherScheduler);
    let mut objects = base([refusing("n1"), node("n2")]);
    objects.push(gated(pod_with_template("a", "t")));
    let scenario = long_scenario(&all, objects.clone(), vec![]);
    let mut test_cluster = TestCluster::new(&scenario);
    test_cluster.advance(Duration::from_secs(600)).unwrap();
    let stuck = test_cluster.take_events().into_iter().filter(|it| it.reason == "StuckOnNode");
    let stuck: Vec<String> = stuck.map(|it| it.message).collect();
    let [message] = stuck.as_slice() else { panic!("told once: {stuck:?}") };
    assert!(message.contains("node n1") && message.contains("no node will do"), "{message}");
    assert!(test_cluster.held().iter().any(|it| it.reason == "StuckOnNode"));
    assert_eq!(summary(test_cluster.server())["pods"], json!({"a": [false, false]}));
    assert_eq!(
        summary(test_cluster.server())["entries"],
        json!({"a/\"gpu\"": 1}),
        "it may still be bound"
    );
    test_cluster.server().edit(&Node::RESOURCE, &Key::cluster("n1"), |it| {
        it["metadata"]["labels"] = json!({});
    });
    test_cluster.advance(Duration::from_secs(60)).unwrap();
    assert_eq!(summary(test_cluster.server())["pods"], json!({"a": [true, true]}));
    assert_proven(long_scenario(&all, objects, vec![]).prove(0..3, checked_summary));
}

/// A scheduler that never reports anything.
#[test]
fn scenario_102_a_pod_that_is_not_bound_in_time_is_stuck() {
    let team = Controllers::new();
    let all = team.all();
    let mut objects = base([node("n1"), node("n2")]);
    objects.push(gated(pod_with_template("a", "t")));
    let scenario = long_scenario(&all, objects, vec![]);
    let mut test_cluster = TestCluster::new(&scenario);
    test_cluster.advance(Duration::from_secs(25)).unwrap();
    assert!(test_cluster.held().iter().all(|it| it.reason != "StuckOnNode"), "there is time yet");
    test_cluster.advance(Duration::from_secs(20)).unwrap();
    let held = test_cluster.held();
    let held = held.iter().find(|it| it.reason == "StuckOnNode").unwrap();
    assert!(held.message.ends_with("not bound within 30 seconds"), "{}", held.message);
}

/// Pods that are ungated and not bound yet already count on their node.
#[test]
fn ungated_unbound_pods_are_counted_on_their_node() {
    let team = Controllers::new();
    let all = team.all();
    let mut objects = base([small_node("n1", "100m"), small_node("n2", "1")]);
    objects.push(pool("p3", "n1", 1));
    for name in ["a", "b"] {
        objects.push(gated(pod_with_template(name, "t")));
    }
    let ending = long_scenario(&all, objects, vec![]).run(0, Faults::none()).unwrap();
    let nodes: std::collections::BTreeSet<String> = ending
        .server
        .list(&PODS)
        .iter()
        .map(|it| it["metadata"]["annotations"][GATE_OPENED_ANNOTATION].as_str().unwrap())
        .map(|it| serde_json::from_str::<Value>(it).unwrap()["node"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(nodes.len(), 2, "one pod fits on n1: {nodes:?}");
}
