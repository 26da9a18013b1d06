use gantry_api::devices::{DeviceClass, DeviceDriver};
use gantry_reconcile::{Controller as _, Resource, Write};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::admission_cycle::Dispatch;
use crate::settings::LiveSettings;

fn settings() -> Settings {
    Settings { packing_check: true, ..Settings::default() }
}

fn show(world: &World, resource: &Resource, object: &Value) {
    world.single_store_for(resource).unwrap().observe(&object.to_string()).unwrap();
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

fn shape(name: &str, allocatable: &Value, more: &Value, most: u32) -> NodeShape {
    let node = serde_json::from_value(node(name, allocatable, more)).unwrap();
    NodeShape { name: name.to_owned(), node, existing_node: None, max_count: most }
}

/// Returns a pending job, with this many pods that request this.
fn waiting(pods: &[(i64, Value)], template: &Value) -> Value {
    let items = pods.iter().enumerate().map(|(at, (count, asks))| {
        let mut template = template.clone();
        template["spec"]["containers"] = json!([{"name": "c", "resources": {"requests": asks}}]);
        let spec = json!({"parallelism": count, "completions": count, "template": template});
        let name = format!("j{at}");
        json!({
            "custompodresources": [{"replicas": count, "requests": asks}],
            "generictemplate": {"apiVersion": "batch/v1", "kind": "Job",
                                "metadata": {"name": name}, "spec": spec},
        })
    });
    json!({
        "metadata": {"name": "w", "namespace": "n", "uid": "w", "resourceVersion": "1"},
        "spec": {"resources": {"GenericItems": items.collect::<Vec<_>>()}},
        "status": {"state": "Pending", "queuejobstate": "Queueing",
                   "controllerfirsttimestamp": "2026-01-01T00:00:00.000000Z"},
    })
}

fn world(settings: &Settings, objects: &[(Resource, Value)]) -> World {
    let world = World::new(ShapeChooser::kinds(settings));
    for (resource, object) in objects {
        show(&world, resource, object);
    }
    world
}

fn choose(world: &World, settings: &Settings, job: &Value, shapes: &[NodeShape]) -> ShapeChoice {
    let job: AppWrapper = serde_json::from_value(job.clone()).unwrap();
    ShapeChooser::default().choose(world, settings, &job, shapes)
}

/// Returns whether the queue itself admits the job.
fn is_admitted(world: &World, settings: &Settings) -> bool {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let plan = Dispatch::new(LiveSettings::new(*settings)).plan(world, &Dispatch::queue_key(), now);
    plan.steps.iter().any(|step| match &step.write {
        Write::Merge { key, body, .. } => key.name() == "w" && body["status"]["canrun"] == true,
        _ => false,
    })
}

fn needs(shape: &str, count: u32) -> Option<(String, u32)> {
    Some((shape.to_owned(), count))
}

#[test]
fn the_smallest_that_helps_is_chosen() {
    let cpu = |amount: i64| json!({"cpu": amount, "memory": "64Gi", "pods": 10});
    let plain = json!({});
    let taint = json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]});
    let zone = json!({"labels": {"zone": "a"}});
    let gpu = json!({"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": 4, "pods": 10});
    let tpu = json!({"cpu": 8, "memory": "64Gi", "example.com/tpu": 1, "pods": 10});
    let four = |count: i64| vec![(count, json!({"cpu": 4}))];
    let usual = json!({"spec": {}});
    let in_zone = json!({"spec": {"nodeSelector": {"zone": "a"}}});
    let table = [
        ("one is enough", four(1), &usual, vec![shape("s", &cpu(4), &plain, 5)], needs("s", 1)),
        ("one for each pod", four(3), &usual, vec![shape("s", &cpu(4), &plain, 5)], needs("s", 3)),
        ("two in one", four(3), &usual, vec![shape("m", &cpu(8), &plain, 5)], needs("m", 2)),
        ("not enough of them", four(6), &usual, vec![shape("s", &cpu(4), &plain, 5)], None),
        ("pieces too small", four(1), &usual, vec![shape("xs", &cpu(3), &plain, 5)], None),
        ("they are kept away", four(1), &usual, vec![shape("t", &cpu(9), &taint, 5)], None),
        (
            "the least cpu in all",
            four(2),
            &usual,
            vec![shape("l", &cpu(16), &plain, 5), shape("s", &cpu(4), &plain, 5)],
            needs("s", 2),
        ),
        (
            "of the same cpu the fewest nodes",
            four(2),
            &usual,
            vec![
                shape("s", &json!({"cpu": 4, "memory": "1Gi"}), &plain, 5),
                shape("m", &json!({"cpu": 8, "memory": "2Gi"}), &plain, 5),
            ],
            needs("m", 1),
        ),
        (
            "then the first by name",
            four(1),
            &usual,
            vec![shape("b", &cpu(4), &plain, 5), shape("a", &cpu(4), &plain, 5)],
            needs("a", 1),
        ),
        (
            "accelerators are dear",
            four(2),
            &usual,
            vec![shape("gpu", &gpu, &plain, 5), shape("l", &cpu(64), &plain, 5)],
            needs("l", 1),
        ),
        (
            "a job that requests one gets one, and no more than needed",
            vec![(1, json!({"cpu": 1, "example.com/tpu": 1}))],
            &usual,
            vec![shape("gpu", &gpu, &plain, 5), shape("tpu", &tpu, &plain, 5)],
            needs("tpu", 1),
        ),
        (
            "where pods may be counts",
            four(1),
            &in_zone,
            vec![shape("s", &cpu(4), &plain, 5), shape("z", &cpu(8), &zone, 5)],
            needs("z", 1),
        ),
        ("nothing is known", four(1), &usual, vec![], None),
    ];
    for (why, pods, template, shapes, expected) in table {
        let world = world(&settings(), &[(Node::RESOURCE, node("n", &cpu(3), &plain))]);
        let found = choose(&world, &settings(), &waiting(&pods, template), &shapes);
        let found = match found {
            ShapeChoice::Needs { shape, count, .. } => Some((shape, count)),
            ShapeChoice::NoShapeHelps(useless) => {
                assert_eq!(useless.len(), shapes.len(), "{why}: every shape has its reason");
                None
            }
            ShapeChoice::Fits => panic!("{why}: it does not fit yet"),
        };
        assert_eq!(found, expected, "{why}");
    }
}

