//! Watches over a WebSocket: one frame per event.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use gantry_serve::upgrade::{Bytestream, Upgrade};
use http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::api::Ask;
use crate::body::{Body, full};
use crate::frames::{answers, frame};
use crate::status::Refusal;
use crate::watch::Follower;

/// Whether a request asks to go on as a WebSocket.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    let has = |name: HeaderName, word: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|it| it.to_str().ok())
            .any(|text| text.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    };
    has(UPGRADE, "websocket") && has(CONNECTION, "upgrade")
}

/// How the payload of frames is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Text,
    Binary,
    Base64,
}

impl Protocol {
    /// The first protocol of the client's that is known, and its name.
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

    fn frame(self, event: &[u8]) -> Bytes {
        match self {
            Self::Text => frame(0x1, event),
            Self::Binary => frame(0x2, event),
            Self::Base64 => frame(0x1, STANDARD.encode(event).as_bytes()),
        }
    }
}

/// Answers a watch with a WebSocket.
pub(crate) fn answer(ask: &Ask, follower: Follower) -> Result<Response<Body>, Refusal> {
    let Some(key) = ask.headers.get(SEC_WEBSOCKET_KEY) else {
        return Err(Refusal::bad_request("the header Sec-WebSocket-Key is missing"));
    };
    let (protocol, name) = Protocol::choose(&ask.headers);
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(value) = HeaderValue::from_str(&accept(key.as_bytes())) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, value);
    }
    if let Some(name) = name {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Upgrade::attach(&mut response, move |stream| converse(stream, follower, protocol));
    Ok(response)
}

/// The proof that the request was understood (RFC 6455, 4.2.2).
pub(crate) fn accept(key: &[u8]) -> String {
    let mut text = key.to_vec();
    text.extend_from_slice(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &text))
}

/// Sends events until the watch ends or the client leaves.
async fn converse(mut stream: Bytestream, mut follower: Follower, protocol: Protocol) {
    let mut input = BytesMut::new();
    loop {
        // Both may be dropped: events wait in the store, and unread bytes wait in the socket.
        let lines = tokio::select! {
            lines = follower.next() => lines,
            read = stream.read_buf(&mut input) => match read {
                Ok(0) | Err(_) => return,
                Ok(_) => match answers(&mut input) {
                    Some(bytes) if stream.write_all(&bytes).await.is_ok() => continue,
                    Some(_) => return,
                    None => break,
                },
            },
        };
        let Some(lines) = lines else { break };
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if stream.write_all(&protocol.frame(line)).await.is_err() {
                return;
            }
        }
        if stream.flush().await.is_err() {
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
    fn the_proof_is_the_one_of_the_standard() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
