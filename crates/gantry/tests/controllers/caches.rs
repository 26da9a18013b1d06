//! Caches stay consistent with the server through everything that ends a watch.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use gantry_controller::{ControllerMetrics, Filter, ManagerOptions};
use gantry_reconcile::{Kind, Meta, Resource, StoreId, View};
use serde_json::{Value, json};

use crate::copy_controller::{MAPS, Map, RunningController, map};
use crate::server::{Server, wait_until};

/// Returns the names in the cache of a manager, without the copies.
fn names(running: &RunningController) -> Vec<String> {
    let maps = running.handle.world().store::<Map>().in_namespace("default");
    let own = maps.iter().filter(|it| it.data.contains_key("copies"));
    own.map(|it| it.metadata.name.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_too_old_is_followed_by_a_list() {
    let server = Server::start().await;
    let meters = ControllerMetrics::register(&server.metrics).unwrap();
    let line = server.faulty_transport(1);
    line.expired.store(2, Ordering::SeqCst);
    server.request("POST", MAPS, &map("a", 0, "")).await;
    let running =
        RunningController::start(&server, &line.client(), ManagerOptions::default(), &meters);
    running.handle.wait_for_cache_sync().await;
    wait_until("two lists more", async || line.count("GET /api/v1/configmaps?limit") == 3).await;
    server.request("POST", MAPS, &map("b", 0, "")).await;
    server.request("DELETE", &format!("{MAPS}/a"), &Value::Null).await;
    wait_until("it follows again", async || names(&running) == ["b"]).await;
    assert_eq!(line.count("GET /api/v1/configmaps?limit"), 3, "and lists no more");
    assert!(running.handle.unsynced_kinds().is_empty());
    wait_until("nothing is wrong any more", async || running.handle.cache_errors().is_empty())
        .await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_watches_resume_where_they_stopped() {
    let server = Server::start().await;
    let meters = ControllerMetrics::register(&server.metrics).unwrap();
    let line = server.faulty_transport(7);
    line.cut_watches.store(true, Ordering::SeqCst);
    let running =
        RunningController::start(&server, &line.client(), ManagerOptions::default(), &meters);
    running.handle.wait_for_cache_sync().await;
    for n in 0..40 {
        server.request("POST", MAPS, &map(&format!("m{n:02}"), 0, "")).await;
        if n % 3 == 0 {
            server.request("DELETE", &format!("{MAPS}/m{n:02}"), &Value::Null).await;
        }
        // One at a time, so that there are many watches to cut.
        wait_until("it is seen", async || {
            names(&running).contains(&format!("m{n:02}")) == (n % 3 != 0)
        })
        .await;
    }
    let expected: Vec<_> = (0..40).filter(|n| n % 3 != 0).map(|n| format!("m{n:02}")).collect();
    wait_until("all of it is seen", async || names(&running) == expected).await;
    assert!(line.count("GET /api/v1/configmaps?watch") > 10, "many watches were cut");
    assert_eq!(line.count("GET /api/v1/configmaps?limit"), 1, "no list was needed");
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_paginated_and_filtered() {
    let server = Server::start().await;
    let meters = ControllerMetrics::register(&server.metrics).unwrap();
    for n in 0..1100 {
        let mut object = map(&format!("m{n:04}"), 0, "");
        object["metadata"]["labels"] = json!({ "odd": (n % 2 == 1).to_string() });
        server.request("POST", MAPS, &object).await;
    }
    let line = server.faulty_transport(1);
    let running =
        RunningController::start(&server, &line.client(), ManagerOptions::default(), &meters);
    running.handle.wait_for_cache_sync().await;
    assert_eq!(names(&running).len(), 1100);
    assert_eq!(line.count("GET /api/v1/configmaps?limit=500"), 3);
    running.stop().await.unwrap();
    let odd = Filter { labels: "odd in (true)".to_owned(), ..Filter::default() };
    let options = ManagerOptions {
        filters: BTreeMap::from([(StoreId::of::<Map>(), odd)]),
        ..ManagerOptions::default()
    };
    let running = RunningController::start(&server, &line.client(), options, &meters);
    running.handle.wait_for_cache_sync().await;
    assert_eq!(names(&running).len(), 550);
    let path = format!("{MAPS}/m0001");
    let even = json!({ "metadata": { "labels": { "odd": "false" } } });
    server.request("PATCH", &path, &even).await;
    wait_until("what no longer fits goes", async || names(&running).len() == 549).await;
    running.stop().await.unwrap();
}

/// The same kind, of which others cache everything.
#[derive(Debug, serde::Deserialize)]
struct UnfilteredMap {
    metadata: Meta,
}

impl View for UnfilteredMap {
    const RESOURCE: Resource = Map::RESOURCE;
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_may_be_followed_later_and_beside_others() {
    let server = Server::start().await;
    let meters = ControllerMetrics::register(&server.metrics).unwrap();
    for n in 0..4 {
        let mut object = map(&format!("m{n}"), 0, "");
        object["metadata"]["labels"] = json!({ "odd": (n % 2 == 1).to_string() });
        server.request("POST", MAPS, &object).await;
    }
    let line = server.faulty_transport(1);
    let running =
        RunningController::start(&server, &line.client(), ManagerOptions::default(), &meters);
    running.handle.wait_for_cache_sync().await;
    assert_eq!(names(&running).len(), 4);
    let odd = Filter { labels: "odd=true".to_owned(), ..Filter::default() };
    let kind = Kind::with_resource::<UnfilteredMap>(Map::RESOURCE);
    running.handle.add_watch("fan", &kind, odd.clone()).await.unwrap();
    let seen = || running.handle.world().store_for::<UnfilteredMap>(&Map::RESOURCE).unwrap().len();
    assert_eq!((names(&running).len(), seen()), (4, 2), "each sees what it asked for");
    running.handle.add_watch("fan", &kind, odd.clone()).await.unwrap();
    let lists = line.count("GET /api/v1/configmaps?limit=500&labelSelector=odd%3Dtrue");
    assert_eq!(lists, 1, "what is followed is not followed again");
    let even = json!({ "metadata": { "labels": { "odd": "true" } } });
    server.request("PATCH", &format!("{MAPS}/m0"), &even).await;
    wait_until("what fits now comes", async || seen() == 3).await;
    let handle = running.handle.clone();
    running.stop().await.unwrap();
    let other =
        Kind::with_resource::<UnfilteredMap>(Resource::namespaced("", "v1", "secrets", "Secret"));
    assert!(handle.add_watch("fan", &other, odd).await.is_err(), "nobody is there any more");
}
