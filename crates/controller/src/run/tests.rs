use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::{Hand, Moment};
use gantry_process::metrics::{Build, Metrics};
use gantry_process::tasks::Counters;
use gantry_reconcile::{
    Change, Key, Kind, Meta, Note, Plan, Reference, Resource, Step, Uid, View, World, Write,
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

/// The same kind through other eyes.
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

/// Does what the name of a key says, and writes down when.
#[derive(Default)]
struct Obedient {
    planned: Mutex<Vec<(String, Timestamp)>>,
}

impl Controller for Obedient {
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
        let about = Reference {
            resource: Thing::RESOURCE,
            key: key.clone(),
            uid: Uid::new("u"),
            field: String::new(),
        };
        let writes = match key.name() {
            "panic" => panic!("as it was told"),
            "owned" => {
                let body = json!({ "metadata": { "name": "a", "namespace": "n" } });
                let create = Write::Create { resource: Thing::RESOURCE, body };
                let owner = Reference { key: Key::new("n", "owner"), ..about.clone() };
                plan.steps.push(Step::new(create).provided(owner));
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
                plan.steps.push(Step::new(create).can_wait());
                0
            }
            "minutely" => {
                plan.look_within(Duration::from_secs(60));
                0
            }
            name => name.parse().unwrap_or(0),
        };
        for n in 0..writes {
            let body = json!({ "metadata": { "name": n.to_string(), "namespace": "n" } });
            let refused = Note::warning(about.clone(), "Failed", "Error creating".to_owned());
            let create = Write::Create { resource: Thing::RESOURCE, body };
            plan.steps.push(Step::new(create).refused(refused));
        }
        plan
    }
}

/// A shell on a clock of its own, before a server that is empty and says no to everything.
struct Stage {
    hand: Hand,
    handle: Handle,
    controller: Arc<Obedient>,
    /// The bodies of what was to be made, by the end of the path.
    posts: Arc<Mutex<Vec<(String, String)>>>,
    _running: JoinSet<Result<(), ShellError>>,
}

impl Stage {
    async fn begin(options: Options) -> Self {
        let hand = Hand::at(Timestamp::UNIX_EPOCH);
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
        let metrics = Metrics::new(&Build::default());
        let meters = Meters::register(&metrics).unwrap();
        let counters = Counters::register(&metrics).unwrap();
        let actor = Actor::new(client.clone(), "m", "c");
        let controller = Arc::new(Obedient::default());
        let seats =
            vec![Seat::new(Arc::clone(&controller) as Arc<dyn Controller>, Arc::new(actor))];
        let jitter = fastrand::Rng::with_seed(1);
        let shell = Shell::new(hand.clock(), jitter.clone(), client, seats, options, meters);
        let shell = shell.unwrap();
        let handle = shell.handle();
        let tasks = Tasks::new(hand.clock(), counters, jitter, &CancellationToken::new());
        let mut running = JoinSet::new();
        running.spawn(shell.run(tasks));
        handle.filled().await;
        Self { hand, handle, controller, posts, _running: running }
    }

