use std::time::Duration;

use gantry_pods::view::Pod;
use gantry_queue::node_shape::ShapeChooser;
use gantry_reconcile::{Kind, Resource, View as _};

use super::*;
use crate::grant_record::NodeAllocation;
use crate::node_group::NODE_GROUP_LABEL;
use crate::pool::{Pool, PoolListing, PoolQuery};
use crate::settings::{Limits, PoolKind};

fn settings(backend: Backend) -> Settings {
    let limits =
        Limits { max_nodes: 5, provision_timeout: Duration::ZERO, cooldown: Duration::ZERO };
    Settings { limits, backend, grant_record: Key::new("gantry", "ledger") }
}

fn world(objects: &[(Resource, Value)]) -> World {
    let own = [Kind::of::<ConfigMap>(), Kind::of::<MachineSet>()];
    let asked = ShapeChooser::kinds(&gantry_queue::Settings::default());
    let world = World::new(own.into_iter().chain(asked));
    for (resource, object) in objects {
        let mut object = object.clone();
        object["metadata"]["uid"] = object["metadata"]["name"].clone();
        object["metadata"]["resourceVersion"] = json!("1");
        world.single_store_for(resource).unwrap().observe(&object.to_string()).unwrap();
    }
    assert!(world.store::<Pod>().list().is_empty());
    world
}

fn set(name: &str, instance: &str, annotations: &Value, labels: &Value) -> (Resource, Value) {
    let object = json!({
        "metadata": {"name": name, "namespace": "m", "annotations": annotations},
        "spec": {"template": {"spec": {
            "metadata": {"labels": labels},
            "taints": [{"key": "gpu", "effect": "NoSchedule"}],
            "providerSpec": {"value": {"instanceType": instance}},
        }}},
    });
    (MachineSet::RESOURCE, object)
}

fn node(name: &str, instance: &str, labels: &Value, ready: bool) -> (Resource, Value) {
    let mut labels = labels.clone();
    labels[INSTANCE_TYPE_LABEL] = json!(instance);
    let status = if ready { "True" } else { "False" };
    let object = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [
            {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"},
            {"key": "gpu", "effect": "NoSchedule"},
        ]},
        "status": {"allocatable": {"cpu": "7500m"}, "conditions": [{"type": "Ready", "status": status}]},
    });
    (Node::RESOURCE, object)
}

fn group(name: &str, most: u32, node: &Value) -> (Resource, Value) {
    let object = json!({
        "metadata": {"name": name, "namespace": "gantry", "labels": {NODE_GROUP_LABEL: "true"}},
        "data": {"max": most.to_string(), "node": node.to_string()},
    });
    (ConfigMap::RESOURCE, object)
}

fn shapes_of(
    backend: Backend,
    objects: &[(Resource, Value)],
) -> (Vec<NodeShape>, Vec<RejectedShape>) {
    shapes(&world(objects), &settings(backend), &Key::new("n", "job"), None)
}

fn resources_of(shape: &NodeShape) -> Vec<(&str, String)> {
    let amounts = shape.node.status.allocatable.iter();
    amounts.map(|(name, amount)| (name.as_str(), amount.to_string())).collect()
}

#[test]
fn is_28_a_machine_set_declares_what_its_machines_have() {
    let declared = json!({CPU_ANNOTATION: "8", MEMORY_ANNOTATION: "32768", GPU_ANNOTATION: "2", LABELS_ANNOTATION: "tier=gold,zone=a"});
    let objects = [
        set("a", "g", &declared, &json!({"os": "linux", "rack": "1"})),
        set(
            "b",
            "g",
            &json!({LABELS_ANNOTATION: "tier=gold,zone=b"}),
            &json!({"os": "linux", "rack": "2"}),
        ),
        set("c", "unknown", &json!({CPU_ANNOTATION: "8"}), &json!({})),
        set("d", "odd", &json!({CPU_ANNOTATION: "many", MEMORY_ANNOTATION: "1"}), &json!({})),
        set("e", "", &declared, &json!({})),
    ];
    for backend in [Backend::Reuse, Backend::Duplicate] {
        let (shapes, unknown) = shapes_of(backend, &objects);
        let [shape] = shapes.as_slice() else { panic!("{shapes:?}") };
        assert_eq!((shape.name.as_str(), shape.max_count, &shape.existing_node), ("g", 5, &None));
        let amounts = [("cpu", "8"), ("memory", "32Gi"), ("nvidia.com/gpu", "2")];
        assert_eq!(resources_of(shape), amounts.map(|(name, amount)| (name, amount.to_owned())));
        // What differs between sets is not known before, and the owner labels are known.
        let labels = json!(shape.node.metadata.labels);
        let expected = json!({"os": "linux", "tier": "gold", "job": "job", "job-n": "job-n",
                              INSTANCE_TYPE_LABEL: "g"});
        assert_eq!(labels, expected);
        assert_eq!(shape.node.spec.taints[0].key, "gpu");
        let unknown: Vec<&str> = unknown.iter().map(|it| it.shape.as_str()).collect();
        assert_eq!(unknown, ["odd", "unknown"]);
    }
}

