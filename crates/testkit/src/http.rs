//! A raw HTTP client: one request out, one answer back, nothing added but the credentials.
//!
//! A `kube::Client` retries, follows and interprets; a comparison of two servers must not. Here the
//! protocol is chosen and not negotiated, no request is sent twice, and every status is an answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ::http::uri::{PathAndQuery, Scheme};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use bytes::Bytes;
use gantry_process::clock::{Clock, TimedOut};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

mod bare;
mod stream;
mod tls;
mod upgrade;

pub use bare::{Bare, BareError};
pub use stream::Stream;
pub use tls::{TlsError, install_provider};
pub use upgrade::Upgraded;

/// How long a request may take when nothing else is said: longer than any answer of a healthy
/// server, shorter than the patience of whoever waits for the test.
const PATIENCE: Duration = Duration::from_secs(30);

/// The largest body that is read whole: a list of everything in the largest cluster we simulate.
const LARGEST_BODY: usize = 512 << 20;

/// A server and who we are to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Scheme, host and port; a path in it is refused.
    pub base: String,
    /// The authority that signed the server's certificate, as PEM. Unused with `http`.
    pub authority: String,
    /// Who we are.
    pub credentials: Credentials,
}

/// Who we are to a server.
#[derive(Clone)]
pub enum Credentials {
    /// Nobody.
    Anonymous,
    /// The bearer of a token.
    Token(String),
    /// The holder of a client certificate.
    Certificate {
        /// The certificate and its intermediates, as PEM.
        chain: String,
        /// Its private key, as PEM.
        key: String,
    },
}

impl fmt::Debug for Credentials {
    /// Says which kind, never the secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Token(_) => "Token(…)",
            Self::Certificate { .. } => "Certificate(…)",
        })
    }
}

/// The protocol of a client. It is not negotiated: a server that cannot speak it gives an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// One request at a time per connection; the pool opens as many as are needed.
    Http1,
    /// All requests of a client and its clones share one connection.
    Http2,
}

/// Sends requests to one target. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Client {
    base: Arc<Uri>,
    /// What goes on every request that does not bring its own.
    authorization: Option<HeaderValue>,
    clock: Clock,
    patience: Duration,
    pool: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// What a server may send ahead of the reader, on one stream and on one connection: as Go's client,
/// which most clients of Kubernetes are.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

impl Client {
    /// A client without connections; they are opened when they are needed.
    ///
    /// # Errors
    /// The target is not usable as it is written.
    pub fn new(target: &Target, protocol: Protocol, clock: Clock) -> Result<Self, TargetError> {
        let base = base(&target.base)?;
        let authorization = match &target.credentials {
            Credentials::Token(token) => Some(bearer(token)?),
            Credentials::Anonymous | Credentials::Certificate { .. } => None,
        };
        let tls = tls::config(target, base.scheme() == Some(&Scheme::HTTPS))?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let connector =
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = match protocol {
            Protocol::Http1 => connector.enable_http1().wrap_connector(tcp),
            Protocol::Http2 => connector.enable_http2().wrap_connector(tcp),
        };
        let pool = legacy::Client::builder(TokioExecutor::new())
            .timer(clock.hyper_timer())
            .pool_timer(clock.hyper_timer())
            .retry_canceled_requests(false)
            .http2_only(protocol == Protocol::Http2)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .build(connector);
        Ok(Self { base: Arc::new(base), authorization, clock, patience: PATIENCE, pool })
    }

    /// The same client with another time limit. It covers a whole answer in [`Client::send`], and
    /// the status and headers in [`Client::open`].
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends a request and reads the whole answer. Any status is an answer.
    ///
    /// # Errors
    /// There was no answer, or not all of it. The request may have been carried out.
    pub async fn send(&self, request: Request) -> Result<Response, SendError> {
        let line = request.line();
        let answer = async {
            let (parts, body) = self.begin(request).await?.into_parts();
            let body = Limited::new(body, LARGEST_BODY).collect().await.map_err(body_error)?;
            Ok(Response { status: parts.status, headers: parts.headers, body: body.to_bytes() })
        };
        let answer = self.clock.timeout(self.patience, answer).await;
        answer.unwrap_or_else(|late| Err(late.into())).map_err(|cause| SendError { line, cause })
    }

    /// Sends a request and hands over the answer as it arrives, for watches and logs.
    ///
    /// # Errors
    /// No status and headers came back.
    pub async fn open(&self, request: Request) -> Result<Stream, SendError> {
        let line = request.line();
        let answer = self.clock.timeout(self.patience, self.begin(request)).await;
        match answer.unwrap_or_else(|late| Err(late.into())) {
            Ok(answer) => Ok(Stream::new(line, answer, self.clock.clone())),
            Err(cause) => Err(SendError { line, cause }),
        }
    }

