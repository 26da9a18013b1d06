#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use gantry_pods::view::Node;
use gantry_reconcile::{Kind, Resource, View};
use serde_json::{Value, json};

use super::*;
use crate::app_wrapper::TypeName;
use crate::kind_discovery::{self, ServedKind};
use crate::quota::Subtree;
use crate::wrapped::WrappedObject;

const DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments", "Deployment");

/// Returns a world with a node of 4 cpus.
fn world() -> World {
    let kinds =
        [Kind::of::<AppWrapper>(), Kind::of::<Pod>(), Kind::of::<Node>(), Kind::of::<Subtree>()];
    let world =
        World::new(kinds.into_iter().chain([Kind::with_resource::<WrappedObject>(DEPLOYMENTS)]));
    kind_discovery::record_served(&world, [DEPLOYMENTS], Timestamp::MIN);
    put::<Node>(
        &world,
        json!({"metadata": {"name": "a"}, "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi"},
            "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    world
}

fn put<V: View>(world: &World, object: Value) {
    world.store::<V>().set(serde_json::from_value(object).unwrap());
}

fn wrapper(name: &str, priority: i32, items: Value, status: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": name,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"priority": priority, "resources": {"GenericItems": items}},
        "status": status,
    })
}

fn declared(cpu: &str) -> Value {
    json!([{"custompodresources": [{"replicas": 1, "requests": {"cpu": cpu}}]}])
}

fn deployment(name: &str, cpu: &str) -> Value {
    json!({"completionstatus": "Available", "generictemplate": {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}}}})
}

fn pending() -> Value {
    json!({"state": "Pending", "queuejobstate": "Queueing",
        "controllerfirsttimestamp": "2026-01-01T00:00:01.000000Z",
        "conditions": [
            {"type": "Queueing", "status": "True", "reason": "AwaitingHeadOfLine",
             "lastTransitionMicroTime": "2026-01-01T00:00:02.000000Z"},
            {"type": "Init", "status": "True",
             "lastTransitionMicroTime": "2026-01-01T00:00:01.000000Z"}]})
}

fn running() -> Value {
    let since = "2026-01-01T00:05:00.000000Z";
    json!({"state": "Running", "queuejobstate": "Running", "canrun": true, "running": 1,
        "controllerfirstdispatchtimestamp": since,
        "conditions": [{"type": "Dispatched", "status": "True", "lastTransitionMicroTime": since}]})
}

fn pod(name: &str, wrapper: &str, cpu: &str, node: &str, status: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "n", "uid": name,
            "labels": {"appwrapper.mcad.ibm.com": wrapper}},
        "spec": {"nodeName": node, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": status})
}

fn report_of(world: &World, settings: &Settings, name: &str) -> AppWrapperReport {
    let now = "2026-01-01T00:10:00Z".parse().unwrap();
    report(world, settings, Visibility::Full, &Key::new("n", name), now).unwrap()
}

#[test]
fn a_pending_app_wrapper_reports_capacity_and_its_users() {
    let world = world();
    put::<AppWrapper>(&world, wrapper("runs", 3, declared("1500m"), running()));
    put::<Pod>(&world, pod("p", "runs", "1", "a", json!({"phase": "Running"})));
    put::<AppWrapper>(&world, wrapper("waits", 1, json!([deployment("d", "1500m")]), pending()));
    let explained = report_of(&world, &Settings::default(), "waits");
    assert_eq!((explained.row.position, explained.waiting), (Some(1), 1));
    let kinds: Vec<&str> = explained.history.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(kinds, ["Init", "Queueing"], "by when they happened");
    let room = explained.room.unwrap();
    assert_eq!(room.total["cpu"], "4");
    assert_eq!(room.free["cpu"], "3");
    assert_eq!(room.reserved["cpu"], "500m");
    assert_eq!(room.reserved_by.len(), 1);
    assert_eq!(
        (room.reserved_by[0].who.as_str(), room.available["cpu"].as_str()),
        ("n/runs", "2500m")
    );
    assert_eq!(room.lacking, ["cpu: needs 3, 2500m available, 500m missing"]);
    assert!(!room.exceeds_cluster);
    assert_eq!(explained.items[0].source, DemandSource::Template);
    assert_eq!(explained.items[0].standing, ItemStatus::Absent);
    assert_eq!(explained.items[0].complete, Some(false));
    assert_eq!(explained.advice, ["wait for others to end, or delete some"]);
}