#[test]
fn is_28_a_node_that_is_there_is_the_better_model() {
    let declared = json!({CPU_ANNOTATION: "8", MEMORY_ANNOTATION: "32768"});
    let both = json!({"tier": "gold", "other-x": "other-x", GRANT_LABEL: "g1"});
    let mut one = both.clone();
    one["zone"] = json!("a");
    let objects = [
        set("a", "g", &declared, &json!({})),
        node("late", "g", &json!({}), false),
        node("n1", "g", &one, true),
        node("n2", "g", &both, true),
        node("other", "h", &json!({}), true),
    ];
    let (shapes, unknown) = shapes_of(Backend::Reuse, &objects);
    assert_eq!((shapes.len(), unknown.len()), (1, 0));
    assert_eq!(shapes[0].existing_node.as_deref(), Some("n1"));
    assert_eq!(resources_of(&shapes[0]), [("cpu", "7500m".to_owned())]);
    let labels = json!(shapes[0].node.metadata.labels);
    let expected =
        json!({"tier": "gold", "job": "job", "job-n": "job-n", INSTANCE_TYPE_LABEL: "g"});
    assert_eq!(labels, expected, "marks of others and what they differ in are not of the type");
    let taints: Vec<&str> = shapes[0].node.spec.taints.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(taints, ["gpu"], "how a node fares is not of the type");
}

#[test]
fn is_28_groups_and_pools_are_known_by_their_nodes() {
    let capacity = json!({"cpu": "4", "pods": "10"}).to_string();
    let known = json!({"metadata": {"annotations": {"gantry.dev/sim-capacity": capacity}}});
    let blank = json!({"metadata": {}});
    let objects = [group("big", 9, &known), group("blank", 2, &blank), group("small", 2, &known)];
    let (found, unknown) = shapes_of(Backend::Groups, &objects);
    let most: Vec<(&str, u32)> = found.iter().map(|it| (it.name.as_str(), it.max_count)).collect();
    assert_eq!(most, [("big", 5), ("small", 2)], "neither the limit nor the group is exceeded");
    assert_eq!(resources_of(&found[0]), [("cpu", "4".to_owned()), ("pods", "10".to_owned())]);
    assert_eq!(unknown.len(), 1);
    // What a job has already counts.
    let lots =
        vec![NodeAllocation { instance: "small".to_owned(), count: 1, place: "small".to_owned() }];
    let grant = Grant {
        id: "g".to_owned(),
        uid: "u".to_owned(),
        since: jiff::Timestamp::UNIX_EPOCH,
        lots,
        over: None,
        from: None,
    };
    let job = Key::new("n", "job");
    let (found, _) = shapes(&world(&objects), &settings(Backend::Groups), &job, Some(&grant));
    let most: Vec<(&str, u32)> = found.iter().map(|it| (it.name.as_str(), it.max_count)).collect();
    assert_eq!(most, [("big", 4), ("small", 1)]);

    let pool = |(name, instance): (&str, &str)| {
        let (name, instance_type) = (name.to_owned(), instance.to_owned());
        (name.clone(), Pool { name, instance_type, ..Pool::default() })
    };
    let pools = [("p", "g"), ("q", "h"), ("r", "g"), ("s", "")].map(pool).into();
    let world = world(&[node("n1", "g", &json!({}), true)]);
    let listing = PoolListing { cluster: "c".to_owned(), pools };
    let _ = world.facts::<PoolListing>().record(PoolQuery, listing, jiff::Timestamp::UNIX_EPOCH);
    let settings = settings(Backend::Pools(PoolKind::Machine));
    let (shapes, unknown) = shapes(&world, &settings, &job, None);
    assert_eq!((shapes.len(), shapes[0].name.as_str()), (1, "g"));
    assert_eq!((unknown.len(), unknown[0].shape.as_str()), (1, "h"));
}
