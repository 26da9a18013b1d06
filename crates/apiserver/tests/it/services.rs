//! Addresses and ports of services are released however a write ends.

use std::collections::BTreeSet;
use std::future::Future as _;
use std::net::Ipv4Addr;
use std::task::Poll;

use bytes::Bytes;
use gantry_apiserver::Caller;
use http::{Request, StatusCode};
use serde_json::{Value, json};

use crate::Server;

const SERVICES: &str = "/api/v1/namespaces/default/services";
/// A network of sixteen addresses: without the first, the last, and the server's.
const FREE_ADDRESSES: usize = 13;
/// More writes than there are addresses.
const WRITE_ATTEMPTS: usize = 3 * FREE_ADDRESSES;
const JSON: &str = "application/json";

async fn server_with_small_network() -> Server {
    Server::start_with(|settings| {
        settings.service_network = (Ipv4Addr::new(10, 96, 0, 0), 28);
    })
    .await
}

fn service(name: &str, spec: &Value) -> Value {
    let mut service =
        json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } });
    for (field, value) in spec.as_object().unwrap() {
        service["spec"][field] = value.clone();
    }
    service
}

/// Creates services until there are no addresses left, and returns the addresses.
async fn exhaust(server: &Server) -> BTreeSet<String> {
    let mut addresses = BTreeSet::new();
    for nth in 0.. {
        let object = service(&format!("filler-{nth}"), &json!({}));
        let (status, answer) = server.send_request("POST", SERVICES, JSON, object).await;
        if status != StatusCode::CREATED {
            assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
            let full = "Internal error occurred: failed to allocate a serviceIP: range is full";
            assert_eq!(answer["message"], full);
            break;
        }
        let address = answer["spec"]["clusterIP"].as_str().unwrap().to_owned();
        assert!(addresses.insert(address), "twice: {answer}");
    }
    addresses
}

#[tokio::test]
async fn refused_writes_leave_every_address_free() {
    let server = server_with_small_network().await;
    let (status, _) =
        server.send_request("POST", SERVICES, JSON, service("there", &json!({}))).await;
    assert_eq!(status, StatusCode::CREATED);
    let place = json!({ "metadata": { "name": "full" } });
    server.send_request("POST", "/api/v1/namespaces", JSON, place).await;
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "services": "0" } } });
    server.send_request("POST", "/api/v1/namespaces/full/resourcequotas", JSON, quota).await;
    let bad_port = json!({ "type": "NodePort", "ports": [{ "port": 80, "targetPort": "~" }] });
    let second_refused = json!({ "type": "NodePort", "ports": [
        { "name": "a", "port": 80, "nodePort": 30_080 }, { "name": "b", "port": 81, "nodePort": 80 },
    ] });
    let elsewhere = "/api/v1/namespaces/full/services";
    let dry = format!("{SERVICES}?dryRun=All");
    let name = |nth: usize| format!("new-{nth}");
    for nth in 0..WRITE_ATTEMPTS {
        for (why, path, object, code) in [
            ("validation", SERVICES, service(&name(nth), &bad_port), 422),
            ("allocation", SERVICES, service(&name(nth), &second_refused), 422),
            ("conflict", SERVICES, service("there", &json!({ "type": "NodePort" })), 409),
            ("quota", elsewhere, service(&name(nth), &json!({ "type": "NodePort" })), 403),
            ("no namespace", "/api/v1/namespaces/none/services", service("a", &json!({})), 404),
            ("dry run", dry.as_str(), service(&name(nth), &json!({ "type": "NodePort" })), 201),
        ] {
            let (status, answer) = server.send_request("POST", path, JSON, object).await;
            assert_eq!(status, code, "{why}: {answer}");
        }
        let external = json!({ "spec": { "type": "ExternalName", "externalName": "~" } });
        let moved = json!({ "spec": { "clusterIP": format!("10.96.0.{}", 2 + nth % 12) } });
        for change in [external, moved, json!({ "spec": bad_port })] {
            let path = format!("{SERVICES}/there");
            let merge = "application/merge-patch+json";
            let (status, answer) = server.send_request("PATCH", &path, merge, &change).await;
            // The address that it already has is no change.
            assert!(status == 422 || status == 200, "{change}: {answer}");
        }
    }
    let (status, answer) = server
        .send_request(
            "POST",
            SERVICES,
            JSON,
            service(
                "port",
                &json!({
                    "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30_080 }],
                }),
            ),
        )
        .await;
    assert_eq!(status, StatusCode::CREATED, "the port was never used: {answer}");
    assert_eq!(exhaust(&server).await.len(), FREE_ADDRESSES - 2);
}

#[tokio::test]
async fn released_addresses_are_free_and_kept_ones_are_not() {
    let server = server_with_small_network().await;
    let all = exhaust(&server).await;
    assert_eq!(all.len(), FREE_ADDRESSES);
    let path = format!("{SERVICES}/filler-3");
    let external = json!({ "spec": { "type": "ExternalName", "externalName": "a.test" } });
    let (status, answer) =
        server.send_request("PATCH", &path, "application/merge-patch+json", external).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(
        server.send_request("DELETE", &format!("{SERVICES}/filler-4"), JSON, "").await.0,
        200
    );
    let mut free = BTreeSet::new();
    for nth in 0..3 {
        let object = service(&format!("again-{nth}"), &json!({}));
        let (status, answer) = server.send_request("POST", SERVICES, JSON, object).await;
        assert_eq!(status == StatusCode::CREATED, nth < 2, "{answer}");
        free.extend(answer["spec"]["clusterIP"].as_str().map(str::to_owned));
    }
    assert!(free.len() == 2 && free.is_subset(&all), "{free:?}");
}

/// A request that is dropped after any number of polls leaves a service with its address, or
/// neither.
#[tokio::test]
async fn cancelled_requests_release_their_addresses() {
    let server = server_with_small_network().await;
    for nth in 0..WRITE_ATTEMPTS {
        let object = service(&format!("dropped-{nth}"), &json!({ "type": "NodePort" }));
        let request = Request::post(SERVICES).header("content-type", JSON);
        let request = request.body(Bytes::from(object.to_string())).unwrap();
        let mut answer = Box::pin(server.api.handle(request, Some(Caller::server())));
        for _ in 0..=nth % 4 {
            let step = std::future::poll_fn(|it| Poll::Ready(answer.as_mut().poll(it)));
            if step.await.is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(answer);
        // Makes sure that the store has decided all submitted writes.
        let map = json!({ "metadata": { "name": format!("after-{nth}") } });
        server.send_request("POST", "/api/v1/namespaces/default/configmaps", JSON, map).await;
        let (_, list) = server.send_request("GET", SERVICES, JSON, "").await;
        let stored: Vec<&Value> =
            list["items"].as_array().unwrap().iter().map(|it| &it["spec"]["clusterIP"]).collect();
        let distinct: BTreeSet<_> = stored.iter().map(|it| it.to_string()).collect();
        assert_eq!(distinct.len(), stored.len(), "each has its own: {stored:?}");
        // The stored services are deleted, so that every round starts the same.
        server.send_request("DELETE", &format!("{SERVICES}/dropped-{nth}"), JSON, "").await;
    }
    assert_eq!(exhaust(&server).await.len(), FREE_ADDRESSES);
}
