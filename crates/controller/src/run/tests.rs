use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::{FakeClock, Moment};
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::TaskMetrics;
use gantry_reconcile::{
    Change, Event, Key, Kind, Meta, ObjectReference, Plan, Resource, Step, Uid, View, World, Write,
};
use http::{Method, Request, Response};
use http_body_util::Full;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::transport;

#[derive(Debug, Deserialize)]
struct Thing {
    metadata: Meta,
}

impl View for Thing {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "things", "Thing");
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Another view of the same kind.
#[derive(Debug, Deserialize)]
struct Other {
    metadata: Meta,
}

impl View for Other {
    const RESOURCE: Resource = Thing::RESOURCE;
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Does what the name of a key says, and records when.
#[derive(Default)]
struct ScriptedController {
    planned: Mutex<Vec<(String, Timestamp)>>,
}

impl Controller for ScriptedController {
    fn name(&self) -> &'static str {
        "obedient"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Thing>()]
    }

    fn enqueue(&self, _: &World, _: &Change) -> Vec<Key> {
        Vec::new()
    }

    fn plan(&self, _: &World, key: &Key, now: Timestamp) -> Plan {
        self.planned.lock().unwrap().push((key.name().to_owned(), now));
        let mut plan = Plan::default();
        let about = ObjectReference {
            resource: Thing::RESOURCE,
            key: key.clone(),
            uid: Uid::new("u"),
            field: String::new(),
        };
        let writes = match key.name() {
            "panic" => panic!("as the test demands"),
            "owned" => {
                let body = json!({ "metadata": { "name": "a", "namespace": "n" } });
                let create = Write::Create { resource: Thing::RESOURCE, body };
                let owner = ObjectReference { key: Key::new("n", "owner"), ..about.clone() };
                plan.steps.push(Step::new(create).require_present(owner));
                0
            }
            "row" => {
                let create = |name: &str| {
                    let body = json!({ "metadata": { "name": name, "namespace": "n" } });
                    Step::new(Write::Create { resource: Thing::RESOURCE, body })
                };
                let rest = create("refused").then(create("never"));
                plan.steps.push(create("granted-1").then(create("granted-2").then(rest)));
                plan.steps.push(create("granted-3"));
                0
            }
            "talk" => {
                let body = json!({ "metadata": { "name": "granted", "namespace": "n" } });
                let create = Write::Create { resource: Thing::RESOURCE, body };
                plan.steps.push(Step::new(create).deferrable());
                0
            }
            "minutely" => {
                plan.requeue_after(Duration::from_secs(60));
                0
            }
            name => name.parse().unwrap_or(0),
        };
        for n in 0..writes {
            let body = json!({ "metadata": { "name": n.to_string(), "namespace": "n" } });
            let refused = Event::warning(about.clone(), "Failed", "Error creating".to_owned());
            let create = Write::Create { resource: Thing::RESOURCE, body };
            plan.steps.push(Step::new(create).on_refusal(refused));
        }
        plan
    }
}

/// A manager with a fake clock and a server that is empty and refuses everything.
struct TestManager {
    hand: FakeClock,
    handle: ManagerHandle,
    controller: Arc<ScriptedController>,
    /// The bodies of create requests, by the end of the path.
    posts: Arc<Mutex<Vec<(String, String)>>>,
    _running: JoinSet<Result<(), ManagerError>>,
}

