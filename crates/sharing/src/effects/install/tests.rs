//! Tests with canned servers, for what a real one does rarely.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use gantry_controller::transport;
use gantry_process::clock::Clock;
use http::{Method, Request, Response};
use http_body_util::Full;
use serde_json::json;

use super::*;
use crate::inventory::FMA_GROUP;

/// A server that responds to each request by this function.
fn server(
    answer: impl Fn(&Method, &str) -> (u16, Value) + Clone + Send + 'static,
) -> ClusterClient {
    let client = transport::in_process(move |request: Request<Bytes>| {
        let (status, mut body) = answer(request.method(), request.uri().path());
        if status >= 400 {
            body = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": status, "message": body, "reason": "",
            });
        }
        let answer = Response::builder().status(status);
        ready(answer.body(Full::new(Bytes::from(body.to_string()))).unwrap())
    });
    ClusterClient::new(client, Clock::system(), false)
}

fn options(timeout: Duration) -> Options {
    Options {
        mode: ApplyMode::default(),
        foreign: ForeignVersions::default(),
        diff: false,
        timeout,
    }
}

fn wanted() -> Vec<Manifest> {
    Manifest::built_in(&[FMA_GROUP.to_owned()]).into_iter().take(1).collect()
}

#[tokio::test]
async fn as_42_policies_are_skipped_with_a_word_where_they_are_not_served() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = server(move |method, path| {
        count.fetch_add(1, Ordering::Relaxed);
        assert_eq!((method, path), (&Method::GET, policies::DISCOVERY_PATH.as_str()));
        (200, json!({"resources": [{"name": "validatingwebhookconfigurations"}]}))
    });
    let lines = policies(&server, &policies::policies(), false).await;
    assert_eq!(lines.len(), 4);
    for line in &lines {
        assert_eq!(line.outcome, ObjectOutcome::Skipped);
        assert!(line.why.contains("does not serve ValidatingAdmissionPolicies"), "{}", line.why);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1, "nothing else is asked");
}

#[tokio::test]
async fn an_unserved_definition_reports_the_condition() {
    let object = |established: &str| {
        let mut object = wanted().remove(0).object().clone();
        object["metadata"]["resourceVersion"] = json!("7");
        object["status"] = json!({"conditions": [
            {"type": "NamesAccepted", "status": "False", "message": "\"isc\" is already in use"},
            {"type": "Established", "status": established},
        ]});
        object
    };
    let stuck = server(move |_, _| (200, object("False")));
    let lines = definitions(&stuck, &wanted(), &options(Duration::ZERO)).await;
    assert_eq!(lines[0].outcome, ObjectOutcome::TimedOut);
    assert!(lines[0].why.contains("already in use"), "{}", lines[0].why);
    let served = server(move |_, _| (200, object("True")));
    let lines = definitions(&served, &wanted(), &options(Duration::ZERO)).await;
    assert_eq!(lines[0].outcome, ObjectOutcome::Unchanged);
}

/// A concurrent change is detected: the object is read again, and its current state decides.
#[tokio::test]
async fn a_conflict_is_decided_again() {
    let reads = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reads);
    let server = server(move |method, _| {
        let mut object = wanted().remove(0).object().clone();
        object["metadata"]["resourceVersion"] = json!("7");
        object["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        match *method {
            Method::PATCH => (409, json!("the object has been modified")),
            _ if count.fetch_add(1, Ordering::Relaxed) == 0 => (404, json!("not yet")),
            _ => (200, object),
        }
    });
    let lines = definitions(&server, &wanted(), &options(Duration::from_secs(60))).await;
    assert_eq!(lines[0].outcome, ObjectOutcome::Unchanged, "{lines:?}");
    assert_eq!(lines[0].why, "it has version v1alpha1");
}
