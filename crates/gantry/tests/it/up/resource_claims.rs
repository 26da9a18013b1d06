//! Pods with ResourceClaims, which no driver allocates.

use super::*;

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";

fn spec() -> Value {
    json!({"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "gpus"}}]}})
}

fn pod(name: &str, claim: &Value) -> Value {
    let claim = match claim.as_str() {
        Some(name) => json!({"name": "gpu", "resourceClaimName": name}),
        None => json!({"name": "gpu", "resourceClaimTemplateName": "gpus"}),
    };
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "main", "image": "example.com/gpu:1",
                "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [claim],
        },
    })
}

/// Returns whether a pod waits for this.
fn waits(why: &'static str) -> impl Fn(&Value) -> bool {
    move |it| {
        let conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let scheduled = conditions.iter().find(|it| it["type"] == "PodScheduled");
        scheduled.is_some_and(|it| {
            it["status"] == "False"
                && it["reason"] == "Unschedulable"
                && it["message"].as_str().unwrap_or_default().contains(why)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_wait_for_their_resource_claims_and_say_so() {
    let cluster = Cluster::ephemeral().await;
    cluster.post(PODS, &pod("named", &json!("mine"))).await;
    let named = format!("{PODS}/named");
    let missing = ": could not find ResourceClaim \"default/mine\". ";
    cluster.wait_until(&named, "missed its claim", waits(missing)).await;
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "mine"}, "spec": spec(),
    });
    cluster.post(CLAIMS, &claim).await;
    let no_class = ": request one: device class gpus does not exist. ";
    cluster.wait_until(&named, "missed the class", waits(no_class)).await;
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
        "metadata": {"name": "gpus"}, "spec": {},
    });
    cluster.post(CLASSES, &class).await;
    let unallocated = "3 cannot allocate all claims. still not schedulable, preemption: ";
    cluster.wait_until(&named, "waited for devices", waits(unallocated)).await;

    // From a template, a claim is created and waited for.
    cluster.post(PODS, &pod("made", &Value::Null)).await;
    let made = format!("{PODS}/made");
    let not_created = ": pod \"default/made\": ResourceClaim not created yet. ";
    cluster.wait_until(&made, "had no claim", waits(not_created)).await;
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus"}, "spec": {"spec": spec()},
    });
    cluster.post(TEMPLATES, &template).await;
    let told = cluster.wait_until(&made, "waited for devices", waits(unallocated)).await;
    let name = told["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str().unwrap();
    let path = format!("{CLAIMS}/{name}");
    let owner = cluster.get(&path).await["metadata"]["ownerReferences"][0].clone();
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Pod"), &json!("made")));

    // When a client allocates the claim, its pod runs.
    let status = format!("{CLAIMS}/mine/status");
    let results =
        json!([{"request": "one", "driver": "gpu.example.com", "pool": "p", "device": "d"}]);
    let allocation = json!({"status": {"allocation": {"devices": {"results": results}}}});
    cluster.merge(&status, &allocation).await;
    cluster.wait_until(&named, "ran", |it| it["status"]["phase"] == "Running").await;
    let reserved = cluster.get(&format!("{CLAIMS}/mine")).await["status"]["reservedFor"].clone();
    assert_eq!(reserved[0]["name"], "named");
    cluster.stop(Signal::TERM).await;
}
