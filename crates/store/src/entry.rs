//! Entries, and the events that watches receive.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::Revision;
use crate::tree::Keyed;

/// The current or a former value of one key. It never changes; a write creates a new one.
///
/// `X` is for the user of the store: a place for data computed from the value, shared by all
/// holders of the entry. The store creates it with its default and never reads it.
pub struct Entry<X> {
    /// The key within its space.
    pub key: Bytes,
    /// The change that created the key; later changes keep it, deletion and re-creation do not.
    pub created: Revision,
    /// The change that wrote this value.
    pub revision: Revision,
    /// The value, with its revision written into it.
    pub value: Bytes,
    /// The user's data about the value.
    pub extra: X,
}

/// One change, as watches receive it.
///
/// `Y` is for the user of the store, as in [`Entry`].
pub struct Event<X, Y> {
    /// The revision of the change.
    pub revision: Revision,
    /// Whether it is a put or a deletion.
    pub kind: EventKind,
    /// The value after a put; the last value of what a deletion removed.
    pub entry: Arc<Entry<X>>,
    /// What the key held before, if anything.
    pub previous: Option<Arc<Entry<X>>>,
    /// The user's data about the event.
    pub extra: Y,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was created, if there was no previous entry, or replaced.
    Put,
    /// It was removed.
    Delete,
}

/// A value in two halves, between which the store writes the decimal revision of the change.
///
/// A value contains its own revision, which is known only when the change is committed. Splitting
/// it there lets the caller serialise it once, before the commit, and the writer insert the
/// revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Value {
    /// What comes before the revision.
    pub head: Bytes,
    /// What comes after it.
    pub tail: Bytes,
}

impl Value {
    /// The maximum length with the revision.
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

/// The memory of an entry beyond its bytes: itself, its reference counts, its slot in the tree.
const ENTRY_OVERHEAD: usize = 160;
/// The memory of an event beyond its entries.
const EVENT_OVERHEAD: usize = 128;

impl<X> Entry<X> {
    pub(crate) fn size(&self) -> usize {
        self.key.len() + self.value.len() + ENTRY_OVERHEAD
    }
}

impl<X, Y> Event<X, Y> {
    /// The memory that the event keeps allocated. Entries count even when others hold them too.
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

// By hand, because user data need not be printable and values may be secrets: neither is shown.
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
