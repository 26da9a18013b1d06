//! One request to the service and its whole answer: over TLS, within a time and a size.

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

/// What one call may take: the service takes seconds when it is busy, and a page of a hundred pools is far
/// smaller.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(30), bytes: 4 << 20 };

/// No part of a call is limited more than the whole.
const TIMEOUTS: Timeouts = Timeouts {
    connect: BOUNDS.time,
    handshake: BOUNDS.time,
    idle: BOUNDS.time,
    keep_alive: Duration::from_secs(60),
};

/// The longest text of the service that is repeated.
const LONGEST_TEXT: usize = 512;

/// The service of Red Hat's managed clusters.
pub const SERVICE: &str = "https://api.openshift.com";

/// Who hands out tokens for it.
pub const TOKENS: &str =
    "https://sso.redhat.com/auth/realms/redhat-external/protocol/openid-connect/token";

/// Where the service is, and who hands out tokens for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The service.
    pub api: String,
    /// Who hands out tokens.
    pub tokens: String,
}

/// Why a call came to nothing. None of it has a secret in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The service said no, and would again.
    #[error("{what} was refused with {code}: {why}")]
    Refused {
        /// What was asked for.
        what: String,
        /// The status.
        code: u16,
        /// The service's words.
        why: String,
    },
    /// There was no answer, or one that means "later".
    #[error("could not {what}: {why}")]
    Later {
        /// What was asked for.
        what: String,
        /// What happened.
        why: String,
        /// How long to wait, if that was said.
        wait: Option<Duration>,
    },
    /// An address cannot be called.
    #[error("cannot call {0:?}: it must begin with https://")]
    Address(String),
    /// Nobody can be believed: there is no TLS.
    #[error("cannot use TLS: {0}")]
    Tls(String),
}

/// What came back.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) wait: Option<Duration>,
    pub(super) body: Bytes,
}

/// Calls the service. Clones share the connections.
#[derive(Clone, Debug)]
pub(super) struct Caller(Client);

/// What a request brings.
pub(super) enum Content {
    Nothing,
    Json(serde_json::Value),
    Form(String),
}

impl Caller {
    pub(super) fn new(clock: Clock) -> Result<Self, CallError> {
        let settings = Settings {
            // Which addresses may be called without TLS is also checked before: none but this machine's.
            plain_http: PlainHttp::Loopback,
            addresses: AddressPolicy::AllowLoopback,
            timeouts: TIMEOUTS,
            ..Settings::new("gantry")
        };
        let client = Client::new(clock, settings);
        client.map(Self).map_err(|error| CallError::Tls(error_chain(&error)))
    }

    /// Sends a request and reads the whole answer, whatever it says.
    ///
    /// `what` says what it is for, as in "could not list pools". Redirects are not followed: a token is
    /// for one place.
    pub(super) async fn call(
        &self,
        what: &str,
        method: Method,
        url: &str,
        token: Option<&Secret>,
        content: Content,
    ) -> Result<Answer, CallError> {
        let uri = checked(url)?;
        let later = |why: String| CallError::Later { what: what.to_owned(), why, wait: None };
        let (kind, body) = match content {
            Content::Nothing => (None, Bytes::new()),
            Content::Json(value) => (Some("application/json"), value.to_string().into()),
            Content::Form(text) => (Some("application/x-www-form-urlencoded"), text.into()),
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
        let answer = self.0.fetch(request, BOUNDS).await.map_err(|error| match error {
            // All its time limits are the same.
            ClientError::Late { limit, .. } => {
                later(format!("no answer came: took longer than {limit:?}"))
            }
            error => later(error_chain(&error)),
        })?;
        let (parts, body) = answer.into_parts();
        let wait = parts.headers.get(RETRY_AFTER);
        let wait = wait.and_then(|it| it.to_str().ok()?.parse().ok()).map(Duration::from_secs);
        Ok(Answer { status: parts.status, wait, body })
    }
}

impl Answer {
    /// The body of a success; the error of anything else.
    pub(super) fn success(self, what: &str) -> Result<serde_json::Value, CallError> {
        if self.status.is_success() {
            if self.body.is_empty() {
                return Ok(serde_json::Value::Null);
            }
            return serde_json::from_slice(&self.body).map_err(|error| CallError::Later {
                what: what.to_owned(),
                why: format!("cannot read the answer: {error}"),
                wait: None,
            });
        }
        let (what, why) = (what.to_owned(), self.words());
        let code = self.status;
        let later = code.is_server_error()
            || matches!(code, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        Err(match later {
            true => CallError::Later { what, why, wait: self.wait },
            false => CallError::Refused { what, code: code.as_u16(), why },
        })
    }

    /// What the service says is wrong: `reason` of its own errors, `error_description` of those who
    /// hand out tokens, or its words as they are.
    fn words(&self) -> String {
        let said: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let text = |name: &str| said[name].as_str().filter(|it| !it.is_empty()).map(str::to_owned);
        let own = text("reason").or_else(|| text("error_description")).or_else(|| text("error"));
        let words = own.unwrap_or_else(|| String::from_utf8_lossy(&self.body).trim().to_owned());
        let words = match words.is_empty() {
            true => format!("the service answered {}", self.status),
            false => words,
        };
        words.chars().take(LONGEST_TEXT).collect()
    }
}

/// Whether an address may be called: over TLS, or on this machine.
#[must_use]
pub fn may_call(url: &str) -> bool {
    checked(url).is_ok()
}

/// The address, if it may be called.
fn checked(url: &str) -> Result<Uri, CallError> {
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

/// Text in a path, a query or a form.
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
            assert_eq!(may_call(url), expected, "{url}");
        }
    }

    #[test]
    fn text_is_encoded_for_queries() {
        assert_eq!(encode("external_id = 'a-1'"), "external_id%20%3D%20%27a-1%27");
    }
}
