//! Whatever goes wrong on the way, the controllers end in the same place.

use std::time::Duration;

use gantry_reconcile::harness::{Action, Faults, Scenario, Server};
use gantry_reconcile::{
    Change, Controller, Key, Kind, Plan, Propagation, Resource, View, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{DaemonSets, Deployments, ReplicaSets, StatefulSets, writes};
use crate::view::{
    ControllerRevision, DaemonSet, Deployment, Node, PersistentVolumeClaim, Phase, Pod, ReplicaSet,
    StatefulSet,
};

/// Makes pods run, and takes away those that go.
struct Kubelet;

impl Controller for Kubelet {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>()]
    }

    fn wakes(&self, _: &World, change: &Change) -> Vec<Key> {
        vec![change.key.clone()]
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.shelf::<Pod>().get(key) else { return plan };
        let meta = &pod.metadata;
        if meta.is_going() {
            let fence = meta.fence();
            let (resource, key) = (Pod::RESOURCE, key.clone());
            plan.write(Write::Delete { resource, key, fence, grace: Some(0), propagation: None });
        } else if pod.status.phase == Phase::Pending {
            let since = Timestamp::from_second(now.as_second()).unwrap();
            let ready = json!([{
                "type": "Ready", "status": "True", "lastTransitionTime": since.to_string(),
            }]);
            let body = json!({"status": {"phase": "Running", "conditions": ready}});
            plan.write(writes::state::<Pod>(meta, body));
        }
        plan
    }
}

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

fn edit(resource: Resource, name: &'static str, path: &'static str, value: Value) -> Action {
    Box::new(move |server: &mut Server| {
        server.edit(&resource, &Key::new("n", name), |it| {
            *it.pointer_mut(path).unwrap() = value.clone();
        });
    })
}

const IMAGE: &str = "/spec/template/spec/containers/0/image";

/// How many pods of which image belong to whom, and what their owners say.
fn shape(server: &Server) -> Value {
    let mut pods: Vec<String> = server
        .list(&Pod::RESOURCE)
        .iter()
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

fn kill_one() -> Action {
    Box::new(|server: &mut Server| {
        let pods = server.list(&Pod::RESOURCE);
        let name = pods.first().and_then(|it| it["metadata"]["name"].as_str());
        if let Some(key) = name.map(|name| Key::new("n", name)) {
            server.delete(&Pod::RESOURCE, &key, Propagation::Background);
        }
    })
}

/// The sets of deployment `a` never have more pods than four and one.
fn check_surge() -> Action {
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

/// Proves that some runs with all kinds of faults, and some with a crash, end where the run without
/// faults does. `Scenario::prove` would crash at every move, which takes minutes here.
///
/// Some runs have two processes that both believe they lead, which they should not for long.
fn prove(mut scenario: Scenario<'_>, seeds: u64, crashes: u64, shape: fn(&Server) -> Value) {
    let expected = check(&scenario, seeds, crashes, shape);
    scenario.replicas = 2;
    let run = |seed: u64| scenario.run(seed, Faults::some()).unwrap_or_else(|it| panic!("{it}"));
    for seed in 0..seeds / 2 {
        let ending = run(seed);
        assert_eq!(shape(&ending.server), expected, "two processes, seed {seed}");
    }
}

fn check(scenario: &Scenario<'_>, seeds: u64, crashes: u64, shape: fn(&Server) -> Value) -> Value {
    let run = |seed: u64, faults: Faults| {
        let ending = scenario.run(seed, faults).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(ending.restless.is_empty(), "seed {seed}, {faults:?}: {:#?}", ending.restless);
        (shape(&ending.server), ending.moves)
    };
    let (expected, moves) = run(0, Faults::none());
    for seed in 0..seeds {
        assert_eq!(run(seed, Faults::some()).0, expected, "seed {seed}");
    }
    for crash in 0..crashes {
        let at = crash * moves / crashes;
        let faults = Faults { crash_at: Some(at), ..Faults::none() };
        assert_eq!(run(crash, faults).0, expected, "seed {crash}, crash at {at}");
    }
    expected
}

const DEPLOYMENTS: [&dyn Controller; 3] = [&Deployments, &ReplicaSets, &Kubelet];

#[test]
fn deployments_end_in_the_same_place() {
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
    };
    prove(scenario, 10, 10, shape);
}

/// A write that landed and was not heard of cannot be counted, so this holds while answers arrive.
#[test]
fn no_surge_beyond_the_limit_however_late_the_news() {
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
    };
    for seed in 0..10 {
        let faults = Faults { doubled: 50, relists: 20, ..Faults::none() };
        let ending = scenario.run(seed, faults).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(ending.restless.is_empty(), "seed {seed}: {:?}", ending.restless);
        let found = shape(&ending.server);
        assert_eq!(found["pods"], json!(vec!["a two \"Running\""; 4]), "seed {seed}");
    }
}

