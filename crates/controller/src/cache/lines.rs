//! Splits the bytes of a watch into lines.

use bytes::{Bytes, BytesMut};

/// The longest event: the largest object a server stores, many times over.
const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;

/// Bytes that have arrived and are not read yet.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    buffer: BytesMut,
    /// The length of the prefix that contains no line break.
    searched: usize,
}

impl LineBuffer {
    /// Appends data. Fails with the length of the unfinished line when it is longer than any event.
    pub(super) fn push(&mut self, data: &[u8]) -> Result<(), usize> {
        self.buffer.extend_from_slice(data);
        if self.buffer.len() - self.searched > MAX_EVENT_BYTES {
            Err(MAX_EVENT_BYTES)
        } else {
            Ok(())
        }
    }

    /// Returns the next complete line that is not empty.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        loop {
            let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            let Some(end) = end else {
                self.searched = self.buffer.len();
                return None;
            };
            let line = self.buffer.split_to(self.searched + end + 1).freeze();
            self.searched = 0;
            let line = line.slice(..line.len() - 1);
            if !line.trim_ascii().is_empty() {
                return Some(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any split of the bytes gives the same lines, without the empty ones.
        #[test]
        fn cuts_do_not_matter(
            lines in prop::collection::vec("[a-z ]{0,12}", 0..12), cuts in prop::collection::vec(1_usize..9, 1..40),
        ) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let (mut rest, mut cuts) = (text.as_bytes(), cuts.into_iter().cycle());
            let (mut reader, mut read) = (LineBuffer::default(), Vec::new());
            while !rest.is_empty() {
                let (piece, more) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                reader.push(piece).unwrap();
                rest = more;
                while let Some(line) = reader.next() {
                    read.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            let expected: Vec<_> = lines.into_iter().filter(|it| !it.trim().is_empty()).collect();
            prop_assert_eq!(read, expected);
        }
    }
}
