//! Checkpoints: everything up to one revision in one file, so that the log before it can be
//! removed.
//!
//! Windows survive a restart, so a checkpoint contains them too. For every space it has the
//! revision its window starts after, the entries as they were then, and the changes since: reading
//! it is replaying a short log. It is written beside the old one and replaces it when it is
//! complete.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{Disk, File};
use crate::error::OpenError;
use crate::header::{self, Header, HeaderError};
use crate::log::file_offset;
use crate::record::{self, Decoded, Operation, Record};
use crate::state::{CheckedChange, State, WorkingState};
use crate::{Entry, EventKind, Revision};

/// A checkpoint that is being written.
pub(crate) const TEMPORARY_FILE: &str = "checkpoint.tmp";
const PREFIX: &str = "checkpoint-";

/// Bytes handed to the disk, or taken from it, at a time.
const CHUNK_BYTES: usize = 1 << 20;

pub(crate) fn name(revision: Revision) -> String {
    format!("{PREFIX}{:020}", revision.get())
}

/// The revision in the name of a checkpoint.
pub(crate) fn revision(name: &str) -> Option<Revision> {
    let digits = name.strip_prefix(PREFIX).filter(|digits| digits.len() == 20)?;
    digits.parse().ok().map(Revision::new)
}

/// Writes a checkpoint, makes it durable, and removes the ones before it.
pub(crate) fn write<X, Y>(disk: &dyn Disk, store: u64, state: &State<X, Y>) -> io::Result<()> {
    if disk.list()?.iter().any(|name| name == TEMPORARY_FILE) {
        disk.remove(TEMPORARY_FILE)?;
    }
    let written = dump(disk, store, state).and_then(|()| {
        disk.rename(TEMPORARY_FILE, &name(state.revision))?;
        disk.sync()
    });
    written.inspect_err(|_| {
        // What was taken so far must not keep the disk full; the next attempt removes it otherwise.
        drop(disk.remove(TEMPORARY_FILE));
    })?;
    remove_older(disk, state.revision)
}

/// Removes checkpoints that a newer one has replaced.
pub(crate) fn remove_older(disk: &dyn Disk, newest: Revision) -> io::Result<()> {
    let names = disk.list()?;
    let older = names.iter().filter(|name| revision(name).is_some_and(|older| older < newest));
    for name in older {
        disk.remove(name)?;
    }
    Ok(())
}

fn dump<X, Y>(disk: &dyn Disk, store: u64, state: &State<X, Y>) -> io::Result<()> {
    let header = Header::checkpoint(store, state.revision.get());
    let file = disk.create(TEMPORARY_FILE)?;
    let mut out =
        CheckpointWriter { file, seed: header.seed(), buffer: Vec::new(), offset: 0, records: 0 };
    out.buffer.extend_from_slice(&header.encode());
    let spaces = state.spaces.iter().map(|space| Arc::clone(&space.name));
    let windows = state.windows.iter().map(|window| Arc::clone(&window.name));
    for space in spaces.chain(windows).collect::<BTreeSet<_>>() {
        let floor = state.floor(&space);
        let start = Record::mark(Operation::Floor, floor.get(), 0, 0);
        out.put(&Record { space: &space, ..start })?;
        for entry in state.entries_at(&space, floor).iter() {
            out.put(&entry_record(Operation::Entry, &space, entry))?;
        }
        for event in state.windows.get(&space).iter().flat_map(|window| window.events.iter()) {
            let operation = match event.kind {
                EventKind::Put => Operation::Put,
                EventKind::Delete => Operation::Delete,
            };
            out.put(&entry_record(operation, &space, &event.entry))?;
        }
    }
    let (revision, floor, records) = (state.revision.get(), state.floor.get(), out.records);
    out.put(&Record::mark(Operation::Footer, revision, floor, records))?;
    out.write()?;
    out.file.sync()
}

fn entry_record<'a, X>(operation: Operation, space: &'a str, entry: &'a Entry<X>) -> Record<'a> {
    let (revision, created) = (entry.revision.get(), entry.created.get());
    let (key, value) = (&entry.key, &entry.value);
    Record { operation, revision, durable: 0, created, space, key, value }
}

struct CheckpointWriter {
    file: Box<dyn File>,
    seed: u32,
    buffer: Vec<u8>,
    offset: u64,
    records: u64,
}

impl CheckpointWriter {
    fn put(&mut self, record: &Record<'_>) -> io::Result<()> {
        record.encode(self.seed, &mut self.buffer);
        self.records += 1;
        if self.buffer.len() >= CHUNK_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.offset)?;
        self.offset += file_offset(self.buffer.len());
        self.buffer.clear();
        Ok(())
    }
}

