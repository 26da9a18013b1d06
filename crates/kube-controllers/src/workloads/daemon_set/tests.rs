use gantry_reconcile::{Subresource, Write};
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
        "spec": {"containers": [{"name": "main", "image": image}]},
    })
}

/// Set `ds` of image `new`, one node at a time.
fn set() -> Value {
    json!({
        "metadata": {
            "name": "ds", "namespace": "n", "uid": "ds", "resourceVersion": "9", "generation": 2,
            "annotations": {"deprecated.daemonset.template.generation": "2"},
        },
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": pod_template("new"),
            "updateStrategy": {
                "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "revisionHistoryLimit": 1,
        },
        "status": {},
    })
}

fn surging(surge: i64) -> Value {
    let rolling = json!({"maxUnavailable": 0, "maxSurge": surge});
    with(set(), "/spec/updateStrategy/rollingUpdate", rolling)
}

fn owner() -> Value {
    json!([{
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "ds",
        "controller": true, "blockOwnerDeletion": true,
    }])
}

fn revision(image: &str, number: i64) -> Value {
    json!({
        "metadata": {
            "name": format!("ds-{image}"), "namespace": "n", "uid": format!("r-{image}"),
            "resourceVersion": "2", "ownerReferences": owner(),
            "labels": {"app": "a", "controller-revision-hash": image},
        },
        "data": {"spec": {"template": with(pod_template(image), "/$patch", json!("replace"))}},
        "revision": number,
    })
}

/// An available pod on a node.
fn pod(node: &str, image: &str) -> Value {
    let name = format!("{image}-{node}");
    json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "resourceVersion": "3",
            "creationTimestamp": "2026-01-01T11:00:00Z",
            "labels": {"app": "a", "controller-revision-hash": image},
            "ownerReferences": owner(),
        },
        "spec": {"nodeName": node},
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

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"zone": name}}, "spec": {}})
}

fn tainted(name: &str, key: &str, effect: &str) -> Value {
    with(node(name), "/spec/taints", json!([{"key": key, "effect": effect}]))
}

fn with(mut object: Value, path: &str, value: Value) -> Value {
    let (parent, field) = path.rsplit_once('/').unwrap();
    let parent = parent.split('/').skip(1).fold(&mut object, |at, name| &mut at[name]);
    parent[field] = value;
    object
}

fn world(set: &Value, nodes: &[Value], pods: &[Value]) -> World {
    let world = World::new(DaemonSetController.kinds());
    world.store::<DaemonSet>().set(serde_json::from_value(set.clone()).unwrap());
    let mut latest = revision("new", 2);
    latest["data"]["spec"]["template"] = set["spec"]["template"].clone();
    for revision in [revision("old", 1), latest] {
        world.store::<ControllerRevision>().set(serde_json::from_value(revision).unwrap());
    }
    for node in nodes {
        world.store::<Node>().set(serde_json::from_value(node.clone()).unwrap());
    }
    for pod in pods {
        world.store::<Pod>().set(serde_json::from_value(pod.clone()).unwrap());
    }
    world
}

/// Returns the plan once the status is current: that is written before pods are created.
fn planned(set: &Value, nodes: &[Value], pods: &[Value]) -> Plan {
    let first = DaemonSetController.plan(&world(set, nodes, pods), &key(), now());
    let status = status(&first);
    if status.is_null() {
        return first;
    }
    let set = with(set.clone(), "/status", without_nulls(status));
    DaemonSetController.plan(&world(&set, nodes, pods), &key(), now())
}

fn without_nulls(mut status: Value) -> Value {
    status.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    status
}

fn key() -> Key {
    Key::new("n", "ds")
}

