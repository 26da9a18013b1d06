use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::FakeClock;
use crate::metrics::BuildInfo;
use crate::tasks::{TaskMetrics, Tasks};

struct TestServer {
    hand: FakeClock,
    metrics: Metrics,
    health: Health,
    tasks: Tasks,
    address: SocketAddr,
}

/// A server on loopback with two liveness and two readiness checks, on a fake clock.
async fn test_server(endpoints: Endpoints) -> TestServer {
    let hand = FakeClock::at(Timestamp::UNIX_EPOCH);
    let metrics = Metrics::new(&BuildInfo { version: "1", revision: "2" });
    let counters = TaskMetrics::register(&metrics).unwrap();
    let jitter = fastrand::Rng::with_seed(1);
    let mut tasks = Tasks::new(hand.clock(), counters, jitter, &CancellationToken::new());
    let health = Health::default();
    health.add(Probe::Live, "ping", || Ok(())).unwrap();
    health.add(Probe::Live, "loop", || Ok(())).unwrap();
    health.add(Probe::Ready, "cache", || Ok(())).unwrap();
    let router = health.router(&endpoints).merge(metrics_router(metrics.clone()));
    let local = "127.0.0.1:0".parse().unwrap();
    let address = serve(&mut tasks, "probes", &local, router).await.unwrap().unwrap();
    TestServer { hand, metrics, health, tasks, address }
}

impl TestServer {
    /// Status, head and body of a GET.
    async fn get(&self, path: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_owned(), body.to_owned())
    }
}

#[tokio::test]
async fn probes_answer_like_kubernetes() {
    let site = test_server(Endpoints::default()).await;
    let leases = site.health.handle(Probe::Ready, "leases/own", "not started").unwrap();
    let failing = "[+]cache ok\n[-]leases/own failed: not started\nreadyz check failed\n";
    let excluded = "[+]cache ok\n[+]leases/own excluded: ok\nreadyz check passed\n";
    let table = [
        ("/healthz", 200, "ok"),
        ("/livez", 200, "ok"),
        ("/livez?verbose", 200, "[+]ping ok\n[+]loop ok\nlivez check passed\n"),
        ("/healthz?verbose=1", 200, "[+]ping ok\n[+]loop ok\nhealthz check passed\n"),
        ("/readyz", 500, failing),
        ("/readyz?verbose", 500, failing),
        ("/readyz?exclude=leases%2Fown", 200, "ok"),
        ("/readyz?verbose&exclude=leases/own", 200, excluded),
        (
            "/livez?verbose&exclude=ping&exclude=pong&exclude=pang",
            200,
            "[+]ping excluded: ok\n[+]loop ok\nwarn: some health checks cannot be excluded: \
             no matches for \"pang\",\"pong\"\nlivez check passed\n",
        ),
        ("/readyz/cache", 200, "ok"),
        ("/readyz/leases/own", 500, "internal server error: not started\n"),
        ("/readyz/ping", 404, "404 page not found\n"),
        ("/elsewhere", 404, ""),
    ];
    for (path, status, body) in table {
        let (have, head, page) = site.get(path).await;
        assert_eq!((have, &*page), (status, body), "{path}");
        let plain = head.contains("content-type: text/plain; charset=utf-8\r\n");
        assert!(plain || path == "/elsewhere", "{head}");
    }
    leases.pass();
    assert_eq!(site.get("/readyz").await.2, "ok");
    leases.fail("lost:\r\n[+]forged ok");
    let (status, _, page) = site.get("/readyz").await;
    assert_eq!(status, 500);
    assert_eq!(page.lines().nth(1), Some("[-]leases/own failed: lost:  [+]forged ok"));
}

#[tokio::test]
async fn metrics_are_served_with_their_content_type() {
    let site = test_server(Endpoints::default()).await;
    let (status, head, page) = site.get("/metrics").await;
    assert_eq!(status, 200);
    let expected = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(head.contains(expected), "{head}");
    assert!(page.contains("gantry_build_info{version=\"1\",revision=\"2\"} 1\n"), "{page}");
    assert!(page.contains("gantry_tasks_running{task=\"probes\"} 1\n"), "{page}");
}

#[tokio::test]
async fn endpoints_go_by_their_configured_names() {
    let site = test_server(Endpoints::new("/alive", "set").unwrap()).await;
    for (path, status) in [("/alive", 200), ("/livez", 200), ("/set", 200), ("/healthz", 404)] {
        assert_eq!(site.get(path).await.0, status, "{path}");
    }
    assert_eq!(site.get("/set?verbose").await.2, "[+]cache ok\nset check passed\n");
}

