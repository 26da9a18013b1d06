//! Errors of clients are reported as a real server reports them.
//!
//! A server error for what a client sent is a bug of the server, except where Kubernetes itself
//! responds so and clients may depend on it.

use http::StatusCode;
use serde_json::{Value, json};

use crate::Server;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn server_with_config_map() -> Server {
    let server = Server::start().await;
    let map = json!({ "metadata": { "name": "a" } });
    let (status, answer) = server.send_request("POST", MAPS, JSON, map).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    server
}

#[tokio::test]
async fn invalid_resource_versions_are_refused() {
    let server = server_with_config_map().await;
    let fault = "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": \
                 invalid syntax";
    let of_list = format!("invalid resource version: {fault}");
    let table = [
        ("a list", "GET", "?resourceVersion=abc", 400, of_list.as_str()),
        ("a page", "GET", "?resourceVersion=abc&limit=1", 400, &of_list),
        ("a deletion of all", "DELETE", "?resourceVersion=abc", 400, &of_list),
        ("a watch", "GET", "?resourceVersion=abc&watch=1", 400, fault),
        ("an object", "GET", "/a?resourceVersion=abc", 400, fault),
    ];
    for (why, method, rest, code, message) in table {
        let (status, answer) =
            server.send_request(method, &format!("{MAPS}{rest}"), JSON, "").await;
        assert_eq!(status.as_u16(), code, "{why}: {answer}");
        assert_eq!(answer["message"], message, "{why}");
    }
}

/// The internal errors of Kubernetes that clients can cause.
#[tokio::test]
async fn some_client_errors_are_internal_errors_as_in_kubernetes() {
    let server = server_with_config_map().await;
    let table: [(&str, &str, &str, &str, Value, &str); 5] = [
        (
            "a new object with a revision",
            "POST",
            "",
            JSON,
            json!({ "metadata": { "name": "b", "resourceVersion": "5" } }),
            "resourceVersion should not be set on objects to be created",
        ),
        (
            "an update with a revision that is none",
            "PATCH",
            "/a",
            MERGE,
            json!({ "metadata": { "resourceVersion": "what" } }),
            "strconv.ParseUint: parsing \"what\": invalid syntax",
        ),
        (
            "a config of another shape",
            "PATCH",
            "/a?fieldManager=m",
            APPLY,
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": [1] }),
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): .data: expected map, \
             got &{[1]}",
        ),
        (
            "a directive that is none",
            "PATCH",
            "/a",
            STRATEGIC,
            json!({ "$patch": "nonsense" }),
            "unknown patch type: nonsense in map: map[$patch:nonsense]",
        ),
        (
            "an order that is no list",
            "PATCH",
            "/a",
            STRATEGIC,
            json!({ "metadata": { "$setElementOrder/finalizers": 1 } }),
            "expected a []interface {}, but received a int64",
        ),
    ];
    for (why, method, rest, content, body, message) in table {
        let (status, answer) =
            server.send_request(method, &format!("{MAPS}{rest}"), content, body).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{why}: {answer}");
        assert_eq!(answer["message"], message, "{why}");
    }
}

/// An object grows by what the server adds to it and by patches, so its size counts, not that of
/// the request.
#[tokio::test]
async fn an_oversized_update_is_refused_and_the_old_object_stays() {
    let server = Server::start().await;
    let text = "x".repeat(800 * 1024);
    let kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({
        "metadata": { "name": "blobs.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "blobs", "kind": "Blob" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": { "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true },
            } }],
        },
    });
    let (status, answer) = server.send_request("POST", kinds, JSON, definition).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let blobs = "/apis/example.com/v1/namespaces/default/blobs";
    let blob = json!({ "apiVersion": "example.com/v1", "kind": "Blob",
        "metadata": { "name": "a" }, "one": text });
    let (status, answer) = server.send_request("POST", blobs, JSON, blob).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let blob = format!("{blobs}/a");
    let (status, answer) = server.send_request("PATCH", &blob, MERGE, json!({ "two": text })).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{answer}");
    let words = answer["message"].as_str().unwrap();
    assert!(words.contains("the limit is 1572864; split it"), "{words}");
    let (_, answer) = server.send_request("GET", &blob, JSON, "").await;
    assert_eq!((answer["one"].as_str(), answer.get("two")), (Some(text.as_str()), None));
}
