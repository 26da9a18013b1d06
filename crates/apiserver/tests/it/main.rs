//! The whole server in one process: requests and responses without a network.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod aggregation;
mod client_errors;
mod ownership_cycles;
mod pod_updates;
mod quotas;
mod services;
mod streams;
mod token_secrets;

use std::time::Duration;

use bytes::Bytes;
use gantry_apiserver::{AnonymousAccess, Api, Authenticator, Caller, Settings};
use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::{TaskMetrics, Tasks};
use gantry_store::{Durability, Options, Store};
use gantry_token::{Key, StaticTokens};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// How long anything may take on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval between two checks of something that changes by itself.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A server that stores its objects in memory.
struct Server {
    api: Api,
    metrics: Metrics,
    /// Stops the server's background tasks when it is dropped.
    tasks: Tasks,
}

impl Server {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts a server with these settings.
    async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let (store, _) = Store::open(&Options::new(Durability::Ephemeral)).unwrap();
        let metrics = Metrics::new(&BuildInfo::default());
        let counters = TaskMetrics::register(&metrics).unwrap();
        let jitter = fastrand::Rng::with_seed(1);
        let mut tasks = Tasks::new(Clock::system(), counters, jitter, &CancellationToken::new());
        let key = Key::generate().unwrap();
        let (issuer, tokens) = ("https://issuer".to_owned(), StaticTokens::default());
        let identity = Authenticator::new(key, issuer, tokens, AnonymousAccess::Allowed);
        let mut settings = Settings::new(identity, metrics.clone());
        change(&mut settings);
        let api = Api::start(store, settings, &mut tasks).await.unwrap();
        Self { api, metrics, tasks }
    }

    /// Stores a new object.
    async fn create(&self, path: &str, object: Value) -> Value {
        let (status, answer) = self.send_request("POST", path, "application/json", object).await;
        assert_eq!(status, StatusCode::CREATED, "{path}: {answer}");
        answer
    }

    /// Repeats a request until the response is as expected. The limit only makes sure that a test
    /// ends.
    async fn wait_until(
        &self,
        path: &str,
        what: &str,
        wanted: impl Fn(StatusCode, &Value) -> bool,
    ) -> Value {
        let clock = Clock::system();
        let begun = clock.moment();
        loop {
            let (status, answer) = self.send_request("GET", path, "application/json", "").await;
            if wanted(status, &answer) {
                return answer;
            }
            assert!(clock.moment() - begun < TEST_TIMEOUT, "{path} never {what}: {answer:#}");
            clock.sleep(POLL_INTERVAL).await;
        }
    }

    async fn send_request(
        &self,
        method: &str,
        path: &str,
        content: &str,
        body: impl ToString,
    ) -> (StatusCode, Value) {
        send_request(&self.api, method, path, content, body).await
    }
}

/// Sends JSON, or a patch of the type that `content` names, and reads the response.
async fn send_request(
    api: &Api,
    method: &str,
    path: &str,
    content: &str,
    body: impl ToString,
) -> (StatusCode, Value) {
    let request = Request::builder().method(method).uri(path).header("content-type", content);
    let request = request.body(Bytes::from(body.to_string())).unwrap();
    let answer = api.handle(request, Some(Caller::server())).await;
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}
