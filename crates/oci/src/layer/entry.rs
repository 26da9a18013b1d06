//! Entries of a tar: headers, extended headers, and what they say together.

use std::io::Read;

use tar::Header;

use super::error::{LayerProblem, LimitKind};
use super::{MAX_PATH_LENGTH, read::read_full};

pub(super) const BLOCK: usize = 512;

/// The largest extended header. Attributes have up to 64 KiB each; Go's reader has this limit too.
const MAX_EXTENDED_HEADER: u64 = 1 << 20;

/// One entry of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerEntry {
    /// Its number within the layer, from 0.
    pub ordinal: u32,
    /// Its name, as the layer has it.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// The target of a link; else empty.
    pub link: Vec<u8>,
    /// The size of its content.
    pub size: u64,
    /// Owner, permissions, times and extended attributes.
    pub attributes: Attributes,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file.
    File,
    /// Another name of a file.
    HardLink,
    /// A symbolic link.
    Symlink,
    /// A directory.
    Directory,
    /// A device or a named pipe.
    Special,
}

/// What a file has besides its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attributes {
    /// Permissions, with the set-id and sticky bits.
    pub mode: u32,
    /// The number of the owner.
    pub uid: u64,
    /// The number of the group.
    pub gid: u64,
    /// The name of the owner.
    pub user: Vec<u8>,
    /// The name of the group.
    pub group: Vec<u8>,
    /// When the content was changed.
    pub mtime: Mtime,
    /// Extended attributes, sorted by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A time of modification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    /// Seconds since 1970, rounded down.
    pub seconds: i64,
    /// Nanoseconds after that.
    pub nanoseconds: u32,
}

/// Reads entries one after the other.
pub(super) struct Entries {
    ordinal: u32,
}

/// A key and a value of an extended header.
type Record = (Vec<u8>, Vec<u8>);

/// Extended headers that describe the next entry.
#[derive(Default)]
struct Extensions {
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    records: Option<Vec<Record>>,
}

impl Entries {
    pub(super) const fn new() -> Self {
        Self { ordinal: 0 }
    }

    /// Reads up to the content of the next entry. `name` is set as soon as it is known.
    pub(super) fn next(
        &mut self,
        reader: &mut dyn Read,
        name: &mut Option<Vec<u8>>,
    ) -> Result<Option<LayerEntry>, LayerProblem> {
        let mut extensions = Extensions::default();
        loop {
            let Some(header) = read_header(reader)? else {
                return if extensions.is_empty() {
                    Ok(None)
                } else {
                    Err(malformed("an extended header describes no entry"))
                };
            };
            let size = size(&header)?;
            let kind = match header.as_bytes()[156] {
                b'x' => {
                    let data = read_extension(reader, size)?;
                    if extensions.records.replace(parse_records(&data)?).is_some() {
                        return Err(malformed("two extended headers describe one entry"));
                    }
                    continue;
                }
                // Runtimes ignore records for all entries.
                b'g' => {
                    read_extension(reader, size)?;
                    continue;
                }
                b'L' => {
                    let data = read_extension(reader, size)?;
                    if extensions.long_name.replace(until_nul(&data)).is_some() {
                        return Err(malformed("two long names for one entry"));
                    }
                    continue;
                }
                b'K' => {
                    let data = read_extension(reader, size)?;
                    if extensions.long_link.replace(until_nul(&data)).is_some() {
                        return Err(malformed("two long link names for one entry"));
                    }
                    continue;
                }
                b'S' => {
                    *name = Some(header.path_bytes().into_owned());
                    return Err(LayerProblem::Sparse);
                }
                // The oldest format has no type for directories.
                0 if header.path_bytes().ends_with(b"/") => EntryKind::Directory,
                0 | b'0' | b'7' => EntryKind::File,
                b'1' => EntryKind::HardLink,
                b'2' => EntryKind::Symlink,
                b'3' | b'4' | b'6' => EntryKind::Special,
                b'5' => EntryKind::Directory,
                other => {
                    *name = Some(header.path_bytes().into_owned());
                    let shown = char::from(other).escape_default();
                    return Err(malformed(format!("unknown type of entry '{shown}'")));
                }
            };
            let entry = self.entry(&header, kind, size, extensions, name)?;
            return Ok(Some(entry));
        }
    }

