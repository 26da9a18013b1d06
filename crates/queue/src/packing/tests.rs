use gantry_reconcile::{Kind, Resource, View as _};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::settings::Settings;

fn settings() -> Settings {
    Settings { packing_check: true, ..Settings::default() }
}

fn show(world: &World, resource: &Resource, object: &Value) {
    world.single_store_for(resource).unwrap().observe(&object.to_string()).unwrap();
}

fn world() -> World {
    World::new([Kind::of::<AppWrapper>(), Kind::of::<Pod>(), Kind::of::<Node>()])
}

fn node(name: &str, allocatable: &Value, more: &Value) -> Value {
    let or = |name: &str, else_: Value| more.get(name).cloned().unwrap_or(else_);
    let (labels, taints) = (or("labels", json!({})), or("taints", json!([])));
    json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pod(name: &str, node: &str, cpu: &str, wrapper: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1",
                     "labels": {crate::item_objects::APP_WRAPPER_LABEL: wrapper}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Running"},
    })
}

/// Returns an AppWrapper that declares this many pods of this size.
fn wrapper(name: &str, pods: &[(i64, Value)], status: &Value) -> Value {
    let declared = pods.iter();
    let declared = declared.map(|(count, asks)| json!({"replicas": count, "requests": asks}));
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"},
        "spec": {"resources": {"GenericItems": [{"custompodresources": declared.collect::<Vec<_>>()}]}},
        "status": status,
    })
}

/// Evaluates whether a new AppWrapper fits.
fn ask(world: &World, object: &Value) -> Fit {
    ask_without(world, object, &AssumedGone::default())
}

fn ask_without(world: &World, object: &Value, gone: &AssumedGone) -> Fit {
    let cache = QueueCache::of(world, &settings());
    let wrapper: AppWrapper = serde_json::from_value(object.clone()).unwrap();
    let labels = wrapper.scheduling().map(|it| it.node_selector.clone()).unwrap_or_default();
    NodePacking::new(world, &cache, None).fit(&Gang::of(&wrapper), &labels, gone)
}

fn does_not_fit(text: &str) -> Fit {
    Fit::No(text.to_owned())
}

#[test]
fn fragmentation_is_reported_with_sizes() {
    let world = world();
    let small = json!({"cpu": "425m", "memory": "8Gi", "pods": 3});
    show(&world, &Node::RESOURCE, &node("a", &small, &json!({})));
    show(&world, &Node::RESOURCE, &node("b", &small, &json!({})));
    let large = json!({"cpu": "100m", "memory": "16Gi", "example.com/tpu": 1, "pods": 3});
    let tainted = json!({"taints": [{"key": "node.kubernetes.io/x", "effect": "NoSchedule"}]});
    show(&world, &Node::RESOURCE, &node("c", &large, &json!({"labels": {"zone": "c"}})));
    show(&world, &Node::RESOURCE, &node("d", &json!({"cpu": 64, "pods": 9}), &tainted));
    let one = |count: i64, cpu: &str| vec![(count, json!({"cpu": cpu}))];
    let table = [
        ("two nodes, two pods", one(2, "425m"), Fit::Yes),
        (
            "in pieces",
            one(2, "500m"),
            does_not_fit(
                "fits in total, but no placement: 2 pods of 500m, largest free node has 425m",
            ),
        ),
        (
            "one too many",
            one(3, "400m"),
            does_not_fit("fits in total, but no placement: 3 pods of 400m, nodes fit 2"),
        ),
        (
            "another resource",
            vec![(1, json!({"cpu": "200m", "example.com/tpu": 1}))],
            does_not_fit(
                "fits in total, but no placement: 1 pod of 200m, example.com/tpu 1, nodes fit 0",
            ),
        ),
        (
            "memory",
            vec![(1, json!({"memory": "17Gi"}))],
            does_not_fit(
                "fits in total, but no placement: 1 pod of memory 17Gi, largest free node has 16Gi of memory",
            ),
        ),
        ("pods are counted", one(9, "1m"), Fit::Yes),
        (
            "and nodes take no more than so many",
            one(10, "1m"),
            does_not_fit("fits in total, but no placement: 10 pods of 1m, nodes fit 9"),
        ),
        (
            "each alone would fit",
            vec![(2, json!({"cpu": "400m"})), (1, json!({"cpu": "200m"}))],
            does_not_fit(
                "fits in total, but no placement: 2 pods of 400m and 1 pod of 200m do not fit together",
            ),
        ),
    ];
    for (why, pods, expected) in table {
        assert_eq!(ask(&world, &wrapper("w", &pods, &json!({}))), expected, "{why}");
    }
    let mut selects = wrapper("w", &one(1, "1m"), &json!({}));
    selects["spec"]["schedulingSpec"] = json!({"nodeSelector": {"zone": "c"}});
    assert_eq!(ask(&world, &selects), Fit::Yes);
    selects["spec"]["schedulingSpec"] = json!({"nodeSelector": {"zone": "e"}});
    let nowhere = "fits in total, but no placement: 1 pod of 1m, no node that they may be on";
    assert_eq!(ask(&world, &selects), does_not_fit(nowhere));
}

