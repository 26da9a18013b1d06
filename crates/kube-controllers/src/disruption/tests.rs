use std::time::Duration;

use gantry_harness::{Faults, Scenario, Server, UserAction, prove_worlds};

use super::*;
use crate::test_world::{assert_proof, faulty_objects};

const NOW: &str = "2026-01-01T00:10:00Z";

fn pods(healthy: usize, sick: usize) -> Vec<Arc<Pod>> {
    let pod = |number: usize| {
        let ready = if number < healthy { "True" } else { "False" };
        let text = json!({
            "metadata": {
                "name": format!("p{number}"), "namespace": "n", "labels": {"app": "web"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}],
            },
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        Arc::new(serde_json::from_value(text).unwrap())
    };
    (0..healthy + sick).map(pod).collect()
}

fn observed(
    spec: &Value,
    status: &Value,
    pods: Vec<Arc<Pod>>,
    scale: Result<i64, &str>,
) -> ObservedBudget {
    let mut object = json!({
        "metadata": {
            "name": "b", "namespace": "n", "uid": "b", "resourceVersion": "4", "generation": 2,
        },
        "spec": spec, "status": status,
    });
    object["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    ObservedBudget {
        budget: Arc::new(serde_json::from_value(object).unwrap()),
        pods,
        scale: scale.map_err(str::to_owned),
        now: NOW.parse().unwrap(),
    }
}

fn status(plan: &Plan) -> &Value {
    let Write::Merge { body, .. } = &plan.steps[0].write else { panic!("a merge") };
    &body["status"]
}

#[test]
fn budgets_are_counted() {
    let table = [
        // budget                           scale healthy sick   expected desired current allowed
        (json!({"minAvailable": 2}), 9, 3, 0, [3, 2, 3, 1]),
        (json!({"minAvailable": 2}), 9, 1, 2, [3, 2, 1, 0]),
        (json!({"minAvailable": 0}), 9, 0, 0, [0, 0, 0, 0]),
        (json!({"minAvailable": "50%"}), 5, 5, 0, [5, 3, 5, 2]),
        (json!({"minAvailable": "100%"}), 5, 5, 0, [5, 5, 5, 0]),
        (json!({"minAvailable": "34%"}), 3, 3, 0, [3, 2, 3, 1]),
        (json!({"maxUnavailable": 1}), 5, 5, 0, [5, 4, 5, 1]),
        (json!({"maxUnavailable": 1}), 5, 4, 1, [5, 4, 4, 0]),
        (json!({"maxUnavailable": 9}), 5, 3, 2, [5, 0, 3, 3]),
        (json!({"maxUnavailable": "30%"}), 10, 10, 0, [10, 7, 10, 3]),
        (json!({"maxUnavailable": "1%"}), 10, 10, 0, [10, 9, 10, 1]),
        (json!({"maxUnavailable": "0%"}), 10, 10, 0, [10, 10, 10, 0]),
    ];
    for (spec, scale, healthy, sick, expected) in table {
        let plan = plan(&observed(&spec, &json!({}), pods(healthy, sick), Ok(scale)));
        let fields = ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"];
        let found = fields.map(|name| status(&plan)[name].as_i64().unwrap());
        assert_eq!(found, expected, "{spec}, {healthy} healthy, {sick} not");
        let reason = if expected[3] > 0 { "SufficientPods" } else { "InsufficientPods" };
        let truth = if expected[3] > 0 { "True" } else { "False" };
        let condition = json!([{
            "type": "DisruptionAllowed", "status": truth, "lastTransitionTime": NOW,
            "reason": reason, "message": "", "observedGeneration": 2,
        }]);
        assert_eq!(status(&plan)["conditions"], condition, "{spec}");
        assert_eq!(status(&plan)["observedGeneration"], 2);
    }
}

#[test]
fn no_disruption_while_the_scale_is_unknown() {
    let before = json!({"disruptionsAllowed": 3, "expectedPods": 5, "observedGeneration": 1});
    let why = "jobs.batch does not implement the scale subresource";
    let plan = plan(&observed(&json!({"maxUnavailable": 1}), &before, pods(5, 0), Err(why)));
    assert_eq!(status(&plan)["disruptionsAllowed"], 0);
    assert_eq!(status(&plan)["expectedPods"], 5);
    let condition = &status(&plan)["conditions"][0];
    assert_eq!((&condition["reason"], &condition["message"]), (&json!("SyncFailed"), &json!(why)));
    let note = plan.steps[0].success_events.first().unwrap();
    assert_eq!(note.reason, "CalculateExpectedPodCountFailed");
}

#[test]
fn evicted_pods_count_as_disrupted() {
    let before = json!({"disruptedPods": {
        "p0": "2026-01-01T00:09:00Z", "p1": "2026-01-01T00:07:00Z", "gone": "2026-01-01T00:09:00Z",
    }});
    let mut all = pods(4, 0);
    let mut going = Pod::clone(&all[3]);
    going.metadata.deletion_timestamp = Some(NOW.parse().unwrap());
    all[3] = Arc::new(going);
    let plan = plan(&observed(&json!({"minAvailable": 1}), &before, all, Ok(4)));
    let expected = json!({"gone": null, "p0": "2026-01-01T00:09:00Z", "p1": null});
    assert_eq!(status(&plan)["disruptedPods"], expected);
    assert_eq!(status(&plan)["currentHealthy"], 2, "neither the expected nor the going one");
    assert_eq!(plan.requeue_after, Some(Duration::from_millis(60_001)));
    assert_eq!(plan.events[0].reason, "NotDeleted");
}

#[test]
fn stale_disruption_conditions_are_removed() {
    let controllers: [&dyn Controller; 1] = [&StaleDisruptionController];
    let mark: UserAction = Box::new(|server: &mut Server| {
        let at = server.now().to_string();
        for name in ["p", "refused-pod", "conflicted-pod", "unreadable-pod"] {
            server.edit(&Pod::RESOURCE, &Key::new("n", name), |pod| {
                pod["status"]["conditions"] = json!([
                    {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": at},
                ]);
            });
        }
    });
    let scenario = Scenario {
        controllers: &controllers,
        defaults: |_, _| {},
        objects: vec![(Pod::RESOURCE, json!({"metadata": {"name": "p", "namespace": "n"}}))],
        script: vec![mark],
        replicas: 1,
        horizon: Duration::from_secs(300),
        ..Scenario::default()
    };
    let said = |server: &Server| {
        let pod = server.get(&Pod::RESOURCE, &Key::new("n", "p")).unwrap();
        pod["status"]["conditions"][0]["status"].clone()
    };
    assert_eq!(said(&scenario.run(1, Faults::none()).unwrap().server), "False");
    assert_proof(scenario.prove(0..8, said));
    let make = |name: &str| {
        (Pod::RESOURCE, json!({"metadata": {"name": name, "namespace": "n"}, "spec": {}}))
    };
    assert_proof(scenario.prove_isolation(&faulty_objects("pod", "/spec", make), 0..4, said));
}

#[test]
fn budgets_converge() {
    let controllers: [&dyn Controller; 1] = [&DisruptionController];
    let owner = |kind: &str, name: &str, uid: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true}]);
    let mut objects = vec![
        (
            Deployment::RESOURCE,
            json!({"metadata": {"name": "d", "namespace": "n"}, "spec": {"replicas": 4}}),
        ),
        (
            ReplicaSet::RESOURCE,
            json!({
                "metadata": {"name": "r", "namespace": "n", "ownerReferences": owner("Deployment", "d", "uid-1")},
                "spec": {"replicas": 4},
            }),
        ),
        (
            PodDisruptionBudget::RESOURCE,
            json!({
                "metadata": {"name": "b", "namespace": "n"},
                "spec": {"maxUnavailable": "25%", "selector": {"matchLabels": {"app": "web"}}},
            }),
        ),
    ];
    for number in 0..4 {
        let body = json!({
            "metadata": {
                "name": format!("p{number}"), "namespace": "n", "labels": {"app": "web"},
                "ownerReferences": owner("ReplicaSet", "r", "uid-2"),
            },
        });
        objects.push((Pod::RESOURCE, body));
    }
    let ready = |number: usize, truth: &'static str| -> UserAction {
        Box::new(move |server: &mut Server| {
            let key = Key::new("n", &format!("p{number}"));
            server.edit(&Pod::RESOURCE, &key, |pod| {
                pod["status"]["conditions"] = json!([{"type": "Ready", "status": truth}]);
            });
        })
    };
    let script: Vec<UserAction> = vec![
        ready(0, "True"),
        ready(1, "True"),
        ready(2, "True"),
        ready(3, "True"),
        ready(0, "False"),
        Box::new(|server: &mut Server| {
            let key = Key::new("n", "d");
            server.edit(&Deployment::RESOURCE, &key, |it| it["spec"]["replicas"] = json!(2));
        }),
    ];
    let scenario = Scenario {
        controllers: &controllers,
        defaults: |_, _| {},
        objects,
        script,
        replicas: 2,
        horizon: Duration::from_secs(60),
        ..Scenario::default()
    };
    let shape = |server: &Server| {
        let budget = server.get(&PodDisruptionBudget::RESOURCE, &Key::new("n", "b")).unwrap();
        let status = &budget["status"];
        json!([
            status["expectedPods"],
            status["desiredHealthy"],
            status["currentHealthy"],
            status["disruptionsAllowed"]
        ])
    };
    assert_eq!(shape(&scenario.run(0, Faults::none()).unwrap().server), json!([2, 1, 3, 2]));
    assert_proof(scenario.prove(0..6, shape));
    let make = |name: &str| {
        let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}});
        let body = json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec});
        (PodDisruptionBudget::RESOURCE, body)
    };
    assert_proof(scenario.prove_isolation(
        &faulty_objects("budget", "/spec/selector", make),
        0..4,
        shape,
    ));
}

