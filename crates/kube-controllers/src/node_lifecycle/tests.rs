use std::time::Duration;

use gantry_harness::{Faults, Scenario, Server, UserAction, prove_worlds};

use super::*;
use crate::test_world::{assert_proof, faulty_objects};
use crate::view::Taint;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn node(ready: Option<&str>, heard: i64, taints: &Value) -> Value {
    let conditions = ready.map(|ready| {
        json!([
            {"type": "Ready", "status": ready, "lastHeartbeatTime": at(heard).to_string()},
            {"type": "NetworkUnavailable", "status": "False"},
        ])
    });
    json!({
        "metadata": {
            "name": "a", "uid": "a", "resourceVersion": "3",
            "creationTimestamp": at(0).to_string(),
        },
        "spec": {"taints": taints},
        "status": {"conditions": conditions.unwrap_or(json!([]))},
    })
}

fn observed(node: Value, renewed: Option<i64>, now: i64) -> ObservedNode {
    let lease = renewed.map(|second| {
        let text =
            json!({"metadata": {"name": "a"}, "spec": {"renewTime": at(second).to_string()}});
        Arc::new(serde_json::from_value(text).unwrap())
    });
    ObservedNode {
        node: Arc::new(serde_json::from_value(node).unwrap()),
        lease,
        pods: Vec::new(),
        disruption: ZoneDisruption::Normal,
        started: at(0),
        now: at(now),
    }
}

/// The statuses a plan writes of a node, by condition.
fn written_conditions(plan: &Plan) -> Option<Vec<String>> {
    let body = plan.steps.iter().find_map(|step| match &step.write {
        Write::Merge { subresource: Subresource::Status, body, .. } => Some(body),
        _ => None,
    })?;
    let list = body["status"]["conditions"].as_array()?.iter();
    let word = |it: &Value, name: &str| it[name].as_str().unwrap_or_default().to_owned();
    Some(
        list.map(|it| {
            format!("{} {} {}", word(it, "type"), word(it, "status"), word(it, "reason"))
        })
        .collect(),
    )
}

#[test]
fn missed_heartbeats_are_detected() {
    let none = json!([]);
    let table = [
        ("just heard of", node(Some("True"), 100, &none), None, 149, false, Some(1)),
        ("without heartbeats for too long", node(Some("True"), 100, &none), None, 150, true, None),
        ("its lease is renewed", node(Some("True"), 0, &none), Some(120), 150, false, Some(20)),
        ("its lease is not", node(Some("True"), 0, &none), Some(90), 150, true, None),
        ("no heartbeat yet", node(None, 0, &none), None, 59, false, Some(1)),
        ("never heard of", node(None, 0, &none), None, 60, true, None),
    ];
    for (why, node, renewed, now, lost, wait) in table {
        let plan = plan(&observed(node, renewed, now));
        assert_eq!(written_conditions(&plan).is_some(), lost, "{why}");
        assert_eq!(plan.requeue_after.map(|it| it.as_secs()), wait, "{why}");
    }
    let mut fresh = observed(node(Some("True"), 0, &none), None, 1000);
    fresh.started = at(990);
    assert!(
        written_conditions(&plan(&fresh)).is_none(),
        "a process that has just started waits as well"
    );
}

#[test]
fn an_unreachable_node_has_unknown_conditions() {
    let lost = plan(&observed(node(Some("True"), 0, &json!([])), None, 100));
    let expected = [
        "Ready Unknown NodeStatusUnknown",
        "NetworkUnavailable False ",
        "MemoryPressure Unknown NodeStatusNeverUpdated",
        "DiskPressure Unknown NodeStatusNeverUpdated",
        "PIDPressure Unknown NodeStatusNeverUpdated",
    ];
    assert_eq!(written_conditions(&lost).unwrap(), expected);
    let note = lost.steps[0].success_events.first().unwrap();
    assert_eq!(note.message, "Node a status is now: NodeNotReady");
}

