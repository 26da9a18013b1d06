use crate::gang::Gang;
use gantry_reconcile::{Controller as _, Resource, Write};

use super::*;
use crate::admission_cycle::Dispatch;
use crate::app_wrapper::AppWrapper;
use crate::packing::{AssumedGone, Fit, NodePacking};
use crate::queue_cache::QueueCache;
use crate::settings::{LiveSettings, Settings};

const API: &str = "devmgmtproto.k8s.io/v1alpha1";
const CLAIMS: &str = "devmgmtproto.k8s.io/device-claims";

fn show(world: &World, resource: &Resource, object: &Value) {
    world.single_store_for(resource).unwrap().observe(&object.to_string()).unwrap();
}

/// Returns two nodes with four processors each; one has two GPUs, the other one.
fn world() -> World {
    let own = [Kind::of::<AppWrapper>(), Kind::of::<Pod>(), Kind::of::<Node>()];
    let world = World::new(own.into_iter().chain(kinds()));
    for (name, gpus) in [("a", 2), ("b", 1)] {
        let meta = json!({"name": name, "uid": name, "resourceVersion": "1"});
        let status = json!({"allocatable": {"cpu": 4},
            "conditions": [{"type": "Ready", "status": "True"}]});
        show(&world, &Node::RESOURCE, &json!({"metadata": meta, "status": status}));
        let devices: Vec<Value> = (0..gpus).map(|at| json!({"name": format!("gpu{at}")})).collect();
        let meta = json!({"name": format!("pool-{name}"), "uid": name, "resourceVersion": "1"});
        let spec = json!({"driver": "gpu.example.com", "deviceType": "gpu", "nodeName": name,
            "devices": devices});
        show(
            &world,
            &DeviceObject::<DevicePool>::RESOURCE,
            &json!({"metadata": meta, "spec": spec}),
        );
    }
    let meta = json!({"name": "gpu.example.com", "uid": "driver", "resourceVersion": "1"});
    let driver = json!({"metadata": meta, "deviceTypes": ["gpu"]});
    show(&world, &DeviceObject::<DeviceDriver>::RESOURCE, &driver);
    let meta = json!({"name": "gpu", "uid": "gpu", "resourceVersion": "1"});
    let spec = json!({"deviceType": "gpu"});
    show(&world, &DeviceObject::<DeviceClass>::RESOURCE, &json!({"metadata": meta, "spec": spec}));
    world
}

/// Returns an AppWrapper whose job has this many pods with these claims, and further objects that
/// it wraps.
fn wrapper(pods: i64, cpu: i64, claims: &Value, more: &[Value]) -> AppWrapper {
    serde_json::from_value(wrapped(pods, cpu, claims, more)).unwrap()
}

fn wrapped(pods: i64, cpu: i64, claims: &Value, more: &[Value]) -> Value {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {
        "parallelism": pods, "completions": pods, "template": {
            "metadata": {"annotations": {CLAIMS: claims.to_string()}},
            "spec": {"containers": [container]}}}});
    let items = more.iter().chain([&job]).map(|it| json!({"generictemplate": it}));
    json!({
        "metadata": {"name": "w", "namespace": "n"},
        "spec": {"resources": {"GenericItems": items.collect::<Vec<_>>()}},
    })
}

fn ask(world: &World, wrapper: &AppWrapper) -> Fit {
    ask_without(world, wrapper, &[])
}

fn ask_without(world: &World, wrapper: &AppWrapper, gone: &[&str]) -> Fit {
    let cache = QueueCache::of(world, &Settings { devices: true, ..Settings::default() });
    let constraints = Arc::new(Constraints::default());
    let wrappers = gone.iter().map(|name| Key::new("n", name)).collect();
    let gone = AssumedGone { wrappers, below: None };
    let mut floor = NodePacking::new(world, &cache, Some(&constraints));
    floor.fit(&Gang::of(wrapper), &Default::default(), &gone)
}

fn spec(count: i64) -> Value {
    let count = count.to_string();
    json!({"claims": [{"name": "t", "deviceClass": "gpu",
        "requests": {"count": count}, "limits": {"count": count}}]})
}

fn claim(name: &str, version: u64, status: &Value) -> Value {
    let meta = json!({"name": name, "namespace": "n", "uid": name,
        "resourceVersion": version.to_string()});
    json!({"metadata": meta, "spec": spec(1), "status": status})
}

#[test]
fn pods_fit_if_there_are_devices_for_all_of_them() {
    let inline = |count: i64| json!([{"name": "gpu", "template": spec(count)}]);
    let named = json!([{"name": "gpu", "claimTemplateName": "t"}]);
    let kind = |kind: &str, spec: Value| json!({"apiVersion": API, "kind": kind, "metadata": {"name": "t"}, "spec": spec});
    let template = kind("DeviceClaimTemplate", json!({"claimSpec": spec(1)}));
    let table = [
        ("three pods, three devices", wrapper(3, 1, &inline(1), &[]), true),
        ("one too many", wrapper(4, 1, &inline(1), &[]), false),
        ("two on one node", wrapper(1, 1, &inline(2), &[]), true),
        ("no node has two left twice", wrapper(2, 1, &inline(2), &[]), false),
        ("room for one beside each device", wrapper(2, 3, &inline(1), &[]), true),
        ("not where the devices are", wrapper(3, 3, &inline(1), &[]), false),
        ("what it brings along", wrapper(3, 1, &named, std::slice::from_ref(&template)), true),
        ("counts like the rest", wrapper(4, 1, &named, &[template]), false),
        ("or a claim instead", wrapper(3, 1, &named, &[kind("DeviceClaim", spec(1))]), true),
    ];
    let world = world();
    for (why, wrapper, expected) in table {
        let found = ask(&world, &wrapper);
        assert_eq!(found == Fit::Yes, expected, "{why}: {found:?}");
        assert_ne!(found, Fit::Unknown, "{why}");
    }
}

