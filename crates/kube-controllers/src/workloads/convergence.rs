//! Convergence tests: whatever goes wrong on the way, the controllers reach the same state.

mod daemon;
mod replication;
mod stateful;

use std::time::Duration;

use fastrand::Rng;
use gantry_harness::{Faults, Kubelet, Scenario, Server, UserAction, prove_worlds};
use gantry_reconcile::{Controller, Key, Propagation, Resource, View};
use serde_json::{Value, json};

use super::{
    DaemonSetController, DeploymentController, ReplicaSetController, ReplicationManager,
    StatefulSetController,
};
use crate::test_world::{assert_proof, faulty_objects, is_faulty};
use crate::view::{
    ControllerRevision, DaemonSet, Deployment, Node, PersistentVolumeClaim, Pod, ReplicaSet,
    ReplicationController, StatefulSet,
};

fn deployment(name: &str, replicas: i64, strategy: &Value) -> (Resource, Value) {
    let object = json!({
        "metadata": {"name": name, "namespace": "n"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "one"}]},
            },
            "strategy": strategy,
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
        },
    });
    (Deployment::RESOURCE, object)
}

fn edit(resource: Resource, name: &'static str, path: &'static str, value: Value) -> UserAction {
    Box::new(move |server: &mut Server| {
        server.edit(&resource, &Key::new("n", name), |it| {
            *it.pointer_mut(path).unwrap() = value.clone();
        });
    })
}

const IMAGE: &str = "/spec/template/spec/containers/0/image";

/// Returns how many pods of which image each owner has, and the status of the owners.
fn summary(server: &Server) -> Value {
    let mut pods: Vec<String> = server
        .list(&Pod::RESOURCE)
        .iter()
        .filter(|it| !is_faulty(&it["metadata"]["name"]))
        .map(|it| {
            let labels = it["metadata"]["labels"]["app"].as_str().unwrap_or("-");
            let image = it["spec"]["containers"][0]["image"].as_str().unwrap_or("-");
            format!("{labels} {image} {}", it["status"]["phase"])
        })
        .collect();
    pods.sort();
    let said = |resource: &Resource| -> Vec<Value> {
        let list = server.list(resource);
        list.iter()
            .filter(|it| !is_faulty(&it["metadata"]["name"]))
            .map(|it| {
                let status = &it["status"];
                let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
                let mut reasons: Vec<String> = conditions
                    .iter()
                    .map(|it| format!("{} {} {}", it["type"], it["status"], it["reason"]))
                    .collect();
                reasons.sort();
                let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
                json!([
                    it["metadata"]["name"],
                    it["metadata"]["generation"] == status["observedGeneration"],
                    counts.map(|name| status[name].as_i64().unwrap_or_default()),
                    reasons,
                ])
            })
            .collect()
    };
    json!({"pods": pods, "deployments": said(&Deployment::RESOURCE)})
}

fn kill_one() -> UserAction {
    Box::new(|server: &mut Server| {
        let pods = server.list(&Pod::RESOURCE);
        let name = pods.first().and_then(|it| it["metadata"]["name"].as_str());
        if let Some(key) = name.map(|name| Key::new("n", name)) {
            server.delete(&Pod::RESOURCE, &key, Propagation::Background);
        }
    })
}

/// The sets of deployment `a` never have more pods than four and one.
fn check_surge() -> UserAction {
    Box::new(|server: &mut Server| {
        let sets = server.list(&ReplicaSet::RESOURCE);
        let mine = sets.iter().filter(|it| it["metadata"]["labels"]["app"] == "a");
        let size: i64 = mine.map(|it| it["spec"]["replicas"].as_i64().unwrap()).sum();
        assert!(size <= 5, "no more than four and one, but {size}");
    })
}

fn rolling() -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}})
}

const DEPLOYMENTS: [&dyn Controller; 3] =
    [&DeploymentController, &ReplicaSetController, &Kubelet::RUNS_ALL];

