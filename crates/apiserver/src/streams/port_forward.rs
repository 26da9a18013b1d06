//! `pods/{name}/portforward`: from a request to a session with connections to ports of a pod.
//!
//! There are three transports. Old clients upgrade to SPDY, with a pair of streams for each
//! connection; kubectl since 1.31 does the same inside of a WebSocket; and browsers use a WebSocket
//! with a pair of channels for each port. `session` serves the first two, `channels` the third;
//! both carry each connection with `connection`.

mod channels;
mod connection;
mod outbox;
mod session;
mod window;

use std::sync::Arc;
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_serve::upgrade::Upgrade;
use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::exec::{accept_websocket, switching_protocols, websocket_accept_key};
use super::{PodLocation, check_ports};
use crate::api::{Api, ResourceRequest};
use crate::request::body::Body;
use crate::request::query::Query;
use crate::request::route::Verb;
use crate::resource::Resource;
use crate::response;
use crate::response::status::StatusError;
use crate::streams::kubelet_client::{Duplex, KubeletClient};
use crate::streams::websocket;
use crate::verbs::write::meta;

/// The size of one read, from clients and from pods.
const READ_BUFFER_BYTES: usize = 16 * 1024;
/// Bytes of a client that wait for one program: the window of a stream.
const STREAM_WINDOW_BYTES: usize = 64 * 1024;
/// How long a pod's program may take to accept a connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is checked that the pod of a session still runs.
const POD_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a session may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most ports of one request: channels are numbered with one byte, and each port has two.
const MAX_PORTS: usize = 64;

/// The name of the protocol over the streams.
const PROTOCOL: &str = "portforward.k8s.io";
/// The header in which SPDY clients offer protocols.
const PROTOCOL_VERSION: &str = "x-stream-protocol-version";
const TUNNEL_PREFIX: &str = "SPDY/3.1+";
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

impl Api {
    /// Starts a session that forwards ports of a pod.
    pub(super) async fn forward_ports(
        &self,
        ask: &ResourceRequest,
        verb: Verb,
    ) -> Result<Response<Body>, StatusError> {
        check_ports(&ask.query)?;
        self.review_connection(ask).await?;
        let target = self.locate(ask, None)?.scheduled_target(ask)?;
        let (form, mut response) = match ForwardTransport::read(&ask.headers, &ask.query, verb)? {
            Ok(understood) => understood,
            Err(refusal) => return Ok(*refusal),
        };
        let forwarder = Forwarder {
            api: self.clone(),
            nodes: self.kubelet_client("portforward")?,
            pods: Arc::clone(&ask.resource),
            namespace: target.namespace,
            pod: target.pod,
            uid: target.uid,
        };
        let Ok(place) = Arc::clone(&self.0.session_permits).try_acquire_owned() else {
            let words = "too many conversations with containers at once, please try again later";
            return Err(StatusError::too_many(words, None));
        };
        Upgrade::attach(&mut response, move |stream| async move {
            match form {
                ForwardTransport::Spdy => {
                    session::serve(stream, session::Carrier::Plain, forwarder).await;
                }
                ForwardTransport::WebSocketTunnel => {
                    session::serve(stream, session::Carrier::Tunnel, forwarder).await;
                }
                ForwardTransport::WebSocketChannels(ports) => {
                    channels::serve(stream, &ports, forwarder).await;
                }
            }
            drop(place);
        });
        Ok(response)
    }
}

/// The transport a client uses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ForwardTransport {
    /// SPDY after an upgrade.
    Spdy,
    /// SPDY in the messages of a WebSocket.
    WebSocketTunnel,
    /// A WebSocket with two channels for each of these ports.
    WebSocketChannels(Vec<u16>),
}

type NegotiationResult = Result<(ForwardTransport, Response<Body>), Box<Response<Body>>>;

impl ForwardTransport {
    /// Reads what the client offers, and makes the response that starts it; the inner error is the
    /// response to an offer that is not supported.
    fn read(
        headers: &HeaderMap,
        query: &Query,
        verb: Verb,
    ) -> Result<NegotiationResult, StatusError> {
        if !websocket::is_websocket_upgrade(headers) {
            return match is_spdy(headers) {
                true => Ok(spdy(headers)),
                false => Err(StatusError::bad_request("Upgrade request required")),
            };
        }
        let proof = match websocket_accept_key(headers, verb) {
            Ok(proof) => proof,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let refuse = |code, words: String| Ok(Err(Box::new(response::text(code, words))));
        let offered = listed(headers, SEC_WEBSOCKET_PROTOCOL.as_str());
        let mut tunnels = offered.iter().filter_map(|it| it.strip_prefix(TUNNEL_PREFIX)).peekable();
        if tunnels.peek().is_some() {
            let tunnels: Vec<&str> = tunnels.collect();
            if !tunnels.contains(&PROTOCOL) {
                return refuse(StatusCode::FORBIDDEN, no_common_protocol(&tunnels));
            }
            return Ok(Ok((Self::WebSocketTunnel, accept_websocket(&proof, Some(TUNNEL)))));
        }
        let name = match offered.as_slice() {
            [] => None,
            names if names.contains(&"v4.channel.k8s.io") => Some("v4.channel.k8s.io"),
            _ => return refuse(StatusCode::FORBIDDEN, String::new()),
        };
        match ports(query) {
            Ok(ports) => Ok(Ok((Self::WebSocketChannels(ports), accept_websocket(&proof, name)))),
            Err(words) => refuse(StatusCode::BAD_REQUEST, words),
        }
    }
}

fn is_spdy(headers: &HeaderMap) -> bool {
    let contains = |name: &str, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|it| it.to_str().ok());
        values.into_iter().any(|it| it.to_ascii_lowercase().contains(word))
    };
    contains(CONNECTION.as_str(), "upgrade") && contains(UPGRADE.as_str(), "spdy/3.1")
}

