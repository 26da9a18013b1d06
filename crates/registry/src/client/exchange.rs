//! Requests: sent again after failures that may pass, and with the credentials that are accepted.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gantry_http_client::{Body, Bounds, ClientError, ResponseBody, ResponsePart};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use serde_json::Value;

use super::challenge::{Challenge, parse_challenges};
use super::error::RegistryError;
use super::location::same_origin;
use super::retry::{error_may_pass, parse_retry_after, status_may_pass};
use super::tokens::TokenKey;
use super::{Call, Client, Fallback, lock};
use crate::credentials::{Credential, SecretText};

/// How much of the body of an error is read.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// How much of what a registry says is shown.
const MAX_MESSAGE_CHARS: usize = 300;
/// How long to wait if a registry limits requests and does not say for how long.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);

/// A request that can be sent any number of times.
#[derive(Clone, Debug)]
pub(super) struct RequestSpec {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The largest body of the response.
    pub(super) limit: usize,
    /// Whether it is sent again after a failure that may pass.
    pub(super) repeatable: bool,
}

impl RequestSpec {
    pub(super) fn new(method: Method, uri: Uri) -> Self {
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        Self { method, uri, headers, body, limit: MAX_ERROR_BYTES, repeatable: true }
    }

    pub(super) fn get(uri: Uri) -> Self {
        Self::new(Method::GET, uri)
    }

    fn request(&self, uri: &Uri, authorization: Option<&SecretText>) -> Request<Body> {
        let mut request = Request::new(Body::from(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = self.headers.clone();
        let value = authorization.and_then(|it| HeaderValue::from_str(it.reveal()).ok());
        if let Some(mut value) = value {
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        request
    }
}

/// A whole response.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Where it came from, before redirects.
    pub(super) uri: Uri,
}

impl Reply {
    pub(super) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|it| it.to_str().ok())
    }

    /// The codes of the errors, if the body has the form of the specification.
    pub(super) fn error_codes(&self) -> Option<Vec<String>> {
        let document: Value = serde_json::from_slice(&self.body).ok()?;
        let errors = document.get("errors")?.as_array()?;
        let code = |it: &Value| it.get("code").and_then(Value::as_str).map(str::to_owned);
        Some(errors.iter().filter_map(code).collect())
    }

    /// What the registry said, with a separator before it. It is left out if it has a secret in it.
    pub(super) fn message(&self, credential: Option<&Credential>) -> String {
        let document: Option<Value> = serde_json::from_slice(&self.body).ok();
        let first = document.as_ref().and_then(|it| it.get("errors")?.get(0)?.get("message"));
        let text = first.and_then(Value::as_str).unwrap_or_default();
        let secret = match credential {
            Some(Credential::Basic { password, .. }) => password.reveal(),
            Some(Credential::IdentityToken(token) | Credential::RegistryToken(token)) => {
                token.reveal()
            }
            None => "",
        };
        if text.is_empty() || (!secret.is_empty() && text.contains(secret)) {
            return String::new();
        }
        let printable = text.chars().map(|it| if it.is_control() { ' ' } else { it });
        format!(" ({})", printable.take(MAX_MESSAGE_CHARS).collect::<String>())
    }
}

/// Why a credential was not accepted.
#[derive(Debug)]
pub(super) struct Refusal {
    denied: bool,
    said: String,
}

impl Refusal {
    pub(super) fn unauthorized(said: String) -> Self {
        Self { denied: false, said }
    }

    pub(super) fn denied(said: String) -> Self {
        Self { denied: true, said }
    }
}

impl Call {
    /// The address of a path of the registry.
    pub(super) fn url(&self, path: &str) -> Result<Uri, RegistryError> {
        let endpoint = &self.source.endpoint;
        let scheme = if *lock(&endpoint.plain) { "http" } else { "https" };
        let text = format!("{scheme}://{}{path}", endpoint.server);
        text.parse().map_err(|_| self.protocol("the address is malformed"))
    }

    pub(super) fn protocol(&self, why: &str) -> RegistryError {
        RegistryError::Protocol { at: Box::new(self.subject.clone()), why: why.to_owned() }
    }

    pub(super) fn not_found(&self) -> RegistryError {
        RegistryError::NotFound { at: Box::new(self.subject.clone()) }
    }

    pub(super) fn unreachable(&self, why: String) -> RegistryError {
        RegistryError::Unreachable { at: Box::new(self.subject.clone()), why, source: None }
    }

    pub(super) fn failed(&self, error: ClientError) -> RegistryError {
        let at = Box::new(self.subject.clone());
        match error {
            ClientError::TooLarge { limit, .. } => {
                RegistryError::TooLarge { at, limit: u64::try_from(limit).unwrap_or(u64::MAX) }
            }
            ClientError::InvalidUrl { .. } | ClientError::TooManyRedirects(_) => {
                RegistryError::Protocol { at, why: error.to_string() }
            }
            error => {
                // The whole chain, because the cause is what an administrator needs.
                let why = gantry_process::error_chain(&error);
                RegistryError::Unreachable { at, why, source: Some(error) }
            }
        }
    }
}

