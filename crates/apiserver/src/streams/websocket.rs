//! Watches over a WebSocket: one frame per event.

use std::io;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use gantry_serve::upgrade::{Upgrade, UpgradedStream};
use http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::api::ResourceRequest;
use crate::request::body::rope::{FRAME_BYTES, Rope};
use crate::request::body::{Body, full};
use crate::response::status::StatusError;
use crate::streams::websocket_frames::{control_replies, frame, header};
use crate::verbs::watch::Watcher;

/// Whether a request asks for an upgrade to a WebSocket.
pub(crate) fn is_websocket_upgrade(headers: &HeaderMap) -> bool {
    let has = |name: HeaderName, word: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|it| it.to_str().ok())
            .any(|text| text.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    };
    has(UPGRADE, "websocket") && has(CONNECTION, "upgrade")
}

/// The encoding of the payload of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Text,
    Binary,
    Base64,
}

impl Protocol {
    /// Returns the first supported protocol of the client's, and its name.
    fn choose(headers: &HeaderMap) -> (Self, Option<&'static str>) {
        let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
        for name in offered.filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(',')) {
            match name.trim() {
                "binary.k8s.io" => return (Self::Binary, Some("binary.k8s.io")),
                "base64.binary.k8s.io" => return (Self::Base64, Some("base64.binary.k8s.io")),
                _ => {}
            }
        }
        (Self::Text, None)
    }

    /// Sends an event as one frame, part by part: it may be large, and is shared with others.
    async fn send(self, stream: &mut UpgradedStream, event: &Rope) -> io::Result<()> {
        let (opcode, length) = match self {
            Self::Text => (0x1, event.len()),
            Self::Binary => (0x2, event.len()),
            Self::Base64 => (0x1, event.len().div_ceil(3) * 4),
        };
        stream.write_all(&header(opcode, length)).await?;
        // The bytes that do not make a group of three yet.
        let mut rest = Vec::new();
        for piece in event.parts().iter().flat_map(|part| part.chunks(FRAME_BYTES)) {
            if self != Self::Base64 {
                stream.write_all(piece).await?;
                continue;
            }
            rest.extend_from_slice(piece);
            let whole = rest.len() / 3 * 3;
            stream.write_all(STANDARD.encode(&rest[..whole]).as_bytes()).await?;
            rest.drain(..whole);
        }
        stream.write_all(STANDARD.encode(&rest).as_bytes()).await
    }
}

/// Serves a watch over a WebSocket.
pub(crate) fn respond(
    ask: &ResourceRequest,
    follower: Watcher,
) -> Result<Response<Body>, StatusError> {
    let Some(key) = ask.headers.get(SEC_WEBSOCKET_KEY) else {
        return Err(StatusError::bad_request("the header Sec-WebSocket-Key is missing"));
    };
    let (protocol, name) = Protocol::choose(&ask.headers);
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(value) = HeaderValue::from_str(&accept_key(key.as_bytes())) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, value);
    }
    if let Some(name) = name {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Upgrade::attach(&mut response, move |stream| send_events(stream, follower, protocol));
    Ok(response)
}

/// Computes the accept key of the handshake (RFC 6455, 4.2.2).
pub(crate) fn accept_key(key: &[u8]) -> String {
    let mut text = key.to_vec();
    text.extend_from_slice(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &text))
}

/// Sends events until the watch ends or the client disconnects.
async fn send_events(mut stream: UpgradedStream, mut follower: Watcher, protocol: Protocol) {
    let mut input = BytesMut::new();
    loop {
        // Cancel-safe: events wait in the store, and unread bytes wait in the socket.
        let event = tokio::select! {
            event = follower.next_event() => event,
            read = stream.read_buf(&mut input) => match read {
                Ok(0) | Err(_) => return,
                Ok(_) => match control_replies(&mut input) {
                    Some(bytes) if stream.write_all(&bytes).await.is_ok() => continue,
                    Some(_) => return,
                    None => break,
                },
            },
        };
        let Some(event) = event else { break };
        if protocol.send(&mut stream, &event).await.is_err() {
            return;
        }
        if !follower.has_ready() && stream.flush().await.is_err() {
            return;
        }
    }
    let normal = 1000_u16.to_be_bytes();
    let _ = stream.write_all(&frame(0x8, &normal)).await;
    let _ = stream.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_key_is_that_of_rfc_6455() {
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
