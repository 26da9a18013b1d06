//! Plans are carried out, whatever becomes of requests and replies.

use std::sync::atomic::Ordering;

use gantry_controller::{Meters, Options};
use http::StatusCode;
use serde_json::{Value, json};

use crate::fan::{MAPS, Running, copies, map, wanted};
use crate::server::{Server, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wanted_is_made_changed_and_removed() {
    let server = Server::start().await;
    let meters = Meters::register(&server.metrics).unwrap();
    assert_eq!(server.ask("POST", MAPS, &map("a", 3, "x")).await.0, StatusCode::CREATED);
    let line = server.line(1);
    let running = Running::start(&server, &line.client(), Options::default(), &meters);
    running.handle.filled().await;
    until("three copies", async || copies(&server).await == wanted("a", 3, "x")).await;
    let path = format!("{MAPS}/a");
    let change = |data: Value| json!({ "data": data });
    server.ask("PATCH", &path, &change(json!({ "copies": "2", "text": "y" }))).await;
    until("two other copies", async || copies(&server).await == wanted("a", 2, "y")).await;
    assert_eq!(server.ask("POST", MAPS, &map("bad", 1, "")).await.0, StatusCode::CREATED);
    assert_eq!(server.ask("POST", MAPS, &map("poison", 1, "")).await.0, StatusCode::CREATED);
    assert_eq!(server.ask("POST", MAPS, &map("b", 60, "")).await.0, StatusCode::CREATED);
    let held = || -> Vec<_> {
        let all = running.handle.ledger().snapshot().into_iter();
        all.map(|it| (it.controller, it.key.name().to_owned(), it.held[0].message.clone()))
            .collect()
    };
    let bad = ("fan", "bad".to_owned(), "fan cannot plan it: see its log".to_owned());
    let many = ("fan", "b".to_owned(), "60 copies are too many".to_owned());
    until("both are held", async || held().contains(&bad) && held().contains(&many)).await;
    server.ask("PATCH", &format!("{MAPS}/b"), &change(json!({ "copies": "0" }))).await;
    until("one is not held any more", async || held() == [bad.clone()]).await;
    server.ask("DELETE", &format!("{MAPS}/a-0"), &Value::Null).await;
    until("what somebody else removes comes back", async || {
        copies(&server).await == wanted("a", 2, "y")
    })
    .await;
    // Events are told after the writes they are about, and not before anything else goes on.
    until("events are told", async || {
        let (_, events) =
            server.ask("GET", "/api/v1/namespaces/default/events", &Value::Null).await;
        let source = json!({ "component": "fan-controller" });
        let mut events = events["items"].as_array().unwrap().iter();
        events.any(|it| it["reason"] == "Made" && it["source"] == source)
    })
    .await;
    let panicked = r#"gantry_controller_passes_total{controller="fan",result="panicked"}"#;
    until("a bad one was tried", async || server.metrics.encode().unwrap().contains(panicked))
        .await;
    running.stop().await.unwrap();
    let page = server.metrics.encode().unwrap();
    for line in [
        r#"gantry_controller_writes_total{controller="fan",verb="patch",outcome="done"} 2"#,
        r#"gantry_controller_writes_total{controller="fan",verb="delete",outcome="done"} 1"#,
        r#"gantry_controller_held{controller="fan"} 1"#,
    ] {
        assert!(page.contains(line), "no {line} in\n{page}");
    }
    assert_eq!(line.count("GET /api/v1/configmaps?limit"), 1, "one list is enough");
}

/// Replies are lost, requests doubled and delayed, watches cut: the end is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_line_changes_nothing_about_the_end() {
    for seed in 0..5 {
        let server = Server::start().await;
        let meters = Meters::register(&server.metrics).unwrap();
        let line = server.line(seed);
        line.faulty.store(true, Ordering::SeqCst);
        let running = Running::start(&server, &line.client(), Options::default(), &meters);
        let mut all = Vec::new();
        for n in 0..5 {
            let name = format!("m{n}");
            assert_eq!(server.ask("POST", MAPS, &map(&name, 9, "x")).await.0, StatusCode::CREATED);
            let (copies, text) = (3 * n, format!("t{n}"));
            let data = json!({ "data": { "copies": copies.to_string(), "text": text } });
            assert!(server.ask("PATCH", &format!("{MAPS}/{name}"), &data).await.0.is_success());
            all.extend(wanted(&name, copies, &text));
        }
        all.sort();
        let what = format!("all copies with seed {seed}");
        until(&what, async || copies(&server).await == all).await;
        running.stop().await.unwrap();
        assert_eq!(copies(&server).await, all, "and so it stays");
    }
}
