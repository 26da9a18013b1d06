//! The client, the responders and the caller against real servers on this machine.

mod events;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::IntoResponse as _;
use gantry_process::clock::Clock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_reconcile::{Call, Key, Kind, Refusal, Reply, Uid, View as _, World};
use serde_json::{Value, json};

use super::metrics::{ActuationMetrics, PeerMetrics};
use super::{PeerCaller, PeerClient, PeerOptions, TokenFile};
use crate::calls::{self, Engine};
use crate::facts::Endpoint;
use crate::view::ActuationPod;

/// A response: status, headers, body.
type Scripted = (u16, Vec<(&'static str, String)>, String);
type Handler = fn(&Received) -> Scripted;

/// A request as a server received it.
#[derive(Clone, Debug)]
struct Received {
    method: Method,
    path: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A server on this machine.
struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Shared {
    received: Arc<Mutex<Vec<Received>>>,
    handler: Handler,
}

async fn answer(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> axum::response::Response {
    let headers = headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    let path = uri.path_and_query().unwrap().to_string();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let received = Received { method, path, headers, body };
    let (status, headers, body) = (shared.handler)(&received);
    shared.received.lock().unwrap_or_else(PoisonError::into_inner).push(received);
    let mut response = (StatusCode::from_u16(status).unwrap(), body).into_response();
    for (name, value) in headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

impl Server {
    async fn start(handler: Handler) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, handler)
    }

    fn on(listener: tokio::net::TcpListener, handler: Handler) -> Self {
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let shared = Shared { received: Arc::clone(&received), handler };
        let router = Router::new().fallback(answer).with_state(shared);
        #[expect(clippy::disallowed_methods, reason = "`drop` ends it")]
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, received, task }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint {
            pod: Key::new("n", "p"),
            uid: Uid::new("u"),
            ip: self.address.ip().to_string(),
            port: self.address.port(),
        }
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Paths with methods, as received.
    fn requests(&self) -> Vec<String> {
        self.received().iter().map(|it| format!("{} {}", it.method, it.path)).collect()
    }
}

fn ok(body: &Value) -> Scripted {
    (200, Vec::new(), body.to_string())
}

fn status(code: u16, body: &str) -> Scripted {
    (code, Vec::new(), body.to_owned())
}

fn client(options: PeerOptions) -> (PeerClient, Metrics) {
    let metrics = Metrics::new(&BuildInfo::default());
    let peers = Arc::new(PeerMetrics::register(&metrics).unwrap());
    (PeerClient::new(&Clock::system(), options, peers).unwrap(), metrics)
}

fn local() -> PeerOptions {
    PeerOptions { allows_loopback: true, token: None }
}

#[tokio::test]
async fn a_launcher_is_asked_for_its_instances_and_each_whether_it_sleeps() {
    let engine = Server::start(|it| match it.path.as_str() {
        "/is_sleeping" => ok(&json!({"is_sleeping": true})),
        _ => status(404, ""),
    })
    .await;
    // The port of the engine is in the list that the launcher gives.
    static PORT: std::sync::OnceLock<u16> = std::sync::OnceLock::new();
    PORT.set(engine.address.port()).unwrap();
    let launcher = Server::start(|it| match it.path.as_str() {
        "/v2/vllm/instances" => ok(&json!({
            "revision": 1, "boot_id": "b1", "instances": [
                {"instance_id": "I1", "status": "running", "gpu_uuids": ["g0"], "annotations":
                    {"isc-name": "a", "inference-port": PORT.get().unwrap().to_string()}},
                // Nothing listens there.
                {"instance_id": "I2", "status": "running", "annotations": {"inference-port": "1"}},
                {"instance_id": "I3", "status": "running"},
            ],
        })),
        _ => status(404, ""),
    })
    .await;
    let (client, metrics) = client(local());
    let state = client.launcher_state(&launcher.endpoint(), "a").await.unwrap();
    assert_eq!(state.boot.as_deref(), Some("b1"));
    let sleeping: Vec<Option<bool>> = state.instances.iter().map(|it| it.is_sleeping).collect();
    assert_eq!(sleeping, [Some(true), None, None]);
    assert_eq!(engine.requests(), ["GET /is_sleeping"]);
    let page = metrics.encode().unwrap();
    for labels in [
        "purpose=\"list_instances\",method=\"GET\",exported_namespace=\"n\",isc_name=\"a\",\
         status_code=\"200\"",
        "purpose=\"query_sleeping\",method=\"GET\",exported_namespace=\"n\",isc_name=\"a\",\
         status_code=\"200\"",
        "purpose=\"query_sleeping\",method=\"GET\",exported_namespace=\"n\",isc_name=\"\",\
         status_code=\"0\"",
    ] {
        let line = format!("fma_http_latency_seconds_count{{{labels}}} 1");
        assert!(page.lines().any(|it| it == line), "{line} is missing:\n{page}");
    }
}

/// The log of launchers of the newest release, of the original's older one, and of ones that ignore
/// ranges or have no log.
#[tokio::test]
async fn as_85_the_end_of_a_log_is_read_from_launchers_of_all_releases() {
    fn list() -> Scripted {
        let stopped = json!({"instance_id": "I1", "status": "stopped", "exit_code": -9});
        ok(&json!({"instances": [stopped]}))
    }
    fn log() -> String {
        format!("{}the end", "x".repeat(10_000))
    }
    fn with_suffix(it: &Received) -> Scripted {
        match (it.path.as_str(), it.header("range")) {
            ("/v2/vllm/instances", _) => list(),
            ("/v2/vllm/instances/I1/log", "bytes=-4096") => {
                let range = format!("bytes 5911-10006/{}", log().len());
                (206, vec![("content-range", range)], log()[5911..].to_owned())
            }
            _ => status(404, ""),
        }
    }
    fn without_suffix(it: &Received) -> Scripted {
        let total = log().len();
        match (it.path.as_str(), it.header("range")) {
            ("/v2/vllm/instances", _) => list(),
            (_, "bytes=-4096") => status(400, "{\"detail\":\"malformed\"}"),
            (_, "bytes=0-0") => {
                (206, vec![("content-range", format!("bytes 0-0/{total}"))], "x".to_owned())
            }
            (_, "bytes=5911-") => (206, Vec::new(), log()[5911..].to_owned()),
            _ => status(404, ""),
        }
    }
    fn without_ranges(it: &Received) -> Scripted {
        match it.path.as_str() {
            "/v2/vllm/instances" => list(),
            _ => status(200, &log()),
        }
    }
    fn empty(it: &Received) -> Scripted {
        match it.path.as_str() {
            "/v2/vllm/instances" => list(),
            _ => (416, vec![("content-range", "bytes */0".to_owned())], String::new()),
        }
    }
    fn without_log(it: &Received) -> Scripted {
        match it.path.as_str() {
            "/v2/vllm/instances" => list(),
            _ => status(404, ""),
        }
    }
    let end = log()[10_007 - 4096..].to_owned();
    let table: [(&str, Handler, Option<String>); 5] = [
        ("suffix", with_suffix, Some(end.clone())),
        ("no suffix", without_suffix, Some(end.clone())),
        ("no ranges", without_ranges, Some(end)),
        ("empty", empty, Some(String::new())),
        ("no log", without_log, None),
    ];
    for (name, handler, expected) in table {
        let launcher = Server::start(handler).await;
        let (client, _) = client(local());
        let state = client.launcher_state(&launcher.endpoint(), "").await.unwrap();
        assert_eq!(state.instances[0].log_tail, expected, "{name}");
        assert_eq!(state.instances[0].exit_code, Some(-9), "{name}");
    }
}

#[tokio::test]
async fn requesters_report_accelerators_and_memory() {
    let stub = Server::start(|it| match it.path.as_str() {
        "/v1/dual-pods/accelerators" => ok(&json!(["g1", "g0"])),
        "/v1/dual-pods/accelerator-memory-usage" => status(500, "no tool"),
        _ => status(404, ""),
    })
    .await;
    let (client, _) = client(local());
    let endpoint = stub.endpoint();
    assert_eq!(client.accelerators(&endpoint, "").await.unwrap().uuids, ["g1", "g0"]);
    let error = client.memory(&endpoint, "").await.unwrap_err();
    assert_eq!(error, "HTTP status 500: no tool");
}

#[tokio::test]
async fn answers_that_are_too_large_are_not_read() {
    let stub = Server::start(|_| status(200, &" ".repeat(5 << 20))).await;
    let (client, _) = client(local());
    let error = client.accelerators(&stub.endpoint(), "").await.unwrap_err();
    assert!(error.contains("larger than 4194304 bytes"), "{error}");
}

/// A pod's address is what its status says: it must not lead to this machine, or to a cloud's
/// credentials, and is no name.
#[tokio::test]
async fn addresses_of_this_machine_and_of_metadata_services_are_refused() {
    let stub = Server::start(|_| ok(&json!([]))).await;
    let (strict, _) = client(PeerOptions::default());
    let (lax, _) = client(local());
    let at = |ip: &str| Endpoint { ip: ip.to_owned(), ..stub.endpoint() };
    let table = [
        (&strict, "127.0.0.1", "connections to this machine are not allowed"),
        (&strict, "::1", "connections to this machine are not allowed"),
        (&strict, "169.254.169.254", "link-local"),
        (&lax, "169.254.169.254", "link-local"),
        (&lax, "localhost", "status.podIP \"localhost\" is no address"),
        (&lax, "127.0.0.1@example.com", "is no address"),
    ];
    for (client, ip, expected) in table {
        let error = client.accelerators(&at(ip), "").await.unwrap_err();
        assert!(error.contains(expected), "{ip}: {error}");
    }
    assert_eq!(stub.requests(), [] as [&str; 0]);
}

#[tokio::test]
async fn connections_are_used_again() {
    static PEERS: Mutex<Vec<SocketAddr>> = Mutex::new(Vec::new());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(
        |axum::extract::ConnectInfo(peer): axum::extract::ConnectInfo<SocketAddr>| async move {
            PEERS.lock().unwrap().push(peer);
            "[\"g0\"]"
        },
    );
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    #[expect(clippy::disallowed_methods, reason = "it is aborted below")]
    let task = tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
    let (client, _) = client(local());
    let endpoint = Endpoint {
        pod: Key::new("n", "p"),
        uid: Uid::new("u"),
        ip: address.ip().to_string(),
        port: address.port(),
    };
    for _ in 0..3 {
        client.accelerators(&endpoint, "").await.unwrap();
    }
    task.abort();
    let peers = PEERS.lock().unwrap();
    assert_eq!(peers.len(), 3);
    assert!(peers.iter().all(|it| *it == peers[0]), "{peers:?}");
}

#[tokio::test]
async fn a_token_is_sent_to_requesters_and_launchers_and_never_to_engines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, "secret-1\n").unwrap();
    let token = TokenFile::new(&path, Clock::system());
    let server = Server::start(|it| match it.path.as_str() {
        "/is_sleeping" => ok(&json!({"is_sleeping": false})),
        "/v2/vllm/instances" => ok(&json!({"instances": []})),
        _ => ok(&json!([])),
    })
    .await;
    let (with_token, _) = client(PeerOptions { allows_loopback: true, token: Some(token) });
    let endpoint = server.endpoint();
    with_token.accelerators(&endpoint, "").await.unwrap();
    with_token.launcher_state(&endpoint, "").await.unwrap();
    with_token.engine_state(&endpoint, "", Duration::from_secs(5)).await.unwrap();
    let sent: Vec<String> =
        server.received().iter().map(|it| it.header("authorization").to_owned()).collect();
    assert_eq!(sent, ["Bearer secret-1", "Bearer secret-1", ""]);
    for (text, expected) in [("a b", "one line of visible characters"), ("", "one line")] {
        std::fs::write(&path, text).unwrap();
        let token = TokenFile::new(&path, Clock::system());
        let error = token.authorization().await.unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("actuation.tokenFile"), "{error}");
    }
    let missing = TokenFile::new(&directory.path().join("none"), Clock::system());
    let error = missing.authorization().await.unwrap_err().to_string();
    assert!(error.starts_with("could not read actuation.tokenFile"), "{error}");
}

