//! WebSocket frames, as far as watches and exec sessions need them.

mod decoder;

pub use decoder::{Decoder, Violation, WebSocketMessage};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// Encodes a frame of the server: complete and unmasked.
#[must_use]
pub fn frame(opcode: u8, payload: &[u8]) -> Bytes {
    prefixed(opcode, &[], payload)
}

/// Encodes a frame of the server whose payload comes in two parts.
#[must_use]
pub fn prefixed(opcode: u8, prefix: &[u8], payload: &[u8]) -> Bytes {
    let length = prefix.len() + payload.len();
    let mut frame = BytesMut::with_capacity(length + 10);
    put_header(&mut frame, opcode, length);
    frame.put_slice(prefix);
    frame.put_slice(payload);
    frame.freeze()
}

/// Encodes the header of a frame whose payload of this length is sent in parts.
#[must_use]
pub fn header(opcode: u8, length: usize) -> Bytes {
    let mut frame = BytesMut::with_capacity(10);
    put_header(&mut frame, opcode, length);
    frame.freeze()
}

fn put_header(frame: &mut BytesMut, opcode: u8, length: usize) {
    frame.put_u8(0x80 | opcode);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length), _) if length < 126 => frame.put_u8(length),
        (_, Ok(length)) => {
            frame.put_u8(126);
            frame.put_u16(length);
        }
        _ => {
            frame.put_u8(127);
            frame.put_u64(u64::try_from(length).unwrap_or(u64::MAX));
        }
    }
}

/// The longest payload a watcher may send: a ping or a close frame.
const MAX_WATCH_CONTROL_PAYLOAD: usize = 125;

/// Handles the frames of a watch client and returns the reply; `None` when it closes, or sends what
/// watchers do not send.
pub fn control_replies(input: &mut BytesMut) -> Option<Bytes> {
    let mut out = BytesMut::new();
    loop {
        let Some((opcode, masked, length)) = parse_header(input) else { return Some(out.freeze()) };
        let header = if masked { 6 } else { 2 };
        if length > MAX_WATCH_CONTROL_PAYLOAD || opcode == 0x8 {
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

/// Parses opcode, mask bit and length of the first frame.
fn parse_header(input: &[u8]) -> Option<(u8, bool, usize)> {
    let [first, second, ..] = input else { return None };
    Some((first & 0x0f, second & 0x80 != 0, usize::from(second & 0x7f)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_as_short_as_they_can_be() {
        assert_eq!(&frame(0x1, b"hi")[..], b"\x81\x02hi");
        assert_eq!(&frame(0x1, &[0; 200])[..4], b"\x81\x7e\x00\xc8");
        assert_eq!(&frame(0x1, &[0; 70_000])[..10], b"\x81\x7f\x00\x00\x00\x00\x00\x01\x11\x70");
    }

    #[test]
    fn a_ping_gets_a_pong_and_a_close_ends() {
        let mut ping = BytesMut::from(&b"\x89\x82\x01\x02\x03\x04\x69\x6b"[..]);
        assert_eq!(&control_replies(&mut ping).unwrap()[..], b"\x8a\x02hi");
        let mut half = BytesMut::from(&b"\x89\x82\x01"[..]);
        assert!(control_replies(&mut half).unwrap().is_empty());
        let mut close = BytesMut::from(&b"\x88\x80\x00\x00\x00\x00"[..]);
        assert!(control_replies(&mut close).is_none());
    }
}
