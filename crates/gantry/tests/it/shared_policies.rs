//! The published policies that protect dual pods: what an ordinary user may not change, and what
//! the controllers of any release may. The same steps are taken on a real server by `make e2e`.

use std::path::Path;

use gantry_process::clock::Clock;
use gantry_testkit::http::{Client, Request, Response};
use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};

const PREFIX: &str = "dual-pods.llm-d.ai";

/// The four objects, one to a file.
const FILES: [&str; 4] = [
    "fma-bound-serverreqpod",
    "fma-immutable-fields",
    "bind-fma-bound-serverreqpod",
    "bind-fma-immutable-fields",
];

fn config() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config"))
}

/// A server with the policies in effect and a namespace to try them in.
pub(crate) struct Place<'a> {
    client: &'a Client,
    namespace: String,
}

impl<'a> Place<'a> {
    /// Applies the policies and waits until they are in effect: on a real server that takes a while.
    pub(crate) async fn new(client: &'a Client, clock: &Clock, namespace: &str) -> Self {
        let place = Self { client, namespace: namespace.to_owned() };
        let object = json!({ "metadata": { "name": namespace } });
        place.made(Request::post("/api/v1/namespaces", &object)).await;
        let account = json!({ "metadata": { "name": "default" } });
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        // A server with controllers makes it too.
        place.send(Request::post(path, &account)).await;
        for file in FILES {
            let kind = if file.starts_with("bind-") { "policybindings" } else { "policies" };
            let group = "/apis/admissionregistration.k8s.io/v1";
            let path =
                format!("{group}/validatingadmission{kind}/{file}?fieldManager=test&force=true");
            let text = std::fs::read(
                config().join("validating-admission-policies").join(format!("{file}.yaml")),
            )
            .unwrap();
            let apply = HeaderValue::from_static("application/apply-patch+yaml");
            let request = Request::new(http::Method::PATCH, path)
                .body(text)
                .header(http::header::CONTENT_TYPE, apply);
            let answer = place.send(request).await;
            assert!(answer.status.is_success(), "{file}: {}", answer.text());
        }
        place.pod("probe", json!({}), json!({ "requester": "uid probe" })).await;
        place.pod("bound-probe", json!({ "dual": "x" }), config_annotation("a")).await;
        // Another value each time: one that went through is what is there, and no change.
        for value in 0.. {
            let value = json!(format!("other {value}"));
            let one = place.annotate("probe", "requester", value.clone()).await;
            let two = place.annotate("bound-probe", "inference-server-config", value).await;
            if one.status == 422 && two.status == 422 {
                break;
            }
            clock.sleep(std::time::Duration::from_millis(25)).await;
        }
        place
    }

    async fn send(&self, request: Request) -> Response {
        self.client.send(request).await.unwrap()
    }

