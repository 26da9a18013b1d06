//! The client against scripted servers on this machine.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use gantry_process::clock::FakeClock;
use gantry_process::error_chain;
use gantry_testkit::pki::Authority;
use gantry_testkit::webhook_server::{Reply, WebhookServer};
use http::{Method, StatusCode, Version};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::BoxError;
use crate::address::AddressRefusal;
use crate::connect::ResolveFuture;

const SECOND: Duration = Duration::from_secs(1);
const INCOMPLETE_RESPONSE: &str = "the connection failed before the response was complete";
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(100), bytes: 64 };

/// What a server does once it has read a request.
#[derive(Clone, Debug)]
enum ServerAction {
    /// Writes this and goes on.
    Respond(String),
    /// Writes this and nothing more, ever.
    Stall(&'static str),
    /// Writes this and closes.
    Close(&'static str),
}

fn respond(text: &str) -> ServerAction {
    ServerAction::Respond(text.to_owned())
}

/// A server without TLS that follows a script, whichever connection the requests come by.
struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Vec<String>>>,
    requests: watch::Receiver<usize>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    fn start(script: impl IntoIterator<Item = ServerAction>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script: Arc<Mutex<VecDeque<ServerAction>>> =
            Arc::new(Mutex::new(script.into_iter().collect()));
        let (heard, connections) =
            (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let (counted, requests) = watch::channel(0);
        let counted = Arc::new(counted);
        let server = Self { address, received: Arc::clone(&heard), requests, connections };
        let connections = Arc::clone(&server.connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                connections.fetch_add(1, Ordering::SeqCst);
                let (script, heard) = (Arc::clone(&script), Arc::clone(&heard));
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || serve_connection(&stream, &script, &heard, &counted));
            }
        });
        server
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn received(&self) -> Vec<String> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn requests(&self, count: usize) {
        self.requests.clone().wait_for(|it| *it >= count).await.unwrap();
    }
}

fn serve_connection(
    mut stream: &TcpStream,
    script: &Mutex<VecDeque<ServerAction>>,
    heard: &Mutex<Vec<String>>,
    counted: &watch::Sender<usize>,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") {
            (reader.read_line(&mut request).ok()? > 0).then_some(())?;
        }
        let length = request.lines().find_map(|it| it.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |it| it.parse().unwrap())];
        reader.read_exact(&mut body).ok()?;
        request.push_str(&String::from_utf8(body).unwrap());
        heard.lock().unwrap().push(request);
        let act = script.lock().unwrap().pop_front()?;
        let (text, go_on) = match &act {
            ServerAction::Respond(text) => (text.as_str(), true),
            ServerAction::Stall(text) | ServerAction::Close(text) => (*text, false),
        };
        stream.write_all(text.as_bytes()).ok()?;
        counted.send_modify(|count| *count += 1);
        match (go_on, act) {
            (true, _) => {}
            // Until the client has disconnected.
            (false, ServerAction::Stall(_)) => drop(reader.read_to_end(&mut Vec::new())),
            (false, _) => return None,
        }
    }
}

