//! The client: one per server, with the connections of every endpoint it has called.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gantry_process::clock::Clock;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::ServerName;
use tokio::sync::Semaphore;

use crate::answer;
use crate::dial::{Dial, Resolve};
use crate::fault::{CallError, TOO_LATE, no_answer};
use crate::hook::{Hook, Place};
use crate::trust;

/// The largest answer that is read: as much as a request may bring.
pub const LARGEST_ANSWER: usize = 3 << 20;

/// Endpoints whose connections are kept. More are called as well; the one that was idle longest is
/// forgotten then.
const ENDPOINTS: usize = 64;

/// Calls to one endpoint at a time. Others wait for their turn, within their own time limit, so
/// that one slow endpoint cannot take all sockets of the process.
const AT_ONCE: usize = 64;

/// How long a connection without a call is kept.
const IDLE: Duration = Duration::from_secs(60);

/// How long to wait for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As long as this, and the webhook is told: `?timeout=5s`.
    Told(Duration),
    /// As long as this.
    Silently(Duration),
}

/// Calls webhooks. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

struct Inner {
    clock: Clock,
    services: Arc<dyn Resolve>,
    agent: HeaderValue,
    endpoints: Mutex<Endpoints>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Endpoints {
    known: HashMap<(Place, Bytes), Known>,
    /// Counts calls, to tell which endpoint was idle longest.
    calls: u64,
}

struct Known {
    endpoint: Arc<Endpoint>,
    last_call: u64,
}

struct Endpoint {
    pool: legacy::Client<HttpsConnector<Dial>, Full<Bytes>>,
    turns: Semaphore,
}

impl Client {
    /// A client without connections. `agent` is what it calls itself.
    #[must_use]
    pub fn new(clock: Clock, services: Arc<dyn Resolve>, agent: &'static str) -> Self {
        let agent = HeaderValue::from_static(agent);
        Self(Arc::new(Inner { clock, services, agent, endpoints: Mutex::default() }))
    }

    /// Sends a JSON document and returns the answer to it, which is a success.
    ///
    /// # Errors
    /// There was no answer in time, or it is no success, or too large.
    pub async fn post(&self, hook: &Hook, body: Bytes, wait: Wait) -> Result<Bytes, CallError> {
        let (url, limit) = match wait {
            Wait::Silently(limit) => (hook.url(), limit),
            Wait::Told(limit) => {
                // Whole seconds, rounded up.
                let seconds = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
                (format!("{}?timeout={seconds}s", hook.url()), limit)
            }
        };
        let call = self.call(hook, &url, body);
        match self.0.clock.timeout(limit, call).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::NoAnswer { url, why: TOO_LATE.to_owned() }),
        }
    }

    async fn call(&self, hook: &Hook, url: &str, body: Bytes) -> Result<Bytes, CallError> {
        let failed = |why: String| CallError::NoAnswer { url: url.to_owned(), why };
        let uri: Uri = url.parse().map_err(|_| failed("invalid URL".to_owned()))?;
        let endpoint = self.endpoint(hook)?;
        // Nobody closes it, so everybody gets a turn.
        let _turn = endpoint.turns.acquire().await.map_err(|closed| failed(closed.to_string()))?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let json = HeaderValue::from_static("application/json");
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, json);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        headers.insert(USER_AGENT, self.0.agent.clone());
        let answer = endpoint.pool.request(request).await;
        let answer = answer.map_err(|error| failed(no_answer(&error, &hook.server_name())))?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, LARGEST_ANSWER).collect().await.map_err(|error| {
            let words = if error.is::<LengthLimitError>() {
                format!("the answer is larger than {LARGEST_ANSWER} bytes")
            } else {
                no_answer(&*error, &hook.server_name())
            };
            CallError::Answer(format!(
                "unexpected error when reading response body. Please retry. Original error: {words}"
            ))
        })?;
        let body = body.to_bytes();
        answer::check(parts.status, &parts.headers, &body).map_err(CallError::Answer)?;
        if body.is_empty() {
            let kind = parts.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
            let (code, kind) = (parts.status.as_u16(), kind.unwrap_or("application/json"));
            return Err(CallError::Answer(format!(
                "0-length response with status code: {code} and content type: {kind}"
            )));
        }
        Ok(body)
    }

    /// The endpoint of a hook, with the connections it has.
    fn endpoint(&self, hook: &Hook) -> Result<Arc<Endpoint>, CallError> {
        let key = (hook.place.clone(), hook.authority.clone());
        let mut endpoints = self.0.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.calls += 1;
        let last_call = endpoints.calls;
        if let Some(known) = endpoints.known.get_mut(&key) {
            known.last_call = last_call;
            return Ok(Arc::clone(&known.endpoint));
        }
        let endpoint = Arc::new(self.connectable(hook)?);
        if endpoints.known.len() >= ENDPOINTS {
            let idle = endpoints.known.iter().min_by_key(|(_, known)| known.last_call);
            if let Some(idle) = idle.map(|(key, _)| key.clone()) {
                endpoints.known.remove(&idle);
            }
        }
        endpoints.known.insert(key, Known { endpoint: Arc::clone(&endpoint), last_call });
        Ok(endpoint)
    }

    fn connectable(&self, hook: &Hook) -> Result<Endpoint, CallError> {
        let name = hook.server_name();
        let server_name = ServerName::try_from(name.clone()).map_err(|_| CallError::NoAnswer {
            url: hook.url(),
            why: format!("invalid server name {name}"),
        })?;
        let dial = Dial { place: hook.place.clone(), services: Arc::clone(&self.0.services) };
        // One request at a time per connection: the calls to a service are then spread over those
        // who serve it.
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(trust::config(&hook.authority)?)
            .https_only()
            .with_server_name_resolver(FixedServerNameResolver::new(server_name))
            .enable_http1()
            .wrap_connector(dial);
        let pool = legacy::Client::builder(TokioExecutor::new())
            .timer(self.0.clock.hyper_timer())
            .pool_timer(self.0.clock.hyper_timer())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Ok(Endpoint { pool, turns: Semaphore::new(AT_ONCE) })
    }
}

#[cfg(test)]
mod tests;
