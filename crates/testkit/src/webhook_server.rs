//! Webhooks for tests: a TLS server on this machine that returns the answers a test configures.
//!
//! There is one for the whole process, on a thread of its own, so that servers that are compared
//! call the same address, whichever test and runtime they belong to.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use ::http::{Request, Response, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::pki::{Authority, PkiError};

/// Calls that are recorded per path: more than any test makes.
const MAX_RECORDED_CALLS: usize = 256;

/// The answer of a webhook.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A document, with status 200.
    Json(Value),
    /// An arbitrary response.
    Raw {
        /// The status.
        status: u16,
        /// Headers.
        headers: Vec<(&'static str, String)>,
        /// The body.
        body: Bytes,
    },
    /// No answer, for ever: the caller has to time out.
    Never,
    /// No answer: the connection is closed.
    Close,
}

type Handler = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

/// One recorded call.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedCall {
    /// The address of the caller.
    pub peer: SocketAddr,
    /// The query of the URL.
    pub query: String,
    /// Headers a webhook may read: content type and user agent.
    pub headers: Vec<(String, String)>,
    /// The document that was sent.
    pub body: Value,
}

struct Route {
    handler: Handler,
    calls: Vec<RecordedCall>,
}

/// The webhooks of this process.
pub struct WebhookServer {
    address: SocketAddr,
    authority: String,
    routes: Arc<Mutex<HashMap<String, Route>>>,
}

impl fmt::Debug for WebhookServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("address", &self.address).finish_non_exhaustive()
    }
}

impl WebhookServer {
    /// Returns the webhooks of this process; the first call starts them.
    ///
    /// # Errors
    /// There is no free port, or no randomness for a certificate.
    pub fn shared() -> Result<&'static Self, WebhookServerError> {
        static SHARED: OnceLock<WebhookServer> = OnceLock::new();
        static STARTING: Mutex<()> = Mutex::new(());
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hooks) = SHARED.get() {
            return Ok(hooks);
        }
        let hooks = Self::start()?;
        Ok(SHARED.get_or_init(|| hooks))
    }

    fn start() -> Result<Self, WebhookServerError> {
        let authority = Authority::new("webhooks-ca")?;
        let own = authority.server("webhooks", &["webhooks.test"])?;
        let chain = CertificateDer::pem_slice_iter(own.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| WebhookServerError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes())
            .map_err(|_| WebhookServerError::Certificate)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|it| it.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|_| WebhookServerError::Certificate)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let routes: Arc<Mutex<HashMap<String, Route>>> = Arc::default();
        let served = Arc::clone(&routes);
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        // It lives as long as the process: it is not known which test is the last.
        std::thread::Builder::new().name("webhooks".to_owned()).spawn(move || {
            runtime.block_on(async {
                // A listener can only be created inside its runtime.
                if let Ok(listener) = TcpListener::from_std(listener) {
                    serve(listener, acceptor, served).await;
                }
            });
        })?;
        Ok(Self { address, authority: authority.own.certificate, routes })
    }

    /// Answers calls to `path`, which begins with a slash.
    pub fn set_handler(
        &self,
        path: &str,
        answer: impl Fn(&Value) -> Reply + Send + Sync + 'static,
    ) {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let route = Route { handler: Arc::new(answer), calls: Vec::new() };
        routes.insert(path.to_owned(), route);
    }

    /// Returns every call of `path` since its answer was last configured.
    #[must_use]
    pub fn calls(&self, path: &str) -> Vec<RecordedCall> {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.get(path).map(|route| route.calls.clone()).unwrap_or_default()
    }

    /// Returns the `clientConfig` with which a server calls `path`.
    #[must_use]
    pub fn client_config(&self, path: &str) -> Value {
        json!({ "url": self.url(path), "caBundle": STANDARD.encode(&self.authority) })
    }

    /// Returns the URL of `path`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Host and port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    routes: Arc<Mutex<HashMap<String, Route>>>,
) {
    let mut connections = JoinSet::new();
    loop {
        // Both are cancel-safe: an accepted connection is handed over before the next poll.
        tokio::select! {
            accepted = listener.accept() => {
                // A client that has disconnected is no reason to stop.
                let Ok((stream, peer)) = accepted else { continue };
                let routes = Arc::clone(&routes);
                connections.spawn(serve_connection(stream, peer, acceptor.clone(), routes));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    routes: Arc<Mutex<HashMap<String, Route>>>,
) {
    // A caller that does not trust our certificate ends here; it knows why.
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request| handle(request, peer, Arc::clone(&routes)));
    let http = hyper::server::conn::http1::Builder::new();
    // The caller observes the same end of the connection as we do.
    let _: Result<(), hyper::Error> = http.serve_connection(TokioIo::new(stream), service).await;
}

/// The connection is to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("closed on purpose")]
struct ConnectionClosed;

async fn handle(
    request: Request<Incoming>,
    peer: SocketAddr,
    routes: Arc<Mutex<HashMap<String, Route>>>,
) -> Result<Response<Full<Bytes>>, ConnectionClosed> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| ConnectionClosed)?.to_bytes();
    let document = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let text = |name: &HeaderName| {
        let value = parts.headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default();
        (name.as_str().to_owned(), value.to_owned())
    };
    let headers = vec![text(&CONTENT_TYPE)];
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let answer = {
        let mut routes = routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.get_mut(parts.uri.path()).map(|route| {
            if route.calls.len() < MAX_RECORDED_CALLS {
                route.calls.push(RecordedCall { peer, query, headers, body: document.clone() });
            }
            Arc::clone(&route.handler)
        })
    };
    let reply = answer.map_or_else(
        || Reply::Raw { status: 404, headers: Vec::new(), body: Bytes::new() },
        |answer| answer(&document),
    );
    match reply {
        Reply::Json(document) => {
            let mut response = Response::new(Full::new(Bytes::from(document.to_string())));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            Ok(response)
        }
        Reply::Raw { status, headers, body } => {
            let mut response = Response::new(Full::new(body));
            *response.status_mut() = StatusCode::from_u16(status).map_err(|_| ConnectionClosed)?;
            for (name, value) in headers {
                let value = HeaderValue::from_str(&value).map_err(|_| ConnectionClosed)?;
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
            Ok(response)
        }
        Reply::Never => {
            let never = std::future::pending::<Infallible>().await;
            match never {}
        }
        Reply::Close => Err(ConnectionClosed),
    }
}

/// Why the webhooks could not be started.
#[derive(Debug, thiserror::Error)]
pub enum WebhookServerError {
    /// No certificate could be created.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The created certificate cannot be used.
    #[error("cannot use the certificate of the webhooks")]
    Certificate,
    /// There is no port or no thread.
    #[error("could not start the webhooks")]
    Start(#[from] std::io::Error),
}