#[test]
fn random_budgets_converge() {
    let controllers: [&dyn Controller; 1] = [&DisruptionController];
    let world = |seed| {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let size = rng.usize(1..5);
        let limits = match rng.u32(..3) {
            0 => json!({"maxUnavailable": rng.u32(..3)}),
            1 => json!({"minAvailable": rng.u32(..3)}),
            _ => json!({"minAvailable": "50%"}),
        };
        let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}});
        spec.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        let set = json!({"metadata": {"name": "r", "namespace": "n"}, "spec": {"replicas": size}});
        let budget = json!({"metadata": {"name": "b", "namespace": "n"}, "spec": spec});
        let owner = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "uid-1",
            "controller": true,
        }]);
        let mut objects =
            vec![(ReplicaSet::RESOURCE, set), (PodDisruptionBudget::RESOURCE, budget)];
        objects.extend((0..size).map(|number| {
            let metadata = json!({
                "name": format!("p{number}"), "namespace": "n", "labels": {"app": "web"},
                "ownerReferences": owner,
            });
            (Pod::RESOURCE, json!({"metadata": metadata}))
        }));
        let change = |rng: &mut fastrand::Rng| -> UserAction {
            let (number, ready) = (rng.usize(..size), rng.bool());
            Box::new(move |server: &mut Server| {
                let truth = if ready { "True" } else { "False" };
                server.edit(&Pod::RESOURCE, &Key::new("n", &format!("p{number}")), |pod| {
                    pod["status"]["conditions"] = json!([{"type": "Ready", "status": truth}]);
                });
            })
        };
        Scenario {
            controllers: &controllers,
            defaults: |_, _| {},
            objects,
            script: (0..rng.usize(..6)).map(|_| change(rng)).collect(),
            replicas: 1,
            horizon: Duration::from_secs(60),
            ..Scenario::default()
        }
    };
    let shape = |server: &Server| {
        let status = &server.list(&PodDisruptionBudget::RESOURCE)[0]["status"];
        ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"]
            .map(|name| status[name].clone())
            .into_iter()
            .collect()
    };
    assert_proof(prove_worlds(0..20, world, shape));
}

#[test]
fn pods_of_replication_controllers_are_counted_by_their_scale() {
    let world = World::new(DisruptionController.kinds());
    let controller = json!({
        "metadata": {"name": "rc", "namespace": "n", "uid": "rc"}, "spec": {"replicas": 7},
    });
    world.store::<ReplicationController>().set(serde_json::from_value(controller).unwrap());
    let pod = |uid: &str| -> Arc<Pod> {
        let owner = json!({
            "apiVersion": "v1", "kind": "ReplicationController", "name": "rc", "uid": uid,
            "controller": true,
        });
        let metadata = json!({"name": "p", "namespace": "n", "ownerReferences": [owner]});
        Arc::new(serde_json::from_value(json!({"metadata": metadata})).unwrap())
    };
    let key = Key::new("n", "budget");
    assert_eq!(expected_scale(&world, &key, &[pod("rc"), pod("rc")]), Ok(7));
    let unknown = "found no controllers for pod \"p\"".to_owned();
    assert_eq!(expected_scale(&world, &key, &[pod("other")]), Err(unknown));
}
