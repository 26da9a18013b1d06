use super::*;

fn important(cpu: &str, priority: i64, more: &Value) -> Value {
    let mut it = requests_cpu(cpu);
    it["spec"]["priority"] = json!(priority);
    merge_into(&mut it, more);
    it
}

fn assigned_pod(name: &str, at: &str, cpu: &str, priority: i64) -> Value {
    let mut it = pod(name, &important(cpu, priority, &json!({})));
    it["spec"]["nodeName"] = json!(at);
    it["status"] = json!({"startTime": "2026-01-01T00:00:00Z"});
    it
}

/// Returns the pods that are terminating.
fn terminating_pods(world: &TestWorld<'_>) -> Vec<String> {
    let all = world.world.store::<Pod>().list();
    let going = all.iter().filter(|it| it.metadata.is_terminating());
    going.map(|it| it.metadata.name.clone()).collect()
}

#[test]
fn lower_priority_pods_are_preempted() {
    let plain = json!({});
    let nodes = [node("a", &plain), node("b", &plain)];
    let full = [assigned_pod("low", "a", "4", 1), assigned_pod("mid", "b", "4", 5)];
    let never = json!({"spec": {"preemptionPolicy": "Never"}});
    let table = [
        ("the least important one", important("2", 9, &plain), vec!["low"]),
        ("only those less important", important("2", 1, &plain), vec![]),
        ("none when it must not", important("2", 9, &never), vec![]),
        ("none when that does not help", important("5", 9, &plain), vec![]),
    ];
    for (why, of_pod, expected) in table {
        let mut world = test_world(&nodes, &[&full[..], &[pod("p", &of_pod)]].concat());
        world.reconcile(0, &scheduler_key());
        assert_eq!(terminating_pods(&world), expected, "{why}");
    }
}

#[test]
fn few_pods_are_preempted_and_the_node_is_nominated() {
    let plain = json!({});
    let pods = [
        assigned_pod("one", "a", "1", 1),
        assigned_pod("two", "a", "1", 2),
        assigned_pod("three", "a", "2", 3),
        pod("p", &important("2", 9, &plain)),
        pod("q", &important("1", 0, &plain)),
    ];
    let mut world = test_world(&[node("a", &plain)], &pods);
    let plan = world.reconcile(0, &scheduler_key());
    assert_eq!(terminating_pods(&world), ["one", "two"], "the most important stays");
    assert_eq!(world.status("p")["nominatedNodeName"], "a");
    assert_eq!(plan.held[0].message, "0/1 nodes are available: 1 Insufficient cpu.");
    assert!(
        world.take_events().contains(&"Preempted: Preempted by pod uid-p on node a".to_owned())
    );
    let target = &world.status("one")["conditions"][0];
    assert_eq!([&target["type"], &target["reason"]], ["DisruptionTarget", "PreemptionByScheduler"]);
    // While they are terminating no other pod is bound, and no more pods are preempted.
    world.reconcile_until_stable(0, &scheduler_key());
    assert_eq!(terminating_pods(&world), ["one", "two"]);
    let waits = "preemption: not eligible due to a terminating pod on the nominated node.";
    assert!(outcome(&world, "p").ends_with(waits), "{}", outcome(&world, "p"));
    for gone in ["one", "two"] {
        world.edit::<Pod>(&Key::new("default", gone), |it| it["status"]["phase"] = json!("Failed"));
    }
    world.reconcile_until_stable(0, &scheduler_key());
    assert_eq!(outcome(&world, "p"), "a");
    assert!(outcome(&world, "q").starts_with("0/1 nodes"), "no capacity is left");
}

#[test]
fn the_cheapest_node_is_preempted() {
    let plain = json!({});
    let nodes = [node("a", &plain), node("b", &plain), node("c", &plain)];
    let pods = [
        assigned_pod("a1", "a", "4", 3),
        assigned_pod("b1", "b", "2", 2),
        assigned_pod("b2", "b", "2", 2),
        assigned_pod("c1", "c", "4", 2),
        pod("p", &important("4", 9, &plain)),
    ];
    let mut world = test_world(&nodes, &pods);
    world.reconcile(0, &scheduler_key());
    assert_eq!(terminating_pods(&world), ["c1"], "no higher priority, and one pod rather than two");
}

#[test]
fn budgets_are_respected_where_that_is_possible() {
    let plain = json!({});
    let labelled = |name: &str, at: &str| {
        let mut it = assigned_pod(name, at, "4", 1);
        it["metadata"]["labels"] = json!({"app": "web"});
        it
    };
    let budget = json!({
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    });
    let nodes = [node("a", &plain), node("b", &plain)];
    let both = [labelled("web", "a"), assigned_pod("free", "b", "4", 5)];
    let p = pod("p", &important("4", 9, &plain));
    let mut world = test_world(&nodes, &[&both[..], std::slice::from_ref(&p)].concat());
    world.put::<PodDisruptionBudget>(budget.clone());
    world.reconcile(0, &scheduler_key());
    assert_eq!(
        terminating_pods(&world),
        ["free"],
        "the more important one, because the other is protected"
    );
    let mut alone = test_world(&nodes[..1], &[both[0].clone(), p]);
    alone.put::<PodDisruptionBudget>(budget);
    alone.reconcile(0, &scheduler_key());
    assert_eq!(terminating_pods(&alone), ["web"], "there is no other way");
}
