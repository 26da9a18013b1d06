//! Logs and conversations over a real connection, with nodes that only the test knows.

mod client;
mod forward;
mod proxy;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use gantry_apiserver::api::ClientAddress;
use gantry_apiserver::nodes::{
    Action, Chunks, Duplex, Ends, Exit, Fault, Later, LogOptions, Nodes, Session, Target,
};
use gantry_apiserver::{Caller, Settings};
use gantry_serve::listener::{Door, Options};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::client::{Reply, Socket};
use super::Server;

/// Nodes on which containers say what they are called, and commands do what the test needs.
#[derive(Debug, Default)]
struct Fake {
    asked: Mutex<Vec<(Target, LogOptions)>>,
    /// Lines of logs that are followed.
    lines: Mutex<Option<mpsc::Receiver<Bytes>>>,
    /// The other ends of connections to port 19.
    silent: Mutex<Vec<DuplexStream>>,
    /// The programs behind port 80.
    programs: Mutex<JoinSet<()>>,
}

struct Lines(Vec<Bytes>, Option<mpsc::Receiver<Bytes>>);

impl Chunks for Lines {
    fn next(&mut self) -> Later<'_, Option<Bytes>> {
        Box::pin(async move {
            match (self.0.pop(), &mut self.1) {
                (Some(line), _) => Some(line),
                (None, Some(more)) => more.recv().await,
                (None, None) => None,
            }
        })
    }
}

impl Nodes for Fake {
    fn logs(
        &self,
        target: Target,
        options: LogOptions,
    ) -> Later<'_, Result<Box<dyn Chunks>, Fault>> {
        let words = "container \"c\" in pod \"p\" is waiting to start: ContainerCreating";
        let fault = options.previous.then(|| Fault::NotNow(words.to_owned()));
        let line = Bytes::from(format!("I am {} on {}\n", target.container, target.node));
        let more = if options.follow { self.lines.lock().unwrap().take() } else { None };
        self.asked.lock().unwrap().push((target, options));
        Box::pin(async move {
            match fault {
                Some(fault) => Err(fault),
                None => Ok(Box::new(Lines(vec![line], more)) as Box<dyn Chunks>),
            }
        })
    }

    fn run(&self, target: Target, session: Session, ends: Ends) -> Later<'_, Result<Exit, Fault>> {
        Box::pin(async move {
            let Action::Exec(command) = session.action else {
                let words = format!("attached to {}, tty {}\n", target.container, session.tty);
                ends.stdout.unwrap().send(words.into()).await.unwrap();
                return Ok(Exit(0));
            };
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            match words.as_slice() {
                ["cat"] => {
                    let (mut stdin, stdout) = (ends.stdin.unwrap(), ends.stdout.unwrap());
                    while let Some(bytes) = stdin.recv().await {
                        stdout.send(bytes).await.unwrap();
                    }
                    Ok(Exit(0))
                }
                ["exit", code] => Ok(Exit(code.parse().unwrap())),
                ["wait"] => {
                    ends.gone.cancelled().await;
                    Ok(Exit(0))
                }
                _ => Err(Fault::Failed(format!("exec: {words:?}: not found"))),
            }
        })
    }

    /// The well-known ports of old: 7 echoes, 13 says something and leaves, 19 takes little and
    /// says nothing until the test does, and 80 is a small web server.
    fn dial(&self, target: Target, port: u16) -> Later<'_, Result<Box<dyn Duplex>, Fault>> {
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
                    self.programs.lock().unwrap().spawn(proxy::program(theirs));
                    Box::new(ours)
                }
                19 => {
                    let (ours, theirs) = tokio::io::duplex(16);
                    self.silent.lock().unwrap().push(theirs);
                    Box::new(ours)
                }
                _ => {
                    let words = format!("dial tcp 127.16.0.2:{port}: connect: connection refused");
                    return Err(Fault::Unreachable(words));
                }
            };
            Ok(io)
        })
    }
}

