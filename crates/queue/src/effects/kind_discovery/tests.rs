use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use gantry_controller::external::{ExternalSystems, InquiryWithResponder};
use gantry_controller::{
    Actor, ControllerManager, ControllerMetrics, ManagerHandle, ManagerOptions, Registration,
    transport,
};
use gantry_process::clock::FakeClock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::{TaskMetrics, Tasks};
use gantry_reconcile::{FactTable, View as _};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::*;
use crate::app_wrapper::AppWrapper;
use crate::kind_discovery::KindDiscovery;
use crate::settings::LiveSettings;

/// What the server has and allows, and how often it was asked for the kinds of a group.
#[derive(Default)]
struct Server {
    jobs: Mutex<Option<&'static [&'static str]>>,
    denied: Mutex<Option<&'static str>>,
    is_down: Mutex<bool>,
    asked: AtomicUsize,
}

impl Server {
    fn answer(&self, request: &Request<Bytes>) -> (u16, Value) {
        let (status, body) = match request.uri().path() {
            "/apis/batch/v1" => {
                self.asked.fetch_add(1, Ordering::Relaxed);
                match (*self.is_down.lock().unwrap(), *self.jobs.lock().unwrap()) {
                    (true, _) => (503, json!({"message": "down"})),
                    (false, None) => (404, json!({"message": "no such group"})),
                    (false, Some(verbs)) => (
                        200,
                        json!({"resources": [
                            {"name": "jobs", "kind": "Job", "namespaced": true, "verbs": verbs},
                            {"name": "queues", "kind": "Queue", "namespaced": false, "verbs": []},
                        ]}),
                    ),
                }
            }
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
                let review: Value = serde_json::from_slice(request.body()).unwrap();
                let verb = review["spec"]["resourceAttributes"]["verb"].as_str();
                let allowed = verb != *self.denied.lock().unwrap();
                (201, json!({"status": {"allowed": allowed}}))
            }
            path if path.contains("appwrappers") => {
                let item = |kind: &str| json!({"generictemplate": {"apiVersion": "batch/v1", "kind": kind}});
                let wrapper = json!({
                    "metadata": {"name": "a", "namespace": "n", "uid": "a", "resourceVersion": "1"},
                    "spec": {"resources": {"GenericItems": [item("Job"), item("Queue"), item("Job")]}},
                });
                (200, json!({"metadata": {"resourceVersion": "1"}, "items": [wrapper]}))
            }
            _ => (200, json!({"metadata": {"resourceVersion": "1"}, "items": []})),
        };
        (status, body)
    }
}

const ALL: &[&str] = &["list", "watch", "create", "delete", "get"];

struct TestShell {
    hand: FakeClock,
    server: Arc<Server>,
    handle: ManagerHandle,
    _running: JoinSet<Result<(), gantry_controller::ManagerError>>,
}

impl TestShell {
    fn new(rights: OwnRights) -> Self {
        let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
        let server = Arc::new(Server::default());
        let answers = Arc::clone(&server);
        let client = transport::in_process(move |request: Request<Bytes>| {
            let is_watch = request.uri().query().is_some_and(|it| it.contains("watch"));
            let (status, body) = answers.answer(&request);
            async move {
                if is_watch {
                    std::future::pending::<()>().await;
                }
                let mut answer = Response::new(Full::new(Bytes::from(body.to_string())));
                *answer.status_mut() = StatusCode::from_u16(status).unwrap();
                answer
            }
        });
        let metrics = Metrics::new(&BuildInfo::default());
        let actor = Arc::new(Actor::new(client.clone(), "m", "c"));
        let seats =
            vec![Registration::new(Arc::new(Progress::new(LiveSettings::default())), actor)];
        let responder = KindResponder::new(client.clone(), rights);
        let inquiries =
            vec![Arc::new(InquiryWithResponder::new(KindDiscovery, responder)) as Arc<_>];
        let options = ManagerOptions {
            external: ExternalSystems { inquiries, ..ExternalSystems::default() },
            ..ManagerOptions::default()
        };
        let jitter = fastrand::Rng::with_seed(1);
        let meters = ControllerMetrics::register(&metrics).unwrap();
        let shell =
            ControllerManager::new(hand.clock(), jitter.clone(), client, seats, options, meters)
                .unwrap();
        let handle = shell.handle();
        let counters = TaskMetrics::register(&metrics).unwrap();
        let stop = tokio_util::sync::CancellationToken::new();
        let tasks = Tasks::new(hand.clock(), counters, jitter, &stop);
        let mut running = JoinSet::new();
        running.spawn(shell.run(tasks));
        Self { hand, server, handle, _running: running }
    }

    async fn advance(&self, time: Duration) {
        self.hand.advance(time).await;
        for _ in 0..100 {
            self.hand.advance(Duration::ZERO).await;
        }
    }

