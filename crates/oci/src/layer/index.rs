//! Where the files of a tar are, for tars that are read at random.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};

use super::entry::{BLOCK, Entries, EntryKind};
use super::error::{LayerProblem, LimitKind};

/// The most entries of such a tar: a layout has a few files for each image.
const MAX_ENTRIES: u64 = 100_000;

/// The longest target of a symbolic link that is followed.
const MAX_LINK_LENGTH: usize = 255;

/// The places of the files of a tar, by their names.
#[derive(Debug)]
pub(crate) struct TarIndex {
    files: BTreeMap<Vec<u8>, (u64, u64)>,
    /// The names that symbolic links lead to.
    links: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl TarIndex {
    /// Reads all headers and skips all content.
    pub(crate) fn read(reader: &mut (impl Read + Seek)) -> Result<Self, LayerProblem> {
        let end = reader.seek(SeekFrom::End(0)).map_err(LayerProblem::Io)?;
        reader.seek(SeekFrom::Start(0)).map_err(LayerProblem::Io)?;
        let (mut entries, mut files, mut count) = (Entries::new(), BTreeMap::new(), 0);
        let mut links = BTreeMap::new();
        while let Some(entry) = entries.next(reader, &mut None)? {
            count += 1;
            if count > MAX_ENTRIES {
                return Err(LayerProblem::Limit { kind: LimitKind::Entries, limit: MAX_ENTRIES });
            }
            let position = reader.stream_position().map_err(LayerProblem::Io)?;
            let padded = entry.size.checked_next_multiple_of(BLOCK as u64);
            let next = padded.and_then(|padded| position.checked_add(padded));
            let next = next.filter(|next| *next <= end).ok_or(LayerProblem::Truncated)?;
            let name = entry.name.strip_prefix(b"./").unwrap_or(&entry.name).to_vec();
            if entry.kind == EntryKind::File {
                files.insert(name, (position, entry.size));
            } else if entry.kind == EntryKind::Symlink && entry.link.len() <= MAX_LINK_LENGTH {
                links.extend(target(&name, &entry.link).map(|target| (name, target)));
            }
            reader.seek(SeekFrom::Start(next)).map_err(LayerProblem::Io)?;
        }
        Ok(Self { files, links })
    }

    /// The place and the size of a file, or of the file that a symbolic link leads to.
    pub(crate) fn get(&self, name: &[u8]) -> Option<(u64, u64)> {
        let linked = || self.files.get(self.links.get(name)?);
        self.files.get(name).or_else(linked).copied()
    }

    /// The names of all files.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.files.keys().map(Vec::as_slice)
    }
}

/// The name that a symbolic link leads to; `None` if that is not in the tar.
fn target(name: &[u8], link: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').collect();
    parts.pop();
    if link.starts_with(b"/") {
        return None;
    }
    for part in link.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/'))
}
