//! Tests through a real listener, in both protocols; only time is simulated.

use std::net::SocketAddr;

use gantry_process::clock::FakeClock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_process::tasks::Tasks;
use gantry_testkit::http::{Client, Credentials, Protocol, Request as Ask, Target};
use http::StatusCode;
use http::header::RETRY_AFTER;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::body;
use crate::files::tests::private_folder;
use crate::listener::{Options, TransportSecurity, serve};
use crate::pki::Pki;
use crate::tls::ServerCertificate;

/// Longer than anything here takes on a busy machine; reached only by a test that fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

struct TestServer {
    hand: FakeClock,
    metrics: Metrics,
    limits: Limits,
    pki: Pki,
    plain: SocketAddr,
    secure: SocketAddr,
    /// Releases one request for `/wait`.
    release: Arc<Notify>,
    _tasks: Tasks,
}

async fn test_server(figures: RequestLimits) -> TestServer {
    let hand = FakeClock::at(Clock::system().now());
    let metrics = Metrics::new(&BuildInfo::default());
    let counters = gantry_process::tasks::TaskMetrics::register(&metrics).unwrap();
    let jitter = fastrand::Rng::with_seed(1);
    let mut tasks = Tasks::new(hand.clock(), counters, jitter, &CancellationToken::new());
    let counters = Counters::register(&metrics).unwrap();
    let limits = Limits::new(figures, hand.clock(), counters.clone(), |parts| {
        if parts.uri.query() == Some("watch") {
            RequestClass::LongRunning
        } else if RequestClass::is_exempt(parts.uri.path()) {
            RequestClass::Exempt
        } else {
            RequestClass::of_method(&parts.method)
        }
    });
    let go = Arc::new(Notify::new());
    let (within, release) = (limits.clone(), Arc::clone(&go));
    let service = move |request, _peer| {
        let (limits, release) = (within.clone(), Arc::clone(&release));
        async move { limits.handle(request, |request| test_service(request, release)).await }
    };
    let folder = private_folder();
    let pki = Pki::open_or_create(folder.path(), &[], hand.clock().now()).unwrap();
    let certificate = ServerCertificate::new(pki.server()).unwrap();
    let local = "127.0.0.1:0".parse().unwrap();
    let mut ports = Vec::new();
    for door in
        [TransportSecurity::PlainOnLoopback, TransportSecurity::Tls { certificate, clients: None }]
    {
        let mut options = Options::new(local, door);
        options.timeouts.idle = Duration::MAX;
        options.timeouts.ping = second(1_000_000);
        let bound = serve(&mut tasks, "test", options, counters.clone(), service.clone()).await;
        ports.push(bound.unwrap());
    }
    let (plain, secure) = (ports[0], ports[1]);
    TestServer { hand, metrics, limits, pki, plain, secure, release: go, _tasks: tasks }
}

async fn test_service(request: Request<RequestBody>, go: Arc<Notify>) -> Response<Body> {
    match request.uri().path() {
        "/wait" | "/healthz" => {
            go.notified().await;
            Response::new(body::full("waited"))
        }
        "/open" => Response::new(EndlessBody(Some(Bytes::from("open\n"))).boxed_unsync()),
        "/upgrade" => {
            let mut response = Response::new(body::empty());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
            response.headers_mut().insert("upgrade", HeaderValue::from_static("echo"));
            Upgrade::attach(&mut response, |mut bytes| async move {
                // Until the client disconnects.
                let _ = bytes.read_u8().await;
            });
            response
        }
        _ => match request.into_body().read().await {
            Ok(bytes) => Response::new(body::full(format!("{} bytes", bytes.len()))),
            Err(refusal) => *refusal,
        },
    }
}

/// A body that begins and does not end.
struct EndlessBody(Option<Bytes>);

impl hyper::body::Body for EndlessBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.take().map_or(Poll::Pending, |piece| Poll::Ready(Some(Ok(Frame::data(piece)))))
    }
}

impl TestServer {
    fn client(&self, protocol: Protocol) -> Client {
        let target = Target {
            base: format!("https://{}", self.secure),
            authority: self.pki.ca_certificate().to_owned(),
            credentials: Credentials::Anonymous,
        };
        Client::new(&target, protocol, Clock::system()).unwrap().with_timeout(TEST_TIMEOUT)
    }

    fn rejections(&self, why: &str) -> i64 {
        let page = self.metrics.encode().unwrap();
        let line = format!("gantry_server_refusals_total{{why=\"{why}\"}} ");
        let found = page.lines().find_map(|have| have.strip_prefix(&line));
        found.map_or(0, |value| value.parse().unwrap())
    }

