//! What is decided, and how it is reported.

use gantry_harness::{Faults, FinalState};
use gantry_pods::view::Node;
use gantry_reconcile::{Controller as _, Key, Plan, Resource, Revision, View as _, World, Write};
use serde_json::{Value, json};

use super::build::*;
use crate::scheduler::{self, Scheduler};

fn run(objects: Objects) -> FinalState {
    let team = Controllers::new();
    let all = team.all();
    scenario(&all, objects, vec![]).run(0, Faults::none()).unwrap()
}

fn get<'a>(ending: &'a FinalState, resource: &Resource, name: &str) -> &'a Value {
    ending.server.get(resource, &key(name)).unwrap()
}

fn message(ending: &FinalState, pod: &str) -> String {
    let conditions = &get(ending, &PODS, pod)["status"]["conditions"];
    let said = conditions.as_array().unwrap().iter().find(|it| it["type"] == "PodScheduled");
    said.unwrap()["message"].as_str().unwrap_or_default().to_owned()
}

fn base() -> Objects {
    vec![node("n1"), driver(), class("gpu", &json!({})), pool("p1", "n1", 1)]
}

#[test]
fn a_pod_is_annotated_with_its_devices() {
    let mut objects = base();
    objects.extend([template("t", &device_request("gpu", 1)), pod_with_template("a", "t")]);
    let ending = run(objects);
    let pod = get(&ending, &PODS, "a");
    assert_eq!(pod["spec"]["nodeName"], "n1");
    let claims = ending.server.list(&CLAIMS);
    let [claim] = claims.as_slice() else { panic!("{claims:?}") };
    let name = claim["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("a-gpu-") && name.len() == "a-gpu-".len() + 5, "{name}");
    let annotation = |name: &str| -> Value {
        serde_json::from_str(pod["metadata"]["annotations"][name].as_str().unwrap()).unwrap()
    };
    assert_eq!(annotation("devmgmtproto.k8s.io/device-claim-statuses"), json!({"gpu": name}));
    assert_eq!(
        annotation("devmgmtproto.k8s.io/device-allocations"),
        json!({"main": [
            {"driver": "gpu.example.com", "pool": "p1", "claim": name, "device": "d0"}
        ]})
    );
    let status = &claim["status"];
    assert_eq!(status["nodeName"], "n1");
    assert_eq!(status["podNames"], json!(["a"]));
    let entry = &ending.server.list(&POOLS)[0]["status"]["allocations"][0];
    assert_eq!(
        (&entry["state"], &entry["deviceName"], &entry["accessMode"]),
        (&json!("Bound"), &json!("d0"), &json!("ReadWriteExclusive"))
    );
}

#[test]
fn a_pending_pod_has_a_reason() {
    let claims = |more: &[(Resource, Value)]| {
        let mut objects = base();
        objects.extend(more.iter().cloned());
        objects
    };
    let asks = |spec: &Value| claims(&[claim("c", spec), pod_with_claim("a", "c")]);
    let table = [
        (
            "too many",
            asks(&device_request("gpu", 2)),
            "0/1 nodes: 1 insufficient devices for claim gpu (1 too few)",
        ),
        (
            "a class that is not there",
            asks(&device_request("tpu", 1)),
            "claim gpu, entry main: device class \"tpu\" not found",
        ),
        ("a claim that is not there", claims(&[pod_with_claim("a", "c")]), "claim \"c\" not found"),
        (
            "a template that is not there",
            claims(&[pod_with_template("a", "t")]),
            "claim template \"t\" not found",
        ),
        (
            "a constraint that nothing meets",
            asks(&json!({"claims": [{"deviceClass": "gpu", "constraints": "false"}]})),
            "0/1 nodes: 1 insufficient devices for claim gpu (1 constraints not met)",
        ),
        (
            "too small a node",
            {
                let mut objects = asks(&device_request("gpu", 1));
                objects[0] = small_node("n1", "50m");
                objects
            },
            "0/1 nodes: 1 Insufficient cpu",
        ),
    ];
    for (why, objects, expected) in table {
        let ending = run(objects);
        assert_eq!(message(&ending, "a"), expected, "{why}");
        assert!(get(&ending, &PODS, "a")["spec"]["nodeName"].is_null(), "{why}");
    }
}

#[test]
fn a_device_in_use_is_reported() {
    let mut objects = base();
    objects.extend([
        claim("one", &device_request("gpu", 1)),
        claim("two", &device_request("gpu", 1)),
        pod_with_claim("a", "one"),
        pod_with_claim("b", "two"),
    ]);
    let ending = run(objects);
    let expected = "0/1 nodes: 1 insufficient devices for claim gpu (1 in use)";
    assert_eq!(message(&ending, "b"), expected);
    let conditions = get(&ending, &CLAIMS, "two")["status"]["conditions"].clone();
    assert_eq!(conditions[0]["type"], "Schedulable");
    assert_eq!(
        (&conditions[0]["status"], &conditions[0]["message"]),
        (&json!("False"), &json!(expected))
    );
    assert!(ending.events.iter().any(|it| it.reason == "FailedScheduling"), "{:?}", ending.events);
}

#[test]
fn unreadable_device_claims_are_never_ignored() {
    let mut broken = pod_with_claim("a", "c");
    broken.1["metadata"]["annotations"]["devmgmtproto.k8s.io/device-claims"] = json!("[{");
    let mut twice = pod_with_claim("b", "c");
    twice.1["metadata"]["annotations"]["devmgmtproto.k8s.io/pod-devices"] = json!("x");
    let mut objects = base();
    objects.extend([claim("c", &device_request("gpu", 1)), broken, twice]);
    let ending = run(objects);
    for name in ["a", "b"] {
        assert!(get(&ending, &PODS, name)["spec"]["nodeName"].is_null(), "{name}");
        let said = |it: &gantry_reconcile::Held| {
            it.reason == "InvalidDeviceClaims" && it.about.key == key(name)
        };
        assert!(ending.held.iter().any(said), "{name}: {:?}", ending.held);
    }
}

#[test]
fn a_pod_devices_object_has_claims_too() {
    let mut carried = pod_with_claim("a", "c");
    carried.1["metadata"]["annotations"] = json!({"devmgmtproto.k8s.io/pod-devices": "beside"});
    let beside = json!({
        "metadata": {"name": "beside", "namespace": "default"},
        "spec": {
            "deviceClaims": [{"name": "x", "claimName": "c"}],
            "containers": {"main": [{"name": "x"}]},
        },
    });
    let mut objects = base();
    objects.extend([claim("c", &device_request("gpu", 1)), carried, (POD_DEVICES, beside)]);
    let ending = run(objects);
    assert_eq!(get(&ending, &PODS, "a")["spec"]["nodeName"], "n1");
    assert_eq!(get(&ending, &CLAIMS, "c")["status"]["podNames"], json!(["a"]));
}

#[test]
fn classes_drivers_and_pools_have_conditions() {
    let mut objects = base();
    objects.extend([
        class("tpu", &json!({"deviceType": "tpu"})),
        class("broken", &json!({"constraints": "device.x = 1"})),
        (DRIVERS, json!({"metadata": {"name": "idle.example.com"}, "deviceTypes": ["x", "y"]})),
        (
            POOLS,
            json!({
                "metadata": {"name": "odd"},
                "spec": {"nodeName": "n1", "driver": "gpu.example.com",
                    "devices": [{"name": "d", "requests": {"mem": "1"}}]},
            }),
        ),
    ]);
    let ending = run(objects);
    let said = |resource: &Resource, name: &str, kind: &str| -> String {
        let key = Key::cluster(name);
        let object = ending.server.get(resource, &key).unwrap();
        let list = object["status"]["conditions"].as_array().unwrap();
        list.iter().find(|it| it["type"] == kind).unwrap()["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(said(&CLASSES, "gpu", "Ready"), "True");
    assert_eq!(said(&CLASSES, "tpu", "Ready"), "False");
    assert_eq!(said(&CLASSES, "gpu", "ConstraintsValid"), "True");
    assert_eq!(said(&CLASSES, "broken", "ConstraintsValid"), "False");
    assert_eq!(said(&DRIVERS, "gpu.example.com", "Ready"), "True");
    assert_eq!(said(&DRIVERS, "idle.example.com", "Ready"), "False");
    assert_eq!(said(&POOLS, "p1", "Valid"), "True");
    assert_eq!(said(&POOLS, "odd", "Valid"), "False");
    let key = Key::cluster("gpu");
    let class = ending.server.get(&CLASSES, &key).unwrap();
    assert_eq!(class["status"]["drivers"], json!(["gpu.example.com"]));
}

#[test]
fn objects_are_read_as_the_server_stores_them() {
    let mut object = claim("c", &json!({"deviceClass": "gpu"})).1;
    object["metadata"]["managedFields"] = json!([
        {"manager": "kubectl", "operation": "Apply", "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:deviceClass": {}}}},
    ]);
    let seen: crate::DeviceObject<gantry_api::devices::DeviceClaim> =
        serde_json::from_value(object.clone()).unwrap();
    assert_eq!(seen.object.unwrap().spec.claims[0].name, "main", "old forms are read");
    object["spec"] = json!({"claims": []});
    object["status"] = json!({"nodeName": "n1"});
    let seen: crate::DeviceObject<gantry_api::devices::DeviceClaim> =
        serde_json::from_value(object).unwrap();
    assert!(seen.object.is_err(), "what is wrong is said");
    assert_eq!(seen.status.node_name.as_deref(), Some("n1"), "and its status counts");
}

/// Returns exactly what the scheduler plans for these objects.
fn planned(objects: &Objects) -> Plan {
    let scheduler = Scheduler::default();
    let world = World::new(scheduler.kinds());
    for store in world.stores() {
        let of_kind = objects.iter().filter(|(resource, _)| *resource == store.resource());
        let texts: Vec<String> = of_kind.map(|(_, object)| object.to_string()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        assert!(store.replace(&texts, Revision(9)).1.is_empty(), "{texts:?}");
    }
    scheduler.plan(
        &world,
        &Key::cluster(scheduler::SCHEDULER_NAME),
        "2026-01-01T00:01:00Z".parse().unwrap(),
    )
}

/// Returns the objects of a run that was stopped when everything had settled.
fn all_of(ending: &FinalState) -> Objects {
    let kinds = [PODS, Node::RESOURCE, CLAIMS, POOLS, CLASSES, DRIVERS, TEMPLATES];
    let list = |kind: &Resource| {
        let all = ending.server.list(kind).into_iter();
        all.map(|it| (kind.clone(), it.clone())).collect::<Objects>()
    };
    kinds.iter().flat_map(list).collect()
}

/// The entry, the claim and the node are written one after the other, without a plan in between.
#[test]
fn one_plan_allocates_and_binds_a_pod() {
    let mut objects = base();
    objects.extend([template("t", &device_request("gpu", 1)), pod_with_template("a", "t")]);
    let mut observed = all_of(&run(objects));
    // Back to where the claim was just created.
    for (resource, object) in &mut observed {
        if [PODS, CLAIMS, POOLS].contains(resource) {
            object.as_object_mut().unwrap().remove("status");
        }
        if *resource == PODS {
            object["spec"].as_object_mut().unwrap().remove("nodeName");
            let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
            annotations
                .retain(|name, _| !name.contains("-statuses") && !name.contains("-allocations"));
        }
    }
    let plan = planned(&observed);
    let [entry] = plan.steps.as_slice() else { panic!("{plan:#?}") };
    let [commit] = entry.then.as_slice() else { panic!("{entry:#?}") };
    let [bind] = commit.then.as_slice() else { panic!("{commit:#?}") };
    let kinds = [entry, commit, bind].map(|it| it.write.resource().kind.to_string());
    assert_eq!(kinds, ["DevicePool", "DeviceClaim", "Pod"]);
    let Write::Bind { node, annotations, .. } = &bind.write else { panic!("{bind:#?}") };
    assert_eq!(node, "n1");
    assert!(
        annotations["devmgmtproto.k8s.io/device-allocations"].contains("d0"),
        "{annotations:?}"
    );
    assert!(
        bind.then.is_empty() && bind.success_events.len() == 1,
        "it is reported in the same write: {bind:#?}"
    );
}

/// A void entry makes no pod wait, and is removed in the write that replaces it.
#[test]
fn a_released_device_is_free_at_once() {
    let mut objects = base();
    objects.extend([claim("c", &device_request("gpu", 1)), pod_with_claim("a", "c")]);
    let mut observed = all_of(&run(objects));
    let uid = observed.iter().find(|(it, _)| *it == CLAIMS).unwrap().1["metadata"]["uid"].clone();
    observed.retain(|(it, _)| *it != PODS);
    for (_, object) in observed.iter_mut().filter(|(it, _)| *it == CLAIMS) {
        let status = &mut object["status"];
        for field in ["allocations", "reservedFor", "podNames", "nodeName"] {
            status.as_object_mut().unwrap().remove(field);
        }
        let conditions = status["conditions"].as_array_mut().unwrap();
        for it in conditions.iter_mut().filter(|it| it["type"] == "Allocated") {
            it["status"] = json!("False");
        }
    }
    let (_, mut other) = claim("d", &device_request("gpu", 1));
    other["metadata"]["uid"] = json!("uid-d");
    other["metadata"]["resourceVersion"] = json!("7");
    other["metadata"]["finalizers"] = json!(["devmgmtproto.k8s.io/delete-protection"]);
    let (_, mut pod) = pod_with_claim("b", "d");
    pod["metadata"]["uid"] = json!("uid-b");
    pod["metadata"]["resourceVersion"] = json!("8");
    observed.extend([(CLAIMS, other), (PODS, pod)]);
    let plan = planned(&observed);
    let [entry] = plan.steps.as_slice() else { panic!("{plan:#?}") };
    let Write::Merge { body, .. } = &entry.write else { panic!("{entry:#?}") };
    let entries = body["status"]["allocations"].as_array().unwrap();
    let [only] = entries.as_slice() else { panic!("{entries:#?}") };
    assert_eq!((&only["claimRef"]["uid"], &only["deviceName"]), (&json!("uid-d"), &json!("d0")));
    assert_ne!(uid, json!("uid-d"));
}