/// Returns the changes of pods: nodes that get one, and deleted pods.
fn short(plan: &Plan) -> Vec<String> {
    let one = |step: &Step| match &step.write {
        Write::Create { body, .. } => {
            let pod: Pod = serde_json::from_value(body.clone()).unwrap();
            Some(format!("make {}", pods::target_node(&pod).unwrap_or("-")))
        }
        Write::Delete { key, .. } => Some(format!("delete {}", key.name())),
        Write::Merge { .. } | Write::Apply { .. } | Write::Bind { .. } | Write::Evict { .. } => {
            None
        }
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

#[test]
fn every_node_that_fits_gets_a_pod() {
    let selecting =
        |zone: &str| with(set(), "/spec/template/spec/nodeSelector", json!({"zone": zone}));
    let tolerating =
        with(set(), "/spec/template/spec/tolerations", json!([{"operator": "Exists"}]));
    let named = with(set(), "/spec/template/spec/nodeName", json!("a"));
    let host = with(set(), "/spec/template/spec/hostNetwork", json!(true));
    let dark = "node.kubernetes.io/network-unavailable";
    // why, set, node, whether a pod is created, whether an existing one is deleted
    let table = [
        ("plain", set(), node("a"), true, false),
        ("selected", selecting("a"), node("a"), true, false),
        ("not selected", selecting("b"), node("a"), false, true),
        ("named", named.clone(), node("a"), true, false),
        ("another is named", named, node("b"), false, true),
        (
            "cordoned",
            set(),
            tainted("a", "node.kubernetes.io/unschedulable", "NoSchedule"),
            true,
            false,
        ),
        (
            "not ready",
            set(),
            tainted("a", "node.kubernetes.io/not-ready", "NoExecute"),
            true,
            false,
        ),
        ("not wanted", set(), tainted("a", "k", "NoSchedule"), false, false),
        ("thrown out", set(), tainted("a", "k", "NoExecute"), false, true),
        ("rather not", set(), tainted("a", "k", "PreferNoSchedule"), true, false),
        ("tolerated", tolerating, tainted("a", "k", "NoExecute"), true, false),
        ("without a network", set(), tainted("a", dark, "NoSchedule"), false, false),
        ("on the node's", host, tainted("a", dark, "NoSchedule"), true, false),
    ];
    for (why, set, node, made, removed) in table {
        let name = node["metadata"]["name"].as_str().unwrap();
        let plan = planned(&set, std::slice::from_ref(&node), &[]);
        let expected = if made { vec![format!("make {name}")] } else { vec![] };
        assert_eq!(short(&plan), expected, "{why}");
        let mut there = pod(name, "new");
        there["metadata"]["labels"]["pod-template-generation"] = json!("2");
        let plan = planned(&set, std::slice::from_ref(&node), &[there]);
        let expected = if removed { vec![format!("delete new-{name}")] } else { vec![] };
        assert_eq!(short(&plan), expected, "{why}, with a pod");
    }
}

#[test]
fn a_pod_is_made_for_its_node() {
    let mut set = set();
    set["spec"]["template"]["spec"]["affinity"] = json!({
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
        "podAffinity": {},
    });
    let own = json!({
        "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": 5,
    });
    set["spec"]["template"]["spec"]["tolerations"] = json!([own, {"key": "mine"}]);
    let plan = planned(&set, &[node("a")], &[]);
    let Write::Create { body, .. } = &plan.steps[0].write else { panic!("{plan:?}") };
    let name = body["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("ds-") && name.len() == 8, "{name}");
    assert_eq!(
        body["metadata"]["labels"],
        json!({"app": "a", "pod-template-generation": "2", "controller-revision-hash": "new"})
    );
    assert_eq!(
        body["spec"]["affinity"],
        json!({
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [],
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
                ]},
            },
            "podAffinity": {},
        })
    );
    let tolerations = body["spec"]["tolerations"].as_array().unwrap();
    let keys: Vec<&str> = tolerations.iter().map(|it| it["key"].as_str().unwrap()).collect();
    assert_eq!(
        keys,
        [
            "node.kubernetes.io/not-ready",
            "mine",
            "node.kubernetes.io/unreachable",
            "node.kubernetes.io/disk-pressure",
            "node.kubernetes.io/memory-pressure",
            "node.kubernetes.io/pid-pressure",
            "node.kubernetes.io/unschedulable",
        ]
    );
    assert_eq!(tolerations[0].get("tolerationSeconds"), None, "for ever");
    let note = plan.steps[0].success_events.first().unwrap();
    assert_eq!(
        (note.reason.as_ref(), note.message.clone()),
        ("SuccessfulCreate", format!("Created pod: {name}"))
    );
}

