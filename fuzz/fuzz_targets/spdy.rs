//! Decodes frames of SPDY: the result does not depend on how the bytes arrive, and what is read can
//! be written and read again.
#![no_main]

use bytes::BytesMut;
use gantry_apiserver::streams::spdy::{Decoder, Encoder, Frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let at_once = read(data, data.len().max(1));
    assert_eq!(at_once, read(data, 1));
    let (frames, _) = at_once;
    let mut encoder = Encoder::default();
    let written: Vec<u8> = frames.iter().flat_map(|it| encoder.encode(it)).collect();
    assert_eq!(read(&written, 7), (frames, false));
});

/// The frames, with data of one stream joined, and whether they end in a violation.
fn read(data: &[u8], at_once: usize) -> (Vec<Frame>, bool) {
    let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
    let mut frames = Vec::new();
    for some in data.chunks(at_once) {
        input.extend_from_slice(some);
        loop {
            match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(frame)) => add(&mut frames, frame),
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

fn add(frames: &mut Vec<Frame>, frame: Frame) {
    if let Frame::Data { stream, bytes, fin } = &frame
        && let Some(Frame::Data { stream: before, bytes: so_far, fin: ended }) = frames.last_mut()
        && before == stream
        && !*ended
    {
        *so_far = [&so_far[..], bytes].concat().into();
        *ended = *fin;
        return;
    }
    frames.push(frame);
}
