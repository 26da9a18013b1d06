//! The numbered scenarios of the control loop.

use gantry_harness::{Faults, FinalState, Scenario, Server, UserAction};
use gantry_reconcile::{Controller, Key, Outcome, Propagation, View, World, Write};
use serde_json::{Value, json};

use super::build::*;
use super::invariants::{self, ClaimInvariant};
use crate::Scheduler;

fn base() -> Objects {
    vec![
        node("n1"),
        node("n2"),
        driver(),
        class("gpu", &json!({})),
        pool("p1", "n1", 1),
        pool("p2", "n2", 1),
    ]
}

fn run(objects: Objects, script: Vec<UserAction>) -> FinalState {
    let team = Controllers::new();
    let all = team.all();
    scenario(&all, objects, script).run(0, Faults::none()).unwrap()
}

fn is_placed(server: &Server, pod: &str) -> bool {
    server.get(&PODS, &key(pod)).is_some_and(|it| it["spec"]["nodeName"].is_string())
}

/// Waits for the controllers to settle between two actions of users: the second happens only when
/// this is true.
fn held(ending: &FinalState, pod: &str, reason: &str) -> bool {
    ending.held.iter().any(|it| it.reason == reason && it.about.key == key(pod))
}

#[test]
fn scenario_95_a_crash_between_any_two_steps_recovers() {
    let team = Controllers::new();
    let all = team.all();
    let mut objects = base();
    objects.extend([
        template("t", &device_request("gpu", 1)),
        claim("shared", &device_request("gpu", 1)),
        pod_with_template("a", "t"),
        pod_with_claim("b", "shared"),
        pod_with_claim("c", "shared"),
    ]);
    let alone = scenario(&all, objects, vec![remove("a"), remove("b")]);
    for seed in 0..seeds(256) {
        assert_proven(alone.prove_crashes(seed, checked_summary));
    }
    // And beside another process that believes it is the leader, and goes on.
    let beside = Scenario { replicas: 2, ..alone };
    for seed in 0..seeds(512) {
        assert_proven(beside.prove_crashes(seed, checked_summary));
    }
}

#[test]
fn scenario_96_conflict_storms_end() {
    let team = Controllers::new();
    let all = team.all();
    let mut objects = base();
    for at in 0..4 {
        objects.push(claim(&format!("c{at}"), &device_request("gpu", 1)));
        objects.push(pod_with_claim(&format!("pod{at}"), &format!("c{at}")));
    }
    // For a while every other write to a pool conflicts.
    let storm: UserAction = Box::new(|server| {
        let count = std::cell::Cell::new(0_u32);
        server.intercept(move |write| {
            let late = *write.resource() == POOLS && count.get() < 40 && {
                count.set(count.get() + 1);
                !count.get().is_multiple_of(4)
            };
            late.then(|| Outcome::Conflict("the object has been modified".to_owned()))
        });
    });
    let script = vec![storm, remove("pod0"), remove("pod1")];
    assert_proven(scenario(&all, objects, script).prove_faults(0..6, checked_summary));
}

#[test]
fn scenario_97_pods_that_share_a_claim_share_its_node() {
    let team = Controllers::new();
    let all = team.all();
    let mut objects = base();
    objects.extend([
        claim("shared", &device_request("gpu", 1)),
        pod_with_claim("a", "shared"),
        pod_with_claim("b", "shared"),
    ]);
    assert_proven(scenario(&all, objects, vec![make(pod_with_claim("c", "shared"))]).prove(
        0..4,
        |server| {
            let nodes = server.list(&PODS).into_iter().map(|it| it["spec"]["nodeName"].clone());
            let nodes: std::collections::BTreeSet<String> =
                nodes.map(|it| it.to_string()).collect();
            assert_eq!(nodes.len(), 1, "{nodes:?}");
            checked_summary(server)
        },
    ));
}