#[test]
fn the_status_is_written_before_pods_are_created() {
    let first = DaemonSetController.plan(&world(&set(), &[node("a")], &[]), &key(), now());
    assert_eq!(short(&first), Vec::<String>::new());
    assert_eq!(
        status(&first),
        json!({
            "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 1,
            "numberReady": 0, "observedGeneration": 2, "updatedNumberScheduled": null,
            "numberAvailable": null, "numberUnavailable": 1,
        })
    );
    let nodes = [node("a"), node("b"), node("c"), tainted("d", "k", "NoSchedule")];
    let pods = [pod("a", "new"), pod("b", "old"), unready(pod("c", "new")), pod("d", "new")];
    let plan = DaemonSetController.plan(&world(&set(), &nodes, &pods), &key(), now());
    assert_eq!(
        status(&plan),
        json!({
            "currentNumberScheduled": 3, "numberMisscheduled": 1, "desiredNumberScheduled": 3,
            "numberReady": 2, "observedGeneration": 2, "updatedNumberScheduled": 2,
            "numberAvailable": 2, "numberUnavailable": 1,
        })
    );
}

#[test]
fn finished_and_surplus_pods_are_deleted() {
    let phase = |phase: &str, made: &str| {
        let pod = with(pod("a", "new"), "/status/phase", json!(phase));
        with(pod, "/metadata/creationTimestamp", json!(made))
    };
    let twin = with(pod("a", "new"), "/metadata/name", json!("younger"));
    let twin = with(twin, "/metadata/creationTimestamp", json!("2026-01-01T11:30:00Z"));
    let mut lost = with(
        pod("gone", "new"),
        "/spec",
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]},
            ]},
        }}}),
    );
    lost["status"]["phase"] = json!("Pending");
    let table: [(&str, Vec<Value>, Vec<&str>); 6] = [
        ("failed", vec![phase("Failed", "2026-01-01T11:59:00Z")], vec!["delete new-a"]),
        ("failed just now", vec![phase("Failed", "2026-01-01T11:59:57Z")], vec![]),
        ("ended", vec![phase("Succeeded", "2026-01-01T11:59:57Z")], vec!["delete new-a"]),
        ("two of them", vec![twin, pod("a", "new")], vec!["delete younger"]),
        ("going", vec![terminating(pod("a", "new"))], vec![]),
        ("for a node that is no more", vec![pod("a", "new"), lost], vec!["delete new-gone"]),
    ];
    for (why, pods, expected) in table {
        assert_eq!(short(&planned(&set(), &[node("a")], &pods)), expected, "{why}");
    }
    let failed = phase("Failed", "2026-01-01T11:59:57Z");
    let plan = planned(&set(), &[node("a")], std::slice::from_ref(&failed));
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(7)), "then it is replaced");
    let failed = with(failed, "/metadata/creationTimestamp", json!("2026-01-01T11:59:00Z"));
    let plan = planned(&set(), &[node("a")], &[failed]);
    assert_eq!(
        (plan.events[0].reason.as_ref(), plan.events[0].message.as_str()),
        ("FailedDaemonPod", "Found failed daemon pod n/new-a on node a, will try to kill it")
    );
}