#[test]
fn deployments_converge() {
    let d = Deployment::RESOURCE;
    let scenario = Scenario {
        controllers: &DEPLOYMENTS,
        defaults: |_, _| {},
        objects: vec![
            deployment("a", 2, &rolling()),
            deployment("b", 1, &json!({"type": "Recreate"})),
        ],
        script: vec![
            edit(d.clone(), "a", IMAGE, json!("two")),
            edit(d.clone(), "b", IMAGE, json!("two")),
            kill_one(),
            edit(d.clone(), "b", "/spec/replicas", json!(2)),
            edit(d.clone(), "a", IMAGE, json!("three")),
            edit(d, "a", IMAGE, json!("one")),
        ],
        replicas: 1,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    };
    assert_proof(scenario.prove_faults(0..5, summary));
    let deployment = |name: &str| deployment(name, 1, &rolling());
    assert_proof(scenario.prove_isolation(
        &faulty_objects("web", "/spec/replicas", deployment),
        0..2,
        summary,
    ));
}

fn deployments<'a>(objects: Vec<(Resource, Value)>, script: Vec<UserAction>) -> Scenario<'a> {
    Scenario {
        controllers: &DEPLOYMENTS,
        defaults: |_, _| {},
        objects,
        script,
        replicas: 1,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    }
}

#[test]
fn deployments_survive_a_crash_at_every_step() {
    let image = edit(Deployment::RESOURCE, "a", IMAGE, json!("two"));
    for strategy in [rolling(), json!({"type": "Recreate"})] {
        let image = edit(Deployment::RESOURCE, "a", IMAGE, json!("two"));
        let scenario = deployments(vec![deployment("a", 1, &strategy)], vec![image]);
        assert_proof(scenario.prove_crashes(1, summary));
    }
    let sizes =
        [2, 0, 1].map(|size| edit(Deployment::RESOURCE, "a", "/spec/replicas", json!(size)));
    let script = [image].into_iter().chain(sizes).collect();
    let scenario = deployments(vec![deployment("a", 1, &rolling())], script);
    assert_proof(scenario.prove_crashes(2, summary));
}

/// Random changes of a workload: images, sizes, and deleted pods.
fn random_changes(rng: &mut Rng, resource: &Resource, sized: bool) -> Vec<UserAction> {
    let change = |rng: &mut Rng| {
        let name = ["a", "b"][rng.usize(..2)];
        match rng.u32(..4) {
            0 => kill_one(),
            1 if sized => edit(resource.clone(), name, "/spec/replicas", json!(rng.u32(..3))),
            _ => {
                let image = ["one", "two", "three"][rng.usize(..3)];
                edit(resource.clone(), name, IMAGE, json!(image))
            }
        }
    };
    (0..rng.usize(..5)).map(|_| change(rng)).collect()
}

#[test]
fn random_deployments_converge() {
    let world = |seed| {
        let rng = &mut Rng::with_seed(seed);
        let objects = ["a", "b"].map(|name| {
            let strategy = match rng.u32(..3) {
                0 => json!({"type": "Recreate"}),
                1 => rolling(),
                _ => json!({
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0},
                }),
            };
            let (resource, mut object) = deployment(name, rng.i64(0..3), &strategy);
            object["spec"]["minReadySeconds"] = json!(rng.u32(..2) * 5);
            object["spec"]["revisionHistoryLimit"] = json!(rng.u32(..3));
            (resource, object)
        });
        deployments(objects.to_vec(), random_changes(rng, &Deployment::RESOURCE, true))
    };
    assert_proof(prove_worlds(0..12, world, summary));
}

