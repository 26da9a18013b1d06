//! One request and its complete response, with a timeout and a size limit.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gantry_process::clock::{Clock, TimedOut};
use gantry_reconcile::ApiPath;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;

/// The largest response that is read: a page of five hundred objects of the maximum size would be
/// more, but no such page was ever observed, and a peer must not fill the memory.
const MAX_RESPONSE_BYTES: usize = 256 * 1024 * 1024;

/// The response of the server.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    /// The delay in the `Retry-After` header, if there is one.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
}

/// Why a request has no response; its outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub enum NoResponse {
    /// The server could not be reached.
    #[error("could not reach the server")]
    Unreachable(#[source] Box<kube::Error>),
    /// The response was cut short.
    #[error("could not read the response")]
    Interrupted(#[source] Box<kube::Error>),
    /// The response is larger than this many bytes.
    #[error("cannot read a response of more than {0} bytes")]
    TooLarge(usize),
    /// The timeout has passed.
    #[error("timed out waiting for the response")]
    TimedOut(#[from] TimedOut),
    /// The URL is longer than any server reads.
    #[error("cannot send a request to a URL of {0} bytes")]
    UrlTooLong(usize),
}

/// Builds a request.
///
/// # Errors
/// The path is too long for a URL; it is valid in every other way.
pub(crate) fn build_request(
    method: Method,
    path: &ApiPath,
    content: &str,
    body: Vec<u8>,
) -> Result<Request<Body>, NoResponse> {
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = method;
    let path = path.as_str();
    *request.uri_mut() = path.parse().map_err(|_| NoResponse::UrlTooLong(path.len()))?;
    let headers = request.headers_mut();
    headers.insert(ACCEPT, http::HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, http::HeaderValue::from_static("gantry"));
    if let Ok(content) = content.parse() {
        headers.insert(CONTENT_TYPE, content);
    }
    Ok(request)
}

/// Sends a request and reads the whole response.
pub(crate) async fn send_request(
    client: &Client,
    clock: &Clock,
    limit: Duration,
    request: Request<Body>,
) -> Result<ApiResponse, NoResponse> {
    send_request_limited(client, clock, limit, MAX_RESPONSE_BYTES, request).await
}

/// The same for a response of at most `largest` bytes. A larger one is not read to its end.
pub(crate) async fn send_request_limited(
    client: &Client,
    clock: &Clock,
    limit: Duration,
    largest: usize,
    request: Request<Body>,
) -> Result<ApiResponse, NoResponse> {
    clock.timeout(limit, read_response(client, largest, request)).await?
}

async fn read_response(
    client: &Client,
    largest: usize,
    request: Request<Body>,
) -> Result<ApiResponse, NoResponse> {
    let sent = client.send(request).await;
    let answer = sent.map_err(|error| NoResponse::Unreachable(Box::new(error)))?;
    let (parts, mut content) = answer.into_parts();
    let mut body = BytesMut::new();
    while let Some(frame) = content.frame().await {
        let frame = frame.map_err(|error| NoResponse::Interrupted(Box::new(error)))?;
        let Ok(data) = frame.into_data() else { continue };
        if body.len() + data.len() > largest {
            return Err(NoResponse::TooLarge(largest));
        }
        body.extend_from_slice(&data);
    }
    let retry_after = retry_after(&parts.headers);
    Ok(ApiResponse { status: parts.status, retry_after, body: body.freeze() })
}

/// The delay a server asks for. API servers do not use dates, and dates are not read.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// A `Status` of the API: the error response of a server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) message: String,
    pub(crate) reason: String,
    pub(crate) code: u16,
    pub(crate) details: Option<Details>,
}

/// The `details` of a `Status`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Details {
    pub(crate) name: String,
    /// The plural name of the kind.
    pub(crate) kind: String,
    pub(crate) causes: Vec<Cause>,
    #[serde(rename = "retryAfterSeconds")]
    pub(crate) retry_after_seconds: u64,
}

/// One of the `causes` of a `Status`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Cause {
    pub(crate) field: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl ApiResponse {
    /// The `Status` in the body. Responses of a proxy have none: their text is the message then.
    pub(crate) fn error_status(&self) -> Status {
        let read = serde_json::from_slice::<Status>(&self.body).ok();
        let mut status = read.filter(|it| !it.message.is_empty()).unwrap_or_else(|| {
            let words = String::from_utf8_lossy(&self.body[..self.body.len().min(512)]);
            Status { message: words.trim().to_owned(), ..Status::default() }
        });
        status.code = self.status.as_u16();
        if status.message.is_empty() {
            status.message = format!("the server answered {}", self.status);
        }
        status
    }

    /// The delay before a retry, from the header or the body.
    pub(crate) fn retry_delay(&self, status: &Status) -> Option<Duration> {
        let said = status.details.as_ref().map(|it| it.retry_after_seconds).filter(|it| *it > 0);
        self.retry_after.or_else(|| said.map(Duration::from_secs))
    }
}
