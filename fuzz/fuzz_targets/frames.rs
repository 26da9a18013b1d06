//! Decodes frames of a WebSocket client: the result does not depend on how the bytes arrive.
#![no_main]

use bytes::BytesMut;
use gantry_apiserver::streams::websocket_frames::{Decoder, WebSocketMessage, control_replies};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut whole = BytesMut::from(data);
    let at_once = control_replies(&mut whole);
    let (mut input, mut replies) = (BytesMut::new(), Some(Vec::new()));
    for byte in data {
        input.extend_from_slice(&[*byte]);
        let Some(reply) = control_replies(&mut input) else {
            replies = None;
            break;
        };
        if let Some(replies) = &mut replies {
            replies.extend_from_slice(&reply);
        }
    }
    assert_eq!(at_once.map(|it| it.to_vec()), replies);
    assert_eq!(decode_all(data, data.len().max(1)), decode_all(data, 1));
});

/// Returns all bytes of messages and pings, where messages begin, and whether the input ended in a
/// violation.
fn decode_all(data: &[u8], at_once: usize) -> (Vec<u8>, Vec<usize>, bool) {
    let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
    let (mut bytes, mut begins) = (Vec::new(), Vec::new());
    for some in data.chunks(at_once) {
        input.extend_from_slice(some);
        loop {
            match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(WebSocketMessage::Data { bytes: more, first, .. })) => {
                    begins.extend(first.then_some(bytes.len()));
                    bytes.extend_from_slice(&more);
                }
                Ok(Some(WebSocketMessage::Ping(more))) => bytes.extend_from_slice(&more),
                Ok(Some(WebSocketMessage::Pong | WebSocketMessage::Close)) => {}
                Err(_) => return (bytes, begins, true),
            }
        }
    }
    (bytes, begins, false)
}
