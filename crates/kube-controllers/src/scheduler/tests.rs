use std::collections::BTreeMap;

use gantry_pods::Requests;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::test_world::{TestPods as _, TestWorld};

mod claims;
mod preempt;

fn scheduler_key() -> Key {
    Key::cluster(SCHEDULER_NAME)
}

fn node(name: &str, more: &Value) -> Value {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    });
    merge_into(&mut node, more);
    node
}

fn pod(name: &str, more: &Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "labels": {}},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "resources": {"requests": {}}}],
        },
    });
    merge_into(&mut pod, more);
    pod
}

fn merge_into(into: &mut Value, from: &Value) {
    match from {
        Value::Object(from) if into.is_object() => {
            for (name, value) in from {
                merge_into(&mut into[name], value);
            }
        }
        other => *into = other.clone(),
    }
}

fn requests_cpu(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn pod_on_node(name: &str, more: &Value) -> Value {
    let mut pod = pod(name, more);
    pod["spec"]["nodeName"] = json!(more["spec"]["nodeName"].as_str().unwrap_or("n1"));
    pod
}

fn test_world(nodes: &[Value], pods: &[Value]) -> TestWorld<'static> {
    let mut world = TestWorld::new(&[&Scheduler]);
    world.put::<Namespace>(json!({"metadata": {"name": "default", "labels": {"team": "a"}}}));
    nodes.iter().for_each(|it| world.put::<Node>(it.clone()));
    pods.iter().for_each(|it| world.put::<Pod>(it.clone()));
    world
}

/// Returns the node of a pod, or why it has none.
fn outcome(world: &TestWorld<'_>, name: &str) -> String {
    let pod = world.pod(name);
    match pod.condition("PodScheduled") {
        _ if !pod.spec.node_name.is_empty() => pod.spec.node_name.clone(),
        Some(condition) => condition.message.clone(),
        None => "untouched".to_owned(),
    }
}

fn affinity_term(list: &str, key: &str) -> Value {
    json!({"spec": {"affinity": {list: {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}},
    ]}}}})
}

fn spread_constraint(key: &str, skew: i64, more: &Value) -> Value {
    let mut constraint = json!({
        "maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    merge_into(&mut constraint, more);
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"topologySpreadConstraints": [constraint]}})
}

