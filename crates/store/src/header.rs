//! What every file of the store begins with.
//!
//! ```text
//! 8 bytes magic | u32 format | u32 0 | u64 store | u64 number | 28 zeros | u32 checksum
//! ```

use crate::record::{u32_at, u64_at};

/// Bytes of a header; records follow it.
pub(crate) const HEADER_BYTES: usize = 64;
/// The format this version writes, and the newest it reads.
///
/// In format 1 every file had the same seed, see [`Header::seed`]. It is read, and not written.
pub(crate) const FORMAT: u32 = 2;

const CHECKSUM_OFFSET: usize = HEADER_BYTES - 4;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    kind: Kind,
    pub(crate) format: u32,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Newer(u32),
    Damaged,
}

impl Header {
    pub(crate) fn log(store: u64, number: u64) -> Self {
        Self { kind: Kind::Log, format: FORMAT, store, number }
    }

    pub(crate) fn checkpoint(store: u64, revision: u64) -> Self {
        Self { kind: Kind::Checkpoint, format: FORMAT, store, number: revision }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(self.kind.magic());
        out[8..12].copy_from_slice(&self.format.to_le_bytes());
        out[16..24].copy_from_slice(&self.store.to_le_bytes());
        out[24..32].copy_from_slice(&self.number.to_le_bytes());
        let checksum = crc32c::crc32c(&out[..CHECKSUM_OFFSET]);
        out[CHECKSUM_OFFSET..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the header of a log file, whichever it is.
    pub(crate) fn any_log(bytes: &[u8]) -> Result<Self, HeaderError> {
        let number = u64_at(bytes, 24).ok_or(HeaderError::Damaged)?;
        Self::log(0, number).decode(bytes)
    }

    /// Reads a header of the same kind and number as the one expected; format and store are as
    /// found.
    pub(crate) fn decode(&self, bytes: &[u8]) -> Result<Self, HeaderError> {
        let damaged = || HeaderError::Damaged;
        let bytes = bytes.get(..HEADER_BYTES).ok_or_else(damaged)?;
        if &bytes[..8] != self.kind.magic() {
            return Err(HeaderError::Damaged);
        }
        // Before the checksum, whose place a newer format may have moved.
        let format = u32_at(bytes, 8).ok_or_else(damaged)?;
        if format > FORMAT {
            return Err(HeaderError::Newer(format));
        }
        let store = u64_at(bytes, 16).ok_or_else(damaged)?;
        let number = u64_at(bytes, 24).ok_or_else(damaged)?;
        let sound =
            u32_at(bytes, CHECKSUM_OFFSET) == Some(crc32c::crc32c(&bytes[..CHECKSUM_OFFSET]));
        if !sound || number != self.number || format == 0 {
            return Err(HeaderError::Damaged);
        }
        Ok(Self { format, store, ..*self })
    }

    /// The same header as an earlier format had it.
    pub(crate) fn in_format(self, format: u32) -> Self {
        Self { format, ..self }
    }

    /// Where the checksums of the file's records start: at another place for every header.
    ///
    /// The header's own checksum is left out. A sum over something followed by its own sum is the
    /// same for everything, which is why in format 1 the files could not be told apart.
    pub(crate) fn seed(&self) -> u32 {
        let bytes = self.encode();
        let summed = if self.format == 1 { &bytes[..] } else { &bytes[..CHECKSUM_OFFSET] };
        crc32c::crc32c(summed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What one file holds never passes for what another holds.
        #[test]
        fn no_two_headers_have_the_same_seed(
            store in any::<u64>(),
            number in 0..1_u64 << 40,
            distance in 1..u64::from(u32::MAX),
        ) {
            let seeds = [
                Header::log(store, number),
                Header::log(store, number + distance),
                Header::log(store ^ distance, number),
                Header::checkpoint(store, number),
                Header::log(store, number).in_format(1),
            ]
            .map(|header| header.seed());
            for (at, seed) in seeds.iter().enumerate() {
                prop_assert!(!seeds[..at].contains(seed), "{at} of {seeds:?}");
            }
        }

        /// So whatever one of them holds has to be told from the rest by other means.
        #[test]
        fn all_headers_of_the_first_format_have_the_same_seed(store in any::<u64>(), number in any::<u64>()) {
            let seed = Header::log(store, number).in_format(1).seed();
            prop_assert_eq!(seed, 0x4867_4bc7);
        }

        #[test]
        fn encoded_headers_decode(store in any::<u64>(), number in any::<u64>(), format in 1..3_u32) {
            let header = Header::log(store, number).in_format(format);
            prop_assert_eq!(Header::any_log(&header.encode()), Ok(header));
            let other = Header::log(store, number ^ 1).decode(&header.encode());
            prop_assert_eq!(other, Err(HeaderError::Damaged));
        }
    }
}
