//! Where the files of a tar are, for tars that are read at random.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};

use super::entry::{BLOCK, Entries, EntryKind};
use super::error::{LayerProblem, LimitKind};

/// The most entries of such a tar: a layout has a few files for each image.
const MAX_ENTRIES: u64 = 100_000;

/// The places of the files of a tar, by their names.
#[derive(Debug)]
pub(crate) struct TarIndex {
    files: BTreeMap<Vec<u8>, (u64, u64)>,
}

impl TarIndex {
    /// Reads all headers and skips all content.
    pub(crate) fn read(reader: &mut (impl Read + Seek)) -> Result<Self, LayerProblem> {
        let end = reader.seek(SeekFrom::End(0)).map_err(LayerProblem::Io)?;
        reader.seek(SeekFrom::Start(0)).map_err(LayerProblem::Io)?;
        let (mut entries, mut files, mut count) = (Entries::new(), BTreeMap::new(), 0);
        while let Some(entry) = entries.next(reader, &mut None)? {
            count += 1;
            if count > MAX_ENTRIES {
                return Err(LayerProblem::Limit { kind: LimitKind::Entries, limit: MAX_ENTRIES });
            }
            let position = reader.stream_position().map_err(LayerProblem::Io)?;
            let padded = entry.size.checked_next_multiple_of(BLOCK as u64);
            let next = padded.and_then(|padded| position.checked_add(padded));
            let next = next.filter(|next| *next <= end).ok_or(LayerProblem::Truncated)?;
            if entry.kind == EntryKind::File {
                let name = entry.name.strip_prefix(b"./").unwrap_or(&entry.name).to_vec();
                files.insert(name, (position, entry.size));
            }
            reader.seek(SeekFrom::Start(next)).map_err(LayerProblem::Io)?;
        }
        Ok(Self { files })
    }

    /// The place and the size of a file.
    pub(crate) fn get(&self, name: &[u8]) -> Option<(u64, u64)> {
        self.files.get(name).copied()
    }

    /// The names of all files.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.files.keys().map(Vec::as_slice)
    }
}
