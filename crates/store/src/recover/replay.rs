//! Replays the log, file by file, until it ends or is damaged.

use std::io;

use bytes::Bytes;

use crate::checkpoint;
use crate::disk::Disk;
use crate::error::{Damage, DamageKind, OpenError};
use crate::header::{self, Header, HeaderError};
use crate::log::{file_offset, segment};
use crate::record::{self, Decoded, Operation, Record};
use crate::recover::TornTail;
use crate::state::{CheckedChange, WorkingState};
use crate::{EventKind, Revision};

/// A replay in progress.
pub(super) struct Replay<'a, X, Y> {
    disk: &'a dyn Disk,
    working: &'a mut WorkingState<X, Y>,
    checkpoint: Option<Revision>,
    /// The revision of the checkpoint; changes up to it are read but not made again.
    covered: u64,
    /// The revision up to which the log has been replayed.
    last: Option<u64>,
    /// The first file, if it continues something that does not exist.
    detached: Option<u64>,
    /// Whole records found where they do not follow.
    stray: StrayRecords,
    result: ReplayResult,
}

/// The result of a replay.
pub(super) struct ReplayResult {
    pub(super) store: Option<u64>,
    pub(super) changes: u64,
    /// Files whose content is part of the log.
    pub(super) used: Vec<u64>,
    /// Files after the end that hold nothing, and those that hold part of an unfinished batch.
    pub(super) unused: Vec<u64>,
    torn: Vec<u64>,
    pub(super) end: Option<LogEnd>,
    pub(super) torn_tail: Option<TornTail>,
    /// The revision up to which the log was replayed.
    pub(super) reached: Option<u64>,
}

/// Where the log ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogEnd {
    pub(super) number: u64,
    pub(super) offset: usize,
    /// Where the last batch starts, and since when it is the last.
    batch: usize,
    durable: u64,
    /// The last record marks that the log was ended on purpose, and nothing follows it.
    pub(super) sealed: bool,
    /// What is there looks like the start of the next change.
    begun: bool,
}

/// A file, and what is wrong with it.
type DamagedFile = (String, DamageKind);

#[derive(Default)]
struct StrayRecords {
    changes: u64,
    newest: u64,
    /// The greatest revision that any of them records as durable.
    durable: u64,
}

impl<'a, X: Default, Y: Default> Replay<'a, X, Y> {
    pub(super) fn new(
        disk: &'a dyn Disk,
        working: &'a mut WorkingState<X, Y>,
        store: Option<u64>,
        checkpoint: Option<Revision>,
    ) -> Self {
        let (used, unused, torn) = (Vec::new(), Vec::new(), Vec::new());
        let read = ReplayResult {
            store,
            changes: 0,
            used,
            unused,
            torn,
            end: None,
            torn_tail: None,
            reached: None,
        };
        let (last, detached, stray) = (None, None, StrayRecords::default());
        // Without a checkpoint the log must begin where every store does.
        let covered = checkpoint.unwrap_or(Revision::EMPTY).get();
        Self { disk, working, checkpoint, covered, last, detached, stray, result: read }
    }

    /// Reads the files with these numbers and makes their changes. Returns the damage, if any, that
    /// lies between what could be read and what had been safely written.
    pub(super) fn run(
        &mut self,
        numbers: &[u64],
        spares: &[String],
    ) -> Result<Option<Damage>, OpenError> {
        let mut broken = None;
        let mut before: Option<u64> = None;
        // One for all files: getting fresh memory for each takes longer than reading it.
        let mut bytes = Vec::new();
        for number in numbers {
            let next = before.map_or(*number, |before| before + 1);
            before = Some(*number);
            if next != *number && broken.is_none() {
                broken = Some((segment::log_name(next), DamageKind::Missing));
            }
            if !self.segment(*number, broken.is_some(), &mut bytes)? && broken.is_none() {
                broken = Some((segment::log_name(*number), DamageKind::DamagedAt(0)));
            }
        }
        let lost = self.stray.durable > self.last.unwrap_or(0);
        let left = self.orphaned_spare(spares, &mut bytes)?;
        let first = numbers.first().copied();
        let wrong = match broken {
            None if lost => self.cut_off(first),
            None => self.missing(first, left),
            Some(_) => broken,
        };
        Ok(wrong.map(|(name, flaw)| self.damage(&name, flaw)))
    }

    /// Where the log stops although later records are there.
    fn cut_off(&self, first: Option<u64>) -> Option<DamagedFile> {
        let (number, flaw) = match (self.result.end, self.detached) {
            (Some(end), _) => (end.number, DamageKind::DamagedAt(file_offset(end.offset))),
            (None, Some(number)) => (number, DamageKind::PredecessorMissing),
            (None, None) => (first?, DamageKind::DamagedAt(file_offset(header::HEADER_BYTES))),
        };
        Some((segment::log_name(number), flaw))
    }

