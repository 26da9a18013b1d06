//! Which pods are equivalent, and when nodes are used the same.

use serde_json::{Value, json};

use super::*;

fn pod(spec: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap()
}

fn full_pod_spec() -> Value {
    json!({
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}},
            "ports": [{"containerPort": 80, "hostPort": 80}]}],
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "nodeSelector": {"zone": "a"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchFields":
                [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}},
        "overhead": {"cpu": "1m"},
        "resources": {"requests": {"cpu": "4"}},
        "priority": 1,
    })
}

#[test]
fn pods_with_same_node_requirements_are_equivalent() {
    let table = [
        ("nothing", "/priority", json!(1), true),
        ("how important it is", "/priority", json!(2), true),
        ("what runs", "/containers/0/image", json!("j"), true),
        ("what it is called there", "/containers/0/name", json!("d"), true),
        ("its name on the network", "/hostname", json!("a-1"), true),
        ("what it takes", "/containers/0/resources/requests/cpu", json!("2"), false),
        ("a port", "/containers/0/ports/0/hostPort", json!(81), false),
        ("what runs before", "/initContainers/0/resources/requests/cpu", json!("3"), false),
        ("whether that stays", "/initContainers/0/restartPolicy", json!("Always"), false),
        ("what it tolerates", "/tolerations/0/key", json!("l"), false),
        ("the labels it wants", "/nodeSelector/zone", json!("b"), false),
        ("the nodes it wants", "/affinity", json!({}), false),
        ("what it takes besides", "/overhead/cpu", json!("2m"), false),
        ("what it takes as a whole", "/resources/requests/cpu", json!("5"), false),
        ("the node it has", "/nodeName", json!("n1"), false),
        ("how many run", "/containers", json!([]), false),
    ];
    for (why, path, value, expected) in table {
        let mut other = full_pod_spec();
        match other.pointer_mut(path) {
            Some(place) => *place = value,
            None => {
                let (parent, name) = path.rsplit_once('/').unwrap();
                other.pointer_mut(parent).unwrap()[name] = value;
            }
        }
        assert_eq!(
            same_node_requirements(&pod(&full_pod_spec()).spec, &pod(&other).spec),
            expected,
            "{why}"
        );
        assert_eq!(
            same_node_requirements(&pod(&other).spec, &pod(&full_pod_spec()).spec),
            expected,
            "{why}"
        );
    }
}

#[test]
fn usage_snapshot_ignores_which_pods_use_the_node() {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
    let plain = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
    let mut ported = plain.clone();
    ported["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
    let (one, other, ported) = (pod(&plain), pod(&plain), pod(&ported));
    let mut site = NodeInfo::new(&node);
    let empty = site.usage_snapshot();
    site.add_pod(&one);
    let taken = site.usage_snapshot();
    assert_ne!(taken, empty);
    site.remove_pod(&one);
    assert_eq!(site.usage_snapshot(), empty);
    site.add_pod(&other);
    assert_eq!(site.usage_snapshot(), taken);
    site.remove_pod(&other);
    site.add_pod(&ported);
    assert_ne!(site.usage_snapshot(), taken, "a port is taken");
    site.remove_pod(&ported);
    assert_eq!(site.usage_snapshot(), empty, "and is not any more");
}