#[test]
fn taints_follow_conditions() {
    let then = at(5).to_string();
    let text = |taints: &[Taint]| -> Vec<String> {
        taints
            .iter()
            .map(|it| {
                format!(
                    "{} {}",
                    it.key.trim_start_matches("node.kubernetes.io/"),
                    it.effect.as_str()
                )
            })
            .collect()
    };
    let none = json!([]);
    let own = json!([{"key": "mine", "value": "x", "effect": "NoExecute"}]);
    let lost = json!([
        {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule", "timeAdded": then},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": then},
    ]);
    let new = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    let both = |name: &str| vec![format!("{name} NoSchedule"), format!("{name} NoExecute")];
    let one = |name: &str| vec![format!("{name} NoSchedule")];
    use ZoneDisruption::{Full, Normal, Partial};
    let table = [
        ("well", Some("True"), &none, Normal, vec![]),
        ("others' taints stay", Some("True"), &own, Normal, vec!["mine NoExecute".to_owned()]),
        ("not ready", Some("False"), &none, Normal, both("not-ready")),
        ("lost", Some("Unknown"), &none, Normal, both("unreachable")),
        ("lost, and back half", Some("False"), &lost, Normal, both("not-ready")),
        ("back", Some("True"), &lost, Normal, vec![]),
        ("many are lost", Some("Unknown"), &none, Partial, one("unreachable")),
        ("many are lost since", Some("Unknown"), &lost, Partial, both("unreachable")),
        ("all are lost", Some("Unknown"), &lost, Full, one("unreachable")),
        ("new", None, &new, Normal, one("not-ready")),
        ("new and ready", Some("True"), &new, Normal, vec![]),
    ];
    for (why, ready, before, disruption, expected) in table {
        let node: Node = serde_json::from_value(node(ready, 0, before)).unwrap();
        assert_eq!(text(&taints::desired_taints(&node, disruption, at(9))), expected, "{why}");
    }
    let mut pressed: Node = serde_json::from_value(node(Some("True"), 0, &json!([]))).unwrap();
    pressed.spec.unschedulable = true;
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"] {
        let text = json!({"type": kind, "status": "True"});
        pressed.status.conditions.push(serde_json::from_value(text).unwrap());
    }
    let keys = [
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
        "network-unavailable",
        "unschedulable",
    ];
    let expected: Vec<String> = keys.iter().flat_map(|key| one(key)).collect();
    assert_eq!(text(&taints::desired_taints(&pressed, Normal, at(9))), expected);
}

#[test]
fn pods_stay_when_too_many_nodes_are_unreachable() {
    let nodes = |ready: usize, lost: usize, zone: &str| -> Vec<Node> {
        let make = |at: usize| {
            let mut text = node(Some(if at < ready { "True" } else { "Unknown" }), 0, &json!([]));
            text["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": zone});
            serde_json::from_value(text).unwrap()
        };
        (0..ready + lost).map(make).collect()
    };
    let table = [
        (nodes(1, 1, "z"), vec![], ZoneDisruption::Normal),
        (nodes(0, 1, "z"), vec![], ZoneDisruption::Full),
        (nodes(0, 3, "z"), nodes(1, 0, "y"), ZoneDisruption::Normal),
        (nodes(1, 3, "z"), vec![], ZoneDisruption::Partial),
        (nodes(4, 3, "z"), vec![], ZoneDisruption::Normal),
        (nodes(10, 50, "z"), vec![], ZoneDisruption::Normal),
    ];
    for (zone, others, expected) in table {
        let all = zone.iter().chain(&others);
        assert_eq!(ZoneDisruption::of_zone(&zone[0], all), expected, "{} nodes", zone.len());
    }
}

fn pod(tolerations: &Value, made: i64) -> Arc<Pod> {
    let text = json!({
        "metadata": {
            "name": "p", "namespace": "n", "uid": "p", "creationTimestamp": at(made).to_string(),
        },
        "spec": {"nodeName": "a", "tolerations": tolerations},
        "status": {"phase": "Running"},
    });
    Arc::new(serde_json::from_value(text).unwrap())
}