    /// What is known to be missing, by what exists.
    fn missing(&self, first: Option<u64>, left: Option<String>) -> Option<DamagedFile> {
        match (self.checkpoint, self.result.end) {
            // The log was there before the checkpoint was, and up to it.
            (Some(revision), _) if self.last.is_some_and(|last| last >= revision.get()) => None,
            (Some(_), Some(end)) if end.begun => self.cut_off(first),
            (Some(_), Some(end)) => {
                Some((segment::log_name(end.number), DamageKind::SuccessorMissing))
            }
            (Some(revision), None) => {
                Some((checkpoint::name(revision), DamageKind::SuccessorMissing))
            }
            (None, Some(_)) => None,
            // The first file exists before anything is written to it, a later one after it.
            (None, None) => match first.filter(|number| *number > 1) {
                Some(number) => Some((segment::log_name(number), DamageKind::PredecessorMissing)),
                None => left.map(|name| (name, DamageKind::Orphaned)),
            },
        }
    }

    /// The first spare that was part of a log, if there is nothing from which a store could
    /// continue.
    fn orphaned_spare(
        &mut self,
        spares: &[String],
        bytes: &mut Vec<u8>,
    ) -> Result<Option<String>, OpenError> {
        if self.checkpoint.is_some() || self.result.end.is_some() {
            return Ok(None);
        }
        let mut left = None;
        for name in spares {
            self.load(name, bytes)?;
            let Some(header) = self.header(name, Header::any_log(bytes))? else { continue };
            let found = self.search(bytes, header::HEADER_BYTES, header.seed());
            // The first file may have become a spare before anything was written to it.
            if (found > 0 || header.number > 1) && left.is_none() {
                left = Some(name.clone());
            }
        }
        Ok(left)
    }

    /// The header that was read from a file, or nothing if it is damaged.
    fn header(
        &self,
        name: &str,
        read: Result<Header, HeaderError>,
    ) -> Result<Option<Header>, OpenError> {
        match read {
            Ok(header) => Ok(Some(header)),
            Err(HeaderError::Damaged) => Ok(None),
            Err(HeaderError::Newer(found)) => {
                let (path, supported) = (self.disk.path(name), header::FORMAT);
                Err(OpenError::NewerFormat { path, found, supported })
            }
        }
    }

    fn load(&self, name: &str, bytes: &mut Vec<u8>) -> Result<(), OpenError> {
        let failed = |source| OpenError::Io { path: self.disk.path(name), source };
        let file = self.disk.open(name).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        bytes.resize(usize::try_from(len).map_err(io::Error::other).map_err(failed)?, 0);
        file.read_exact_at(bytes, 0).map_err(failed)
    }

    pub(super) fn finish(mut self) -> ReplayResult {
        self.result.reached = self.last;
        if let Some(end) = &self.result.end
            && (self.stray.changes > 0 || end.begun)
        {
            let path = self.disk.path(&segment::log_name(end.number));
            let (offset, changes) = (file_offset(end.offset), self.stray.changes);
            self.result.torn_tail = Some(TornTail { path, offset, changes });
        }
        self.result
    }

    /// Reads one file. Says whether its header is sound.
    fn segment(
        &mut self,
        number: u64,
        broken: bool,
        bytes: &mut Vec<u8>,
    ) -> Result<bool, OpenError> {
        let name = segment::log_name(number);
        self.load(&name, bytes)?;
        let header = self.header(&name, Header::log(0, number).decode(bytes))?;
        let known = self.result.store;
        let header = header.filter(|header| known.is_none_or(|store| store == header.store));
        let Some(header) = header else {
            if let Some(store) = known {
                for format in 1..=header::FORMAT {
                    let seed = Header::log(store, number).in_format(format).seed();
                    self.search(bytes, header::HEADER_BYTES, seed);
                }
            }
            return Ok(false);
        };
        self.result.store = Some(header.store);
        let first = self.last.is_none();
        let end = if broken { None } else { self.apply_records(bytes, header.seed(), number) };
        if end.is_none() && first && self.detached.is_none() {
            let start = bytes.get(header::HEADER_BYTES..).unwrap_or_default();
            let whole = matches!(Record::decode(start, header.seed()), Decoded::Record(..));
            self.detached = whole.then_some(number);
        }
        if end.is_some() {
            // The log continues here: what was left in the file before does not matter.
            self.stray = StrayRecords::default();
        }
        let rest = end.map_or(header::HEADER_BYTES, |end| end.offset);
        let found = self.search(bytes, rest, header.seed());
        match end {
            Some(mut end) => {
                // Records of this format cannot go on in a file of an earlier one.
                end.sealed &= found == 0 && header.format == header::FORMAT;
                self.result.used.push(number);
                self.result.end = Some(end);
            }
            None if found == 0 => self.result.unused.push(number),
            // Anything of its own in it makes a file unfit for use under the same number.
            None => self.result.torn.push(number),
        }
        Ok(true)
    }