fn pod(name: &str, server: &Server, extra: &Value) -> Value {
    let mut pod = json!({
        "metadata": {
            "namespace": "n", "name": name, "uid": name, "resourceVersion": "1",
            "annotations": {
                "dual-pods.llm-d.ai/requester": "r req",
                "actuation.gantry.dev/binding": "3",
                "actuation.gantry.dev/record":
                    "{\"requester\":\"req\",\"path\":\"warm\",\"instancesDeleted\":2}",
            },
            "labels": {"dual-pods.llm-d.ai/launcher-config-name": "lc"},
        },
        "status": {"podIP": server.address.ip().to_string()},
    });
    for (key, value) in extra.as_object().unwrap() {
        pod["metadata"][key] = value.clone();
    }
    pod
}

fn world(pods: &[Value]) -> World {
    let world = World::new(vec![Kind::of::<ActuationPod>()]);
    let store = world.single_store_for(&ActuationPod::RESOURCE).unwrap();
    for pod in pods {
        store.observe(&pod.to_string()).unwrap().unwrap();
    }
    world
}

fn read(pod: &Value) -> ActuationPod {
    serde_json::from_value(pod.clone()).unwrap()
}

fn caller() -> (PeerCaller, Metrics) {
    let (client, metrics) = client(local());
    let actuations = Arc::new(ActuationMetrics::register(&metrics).unwrap());
    (PeerCaller::new(client, actuations, Clock::system()), metrics)
}

