//! Decodes the frames of a client as they arrive (RFC 6455, 5).

use bytes::{Buf as _, Bytes, BytesMut};

/// A decoded message, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebSocketMessage {
    /// A part of a message. However long the message, no part is longer than what was read at once.
    Data {
        /// The part.
        bytes: Bytes,
        /// Whether it is the first part of a message.
        first: bool,
        /// Whether it is the last part of a message.
        last: bool,
    },
    /// A ping, to be answered with the same bytes.
    Ping(Bytes),
    /// A pong.
    Pong,
    /// A close frame.
    Close,
}

/// The client broke the protocol. Decoding cannot go on: where the next frame begins is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client broke the protocol")]
pub struct Violation;

/// The longest payload of a control frame.
const MAX_CONTROL_PAYLOAD: usize = 125;

/// The decoder with its state between calls.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The data frame that is being read.
    payload: Option<Payload>,
    /// Between the first and the last frame of a message.
    inside: bool,
    /// No part of the message was returned yet.
    fresh: bool,
}

/// The rest of a frame.
#[derive(Debug)]
struct Payload {
    left: u64,
    mask: Mask,
    last: bool,
}

/// The four bytes a client masks its frames with, rotated to the current position.
#[derive(Debug)]
struct Mask([u8; 4]);

impl Mask {
    /// Unmasks the bytes, and advances.
    fn unmask(&mut self, bytes: &mut [u8]) {
        for (byte, mask) in bytes.iter_mut().zip(self.0.iter().cycle()) {
            *byte ^= mask;
        }
        self.0.rotate_left(bytes.len() % 4);
    }
}

impl Decoder {
    /// Takes the next piece out of `input`; `None` when more must be read first.
    ///
    /// `input` never holds more than what was added at once and one header.
    ///
    /// # Errors
    /// [`Violation`]; the rest of `input` is meaningless then.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<WebSocketMessage>, Violation> {
        if self.payload.is_none() {
            let Some(head) = FrameHeader::read(input)? else { return Ok(None) };
            if head.opcode >= 0x8 {
                return head.control(input);
            }
            // Only a continuation frame may follow within a message.
            if (head.opcode == 0) != self.inside || head.opcode > 0x2 {
                return Err(Violation);
            }
            input.advance(head.size);
            self.fresh = !self.inside;
            self.inside = true;
            self.payload = Some(Payload { left: head.length, mask: head.mask, last: head.last });
        }
        let Some(payload) = &mut self.payload else { return Ok(None) };
        if payload.left > 0 && input.is_empty() {
            return Ok(None);
        }
        let most = usize::try_from(payload.left).unwrap_or(usize::MAX);
        let mut bytes = input.split_to(most.min(input.len()));
        payload.mask.unmask(&mut bytes);
        payload.left -= u64::try_from(bytes.len()).unwrap_or(payload.left);
        let whole = payload.left == 0;
        let last = whole && payload.last;
        let first = std::mem::take(&mut self.fresh);
        if whole {
            self.payload = None;
        }
        self.inside = !last;
        Ok(Some(WebSocketMessage::Data { bytes: bytes.freeze(), first, last }))
    }
}

/// The header of a frame.
struct FrameHeader {
    opcode: u8,
    last: bool,
    length: u64,
    mask: Mask,
    /// Its own length.
    size: usize,
}

impl FrameHeader {
    /// Parses it without consuming it; `None` when it is incomplete.
    fn read(input: &[u8]) -> Result<Option<Self>, Violation> {
        let [first, second, rest @ ..] = input else { return Ok(None) };
        let reserved = first & 0x70 != 0;
        let masked = second & 0x80 != 0;
        if reserved || !masked {
            return Err(Violation);
        }
        let short = second & 0x7f;
        let (length, rest) = match short {
            126 => match rest.split_first_chunk() {
                Some((length, rest)) => (u64::from(u16::from_be_bytes(*length)), rest),
                None => return Ok(None),
            },
            127 => match rest.split_first_chunk() {
                Some((length, rest)) => (u64::from_be_bytes(*length), rest),
                None => return Ok(None),
            },
            short => (u64::from(short), rest),
        };
        if length > i64::MAX.unsigned_abs() {
            return Err(Violation);
        }
        let Some((mask, rest)) = rest.split_first_chunk() else { return Ok(None) };
        Ok(Some(Self {
            opcode: first & 0x0f,
            last: first & 0x80 != 0,
            length,
            mask: Mask(*mask),
            size: input.len() - rest.len(),
        }))
    }

