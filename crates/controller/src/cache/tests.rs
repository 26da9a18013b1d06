use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use gantry_process::clock::Hand;
use gantry_process::metrics::{Build, Metrics};
use gantry_reconcile::{Controller, Kind, Meta, Plan, Resource, View, World};
use http::Response;
use hyper::body::Frame;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::*;
use crate::audience::Listener;
use crate::wake_queue::Queue;
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

/// Wakes whatever changes.
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

/// What the server does with a request.
enum Say {
    /// Answers with this status and text.
    Text(u16, String),
    /// Answers, sends this, and is never heard of again.
    Open(String),
}

/// A body that comes whole, or begins and never ends.
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

/// A reflector before a server that says what it is told to say.
struct Stage {
    hand: Hand,
    audience: Arc<Audience>,
    queue: Arc<Queue>,
    metrics: Metrics,
    /// When, in milliseconds, and what.
    asked: Arc<Mutex<Vec<(u128, String)>>>,
    trouble: Trouble,
    _running: JoinSet<Result<(), TaskError>>,
}

impl Stage {
    /// Begins with these answers; later requests are never answered.
    fn begin(says: Vec<Say>) -> Self {
        let hand = Hand::at(Timestamp::UNIX_EPOCH);
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
                    Some(Say::Text(code, text)) => (code, Content(Some(text.into()), false)),
                    Some(Say::Open(text)) => (200, Content(Some(text.into()), true)),
                };
                Response::builder().status(code).body(content).unwrap()
            }
        });
        let metrics = Metrics::new(&Build::default());
        let meters = Meters::register(&metrics).unwrap();
        let world = Arc::new(World::new([Kind::of::<Thing>()]));
        let queue = Arc::new(Queue::new(clock.clone()));
        let listeners = vec![Listener::Controller(Arc::new(Echo), Arc::clone(&queue))];
        let audience = Arc::new(Audience::new(world, listeners, meters.clone()));
        let trouble = Trouble::default();
        let reflector = Reflector {
            client,
            place: Place::of::<Thing>(),
            name: Thing::RESOURCE.to_string(),
            filter: Filter::default(),
            audience: Arc::clone(&audience),
            limiter: Arc::new(Limiter::new(clock.clone(), None)),
            clock,
            timing: Timing::default(),
            meters,
            backoff: retry::between(retry::CONNECTION),
            trouble: trouble.clone(),
        };
        let mut running = JoinSet::new();
        running.spawn(reflector.run(fastrand::Rng::with_seed(1), CancellationToken::new()));
        Self { hand, audience, queue, metrics, asked, trouble, _running: running }
    }

    async fn wait(&self, seconds: u64) {
        self.hand.advance(Duration::from_secs(seconds)).await;
    }

    /// What was asked so far, without what is the same in all requests and the time-outs.
    fn asked(&self) -> Vec<String> {
        let short = |path: &String| {
            let query = path.split_once('?').unwrap().1;
            let kept = query.split('&').filter(|it| !it.starts_with("timeoutSeconds"));
            kept.filter(|it| *it != "allowWatchBookmarks=true").collect::<Vec<_>>().join("&")
        };
        self.asked.lock().unwrap().iter().map(|(_, path)| short(path)).collect()
    }

    fn names(&self) -> Vec<String> {
        let all = self.audience.world().shelf::<Thing>().all();
        all.iter().map(|it| it.metadata.name.clone()).collect()
    }
}

fn thing(name: &str, revision: u64) -> Value {
    let metadata = json!({
        "name": name, "namespace": "n", "uid": name, "resourceVersion": revision.to_string(),
    });
    json!({ "metadata": metadata, "size": 1 })
}

fn list(things: &[Value], revision: u64, more: Option<&str>) -> Say {
    let metadata = json!({ "resourceVersion": revision.to_string(), "continue": more });
    Say::Text(200, json!({ "metadata": metadata, "items": things }).to_string())
}

fn event(what: &str, object: &Value) -> String {
    format!("{}\n", json!({ "type": what, "object": object }))
}

const GONE: &str = r#"{"code":410,"reason":"Expired","message":"too old"}"#;

#[tokio::test]
async fn a_peer_that_is_gone_does_not_freeze_the_cache() {
    let bookmark = event("BOOKMARK", &json!({ "metadata": { "resourceVersion": "9" } }));
    let opened = event("ADDED", &thing("b", 7)) + &bookmark;
    let says = vec![list(&[thing("a", 3)], 5, None), Say::Open(opened)];
    let stage = Stage::begin(says);
    stage.wait(80).await;
    assert_eq!(stage.asked(), ["limit=500", "watch=true&resourceVersion=5"]);
    assert_eq!(stage.names(), ["a", "b"]);
    stage.wait(20).await;
    assert_eq!(stage.asked()[2..], ["watch=true&resourceVersion=9"], "it goes on where it was");
    stage.wait(70).await;
    assert_eq!(stage.asked()[3..], ["watch=true&resourceVersion=9"], "nor does one that is silent");
}