/// Resolves every name to the same addresses, and counts.
#[derive(Debug)]
struct FixedResolver(Vec<&'static str>, AtomicUsize);

impl FixedResolver {
    fn new(addresses: &[&'static str]) -> Arc<Self> {
        Arc::new(Self(addresses.to_vec(), AtomicUsize::new(0)))
    }
}

impl Resolve for FixedResolver {
    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> ResolveFuture<'a> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let addresses = self.0.iter().map(|it| SocketAddr::new(it.parse().unwrap(), port));
        let addresses: Vec<_> = addresses.collect();
        Box::pin(async move { Ok(addresses) })
    }
}

fn settings() -> Settings {
    Settings {
        plain_http: PlainHttp::Loopback,
        addresses: AddressPolicy::AllowLoopback,
        ..Settings::new("tests")
    }
}

fn client(settings: Settings) -> Client {
    Client::new(Clock::system(), settings).unwrap()
}

fn get(url: &str) -> Request<Body> {
    Request::get(url).body(Body::empty()).unwrap()
}

fn shown(error: &ClientError) -> String {
    error_chain(error)
}

fn ok(body: &str) -> ServerAction {
    ServerAction::Respond(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
}

fn redirect_to(location: &str, status: u16) -> ServerAction {
    ServerAction::Respond(format!(
        "HTTP/1.1 {status} x\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
    ))
}

#[tokio::test]
async fn connections_are_reused_and_requests_name_their_agent() {
    let server = Server::start([ok("a"), ok("b"), ok("c")]);
    let client = client(settings());
    for expected in ["a", "b", "c"] {
        let answer = client.fetch(get(&server.url("/x?y")), BOUNDS).await.unwrap();
        assert_eq!(answer.body(), expected);
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    let heard = server.received();
    assert!(heard[0].starts_with("GET /x?y HTTP/1.1\r\n"), "{heard:?}");
    assert!(heard[0].contains("user-agent: tests\r\n"), "{heard:?}");
    assert!(heard[0].contains(&format!("host: {}\r\n", server.address)), "{heard:?}");
}

#[tokio::test]
async fn certificates_are_checked_by_the_bundle_and_the_name_that_settings_give() {
    let hooks = WebhookServer::shared().unwrap();
    hooks.set_handler("/tls", |_| Reply::Json(json!({})));
    let bundle = hooks.client_config("/tls")["caBundle"].as_str().unwrap().to_owned();
    let bundle = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.decode(bundle).unwrap()
    };
    let bundle = Roots::Bundle(Bytes::from(bundle));
    let port = hooks.address().port();
    let url = format!("https://elsewhere.test:{port}/tls");
    let resolver: Arc<dyn Resolve> = FixedResolver::new(&["127.0.0.1"]);
    let named = Settings { roots: bundle, resolver, ..settings() };
    let other = Settings { server_name: Some("webhooks.test".to_owned()), ..named.clone() };
    let answer = client(other.clone()).fetch(get(&url), BOUNDS).await.unwrap();
    assert_eq!(answer.body(), "{}");
    let error = client(named).fetch(get(&url), BOUNDS).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::Handshake { server_name, .. } if server_name == "elsewhere.test")
    );
    assert!(matches!(error.tls(), Some(rustls::Error::InvalidCertificate(_))), "{error:?}");
    let system = Settings { roots: Roots::System, ..other.clone() };
    let error = client(system).fetch(get(&url), BOUNDS).await.unwrap_err();
    assert!(shown(&error).contains("UnknownIssuer"), "{}", shown(&error));
    let bad = Settings { server_name: Some("a b".to_owned()), ..other };
    let bad = Client::new(Clock::system(), bad).unwrap_err();
    assert_eq!(bad, TlsError::ServerName("a b".to_owned()));
}

#[tokio::test]
async fn addresses_are_checked_after_resolution_and_the_checked_one_is_called() {
    let server = Server::start([ok("here")]);
    let url = format!("http://name.test:{}/", server.address.port());
    let table = [
        (vec!["169.254.169.254"], AddressPolicy::AllowLoopback, AddressRefusal::LinkLocal),
        (vec!["::ffff:169.254.169.254"], AddressPolicy::NoLoopback, AddressRefusal::LinkLocal),
        (vec!["127.0.0.1"], AddressPolicy::NoLoopback, AddressRefusal::Loopback),
        (vec!["0.0.0.0"], AddressPolicy::NoLoopback, AddressRefusal::Loopback),
        (vec!["10.0.0.1"], AddressPolicy::AllowLoopback, AddressRefusal::PlainHttp),
    ];
    for (names, addresses, expected) in table {
        let client =
            client(Settings { resolver: FixedResolver::new(&names), addresses, ..settings() });
        let error = client.fetch(get(&url), BOUNDS).await.unwrap_err();
        let ClientError::AddressRefused { why, .. } = error else { panic!("{names:?}: {error}") };
        assert_eq!(why, expected, "{names:?}");
    }
    let resolver = FixedResolver::new(&["169.254.169.254", "127.0.0.1"]);
    let client = client(Settings { resolver: resolver.clone(), ..settings() });
    let answer = client.fetch(get(&url), BOUNDS).await.unwrap();
    assert_eq!(answer.body(), "here");
    assert_eq!(resolver.1.load(Ordering::SeqCst), 1, "a name is resolved once a connection");
}

