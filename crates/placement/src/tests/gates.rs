//! Pods behind the gate: what is given to them, how they are let go, and what becomes of those that
//! their scheduler refuses.

use std::time::Duration;

use gantry_harness::{Action, Faults, Scenario, Server, Stage};
use gantry_pods::fit;
use gantry_pods::said::{Said, say};
use gantry_pods::view::{Node, Pod, Truth};
use gantry_reconcile::object::controlled_by;
use gantry_reconcile::{
    Change, Controller, Key, Kind, Meta, Plan, Reference, Resource, Step, View, World, Write,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::build::*;
use crate::gate::{GATE, OPENED_ANNOTATION};

/// The label of nodes that the other scheduler refuses, for reasons of its own.
const REFUSES: &str = "refuses";

/// Somebody else's scheduler: it binds what has no gate to a node that the pod wants, and looks at
/// something that we do not.
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
            false => world.shelf::<Pod>().all().iter().map(|it| it.metadata.key()).collect(),
        }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.shelf::<Pod>().get(key) else { return plan };
        let spec = &pod.spec;
        if spec.scheduler_name != "default-scheduler"
            || !spec.scheduling_gates.is_empty()
            || !spec.node_name.is_empty()
            || pod.metadata.is_going()
        {
            return plan;
        }
        let nodes = world.shelf::<Node>().all();
        let wanted = nodes.iter().filter(|it| {
            fit::wants_node(&spec.node_selector, &spec.affinity, it)
                && !it.metadata.labels.contains_key(REFUSES)
        });
        let wanted = wanted.map(|it| it.metadata.name.clone()).next();
        let Some(node) = wanted else {
            let said = Said {
                kind: "PodScheduled",
                status: Truth::False,
                reason: "Unschedulable".to_owned(),
                message: "no node will do".to_owned(),
            };
            if !said.is_true_of(&pod) {
                plan.write(say(&pod, Some(&said), None, now));
            }
            return plan;
        };
        let uid = pod.metadata.uid.clone();
        plan.write(Write::bind(key.clone(), uid, node));
        plan
    }
}

/// What makes pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Maker {
    metadata: Meta,
}

impl View for Maker {
    const RESOURCE: Resource = Resource::namespaced("apps", "v1", "statefulsets", "StatefulSet");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Makes the pod of a maker whenever it is not there, with the gate, as the webhook would.
struct Makers;

impl Controller for Makers {
    fn name(&self) -> &'static str {
        "makers"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Maker>(), Kind::of::<Pod>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        match change.is::<Maker>() {
            true => vec![change.key.clone()],
            false => vec![change.key.beside("maker")],
        }
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(maker) = world.shelf::<Maker>().get(key) else { return plan };
        if world.shelf::<Pod>().get(&key.beside("a")).is_none() {
            let mut body = gated(owner("a", "t")).1;
            body["metadata"]["ownerReferences"] =
                json!([controlled_by(&Maker::RESOURCE, &maker.metadata)]);
            let step = Step::new(Write::Create { resource: PODS, body });
            plan.steps.push(step.provided(Reference::to(&Maker::RESOURCE, &maker.metadata)));
        }
        plan
    }
}

/// A pod with the gate before it.
fn gated(mut pod: (Resource, Value)) -> (Resource, Value) {
    pod.1["spec"]["schedulerName"] = json!("default-scheduler");
    pod.1["spec"]["schedulingGates"] = json!([{"name": GATE}]);
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
        template("t", &wish("gpu", 1)),
    ]);
    objects
}

fn maker() -> (Resource, Value) {
    (Maker::RESOURCE, json!({"metadata": {"name": "maker", "namespace": "default"}}))
}

/// Long enough for refusals to be forgotten.
fn long<'a>(
    controllers: &'a [&'a dyn Controller],
    objects: Objects,
    script: Vec<Action>,
) -> Scenario<'a> {
    Scenario { horizon: Duration::from_secs(1000), ..scenario(controllers, objects, script) }
}

