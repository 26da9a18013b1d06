//! Writes layers: the same entries give the same bytes.

use std::io::{self, Write};

use flate2::{Compression as Level, GzBuilder};
use tar::Header;

use super::entry::{Attributes, BLOCK};
use crate::digest::{Algorithm, Digest, Hasher};
use crate::manifest::Descriptor;
use crate::media_type::{Family, MediaType};

/// The compression of new layers. Stored here because another level is another digest.
const GZIP_LEVEL: u32 = 6;

/// An entry of a new layer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NewEntry {
    /// Its path, without a slash at the start.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: NewEntryKind,
    /// Owner, permissions, times and extended attributes.
    pub attributes: Attributes,
}

/// What an entry of a new layer is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NewEntryKind {
    /// A file with this content.
    File(Vec<u8>),
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// Another name of the file with this path.
    HardLink(Vec<u8>),
}

/// A layer that is ready to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerBlob {
    /// The tar, compressed with gzip.
    pub content: Vec<u8>,
    /// The digest of the tar before compression.
    pub diff_id: Digest,
}

impl LayerBlob {
    /// Describes the layer for a manifest of this family.
    #[must_use]
    pub fn descriptor(&self, family: Family) -> Descriptor {
        Descriptor::of(MediaType::gzip_layer_of(family), &self.content)
    }
}

/// Writes a layer with these entries, sorted by path.
///
/// # Errors
///
/// An entry that a tar cannot hold.
pub fn write_layer(entries: &[NewEntry]) -> io::Result<LayerBlob> {
    let mut sorted: Vec<&NewEntry> = entries.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let gzip = GzBuilder::new().mtime(0).write(Vec::new(), Level::new(GZIP_LEVEL));
    let mut tee = Tee { gzip, hasher: Hasher::new(Algorithm::Sha256) };
    for entry in sorted {
        write_entry(&mut tee, entry)?;
    }
    tee.write_all(&[0; 2 * BLOCK])?;
    Ok(LayerBlob { content: tee.gzip.finish()?, diff_id: tee.hasher.finish() })
}

struct Tee<W> {
    gzip: W,
    hasher: Hasher,
}

impl<W: Write> Write for Tee<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.gzip.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.gzip.flush()
    }
}

fn write_entry(out: &mut dyn Write, entry: &NewEntry) -> io::Result<()> {
    let (flag, link, content): (u8, &[u8], &[u8]) = match &entry.kind {
        NewEntryKind::File(content) => (b'0', b"", content),
        NewEntryKind::Directory => (b'5', b"", b""),
        NewEntryKind::Symlink(target) => (b'2', target, b""),
        NewEntryKind::HardLink(target) => (b'1', target, b""),
    };
    let mut name = entry.path.clone();
    if flag == b'5' {
        name.push(b'/');
    }
    write_header(out, flag, &name, link, content.len() as u64, &entry.attributes)?;
    out.write_all(content)?;
    let padding = content.len().next_multiple_of(BLOCK) - content.len();
    out.write_all(&[0; BLOCK][..padding])
}

/// Writes the header of an entry, after an extended header for what does not fit into it.
pub(crate) fn write_header(
    out: &mut dyn Write,
    flag: u8,
    name: &[u8],
    link: &[u8],
    size: u64,
    attributes: &Attributes,
) -> io::Result<()> {
    let mut records = Vec::new();
    let name = text_field(&mut records, "path", name, 100);
    let link = text_field(&mut records, "linkpath", link, 100);
    let user = text_field(&mut records, "uname", &attributes.user, 31);
    let group = text_field(&mut records, "gname", &attributes.group, 31);
    let uid = number_field(&mut records, "uid", attributes.uid, 0o7_777_777);
    let gid = number_field(&mut records, "gid", attributes.gid, 0o7_777_777);
    let size = number_field(&mut records, "size", size, 0o77_777_777_777);
    let mtime = u64::try_from(attributes.mtime.seconds).unwrap_or(0);
    let exact = attributes.mtime.nanoseconds == 0 && attributes.mtime.seconds >= 0;
    if !exact || mtime > 0o77_777_777_777 {
        let text = attributes.mtime.to_string();
        records.push(("mtime".as_bytes().to_vec(), text.into_bytes()));
    }
    let mtime = mtime.min(0o77_777_777_777);
    for (xattr, value) in &attributes.xattrs {
        records.push(([b"SCHILY.xattr.", xattr.as_slice()].concat(), value.clone()));
    }
    if !records.is_empty() {
        records.sort();
        let data: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
        let mut header = header(b'x', b"PaxHeader", b"", data.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        out.write_all(header.as_bytes())?;
        out.write_all(&data)?;
        let padding = data.len().next_multiple_of(BLOCK) - data.len();
        out.write_all(&[0; BLOCK][..padding])?;
    }
    let mut header = header(flag, name, link, size);
    header.set_mode(attributes.mode & 0o7777);
    header.set_uid(uid);
    header.set_gid(gid);
    header.set_mtime(mtime);
    if let Some(ustar) = header.as_ustar_mut() {
        ustar.uname[..user.len()].copy_from_slice(user);
        ustar.gname[..group.len()].copy_from_slice(group);
    }
    header.set_cksum();
    out.write_all(header.as_bytes())
}

fn header(flag: u8, name: &[u8], link: &[u8], size: u64) -> Header {
    let mut header = Header::new_ustar();
    let old = header.as_old_mut();
    old.name[..name.len()].copy_from_slice(name);
    old.linkname[..link.len()].copy_from_slice(link);
    old.linkflag = [flag];
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// The part of a text that fits into the header; a text that does not becomes a record.
fn text_field<'a>(
    records: &mut Vec<(Vec<u8>, Vec<u8>)>,
    key: &str,
    value: &'a [u8],
    length: usize,
) -> &'a [u8] {
    if value.len() <= length && value.is_ascii() {
        return value;
    }
    records.push((key.as_bytes().to_vec(), value.to_vec()));
    &value[..value.len().min(length)]
}

fn number_field(records: &mut Vec<(Vec<u8>, Vec<u8>)>, key: &str, value: u64, largest: u64) -> u64 {
    if value <= largest {
        return value;
    }
    records.push((key.as_bytes().to_vec(), value.to_string().into_bytes()));
    0
}

/// Writes `length key=value\n`, where the length counts its own digits.
fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    [format!("{length} ").as_bytes(), key, b"=", value, b"\n"].concat()
}
