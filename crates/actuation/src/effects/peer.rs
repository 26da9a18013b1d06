//! Sends requests to pods: to the address that the pod has, within a time and a size.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_http_client::{
    AddressPolicy, Body, Bounds, Client, Limits, PlainHttp, ResponseBody, Settings, Timeouts,
    TlsError,
};
use gantry_process::clock::Clock;
use gantry_process::error_chain;
use gantry_reconcile::Key;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use serde_json::Value;

use super::metrics::{HttpLabels, PeerMetrics};
use super::token::TokenFile;
use crate::facts::Endpoint;
use crate::labels::PAIRING_MANAGER;

/// The time-outs of connections. Nothing is sent while an engine goes to sleep or wakes, which may
/// take three minutes; the whole of an exchange is bounded for each request.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(5),
    handshake: Duration::from_secs(5),
    idle: Duration::from_secs(200),
    keep_alive: Duration::from_secs(60),
};

/// The limits of the client: more requests than inquiries and calls make at one time.
const LIMITS: Limits =
    Limits { header_bytes: 64 << 10, requests: 1024, idle_connections: 2, redirects: 0 };

/// How pods are called.
#[derive(Clone, Debug, Default)]
pub struct PeerOptions {
    /// Whether pods may have loopback addresses, as simulated ones do. On other nodes such an
    /// address is that of the controller's own machine, and is refused.
    pub allows_loopback: bool,
    /// The token that requesters and launchers are sent.
    pub token: Option<TokenFile>,
}

/// Sends requests to pods. Clones share connections.
#[derive(Clone, Debug)]
pub struct PeerClient {
    http: Client,
    token: Option<TokenFile>,
    clock: Clock,
    pub(super) metrics: Arc<PeerMetrics>,
}

/// A request to a pod.
#[derive(Debug)]
pub(super) struct PeerRequest<'a> {
    /// The purpose, for metrics and logs.
    pub(super) purpose: &'static str,
    pub(super) method: Method,
    pub(super) pod: &'a Key,
    pub(super) address: SocketAddr,
    /// The path and query.
    pub(super) path: &'a str,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<&'a Value>,
    pub(super) bounds: Bounds,
    /// Whether it goes to a requester or launcher; engines have no token of ours.
    pub(super) has_token: bool,
    /// The InferenceServerConfig, for metrics.
    pub(super) config: &'a str,
    /// The name of the requester that it is about, for the log.
    pub(super) requester: Option<&'a str>,
}

/// The response of a pod, whatever its status.
#[derive(Debug)]
pub(super) struct PeerResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl PeerClient {
    /// A client without connections.
    ///
    /// # Errors
    /// There is no TLS, which no request uses.
    pub fn new(
        clock: &Clock,
        options: PeerOptions,
        metrics: Arc<PeerMetrics>,
    ) -> Result<Self, TlsError> {
        let PeerOptions { allows_loopback, token } = options;
        let settings = Settings {
            plain_http: PlainHttp::Anywhere,
            addresses: match allows_loopback {
                true => AddressPolicy::AllowLoopback,
                false => AddressPolicy::NoLoopback,
            },
            timeouts: TIMEOUTS,
            limits: LIMITS,
            ..Settings::new(PAIRING_MANAGER)
        };
        let http = Client::new(clock.clone(), settings)?;
        Ok(Self { http, token, clock: clock.clone(), metrics })
    }

    /// Sends a request and reads the response. Its outcome is logged and measured.
    pub(super) async fn send(&self, request: PeerRequest<'_>) -> Result<PeerResponse, String> {
        let PeerRequest { purpose, pod, address, path, config, requester, .. } = request;
        let (method, started) = (request.method.clone(), self.clock.now());
        let labels = HttpLabels {
            purpose,
            method: method.to_string(),
            exported_namespace: pod.namespace().to_owned(),
            isc_name: config.to_owned(),
            status_code: 0,
        };
        let begun = self.clock.moment();
        let outcome = self.exchange(request).await;
        let took = self.clock.moment() - begun;
        let code = outcome.as_ref().map_or(0, |it| it.status);
        self.metrics.sent(&HttpLabels { status_code: code, ..labels }, took);
        let error = outcome.as_ref().err();
        // Benchmarks look for the key of the start. Failed questions are logged where they are
        // asked.
        match method == Method::GET {
            true => tracing::debug!(
                httpCallStartTime = %started, purpose, %method, %pod, %address, path, code, ?took,
                error, "asked a pod"
            ),
            false => tracing::info!(
                httpCallStartTime = %started, requesterName = requester, purpose, %method, %pod,
                %address, path, code, ?took, error, "called a pod"
            ),
        }
        outcome
    }

    /// Sends a request and returns the response as soon as its header has arrived.
    pub(super) async fn open(
        &self,
        request: PeerRequest<'_>,
    ) -> Result<(StatusCode, ResponseBody), String> {
        let PeerRequest { bounds, .. } = request;
        let http = self.prepare(request).await?;
        let response = self.http.send(http, bounds).await;
        let (parts, body) = response.map_err(|error| error_chain(&error))?.into_parts();
        Ok((parts.status, body))
    }

    async fn exchange(&self, request: PeerRequest<'_>) -> Result<PeerResponse, String> {
        let PeerRequest { bounds, .. } = request;
        let http = self.prepare(request).await?;
        let response = self.http.fetch(http, bounds).await;
        let (parts, body) = response.map_err(|error| error_chain(&error))?.into_parts();
        Ok(PeerResponse { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    async fn prepare(&self, request: PeerRequest<'_>) -> Result<Request<Body>, String> {
        let PeerRequest { method, address, path, headers, body, has_token, .. } = request;
        let uri: Uri = format!("http://{address}{path}")
            .parse()
            .map_err(|_| format!("cannot call {address}: {path:?} is no path"))?;
        let bytes = body.map_or_else(Bytes::new, |it| Bytes::from(it.to_string()));
        let mut http = Request::new(Body::from(bytes));
        *http.method_mut() = method;
        *http.uri_mut() = uri;
        *http.headers_mut() = headers;
        if body.is_some() {
            let json = HeaderValue::from_static("application/json");
            http.headers_mut().insert(CONTENT_TYPE, json);
        }
        if let Some(token) = self.token.as_ref().filter(|_| has_token) {
            let value = token.authorization().await.map_err(|error| error.to_string())?;
            http.headers_mut().insert(AUTHORIZATION, value);
        }
        Ok(http)
    }
}

/// The address of an endpoint. Names are not resolved: a pod has an address.
pub(super) fn socket_address(endpoint: &Endpoint) -> Result<SocketAddr, String> {
    let ip: IpAddr = endpoint.ip.parse().map_err(|_| {
        format!("cannot call pod {}: status.podIP {:?} is no address", endpoint.pod, endpoint.ip)
    })?;
    Ok(SocketAddr::new(ip, endpoint.port))
}