impl TestManager {
    async fn start(options: ManagerOptions) -> Self {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let posts = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&posts);
        let asked = Arc::new(AtomicUsize::new(0));
        let client = transport::in_process(move |request: Request<Bytes>| {
            let watch = request.uri().query().is_some_and(|it| it.contains("watch"));
            let (code, body) = match *request.method() {
                Method::GET if request.uri().path().ends_with("/owner") => {
                    match asked.fetch_add(1, Ordering::Relaxed) {
                        0 => (404, r#"{"message":"not found","reason":"NotFound"}"#),
                        1 => (200, r#"{"metadata":{"uid":"v"}}"#),
                        2 => (200, r#"{"metadata":{"uid":"u","deletionTimestamp":"now"}}"#),
                        3 => (500, r#"{"message":"busy"}"#),
                        _ => (200, r#"{"metadata":{"uid":"u"}}"#),
                    }
                }
                Method::GET => (200, r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#),
                Method::POST if request.body().windows(7).any(|it| it == b"granted") => {
                    (201, r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"2"}}"#)
                }
                _ => (403, r#"{"message":"quota is used up","reason":"Forbidden"}"#),
            };
            if request.method() == Method::POST {
                let kind = request.uri().path().rsplit('/').next().unwrap().to_owned();
                let text = String::from_utf8(request.body().to_vec()).unwrap();
                log.lock().unwrap().push((kind, text));
            }
            async move {
                if watch {
                    std::future::pending::<()>().await;
                }
                Response::builder().status(code).body(Full::new(Bytes::from(body))).unwrap()
            }
        });
        let metrics = Metrics::new(&BuildInfo::default());
        let meters = ControllerMetrics::register(&metrics).unwrap();
        let counters = TaskMetrics::register(&metrics).unwrap();
        let actor = Actor::new(client.clone(), "m", "c");
        let controller = Arc::new(ScriptedController::default());
        let seats = vec![Registration::new(
            Arc::clone(&controller) as Arc<dyn Controller>,
            Arc::new(actor),
        )];
        let jitter = fastrand::Rng::with_seed(1);
        let manager =
            ControllerManager::new(hand.clock(), jitter.clone(), client, seats, options, meters);
        let manager = manager.unwrap();
        let handle = manager.handle();
        let tasks = Tasks::new(hand.clock(), counters, jitter, &CancellationToken::new());
        let mut running = JoinSet::new();
        running.spawn(manager.run(tasks));
        handle.wait_for_cache_sync().await;
        Self { hand, handle, controller, posts, _running: running }
    }

    async fn enqueue(&self, name: &str) {
        self.handle.enqueue("obedient", Key::new("n", name));
        // A few times, because each write takes several polls of the runtime.
        for _ in 0..20 {
            self.hand.advance(Duration::ZERO).await;
        }
    }

    /// When a key was planned, in milliseconds.
    fn planned(&self, name: &str) -> Vec<i64> {
        let planned = self.controller.planned.lock().unwrap();
        let of = planned.iter().filter(|it| it.0 == name);
        of.map(|it| it.1.as_millisecond()).collect()
    }

    fn posts(&self, kind: &str) -> Vec<String> {
        let posts = self.posts.lock().unwrap();
        posts.iter().filter(|it| it.0 == kind).map(|it| it.1.clone()).collect()
    }
}

#[tokio::test]
async fn many_refusals_end_the_plan() {
    let stage =
        TestManager::start(ManagerOptions { max_in_flight_writes: 4, ..ManagerOptions::default() })
            .await;
    stage.enqueue("100").await;
    let tried = stage.posts("things").len();
    // Eight refusals, and the writes that were in flight when the eighth came.
    assert!((8..8 + 4).contains(&tried), "{tried} writes were tried");
    assert_eq!(stage.planned("100"), [0]);
    stage.hand.advance(Duration::from_millis(5)).await;
    assert_eq!(stage.planned("100").len(), 2, "it is tried again after a while");
    let events = stage.posts("events");
    assert!(events[0].contains("Error creating: quota is used up"), "{}", events[0]);
}

#[tokio::test]
async fn then_steps_wait_for_success() {
    let stage =
        TestManager::start(ManagerOptions { max_in_flight_writes: 1, ..ManagerOptions::default() })
            .await;
    stage.enqueue("row").await;
    let name = |body: &String| {
        let object: serde_json::Value = serde_json::from_str(body).unwrap();
        object["metadata"]["name"].as_str().unwrap().to_owned()
    };
    let made: Vec<String> = stage.posts("things").iter().map(name).collect();
    assert_eq!(made, ["granted-1", "granted-2", "refused", "granted-3"]);
    let refused = stage.handle.world().refused_writes("obedient", &Key::new("n", "row"));
    assert_eq!(refused.len(), 1, "a write that was never tried was not refused: {refused:?}");
}

/// Sent once because there are no other requests, and once because of the reserved share; then
/// other requests come first.
#[tokio::test]
async fn deferrable_writes_are_deferred() {
    let stage = TestManager::start(ManagerOptions::default()).await;
    stage.handle.set_rate(Some(Rate { per_second: 1.0, burst: 1 }));
    stage.enqueue("talk").await;
    assert_eq!(stage.posts("things").len(), 1);
    stage.enqueue("talk").await;
    stage.hand.advance(Duration::from_secs(1)).await;
    stage.enqueue("talk").await;
    assert_eq!((stage.planned("talk"), stage.posts("things").len()), (vec![0, 0, 1000], 2));
    let held = stage.handle.held_reasons().snapshot();
    assert!(held.iter().all(|it| it.held.is_empty()), "it is no failure: {held:?}");
    stage.hand.advance(Duration::from_secs(6)).await;
    stage.enqueue("nothing").await;
    assert_eq!((stage.planned("talk"), stage.posts("things").len()), (vec![0, 0, 1000, 6000], 3));
}

/// Deleted, replaced, terminating, unknown: four times nothing is written.
#[tokio::test]
async fn require_present_is_checked_first() {
    let stage = TestManager::start(ManagerOptions::default()).await;
    stage.enqueue("owned").await;
    for tries in 1..5 {
        assert_eq!(stage.planned("owned").len(), tries);
        assert_eq!(stage.posts("things").len(), 0, "after {tries} tries");
        let before = stage.planned("owned").len();
        while stage.planned("owned").len() == before {
            stage.hand.advance(Duration::from_millis(5)).await;
        }
        for _ in 0..20 {
            stage.hand.advance(Duration::ZERO).await;
        }
    }
    assert_eq!(stage.posts("things").len(), 1, "it exists");
}

#[tokio::test]
async fn refused_writes_are_held_and_tried_last() {
    let stage = TestManager::start(ManagerOptions {
        max_in_flight_writes: 1,
        max_refusals: 2,
        ..ManagerOptions::default()
    })
    .await;
    stage.enqueue("3").await;
    let tried = |stage: &TestManager| -> Vec<String> {
        let name = |body: &String| body.split("\"name\":\"").nth(1).unwrap()[..1].to_owned();
        stage.posts("things").iter().map(name).collect()
    };
    assert_eq!(tried(&stage), ["0", "1"]);
    let world = stage.handle.world();
    let refused = world.refused_writes("obedient", &Key::new("n", "3"));
    let refused: Vec<_> = refused.iter().map(|it| (it.verb, it.key.name().to_owned())).collect();
    assert_eq!(refused, [("create", "0".to_owned()), ("create", "1".to_owned())]);
    let held = stage.handle.held_reasons().snapshot().remove(0).held;
    assert_eq!((held.len(), &*held[0].reason), (2, "Forbidden"));
    assert_eq!(held[0].message, "could not create things n/0: quota is used up");
    assert!(held[0].until.is_some(), "it is tried again");
    stage.hand.advance(Duration::from_millis(5)).await;
    for _ in 0..20 {
        stage.hand.advance(Duration::ZERO).await;
    }
    assert_eq!(tried(&stage)[2], "2", "refused writes do not block others");
}

#[tokio::test]
async fn a_panic_affects_one_key_only() {
    let stage = TestManager::start(ManagerOptions::default()).await;
    stage.enqueue("panic").await;
    stage.enqueue("fine").await;
    assert_eq!(stage.planned("fine"), [0], "others go on");
    stage.hand.advance(Duration::from_secs(3)).await;
    let times = stage.planned("panic");
    let pauses: Vec<i64> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses.len() > 5, "it is tried again: {pauses:?}");
    let growing = pauses.windows(3).all(|three| three[2] > three[0]);
    assert!(growing, "with growing pauses: {pauses:?}");
    let held = stage.handle.held_reasons().snapshot().remove(0).held.remove(0);
    assert_eq!((&*held.reason, held.about.resource), ("Panicked", Thing::RESOURCE));
}

#[tokio::test]
async fn a_plan_is_made_again_when_it_asks_for_it() {
    let stage = TestManager::start(ManagerOptions::default()).await;
    stage.enqueue("minutely").await;
    stage.hand.advance(Duration::from_secs(150)).await;
    assert_eq!(stage.planned("minutely"), [0, 60_000, 120_000]);
}

#[tokio::test]
async fn nothing_is_written_without_a_permit() {
    let clock = FakeClock::at(Timestamp::UNIX_EPOCH).clock();
    let client = transport::in_process(|_: Request<Bytes>| async {
        Response::new(Full::new(Bytes::from("{}")))
    });
    let actor = Actor::new(client, "m", "c");
    let (grant, permit) = Permit::on_grant(clock.clone());
    let limiter = Arc::new(RateLimiter::new(clock.clone(), None));
    let limit = Duration::from_secs(1);
    let writer = Writer { clock, limiter, permit, timeout: limit };
    let write = Write::Create { resource: Thing::RESOURCE, body: json!({}) };
    let no = gantry_reconcile::Outcome::Unknown("not leading".to_owned());
    assert_eq!(writer.write(&actor, &write, None).await.outcome, no);
    grant.until(Moment::default() + limit);
    let yes = gantry_reconcile::Outcome::Done(Some(json!({})));
    assert_eq!(writer.write(&actor, &write, None).await.outcome, yes);
    grant.revoke();
    assert_eq!(writer.write(&actor, &write, None).await.outcome, no);
}

/// Has another view of a kind, or the same name.
struct Namesake(&'static str, fn() -> Kind);

impl Controller for Namesake {
    fn name(&self) -> &'static str {
        self.0
    }
    fn kinds(&self) -> Vec<Kind> {
        vec![(self.1)()]
    }
    fn enqueue(&self, _: &World, _: &Change) -> Vec<Key> {
        Vec::new()
    }
    fn plan(&self, _: &World, _: &Key, _: Timestamp) -> Plan {
        Plan::default()
    }
}

#[tokio::test]
async fn mistakes_in_the_wiring_are_refused() {
    let client =
        transport::in_process(|_: Request<Bytes>| std::future::pending::<Response<Full<Bytes>>>());
    let actor = Arc::new(Actor::new(client, "m", "c"));
    let registration =
        |name, kind| Registration::new(Arc::new(Namesake(name, kind)), Arc::clone(&actor));
    let thing: fn() -> Kind = Kind::of::<Thing>;
    let table = [
        ("they agree", vec![registration("a", thing), registration("b", thing)], None),
        (
            "one name",
            vec![registration("a", thing), registration("a", thing)],
            Some("two controllers named a"),
        ),
        (
            "each has a view of its own",
            vec![registration("a", thing), registration("b", Kind::of::<Other>)],
            None,
        ),
    ];
    for (why, seats, expected) in table {
        let error =
            build_world(&seats, &ExternalSystems::default()).err().map(|error| error.to_string());
        assert_eq!(error.is_some(), expected.is_some(), "{why}: {error:?}");
        assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()), "{why}");
    }
}
