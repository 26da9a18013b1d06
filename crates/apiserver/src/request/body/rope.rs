//! Text in parts that share memory with stored objects, and how it is cut into frames.
//!
//! A client that does not read holds the data produced for it. For a large object that data is a
//! reference to the bytes that the store has anyway, so that a thousand such clients hold one copy.

use std::collections::VecDeque;

use bytes::{BufMut as _, Bytes, BytesMut};

/// The size of one frame, in bytes.
///
/// One frame per small object would cost a system call each; a larger one would be copied whole
/// into the buffers of every connection.
pub(crate) const FRAME_BYTES: usize = 64 * 1024;
/// Parts of this size are sent without a copy; smaller ones are copied together.
const SHARED_BYTES: usize = 16 * 1024;

/// A text in parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rope(Vec<Bytes>);

impl Rope {
    /// Makes a text of these parts.
    pub(crate) fn of<const N: usize>(parts: [Bytes; N]) -> Self {
        Self(parts.into())
    }

    /// Returns the same text between two others.
    pub(crate) fn between(mut self, before: Bytes, after: Bytes) -> Self {
        self.0.insert(0, before);
        self.0.push(after);
        self
    }

    /// Returns the length of the text in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Returns the parts in order.
    pub(crate) fn parts(&self) -> &[Bytes] {
        &self.0
    }
}

impl From<Bytes> for Rope {
    fn from(bytes: Bytes) -> Self {
        Self(vec![bytes])
    }
}

/// Bytes that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    parts: VecDeque<Bytes>,
    len: usize,
}

impl SendBuffer {
    /// Returns the number of waiting bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds bytes at the end.
    pub(crate) fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.len += part.len();
            self.parts.push_back(part);
        }
    }

    /// Adds a text at the end.
    pub(crate) fn push_rope(&mut self, rope: Rope) {
        rope.0.into_iter().for_each(|part| self.push(part));
    }

    /// Takes the next frame. Small parts are joined; a large one is cut without a copy.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        let frame = self.cut()?;
        self.len -= frame.len();
        Some(frame)
    }

    fn cut(&mut self) -> Option<Bytes> {
        let first = self.parts.front_mut()?;
        if first.len() > FRAME_BYTES {
            return Some(first.split_to(FRAME_BYTES));
        }
        let alone = first.len() >= SHARED_BYTES || self.parts.len() == 1;
        if alone {
            return self.parts.pop_front();
        }
        let mut frame = BytesMut::new();
        while frame.len() < FRAME_BYTES
            && let Some(part) = self.parts.pop_front_if(|part| part.len() < SHARED_BYTES)
        {
            frame.put_slice(&part);
        }
        Some(frame.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_parts_are_joined_and_large_ones_are_shared() {
        let large = Bytes::from(vec![b'x'; 900_000]);
        let mut frames = SendBuffer::default();
        let (before, after) = (Bytes::from_static(b"<"), Bytes::from_static(b">"));
        let mut whole = Vec::new();
        for _ in 0..3 {
            let rope = Rope::from(large.clone()).between(before.clone(), after.clone());
            assert_eq!(rope.len(), 900_002);
            rope.parts().iter().for_each(|part| whole.extend_from_slice(part));
            frames.push_rope(rope);
        }
        let memory = large.as_ptr_range();
        let (mut sent, mut copied) = (Vec::new(), 0);
        while let Some(frame) = frames.next() {
            assert!(frame.len() <= FRAME_BYTES, "{}", frame.len());
            sent.extend_from_slice(&frame);
            copied += if memory.contains(&frame.as_ptr()) { 0 } else { frame.len() };
            assert_eq!(frames.len(), whole.len() - sent.len());
        }
        assert!(sent == whole);
        assert_eq!(copied, 6, "only the marks between the objects");
    }

    #[test]
    fn many_small_parts_fill_frames() {
        let mut frames = SendBuffer::default();
        (0..200).for_each(|_| frames.push(Bytes::from(vec![b'x'; 1_000])));
        let sizes: Vec<usize> = std::iter::from_fn(|| frames.next()).map(|it| it.len()).collect();
        assert_eq!(sizes, [66_000, 66_000, 66_000, 2_000]);
    }
}