fn spdy(headers: &HeaderMap) -> NegotiationResult {
    let offered = listed(headers, PROTOCOL_VERSION);
    if offered.is_empty() {
        let words = "unable to upgrade: X-Stream-Protocol-Version is required";
        return Err(Box::new(response::text(StatusCode::BAD_REQUEST, words)));
    }
    if !offered.contains(&PROTOCOL) {
        let words = no_common_protocol(&offered);
        let mut response = response::text(StatusCode::FORBIDDEN, words);
        let known = HeaderValue::from_static(PROTOCOL);
        response.headers_mut().insert("x-accepted-stream-protocol-versions", known);
        return Err(Box::new(response));
    }
    let mut response = switching_protocols("SPDY/3.1");
    let chosen = HeaderValue::from_static(PROTOCOL);
    response.headers_mut().insert(PROTOCOL_VERSION, chosen);
    Ok((ForwardTransport::Spdy, response))
}

fn no_common_protocol(offered: &[&str]) -> String {
    let offered = offered.join(" ");
    format!(
        "unable to upgrade: unable to negotiate protocol: client supports [{offered}], server \
         accepts [{PROTOCOL}]"
    )
}

/// Returns all values of a header that may be a list.
fn listed<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    let values = headers.get_all(name).iter().filter_map(|it| it.to_str().ok());
    let all = values.flat_map(|it| it.split(',')).map(str::trim);
    all.filter(|it| !it.is_empty()).collect()
}

/// Returns the ports of a request in which they must be named; `check_ports` has validated them.
fn ports(query: &Query) -> Result<Vec<u16>, String> {
    let mut ports = Vec::new();
    for text in query.all("ports").flat_map(|list| list.split(',')) {
        match text.parse() {
            Ok(0) | Err(_) => return Err(format!("port {text:?} must be > 0")),
            Ok(port) => ports.push(port),
        }
    }
    match ports.len() {
        0 => Err("query parameter \"port\" is required".to_owned()),
        1..=MAX_PORTS => Ok(ports),
        many => Err(format!(
            "{many} ports are more than one WebSocket forwards: name up to {MAX_PORTS}"
        )),
    }
}

/// Opens connections to the ports of one pod.
#[derive(Debug)]
struct Forwarder {
    api: Api,
    nodes: Arc<dyn KubeletClient>,
    pods: Arc<Resource>,
    namespace: String,
    pod: String,
    uid: String,
}

/// A connection, with its permit.
struct OpenConnection {
    io: Box<dyn Duplex>,
    permit: OwnedSemaphorePermit,
}

impl Forwarder {
    fn clock(&self) -> &Clock {
        &self.api.0.clock
    }

    fn stop(&self) -> &CancellationToken {
        &self.api.0.stop
    }

    /// Connects to a port. The pod is looked up again: it may have stopped since the session began.
    async fn open(&self, port: u16) -> Result<OpenConnection, String> {
        let places = Arc::clone(&self.api.0.forward_permits);
        let Ok(place) = places.try_acquire_owned() else {
            return Err("too many connections to pods at once, please try again later".to_owned());
        };
        let found = self.api.locate_pod(&self.pods, &self.namespace, &self.pod, None);
        let target = match found {
            Ok(PodLocation::Scheduled(target)) if target.uid == self.uid => target,
            Ok(_) => return Err(format!("pod {:?} does not exist", self.pod)),
            Err(refusal) => return Err(refusal.message),
        };
        let dialing = self.nodes.dial(target, port);
        match self.clock().timeout(DIAL_TIMEOUT, dialing).await {
            Ok(Ok(io)) => Ok(OpenConnection { io, permit: place }),
            Ok(Err(fault)) => Err(fault.to_string()),
            Err(_) => Err(format!("the connection to port {port} timed out")),
        }
    }

    /// Returns the error of a kubelet for a port that could not be forwarded. The UID of the pod
    /// replaces the sandbox ID of a kubelet; no pod UID follows.
    fn failure_message(&self, port: u16, why: &str) -> String {
        format!("error forwarding port {port} to pod {}, uid : {why}", self.uid)
    }

    /// Ready once the pod is gone or does not run any more. Two checks in a row must agree, because
    /// the last output of its programs may still be in transit.
    async fn stopped(&self) {
        let mut checks_in_row = 0;
        while checks_in_row < 2 {
            self.clock().sleep(POD_CHECK_INTERVAL).await;
            checks_in_row = if self.is_running() { 0 } else { checks_in_row + 1 };
        }
    }

    fn is_running(&self) -> bool {
        let Some(entry) = self.api.stored_entry(&self.pods, &self.namespace, &self.pod) else {
            return false;
        };
        let pod: Value = self.pods.tree(&entry);
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        meta(&pod, "uid") == self.uid && !matches!(phase, "Succeeded" | "Failed")
    }
}

#[cfg(test)]
mod tests;