#[test]
fn missing_devices_are_reported() {
    let world = world();
    let table = [
        (
            wrapper(4, 1, &json!([{"name": "gpu", "template": spec(1)}]), &[]),
            "no devices for all pods at once: 4 pods of 1, 3 of 4 find theirs",
        ),
        (
            wrapper(1, 1, &json!([{"name": "gpu", "claimTemplateName": "t"}]), &[]),
            "claim template \"t\" not found",
        ),
        (wrapper(1, 1, &json!([{"name": "gpu", "claimName": "c"}]), &[]), "claim \"c\" not found"),
    ];
    for (wrapper, expected) in table {
        assert_eq!(ask(&world, &wrapper), Fit::No(expected.to_owned()));
    }
}

#[test]
fn a_claim_that_is_there_is_shared_and_pins() {
    let world = world();
    let named = json!([{"name": "gpu", "claimName": "c"}]);
    let resource = DeviceObject::<DeviceClaim>::RESOURCE;
    show(&world, &resource, &claim("c", 1, &json!({})));
    assert_eq!(ask(&world, &wrapper(4, 1, &named, &[])), Fit::Yes, "all on one node");
    assert_ne!(ask(&world, &wrapper(5, 1, &named, &[])), Fit::Yes, "they do not fit there");
    let has = json!({"nodeName": "b", "allocations": [{"claimName": "t", "devicePoolName": "pool-b",
        "deviceName": "gpu0", "accessMode": "ReadWriteExclusive"}]});
    show(&world, &resource, &claim("c", 2, &has));
    assert_eq!(ask(&world, &wrapper(4, 1, &named, &[])), Fit::Yes);
    let both = json!([{"name": "a", "claimName": "c"}, {"name": "b", "template": spec(1)}]);
    assert_ne!(
        ask(&world, &wrapper(1, 1, &both, &[])),
        Fit::Yes,
        "the only device there is its own"
    );
}

/// A pod of the AppWrapper `other` holds the device of node `b`.
fn hold(world: &World) {
    let since = "2026-01-01T00:00:00Z";
    let meta = json!({"name": "pool-b", "uid": "b", "resourceVersion": "2"});
    let ledger = json!([{"claimRef": {"namespace": "n", "name": "c", "uid": "c"}, "term": "t",
        "deviceName": "gpu0", "accessMode": "ReadWriteExclusive", "state": "Bound", "since": since}]);
    let spec = json!({"driver": "gpu.example.com", "deviceType": "gpu", "nodeName": "b",
        "devices": [{"name": "gpu0"}]});
    let pool = json!({"metadata": meta, "spec": spec, "status": {"allocations": ledger}});
    show(world, &DeviceObject::<DevicePool>::RESOURCE, &pool);
    let has = json!({"nodeName": "b", "reservedFor": [{"name": "p", "uid": "p"}], "allocations": [
        {"claimName": "t", "devicePoolName": "pool-b", "deviceName": "gpu0",
         "accessMode": "ReadWriteExclusive"}]});
    show(world, &DeviceObject::<DeviceClaim>::RESOURCE, &claim("c", 1, &has));
    let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "p", "resourceVersion": "1",
        "labels": {crate::item_objects::APP_WRAPPER_LABEL: "other"}}, "spec": {"nodeName": "b"},
        "status": {"phase": "Running"}});
    show(world, &Pod::RESOURCE, &pod);
}

#[test]
fn what_is_held_is_free_when_its_holder_is_gone() {
    let world = world();
    let three = wrapper(3, 1, &json!([{"name": "gpu", "template": spec(1)}]), &[]);
    hold(&world);
    assert_ne!(ask(&world, &three), Fit::Yes, "one of three is held");
    assert_eq!(ask_without(&world, &three, &["other"]), Fit::Yes);
}

#[test]
fn lower_priorities_are_preempted_for_devices() {
    let world = world();
    hold(&world);
    let claims = json!([{"name": "gpu", "template": spec(1)}]);
    let comes = |name: &str, priority: i32, pods: i64, status: Value| {
        let mut object = wrapped(pods, 1, &claims, &[]);
        object["metadata"] = json!({"name": name, "namespace": "n", "uid": name, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z"});
        object["spec"]["priority"] = json!(priority);
        object["status"] = status;
        show(&world, &AppWrapper::RESOURCE, &object);
    };
    comes("other", 0, 1, json!({"state": "Running", "canrun": true}));
    comes("high", 5, 3, json!({"state": "Pending"}));
    comes("too-large", 5, 4, json!({"state": "Pending"}));
    let settings =
        Settings { devices: true, preemption: true, active_eviction: true, ..Settings::default() };
    let dispatch = Dispatch::new(LiveSettings::new(settings));
    let now = "2026-01-01T00:01:00Z".parse().unwrap();
    let plan = dispatch.plan(&world, &Dispatch::queue_key(), now);
    let written: Vec<(&str, &Value)> = plan
        .steps
        .iter()
        .filter_map(|step| match &step.write {
            Write::Merge { key, body, .. } => Some((key.name(), &body["status"]["queuejobstate"])),
            _ => None,
        })
        .collect();
    assert!(written.contains(&("other", &json!("Preempted"))), "{written:?}");
}
