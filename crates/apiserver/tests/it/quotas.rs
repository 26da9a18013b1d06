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

async fn store(api: &Api, path: &str, object: Value) -> StatusCode {
    crate::ask(api, "POST", path, "application/json", object).await.0
}
