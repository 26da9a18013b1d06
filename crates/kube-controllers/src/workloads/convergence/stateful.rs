//! Convergence tests of stateful sets, including their order.

use super::*;

fn stateful_set(name: &str, replicas: i64, policy: &str) -> (Resource, Value) {
    let object = json!({
        "metadata": {"name": name, "namespace": "n"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name),
            "serviceName": name,
            "podManagementPolicy": policy,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "revisionHistoryLimit": 1,
            "minReadySeconds": 2,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
            "persistentVolumeClaimRetentionPolicy": {
                "whenScaled": "Delete",
                "whenDeleted": "Retain",
            },
        },
    });
    (StatefulSet::RESOURCE, object)
}

/// Returns pods and claims by name, and the status of the sets.
fn stateful_summary(server: &Server) -> Value {
    let pods = server.list(&Pod::RESOURCE);
    let pods = pods.iter().filter(|it| !is_faulty(&it["metadata"]["name"])).map(|it| {
        let image = &it["spec"]["containers"][0]["image"];
        json!([it["metadata"]["name"], image, it["spec"]["hostname"], it["status"]["phase"]])
    });
    // A claim whose pod was never created stays, and whether that happened is a matter of timing.
    let claimed = |pod: &Value| {
        let name = format!("data-{}", pod[0].as_str().unwrap());
        server.get(&PersistentVolumeClaim::RESOURCE, &Key::new("n", &name)).is_some()
    };
    let sets = server.list(&StatefulSet::RESOURCE);
    let sets = sets.iter().filter(|it| !is_faulty(&it["metadata"]["name"])).map(|it| {
        let mut status = it["status"].clone();
        let same = status["currentRevision"] == status["updateRevision"];
        for name in ["currentRevision", "updateRevision", "observedGeneration"] {
            status.as_object_mut().unwrap().remove(name);
        }
        json!([it["metadata"]["name"], status, same])
    });
    let pods: Vec<Value> = pods.collect();
    json!({"pods": pods, "claimed": pods.iter().all(claimed), "sets": sets.collect::<Vec<Value>>()})
}

#[test]
fn stateful_sets_converge() {
    let s = StatefulSet::RESOURCE;
    let scenario = Scenario {
        controllers: &[&StatefulSetController, &Kubelet::RUNS_ALL],
        defaults: |_, _| {},
        objects: vec![stateful_set("a", 2, "OrderedReady"), stateful_set("b", 3, "Parallel")],
        script: vec![
            edit(s.clone(), "a", IMAGE, json!("two")),
            edit(s.clone(), "b", "/spec/replicas", json!(1)),
            kill_one(),
            edit(s.clone(), "a", "/spec/replicas", json!(3)),
            edit(s.clone(), "b", IMAGE, json!("two")),
            edit(s.clone(), "a", IMAGE, json!("one")),
            edit(s, "b", "/spec/replicas", json!(2)),
        ],
        replicas: 1,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    };
    assert_proof(scenario.prove_faults(0..5, stateful_summary));
    let set = |name: &str| stateful_set(name, 1, "OrderedReady");
    assert_proof(scenario.prove_isolation(
        &faulty_objects("db", "/spec/replicas", set),
        0..2,
        stateful_summary,
    ));
}

fn stateful_sets<'a>(objects: Vec<(Resource, Value)>, script: Vec<UserAction>) -> Scenario<'a> {
    Scenario {
        controllers: &[&StatefulSetController, &Kubelet::RUNS_ALL],
        defaults: |_, _| {},
        objects,
        script,
        replicas: 1,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    }
}

#[test]
fn stateful_sets_survive_a_crash_at_every_step() {
    let s = StatefulSet::RESOURCE;
    for policy in ["OrderedReady", "Parallel"] {
        let script = vec![
            edit(s.clone(), "a", IMAGE, json!("two")),
            edit(s.clone(), "a", "/spec/replicas", json!(1)),
        ];
        let scenario = stateful_sets(vec![stateful_set("a", 2, policy)], script);
        assert_proof(scenario.prove_crashes(1, stateful_summary));
    }
}

#[test]
fn random_stateful_sets_converge() {
    let world = |seed| {
        let rng = &mut Rng::with_seed(seed);
        let objects = ["a", "b"].map(|name| {
            let policy = ["OrderedReady", "Parallel"][rng.usize(..2)];
            let (resource, mut object) = stateful_set(name, rng.i64(0..3), policy);
            object["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(rng.u32(..2));
            object["spec"]["minReadySeconds"] = json!(rng.u32(..2) * 2);
            (resource, object)
        });
        stateful_sets(objects.to_vec(), random_changes(rng, &StatefulSet::RESOURCE, true))
    };
    // With a partition old pods are recreated from the revision before, and which one that was
    // depends on the progress of an earlier change.
    let shape = |server: &Server| {
        let whole = stateful_summary(server);
        let pods = whole["pods"].as_array().unwrap().iter();
        let pods: Vec<Value> = pods.map(|it| json!([it[0], it[2], it[3]])).collect();
        let ready = whole["sets"].as_array().unwrap().iter();
        let ready: Vec<Value> = ready.map(|it| it[1]["readyReplicas"].clone()).collect();
        json!([pods, whole["claimed"], ready])
    };
    assert_proof(prove_worlds(0..12, world, shape));
}

/// In order, a pod is created after those before it; while responses arrive, none is ever missing
/// below an existing one.
#[test]
fn stateful_sets_keep_the_order() {
    let s = StatefulSet::RESOURCE;
    let check = || -> UserAction {
        Box::new(|server: &mut Server| {
            let pods = server.list(&Pod::RESOURCE);
            let ready = |it: &&&Value| it["status"]["phase"] == "Running";
            let names: Vec<&str> =
                pods.iter().filter_map(|it| it["metadata"]["name"].as_str()).collect();
            let highest = names.iter().filter_map(|it| it.strip_prefix("a-")?.parse::<i64>().ok());
            let highest = highest.max().unwrap_or(-1);
            let ready: Vec<&str> = pods
                .iter()
                .filter(ready)
                .filter_map(|it| it["metadata"]["name"].as_str())
                .collect();
            for below in 0..highest {
                assert!(ready.contains(&format!("a-{below}").as_str()), "{names:?}, but {ready:?}");
            }
        })
    };
    let mut script = Vec::new();
    for size in [4, 1, 3, 0, 2] {
        script.push(edit(s.clone(), "a", "/spec/replicas", json!(size)));
        script.extend((0..10).map(|_| check()));
    }
    let scenario = Scenario {
        controllers: &[&StatefulSetController, &Kubelet::RUNS_ALL],
        defaults: |_, _| {},
        objects: vec![stateful_set("a", 2, "OrderedReady")],
        script,
        replicas: 1,
        horizon: Duration::from_secs(3600),
        ..Scenario::default()
    };
    for seed in 0..10 {
        let faults = Faults { doubled: 50, relists: 20, ..Faults::none() };
        let ending = scenario.run(seed, faults).unwrap_or_else(|failure| panic!("{failure}"));
        let names = stateful_summary(&ending.server)["pods"].as_array().unwrap().len();
        assert_eq!(names, 2, "seed {seed}");
    }
}