    async fn begin(&self, request: Request) -> Result<hyper::Response<Incoming>, SendCause> {
        let Request { method, path_and_query, headers, body } = request;
        let mut parts = Uri::clone(&self.base).into_parts();
        let path = PathAndQuery::try_from(path_and_query).map_err(::http::Error::from);
        parts.path_and_query = Some(path.map_err(SendCause::Malformed)?);
        let uri = Uri::from_parts(parts).map_err(::http::Error::from);
        let mut out = hyper::Request::new(Full::new(body));
        *out.method_mut() = method;
        *out.uri_mut() = uri.map_err(SendCause::Malformed)?;
        *out.headers_mut() = headers;
        if let Some(value) = &self.authorization {
            out.headers_mut().entry(AUTHORIZATION).or_insert_with(|| value.clone());
        }
        self.pool.request(out).await.map_err(SendCause::NoAnswer)
    }
}

/// One request. Everything but the credentials, the host and the length is what is said here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path with its query, as it goes over the wire: nothing is escaped or tidied.
    pub path_and_query: String,
    /// The headers. `Authorization` takes the place of the target's credentials.
    pub headers: HeaderMap,
    /// The body; often empty.
    pub body: Bytes,
}

impl Request {
    /// A request without headers or body.
    #[must_use]
    pub fn new(method: Method, path_and_query: impl Into<String>) -> Self {
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        Self { method, path_and_query: path_and_query.into(), headers, body }
    }

    /// A `GET`.
    #[must_use]
    pub fn get(path_and_query: impl Into<String>) -> Self {
        Self::new(Method::GET, path_and_query)
    }

    /// A `DELETE`.
    #[must_use]
    pub fn delete(path_and_query: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path_and_query)
    }

    /// A `POST` of JSON.
    #[must_use]
    pub fn post(path_and_query: impl Into<String>, body: &serde_json::Value) -> Self {
        Self::new(Method::POST, path_and_query).json(body)
    }

    /// A `PUT` of JSON.
    #[must_use]
    pub fn put(path_and_query: impl Into<String>, body: &serde_json::Value) -> Self {
        Self::new(Method::PUT, path_and_query).json(body)
    }

    /// A `PATCH` in one of the forms a server knows, such as `application/merge-patch+json`.
    #[must_use]
    pub fn patch(
        path_and_query: impl Into<String>,
        form: &'static str,
        body: &serde_json::Value,
    ) -> Self {
        let content_type = HeaderValue::from_static(form);
        Self::new(Method::PATCH, path_and_query).json(body).header(CONTENT_TYPE, content_type)
    }

    /// The same request with a JSON body and its content type.
    #[must_use]
    pub fn json(self, body: &serde_json::Value) -> Self {
        self.body(body.to_string()).header(CONTENT_TYPE, HeaderValue::from_static(JSON))
    }

    /// The same request with a body, and no word about what it is.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The same request with a header, in place of one of that name.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The same with a header beside those of the same name.
    #[must_use]
    pub fn also(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// What errors call it.
    fn line(&self) -> String {
        format!("{} {}", self.method, self.path_and_query)
    }
}

/// The content type of [`Request::json`].
const JSON: &str = "application/json";

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status; any status is an answer.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as it came.
    pub body: Bytes,
}

impl Response {
    /// The body as JSON.
    ///
    /// # Errors
    /// It is none.
    pub fn json(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// The body for a person to read.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A target that cannot be used as it is written.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The base names no server.
    #[error("cannot use {base:?} as a server: write it as https://host:port")]
    Base {
        /// What was written.
        base: String,
    },
    /// The token cannot stand in a header.
    #[error("cannot send the token: it has characters that no header may have")]
    Token,
    /// The certificates or the key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A request without a whole answer.
#[derive(Debug, thiserror::Error)]
#[error("could not {line}")]
pub struct SendError {
    /// Method and path.
    line: String,
    /// What went wrong.
    #[source]
    pub cause: SendCause,
}

/// What went wrong with a request.
#[derive(Debug, thiserror::Error)]
pub enum SendCause {
    /// The path cannot be sent; the request never left.
    #[error("cannot be put in a request")]
    Malformed(#[source] ::http::Error),
    /// The server was not reached, or closed the connection before it answered.
    #[error("no answer")]
    NoAnswer(#[source] legacy::Error),
    /// The answer broke off.
    #[error("the answer broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer, or one line of it, is larger than we are ready to hold.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The time limit passed.
    #[error(transparent)]
    TimedOut(#[from] TimedOut),
}

fn body_error(error: Box<dyn std::error::Error + Send + Sync>) -> SendCause {
    if error.is::<LengthLimitError>() {
        return SendCause::TooLarge { limit: LARGEST_BODY };
    }
    SendCause::Broken(error)
}

/// Reads scheme, host and port, and refuses anything more: a path would be silently lost.
fn base(text: &str) -> Result<Uri, TargetError> {
    let refused = || TargetError::Base { base: text.to_owned() };
    let base: Uri = text.parse().map_err(|_| refused())?;
    let known = matches!(base.scheme_str(), Some("http" | "https"));
    let bare = base.path_and_query().is_none_or(|path| path.as_str() == "/");
    if known && bare { Ok(base) } else { Err(refused()) }
}

fn bearer(token: &str) -> Result<HeaderValue, TargetError> {
    let mut value =
        HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| TargetError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests;
