//! `pods/{name}/exec` and `pods/{name}/attach`: from a request to a conversation.

use std::sync::Arc;

use gantry_serve::upgrade::Upgrade;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::conversation::{Call, Wants, hold};
use super::protocol::Protocol;
use crate::answer;
use crate::api::{Api, Ask};
use crate::body::{Body, full};
use crate::nodes::{Action, Session};
use crate::route::Verb;
use crate::status::Refusal;
use crate::websocket;

impl Api {
    /// Begins a conversation with a container.
    pub(super) async fn converse(
        &self,
        ask: &Ask,
        verb: Verb,
        action: Action,
    ) -> Result<Response<Body>, Refusal> {
        self.review_connection(ask).await?;
        let located = self.locate(ask, Some(ask.query.text("container")))?;
        let target = located.on_node(ask)?;
        is_upgrade(&ask.headers)?;
        let handshake = match Handshake::read(&ask.headers, verb) {
            Ok(handshake) => handshake,
            Err(refusal) => return Ok(*refusal),
        };
        let part = match action {
            Action::Exec(_) => "exec",
            Action::Attach => "attach",
        };
        let nodes = self.nodes(part)?;
        let Ok(place) = Arc::clone(&self.0.sessions).try_acquire_owned() else {
            let words = "too many conversations with containers at once, please try again later";
            return Err(Refusal::too_many(words, None));
        };
        let flag = |name: &str| ask.query.flag(name).unwrap_or(false);
        let tty = flag("tty");
        let wants = Wants {
            stdin: flag("stdin"),
            stdout: flag("stdout"),
            // A terminal has one output.
            stderr: flag("stderr") && !tty,
        };
        let mut response = handshake.answer();
        let call = Call {
            nodes,
            target,
            session: Session { action, tty },
            wants,
            protocol: handshake.protocol,
            clock: self.0.clock.clone(),
            stop: self.0.stop.clone(),
        };
        Upgrade::attach(&mut response, move |stream| async move {
            hold(stream, call).await;
            drop(place);
        });
        Ok(response)
    }
}

/// Whether a request asks for a conversation in a way that is known here.
fn is_upgrade(headers: &HeaderMap) -> Result<(), Refusal> {
    if websocket::is_asked(headers) {
        return Ok(());
    }
    let asked = headers.get(UPGRADE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let spdy = asked.get(..5).is_some_and(|it| it.eq_ignore_ascii_case("spdy/"));
    Err(Refusal::bad_request(match spdy {
        true => {
            "SPDY is not spoken here: use a client that speaks WebSocket, as kubectl does from \
                 1.31 on"
        }
        false => "Upgrade request required",
    }))
}

/// What a client offered, as far as it was taken.
#[derive(Debug)]
struct Handshake {
    protocol: Protocol,
    name: Option<&'static str>,
    proof: String,
}

impl Handshake {
    fn read(headers: &HeaderMap, verb: Verb) -> Result<Self, Box<Response<Body>>> {
        let proof = proof(headers, verb)?;
        let Some((protocol, name)) = Protocol::choose(headers) else {
            return Err(Box::new(answer::text(StatusCode::FORBIDDEN, "")));
        };
        Ok(Self { protocol, name, proof })
    }

    fn answer(&self) -> Response<Body> {
        accept_websocket(&self.proof, self.name)
    }
}

/// Reads the head of a request for a WebSocket (RFC 6455, 4.2.1) and proves that it was understood.
pub(super) fn proof(headers: &HeaderMap, verb: Verb) -> Result<String, Box<Response<Body>>> {
    let refuse = |code, words: &'static str| Err(Box::new(answer::text(code, words)));
    if verb != Verb::Get {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "bad method");
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty());
    let Some(key) = key else {
        return refuse(StatusCode::BAD_REQUEST, "mismatch challenge/response");
    };
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|it| it != "13") {
        let words = "missing or bad WebSocket Version";
        let mut response = answer::text(StatusCode::BAD_REQUEST, words);
        let known = HeaderValue::from_static("13");
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, known);
        return Err(Box::new(response));
    }
    Ok(websocket::accept(key.as_bytes()))
}

/// Answers that the connection goes on as a WebSocket, with this subprotocol.
pub(super) fn accept_websocket(proof: &str, name: Option<&'static str>) -> Response<Body> {
    let mut response = switching("websocket");
    let headers = response.headers_mut();
    if let Ok(proof) = HeaderValue::from_str(proof) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, proof);
    }
    if let Some(name) = name {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    response
}

/// Answers that the connection goes on as something else.
pub(super) fn switching(to: &'static str) -> Response<Body> {
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static(to));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response
}