#[test]
fn every_shape_that_does_not_help_has_its_reason() {
    let plain = json!({});
    let cpu = |amount: i64| json!({"cpu": amount, "pods": 10});
    let world = world(&settings(), &[(Node::RESOURCE, node("n", &cpu(3), &plain))]);
    let taint = json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]});
    let shapes = [
        shape("full", &cpu(64), &plain, 0),
        shape("small", &cpu(3), &plain, 4),
        shape("tainted", &cpu(64), &taint, 1),
        shape("good", &cpu(4), &plain, 2),
    ];
    let job = waiting(&[(2, json!({"cpu": 4}))], &json!({"spec": {}}));
    let ShapeChoice::Needs { shape, count, others } = choose(&world, &settings(), &job, &shapes)
    else {
        panic!("one of them helps");
    };
    assert_eq!((shape.as_str(), count), ("good", 2));
    let others: Vec<String> = others.iter().map(RejectedShape::to_string).collect();
    assert_eq!(
        others,
        [
            "full: no more of them may be added",
            "small: with 4 more of them still fits in total, but no placement: 2 pods of 4, \
             largest free node has 3",
            "tainted: with 1 more of them still cpu: needs 8, 3 available, 5 missing",
        ]
    );
    let fits = waiting(&[(1, json!({"cpu": 3}))], &json!({"spec": {}}));
    assert_eq!(choose(&world, &settings(), &fits, &shapes), ShapeChoice::Fits);
}

