//! Convergence tests of daemon sets.

use super::*;

fn daemon_set(name: &str, surge: i64) -> (Resource, Value) {
    let object = json!({
        "metadata": {
            "name": name, "namespace": "n",
            "annotations": {"deprecated.daemonset.template.generation": "x"},
        },
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": template(name),
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 1 - surge, "maxSurge": surge},
            },
            "revisionHistoryLimit": 1,
        },
    });
    (DaemonSet::RESOURCE, object)
}

fn node(name: &str) -> (Resource, Value) {
    (Node::RESOURCE, json!({"metadata": {"name": name, "labels": {"on": "yes"}}, "spec": {}}))
}

/// Returns which image of which set runs on which node, and the status of the sets.
fn daemon_summary(server: &Server) -> Value {
    let pods = server.list(&Pod::RESOURCE);
    let pods = pods.iter().filter(|it| !is_faulty(&it["metadata"]["name"])).map(|it| {
        let terms = &it["spec"]["affinity"]["nodeAffinity"]
            ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let node = &terms[0]["matchFields"][0]["values"][0];
        let image = &it["spec"]["containers"][0]["image"];
        format!("{} {image} {node}", it["metadata"]["labels"]["app"])
    });
    let mut pods: Vec<String> = pods.collect();
    pods.sort();
    let sets = server.list(&DaemonSet::RESOURCE);
    let sets = sets.iter().filter(|it| !is_faulty(&it["metadata"]["name"])).map(|it| {
        let mut status = it["status"].clone();
        status.as_object_mut().unwrap().remove("observedGeneration");
        json!([it["metadata"]["name"], status])
    });
    json!({"pods": pods, "sets": sets.collect::<Vec<Value>>()})
}

#[test]
fn daemon_sets_converge() {
    let d = DaemonSet::RESOURCE;
    let add: UserAction = Box::new(|server: &mut Server| {
        let (resource, object) = node("n3");
        server.create(&resource, object);
    });
    let taint: UserAction = Box::new(|server: &mut Server| {
        server.edit(&Node::RESOURCE, &Key::cluster("n1"), |it| {
            it["spec"]["taints"] = json!([{"key": "k", "effect": "NoExecute"}]);
        });
    });
    let scenario = Scenario {
        controllers: &[&DaemonSetController, &Kubelet::RUNS_ALL],
        defaults: |_, _| {},
        objects: vec![node("n1"), node("n2"), daemon_set("a", 0), daemon_set("b", 1)],
        script: vec![
            edit(d.clone(), "a", IMAGE, json!("two")),
            add,
            edit(d.clone(), "b", IMAGE, json!("two")),
            kill_one(),
            taint,
            edit(d.clone(), "b", IMAGE, json!("three")),
            edit(d, "a", IMAGE, json!("one")),
        ],
        replicas: 1,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    };
    let ending = scenario.run(3, Faults::random()).unwrap();
    let expected = [
        "\"a\" \"one\" \"n2\"",
        "\"a\" \"one\" \"n3\"",
        "\"b\" \"three\" \"n2\"",
        "\"b\" \"three\" \"n3\"",
    ];
    assert_eq!(daemon_summary(&ending.server)["pods"], json!(expected));
    let revisions = ending.server.list(&ControllerRevision::RESOURCE);
    assert!(revisions.len() <= 4, "one former template of each is kept, not {}", revisions.len());
    assert_proof(scenario.prove_faults(0..5, daemon_summary));
    let mut wrong =
        faulty_objects("agent", "/spec/revisionHistoryLimit", |name| daemon_set(name, 0));
    // A node that cannot be read gets no pods, and no pod is deleted because of it.
    wrong.extend(faulty_objects("node", "/spec", node).pop());
    assert_proof(scenario.prove_isolation(&wrong, 0..2, daemon_summary));
}

fn daemon_sets<'a>(objects: Vec<(Resource, Value)>, script: Vec<UserAction>) -> Scenario<'a> {
    Scenario {
        controllers: &[&DaemonSetController, &Kubelet::RUNS_ALL],
        defaults: |_, _| {},
        objects,
        script,
        replicas: 1,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    }
}

#[test]
fn daemon_sets_survive_a_crash_at_every_step() {
    for surge in [0, 1] {
        let image = edit(DaemonSet::RESOURCE, "a", IMAGE, json!("two"));
        let objects = vec![node("n1"), node("n2"), daemon_set("a", surge)];
        assert_proof(
            daemon_sets(objects, vec![image, kill_one()]).prove_crashes(1, daemon_summary),
        );
    }
}

#[test]
fn random_daemon_sets_converge() {
    let world = |seed| {
        let rng = &mut Rng::with_seed(seed);
        let mut objects: Vec<_> =
            ["n1", "n2", "n3"][..rng.usize(1..=3)].iter().map(|it| node(it)).collect();
        for (_, node) in &mut objects {
            if rng.u32(..4) == 0 {
                node["spec"]["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
            }
        }
        objects.extend(["a", "b"].map(|name| {
            let (resource, mut object) = daemon_set(name, rng.i64(0..2));
            if rng.bool() {
                object["spec"]["template"]["spec"]["nodeSelector"] = json!({"on": "yes"});
            }
            (resource, object)
        }));
        daemon_sets(objects, random_changes(rng, &DaemonSet::RESOURCE, false))
    };
    assert_proof(prove_worlds(0..12, world, daemon_summary));
}
