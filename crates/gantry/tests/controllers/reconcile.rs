//! Plans are executed, whatever happens to requests and responses.

use std::sync::atomic::Ordering;

use gantry_controller::{ControllerMetrics, ManagerOptions};
use http::StatusCode;
use serde_json::{Value, json};

use crate::copy_controller::{MAPS, RunningController, copies, expected_copies, map};
use crate::server::{Server, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_created_updated_and_deleted() {
    let server = Server::start().await;
    let meters = ControllerMetrics::register(&server.metrics).unwrap();
    assert_eq!(server.request("POST", MAPS, &map("a", 3, "x")).await.0, StatusCode::CREATED);
    let line = server.faulty_transport(1);
    let running =
        RunningController::start(&server, &line.client(), ManagerOptions::default(), &meters);
    running.handle.wait_for_cache_sync().await;
    wait_until("three copies", async || copies(&server).await == expected_copies("a", 3, "x"))
        .await;
    let path = format!("{MAPS}/a");
    let change = |data: Value| json!({ "data": data });
    server.request("PATCH", &path, &change(json!({ "copies": "2", "text": "y" }))).await;
    wait_until("two other copies", async || copies(&server).await == expected_copies("a", 2, "y"))
        .await;
    assert_eq!(server.request("POST", MAPS, &map("bad", 1, "")).await.0, StatusCode::CREATED);
    assert_eq!(server.request("POST", MAPS, &map("poison", 1, "")).await.0, StatusCode::CREATED);
    assert_eq!(server.request("POST", MAPS, &map("b", 60, "")).await.0, StatusCode::CREATED);
    let held = || -> Vec<_> {
        let all = running.handle.held_reasons().snapshot().into_iter();
        all.map(|it| (it.controller, it.key.name().to_owned(), it.held[0].message.clone()))
            .collect()
    };
    let bad =
        ("fan", "bad".to_owned(), "controller fan panicked on this object; see the log".to_owned());
    let many = ("fan", "b".to_owned(), "60 copies are too many".to_owned());
    wait_until("both are held", async || held().contains(&bad) && held().contains(&many)).await;
    server.request("PATCH", &format!("{MAPS}/b"), &change(json!({ "copies": "0" }))).await;
    wait_until("one is not held any more", async || held() == [bad.clone()]).await;
    server.request("DELETE", &format!("{MAPS}/a-0"), &Value::Null).await;
    wait_until("what somebody else removes comes back", async || {
        copies(&server).await == expected_copies("a", 2, "y")
    })
    .await;
    // Events are sent after the writes they are about, and do not delay anything else.
    wait_until("events are recorded", async || {
        let (_, events) =
            server.request("GET", "/api/v1/namespaces/default/events", &Value::Null).await;
        let source = json!({ "component": "fan-controller" });
        let mut events = events["items"].as_array().unwrap().iter();
        events.any(|it| it["reason"] == "Made" && it["source"] == source)
    })
    .await;
    let panicked = r#"gantry_controller_passes_total{controller="fan",result="panicked"}"#;
    wait_until("a bad one was tried", async || server.metrics.encode().unwrap().contains(panicked))
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

/// Responses are lost, requests duplicated and delayed, watches cut: the final state is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_faulty_transport_still_converges() {
    for seed in 0..5 {
        let server = Server::start().await;
        let meters = ControllerMetrics::register(&server.metrics).unwrap();
        let line = server.faulty_transport(seed);
        line.faulty.store(true, Ordering::SeqCst);
        let running =
            RunningController::start(&server, &line.client(), ManagerOptions::default(), &meters);
        let mut all = Vec::new();
        for n in 0..5 {
            let name = format!("m{n}");
            assert_eq!(
                server.request("POST", MAPS, &map(&name, 9, "x")).await.0,
                StatusCode::CREATED
            );
            let (copies, text) = (3 * n, format!("t{n}"));
            let data = json!({ "data": { "copies": copies.to_string(), "text": text } });
            assert!(server.request("PATCH", &format!("{MAPS}/{name}"), &data).await.0.is_success());
            all.extend(expected_copies(&name, copies, &text));
        }
        all.sort();
        let what = format!("all copies with seed {seed}");
        wait_until(&what, async || copies(&server).await == all).await;
        running.stop().await.unwrap();
        assert_eq!(copies(&server).await, all, "and so it stays");
    }
}
