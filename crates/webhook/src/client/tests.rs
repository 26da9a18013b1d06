use std::net::SocketAddr;
use std::pin::pin;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use gantry_testkit::webhook_server::{Reply, WebhookServer};
use serde_json::{Value, json};

use super::*;
use crate::resolve::ResolveError;

/// A cluster with one service at the address of the test's webhooks.
#[derive(Debug)]
struct OneService;

impl ResolveService for OneService {
    fn resolve(&self, _: &str, name: &str, _: u16) -> Result<SocketAddr, ResolveError> {
        match name {
            "webhooks" => Ok(WebhookServer::shared().unwrap().address()),
            "idle" => Err(ResolveError::NoEndpoints(name.to_owned())),
            other => Err(ResolveError::NotFound(other.to_owned())),
        }
    }
}

fn client() -> Client {
    Client::new(Clock::system(), Arc::new(OneService), "tests")
}

async fn post(config: &Value, wait: CallTimeout) -> Result<String, String> {
    let hook = WebhookClientConfig::read(config).unwrap();
    let answer = client().post(&hook, Bytes::from_static(b"{\"a\":1}"), wait).await;
    answer
        .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
        .map_err(|error| error.to_string())
}

/// Longer than any response takes.
const LONG_TIMEOUT: CallTimeout = CallTimeout::Announced(Duration::from_secs(30));

fn raw(status: u16, headers: Vec<(&'static str, String)>, body: impl Into<Bytes>) -> Reply {
    Reply::Raw { status, headers, body: body.into() }
}

#[tokio::test]
async fn a_call_sends_its_timeout_and_returns_the_response() {
    let hooks = WebhookServer::shared().unwrap();
    hooks.set_handler("/echo", |body| Reply::Json(body.clone()));
    let config = hooks.client_config("/echo");
    assert_eq!(post(&config, LONG_TIMEOUT).await, Ok("{\"a\":1}".to_owned()));
    let short = CallTimeout::Announced(Duration::from_millis(29_500));
    assert_eq!(post(&config, short).await, Ok("{\"a\":1}".to_owned()));
    let silent = CallTimeout::Unannounced(Duration::from_secs(30));
    assert_eq!(post(&config, silent).await, Ok("{\"a\":1}".to_owned()));
    let heard = hooks.calls("/echo");
    let queries: Vec<&str> = heard.iter().map(|it| it.query.as_str()).collect();
    assert_eq!(queries, ["timeout=30s", "timeout=30s", ""]);
    assert_eq!(heard[0].headers[0].1, "application/json");
}

#[tokio::test]
async fn connections_are_reused() {
    let hooks = WebhookServer::shared().unwrap();
    hooks.set_handler("/kept", |_| Reply::Json(json!({})));
    let client = client();
    let hook = WebhookClientConfig::read(&hooks.client_config("/kept")).unwrap();
    for _ in 0..3 {
        client.post(&hook, Bytes::new(), LONG_TIMEOUT).await.unwrap();
    }
    let heard = hooks.calls("/kept");
    assert_eq!(heard.len(), 3);
    assert!(heard.iter().all(|call| call.peer == heard[0].peer), "{heard:?}");
}

#[tokio::test]
async fn least_recently_used_endpoints_are_dropped() {
    let client = client();
    let hook = |port: usize| {
        WebhookClientConfig::read(&json!({"url": format!("https://h:{port}/")})).unwrap()
    };
    for port in 1..=MAX_CACHED_ENDPOINTS {
        client.endpoint(&hook(port)).unwrap();
    }
    client.endpoint(&hook(1)).unwrap();
    client.endpoint(&hook(MAX_CACHED_ENDPOINTS + 1)).unwrap();
    let endpoints = client.0.endpoints.lock().unwrap();
    let knows = |port: usize| endpoints.cached.contains_key(&(hook(port).target, Bytes::new()));
    assert_eq!(endpoints.cached.len(), MAX_CACHED_ENDPOINTS);
    assert!(knows(1) && !knows(2) && knows(3) && knows(MAX_CACHED_ENDPOINTS + 1));
}

#[tokio::test]
async fn failures_have_go_client_messages() {
    let hooks = WebhookServer::shared().unwrap();
    hooks.set_handler("/boom", |_| {
        raw(500, vec![("content-type", "text/plain".to_owned())], "boom")
    });
    hooks.set_handler("/empty", |_| raw(200, Vec::new(), ""));
    hooks.set_handler("/huge", |_| raw(200, Vec::new(), vec![b' '; MAX_RESPONSE_BYTES + 1]));
    hooks.set_handler("/close", |_| Reply::Close);
    hooks.set_handler("/away", |_| raw(307, vec![("location", "/echo".to_owned())], ""));
    let base = hooks.url("");
    let post_error = |path: &str, why: &str| format!("Post \"{base}{path}?timeout=30s\": {why}");
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
                "unexpected error when reading response body. Please retry. Original error: the response is larger than {MAX_RESPONSE_BYTES} bytes"
            ),
        ),
        ("/close", post_error("/close", "EOF")),
        (
            "/away",
            "the server responded with the status code 307 but did not return more information"
                .to_owned(),
        ),
        ("/nowhere", "the server could not find the requested resource".to_owned()),
    ];
    for (path, expected) in table {
        assert_eq!(post(&hooks.client_config(path), LONG_TIMEOUT).await, Err(expected), "{path}");
    }
}

