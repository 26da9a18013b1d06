use serde_json::json;

use super::*;

fn declared(list: &Value) -> Vec<PodResources> {
    serde_json::from_value(list.clone()).unwrap()
}

fn cpu_memory_gpu(cpu: i64, memory: i64, gpu: i64) -> Amounts {
    Amounts { cpu, memory, gpu, ..Amounts::default() }
}

/// Scenario C6: the rules of 4.6.
#[test]
fn c_6_demand_is_declared_or_found_at_the_usual_places() {
    let none = json!([]);
    let container = |requests: Value, limits: Value| json!({"resources": {"requests": requests, "limits": limits}});
    let deployment = |replicas: Value, containers: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {
            "replicas": replicas, "template": {"spec": {"containers": containers}}}})
    };
    let half = || container(json!({"cpu": "500m", "memory": "1Ki"}), json!({}));
    let table = [
        (
            "a declaration is trusted, whatever the template says",
            json!([{"replicas": 2, "requests": {"cpu": "4270m"}}]),
            deployment(json!(1), json!([half()])),
            cpu_memory_gpu(8540, 0, 0),
        ),
        (
            "limits count for what is not requested, each by itself",
            json!([{"replicas": 2, "requests": {"cpu": 0, "memory": "1Mi"},
                    "limits": {"cpu": "1", "memory": "9Gi", "nvidia.com/gpu": 3}}]),
            Value::Null,
            cpu_memory_gpu(2000, 2 << 20, 6),
        ),
        (
            "entries add up",
            json!([{"replicas": 1, "requests": {"cpu": 1}}, {"replicas": 3, "requests": {"cpu": 2}}]),
            Value::Null,
            cpu_memory_gpu(7000, 0, 0),
        ),
        (
            "containers times replicas",
            none.clone(),
            deployment(json!(3), json!([half(), half()])),
            cpu_memory_gpu(3000, 6 << 10, 0),
        ),
        (
            "one pod where nothing is said",
            none.clone(),
            deployment(Value::Null, json!([half()])),
            cpu_memory_gpu(500, 1 << 10, 0),
        ),
        (
            "a container's limit counts for what it does not request",
            none.clone(),
            deployment(
                json!(1),
                json!([container(json!({"cpu": 1}), json!({"cpu": 2, "nvidia.com/gpu": "2"}))]),
            ),
            cpu_memory_gpu(1000, 0, 2),
        ),
        (
            "a bare pod",
            none.clone(),
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [half()]}}),
            cpu_memory_gpu(500, 1 << 10, 0),
        ),
        (
            "how many pods a job runs is not looked at, nor are init containers",
            none.clone(),
            json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 3, "completions": 3,
                "template": {"spec": {"containers": [half()], "initContainers": [container(json!({"cpu": 9}), json!({}))],
                    "overhead": {"cpu": 1}}}}}),
            cpu_memory_gpu(500, 1 << 10, 0),
        ),
        (
            "what has no pods asks for nothing",
            none.clone(),
            json!({"apiVersion": "v1", "kind": "Service"}),
            cpu_memory_gpu(0, 0, 0),
        ),
        (
            "fractions are rounded up, but not of GPUs",
            none.clone(),
            json!({"spec": {"containers": [container(json!({"cpu": "1u", "memory": "1500m", "nvidia.com/gpu": "1500m"}), json!({}))]}}),
            cpu_memory_gpu(1, 2, 0),
        ),
        (
            "other resources and unreadable amounts do not count",
            none,
            json!({"spec": {"containers": [container(json!({"cpu": "x", "memory": -5, "amd.com/gpu": 2}), json!({}))]}}),
            cpu_memory_gpu(0, 0, 0),
        ),
    ];
    for (why, list, object, expected) in table {
        let object = (!object.is_null()).then_some(object);
        assert_eq!(Demand::of(&declared(&list), object.as_ref()).compat, expected, "{why}");
    }
}

#[test]
fn full_inference_counts_as_the_scheduler_does() {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 3, "completions": 3,
        "template": {"spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}, "limits": {"amd.com/gpu": 1, "cpu": 4}}}],
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}],
            "overhead": {"cpu": "100m"}}}}});
    let full = Demand::of(&[], Some(&job)).full;
    assert_eq!((full.cpu, &full.others), (6300, &[("amd.com/gpu".to_owned(), 3)].into()));
    let list =
        declared(&json!([{"replicas": 2, "requests": {"amd.com/gpu": 1}, "limits": {"disk": 1}}]));
    let others = Demand::of(&list, Some(&job)).full.others;
    assert_eq!(others, [("amd.com/gpu".to_owned(), 3), ("disk".to_owned(), 2)].into());
}

#[test]
fn tolerations_of_all_templates_are_collected() {
    let pod = |tolerations: Value| json!({"apiVersion": "v1", "kind": "Pod", "spec": {"tolerations": tolerations}});
    let plain = Demand::of(&[], Some(&pod(json!([]))));
    let gpu = Demand::of(&[], Some(&pod(json!([{"key": "gpu", "operator": "Exists"}]))));
    assert_eq!(plain.tolerations.templates(), [vec![]]);
    let mut both = plain.clone();
    both.add(&gpu);
    both.add(&plain);
    assert_eq!(both.tolerations.templates().len(), 2);
    assert_ne!(both.tolerations, plain.tolerations);
    let unknown = Demand::of(&[], Some(&json!({"apiVersion": "v1", "kind": "Service"})));
    assert!(unknown.tolerations.templates().is_empty());
}

/// An AppWrapper that declares less than the template requests is charged for the template, one
/// resource at a time; as MCAD counts it is charged as declared, and that is reported.
#[test]
fn declaring_less_than_the_template_is_charged_in_full() {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 2, "completions": 2,
        "template": {"spec": {"containers": [{"name": "c", "resources": {"requests":
            {"cpu": 4, "memory": "1Gi", "nvidia.com/gpu": 4}}}]}}}});
    let gi = 1 << 30;
    let table = [
        (
            "10m",
            json!([{"replicas": 1, "requests": {"cpu": "10m"}}]),
            cpu_memory_gpu(10, 0, 0),
            cpu_memory_gpu(8000, 2 * gi, 8),
            3,
        ),
        (
            "no pods",
            json!([{"replicas": 0, "requests": {"cpu": 9}}]),
            cpu_memory_gpu(0, 0, 0),
            cpu_memory_gpu(8000, 2 * gi, 8),
            3,
        ),
        (
            "more of one thing",
            json!([{"replicas": 2, "requests": {"cpu": 9, "memory": "1Gi"}}]),
            cpu_memory_gpu(18000, 2 * gi, 0),
            cpu_memory_gpu(18000, 2 * gi, 8),
            1,
        ),
        (
            "as it is",
            json!([{"replicas": 2, "requests": {"cpu": 4, "memory": "1Gi", "nvidia.com/gpu": 4}}]),
            cpu_memory_gpu(8000, 2 * gi, 8),
            cpu_memory_gpu(8000, 2 * gi, 8),
            0,
        ),
    ];
    for (why, list, compat, full, understated) in table {
        let demand = Demand::of(&declared(&list), Some(&job));
        assert_eq!((&demand.compat, &demand.full), (&compat, &full), "{why}");
        assert_eq!(demand.understated(Inference::Compat).len(), understated, "{why}");
        assert!(demand.understated(Inference::Full).is_empty(), "{why}");
    }
    let found = Demand::of(&[], Some(&job));
    assert_eq!(found.compat, cpu_memory_gpu(4000, gi, 4), "MCAD sees one pod");
    assert_eq!(found.understated(Inference::Compat).len(), 3);
}
