//! A raw HTTP client: it sends one request, returns one answer, and adds nothing but the
//! credentials.
//!
//! A `kube::Client` retries, follows redirects and interprets answers; a comparison of two servers
//! must not. Here the protocol is chosen and not negotiated, no request is sent twice, and every
//! status is an answer.

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

mod raw_connection;
mod stream;
mod tls;
mod upgrade;

pub use raw_connection::{RawConnection, RawConnectionError};
pub use stream::Stream;
pub use tls::{TlsError, install_provider};
pub use upgrade::Upgraded;

/// The default timeout of a request: longer than any answer of a healthy server, and short enough
/// for people to wait for the test.
const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest body that is read whole: a list of everything in the largest cluster we simulate.
const MAX_BODY_BYTES: usize = 512 << 20;

/// A server, and the credentials to use with it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Scheme, host and port; a path in it is refused.
    pub base: String,
    /// The authority that signed the server's certificate, as PEM. Unused with `http`.
    pub authority: String,
    /// The credentials.
    pub credentials: Credentials,
}

/// The credentials of a client.
#[derive(Clone)]
pub enum Credentials {
    /// Anonymous.
    Anonymous,
    /// A bearer token.
    Token(String),
    /// A client certificate.
    Certificate {
        /// The certificate and its intermediates, as PEM.
        chain: String,
        /// Its private key, as PEM.
        key: String,
    },
}

impl fmt::Debug for Credentials {
    /// Prints the type of the credentials, never the secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Token(_) => "Token(…)",
            Self::Certificate { .. } => "Certificate(…)",
        })
    }
}

/// The protocol of a client. It is not negotiated: a server that does not support it causes an
/// error.
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
    /// The credentials header of every request that does not have its own.
    authorization: Option<HeaderValue>,
    clock: Clock,
    timeout: Duration,
    pool: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// The flow-control windows of one stream and of one connection: those of Go's client, which most
/// clients of Kubernetes are.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

impl Client {
    /// Creates a client without connections; they are opened when they are needed.
    ///
    /// # Errors
    /// The target is malformed.
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
        Ok(Self {
            base: Arc::new(base),
            authorization,
            clock,
            timeout: DEFAULT_REQUEST_TIMEOUT,
            pool,
        })
    }

    /// Returns the same client with another time limit. It covers a whole answer in
    /// [`Client::send`], and the status and headers in [`Client::open`].
    #[must_use]
    pub fn with_timeout(mut self, patience: Duration) -> Self {
        self.timeout = patience;
        self
    }

    /// Sends a request and reads the whole answer. Any status is an answer.
    ///
    /// # Errors
    /// No complete answer arrived. The request may have been carried out.
    pub async fn send(&self, request: Request) -> Result<Response, SendError> {
        let line = request.request_line();
        let answer = async {
            let (parts, body) = self.begin(request).await?.into_parts();
            let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(body_error)?;
            Ok(Response { status: parts.status, headers: parts.headers, body: body.to_bytes() })
        };
        let answer = self.clock.timeout(self.timeout, answer).await;
        answer.unwrap_or_else(|late| Err(late.into())).map_err(|cause| SendError { line, cause })
    }

    /// Sends a request and returns the answer as it arrives, for watches and logs.
    ///
    /// # Errors
    /// No status and headers arrived.
    pub async fn open(&self, request: Request) -> Result<Stream, SendError> {
        let line = request.request_line();
        let answer = self.clock.timeout(self.timeout, self.begin(request)).await;
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

/// One request. Everything but the credentials, the host and the length is given here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path with its query, as it goes over the wire: nothing is escaped or normalised.
    pub path_and_query: String,
    /// The headers. `Authorization` replaces the target's credentials.
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

    /// A `PATCH` in one of the formats a server supports, such as `application/merge-patch+json`.
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

    /// The same request with a body, without a content type.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The same request with a header, replacing one of that name.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The same request with a header added to those of the same name.
    #[must_use]
    pub fn append_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Returns the description for errors.
    fn request_line(&self) -> String {
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
    /// The body is not JSON.
    pub fn json(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// Returns the body for a person to read.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Why a target is malformed.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The base is not the URL of a server.
    #[error("cannot use {base:?} as a server: write it as https://host:port")]
    Base {
        /// What was written.
        base: String,
    },
    /// The token cannot be sent in a header.
    #[error("cannot send the token: it has characters that no header may have")]
    Token,
    /// The certificates or the key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A request without a complete answer.
#[derive(Debug, thiserror::Error)]
#[error("could not {line}")]
pub struct SendError {
    /// Method and path.
    line: String,
    /// What went wrong.
    #[source]
    pub cause: SendCause,
}

/// The cause of a failed request.
#[derive(Debug, thiserror::Error)]
pub enum SendCause {
    /// The path cannot be sent; the request was never sent.
    #[error("cannot be put in a request")]
    Malformed(#[source] ::http::Error),
    /// The server was not reached, or closed the connection before it answered.
    #[error("no answer")]
    NoAnswer(#[source] legacy::Error),
    /// The answer broke off.
    #[error("the answer broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer, or one line of it, is larger than the limit.
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
        return SendCause::TooLarge { limit: MAX_BODY_BYTES };
    }
    SendCause::Broken(error)
}

/// Parses scheme, host and port, and rejects anything more: a path would be silently lost.
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
