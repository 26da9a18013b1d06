//! Rules beside the choice of devices: node overhead, quotas, old spellings, configs.

use std::time::Duration;

use gantry_harness::{Faults, FinalState, Server, TestCluster, UserAction};
use gantry_reconcile::{Controller, Key, Resource, Write};
use serde_json::{Value, json};

use super::build::*;
use super::scenarios::world;
use crate::Scheduler;

fn run_by(team: &Controllers, objects: Objects, script: Vec<UserAction>) -> FinalState {
    let all = team.all();
    scenario(&all, objects, script).run(0, Faults::none()).unwrap()
}

fn run(objects: Objects, script: Vec<UserAction>) -> FinalState {
    run_by(&Controllers::new(), objects, script)
}

fn base() -> Objects {
    vec![driver(), class("gpu", &json!({}))]
}

fn node_of(ending: &FinalState, pod: &str) -> Option<String> {
    let pod = ending.server.get(&PODS, &key(pod)).unwrap();
    pod["spec"]["nodeName"].as_str().map(str::to_owned)
}

fn held(ending: &FinalState, pod: &str) -> Vec<(String, String)> {
    let of_pod = ending.held.iter().filter(|it| it.about.key == key(pod));
    of_pod.map(|it| (it.reason.to_string(), it.message.clone())).collect()
}

/// Returns a pool whose devices use so much CPU of their node.
fn pool_with_overhead(name: &str, node: &str, devices: usize, cpu: &str) -> (Resource, Value) {
    let mut pool = pool(name, node, devices);
    pool.1["spec"]["attributes"] = json!([{"name": "overhead.cpu", "quantityValue": cpu}]);
    pool
}

#[test]
fn device_overhead_counts_on_the_node() {
    let two = || [claim("two", &device_request("gpu", 2)), pod_with_claim("a", "two")];
    let table = [
        ("all fits", "1100m", "500m", Some("n1"), ""),
        ("too small for both", "1", "500m", None, "0/1 nodes: 1 Insufficient cpu"),
        ("the pod alone is too large", "50m", "0", None, "0/1 nodes: 1 Insufficient cpu"),
    ];
    for (why, node_cpu, each, expected, said) in table {
        let mut objects = base();
        objects.extend([small_node("n1", node_cpu), pool_with_overhead("p1", "n1", 2, each)]);
        objects.extend(two());
        let ending = run(objects, vec![]);
        assert_eq!(node_of(&ending, "a").as_deref(), expected, "{why}");
        let held = held(&ending, "a");
        assert_eq!(held.first().map_or("", |it| it.1.as_str()), said, "{why}");
    }
    // One node is too small, another is not; the device's own attribute counts, not its pool's.
    let mut objects = base();
    let mut modest = pool_with_overhead("p2", "n2", 2, "4");
    for device in modest.1["spec"]["devices"].as_array_mut().unwrap() {
        device["attributes"] = json!([{"name": "overhead.cpu", "quantityValue": "400m"}]);
    }
    objects.extend([
        small_node("n1", "1"),
        pool_with_overhead("p1", "n1", 2, "500m"),
        small_node("n2", "1"),
        modest,
    ]);
    objects.extend(two());
    let ending = run(objects, vec![]);
    assert_eq!(node_of(&ending, "a").as_deref(), Some("n2"));
}

#[test]
fn overhead_of_held_devices_is_not_free() {
    let mut objects = base();
    objects.extend([
        small_node("n1", "1"),
        pool_with_overhead("p1", "n1", 1, "600m"),
        claim("one", &device_request("gpu", 1)),
        pod_with_claim("a", "one"),
    ]);
    // It claims no devices, and requests 500m.
    let mut plain = pod("plain", &json!([]));
    plain.1["metadata"]["annotations"] = json!({});
    plain.1["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("500m");
    plain.1["spec"]["priority"] = json!(-1);
    objects.push(plain);
    let ending = run(objects.clone(), vec![]);
    assert_eq!(node_of(&ending, "a").as_deref(), Some("n1"));
    assert_eq!(node_of(&ending, "plain"), None, "600m and 100m are taken");
    let ending = run(objects, vec![end("a")]);
    assert_eq!(node_of(&ending, "plain").as_deref(), Some("n1"), "given back with the device");
}

#[test]
fn an_unenforced_limit_is_reported_once() {
    let mut spec = device_request("gpu", 1);
    spec["claims"][0]["limits"]["memory"] = json!("8Gi");
    let mut objects = base();
    objects.extend([node("n1"), pool("p1", "n1", 1), claim("c", &spec), pod_with_claim("a", "c")]);
    let ending = run(objects, vec![]);
    let told: Vec<_> = ending.events.iter().filter(|it| it.reason == "LimitNotEnforced").collect();
    let [note] = told.as_slice() else { panic!("{:?}", ending.events) };
    assert_eq!(note.about.key, key("c"));
    assert_eq!(
        note.message,
        "entry main: the limit on \"memory\" is passed to the driver and not enforced"
    );
}

fn condition(server: &Server, resource: &Resource, key: &Key, kind: &str) -> Option<Value> {
    let object = server.get(resource, key).unwrap();
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|it| it["type"] == kind)
}