/// A server that listens, and what a test needs to speak to it.
struct Listening {
    server: Server,
    fake: Arc<Fake>,
    address: std::net::SocketAddr,
}

const PODS: &str = "/api/v1/namespaces/default/pods";

impl Listening {
    async fn start() -> Self {
        let fake = Arc::new(Fake::default());
        let nodes: Arc<dyn Nodes> = Arc::clone(&fake) as _;
        let mut server =
            Server::start_with(|settings: &mut Settings| settings.nodes = Some(nodes)).await;
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
        let options = Options::new("127.0.0.1:0".parse().unwrap(), Door::PlainOnLoopback);
        let counters = gantry_serve::counters::Counters::register(&server.metrics).unwrap();
        let tasks = &mut server.tasks;
        let address = gantry_serve::serve(tasks, "test", options, counters, service).await.unwrap();
        let listening = Self { server, fake, address };
        let account = json!({ "metadata": { "name": "default" } });
        listening.make("/api/v1/namespaces/default/serviceaccounts", &account).await;
        listening.make("/api/v1/nodes", &json!({ "metadata": { "name": "n" } })).await;
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
            listening.make(PODS, &pod).await;
        }
        listening
    }

    async fn make(&self, path: &str, object: &Value) {
        let (status, answer) = self.server.ask("POST", path, "application/json", object).await;
        assert_eq!(status, 201, "{answer}");
    }

    /// Asks without an upgrade.
    async fn ask(&self, method: &str, path: &str) -> Reply {
        client::ask(self.address, method, &format!("{PODS}/{path}"), &[]).await
    }

    /// Opens a WebSocket; the answer to the request if that is refused.
    async fn open(&self, path: &str, protocol: &str) -> Result<Socket, Reply> {
        Socket::open(self.address, &format!("{PODS}/{path}"), protocol).await
    }
}

#[tokio::test]
async fn a_log_is_plain_text_of_the_container_that_is_meant() {
    let listening = Listening::start().await;
    let reply = listening.ask("GET", "p/log?tailLines=5&timestamps=true").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "I am c on n\n"));
    assert_eq!(reply.header("content-type"), Some("text/plain"));
    assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
    let reply = listening.ask("GET", "two/log?container=d").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "I am d on n\n"));
    let reply = listening.ask("GET", "free/log").await;
    assert_eq!((reply.status, reply.body.as_str()), (204, ""));
    let asked = listening.fake.asked.lock().unwrap();
    let (target, options) = &asked[0];
    assert_eq!((target.namespace.as_str(), target.pod.as_str()), ("default", "p"));
    assert_eq!(target.object["metadata"]["uid"], json!(target.uid));
    assert_eq!(target.host["metadata"]["name"], "n");
    let expected = LogOptions { timestamps: true, tail: Some(5), ..LogOptions::default() };
    assert_eq!(*options, expected);
    assert_eq!(asked.len(), 2, "no node is asked for a pod that has none");
}

#[tokio::test]
async fn what_cannot_be_is_refused_in_known_words() {
    let listening = Listening::start().await;
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
        let reply = listening.ask(method, path).await;
        let status: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!((reply.status, status["message"].as_str()), (code, Some(words)), "{path}");
    }
}

#[tokio::test]
async fn a_log_is_followed_until_the_server_stops() {
    let listening = Listening::start().await;
    let (sender, receiver) = mpsc::channel(4);
    *listening.fake.lines.lock().unwrap() = Some(receiver);
    let path = format!("{PODS}/p/log?follow=true");
    let mut following = client::Following::open(listening.address, &path).await;
    assert_eq!(following.chunk().await.as_deref(), Some("I am c on n\n"));
    sender.send("more\n".into()).await.unwrap();
    assert_eq!(following.chunk().await.as_deref(), Some("more\n"));
    listening.server.tasks.token().cancel();
    assert_eq!(following.chunk().await, None, "an end in order");
}