#[tokio::test]
async fn invalid_urls_are_refused_before_resolution() {
    let table = [
        ("http://h/", PlainHttp::Never, "cannot call \"http://h/\": it must begin with https://"),
        (
            "https://u:secret@h/x?secret",
            PlainHttp::Never,
            "cannot call \"https://h/x\": credentials belong in a header, not in a URL",
        ),
        (
            "ftp://h/",
            PlainHttp::Anywhere,
            "cannot call \"ftp://h/\": it must begin with https:// or http://",
        ),
        ("/x", PlainHttp::Anywhere, "cannot call \"/x\": it must begin with https:// or http://"),
    ];
    for (url, plain_http, expected) in table {
        let resolver = FixedResolver::new(&[]);
        let client = client(Settings { plain_http, resolver: resolver.clone(), ..settings() });
        let error = client.fetch(get(url), BOUNDS).await.unwrap_err();
        assert_eq!(shown(&error), expected, "{url}");
        assert_eq!(resolver.1.load(Ordering::SeqCst), 0, "{url}");
    }
    let nowhere = client(Settings { resolver: FixedResolver::new(&[]), ..settings() });
    let error = nowhere.fetch(get("https://h/"), BOUNDS).await.unwrap_err();
    assert_eq!(shown(&error), "could not resolve h: the name has no address");
    let closed = client(settings()).fetch(get("http://127.0.0.1:1/"), BOUNDS).await.unwrap_err();
    assert!(matches!(closed, ClientError::Connect { .. }), "{closed}");
}

/// Never resolves anything.
#[derive(Debug)]
struct PendingResolver;

impl Resolve for PendingResolver {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> ResolveFuture<'a> {
        Box::pin(std::future::pending())
    }
}

/// Advances the clock once a server has done `requests` things, and returns the result of a
/// request.
async fn expect_timeout(
    server: &Server,
    requests: usize,
    pass: Duration,
    settings: Settings,
    request: Request<Body>,
    bounds: Bounds,
) -> (Phase, Duration) {
    let hand = FakeClock::at(jiff::Timestamp::UNIX_EPOCH);
    let client = Client::new(hand.clock(), settings).unwrap();
    let pass = async {
        server.requests(requests).await;
        hand.advance(pass).await;
    };
    let (answer, ()) = tokio::join!(client.fetch(request, bounds), pass);
    match answer.unwrap_err() {
        ClientError::Timeout { phase, limit } => (phase, limit),
        error => panic!("{error}"),
    }
}

#[tokio::test]
async fn every_phase_has_a_time_out_of_its_own() {
    let nobody = Server::start([]);
    let silent = Settings { resolver: Arc::new(PendingResolver), ..settings() };
    let found =
        expect_timeout(&nobody, 0, 10 * SECOND, silent.clone(), get("https://h/"), BOUNDS).await;
    assert_eq!(found, (Phase::Connect, 10 * SECOND));
    let short = Bounds { time: 5 * SECOND, ..BOUNDS };
    let found = expect_timeout(&nobody, 0, 10 * SECOND, silent, get("https://h/"), short).await;
    assert_eq!(found, (Phase::Total, 5 * SECOND));
    let stalls = ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"];
    for stall in stalls {
        let server = Server::start([ServerAction::Stall(stall)]);
        let request = get(&server.url("/"));
        let found = expect_timeout(&server, 1, 30 * SECOND, settings(), request, BOUNDS).await;
        assert_eq!(found, (Phase::Idle, 30 * SECOND), "{stall}");
        let server = Server::start([ServerAction::Stall(stall)]);
        let request = get(&server.url("/"));
        let found = expect_timeout(&server, 1, 5 * SECOND, settings(), request, short).await;
        assert_eq!(found, (Phase::Total, 5 * SECOND), "{stall}");
    }
}

#[tokio::test]
async fn a_tls_handshake_times_out() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let hand = FakeClock::at(jiff::Timestamp::UNIX_EPOCH);
    let client = Client::new(hand.clock(), settings()).unwrap();
    let pass = async {
        let (stream, _) = listener.accept().await.unwrap();
        // The first byte of the client shows that it waits for the server's.
        stream.peek(&mut [0]).await.unwrap();
        hand.advance(10 * SECOND).await;
        stream
    };
    let (answer, _stream) = tokio::join!(client.fetch(get(&url), BOUNDS), pass);
    let error = answer.unwrap_err();
    assert_eq!(shown(&error), "the TLS handshake took longer than 10s");
}

#[tokio::test]
async fn a_request_that_makes_progress_is_not_idle() {
    let server = Server::start([ok("done")]);
    let hand = FakeClock::at(jiff::Timestamp::UNIX_EPOCH);
    let client = Client::new(hand.clock(), settings()).unwrap();
    let slow = hand.clone();
    // Three pieces, each of which takes nearly as long as the idle time-out.
    let pieces = futures_util::stream::unfold(0, move |piece| {
        let hand = slow.clone();
        async move {
            hand.advance(29 * SECOND).await;
            (piece < 3)
                .then(|| (Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"p"))), piece + 1))
        }
    });
    let request = Request::put(server.url("/")).header("content-length", "3");
    let request = request.body(Body::stream(StreamBody::new(pieces))).unwrap();
    let bounds = Bounds { time: 1000 * SECOND, bytes: 64 };
    let answer = client.fetch(request, bounds).await.unwrap();
    assert_eq!(answer.body(), "done");
    assert!(server.received()[0].ends_with("\r\n\r\nppp"), "{:?}", server.received());
}

