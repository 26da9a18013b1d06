//! What is stored, and what watchers are told.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::Revision;
use crate::tree::Keyed;

/// The current or a former value of one key. It never changes; a write makes a new one.
///
/// `X` is for whoever uses the store: a place for things computed from the value, shared by all who
/// hold the entry. The store makes it empty and never looks at it.
pub struct Entry<X> {
    /// The key within its space.
    pub key: Bytes,
    /// The change that created the key; later changes keep it, deletion and re-creation do not.
    pub created: Revision,
    /// The change that wrote this value.
    pub revision: Revision,
    /// The value, with its revision written into it.
    pub value: Bytes,
    /// The user's companion to the value.
    pub extra: X,
}

/// One change, as watchers see it.
///
/// `Y` is for whoever uses the store, as in [`Entry`].
pub struct Event<X, Y> {
    /// When it happened.
    pub revision: Revision,
    /// What happened.
    pub kind: EventKind,
    /// The value after a put; the last value of what a deletion removed.
    pub entry: Arc<Entry<X>>,
    /// What the key held before, if anything.
    pub previous: Option<Arc<Entry<X>>>,
    /// The user's companion to the event.
    pub extra: Y,
}

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was created, if there was no previous entry, or replaced.
    Put,
    /// It was removed.
    Delete,
}

/// A value in two halves, between which the store writes the decimal revision of the change.
///
/// A value carries its own revision, which is known only when the change is committed. Cutting it
/// there lets it be serialised once, by whoever prepares the change, and stamped by the writer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Value {
    /// What comes before the revision.
    pub head: Bytes,
    /// What comes after it.
    pub tail: Bytes,
}

impl Value {
    /// The length once stamped, at most.
    pub(crate) fn max_len(&self) -> usize {
        self.head.len().saturating_add(self.tail.len()).saturating_add(DIGITS)
    }

    pub(crate) fn stamp(&self, revision: Revision) -> Bytes {
        let mut digits = [0; DIGITS];
        let digits = decimal(revision.get(), &mut digits);
        let mut out = BytesMut::with_capacity(self.head.len() + digits.len() + self.tail.len());
        out.extend_from_slice(&self.head);
        out.extend_from_slice(digits);
        out.extend_from_slice(&self.tail);
        out.freeze()
    }
}

/// Digits of the greatest revision.
const DIGITS: usize = 20;

fn decimal(mut number: u64, buffer: &mut [u8; DIGITS]) -> &[u8] {
    let mut start = DIGITS;
    loop {
        start -= 1;
        buffer[start] = b'0' + u8::try_from(number % 10).expect("a digit is less than ten");
        number /= 10;
        if number == 0 {
            return &buffer[start..];
        }
    }
}

/// What an entry costs beyond its bytes: itself, its reference counts, its place in the tree.
const ENTRY_OVERHEAD: usize = 160;
/// What an event costs beyond its entries.
const EVENT_OVERHEAD: usize = 128;

impl<X> Entry<X> {
    pub(crate) fn size(&self) -> usize {
        self.key.len() + self.value.len() + ENTRY_OVERHEAD
    }
}

impl<X, Y> Event<X, Y> {
    /// What keeping the event keeps in memory. Entries count even when others hold them too.
    pub(crate) fn size(&self) -> usize {
        self.entry.size() + self.previous.as_ref().map_or(0, |entry| entry.size()) + EVENT_OVERHEAD
    }
}

impl<X> Keyed for Arc<Entry<X>> {
    type Key = [u8];
    type Separator = Bytes;
    fn key(&self) -> &[u8] {
        &self.key
    }
    fn separator(&self) -> Bytes {
        self.key.clone()
    }
}

impl<X, Y> Keyed for Arc<Event<X, Y>> {
    type Key = Revision;
    type Separator = Revision;
    fn key(&self) -> &Revision {
        &self.revision
    }
    fn separator(&self) -> Revision {
        self.revision
    }
}

// By hand, because companions need not be printable and values may be secrets: neither is shown.
impl<X> fmt::Debug for Entry<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key)
            .field("created", &self.created)
            .field("revision", &self.revision)
            .field("bytes", &self.value.len())
            .finish_non_exhaustive()
    }
}

impl<X, Y> fmt::Debug for Event<X, Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("kind", &self.kind)
            .field("revision", &self.revision)
            .field("entry", &self.entry)
            .field("previous", &self.previous)
            .finish_non_exhaustive()
    }
}
