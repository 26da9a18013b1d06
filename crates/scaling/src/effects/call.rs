//! Sends one request to the service and reads its whole answer: over TLS, within a time and a size.

use std::time::Duration;

use bytes::Bytes;
use gantry_http_client::{
    AddressPolicy, Body, Bounds, Client, ClientError, PlainHttp, Settings, Timeouts,
};
use gantry_process::clock::Clock;
use gantry_process::error_chain;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Request, StatusCode, Uri};

use super::secret::Secret;

/// The limits of one call: the service takes seconds when it is busy, and a page of a hundred pools
/// is far smaller.
const CALL_BOUNDS: Bounds = Bounds { time: Duration::from_secs(30), bytes: 4 << 20 };

/// No phase of a call has a tighter limit than the whole.
const CALL_TIMEOUTS: Timeouts = Timeouts {
    connect: CALL_BOUNDS.time,
    handshake: CALL_BOUNDS.time,
    idle: CALL_BOUNDS.time,
    keep_alive: Duration::from_secs(60),
};

/// The longest text of the service that is repeated in messages.
const MAX_ERROR_TEXT_LENGTH: usize = 512;

/// The service for Red Hat's managed clusters.
pub const OCM_API_URL: &str = "https://api.openshift.com";

/// The server that issues tokens for it.
pub const OCM_TOKEN_URL: &str =
    "https://sso.redhat.com/auth/realms/redhat-external/protocol/openid-connect/token";

/// The addresses of the service, and of the server that issues tokens for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The service.
    pub api: String,
    /// The server that issues tokens.
    pub tokens: String,
}

/// Why a call failed. No error contains a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The service refused, and would again.
    #[error("{what} was refused with {code}: {why}")]
    Refused {
        /// The operation.
        what: String,
        /// The status.
        code: u16,
        /// The message of the service.
        why: String,
    },
    /// There was no answer, or one that means "later".
    #[error("could not {what}: {why}")]
    Unavailable {
        /// The operation.
        what: String,
        /// What happened.
        why: String,
        /// How long to wait, if the service said so.
        retry_after: Option<Duration>,
    },
    /// An address may not be called.
    #[error("cannot call {0:?}: it must begin with https://")]
    Address(String),
    /// There is no TLS.
    #[error("cannot use TLS: {0}")]
    Tls(String),
}

/// The answer of the service.
#[derive(Clone, Debug)]
pub(super) struct OcmResponse {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Bytes,
}

/// Calls the service. Clones share the connections.
#[derive(Clone, Debug)]
pub(super) struct HttpCaller(Client);

/// The body of a request.
pub(super) enum RequestBody {
    Empty,
    Json(serde_json::Value),
    Form(String),
}

impl HttpCaller {
    pub(super) fn new(clock: Clock) -> Result<Self, CallError> {
        let settings = Settings {
            // The addresses that may be called without TLS are also checked before: only those of
            // this machine.
            plain_http: PlainHttp::Loopback,
            addresses: AddressPolicy::AllowLoopback,
            timeouts: CALL_TIMEOUTS,
            ..Settings::new("gantry")
        };
        let client = Client::new(clock, settings);
        client.map(Self).map_err(|error| CallError::Tls(error_chain(&error)))
    }

    /// Sends a request and reads the whole answer, whatever its status.
    ///
    /// `what` names the operation, as in "could not list pools". Redirects are not followed: a
    /// token is for one host.
    pub(super) async fn call(
        &self,
        what: &str,
        method: Method,
        url: &str,
        token: Option<&Secret>,
        content: RequestBody,
    ) -> Result<OcmResponse, CallError> {
        let uri = parse_allowed_url(url)?;
        let later =
            |why: String| CallError::Unavailable { what: what.to_owned(), why, retry_after: None };
        let (kind, body) = match content {
            RequestBody::Empty => (None, Bytes::new()),
            RequestBody::Json(value) => (Some("application/json"), value.to_string().into()),
            RequestBody::Form(text) => (Some("application/x-www-form-urlencoded"), text.into()),
        };
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(kind) = kind {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        if let Some(token) = token {
            let bearer = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
            let mut bearer = bearer.map_err(|_| later("the token is no text".to_owned()))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let answer = self.0.fetch(request, CALL_BOUNDS).await.map_err(|error| match error {
            // All time limits of the client are the same.
            ClientError::Timeout { limit, .. } => {
                later(format!("no answer came: took longer than {limit:?}"))
            }
            error => later(error_chain(&error)),
        })?;
        let (parts, body) = answer.into_parts();
        let wait = parts.headers.get(RETRY_AFTER);
        let wait = wait.and_then(|it| it.to_str().ok()?.parse().ok()).map(Duration::from_secs);
        Ok(OcmResponse { status: parts.status, retry_after: wait, body })
    }
}

impl OcmResponse {
    /// Returns the body of a success, or the error of anything else.
    pub(super) fn into_success(self, what: &str) -> Result<serde_json::Value, CallError> {
        if self.status.is_success() {
            if self.body.is_empty() {
                return Ok(serde_json::Value::Null);
            }
            return serde_json::from_slice(&self.body).map_err(|error| CallError::Unavailable {
                what: what.to_owned(),
                why: format!("cannot read the answer: {error}"),
                retry_after: None,
            });
        }
        let (what, why) = (what.to_owned(), self.error_text());
        let code = self.status;
        let later = code.is_server_error()
            || matches!(code, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        Err(match later {
            true => CallError::Unavailable { what, why, retry_after: self.retry_after },
            false => CallError::Refused { what, code: code.as_u16(), why },
        })
    }

    /// Returns the error message of the service: `reason` of its own errors, `error_description` of
    /// those of the token server, or the body as it is.
    fn error_text(&self) -> String {
        let said: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let text = |name: &str| said[name].as_str().filter(|it| !it.is_empty()).map(str::to_owned);
        let own = text("reason").or_else(|| text("error_description")).or_else(|| text("error"));
        let words = own.unwrap_or_else(|| String::from_utf8_lossy(&self.body).trim().to_owned());
        let words = match words.is_empty() {
            true => format!("the service answered {}", self.status),
            false => words,
        };
        words.chars().take(MAX_ERROR_TEXT_LENGTH).collect()
    }
}

/// Returns whether an address may be called: over TLS, or on this machine.
#[must_use]
pub fn is_allowed_url(url: &str) -> bool {
    parse_allowed_url(url).is_ok()
}

/// Parses the address, if it may be called.
fn parse_allowed_url(url: &str) -> Result<Uri, CallError> {
    let wrong = || CallError::Address(url.split('?').next().unwrap_or_default().to_owned());
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let here = host.parse::<std::net::IpAddr>().is_ok_and(|it| it.is_loopback());
    match uri.scheme_str() {
        Some("https") if !host.is_empty() => Ok(uri),
        Some("http") if here => Ok(uri),
        Some(_) | None => Err(wrong()),
    }
}

/// Encodes text for a path, a query or a form.
pub(super) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_20_tokens_are_sent_over_tls_or_not_at_all() {
        let table = [
            ("https://api.openshift.com/x", true),
            ("http://127.0.0.1:80/x", true),
            ("http://[::1]:80/x", true),
            ("http://api.openshift.com/x", false),
            ("http://localhost/x", false),
            ("/x", false),
            ("ftp://127.0.0.1/", false),
        ];
        for (url, expected) in table {
            assert_eq!(is_allowed_url(url), expected, "{url}");
        }
    }

    #[test]
    fn text_is_encoded_for_queries() {
        assert_eq!(encode("external_id = 'a-1'"), "external_id%20%3D%20%27a-1%27");
    }
}