#[test]
fn reserved_capacity_is_not_free() {
    let world = world();
    let room = json!({"cpu": 4});
    show(&world, &Node::RESOURCE, &node("a", &room, &json!({})));
    show(&world, &Node::RESOURCE, &node("b", &room, &json!({})));
    let running = json!({"state": "Running", "canrun": true});
    let three = |count: i64| vec![(count, json!({"cpu": 3}))];
    show(&world, &AppWrapper::RESOURCE, &wrapper("other", &three(2), &running));
    let small = wrapper("small", &[(2, json!({"cpu": 1}))], &json!({}));
    let large = wrapper("large", &[(1, json!({"cpu": 2}))], &json!({}));
    assert_eq!(ask(&world, &small), Fit::Yes);
    assert_ne!(ask(&world, &large), Fit::Yes, "two pods of 3 are to come");
    show(&world, &Pod::RESOURCE, &pod("p", "a", "3", "other"));
    assert_ne!(ask(&world, &large), Fit::Yes, "one of them is there, and one is to come");
    let mut gone = AssumedGone::default();
    gone.wrappers.insert(Key::new("n", "other"));
    assert_eq!(ask_without(&world, &large, &gone), Fit::Yes, "when it is gone");
    let four = wrapper("four", &[(2, json!({"cpu": 4}))], &json!({}));
    assert_eq!(ask_without(&world, &four, &gone), Fit::Yes, "with its pods");
    let below = AssumedGone { below: Some(1), ..AssumedGone::default() };
    assert_eq!(ask_without(&world, &four, &below), Fit::Yes, "or counts for nothing");
    // It does not fit any more, and blocks no other.
    show(&world, &AppWrapper::RESOURCE, &{
        let mut it = wrapper("other", &three(9), &running);
        it["metadata"]["resourceVersion"] = json!("2");
        it
    });
    assert_eq!(ask(&world, &large), Fit::Yes);
}

