//! The client: one per server, with the connections of every endpoint it has called.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gantry_http_client::{
    AddressPolicy, Body, Bounds, ClientError, Limits, PlainHttp, Protocols, ResponsePart, Roots,
    Settings, Timeouts, TlsError,
};
use gantry_process::clock::Clock;
use gantry_process::error_chain;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Uri};

use crate::answer;
use crate::dial::{PlaceResolver, Resolve};
use crate::fault::{CallError, TOO_LATE, no_answer};
use crate::hook::{Hook, Place};

/// The largest answer that is read: as much as a request may bring.
pub const LARGEST_ANSWER: usize = 3 << 20;

/// Endpoints whose connections are kept. More are called as well; the one that was idle longest is
/// forgotten then.
const ENDPOINTS: usize = 64;

/// Calls to one endpoint at a time. Others wait for their turn, within their own time limit, so
/// that one slow endpoint cannot take all sockets of the process.
const AT_ONCE: usize = 64;

/// The largest header of an answer that is read.
const LARGEST_HEADER: usize = 400 << 10;

/// No part of a call has a time-out of its own: a webhook may use its time as it likes. The longest that
/// a configuration can give it is half a minute.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(60),
    handshake: Duration::from_secs(60),
    idle: Duration::from_secs(60),
    keep_alive: Duration::from_secs(60),
};

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
    agent: &'static str,
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
    /// Its connections.
    endpoint: gantry_http_client::Client,
    last_call: u64,
}

impl Client {
    /// A client without connections. `agent` is what it calls itself.
    #[must_use]
    pub fn new(clock: Clock, services: Arc<dyn Resolve>, agent: &'static str) -> Self {
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
        let failed = |why: String| CallError::NoAnswer { url: url.clone(), why };
        let uri: Uri = url.parse().map_err(|_| failed("invalid URL".to_owned()))?;
        let endpoint = self.endpoint(hook)?;
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        let bounds = Bounds { time: limit, bytes: LARGEST_ANSWER };
        let answer = endpoint.send(request, bounds).await;
        let (parts, body) = match answer {
            Ok(answer) => answer.into_parts(),
            // One that says in its header that it is too large.
            Err(error @ ClientError::TooLarge { part: ResponsePart::Body, .. }) => {
                return Err(unread(hook, &url, &error));
            }
            Err(error) => return Err(failed(no_answer(&error, &hook.server_name()))),
        };
        let body = body.whole().await.map_err(|error| unread(hook, &url, &error))?;
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
    fn endpoint(&self, hook: &Hook) -> Result<gantry_http_client::Client, CallError> {
        let key = (hook.place.clone(), hook.authority.clone());
        let mut endpoints = self.0.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.calls += 1;
        let last_call = endpoints.calls;
        if let Some(known) = endpoints.known.get_mut(&key) {
            known.last_call = last_call;
            return Ok(known.endpoint.clone());
        }
        let endpoint = self.connectable(hook)?;
        if endpoints.known.len() >= ENDPOINTS {
            let idle = endpoints.known.iter().min_by_key(|(_, known)| known.last_call);
            if let Some(idle) = idle.map(|(key, _)| key.clone()) {
                endpoints.known.remove(&idle);
            }
        }
        endpoints.known.insert(key, Known { endpoint: endpoint.clone(), last_call });
        Ok(endpoint)
    }

    fn connectable(&self, hook: &Hook) -> Result<gantry_http_client::Client, CallError> {
        let roots = match hook.authority.is_empty() {
            true => Roots::System,
            false => Roots::Bundle(hook.authority.clone()),
        };
        let (place, services) = (hook.place.clone(), Arc::clone(&self.0.services));
        let settings = Settings {
            roots,
            server_name: Some(hook.server_name()),
            // One request at a time per connection: the calls to a service are then spread over
            // those who serve it.
            protocols: Protocols::Http1,
            plain_http: PlainHttp::Never,
            addresses: AddressPolicy::AllowLoopback,
            resolver: Arc::new(PlaceResolver { place, services }),
            timeouts: TIMEOUTS,
            limits: Limits {
                header_bytes: LARGEST_HEADER,
                requests: AT_ONCE,
                idle_connections: AT_ONCE,
                redirects: 0,
            },
            ..Settings::new(self.0.agent)
        };
        gantry_http_client::Client::new(self.0.clock.clone(), settings).map_err(|error| match error
        {
            TlsError::Roots => CallError::Authority(
                "unable to load root certificates: unable to parse bytes as PEM block".to_owned(),
            ),
            TlsError::ServerName(name) => {
                CallError::NoAnswer { url: hook.url(), why: format!("invalid server name {name}") }
            }
            TlsError::Certificate | TlsError::Key | TlsError::Library(_) => {
                CallError::Authority(error_chain(&error))
            }
        })
    }
}

/// An answer that began and could not be read to its end.
fn unread(hook: &Hook, url: &str, error: &ClientError) -> CallError {
    let words = match error {
        ClientError::Late { .. } => {
            return CallError::NoAnswer { url: url.to_owned(), why: TOO_LATE.to_owned() };
        }
        ClientError::TooLarge { .. } => {
            format!("the answer is larger than {LARGEST_ANSWER} bytes")
        }
        ClientError::Url { .. }
        | ClientError::Resolve { .. }
        | ClientError::Refused { .. }
        | ClientError::Connect { .. }
        | ClientError::Handshake { .. }
        | ClientError::BrokenOff(_)
        | ClientError::Redirects(_) => no_answer(error, &hook.server_name()),
    };
    CallError::Answer(format!(
        "unexpected error when reading response body. Please retry. Original error: {words}"
    ))
}

#[cfg(test)]
mod tests;
