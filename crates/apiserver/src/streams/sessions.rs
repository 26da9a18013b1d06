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
pub(super) fn is_upgrade(headers: &HeaderMap) -> Result<(), Refusal> {
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
    /// Reads the head of a request for a WebSocket (RFC 6455, 4.2.1).
    fn read(headers: &HeaderMap, verb: Verb) -> Result<Self, Box<Response<Body>>> {
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
        let Some((protocol, name)) = Protocol::choose(headers) else {
            return refuse(StatusCode::FORBIDDEN, "");
        };
        Ok(Self { protocol, name, proof: websocket::accept(key.as_bytes()) })
    }

    fn answer(&self) -> Response<Body> {
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        if let Ok(proof) = HeaderValue::from_str(&self.proof) {
            headers.insert(SEC_WEBSOCKET_ACCEPT, proof);
        }
        if let Some(name) = self.name {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
        }
        response
    }
}