/// Whenever a pod without a gate has no node, or gets one, it is pinned to it and has its claim.
fn never_loose(server: &Server) {
    for (text, _) in server.history(&PODS) {
        let pod: Value = serde_json::from_str(text).unwrap();
        if pod["spec"]["schedulingGates"].as_array().is_some_and(|it| !it.is_empty()) {
            assert!(pod["spec"]["nodeName"].is_null(), "{pod}");
            continue;
        }
        let opened = pod["metadata"]["annotations"][OPENED_ANNOTATION].as_str().unwrap();
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
    let team = Team::new();
    let mut all = team.all();
    all.push(&OtherScheduler);
    let mut objects = base([node("n1"), node("n2")]);
    objects.extend([
        gated(owner("a", "t")),
        claim("shared", &wish("gpu", 1)),
        gated(user("b", "shared")),
        user("c", "shared"),
    ]);
    let script = vec![remove("a")];
    proven(long(&all, objects, script).prove(0..3, |server| {
        let shape = checked(server);
        assert_eq!(shape["pods"], json!({"b": [true, true], "c": [true, true]}));
        shape
    }));
}

#[test]
fn other_gates_are_waited_for() {
    let team = Team::new();
    let mut all = team.all();
    all.push(&OtherScheduler);
    let mut pod = gated(owner("a", "t"));
    pod.1["spec"]["schedulingGates"] = json!([{"name": "x.example.com/y"}, {"name": GATE}]);
    let mut objects = base([node("n1"), node("n2")]);
    objects.push(pod);
    let scenario = long(&all, objects, vec![]);
    let mut stage = Stage::new(&scenario);
    stage.pass(Duration::from_secs(60)).unwrap();
    assert_eq!(shape(stage.server())["entries"], json!({}), "nothing is set aside meanwhile");
    stage.server().edit(&PODS, &key("a"), |it| {
        it["spec"]["schedulingGates"] = json!([{"name": GATE}]);
    });
    stage.pass(Duration::from_secs(60)).unwrap();
    assert_eq!(shape(stage.server())["pods"], json!({"a": [true, true]}));
}

#[test]
fn a_gate_before_a_pod_that_claims_nothing_is_opened() {
    let team = Team::new();
    let mut all = team.all();
    all.push(&OtherScheduler);
    let mut pod = gated(owner("a", "t"));
    pod.1["metadata"].as_object_mut().unwrap().remove("annotations");
    let mut objects = base([node("n1"), node("n2")]);
    objects.push(pod);
    let ending = long(&all, objects, vec![]).run(0, Faults::none()).unwrap();
    assert_eq!(shape(&ending.server)["pods"], json!({"a": [true, false]}));
    let pod = ending.server.get(&PODS, &key("a")).unwrap();
    assert!(pod["spec"]["affinity"].is_null(), "it may go anywhere");
}

#[test]
fn what_keeps_a_gated_pod_is_said_and_not_taken_for_a_refusal() {
    let team = Team::new();
    let mut all = team.all();
    all.push(&OtherScheduler);
    let mut objects = base([node("n1"), node("n2")]);
    objects.extend([gated(pod("a", &json!([{"name": "gpu", "claim": wish("gpu", 3)}])))]);
    let ending = long(&all, objects, vec![]).run(0, Faults::none()).unwrap();
    let pod = ending.server.get(&PODS, &key("a")).unwrap();
    let said = &pod["status"]["conditions"][0];
    assert_eq!(
        (&said["type"], &said["reason"]),
        (&json!("PodScheduled"), &json!("SchedulingGated"))
    );
    assert!(said["message"].as_str().unwrap().starts_with("0/2 nodes: "), "{said}");
}

/// The first node is refused by the other scheduler, and the pod is made anew for the second.
#[test]
fn scenario_102_a_node_that_is_refused_is_exchanged_for_another() {
    let team = Team::new();
    let mut all = team.all();
    all.extend([&OtherScheduler as &dyn Controller, &Makers]);
    let mut objects = base([refusing("n1"), node("n2")]);
    objects.push(maker());
    proven(long(&all, objects, vec![]).prove(0..3, |server| {
        let pod = server.get(&PODS, &key("a")).unwrap();
        assert_eq!(pod["spec"]["nodeName"], "n2");
        for pool in server.list(&POOLS) {
            assert!(
                pool["status"]["refusals"].is_null() || pool["status"]["refusals"] == json!([])
            );
        }
        let shape = checked(server);
        never_loose(server);
        assert_eq!(
            shape["entries"].as_object().unwrap().len(),
            1,
            "what was refused is given back"
        );
        shape
    }));
}

#[test]
fn scenario_102_a_refusal_outlives_whoever_saw_it_and_ends_by_itself() {
    let team = Team::new();
    let mut all = team.all();
    all.extend([&OtherScheduler as &dyn Controller, &Makers]);
    let mut objects = base([refusing("n1"), refusing("n2")]);
    objects.push(maker());
    let scenario = long(&all, objects, vec![]);
    let mut stage = Stage::new(&scenario);
    stage.pass(Duration::from_secs(60)).unwrap();
    let refused = |server: &Server| -> Vec<Value> {
        let pools = server.list(&POOLS);
        let all = pools.iter().flat_map(|it| it["status"]["refusals"].as_array().into_iter());
        all.flatten().map(|it| it["nodeName"].clone()).collect()
    };
    assert_eq!(refused(stage.server()), ["n1", "n2"], "both were tried");
    let message = |server: &Server| {
        let pod = server.get(&PODS, &key("a")).unwrap();
        pod["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned()
    };
    let expected = "0/2 nodes: 2 node(s) were refused by the pod's scheduler of late";
    assert_eq!(message(stage.server()), expected);
    stage.server().edit(&Node::RESOURCE, &Key::cluster("n1"), |it| {
        it["metadata"]["labels"] = json!({});
    });
    stage.restart();
    stage.pass(Duration::from_secs(60)).unwrap();
    assert_eq!(message(stage.server()), expected, "nobody remembers, and yet it is known");
    stage.pass(Duration::from_secs(300)).unwrap();
    assert_eq!(shape(stage.server())["pods"], json!({"a": [true, true]}), "it is tried again");
    stage.pass(Duration::from_secs(300)).unwrap();
    assert!(refused(stage.server()).is_empty(), "and forgotten");
}

#[test]
fn scenario_102_a_pod_that_nobody_makes_anew_keeps_its_devices_and_says_that_it_is_stuck() {
    let team = Team::new();
    let mut all = team.all();
    all.push(&OtherScheduler);
    let mut objects = base([refusing("n1"), node("n2")]);
    objects.push(gated(owner("a", "t")));
    let scenario = long(&all, objects.clone(), vec![]);
    let mut stage = Stage::new(&scenario);
    stage.pass(Duration::from_secs(600)).unwrap();
    let stuck = stage.told().into_iter().filter(|it| it.reason == "StuckOnNode");
    let stuck: Vec<String> = stuck.map(|it| it.message).collect();
    let [message] = stuck.as_slice() else { panic!("told once: {stuck:?}") };
    assert!(message.contains("node n1") && message.contains("no node will do"), "{message}");
    assert!(stage.held().iter().any(|it| it.reason == "StuckOnNode"));
    assert_eq!(shape(stage.server())["pods"], json!({"a": [false, false]}));
    assert_eq!(shape(stage.server())["entries"], json!({"a/\"gpu\"": 1}), "it may still be bound");
    stage.server().edit(&Node::RESOURCE, &Key::cluster("n1"), |it| {
        it["metadata"]["labels"] = json!({});
    });
    stage.pass(Duration::from_secs(60)).unwrap();
    assert_eq!(shape(stage.server())["pods"], json!({"a": [true, true]}));
    proven(long(&all, objects, vec![]).prove(0..3, checked));
}

/// A scheduler that never says anything.
#[test]
fn scenario_102_a_pod_that_is_not_bound_in_time_is_stuck() {
    let team = Team::new();
    let all = team.all();
    let mut objects = base([node("n1"), node("n2")]);
    objects.push(gated(owner("a", "t")));
    let scenario = long(&all, objects, vec![]);
    let mut stage = Stage::new(&scenario);
    stage.pass(Duration::from_secs(25)).unwrap();
    assert!(stage.held().iter().all(|it| it.reason != "StuckOnNode"), "there is time yet");
    stage.pass(Duration::from_secs(20)).unwrap();
    let held = stage.held();
    let held = held.iter().find(|it| it.reason == "StuckOnNode").unwrap();
    assert!(held.message.ends_with("not bound within 30 seconds"), "{}", held.message);
}

/// Pods that are let go and not bound yet take their place on the node already.
#[test]
fn pods_that_are_on_their_way_are_counted() {
    let team = Team::new();
    let all = team.all();
    let mut objects = base([small_node("n1", "100m"), small_node("n2", "1")]);
    objects.push(pool("p3", "n1", 1));
    for name in ["a", "b"] {
        objects.push(gated(owner(name, "t")));
    }
    let ending = long(&all, objects, vec![]).run(0, Faults::none()).unwrap();
    let nodes: std::collections::BTreeSet<String> = ending
        .server
        .list(&PODS)
        .iter()
        .map(|it| it["metadata"]["annotations"][OPENED_ANNOTATION].as_str().unwrap())
        .map(|it| serde_json::from_str::<Value>(it).unwrap()["node"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(nodes.len(), 2, "there is room for one on n1: {nodes:?}");
}
