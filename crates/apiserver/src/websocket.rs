//! Watches over a WebSocket: one frame per event.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use gantry_serve::upgrade::{Bytestream, Upgrade};
use http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::api::Ask;
use crate::body::{Body, full};
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
fn accept(key: &[u8]) -> String {
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

/// A frame of the server: whole and unmasked.
fn frame(opcode: u8, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(payload.len() + 10);
    frame.put_u8(0x80 | opcode);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length), _) if length < 126 => frame.put_u8(length),
        (_, Ok(length)) => {
            frame.put_u8(126);
            frame.put_u16(length);
        }
        _ => {
            frame.put_u8(127);
            frame.put_u64(u64::try_from(payload.len()).unwrap_or(u64::MAX));
        }
    }
    frame.put_slice(payload);
    frame.freeze()
}

/// The longest thing a watcher has to say: a ping or a goodbye.
const LONGEST: usize = 125;

/// What to say to the client's frames; `None` when it says goodbye, or what no watcher says.
fn answers(input: &mut BytesMut) -> Option<Bytes> {
    let mut out = BytesMut::new();
    loop {
        let Some((opcode, masked, length)) = head(input) else { return Some(out.freeze()) };
        let header = if masked { 6 } else { 2 };
        if length > LONGEST || opcode == 0x8 {
            return None;
        }
        if input.len() < header + length {
            return Some(out.freeze());
        }
        let mask: [u8; 4] = if masked { input[2..6].try_into().unwrap_or([0; 4]) } else { [0; 4] };
        let payload: Vec<u8> = input[header..header + length]
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask)
            .collect();
        input.advance(header + length);
        if opcode == 0x9 {
            out.put_slice(&frame(0xA, &payload));
        }
    }
}

/// Opcode, whether it is masked, and length of the first frame.
fn head(input: &[u8]) -> Option<(u8, bool, usize)> {
    let [first, second, ..] = input else { return None };
    Some((first & 0x0f, second & 0x80 != 0, usize::from(second & 0x7f)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proof_is_the_one_of_the_standard() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn lengths_are_written_as_short_as_they_can_be() {
        assert_eq!(&frame(0x1, b"hi")[..], b"\x81\x02hi");
        assert_eq!(&frame(0x1, &[0; 200])[..4], b"\x81\x7e\x00\xc8");
        assert_eq!(&frame(0x1, &[0; 70_000])[..10], b"\x81\x7f\x00\x00\x00\x00\x00\x01\x11\x70");
    }

    #[test]
    fn a_ping_is_answered_and_a_goodbye_ends() {
        let mut ping = BytesMut::from(&b"\x89\x82\x01\x02\x03\x04\x69\x6b"[..]);
        assert_eq!(&answers(&mut ping).unwrap()[..], b"\x8a\x02hi");
        let mut half = BytesMut::from(&b"\x89\x82\x01"[..]);
        assert!(answers(&mut half).unwrap().is_empty());
        let mut close = BytesMut::from(&b"\x88\x80\x00\x00\x00\x00"[..]);
        assert!(answers(&mut close).is_none());
    }
}