    fn facts(&self) -> Arc<FactTable<ServedKind>> {
        self.handle.world().facts()
    }

    fn served_kind(&self, kind: &str) -> Option<ServedKind> {
        let name = TypeName { api_version: "batch/v1".into(), kind: kind.into() };
        self.facts().observed(&name).map(|it| it.value.clone())
    }

    /// Admits the AppWrapper now.
    fn admit(&self, revision: u32) {
        let at = self.hand.clock().now();
        let item =
            |kind: &str| json!({"generictemplate": {"apiVersion": "batch/v1", "kind": kind}});
        let wrapper = json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "a",
                "resourceVersion": revision.to_string()},
            "spec": {"resources": {"GenericItems": [item("Job"), item("Queue"), item("Job")]}},
            "status": {"state": "Pending", "canrun": true, "conditions": [
                {"type": "HeadOfLine", "status": "True", "lastTransitionMicroTime": at}]},
        });
        let seen = self.handle.simulate_changes(&AppWrapper::RESOURCE, |store| {
            (store.observe(&wrapper.to_string()).unwrap().into_iter().collect(), ())
        });
        assert!(seen.is_some());
    }
}

/// Definitions are installed late, and so are permissions. The server is asked again when an
/// AppWrapper is admitted, and not before; a usable kind is watched before it is reported, and
/// never asked about again.
#[tokio::test]
async fn a_kind_is_discovered_again_on_admission() {
    let shell = TestShell::new(OwnRights::Reviewed);
    shell.advance(Duration::ZERO).await;
    assert_eq!(shell.served_kind("Job"), Some(ServedKind::NotServed));
    assert_eq!(shell.server.asked.load(Ordering::Relaxed), 2, "once for each kind");
    *shell.server.jobs.lock().unwrap() = Some(ALL);
    *shell.server.denied.lock().unwrap() = Some("delete");
    shell.advance(Duration::from_secs(3600)).await;
    assert_eq!(shell.served_kind("Job"), Some(ServedKind::NotServed), "no AppWrapper needs it yet");
    shell.admit(2);
    shell.advance(Duration::ZERO).await;
    let Some(ServedKind::MissingRights { resource, verbs }) = shell.served_kind("Job") else {
        panic!("{:?}", shell.served_kind("Job"));
    };
    assert_eq!((resource.to_string().as_str(), verbs), ("jobs.batch", vec!["delete".to_owned()]));
    assert!(shell.handle.world().stores_with_view::<WrappedObject>().is_empty());
    let Some(ServedKind::Usable(queues)) = shell.served_kind("Queue") else { panic!() };
    assert_eq!(queues.scope, Scope::Cluster, "which is reported when the item is created");
    *shell.server.denied.lock().unwrap() = None;
    shell.advance(Duration::from_secs(10)).await;
    shell.admit(3);
    shell.advance(Duration::ZERO).await;
    let Some(ServedKind::Usable(jobs)) = shell.served_kind("Job") else { panic!() };
    let store = shell.handle.world().store_for::<WrappedObject>(&jobs).unwrap();
    assert!(store.has_synced(), "its objects were seen before");
    let asked = shell.server.asked.load(Ordering::Relaxed);
    shell.advance(Duration::from_secs(10)).await;
    shell.admit(4);
    shell.advance(Duration::from_secs(10)).await;
    assert_eq!(shell.server.asked.load(Ordering::Relaxed), asked);
}

/// A server that does not answer says nothing about a kind.
#[tokio::test]
async fn a_kind_stays_unknown_while_the_server_does_not_answer() {
    let shell = TestShell::new(OwnRights::Unrestricted);
    *shell.server.is_down.lock().unwrap() = true;
    *shell.server.denied.lock().unwrap() = Some("create");
    *shell.server.jobs.lock().unwrap() = Some(ALL);
    shell.advance(Duration::ZERO).await;
    assert_eq!(shell.served_kind("Job"), None);
    let name = TypeName { api_version: "batch/v1".into(), kind: "Job".into() };
    let failure = crate::kind_discovery::discovery_failure(shell.handle.world(), &name);
    assert_eq!(failure.as_deref(), Some("could not ask the server whether it has the kind: down"));
    *shell.server.is_down.lock().unwrap() = false;
    shell.advance(Duration::from_secs(2)).await;
    assert!(
        matches!(shell.served_kind("Job"), Some(ServedKind::Usable(_))),
        "permissions are not reviewed"
    );
    // A server that cannot list or watch objects of a kind cannot have them wrapped.
    let shell = TestShell::new(OwnRights::Unrestricted);
    *shell.server.jobs.lock().unwrap() = Some(&["create", "delete"]);
    shell.advance(Duration::ZERO).await;
    let Some(ServedKind::MissingRights { verbs, .. }) = shell.served_kind("Job") else { panic!() };
    assert_eq!(verbs, ["list", "watch"]);
}