/// Reads a checkpoint into an empty state and returns which store it belongs to.
pub(crate) fn read<X: Default, Y: Default>(
    disk: &dyn Disk,
    revision: Revision,
    into: &mut WorkingState<X, Y>,
) -> Result<u64, OpenError> {
    let path = disk.path(&name(revision));
    let failed = |source| OpenError::Io { path: path.clone(), source };
    let file = disk.open(&name(revision)).map_err(failed)?;
    let len = file.len().map_err(failed)?;
    let mut input = CheckpointReader { file, len, offset: 0, buffer: Vec::new(), start: 0 };
    let damaged = |offset| OpenError::DamagedCheckpoint { path: path.clone(), offset };
    let expected = Header::checkpoint(0, revision.get());
    let header = match expected.decode(input.take(header::HEADER_BYTES).map_err(failed)?) {
        Ok(header) => header,
        Err(HeaderError::Damaged) => return Err(damaged(0)),
        Err(HeaderError::Newer(found)) => {
            return Err(OpenError::NewerFormat { path, found, supported: header::FORMAT });
        }
    };
    let mut records = 0;
    loop {
        let offset = input.offset;
        let Some(record) = input.record(header.seed()).map_err(failed)? else {
            return Err(damaged(offset));
        };
        if record.operation == Operation::Footer {
            let complete = record.created == records && record.revision == revision.get();
            let floor = Revision::new(record.durable);
            if !complete || input.offset != len {
                return Err(damaged(offset));
            }
            into.state.floor = floor;
            into.state.revision = revision;
            return Ok(header.store);
        }
        if load(&record, into).is_none() {
            return Err(damaged(offset));
        }
        records += 1;
    }
}

/// Loads a record; `None` if it does not belong in a checkpoint.
fn load<X: Default, Y: Default>(record: &Record<'_>, into: &mut WorkingState<X, Y>) -> Option<()> {
    let space = into.name(record.space);
    let revision = Revision::new(record.revision);
    let key = Bytes::copy_from_slice(record.key);
    let value = Bytes::copy_from_slice(record.value);
    let kind = match record.operation {
        Operation::Floor => {
            into.set_floor(&space, revision);
            return Some(());
        }
        Operation::Entry => {
            let created = Revision::new(record.created);
            into.load(&space, Entry { key, created, revision, value, extra: X::default() });
            return Some(());
        }
        Operation::Put => EventKind::Put,
        Operation::Delete => EventKind::Delete,
        Operation::Mark | Operation::Skip | Operation::Footer => return None,
    };
    into.apply(CheckedChange { space, key, kind, revision, value });
    Some(())
}

/// A file read from front to end.
struct CheckpointReader {
    file: Box<dyn File>,
    len: u64,
    /// Where in the file the next byte to be taken is.
    offset: u64,
    buffer: Vec<u8>,
    /// Where in the buffer it is.
    start: usize,
}

impl CheckpointReader {
    /// The next record, or nothing if there is no sound one.
    fn record(&mut self, seed: u32) -> io::Result<Option<Record<'_>>> {
        let Some(size) = record::frame_size(self.peek(4)?) else { return Ok(None) };
        // A damaged length must not make us ask for more memory than the file is long.
        if file_offset(size) > self.len - self.offset {
            return Ok(None);
        }
        match Record::decode(self.take(size)?, seed) {
            Decoded::Record(record, _) => Ok(Some(record)),
            Decoded::Empty | Decoded::Corrupt => Ok(None),
        }
    }

    fn take(&mut self, bytes: usize) -> io::Result<&[u8]> {
        let taken = self.peek(bytes)?.len();
        let start = self.start;
        self.start += taken;
        self.offset += file_offset(taken);
        Ok(&self.buffer[start..start + taken])
    }

    /// The next bytes; fewer at the end of the file.
    fn peek(&mut self, bytes: usize) -> io::Result<&[u8]> {
        let have = self.buffer.len() - self.start;
        if have < bytes {
            self.buffer.drain(..self.start);
            self.start = 0;
            let left = usize::try_from(self.len - self.offset).unwrap_or(usize::MAX);
            self.buffer.resize(left.min(bytes.max(CHUNK_BYTES)), 0);
            self.file.read_exact_at(&mut self.buffer[have..], self.offset + file_offset(have))?;
        }
        let end = self.buffer.len().min(self.start + bytes);
        Ok(&self.buffer[self.start..end])
    }
}