#[test]
fn old_spellings_set_a_condition() {
    let old_class = class("old", &json!({"deviceMaxCount": 2}));
    let mut old_claim = claim("c", &device_request("gpu", 1));
    old_claim.1["spec"]["claims"][0]["contstraints"] = json!("true");
    let mut old_pool = pool("p1", "n1", 1);
    old_pool.1["spec"]["Driver"] = old_pool.1["spec"]["driver"].take();
    let mut objects = base();
    objects.extend([node("n1"), old_class, old_pool, old_claim, pod_with_claim("a", "c")]);
    let rows = [
        (
            CLASSES,
            Key::cluster("old"),
            "spec.deviceMaxCount: deprecated name; use \"maxDeviceCount\"",
        ),
        (POOLS, Key::cluster("p1"), "spec.Driver: deprecated name; use \"driver\""),
        (
            CLAIMS,
            key("c"),
            "spec.claims[0].contstraints: read as \"constraints\": ignoring it would let devices in \
             that were meant to be kept out; use that name",
        ),
    ];
    let (team, horizon) = (Controllers::new(), Duration::from_secs(10));
    let all = team.all();
    let scenario = scenario(&all, objects, vec![]);
    let mut test_cluster = TestCluster::new(&scenario);
    test_cluster.advance(horizon).unwrap();
    let pod = test_cluster.server().get(&PODS, &key("a")).unwrap();
    assert_eq!(pod["spec"]["nodeName"], "n1", "they are understood");
    for (resource, key, expected) in &rows {
        let said = condition(test_cluster.server(), resource, key, "SpecNormalized").unwrap();
        assert_eq!(
            (&said["status"], &said["reason"], said["message"].as_str().unwrap()),
            (&json!("True"), &json!("OldSpelling"), *expected)
        );
    }
    let new = condition(test_cluster.server(), &CLASSES, &Key::cluster("gpu"), "SpecNormalized");
    assert_eq!(new, None, "of what was never old nothing is said");
    test_cluster
        .server()
        .edit(&CLASSES, &rows[0].1, |it| it["spec"] = json!({"deviceType": "gpu"}));
    test_cluster.advance(horizon).unwrap();
    let said = condition(test_cluster.server(), &CLASSES, &rows[0].1, "SpecNormalized").unwrap();
    assert_eq!(
        (&said["status"], &said["reason"], &said["message"]),
        (&json!("False"), &json!("AsItShouldBe"), &json!(""))
    );
}

fn quota(class: &str, most: &str) -> (Resource, Value) {
    let limit = format!("{class}.deviceclass.devmgmtproto.k8s.io/devices");
    let spec = json!({"hard": {limit: most}});
    (QUOTAS, json!({"metadata": {"name": "q", "namespace": "default"}, "spec": spec}))
}

#[test]
fn admin_access_needs_a_quota_where_required() {
    let objects = |more: &[(Resource, Value)]| {
        let mut objects = base();
        objects.extend([
            namespace(&json!({"devmgmtproto.k8s.io/admin-access": "true"})),
            class("all", &json!({"adminAccess": true})),
            node("n1"),
            pool("p1", "n1", 2),
            claim("look", &device_request("all", 1)),
            claim("hold", &device_request("gpu", 1)),
            pod_with_claim("a", "look"),
            pod_with_claim("b", "hold"),
        ]);
        objects.extend(more.iter().cloned());
        objects
    };
    let table: [(&str, Controllers, Vec<_>, bool); 4] = [
        ("not required", Controllers::new(), vec![], true),
        ("required and absent", Controllers::strict(), vec![], false),
        ("required and there", Controllers::strict(), vec![quota("all", "1")], true),
        ("of another class", Controllers::strict(), vec![quota("gpu", "1")], false),
    ];
    for (why, team, more, looks_on) in table {
        let ending = run_by(&team, objects(&more), vec![]);
        assert_eq!(node_of(&ending, "a").is_some(), looks_on, "{why}");
        assert!(node_of(&ending, "b").is_some(), "{why}: a claim that has devices needs no quota");
        let reasons: Vec<String> = held(&ending, "a").into_iter().map(|it| it.0).collect();
        let expected: &[&str] = if looks_on { &[] } else { &["QuotaExceeded"] };
        assert_eq!(reasons, expected, "{why}");
    }
}