/// The call, to the port of the server.
fn directed(mut call: Call, server: &Server) -> Call {
    call.target.address = server.address.to_string();
    call
}

#[tokio::test]
async fn as_69_a_call_has_the_fence_of_its_binding_and_the_status_is_the_reply() {
    let server = Server::start(|it| match (it.method.as_str(), it.path.as_str()) {
        ("PUT", "/v2/vllm/instances/I1") => status(201, "{}"),
        ("DELETE", "/v2/vllm/instances/I1") => status(404, ""),
        ("POST", "/v2/vllm/instances/I1/wake_up") => status(412, "an older binding"),
        ("POST", "/sleep?level=1&mode=wait") => status(500, "busy"),
        _ => status(400, "unexpected"),
    })
    .await;
    let launcher = pod("l", &server, &json!({}));
    let (world, launcher) = (world(std::slice::from_ref(&launcher)), read(&launcher));
    let (caller, metrics) = caller();
    let engine = |boot| Engine { provider: &launcher, port: 8005, instance: Some("I1"), boot };
    let config = crate::instance::InstanceConfig {
        options: "--model m".to_owned(),
        ..crate::instance::InstanceConfig::default()
    };
    let run = async |call: Call| caller.execute_in(&world, &directed(call, &server)).await.unwrap();
    let created = run(calls::create_instance(&launcher, Some("b1"), "I1", &config)).await;
    assert_eq!(created, Reply::Done(json!({"status": 201})));
    let gone = run(calls::delete_instance(&launcher, Some("b1"), "I1")).await;
    assert_eq!(gone, Reply::Done(json!({"status": 404})));
    let refused = |reply: Reply| match reply {
        Reply::Refused(Refusal { code, message, .. }) => (code, message),
        Reply::Done(value) => panic!("done: {value}"),
    };
    let (code, message) = refused(run(engine(Some("b1")).wake()).await);
    assert_eq!((code, message.contains("an older binding")), (412, true), "{message}");
    assert_eq!(refused(run(engine(None).sleep(true)).await).0, 500);
    let received = server.received();
    let first = &received[0];
    assert_eq!(first.header("gantry-binding"), "r/3");
    assert_eq!(first.header("gantry-boot-id"), "b1");
    assert_eq!(first.header("content-type"), "application/json");
    assert_eq!(first.body, "{\"options\":\"--model m\"}");
    assert_eq!(received[3].header("gantry-boot-id"), "");
    let page = metrics.encode().unwrap();
    assert!(page.contains("purpose=\"wake\",method=\"POST\""), "{page}");
}