#[tokio::test]
async fn pages_that_do_not_hold_are_followed_by_one_list() {
    let says = vec![
        list(&[thing("a", 3)], 5, Some("next page")),
        Say::Text(410, GONE.to_owned()),
        list(&[thing("a", 3), thing("b", 6)], 7, None),
    ];
    let stage = Stage::begin(says);
    stage.wait(1).await;
    let expected =
        ["limit=500", "limit=500&continue=next%20page", "limit=0", "watch=true&resourceVersion=7"];
    assert_eq!(stage.asked(), expected);
    assert_eq!(stage.names(), ["a", "b"]);
}

#[tokio::test]
async fn what_cannot_be_read_is_left_out() {
    let mut bad = thing("bad", 4);
    bad["size"] = "large".into();
    let mut worse = bad.clone();
    worse["metadata"]["resourceVersion"] = "8".into();
    let opened = event("MODIFIED", &worse) + &event("ADDED", &thing("c", 6));
    let says = vec![list(&[thing("a", 3), bad, thing("b", 5)], 5, None), Say::Open(opened)];
    let stage = Stage::begin(says);
    stage.wait(1).await;
    assert_eq!(stage.names(), ["a", "b", "c"], "and nobody else is");
    assert!(stage.audience.world().shelves().all(|it| it.is_filled()));
    let page = stage.metrics.encode().unwrap();
    assert!(page.contains(r#"gantry_cache_unreadable_total{kind="things"} 2"#), "{page}");
    assert!(page.contains(r#"gantry_cache_objects{kind="things"} 3"#), "{page}");
    stage.wait(100).await;
    assert_eq!(stage.asked()[2..], ["watch=true&resourceVersion=8"], "it is not shown for ever");
}

#[tokio::test]
async fn whoever_saw_what_can_no_longer_be_read_is_told() {
    let mut spoiled = thing("a", 6);
    spoiled["size"] = "large".into();
    let says = vec![list(&[thing("a", 3)], 5, None), Say::Open(event("MODIFIED", &spoiled))];
    let stage = Stage::begin(says);
    stage.audience.open();
    stage.wait(1).await;
    assert!(stage.names().is_empty());
    let told = stage.queue.next();
    let (told, ()) = tokio::join!(told, stage.wait(1));
    assert_eq!(told, Key::new("n", "a"));
    let ledger = crate::Ledger::of(Arc::clone(stage.audience.world()));
    assert_eq!(ledger.count(), 1);
    let entry = ledger.snapshot().remove(0);
    assert_eq!((entry.controller, &entry.key), ("cache", &Key::new("n", "a")));
    assert_eq!(entry.held[0].reason, "Unreadable");
    assert!(entry.held[0].message.contains("cannot read things n/a: invalid type"));
}

#[tokio::test]
async fn failures_are_waited_out() {
    let no = || Say::Text(500, r#"{"message":"no"}"#.to_owned());
    let busy = r#"{"message":"busy","details":{"retryAfterSeconds":40}}"#.to_owned();
    let empty = || Say::Text(200, String::new());
    let mut says: Vec<Say> = (0..3).map(|_| no()).collect();
    says.extend([Say::Text(429, busy), list(&[], 5, None), empty(), empty(), empty()]);
    let stage = Stage::begin(says);
    stage.wait(1).await;
    assert_eq!(stage.asked(), ["limit=500"; 4], "soon at first");
    assert_eq!(stage.trouble.get().unwrap(), "the server answered 429 Too Many Requests: busy");
    stage.wait(38).await;
    assert_eq!(stage.asked().len(), 4, "but not before the server wants it");
    stage.wait(60).await;
    assert_eq!(
        stage.asked()[4..],
        ["limit=500"; 1].into_iter().chain(["watch=true&resourceVersion=5"; 4]).collect::<Vec<_>>()
            [..]
    );
    assert_eq!(stage.trouble.get(), None);
    let times: Vec<u128> = stage.asked.lock().unwrap().iter().map(|it| it.0).collect();
    let pauses: Vec<u128> = times[5..].windows(2).map(|two| two[1] - two[0]).collect();
    assert!(
        pauses.iter().zip([50, 100, 200]).all(|(pause, least)| *pause >= least),
        "watches that end at once are not begun at once: {pauses:?}"
    );
}

#[tokio::test]
async fn an_error_in_a_watch_ends_it() {
    let expired = event("ERROR", &serde_json::from_str(GONE).unwrap());
    let other = event("ERROR", &json!({ "code": 500, "message": "no" }));
    let says = vec![
        list(&[thing("a", 3)], 5, None),
        Say::Open(other),
        Say::Open(expired),
        list(&[thing("b", 8)], 9, None),
    ];
    let stage = Stage::begin(says);
    stage.wait(2).await;
    let watch = "watch=true&resourceVersion=5";
    assert_eq!(
        stage.asked(),
        ["limit=500", watch, watch, "limit=500", "watch=true&resourceVersion=9"]
    );
    assert_eq!(stage.names(), ["b"]);
}
