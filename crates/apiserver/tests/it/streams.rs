//! Logs and exec sessions over a real connection, with simulated nodes.

mod client;
mod forward;
mod proxy;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use gantry_apiserver::api::ClientAddress;
use gantry_apiserver::streams::kubelet_client::{
    Action, BoxFuture, Duplex, ExitCode, KubeletClient, KubeletError, LogOptions, LogStream,
    PodTarget, Session, SessionStreams,
};
use gantry_apiserver::{Caller, Settings};
use gantry_serve::listener::{Options, TransportSecurity};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::client::{HttpResponse, WebSocket};
use super::Server;

/// A kubelet client whose containers print their names, and whose commands do what the test needs.
#[derive(Debug, Default)]
struct FakeKubelet {
    asked: Mutex<Vec<(PodTarget, LogOptions)>>,
    /// Lines of logs that are followed.
    lines: Mutex<Option<mpsc::Receiver<Bytes>>>,
    /// The other ends of connections to port 19.
    silent: Mutex<Vec<DuplexStream>>,
    /// The programs behind port 80.
    programs: Mutex<JoinSet<()>>,
}

struct FakeLog(Vec<Bytes>, Option<mpsc::Receiver<Bytes>>);

impl LogStream for FakeLog {
    fn next(&mut self) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(async move {
            match (self.0.pop(), &mut self.1) {
                (Some(line), _) => Some(line),
                (None, Some(more)) => more.recv().await,
                (None, None) => None,
            }
        })
    }
}

impl KubeletClient for FakeKubelet {
    fn logs(
        &self,
        target: PodTarget,
        options: LogOptions,
    ) -> BoxFuture<'_, Result<Box<dyn LogStream>, KubeletError>> {
        let words = "container \"c\" in pod \"p\" is waiting to start: ContainerCreating";
        let fault = options.previous.then(|| KubeletError::NotReady(words.to_owned()));
        let line = Bytes::from(format!("I am {} on {}\n", target.container, target.node));
        let more = if options.follow { self.lines.lock().unwrap().take() } else { None };
        self.asked.lock().unwrap().push((target, options));
        Box::pin(async move {
            match fault {
                Some(fault) => Err(fault),
                None => Ok(Box::new(FakeLog(vec![line], more)) as Box<dyn LogStream>),
            }
        })
    }

    fn run(
        &self,
        target: PodTarget,
        session: Session,
        ends: SessionStreams,
    ) -> BoxFuture<'_, Result<ExitCode, KubeletError>> {
        Box::pin(async move {
            let Action::Exec(command) = session.action else {
                let words = format!("attached to {}, tty {}\n", target.container, session.tty);
                ends.stdout.unwrap().send(words.into()).await.unwrap();
                return Ok(ExitCode(0));
            };
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            match words.as_slice() {
                ["cat"] => {
                    let (mut stdin, stdout) = (ends.stdin.unwrap(), ends.stdout.unwrap());
                    while let Some(bytes) = stdin.recv().await {
                        stdout.send(bytes).await.unwrap();
                    }
                    Ok(ExitCode(0))
                }
                ["exit", code] => Ok(ExitCode(code.parse().unwrap())),
                ["wait"] => {
                    ends.disconnected.cancelled().await;
                    Ok(ExitCode(0))
                }
                _ => Err(KubeletError::Failed(format!("exec: {words:?}: not found"))),
            }
        })
    }

    /// The historic well-known ports: 7 echoes, 13 sends a line and closes, 19 reads little and
    /// writes nothing until the test does, and 80 is a small web server.
    fn dial(
        &self,
        target: PodTarget,
        port: u16,
    ) -> BoxFuture<'_, Result<Box<dyn Duplex>, KubeletError>> {
        Box::pin(async move {
            let io: Box<dyn Duplex> = match port {
                7 => {
                    let (reader, writer) = tokio::io::simplex(1024);
                    Box::new(tokio::io::join(reader, writer))
                }
                13 => {
                    let words = format!("I am {} on {}", target.pod, target.node);
                    let reader = std::io::Cursor::new(words);
                    Box::new(tokio::io::join(reader, tokio::io::sink()))
                }
                80 => {
                    let (ours, theirs) = tokio::io::duplex(1024);
                    self.programs.lock().unwrap().spawn(proxy::backend(theirs));
                    Box::new(ours)
                }
                19 => {
                    let (ours, theirs) = tokio::io::duplex(16);
                    self.silent.lock().unwrap().push(theirs);
                    Box::new(ours)
                }
                _ => {
                    let words = format!("dial tcp 127.16.0.2:{port}: connect: connection refused");
                    return Err(KubeletError::Unreachable(words));
                }
            };
            Ok(io)
        })
    }
}

