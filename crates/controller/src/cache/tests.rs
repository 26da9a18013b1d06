use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use gantry_process::clock::FakeClock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_reconcile::{Controller, Kind, Meta, Plan, Resource, View, World};
use http::Response;
use hyper::body::Frame;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::*;
use crate::subscribers::Subscriber;
use crate::work_queue::WorkQueue;
use crate::{retry, transport};

#[derive(Debug, Deserialize)]
struct Thing {
    metadata: Meta,
    #[expect(dead_code, reason = "it is there to be unreadable")]
    size: i64,
}

impl View for Thing {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "things", "Thing");
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Enqueues every object that changes.
struct Echo;

impl Controller for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }
    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Thing>()]
    }
    fn enqueue(&self, _: &World, change: &gantry_reconcile::Change) -> Vec<Key> {
        vec![change.key.clone()]
    }
    fn plan(&self, _: &World, _: &Key, _: Timestamp) -> Plan {
        Plan::default()
    }
}

/// How the server responds to a request.
enum CannedResponse {
    /// Responds with this status and text.
    Text(u16, String),
    /// Responds, sends this, and then stays silent.
    Stream(String),
}

/// A body that arrives completely, or begins and never ends.
struct Content(Option<Bytes>, bool);

impl hyper::body::Body for Content {
    type Data = Bytes;
    type Error = std::convert::Infallible;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match (self.0.take().filter(|bytes| !bytes.is_empty()), self.1) {
            (Some(bytes), _) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            (None, true) => Poll::Pending,
            (None, false) => Poll::Ready(None),
        }
    }
}

/// A reflector with a server that sends canned responses.
struct TestReflector {
    hand: FakeClock,
    subscribers: Arc<Subscribers>,
    queue: Arc<WorkQueue>,
    metrics: Metrics,
    /// The requests: when, in milliseconds, and what.
    requests: Arc<Mutex<Vec<(u128, String)>>>,
    last_error: LastError,
    _running: JoinSet<Result<(), TaskError>>,
}

impl TestReflector {
    /// Starts with these responses; later requests get no response.
    fn start(says: Vec<CannedResponse>) -> Self {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let clock = hand.clock();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let says = Arc::new(Mutex::new(VecDeque::from(says)));
        let (log, watch) = (Arc::clone(&asked), clock.clone());
        let client = transport::in_process(move |request: http::Request<Bytes>| {
            let when = (watch.moment() - gantry_process::clock::Moment::default()).as_millis();
            log.lock().unwrap().push((when, request.uri().to_string()));
            let say = says.lock().unwrap().pop_front();
            async move {
                let (code, content) = match say {
                    None => std::future::pending().await,
                    Some(CannedResponse::Text(code, text)) => {
                        (code, Content(Some(text.into()), false))
                    }
                    Some(CannedResponse::Stream(text)) => (200, Content(Some(text.into()), true)),
                };
                Response::builder().status(code).body(content).unwrap()
            }
        });
        let metrics = Metrics::new(&BuildInfo::default());
        let meters = ControllerMetrics::register(&metrics).unwrap();
        let world = Arc::new(World::new([Kind::of::<Thing>()]));
        let queue = Arc::new(WorkQueue::new(clock.clone()));
        let listeners = vec![Subscriber::Controller(Arc::new(Echo), Arc::clone(&queue))];
        let audience = Arc::new(Subscribers::new(world, listeners, meters.clone()));
        let trouble = LastError::default();
        let reflector = Reflector {
            client,
            store_id: StoreId::of::<Thing>(),
            name: Thing::RESOURCE.to_string(),
            filter: Filter::default(),
            subscribers: Arc::clone(&audience),
            limiter: Arc::new(RateLimiter::new(clock.clone(), None)),
            clock,
            timeouts: ReflectorTimeouts::default(),
            metrics: meters,
            backoff: retry::backoff_between(retry::WATCH_RETRY_DELAYS),
            last_error: trouble.clone(),
        };
        let mut running = JoinSet::new();
        running.spawn(reflector.run(fastrand::Rng::with_seed(1), CancellationToken::new()));
        Self {
            hand,
            subscribers: audience,
            queue,
            metrics,
            requests: asked,
            last_error: trouble,
            _running: running,
        }
    }