    /// Makes the changes a file holds, and returns where they end if there are any records.
    fn apply_records(&mut self, bytes: &[u8], seed: u32, number: u64) -> Option<LogEnd> {
        let mut end: Option<LogEnd> = None;
        let mut offset = header::HEADER_BYTES;
        loop {
            let rest = bytes.get(offset..).unwrap_or_default();
            let record = match Record::decode(rest, seed) {
                Decoded::Record(record, size) => Some((record, size)),
                Decoded::Empty | Decoded::Corrupt => None,
            };
            let Some((record, size)) = record.filter(|(record, _)| self.is_next_record(record))
            else {
                let claimed = record::claimed_revision(rest);
                let started = rest.get(..4).is_some_and(|length| length != [0; 4]);
                let next = self.last.and_then(|last| last.checked_add(1));
                if let Some(end) = &mut end {
                    end.begun = started && claimed.is_some() && claimed == next;
                }
                return end;
            };
            let same = end.filter(|end| end.durable == record.durable);
            let batch = same.map_or(offset, |end| end.batch);
            offset += size;
            let sealed = record.operation == Operation::Mark;
            let durable = record.durable;
            end = Some(LogEnd { number, offset, batch, durable, sealed, begun: false });
            self.apply_record(&record);
        }
    }

    /// Whether a record is the one that comes next.
    fn is_next_record(&self, record: &Record<'_>) -> bool {
        let is_covered = (Revision::EMPTY.get()..=self.covered).contains(&record.revision);
        let forward = record.revision > record.created;
        match (record.operation, self.last) {
            (Operation::Put | Operation::Delete, Some(last)) => {
                last.checked_add(1) == Some(record.revision)
            }
            (Operation::Mark, Some(last)) => record.revision == last,
            (Operation::Mark, None) => is_covered,
            (Operation::Skip, Some(last)) => forward && record.created == last,
            (Operation::Skip, None) => forward && (record.created == self.covered || is_covered),
            (Operation::Put | Operation::Delete, None)
            | (Operation::Entry | Operation::Floor | Operation::Footer, _) => false,
        }
    }

    fn apply_record(&mut self, record: &Record<'_>) {
        self.last = Some(record.revision);
        if record.revision <= self.covered {
            return;
        }
        let kind = match record.operation {
            Operation::Put => EventKind::Put,
            Operation::Delete => EventKind::Delete,
            Operation::Skip => return self.working.discard_history(Revision::new(record.revision)),
            Operation::Mark | Operation::Entry | Operation::Floor | Operation::Footer => return,
        };
        let space = self.working.name(record.space);
        let key = Bytes::copy_from_slice(record.key);
        let mut value = Bytes::copy_from_slice(record.value);
        if kind == EventKind::Delete && value.is_empty() {
            // Written when there was no space for more: what it was stands in what came before.
            let before = self.working.get(&space, &key);
            value = before.map_or(value, |entry| entry.value.clone());
        }
        let revision = Revision::new(record.revision);
        self.working.apply(CheckedChange { space, key, kind, revision, value });
        self.result.changes += 1;
    }

    /// Records and counts the records after a position that are newer than what was read.
    fn search(&mut self, bytes: &[u8], from: usize, seed: u32) -> usize {
        match self.last {
            Some(last) => self.stray.note_records(record::search(bytes, from, seed, last)),
            None => self.stray.note_records(record::all(bytes, from, seed)),
        }
    }

    fn damage(&self, name: &str, flaw: DamageKind) -> Damage {
        let last_good = self.working.state.revision;
        Damage {
            path: self.disk.path(name),
            flaw,
            last_good,
            later: self.stray.changes,
            newest: last_good.max(Revision::new(self.stray.newest)),
        }
    }
}

impl StrayRecords {
    /// Records and counts records.
    fn note_records<'a>(&mut self, records: impl Iterator<Item = Record<'a>>) -> usize {
        let mut found = 0;
        for record in records {
            let change = matches!(record.operation, Operation::Put | Operation::Delete);
            self.changes += u64::from(change);
            self.newest = self.newest.max(record.revision);
            self.durable = self.durable.max(record.durable);
            found += 1;
        }
        found
    }
}

impl ReplayResult {
    /// Makes files after the end spare ones, or removes those that hold part of a lost batch.
    pub(super) fn set_unused_aside(&self, disk: &dyn Disk) -> io::Result<Vec<String>> {
        let mut spares = Vec::new();
        let mut numbers: Vec<_> = self.torn.iter().chain(&self.unused).copied().collect();
        // The last one first: if power is lost half-way, those that remain leave no gap.
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        for number in numbers {
            let name = segment::log_name(number);
            if self.torn.contains(&number) {
                disk.remove(&name)?;
            } else {
                let spare = segment::spare_name(number);
                disk.rename(&name, &spare)?;
                spares.push(spare);
            }
        }
        if !(self.torn.is_empty() && self.unused.is_empty()) {
            disk.sync()?;
        }
        Ok(spares)
    }

    /// Writes the last batch once more.
    ///
    /// If the synchronisation of it failed, it may have been read from memory that the system
    /// believes to be on disk and will not write again by itself.
    pub(super) fn rewrite_last_batch(&self, disk: &dyn Disk) -> io::Result<()> {
        let Some(end) = self.end else { return Ok(()) };
        let file = disk.open(&segment::log_name(end.number))?;
        let mut batch = vec![0; end.offset - end.batch];
        file.read_exact_at(&mut batch, file_offset(end.batch))?;
        file.write_all_at(&batch, file_offset(end.batch))?;
        file.sync()
    }
}
