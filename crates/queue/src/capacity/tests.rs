#![expect(
    clippy::needless_pass_by_value,
    reason = "tests read best when they say what a value is where it is used"
)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn node(cpu: &str, taints: &Value, ready: &str, cordoned: bool) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "x", "labels": {"zone": "a"}},
        "spec": {"unschedulable": cordoned, "taints": taints},
        "status": {"allocatable": {"cpu": cpu, "memory": "4Gi", "nvidia.com/gpu": 8},
                   "conditions": [{"type": "Ready", "status": ready}]},
    }))
    .unwrap()
}

fn pod(node: &str, cpu: &str, phase: &str, wrapper: Option<&str>) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n",
                     "labels": wrapper.map(|it| json!({APP_WRAPPER_LABEL: it})).unwrap_or(json!({}))},
        "spec": {"nodeName": node, "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1m"}}}],
                 "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    }))
    .unwrap()
}

fn reach(tolerations: Value) -> PodTolerations {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"tolerations": tolerations}});
    crate::demand::Demand::of(&[], Some(&pod)).tolerations
}

fn free(capacity: &Capacity, reach: &PodTolerations) -> i64 {
    capacity.free(reach, &BTreeMap::new()).cpu
}

fn key(name: &str) -> Key {
    Key::new("n", name)
}

#[test]
fn only_schedulable_nodes_count() {
    let gpu = json!([{"key": "gpu", "effect": "NoSchedule"}]);
    let master = json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
    let soft = json!([{"key": "gpu", "effect": "PreferNoSchedule"}]);
    let (plain, tolerant, unknown) = (
        reach(json!([])),
        reach(json!([{"key": "gpu", "operator": "Exists"}])),
        PodTolerations::default(),
    );
    let table = [
        ("a node", node("3", &json!([]), "True", false), [3000, 3000, 3000]),
        ("a cordoned one", node("3", &json!([]), "True", true), [0, 0, 0]),
        ("one that is not ready", node("3", &json!([]), "False", false), [0, 0, 0]),
        ("an unknown one", node("3", &json!([]), "Unknown", false), [0, 0, 0]),
        ("one for some", node("3", &gpu, "True", false), [0, 3000, 3000]),
        ("one without pods", node("3", &master, "True", false), [0, 0, 0]),
        ("one that would rather not", node("3", &soft, "True", false), [3000, 3000, 3000]),
    ];
    for (why, node, expected) in table {
        let mut capacity = Capacity::new(OtherResources::Ignored);
        capacity.update_node("x", Some(&node));
        let found = [&plain, &tolerant, &unknown].map(|reach| free(&capacity, reach));
        assert_eq!(found, expected, "{why}");
    }
}

#[test]
fn pods_use_their_requests_until_they_end() {
    let mut capacity = Capacity::new(OtherResources::Ignored);
    capacity.update_node("x", Some(&node("3", &json!([]), "True", false)));
    let open = reach(json!([]));
    let table = [
        ("not on a node", pod("", "1", "Pending", None), 3000, false),
        ("bound", pod("x", "1", "Pending", None), 2000, false),
        ("running", pod("x", "1", "Running", None), 2000, false),
        ("lost", pod("x", "1", "Unknown", None), 2000, false),
        ("over", pod("x", "1", "Succeeded", None), 3000, true),
        ("elsewhere", pod("y", "1", "Running", None), 3000, false),
        ("more than there is", pod("x", "4", "Running", None), 0, false),
        ("failed", pod("x", "4", "Failed", None), 3000, true),
    ];
    for (why, pod, expected, released) in table {
        let effect = capacity.update_pod(&key("p"), Some(&pod));
        assert_eq!((free(&capacity, &open), effect.released), (expected, released), "{why}");
    }
    assert_eq!(capacity.update_node("z", None), CapacityChange::default());
}

#[test]
fn labels_of_nodes_can_be_asked_for() {
    let mut capacity = Capacity::new(OtherResources::Ignored);
    capacity.update_node("x", Some(&node("3", &json!([]), "True", false)));
    capacity.update_pod(&key("p"), Some(&pod("x", "1", "Running", None)));
    let labels = |zone: &str| BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
    assert_eq!(capacity.free(&reach(json!([])), &labels("a")).cpu, 2000);
    assert_eq!(capacity.free(&reach(json!([])), &labels("b")).cpu, 0);
}

