//! The server, and connections to it with faults from a seed.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use gantry_apiserver::{
    AnonymousAccess, Api, Authenticator, Body, Caller, Settings, request::body,
};
use gantry_controller::transport;
use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::{TaskMetrics, Tasks};
use gantry_store::{Durability, Options, Store};
use gantry_token::{Key, StaticTokens};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use kube::Client;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A server that keeps its objects in memory.
pub(crate) struct Server {
    pub(crate) api: Api,
    pub(crate) metrics: Metrics,
    pub(crate) counters: TaskMetrics,
    /// Ends the server's own tasks when it is dropped.
    _tasks: Tasks,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let (store, _) = Store::open(&Options::new(Durability::Ephemeral)).unwrap();
        let metrics = Metrics::new(&BuildInfo::default());
        let counters = TaskMetrics::register(&metrics).unwrap();
        let mut tasks = tasks(&counters, &CancellationToken::new());
        let key = Key::generate().unwrap();
        let (issuer, tokens) = ("https://issuer".to_owned(), StaticTokens::default());
        let identity = Authenticator::new(key, issuer, tokens, AnonymousAccess::Allowed);
        let settings = Settings::new(identity, metrics.clone());
        let api = Api::start(store, settings, &mut tasks).await.unwrap();
        Self { api, metrics, counters, _tasks: tasks }
    }

    /// Sends a request and reads the response.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (StatusCode, Value) {
        let content = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(path).header("content-type", content);
        let request = request.body(Bytes::from(body.to_string())).unwrap();
        let answer = self.api.handle(request, Some(Caller::server())).await;
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// Returns a connection to the server without faults until they are switched on.
    pub(crate) fn faulty_transport(&self, seed: u64) -> Arc<FaultyTransport> {
        Arc::new(FaultyTransport {
            api: self.api.clone(),
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
            faulty: AtomicBool::new(false),
            cut_watches: AtomicBool::new(false),
            disconnected: AtomicBool::new(false),
            expired: AtomicUsize::new(0),
            requests: Mutex::default(),
        })
    }
}

pub(crate) fn tasks(counters: &TaskMetrics, stop: &CancellationToken) -> Tasks {
    Tasks::new(Clock::system(), counters.clone(), fastrand::Rng::with_seed(1), stop)
}

/// A connection to the server.
pub(crate) struct FaultyTransport {
    api: Api,
    rng: Mutex<fastrand::Rng>,
    /// Whether requests and responses are lost, requests duplicated, and watches cut short.
    pub(crate) faulty: AtomicBool,
    /// Whether every watch is cut short.
    pub(crate) cut_watches: AtomicBool,
    /// Whether nothing is transmitted at all, in either direction.
    pub(crate) disconnected: AtomicBool,
    /// How many future watches get the error that their revision is too old.
    pub(crate) expired: AtomicUsize,
    /// The requests that arrived at the server: method and path.
    pub(crate) requests: Mutex<Vec<String>>,
}

const TOO_OLD: &str = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}}"#;

impl FaultyTransport {
    pub(crate) fn client(self: &Arc<Self>) -> Client {
        let line = Arc::clone(self);
        transport::in_process(move |request| Arc::clone(&line).handle(request))
    }

    /// Returns the number of requests that arrived with this prefix.
    pub(crate) fn count(&self, head: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|it| it.starts_with(head)).count()
    }

    fn should_fail(&self, of: u32) -> bool {
        self.faulty.load(Ordering::SeqCst) && self.rng.lock().unwrap().u32(0..of) == 0
    }

    async fn handle(self: Arc<Self>, request: Request<Bytes>) -> Response<Body> {
        self.block_while_disconnected().await;
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if watch && self.consume_expiry() {
            return Response::new(body::full(format!("{TOO_OLD}\n")));
        }
        let turns = self.rng.lock().unwrap().u32(0..8);
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        if self.should_fail(8) {
            return broken();
        }
        if !watch && request.method() != Method::GET && self.should_fail(6) {
            self.serve(&request).await;
        }
        let answer = self.serve(&request).await;
        self.block_while_disconnected().await;
        match (watch, self.should_fail(6)) {
            (true, by_chance) if by_chance || self.cut_watches.load(Ordering::SeqCst) => {
                let frames = self.rng.lock().unwrap().usize(1..4);
                answer.map(|body| shortened(body, frames))
            }
            (false, true) => broken(),
            (true, _) | (false, false) => answer,
        }
    }

    /// Waits for ever while the connection is cut.
    async fn block_while_disconnected(&self) {
        if self.disconnected.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    fn consume_expiry(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.expired.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }

    async fn serve(&self, request: &Request<Bytes>) -> Response<Body> {
        let head = format!("{} {}", request.method(), request.uri());
        self.requests.lock().unwrap().push(head);
        self.api.handle(request.clone(), Some(Caller::server())).await
    }
}

/// A response whose body never arrives.
fn broken() -> Response<Body> {
    let reset = [Err::<Frame<Bytes>, _>(std::io::Error::other("connection reset"))];
    Response::new(StreamBody::new(futures_util::stream::iter(reset)).boxed_unsync())
}

/// A body of which only some frames arrive.
fn shortened(body: Body, frames: usize) -> Body {
    body::unfold((body, frames), |(mut body, left)| async move {
        let left = left.checked_sub(1)?;
        let frame = body.frame().await?.ok()?;
        Some((frame.into_data().unwrap_or_default(), (body, left)))
    })
}

/// Waits until a condition holds. The limit is for tests that fail.
pub(crate) async fn wait_until<Check: Future<Output = bool>>(
    what: &str,
    mut look: impl FnMut() -> Check,
) {
    let clock = Clock::system();
    let waited = clock.timeout(Duration::from_secs(60), async {
        while !look().await {
            clock.sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waited.await.is_ok(), "timed out: {what}");
}
