//! Frames of a WebSocket's client: what is made of them does not depend on how they arrive.
#![no_main]

use bytes::BytesMut;
use gantry_apiserver::frames::{Decoder, Piece, answers};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut whole = BytesMut::from(data);
    let at_once = answers(&mut whole);
    let (mut input, mut said) = (BytesMut::new(), Some(Vec::new()));
    for byte in data {
        input.extend_from_slice(&[*byte]);
        let Some(answer) = answers(&mut input) else {
            said = None;
            break;
        };
        if let Some(said) = &mut said {
            said.extend_from_slice(&answer);
        }
    }
    assert_eq!(at_once.map(|it| it.to_vec()), said);
    assert_eq!(heard(data, data.len().max(1)), heard(data, 1));
});

/// All bytes of messages and questions, where messages begin, and whether it ended in a violation.
fn heard(data: &[u8], at_once: usize) -> (Vec<u8>, Vec<usize>, bool) {
    let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
    let (mut bytes, mut begins) = (Vec::new(), Vec::new());
    for some in data.chunks(at_once) {
        input.extend_from_slice(some);
        loop {
            match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(Piece::Data { bytes: more, first, .. })) => {
                    begins.extend(first.then_some(bytes.len()));
                    bytes.extend_from_slice(&more);
                }
                Ok(Some(Piece::Ping(more))) => bytes.extend_from_slice(&more),
                Ok(Some(Piece::Pong | Piece::Close)) => {}
                Err(_) => return (bytes, begins, true),
            }
        }
    }
    (bytes, begins, false)
}
