use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::Hand;
use gantry_process::metrics::{Build, Metrics};
use gantry_process::tasks::{Counters, Tasks};
use gantry_reconcile::inquiry::{InquiryPolicy, Wanted};
use gantry_reconcile::{
    Call, CallId, CallState, Change, Controller, Fact, FactChange, FactKind, Inquiry, Key, Kind,
    Meta, Plan, Refusal, Reply, Resource, Target, Uid, View, World,
};
use http::{Request, Response};
use http_body_util::Full;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::calls::{Calls, Context};
use super::*;
use crate::lease::Permit;
use crate::meters::Meters;
use crate::run::{Actor, Options, Seat, Shell};
use crate::transport;
use crate::wake_queue::Queue;

/// Does what the address says, and counts.
#[derive(Default)]
struct Peer {
    calls: Mutex<BTreeMap<String, usize>>,
}

impl Peer {
    fn count(&self, address: &str) -> usize {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.get(address).copied().unwrap_or_default()
    }
}

impl Caller for Peer {
    fn protocol(&self) -> &'static str {
        "test"
    }

    fn call<'a>(&'a self, call: &'a Call) -> Later<'a, Result<Reply, CallError>> {
        let address = call.target.address.as_str();
        let nth = {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            let count = calls.entry(address.to_owned()).or_default();
            *count += 1;
            *count
        };
        Box::pin(async move {
            match address {
                it if it.starts_with("silent") => std::future::pending().await,
                "broken" if nth < 3 => Err(CallError("connection reset".to_owned())),
                "busy" if nth < 2 => Ok(Reply::Refused(Refusal {
                    code: 503,
                    reason: "Busy".to_owned(),
                    message: "not now".to_owned(),
                })),
                "panics" if nth < 2 => panic!("as it was told"),
                _ => Ok(Reply::Done(json!(nth))),
            }
        })
    }
}

fn call(address: &str) -> Call {
    Call {
        id: CallId::new(address),
        target: Target {
            protocol: "test",
            address: address.to_owned(),
            uid: Uid::default(),
            group: address.to_owned(),
        },
        purpose: "test",
        request: Value::Null,
        timeout: Duration::from_secs(10),
    }
}

struct Desk {
    hand: Hand,
    calls: Calls,
    peer: Arc<Peer>,
    world: Arc<World>,
    queue: Arc<Queue>,
    _running: JoinSet<Result<(), gantry_process::tasks::TaskError>>,
}

impl Desk {
    fn begin(permit: impl FnOnce(&Hand) -> Permit) -> Self {
        let hand = Hand::at(Timestamp::UNIX_EPOCH);
        let (peer, world) = (Arc::new(Peer::default()), Arc::new(World::default()));
        let queue = Arc::new(Queue::new(hand.clock()));
        let metrics = Metrics::new(&Build::default());
        let context = Context {
            world: Arc::clone(&world),
            queues: [("c", Arc::clone(&queue))].into(),
            permit: permit(&hand),
            clock: hand.clock(),
            meters: Meters::register(&metrics).unwrap(),
            jitter: fastrand::Rng::with_seed(1),
        };
        let callers = [Arc::clone(&peer) as Arc<dyn Caller>];
        let calls = Calls::new(&callers, CallBounds::default(), context);
        let mut running = JoinSet::new();
        running.spawn(calls.clone().run(CancellationToken::new()));
        Self { hand, calls, peer, world, queue, _running: running }
    }

    /// Lets a key want calls to these addresses, and everything be done that can be.
    async fn want(&self, key: &str, addresses: &[&str]) {
        self.calls.want("c", &Key::cluster(key), addresses.iter().map(|it| call(it)).collect());
        self.pass(Duration::ZERO).await;
    }

    async fn pass(&self, time: Duration) {
        self.hand.advance(time).await;
        for _ in 0..20 {
            self.hand.advance(Duration::ZERO).await;
        }
    }

