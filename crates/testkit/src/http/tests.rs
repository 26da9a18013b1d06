//! Tests against a small server that echoes the request, plain and with TLS.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::pki::Authority;

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);

/// A body that is a list of pieces; it stays open for ever after the last unless it is `closed`.
struct Script {
    pieces: VecDeque<&'static str>,
    closed: bool,
}

impl hyper::body::Body for Script {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.pieces.pop_front() {
            // An empty piece is a pause: what came before it is sent on its own.
            Some("") => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(Bytes::from(piece))))),
            None if self.closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

/// Answers with the request as it was received; some paths are special.
async fn answer(
    request: hyper::Request<Incoming>,
    certified: bool,
) -> Result<hyper::Response<Body>, Infallible> {
    let script = |pieces: &[&'static str], closed| {
        let script = Script { pieces: pieces.iter().copied().collect(), closed };
        hyper::Response::new(script.boxed())
    };
    Ok(match request.uri().path() {
        "/lines" => script(&["one\ntw", "", "o\n", "\nlast"], true),
        "/open" => script(&["one\ntw"], false),
        "/silent" => std::future::pending().await,
        _ => {
            let (parts, body) = request.into_parts();
            let header = |name| {
                let value = parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
                value.unwrap_or_else(|| "-".to_owned())
            };
            let (caller, form) = (header(AUTHORIZATION), header(CONTENT_TYPE));
            let body = body.collect().await.unwrap().to_bytes();
            let path = parts.uri.path_and_query().unwrap().as_str();
            let seen = format!(
                "{} {path} {:?} {caller} {form} {certified} {}",
                parts.method,
                parts.version,
                String::from_utf8_lossy(&body)
            );
            let mut answer = hyper::Response::new(Full::new(Bytes::from(seen)).boxed());
            *answer.status_mut() = StatusCode::IM_A_TEAPOT;
            answer.headers_mut().insert("x-seen", HeaderValue::from_static("yes"));
            answer
        }
    })
}

/// Serves until dropped.
struct Server {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

async fn serve(tls: Option<TlsAcceptor>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            let tls = tls.clone();
            connections.spawn(async move {
                let Some(tls) = tls else { return serve_connection(socket, false).await };
                // A client that does not trust us disconnects here.
                let Ok(socket) = tls.accept(socket).await else { return };
                let certified = socket.get_ref().1.peer_certificates().is_some();
                serve_connection(socket, certified).await;
            });
        }
    });
    Server { address, _tasks: tasks }
}

async fn serve_connection(
    socket: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
    certified: bool,
) {
    let service = service_fn(move |request| answer(request, certified));
    // Ends with an error when the client disconnects in the middle of an answer.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(socket), service)
        .await;
}

fn acceptor(authority: &Authority) -> TlsAcceptor {
    install_provider();
    let issued = authority.server("server", &[]).unwrap();
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&authority.own.certificate)).unwrap();
    let verifier =
        WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build().unwrap();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let mut config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate(&issued.certificate)], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

fn plain(server: &Server) -> Target {
    Target {
        base: format!("http://{}", server.address),
        authority: String::new(),
        credentials: Credentials::Anonymous,
    }
}

fn client(target: &Target, protocol: Protocol) -> Client {
    Client::new(target, protocol, Clock::system()).unwrap().with_timeout(LONG)
}

#[tokio::test]
async fn what_is_asked_is_what_is_sent() {
    let server = serve(None).await;
    let anonymous = plain(&server);
    let bearer =
        Target { credentials: Credentials::Token("secret".to_owned()), ..anonymous.clone() };
    let own = Request::get("/a").header(AUTHORIZATION, HeaderValue::from_static("own"));
    let merge = "application/merge-patch+json";
    let body = serde_json::json!({"a": 1});
    let table = [
        // why                     target      request                         seen
        ("as written", &anonymous, Request::get("/a//b?c=%20"), "GET /a//b?c=%20 @ - - false "),
        ("with a token", &bearer, Request::get("/a"), "GET /a @ Bearer secret - false "),
        ("its own is kept", &bearer, own, "GET /a @ own - false "),
        (
            "a body has a form",
            &anonymous,
            Request::post("/a", &body),
            "POST /a @ - application/json false {\"a\":1}",
        ),
        (
            "a patch names its form",
            &anonymous,
            Request::patch("/a", merge, &body),
            "PATCH /a @ - application/merge-patch+json false {\"a\":1}",
        ),
        ("a delete has no body", &anonymous, Request::delete("/a"), "DELETE /a @ - - false "),
    ];
    for (why, target, request, seen) in table {
        for (protocol, name) in [(Protocol::Http1, "HTTP/1.1"), (Protocol::Http2, "HTTP/2.0")] {
            let answer = client(target, protocol).send(request.clone()).await.unwrap();
            assert_eq!(answer.text(), seen.replace('@', name), "{why}");
            assert_eq!(answer.status, StatusCode::IM_A_TEAPOT, "any status is an answer");
            assert_eq!(answer.headers["x-seen"], "yes");
        }
    }
}