#[test]
fn pods_are_evicted_when_tolerations_expire() {
    let key = "node.kubernetes.io/unreachable";
    let taint = json!([{"key": key, "effect": "NoExecute", "timeAdded": at(100).to_string()}]);
    let undated = json!([{"key": key, "effect": "NoExecute"}]);
    let mild = json!([{"key": key, "effect": "NoSchedule"}]);
    let for_time = |seconds: Value| json!([{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    let table = [
        ("not at all", &taint, json!([]), 0, 1, None),
        ("for ever", &taint, for_time(Value::Null), 0, 0, None),
        ("for some time", &taint, for_time(json!(300)), 0, 0, Some(290)),
        ("no longer", &taint, for_time(json!(10)), 0, 1, None),
        ("a newcomer has its time too", &taint, for_time(json!(10)), 105, 0, Some(5)),
        ("never for long", &taint, for_time(json!(-1)), 0, 1, None),
        ("a taint that evicts nothing", &mild, json!([]), 0, 0, None),
        ("a taint without a time is dated", &undated, for_time(json!(300)), 0, 1, None),
        ("unless it does not matter", &undated, for_time(Value::Null), 0, 0, None),
    ];
    for (why, taints, tolerations, made, writes, wait) in table {
        let node: Node = serde_json::from_value(node(Some("Unknown"), 0, taints)).unwrap();
        let plan = plan_eviction(&node, &[pod(&tolerations, made)], at(110));
        assert_eq!(plan.steps.len(), writes, "{why}");
        assert_eq!(plan.requeue_after.map(|it| it.as_secs()), wait, "{why}");
    }
}

#[test]
fn node_failures_converge() {
    let lifecycle = NodeLifecycleController::new(at(0));
    let controllers: [&dyn Controller; 2] = [&lifecycle, &TaintEvictionController];
    let object = |name: &str| {
        let body = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}},
            "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
        });
        (Node::RESOURCE, body)
    };
    let on = |name: &str, node: &str| {
        let body = json!({
            "metadata": {"name": name, "namespace": "n"},
            "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": 30,
                "tolerations": [{
                    "key": "node.kubernetes.io/unreachable", "operator": "Exists",
                    "effect": "NoExecute", "tolerationSeconds": 300,
                }],
            },
        });
        (Pod::RESOURCE, body)
    };
    // One node sends heartbeats for ever and those of the other stop.
    let ready = |name: &'static str, until: i64| -> UserAction {
        Box::new(move |server: &mut Server| {
            server.edit(&Node::RESOURCE, &Key::cluster(name), |node| {
                node["status"]["conditions"] = json!([
                    {"type": "Ready", "status": "True", "lastHeartbeatTime": at(until).to_string()},
                ]);
            });
        })
    };
    let serve: UserAction = Box::new(|server: &mut Server| {
        for name in ["p", "q"] {
            server.edit(&Pod::RESOURCE, &Key::new("n", name), |pod| {
                pod["status"] = json!({
                    "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                });
            });
        }
    });
    let scenario = Scenario {
        controllers: &controllers,
        defaults: |_, _| {},
        objects: vec![object("a"), object("b"), on("p", "a"), on("q", "b")],
        script: vec![
            ready("a", 1_000_000),
            ready("b", 0),
            serve,
            ready("refused-node", 1_000_000),
            ready("conflicted-node", 1_000_000),
        ],
        replicas: 1,
        horizon: Duration::from_secs(1200),
        ..Scenario::default()
    };
    let shape = |server: &Server| {
        let node = |name: &str| {
            let node = server.get(&Node::RESOURCE, &Key::cluster(name)).unwrap();
            let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            let keys = taints.iter().map(|it| format!("{} {}", it["key"], it["effect"]));
            let older = &node["metadata"]["labels"]["beta.kubernetes.io/os"];
            json!([node["status"]["conditions"][0]["status"], keys.collect::<Vec<_>>(), older])
        };
        let pod = |name: &str| {
            let pod = server.get(&Pod::RESOURCE, &Key::new("n", name)).unwrap();
            let going = pod["metadata"]["deletionTimestamp"].is_string();
            let list = pod["status"]["conditions"].as_array().unwrap().iter();
            let said = list.map(|it| format!("{} {}", it["type"], it["status"]));
            json!([going, said.collect::<Vec<_>>()])
        };
        json!([node("a"), node("b"), pod("p"), pod("q")])
    };
    let calm = shape(&scenario.run(0, Faults::none()).unwrap().server);
    let unreachable =
        ["NoSchedule", "NoExecute"].map(|it| format!("\"node.kubernetes.io/unreachable\" {it:?}"));
    assert_eq!(calm[0], json!(["True", [], "linux"]));
    assert_eq!(calm[1], json!(["Unknown", unreachable, "linux"]));
    assert_eq!(calm[2], json!([false, ["\"Ready\" \"True\""]]));
    assert_eq!(calm[3][0], true, "the pod is evicted after its toleration period");
    assert!(calm[3][1].to_string().contains("Ready\\\" \\\"False"), "{}", calm[3]);
    assert_proof(scenario.prove(0..6, shape));
    let mut wrong = faulty_objects("node", "/spec", object);
    wrong.extend(faulty_objects("pod", "/spec", |name| on(name, "b")));
    assert_proof(scenario.prove_isolation(&wrong, 0..3, shape));
}

#[test]
fn random_node_failures_converge() {
    let lifecycle = NodeLifecycleController::new(at(0));
    let controllers: [&dyn Controller; 2] = [&lifecycle, &TaintEvictionController];
    let world = |seed| {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut objects = Vec::new();
        let mut script: Vec<UserAction> = Vec::new();
        for name in ["a", "b", "c"] {
            objects.push((Node::RESOURCE, json!({"metadata": {"name": name}, "spec": {}})));
            let wait = [Value::Null, json!(0), json!(60)][rng.usize(..3)].clone();
            let toleration = json!({"operator": "Exists", "tolerationSeconds": wait});
            let spec = json!({"nodeName": name, "tolerations": [toleration]});
            let metadata = json!({"name": format!("p-{name}"), "namespace": "n"});
            objects.push((Pod::RESOURCE, json!({"metadata": metadata, "spec": spec})));
            // The first sends heartbeats for ever; those of each other may stop.
            let until = if name == "a" || rng.bool() { 1_000_000 } else { 0 };
            script.push(Box::new(move |server: &mut Server| {
                server.edit(&Node::RESOURCE, &Key::cluster(name), |node| {
                    let heartbeat = at(until).to_string();
                    node["status"]["conditions"] = json!([
                        {"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat},
                    ]);
                });
            }));
        }
        let horizon = Duration::from_secs(1200);
        let defaults = |_: &gantry_reconcile::Resource, _: &mut Value| {};
        Scenario {
            controllers: &controllers,
            defaults,
            objects,
            script,
            replicas: 1,
            horizon,
            ..Scenario::default()
        }
    };
    let shape = |server: &Server| {
        let nodes = server.list(&Node::RESOURCE).into_iter().map(|node| {
            let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            let keys: Vec<Value> = taints.iter().map(|it| it["key"].clone()).collect();
            json!([node["status"]["conditions"][0]["status"], keys])
        });
        let pods = server.list(&Pod::RESOURCE).into_iter();
        let pods = pods.map(|pod| json!(pod["metadata"]["deletionTimestamp"].is_string()));
        json!([nodes.collect::<Vec<_>>(), pods.collect::<Vec<_>>()])
    };
    assert_proof(prove_worlds(0..16, world, shape));
}
