//! Tests with real sockets on loopback and real TLS clients; only time is simulated.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::FakeClock;
use gantry_process::metrics::{BuildInfo, Metrics};
use gantry_testkit::http::{Client, Credentials, Protocol as Speak, Request as Ask, Target};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::body;
use crate::files::tests::private_folder;
use crate::pki::{Identity, Pki};
use crate::upgrade::Upgrade;

mod abuse;
mod handshake;
mod shutdown;

/// Longer than anything here takes on a busy machine; reached only by a test that fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A server on loopback with a clock that stands still.
struct TestServer {
    hand: FakeClock,
    metrics: Metrics,
    pki: Pki,
    tasks: Tasks,
    address: SocketAddr,
    /// Requests for `/stuck` that are in progress.
    stuck: Arc<AtomicUsize>,
    _folder: tempfile::TempDir,
}

async fn tls_server() -> TestServer {
    test_server(true, |_| {}).await
}

async fn plain_server() -> TestServer {
    test_server(false, |_| {}).await
}

async fn test_server(tls: bool, change: impl FnOnce(&mut Options)) -> TestServer {
    let folder = private_folder();
    // The clients use the machine's clock to verify the server's certificate.
    let hand = FakeClock::at(Clock::system().now());
    let pki = Pki::open_or_create(folder.path(), &[], hand.clock().now()).unwrap();
    let metrics = Metrics::new(&BuildInfo::default());
    let counters = gantry_process::tasks::TaskMetrics::register(&metrics).unwrap();
    let root = CancellationToken::new();
    let mut tasks = Tasks::new(hand.clock(), counters, fastrand::Rng::with_seed(1), &root);
    let door = if tls {
        let certificate = ServerCertificate::new(pki.server()).unwrap();
        let clients = Some(ClientAuthority::new(pki.ca_certificate()).unwrap());
        TransportSecurity::Tls { certificate, clients }
    } else {
        TransportSecurity::PlainOnLoopback
    };
    let mut options = Options::new("127.0.0.1:0".parse().unwrap(), door);
    change(&mut options);
    let counters = Counters::register(&metrics).unwrap();
    let stuck = Arc::new(AtomicUsize::new(0));
    let (stop, seen) = (tasks.token().clone(), Arc::clone(&stuck));
    let service = move |request, peer| test_service(request, peer, stop.clone(), Arc::clone(&seen));
    let address = serve(&mut tasks, "test", options, counters, service).await.unwrap();
    TestServer { hand, metrics, pki, tasks, address, stuck, _folder: folder }
}

/// The service of the test server, by path.
async fn test_service(
    request: Request<Incoming>,
    peer: Arc<Peer>,
    stop: CancellationToken,
    stuck: Arc<AtomicUsize>,
) -> Response<Body> {
    match request.uri().path() {
        "/stuck" => {
            struct InProgressGuard(Arc<AtomicUsize>);
            impl Drop for InProgressGuard {
                fn drop(&mut self) {
                    self.0.fetch_sub(1, Ordering::SeqCst);
                }
            }
            stuck.fetch_add(1, Ordering::SeqCst);
            let _leave = InProgressGuard(stuck);
            std::future::pending().await
        }
        "/panic" => panic!("as the test asked"),
        "/stream" => {
            let end = stop.cancelled_owned();
            Response::new(WatchBody { begun: false, end: Box::pin(end) }.boxed_unsync())
        }
        "/huge" => Response::new(body::full(vec![b'x'; 64 << 20])),
        "/upgrade" => {
            let mut response = Response::new(body::empty());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let headers = response.headers_mut();
            headers.insert("connection", HeaderValue::from_static("upgrade"));
            headers.insert("upgrade", HeaderValue::from_static("echo"));
            Upgrade::attach(&mut response, |mut bytes| async move {
                let mut line = [0; 5];
                while bytes.read_exact(&mut line).await.is_ok() {
                    bytes.write_all(&line).await.unwrap();
                }
            });
            response
        }
        _ => {
            let who = peer.certificate.as_ref().map_or_else(
                || "nobody".to_owned(),
                |subject| format!("{} {:?}", subject.common_name, subject.organizations),
            );
            let doubt = if peer.presented_unverified { " unverified" } else { "" };
            Response::new(body::full(format!("{who}{doubt} {:?}", request.version())))
        }
    }
}