#[tokio::test]
async fn tls_verifies_and_authenticates() {
    let ours = Authority::new("ours").unwrap();
    let other = Authority::new("other").unwrap();
    let server = serve(Some(acceptor(&ours))).await;
    let issued = |authority: &Authority| {
        let issued = authority.client("alice", &["a", "b"]).unwrap();
        Credentials::Certificate { chain: issued.certificate, key: issued.key }
    };
    let table = [
        // why                              authority  credentials         certified
        ("a name for ourselves", &ours, issued(&ours), Some("true")),
        ("anonymous", &ours, Credentials::Anonymous, Some("false")),
        ("a server we do not believe", &other, Credentials::Anonymous, None),
        ("a name the server does not believe", &ours, issued(&other), None),
    ];
    for (why, authority, credentials, certified) in table {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let target = Target {
                base: format!("https://{}", server.address),
                authority: authority.own.certificate.clone(),
                credentials: credentials.clone(),
            };
            let answer = client(&target, protocol).send(Request::get("/who")).await;
            match (answer, certified) {
                (Ok(answer), Some(certified)) => {
                    let text = answer.text();
                    assert!(text.contains(&format!(" - {certified} ")), "{why}: {text}");
                }
                (Err(error), None) => {
                    assert!(matches!(error.cause, SendCause::NoAnswer(_)), "{why}: {error:?}");
                }
                (answer, _) => panic!("{why}: {answer:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_stream_is_cut_into_lines_or_taken_as_it_comes() {
    let server = serve(None).await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let client = client(&plain(&server), protocol);
        let mut stream = client.open(Request::get("/lines")).await.unwrap();
        assert_eq!(stream.status, StatusCode::OK);
        let mut lines = Vec::new();
        while let Some(line) = stream.next_line(LONG).await.unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["one", "two", "", "last"]);
        let mut stream = client.open(Request::get("/lines")).await.unwrap();
        assert_eq!(stream.next_line(LONG).await.unwrap().unwrap(), "one");
        let mut rest = Vec::new();
        while let Some(frame) = stream.next_frame(LONG).await.unwrap() {
            rest.extend_from_slice(&frame);
        }
        assert_eq!(rest, b"two\n\nlast");
    }
}

#[tokio::test]
async fn timeouts_lose_no_data() {
    let server = serve(None).await;
    let client = client(&plain(&server), Protocol::Http1);
    let mut stream = client.open(Request::get("/open")).await.unwrap();
    assert_eq!(stream.next_line(LONG).await.unwrap().unwrap(), "one");
    let error = stream.next_line(SHORT).await.unwrap_err();
    assert!(matches!(error.cause, SendCause::TimedOut(_)), "{error:?}");
    assert_eq!(stream.next_frame(LONG).await.unwrap().unwrap(), "tw", "it waited for us");
    let hurried = client.with_timeout(SHORT);
    let error = hurried.send(Request::get("/silent")).await.unwrap_err();
    assert!(matches!(error.cause, SendCause::TimedOut(_)), "{error:?}");
    assert_eq!(error.to_string(), "could not GET /silent");
    let error = hurried.open(Request::get("/silent")).await.unwrap_err();
    assert!(matches!(error.cause, SendCause::TimedOut(_)), "{error:?}");
}

#[tokio::test]
async fn unreachable_and_bad_path_are_errors() {
    let server = serve(None).await;
    let target = plain(&server);
    let malformed = client(&target, Protocol::Http1).send(Request::get("no path")).await;
    assert!(matches!(malformed.unwrap_err().cause, SendCause::Malformed(_)));
    drop(server);
    assert!(TcpStream::connect(target.base.trim_start_matches("http://")).await.is_err());
    let error = client(&target, Protocol::Http1).send(Request::get("/")).await.unwrap_err();
    assert!(matches!(error.cause, SendCause::NoAnswer(_)), "{error:?}");
}

#[test]
fn a_target_is_checked_when_it_is_made() {
    let authority = Authority::new("a").unwrap();
    let pem = authority.own.certificate.as_str();
    let token = |token: &str| Credentials::Token(token.to_owned());
    let broken = Credentials::Certificate { chain: pem.to_owned(), key: "none".to_owned() };
    let table = [
        // why             base                   authority  credentials  expected
        ("all is well", "https://127.0.0.1:6443", pem, token("t"), None),
        ("plain", "http://localhost:80/", "", token("t"), None),
        ("a path", "http://a/b", "", token("t"), Some("cannot use \"http://a/b\" as a server")),
        ("no scheme", "a:80", "", token("t"), Some("cannot use \"a:80\" as a server")),
        ("no authority", "https://a", "", token("t"), Some("cannot find the authority")),
        ("a bad token", "http://a", "", token("a\nb"), Some("cannot send the token")),
        ("no key", "https://a", pem, broken, Some("cannot find the client key")),
    ];
    for (why, base, authority, credentials, expected) in table {
        let target = Target { base: base.to_owned(), authority: authority.to_owned(), credentials };
        let made = Client::new(&target, Protocol::Http1, Clock::system());
        let found = made.err().map(|error| error.to_string());
        match (found, expected) {
            (None, None) => {}
            (Some(found), Some(expected)) => assert!(found.starts_with(expected), "{why}: {found}"),
            (found, _) => panic!("{why}: {found:?}"),
        }
    }
    let shown = format!("{:?}", token("hush"));
    assert_eq!(shown, "Token(…)", "a secret is never printed");
}