#[test]
fn each_filter_reports_its_reason() {
    let web = json!({"metadata": {"labels": {"app": "web"}}});
    let away = json!({"metadata": {"labels": {"app": "db"}}, "spec": {"affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}]}}}});
    let not_helpful = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    let no_victims = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    let port = json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}});
    let other = json!({"spec": {"containers": [{"name": "c", "ports": [
        {"containerPort": 80, "hostPort": 80, "protocol": "UDP"}]}]}});
    let taint =
        |effect: &str| json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    let plain = json!({});
    let zone = json!({"metadata": {"labels": {"zone": "a"}}});
    let said = |reason: &str, post: &str| format!("0/1 nodes are available: 1 {reason}. {post}");
    let table: Vec<(&str, Value, Vec<Value>, Value, String)> = vec![
        ("it fits", plain.clone(), vec![], requests_cpu("4"), "n1".into()),
        (
            "too large for the node",
            plain.clone(),
            vec![],
            requests_cpu("5"),
            said("Insufficient cpu", not_helpful),
        ),
        (
            "too large for what is left",
            plain.clone(),
            vec![requests_cpu("1")],
            requests_cpu("4"),
            said("Insufficient cpu", no_victims),
        ),
        (
            "pods that have ended take nothing",
            plain.clone(),
            vec![json!({"spec": requests_cpu("4")["spec"], "status": {"phase": "Succeeded"}})],
            requests_cpu("4"),
            "n1".into(),
        ),
        (
            "extended resources",
            plain.clone(),
            vec![],
            json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]}}),
            said("Insufficient example.com/gpu", not_helpful),
        ),
        (
            "number of pods",
            json!({"status": {"allocatable": {"pods": "1"}}}),
            vec![plain.clone()],
            plain.clone(),
            said("Too many pods", no_victims),
        ),
        (
            "a cordon",
            json!({"spec": {"unschedulable": true}}),
            vec![],
            plain.clone(),
            said("node(s) were unschedulable", not_helpful),
        ),
        (
            "a cordon that is put up with",
            json!({"spec": {"unschedulable": true}}),
            vec![],
            json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}}),
            "n1".into(),
        ),
        (
            "a taint",
            taint("NoSchedule"),
            vec![],
            plain.clone(),
            said("node(s) had untolerated taint(s)", not_helpful),
        ),
        (
            "a taint that also evicts",
            taint("NoExecute"),
            vec![],
            plain.clone(),
            said("node(s) had untolerated taint(s)", not_helpful),
        ),
        (
            "a taint that is put up with",
            taint("NoSchedule"),
            vec![],
            json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}),
            "n1".into(),
        ),
        (
            "a taint that is only disliked",
            taint("PreferNoSchedule"),
            vec![],
            plain.clone(),
            "n1".into(),
        ),
        (
            "a node selector",
            plain.clone(),
            vec![],
            json!({"spec": {"nodeSelector": {"zone": "a"}}}),
            said("node(s) didn't match Pod's node affinity/selector", not_helpful),
        ),
        (
            "another node by name",
            plain.clone(),
            vec![],
            json!({"spec": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["n9"]}]}]}}}}}),
            said("node(s) didn't satisfy plugin(s) [NodeAffinity]", not_helpful),
        ),
        (
            "a port that is taken",
            plain.clone(),
            vec![port.clone()],
            port.clone(),
            said("node(s) didn't have free ports for the requested pod ports", no_victims),
        ),
        ("the same port of another protocol", plain.clone(), vec![other], port, "n1".into()),
        (
            "no pod to be near",
            zone.clone(),
            vec![],
            affinity_term("podAffinity", "zone"),
            said("node(s) didn't match pod affinity rules", not_helpful),
        ),
        (
            "near another pod",
            zone.clone(),
            vec![web.clone()],
            affinity_term("podAffinity", "zone"),
            "n1".into(),
        ),
        (
            "near itself",
            zone.clone(),
            vec![],
            {
                let mut it = affinity_term("podAffinity", "zone");
                it["metadata"] = web["metadata"].clone();
                it
            },
            "n1".into(),
        ),
        (
            "near, without the label",
            plain.clone(),
            vec![web.clone()],
            affinity_term("podAffinity", "zone"),
            said("node(s) didn't match pod affinity rules", not_helpful),
        ),
        (
            "far from another pod",
            zone.clone(),
            vec![web.clone()],
            affinity_term("podAntiAffinity", "zone"),
            said("node(s) didn't match pod anti-affinity rules", no_victims),
        ),
        (
            "far from no pod",
            zone.clone(),
            vec![],
            affinity_term("podAntiAffinity", "zone"),
            "n1".into(),
        ),
        (
            "unwelcome",
            zone.clone(),
            vec![away],
            web.clone(),
            said("node(s) didn't satisfy existing pods anti-affinity rules", no_victims),
        ),
        (
            "spread without the label",
            plain,
            vec![],
            spread_constraint("zone", 1, &json!({})),
            said(
                "node(s) didn't match pod topology spread constraints (missing required label)",
                not_helpful,
            ),
        ),
        (
            "spread with too few places",
            zone.clone(),
            vec![web.clone()],
            spread_constraint("zone", 1, &json!({"minDomains": 2})),
            said("node(s) didn't match pod topology spread constraints", no_victims),
        ),
        (
            "spread over one place",
            zone,
            vec![web],
            spread_constraint("zone", 1, &json!({})),
            "n1".into(),
        ),
    ];
    for (why, of_node, there, of_pod, expected) in table {
        let mut pods: Vec<Value> = Vec::new();
        for (n, more) in there.iter().enumerate() {
            pods.push(pod_on_node(&format!("there{n}"), more));
        }
        pods.push(pod("p", &of_pod));
        let mut world = test_world(&[node("n1", &of_node)], &pods);
        world.reconcile_until_stable(0, &scheduler_key());
        assert_eq!(outcome(&world, "p"), expected, "{why}");
    }
}