    fn state(&self, address: &str) -> CallState {
        let observed = self.world.facts::<CallState>().observed(&CallId::new(address));
        observed.expect("something is known about the call").value.clone()
    }

    fn enqueued(&self) -> Vec<String> {
        let keys = std::iter::from_fn(|| self.queue.try_next());
        let keys: Vec<Key> = keys.collect();
        keys.iter().for_each(|key| self.queue.done(key, None));
        keys.iter().map(|it| it.name().to_owned()).collect()
    }
}

fn always(hand: &Hand) -> Permit {
    Permit::always(hand.clock())
}

#[tokio::test]
async fn a_peer_that_never_answers_delays_no_other_key() {
    let desk = Desk::begin(always);
    for nth in 0..100 {
        desk.want(&format!("silent-{nth}"), &[&format!("silent-{nth}")]).await;
    }
    assert_eq!(desk.calls.count(), (100, 100));
    desk.enqueued();
    desk.want("k", &["fine"]).await;
    assert_eq!(desk.state("fine").done(), Some(&json!(1)));
    assert_eq!(desk.enqueued(), ["k"], "a reply enqueues the key that wants it, and no other");
    assert!(desk.state("silent-7").under_way);
    // It is given up when its time is up, and tried again after a pause for as long as it is wanted.
    desk.pass(Duration::from_secs(10)).await;
    let late = desk.state("silent-7");
    assert!(!late.under_way && late.failures == 1 && late.retry_at.is_some(), "{late:?}");
    assert!(late.error.is_some_and(|it| it.contains("10")), "the time it had is named");
    desk.pass(Duration::from_secs(1)).await;
    assert_eq!(desk.peer.count("silent-7"), 2);
}

#[tokio::test]
async fn a_call_is_tried_until_it_is_done_and_then_no_more() {
    let desk = Desk::begin(always);
    desk.want("k", &["broken", "busy", "panics"]).await;
    assert_eq!(desk.state("broken").error.as_deref(), Some("connection reset"));
    assert_eq!(desk.state("busy").refused().map(|it| it.code), Some(503));
    assert!(desk.state("panics").error.is_some_and(|it| it.contains("panicked")));
    for _ in 0..20 {
        desk.pass(Duration::from_millis(100)).await;
    }
    for (address, tries) in [("broken", 3), ("busy", 2), ("panics", 2)] {
        let state = desk.state(address);
        assert_eq!(state.done(), Some(&json!(tries)), "{address}");
        assert_eq!((state.failures, state.error), (0, None), "{address}");
    }
    desk.want("k", &["broken", "busy", "panics"]).await;
    desk.pass(Duration::from_secs(100)).await;
    assert_eq!(desk.peer.count("broken"), 3, "what was done is not done again");
}

#[tokio::test]
async fn what_is_no_longer_wanted_is_given_up() {
    let desk = Desk::begin(always);
    desk.want("k", &["silent", "fine"]).await;
    desk.want("k", &["fine"]).await;
    assert_eq!(desk.calls.count(), (1, 0));
    let facts = desk.world.facts::<CallState>();
    assert_eq!(facts.len(), 1, "and forgotten");
    desk.want("k", &["silent", "fine"]).await;
    assert_eq!((desk.peer.count("silent"), desk.peer.count("fine")), (2, 1), "wanted anew");
    let mut unknown = call("unknown");
    unknown.target.protocol = "telepathy";
    desk.calls.want("c", &Key::cluster("l"), vec![unknown]);
    desk.pass(Duration::ZERO).await;
    let error = desk.state("unknown").error.unwrap();
    assert_eq!(error, "nothing in this process speaks telepathy");
}

