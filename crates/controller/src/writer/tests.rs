use std::time::Duration;

use bytes::Bytes;
use gantry_reconcile::write::PODS;
use gantry_reconcile::{
    Fence, Key, Outcome, Propagation, Refusal, Resource, Revision, Subresource, Uid, Write,
};
use http::StatusCode;
use serde_json::{Value, json};

use super::*;
use crate::api_request::ApiResponse;

fn fence(revision: Option<u64>) -> Fence {
    Fence { uid: Uid::new("u-1"), revision: revision.map(Revision) }
}

fn merge(part: Subresource, revision: Option<u64>) -> Write {
    Write::Merge {
        resource: PODS.clone(),
        key: Key::new("n", "a"),
        subresource: part,
        fence: fence(revision),
        body: json!({ "metadata": { "labels": { "x": null } } }),
    }
}

fn delete(grace: Option<u32>, propagation: Option<Propagation>) -> Write {
    let (resource, key) = (Resource::namespaced("apps", "v1", "deployments", "Deployment"), "a");
    let (key, fence) = (Key::new("n", key), fence(grace.map(u64::from)));
    Write::Delete { resource, key, fence, grace, propagation }
}

/// Each write as the request that a server receives.
#[test]
fn writes_become_api_requests() {
    let nodes = Resource::namespaced("", "v1", "nodes", "Node").cluster_scoped();
    let bare = Resource::namespaced("", "v1", "configmaps", "ConfigMap").without_status();
    let apply = |resource: &Resource, key: Key, part, fence| Write::Apply {
        resource: resource.clone(),
        key,
        subresource: part,
        fence,
        body: json!({ "data": { "k": "v" } }),
    };
    let create = |resource: &Resource, body| Write::Create { resource: resource.clone(), body };
    let table = [
        (
            create(&PODS, json!({ "metadata": { "name": "a", "namespace": "n" } })),
            "POST /api/v1/namespaces/n/pods?fieldManager=me%2F1 application/json",
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "namespace": "n" } }),
        ),
        (
            create(
                &nodes,
                json!({ "kind": "Node", "apiVersion": "v1", "metadata": { "name": "a" } }),
            ),
            "POST /api/v1/nodes?fieldManager=me%2F1 application/json",
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a" } }),
        ),
        (
            merge(Subresource::Main, Some(7)),
            "PATCH /api/v1/namespaces/n/pods/a?fieldManager=me%2F1 application/merge-patch+json",
            json!({ "metadata": { "labels": { "x": null }, "uid": "u-1", "resourceVersion": "7" } }),
        ),
        (
            merge(Subresource::Status, None),
            "PATCH /api/v1/namespaces/n/pods/a/status?fieldManager=me%2F1 application/merge-patch+json",
            json!({ "metadata": { "labels": { "x": null }, "uid": "u-1" } }),
        ),
        (
            apply(&bare, Key::new("n", "a"), Subresource::Status, None),
            "PATCH /api/v1/namespaces/n/configmaps/a?fieldManager=me%2F1&force=true application/apply-patch+yaml",
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": { "k": "v" },
                "metadata": { "name": "a", "namespace": "n" },
            }),
        ),
        (
            apply(&nodes, Key::cluster("a"), Subresource::Status, Some(fence(Some(9)))),
            "PATCH /api/v1/nodes/a/status?fieldManager=me%2F1&force=true application/apply-patch+yaml",
            json!({
                "apiVersion": "v1", "kind": "Node", "data": { "k": "v" },
                "metadata": { "name": "a", "uid": "u-1", "resourceVersion": "9" },
            }),
        ),
        (
            delete(None, None),
            "DELETE /apis/apps/v1/namespaces/n/deployments/a application/json",
            json!({ "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": { "uid": "u-1" } }),
        ),
        (
            delete(Some(0), Some(Propagation::Foreground)),
            "DELETE /apis/apps/v1/namespaces/n/deployments/a application/json",
            json!({
                "kind": "DeleteOptions", "apiVersion": "v1",
                "preconditions": { "uid": "u-1", "resourceVersion": "0" },
                "gracePeriodSeconds": 0, "propagationPolicy": "Foreground",
            }),
        ),
        (
            Write::bind(Key::new("n", "a"), Uid::new("u-1"), "m".to_owned()),
            "POST /api/v1/namespaces/n/pods/a/binding?fieldManager=me%2F1 application/json",
            json!({
                "apiVersion": "v1", "kind": "Binding",
                "metadata": { "name": "a", "namespace": "n", "uid": "u-1" },
                "target": { "apiVersion": "v1", "kind": "Node", "name": "m" },
            }),
        ),
        (
            evict(),
            "POST /api/v1/namespaces/n/pods/a/eviction?fieldManager=me%2F1 application/json",
            json!({
                "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": { "name": "a", "namespace": "n" },
                "deleteOptions": { "preconditions": { "uid": "u-1" } },
            }),
        ),
    ];
    for (write, head, body) in table {
        let WriteRequest { method, path, content_type: content, body: made } =
            write_request(&write, "me/1").unwrap();
        assert_eq!(format!("{method} {path} {content}"), head);
        assert_eq!(made, body, "{head}");
    }
}

fn evict() -> Write {
    let fence = Fence { uid: Uid::new("u-1"), revision: None };
    Write::Evict { key: Key::new("n", "a"), fence }
}

/// Names come from what users write: an invalid one never becomes part of another request.
#[test]
fn an_object_that_cannot_be_addressed_is_not_written() {
    for (namespace, name) in [("n", ""), ("n", ".."), ("n", "a/status"), ("N", "a"), ("a/b", "a")] {
        let key = Key::new(namespace, name);
        let fence = Fence { uid: Uid::new("u-1"), revision: None };
        let write = Write::Delete {
            resource: Resource::namespaced("apps", "v1", "deployments", "Deployment"),
            key: key.clone(),
            fence,
            grace: None,
            propagation: None,
        };
        assert!(write_request(&write, "me").is_err(), "{key}");
    }
}

