//! Quotas with many concurrent writers, and usage after deletions.

use gantry_process::clock::Clock;
use gantry_testkit::embedded::Plan;
use gantry_testkit::http::{Client, Protocol, Request};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// What no controller makes by itself, unlike config maps, of which each namespace gets one.
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const QUOTA: &str = "/api/v1/namespaces/default/resourcequotas/q";
const WRITERS: usize = 40;
const QUOTA_LIMIT: usize = 15;

async fn used(client: &Client) -> Value {
    let quota = client.send(Request::get(QUOTA)).await.unwrap().json().unwrap();
    quota["status"]["used"]["count/secrets"].clone()
}

/// However many clients write at once, no more is stored than the quota allows, and deletions
/// release quota.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writers_never_exceed_the_quota() {
    let clock = Clock::system();
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&clock).await.unwrap();
    let client = Client::new(server.target(), Protocol::Http1, clock.clone()).unwrap();
    let hard = json!({ "count/secrets": QUOTA_LIMIT.to_string() });
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } });
    let path = "/api/v1/namespaces/default/resourcequotas";
    let made = client.send(Request::post(path, &quota)).await.unwrap();
    assert_eq!(made.status, 201, "{}", made.text());
    let mut writers = JoinSet::new();
    for nth in 0..WRITERS {
        let client = client.clone();
        writers.spawn(async move {
            let object = json!({ "metadata": { "name": format!("writer-{nth}") } });
            (nth, client.send(Request::post(SECRETS, &object)).await.unwrap())
        });
    }
    let answers = writers.join_all().await;
    let stored: Vec<usize> =
        answers.iter().filter(|(_, it)| it.status == 201).map(|(nth, _)| *nth).collect();
    assert_eq!(stored.len(), QUOTA_LIMIT);
    for (_, answer) in answers.iter().filter(|(_, it)| it.status != 201) {
        assert!(answer.text().contains("exceeded quota: q, requested: count/secrets=1"));
    }
    // A write that failed releases its quota soon; the test harness ends a hopeless wait.
    while used(&client).await != json!(QUOTA_LIMIT.to_string()) {
        clock.sleep(std::time::Duration::from_millis(10)).await;
    }
    for nth in &stored {
        let gone = client.send(Request::delete(format!("{SECRETS}/writer-{nth}"))).await;
        assert_eq!(gone.unwrap().status, 200);
    }
    // The usage is recalculated soon without a trigger; the test harness ends a hopeless wait.
    while used(&client).await != json!("0") {
        clock.sleep(std::time::Duration::from_millis(10)).await;
    }
    let object = json!({ "metadata": { "name": "again" } });
    let again = client.send(Request::post(SECRETS, &object)).await.unwrap();
    assert_eq!(again.status, 201, "{}", again.text());
}