    /// Takes a control frame, once it is complete.
    fn control(mut self, input: &mut BytesMut) -> Result<Option<WebSocketMessage>, Violation> {
        let length = usize::try_from(self.length).ok().filter(|it| *it <= MAX_CONTROL_PAYLOAD);
        let length = length.filter(|_| self.last).ok_or(Violation)?;
        if input.len() < self.size + length {
            return Ok(None);
        }
        input.advance(self.size);
        let mut bytes = input.split_to(length);
        self.mask.unmask(&mut bytes);
        match self.opcode {
            0x8 => Ok(Some(WebSocketMessage::Close)),
            0x9 => Ok(Some(WebSocketMessage::Ping(bytes.freeze()))),
            0xA => Ok(Some(WebSocketMessage::Pong)),
            _ => Err(Violation),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodes a frame of a client.
    fn frame(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
        let mut bytes = vec![first];
        match payload.len() {
            length @ 0..126 => bytes.push(0x80 | u8::try_from(length).unwrap()),
            length @ 126..0x1_0000 => {
                bytes.push(0x80 | 126);
                bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
            }
            length => {
                bytes.push(0x80 | 127);
                bytes.extend(u64::try_from(length).unwrap().to_be_bytes());
            }
        }
        bytes.extend(mask);
        let mut covered = payload.to_vec();
        Mask(mask).unmask(&mut covered);
        bytes.extend(covered);
        bytes
    }

    /// Reads everything, a few bytes at a time, and joins the parts of messages.
    fn read(
        bytes: &[u8],
        at_once: usize,
    ) -> Result<(Vec<Vec<u8>>, Vec<WebSocketMessage>), Violation> {
        let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
        let (mut messages, mut others) = (Vec::<Vec<u8>>::new(), Vec::new());
        for some in bytes.chunks(at_once) {
            input.extend_from_slice(some);
            while let Some(piece) = decoder.next(&mut input)? {
                match piece {
                    WebSocketMessage::Data { bytes, first, .. } => {
                        if first {
                            messages.push(Vec::new());
                        }
                        messages.last_mut().unwrap().extend(&bytes);
                    }
                    other => others.push(other),
                }
            }
            assert!(
                input.len() < at_once + 14 + MAX_CONTROL_PAYLOAD,
                "nothing is kept that could be given"
            );
        }
        Ok((messages, others))
    }

    #[test]
    fn messages_may_be_fragmented_with_pings_between() {
        let mask = [1, 2, 3, 4];
        let bytes = [
            frame(0x02, b"\0he", mask),
            frame(0x89, b"there?", [9, 9, 9, 9]),
            frame(0x00, b"", mask),
            frame(0x80, b"llo", [0; 4]),
            frame(0x81, b"", mask),
            frame(0x8A, b"", mask),
            frame(0x88, b"\x03\xe8", mask),
        ]
        .concat();
        for at_once in [1, 2, 3, 7, 1000] {
            let (messages, others) = read(&bytes, at_once).unwrap();
            assert_eq!(messages, [b"\0hello".to_vec(), Vec::new()]);
            let ping = WebSocketMessage::Ping(Bytes::from_static(b"there?"));
            assert_eq!(others, [ping, WebSocketMessage::Pong, WebSocketMessage::Close]);
        }
    }

    #[test]
    fn protocol_violations_are_errors() {
        let mask = [1, 2, 3, 4];
        let table = [
            ("not masked", vec![0x82, 0x01, 0x00]),
            ("reserved bits", frame(0xC2, b"x", mask)),
            ("goes on with nothing", frame(0x80, b"x", mask)),
            ("begins inside", [frame(0x02, b"x", mask), frame(0x82, b"x", mask)].concat()),
            ("unknown data", frame(0x83, b"x", mask)),
            ("unknown control", frame(0x8B, b"x", mask)),
            ("a ping in parts", frame(0x09, b"x", mask)),
            ("a long ping", frame(0x89, &[0; 126], mask)),
            ("longer than anything", vec![0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (why, bytes) in table {
            assert_eq!(read(&bytes, 1000), Err(Violation), "{why}");
            assert_eq!(read(&bytes, 1), Err(Violation), "{why}");
        }
    }

    #[test]
    fn long_frames_are_decoded_in_parts() {
        let mut input = BytesMut::from(&[0x82, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7][..]);
        let piece = Decoder::default().next(&mut input).unwrap().unwrap();
        let bytes = Bytes::from_static(b"\x07");
        assert_eq!(piece, WebSocketMessage::Data { bytes, first: true, last: false });
    }

    proptest! {
        /// The result does not depend on how the input is split.
        #[test]
        fn cutting_changes_nothing(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..5),
            mask in any::<[u8; 4]>(),
            at_once in 1_usize..400,
        ) {
            let count = parts.len();
            let bytes: Vec<u8> = parts.iter().enumerate().flat_map(|(place, part)| {
                let opcode = if place == 0 { 0x2 } else { 0x0 };
                let last = if place + 1 == count { 0x80 } else { 0 };
                frame(last | opcode, part, mask)
            }).collect();
            let (messages, others) = read(&bytes, at_once).unwrap();
            prop_assert_eq!(messages, [parts.concat()]);
            prop_assert!(others.is_empty());
        }

        /// Arbitrary bytes cause no panic, and are not buffered without need.
        #[test]
        fn any_bytes_are_survived(
            bytes in prop::collection::vec(any::<u8>(), 0..500),
            at_once in 1_usize..100,
        ) {
            let _ = read(&bytes, at_once);
        }
    }
}
