//! One row per accident, and for each that what is a promise survives.

use serde_json::{Value, json};

use super::*;
use crate::transcript::{Caller, Exchange, RecordedRequest};

const SERVER: &str = "127.0.0.1:6443";

/// A conversation of GETs in the namespace `here`.
fn conversation(bodies: &[Body]) -> Transcript {
    let mut transcript = Transcript::new("a-case", "here", SERVER);
    for body in bodies {
        let request = RecordedRequest {
            caller: Caller::Admin,
            method: "GET".into(),
            path: "/".into(),
            headers: Vec::new(),
            body: None,
        };
        let answer = Response {
            request_line: String::new(),
            status: 200,
            headers: BTreeMap::new(),
            body: body.clone(),
        };
        transcript.exchanges.push(Exchange { request, response: answer });
    }
    transcript
}

/// The last body of a conversation of documents, without accidents.
fn last(bodies: &[Value]) -> Value {
    let bodies: Vec<Body> = bodies.iter().cloned().map(Body::Json).collect();
    normalise(&conversation(&bodies)).pop().unwrap().response["body"].take()
}

fn revised(revision: &str) -> Value {
    json!({ "metadata": { "resourceVersion": revision } })
}

#[test]
fn texts_are_normalised() {
    let uid = "0b9e9a8c-4f5d-4b7a-9a53-5c1b2f0f6d11";
    let table = [
        ("the namespace", "no here in here".to_owned(), "no {place} in {place}"),
        ("the server", format!("https://{SERVER}/x"), "https://{server}/x"),
        ("a uid", format!("UID in object meta: {uid}"), "UID in object meta: {uid 1}"),
        ("a time", "at 2026-01-02T03:04:05Z".to_owned(), "at {time}"),
        ("a fine time", "2026-01-02T03:04:05.123456Z".to_owned(), "{fine time}"),
        ("a time of the case", "1999-01-02T03:04:05Z".to_owned(), "1999-01-02T03:04:05Z"),
        ("a hash", "/openapi/v3/api/v1?hash=0AF9".to_owned(), "/openapi/v3/api/v1?hash={hash}"),
        (
            "a revision in a record",
            "the ResourceVersion in the precondition (1) does not match the ResourceVersion in \
             record (5)."
                .to_owned(),
            "the ResourceVersion in the precondition ({revision 0 or later}) does not match the \
             ResourceVersion in record ({revision 1}).",
        ),
        (
            "a revision nobody has",
            "Too large resource version: 99, current: 7".to_owned(),
            "Too large resource version: {revision 2 or later}, current: {revision 1 or later}",
        ),
        (
            "a revision that is gone",
            "too old resource version: 1 (8)".to_owned(),
            "too old resource version: {revision 0 or later} ({revision})",
        ),
        ("YAML", "yaml: line 7: odd".to_owned(), "yaml: line 7: {fault}"),
        ("a source", "v2 in scheme \"a.go:1\"".to_owned(), "v2 in scheme {scheme}"),
        (
            "an object in a text",
            "patch: Invalid value: \"{\\\"b\\\":{}}\": no such field \"b\"".to_owned(),
            "patch: Invalid value: {document}: no such field \"b\"",
        ),
        ("a volume", "kube-api-access-x7k2q".to_owned(), "kube-api-access-{generated}"),
        ("a token", "Bearer eyJhbGciOiJ9.eyJhdWQi.c_2-x".to_owned(), "Bearer {token}"),
        ("a number", "must have at most 5 items".to_owned(), "must have at most 5 items"),
    ];
    for (why, text, expected) in table {
        let found = last(&[revised("5"), revised("50"), json!({ "message": text })]);
        assert_eq!(found["message"], expected, "{why}");
    }
}

#[test]
fn fields_are_normalised() {
    let table = [
        ("a token", json!({ "continue": "eyJ2Ijoi" }), json!({ "continue": "{continue}" })),
        ("no token", json!({ "continue": "" }), json!({ "continue": "" })),
        ("an address", json!({ "clusterIP": "10.0.0.9" }), json!({ "clusterIP": "{address}" })),
        ("no address", json!({ "clusterIP": "None" }), json!({ "clusterIP": "None" })),
        ("a port", json!({ "nodePort": 30001 }), json!({ "nodePort": "{nodePort}" })),
        ("a build", json!({ "gitVersion": "v1" }), json!({ "gitVersion": "{gitVersion}" })),
        ("an age", json!({ "cells": ["a", "5m3s"] }), json!({ "cells": ["a", "{age}"] })),
        ("no age", json!({ "data": "5m3s" }), json!({ "data": "5m3s" })),
        ("causes", json!({ "causes": ["b", "a"] }), json!({ "causes": ["a", "b"] })),
        ("a list", json!({ "items": ["b", "a"] }), json!({ "items": ["b", "a"] })),
        (
            "managers",
            json!({ "managedFields": [{ "manager": "b" }, { "manager": "a" }] }),
            json!({ "managedFields": [{ "manager": "a" }, { "manager": "b" }] }),
        ),
        (
            "groups of other cases",
            json!({ "groups": [{ "name": "x.case.test" }, { "name": "here.case.test" }] }),
            json!({ "groups": [{ "name": "{place}.case.test" }] }),
        ),
        (
            "paths of other cases",
            json!({ "paths": { "apis/x.case.test": 1, "apis/here.case.test": 2 } }),
            json!({ "paths": { "apis/{place}.case.test": 2 } }),
        ),
        (
            "a hash that depends on the name of a group",
            json!({ "groupVersion": "here.case.test/v1", "storageVersionHash": "x" }),
            json!({ "groupVersion": "{place}.case.test/v1", "storageVersionHash": "{storageVersionHash}" }),
        ),
        (
            "a hash that does not",
            json!({ "groupVersion": "apps/v1", "storageVersionHash": "x" }),
            json!({ "groupVersion": "apps/v1", "storageVersionHash": "x" }),
        ),
    ];
    for (why, from, expected) in table {
        assert_eq!(last(&[from]), expected, "{why}");
    }
}