fn reply(code: u16, body: &Value) -> ApiResponse {
    let status = StatusCode::from_u16(code).unwrap();
    ApiResponse { status, retry_after: None, body: Bytes::from(body.to_string()) }
}

/// A refusal as servers word it, about an object of this kind and name.
fn status(reason: &str, kind: &str, name: &str) -> Value {
    json!({
        "kind": "Status", "status": "Failure", "message": "no", "reason": reason,
        "details": { "kind": kind, "name": name },
    })
}

#[test]
fn responses_become_outcomes() {
    let patch = || merge(Subresource::Main, None);
    let create = || Write::Create {
        resource: PODS.clone(),
        body: json!({ "metadata": { "name": "a", "namespace": "n" } }),
    };
    let stale = || Outcome::Conflict("no".to_owned());
    let unanswered = || Outcome::Unknown("no".to_owned());
    let refused = |code, reason: &str| {
        Outcome::Refused(Refusal { code, reason: reason.to_owned(), message: "no".to_owned() })
    };
    let wrong_uid = json!({
        "message": "no", "reason": "Invalid",
        "details": { "name": "a", "causes": [{ "field": "metadata.uid" }] },
    });
    let object = json!({ "kind": "Pod", "metadata": { "name": "a" } });
    let table = [
        // why                        write     code  body                                expected
        ("it succeeded", patch(), 200, object.clone(), Outcome::Done(Some(object.clone()))),
        ("it was made", create(), 201, object.clone(), Outcome::Done(Some(object))),
        ("nothing is shown", patch(), 200, json!({ "kind": "Status" }), Outcome::Done(None)),
        ("changed since", patch(), 409, status("Conflict", "pods", "a"), stale()),
        ("the name is taken", create(), 409, status("AlreadyExists", "pods", "a"), stale()),
        ("a precondition", patch(), 412, status("", "pods", "a"), stale()),
        ("another of that name", patch(), 422, wrong_uid, stale()),
        ("not valid", patch(), 422, status("Invalid", "pods", "a"), refused(422, "Invalid")),
        ("gone", patch(), 404, status("NotFound", "pods", "a"), Outcome::NotFound),
        (
            "gone, to be deleted",
            delete(None, None),
            404,
            status("NotFound", "", "a"),
            Outcome::NotFound,
        ),
        (
            "no such namespace",
            create(),
            404,
            status("NotFound", "namespaces", "n"),
            refused(404, "NotFound"),
        ),
        (
            "no such namespace, of the same name",
            patch(),
            404,
            status("NotFound", "namespaces", "a"),
            refused(404, "NotFound"),
        ),
        ("no such kind", patch(), 404, status("NotFound", "", ""), refused(404, "NotFound")),
        ("not allowed", create(), 403, status("Forbidden", "pods", "a"), refused(403, "Forbidden")),
        ("not known", create(), 401, status("Unauthorized", "", ""), refused(401, "Unauthorized")),
        ("too much", create(), 413, status("", "", ""), refused(413, "")),
        ("too many", create(), 429, status("TooManyRequests", "", ""), unanswered()),
        ("too many evictions", evict(), 429, status("TooManyRequests", "", ""), unanswered()),
        ("evicted", evict(), 201, json!({ "kind": "Status" }), Outcome::Done(None)),
        ("evicted before", evict(), 404, status("NotFound", "pods", "a"), Outcome::NotFound),
        (
            "a budget",
            evict(),
            429,
            json!({
                "message": "no", "reason": "TooManyRequests",
                "details": { "causes": [{ "reason": "DisruptionBudget", "message": "needs 1" }] },
            }),
            Outcome::Refused(Refusal {
                code: 429,
                reason: "TooManyRequests".to_owned(),
                message: "no needs 1".to_owned(),
            }),
        ),
        ("timed out", create(), 408, status("", "", ""), unanswered()),
        ("broken", create(), 500, status("InternalError", "", ""), unanswered()),
        ("away", create(), 503, status("", "", ""), unanswered()),
        ("late", create(), 504, status("Timeout", "", ""), unanswered()),
    ];
    for (why, write, code, body, expected) in table {
        assert_eq!(
            response::parse_response(&write, &reply(code, &body)).outcome,
            expected,
            "{why}"
        );
    }
    let garbled = ApiResponse { body: Bytes::from_static(b"{"), ..reply(200, &json!(null)) };
    let garbled = response::parse_response(&patch(), &garbled).outcome;
    assert!(matches!(garbled, Outcome::Unknown(_)), "half an answer is none: {garbled:?}");
    let proxy = ApiResponse { body: Bytes::from_static(b"<html>"), ..reply(502, &json!(null)) };
    let proxy = response::parse_response(&patch(), &proxy).outcome;
    assert_eq!(
        proxy,
        Outcome::Unknown("<html>".to_owned()),
        "not all responses are from API servers"
    );
}

#[test]
fn a_server_may_ask_for_a_pause() {
    let seconds = |reply: &ApiResponse| {
        response::parse_response(&merge(Subresource::Main, None), reply).retry_after
    };
    let said = json!({ "message": "no", "details": { "retryAfterSeconds": 3 } });
    let mut busy = reply(429, &said);
    assert_eq!(seconds(&busy), Some(Duration::from_secs(3)), "in the body");
    busy.retry_after = Some(Duration::from_secs(5));
    assert_eq!(seconds(&busy), Some(Duration::from_secs(5)), "in the head");
    assert_eq!(seconds(&reply(429, &json!({ "message": "no" }))), None);
}
