//! The server, and ways to it that go wrong by a seed.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use gantry_apiserver::{Api, Body, Caller, Identity, Settings, Strangers, body};
use gantry_controller::transport;
use gantry_process::clock::Clock;
use gantry_process::metrics::{Build, Metrics};
use gantry_process::tasks::{Counters, Tasks};
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
    pub(crate) counters: Counters,
    /// Ends the server's own tasks when it is dropped.
    _tasks: Tasks,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let (store, _) = Store::open(&Options::new(Durability::Ephemeral)).unwrap();
        let metrics = Metrics::new(&Build::default());
        let counters = Counters::register(&metrics).unwrap();
        let mut tasks = tasks(&counters, &CancellationToken::new());
        let key = Key::generate().unwrap();
        let (issuer, tokens) = ("https://issuer".to_owned(), StaticTokens::default());
        let identity = Identity::new(key, issuer, tokens, Strangers::Anonymous);
        let settings = Settings::new(identity, metrics.clone());
        let api = Api::start(store, settings, &mut tasks).await.unwrap();
        Self { api, metrics, counters, _tasks: tasks }
    }

    /// Asks for something and reads the answer.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
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

    /// A way to the server on which nothing goes wrong until it is told to.
    pub(crate) fn line(&self, seed: u64) -> Arc<Line> {
        Arc::new(Line {
            api: self.api.clone(),
            chance: Mutex::new(fastrand::Rng::with_seed(seed)),
            faulty: AtomicBool::new(false),
            short: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            expired: AtomicUsize::new(0),
            asked: Mutex::default(),
        })
    }
}

pub(crate) fn tasks(counters: &Counters, stop: &CancellationToken) -> Tasks {
    Tasks::new(Clock::system(), counters.clone(), fastrand::Rng::with_seed(1), stop)
}

/// A way to the server.
pub(crate) struct Line {
    api: Api,
    chance: Mutex<fastrand::Rng>,
    /// Whether requests and replies get lost, requests doubled, and watches cut short.
    pub(crate) faulty: AtomicBool,
    /// Whether every watch is cut short.
    pub(crate) short: AtomicBool,
    /// Whether nothing passes at all, in either direction.
    pub(crate) cut: AtomicBool,
    /// How many watches to come are told that they are too old.
    pub(crate) expired: AtomicUsize,
    /// What arrived at the server: method and path.
    pub(crate) asked: Mutex<Vec<String>>,
}

const TOO_OLD: &str = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}}"#;

impl Line {
    pub(crate) fn client(self: &Arc<Self>) -> Client {
        let line = Arc::clone(self);
        transport::in_process(move |request| Arc::clone(&line).pass(request))
    }

    /// How many requests arrived that begin like this.
    pub(crate) fn count(&self, head: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|it| it.starts_with(head)).count()
    }

    fn chance(&self, of: u32) -> bool {
        self.faulty.load(Ordering::SeqCst) && self.chance.lock().unwrap().u32(0..of) == 0
    }

    async fn pass(self: Arc<Self>, request: Request<Bytes>) -> Response<Body> {
        self.hold().await;
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if watch && self.is_told_off() {
            return Response::new(body::full(format!("{TOO_OLD}\n")));
        }
        let turns = self.chance.lock().unwrap().u32(0..8);
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        if self.chance(8) {
            return broken();
        }
        if !watch && request.method() != Method::GET && self.chance(6) {
            self.serve(&request).await;
        }
        let answer = self.serve(&request).await;
        self.hold().await;
        match (watch, self.chance(6)) {
            (true, by_chance) if by_chance || self.short.load(Ordering::SeqCst) => {
                let frames = self.chance.lock().unwrap().usize(1..4);
                answer.map(|body| shortened(body, frames))
            }
            (false, true) => broken(),
            (true, _) | (false, false) => answer,
        }
    }

    /// Waits for ever while the line is cut.
    async fn hold(&self) {
        if self.cut.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    fn is_told_off(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.expired.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }

    async fn serve(&self, request: &Request<Bytes>) -> Response<Body> {
        let head = format!("{} {}", request.method(), request.uri());
        self.asked.lock().unwrap().push(head);
        self.api.handle(request.clone(), Some(Caller::server())).await
    }
}

/// An answer whose body never comes.
fn broken() -> Response<Body> {
    let reset = [Err::<Frame<Bytes>, _>(std::io::Error::other("connection reset"))];
    Response::new(StreamBody::new(futures_util::stream::iter(reset)).boxed_unsync())
}

/// A body of which only some frames come.
fn shortened(body: Body, frames: usize) -> Body {
    body::unfold((body, frames), |(mut body, left)| async move {
        let left = left.checked_sub(1)?;
        let frame = body.frame().await?.ok()?;
        Some((frame.into_data().unwrap_or_default(), (body, left)))
    })
}

/// Waits until something is so. The limit is for tests that fail.
pub(crate) async fn until<Look: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> Look) {
    let clock = Clock::system();
    let waited = clock.timeout(Duration::from_secs(60), async {
        while !look().await {
            clock.sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain: {what}");
}
