use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::FakeClock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::{TaskMetrics, Tasks};
use gantry_reconcile::inquiry::{InquiryPolicy, WantedQuestions};
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

use super::calls::{Calls, CallsContext};
use super::*;
use crate::lease::Permit;
use crate::metrics::ControllerMetrics;
use crate::run::{Actor, ControllerManager, ManagerOptions, Registration};
use crate::transport;
use crate::work_queue::WorkQueue;

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

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, CallError>> {
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
                "panics" if nth < 2 => panic!("as the test demands"),
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

struct CallsFixture {
    hand: FakeClock,
    calls: Calls,
    peer: Arc<Peer>,
    world: Arc<World>,
    queue: Arc<WorkQueue>,
    _running: JoinSet<Result<(), gantry_process::tasks::TaskError>>,
}

impl CallsFixture {
    fn start(permit: impl FnOnce(&FakeClock) -> Permit) -> Self {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let (peer, world) = (Arc::new(Peer::default()), Arc::new(World::default()));
        let queue = Arc::new(WorkQueue::new(hand.clock()));
        let metrics = Metrics::new(&BuildInfo::default());
        let context = CallsContext {
            world: Arc::clone(&world),
            queues: [("c", Arc::clone(&queue))].into(),
            permit: permit(&hand),
            clock: hand.clock(),
            metrics: ControllerMetrics::register(&metrics).unwrap(),
            jitter: fastrand::Rng::with_seed(1),
        };
        let callers = [Arc::clone(&peer) as Arc<dyn Caller>];
        let calls = Calls::new(&callers, CallBounds::default(), context);
        let mut running = JoinSet::new();
        running.spawn(calls.clone().run(CancellationToken::new()));
        Self { hand, calls, peer, world, queue, _running: running }
    }

    /// Sets the calls of a key to these addresses, and lets everything be done that can be.
    async fn set_wanted(&self, key: &str, addresses: &[&str]) {
        self.calls.set_wanted(
            "c",
            &Key::cluster(key),
            addresses.iter().map(|it| call(it)).collect(),
        );
        self.advance(Duration::ZERO).await;
    }

    async fn advance(&self, time: Duration) {
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

fn always(hand: &FakeClock) -> Permit {
    Permit::always(hand.clock())
}

#[tokio::test]
async fn a_silent_peer_delays_no_other_key() {
    let fixture = CallsFixture::start(always);
    for nth in 0..100 {
        fixture.set_wanted(&format!("silent-{nth}"), &[&format!("silent-{nth}")]).await;
    }
    assert_eq!(fixture.calls.count(), (100, 100));
    fixture.enqueued();
    fixture.set_wanted("k", &["fine"]).await;
    assert_eq!(fixture.state("fine").done(), Some(&json!(1)));
    assert_eq!(fixture.enqueued(), ["k"], "a reply enqueues the key that wants it, and no other");
    assert!(fixture.state("silent-7").under_way);
    // It is cancelled after its timeout, and retried after a delay for as long as it is wanted.
    fixture.advance(Duration::from_secs(10)).await;
    let late = fixture.state("silent-7");
    assert!(!late.under_way && late.failures == 1 && late.retry_at.is_some(), "{late:?}");
    assert!(late.error.is_some_and(|it| it.contains("10")), "the time it had is named");
    fixture.advance(Duration::from_secs(1)).await;
    assert_eq!(fixture.peer.count("silent-7"), 2);
}

#[tokio::test]
async fn calls_are_retried_until_done() {
    let fixture = CallsFixture::start(always);
    fixture.set_wanted("k", &["broken", "busy", "panics"]).await;
    assert_eq!(fixture.state("broken").error.as_deref(), Some("connection reset"));
    assert_eq!(fixture.state("busy").refused().map(|it| it.code), Some(503));
    assert!(fixture.state("panics").error.is_some_and(|it| it.contains("panicked")));
    for _ in 0..20 {
        fixture.advance(Duration::from_millis(100)).await;
    }
    for (address, tries) in [("broken", 3), ("busy", 2), ("panics", 2)] {
        let state = fixture.state(address);
        assert_eq!(state.done(), Some(&json!(tries)), "{address}");
        assert_eq!((state.failures, state.error), (0, None), "{address}");
    }
    fixture.set_wanted("k", &["broken", "busy", "panics"]).await;
    fixture.advance(Duration::from_secs(100)).await;
    assert_eq!(fixture.peer.count("broken"), 3, "what was done is not done again");
}

#[tokio::test]
async fn unwanted_calls_are_cancelled() {
    let fixture = CallsFixture::start(always);
    fixture.set_wanted("k", &["silent", "fine"]).await;
    fixture.set_wanted("k", &["fine"]).await;
    assert_eq!(fixture.calls.count(), (1, 0));
    let facts = fixture.world.facts::<CallState>();
    assert_eq!(facts.len(), 1, "and forgotten");
    fixture.set_wanted("k", &["silent", "fine"]).await;
    assert_eq!((fixture.peer.count("silent"), fixture.peer.count("fine")), (2, 1), "wanted again");
    let mut unknown = call("unknown");
    unknown.target.protocol = "telepathy";
    fixture.calls.set_wanted("c", &Key::cluster("l"), vec![unknown]);
    fixture.advance(Duration::ZERO).await;
    let error = fixture.state("unknown").error.unwrap();
    assert_eq!(error, "no caller is registered for protocol telepathy");
}

#[tokio::test]
async fn only_the_leader_calls() {
    let mut grant = None;
    let fixture = CallsFixture::start(|hand| {
        let (given, permit) = Permit::on_grant(hand.clock());
        grant = Some(given);
        permit
    });
    let grant = grant.unwrap();
    fixture.set_wanted("k", &["silent"]).await;
    assert_eq!(fixture.state("silent").error.as_deref(), Some("not leading"));
    assert_eq!(fixture.peer.count("silent"), 0);
    grant.until(fixture.hand.clock().moment() + Duration::from_secs(5));
    fixture.advance(Duration::from_secs(1)).await;
    assert_eq!(fixture.peer.count("silent"), 1);
    assert!(fixture.state("silent").under_way);
    fixture.advance(Duration::from_secs(5)).await;
    let state = fixture.state("silent");
    assert_eq!(state.error.as_deref(), Some("not leading"), "not a moment longer: {state:?}");
    assert_eq!(fixture.peer.count("silent"), 1);
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

/// The depth of a well.
#[derive(Debug, PartialEq)]
struct Depth(u32);

impl Fact for Depth {
    type Subject = Key;
    const NAME: &'static str = "depth";
}

/// It rains: wells that were dry are worth a question.
#[derive(Debug, PartialEq)]
struct Rain;

impl Fact for Rain {
    type Subject = Key;
    const NAME: &'static str = "rain";
}

struct Depths;

/// A well whose depth is asked for once, and again when the answer is older than this time.
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

    fn wanted_questions(&self, world: &World, key: &Key, now: Timestamp) -> WantedQuestions<Key> {
        let wells = world.store::<Well>().get(key);
        let mut wanted: WantedQuestions<Key> = wells.iter().map(|it| it.metadata.key()).collect();
        let rained = world.facts::<Rain>().observed(key).is_some();
        let failures = world.facts::<Depth>().get(key).and_then(|it| it.failure.clone());
        if rained && failures.is_some_and(|it| it.count == 3) {
            wanted.expedited.insert(key.clone());
        }
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

    fn facts(&self) -> Vec<FactKind> {
        vec![FactKind::of::<Rain>()]
    }

    fn enqueue_for_fact(&self, _: &World, change: &FactChange) -> Vec<Key> {
        change.of::<Rain>().map(|it| it.subject.clone()).into_iter().collect()
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
    ) -> BoxFuture<'a, Result<Depth, String>> {
        let wells = context.handle.world().store::<Well>();
        assert!(
            wells.get(question).is_some(),
            "it is asked by a manager that has observed the well"
        );
        let asked = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let asked = all.entry(question.name().to_owned()).or_default();
            *asked += 1;
            *asked
        };
        Box::pin(async move {
            match question.name() {
                "bottomless" => std::future::pending().await,
                "empty" if asked < 4 => Err("no rain".to_owned()),
                "dry" if asked < 3 => Err("no water".to_owned()),
                _ => Ok(Depth(7)),
            }
        })
    }
}

/// Drills wells whose depth is known, and records the changes it received.
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
        assert!(observed.contains(&change.key.name().to_owned()), "the observer received it first");
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

/// From an object by a question to a fact, from the fact by a plan to a call, and from its reply to
/// a fact: in a manager, beside a question that is never answered and one that fails twice.
#[tokio::test]
async fn the_manager_runs_inquiries_and_calls() {
    let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
    let client = transport::in_process(move |request: Request<Bytes>| {
        let watch = request.uri().query().is_some_and(|it| it.contains("watch"));
        let well = |name: &str| json!({"metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"}});
        let names = ["bottomless", "deep", "dry", "empty", SURVEYED];
        let items = names.map(well);
        let body = json!({"metadata": {"resourceVersion": "1"}, "items": items}).to_string();
        async move {
            if watch {
                std::future::pending::<()>().await;
            }
            Response::new(Full::new(Bytes::from(body)))
        }
    });
    let metrics = Metrics::new(&BuildInfo::default());
    let meters = ControllerMetrics::register(&metrics).unwrap();
    let counters = TaskMetrics::register(&metrics).unwrap();
    let (drill, plumb, peer) =
        (Arc::new(Drill::default()), Arc::new(Plumb::default()), Arc::new(Peer::default()));
    let controller = Arc::clone(&drill) as Arc<dyn Controller>;
    let seats = vec![Registration::new(controller, Arc::new(Actor::new(client.clone(), "m", "c")))];
    let outside = ExternalSystems {
        inquiries: vec![Arc::new(InquiryWithResponder::new(Depths, Arc::clone(&plumb)))],
        callers: vec![Arc::clone(&peer) as Arc<dyn Caller>],
        ..ExternalSystems::default()
    };
    let options = ManagerOptions { external: outside, ..ManagerOptions::default() };
    let jitter = fastrand::Rng::with_seed(1);
    let manager =
        ControllerManager::new(hand.clock(), jitter.clone(), client, seats, options, meters)
            .unwrap();
    let handle = manager.handle().clone();
    let world = Arc::clone(handle.world());
    let tasks = Tasks::new(hand.clock(), counters, jitter, &CancellationToken::new());
    let mut running = JoinSet::new();
    running.spawn(manager.run(tasks));
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
    assert_eq!(depth("empty").unwrap().failure.as_ref().unwrap().count, 3, "due in 3 s");
    handle.record(key("empty"), Rain, hand.clock().now());
    pass(Duration::ZERO).await;
    assert_eq!(peer.count("empty"), 1, "asked at once, for a reason that is in a fact");
    pass(Duration::from_secs(20)).await;
    let failure = depth("bottomless").unwrap().failure.clone().unwrap();
    assert!(failure.message.contains("10"), "{failure:?}");
    let asked = |name: &str| plumb.0.lock().unwrap().get(name).copied();
    assert!(asked("deep") > Some(1), "what is wanted is asked again: {:?}", asked("deep"));
    assert_eq!(asked(SURVEYED), Some(1), "this answer holds for an hour");
    pass(Duration::from_secs(20)).await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(asked(SURVEYED), Some(2), "and is too old for a key that wants a newer one");
    assert!(world.facts::<Depth>().observed(&key(SURVEYED)).unwrap().at >= SURVEY);
    assert_eq!(peer.count("deep"), 1, "and what was done stays");
    let text = metrics.encode().unwrap();
    for line in [
        "gantry_controller_calls_total{protocol=\"test\",purpose=\"test\",outcome=\"done\"} 4",
        "gantry_controller_inquiries_total{inquiry=\"depths\",outcome=\"failed\"}",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}