    async fn advance(&self, seconds: u64) {
        self.hand.advance(Duration::from_secs(seconds)).await;
    }

    /// The queries so far, without the parameters that are the same in all requests and the
    /// timeouts.
    fn requested_queries(&self) -> Vec<String> {
        let short = |path: &String| {
            let query = path.split_once('?').unwrap().1;
            let kept = query.split('&').filter(|it| !it.starts_with("timeoutSeconds"));
            kept.filter(|it| *it != "allowWatchBookmarks=true").collect::<Vec<_>>().join("&")
        };
        self.requests.lock().unwrap().iter().map(|(_, path)| short(path)).collect()
    }

    fn names(&self) -> Vec<String> {
        let all = self.subscribers.world().store::<Thing>().list();
        all.iter().map(|it| it.metadata.name.clone()).collect()
    }
}

fn thing(name: &str, revision: u64) -> Value {
    let metadata = json!({
        "name": name, "namespace": "n", "uid": name, "resourceVersion": revision.to_string(),
    });
    json!({ "metadata": metadata, "size": 1 })
}

fn list(things: &[Value], revision: u64, more: Option<&str>) -> CannedResponse {
    let metadata = json!({ "resourceVersion": revision.to_string(), "continue": more });
    CannedResponse::Text(200, json!({ "metadata": metadata, "items": things }).to_string())
}

fn event(what: &str, object: &Value) -> String {
    format!("{}\n", json!({ "type": what, "object": object }))
}

const EXPIRED_STATUS: &str = r#"{"code":410,"reason":"Expired","message":"too old"}"#;

#[tokio::test]
async fn a_silent_watch_is_restarted() {
    let bookmark = event("BOOKMARK", &json!({ "metadata": { "resourceVersion": "9" } }));
    let opened = event("ADDED", &thing("b", 7)) + &bookmark;
    let says = vec![list(&[thing("a", 3)], 5, None), CannedResponse::Stream(opened)];
    let stage = TestReflector::start(says);
    stage.advance(80).await;
    assert_eq!(stage.requested_queries(), ["limit=500", "watch=true&resourceVersion=5"]);
    assert_eq!(stage.names(), ["a", "b"]);
    stage.advance(20).await;
    assert_eq!(
        stage.requested_queries()[2..],
        ["watch=true&resourceVersion=9"],
        "it goes on where it was"
    );
    stage.advance(70).await;
    assert_eq!(
        stage.requested_queries()[3..],
        ["watch=true&resourceVersion=9"],
        "nor does one that is silent"
    );
}

#[tokio::test]
async fn expired_pages_are_listed_unpaged() {
    let says = vec![
        list(&[thing("a", 3)], 5, Some("next page")),
        CannedResponse::Text(410, EXPIRED_STATUS.to_owned()),
        list(&[thing("a", 3), thing("b", 6)], 7, None),
    ];
    let stage = TestReflector::start(says);
    stage.advance(1).await;
    let expected =
        ["limit=500", "limit=500&continue=next%20page", "limit=0", "watch=true&resourceVersion=7"];
    assert_eq!(stage.requested_queries(), expected);
    assert_eq!(stage.names(), ["a", "b"]);
}