#[test]
fn reasons_are_counted_and_reported_once() {
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let nodes = [node("a", &json!({})), node("b", &taint), node("c", &taint)];
    let mut world = test_world(&nodes, &[pod("p", &requests_cpu("5"))]);
    let plan = world.reconcile(0, &scheduler_key());
    let message = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). \
        no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
    assert_eq!(plan.held[0].message, message);
    assert_eq!(world.take_events(), [format!("FailedScheduling: {message}")]);
    let condition = world.status("p")["conditions"][0].clone();
    assert_eq!(
        [&condition["type"], &condition["status"], &condition["reason"], &condition["message"]],
        ["PodScheduled", "False", "Unschedulable", message]
    );
    let again = world.reconcile(0, &scheduler_key());
    assert!(again.is_noop() && again.held.len() == 1, "no news");
    world.put::<Node>(node("d", &json!({"status": {"allocatable": {"cpu": "8"}}})));
    world.reconcile(0, &scheduler_key());
    assert_eq!(world.take_events(), ["Scheduled: Successfully assigned default/p to d"]);
}

#[test]
fn pods_without_nodes_or_for_other_schedulers_stay_pending() {
    let all = [
        pod("p", &json!({})),
        pod("other", &json!({"spec": {"schedulerName": "mine"}})),
        pod("gated", &json!({"spec": {"schedulingGates": [{"name": "g"}]}})),
        pod("going", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
    ];
    let mut empty = test_world(&[], &all);
    empty.reconcile(0, &scheduler_key());
    assert_eq!(outcome(&empty, "p"), "no nodes available to schedule pods");
    let mut world = test_world(&[node("n1", &json!({}))], &all);
    world.reconcile_until_stable(0, &scheduler_key());
    let outcomes = ["p", "other", "gated", "going"].map(|it| outcome(&world, it));
    assert_eq!(outcomes, ["n1", "untouched", "untouched", "untouched"]);
}

#[test]
fn pods_are_ordered_by_priority_and_age() {
    let of = |name: &str, priority: i64, created: &str| {
        let mut it = pod(name, &requests_cpu("3"));
        it["spec"]["priority"] = json!(priority);
        it["metadata"]["creationTimestamp"] = json!(created);
        it
    };
    let pods = [
        of("young", 5, "2026-01-01T00:00:09Z"),
        of("old", 5, "2026-01-01T00:00:01Z"),
        of("small", 1, "2025-01-01T00:00:00Z"),
        of("great", 9, "2026-01-01T00:00:10Z"),
    ];
    let mut world = test_world(&[node("a", &json!({})), node("b", &json!({}))], &pods);
    let plan = world.reconcile(0, &scheduler_key());
    let bound = plan.steps.iter().filter(|it| matches!(it.write, Write::Bind { .. }));
    let names: Vec<String> = bound.map(|it| it.write.key().name().to_owned()).collect();
    assert_eq!(names, ["great", "old"]);
    assert_eq!(plan.held.len(), 2);
}

#[test]
fn nodes_with_higher_scores_are_chosen() {
    let label = |zone: &str| json!({"metadata": {"labels": {"zone": zone}}});
    let plain = json!({});
    let prefer = json!({"spec": {"affinity": {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "preference": {
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}}]}}}});
    let likes = |list: &str| {
        json!({"spec": {"affinity": {list: {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": {
            "topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}}]}}}})
    };
    let web = |node: &str| {
        pod_on_node(
            "w",
            &json!({"metadata": {"labels": {"app": "web"}}, "spec": {"nodeName": node}}),
        )
    };
    let soft = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}}}]}});
    let dislike = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
    let full = {
        let mut it = pod_on_node("f", &requests_cpu("3"));
        it["spec"]["nodeName"] = json!("a");
        it
    };
    let table: Vec<(&str, Value, Vec<Value>, Value)> = vec![
        ("the emptier", label("a"), vec![full], requests_cpu("1")),
        ("the liked", label("a"), vec![], prefer),
        ("near the liked", label("a"), vec![web("b")], likes("podAffinity")),
        ("far from the disliked", label("a"), vec![web("a")], likes("podAntiAffinity")),
        ("the emptier place", label("a"), vec![web("a")], soft),
        ("the one without a taint", dislike, vec![], plain),
    ];
    for (why, of_a, there, of_pod) in table {
        let nodes = [node("a", &of_a), node("b", &label("b"))];
        let mut pods = there;
        pods.push(pod("p", &of_pod));
        let mut world = test_world(&nodes, &pods);
        world.reconcile_until_stable(0, &scheduler_key());
        assert_eq!(outcome(&world, "p"), "b", "{why}");
    }
}

