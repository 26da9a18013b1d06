//! One request and its whole answer, within a time and a size.

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

/// The most that is read of one answer: a page of five hundred objects of the largest size there is
/// would be more, but no such page was ever seen, and a peer must not fill the memory.
const LARGEST: usize = 256 * 1024 * 1024;

/// What the server said.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// When to ask again, if it said so.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
}

/// Why a request has no answer: nobody knows what became of it.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The server could not be reached.
    #[error("could not reach the server")]
    Unreached(#[source] Box<kube::Error>),
    /// The answer broke off.
    #[error("could not read the answer")]
    BrokenOff(#[source] Box<kube::Error>),
    /// The answer is larger than this many bytes.
    #[error("cannot read an answer of more than {0} bytes")]
    TooLarge(usize),
    /// The time for it is over.
    #[error("no answer came in time")]
    Late(#[from] TimedOut),
    /// The address is longer than any server reads.
    #[error("cannot send a request to an address of {0} bytes")]
    TooLong(usize),
}

/// A request of ours.
///
/// # Errors
/// The path is too long for a URL; it is valid in every other way.
pub(crate) fn request(
    method: Method,
    path: &ApiPath,
    content: &str,
    body: Vec<u8>,
) -> Result<Request<Body>, NoAnswer> {
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = method;
    let path = path.as_str();
    *request.uri_mut() = path.parse().map_err(|_| NoAnswer::TooLong(path.len()))?;
    let headers = request.headers_mut();
    headers.insert(ACCEPT, http::HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, http::HeaderValue::from_static("gantry"));
    if let Ok(content) = content.parse() {
        headers.insert(CONTENT_TYPE, content);
    }
    Ok(request)
}

/// Sends a request and reads the whole answer.
pub(crate) async fn ask(
    client: &Client,
    clock: &Clock,
    limit: Duration,
    request: Request<Body>,
) -> Result<Reply, NoAnswer> {
    ask_within(client, clock, limit, LARGEST, request).await
}

/// The same for an answer of at most `largest` bytes. What is larger is not read to its end.
pub(crate) async fn ask_within(
    client: &Client,
    clock: &Clock,
    limit: Duration,
    largest: usize,
    request: Request<Body>,
) -> Result<Reply, NoAnswer> {
    clock.timeout(limit, answer(client, largest, request)).await?
}

async fn answer(
    client: &Client,
    largest: usize,
    request: Request<Body>,
) -> Result<Reply, NoAnswer> {
    let sent = client.send(request).await;
    let answer = sent.map_err(|error| NoAnswer::Unreached(Box::new(error)))?;
    let (parts, mut content) = answer.into_parts();
    let mut body = BytesMut::new();
    while let Some(frame) = content.frame().await {
        let frame = frame.map_err(|error| NoAnswer::BrokenOff(Box::new(error)))?;
        let Ok(data) = frame.into_data() else { continue };
        if body.len() + data.len() > largest {
            return Err(NoAnswer::TooLarge(largest));
        }
        body.extend_from_slice(&data);
    }
    let retry_after = retry_after(&parts.headers);
    Ok(Reply { status: parts.status, retry_after, body: body.freeze() })
}

/// The wait a server asks for. Dates are not used by API servers and not read.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// A `Status` of the API: how a server says no.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) message: String,
    pub(crate) reason: String,
    pub(crate) code: u16,
    pub(crate) details: Option<Details>,
}

/// What a `Status` is about.
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

/// One of the reasons for a no.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Cause {
    pub(crate) field: String,
}

impl Reply {
    /// The no in the body. Answers of something in between, such as a proxy, have none: their own
    /// words are the message then.
    pub(crate) fn refusal(&self) -> Status {
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

    /// When to ask again, as the header or the body says it.
    pub(crate) fn wait(&self, status: &Status) -> Option<Duration> {
        let said = status.details.as_ref().map(|it| it.retry_after_seconds).filter(|it| *it > 0);
        self.retry_after.or_else(|| said.map(Duration::from_secs))
    }
}