#[test]
fn scaling_results_are_reported_and_a_label_overrides_them() {
    let found = "needs 2 more nodes of gpu; small: no more of them may be added";
    let table = [
        ("nothing is known", json!({}), None),
        (
            "what was found",
            json!({"annotations": {crate::app_wrapper::SHAPES_ANNOTATION: found}}),
            Some(
                "about more nodes: needs 2 more nodes of gpu; small: no more of them may be added",
            ),
        ),
        (
            "what was said",
            json!({"annotations": {crate::app_wrapper::SHAPES_ANNOTATION: found}, "labels": {"orderedinstance": "a_b"}}),
            Some(
                "with scaling switched on, nodes of a, b are bought for it: gantry status says how far \
                 they are",
            ),
        ),
    ];
    for (why, more, expected) in table {
        let world = world();
        let mut waits = wrapper("waits", 1, json!([deployment("d", "9")]), pending());
        for (field, value) in more.as_object().unwrap() {
            waits["metadata"][field] = value.clone();
        }
        put::<AppWrapper>(&world, waits);
        let explained = report_of(&world, &Settings::default(), "waits").advice;
        assert_eq!(explained.get(1).map(String::as_str), expected, "{why}: {explained:?}");
    }
}

#[test]
fn preemption_victims_are_reported() {
    let world = world();
    put::<AppWrapper>(&world, wrapper("low", 1, declared("3"), running()));
    put::<Pod>(&world, pod("p", "low", "3", "a", json!({"phase": "Running"})));
    put::<AppWrapper>(&world, wrapper("high", 9, declared("3"), pending()));
    let settings = Settings { preemption: true, ..Settings::default() };
    let explained = report_of(&world, &settings, "high");
    let room = explained.room.unwrap();
    assert_eq!((room.free["cpu"].as_str(), room.available["cpu"].as_str()), ("1", "4"));
    assert_eq!(room.reclaimable_from[0].who, "n/low");
    assert!(room.reserved_by.is_empty(), "a preempted one reserves nothing");
    assert_eq!(explained.row.waits_for.unwrap().reason, queue_report::WaitReason::NextCycle);
}

#[test]
fn items_report_their_objects() {
    let world = world();
    let mut nameless = deployment("x", "1");
    nameless["generictemplate"]["metadata"] = json!({});
    let unknown =
        json!({"generictemplate": {"apiVersion": "v9", "kind": "Odd", "metadata": {"name": "o"}}});
    let items = json!([deployment("made", "1"), deployment("theirs", "1"), nameless, unknown, {}]);
    let odd = TypeName { api_version: "v9".into(), kind: "Odd".into() };
    world.facts::<ServedKind>().record(odd, ServedKind::NotServed, Timestamp::MAX);
    put::<AppWrapper>(&world, wrapper("w", 0, items, running()));
    let object = |name: &str, owner: &str| {
        let object = json!({"metadata": {"name": name, "namespace": "n", "uid": name,
            "ownerReferences": [{"apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
                "name": owner, "uid": owner, "controller": true}]},
            "status": {"conditions": [{"type": "Available", "status": "True"}]}});
        let store = world.store_for::<WrappedObject>(&DEPLOYMENTS).unwrap();
        store.set(serde_json::from_value(object).unwrap());
    };
    object("made", "w");
    object("theirs", "other");
    let explained = report_of(&world, &Settings::default(), "w");
    let found: Vec<ItemStatus> = explained.items.iter().map(|it| it.standing).collect();
    assert_eq!(
        found,
        [
            ItemStatus::Made,
            ItemStatus::Foreign,
            ItemStatus::Impossible,
            ItemStatus::Impossible,
            ItemStatus::Impossible
        ]
    );
    assert_eq!(explained.items[0].complete, Some(true));
    assert_eq!(explained.items[0].conditions, ["Available=True"]);
    assert_eq!(explained.items[4].source, DemandSource::Nothing);
    assert!(explained.advice[0].starts_with("rename Deployment theirs"), "{:?}", explained.advice);
    assert!(explained.advice.iter().any(|it| it.contains("no matches for kind \"Odd\"")));
}

