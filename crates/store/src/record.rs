//! Records: the one form in which anything is written to disk.
//!
//! ```text
//! u32 length | u32 checksum | payload, padded with zeros to a multiple of 8
//! payload: u64 revision | u64 durable | u64 created | u8 operation | u8 0 | u16 space length
//!          | u32 key length | space | key | value
//! ```
//! Numbers are little-endian. The length is the payload's without padding. The checksum (CRC-32C)
//! covers the length and the padded payload, and starts from a seed that differs for every file and
//! for every time a file is reused, so that what an earlier use left behind never passes.

/// Records start at multiples of this, so that a search for them can step by it.
const RECORD_ALIGNMENT: usize = 8;
const FRAME_HEADER_BYTES: usize = 8;
const FIXED_FIELDS_BYTES: usize = 32;

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Operation {
    /// Log: a key was written.
    Put = 1,
    /// Log: a key was removed; the value is its last.
    Delete = 2,
    /// Log: everything up to this revision is durable, and nothing beyond it came before.
    Mark = 3,
    /// Log: a repair gave up everything after `created`; revisions continue after this one.
    Skip = 4,
    /// Checkpoint: a key as it was at its space's floor.
    Entry = 5,
    /// Checkpoint: a space begins; its changes after this revision follow its entries.
    Floor = 6,
    /// Checkpoint: the end; `created` is the number of records before.
    Footer = 7,
}

impl Operation {
    const ALL: [Self; 7] =
        [Self::Put, Self::Delete, Self::Mark, Self::Skip, Self::Entry, Self::Floor, Self::Footer];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| *operation as u8 == byte)
    }
}

/// One record. Fields an operation has no use for are zero or empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) operation: Operation,
    pub(crate) revision: u64,
    /// The last revision known to be on disk when this was written.
    ///
    /// This is what tells a torn tail from damage: a batch may reach the disk in any order before
    /// it is synchronised, but no record of a later batch is written until it is. If a record is
    /// bad and a later one has it as durable, the disk lost what it had promised to keep.
    pub(crate) durable: u64,
    pub(crate) created: u64,
    pub(crate) space: &'a str,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// What is found at a place in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded<'a> {
    /// A record, and how many bytes it takes.
    Record(Record<'a>, usize),
    /// Nothing was written here.
    Empty,
    /// Something that is not a whole record of this file.
    Corrupt,
}

/// Bytes of a record on disk, if it can be written at all.
pub(crate) fn size(space: usize, key: usize, value: usize) -> Option<usize> {
    let length = FIXED_FIELDS_BYTES.checked_add(space)?.checked_add(key)?.checked_add(value)?;
    let fits = u16::try_from(space).is_ok() && u32::try_from(length).is_ok();
    fits.then(|| FRAME_HEADER_BYTES + length.next_multiple_of(RECORD_ALIGNMENT))
}

impl<'a> Record<'a> {
    /// A record that only marks a revision.
    pub(crate) fn mark(operation: Operation, revision: u64, durable: u64, created: u64) -> Self {
        Self { operation, revision, durable, created, space: "", key: &[], value: &[] }
    }

    /// Appends the record. The caller has checked by [`size`] that it can be written.
    pub(crate) fn encode(&self, seed: u32, out: &mut Vec<u8>) {
        let length = FIXED_FIELDS_BYTES + self.space.len() + self.key.len() + self.value.len();
        let start = out.len();
        out.extend_from_slice(&low32(length).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.revision.to_le_bytes());
        out.extend_from_slice(&self.durable.to_le_bytes());
        out.extend_from_slice(&self.created.to_le_bytes());
        out.extend_from_slice(&[self.operation as u8, 0]);
        let space = u16::try_from(self.space.len()).expect("the size was checked");
        out.extend_from_slice(&space.to_le_bytes());
        out.extend_from_slice(&low32(self.key.len()).to_le_bytes());
        out.extend_from_slice(self.space.as_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        out.resize(start + FRAME_HEADER_BYTES + length.next_multiple_of(RECORD_ALIGNMENT), 0);
        let checksum = checksum(seed, &out[start..]);
        out[start + 4..start + FRAME_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads what is at the start of a buffer.
    pub(crate) fn decode(buffer: &'a [u8], seed: u32) -> Decoded<'a> {
        match frame_size(buffer) {
            None if buffer.get(..4).is_none_or(|length| length == [0; 4]) => Decoded::Empty,
            None => Decoded::Corrupt,
            Some(size) => buffer
                .get(..size)
                .and_then(|frame| Self::decode_frame(frame, seed))
                .map_or(Decoded::Corrupt, |record| Decoded::Record(record, size)),
        }
    }

    fn decode_frame(frame: &'a [u8], seed: u32) -> Option<Self> {
        if u32_at(frame, 4)? != checksum(seed, frame) {
            return None;
        }
        let length = usize::try_from(u32_at(frame, 0)?).ok()?;
        let payload = frame.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + length)?;
        let space = usize::from(u16::from_le_bytes(payload.get(26..28)?.try_into().ok()?));
        let key = usize::try_from(u32_at(payload, 28)?).ok()?;
        let (space, rest) = payload.get(FIXED_FIELDS_BYTES..)?.split_at_checked(space)?;
        let (key, value) = rest.split_at_checked(key)?;
        Some(Self {
            operation: Operation::from_byte(*payload.get(24)?)?,
            revision: u64_at(payload, 0)?,
            durable: u64_at(payload, 8)?,
            created: u64_at(payload, 16)?,
            space: std::str::from_utf8(space).ok()?,
            key,
            value,
        })
    }
}

/// Bytes of the record a buffer starts with, going by its length alone.
pub(crate) fn frame_size(buffer: &[u8]) -> Option<usize> {
    let length = usize::try_from(u32_at(buffer, 0)?).ok()?;
    (length >= FIXED_FIELDS_BYTES)
        .then(|| length.next_multiple_of(RECORD_ALIGNMENT).saturating_add(FRAME_HEADER_BYTES))
}

/// Whole records anywhere from a place on that are newer than a revision.
///
/// Looks at every place where one could start, because a damaged length says nothing about where
/// the next one is.
pub(crate) fn search(
    buffer: &[u8],
    from: usize,
    seed: u32,
    newer_than: u64,
) -> impl Iterator<Item = Record<'_>> {
    records_within(buffer, from, seed, newer_than, MAX_REVISION_SPAN)
}

/// Whole records of any revision anywhere from a place on.
pub(crate) fn all(buffer: &[u8], from: usize, seed: u32) -> impl Iterator<Item = Record<'_>> {
    records_within(buffer, from, seed, 0, u64::MAX)
}

/// How far revisions can possibly get between two checkpoints.
const MAX_REVISION_SPAN: u64 = 1 << 31;

fn records_within(
    buffer: &[u8],
    from: usize,
    seed: u32,
    newer_than: u64,
    far: u64,
) -> impl Iterator<Item = Record<'_>> {
    let mut at = from.next_multiple_of(RECORD_ALIGNMENT);
    std::iter::from_fn(move || {
        loop {
            at += next_revision(buffer.get(at + FRAME_HEADER_BYTES..)?, newer_than, far)?;
            let rest = buffer.get(at..)?;
            if is_plausible(rest)
                && let Decoded::Record(record, size) = Record::decode(rest, seed)
            {
                at += size;
                return Some(record);
            }
            at += RECORD_ALIGNMENT;
        }
    })
}

/// Where the next number is that could be a newer revision.
///
/// Nearly all of a file is passed over here, so this loop decides how long opening takes.
fn next_revision(words: &[u8], newer_than: u64, far: u64) -> Option<usize> {
    let numbers = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    let mut distances = numbers.map(|number| number.wrapping_sub(newer_than).wrapping_sub(1));
    distances.position(|distance| distance < far).map(|index| index * RECORD_ALIGNMENT)
}

/// Whether a checksum is worth computing.
///
/// A reused file is full of old records. Read at the wrong place, or even at the right one, each
/// would have a long stretch summed up; together that would take minutes.
fn is_plausible(rest: &[u8]) -> bool {
    let Some(payload) = rest.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + FIXED_FIELDS_BYTES)
    else {
        return false;
    };
    let field = |at: usize| u64_at(payload, at).unwrap_or(u64::MAX);
    field(8) <= field(0)
        && field(16) <= field(0)
        && payload[25] == 0
        && Operation::from_byte(payload[24]).is_some()
        && frame_size(rest).is_some_and(|size| size <= rest.len())
}

