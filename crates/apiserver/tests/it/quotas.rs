//! Quotas while they are counted.

use gantry_apiserver::Api;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Server;

const ROUNDS: usize = 40;
const WRITERS: usize = 12;
const ROOM: usize = 5;

/// A new quota is counted by itself, and by whoever meets it first. Whatever the order, all of it can
/// be used, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_count_has_no_write_twice() {
    let server = Server::start().await;
    for round in 0..ROUNDS {
        let namespace = json!({ "metadata": { "name": format!("n{round}") } });
        assert_eq!(store(&server.api, "/api/v1/namespaces", namespace).await, StatusCode::CREATED);
        let below = format!("/api/v1/namespaces/n{round}");
        let hard = json!({ "count/secrets": ROOM.to_string() });
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
        assert_eq!(stored, ROOM, "round {round}: {answers:?}");
    }
}

/// Whoever may write the status of a quota can lift its limits for a moment only.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_others_wrote_is_counted_anew() {
    let server = Server::start().await;
    let below = "/api/v1/namespaces/default";
    let hard = json!({ "count/secrets": "2" });
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } });
    server.make(&format!("{below}/resourcequotas"), quota).await;
    server.make(&format!("{below}/secrets"), json!({ "metadata": { "name": "one" } })).await;
    let path = format!("{below}/resourcequotas/q");
    let right = json!({ "hard": { "count/secrets": "2" }, "used": { "count/secrets": "1" } });
    let is_right = |_: StatusCode, it: &Value| it["status"] == right;
    server.until(&path, "was counted", is_right).await;
    let table = [
        json!({ "used": { "count/secrets": "0" } }),
        json!({ "used": { "count/secrets": "5" } }),
        json!({ "used": { "count/secrets": "1", "pods": "3" } }),
        json!({ "hard": { "count/secrets": "100" } }),
        json!({ "hard": null, "used": null }),
    ];
    for status in table {
        // The name of the manager is anybody's to choose.
        for manager in ["me", "kube-apiserver"] {
            let patch = json!({ "status": status });
            let part = format!("{path}/status?fieldManager={manager}");
            let (code, answer) =
                server.ask("PATCH", &part, "application/merge-patch+json", &patch).await;
            assert_eq!(code, StatusCode::OK, "{answer}");
            server.until(&path, "was corrected", is_right).await;
        }
    }
}

async fn store(api: &Api, path: &str, object: Value) -> StatusCode {
    crate::ask(api, "POST", path, "application/json", object).await.0
}