/// Another pod may have got the name, or the address.
#[tokio::test]
async fn pods_that_are_not_those_of_the_plan_are_not_called() {
    let server = Server::start(|_| status(200, "")).await;
    let stored = pod("l", &server, &json!({}));
    let launcher = read(&stored);
    let (caller, _) = caller();
    let call = || directed(calls::delete_instance(&launcher, None, "I1"), &server);
    let mut moved = stored.clone();
    moved["status"]["podIP"] = json!("127.9.9.9");
    let table = [
        (vec![], "pod n/l is gone"),
        (vec![pod("l", &server, &json!({"uid": "other"}))], "pod n/l is gone"),
        (vec![moved], "another address"),
    ];
    for (pods, expected) in table {
        let error = caller.execute_in(&world(&pods), &call()).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(server.requests(), [] as [&str; 0]);
    let error = gantry_controller::external::Caller::call(&caller, &call()).await;
    assert!(error.unwrap_err().to_string().contains("cache is not filled"));
}

#[tokio::test]
async fn as_82_a_proxy_that_has_its_target_already_is_configured() {
    let server = Server::start(|it| match it.method.as_str() {
        "PUT" => status(409, "configured"),
        _ => ok(&json!({"address": "10.0.0.7", "port": 8005})),
    })
    .await;
    let requester = pod(
        "req",
        &server,
        &json!({"annotations": {"dual-pods.llm-d.ai/inference-server-config": "a"}, "labels": {}}),
    );
    let (world, requester) = (world(std::slice::from_ref(&requester)), read(&requester));
    let (caller, _) = caller();
    for (ip, expected) in [("10.0.0.7", true), ("10.0.0.8", false)] {
        let provider: ActuationPod = serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "l", "uid": "l"}, "status": {"podIP": ip},
        }))
        .unwrap();
        let call = calls::configure_proxy(&requester, 1, &provider, 8005);
        let reply = caller.execute_in(&world, &directed(call, &server)).await.unwrap();
        assert_eq!(matches!(reply, Reply::Done(_)), expected, "{ip}: {reply:?}");
    }
}