    async fn wait_until(&self, what: &str, mut happened: impl FnMut(&Self) -> bool) {
        let clock = Clock::system();
        let waiting = async {
            while !happened(self) {
                clock.sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(clock.timeout(TEST_TIMEOUT, waiting).await.is_ok(), "never: {what}");
    }

    async fn wait_until_timer_due(&self, within: Duration) {
        let due = self.hand.clock().moment() + within;
        let happened = |site: &Self| site.hand.next_deadline() == Some(due);
        self.wait_until(&format!("due within {within:?}"), happened).await;
    }

    fn advance_clock(&self, time: Duration) {
        self.hand.jump_to(self.hand.clock().moment() + time);
    }
}

async fn read_all(socket: &mut TcpStream) -> String {
    let mut text = String::new();
    let read = Clock::system().timeout(TEST_TIMEOUT, socket.read_to_string(&mut text)).await;
    read.expect("the server has closed the connection").unwrap();
    text
}

const PROTOCOLS: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

#[test]
fn exempt_paths() {
    let table = [
        ("/healthz", true),
        ("/livez/ping", true),
        ("/readyz", true),
        ("/readyzz", false),
        ("/api/v1/namespaces/healthz/pods", false),
        ("/apis/coordination.k8s.io/v1/leases", true),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1", true),
        ("/apis/coordination.k8s.io/v1", false),
        ("/apis/example.org/v1/leases", false),
    ];
    for (path, expected) in table {
        assert_eq!(RequestClass::is_exempt(path), expected, "{path}");
    }
}

#[tokio::test]
async fn bodies_up_to_the_limit_are_read_and_larger_ones_refused() {
    let site = test_server(RequestLimits::default()).await;
    let limit = 3_145_728;
    for protocol in PROTOCOLS {
        let client = site.client(protocol);
        for size in [0, 1, 100_000, limit] {
            let answer = client.send(Ask::new(Method::POST, "/").body(vec![b'a'; size]));
            let answer = answer.await.unwrap();
            assert_eq!(answer.text(), format!("{size} bytes"), "{protocol:?}");
        }
        for size in [limit + 1, limit + 500_000] {
            let answer = client.send(Ask::new(Method::POST, "/").body(vec![b'a'; size]));
            let answer = answer.await.unwrap();
            assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE, "{protocol:?}");
            let status = answer.json().unwrap();
            assert_eq!(status["reason"], "RequestEntityTooLarge");
            assert_eq!(status["message"], "Request entity too large: limit is 3145728");
        }
    }
    assert_eq!(site.rejections("body_too_large"), 4);
}

#[tokio::test]
async fn a_body_of_unknown_length_is_counted_as_it_comes() {
    let site = test_server(RequestLimits { max_body_bytes: 10, ..RequestLimits::default() }).await;
    let table = [
        ("5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n", "10 bytes"),
        ("b\r\nhello world\r\n0\r\n\r\n", "limit is 10"),
    ];
    for (body, expected) in table {
        let mut socket = TcpStream::connect(site.plain).await.unwrap();
        let head =
            "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
        socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let answer = read_all(&mut socket).await;
        assert!(answer.contains(expected), "{answer}");
    }
}

#[tokio::test]
async fn a_body_far_too_large_is_not_waited_for() {
    let site = test_server(RequestLimits { max_body_bytes: 10, ..RequestLimits::default() }).await;
    let table = [
        ("announced", "content-length: 21\r\n\r\n"),
        ("counted", "transfer-encoding: chunked\r\n\r\n15\r\n123456789 123456789 1\r\n"),
        ("the client waits for 100 Continue", "content-length: 11\r\nexpect: 100-continue\r\n\r\n"),
    ];
    for (why, rest) in table {
        let mut socket = TcpStream::connect(site.plain).await.unwrap();
        let ask = format!("POST / HTTP/1.1\r\nhost: a\r\n{rest}");
        socket.write_all(ask.as_bytes()).await.unwrap();
        let answer = read_all(&mut socket).await;
        assert!(answer.starts_with("HTTP/1.1 413 Payload Too Large\r\n"), "{why}: {answer}");
        assert!(answer.contains("connection: close\r\n"), "{why}: {answer}");
    }
}

#[tokio::test]
async fn a_slow_body_has_time_for_as_much_as_it_has_sent() {
    let figures = RequestLimits { request_timeout: second(1000), ..RequestLimits::default() };
    let site = test_server(figures).await;
    let mut socket = TcpStream::connect(site.plain).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    site.wait_until_timer_due(second(10)).await;
    socket.write_all(&[b'a'; 1000]).await.unwrap();
    site.wait_until_timer_due(second(12)).await;
    site.advance_clock(second(9));
    // Fifty seconds' worth, but a minute is the most there is.
    socket.write_all(&[b'a'; 30_000]).await.unwrap();
    site.wait_until_timer_due(second(51)).await;
    site.advance_clock(second(51));
    let answer = read_all(&mut socket).await;
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert!(answer.contains("Timeout: the request body did not arrive in time"), "{answer}");
    assert_eq!(site.rejections("body_too_slow"), 1);
}

#[tokio::test]
async fn requests_time_out_after_60_seconds_unless_long_running() {
    let site = test_server(RequestLimits::default()).await;
    for protocol in PROTOCOLS {
        let client = site.client(protocol);
        let (answer, ()) = tokio::join!(client.send(Ask::get("/wait")), async {
            site.wait_until_timer_due(second(60)).await;
            site.advance_clock(second(60));
        });
        let answer = answer.unwrap();
        assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT, "{protocol:?}");
        let status = answer.json().unwrap();
        let message = "Timeout: request did not complete within the allotted timeout";
        assert_eq!((&status["reason"], &status["message"]), (&"Timeout".into(), &message.into()));

        let (answer, ()) = tokio::join!(client.send(Ask::get("/wait?watch")), async {
            let there = |site: &TestServer| site.limits.0.long_running.available_permits() == 9_999;
            site.wait_until("there", there).await;
            site.advance_clock(second(1000));
            site.release.notify_one();
        });
        assert_eq!(answer.unwrap().text(), "waited", "{protocol:?}");
    }
    assert_eq!(site.rejections("deadline"), 2);
}

