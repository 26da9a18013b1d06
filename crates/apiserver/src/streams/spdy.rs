//! Frames of SPDY/3.1, as far as clients of Kubernetes need them: many streams over one connection.
//!
//! Old clients speak it directly after an upgrade, new ones inside of the messages of a WebSocket.
//! [`Decoder`] reads what a client sends, [`Encoder`] writes frames. Neither does any I/O.

mod decoder;
mod dictionary;

pub use decoder::{Decoder, Violation};

use bytes::{BufMut as _, Bytes, BytesMut};

/// The initial window of a stream and of a connection: so many bytes may be sent before the other
/// side has consumed any.
pub const INITIAL_WINDOW: u32 = 64 * 1024;

/// Why a stream is reset: the peer broke the protocol.
pub const PROTOCOL_ERROR: u32 = 1;
/// Why a stream is reset: it was refused.
pub const REFUSED_STREAM: u32 = 3;
/// Why a stream is reset: it is not needed any more.
pub const CANCEL: u32 = 5;

const VERSION: u16 = 0x8003;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;
const FIN: u8 = 1;
/// The setting for the initial window of new streams.
const SETTINGS_INITIAL_WINDOW: u32 = 7;
/// Stream identifiers and windows have 31 bits.
const MASK: u32 = 0x7fff_ffff;

/// A SPDY frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Opens a stream.
    SynStream {
        /// Its identifier.
        stream: u32,
        /// Its headers.
        headers: Headers,
        /// The sender will send nothing on it.
        fin: bool,
    },
    /// Accepts a stream.
    SynReply {
        /// Its identifier.
        stream: u32,
        /// Its headers.
        headers: Headers,
        /// The sender will send nothing on it.
        fin: bool,
    },
    /// Ends a stream in both directions.
    Reset {
        /// Its identifier.
        stream: u32,
        /// Why.
        status: u32,
    },
    /// Settings of the connection, as far as they are used here.
    Settings {
        /// The initial window of new streams, if the peer sets it.
        initial_window: Option<u32>,
    },
    /// A ping, to be answered with the same number.
    Ping(u32),
    /// The sender opens and accepts no more streams.
    GoAway {
        /// The last stream it accepted.
        last: u32,
        /// Why; zero when all is well.
        status: u32,
    },
    /// More headers of a stream.
    Headers {
        /// Its identifier.
        stream: u32,
        /// The headers.
        headers: Headers,
        /// The sender will send no more on it.
        fin: bool,
    },
    /// The sender consumed bytes and accepts as many more.
    WindowUpdate {
        /// The stream, or zero for the connection.
        stream: u32,
        /// How many bytes.
        delta: u32,
    },
    /// Bytes of a stream. The decoder returns a long frame in parts, as they arrive.
    Data {
        /// Its identifier.
        stream: u32,
        /// The bytes.
        bytes: Bytes,
        /// The sender will send no more on it.
        fin: bool,
    },
}

/// Names and values, in the order in which they were sent. Names are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// Returns the value of a header, whatever the case of its name; empty if there is none.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }
}

/// Writes frames.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Whether the zlib header of the compressed headers was written.
    begun: bool,
}

impl Encoder {
    /// Encodes a frame. Its length must fit into 24 bits, which is far more than what is read at
    /// once.
    pub fn encode(&mut self, frame: &Frame) -> Bytes {
        let mut body = BytesMut::new();
        let (kind, fin) = match frame {
            Frame::Data { stream, bytes, fin } => return data(*stream, bytes, *fin),
            Frame::SynStream { stream, headers, fin } => {
                body.put_u32(stream & MASK);
                // No associated stream, the highest priority, no slot.
                body.put_slice(&[0; 6]);
                self.put_headers(&mut body, headers);
                (SYN_STREAM, *fin)
            }
            Frame::SynReply { stream, headers, fin } => {
                body.put_u32(stream & MASK);
                self.put_headers(&mut body, headers);
                (SYN_REPLY, *fin)
            }
            Frame::Headers { stream, headers, fin } => {
                body.put_u32(stream & MASK);
                self.put_headers(&mut body, headers);
                (HEADERS, *fin)
            }
            Frame::Reset { stream, status } => {
                body.put_u32(stream & MASK);
                body.put_u32(*status);
                (RST_STREAM, false)
            }
            Frame::Settings { initial_window } => {
                body.put_u32(u32::from(initial_window.is_some()));
                if let Some(window) = initial_window {
                    body.put_u32(SETTINGS_INITIAL_WINDOW);
                    body.put_u32(*window);
                }
                (SETTINGS, false)
            }
            Frame::Ping(number) => {
                body.put_u32(*number);
                (PING, false)
            }
            Frame::GoAway { last, status } => {
                body.put_u32(last & MASK);
                body.put_u32(*status);
                (GOAWAY, false)
            }
            Frame::WindowUpdate { stream, delta } => {
                body.put_u32(stream & MASK);
                body.put_u32(delta & MASK);
                (WINDOW_UPDATE, false)
            }
        };
        let mut frame = BytesMut::with_capacity(body.len() + 8);
        frame.put_u16(VERSION);
        frame.put_u16(kind);
        put_flags_and_length(&mut frame, fin, body.len());
        frame.put_slice(&body);
        frame.freeze()
    }

    /// Encodes headers as a deflate stream of uncompressed blocks: the server sends next to no
    /// headers, and a compressor would use a quarter of a megabyte for each connection.
    fn put_headers(&mut self, to: &mut BytesMut, headers: &Headers) {
        let mut plain = BytesMut::new();
        plain.put_u32(length(headers.0.len()));
        for (name, value) in &headers.0 {
            for text in [name, value] {
                plain.put_u32(length(text.len()));
                plain.put_slice(text.as_bytes());
            }
        }
        if !self.begun {
            self.begun = true;
            // The zlib header, without a dictionary.
            to.put_slice(&[0x78, 0x01]);
        }
        // An empty block at the end makes readers return what came before.
        for block in plain.chunks(usize::from(u16::MAX)).chain([&[][..]]) {
            let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
            to.put_u8(0);
            to.put_u16_le(length);
            to.put_u16_le(!length);
            to.put_slice(block);
        }
    }
}

fn data(stream: u32, bytes: &[u8], fin: bool) -> Bytes {
    let mut frame = BytesMut::with_capacity(bytes.len() + 8);
    frame.put_u32(stream & MASK);
    put_flags_and_length(&mut frame, fin, bytes.len());
    frame.put_slice(bytes);
    frame.freeze()
}

fn put_flags_and_length(frame: &mut BytesMut, fin: bool, length: usize) {
    frame.put_u8(if fin { FIN } else { 0 });
    frame.put_uint(u64::try_from(length).unwrap_or(u64::MAX), 3);
}

fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