/// Returns objects as a cache has them.
pub(super) fn world(objects: &[(gantry_reconcile::Resource, Value)]) -> World {
    let scheduler = Scheduler::default();
    let world = World::new(scheduler.kinds());
    for (at, (resource, object)) in objects.iter().enumerate() {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!((at + 1).to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{at}"));
        }
        world.single_store_for(resource).unwrap().observe(&object.to_string()).unwrap();
    }
    world
}

#[test]
fn scenario_97_the_pod_after_the_256th_is_refused() {
    let consumers: Vec<Value> =
        (0..256).map(|at| json!({"name": format!("u{at}"), "uid": format!("u{at}")})).collect();
    let mut full = claim("shared", &device_request("gpu", 1));
    full.1["status"] = json!({
        "allocations": [{"claimName": "main", "devicePoolName": "p1", "deviceName": "d0",
            "accessMode": "ReadWriteExclusive"}],
        "nodeName": "n1",
        "reservedFor": consumers,
    });
    let mut objects = base();
    objects.extend([full.clone(), pod_with_claim("a", "shared")]);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let plan =
        Scheduler::default().plan(&world(&objects), &Key::cluster(crate::SCHEDULER_NAME), now);
    let [held] = plan.held.as_slice() else { panic!("{plan:?}") };
    assert_eq!(held.reason, "ClaimFull");
    full.1["status"]["reservedFor"].as_array_mut().unwrap().pop();
    objects[6] = full;
    objects[0].1["status"] = json!({
        "allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"},
        "conditions": [{"type": "Ready", "status": "True"}],
    });
    let plan =
        Scheduler::default().plan(&world(&objects), &Key::cluster(crate::SCHEDULER_NAME), now);
    let [step] = plan.steps.as_slice() else { panic!("{plan:?}") };
    let Write::Merge { body, .. } = &step.write else { panic!("{step:?}") };
    assert_eq!(body["status"]["reservedFor"].as_array().unwrap().len(), 256);
}

#[test]
fn scenario_98_configs_are_awaited_and_copied_once() {
    let mut spec = device_request("gpu", 1);
    spec["claims"][0]["configs"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "conf"}]);
    let mut objects = base();
    objects.extend([claim("c", &spec), pod_with_claim("a", "c")]);
    let ending = run(objects.clone(), vec![]);
    assert!(held(&ending, "a", "ConfigNotFound"), "{:?}", ending.held);
    assert_eq!(summary(&ending.server)["entries"], json!({}), "nothing is set aside meanwhile");
    let ending = run(objects, vec![set_config("first"), make(node("n3"))]);
    let copies = &ending.server.get(&CLAIMS, &key("c")).unwrap()["status"]["claimConfigs"];
    assert_eq!(
        *copies,
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "first"},
            "metadata": {"name": "conf", "namespace": "default", "uid": "u"}}])
    );
    let team = Controllers::new();
    let all = team.all();
    let mut objects = base();
    objects.extend([claim("c", &spec), pod_with_claim("a", "c")]);
    // However late it is read, and however often the response is lost, it is copied; and the copy
    // stays.
    let script = vec![set_config("first")];
    assert_proven(scenario(&all, objects, script).prove(0..6, |server| {
        let claim = server.get(&CLAIMS, &key("c")).unwrap();
        json!([checked_summary(server), claim["status"]["claimConfigs"]])
    }));
}

fn quota(most: &str) -> Value {
    json!({
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"gpu.deviceclass.devmgmtproto.k8s.io/devices": most}},
    })
}

