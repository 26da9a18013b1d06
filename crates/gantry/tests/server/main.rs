//! The API server as a process: killed, damaged, stopped, stalled and starved.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot start its own server should fail loudly"
)]

mod crash;
mod damage;
mod definitions;
mod expiry;
mod full_disk;
mod hostile;
mod identity;
mod slow_watchers;
mod stop;

use std::path::Path;

use gantry_process::clock::Clock;
use gantry_testkit::embedded::{EmbeddedServer, EmbeddedServerError, Plan};
use gantry_testkit::http::{Client, Protocol, Request, Response};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MERGE: &str = "application/merge-patch+json";

fn plan() -> Plan {
    Plan::new(env!("CARGO_BIN_EXE_gantry"))
}

/// Starts a server on this data.
async fn start(data: &Path) -> EmbeddedServer {
    plan().data(data).start(&Clock::system()).await.unwrap()
}

/// Returns the error of a server that cannot start.
fn refusal(start: Result<EmbeddedServer, EmbeddedServerError>) -> String {
    match start {
        Err(EmbeddedServerError::NotReady { tails }) => tails,
        Err(other) => panic!("not even started: {other}"),
        Ok(_) => panic!("started"),
    }
}

fn client(server: &EmbeddedServer, protocol: Protocol) -> Client {
    Client::new(server.target(), protocol, Clock::system()).unwrap()
}

/// Returns the JSON of a response that must be a success.
fn done(answer: &Response) -> Value {
    assert!(answer.status.is_success(), "{} {}", answer.status, answer.text());
    answer.json().unwrap()
}

async fn get(client: &Client, path: &str) -> Value {
    done(&client.send(Request::get(path)).await.unwrap())
}

/// Creates a config map and returns it.
async fn make(client: &Client, name: &str, text: &str) -> Value {
    done(&client.send(Request::post(CONFIG_MAPS, &config_map(name, text))).await.unwrap())
}

fn config_map(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name }, "data": { "text": text },
    })
}

/// Replaces the text of a config map.
async fn rewrite(client: &Client, name: &str, text: &str) -> Value {
    let request = Request::patch(
        format!("{CONFIG_MAPS}/{name}"),
        MERGE,
        &json!({ "data": { "text": text } }),
    );
    done(&client.send(request).await.unwrap())
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// The names in a list, without what the server itself puts in every namespace.
fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    let names = items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
    names.filter(|name| name != "kube-root-ca.crt").collect()
}

/// Fills the window of a space, so that no earlier event is kept: more events than it keeps in any
/// case, and more bytes.
async fn fill_event_window(client: &Client, name: &str) {
    const EVENTS: usize = 1_100;
    const BYTES: usize = 26_000;
    for step in 0..EVENTS {
        rewrite(client, name, &format!("{step:0>BYTES$}")).await;
    }
}
