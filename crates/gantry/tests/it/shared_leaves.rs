//! Users who try to use quota of others, with an operator that checks it. The same steps are run on
//! a real server by `make e2e`.

use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_testkit::http::{Request, Response};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::shared_authors::{by, grant, message};
use crate::shared_operator::{Site, manifests};

pub(crate) const WRAPPERS: &str =
    "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers";
const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gantry-queue";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// The configuration of an operator that is reached at this port and counts quotas.
pub(crate) fn config(port: u16) -> String {
    format!(
        "health: {{bindAddress: '0'}}\nmetrics: {{bindAddress: '0'}}\n\
         mcad: {{checkUserAccess: true, quotaEnabled: true}}\n\
         devices: {{webhook: {{bindAddress: '127.0.0.1:{port}', url: 'https://127.0.0.1:{port}'}}}}\n"
    )
}

/// A tree with a leaf for another namespace, one for a group, and one for everybody.
pub(crate) fn trees() -> Vec<Value> {
    let leaf = |name: &str| {
        json!({ "name": name, "quotas": { "requests": {
        "cpu": "2", "memory": "64Gi", "nvidia.com/gpu": "1" } } })
    };
    let subtree = |name: &str, annotations: Value, spec: Value| {
        json!({
            "apiVersion": "quota.codeflare.dev/v1alpha1", "kind": "QuotaSubtree",
            "metadata": { "name": name, "namespace": "default", "labels": { "tree": "team" },
                "annotations": annotations },
            "spec": spec,
        })
    };
    let bound =
        r#"{"gold": {"namespaces": ["elsewhere"]}, "research": {"groups": ["researchers"]}}"#;
    let leaves =
        json!({ "parent": "all", "children": [leaf("gold"), leaf("research"), leaf("default")] });
    vec![
        subtree("root", json!({}), json!({ "children": [leaf("all")] })),
        subtree("leaves", json!({ "quota.codeflare.dev/gantry-bindings": bound }), leaves),
    ]
}

/// An AppWrapper around a Deployment that asks for this, charged to a leaf.
pub(crate) fn wrapper(name: &str, leaf: &str, replicas: u32, requests: &Value) -> Value {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": name } }, "template": {
            "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": "main", "image": "registry.test/main",
                "resources": { "requests": requests, "limits": requests } }] },
        } },
    });
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": { "name": name, "labels": { "team": leaf } },
        "spec": { "resources": { "GenericItems": [{ "generictemplate": deployment }] } },
    })
}

/// What must be there before the operator is: its rights, the users', and the trees.
pub(crate) async fn prepare(site: &Site) {
    for file in ["45-check-user-access.yaml", "optional/quota.yaml"] {
        site.apply_file(&manifests().join(file)).await;
    }
    for object in grant("wraps", &["bob"], "workload.codeflare.dev", "appwrappers") {
        site.apply(&object).await;
    }
    for object in grant("deploys", &["bob"], "apps", "deployments") {
        site.apply(&object).await;
    }
    for object in trees() {
        site.apply(&object).await;
    }
}

async fn create(site: &Site, object: &Value, query: &str) -> Response {
    let path = format!("{WRAPPERS}{query}");
    site.admin.send(by("bob", Request::post(path, object))).await.unwrap()
}

/// QU-12 and QU-13 as far as they are decided before anything runs, beside an operator with the
/// [configuration](config) for it.
pub(crate) async fn qu_12_and_qu_13(site: &Site, clock: &Clock) {
    // Objects of the first moments have no trusted author.
    let told = |it: &Value| it["webhooks"].as_array().is_some_and(|all| !all.is_empty());
    let found = site.until(CONFIGURATION, told).await;
    let made = found["metadata"]["creationTimestamp"].as_str().unwrap();
    let believed = made.parse::<Timestamp>().unwrap() + Duration::from_secs(6);
    while clock.now() < believed {
        site.pause().await;
    }
    // Until the operator has synced the trees it rejects nothing: the requests are dry runs.
    let stolen = wrapper("stolen", "gold", 1, &json!({ "cpu": "100m" }));
    let refused = loop {
        let answer = create(site, &stolen, "?dryRun=All").await;
        if answer.status == 403 {
            break answer;
        }
        // It is rejected because the webhook does not respond, or not rejected yet.
        assert!(answer.status == 201 || answer.status == 500, "{}", answer.text());
        site.pause().await;
    };
    let said = "leaf \"gold\" of quota tree team is bound to namespace elsewhere, and namespace \"default\" is not \
                among them; use another leaf by the label team (default)";
    let text = refused.json().unwrap()["message"].as_str().unwrap().to_owned();
    assert!(text.contains(said), "{text}");
    let foreign = wrapper("foreign", "research", 1, &json!({ "cpu": "100m" }));
    let answer = create(site, &foreign, "").await;
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert!(
        answer.text().contains("nor a group of user \\\"bob\\\" is among them"),
        "{}",
        answer.text()
    );

    // An admitted AppWrapper cannot switch to it by another label either.
    let waits = wrapper("waits", "default", 1, &json!({ "cpu": "100" }));
    let answer = create(site, &waits, "").await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let moved = json!({ "metadata": { "labels": { "team": "gold" } } });
    let patch = Request::patch(format!("{WRAPPERS}/waits"), "application/merge-patch+json", &moved);
    let answer = site.admin.send(by("bob", patch)).await.unwrap();
    assert_eq!(answer.status, 403, "{}", answer.text());

    // A declared demand does not reduce that of a template.
    let eight = json!({ "cpu": "8", "nvidia.com/gpu": "8" });
    let table = [
        ("small", json!([{ "replicas": 1, "requests": { "cpu": "10m" } }])),
        ("none", json!([{ "replicas": 0, "requests": { "cpu": "8" } }])),
    ];
    for (name, declared) in table {
        let mut greedy = wrapper(name, "default", 1, &eight);
        greedy["spec"]["resources"]["GenericItems"][0]["custompodresources"] = declared;
        let answer = create(site, &greedy, "").await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let lacks = |it: &Value| message(it).contains("of quota tree team lacks");
        let seen = site.until(&format!("{WRAPPERS}/{name}"), lacks).await;
        assert!(message(&seen).contains("nvidia.com/gpu"), "{seen:#}");
        assert_eq!(site.get(&format!("{DEPLOYMENTS}/{name}")).await.status, 404, "nothing is made");
    }
}
