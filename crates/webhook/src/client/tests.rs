use std::net::SocketAddr;
use std::pin::pin;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use gantry_testkit::hook::{Hooks, Reply};
use serde_json::{Value, json};

use super::*;
use crate::dial::ResolveError;

/// A cluster with one service, which is wherever the test's webhooks are.
#[derive(Debug)]
struct OneService;

impl Resolve for OneService {
    fn resolve(&self, _: &str, name: &str, _: u16) -> Result<SocketAddr, ResolveError> {
        match name {
            "webhooks" => Ok(Hooks::shared().unwrap().address()),
            "idle" => Err(ResolveError::NoEndpoints(name.to_owned())),
            other => Err(ResolveError::NotFound(other.to_owned())),
        }
    }
}

fn client() -> Client {
    Client::new(Clock::system(), Arc::new(OneService), "tests")
}

async fn post(config: &Value, wait: Wait) -> Result<String, String> {
    let hook = Hook::read(config).unwrap();
    let answer = client().post(&hook, Bytes::from_static(b"{\"a\":1}"), wait).await;
    answer
        .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
        .map_err(|error| error.to_string())
}

/// Longer than any answer that comes.
const PATIENT: Wait = Wait::Told(Duration::from_secs(30));

fn raw(status: u16, headers: Vec<(&'static str, String)>, body: impl Into<Bytes>) -> Reply {
    Reply::Raw { status, headers, body: body.into() }
}

#[tokio::test]
async fn an_answer_comes_back_and_the_webhook_is_told_the_time() {
    let hooks = Hooks::shared().unwrap();
    hooks.answer("/echo", |body| Reply::Json(body.clone()));
    let config = hooks.config("/echo");
    assert_eq!(post(&config, PATIENT).await, Ok("{\"a\":1}".to_owned()));
    let short = Wait::Told(Duration::from_millis(29_500));
    assert_eq!(post(&config, short).await, Ok("{\"a\":1}".to_owned()));
    let silent = Wait::Silently(Duration::from_secs(30));
    assert_eq!(post(&config, silent).await, Ok("{\"a\":1}".to_owned()));
    let heard = hooks.heard("/echo");
    let queries: Vec<&str> = heard.iter().map(|it| it.query.as_str()).collect();
    assert_eq!(queries, ["timeout=30s", "timeout=30s", ""]);
    assert_eq!(heard[0].headers[0].1, "application/json");
}

#[tokio::test]
async fn connections_are_kept() {
    let hooks = Hooks::shared().unwrap();
    hooks.answer("/kept", |_| Reply::Json(json!({})));
    let client = client();
    let hook = Hook::read(&hooks.config("/kept")).unwrap();
    for _ in 0..3 {
        client.post(&hook, Bytes::new(), PATIENT).await.unwrap();
    }
    let heard = hooks.heard("/kept");
    assert_eq!(heard.len(), 3);
    assert!(heard.iter().all(|call| call.peer == heard[0].peer), "{heard:?}");
}

#[tokio::test]
async fn endpoints_that_were_idle_longest_are_forgotten() {
    let client = client();
    let hook = |port: usize| Hook::read(&json!({"url": format!("https://h:{port}/")})).unwrap();
    for port in 1..=ENDPOINTS {
        client.endpoint(&hook(port)).unwrap();
    }
    client.endpoint(&hook(1)).unwrap();
    client.endpoint(&hook(ENDPOINTS + 1)).unwrap();
    let endpoints = client.0.endpoints.lock().unwrap();
    let knows = |port: usize| endpoints.known.contains_key(&(hook(port).place, Bytes::new()));
    assert_eq!(endpoints.known.len(), ENDPOINTS);
    assert!(knows(1) && !knows(2) && knows(3) && knows(ENDPOINTS + 1));
}

#[tokio::test]
async fn failures_are_told_in_known_words() {
    let hooks = Hooks::shared().unwrap();
    hooks.answer("/boom", |_| raw(500, vec![("content-type", "text/plain".to_owned())], "boom"));
    hooks.answer("/empty", |_| raw(200, Vec::new(), ""));
    hooks.answer("/huge", |_| raw(200, Vec::new(), vec![b' '; LARGEST_ANSWER + 1]));
    hooks.answer("/close", |_| Reply::Close);
    hooks.answer("/away", |_| raw(307, vec![("location", "/echo".to_owned())], ""));
    let base = hooks.url("");
    let told = |path: &str, why: &str| format!("Post \"{base}{path}?timeout=30s\": {why}");
    let table = [
        (
            "/boom",
            "an error on the server (\"boom\") has prevented the request from succeeding"
                .to_owned(),
        ),
        (
            "/empty",
            "0-length response with status code: 200 and content type: application/json".to_owned(),
        ),
        (
            "/huge",
            format!(
                "unexpected error when reading response body. Please retry. Original error: the answer is larger than {LARGEST_ANSWER} bytes"
            ),
        ),
        ("/close", told("/close", "EOF")),
        (
            "/away",
            "the server responded with the status code 307 but did not return more information"
                .to_owned(),
        ),
        ("/nowhere", "the server could not find the requested resource".to_owned()),
    ];
    for (path, expected) in table {
        assert_eq!(post(&hooks.config(path), PATIENT).await, Err(expected), "{path}");
    }
}

#[tokio::test]
async fn a_webhook_that_never_answers_is_left() {
    let hooks = Hooks::shared().unwrap();
    hooks.answer("/never", |_| Reply::Never);
    let wait = Wait::Told(Duration::from_millis(1));
    let url = hooks.url("/never");
    let expected = format!("Post \"{url}?timeout=1s\": context deadline exceeded");
    assert_eq!(post(&hooks.config("/never"), wait).await, Err(expected));
}

#[tokio::test]
async fn who_cannot_be_believed_or_reached_is_named() {
    let hooks = Hooks::shared().unwrap();
    hooks.answer("/trust", |_| Reply::Json(json!({})));
    let other = gantry_testkit::pki::Authority::new("other").unwrap().own.certificate;
    let bundle = |pem: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(pem)
    };
    let ours = hooks.config("/trust")["caBundle"].clone();
    let port = hooks.address().port();
    let url = hooks.url("/trust");
    let service = |name: &str| json!({"service": {"namespace": "n", "name": name, "path": "/trust"}, "caBundle": ours});
    let unknown =
        "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    let told = |url: &str, why: &str| Err(format!("Post \"{url}?timeout=30s\": {why}"));
    let table = [
        ("another authority", json!({"url": url, "caBundle": bundle(&other)}), told(&url, unknown)),
        ("the machine's roots", json!({"url": url}), told(&url, unknown)),
        (
            "no authority at all",
            json!({"url": url, "caBundle": bundle("x")}),
            Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned()),
        ),
        (
            "nobody there",
            json!({"url": "https://127.0.0.1:1/x"}),
            told("https://127.0.0.1:1/x", "dial tcp 127.0.0.1:1: connect: connection refused"),
        ),
        (
            "out of bounds",
            json!({"url": "https://169.254.169.254/x"}),
            told(
                "https://169.254.169.254/x",
                "dial tcp 169.254.169.254:443: link-local addresses are not called",
            ),
        ),
        (
            "no such host",
            json!({"url": "https://nowhere.invalid/x"}),
            told("https://nowhere.invalid/x", "dial tcp: lookup nowhere.invalid: no such host"),
        ),
        (
            "another name",
            service("webhooks"),
            told(
                "https://webhooks.n.svc:443/trust",
                "tls: failed to verify certificate: x509: certificate is valid for webhooks.test, localhost, not webhooks.n.svc",
            ),
        ),
        (
            "nobody serves it",
            service("idle"),
            told("https://idle.n.svc:443/trust", "no endpoints available for service \"idle\""),
        ),
        ("no service", service("x"), told("https://x.n.svc:443/trust", "service \"x\" not found")),
        (
            "by name",
            json!({"url": format!("https://localhost:{port}/trust"), "caBundle": ours}),
            Ok("{}".to_owned()),
        ),
    ];
    for (why, config, expected) in table {
        assert_eq!(post(&config, PATIENT).await, expected, "{why}");
    }
}

#[tokio::test]
async fn no_more_than_the_allowed_number_call_at_once() {
    let client = client();
    let hooks = Hooks::shared().unwrap();
    hooks.answer("/stuck", |_| Reply::Never);
    hooks.answer("/waits", |_| Reply::Json(json!({})));
    let stuck = Hook::read(&hooks.config("/stuck")).unwrap();
    let waits = Hook::read(&hooks.config("/waits")).unwrap();
    let mut calls: FuturesUnordered<_> =
        (0..AT_ONCE).map(|_| client.post(&stuck, Bytes::new(), PATIENT)).collect();
    let mut last = pin!(client.post(&waits, Bytes::new(), PATIENT));
    let all_stuck = async {
        while hooks.heard("/stuck").len() < AT_ONCE {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // The last one is asked for as often as the others, and does not get its turn.
    tokio::select! {
        // In this order, so that the others have their turns first.
        biased;
        ended = calls.next() => panic!("{ended:?}"),
        answer = &mut last => panic!("it is one too many: {answer:?}"),
        () = all_stuck => {}
    }
    assert!(hooks.heard("/waits").is_empty());
    drop(calls);
    assert_eq!(last.await.unwrap(), "{}");
}