/// A listening server, and what a test needs to connect to it.
struct TestListener {
    server: Server,
    kubelet: Arc<FakeKubelet>,
    address: std::net::SocketAddr,
}

const PODS: &str = "/api/v1/namespaces/default/pods";

impl TestListener {
    async fn start() -> Self {
        let fake = Arc::new(FakeKubelet::default());
        let nodes: Arc<dyn KubeletClient> = Arc::clone(&fake) as _;
        let mut server =
            Server::start_with(|settings: &mut Settings| settings.kubelet_client = Some(nodes))
                .await;
        let api = server.api.clone();
        let service = move |request: Request<Incoming>, _| {
            let api = api.clone();
            Box::pin(async move {
                let (mut parts, body) = request.into_parts();
                parts.extensions.insert(ClientAddress([192, 0, 2, 7].into()));
                let body = body.collect().await.unwrap().to_bytes();
                let request = Request::from_parts(parts, body);
                api.handle(request, Some(Caller::server())).await
            }) as std::pin::Pin<Box<dyn Future<Output = Response<_>> + Send>>
        };
        let options =
            Options::new("127.0.0.1:0".parse().unwrap(), TransportSecurity::PlainOnLoopback);
        let counters = gantry_serve::counters::Counters::register(&server.metrics).unwrap();
        let tasks = &mut server.tasks;
        let address = gantry_serve::serve(tasks, "test", options, counters, service).await.unwrap();
        let listening = Self { server, kubelet: fake, address };
        let account = json!({ "metadata": { "name": "default" } });
        listening.create("/api/v1/namespaces/default/serviceaccounts", &account).await;
        listening.create("/api/v1/nodes", &json!({ "metadata": { "name": "n" } })).await;
        let container = |name: &str| json!({ "name": name, "image": "x" });
        for (name, node, containers) in [
            ("p", Some("n"), json!([container("c")])),
            ("two", Some("n"), json!([container("c"), container("d")])),
            ("free", None, json!([container("c")])),
            ("lost", Some("gone"), json!([container("c")])),
        ] {
            let mut pod =
                json!({ "metadata": { "name": name }, "spec": { "containers": containers } });
            if let Some(node) = node {
                pod["spec"]["nodeName"] = json!(node);
            }
            listening.create(PODS, &pod).await;
        }
        listening
    }

    async fn create(&self, path: &str, object: &Value) {
        let (status, answer) =
            self.server.send_request("POST", path, "application/json", object).await;
        assert_eq!(status, 201, "{answer}");
    }

    /// Sends a request without an upgrade.
    async fn send_request(&self, method: &str, path: &str) -> HttpResponse {
        client::send_request(self.address, method, &format!("{PODS}/{path}"), &[]).await
    }

    /// Opens a WebSocket; returns the response to the request if that is refused.
    async fn open(&self, path: &str, protocol: &str) -> Result<WebSocket, HttpResponse> {
        WebSocket::open(self.address, &format!("{PODS}/{path}"), protocol).await
    }
}

#[tokio::test]
async fn a_log_is_plain_text_of_the_container_that_is_meant() {
    let listening = TestListener::start().await;
    let reply = listening.send_request("GET", "p/log?tailLines=5&timestamps=true").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "I am c on n\n"));
    assert_eq!(reply.header("content-type"), Some("text/plain"));
    assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
    let reply = listening.send_request("GET", "two/log?container=d").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "I am d on n\n"));
    let reply = listening.send_request("GET", "free/log").await;
    assert_eq!((reply.status, reply.body.as_str()), (204, ""));
    let asked = listening.kubelet.asked.lock().unwrap();
    let (target, options) = &asked[0];
    assert_eq!((target.namespace.as_str(), target.pod.as_str()), ("default", "p"));
    assert_eq!(target.pod_object["metadata"]["uid"], json!(target.uid));
    assert_eq!(target.node_object["metadata"]["name"], "n");
    let expected = LogOptions { timestamps: true, tail: Some(5), ..LogOptions::default() };
    assert_eq!(*options, expected);
    assert_eq!(asked.len(), 2, "no node is asked for a pod that has none");
}

