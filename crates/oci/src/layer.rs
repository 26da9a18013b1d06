//! Layers: reading them as a stream of entries, and writing them reproducibly.
//!
//! Blocks and their fields are read with crate `tar`'s header type. Its archive reader is not
//! used, for three reasons that its source shows: it splits extended headers at line breaks, so a
//! binary attribute (`security.capability`) with a byte 10 makes the archive unreadable; it reads
//! long names and extended headers of any length into memory; and it takes the length of links and
//! directories from the header, where the runtimes that unpack images take none, so that one
//! archive would be two. The loop over blocks is here, with the rules of those runtimes, and is
//! compared with the system's `tar` in tests.

mod entry;
mod error;
mod index;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use entry::{Attributes, EntryKind, LayerEntry, Mtime};
pub use error::{LayerError, LayerProblem, LimitKind};
pub(crate) use index::TarIndex;
pub(crate) use read::{Budget, read_layer_within};
pub use read::{Limits, read_layer};
pub(crate) use write::write_header;
pub use write::{LayerBlob, NewEntry, NewEntryKind, write_layer};

/// The longest path of an entry, as Linux has it.
pub const MAX_PATH_LENGTH: usize = 4096;

/// The longest name within a directory, as Linux has it.
pub const MAX_NAME_LENGTH: usize = 255;