#[tokio::test]
async fn a_peer_that_stops_reading_is_disconnected() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let hand = FakeClock::at(jiff::Timestamp::UNIX_EPOCH);
    let client = Client::new(hand.clock(), settings()).unwrap();
    let endless = futures_util::stream::repeat_with(|| {
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[7; 1 << 14])))
    });
    let request = Request::put(&url).body(Body::stream(StreamBody::new(endless))).unwrap();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut begin = [0; 64];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut begin).await.unwrap();
        let answer = b"HTTP/1.1 413 x\r\ncontent-length: 0\r\n\r\n";
        tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
        stream
    };
    let (answer, mut stream) = tokio::join!(client.fetch(request, BOUNDS), serve);
    assert_eq!(answer.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
    // The client sends the rest of the request, which has no end, unless a write waits for too
    // long.
    let ended = async {
        let mut rest = [0; 1 << 10];
        while tokio::io::AsyncReadExt::read(&mut stream, &mut rest).await.is_ok_and(|it| it > 0) {}
    };
    let pass = async {
        loop {
            hand.advance(60 * SECOND).await;
        }
    };
    tokio::select! {
        () = ended => {}
        () = pass => {}
    }
}

#[tokio::test]
async fn oversized_and_truncated_responses_are_distinguished() {
    let header = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(70 << 10));
    let large = |part, limit| format!("the {part} of the response is larger than {limit} bytes");
    let table = [
        (ok(&"x".repeat(64)), None),
        (ok(&"x".repeat(65)), Some(large(ResponsePart::Body, 64))),
        (
            respond(&format!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n40\r\n{}\r\n1\r\nx\r\n",
                "x".repeat(64)
            )),
            Some(large(ResponsePart::Body, 64)),
        ),
        (respond(&header), Some(large(ResponsePart::Header, 64 << 10))),
        (ServerAction::Close(""), Some(INCOMPLETE_RESPONSE.to_owned())),
        (ServerAction::Close("HTTP/1.1 200 OK\r\n"), Some(INCOMPLETE_RESPONSE.to_owned())),
        (
            ServerAction::Close("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"),
            Some(INCOMPLETE_RESPONSE.to_owned()),
        ),
        (respond("junk\r\n\r\n"), Some(INCOMPLETE_RESPONSE.to_owned())),
    ];
    for (act, expected) in table {
        let server = Server::start([act.clone()]);
        let answer = client(settings()).fetch(get(&server.url("/")), BOUNDS).await;
        let act: String = format!("{act:?}").chars().take(99).collect();
        assert_eq!(answer.err().map(|it| it.to_string()), expected, "{act}");
    }
}

#[tokio::test]
async fn redirects_are_followed_only_as_far_as_allowed() {
    let follow = |redirects| {
        let mut settings = settings();
        settings.limits.redirects = redirects;
        client(settings)
    };
    let post = |url: &str, body: Body| {
        let request = Request::post(url).header("authorization", "Bearer s").body(body);
        request.unwrap()
    };
    let server = Server::start([redirect_to("/two", 307)]);
    let answer = follow(0).fetch(get(&server.url("/")), BOUNDS).await.unwrap();
    assert_eq!(
        answer.status(),
        StatusCode::TEMPORARY_REDIRECT,
        "none are followed unless asked for"
    );

    let server = Server::start([redirect_to("/two", 307), ok("")]);
    let request = post(&server.url("/one"), Body::from("content"));
    follow(1).fetch(request, BOUNDS).await.unwrap();
    let heard = server.received();
    assert!(
        heard[1].starts_with("POST /two HTTP/1.1") && heard[1].ends_with("content"),
        "{heard:?}"
    );
    assert!(heard[1].contains("authorization: Bearer s"), "{heard:?}");

    let other = Server::start([ok("there")]);
    let server = Server::start([redirect_to(&other.url("/x"), 302)]);
    let request = post(&server.url("/one"), Body::from("content"));
    let answer = follow(1).fetch(request, BOUNDS).await.unwrap();
    assert_eq!(answer.body(), "there");
    let heard = other.received();
    assert!(heard[0].starts_with("GET /x HTTP/1.1") && !heard[0].contains("Bearer"), "{heard:?}");
    assert!(heard[0].contains(&format!("host: {}\r\n", other.address)), "{heard:?}");

    let server =
        Server::start([redirect_to("/a", 307), redirect_to("/b", 307), redirect_to("/c", 307)]);
    let error = follow(2).fetch(get(&server.url("/")), BOUNDS).await.unwrap_err();
    assert_eq!(error.to_string(), "the server redirected more than 2 times");

    let server = Server::start([redirect_to("/two", 307)]);
    let once = StreamBody::new(futures_util::stream::iter([Ok::<_, Infallible>(Frame::data(
        Bytes::from_static(b"p"),
    ))]));
    let mut request = post(&server.url("/one"), Body::stream(once));
    request.headers_mut().insert("content-length", HeaderValue::from_static("1"));
    let answer = follow(1).fetch(request, BOUNDS).await.unwrap();
    assert_eq!(answer.status(), StatusCode::TEMPORARY_REDIRECT, "a stream is not sent twice");

    let server = Server::start([redirect_to("http://169.254.169.254/latest", 302)]);
    let error = follow(1).fetch(get(&server.url("/")), BOUNDS).await.unwrap_err();
    assert!(matches!(error, ClientError::AddressRefused { .. }), "{error}");
}