#[tokio::test]
async fn invalid_requests_have_kubernetes_messages() {
    let listening = TestListener::start().await;
    let choose = "a container name must be specified for pod two, choose one of: [c d]";
    let waiting = "container \"c\" in pod \"p\" is waiting to start: ContainerCreating";
    let table = [
        ("GET", "two/log", 400, choose),
        ("GET", "p/log?container=x", 400, "container x is not valid for pod p"),
        ("GET", "p/log?previous=true", 400, waiting),
        ("GET", "x/log", 404, "pods \"x\" not found"),
        ("GET", "lost/log", 404, "pods \"gone\" not found"),
        ("GET", "p/log/x", 404, "the server could not find the requested resource"),
        ("POST", "p/log", 405, "the server does not allow this method on the requested resource"),
        ("POST", "free/exec?command=x", 400, "pod free does not have a host assigned"),
        ("POST", "free/attach", 400, "pod free does not have a host assigned"),
        ("GET", "two/exec?command=x", 400, choose),
        ("GET", "p/exec?container=x", 400, "container x is not valid for pod p"),
        ("GET", "lost/attach", 404, "pods \"gone\" not found"),
        ("GET", "p/exec?command=x&stdout=1", 400, "Upgrade request required"),
        ("POST", "p/portforward?ports=80", 400, "Upgrade request required"),
        ("POST", "free/portforward", 400, "pod free does not have a host assigned"),
        (
            "DELETE",
            "p/exec",
            405,
            "the server does not allow this method on the requested resource",
        ),
    ];
    for (method, path, code, words) in table {
        let reply = listening.send_request(method, path).await;
        let status: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!((reply.status, status["message"].as_str()), (code, Some(words)), "{path}");
    }
}

#[tokio::test]
async fn a_log_is_followed_until_the_server_stops() {
    let listening = TestListener::start().await;
    let (sender, receiver) = mpsc::channel(4);
    *listening.kubelet.lines.lock().unwrap() = Some(receiver);
    let path = format!("{PODS}/p/log?follow=true");
    let mut following = client::StreamedResponse::open(listening.address, &path).await;
    assert_eq!(following.chunk().await.as_deref(), Some("I am c on n\n"));
    sender.send("more\n".into()).await.unwrap();
    assert_eq!(following.chunk().await.as_deref(), Some("more\n"));
    listening.server.tasks.token().cancel();
    assert_eq!(following.chunk().await, None, "an end in order");
}

#[tokio::test]
async fn a_followed_log_ends_when_the_client_disconnects() {
    let listening = TestListener::start().await;
    let (sender, receiver) = mpsc::channel(4);
    *listening.kubelet.lines.lock().unwrap() = Some(receiver);
    let path = format!("{PODS}/p/log?follow=true");
    let mut following = client::StreamedResponse::open(listening.address, &path).await;
    following.chunk().await;
    drop(following);
    sender.closed().await;
}

#[tokio::test]
async fn exec_reads_stdin_and_ends() {
    let listening = TestListener::start().await;
    let path = "p/exec?command=cat&stdin=true&stdout=true";
    let mut socket = listening.open(path, "v5.channel.k8s.io").await.unwrap();
    assert_eq!(socket.response.header("sec-websocket-protocol"), Some("v5.channel.k8s.io"));
    assert_eq!(socket.receive_frame().await, (0x82, b"\x01".to_vec()));
    let long = [b"\0", &[b'x'; 200_000][..]].concat();
    socket.send_frame(0x82, &long).await;
    let mut heard = 0;
    while heard < 200_000 {
        let (_, bytes) = socket.receive_frame().await;
        assert_eq!(bytes[0], 1);
        heard += bytes.len() - 1;
    }
    socket.send_frame(0x82, b"\xff\0").await;
    assert_eq!(socket.receive_frame().await.1, b"\x03{\"metadata\":{},\"status\":\"Success\"}");
    assert_eq!(socket.receive_frame().await, (0x88, 1000_u16.to_be_bytes().to_vec()));
    assert_eq!(socket.read_to_close().await, 0, "nothing comes after the goodbye");
}

#[tokio::test]
async fn exec_reports_the_exit_status() {
    let listening = TestListener::start().await;
    let table = [
        (
            "p/exec?command=exit&command=3&stdout=1",
            "v5.channel.k8s.io",
            "command terminated with non-zero exit code: command terminated with exit code 3",
        ),
        (
            "p/exec?command=exit&command=3&stdout=1",
            "v4.channel.k8s.io",
            "command terminated with non-zero exit code: error executing command [exit 3], exit \
             code 3",
        ),
        (
            "p/exec?command=x&stderr=1",
            "v5.channel.k8s.io",
            "Internal error occurred: Internal error occurred: error executing command in \
             container: exec: [\"x\"]: not found",
        ),
        (
            "p/exec?command=x",
            "v5.channel.k8s.io",
            "Internal error occurred: unable to upgrade connection: you must specify at least 1 of \
             stdin, stdout, stderr",
        ),
    ];
    for (path, protocol, words) in table {
        let mut socket = listening.open(path, protocol).await.unwrap();
        assert_eq!(socket.receive_frame().await.1.len(), 1, "{path}: it begins with nothing");
        let (_, status) = socket.receive_frame().await;
        let status: Value = serde_json::from_slice(&status[1..]).unwrap();
        assert_eq!(status["message"], words, "{path}");
    }
}