#[test]
fn quota_trees_are_shown_from_the_leaf_to_the_root() {
    let world = world();
    let subtree = |name: &str, spec: Value| json!({"metadata": {"name": name, "namespace": "n", "labels": {"tree": "team"}}, "spec": spec});
    let all = json!({"children": [{"name": "all", "quotas": {"requests": {"cpu": 3}}}]});
    put::<Subtree>(&world, subtree("root", all));
    let leaves = json!({"parent": "all", "children": [
        {"name": "gold", "quotas": {"requests": {"cpu": 2}}}, {"name": "default"}]});
    put::<Subtree>(&world, subtree("leaves", leaves));
    let labelled = |mut wrapper: Value, node: &str| {
        wrapper["metadata"]["labels"] = json!({"team": node});
        wrapper
    };
    put::<AppWrapper>(&world, labelled(wrapper("lent", 0, declared("2"), running()), "default"));
    put::<AppWrapper>(&world, labelled(wrapper("owner", 0, declared("2"), pending()), "gold"));
    put::<AppWrapper>(&world, labelled(wrapper("lost", 0, declared("1"), pending()), "silver"));
    let settings = Settings { quota: true, preemption: true, ..Settings::default() };

    let lent = report_of(&world, &settings, "lent");
    let charge = &lent.quota[0];
    assert_eq!((charge.placed.as_deref(), charge.borrows, charge.holds), (Some("all"), true, true));
    let owner = report_of(&world, &settings, "owner");
    assert_eq!(owner.victims, ["n/lent"]);
    let charge = &owner.quota[0];
    assert_eq!(
        (charge.placed.as_deref(), charge.borrows, charge.holds),
        (Some("gold"), false, false)
    );
    let path: Vec<(&str, &str)> =
        charge.path.iter().map(|it| (it.node.as_str(), it.limit["cpu"].as_str())).collect();
    assert_eq!(path, [("gold", "2"), ("all", "3")]);
    assert_eq!(charge.path[1].used["cpu"], "2", "as it is now");
    let lost = report_of(&world, &settings, "lost");
    assert_eq!(lost.quota[0].leaves, ["default", "gold"]);
    assert_eq!(lost.advice[0], "label it team=LEAF, silver is none; leaves are default, gold");
}

#[test]
fn a_running_app_wrapper_reports_its_next_check() {
    let world = world();
    let mut short = wrapper("short", 0, declared("1"), running());
    short["spec"]["schedulingSpec"] = json!({"minAvailable": 2, "dispatchDuration": {"limit": 600},
        "requeuing": {"timeInSeconds": 120, "maxNumRequeuings": 3}});
    put::<AppWrapper>(&world, short);
    let why = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/1 nodes are available"}]});
    put::<Pod>(&world, pod("p", "short", "9", "", why));
    let explained = report_of(&world, &Settings::default(), "short");
    let rule = &explained.requeuing;
    assert_eq!((rule.min_available, rule.wait_seconds, rule.most), (2, 120, Some(3)));
    assert_eq!(rule.next_check, Some("2026-01-01T00:11:00Z".parse().unwrap()));
    assert_eq!(rule.deadline, Some("2026-01-01T00:15:00Z".parse().unwrap()));
    assert_eq!(explained.pods.pending, 1);
    assert_eq!(explained.pods.unschedulable[0].message, "0/1 nodes are available");
    assert!(explained.room.is_none(), "it has its room");
    assert_eq!(explained.advice[0], "see why no node takes it: kubectl describe pod p -n n");
}

#[test]
fn devices_that_no_node_has_are_named() {
    let world = world();
    let requests = json!({"cpu": "1", "example.com/gpu": "1"});
    let items = json!([{"custompodresources": [{"replicas": 1, "requests": requests}]}]);
    put::<AppWrapper>(&world, wrapper("devices", 0, items, pending()));
    let explained = report_of(&world, &Settings::default(), "devices");
    let [device, more, _] = &explained.advice[..] else { panic!("{:?}", explained.advice) };
    assert!(device.starts_with("no node has example.com/gpu: its device plugin"), "{device}");
    assert!(more.starts_with("ask for less, or add nodes"), "{more}");
}

#[test]
fn demand_beyond_the_cluster_is_reported() {
    let world = world();
    let mut huge = wrapper("huge", 0, declared("100"), pending());
    huge["metadata"]["labels"] = json!({"orderedinstance": "m5.xlarge_g4dn.xlarge"});
    put::<AppWrapper>(&world, huge);
    let explained = report_of(&world, &Settings::default(), "huge");
    assert!(explained.room.unwrap().exceeds_cluster);
    assert!(
        explained.advice[0].starts_with("ask for less, or add nodes"),
        "{:?}",
        explained.advice
    );
    assert!(
        explained.advice[1].contains("nodes of m5.xlarge, g4dn.xlarge"),
        "{:?}",
        explained.advice
    );
    let key = Key::new("n", "nobody");
    assert_eq!(
        report(&world, &Settings::default(), Visibility::StatusOnly, &key, Timestamp::MIN),
        None
    );
}