/// A quota that rejects pods is reported, and no longer reported when there is quota again:
/// whatever happens in between, including restarts that forget which writes were rejected.
#[test]
fn rejected_creates_are_reported_while_they_last() {
    let refuse = || -> UserAction {
        Box::new(|server: &mut Server| {
            server.refuse(|write| *write.resource() == Pod::RESOURCE && write.verb() == "create");
        })
    };
    let allow: UserAction = Box::new(|server: &mut Server| server.refuse(|_| false));
    let world = || vec![deployment("a", 2, &rolling())];
    let full = deployments(world(), vec![refuse()]);
    let reasons = |server: &Server| {
        let sets = server.list(&ReplicaSet::RESOURCE);
        let own = sets.iter().flat_map(|it| it["status"]["conditions"].as_array().cloned());
        let own: Vec<Value> = own.flatten().collect();
        json!([own, summary(server)["deployments"][0][3]])
    };
    for seed in 0..3 {
        let ending = full.run(seed, Faults::random()).unwrap_or_else(|it| panic!("{it}"));
        let said = reasons(&ending.server);
        let failure = r#""ReplicaFailure" "True" "FailedCreate""#;
        assert!(said[1].as_array().unwrap().contains(&json!(failure)), "seed {seed}: {said}");
        let condition = &said[0][0];
        assert_eq!(condition["reason"], "FailedCreate", "seed {seed}");
        assert!(condition["message"].as_str().unwrap().ends_with("is forbidden: the test says so"));
        assert_eq!(condition["lastUpdateTime"], Value::Null, "replica sets have none");
        let events = ending.events.iter().filter(|it| it.reason == "FailedCreate");
        assert!(events.count() > 0, "seed {seed}");
    }
    let roomy = deployments(world(), vec![refuse(), allow]);
    let calm = roomy.run(1, Faults::none()).unwrap_or_else(|it| panic!("{it}"));
    assert_eq!(reasons(&calm.server)[0], json!([]), "nothing is rejected any more");
    assert_proof(roomy.prove(1..4, summary));
}

/// A write that succeeded without a response cannot be counted, so this holds while responses
/// arrive.
#[test]
fn no_surge_beyond_the_limit_with_delayed_watches() {
    let d = Deployment::RESOURCE;
    let image = |name: &str| edit(d.clone(), "a", IMAGE, json!(name));
    let mut script = Vec::new();
    for change in [image("two"), kill_one(), image("three"), image("one"), image("two")] {
        script.push(change);
        script.extend((0..8).map(|_| check_surge()));
    }
    let scenario = Scenario {
        controllers: &DEPLOYMENTS,
        defaults: |_, _| {},
        objects: vec![deployment("a", 4, &rolling())],
        script,
        replicas: 1,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    };
    for seed in 0..10 {
        let faults = Faults { doubled: 50, relists: 20, ..Faults::none() };
        let ending = scenario.run(seed, faults).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(
            ending.writes_after_restart.is_empty(),
            "seed {seed}: {:?}",
            ending.writes_after_restart
        );
        let found = summary(&ending.server);
        assert_eq!(found["pods"], json!(vec!["a two \"Running\""; 4]), "seed {seed}");
    }
}

/// Pods of one deployment are rejected, another cannot be read: the third is still reconciled.
#[test]
fn one_faulty_object_does_not_block_others() {
    let refuse: UserAction = Box::new(|server: &mut Server| {
        server.refuse(|write| {
            let pods = *write.resource() == Pod::RESOURCE;
            pods && write.verb() == "create" && write.key().name().starts_with("a-")
        });
    });
    let (resource, mut bad) = deployment("bad", 1, &rolling());
    bad["spec"]["replicas"] = json!("many");
    let scenario = Scenario {
        controllers: &DEPLOYMENTS,
        defaults: |_, _| {},
        objects: vec![
            (resource, bad),
            deployment("a", 2, &rolling()),
            deployment("c", 2, &rolling()),
        ],
        script: vec![refuse, edit(Deployment::RESOURCE, "c", IMAGE, json!("two"))],
        replicas: 1,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    };
    for seed in 0..5 {
        let ending = scenario.run(seed, Faults::random()).unwrap_or_else(|it| panic!("{it}"));
        let found = summary(&ending.server);
        let pods = found["pods"].as_array().unwrap();
        let served = pods.iter().filter(|it| **it == "c two \"Running\"").count();
        assert_eq!(served, 2, "seed {seed}: {found}");
        let said = &found["deployments"];
        assert_eq!(said[2][2], json!([2, 2, 2, 2]), "seed {seed}: {said}");
        // Rejected writes are retried, and they are reported immediately and after the deadline.
        let reasons = said[0][3].to_string();
        let all = said[0][2][0] == 2;
        let failed = ["ReplicaFailure", "ProgressDeadlineExceeded"];
        assert!(all || failed.iter().all(|it| reasons.contains(it)), "seed {seed}: {said}");
    }
}

fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "one"}]},
    })
}
