//! Decodes the frames of a peer as they arrive.

use bytes::{Buf as _, Bytes, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};

use super::dictionary::dictionary;
use super::{
    FIN, Frame, GOAWAY, HEADERS, Headers, MASK, PING, RST_STREAM, SETTINGS,
    SETTINGS_INITIAL_WINDOW, SYN_REPLY, SYN_STREAM, VERSION, WINDOW_UPDATE,
};

/// The peer broke the protocol. Decoding cannot go on: where the next frame begins, or the state of
/// the header compression, is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer broke the protocol")]
pub struct Violation;

/// The length of a frame header.
const FRAME_HEADER_BYTES: usize = 8;
/// The longest payload of a control frame. Forwarded streams have a handful of headers.
const MAX_CONTROL_PAYLOAD: usize = 16 * 1024;
/// The longest header block, once it is uncompressed.
const MAX_HEADER_BLOCK: usize = 32 * 1024;

/// The decoder with its state between calls.
#[derive(Debug)]
pub struct Decoder {
    /// All header blocks of a connection are one compressed stream.
    headers: Decompress,
    /// The data frame that is being read.
    payload: Option<Payload>,
}

/// The rest of a data frame.
#[derive(Debug)]
struct Payload {
    stream: u32,
    left: usize,
    fin: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { headers: Decompress::new(true), payload: None }
    }
}

impl Decoder {
    /// Takes the next frame, or a part of a data frame, out of `input`; `None` when more must be
    /// read first.
    ///
    /// `input` never holds more than what was added at once and one control frame.
    ///
    /// # Errors
    /// [`Violation`]; the rest of `input` is meaningless then.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, Violation> {
        loop {
            if self.payload.is_some() {
                return Ok(self.data_part(input));
            }
            let Some(head) = input.first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(None) };
            let [a, b, c, d, flags, rest @ ..] = *head;
            let length = rest.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
            let fin = flags & FIN != 0;
            if a & 0x80 == 0 {
                let stream = u32::from_be_bytes([a, b, c, d]);
                input.advance(FRAME_HEADER_BYTES);
                self.payload = Some(Payload { stream, left: length, fin });
                continue;
            }
            if u16::from_be_bytes([a, b]) != VERSION || length > MAX_CONTROL_PAYLOAD {
                return Err(Violation);
            }
            if input.len() < FRAME_HEADER_BYTES + length {
                return Ok(None);
            }
            let mut body = input.split_to(FRAME_HEADER_BYTES + length).freeze();
            body.advance(FRAME_HEADER_BYTES);
            if let Some(frame) = self.control_frame(u16::from_be_bytes([c, d]), fin, body)? {
                return Ok(Some(frame));
            }
        }
    }

    /// Returns the next part of a data frame. An empty frame is returned as well: it may end the
    /// stream.
    fn data_part(&mut self, input: &mut BytesMut) -> Option<Frame> {
        let payload = self.payload.as_mut()?;
        if payload.left > 0 && input.is_empty() {
            return None;
        }
        let bytes = input.split_to(payload.left.min(input.len())).freeze();
        payload.left -= bytes.len();
        let (stream, whole) = (payload.stream, payload.left == 0);
        let fin = whole && payload.fin;
        if whole {
            self.payload = None;
        }
        Some(Frame::Data { stream, bytes, fin })
    }

    /// Decodes a control frame; `None` for an unknown one, which is skipped.
    fn control_frame(
        &mut self,
        kind: u16,
        fin: bool,
        mut body: Bytes,
    ) -> Result<Option<Frame>, Violation> {
        let mut number = || body.try_get_u32().map_err(|_| Violation);
        Ok(Some(match kind {
            SYN_STREAM => {
                let stream = number()? & MASK;
                // Associated stream, priority and slot are not used here.
                if body.len() < 6 {
                    return Err(Violation);
                }
                body.advance(6);
                Frame::SynStream { stream, headers: self.header_block(&body)?, fin }
            }
            SYN_REPLY => {
                let stream = number()? & MASK;
                Frame::SynReply { stream, headers: self.header_block(&body)?, fin }
            }
            HEADERS => {
                let stream = number()? & MASK;
                Frame::Headers { stream, headers: self.header_block(&body)?, fin }
            }
            RST_STREAM => Frame::Reset { stream: number()? & MASK, status: number()? },
            SETTINGS => {
                let (count, mut initial_window) = (number()?, None);
                // The body is short, and ends the loop whatever the count says.
                for _ in 0..count {
                    let (id, value) = (number()? & 0x00ff_ffff, number()?);
                    if id == SETTINGS_INITIAL_WINDOW {
                        initial_window = Some(value & MASK);
                    }
                }
                Frame::Settings { initial_window }
            }
            PING => Frame::Ping(number()?),
            GOAWAY => Frame::GoAway { last: number()? & MASK, status: number()? },
            WINDOW_UPDATE => {
                Frame::WindowUpdate { stream: number()? & MASK, delta: number()? & MASK }
            }
            _ => return Ok(None),
        }))
    }

    /// Decompresses and parses a block of headers.
    fn header_block(&mut self, compressed: &[u8]) -> Result<Headers, Violation> {
        let mut plain = Vec::with_capacity(MAX_HEADER_BLOCK);
        let mut rest = compressed;
        while !rest.is_empty() {
            let before = self.headers.total_in();
            let done = self.headers.decompress_vec(rest, &mut plain, FlushDecompress::Sync);
            let taken = usize::try_from(self.headers.total_in() - before).unwrap_or(usize::MAX);
            rest = rest.get(taken..).ok_or(Violation)?;
            match done {
                Ok(Status::Ok) if taken > 0 => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.headers.set_dictionary(&dictionary()).map_err(|_| Violation)?;
                }
                // The headers are too long or not valid.
                Ok(_) | Err(_) => return Err(Violation),
            }
            if plain.len() == MAX_HEADER_BLOCK {
                return Err(Violation);
            }
        }
        read_headers(&plain)
    }
}

fn read_headers(mut plain: &[u8]) -> Result<Headers, Violation> {
    let count = plain.try_get_u32().map_err(|_| Violation)?;
    let mut text = || {
        let length = plain.try_get_u32().map_err(|_| Violation)?;
        let length = usize::try_from(length).map_err(|_| Violation)?;
        let (text, rest) = plain.split_at_checked(length).ok_or(Violation)?;
        plain = rest;
        String::from_utf8(text.to_vec()).map_err(|_| Violation)
    };
    let mut headers = Vec::new();
    // The block is short, and ends the loop whatever the count says.
    for _ in 0..count {
        let name = text()?.to_ascii_lowercase();
        headers.push((name, text()?));
    }
    Ok(Headers(headers))
}