    async fn made(&self, request: Request) {
        let answer = self.send(request).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    async fn pod(&self, name: &str, labels: Value, annotations: Value) {
        let pod = json!({
            "metadata": {
                "name": name, "labels": prefixed(&labels), "annotations": prefixed(&annotations),
            },
            "spec": { "containers": [{ "name": "c", "image": "registry.test/c:1" }] },
        });
        self.made(Request::post(self.pods(), &pod)).await;
    }

    async fn change(&self, pod: &str, metadata: &Value, user: Option<&str>) -> Response {
        let path = format!("{}/{pod}", self.pods());
        let patch = json!({ "metadata": metadata });
        let mut request = Request::patch(path, "application/merge-patch+json", &patch);
        if let Some(user) = user {
            let user = HeaderValue::from_str(user).unwrap();
            request = request.header(HeaderName::from_static("impersonate-user"), user).header(
                HeaderName::from_static("impersonate-group"),
                HeaderValue::from_static("system:masters"),
            );
        }
        self.send(request).await
    }

    async fn annotate(&self, pod: &str, key: &str, value: Value) -> Response {
        self.change(pod, &json!({ "annotations": { format!("{PREFIX}/{key}"): value } }), None)
            .await
    }

    async fn label(&self, pod: &str, key: &str, value: Value) -> Response {
        self.change(pod, &json!({ "labels": { format!("{PREFIX}/{key}"): value } }), None).await
    }
}

fn prefixed(map: &Value) -> Value {
    let entries = map.as_object().into_iter().flatten();
    entries.map(|(name, value)| (format!("{PREFIX}/{name}"), value.clone())).collect()
}

fn config_annotation(name: &str) -> Value {
    json!({ "inference-server-config": name })
}

fn denied(answer: &Response, policy: &str, words: &str) {
    let body = answer.json().unwrap();
    assert_eq!(answer.status, 422, "{body:#}");
    let message = body["message"].as_str().unwrap();
    let who = format!("ValidatingAdmissionPolicy '{policy}' with binding 'bind-{policy}'");
    assert!(message.contains(&who) && message.contains(words), "{message}");
}

fn allowed(answer: &Response) {
    assert_eq!(answer.status, 200, "{}", answer.text());
}

const IMMUTABLE: &str = "fma-immutable-fields";
const BOUND: &str = "fma-bound-serverreqpod";

/// An ordinary user may not change `requester` on a launcher.
pub(crate) async fn as_34(place: &Place<'_>) {
    let labels = json!({ "launcher-config-name": "lc", "dual": "req" });
    place.pod("as-34", labels, json!({ "requester": "uid req" })).await;
    let answer = place.annotate("as-34", "requester", json!("uid other")).await;
    denied(&answer, IMMUTABLE, "dual-pods.llm-d.ai/requester");
    let answer = place.annotate("as-34", "requester", Value::Null).await;
    denied(&answer, IMMUTABLE, "dual-pods.llm-d.ai/requester");
}

/// Nor change its `dual` label.
pub(crate) async fn as_35(place: &Place<'_>) {
    let labels = json!({ "launcher-config-name": "lc", "dual": "req" });
    place.pod("as-35", labels, json!({})).await;
    let answer = place.label("as-35", "dual", json!("other")).await;
    denied(&answer, IMMUTABLE, "dual-pods.llm-d.ai/dual");
}

/// Nor delete it.
pub(crate) async fn as_36(place: &Place<'_>) {
    let labels = json!({ "launcher-config-name": "lc", "dual": "req" });
    place.pod("as-36", labels, json!({})).await;
    let answer = place.label("as-36", "dual", Value::Null).await;
    denied(&answer, IMMUTABLE, "dual-pods.llm-d.ai/dual");
    // Absent and empty are the same.
    place.pod("as-36-none", json!({ "launcher-config-name": "lc" }), json!({})).await;
    allowed(&place.label("as-36-none", "dual", json!("")).await);
}

/// Nor change or delete `inference-server-config` on a bound requester.
pub(crate) async fn as_37(place: &Place<'_>) {
    place.pod("as-37", json!({ "dual": "launcher" }), config_annotation("isc")).await;
    for value in [json!("other"), Value::Null] {
        let answer = place.annotate("as-37", "inference-server-config", value).await;
        denied(&answer, BOUND, "inference-server-config");
    }
}

/// Nor change `isc-routing-metadata`.
pub(crate) async fn as_38(place: &Place<'_>) {
    let labels = json!({ "launcher-config-name": "lc", "dual": "req" });
    place.pod("as-38", labels, json!({ "isc-routing-metadata": "{}" })).await;
    let answer = place.annotate("as-38", "isc-routing-metadata", json!("{\"labels\":{}}")).await;
    denied(&answer, IMMUTABLE, "dual-pods.llm-d.ai/isc-routing-metadata");
}

/// Everything else is free: unrelated labels, unbound requesters, unrelated pods.
pub(crate) async fn as_39(place: &Place<'_>) {
    place.pod("as-39-bound", json!({ "dual": "launcher" }), config_annotation("isc")).await;
    allowed(&place.change("as-39-bound", &json!({ "labels": { "team": "a" } }), None).await);
    place.pod("as-39-unbound", json!({}), config_annotation("isc")).await;
    allowed(&place.annotate("as-39-unbound", "inference-server-config", json!("other")).await);
    allowed(&place.change("as-39-unbound", &json!({ "labels": { "team": "a" } }), None).await);
    place.pod("as-39-other", json!({}), json!({})).await;
    let metadata = json!({ "labels": { "a": "b" }, "annotations": { "c": "d" } });
    allowed(&place.change("as-39-other", &metadata, None).await);
    allowed(&place.annotate("as-39-other", "vllm-instance-signature", json!("0a")).await);
}

/// The controllers of two releases in two namespaces may write what is protected, users may not.
pub(crate) async fn as_43(places: [&Place<'_>; 2]) {
    for (place, release) in places.into_iter().zip(["one", "two"]) {
        let labels = json!({ "launcher-config-name": "lc", "dual": "req" });
        place.pod("as-43", labels, json!({ "requester": "uid req" })).await;
        let change = json!({
            "annotations": { format!("{PREFIX}/requester"): null },
            "labels": { format!("{PREFIX}/dual"): null },
        });
        let namespace = &place.namespace;
        let user = format!("system:serviceaccount:{namespace}:{release}-users");
        denied(&place.change("as-43", &change, Some(&user)).await, IMMUTABLE, "requester");
        let controller = format!("system:serviceaccount:{namespace}:{release}-fma-controllers");
        allowed(&place.change("as-43", &change, Some(&controller)).await);
        place.pod("as-43-bound", json!({ "dual": "x" }), config_annotation("isc")).await;
        let change =
            json!({ "annotations": { format!("{PREFIX}/inference-server-config"): "other" } });
        let answer = place.change("as-43-bound", &change, Some(&user)).await;
        denied(&answer, BOUND, "inference-server-config");
        allowed(&place.change("as-43-bound", &change, Some(&controller)).await);
    }
}
