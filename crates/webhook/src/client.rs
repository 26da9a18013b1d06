//! The client: one per server, with connections to every endpoint it has called.

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

use crate::client_config::{WebhookClientConfig, WebhookTarget};
use crate::error::{CallError, DEADLINE_EXCEEDED, failure_message};
use crate::resolve::{ResolveService, TargetResolver};
use crate::response;

/// The largest response that is read: as large as a request may be.
pub const MAX_RESPONSE_BYTES: usize = 3 << 20;

/// The number of endpoints whose connections are kept. When there are more, the one that was idle
/// longest is dropped.
const MAX_CACHED_ENDPOINTS: usize = 64;

/// Concurrent calls to one endpoint. Further calls wait, within their own time limit, so that one
/// slow endpoint cannot take all sockets of the process.
const MAX_CONCURRENT_CALLS: usize = 64;

/// The largest header of a response that is read.
const MAX_HEADER_BYTES: usize = 400 << 10;

/// No phase of a call has a time-out of its own: a webhook may use its time as it likes. The
/// longest time that a configuration can give it is half a minute.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(60),
    handshake: Duration::from_secs(60),
    idle: Duration::from_secs(60),
    keep_alive: Duration::from_secs(60),
};

/// How long to wait for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallTimeout {
    /// This long, and the webhook gets the limit as a parameter: `?timeout=5s`.
    Announced(Duration),
    /// This long.
    Unannounced(Duration),
}

/// Calls webhooks. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

struct Inner {
    clock: Clock,
    services: Arc<dyn ResolveService>,
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
    cached: HashMap<(WebhookTarget, Bytes), CachedEndpoint>,
    /// Counts calls, to tell which endpoint was idle longest.
    calls: u64,
}

struct CachedEndpoint {
    /// Its connections.
    endpoint: gantry_http_client::Client,
    last_call: u64,
}

impl Client {
    /// Makes a client without connections. `agent` is its `User-Agent`.
    #[must_use]
    pub fn new(clock: Clock, services: Arc<dyn ResolveService>, agent: &'static str) -> Self {
        Self(Arc::new(Inner { clock, services, agent, endpoints: Mutex::default() }))
    }

    /// Sends a JSON document and returns the response, which has a success status.
    ///
    /// # Errors
    /// There is no response in time, its status is no success, or it is too large.
    pub async fn post(
        &self,
        hook: &WebhookClientConfig,
        body: Bytes,
        wait: CallTimeout,
    ) -> Result<Bytes, CallError> {
        let (url, limit) = match wait {
            CallTimeout::Unannounced(limit) => (hook.url(), limit),
            CallTimeout::Announced(limit) => {
                // Whole seconds, rounded up.
                let seconds = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
                (format!("{}?timeout={seconds}s", hook.url()), limit)
            }
        };
        let failed = |why: String| CallError::NoResponse { url: url.clone(), why };
        let uri: Uri = url.parse().map_err(|_| failed("invalid URL".to_owned()))?;
        let endpoint = self.endpoint(hook)?;
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        let bounds = Bounds { time: limit, bytes: MAX_RESPONSE_BYTES };
        let answer = endpoint.send(request, bounds).await;
        let (parts, body) = match answer {
            Ok(answer) => answer.into_parts(),
            // The announced length is too large.
            Err(error @ ClientError::TooLarge { part: ResponsePart::Body, .. }) => {
                return Err(response_error(hook, &url, &error));
            }
            Err(error) => return Err(failed(failure_message(&error, &hook.server_name()))),
        };
        let body = body.read_to_end().await.map_err(|error| response_error(hook, &url, &error))?;
        response::check_response(parts.status, &parts.headers, &body)
            .map_err(CallError::BadResponse)?;
        if body.is_empty() {
            let kind = parts.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
            let (code, kind) = (parts.status.as_u16(), kind.unwrap_or("application/json"));
            return Err(CallError::BadResponse(format!(
                "0-length response with status code: {code} and content type: {kind}"
            )));
        }
        Ok(body)
    }

    /// Returns the endpoint of a webhook, with the connections it has.
    fn endpoint(
        &self,
        hook: &WebhookClientConfig,
    ) -> Result<gantry_http_client::Client, CallError> {
        let key = (hook.target.clone(), hook.ca_bundle.clone());
        let mut endpoints = self.0.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.calls += 1;
        let last_call = endpoints.calls;
        if let Some(known) = endpoints.cached.get_mut(&key) {
            known.last_call = last_call;
            return Ok(known.endpoint.clone());
        }
        let endpoint = self.new_endpoint(hook)?;
        if endpoints.cached.len() >= MAX_CACHED_ENDPOINTS {
            let idle = endpoints.cached.iter().min_by_key(|(_, known)| known.last_call);
            if let Some(idle) = idle.map(|(key, _)| key.clone()) {
                endpoints.cached.remove(&idle);
            }
        }
        endpoints.cached.insert(key, CachedEndpoint { endpoint: endpoint.clone(), last_call });
        Ok(endpoint)
    }

    fn new_endpoint(
        &self,
        hook: &WebhookClientConfig,
    ) -> Result<gantry_http_client::Client, CallError> {
        let roots = match hook.ca_bundle.is_empty() {
            true => Roots::System,
            false => Roots::Bundle(hook.ca_bundle.clone()),
        };
        let (place, services) = (hook.target.clone(), Arc::clone(&self.0.services));
        let settings = Settings {
            roots,
            server_name: Some(hook.server_name()),
            // One request at a time per connection: the calls to a service are then spread over its
            // endpoints.
            protocols: Protocols::Http1,
            plain_http: PlainHttp::Never,
            addresses: AddressPolicy::AllowLoopback,
            resolver: Arc::new(TargetResolver { target: place, services }),
            timeouts: TIMEOUTS,
            limits: Limits {
                header_bytes: MAX_HEADER_BYTES,
                requests: MAX_CONCURRENT_CALLS,
                idle_connections: MAX_CONCURRENT_CALLS,
                redirects: 0,
            },
            ..Settings::new(self.0.agent)
        };
        gantry_http_client::Client::new(self.0.clock.clone(), settings).map_err(|error| match error
        {
            TlsError::Roots => CallError::BadCaBundle(
                "unable to load root certificates: unable to parse bytes as PEM block".to_owned(),
            ),
            TlsError::ServerName(name) => CallError::NoResponse {
                url: hook.url(),
                why: format!("invalid server name {name}"),
            },
            TlsError::Certificate | TlsError::Key | TlsError::Library(_) => {
                CallError::BadCaBundle(error_chain(&error))
            }
        })
    }
}

/// The error for a response that could not be read to its end.
fn response_error(hook: &WebhookClientConfig, url: &str, error: &ClientError) -> CallError {
    let words = match error {
        ClientError::Timeout { .. } => {
            return CallError::NoResponse {
                url: url.to_owned(),
                why: DEADLINE_EXCEEDED.to_owned(),
            };
        }
        ClientError::TooLarge { .. } => {
            format!("the response is larger than {MAX_RESPONSE_BYTES} bytes")
        }
        ClientError::InvalidUrl { .. }
        | ClientError::Resolve { .. }
        | ClientError::AddressRefused { .. }
        | ClientError::Connect { .. }
        | ClientError::Handshake { .. }
        | ClientError::ConnectionLost(_)
        | ClientError::TooManyRedirects(_) => failure_message(error, &hook.server_name()),
    };
    CallError::BadResponse(format!(
        "unexpected error when reading response body. Please retry. Original error: {words}"
    ))
}

#[cfg(test)]
mod tests;
