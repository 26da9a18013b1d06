//! Many writers of one object.

use gantry_process::clock::Clock;
use gantry_testkit::embedded::Plan;
use gantry_testkit::http::{Client, Protocol, Request};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 40;

/// A patch without a resourceVersion is applied to the current object: its author never gets a
/// conflict because another writer was faster.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_patches_all_succeed() {
    let clock = Clock::system();
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&clock).await.unwrap();
    let client = Client::new(server.target(), Protocol::Http1, clock.clone()).unwrap();
    let object = json!({"metadata": {"name": "shared"}});
    let made = client.send(Request::post(CONFIG_MAPS, &object)).await.unwrap();
    assert_eq!(made.status.as_u16(), 201, "{}", made.text());
    let path = format!("{CONFIG_MAPS}/shared");
    let forms = ["application/merge-patch+json", "application/strategic-merge-patch+json"];
    let mut writers = JoinSet::new();
    for nth in 0..WRITERS {
        let (client, path) = (client.clone(), path.clone());
        writers.spawn(async move {
            let patch = json!({"data": {format!("writer-{nth}"): "was here"}});
            client.send(Request::patch(path, forms[nth % forms.len()], &patch)).await.unwrap()
        });
    }
    for answer in writers.join_all().await {
        assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
    }
    let end = client.send(Request::get(&path)).await.unwrap().json().unwrap();
    assert_eq!(end["data"].as_object().map(serde_json::Map::len), Some(WRITERS), "{end:#}");
    // A write with a resourceVersion gets a conflict, also a patch.
    let stale = json!({"metadata": {"resourceVersion": made.json().unwrap()["metadata"]["resourceVersion"]}});
    let answer = client.send(Request::patch(&path, forms[0], &stale)).await.unwrap();
    assert_eq!(answer.status.as_u16(), 409, "{}", answer.text());
    assert_eq!(answer.json().unwrap()["reason"], Value::from("Conflict"));
}

/// A server-side apply of a missing object creates it, or changes what another writer has just
/// created: no writer gets AlreadyExists. Deletions in between do not change that.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_applies_all_succeed() {
    let clock = Clock::system();
    let server = Plan::new(env!("CARGO_BIN_EXE_gantry")).start(&clock).await.unwrap();
    let client = Client::new(server.target(), Protocol::Http1, clock.clone()).unwrap();
    for round in 0..5 {
        let path = format!("{CONFIG_MAPS}/round-{round}");
        let mut writers = JoinSet::new();
        for nth in 0..WRITERS {
            let (client, path) = (client.clone(), path.clone());
            writers.spawn(async move {
                if round > 0 && nth % 8 == 0 {
                    let gone = client.send(Request::delete(path)).await.unwrap();
                    assert!(matches!(gone.status.as_u16(), 200 | 404), "{}", gone.text());
                    return None;
                }
                let config = json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("round-{round}")},
                    "data": {format!("writer-{nth}"): "was here"},
                });
                let path = format!("{path}?fieldManager=writer-{nth}");
                let apply = Request::patch(path, "application/apply-patch+yaml", &config);
                Some(client.send(apply).await.unwrap())
            });
        }
        let answers: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
        for answer in &answers {
            assert!(matches!(answer.status.as_u16(), 200 | 201), "{}", answer.text());
        }
        if round == 0 {
            let made = answers.iter().filter(|answer| answer.status.as_u16() == 201).count();
            assert_eq!(made, 1, "one of them made it");
            let end = client.send(Request::get(&path)).await.unwrap().json().unwrap();
            assert_eq!(end["data"].as_object().map(serde_json::Map::len), Some(WRITERS), "{end:#}");
        }
    }
}