#[test]
fn equal_nodes_get_equal_shares() {
    let nodes: Vec<Value> = (0..4).map(|n| node(&format!("n{n}"), &json!({}))).collect();
    let pods: Vec<Value> = (0..100).map(|n| pod(&format!("p{n}"), &json!({}))).collect();
    let mut world = test_world(&nodes, &pods);
    world.reconcile_until_stable(0, &scheduler_key());
    let mut shares = BTreeMap::<String, u32>::new();
    for n in 0..100 {
        *shares.entry(outcome(&world, &format!("p{n}"))).or_default() += 1;
    }
    assert!(shares.len() == 4 && shares.values().all(|it| (23..=27).contains(it)), "{shares:?}");
}

#[test]
fn hard_spread_goes_round_the_zones() {
    let nodes: Vec<Value> = (0..6)
        .map(|n| {
            node(
                &format!("n{n}"),
                &json!({"metadata": {"labels": {"zone": format!("z{}", n % 3)}}}),
            )
        })
        .collect();
    let pods: Vec<Value> =
        (0..9).map(|n| pod(&format!("p{n}"), &spread_constraint("zone", 1, &json!({})))).collect();
    let mut world = test_world(&nodes, &pods);
    world.reconcile_until_stable(0, &scheduler_key());
    let mut shares = [0; 3];
    for n in 0..9 {
        let node: usize = outcome(&world, &format!("p{n}"))[1..].parse().unwrap();
        shares[node % 3] += 1;
    }
    assert_eq!(shares, [3, 3, 3]);
}

#[test]
fn affinity_terms_select_namespaces() {
    let there = |namespace: &str| {
        let mut it = pod_on_node("w", &json!({"metadata": {"labels": {"app": "web"}}}));
        it["metadata"]["namespace"] = json!(namespace);
        it
    };
    let required_affinity = |more: Value| {
        let mut it = affinity_term("podAffinity", "kubernetes.io/hostname");
        let terms = &mut it["spec"]["affinity"]["podAffinity"];
        merge_into(&mut terms["requiredDuringSchedulingIgnoredDuringExecution"][0], &more);
        it
    };
    let table = [
        ("its own only", json!({}), false),
        ("by name", json!({"namespaces": ["other"]}), true),
        ("all", json!({"namespaceSelector": {}}), true),
        ("by labels", json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}), true),
        ("by other labels", json!({"namespaceSelector": {"matchLabels": {"team": "c"}}}), false),
    ];
    for (why, more, fits) in table {
        let mut world = test_world(
            &[node("n1", &json!({}))],
            &[there("other"), pod("p", &required_affinity(more))],
        );
        world.put::<Namespace>(json!({"metadata": {"name": "other", "labels": {"team": "b"}}}));
        world.reconcile_until_stable(0, &scheduler_key());
        assert_eq!(outcome(&world, "p") == "n1", fits, "{why}");
    }
}

#[test]
fn one_plan_is_limited_and_requeued() {
    let pods: Vec<Value> = (0..300).map(|n| pod(&format!("p{n}"), &json!({}))).collect();
    let most = json!({"status": {"allocatable": {"pods": "1000"}}});
    let mut world = test_world(&[node("n1", &most)], &pods);
    let plan = world.reconcile(0, &scheduler_key());
    assert_eq!((plan.steps.len(), plan.requeue_after), (MAX_WRITES_PER_PLAN, Some(Duration::ZERO)));
    let plan = world.reconcile(0, &scheduler_key());
    assert_eq!((plan.steps.len(), plan.requeue_after), (44, None));
}

#[derive(Clone, Debug)]
struct SmallPod {
    cpu: u32,
    gpu: u32,
    port: Option<u16>,
    zone: Option<u8>,
}

