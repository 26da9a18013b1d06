//! What every file of the store begins with.
//!
//! ```text
//! 8 bytes magic | u32 format | u32 0 | u64 store | u64 number | 28 zeros | u32 checksum
//! ```

use crate::record::{u32_at, u64_at};

/// Bytes of a header; records follow it.
pub(crate) const SIZE: usize = 64;
/// The format this version writes, and the newest it reads.
pub(crate) const FORMAT: u32 = 1;

const CHECKSUM: usize = SIZE - 4;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    kind: Kind,
    /// A random number all files of one store share: files of another are not mixed in.
    pub(crate) store: u64,
    /// The number of a log file, or the revision of a checkpoint.
    pub(crate) number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Log,
    Checkpoint,
}

impl Kind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Log => b"gantrylg",
            Self::Checkpoint => b"gantrycp",
        }
    }
}

/// Why the start of a file is not a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Newer(u32),
    Damaged,
}

impl Header {
    pub(crate) fn log(store: u64, number: u64) -> Self {
        Self { kind: Kind::Log, store, number }
    }

    pub(crate) fn checkpoint(store: u64, revision: u64) -> Self {
        Self { kind: Kind::Checkpoint, store, number: revision }
    }

    pub(crate) fn encode(&self) -> [u8; SIZE] {
        let mut out = [0; SIZE];
        out[..8].copy_from_slice(self.kind.magic());
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[16..24].copy_from_slice(&self.store.to_le_bytes());
        out[24..32].copy_from_slice(&self.number.to_le_bytes());
        let checksum = crc32c::crc32c(&out[..CHECKSUM]);
        out[CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads a header of the same kind and number as the one expected; the store is as found.
    pub(crate) fn decode(&self, bytes: &[u8]) -> Result<Self, Unreadable> {
        let damaged = || Unreadable::Damaged;
        let bytes = bytes.get(..SIZE).ok_or_else(damaged)?;
        if &bytes[..8] != self.kind.magic() {
            return Err(Unreadable::Damaged);
        }
        // Before the checksum, whose place a newer format may have moved.
        let format = u32_at(bytes, 8).ok_or_else(damaged)?;
        if format > FORMAT {
            return Err(Unreadable::Newer(format));
        }
        let store = u64_at(bytes, 16).ok_or_else(damaged)?;
        let number = u64_at(bytes, 24).ok_or_else(damaged)?;
        let sound = u32_at(bytes, CHECKSUM) == Some(crc32c::crc32c(&bytes[..CHECKSUM]));
        if !sound || number != self.number || format == 0 {
            return Err(Unreadable::Damaged);
        }
        Ok(Self { store, ..*self })
    }

    /// Where the checksums of the file's records start.
    pub(crate) fn seed(&self) -> u32 {
        crc32c::crc32c(&self.encode())
    }
}