#[test]
fn pods_of_a_former_template_are_replaced() {
    let nodes = ["a", "b", "c"].map(node);
    let (o, n) = (|at| pod(at, "old"), |at| pod(at, "new"));
    let on_delete = with(set(), "/spec/updateStrategy", json!({"type": "OnDelete"}));
    let two = with(set(), "/spec/updateStrategy/rollingUpdate/maxUnavailable", json!("50%"));
    let table: [(&str, Value, Vec<Value>, Vec<&str>); 14] = [
        ("one at a time", set(), vec![o("a"), o("b"), o("c")], vec!["delete old-a"]),
        ("two at a time", two, vec![o("a"), o("b"), o("c")], vec!["delete old-a", "delete old-b"]),
        (
            "none while a new one is not available",
            set(),
            vec![unready(n("a")), o("b"), o("c")],
            vec![],
        ),
        ("nor while one is missing", set(), vec![terminating(o("a")), o("b"), o("c")], vec![]),
        (
            "but one that is not available anyway",
            set(),
            vec![unready(n("a")), unready(o("b")), o("c")],
            vec!["delete old-b"],
        ),
        ("done", set(), vec![n("a"), n("b"), n("c")], vec![]),
        ("by hand", on_delete, vec![o("a"), o("b"), o("c")], vec![]),
        ("a second one first", surging(1), vec![o("a"), o("b"), o("c")], vec!["make a"]),
        ("no more than allowed", surging(1), vec![o("a"), unready(n("a")), o("b"), o("c")], vec![]),
        (
            "the old one is deleted when the new one is available",
            surging(1),
            vec![o("a"), n("a"), o("b"), n("c")],
            vec!["delete old-a"],
        ),
        (
            "or when it is of no use",
            surging(1),
            vec![unready(o("a")), unready(n("a")), n("b"), n("c")],
            vec!["delete old-a"],
        ),
        (
            "one that is not ready gets a second immediately",
            surging(1),
            vec![unready(o("a")), o("b"), o("c")],
            vec!["make a", "make b"],
        ),
        ("two may be doubled", surging(2), vec![o("a"), o("b"), o("c")], vec!["make a", "make b"]),
        (
            "a terminating one is recreated",
            surging(1),
            vec![terminating(n("a")), n("b"), n("c")],
            vec!["make a"],
        ),
    ];
    for (why, set, pods, expected) in table {
        assert_eq!(short(&planned(&set, &nodes, &pods)), expected, "{why}");
    }
}

#[test]
fn a_pod_moves_when_it_is_replaced_elsewhere() {
    // The set moved from node b to node a, and may have one surge pod.
    let set = with(surging(1), "/spec/template/spec/nodeSelector", json!({"zone": "a"}));
    let world = world(&set, &[node("a"), tainted("b", "k", "NoSchedule")], &[]);
    world.store::<Pod>().set(serde_json::from_value(pod("b", "old")).unwrap());
    let plan = DaemonSetController.plan(&world, &key(), now());
    assert_eq!(short(&plan), ["delete old-b"], "its node is not selected any more");
}

#[test]
fn nodes_enqueue_affected_daemon_sets() {
    let selecting = with(set(), "/spec/template/spec/nodeSelector", json!({"zone": "a"}));
    let world = world(&selecting, &[], &[]);
    let nodes = world.store::<Node>();
    let wakes = |node: Value| {
        DaemonSetController.enqueue(&world, &nodes.set(serde_json::from_value(node).unwrap())).len()
    };
    assert_eq!(wakes(node("a")), 1, "a new node");
    let beat = with(node("a"), "/status/conditions", json!([{"type": "Ready", "status": "True"}]));
    assert_eq!(wakes(beat), 0, "a heartbeat");
    assert_eq!(wakes(tainted("a", "k", "NoExecute")), 1, "a taint");
    assert_eq!(wakes(tainted("a", "k2", "NoExecute")), 0, "another taint of the same effect");
    let gone = nodes.unset(&Key::cluster("a")).unwrap();
    assert_eq!(DaemonSetController.enqueue(&world, &gone).len(), 1, "its end");
}