#[tokio::test]
async fn attach_receives_the_output() {
    let listening = TestListener::start().await;
    let path = "two/attach?container=d&stdout=1&stderr=1&tty=1";
    let mut socket = listening.open(path, "v4.channel.k8s.io").await.unwrap();
    socket.receive_frame().await;
    assert_eq!(socket.receive_frame().await.1, b"\x01attached to d, tty true\n");
    assert_eq!(socket.receive_frame().await.1, b"\x03{\"metadata\":{},\"status\":\"Success\"}");
}

#[tokio::test]
async fn invalid_handshakes_are_refused() {
    let listening = TestListener::start().await;
    let path = format!("{PODS}/p/exec?command=cat&stdout=1");
    let asks = ("upgrade", "websocket");
    let via = ("connection", "Upgrade");
    let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let version = ("sec-websocket-version", "13");
    let newer = ("sec-websocket-protocol", "v9.channel.k8s.io");
    let spdy = ("upgrade", "SPDY/3.1");
    let table = [
        ("GET", vec![asks, via, version], 400, "mismatch challenge/response"),
        ("GET", vec![asks, via, key], 400, "missing or bad WebSocket Version"),
        ("GET", vec![asks, via, key, version, newer], 403, ""),
        ("POST", vec![asks, via, key, version], 405, "bad method"),
        ("POST", vec![spdy, via], 400, "SPDY is not spoken here"),
        ("GET", vec![asks], 400, "Upgrade request required"),
    ];
    for (method, headers, code, words) in table {
        let reply = client::send_request(listening.address, method, &path, &headers).await;
        assert_eq!(reply.status, code, "{headers:?}");
        assert!(reply.body.contains(words), "{headers:?}: {}", reply.body);
    }
}

/// Invalid bytes end their own session, and nothing else.
#[tokio::test]
async fn hostile_frames_end_only_their_session() {
    let listening = TestListener::start().await;
    let table: [(&str, &[u8]); 6] = [
        ("not masked", &[0x82, 0x01, 0x00]),
        ("reserved bits", &[0xf2, 0x80, 0, 0, 0, 0]),
        ("a huge length", &[0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ("a continuation of nothing", &[0x80, 0x80, 0, 0, 0, 0]),
        ("a long goodbye", &[0x88, 0xfe, 0x01, 0x00, 0, 0, 0, 0]),
        ("the end of a stream that is not", &[0x82, 0x82, 0, 0, 0, 0, 0xff, 0x63]),
    ];
    let path = "p/exec?command=wait&stdin=true&stdout=true";
    for (why, bytes) in table {
        let mut socket = listening.open(path, "v5.channel.k8s.io").await.unwrap();
        socket.receive_frame().await;
        socket.send(bytes).await;
        assert_eq!(socket.receive_frame().await, (0x88, 1002_u16.to_be_bytes().to_vec()), "{why}");
    }
    // Half a frame, then a disconnect.
    let mut socket = listening.open(path, "v5.channel.k8s.io").await.unwrap();
    socket.receive_frame().await;
    socket.send(&[0x82, 0xfe, 0x10]).await;
    drop(socket);
    assert_eq!(listening.send_request("GET", "p/log").await.status, 200);
}

#[tokio::test]
async fn streams_fail_without_a_kubelet_client() {
    let server = Server::start().await;
    let account = json!({ "metadata": { "name": "default" } });
    let made = [
        ("/api/v1/namespaces/default/serviceaccounts", account),
        ("/api/v1/nodes", json!({ "metadata": { "name": "n" } })),
        (
            PODS,
            json!({
                "metadata": { "name": "p" },
                "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "x" }] },
            }),
        ),
    ];
    for (path, object) in made {
        let (status, answer) = server.send_request("POST", path, "application/json", object).await;
        assert_eq!(status, 201, "{answer}");
    }
    let path = format!("{PODS}/p/log");
    let (status, answer) = server.send_request("GET", &path, "application/json", "").await;
    assert_eq!(status, 500);
    assert_eq!(answer["message"], "this server has no node agents to ask for \"log\"");
    assert_eq!(answer["details"], Value::Null, "nobody is asked to try again");
}
