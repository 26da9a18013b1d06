use super::*;
use proptest::prelude::*;

fn range(item: &Value) -> Value {
    json!({ "spec": { "limits": [item] } })
}

fn pod(resources: &Value) -> Value {
    json!({
        "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "resources": resources }] },
    })
}

#[test]
fn defaults_are_annotated() {
    let range = range(&json!({
        "type": "Container", "default": { "cpu": "1", "memory": "1Gi" },
        "defaultRequest": { "cpu": "500m" },
    }));
    let mut silent = pod(&json!({}));
    apply_pod_defaults(&range, &mut silent);
    assert_eq!(
        silent["metadata"]["annotations"][LIMIT_RANGER_ANNOTATION],
        "LimitRanger plugin set: cpu request for container c; cpu, memory limit for container c"
    );
    let mut outspoken = pod(&json!({
        "requests": { "cpu": "2" }, "limits": { "cpu": "2", "memory": "2Gi" },
    }));
    let before = outspoken.clone();
    apply_pod_defaults(&range, &mut outspoken);
    assert_eq!(outspoken, before, "what is said stays, and nothing is noted");
}

#[test]
fn violations_are_described() {
    let least = json!({ "type": "Container", "min": { "cpu": "1" } });
    let most = json!({ "type": "Container", "max": { "cpu": "1" } });
    let ratio = json!({ "type": "Pod", "maxLimitRequestRatio": { "cpu": "2" } });
    let cpu = |request: &str, limit: &str| json!({ "requests": { "cpu": request }, "limits": { "cpu": limit } });
    let table = [
        (&least, json!({}), "minimum cpu usage per Container is 1.  No request is specified"),
        (&least, cpu("500m", "1"), "minimum cpu usage per Container is 1, but request is 500m"),
        (&least, cpu("1", "500m"), "minimum cpu usage per Container is 1, but limit is 500m"),
        (&least, cpu("1", "1"), ""),
        (&most, json!({}), "maximum cpu usage per Container is 1.  No limit is specified"),
        (&most, cpu("1", "2"), "maximum cpu usage per Container is 1, but limit is 2"),
        (&most, cpu("2", "1"), "maximum cpu usage per Container is 1, but request is 2"),
        (&most, cpu("1", "1"), ""),
        (
            &ratio,
            cpu("1", "3"),
            "cpu max limit to request ratio per Pod is 2, but provided ratio is 3.000000",
        ),
        (&ratio, cpu("1", "2"), ""),
        (
            &ratio,
            json!({}),
            "cpu max limit to request ratio per Pod is 2, but no request is specified or request is 0",
        ),
    ];
    for (item, resources, expected) in table {
        let found = check_pod(&range(item), &pod(&resources)).join(", ");
        assert_eq!(found, expected, "{item} {resources}");
    }
}

proptest! {
    /// Filling in twice is filling in once, and what was filled in fits its own limits.
    #[test]
    fn defaults_fit_their_limits(request in 1_u32..5, more in 0_u32..5, says in any::<bool>()) {
        let (request, limit) = (request.to_string(), (request + more).to_string());
        let range = range(&json!({
            "type": "Container", "default": { "cpu": limit }, "defaultRequest": { "cpu": request },
            "min": { "cpu": request }, "max": { "cpu": limit },
        }));
        let said = if says { json!({ "requests": { "cpu": limit } }) } else { json!({}) };
        let mut once = pod(&said);
        apply_pod_defaults(&range, &mut once);
        let mut twice = once.clone();
        apply_pod_defaults(&range, &mut twice);
        prop_assert_eq!(&once, &twice);
        prop_assert_eq!(check_pod(&range, &once), Vec::<String>::new());
    }
}