#[tokio::test]
async fn concurrent_requests_are_limited() {
    let body = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nx";
    let server = Server::start([ServerAction::Stall(body), ok("")]);
    let mut settings = settings();
    settings.limits.requests = 1;
    let hand = FakeClock::at(jiff::Timestamp::UNIX_EPOCH);
    let client = Client::new(hand.clock(), settings).unwrap();
    let mut first = client.send(get(&server.url("/")), BOUNDS).await.unwrap();
    assert_eq!(first.body_mut().chunk().await.unwrap().unwrap(), "x");
    let (second, ()) =
        tokio::join!(client.send(get(&server.url("/")), BOUNDS), hand.advance(BOUNDS.time));
    assert!(matches!(second, Err(ClientError::Timeout { phase: Phase::Total, .. })));
    assert_eq!(server.received().len(), 1, "it was not sent");
    drop(first);
    client.fetch(get(&server.url("/")), BOUNDS).await.unwrap();
}

#[tokio::test]
async fn bodies_are_streamed_both_ways_over_http_2_with_a_client_certificate() {
    let authority = Authority::new("ca").unwrap();
    let own = authority.server("server", &[]).unwrap();
    let chain = CertificateDer::pem_slice_iter(own.certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    let ca = authority.own.certificate.as_bytes();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(ca).flatten());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(
        Arc::new(roots),
        Arc::clone(&provider),
    );
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/echo", listener.local_addr().unwrap());
    let serve = async {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client without a certificate ends here.
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let echo = service_fn(|request: Request<Incoming>| async move {
                Ok::<_, Infallible>(Response::new(request.into_body()))
            });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _: hyper::Result<()> = http.serve_connection(TokioIo::new(stream), echo).await;
        }
    };
    let bundle = Roots::Bundle(Bytes::from(authority.own.certificate.clone()));
    let ann = authority.client("ann", &[]).unwrap();
    let identity = Identity { certificates: ann.certificate.into(), key: ann.key.into() };
    let trusting = Settings { roots: bundle, protocols: Protocols::Http1And2, ..settings() };
    let known = client(Settings { identity: Some(identity), ..trusting.clone() });
    let calls = async {
        let stranger = client(trusting).fetch(get(&url), BOUNDS).await.unwrap_err();
        assert!(
            matches!(stranger, ClientError::ConnectionLost(_) | ClientError::Handshake { .. }),
            "{stranger:?}"
        );
        let bounds = Bounds { bytes: 64 << 20, ..BOUNDS };
        let piece = Bytes::from(vec![7; 1 << 20]);
        let pieces = vec![piece; 8].into_iter().map(|it| Ok::<_, Infallible>(Frame::data(it)));
        let body = Body::stream(StreamBody::new(futures_util::stream::iter(pieces)));
        let request = Request::builder().method(Method::PUT).uri(&url).body(body).unwrap();
        let mut answer = known.send(request, bounds).await.unwrap();
        assert_eq!(answer.version(), Version::HTTP_2);
        let mut size = 0;
        while let Some(chunk) = answer.body_mut().chunk().await.unwrap() {
            size += chunk.len();
        }
        assert_eq!(size, 8 << 20);
    };
    tokio::select! {
        () = calls => {}
        () = serve => {}
    }
}