#[tokio::test]
async fn a_webhook_that_never_responds_times_out() {
    let hooks = WebhookServer::shared().unwrap();
    hooks.set_handler("/never", |_| Reply::Never);
    let wait = CallTimeout::Announced(Duration::from_millis(1));
    let url = hooks.url("/never");
    let expected = format!("Post \"{url}?timeout=1s\": context deadline exceeded");
    assert_eq!(post(&hooks.client_config("/never"), wait).await, Err(expected));
}

#[tokio::test]
async fn untrusted_and_unreachable_servers_are_named() {
    let hooks = WebhookServer::shared().unwrap();
    hooks.set_handler("/trust", |_| Reply::Json(json!({})));
    let other = gantry_testkit::pki::Authority::new("other").unwrap().own.certificate;
    let bundle = |pem: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(pem)
    };
    let ours = hooks.client_config("/trust")["caBundle"].clone();
    let port = hooks.address().port();
    let url = hooks.url("/trust");
    let service = |name: &str| json!({"service": {"namespace": "n", "name": name, "path": "/trust"}, "caBundle": ours});
    let unknown =
        "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    let post_error = |url: &str, why: &str| Err(format!("Post \"{url}?timeout=30s\": {why}"));
    let table = [
        (
            "another authority",
            json!({"url": url, "caBundle": bundle(&other)}),
            post_error(&url, unknown),
        ),
        ("the machine's roots", json!({"url": url}), post_error(&url, unknown)),
        (
            "no authority at all",
            json!({"url": url, "caBundle": bundle("x")}),
            Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned()),
        ),
        (
            "nobody there",
            json!({"url": "https://127.0.0.1:1/x"}),
            post_error(
                "https://127.0.0.1:1/x",
                "dial tcp 127.0.0.1:1: connect: connection refused",
            ),
        ),
        (
            "out of bounds",
            json!({"url": "https://169.254.169.254/x"}),
            post_error(
                "https://169.254.169.254/x",
                "dial tcp 169.254.169.254:443: connections to link-local addresses are not allowed",
            ),
        ),
        (
            "no such host",
            json!({"url": "https://nowhere.invalid/x"}),
            post_error(
                "https://nowhere.invalid/x",
                "dial tcp: lookup nowhere.invalid: no such host",
            ),
        ),
        (
            "another name",
            service("webhooks"),
            post_error(
                "https://webhooks.n.svc:443/trust",
                "tls: failed to verify certificate: x509: certificate is valid for webhooks.test, localhost, not webhooks.n.svc",
            ),
        ),
        (
            "nobody serves it",
            service("idle"),
            post_error(
                "https://idle.n.svc:443/trust",
                "no endpoints available for service \"idle\"",
            ),
        ),
        (
            "no service",
            service("x"),
            post_error("https://x.n.svc:443/trust", "service \"x\" not found"),
        ),
        (
            "by name",
            json!({"url": format!("https://localhost:{port}/trust"), "caBundle": ours}),
            Ok("{}".to_owned()),
        ),
    ];
    for (why, config, expected) in table {
        assert_eq!(post(&config, LONG_TIMEOUT).await, expected, "{why}");
    }
}

#[tokio::test]
async fn concurrent_calls_are_limited() {
    let client = client();
    let hooks = WebhookServer::shared().unwrap();
    hooks.set_handler("/stuck", |_| Reply::Never);
    hooks.set_handler("/waits", |_| Reply::Json(json!({})));
    let stuck = WebhookClientConfig::read(&hooks.client_config("/stuck")).unwrap();
    let waits = WebhookClientConfig::read(&hooks.client_config("/waits")).unwrap();
    let mut calls: FuturesUnordered<_> = (0..MAX_CONCURRENT_CALLS)
        .map(|_| client.post(&stuck, Bytes::new(), LONG_TIMEOUT))
        .collect();
    let mut last = pin!(client.post(&waits, Bytes::new(), LONG_TIMEOUT));
    let all_stuck = async {
        while hooks.calls("/stuck").len() < MAX_CONCURRENT_CALLS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // The last one is requested as often as the others, and does not get a permit.
    tokio::select! {
        // In this order, so that the others get their permits first.
        biased;
        ended = calls.next() => panic!("{ended:?}"),
        answer = &mut last => panic!("it is one too many: {answer:?}"),
        () = all_stuck => {}
    }
    assert!(hooks.calls("/waits").is_empty());
    drop(calls);
    assert_eq!(last.await.unwrap(), "{}");
}
