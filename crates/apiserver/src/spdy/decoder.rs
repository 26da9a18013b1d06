//! Takes the frames of a peer apart as they come.

use bytes::{Buf as _, Bytes, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};

use super::dictionary::dictionary;
use super::{
    FIN, Frame, GOAWAY, HEADERS, Headers, MASK, PING, RST_STREAM, SETTINGS,
    SETTINGS_INITIAL_WINDOW, SYN_REPLY, SYN_STREAM, VERSION, WINDOW_UPDATE,
};

/// The peer broke the protocol. There is no way to go on: where the next frame begins, or what its
/// headers are compressed with, is not known any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer broke the protocol")]
pub struct Violation;

/// What comes before the payload of a frame.
const HEAD: usize = 8;
/// The longest payload of a frame that is no data. Streams that are forwarded have a handful of
/// headers.
const CONTROL: usize = 16 * 1024;
/// The longest header block, once it is uncompressed.
const BLOCK: usize = 32 * 1024;

/// Frames that came in part.
#[derive(Debug)]
pub struct Decoder {
    /// All header blocks of a connection are one compressed stream.
    headers: Decompress,
    /// The frame of data we are inside of.
    payload: Option<Payload>,
}

/// What is left of a frame of data.
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
    /// Takes the next frame, or a part of one with data, out of `input`; `None` when more must be
    /// read first.
    ///
    /// `input` is never longer than what was put into it at once and one frame that is no data.
    ///
    /// # Errors
    /// [`Violation`]; what follows in `input` means nothing then.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, Violation> {
        loop {
            if self.payload.is_some() {
                return Ok(self.part(input));
            }
            let Some(head) = input.first_chunk::<HEAD>() else { return Ok(None) };
            let [a, b, c, d, flags, rest @ ..] = *head;
            let length = rest.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
            let fin = flags & FIN != 0;
            if a & 0x80 == 0 {
                let stream = u32::from_be_bytes([a, b, c, d]);
                input.advance(HEAD);
                self.payload = Some(Payload { stream, left: length, fin });
                continue;
            }
            if u16::from_be_bytes([a, b]) != VERSION || length > CONTROL {
                return Err(Violation);
            }
            if input.len() < HEAD + length {
                return Ok(None);
            }
            let mut body = input.split_to(HEAD + length).freeze();
            body.advance(HEAD);
            if let Some(frame) = self.control(u16::from_be_bytes([c, d]), fin, body)? {
                return Ok(Some(frame));
            }
        }
    }

    /// The next part of a frame of data. One without any bytes is given out as well: it may end the
    /// stream.
    fn part(&mut self, input: &mut BytesMut) -> Option<Frame> {
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

    /// A frame that is no data; `None` for one that is not known here, which is passed over.
    fn control(
        &mut self,
        kind: u16,
        fin: bool,
        mut body: Bytes,
    ) -> Result<Option<Frame>, Violation> {
        let mut number = || body.try_get_u32().map_err(|_| Violation);
        Ok(Some(match kind {
            SYN_STREAM => {
                let stream = number()? & MASK;
                // The stream it belongs to, priority and slot are of no use here.
                if body.len() < 6 {
                    return Err(Violation);
                }
                body.advance(6);
                Frame::SynStream { stream, headers: self.block(&body)?, fin }
            }
            SYN_REPLY => {
                let stream = number()? & MASK;
                Frame::SynReply { stream, headers: self.block(&body)?, fin }
            }
            HEADERS => {
                let stream = number()? & MASK;
                Frame::Headers { stream, headers: self.block(&body)?, fin }
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

    /// Uncompresses and reads a block of headers.
    fn block(&mut self, compressed: &[u8]) -> Result<Headers, Violation> {
        let mut plain = Vec::with_capacity(BLOCK);
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
                // There is no more room for the headers, or they are no such thing.
                Ok(_) | Err(_) => return Err(Violation),
            }
            if plain.len() == BLOCK {
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