#[tokio::test]
async fn a_log_is_followed_no_longer_than_somebody_reads() {
    let listening = Listening::start().await;
    let (sender, receiver) = mpsc::channel(4);
    *listening.fake.lines.lock().unwrap() = Some(receiver);
    let path = format!("{PODS}/p/log?follow=true");
    let mut following = client::Following::open(listening.address, &path).await;
    following.chunk().await;
    drop(following);
    sender.closed().await;
}

#[tokio::test]
async fn a_command_is_typed_to_and_ends() {
    let listening = Listening::start().await;
    let path = "p/exec?command=cat&stdin=true&stdout=true";
    let mut socket = listening.open(path, "v5.channel.k8s.io").await.unwrap();
    assert_eq!(socket.reply.header("sec-websocket-protocol"), Some("v5.channel.k8s.io"));
    assert_eq!(socket.hear().await, (0x82, b"\x01".to_vec()));
    let long = [b"\0", &[b'x'; 200_000][..]].concat();
    socket.say(0x82, &long).await;
    let mut heard = 0;
    while heard < 200_000 {
        let (_, bytes) = socket.hear().await;
        assert_eq!(bytes[0], 1);
        heard += bytes.len() - 1;
    }
    socket.say(0x82, b"\xff\0").await;
    assert_eq!(socket.hear().await.1, b"\x03{\"metadata\":{},\"status\":\"Success\"}");
    assert_eq!(socket.hear().await, (0x88, 1000_u16.to_be_bytes().to_vec()));
    assert_eq!(socket.end().await, 0, "nothing comes after the goodbye");
}

#[tokio::test]
async fn how_it_ended_is_told() {
    let listening = Listening::start().await;
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
        assert_eq!(socket.hear().await.1.len(), 1, "{path}: it begins with nothing");
        let (_, status) = socket.hear().await;
        let status: Value = serde_json::from_slice(&status[1..]).unwrap();
        assert_eq!(status["message"], words, "{path}");
    }
}

#[tokio::test]
async fn who_attaches_hears_what_runs() {
    let listening = Listening::start().await;
    let path = "two/attach?container=d&stdout=1&stderr=1&tty=1";
    let mut socket = listening.open(path, "v4.channel.k8s.io").await.unwrap();
    socket.hear().await;
    assert_eq!(socket.hear().await.1, b"\x01attached to d, tty true\n");
    assert_eq!(socket.hear().await.1, b"\x03{\"metadata\":{},\"status\":\"Success\"}");
}

#[tokio::test]
async fn a_handshake_that_is_none_is_refused() {
    let listening = Listening::start().await;
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
        let reply = client::ask(listening.address, method, &path, &headers).await;
        assert_eq!(reply.status, code, "{headers:?}");
        assert!(reply.body.contains(words), "{headers:?}: {}", reply.body);
    }
}

/// Bytes that no client sends end their own conversation, and nothing else.
#[tokio::test]
async fn hostile_frames_end_their_own_conversation() {
    let listening = Listening::start().await;
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
        socket.hear().await;
        socket.send(bytes).await;
        assert_eq!(socket.hear().await, (0x88, 1002_u16.to_be_bytes().to_vec()), "{why}");
    }
    // Half a frame, and gone.
    let mut socket = listening.open(path, "v5.channel.k8s.io").await.unwrap();
    socket.hear().await;
    socket.send(&[0x82, 0xfe, 0x10]).await;
    drop(socket);
    assert_eq!(listening.ask("GET", "p/log").await.status, 200);
}

#[tokio::test]
async fn without_nodes_nobody_is_reached() {
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
        let (status, answer) = server.ask("POST", path, "application/json", object).await;
        assert_eq!(status, 201, "{answer}");
    }
    let path = format!("{PODS}/p/log");
    let (status, answer) = server.ask("GET", &path, "application/json", "").await;
    assert_eq!(status, 500);
    assert_eq!(answer["message"], "this server has no node agents to ask for \"log\"");
    assert_eq!(answer["details"], Value::Null, "nobody is asked to try again");
}