#[test]
fn fragmentation_counts_regardless_of_settings() {
    let plain = json!({});
    let cpu = |amount: i64| json!({"cpu": amount, "pods": 10});
    let nodes = ["a", "b"].map(|name| (Node::RESOURCE, node(name, &cpu(3), &plain)));
    let settings = Settings::default();
    let world = world(&settings, &nodes);
    let job = waiting(&[(1, json!({"cpu": 4}))], &json!({"spec": {}}));
    let shapes = [shape("s", &cpu(4), &plain, 9)];
    let found = choose(&world, &settings, &job, &shapes);
    assert_eq!(found, ShapeChoice::Needs { shape: "s".to_owned(), count: 1, others: vec![] });
}

#[test]
fn daemon_pods_reduce_capacity_of_added_nodes() {
    let cpu = |amount: i64| json!({"cpu": amount, "memory": "8Gi", "pods": 10});
    let owner = |kind: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "d", "uid": kind, "controller": true}]);
    let pod = |name: &str, kind: &str| {
        json!({
            "metadata": {"name": name, "namespace": "s", "uid": name, "resourceVersion": "1",
                         "ownerReferences": owner(kind)},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests":
                {"cpu": "500m", "memory": "1Gi"}}}]},
            "status": {"phase": "Running"},
        })
    };
    let objects = [
        (Node::RESOURCE, node("n", &cpu(4), &json!({}))),
        (Pod::RESOURCE, pod("daemon", "DaemonSet")),
        (Pod::RESOURCE, pod("other", "ReplicaSet")),
    ];
    let world = world(&settings(), &objects);
    let like =
        NodeShape { existing_node: Some("n".to_owned()), ..shape("s", &cpu(4), &json!({}), 3) };
    let asks = |cpu: &str| waiting(&[(1, json!({"cpu": cpu}))], &json!({"spec": {}}));
    let fits = choose(&world, &settings(), &asks("3500m"), std::slice::from_ref(&like));
    assert_eq!(fits, ShapeChoice::Needs { shape: "s".to_owned(), count: 1, others: vec![] });
    let too_much = choose(&world, &settings(), &asks("3501m"), &[like]);
    assert!(matches!(too_much, ShapeChoice::NoShapeHelps(_)), "{too_much:?}");
}

#[test]
fn devices_are_copied_from_the_existing_node() {
    let settings = Settings { devices: true, ..settings() };
    let cpu = json!({"cpu": 8, "pods": 10});
    let meta = |name: &str| json!({"name": name, "uid": name, "resourceVersion": "1"});
    let devices: Vec<Value> = (0..2).map(|at| json!({"name": format!("gpu{at}")})).collect();
    let pool = json!({"metadata": meta("pool"), "spec": {"driver": "gpu.example.com",
        "deviceType": "gpu", "nodeName": "model", "devices": devices}});
    let driver = json!({"metadata": meta("gpu.example.com"), "deviceTypes": ["gpu"]});
    let class = json!({"metadata": meta("gpu"), "spec": {"deviceType": "gpu"}});
    let objects = vec![
        (Node::RESOURCE, node("model", &cpu, &json!({}))),
        (DeviceObject::<DevicePool>::RESOURCE, pool.clone()),
        (DeviceObject::<DeviceDriver>::RESOURCE, driver),
        (DeviceObject::<DeviceClass>::RESOURCE, class),
    ];
    let claims = json!([{"name": "g", "template": {"claims": [{"name": "t", "deviceClass": "gpu",
        "requests": {"count": "1"}, "limits": {"count": "1"}}]}}]);
    let template = json!({
        "metadata": {"annotations": {"devmgmtproto.k8s.io/device-claims": claims.to_string()}},
        "spec": {},
    });
    let job = waiting(&[(5, json!({"cpu": 1}))], &template);
    let bare = shape("bare", &cpu, &json!({}), 9);
    let like =
        NodeShape { existing_node: Some("model".to_owned()), ..shape("gpu", &cpu, &json!({}), 9) };
    let seen = world(&settings, &objects);
    let answer = choose(&seen, &settings, &job, &[bare, like]);
    let ShapeChoice::Needs { shape, count, others } = answer else { panic!("{answer:?}") };
    // Two exist, each of the others has two more.
    assert_eq!((shape.as_str(), count), ("gpu", 2), "{others:?}");
    assert!(others[0].why.contains("no devices for all pods at once"), "{others:?}");

    // And so it is, once they exist.
    for (count, expected) in [(1, false), (2, true)] {
        let mut objects = objects.clone();
        for at in 0..count {
            let name = format!("new{at}");
            objects.push((Node::RESOURCE, node(&name, &cpu, &json!({}))));
            let mut pool = pool.clone();
            pool["metadata"] = meta(&format!("pool-{name}"));
            pool["spec"]["nodeName"] = json!(name);
            objects.push((DeviceObject::<DevicePool>::RESOURCE, pool));
        }
        objects.push((AppWrapper::RESOURCE, job.clone()));
        assert_eq!(is_admitted(&world(&settings, &objects), &settings), expected, "{count} more");
    }
}

