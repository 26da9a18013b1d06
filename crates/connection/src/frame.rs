//! Frames: messages with their length in front of them.

/// The longest frame.
pub const MAX_FRAME_BYTES: usize = 16 << 20;

/// Bytes of the length, which is big-endian.
const LENGTH_BYTES: usize = 4;

/// A peer that does not speak in frames, or too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame is longer than both sides accept.
    #[error("a frame has {bytes} bytes; at most {MAX_FRAME_BYTES} are accepted")]
    TooLong {
        /// Its length.
        bytes: u64,
    },
    /// The stream ended inside a frame.
    #[error("the stream ended after {read} bytes of a frame")]
    Truncated {
        /// How much of it was read, with its length.
        read: usize,
    },
}

/// Returns a message as a frame.
///
/// # Errors
/// The message is too long.
pub fn encode_frame(message: &[u8]) -> Result<Vec<u8>, FrameError> {
    let too_long = FrameError::TooLong { bytes: message.len() as u64 };
    if message.len() > MAX_FRAME_BYTES {
        return Err(too_long);
    }
    let length = u32::try_from(message.len()).map_err(|_| too_long)?;
    let mut frame = Vec::with_capacity(LENGTH_BYTES + message.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(message);
    Ok(frame)
}

/// Reads frames from a stream that arrives in pieces.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    /// How much of the buffer was returned already.
    consumed: usize,
}

impl FrameDecoder {
    /// Nothing was read yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a piece of the stream. The caller takes out all frames ([`FrameDecoder::next_frame`])
    /// before it reads the next piece, so no more than a frame and a piece is ever held.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the next whole frame.
    ///
    /// # Errors
    /// Its length is not accepted: the stream cannot be read any further.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let rest = &self.buffer[self.consumed..];
        let Some((length, message)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let bytes = u32::from_be_bytes(*length);
        let too_long = FrameError::TooLong { bytes: u64::from(bytes) };
        let length = usize::try_from(bytes).map_err(|_| too_long)?;
        if length > MAX_FRAME_BYTES {
            return Err(too_long);
        }
        let Some(message) = message.get(..length) else { return Ok(None) };
        let message = message.to_vec();
        self.consumed += LENGTH_BYTES + length;
        Ok(Some(message))
    }

    /// At the end of the stream: nothing must be left.
    ///
    /// # Errors
    /// The stream ended inside a frame.
    pub fn finish(&self) -> Result<(), FrameError> {
        match self.buffer.len() - self.consumed {
            0 => Ok(()),
            read => Err(FrameError::Truncated { read }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_have_a_limit_on_both_sides() {
        let bytes = MAX_FRAME_BYTES + 1;
        let too_long = FrameError::TooLong { bytes: bytes as u64 };
        assert_eq!(encode_frame(&vec![0; bytes]), Err(too_long));
        let mut decoder = FrameDecoder::new();
        decoder.push(&u32::try_from(bytes).unwrap().to_be_bytes());
        assert_eq!(decoder.next_frame(), Err(too_long), "before any of it is held");
        // What is not a stream of frames has a length that is not accepted.
        let mut decoder = FrameDecoder::new();
        decoder.push(b"Welcome to Debian");
        assert!(matches!(decoder.next_frame(), Err(FrameError::TooLong { .. })));
        assert_eq!(encode_frame(b"ab").unwrap(), b"\0\0\0\x02ab");
    }

    proptest! {
        /// What was written is read, however it is split; a stream that is cut says so.
        #[test]
        fn frames_are_read_as_they_were_written(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8),
            sizes in prop::collection::vec(1..60_usize, 1..20),
            cut in any::<prop::sample::Index>(),
        ) {
            let frames: Vec<u8> =
                messages.iter().flat_map(|it| encode_frame(it).unwrap()).collect();
            let read = |stream: &[u8]| {
                let mut decoder = FrameDecoder::new();
                let mut all = Vec::new();
                let mut rest = stream;
                for size in sizes.iter().cycle() {
                    let (piece, after) = rest.split_at((*size).min(rest.len()));
                    decoder.push(piece);
                    while let Some(message) = decoder.next_frame().unwrap() {
                        all.push(message);
                    }
                    rest = after;
                    if rest.is_empty() {
                        break;
                    }
                }
                (all, decoder.finish())
            };
            prop_assert_eq!(read(&frames), (messages.clone(), Ok(())));
            let length = cut.index(frames.len() + 1);
            let (some, end) = read(&frames[..length]);
            prop_assert!(messages.starts_with(&some));
            let whole: usize = some.iter().map(|it| it.len() + LENGTH_BYTES).sum();
            let expected = match length - whole {
                0 => Ok(()),
                read => Err(FrameError::Truncated { read }),
            };
            prop_assert_eq!(end, expected);
        }
    }
}
