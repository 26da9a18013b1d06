//! The client and the pools against a service on this machine that speaks the real paths and errors.

use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::{Clock, Hand};
use gantry_reconcile::{Key, Kind, Outcome, Shelf, View as _, World, Write};
use gantry_testkit::ocm::{CLUSTER, EXTERNAL, Fault, OFFLINE, Service};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::pool::{Polled, Pool};
use crate::settings::PoolKind;

async fn service(hosted: bool) -> Service {
    Service::start(hosted).await.unwrap()
}

fn ocm(service: &Service, clock: Clock) -> Ocm {
    let endpoints = Endpoints { api: service.url(), tokens: service.token_url() };
    Ocm::new(clock, endpoints, Secret::new(OFFLINE).unwrap()).unwrap()
}

async fn pools(service: &Service, clock: Clock) -> Pools {
    let ocm = ocm(service, clock);
    let cluster = ocm.cluster(EXTERNAL).await.unwrap();
    Pools::new(ocm, cluster)
}

fn found(id: &str, count: u32) -> Found {
    Found {
        id: id.to_owned(),
        instance_type: "g4dn.xlarge".to_owned(),
        replicas: Some(count),
        labels: [("a-n".to_owned(), "a-n".to_owned())].into(),
    }
}

fn request(method: Method, path: &str, body: &Value) -> Request<Bytes> {
    let request = Request::builder().method(method).uri(path);
    request.body(Bytes::from(body.to_string())).unwrap()
}

async fn served(pools: &Pools, method: Method, name: &str, body: &Value) -> (StatusCode, Value) {
    let path = format!("{}{name}?fieldManager=x", Pool::RESOURCE.collection("").unwrap());
    let reply = pools.serve(&request(method, &path, body)).await.unwrap();
    let status = reply.status();
    let body = reply.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

fn wish(name: &str, count: u32) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"a-n": "a-n"}},
        "instanceType": "g4dn.xlarge", "replicas": count,
    })
}

#[tokio::test]
async fn is_19_the_cluster_is_found_and_says_which_pools_it_has() {
    for (hosted, kind) in [(false, PoolKind::Machine), (true, PoolKind::Node)] {
        let service = service(hosted).await;
        let ocm = ocm(&service, Clock::system());
        let cluster = ocm.cluster(EXTERNAL).await.unwrap();
        assert_eq!(cluster, Cluster { id: CLUSTER.to_owned(), kind });
        let missing = ocm.cluster("00000000-0000").await.unwrap_err();
        assert!(matches!(missing, CallError::Refused { code: 404, .. }), "{missing}");
        let injected = ocm.cluster("x' or '1' = '1").await.unwrap_err();
        assert!(injected.to_string().contains("is no identity"), "{injected}");
        assert_eq!(
            service.heard()[1],
            "GET /api/clusters_mgmt/v1/clusters?search=external_id%20%3D%20%271b2c-3d%27&size=1"
        );
    }
}

#[tokio::test]
async fn a_pool_is_made_resized_and_deleted_in_the_words_of_the_service() {
    for (hosted, path) in [(false, "machine_pools"), (true, "node_pools")] {
        let service = service(hosted).await;
        let ocm = ocm(&service, Clock::system());
        let cluster = ocm.cluster(EXTERNAL).await.unwrap();
        let made = ocm.create(&cluster, &found("a-12ab", 2)).await.unwrap();
        assert_eq!(made, found("a-12ab", 2));
        let stored = service.pool("a-12ab").unwrap();
        match hosted {
            false => assert_eq!(stored["instance_type"], "g4dn.xlarge"),
            true => assert_eq!(stored["aws_node_pool"]["instance_type"], "g4dn.xlarge"),
        }
        assert_eq!(stored["labels"], json!({"a-n": "a-n"}));
        let larger = ocm.resize(&cluster, "a-12ab", 3).await.unwrap();
        assert_eq!(larger, Some(found("a-12ab", 3)));
        assert!(ocm.delete(&cluster, "a-12ab").await.unwrap());
        assert!(!ocm.delete(&cluster, "a-12ab").await.unwrap(), "it is gone");
        assert_eq!(ocm.resize(&cluster, "a-12ab", 3).await.unwrap(), None);
        let heard = service.heard();
        let root = format!("/api/clusters_mgmt/v1/clusters/{CLUSTER}/{path}");
        assert_eq!(heard[2], format!("POST {root}"));
        assert_eq!(heard[3], format!("PATCH {root}/a-12ab"));
        assert_eq!(heard[4], format!("DELETE {root}/a-12ab"));
    }
}