    async fn wake(&self, name: &str) {
        self.handle.wake("obedient", Key::new("n", name));
        // A few times, because each write takes some turns of the runtime.
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
async fn after_many_refusals_the_rest_is_left() {
    let stage = Stage::begin(Options { in_flight: 4, ..Options::default() }).await;
    stage.wake("100").await;
    let tried = stage.posts("things").len();
    // Eight refusals, and those that were under way when the eighth came.
    assert!((8..8 + 4).contains(&tried), "{tried} writes were tried");
    assert_eq!(stage.planned("100"), [0]);
    stage.hand.advance(Duration::from_millis(5)).await;
    assert_eq!(stage.planned("100").len(), 2, "it is tried again after a while");
    let events = stage.posts("events");
    assert!(events[0].contains("Error creating: quota is used up"), "{}", events[0]);
}

#[tokio::test]
async fn what_comes_after_a_write_waits_for_it_to_take() {
    let stage = Stage::begin(Options { in_flight: 1, ..Options::default() }).await;
    stage.wake("row").await;
    let name = |body: &String| {
        let object: serde_json::Value = serde_json::from_str(body).unwrap();
        object["metadata"]["name"].as_str().unwrap().to_owned()
    };
    let made: Vec<String> = stage.posts("things").iter().map(name).collect();
    assert_eq!(made, ["granted-1", "granted-2", "refused", "granted-3"]);
    let refused = stage.handle.world().refused("obedient", &Key::new("n", "row"));
    assert_eq!(refused.len(), 1, "what never was tried was not refused: {refused:?}");
}

/// Once because nobody else asks, once because some turns belong to those that can wait; then others come
/// first.
#[tokio::test]
async fn what_can_wait_is_put_off_and_planned_anew() {
    let stage = Stage::begin(Options::default()).await;
    stage.handle.set_rate(Some(Rate { per_second: 1.0, burst: 1 }));
    stage.wake("talk").await;
    assert_eq!(stage.posts("things").len(), 1);
    stage.wake("talk").await;
    stage.hand.advance(Duration::from_secs(1)).await;
    stage.wake("talk").await;
    assert_eq!((stage.planned("talk"), stage.posts("things").len()), (vec![0, 0, 1000], 2));
    let held = stage.handle.ledger().snapshot();
    assert!(held.iter().all(|it| it.held.is_empty()), "it is no failure: {held:?}");
    stage.hand.advance(Duration::from_secs(6)).await;
    stage.wake("nothing").await;
    assert_eq!((stage.planned("talk"), stage.posts("things").len()), (vec![0, 0, 1000, 6000], 3));
}

/// Gone, another one, going, unknown: four times nothing is written.
#[tokio::test]
async fn what_depends_on_an_object_waits_for_it() {
    let stage = Stage::begin(Options::default()).await;
    stage.wake("owned").await;
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
    assert_eq!(stage.posts("things").len(), 1, "it is there");
}

#[tokio::test]
async fn what_is_refused_is_held_remembered_and_tried_last() {
    let stage = Stage::begin(Options { in_flight: 1, refusals: 2, ..Options::default() }).await;
    stage.wake("3").await;
    let tried = |stage: &Stage| -> Vec<String> {
        let name = |body: &String| body.split("\"name\":\"").nth(1).unwrap()[..1].to_owned();
        stage.posts("things").iter().map(name).collect()
    };
    assert_eq!(tried(&stage), ["0", "1"]);
    let world = stage.handle.world();
    let refused = world.refused("obedient", &Key::new("n", "3"));
    let refused: Vec<_> = refused.iter().map(|it| (it.verb, it.key.name().to_owned())).collect();
    assert_eq!(refused, [("create", "0".to_owned()), ("create", "1".to_owned())]);
    let held = stage.handle.ledger().snapshot().remove(0).held;
    assert_eq!((held.len(), &*held[0].reason), (2, "Forbidden"));
    assert_eq!(held[0].message, "could not create things n/0: quota is used up");
    assert!(held[0].until.is_some(), "it is tried again");
    stage.hand.advance(Duration::from_millis(5)).await;
    for _ in 0..20 {
        stage.hand.advance(Duration::ZERO).await;
    }
    assert_eq!(tried(&stage)[2], "2", "those that were refused do not keep others from their turn");
}

#[tokio::test]
async fn a_panic_is_the_key_s_own() {
    let stage = Stage::begin(Options::default()).await;
    stage.wake("panic").await;
    stage.wake("fine").await;
    assert_eq!(stage.planned("fine"), [0], "others go on");
    stage.hand.advance(Duration::from_secs(3)).await;
    let times = stage.planned("panic");
    let pauses: Vec<i64> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses.len() > 5, "it is tried again: {pauses:?}");
    let growing = pauses.windows(3).all(|three| three[2] > three[0]);
    assert!(growing, "with growing pauses: {pauses:?}");
    let held = stage.handle.ledger().snapshot().remove(0).held.remove(0);
    assert_eq!((&*held.reason, held.about.resource), ("Panicked", Thing::RESOURCE));
}

#[tokio::test]
async fn a_plan_is_made_again_when_it_asks_for_it() {
    let stage = Stage::begin(Options::default()).await;
    stage.wake("minutely").await;
    stage.hand.advance(Duration::from_secs(150)).await;
    assert_eq!(stage.planned("minutely"), [0, 60_000, 120_000]);
}

#[tokio::test]
async fn nothing_is_written_without_a_permit() {
    let clock = Hand::at(Timestamp::UNIX_EPOCH).clock();
    let client = transport::in_process(|_: Request<Bytes>| async {
        Response::new(Full::new(Bytes::from("{}")))
    });
    let actor = Actor::new(client, "m", "c");
    let (grant, permit) = Permit::on_grant(clock.clone());
    let limiter = Arc::new(Limiter::new(clock.clone(), None));
    let limit = Duration::from_secs(1);
    let writer = Writer { clock, limiter, permit, limit };
    let write = Write::Create { resource: Thing::RESOURCE, body: json!({}) };
    let no = gantry_reconcile::Outcome::Unanswered("not leading".to_owned());
    assert_eq!(writer.write(&actor, &write, None).await.outcome, no);
    grant.until(Moment::default() + limit);
    let yes = gantry_reconcile::Outcome::Done(Some(json!({})));
    assert_eq!(writer.write(&actor, &write, None).await.outcome, yes);
    grant.revoke();
    assert_eq!(writer.write(&actor, &write, None).await.outcome, no);
}

/// Sees a kind through other eyes, or has the same name.
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
    let seat = |name, kind| Seat::new(Arc::new(Namesake(name, kind)), Arc::clone(&actor));
    let thing: fn() -> Kind = Kind::of::<Thing>;
    let table = [
        ("they agree", vec![seat("a", thing), seat("b", thing)], None),
        ("one name", vec![seat("a", thing), seat("a", thing)], Some("two controllers named a")),
        (
            "each through eyes of its own",
            vec![seat("a", thing), seat("b", Kind::of::<Other>)],
            None,
        ),
    ];
    for (why, seats, expected) in table {
        let error = shelves(&seats, &Outside::default()).err().map(|error| error.to_string());
        assert_eq!(error.is_some(), expected.is_some(), "{why}: {error:?}");
        assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()), "{why}");
    }
}
