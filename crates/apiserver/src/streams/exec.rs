//! `pods/{name}/exec` and `pods/{name}/attach`: from a request to a session.

use std::sync::Arc;

use gantry_serve::upgrade::Upgrade;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::exec_session::{ExecSession, RequestedStreams, run_session};
use super::protocol::Protocol;
use crate::api::{Api, ResourceRequest};
use crate::request::body::{Body, full};
use crate::request::route::Verb;
use crate::response;
use crate::response::status::StatusError;
use crate::streams::kubelet_client::{Action, Session};
use crate::streams::websocket;

impl Api {
    /// Starts a session with a container.
    pub(super) async fn start_exec_session(
        &self,
        ask: &ResourceRequest,
        verb: Verb,
        action: Action,
    ) -> Result<Response<Body>, StatusError> {
        self.review_connection(ask).await?;
        let located = self.locate(ask, Some(ask.query.text("container")))?;
        let target = located.scheduled_target(ask)?;
        check_upgrade(&ask.headers)?;
        let handshake = match Handshake::read(&ask.headers, verb) {
            Ok(handshake) => handshake,
            Err(refusal) => return Ok(*refusal),
        };
        let part = match action {
            Action::Exec(_) => "exec",
            Action::Attach => "attach",
        };
        let nodes = self.kubelet_client(part)?;
        let Ok(place) = Arc::clone(&self.0.session_permits).try_acquire_owned() else {
            let words = "too many conversations with containers at once, please try again later";
            return Err(StatusError::too_many(words, None));
        };
        let flag = |name: &str| ask.query.flag(name).unwrap_or(false);
        let tty = flag("tty");
        let wants = RequestedStreams {
            stdin: flag("stdin"),
            stdout: flag("stdout"),
            // A terminal has a single output.
            stderr: flag("stderr") && !tty,
        };
        let mut response = handshake.response();
        let call = ExecSession {
            nodes,
            target,
            session: Session { action, tty },
            requested: wants,
            protocol: handshake.protocol,
            clock: self.0.clock.clone(),
            stop: self.0.stop.clone(),
        };
        Upgrade::attach(&mut response, move |stream| async move {
            run_session(stream, call).await;
            drop(place);
        });
        Ok(response)
    }
}

/// Whether a request asks for a session in a supported way.
fn check_upgrade(headers: &HeaderMap) -> Result<(), StatusError> {
    if websocket::is_websocket_upgrade(headers) {
        return Ok(());
    }
    let asked = headers.get(UPGRADE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let spdy = asked.get(..5).is_some_and(|it| it.eq_ignore_ascii_case("spdy/"));
    Err(StatusError::bad_request(match spdy {
        true => {
            "SPDY is not spoken here: use a client that speaks WebSocket, as kubectl does from \
                 1.31 on"
        }
        false => "Upgrade request required",
    }))
}

/// The accepted part of a client's handshake.
#[derive(Debug)]
struct Handshake {
    protocol: Protocol,
    name: Option<&'static str>,
    accept_key: String,
}

impl Handshake {
    fn read(headers: &HeaderMap, verb: Verb) -> Result<Self, Box<Response<Body>>> {
        let proof = websocket_accept_key(headers, verb)?;
        let Some((protocol, name)) = Protocol::choose(headers) else {
            return Err(Box::new(response::text(StatusCode::FORBIDDEN, "")));
        };
        Ok(Self { protocol, name, accept_key: proof })
    }

    fn response(&self) -> Response<Body> {
        accept_websocket(&self.accept_key, self.name)
    }
}

/// Reads the head of a WebSocket request (RFC 6455, 4.2.1) and computes the accept key.
pub(super) fn websocket_accept_key(
    headers: &HeaderMap,
    verb: Verb,
) -> Result<String, Box<Response<Body>>> {
    let refuse = |code, words: &'static str| Err(Box::new(response::text(code, words)));
    if verb != Verb::Get {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "bad method");
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty());
    let Some(key) = key else {
        return refuse(StatusCode::BAD_REQUEST, "mismatch challenge/response");
    };
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|it| it != "13") {
        let words = "missing or bad WebSocket Version";
        let mut response = response::text(StatusCode::BAD_REQUEST, words);
        let known = HeaderValue::from_static("13");
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, known);
        return Err(Box::new(response));
    }
    Ok(websocket::accept_key(key.as_bytes()))
}

/// Makes the response that upgrades the connection to a WebSocket, with this subprotocol.
pub(super) fn accept_websocket(proof: &str, name: Option<&'static str>) -> Response<Body> {
    let mut response = switching_protocols("websocket");
    let headers = response.headers_mut();
    if let Ok(proof) = HeaderValue::from_str(proof) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, proof);
    }
    if let Some(name) = name {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    response
}

/// Makes the response that upgrades the connection to another protocol.
pub(super) fn switching_protocols(to: &'static str) -> Response<Body> {
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static(to));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response
}
