//! Expired revisions.

use std::time::Duration;

use gantry_testkit::http::{Protocol, Request};
use serde_json::{Value, json};

use super::{
    CONFIG_MAPS, SECRETS, client, done, fill_event_window, get, make, names, plan, revision,
};

const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn expired_revisions_return_410() {
    let server = plan().flag("--ephemeral").start(&gantry_process::clock::Clock::system()).await;
    let server = server.unwrap();
    let client = client(&server, Protocol::Http2);
    for name in ["a", "b", "c", "d", "e"] {
        make(&client, name, "").await;
    }
    let first = get(&client, &format!("{CONFIG_MAPS}?limit=2")).await;
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let then = revision(&first);
    assert_eq!(names(&first), ["a", "b"]);
    let second = get(&client, &format!("{CONFIG_MAPS}?limit=2&continue={token}")).await;
    assert_eq!((names(&second), revision(&second)), (vec!["c".to_owned(), "d".to_owned()], then));

    make(&client, "b2", "").await;
    make(&client, "d2", "").await;
    fill_event_window(&client, "a").await;

    let gone = client.send(Request::get(format!("{CONFIG_MAPS}?limit=2&continue={token}"))).await;
    let gone = gone.unwrap();
    assert_eq!(gone.status, 410, "{}", gone.text());
    let status = gone.json().unwrap();
    assert_eq!(status["reason"], "Expired");
    let fresh = status["metadata"]["continue"].as_str().unwrap();
    let rest = get(&client, &format!("{CONFIG_MAPS}?continue={fresh}")).await;
    // Continues where the first page ended, with the current objects.
    let mut found = vec!["b2", "c", "d", "d2", "e"];
    assert_eq!(names(&rest), found);
    assert!(revision(&rest) > then);
    // A page of such a list leads on, at one revision from here.
    let page = get(&client, &format!("{CONFIG_MAPS}?limit=3&continue={fresh}")).await;
    let next = page["metadata"]["continue"].as_str().unwrap();
    let last = get(&client, &format!("{CONFIG_MAPS}?limit=3&continue={next}")).await;
    let pages: Vec<_> = names(&page).into_iter().chain(names(&last)).collect();
    found.retain(|name| pages.contains(&(*name).to_owned()));
    assert_eq!(pages, found);
    assert_eq!(pages.len(), 5);

    let exact = format!("{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    let exact = client.send(Request::get(exact)).await.unwrap();
    assert_eq!(exact.status, 410);
    assert_eq!(
        exact.json().unwrap()["message"],
        "The resourceVersion for the provided list is too old."
    );

    let watch = Request::get(format!("{CONFIG_MAPS}?watch=1&resourceVersion={then}"));
    let mut watch = client.open(watch).await.unwrap();
    assert_eq!(watch.status, 200);
    let line = watch.next_line(CONDITION_TIMEOUT).await.unwrap().unwrap();
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!((&line["type"], &line["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(line["object"]["reason"], "Expired");
    let words = line["object"]["message"].as_str().unwrap();
    assert!(words.starts_with(&format!("too old resource version: {then} (")), "{words}");
    assert_eq!(watch.next_line(CONDITION_TIMEOUT).await.unwrap(), None, "that is all");

    // Another collection is not affected by it.
    let watch = Request::get(format!("{SECRETS}?watch=1&resourceVersion={then}"));
    let mut watch = client.open(watch).await.unwrap();
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" } });
    done(&client.send(Request::post(SECRETS, &secret)).await.unwrap());
    let line = watch.next_line(CONDITION_TIMEOUT).await.unwrap().unwrap();
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(line["type"], "ADDED", "{line}");
}