#[test]
fn scenario_99_quotas_count_devices_at_allocation() {
    let mut objects = base();
    objects.extend([
        (QUOTAS, quota("1")),
        claim("one", &device_request("gpu", 1)),
        claim("two", &device_request("gpu", 1)),
        pod_with_claim("a", "one"),
        pod_with_claim("b", "two"),
    ]);
    let ending = run(objects.clone(), vec![]);
    assert!(is_placed(&ending.server, "a") && !is_placed(&ending.server, "b"));
    assert!(held(&ending, "b", "QuotaExceeded"), "{:?}", ending.held);
    let set = |most: &'static str| -> UserAction {
        Box::new(move |server| {
            server.edit(&QUOTAS, &key("q"), |it| it["spec"] = quota(most)["spec"].clone());
        })
    };
    let ending = run(objects.clone(), vec![set("2")]);
    assert!(is_placed(&ending.server, "a") && is_placed(&ending.server, "b"), "raised");
    objects.remove(6);
    objects.insert(6, (QUOTAS, quota("2")));
    let ending = run(objects, vec![set("0")]);
    let claims = ending.server.list(&CLAIMS);
    let had = claims.iter().filter(|it| it["status"]["allocations"].is_array()).count();
    let placed = ["a", "b"].iter().filter(|it| is_placed(&ending.server, it)).count();
    assert_eq!(had, placed, "lowered: claims keep the devices they have");
}

#[test]
fn scenario_99_admin_access_needs_a_label() {
    let privileged = json!({
        "metadata": {"name": "all", "namespace": "default"}, "spec": {"driver": "gpu.example.com"},
    });
    let mut objects = base();
    objects.extend([
        claim("one", &device_request("gpu", 1)),
        pod_with_claim("a", "one"),
        (PRIVILEGED, privileged),
        pod_with_claim("watcher", "all"),
    ]);
    let ending = run(objects.clone(), vec![]);
    assert!(held(&ending, "watcher", "AdminAccessDenied"), "{:?}", ending.held);
    objects.push(namespace(&json!({"devmgmtproto.k8s.io/admin-access": "true"})));
    let ending = run(objects.clone(), vec![]);
    assert!(is_placed(&ending.server, "watcher") && is_placed(&ending.server, "a"));
    assert_eq!(
        summary(&ending.server)["entries"],
        json!({"one": 1}),
        "administrator access holds nothing"
    );
    let unlabel: UserAction = Box::new(|server| {
        server.edit(&NAMESPACES, &Key::cluster("default"), |it| {
            it["metadata"]["labels"] = json!({});
        });
    });
    let ending = run(objects, vec![unlabel, make(pod_with_claim("late", "one"))]);
    assert!(is_placed(&ending.server, "late"), "a claim that is allocated is not checked again");
}

#[test]
fn scenario_100_a_shrinking_pool_keeps_its_allocations() {
    let team = Controllers::new();
    let all = team.all();
    let mut objects = base();
    objects.truncate(4);
    objects.extend([
        pool("p1", "n1", 2),
        claim("both", &device_request("gpu", 2)),
        pod_with_claim("a", "both"),
        claim("one", &device_request("gpu", 1)),
    ]);
    let publish = |count: usize| -> UserAction {
        Box::new(move |server| {
            let spec = pool("p1", "n1", count).1["spec"].clone();
            server.edit(&POOLS, &Key::cluster("p1"), |it| it["spec"] = spec.clone());
        })
    };
    let settled = scenario(&all, objects.clone(), vec![]).run(0, Faults::none()).unwrap();
    assert!(is_placed(&settled.server, "a"));
    let ending = run(objects.clone(), vec![publish(1)]);
    let conditions = |ending: &FinalState| {
        ending.server.get(&CLAIMS, &key("both")).unwrap()["status"]["conditions"].clone()
    };
    if is_placed(&ending.server, "a") {
        let said = conditions(&ending);
        let lost = said.as_array().unwrap().iter().find(|it| it["type"] == "DeviceLost");
        assert_eq!(lost.unwrap()["status"], "True", "{said}");
    }
    assert_proven(
        scenario(&all, objects, vec![publish(1), publish(2)]).prove(0..3, checked_summary),
    );
}