    fn entry(
        &mut self,
        header: &Header,
        kind: EntryKind,
        size: u64,
        extensions: Extensions,
        name: &mut Option<Vec<u8>>,
    ) -> Result<LayerEntry, LayerProblem> {
        let Extensions { long_name, long_link, records } = extensions;
        let number = |field: std::io::Result<u64>, what: &str| {
            field.map_err(|_| malformed(format!("{what} is not a number")))
        };
        let ordinal = self.ordinal;
        self.ordinal = ordinal
            .checked_add(1)
            .ok_or(LayerProblem::Limit { kind: LimitKind::Entries, limit: u64::from(u32::MAX) })?;
        let mut entry = LayerEntry {
            ordinal,
            name: long_name.unwrap_or_else(|| header.path_bytes().into_owned()),
            kind,
            link: match (kind, long_link) {
                (EntryKind::HardLink | EntryKind::Symlink, Some(link)) => link,
                (EntryKind::HardLink | EntryKind::Symlink, None) => {
                    header.link_name_bytes().map(|link| link.into_owned()).unwrap_or_default()
                }
                (EntryKind::File | EntryKind::Directory | EntryKind::Special, _) => Vec::new(),
            },
            size,
            attributes: Attributes {
                mode: header.mode().map_err(|_| malformed("the mode is not a number"))? & 0o7777,
                uid: number(header.uid(), "the user id")?,
                gid: number(header.gid(), "the group id")?,
                user: header.username_bytes().unwrap_or_default().to_vec(),
                group: header.groupname_bytes().unwrap_or_default().to_vec(),
                mtime: header_mtime(header)?,
                xattrs: Vec::new(),
            },
        };
        *name = Some(entry.name.clone());
        for (key, value) in records.unwrap_or_default() {
            apply_record(&mut entry, &key, value)?;
        }
        *name = Some(entry.name.clone());
        entry.attributes.xattrs.sort();
        // Only files have content, whatever the header says: as the runtimes read it.
        if !has_content(header.as_bytes()[156]) {
            entry.size = 0;
        }
        for text in [&entry.name, &entry.link] {
            if text.len() > MAX_PATH_LENGTH {
                return Err(LayerProblem::Name("or its link is longer than 4096 bytes"));
            }
            if text.contains(&0) {
                return Err(LayerProblem::Name("or its link contains a zero byte"));
            }
        }
        Ok(entry)
    }
}

impl Extensions {
    const fn is_empty(&self) -> bool {
        self.long_name.is_none() && self.long_link.is_none() && self.records.is_none()
    }
}

const fn has_content(flag: u8) -> bool {
    matches!(flag, 0 | b'0' | b'7')
}

fn malformed(why: impl Into<String>) -> LayerProblem {
    LayerProblem::Malformed(why.into())
}

/// Reads a header; none at the end. One block of zeros must be followed by another, or by nothing.
fn read_header(reader: &mut dyn Read) -> Result<Option<Header>, LayerProblem> {
    let mut header = Header::new_old();
    match read_full(reader, header.as_mut_bytes())? {
        0 => return Ok(None),
        BLOCK => {}
        _ => return Err(LayerProblem::Truncated),
    }
    if header.as_bytes().iter().all(|byte| *byte == 0) {
        let mut second = [0; BLOCK];
        return match read_full(reader, &mut second)? {
            0 => Ok(None),
            BLOCK if second.iter().all(|byte| *byte == 0) => Ok(None),
            BLOCK => Err(malformed("an entry follows a block of zeros")),
            _ => Err(LayerProblem::Truncated),
        };
    }
    let bytes = header.as_bytes();
    let rest = || bytes[..148].iter().chain(&bytes[156..]);
    let unsigned = rest().map(|byte| i64::from(*byte)).sum::<i64>() + 8 * 32;
    // Some old writers added bytes with their sign.
    let signed = rest().map(|byte| i64::from(byte.cast_signed())).sum::<i64>() + 8 * 32;
    let expected = header.cksum().map_err(|_| malformed("the checksum is not a number"))?;
    if ![unsigned, signed].contains(&i64::from(expected)) {
        return Err(malformed("the checksum of a header is wrong"));
    }
    Ok(Some(header))
}

fn size(header: &Header) -> Result<u64, LayerProblem> {
    let field = &header.as_bytes()[124..136];
    // A number in base 256 has twelve bytes; more than eight of them would be cut silently.
    if field[0] & 0x80 != 0 && (field[0] != 0x80 || field[1..4] != [0, 0, 0]) {
        return Err(malformed("the size is out of range"));
    }
    header.entry_size().map_err(|_| malformed("the size is not a number"))
}

