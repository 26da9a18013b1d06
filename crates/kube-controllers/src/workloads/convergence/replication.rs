//! Convergence tests of replication controllers.

use super::*;

fn controller(name: &str, replicas: i64) -> (Resource, Value) {
    let object = json!({
        "metadata": {"name": name, "namespace": "n"},
        "spec": {
            "replicas": replicas,
            "selector": {"app": name},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "one"}]},
            },
        },
    });
    (ReplicationController::RESOURCE, object)
}

/// Returns how many pods each owner has, and the status of the owners.
fn replication_summary(server: &Server) -> Value {
    let owner = |it: &Value| it["metadata"]["ownerReferences"][0].clone();
    let pods = server.list(&Pod::RESOURCE);
    let mut owners: Vec<String> = pods
        .iter()
        .filter(|it| !is_faulty(&it["metadata"]["name"]))
        .map(|it| format!("{} {}", owner(it)["kind"], owner(it)["name"]))
        .collect();
    owners.sort();
    let said = server.list(&ReplicationController::RESOURCE).into_iter();
    let said = said.filter(|it| !is_faulty(&it["metadata"]["name"])).map(|it| {
        let status = &it["status"];
        json!([
            it["metadata"]["name"],
            it["metadata"]["generation"] == status["observedGeneration"],
            status["replicas"],
            status["readyReplicas"],
        ])
    });
    json!({"pods": owners, "controllers": said.collect::<Value>()})
}

#[test]
fn replication_controllers_converge() {
    let rc = ReplicationController::RESOURCE;
    let orphan: UserAction = Box::new(|server: &mut Server| {
        let pod = json!({
            "metadata": {"name": "orphan", "namespace": "n", "labels": {"app": "a"}},
            "spec": {"containers": [{"name": "main", "image": "one"}]},
        });
        server.create(&Pod::RESOURCE, pod);
    });
    let controllers: [&dyn Controller; 3] =
        [&ReplicationManager, &ReplicaSetController, &Kubelet::RUNS_ALL];
    let scenario = Scenario {
        controllers: &controllers,
        defaults: |resource, object| {
            if *resource == Pod::RESOURCE && object["status"].is_null() {
                object["status"] = json!({"phase": "Pending"});
            }
        },
        objects: vec![controller("a", 2), controller("b", 1)],
        script: vec![
            kill_one(),
            orphan,
            edit(rc.clone(), "a", "/spec/replicas", json!(3)),
            edit(rc, "b", "/spec/replicas", json!(0)),
        ],
        replicas: 1,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    };
    let calm = replication_summary(&scenario.run(0, Faults::none()).unwrap().server);
    let expected = json!({
        "pods": vec!["\"ReplicationController\" \"a\""; 3],
        "controllers": [["a", true, 3, 3], ["b", true, 0, null]],
    });
    assert_eq!(calm, expected);
    assert_proof(scenario.prove_faults(0..5, replication_summary));
    let bad = faulty_objects("web", "/spec/replicas", |name| controller(name, 1));
    assert_proof(scenario.prove_isolation(&bad, 0..2, replication_summary));
}

#[test]
fn an_empty_selector_means_no_pods() {
    let view = |selector: Value| -> ReplicationController {
        let object = json!({"metadata": {"name": "a"}, "spec": {"selector": selector}});
        serde_json::from_value(object).unwrap()
    };
    assert_eq!(view(json!({})).spec.selector, None);
    assert_eq!(view(Value::Null).spec.selector, None);
    let labels = view(json!({"app": "a"})).spec.selector.unwrap().match_labels;
    assert_eq!(labels.into_iter().collect::<Vec<_>>(), [("app".to_owned(), "a".to_owned())]);
}
