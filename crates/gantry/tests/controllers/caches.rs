//! Caches follow the server through everything that ends a watch.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use gantry_controller::{Filter, Meters, Options};
use gantry_reconcile::{Kind, Meta, Place, Resource, View};
use serde_json::{Value, json};

use crate::fan::{MAPS, Map, Running, map};
use crate::server::{Server, until};

/// The names in the cache of a shell, without the copies.
fn names(running: &Running) -> Vec<String> {
    let maps = running.handle.world().shelf::<Map>().within("default");
    let own = maps.iter().filter(|it| it.data.contains_key("copies"));
    own.map(|it| it.metadata.name.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_too_old_is_followed_by_a_list() {
    let server = Server::start().await;
    let meters = Meters::register(&server.metrics).unwrap();
    let line = server.line(1);
    line.expired.store(2, Ordering::SeqCst);
    server.ask("POST", MAPS, &map("a", 0, "")).await;
    let running = Running::start(&server, &line.client(), Options::default(), &meters);
    running.handle.filled().await;
    until("two lists more", async || line.count("GET /api/v1/configmaps?limit") == 3).await;
    server.ask("POST", MAPS, &map("b", 0, "")).await;
    server.ask("DELETE", &format!("{MAPS}/a"), &Value::Null).await;
    until("it follows again", async || names(&running) == ["b"]).await;
    assert_eq!(line.count("GET /api/v1/configmaps?limit"), 3, "and lists no more");
    assert!(running.handle.missing().is_empty());
    until("nothing is wrong any more", async || running.handle.troubles().is_empty()).await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_end_are_taken_up_where_they_stopped() {
    let server = Server::start().await;
    let meters = Meters::register(&server.metrics).unwrap();
    let line = server.line(7);
    line.short.store(true, Ordering::SeqCst);
    let running = Running::start(&server, &line.client(), Options::default(), &meters);
    running.handle.filled().await;
    for n in 0..40 {
        server.ask("POST", MAPS, &map(&format!("m{n:02}"), 0, "")).await;
        if n % 3 == 0 {
            server.ask("DELETE", &format!("{MAPS}/m{n:02}"), &Value::Null).await;
        }
        // One at a time, so that there are many to cut.
        until("it is seen", async || names(&running).contains(&format!("m{n:02}")) == (n % 3 != 0))
            .await;
    }
    let expected: Vec<_> = (0..40).filter(|n| n % 3 != 0).map(|n| format!("m{n:02}")).collect();
    until("all of it is seen", async || names(&running) == expected).await;
    assert!(line.count("GET /api/v1/configmaps?watch") > 10, "many watches were cut");
    assert_eq!(line.count("GET /api/v1/configmaps?limit"), 1, "no list was needed");
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_come_in_pages_and_filters_hold() {
    let server = Server::start().await;
    let meters = Meters::register(&server.metrics).unwrap();
    for n in 0..1100 {
        let mut object = map(&format!("m{n:04}"), 0, "");
        object["metadata"]["labels"] = json!({ "odd": (n % 2 == 1).to_string() });
        server.ask("POST", MAPS, &object).await;
    }
    let line = server.line(1);
    let running = Running::start(&server, &line.client(), Options::default(), &meters);
    running.handle.filled().await;
    assert_eq!(names(&running).len(), 1100);
    assert_eq!(line.count("GET /api/v1/configmaps?limit=500"), 3);
    running.stop().await.unwrap();
    let odd = Filter { labels: "odd in (true)".to_owned(), ..Filter::default() };
    let options =
        Options { filters: BTreeMap::from([(Place::of::<Map>(), odd)]), ..Options::default() };
    let running = Running::start(&server, &line.client(), options, &meters);
    running.handle.filled().await;
    assert_eq!(names(&running).len(), 550);
    let path = format!("{MAPS}/m0001");
    let even = json!({ "metadata": { "labels": { "odd": "false" } } });
    server.ask("PATCH", &path, &even).await;
    until("what no longer fits goes", async || names(&running).len() == 549).await;
    running.stop().await.unwrap();
}

/// The same kind, of which others see everything.
#[derive(Debug, serde::Deserialize)]
struct Odd {
    metadata: Meta,
}

impl View for Odd {
    const RESOURCE: Resource = Map::RESOURCE;
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_may_be_followed_later_and_beside_others() {
    let server = Server::start().await;
    let meters = Meters::register(&server.metrics).unwrap();
    for n in 0..4 {
        let mut object = map(&format!("m{n}"), 0, "");
        object["metadata"]["labels"] = json!({ "odd": (n % 2 == 1).to_string() });
        server.ask("POST", MAPS, &object).await;
    }
    let line = server.line(1);
    let running = Running::start(&server, &line.client(), Options::default(), &meters);
    running.handle.filled().await;
    assert_eq!(names(&running).len(), 4);
    let odd = Filter { labels: "odd=true".to_owned(), ..Filter::default() };
    let kind = Kind::at::<Odd>(Map::RESOURCE);
    running.handle.follow("fan", &kind, odd.clone()).await.unwrap();
    let seen = || running.handle.world().shelf_at::<Odd>(&Map::RESOURCE).unwrap().len();
    assert_eq!((names(&running).len(), seen()), (4, 2), "each sees what it asked for");
    running.handle.follow("fan", &kind, odd.clone()).await.unwrap();
    let lists = line.count("GET /api/v1/configmaps?limit=500&labelSelector=odd%3Dtrue");
    assert_eq!(lists, 1, "what is followed is not followed again");
    let even = json!({ "metadata": { "labels": { "odd": "true" } } });
    server.ask("PATCH", &format!("{MAPS}/m0"), &even).await;
    until("what fits now comes", async || seen() == 3).await;
    let handle = running.handle.clone();
    running.stop().await.unwrap();
    let other = Kind::at::<Odd>(Resource::namespaced("", "v1", "secrets", "Secret"));
    assert!(handle.follow("fan", &other, odd).await.is_err(), "nobody is there any more");
}
