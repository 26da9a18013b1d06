//! Single requests outside of caches and plans, each with a timeout and a size limit.
//!
//! Objects that controllers follow come through a [`cache`](crate::cache). Objects that users may
//! name, such as the kind of a wrapped object or the object that configures a device, are read one
//! by one: a watch in place of one, or a list of a whole cluster, must neither block the reader nor
//! fill its memory.

use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::Clock;
use gantry_reconcile::ApiPath;
use http::header::ACCEPT;
use http::{HeaderValue, Method, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::Value;

pub use crate::api_request::NoResponse;
use crate::api_request::{build_request, send_request_limited};

/// The limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBounds {
    /// The timeout until the response is read completely.
    pub time: Duration,
    /// The largest response, in bytes.
    pub bytes: usize,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The server refused it.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        code: StatusCode,
        /// The server's message.
        message: String,
    },
    /// There was no response within the limits.
    #[error(transparent)]
    NoResponse(#[from] NoResponse),
    /// The response is not JSON.
    #[error("cannot decode the response as JSON")]
    InvalidJson(#[source] serde_json::Error),
}

impl ReadError {
    /// Whether the server says that it does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(StatusCode::NOT_FOUND)
    }

    /// Whether the server says that the caller is not allowed to.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(StatusCode::FORBIDDEN)
    }

    /// The HTTP status of a refusal.
    #[must_use]
    pub fn code(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::NoResponse(_) | Self::InvalidJson(_) => None,
        }
    }
}

/// Reads the object at a path.
///
/// # Errors
/// The server refused, or did not respond within the limits.
pub async fn get(
    client: &Client,
    clock: &Clock,
    path: &ApiPath,
    bounds: ReadBounds,
) -> Result<Value, ReadError> {
    send(client, clock, Method::GET, path, ("", None), bounds).await
}

/// The content type of an object's metadata without the rest of the object.
const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// Reads the metadata of the object at a path: the server sends nothing else of it, so that the
/// content of a Secret never gets here.
///
/// # Errors
/// The server refused, or did not respond within the limits.
pub async fn metadata(
    client: &Client,
    clock: &Clock,
    path: &ApiPath,
    bounds: ReadBounds,
) -> Result<Value, ReadError> {
    let mut request = build_request(Method::GET, path, "", Vec::new())?;
    request.headers_mut().insert(ACCEPT, METADATA);
    let body = send_bounded(client, clock, request, bounds).await?;
    serde_json::from_slice(&body).map_err(ReadError::InvalidJson)
}

/// Sends a request with a body of a content type, if it has one, and reads the response.
///
/// # Errors
/// The server refused, or did not respond within the limits.
pub async fn send(
    client: &Client,
    clock: &Clock,
    method: Method,
    path: &ApiPath,
    (content, body): (&str, Option<&Value>),
    bounds: ReadBounds,
) -> Result<Value, ReadError> {
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request = build_request(method, path, content, body)?;
    let body = send_bounded(client, clock, request, bounds).await?;
    serde_json::from_slice(&body).map_err(ReadError::InvalidJson)
}

/// Reads what is at a path as bytes, such as a log. More than the limit is an error.
///
/// # Errors
/// The server refused, or did not respond within the limits.
pub async fn bytes(
    client: &Client,
    clock: &Clock,
    path: &ApiPath,
    bounds: ReadBounds,
) -> Result<Bytes, ReadError> {
    let request = build_request(Method::GET, path, "", Vec::new())?;
    send_bounded(client, clock, request, bounds).await
}

/// Sends a request, and returns the body of the response unless the server refused.
async fn send_bounded(
    client: &Client,
    clock: &Clock,
    request: Request<Body>,
    bounds: ReadBounds,
) -> Result<Bytes, ReadError> {
    let reply = send_request_limited(client, clock, bounds.time, bounds.bytes, request).await?;
    if !reply.status.is_success() {
        let message = reply.error_status().message;
        return Err(ReadError::Refused { code: reply.status, message });
    }
    Ok(reply.body)
}

#[cfg(test)]
mod tests {
    use gantry_process::clock::FakeClock;
    use http::Response;
    use http_body_util::Full;

    use super::*;
    use crate::transport::in_process;

    const BOUNDS: ReadBounds = ReadBounds { time: Duration::from_secs(5), bytes: 64 };

    fn client(status: u16, body: &'static str) -> Client {
        in_process(move |_: Request<Bytes>| async move {
            let mut answer = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            answer
        })
    }

    #[tokio::test]
    async fn an_answer_is_read_within_its_bounds() {
        let clock = Clock::system();
        let path = ApiPath::from_static("/version");
        let ask = async |status, body| get(&client(status, body), &clock, &path, BOUNDS).await;
        assert_eq!(ask(200, r#"{"a": 1}"#).await.unwrap()["a"], 1);
        let refused = ask(404, r#"{"kind": "Status", "message": "no such thing"}"#).await;
        let refused = refused.unwrap_err();
        assert!(refused.is_not_found() && !refused.is_forbidden());
        assert_eq!(refused.to_string(), "no such thing");
        const LARGE: &str =
            r#"{"kind": "Status", "message": "it is more than sixty-four bytes long"}  "#;
        let large = ask(200, LARGE).await.unwrap_err();
        assert!(matches!(large, ReadError::NoResponse(NoResponse::TooLarge(64))), "{large}");
        assert!(matches!(ask(200, "{").await.unwrap_err(), ReadError::InvalidJson(_)));
    }

    #[tokio::test]
    async fn an_answer_that_never_ends_is_given_up() {
        let endless =
            in_process(|_: Request<Bytes>| std::future::pending::<Response<Full<Bytes>>>());
        let path = ApiPath::from_static("/api/v1/pods");
        let hand = FakeClock::at(jiff::Timestamp::UNIX_EPOCH);
        let clock = hand.clock();
        let (late, ()) = tokio::join!(
            get(&endless, &clock, &path, BOUNDS),
            hand.advance(BOUNDS.time + Duration::from_secs(1)),
        );
        let late = late.unwrap_err();
        assert!(matches!(late, ReadError::NoResponse(NoResponse::TimedOut(_))), "{late}");
    }
}