#[tokio::test]
async fn is_19_all_pages_are_read() {
    let service = service(false).await;
    for number in 0..250 {
        service.put(&format!("p{number:03}"), json!({"instance_type": "m", "replicas": 1}));
    }
    let ocm = ocm(&service, Clock::system());
    let cluster = ocm.cluster(EXTERNAL).await.unwrap();
    let pools = ocm.pools(&cluster).await.unwrap();
    assert_eq!(pools.len(), 250);
    let pages = service.heard().iter().filter(|it| it.contains("machine_pools?page=")).count();
    assert_eq!(pages, 3);
    // Half a list is none.
    service.fail([Fault::Nothing, Fault::Status(503, None)]);
    assert!(ocm.pools(&cluster).await.is_err());
}

#[tokio::test]
async fn is_19_tokens_are_used_while_they_last_and_replaced_once_when_they_are_not_believed() {
    let service = service(false).await;
    let hand = Hand::at(Timestamp::UNIX_EPOCH);
    let ocm = ocm(&service, hand.clock());
    let cluster = ocm.cluster(EXTERNAL).await.unwrap();
    ocm.pools(&cluster).await.unwrap();
    assert_eq!(service.tokens(), 1, "one is enough");
    // They are good for fifteen minutes, and not used in the last.
    hand.advance(Duration::from_secs(841)).await;
    ocm.pools(&cluster).await.unwrap();
    assert_eq!(service.tokens(), 2);
    service.revoke();
    ocm.pools(&cluster).await.unwrap();
    assert_eq!(service.tokens(), 3, "another was asked for");
    service.refuse_offline();
    service.revoke();
    let error = ocm.pools(&cluster).await.unwrap_err().to_string();
    assert!(error.contains("get a token") && error.contains("Invalid refresh token"), "{error}");
    assert!(!error.contains(OFFLINE) && !format!("{ocm:?}").contains(OFFLINE), "secrets are kept");
}