#[tokio::test]
async fn the_first_relay_of_a_requester_is_measured_with_its_path() {
    let server = Server::start(|_| status(200, "OK\n")).await;
    let mut stored = pod(
        "req",
        &server,
        &json!({"annotations": {"dual-pods.llm-d.ai/inference-server-config": "a"}, "labels": {}}),
    );
    stored["status"]["containerStatuses"] = json!([{
        "name": "inference-server",
        "state": {"running": {"startedAt": (Clock::system().now() - Duration::from_secs(4))
            .to_string()}},
    }]);
    let launcher = pod(
        "l",
        &server,
        &json!({"annotations": {
            "dual-pods.llm-d.ai/requester": "req req",
            "actuation.gantry.dev/record":
                "{\"requester\":\"req\",\"path\":\"warm\",\"instancesDeleted\":2}",
        }}),
    );
    let world = world(&[stored.clone(), launcher.clone()]);
    let (requester, launcher) = (read(&stored), read(&launcher));
    let (caller, metrics) = caller();
    for _ in 0..2 {
        let call = calls::relay(&requester, 1, &launcher, true);
        caller.execute_in(&world, &directed(call, &server)).await.unwrap();
    }
    assert_eq!(server.requests(), ["POST /v1/become-ready", "POST /v1/become-ready"]);
    let page = metrics.encode().unwrap();
    let labels = "exported_namespace=\"n\",path=\"warm\",instancesDeleted=\"2\",isc_name=\"a\"";
    for line in [
        format!("fma_actuation_seconds_count{{{labels}}} 1"),
        format!("fma_actuation_seconds_bucket{{le=\"3.0\",{labels}}} 0"),
        format!("fma_actuation_seconds_bucket{{le=\"1920.0\",{labels}}} 1"),
    ] {
        assert!(page.lines().any(|it| it == line), "{line} is missing:\n{page}");
    }
}