/// A body like a watch's: one line at once, another when the server stops.
struct WatchBody {
    begun: bool,
    end: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl hyper::body::Body for WatchBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.begun {
            self.begun = true;
            return std::task::Poll::Ready(Some(Ok(Frame::data("hello\n".into()))));
        }
        self.end.as_mut().poll(context).map(|()| None)
    }
}

impl TestServer {
    fn client(&self, speak: Speak, who: Option<&Identity>) -> Client {
        let credentials = who.map_or(Credentials::Anonymous, |identity| {
            let Identity { certificate, key } = identity.clone();
            Credentials::Certificate { chain: certificate, key }
        });
        let base = format!("https://{}", self.address);
        let target = Target { base, authority: self.pki.ca_certificate().to_owned(), credentials };
        Client::new(&target, speak, Clock::system()).unwrap().with_timeout(TEST_TIMEOUT)
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Returns the roots a client needs to trust the server.
    fn trust(&self, versions: &[&'static rustls::SupportedProtocolVersion]) -> ClientConfig {
        ClientConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(tls::roots(self.pki.ca_certificate()).unwrap())
            .with_no_client_auth()
    }

    /// Opens a TLS connection and only performs the handshake.
    async fn connect_tls(&self, config: ClientConfig) -> TlsStream<TcpStream> {
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, self.connect().await).await.unwrap()
    }

    /// Reads a metric; zero when it does not exist.
    fn metric(&self, line: &str) -> i64 {
        let page = self.metrics.encode().unwrap();
        let found = page.lines().find_map(|have| have.strip_prefix(line));
        found.map_or(0, |value| value.trim().parse().unwrap())
    }

    fn connection_ends(&self, how: &str) -> i64 {
        self.metric(&format!("gantry_server_connection_ends_total{{how=\"{how}\"}}"))
    }

    /// Waits until a condition holds.
    async fn wait_until(&self, what: &str, mut happened: impl FnMut(&Self) -> bool) {
        let clock = Clock::system();
        let waiting = async {
            while !happened(self) {
                clock.sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(clock.timeout(TEST_TIMEOUT, waiting).await.is_ok(), "never: {what}");
    }

    /// Waits until the next timer is due in exactly this time.
    async fn wait_until_timer_due(&self, within: Duration) {
        let due = self.hand.clock().moment() + within;
        self.wait_until(&format!("due within {within:?}"), |site| {
            site.hand.next_deadline() == Some(due)
        })
        .await;
    }

    fn advance_clock(&self, time: Duration) {
        self.hand.jump_to(self.hand.clock().moment() + time);
    }

    /// Joins the tasks; fails the test when they do not end.
    async fn join(&mut self) -> Result<(), gantry_process::tasks::LostTask> {
        let joined = Clock::system().timeout(TEST_TIMEOUT, self.tasks.join()).await;
        joined.expect("the server has ended")
    }
}

/// Reads until the other side closes.
async fn read_all(socket: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = Clock::system().timeout(TEST_TIMEOUT, socket.read_to_end(&mut bytes)).await;
    // A reset is an end as well.
    let _ = read.expect("the server has closed the connection");
    bytes
}

/// Reads up to and with the given text.
async fn read_until(socket: &mut (impl tokio::io::AsyncRead + Unpin), end: &str) -> String {
    let mut bytes = Vec::new();
    let reading = async {
        while !bytes.ends_with(end.as_bytes()) {
            bytes.push(socket.read_u8().await.unwrap());
        }
    };
    assert!(Clock::system().timeout(TEST_TIMEOUT, reading).await.is_ok(), "no {end:?}");
    String::from_utf8(bytes).unwrap()
}
