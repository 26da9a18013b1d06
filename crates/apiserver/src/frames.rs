//! Frames of WebSockets, as far as watches and conversations with containers need them.

mod decoder;

pub use decoder::{Decoder, Piece, Violation};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// A frame of the server: whole and unmasked.
#[must_use]
pub fn frame(opcode: u8, payload: &[u8]) -> Bytes {
    prefixed(opcode, &[], payload)
}

/// A frame of the server whose payload comes in two parts.
#[must_use]
pub fn prefixed(opcode: u8, prefix: &[u8], payload: &[u8]) -> Bytes {
    let length = prefix.len() + payload.len();
    let mut frame = BytesMut::with_capacity(length + 10);
    put_header(&mut frame, opcode, length);
    frame.put_slice(prefix);
    frame.put_slice(payload);
    frame.freeze()
}

/// What comes before a payload of this length that is sent in parts.
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

/// The longest thing a watcher has to say: a ping or a goodbye.
const LONGEST: usize = 125;

/// What to say to the client's frames; `None` when it says goodbye, or what no watcher says.
pub fn answers(input: &mut BytesMut) -> Option<Bytes> {
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
