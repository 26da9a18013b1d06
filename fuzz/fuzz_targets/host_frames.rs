//! What hosts send: markers, trailers, frames and messages. No panic; however the bytes are split,
//! the result is the same, and frames that were written are read.
#![no_main]

use gantry_connection::{
    FrameDecoder, Marker, MarkerScanner, TrailerScanner, encode_frame, ssh_reason, sudo_reason,
};
use libfuzzer_sys::fuzz_target;

/// Frames of a stream, and whether it ends well.
fn frames(stream: &[u8], size: usize) -> (Vec<Vec<u8>>, bool) {
    let mut decoder = FrameDecoder::new();
    let mut all = Vec::new();
    for piece in stream.chunks(size) {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => all.push(frame),
                Ok(None) => break,
                Err(_) => return (all, false),
            }
        }
    }
    let is_whole = decoder.finish().is_ok();
    (all, is_whole)
}

fn marked(marker: Marker, stream: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut scanner = MarkerScanner::new(marker);
    let mut found: Option<Vec<u8>> = None;
    for piece in stream.chunks(size) {
        match &mut found {
            Some(rest) => rest.extend_from_slice(piece),
            None => found = scanner.push(piece).ok()?,
        }
    }
    found
}

fn trailed(marker: Marker, stream: &[u8], size: usize) -> (Option<u8>, Vec<u8>) {
    let mut scanner = TrailerScanner::new(marker);
    let mut all: Vec<u8> = stream.chunks(size).flat_map(|piece| scanner.push(piece)).collect();
    let (status, rest) = scanner.finish();
    all.extend(rest);
    (status, all)
}

fuzz_target!(|data: &[u8]| {
    let Some((size, data)) = data.split_first() else { return };
    let size = usize::from(*size) + 1;
    assert_eq!(frames(data, size), frames(data, data.len().max(1)));
    let text = String::from_utf8_lossy(data);
    let _ = (ssh_reason(&text), sudo_reason(&text));

    let written: Vec<u8> =
        data.chunks(size).flat_map(|part| encode_frame(part).unwrap_or_default()).collect();
    let expected: Vec<Vec<u8>> = data.chunks(size).map(<[u8]>::to_vec).collect();
    assert_eq!(frames(&written, size), (expected, true));

    // Half of the time the data has the marker in it.
    let marker = Marker::random(&mut fastrand::Rng::with_seed(7));
    let (before, after) = data.split_at(data.len() / 2);
    let stream = [before, marker.as_bytes(), after].concat();
    assert_eq!(marked(marker, &stream, size).as_deref(), Some(after));
    assert_eq!(marked(marker, before, size), None);
    let ended = [data, marker.as_bytes(), b"007"].concat();
    assert_eq!(trailed(marker, &ended, size), (Some(7), data.to_vec()));
    assert_eq!(trailed(marker, data, size), (None, data.to_vec()));
});
