use super::*;
use proptest::prelude::*;
use serde_json::json;

const PODS: QuotaResource<'_> = QuotaResource { group: "", resource: "pods" };

fn pod(cpu: u32, memory: u32) -> Value {
    json!({ "spec": { "containers": [{ "name": "c", "resources": {
        "requests": { "cpu": format!("{cpu}m") }, "limits": { "memory": format!("{memory}Mi") },
    } }] } })
}

fn quota(hard: &Value, used: &Value) -> Value {
    json!({
        "metadata": { "name": "q" }, "spec": { "hard": hard },
        "status": { "hard": hard, "used": used },
    })
}

#[test]
fn resources_have_count_names() {
    let count = |group, resource| QuotaResource { group, resource };
    let table = [
        (count("", "configmaps"), "count/configmaps", true),
        (count("", "configmaps"), "configmaps", true),
        (count("apps", "deployments"), "count/deployments.apps", true),
        (count("apps", "deployments"), "deployments", false),
        (count("", "endpoints"), "endpoints", false),
        (PODS, "requests.example.test/gpu", true),
        (PODS, "requests.hugepages-2Mi", true),
        (PODS, "limits.cpu", true),
        (PODS, "requests.storage", false),
        (count("", "services"), "services.nodeports", true),
        (
            count("", "persistentvolumeclaims"),
            "gold.storageclass.storage.k8s.io/requests.storage",
            true,
        ),
    ];
    for (counted, name, expected) in table {
        assert_eq!(counted.covers(name), expected, "{counted:?} {name}");
    }
}

#[test]
fn scopes_select_pods() {
    let scoped = |scopes: Value| json!({ "spec": { "scopes": scopes } });
    let plain = json!({ "spec": { "containers": [{ "name": "c" }] } });
    let ending = json!({ "spec": { "activeDeadlineSeconds": 1, "containers": [] } });
    let table = [
        (scoped(json!(["Terminating"])), &plain, false),
        (scoped(json!(["Terminating"])), &ending, true),
        (scoped(json!(["NotTerminating", "BestEffort"])), &plain, true),
        (scoped(json!(["NotBestEffort"])), &plain, false),
        (scoped(json!(["PriorityClass"])), &plain, false),
        (scoped(json!([])), &plain, true),
    ];
    for (quota, pod, expected) in table {
        assert_eq!(PODS.in_scope(&quota, pod), expected, "{quota}");
    }
    assert!(PODS.in_scope(&scoped(json!(["NotBestEffort"])), &pod(1, 1)));
    let other = QuotaResource { group: "", resource: "services" };
    assert!(!other.in_scope(&scoped(json!(["Terminating"])), &plain), "only pods have scopes");
}

#[test]
fn quota_without_status_denies() {
    let unknown = quota(&json!({ "pods": "1", "requests.cpu": "1" }), &json!({}));
    let words = "status unknown for quota: q, resources: pods,requests.cpu";
    assert_eq!(charge(PODS, &unknown, &pod(1, 1), None), Err(words.to_owned()));
}

#[test]
fn init_containers_count_if_larger() {
    let container = |name: &str, cpu: &str, stays: bool| {
        let policy = if stays { json!("Always") } else { Value::Null };
        json!({ "name": name, "restartPolicy": policy, "resources": { "requests": { "cpu": cpu } } })
    };
    let table = [
        (json!([]), "1"),
        (json!([container("i", "3", false)]), "3"),
        (json!([container("i", "500m", false)]), "1"),
        (json!([container("s", "2", true)]), "3"),
        (json!([container("s", "2", true), container("i", "3", false)]), "5"),
    ];
    for (prepare, expected) in table {
        let pod = json!({ "spec": {
            "containers": [container("c", "1", false)], "initContainers": prepare,
        } });
        let total = pod_resources(&pod, "requests");
        assert_eq!(total["cpu"].to_string(), expected, "{pod}");
    }
}

proptest! {
    /// Whatever is asked for in whatever order, no more is used than there is, and what is used is
    /// what was let through.
    #[test]
    fn usage_never_exceeds_hard(asked in proptest::collection::vec((0_u32..900, 1_u32..900), 0..30)) {
        let hard = json!({ "pods": "10", "requests.cpu": "2", "limits.memory": "2Gi" });
        let mut state = quota(&hard, &json!({ "pods": "0", "requests.cpu": "0", "limits.memory": "0" }));
        let mut through = Vec::new();
        for (cpu, memory) in asked {
            let pod = pod(cpu, memory);
            match charge(PODS, &state, &pod, None) {
                Ok(QuotaCharge::Increase { used, .. }) => {
                    for (name, amount) in &used {
                        state["status"]["used"][name] = json!(amount.to_string());
                    }
                    through.push(PODS.usage(&pod));
                }
                Ok(QuotaCharge::Unchanged) => prop_assert!(false, "a pod always counts"),
                Err(why) => prop_assert!(why.starts_with("exceeded quota: q, requested: "), "{}", why),
            }
        }
        let (most, used) = (resource_list(&hard), resource_list(&state["status"]["used"]));
        for (name, amount) in &used {
            prop_assert!(*amount <= most[name], "{} {}", name, amount);
        }
        prop_assert_eq!(used, total_usage(&most, &through));
    }
}
