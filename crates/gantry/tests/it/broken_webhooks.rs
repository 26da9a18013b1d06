//! What a webhook that does not work must not stop.

use gantry_process::clock::Clock;
use gantry_testkit::embedded::Plan;
use gantry_testkit::http::{Client, Protocol, Request, Response};
use serde_json::{Value, json};

/// A client of an embedded server.
struct TestClient {
    client: Client,
    clock: Clock,
}

impl TestClient {
    async fn expect(&self, request: Request, status: u16) -> Value {
        let answer = self.client.send(request).await.unwrap();
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        answer.json().unwrap()
    }

    /// Sends requests until the response is as expected; the clock only ends a hopeless wait.
    async fn wait_until(&self, path: &str, wanted: impl Fn(&Response) -> bool) {
        let give_up = self.clock.moment() + std::time::Duration::from_secs(60);
        loop {
            let answer = self.client.send(Request::get(path)).await.unwrap();
            if wanted(&answer) {
                return;
            }
            assert!(self.clock.moment() < give_up, "{path}: {}", answer.text());
            self.clock.sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

fn definition() -> Value {
    let version = |name: &str, stored: bool| {
        json!({
            "name": name, "served": true, "storage": stored,
            "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            } },
        })
    };
    json!({
        "metadata": { "name": "widgets.broken.test" },
        "spec": {
            "group": "broken.test", "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "conversion": { "strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                // No server listens there.
                "clientConfig": { "url": "https://127.0.0.1:1/convert" },
            } },
            // The preferred version is not the one that is stored.
            "versions": [version("v1", true), version("v2", false)],
        },
    })
}

fn widget(name: &str) -> Value {
    json!({ "apiVersion": "broken.test/v1", "kind": "Widget", "metadata": { "name": name } })
}

/// A namespace is deleted, dependents are deleted with their owners, and a definition is deleted,
/// although no webhook converts the objects: the server needs only the stored version.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_conversion_webhook_does_not_block_deletion() {
    let clock = Clock::system();
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&clock).await.unwrap();
    let client = Client::new(server.target(), Protocol::Http1, clock.clone()).unwrap();
    let asker = TestClient { client, clock };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    asker.expect(Request::post(definitions, &definition()), 201).await;
    asker
        .expect(Request::post("/api/v1/namespaces", &json!({ "metadata": { "name": "n" } })), 201)
        .await;
    let of = |namespace: &str| format!("/apis/broken.test/v1/namespaces/{namespace}/widgets");
    for name in ["a", "b"] {
        asker.expect(Request::post(of("n"), &widget(name)), 201).await;
    }
    let other = "/apis/broken.test/v2/namespaces/n/widgets/a";
    let refused = asker.expect(Request::get(other), 500).await;
    let message = refused["message"].as_str().unwrap();
    assert!(message.ends_with("connect: connection refused"), "{message}");
    // An owner in another version than the stored one.
    let owner = json!({ "metadata": { "name": "owner" } });
    let owner = asker.expect(Request::post("/api/v1/namespaces/n/configmaps", &owner), 201).await;
    let mut owned = widget("owned");
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
    }]);
    asker.expect(Request::post(of("n"), &owned), 201).await;
    asker.expect(Request::delete("/api/v1/namespaces/n/configmaps/owner"), 200).await;
    asker.wait_until(&format!("{}/owned", of("n")), |answer| answer.status == 404).await;
    asker.expect(Request::delete("/api/v1/namespaces/n"), 200).await;
    asker.wait_until("/api/v1/namespaces/n", |answer| answer.status == 404).await;
    asker.expect(Request::post(of("default"), &widget("last")), 201).await;
    asker.expect(Request::delete(format!("{definitions}/widgets.broken.test")), 200).await;
    asker
        .wait_until(&format!("{definitions}/widgets.broken.test"), |answer| answer.status == 404)
        .await;
}
