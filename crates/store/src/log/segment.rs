//! One file of the log.

use std::io;

use crate::disk::{Disk, File};
use crate::header::Header;
use crate::log::at;

/// A file that is not ready yet.
pub(crate) const UNREADY: &str = "segment.tmp";

const LOG: &str = "log-";
const SPARE: &str = "spare-";

/// Zeros are written this many bytes at a time.
const CHUNK: usize = 1 << 20;

pub(crate) fn log_name(number: u64) -> String {
    format!("{LOG}{number:020}")
}

pub(crate) fn spare_name(number: u64) -> String {
    format!("{SPARE}{number:020}")
}

/// The number in the name of a log file. One so large that there could be none after it is not ours.
pub(crate) fn log_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(LOG).filter(|digits| digits.len() == 20)?;
    digits.parse().ok().filter(|number| *number < u64::MAX / 2)
}

pub(crate) fn is_spare(name: &str) -> bool {
    name.starts_with(SPARE)
}

/// Makes a log file ready to be appended to, from a spare if there is one.
///
/// It gets its name only when its header is on disk: a file with the name of a log file and a bad
/// header is damaged, never half made. What a spare holds need not be erased, because the checksums
/// of its records belong to another number.
pub(crate) fn prepare(
    disk: &dyn Disk,
    spare: Option<&str>,
    number: u64,
    store: u64,
    bytes: usize,
) -> io::Result<Box<dyn File>> {
    let header = Header::log(store, number).encode();
    if let Some(spare) = spare {
        let file = disk.open(spare)?;
        if file.len()? == at(bytes) {
            file.write_all_at(&header, 0)?;
            file.sync()?;
            disk.rename(spare, &log_name(number))?;
            disk.sync()?;
            return Ok(file);
        }
        // From a time when files had another size.
        disk.remove(spare)?;
    }
    create(disk, &header, number, bytes).inspect_err(|_| {
        // What was taken so far must not keep the disk full. If this fails as well, the next
        // attempt or the next start removes it.
        drop(disk.remove(UNREADY));
    })
}

/// Makes a log file that begins with these bytes and is zero otherwise. It replaces one that has
/// its number already.
pub(crate) fn create(
    disk: &dyn Disk,
    start: &[u8],
    number: u64,
    bytes: usize,
) -> io::Result<Box<dyn File>> {
    if disk.list()?.iter().any(|name| name == UNREADY) {
        disk.remove(UNREADY)?;
    }
    let file = disk.create(UNREADY)?;
    file.allocate(at(bytes))?;
    let zeros = vec![0; CHUNK.min(bytes)];
    let mut offset = 0;
    while offset < bytes {
        let part = zeros.len().min(bytes - offset);
        file.write_all_at(&zeros[..part], at(offset))?;
        offset += part;
    }
    file.write_all_at(start, 0)?;
    file.sync()?;
    disk.rename(UNREADY, &log_name(number))?;
    disk.sync()?;
    Ok(file)
}