#[test]
fn scenario_100_a_recreated_pool_gets_its_ledger_back() {
    let team = Controllers::new();
    let all = team.all();
    let mut objects = base();
    objects.truncate(4);
    objects.extend([
        pool("p1", "n1", 2),
        claim("one", &device_request("gpu", 1)),
        pod_with_claim("a", "one"),
    ]);
    let again: UserAction = Box::new(|server| {
        server.delete(&POOLS, &Key::cluster("p1"), Propagation::Background);
        server.create(&POOLS, pool("p1", "n1", 2).1);
    });
    assert_proven(scenario(&all, objects, vec![again]).prove(0..4, |server| {
        invariants::check_history(server, ClaimInvariant::InTheEnd);
        summary(server)
    }));
}

/// A process that is no longer the leader may still reserve devices for a claim that has others by
/// now.
#[test]
fn scenario_95_late_reservations_are_released() {
    let mut objects = base();
    objects.extend([claim("one", &device_request("gpu", 1)), pod_with_claim("a", "one")]);
    let mut server = run(objects, vec![]).server;
    let entries = |server: &Server, pool: &str| {
        let pool = server.get(&POOLS, &Key::cluster(pool)).unwrap();
        pool["status"]["allocations"].as_array().cloned().unwrap_or_default()
    };
    let (has, other) = if entries(&server, "p1").is_empty() { ("p2", "p1") } else { ("p1", "p2") };
    let mut stray = entries(&server, has)[0].clone();
    stray["since"] = json!("2027-01-15T08:30:00Z");
    server.edit(&POOLS, &Key::cluster(other), |it| it["status"]["allocations"] = json!([stray]));
    let plans: [(&dyn Controller, Key, &str); 2] = [
        (&crate::ReleaseController, key("one"), "2027-01-15T08:40:00Z"),
        (&crate::LedgerReconciler, Key::cluster(other), "2027-01-15T08:40:02Z"),
    ];
    for (controller, key, now) in plans {
        let world = World::new(controller.kinds());
        for resource in world.stores().map(|it| it.resource()).collect::<Vec<_>>() {
            for object in server.list(&resource) {
                for store in world.stores_for_resource(&resource) {
                    store.observe(&object.to_string()).unwrap();
                }
            }
        }
        let plan = controller.plan(&world, &key, now.parse().unwrap());
        assert_eq!(plan.steps.len(), 1, "{}: {plan:?}", controller.name());
        server.apply(&plan.steps[0].write);
    }
    assert_eq!(entries(&server, other), [] as [Value; 0]);
    assert_eq!(entries(&server, has).len(), 1);
    assert_eq!(server.get(&CLAIMS, &key("one")).unwrap()["status"]["podNames"], json!(["a"]));
}

#[test]
fn scenario_100_a_deleted_node_releases_nothing() {
    let team = Controllers::new();
    let all = team.all();
    let mut objects = base();
    objects.extend([claim("one", &device_request("gpu", 1)), pod_with_claim("a", "one")]);
    let leave: UserAction = Box::new(|server| {
        let resource = gantry_pods::view::Node::RESOURCE;
        server.delete(&resource, &Key::cluster("n1"), Propagation::Background);
    });
    let script = vec![leave, remove("a")];
    assert_proven(scenario(&all, objects, script).prove(0..4, checked_summary));
}

#[test]
fn scenario_101_a_claim_is_created_once() {
    let team = Controllers::new();
    let all = team.all();
    let mut objects = base();
    objects.extend([template("t", &device_request("gpu", 1)), pod_with_template("a", "t")]);
    assert_proven(scenario(&all, objects, vec![]).prove(0..4, |server| {
        assert_eq!(server.list(&CLAIMS).len(), 1);
        let made = server.history(&CLAIMS).map(|(text, _)| {
            let object: Value = serde_json::from_str(text).unwrap();
            object["metadata"]["uid"].to_string()
        });
        assert_eq!(made.collect::<std::collections::BTreeSet<_>>().len(), 1, "never two");
        checked_summary(server)
    }));
}
