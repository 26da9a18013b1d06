//! One file of the log.

use std::io;

use crate::disk::{Disk, File};
use crate::header::{self, Header};
use crate::log::file_offset;
use crate::record;

/// A file that is not ready yet.
pub(crate) const TEMPORARY_FILE: &str = "segment.tmp";

const LOG: &str = "log-";
const SPARE: &str = "spare-";

/// Zeros are written this many bytes at a time.
const CHUNK_BYTES: usize = 1 << 20;

pub(crate) fn log_name(number: u64) -> String {
    format!("{LOG}{number:020}")
}

pub(crate) fn spare_name(number: u64) -> String {
    format!("{SPARE}{number:020}")
}

/// The number in the name of a log file. One so large that there could be none after it is not
/// ours.
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
/// header is damaged, never half made. What a spare holds need not be erased if none of it can pass
/// for something of this file; any other spare is removed.
pub(crate) fn prepare(
    disk: &dyn Disk,
    spare: Option<&str>,
    number: u64,
    store: u64,
    bytes: usize,
) -> io::Result<Box<dyn File>> {
    let header = Header::log(store, number);
    if let Some(spare) = spare {
        let file = disk.open(spare)?;
        if file.len()? == file_offset(bytes) && is_reusable(&*file, bytes, &header)? {
            file.write_all_at(&header.encode(), 0)?;
            file.sync()?;
            disk.rename(spare, &log_name(number))?;
            disk.sync()?;
            return Ok(file);
        }
        disk.remove(spare)?;
    }
    let header = header.encode();
    create(disk, &header, number, bytes).inspect_err(|_| {
        // What was taken so far must not keep the disk full. If this fails as well, the next
        // attempt or the next start removes it.
        drop(disk.remove(TEMPORARY_FILE));
    })
}

/// Whether nothing in a file can pass for a record under a new header.
///
/// In one store a file gets greater numbers each time: if its last use had a smaller one than the
/// new, so had all before. One that was prepared and not needed then may have been begun, or have
/// lost its place to another since: every place in it is looked at.
fn is_reusable(file: &dyn File, bytes: usize, new: &Header) -> io::Result<bool> {
    let mut start = [0; header::HEADER_BYTES];
    file.read_exact_at(&mut start, 0)?;
    let Ok(old) = Header::any_log(&start) else { return Ok(false) };
    if old.store != new.store {
        return Ok(false);
    }
    if old.number < new.number {
        return Ok(true);
    }
    let mut content = vec![0; bytes];
    file.read_exact_at(&mut content, 0)?;
    Ok(record::all(&content, header::HEADER_BYTES, new.seed()).next().is_none())
}

/// Makes a log file that begins with these bytes and is zero otherwise. It replaces one that has
/// its number already.
pub(crate) fn create(
    disk: &dyn Disk,
    start: &[u8],
    number: u64,
    bytes: usize,
) -> io::Result<Box<dyn File>> {
    if disk.list()?.iter().any(|name| name == TEMPORARY_FILE) {
        disk.remove(TEMPORARY_FILE)?;
    }
    let file = disk.create(TEMPORARY_FILE)?;
    file.allocate(file_offset(bytes))?;
    let zeros = vec![0; CHUNK_BYTES.min(bytes)];
    let mut offset = 0;
    while offset < bytes {
        let part = zeros.len().min(bytes - offset);
        file.write_all_at(&zeros[..part], file_offset(offset))?;
        offset += part;
    }
    file.write_all_at(start, 0)?;
    file.sync()?;
    disk.rename(TEMPORARY_FILE, &log_name(number))?;
    disk.sync()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::simulated::SimulatedDisk;
    use crate::record::{Operation, Record};

    const BYTES: usize = 4608;

    /// A spare whose last use had this header, with a record of it and perhaps of another.
    fn spare(disk: &SimulatedDisk, last: &Header, records_of: &[Header]) {
        let mut bytes = last.encode().to_vec();
        for header in records_of {
            Record::mark(Operation::Mark, 9, 9, 0).encode(header.seed(), &mut bytes);
        }
        bytes.resize(BYTES, 0);
        disk.create("spare-x").unwrap().write_all_at(&bytes, 0).unwrap();
    }

    #[test]
    fn unsafe_spares_are_not_reused() {
        let old = Header::log(7, 3);
        let new = Header::log(7, 5);
        let table = [
            ("an earlier file of this store", old, vec![old], true),
            ("one of an earlier format", old.in_format(1), vec![old.in_format(1)], true),
            ("one that was prepared and not begun", new, vec![old], true),
            ("one that was begun", new, vec![old, new], false),
            ("a later one that was not begun", Header::log(7, 6), vec![old], true),
            ("a later one that was this one before", Header::log(7, 6), vec![new], false),
            ("another store's", Header::log(8, 3), vec![new], false),
            ("nobody's", Header::checkpoint(7, 3), vec![new], false),
        ];
        for (why, last, records_of, used) in table {
            let disk = SimulatedDisk::default();
            spare(&disk, &last, &records_of);
            let file = prepare(&disk, Some("spare-x"), 5, 7, BYTES).unwrap();
            assert_eq!(disk.list().unwrap(), [log_name(5)], "{why}");
            let content = disk.content(&log_name(5));
            assert_eq!((content.len(), file.len().unwrap()), (BYTES, file_offset(BYTES)), "{why}");
            assert_eq!(Header::any_log(&content), Ok(new), "{why}");
            let erased = content[header::HEADER_BYTES..].iter().all(|byte| *byte == 0);
            assert_eq!(erased, !used, "{why}");
            assert_eq!(record::all(&content, 0, new.seed()).count(), 0, "{why}");
        }
    }

    #[test]
    fn a_spare_of_another_size_is_removed() {
        let disk = SimulatedDisk::default();
        spare(&disk, &Header::log(7, 3), &[]);
        drop(prepare(&disk, Some("spare-x"), 5, 7, 2 * BYTES).unwrap());
        assert_eq!(disk.list().unwrap(), [log_name(5)]);
        assert_eq!(disk.content(&log_name(5)).len(), 2 * BYTES);
    }
}