#[tokio::test]
async fn is_20_a_create_whose_answer_was_lost_is_found_again() {
    let service = service(true).await;
    let pools = pools(&service, Clock::system()).await;
    service.fail([Fault::Lost]);
    let (status, body) = served(&pools, Method::POST, "", &wish("a-12ab", 2)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert!(service.pool("a-12ab").is_some(), "it was done");
    let (status, body) = served(&pools, Method::POST, "", &wish("a-12ab", 2)).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    assert_eq!(body["metadata"]["name"], "a-12ab");
    assert_eq!(service.pools().len(), 1, "and not again");
    // Another's pool of that name is not taken for ours.
    service.put("b-12ab", json!({"aws_node_pool": {"instance_type": "m"}, "replicas": 9}));
    let (status, body) = served(&pools, Method::POST, "", &wish("b-12ab", 2)).await;
    assert_eq!(
        (status, &body["reason"]),
        (StatusCode::CONFLICT, &json!("AlreadyExists")),
        "{body}"
    );
}

#[tokio::test]
async fn is_20_errors_of_the_service_are_told_in_the_words_of_an_api_server() {
    let service = service(false).await;
    let pools = pools(&service, Clock::system()).await;
    let table = [
        ("too many", Fault::Status(429, Some(7)), 503, "ServiceUnavailable"),
        ("broken", Fault::Status(500, None), 503, "ServiceUnavailable"),
        ("away", Fault::Status(503, None), 503, "ServiceUnavailable"),
        ("not allowed", Fault::Status(403, None), 403, "Forbidden"),
        ("not valid", Fault::Status(400, None), 400, "Invalid"),
        ("the cluster is gone", Fault::Status(404, None), 424, "ClusterNotFound"),
        ("broken off", Fault::Closed, 503, "ServiceUnavailable"),
    ];
    for (why, fault, expected, reason) in table {
        service.fail([fault]);
        let (status, body) = served(&pools, Method::POST, "", &wish("a-12ab", 2)).await;
        assert_eq!((status.as_u16(), &body["reason"]), (expected, &json!(reason)), "{why}: {body}");
        assert!(!body.to_string().contains("access-"), "{why}: {body}");
    }
    service.fail([Fault::Status(429, Some(7))]);
    let path = Pool::RESOURCE.collection("").unwrap().to_string();
    let reply = pools.serve(&request(Method::POST, &path, &wish("a-12ab", 2))).await.unwrap();
    assert_eq!(reply.headers()["retry-after"], "7");
    let (status, body) = served(&pools, Method::DELETE, "/missing", &json!({})).await;
    assert_eq!((status, &body["details"]["name"]), (StatusCode::NOT_FOUND, &json!("missing")));
    let (status, _) = served(&pools, Method::GET, "", &json!({})).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    let elsewhere = request(Method::POST, "/api/v1/nodes", &json!({}));
    assert!(pools.serve(&elsewhere).await.is_none(), "what is not about pools goes its way");
    let namesake = request(Method::POST, &format!("{path}x"), &json!({}));
    assert!(pools.serve(&namesake).await.is_none());
}

#[tokio::test]
async fn is_20_a_service_that_does_not_answer_is_not_waited_for_without_end() {
    let service = service(false).await;
    let hand = Hand::at(Timestamp::UNIX_EPOCH);
    let pools = pools(&service, hand.clock()).await;
    service.fail([Fault::Silent]);
    let wish = wish("a-12ab", 2);
    let call = served(&pools, Method::POST, "", &wish);
    let pass = async {
        service.silent().await;
        hand.advance(Duration::from_secs(31)).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        (status, body) = call => {
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(body["message"].as_str().unwrap().contains("no answer came"), "{body}");
        }
        () = pass => panic!("nobody waits for ever"),
    }
}

/// Puts a listing on the shelves, as the shell does.
fn tell(world: &World, listing: &Listing) {
    let texts: Vec<&str> = listing.pools.iter().map(String::as_str).collect();
    let _ = world.find(&Pool::RESOURCE).unwrap().replace(&texts, listing.revision);
    world.find(&Polled::RESOURCE).unwrap().saw(&listing.polled).unwrap();
}

fn names(world: &World) -> Vec<String> {
    let shelf: &Shelf<Pool> = world.shelf();
    shelf.all().iter().map(|it| format!("{} {:?}", it.metadata.name, it.replicas)).collect()
}

#[tokio::test]
async fn what_was_written_is_known_before_and_after_the_service_lists_it() {
    let service = service(false).await;
    let pools = pools(&service, Clock::system()).await;
    let world = World::new([Kind::of::<Pool>(), Kind::of::<Polled>()]);
    service.put("worker", json!({"instance_type": "m", "autoscaling": {"min_replicas": 1}}));
    tell(&world, &pools.list().await.unwrap());
    assert_eq!(names(&world), ["worker None"]);
    assert!(crate::pool::are_known(&world));

    // Made while a list was under way that does not show it.
    let old = pools.list().await.unwrap();
    let (_, made) = served(&pools, Method::POST, "", &wish("a-12ab", 2)).await;
    let write = Write::Create { resource: Pool::RESOURCE, body: wish("a-12ab", 2) };
    assert_eq!(world.learn(&write, &Outcome::Done(Some(made))).len(), 1);
    tell(&world, &old);
    assert_eq!(names(&world), ["a-12ab Some(2)", "worker None"]);
    tell(&world, &pools.list().await.unwrap());
    assert_eq!(names(&world), ["a-12ab Some(2)", "worker None"]);

    // Resized elsewhere, and taken away elsewhere.
    service.put("a-12ab", json!({"instance_type": "m", "replicas": 5, "labels": {"a-n": "a-n"}}));
    tell(&world, &pools.list().await.unwrap());
    assert_eq!(names(&world), ["a-12ab Some(5)", "worker None"]);
    let pool = world.shelf::<Pool>().get(&Key::cluster("a-12ab")).unwrap();
    let uid = json!({"preconditions": {"uid": pool.metadata.uid.as_str()}});
    let (status, _) = served(&pools, Method::DELETE, "/a-12ab", &uid).await;
    assert_eq!(status, StatusCode::OK);
    tell(&world, &pools.list().await.unwrap());
    assert_eq!(names(&world), ["worker None"]);
    let other = json!({"preconditions": {"uid": "other/worker"}});
    let (status, _) = served(&pools, Method::DELETE, "/worker", &other).await;
    assert_eq!(status, StatusCode::CONFLICT, "it is another than the one that was meant");
}

#[tokio::test]
async fn the_service_is_asked_again_and_again_whatever_it_answers() {
    let service = service(false).await;
    let hand = Hand::at(Timestamp::UNIX_EPOCH);
    let pools = pools(&service, hand.clock()).await;
    service.fail([Fault::Status(500, None), Fault::Status(429, Some(90)), Fault::Nothing]);
    let (told, stop) = (std::sync::Mutex::new(0), CancellationToken::new());
    let clock = hand.clock();
    let tell = |_: Listing| {
        *told.lock().unwrap() += 1;
        stop.cancel();
    };
    let follow = pools.follow(&clock, Duration::from_secs(30), tell, &stop);
    let pass = async {
        loop {
            // Whoever waits, waits for the clock or for the service.
            tokio::task::yield_now().await;
            if let Some(next) = hand.next_deadline() {
                let _ = next;
                hand.advance(Duration::from_secs(5)).await;
            }
        }
    };
    tokio::select! {
        () = follow => {}
        () = pass => {}
    }
    assert_eq!(*told.lock().unwrap(), 1);
}