#[test]
fn revisions_keep_their_order() {
    let (first, second) = (revised("90"), revised("100"));
    let rank = |bodies: &[Value]| last(bodies)["metadata"]["resourceVersion"].clone();
    assert_eq!(rank(&[first.clone(), second.clone()]), "{revision 2}", "numbers, not texts");
    assert_eq!(rank(&[second, first.clone()]), "{revision 1}");
    assert_eq!(rank(&[first.clone(), first]), "{revision 1}", "the same twice is one");
    assert_eq!(rank(&[revised("0")]), "{revision 1}");
    assert_eq!(rank(&[revised("")]), "");
}

#[test]
fn list_revision_follows_its_items() {
    let list = |revision: &str| json!({ "metadata": { "resourceVersion": revision }, "items": [revised("90")] });
    for revision in ["90", "95", "99"] {
        let found = last(&[revised("100"), list(revision)]);
        assert_eq!(found["metadata"]["resourceVersion"], "{revision 1 or later}", "{revision}");
        assert_eq!(found["items"][0]["metadata"]["resourceVersion"], "{revision 1}");
    }
    let newer = last(&[revised("100"), list("100")]);
    assert_eq!(newer["metadata"]["resourceVersion"], "{revision 2 or later}");
}

#[test]
fn the_same_uid_keeps_its_name() {
    let uid = |digit: char| format!("{digit}b9e9a8c-4f5d-4b7a-9a53-5c1b2f0f6d11");
    let found = last(&[
        json!({ "uid": uid('1') }),
        json!({ "b": uid('1'), "a": uid('2'), format!("k:{}", uid('2')): 0 }),
    ]);
    assert_eq!(found, json!({ "a": "{uid 2}", "b": "{uid 1}", "k:{uid 2}": 0 }));
}

#[test]
fn generated_names_keep_their_prefix() {
    let made = json!({ "metadata": { "generateName": "here-a-", "name": "here-a-x7k2q" } });
    let found = last(&[made, json!({ "message": "configmaps \"here-a-x7k2q\" not found" })]);
    assert_eq!(found["message"], "configmaps \"{place}-a-{generated}\" not found");
    let chosen = json!({ "metadata": { "generateName": "a-", "name": "chosen-by-client" } });
    assert_eq!(last(&[chosen])["metadata"]["name"], "chosen-by-client");
}

#[test]
fn a_message_lists_its_causes_in_one_order() {
    let status = |message: &str| {
        json!({ "kind": "Status", "message": message, "details": { "causes": [
            { "field": "spec.b", "message": "Required value" },
            { "field": "spec.a", "message": "Required value" },
        ] } })
    };
    let listed = |message: &str| last(&[status(message)])["message"].clone();
    let sorted = "W \"x\" is invalid: [spec.a: Required value, spec.b: Required value]";
    assert_eq!(listed(sorted), sorted);
    let other = "W \"x\" is invalid: [spec.b: Required value, spec.a: Required value]";
    assert_eq!(listed(other), sorted);
    let strange = "W \"x\" is invalid: [spec.b: Required value, and more]";
    assert_eq!(listed(strange), strange, "what the causes do not explain is left alone");
}

#[test]
fn events_keep_their_order() {
    let event = |kind: &str, revision: &str| json!({ "type": kind, "object": revised(revision) });
    let mut end = event("BOOKMARK", "40");
    end["object"]["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    let events = vec![event("ADDED", "30"), event("BOOKMARK", "35"), end, event("DELETED", "50")];
    let body = Body::Events { events, ended: false };
    let found = normalise(&conversation(&[body])).pop().unwrap().response;
    let told: Vec<_> = found["events"].as_array().unwrap().iter().collect();
    let types: Vec<_> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["ADDED", "BOOKMARK", "DELETED"]);
    assert_eq!(told[1]["object"]["metadata"]["resourceVersion"], "{revision 1 or later}");
    assert_eq!(told[2]["object"]["metadata"]["resourceVersion"], "{revision 2}");
}

#[test]
fn headers_are_those_a_client_reads() {
    let mut transcript = conversation(&[Body::Empty]);
    let header = |name: &str, value: &str| (name.to_owned(), vec![value.to_owned()]);
    transcript.exchanges[0].response.headers = BTreeMap::from([
        header("audit-id", "x"),
        header("content-type", "application/json"),
        header("date", "today"),
        header("etag", "\"1\""),
        header("warning", "299 - \"in here\""),
    ]);
    let found = normalise(&transcript).pop().unwrap().response;
    let expected = json!({
        "content-type": ["application/json"],
        "warning": ["299 - \"in {place}\""],
        "etag": "present",
    });
    assert_eq!(found["headers"], expected);
}

#[test]
fn request_lines_lose_tokens_and_revisions() {
    let mut transcript = conversation(&[Body::Json(revised("7"))]);
    transcript.exchanges[0].request.path =
        "/api/v1/namespaces/here/pods?limit=2&resourceVersion=7&continue=eyJ2_-%3D".into();
    let found = normalise(&transcript).pop().unwrap().request;
    let expected = "GET /api/v1/namespaces/{place}/pods?limit=2&\
                    resourceVersion={revision 1 or later}&continue={continue}";
    assert_eq!(found, expected);
}