impl Client {
    /// Sends a request with the first credential that the registry accepts, and reads the response.
    pub(super) async fn send(
        &self,
        call: &Call,
        request: &RequestSpec,
    ) -> Result<Reply, RegistryError> {
        let streamed = Box::pin(self.send_streamed(call, request, false)).await?;
        Ok(streamed.0)
    }

    /// Sends a request with the first credential that the registry accepts. With `stream`, the body
    /// of a success is returned unread.
    pub(super) async fn send_streamed(
        &self,
        call: &Call,
        request: &RequestSpec,
        stream: bool,
    ) -> Result<(Reply, Option<ResponseBody>), RegistryError> {
        let first = call.accepted();
        let mut refusal = Refusal::unauthorized(String::new());
        for (index, credential) in call.credentials.iter().enumerate().skip(first) {
            let credential = credential.as_ref();
            match Box::pin(self.send_as(call, request, credential, stream)).await? {
                Ok(reply) => {
                    call.accepted.store(index, Ordering::Relaxed);
                    return Ok(reply);
                }
                Err(refused) => refusal = refused,
            }
        }
        let tried = match call.credentials.as_slice() {
            [None] => "requests without credentials",
            [_] => "the credentials for it",
            _ => "any of the credentials for it",
        };
        let (at, said) = (Box::new(call.subject.clone()), refusal.said);
        Err(match refusal.denied {
            true => RegistryError::Denied { at, tried, said },
            false => RegistryError::Unauthorized { at, tried, said },
        })
    }

    /// Sends a request with one credential; asks for a token once if the registry wants one.
    async fn send_as(
        &self,
        call: &Call,
        request: &RequestSpec,
        credential: Option<&Credential>,
        stream: bool,
    ) -> Result<Result<(Reply, Option<ResponseBody>), Refusal>, RegistryError> {
        // Uploads may continue at another host, which must not see credentials for this one.
        let scheme = request.uri.scheme_str().unwrap_or("https");
        let own = format!("{scheme}://{}/", call.source.endpoint.server).parse::<Uri>();
        let elsewhere = own.map_or(true, |own| !same_origin(&own, &request.uri));
        let key = TokenKey {
            server: call.source.endpoint.server.clone(),
            scope: call.scope.clone(),
            credential: credential.cloned(),
        };
        // User name and password are the same for all scopes.
        let any_scope = TokenKey { scope: String::new(), ..key.clone() };
        let mut authorization = match credential {
            _ if elsewhere => None,
            Some(Credential::RegistryToken(token)) => {
                Some(SecretText::new(format!("Bearer {}", token.reveal())))
            }
            _ => self.0.tokens.get(&key).or_else(|| self.0.tokens.get(&any_scope)),
        };
        for attempt in 0..2 {
            let reply =
                self.retrying_streamed(call, request, authorization.as_ref(), stream).await?;
            let status = reply.0.status;
            if status == StatusCode::FORBIDDEN {
                return Ok(Err(Refusal::denied(reply.0.message(credential))));
            }
            if status != StatusCode::UNAUTHORIZED || elsewhere {
                return Ok(Ok(reply));
            }
            self.0.tokens.remove(&key);
            self.0.tokens.remove(&any_scope);
            if attempt > 0 {
                return Ok(Err(Refusal::unauthorized(reply.0.message(credential))));
            }
            let challenges = challenges(&reply.0.headers);
            let answered =
                Box::pin(self.authorization(call, &reply.0.uri, &challenges, credential)).await?;
            let found = match answered {
                Err(refusal) => return Ok(Err(refusal)),
                Ok(found) => found,
            };
            let place = if found.any_scope { &any_scope } else { &key };
            self.0.tokens.insert(place.clone(), found.value.clone(), found.lifetime);
            authorization = Some(found.value);
        }
        Ok(Err(Refusal::unauthorized(String::new())))
    }

    /// Sends a request until there is a response that will not pass, and reads it.
    pub(super) async fn retrying(
        &self,
        call: &Call,
        request: &RequestSpec,
        authorization: Option<&SecretText>,
    ) -> Result<Reply, RegistryError> {
        Ok(self.retrying_streamed(call, request, authorization, false).await?.0)
    }

    async fn retrying_streamed(
        &self,
        call: &Call,
        request: &RequestSpec,
        authorization: Option<&SecretText>,
        stream: bool,
    ) -> Result<(Reply, Option<ResponseBody>), RegistryError> {
        let mut failures = 0;
        loop {
            let attempt = Box::pin(self.attempt(call, request, authorization, stream)).await;
            let (error, wait) = match attempt {
                Ok((reply, body)) if !status_may_pass(reply.status) => return Ok((reply, body)),
                Ok((reply, _)) => {
                    let wait = reply.header(&RETRY_AFTER);
                    let wait = wait.and_then(|it| parse_retry_after(it, self.0.clock.now()));
                    let error = match reply.status {
                        StatusCode::TOO_MANY_REQUESTS => RegistryError::RateLimited {
                            at: Box::new(call.subject.clone()),
                            retry_after: wait.unwrap_or(DEFAULT_RETRY_AFTER),
                        },
                        status => call.unreachable(format!("the registry responded with {status}")),
                    };
                    (error, wait.unwrap_or_default())
                }
                Err(error) if error_may_pass(&error) => (call.failed(error), Duration::ZERO),
                Err(error) => return Err(call.failed(error)),
            };
            let again = request.repeatable && failures < self.0.settings.retries;
            if !again || !self.back_off(failures, wait, call.deadline).await {
                return Err(error);
            }
            failures += 1;
        }
    }