#[test]
fn endpoint_names_are_checked() {
    let unfit = |name: &str| Err(EndpointError::InvalidName { name: name.to_owned() });
    let taken = |name: &str| Err(EndpointError::DuplicateName { name: name.to_owned() });
    let table = [
        ("", "", Ok(Endpoints::default())),
        ("healthz", "/readyz", Ok(Endpoints::default())),
        ("same", "same", taken("same")),
        ("healthz", "livez", taken("livez")),
        ("metrics", "readyz", taken("metrics")),
        ("a/b", "readyz", unfit("a/b")),
        ("{*all}", "readyz", unfit("{*all}")),
        ("..", "readyz", unfit("..")),
    ];
    for (live, ready, expected) in table {
        assert_eq!(Endpoints::new(live, ready), expected, "{live:?} {ready:?}");
    }
    assert!(Endpoints::new("livez", "readyz").is_ok(), "liveness may be called what it is");
}

#[test]
fn a_check_is_added_once_per_probe() {
    let health = Health::default();
    health.add(Probe::Live, "store", || Ok(())).unwrap();
    health.add(Probe::Ready, "store", || Ok(())).unwrap();
    let again = health.handle(Probe::Live, "store", "").unwrap_err();
    assert_eq!(again, CheckError::DuplicateName { name: "store".to_owned() });
    for name in ["", "a b", "a//b", "../x", "a?b", "{x}"] {
        let refused = health.add(Probe::Live, name, || Ok(()));
        assert_eq!(refused, Err(CheckError::InvalidName { name: name.to_owned() }));
    }
}

#[tokio::test]
async fn a_disabled_address_is_not_served_and_a_taken_one_is_named() {
    let mut site = test_server(Endpoints::default()).await;
    let off = serve(&mut site.tasks, "off", &BindAddress::Disabled, Router::new()).await;
    assert_eq!(off.unwrap(), None);
    let taken = BindAddress::At(site.address);
    let error = serve(&mut site.tasks, "late", &taken, Router::new()).await.unwrap_err();
    assert!(error.to_string().contains(&site.address.to_string()), "{error}");
    assert_eq!(site.tasks.names(), [Arc::from("probes")]);
}

/// Yields to the server until `done`; the kernel, not the clock, decides how often.
async fn until(done: impl Fn() -> bool) {
    while !done() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_slow_head_and_an_idle_connection_are_cut_off() {
    let opening = ["GET /livez HT", "GET /livez HTTP/1.1\r\nhost: a\r\n\r\n"];
    for (opening, answered) in opening.into_iter().zip([false, true]) {
        let site = test_server(Endpoints::default()).await;
        let mut stream = TcpStream::connect(site.address).await.unwrap();
        stream.write_all(opening.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        if answered {
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200");
        }
        // The maximum age of the connection, and the timeout of the head.
        until(|| site.hand.waiting() == 2).await;
        site.hand.advance(Duration::from_secs(9)).await;
        assert_eq!(site.hand.waiting(), 2, "there is time left");
        site.hand.advance(Duration::from_secs(1)).await;
        let mut rest = Vec::new();
        // A reset is as good an end as any.
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(String::from_utf8(rest).unwrap().ends_with("\r\n\r\nok"), answered);
        until(|| site.hand.waiting() == 0).await;
    }
}

#[tokio::test]
async fn stopping_finishes_the_answer_and_leaves_idle_clients() {
    let mut site = test_server(Endpoints::default()).await;
    let mut idle = TcpStream::connect(site.address).await.unwrap();
    idle.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    idle.read_exact(&mut answer).await.unwrap();
    site.tasks.token().cancel();
    site.tasks.join().await.unwrap();
    let mut rest = String::new();
    idle.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("\r\n\r\nok"), "{rest}");
    let page = site.metrics.encode().unwrap();
    let ended = r#"gantry_task_ends_total{task="probes",how="finished"} 1"#;
    assert!(page.contains(ended), "{page}");
    assert!(TcpStream::connect(site.address).await.is_err(), "it no longer listens");
}

const REQUEST: &[u8] = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n";

async fn ask(stream: &mut TcpStream) {
    stream.write_all(REQUEST).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok") {
        answer.push(stream.read_u8().await.unwrap());
    }
}

#[tokio::test]
async fn a_busy_connection_has_a_maximum_age() {
    let site = test_server(Endpoints::default()).await;
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    for _ in 0..33 {
        ask(&mut stream).await;
        until(|| site.hand.waiting() == 2).await;
        site.hand.advance(Duration::from_secs(9)).await;
        assert_eq!(site.hand.waiting(), 2, "never idle for long");
    }
    ask(&mut stream).await;
    site.hand.advance(Duration::from_secs(3)).await;
    assert!(stream.read_u8().await.is_err(), "five minutes are over");
}

#[tokio::test]
async fn connections_are_limited() {
    let site = test_server(Endpoints::default()).await;
    let mut clients = Vec::new();
    for _ in 0..64 {
        let mut client = TcpStream::connect(site.address).await.unwrap();
        ask(&mut client).await;
        clients.push(client);
    }
    until(|| site.hand.waiting() == 128).await;
    let mut late = TcpStream::connect(site.address).await.unwrap();
    late.write_all(REQUEST).await.unwrap();
    site.hand.advance(Duration::ZERO).await;
    assert_eq!(site.hand.waiting(), 128, "it is not accepted yet");
    drop(clients.pop());
    assert_eq!(late.read_u8().await.unwrap(), b'H');
}