fn any_pod() -> impl Strategy<Value = SmallPod> {
    let port = proptest::option::weighted(0.2, 80_u16..82);
    let zone = proptest::option::weighted(0.3, 0_u8..3);
    (0_u32..2500, 0_u32..3, port, zone).prop_map(|(cpu, gpu, port, zone)| SmallPod {
        cpu,
        gpu,
        port,
        zone,
    })
}

fn small_pod(name: &str, of: &SmallPod) -> Value {
    let mut it = pod(
        name,
        &json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {
        "cpu": format!("{}m", of.cpu), "example.com/gpu": of.gpu.to_string()}}}]}}),
    );
    if let Some(port) = of.port {
        it["spec"]["containers"][0]["ports"] = json!([{"containerPort": port, "hostPort": port}]);
    }
    if let Some(zone) = of.zone {
        it["spec"]["nodeSelector"] = json!({"zone": format!("z{zone}")});
    }
    it
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is created and deleted in whatever order, no node has more than its capacity, and
    /// the pods that are pending in the end fit no node.
    #[test]
    fn nodes_are_never_overcommitted_and_pending_pods_do_not_fit(
        waves in proptest::collection::vec(proptest::collection::vec(any_pod(), 0..8), 1..5),
        leaving in proptest::collection::vec(0_usize..24, 0..8),
    ) {
        let nodes: Vec<Value> = (0..4).map(|n| node(&format!("n{n}"), &json!({
            "metadata": {"labels": {"zone": format!("z{}", n % 2)}},
            "status": {"allocatable": {"pods": "5", "example.com/gpu": (n * 2).to_string()}},
        }))).collect();
        let mut world = test_world(&nodes, &[]);
        let mut count = 0;
        for wave in &waves {
            for of in wave {
                world.put::<Pod>(small_pod(&format!("p{count}"), of));
                count += 1;
            }
            world.reconcile_until_stable(0, &scheduler_key());
            for name in leaving.iter().filter(|it| **it < count).map(|it| format!("p{it}")) {
                world.edit::<Pod>(&Key::new("default", &name), |it| {
                    it["status"]["phase"] = json!("Succeeded");
                });
            }
        }
        world.reconcile_until_stable(0, &scheduler_key());
        let pods = world.world.store::<Pod>().list();
        let all_nodes = world.world.store::<Node>().list();
        for node in &all_nodes {
            let on = pods.iter().filter(|it| it.spec.node_name == node.metadata.name && !it.is_terminal());
            let mut used = Requests::default();
            on.clone().for_each(|it| used.add(&Requests::of(it)));
            let capacity = Requests::from_allocatable(&node.status.allocatable);
            prop_assert!(used.insufficient(&Requests::default(), &capacity).is_empty(), "{used:?} in {capacity:?}");
            prop_assert!(on.clone().count() <= 5);
            let ports: Vec<i32> = on.flat_map(|it| it.spec.containers[0].ports.iter().map(|p| p.host_port)).collect();
            let distinct: BTreeSet<&i32> = ports.iter().collect();
            prop_assert_eq!(distinct.len(), ports.len());
        }
        // An independent check of the pending pods.
        for pod in pods.iter().filter(|it| it.spec.node_name.is_empty() && !it.is_terminal()) {
            for node in &all_nodes {
                let zone = pod.spec.node_selector.get("zone");
                if zone.is_some_and(|it| node.metadata.labels["zone"] != *it) {
                    continue;
                }
                let on = || pods.iter().filter(|it| it.spec.node_name == node.metadata.name && !it.is_terminal());
                let mut used = Requests::default();
                on().for_each(|it| used.add(&Requests::of(it)));
                let capacity = Requests::from_allocatable(&node.status.allocatable);
                let wanted = Requests::of(pod);
                let full = on().count() >= 5 || !wanted.insufficient(&used, &capacity).is_empty();
                let port = pod.spec.containers[0].ports.first().map(|it| it.host_port);
                let taken = port.is_some_and(|port| on().any(|it| it.spec.containers[0].ports.iter().any(|p| p.host_port == port)));
                prop_assert!(full || taken, "{} fits {}", pod.metadata.name, node.metadata.name);
            }
        }
    }
}