    /// Sends a request once; without TLS as well, if the registry may be called so.
    async fn attempt(
        &self,
        call: &Call,
        request: &RequestSpec,
        authorization: Option<&SecretText>,
        stream: bool,
    ) -> Result<(Reply, Option<ResponseBody>), ClientError> {
        let endpoint = &call.source.endpoint;
        let uri = &request.uri;
        let sent = self.exchange(call, request, uri, authorization, stream).await;
        let no_tls = matches!(
            &sent,
            Err(ClientError::Handshake { .. }
                | ClientError::Connect { .. }
                | ClientError::ConnectionLost(_))
        );
        let own = uri.authority().map(http::uri::Authority::as_str) == Some(&endpoint.server);
        if !no_tls
            || !own
            || endpoint.fallback == Fallback::None
            || uri.scheme_str() != Some("https")
        {
            return sent;
        }
        let mut parts = uri.clone().into_parts();
        parts.scheme = Some(http::uri::Scheme::HTTP);
        let Ok(plain) = Uri::from_parts(parts) else { return sent };
        let again = self.exchange(call, request, &plain, authorization, stream).await;
        let connected =
            !matches!(&again, Err(ClientError::Connect { .. } | ClientError::ConnectionLost(_)));
        // What is wrong with TLS says more, unless the registry was found not to speak it.
        if !connected {
            return sent;
        }
        *lock(&endpoint.plain) = true;
        again
    }

    async fn exchange(
        &self,
        call: &Call,
        request: &RequestSpec,
        uri: &Uri,
        authorization: Option<&SecretText>,
        stream: bool,
    ) -> Result<(Reply, Option<ResponseBody>), ClientError> {
        let time = call.deadline - self.0.clock.moment();
        // The size is checked here, because an error is understood even if its page is large.
        let bounds = Bounds { time, bytes: usize::MAX };
        let sent = call.source.endpoint.http.send(request.request(uri, authorization), bounds);
        let (parts, body): (_, ResponseBody) = Response::into_parts(sent.await?);
        let (status, headers, uri) = (parts.status, parts.headers, uri.clone());
        if status.is_success() && stream {
            return Ok((Reply { status, headers, body: Bytes::new(), uri }, Some(body)));
        }
        let body = match status.is_success() {
            true => read_whole(body, request.limit).await?,
            false => read_start(body, MAX_ERROR_BYTES).await,
        };
        Ok((Reply { status, headers, body, uri }, None))
    }

    /// Turns the status of a response into an error, unless it is a success.
    pub(super) fn expect_success(&self, call: &Call, reply: Reply) -> Result<Reply, RegistryError> {
        if reply.status.is_success() {
            return Ok(reply);
        }
        let credential = call.credentials.get(call.accepted()).and_then(Option::as_ref);
        let said = reply.message(credential);
        match reply.status {
            StatusCode::NOT_FOUND if is_registry_404(&reply) => Err(call.not_found()),
            StatusCode::PAYLOAD_TOO_LARGE => {
                Err(call.protocol(&format!("the registry refuses it as too large{said}")))
            }
            StatusCode::INSUFFICIENT_STORAGE => {
                Err(call.unreachable(format!("the registry has no space left{said}")))
            }
            status => {
                let _ = self;
                Err(call.protocol(&format!("the registry responded with {status}{said}")))
            }
        }
    }
}

/// Whether a 404 is the response of a registry, and not that of something else at its address.
fn is_registry_404(reply: &Reply) -> bool {
    reply.body.is_empty() || reply.error_codes().is_some()
}

fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let values = headers.get_all(WWW_AUTHENTICATE).iter().take(8);
    values.filter_map(|it| it.to_str().ok()).flat_map(parse_challenges).collect()
}

/// Reads a body that must not be larger than `limit`.
async fn read_whole(mut body: ResponseBody, limit: usize) -> Result<Bytes, ClientError> {
    let mut read = BytesMut::new();
    while let Some(piece) = body.chunk().await? {
        if read.len() + piece.len() > limit {
            return Err(ClientError::TooLarge { part: ResponsePart::Body, limit });
        }
        read.extend_from_slice(&piece);
    }
    Ok(read.freeze())
}

/// Reads the beginning of a body. What cannot be read is left out: the status is known already.
async fn read_start(mut body: ResponseBody, limit: usize) -> Bytes {
    let mut read = BytesMut::new();
    while read.len() < limit {
        let Ok(Some(piece)) = body.chunk().await else { break };
        let left = limit - read.len();
        read.extend_from_slice(&piece[..piece.len().min(left)]);
    }
    read.freeze()
}