#[tokio::test]
async fn only_the_leader_calls() {
    let mut grant = None;
    let desk = Desk::begin(|hand| {
        let (given, permit) = Permit::on_grant(hand.clock());
        grant = Some(given);
        permit
    });
    let grant = grant.unwrap();
    desk.want("k", &["silent"]).await;
    assert_eq!(desk.state("silent").error.as_deref(), Some("not leading"));
    assert_eq!(desk.peer.count("silent"), 0);
    grant.until(desk.hand.clock().moment() + Duration::from_secs(5));
    desk.pass(Duration::from_secs(1)).await;
    assert_eq!(desk.peer.count("silent"), 1);
    assert!(desk.state("silent").under_way);
    desk.pass(Duration::from_secs(5)).await;
    let state = desk.state("silent");
    assert_eq!(state.error.as_deref(), Some("not leading"), "not a moment longer: {state:?}");
    assert_eq!(desk.peer.count("silent"), 1);
}

#[derive(Debug, Deserialize)]
struct Well {
    metadata: Meta,
}

impl View for Well {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "wells", "Well");
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// How deep a well is.
#[derive(Debug, PartialEq)]
struct Depth(u32);

impl Fact for Depth {
    type Subject = Key;
    const NAME: &'static str = "depth";
}

struct Depths;

/// A well whose depth is asked for once, and again when it was measured before this time.
const SURVEYED: &str = "surveyed";
const SURVEY: Timestamp = Timestamp::constant(40, 0);

impl Inquiry for Depths {
    type Fact = Depth;

    fn name(&self) -> &'static str {
        "depths"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Well>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        vec![change.key.clone()]
    }

    fn wanted(&self, world: &World, key: &Key, now: Timestamp) -> Wanted<Key> {
        let wells = world.shelf::<Well>().get(key);
        let mut wanted: Wanted<Key> = wells.iter().map(|it| it.metadata.key()).collect();
        if key.name() == SURVEYED {
            let known = world.facts::<Depth>().observed(key);
            let is_old = known.is_some_and(|it| it.at < SURVEY);
            match now < SURVEY {
                true => wanted.requeue_at = Some(SURVEY),
                false if is_old => drop(wanted.stale.insert(key.clone())),
                false => {}
            }
        }
        wanted
    }

    fn refresh_interval(&self, question: &Key, _: &Depth) -> Duration {
        match question.name() {
            SURVEYED => Duration::from_secs(3600),
            _ => self.policy(question).refresh_interval,
        }
    }

    fn policy(&self, _: &Key) -> InquiryPolicy {
        InquiryPolicy::default()
    }
}

/// Answers by the name of a well.
#[derive(Default)]
struct Plumb(Mutex<BTreeMap<String, u32>>);

impl Responder<Depth> for Arc<Plumb> {
    fn answer<'a>(
        &'a self,
        question: &'a Key,
        context: &'a ResponderContext,
    ) -> Later<'a, Result<Depth, String>> {
        let wells = context.handle.world().shelf::<Well>();
        assert!(wells.get(question).is_some(), "it is asked by a shell that has seen the well");
        let asked = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let asked = all.entry(question.name().to_owned()).or_default();
            *asked += 1;
            *asked
        };
        Box::pin(async move {
            match question.name() {
                "bottomless" => std::future::pending().await,
                "dry" if asked < 3 => Err("no water".to_owned()),
                _ => Ok(Depth(7)),
            }
        })
    }
}

/// Drills wells whose depth is known, and says what it was shown.
#[derive(Default)]
struct Drill {
    observed: Mutex<Vec<String>>,
}

impl Observer for Drill {
    fn name(&self) -> &'static str {
        "drill-log"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Well>()]
    }

    fn observe(&self, _: &World, change: &Change) {
        self.observed.lock().unwrap().push(change.key.name().to_owned());
    }
}

impl Controller for Drill {
    fn name(&self) -> &'static str {
        "drill"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Well>()]
    }

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<Depth>()]
    }

    fn observer(&self) -> Option<&dyn Observer> {
        Some(self)
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let observed = self.observed.lock().unwrap();
        assert!(
            observed.contains(&change.key.name().to_owned()),
            "the observer was shown it first"
        );
        Vec::new()
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        let change = change.of::<Depth>().expect("only facts that were asked for");
        vec![change.subject.clone()]
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        if world.facts::<Depth>().observed(key).is_some() {
            plan.call(call(key.name()));
        }
        plan
    }
}