#[test]
fn old_revisions_beyond_the_limit_are_deleted() {
    let world = world(&set(), &[node("a")], &[pod("a", "old")]);
    for (image, number) in [("older", 0), ("oldest", -1)] {
        let revision = serde_json::from_value(revision(image, number)).unwrap();
        world.store::<ControllerRevision>().set(revision);
    }
    let plan = DaemonSetController.plan(&world, &key(), now());
    let gone: Vec<String> = short(&plan).into_iter().filter(|it| it.contains("ds-")).collect();
    assert_eq!(gone, ["delete ds-oldest"], "one is kept, and the one a pod has");
}

proptest! {
    /// Whatever is on the nodes, no plan leaves a node with more pods than one and the surge, nor
    /// deletes an available pod while more nodes than allowed are without one.
    #[test]
    fn one_pod_for_each_node(
        surge in 0_i64..3,
        states in proptest::collection::vec((0_u8..4, 0_u8..3), 1..6),
    ) {
        let names: Vec<String> = (0..states.len()).map(|n| format!("n{n}")).collect();
        let nodes: Vec<Value> = names.iter().map(|it| node(it)).collect();
        let pods: Vec<Value> = states.iter().zip(&names).flat_map(|((old_state, new), name)| {
            let old = match old_state {
                1 => Some(pod(name, "old")),
                2 => Some(unready(pod(name, "old"))),
                3 => Some(terminating(pod(name, "old"))),
                _ => None,
            };
            // Without surge, two pods are on a node only by mistake.
            let alone = surge > 0 || !matches!(old_state, 1 | 2);
            let new = match new {
                _ if !alone => None,
                1 => Some(pod(name, "new")),
                2 => Some(unready(pod(name, "new"))),
                _ => None,
            };
            old.into_iter().chain(new)
        }).collect();
        let set = if surge == 0 { set() } else { surging(surge) };
        let steps = short(&planned(&set, &nodes, &pods));
        let has = |step: String| i64::from(steps.contains(&step));
        let mut doubled_by_us = 0;
        let mut lost = 0;
        let mut without = 0;
        for ((old, new), name) in states.iter().zip(&names) {
            let new = if surge == 0 && matches!(old, 1 | 2) { &0 } else { new };
            let staying = i64::from(*old == 1 || *old == 2) + i64::from(*new > 0);
            let made = has(format!("make {name}"));
            let removed = has(format!("delete old-{name}")) + has(format!("delete new-{name}"));
            let after = staying + made - removed;
            prop_assert!(after <= if surge == 0 { 1 } else { 2 }, "{}: {:?}", name, steps);
            prop_assert!(*old == 3 || after >= 1 || removed > 0, "{}: {:?}", name, steps);
            let available = *old == 1 || *new == 1;
            doubled_by_us += i64::from(made == 1 && *old == 1);
            without += i64::from(!available);
            let keeps = (*old == 1 && has(format!("delete old-{name}")) == 0)
                || (*new == 1 && has(format!("delete new-{name}")) == 0);
            lost += i64::from(available && !keeps);
        }
        prop_assert!(doubled_by_us <= surge, "{:?}", steps);
        prop_assert!(lost == 0 || (surge == 0 && lost + without <= 1), "{:?}", steps);
    }
}

#[test]
fn pods_for_an_unreadable_node_stay() {
    let term =
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["odd"]}]});
    let terms = json!({"nodeSelectorTerms": [term]});
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    let waiting = with(pod("odd", "new"), "/spec", json!({"affinity": affinity}));
    let world = world(&set(), &[], &[waiting]);
    let goes = |it: &&Step| *it.write.resource() == Pod::RESOURCE && it.write.verb() == "delete";
    let deletes = |plan: &Plan| plan.steps.iter().filter(goes).count();
    assert_eq!(
        deletes(&DaemonSetController.plan(&world, &key(), now())),
        1,
        "it is not for a node that is gone"
    );
    let odd = json!({"metadata": {"name": "odd"}, "spec": {"taints": 7}});
    world.single_store_for(&Node::RESOURCE).unwrap().observe(&odd.to_string()).unwrap_err();
    assert_eq!(deletes(&DaemonSetController.plan(&world, &key(), now())), 0);
}