/// Two processes that believed they were the leader allocated a device each, and the namespace may
/// have one.
#[test]
fn the_younger_claim_over_quota_is_deallocated() {
    let has = |name: &str, device: &str, since: &str| {
        let mut it = claim(name, &device_request("gpu", 1));
        it.1["metadata"]["uid"] = json!(format!("uid-of-{name}"));
        it.1["status"] = json!({
            "allocations": [{"claimName": "main", "devicePoolName": "p1", "deviceName": device,
                "accessMode": "ReadWriteExclusive"}],
            "nodeName": "n1",
            "reservedFor": [{"name": format!("user-of-{name}"), "uid": format!("uid-of-user-of-{name}")}],
            "conditions": [{"type": "Allocated", "status": "True", "reason": "Allocated",
                "message": "", "lastTransitionTime": since}],
        });
        it
    };
    let uses = |name: &str| {
        let mut it = pod_with_claim(&format!("user-of-{name}"), name);
        it.1["metadata"]["uid"] = json!(format!("uid-of-user-of-{name}"));
        it
    };
    let entry = |name: &str, device: &str, since: &str| {
        json!({
            "claimRef": {"namespace": "default", "name": name, "uid": format!("uid-of-{name}")},
            "term": "main", "deviceName": device, "accessMode": "ReadWriteExclusive",
            "state": "Reserved", "since": since,
        })
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    let mut pool = pool("p1", "n1", 2);
    pool.1["status"] = json!({"allocations": [entry("a", "d0", late), entry("b", "d1", early)]});
    let mut node = node("n1");
    defaults(&node.0.clone(), &mut node.1);
    let decide = |most: &str, bound: bool| {
        let mut objects = base();
        objects.extend([
            node.clone(),
            pool.clone(),
            quota("gpu", most),
            has("a", "d0", late),
            has("b", "d1", early),
            uses("a"),
            uses("b"),
        ]);
        if bound {
            let at = objects.len() - 2;
            objects[at].1["spec"]["nodeName"] = json!("n1");
        }
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let plan =
            Scheduler::default().plan(&world(&objects), &Key::cluster(crate::SCHEDULER_NAME), now);
        let (mut binds, mut clears) = (Vec::new(), Vec::new());
        for step in &plan.steps {
            match &step.write {
                Write::Bind { key, .. } => binds.push(key.name().to_owned()),
                Write::Merge { resource, key, body, .. } if *resource == CLAIMS => {
                    assert!(body["status"]["allocations"].is_null(), "{body}");
                    clears.push(key.name().to_owned());
                }
                Write::Merge { .. }
                | Write::Create { .. }
                | Write::Apply { .. }
                | Write::Delete { .. }
                | Write::Evict { .. } => {}
            }
        }
        (binds, clears)
    };
    let names = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    assert_eq!(decide("2", false), (names(&["user-of-a", "user-of-b"]), vec![]), "enough");
    assert_eq!(decide("1", false), (names(&["user-of-b"]), names(&["a"])), "the older stays");
    assert_eq!(decide("1", true), (vec![], names(&["b"])), "a claim in use keeps its devices");
}

#[test]
fn admin_claims_wait_for_configs_too() {
    let privileged = json!({
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {
            "driver": "gpu.example.com",
            "configs": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "conf"}],
        },
    });
    let mut objects = base();
    objects.extend([
        namespace(&json!({"devmgmtproto.k8s.io/admin-access": "true"})),
        node("n1"),
        pool("p1", "n1", 2),
        (PRIVILEGED, privileged),
        pod_with_claim("watcher", "all"),
    ]);
    let ending = run(objects.clone(), vec![]);
    assert_eq!(held(&ending, "watcher").first().unwrap().0, "ConfigNotFound");
    let ending = run(objects, vec![set_config("first"), make(node("n2"))]);
    assert!(node_of(&ending, "watcher").is_some(), "{:?}", ending.held);
    let copies = &ending.server.get(&PRIVILEGED, &key("all")).unwrap()["status"]["claimConfigs"];
    assert_eq!(copies[0]["data"], json!({"x": "first"}), "{copies}");
}
