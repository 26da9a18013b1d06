use super::*;

fn important(cpu: &str, priority: i64, more: &Value) -> Value {
    let mut it = asks(cpu);
    it["spec"]["priority"] = json!(priority);
    merge_into(&mut it, more);
    it
}

fn there(name: &str, at: &str, cpu: &str, priority: i64) -> Value {
    let mut it = pod(name, &important(cpu, priority, &json!({})));
    it["spec"]["nodeName"] = json!(at);
    it["status"] = json!({"startTime": "2026-01-01T00:00:00Z"});
    it
}

/// Who is on the way out.
fn leaving(stand: &Stand<'_>) -> Vec<String> {
    let all = stand.world.shelf::<Pod>().all();
    let going = all.iter().filter(|it| it.metadata.is_going());
    going.map(|it| it.metadata.name.clone()).collect()
}

#[test]
fn the_less_important_leave() {
    let plain = json!({});
    let nodes = [node("a", &plain), node("b", &plain)];
    let full = [there("low", "a", "4", 1), there("mid", "b", "4", 5)];
    let never = json!({"spec": {"preemptionPolicy": "Never"}});
    let table = [
        ("the least important one", important("2", 9, &plain), vec!["low"]),
        ("only those less important", important("2", 1, &plain), vec![]),
        ("nobody when it must not", important("2", 9, &never), vec![]),
        ("nobody when that does not help", important("5", 9, &plain), vec![]),
    ];
    for (why, of_pod, expected) in table {
        let mut stand = stand(&nodes, &[&full[..], &[pod("p", &of_pod)]].concat());
        stand.turn(0, &turn());
        assert_eq!(leaving(&stand), expected, "{why}");
    }
}

#[test]
fn as_few_leave_as_will_do_and_the_place_is_kept() {
    let plain = json!({});
    let pods = [
        there("one", "a", "1", 1),
        there("two", "a", "1", 2),
        there("three", "a", "2", 3),
        pod("p", &important("2", 9, &plain)),
        pod("q", &important("1", 0, &plain)),
    ];
    let mut stand = stand(&[node("a", &plain)], &pods);
    let plan = stand.turn(0, &turn());
    assert_eq!(leaving(&stand), ["one", "two"], "the most important stays");
    assert_eq!(stand.status("p")["nominatedNodeName"], "a");
    assert_eq!(plan.held[0].message, "0/1 nodes are available: 1 Insufficient cpu.");
    assert!(stand.told().contains(&"Preempted: Preempted by pod uid-p on node a".to_owned()));
    let target = &stand.status("one")["conditions"][0];
    assert_eq!([&target["type"], &target["reason"]], ["DisruptionTarget", "PreemptionByScheduler"]);
    // While they leave nobody else comes, and nobody more is pushed out.
    stand.settle(0, &turn());
    assert_eq!(leaving(&stand), ["one", "two"]);
    let waits = "preemption: not eligible due to a terminating pod on the nominated node.";
    assert!(outcome(&stand, "p").ends_with(waits), "{}", outcome(&stand, "p"));
    for gone in ["one", "two"] {
        stand.edit::<Pod>(&Key::new("default", gone), |it| it["status"]["phase"] = json!("Failed"));
    }
    stand.settle(0, &turn());
    assert_eq!(outcome(&stand, "p"), "a");
    assert!(outcome(&stand, "q").starts_with("0/1 nodes"), "there is no room left");
}

#[test]
fn the_cheapest_node_is_freed() {
    let plain = json!({});
    let nodes = [node("a", &plain), node("b", &plain), node("c", &plain)];
    let pods = [
        there("a1", "a", "4", 3),
        there("b1", "b", "2", 2),
        there("b2", "b", "2", 2),
        there("c1", "c", "4", 2),
        pod("p", &important("4", 9, &plain)),
    ];
    let mut stand = stand(&nodes, &pods);
    stand.turn(0, &turn());
    assert_eq!(leaving(&stand), ["c1"], "no higher priority, and one pod rather than two");
}

#[test]
fn budgets_are_respected_where_that_is_possible() {
    let plain = json!({});
    let labelled = |name: &str, at: &str| {
        let mut it = there(name, at, "4", 1);
        it["metadata"]["labels"] = json!({"app": "web"});
        it
    };
    let budget = json!({
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    });
    let nodes = [node("a", &plain), node("b", &plain)];
    let both = [labelled("web", "a"), there("free", "b", "4", 5)];
    let p = pod("p", &important("4", 9, &plain));
    let mut stand = stand(&nodes, &[&both[..], std::slice::from_ref(&p)].concat());
    stand.put::<PodDisruptionBudget>(budget.clone());
    stand.turn(0, &turn());
    assert_eq!(leaving(&stand), ["free"], "the more important one, because the other is protected");
    let mut alone = super::stand(&nodes[..1], &[both[0].clone(), p]);
    alone.put::<PodDisruptionBudget>(budget);
    alone.turn(0, &turn());
    assert_eq!(leaving(&alone), ["web"], "there is no other way");
}