/// From an object by a question to a fact, from the fact by a plan to a call, and from its reply to a fact: in
/// a shell, beside a question that nobody answers and one that fails twice.
#[tokio::test]
async fn a_shell_asks_and_calls() {
    let hand = Hand::at(Timestamp::UNIX_EPOCH);
    let client = transport::in_process(move |request: Request<Bytes>| {
        let watch = request.uri().query().is_some_and(|it| it.contains("watch"));
        let well = |name: &str| json!({"metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"}});
        let items = [well("bottomless"), well("deep"), well("dry"), well(SURVEYED)];
        let body = json!({"metadata": {"resourceVersion": "1"}, "items": items}).to_string();
        async move {
            if watch {
                std::future::pending::<()>().await;
            }
            Response::new(Full::new(Bytes::from(body)))
        }
    });
    let metrics = Metrics::new(&Build::default());
    let meters = Meters::register(&metrics).unwrap();
    let counters = Counters::register(&metrics).unwrap();
    let (drill, plumb, peer) =
        (Arc::new(Drill::default()), Arc::new(Plumb::default()), Arc::new(Peer::default()));
    let controller = Arc::clone(&drill) as Arc<dyn Controller>;
    let seats = vec![Seat::new(controller, Arc::new(Actor::new(client.clone(), "m", "c")))];
    let outside = Outside {
        inquiries: vec![Arc::new(Asks::new(Depths, Arc::clone(&plumb)))],
        callers: vec![Arc::clone(&peer) as Arc<dyn Caller>],
        ..Outside::default()
    };
    let options = Options { outside, ..Options::default() };
    let jitter = fastrand::Rng::with_seed(1);
    let shell = Shell::new(hand.clock(), jitter.clone(), client, seats, options, meters).unwrap();
    let world = Arc::clone(shell.handle().world());
    let tasks = Tasks::new(hand.clock(), counters, jitter, &CancellationToken::new());
    let mut running = JoinSet::new();
    running.spawn(shell.run(tasks));
    let pass = async |time: Duration| {
        hand.advance(time).await;
        for _ in 0..50 {
            hand.advance(Duration::ZERO).await;
        }
    };
    pass(Duration::ZERO).await;
    assert_eq!(peer.count("deep"), 1, "asked, planned and called");
    let key = |name: &str| Key::new("n", name);
    let depth = |name: &str| world.facts::<Depth>().get(&key(name));
    assert_eq!(depth("dry").unwrap().failure.as_ref().unwrap().message, "no water");
    assert!(depth("bottomless").is_none());
    for _ in 0..4 {
        pass(Duration::from_secs(1)).await;
    }
    assert_eq!(peer.count("dry"), 1, "the third answer is one");
    pass(Duration::from_secs(20)).await;
    let failure = depth("bottomless").unwrap().failure.clone().unwrap();
    assert!(failure.message.contains("10"), "{failure:?}");
    let asked = |name: &str| plumb.0.lock().unwrap().get(name).copied();
    assert!(asked("deep") > Some(1), "what is wanted is asked again: {:?}", asked("deep"));
    assert_eq!(asked(SURVEYED), Some(1), "this answer holds for an hour");
    pass(Duration::from_secs(20)).await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(asked(SURVEYED), Some(2), "and is too old for whom it must be newer");
    assert!(world.facts::<Depth>().observed(&key(SURVEYED)).unwrap().at >= SURVEY);
    assert_eq!(peer.count("deep"), 1, "and what was done stays");
    let text = metrics.encode().unwrap();
    for line in [
        "gantry_controller_calls_total{protocol=\"test\",purpose=\"test\",outcome=\"done\"} 3",
        "gantry_controller_inquiries_total{inquiry=\"depths\",outcome=\"failed\"}",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}
