//! Many writers of one object.

use gantry_process::clock::Clock;
use gantry_testkit::embedded::Plan;
use gantry_testkit::http::{Client, Protocol, Request};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 40;

/// A patch that names no revision is applied to whatever is there: its author is never told that
/// somebody else was faster.
#[tokio::test(flavor = "multi_thread")]
async fn patches_of_one_object_at_once_all_take() {
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
    // Who does name one is told, also by a patch.
    let stale = json!({"metadata": {"resourceVersion": made.json().unwrap()["metadata"]["resourceVersion"]}});
    let answer = client.send(Request::patch(&path, forms[0], &stale)).await.unwrap();
    assert_eq!(answer.status.as_u16(), 409, "{}", answer.text());
    assert_eq!(answer.json().unwrap()["reason"], Value::from("Conflict"));
}