/// Pods of one deployment are refused, another cannot be read: the third is served.
#[test]
fn one_bad_object_leaves_the_others() {
    let refuse: Action = Box::new(|server: &mut Server| {
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
    };
    for seed in 0..5 {
        let ending = scenario.run(seed, Faults::some()).unwrap_or_else(|it| panic!("{it}"));
        let found = shape(&ending.server);
        let pods = found["pods"].as_array().unwrap();
        let served = pods.iter().filter(|it| **it == "c two \"Running\"").count();
        assert_eq!(served, 2, "seed {seed}: {found}");
        let said = &found["deployments"];
        assert_eq!(said[2][2], json!([2, 2, 2, 2]), "seed {seed}: {said}");
        // What is refused goes on being tried, and after the deadline it is told.
        let reasons = said[0][3].to_string();
        let all = said[0][2][0] == 2;
        assert!(all || reasons.contains("ProgressDeadlineExceeded"), "seed {seed}: {said}");
    }
}

fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "one"}]},
    })
}

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
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Retain"},
        },
    });
    (StatefulSet::RESOURCE, object)
}

/// Pods and claims by name, and what the sets say.
fn stateful_shape(server: &Server) -> Value {
    let pods = server.list(&Pod::RESOURCE);
    let pods = pods.iter().map(|it| {
        let image = &it["spec"]["containers"][0]["image"];
        json!([it["metadata"]["name"], image, it["spec"]["hostname"], it["status"]["phase"]])
    });
    // A claim whose pod was never made stays, and whether that happened is chance.
    let claimed = |pod: &Value| {
        let name = format!("data-{}", pod[0].as_str().unwrap());
        server.get(&PersistentVolumeClaim::RESOURCE, &Key::new("n", &name)).is_some()
    };
    let sets = server.list(&StatefulSet::RESOURCE);
    let sets = sets.iter().map(|it| {
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
fn stateful_sets_end_in_the_same_place() {
    let s = StatefulSet::RESOURCE;
    let scenario = Scenario {
        controllers: &[&StatefulSets, &Kubelet],
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
    };
    prove(scenario, 10, 10, stateful_shape);
}

/// In order, a pod comes after those before it; with all answers heard, none is ever missing below
/// one that is there.
#[test]
fn stateful_sets_keep_the_order() {
    let s = StatefulSet::RESOURCE;
    let check = || -> Action {
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
        controllers: &[&StatefulSets, &Kubelet],
        defaults: |_, _| {},
        objects: vec![stateful_set("a", 2, "OrderedReady")],
        script,
        replicas: 1,
        horizon: Duration::from_secs(3600),
    };
    for seed in 0..10 {
        let faults = Faults { doubled: 50, relists: 20, ..Faults::none() };
        let ending = scenario.run(seed, faults).unwrap_or_else(|failure| panic!("{failure}"));
        let names = stateful_shape(&ending.server)["pods"].as_array().unwrap().len();
        assert_eq!(names, 2, "seed {seed}");
    }
}

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

/// Which image runs for whom and on which node, and what the sets say.
fn daemon_shape(server: &Server) -> Value {
    let pods = server.list(&Pod::RESOURCE);
    let pods = pods.iter().map(|it| {
        let terms = &it["spec"]["affinity"]["nodeAffinity"]
            ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let node = &terms[0]["matchFields"][0]["values"][0];
        let image = &it["spec"]["containers"][0]["image"];
        format!("{} {image} {node}", it["metadata"]["labels"]["app"])
    });
    let mut pods: Vec<String> = pods.collect();
    pods.sort();
    let sets = server.list(&DaemonSet::RESOURCE);
    let sets = sets.iter().map(|it| {
        let mut status = it["status"].clone();
        status.as_object_mut().unwrap().remove("observedGeneration");
        json!([it["metadata"]["name"], status])
    });
    json!({"pods": pods, "sets": sets.collect::<Vec<Value>>()})
}

#[test]
fn daemon_sets_end_in_the_same_place() {
    let d = DaemonSet::RESOURCE;
    let add: Action = Box::new(|server: &mut Server| {
        let (resource, object) = node("n3");
        server.create(&resource, object);
    });
    let taint: Action = Box::new(|server: &mut Server| {
        server.edit(&Node::RESOURCE, &Key::cluster("n1"), |it| {
            it["spec"]["taints"] = json!([{"key": "k", "effect": "NoExecute"}]);
        });
    });
    let scenario = Scenario {
        controllers: &[&DaemonSets, &Kubelet],
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
    };
    let ending = scenario.run(3, Faults::some()).unwrap();
    let expected = [
        "\"a\" \"one\" \"n2\"",
        "\"a\" \"one\" \"n3\"",
        "\"b\" \"three\" \"n2\"",
        "\"b\" \"three\" \"n3\"",
    ];
    assert_eq!(daemon_shape(&ending.server)["pods"], json!(expected));
    let revisions = ending.server.list(&ControllerRevision::RESOURCE);
    assert!(revisions.len() <= 4, "one former template of each is kept, not {}", revisions.len());
    prove(scenario, 10, 10, daemon_shape);
}