#[test]
fn pods_of_an_app_wrapper_are_counted_for_it() {
    let mut capacity = Capacity::new(OtherResources::Ignored);
    capacity.update_node("x", Some(&node("9", &json!([]), "True", false)));
    capacity.update_pod(&key("p1"), Some(&pod("x", "1", "Running", Some("w"))));
    capacity.update_pod(&key("p2"), Some(&pod("x", "2", "Succeeded", Some("w"))));
    capacity.update_pod(&key("p3"), Some(&pod("gone", "3", "Running", Some("w"))));
    let usage = capacity.usage(&key("w")).unwrap();
    assert_eq!((usage.pods, usage.used.cpu), (3, 3000), "a node that is gone gives nothing");
    assert_eq!(usage.by_group.values().map(|it| it.cpu).collect::<Vec<_>>(), [1000]);
    let effect = capacity.update_node("x", Some(&node("9", &json!([]), "True", true)));
    assert_eq!(effect.wrappers, [key("w")].into(), "AppWrappers on a changed node are returned");
    assert!(
        capacity.usage(&key("w")).unwrap().by_group.is_empty(),
        "a cordoned node is no capacity"
    );
    for name in ["p1", "p2", "p3"] {
        capacity.update_pod(&key(name), None);
    }
    capacity.update_node("x", None);
    assert_eq!(capacity, Capacity::new(OtherResources::Ignored), "nothing is left behind");
}

#[derive(Clone, Debug)]
enum Event {
    Node(usize, Option<(i64, usize, bool)>),
    Pod(usize, Option<(usize, i64, usize, usize)>),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..3_usize, prop::option::of((1..5_i64, 0..3_usize, any::<bool>())))
            .prop_map(|(at, it)| Event::Node(at, it)),
        (0..6_usize, prop::option::of((0..4_usize, 1..4_i64, 0..4_usize, 0..3_usize)))
            .prop_map(|(at, it)| Event::Pod(at, it)),
    ]
}

/// What a change is about, and the object after it.
type Named<K, V> = Option<(K, Option<V>)>;

fn objects(event: &Event) -> (Named<String, Node>, Named<Key, Pod>) {
    let taints = [
        json!([]),
        json!([{"key": "gpu", "effect": "NoSchedule"}]),
        json!([{"key": "a", "effect": "NoExecute"}]),
    ];
    match event {
        Event::Node(at, it) => {
            let node = it.map(|(cpu, taint, cordoned)| {
                node(&cpu.to_string(), &taints[taint], "True", cordoned)
            });
            (Some((format!("n{at}"), node)), None)
        }
        Event::Pod(at, it) => {
            let pod = it.map(|(on, cpu, phase, wrapper)| {
                let phases = ["Pending", "Running", "Succeeded", "Failed"];
                let on = if on == 3 { String::new() } else { format!("n{on}") };
                pod(&on, &cpu.to_string(), phases[phase], [None, Some("v"), Some("w")][wrapper])
            });
            (None, Some((key(&format!("p{at}")), pod)))
        }
    }
}

proptest! {
    /// Whatever the history of changes, the sums are those of the final objects.
    #[test]
    fn changes_add_up(events in prop::collection::vec(event(), 0..40)) {
        let mut walked = Capacity::new(OtherResources::Ignored);
        let (mut nodes, mut pods) = (BTreeMap::new(), BTreeMap::new());
        for event in &events {
            let (node, pod) = objects(event);
            if let Some((name, node)) = node {
                walked.update_node(&name, node.as_ref());
                nodes.insert(name, node);
            }
            if let Some((key, pod)) = pod {
                // A change may be delivered twice.
                walked.update_pod(&key, pod.as_ref());
                walked.update_pod(&key, pod.as_ref());
                pods.insert(key, pod);
            }
        }
        let mut fresh = Capacity::new(OtherResources::Ignored);
        for (key, pod) in &pods {
            fresh.update_pod(key, pod.as_ref());
        }
        for (name, node) in &nodes {
            fresh.update_node(name, node.as_ref());
        }
        prop_assert_eq!(&walked, &fresh);
        for user in walked.app_wrappers() {
            let of = |it: &Key| walked.pods[it].wrapper.as_ref() == Some(user);
            let own: Vec<Key> = walked.pods.keys().filter(|it| of(it)).cloned().collect();
            let usage = walked.usage(user).unwrap();
            prop_assert_eq!(usage.pods, own.len());
            let (reach, anywhere) = (PodTolerations::default(), BTreeMap::new());
            let one_by_one = walked.freed_by_pods(own.into_iter(), &reach, &anywhere);
            prop_assert_eq!(walked.freed_by_wrapper(user, &reach), one_by_one);
        }
    }
}