fn header_mtime(header: &Header) -> Result<Mtime, LayerProblem> {
    let field = &header.as_bytes()[136..148];
    if field.iter().all(|byte| matches!(byte, 0 | b' ')) {
        return Ok(Mtime::default());
    }
    let seconds = header.mtime().map_err(|_| malformed("the time is not a number"))?;
    // Times before 1970 are negative numbers in base 256, of which the lower half is read.
    let seconds = if field[0] & 0xc0 == 0xc0 {
        seconds.cast_signed()
    } else {
        i64::try_from(seconds).map_err(|_| malformed("the time is out of range"))?
    };
    Ok(Mtime { seconds, nanoseconds: 0 })
}

fn read_extension(reader: &mut dyn Read, size: u64) -> Result<Vec<u8>, LayerProblem> {
    if size > MAX_EXTENDED_HEADER {
        let kind = LimitKind::ExtendedHeaderBytes;
        return Err(LayerProblem::Limit { kind, limit: MAX_EXTENDED_HEADER });
    }
    let size = usize::try_from(size).map_err(|_| malformed("the size is out of range"))?;
    let mut data = vec![0; size.div_ceil(BLOCK) * BLOCK];
    if read_full(reader, &mut data)? < data.len() {
        return Err(LayerProblem::Truncated);
    }
    data.truncate(size);
    Ok(data)
}

fn until_nul(data: &[u8]) -> Vec<u8> {
    data.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

/// Reads records of the form `length key=value\n`. Values may contain any byte.
fn parse_records(mut data: &[u8]) -> Result<Vec<Record>, LayerProblem> {
    let wrong = || malformed("an extended header has a malformed record");
    let mut records = Vec::new();
    while !data.is_empty() {
        let space = data.iter().take(20).position(|byte| *byte == b' ').ok_or_else(wrong)?;
        let length = decimal(&data[..space]).ok_or_else(wrong)?;
        let length = usize::try_from(length).map_err(|_| wrong())?;
        if length > data.len() || length < space + 2 || data[length - 1] != b'\n' {
            return Err(wrong());
        }
        let record = &data[space + 1..length - 1];
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
        if equals == 0 {
            return Err(wrong());
        }
        records.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        data = &data[length..];
    }
    Ok(records)
}

fn apply_record(entry: &mut LayerEntry, key: &[u8], value: Vec<u8>) -> Result<(), LayerProblem> {
    // An empty value leaves what the header says.
    if value.is_empty() {
        return Ok(());
    }
    let number = |what: &str| {
        decimal(&value).ok_or_else(|| malformed(format!("the extended {what} is not a number")))
    };
    match key {
        b"size" => entry.size = number("size")?,
        b"uid" => entry.attributes.uid = number("user id")?,
        b"gid" => entry.attributes.gid = number("group id")?,
        b"mtime" => {
            entry.attributes.mtime =
                parse_mtime(&value).ok_or_else(|| malformed("the extended time is no number"))?;
        }
        b"path" => entry.name = value,
        b"linkpath" if matches!(entry.kind, EntryKind::HardLink | EntryKind::Symlink) => {
            entry.link = value;
        }
        b"uname" => entry.attributes.user = value,
        b"gname" => entry.attributes.group = value,
        _ if key.starts_with(b"GNU.sparse.") => return Err(LayerProblem::Sparse),
        _ => {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                let xattrs = &mut entry.attributes.xattrs;
                xattrs.retain(|(other, _)| other != name);
                xattrs.push((name.to_vec(), value));
            }
        }
    }
    Ok(())
}

fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn parse_mtime(text: &[u8]) -> Option<Mtime> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let seconds = i64::try_from(decimal(parts.next()?)?).ok()?;
    let fraction = parts.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    let nanoseconds = digits.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    Some(match (negative, nanoseconds) {
        (false, _) => Mtime { seconds, nanoseconds },
        (true, 0) => Mtime { seconds: -seconds, nanoseconds: 0 },
        (true, _) => Mtime { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
    })
}

impl std::fmt::Display for Mtime {
    /// Writes the form of extended headers.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mut sign, mut seconds, mut nanoseconds) =
            ("", i128::from(self.seconds), self.nanoseconds);
        if seconds < 0 {
            sign = "-";
            if nanoseconds > 0 {
                nanoseconds = 1_000_000_000 - nanoseconds;
                seconds += 1;
            }
        }
        write!(f, "{sign}{}", seconds.abs())?;
        if nanoseconds > 0 {
            write!(f, "{}", format!(".{nanoseconds:09}").trim_end_matches('0'))?;
        }
        Ok(())
    }
}