/// The revision a record here claims to have, whole or not.
pub(crate) fn claimed_revision(buffer: &[u8]) -> Option<u64> {
    u64_at(buffer, FRAME_HEADER_BYTES)
}

fn checksum(seed: u32, frame: &[u8]) -> u32 {
    let length = crc32c::crc32c_append(seed, &frame[..4]);
    crc32c::crc32c_append(length, &frame[FRAME_HEADER_BYTES..])
}

/// A length that [`size`] has found to fit.
fn low32(length: usize) -> u32 {
    u32::try_from(length).expect("the size was checked")
}

pub(crate) fn u32_at(buffer: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(buffer.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn u64_at(buffer: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(buffer.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_parts() -> impl Strategy<Value = (usize, u64, String, Vec<u8>, Vec<u8>)> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..100);
        (0..Operation::ALL.len(), any::<u64>(), "[a-z/]{0,20}", bytes(), bytes())
    }

    proptest! {
        #[test]
        fn encoded_records_decode(parts in any_parts(), seed in any::<u32>()) {
            let (operation, revision, space, key, value) = parts;
            let record = Record {
                operation: Operation::ALL[operation],
                revision,
                durable: revision.rotate_left(7),
                created: revision.rotate_left(21),
                space: &space,
                key: &key,
                value: &value,
            };
            let mut out = Vec::new();
            record.encode(seed, &mut out);
            prop_assert_eq!(Some(out.len()), size(space.len(), key.len(), value.len()));
            prop_assert_eq!(Record::decode(&out, seed), Decoded::Record(record.clone(), out.len()));
            // Under another seed it is what an earlier use of the file left behind.
            prop_assert_eq!(Record::decode(&out, seed ^ 1), Decoded::Corrupt);
            prop_assert_eq!(Record::decode(&out[..out.len() - 1], seed), Decoded::Corrupt);
            let placed = [&[1; 16], &*out].concat();
            let found = all(&placed, 0, seed).any(|found| found == record);
            prop_assert_eq!(found, revision > 0 && is_plausible(&out));
        }

        #[test]
        fn any_bytes_decode_without_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400),
            length in any::<u8>(),
        ) {
            // Lengths that fit, so that it is not the length alone that is found wrong.
            if let Some(start) = bytes.get_mut(..4) {
                start.copy_from_slice(&u32::from(length).to_le_bytes());
            }
            let found = Record::decode(&bytes, 0);
            prop_assert!(!matches!(found, Decoded::Record(..)));
            prop_assert_eq!(search(&bytes, 0, 0, 0).count(), 0);
            prop_assert_eq!(all(&bytes, 0, 0).count(), 0);
        }
    }
}