#[tokio::test]
async fn unreadable_objects_are_skipped() {
    let mut bad = thing("bad", 4);
    bad["size"] = "large".into();
    let mut worse = bad.clone();
    worse["metadata"]["resourceVersion"] = "8".into();
    let opened = event("MODIFIED", &worse) + &event("ADDED", &thing("c", 6));
    let says =
        vec![list(&[thing("a", 3), bad, thing("b", 5)], 5, None), CannedResponse::Stream(opened)];
    let stage = TestReflector::start(says);
    stage.advance(1).await;
    assert_eq!(stage.names(), ["a", "b", "c"], "and no other object is skipped");
    assert!(stage.subscribers.world().stores().all(|it| it.has_synced()));
    let page = stage.metrics.encode().unwrap();
    assert!(page.contains(r#"gantry_cache_unreadable_total{kind="things"} 2"#), "{page}");
    assert!(page.contains(r#"gantry_cache_objects{kind="things"} 3"#), "{page}");
    stage.advance(100).await;
    assert_eq!(
        stage.requested_queries()[2..],
        ["watch=true&resourceVersion=8"],
        "it is not shown for ever"
    );
}

#[tokio::test]
async fn objects_that_become_unreadable_are_notified() {
    let mut spoiled = thing("a", 6);
    spoiled["size"] = "large".into();
    let says =
        vec![list(&[thing("a", 3)], 5, None), CannedResponse::Stream(event("MODIFIED", &spoiled))];
    let stage = TestReflector::start(says);
    stage.subscribers.start_notifying();
    stage.advance(1).await;
    assert!(stage.names().is_empty());
    let enqueued = stage.queue.next();
    let (enqueued, ()) = tokio::join!(enqueued, stage.advance(1));
    assert_eq!(enqueued, Key::new("n", "a"));
    let ledger = crate::HeldReasons::of(Arc::clone(stage.subscribers.world()));
    assert_eq!(ledger.count(), 1);
    let entry = ledger.snapshot().remove(0);
    assert_eq!((entry.controller, &entry.key), ("cache", &Key::new("n", "a")));
    assert_eq!(entry.held[0].reason, "Unreadable");
    assert!(entry.held[0].message.contains("cannot read things n/a: invalid type"));
}

#[tokio::test]
async fn failures_are_retried_with_backoff() {
    let no = || CannedResponse::Text(500, r#"{"message":"no"}"#.to_owned());
    let busy = r#"{"message":"busy","details":{"retryAfterSeconds":40}}"#.to_owned();
    let empty = || CannedResponse::Text(200, String::new());
    let mut says: Vec<CannedResponse> = (0..3).map(|_| no()).collect();
    says.extend([CannedResponse::Text(429, busy), list(&[], 5, None), empty(), empty(), empty()]);
    let stage = TestReflector::start(says);
    stage.advance(1).await;
    assert_eq!(stage.requested_queries(), ["limit=500"; 4], "soon at first");
    assert_eq!(stage.last_error.get().unwrap(), "the server answered 429 Too Many Requests: busy");
    stage.advance(38).await;
    assert_eq!(stage.requested_queries().len(), 4, "but not before the delay the server asked for");
    stage.advance(60).await;
    assert_eq!(
        stage.requested_queries()[4..],
        ["limit=500"; 1].into_iter().chain(["watch=true&resourceVersion=5"; 4]).collect::<Vec<_>>()
            [..]
    );
    assert_eq!(stage.last_error.get(), None);
    let times: Vec<u128> = stage.requests.lock().unwrap().iter().map(|it| it.0).collect();
    let pauses: Vec<u128> = times[5..].windows(2).map(|two| two[1] - two[0]).collect();
    assert!(
        pauses.iter().zip([50, 100, 200]).all(|(pause, least)| *pause >= least),
        "watches that end at once are not begun at once: {pauses:?}"
    );
}

#[tokio::test]
async fn an_error_in_a_watch_ends_it() {
    let expired = event("ERROR", &serde_json::from_str(EXPIRED_STATUS).unwrap());
    let other = event("ERROR", &json!({ "code": 500, "message": "no" }));
    let says = vec![
        list(&[thing("a", 3)], 5, None),
        CannedResponse::Stream(other),
        CannedResponse::Stream(expired),
        list(&[thing("b", 8)], 9, None),
    ];
    let stage = TestReflector::start(says);
    stage.advance(2).await;
    let watch = "watch=true&resourceVersion=5";
    assert_eq!(
        stage.requested_queries(),
        ["limit=500", watch, watch, "limit=500", "watch=true&resourceVersion=9"]
    );
    assert_eq!(stage.names(), ["b"]);
}