proptest! {
    /// The choice is what trying everything finds: no smaller one makes the queue itself admit the
    /// job, and this one does.
    #[test]
    fn nothing_smaller_helps(
        present in prop::collection::vec((0..6_i64, 0..3_i64), 0..3),
        pods in prop::collection::vec((1..4_i64, 1..5_i64, 0..2_i64), 1..3),
        kinds in prop::collection::vec((1..9_i64, 0..3_i64, 0..4_u32), 1..4),
    ) {
        let has = |cpu: i64, gpu: i64| json!({"cpu": cpu, "nvidia.com/gpu": gpu, "pods": 10});
        let pods: Vec<(i64, Value)> = pods
            .iter()
            .map(|(count, cpu, gpu)| (*count, json!({"cpu": cpu, "nvidia.com/gpu": gpu})))
            .collect();
        let job = waiting(&pods, &json!({"spec": {}}));
        let nodes: Vec<(Resource, Value)> = present
            .iter()
            .enumerate()
            .map(|(at, (cpu, gpu))| (Node::RESOURCE, node(&format!("n{at}"), &has(*cpu, *gpu), &json!({}))))
            .collect();
        let shapes: Vec<NodeShape> = kinds
            .iter()
            .enumerate()
            .map(|(at, (cpu, gpu, most))| shape(&format!("s{at}"), &has(*cpu, *gpu), &json!({}), *most))
            .collect();
        let helps = |of: usize, count: u32| {
            let (cpu, gpu, _) = kinds[of];
            let mut objects = nodes.clone();
            let more = (0..count)
                .map(|at| (Node::RESOURCE, node(&format!("m{at}"), &has(cpu, gpu), &json!({}))));
            objects.extend(more);
            objects.push((AppWrapper::RESOURCE, job.clone()));
            is_admitted(&world(&settings(), &objects), &settings())
        };
        let mut all = Vec::new();
        for (of, (cpu, gpu, most)) in kinds.iter().enumerate() {
            for count in 1..=*most {
                let times = i64::from(count);
                if helps(of, count) {
                    all.push((gpu * times, cpu * times, count, shapes[of].name.clone()));
                }
            }
        }
        let best = all.into_iter().min().map(|(_, _, count, name)| (name, count));
        let found = match choose(&world(&settings(), &nodes), &settings(), &job, &shapes) {
            ShapeChoice::Fits => {
                prop_assert!(helps(0, 0));
                return Ok(());
            }
            ShapeChoice::Needs { shape, count, others } => {
                prop_assert!(others.iter().all(|it| it.shape != shape));
                Some((shape, count))
            }
            ShapeChoice::NoShapeHelps(_) => None,
        };
        prop_assert!(!helps(0, 0));
        prop_assert_eq!(found, best);
    }
}