#[tokio::test]
async fn requests_over_the_limit_get_retry_after() {
    let site = test_server(RequestLimits {
        max_read_only: 2,
        max_mutating: 1,
        ..RequestLimits::default()
    })
    .await;
    let client = site.client(Protocol::Http2);
    let mut waiting = tokio::task::JoinSet::new();
    for method in [Method::GET, Method::GET, Method::POST] {
        let (client, ask) = (client.clone(), Ask::new(method, "/wait"));
        waiting.spawn(async move { client.send(ask).await.unwrap().text() });
    }
    let full = |site: &TestServer| {
        site.limits.0.read_only.available_permits() + site.limits.0.mutating.available_permits()
            == 0
    };
    site.wait_until("full", full).await;
    for method in [Method::GET, Method::HEAD, Method::POST, Method::PATCH, Method::DELETE] {
        let answer = client.send(Ask::new(method.clone(), "/")).await.unwrap();
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{method}");
        assert_eq!(answer.headers[RETRY_AFTER], "1", "{method}");
    }
    let exempt =
        Ask::post("/apis/coordination.k8s.io/v1/namespaces/a/leases", &serde_json::json!({}));
    assert_eq!(client.send(exempt).await.unwrap().text(), "2 bytes", "leases get through");
    let watch = client.open(Ask::get("/open?watch")).await.unwrap();
    assert_eq!(watch.status, StatusCode::OK, "watches are counted apart");
    assert_eq!(site.rejections("too_many"), 5);

    site.release.notify_waiters();
    assert_eq!(waiting.join_all().await, ["waited"; 3]);
    let answer = client.send(Ask::get("/")).await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "and afterwards there is a free slot again");
}

#[tokio::test]
async fn long_running_requests_hold_a_permit_until_they_end() {
    let site = test_server(RequestLimits { max_long_running: 1, ..RequestLimits::default() }).await;
    let free = |site: &TestServer| site.limits.0.long_running.available_permits() == 1;
    for protocol in PROTOCOLS {
        let client = site.client(protocol);
        let watch = client.open(Ask::get("/open?watch")).await.unwrap();
        let answer = client.send(Ask::get("/open?watch")).await.unwrap();
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{protocol:?}");
        let answer = client.send(Ask::get("/")).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{protocol:?}: others are not held up");
        drop(watch);
        site.wait_until("free again", free).await;
    }
    let mut socket = TcpStream::connect(site.plain).await.unwrap();
    let ask =
        "GET /upgrade?watch HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    socket.write_all(ask.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    socket.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
    let answer = site.client(Protocol::Http1).send(Ask::get("/open?watch")).await.unwrap();
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "an upgraded one counts on");
    drop(socket);
    site.wait_until("free again", free).await;
}

#[tokio::test]
async fn a_permit_is_released_before_the_response_is_sent() {
    let site = test_server(RequestLimits { max_read_only: 1, ..RequestLimits::default() }).await;
    let client = site.client(Protocol::Http2);
    let unread = client.open(Ask::get("/open")).await.unwrap();
    assert_eq!(unread.status, StatusCode::OK);
    assert_eq!(client.send(Ask::get("/")).await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn urls_over_16_kib_are_refused() {
    let site = test_server(RequestLimits::default()).await;
    for protocol in PROTOCOLS {
        let client = site.client(protocol);
        for (length, status) in [(16_384, StatusCode::OK), (16_385, StatusCode::URI_TOO_LONG)] {
            let path = format!("/?{}", "a".repeat(length - 2));
            let answer = client.send(Ask::get(path)).await.unwrap();
            assert_eq!(answer.status, status, "{protocol:?} {length}");
        }
    }
}
