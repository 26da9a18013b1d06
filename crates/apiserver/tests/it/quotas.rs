//! Concurrent use and recalculation of quotas.

use gantry_apiserver::Api;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Server;

const WRITE_ROUNDS: usize = 40;
const WRITERS: usize = 12;
const QUOTA_LIMIT: usize = 5;

/// A new quota is calculated by the controller, and by the first write it applies to. Whatever the
/// order, all of it can be used, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writes_are_counted_once() {
    let server = Server::start().await;
    for round in 0..WRITE_ROUNDS {
        let namespace = json!({ "metadata": { "name": format!("n{round}") } });
        assert_eq!(store(&server.api, "/api/v1/namespaces", namespace).await, StatusCode::CREATED);
        let below = format!("/api/v1/namespaces/n{round}");
        let hard = json!({ "count/secrets": QUOTA_LIMIT.to_string() });
        let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } });
        let made = store(&server.api, &format!("{below}/resourcequotas"), quota).await;
        assert_eq!(made, StatusCode::CREATED);
        let mut writers = JoinSet::new();
        for nth in 0..WRITERS {
            let (api, path) = (server.api.clone(), format!("{below}/secrets"));
            let object = json!({ "metadata": { "name": format!("writer-{nth}") } });
            writers.spawn(async move { store(&api, &path, object).await });
        }
        let answers = writers.join_all().await;
        let stored = answers.iter().filter(|it| **it == StatusCode::CREATED).count();
        assert_eq!(stored, QUOTA_LIMIT, "round {round}: {answers:?}");
    }
}

/// A user who may write the status of a quota can lift its limits for a moment only.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_written_by_others_is_recalculated() {
    let server = Server::start().await;
    let below = "/api/v1/namespaces/default";
    let hard = json!({ "count/secrets": "2" });
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } });
    server.create(&format!("{below}/resourcequotas"), quota).await;
    server.create(&format!("{below}/secrets"), json!({ "metadata": { "name": "one" } })).await;
    let path = format!("{below}/resourcequotas/q");
    let right = json!({ "hard": { "count/secrets": "2" }, "used": { "count/secrets": "1" } });
    let is_right = |_: StatusCode, it: &Value| it["status"] == right;
    server.wait_until(&path, "was counted", is_right).await;
    let table = [
        json!({ "used": { "count/secrets": "0" } }),
        json!({ "used": { "count/secrets": "5" } }),
        json!({ "used": { "count/secrets": "1", "pods": "3" } }),
        json!({ "hard": { "count/secrets": "100" } }),
        json!({ "hard": null, "used": null }),
    ];
    for status in table {
        // Users can choose any name of a field manager.
        for manager in ["me", "kube-apiserver"] {
            let patch = json!({ "status": status });
            let part = format!("{path}/status?fieldManager={manager}");
            let (code, answer) =
                server.send_request("PATCH", &part, "application/merge-patch+json", &patch).await;
            assert_eq!(code, StatusCode::OK, "{answer}");
            server.wait_until(&path, "was corrected", is_right).await;
        }
    }
}

async fn store(api: &Api, path: &str, object: Value) -> StatusCode {
    crate::send_request(api, "POST", path, "application/json", object).await.0
}