/// Returns whether pods can be placed on nodes so that none is exceeded: tries everything.
fn has_packing(rooms: &mut Vec<i64>, pods: &[i64]) -> bool {
    let Some((pod, others)) = pods.split_first() else { return true };
    for at in 0..rooms.len() {
        if rooms[at] >= *pod {
            rooms[at] -= pod;
            let found = has_packing(rooms, others);
            rooms[at] += pod;
            if found {
                return true;
            }
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Pods fit if and only if they can be placed, beside existing pods and reserved pods.
    #[test]
    fn pods_fit_if_a_packing_exists(
        nodes in prop::collection::vec(1..9_i64, 1..4),
        there in prop::collection::vec((0..3_usize, 1..4_i64), 0..3),
        promised in (0..3_i64, 1..4_i64),
        pods in prop::collection::vec((1..3_i64, 1..5_i64), 1..3),
    ) {
        let world = world();
        let mut rooms = nodes.clone();
        for (at, cpu) in nodes.iter().enumerate() {
            show(&world, &Node::RESOURCE, &node(&format!("n{at}"), &json!({"cpu": cpu}), &json!({})));
        }
        for (at, (on, cpu)) in there.iter().enumerate().filter(|(_, (on, _))| *on < nodes.len()) {
            rooms[*on] -= cpu;
            show(&world, &Pod::RESOURCE, &pod(&format!("p{at}"), &format!("n{on}"), &cpu.to_string(), "x"));
        }
        let (count, cpu) = promised;
        let status = json!({"state": "Running", "canrun": true});
        let other = wrapper("other", &[(count, json!({"cpu": cpu}))], &status);
        show(&world, &AppWrapper::RESOURCE, &other);
        let each = |of: &[(i64, i64)]| -> Vec<i64> {
            of.iter().flat_map(|(count, cpu)| vec![*cpu; usize::try_from(*count).unwrap()]).collect()
        };
        let mut all = each(&[(count, cpu)]);
        if !has_packing(&mut rooms, &all) {
            all.clear();
        }
        all.extend(each(&pods));
        let asks: Vec<(i64, Value)> =
            pods.iter().map(|(count, cpu)| (*count, json!({"cpu": cpu}))).collect();
        let found = ask(&world, &wrapper("w", &asks, &json!({})));
        prop_assert_eq!(found == Fit::Yes, has_packing(&mut rooms, &all), "{:?}", found);
        prop_assert_ne!(found, Fit::Unknown, "so small a world");
    }

    /// The free capacity without some AppWrappers is what it would be if they had never existed,
    /// whatever was asked before.
    #[test]
    fn removed_app_wrappers_free_their_capacity(
        pods in prop::collection::vec((0..4_usize, 0..4_usize, 1..4_i64), 0..12),
        priorities in prop::collection::vec(0..3_i64, 3),
        asked in prop::collection::vec((prop::option::of(0..4_i32), 0..8_u8), 1..4),
        (count, cpu) in (1..4_i64, 1..10_i64),
    ) {
        let name = |at: usize| format!("w{at}");
        // The last of them does not exist any more, and has pods.
        let fill = |keeps: &dyn Fn(usize) -> bool| {
            let world = world();
            for at in 0..3 {
                let room = json!({"cpu": 9, "pods": 9});
                show(&world, &Node::RESOURCE, &node(&format!("n{at}"), &room, &json!({})));
            }
            for (at, priority) in priorities.iter().enumerate() {
                let mut it = wrapper(&name(at), &[], &json!({"state": "Running", "canrun": true}));
                it["spec"]["priority"] = json!(priority);
                show(&world, &AppWrapper::RESOURCE, &it);
            }
            for (at, (of, on, cpu)) in pods.iter().enumerate().filter(|(_, it)| keeps(it.0)) {
                let it = pod(&format!("p{at}"), &format!("n{on}"), &cpu.to_string(), &name(*of));
                show(&world, &Pod::RESOURCE, &it);
            }
            world
        };
        let world = fill(&|_| true);
        let cache = QueueCache::of(&world, &settings());
        let mut floor = NodePacking::new(&world, &cache, None);
        for (below, gone) in asked {
            let is_named = |at: usize| gone & (1 << at) != 0;
            let wrappers = (0..4).filter(|at| is_named(*at)).map(|at| Key::new("n", &name(at)));
            let gone = AssumedGone { wrappers: wrappers.collect(), below };
            let comes = wrapper("comes", &[(count, json!({"cpu": cpu}))], &json!({}));
            let gang = Gang::of(&serde_json::from_value(comes).unwrap());
            let found = floor.fit(&gang, &BTreeMap::new(), &gone);
            // Nothing is reserved, so only the AppWrapper alone matters.
            prop_assert_eq!(floor.never_fits(&gang, &BTreeMap::new(), &gone), found != Fit::Yes);
            let others = fill(&|at| {
                let priority = priorities.get(at).copied().unwrap_or_default();
                !is_named(at) && below.is_none_or(|below| priority >= i64::from(below))
            });
            let others_books = QueueCache::of(&others, &settings());
            let expected = NodePacking::new(&others, &others_books, None);
            prop_assert_eq!(floor.free_without(&gone), expected.free);
        }
    }
}
