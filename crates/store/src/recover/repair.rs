//! Giving up a damaged part of the log, on request.

use std::io;
use std::path::PathBuf;

use crate::Revision;
use crate::disk::Disk;
use crate::error::Damage;
use crate::header::Header;
use crate::log::{Active, at, segment};
use crate::record::{Operation, Record};
use crate::recover::{Repaired, replay::Read};

/// How far revisions jump beyond the newest one that was found.
///
/// Some that were given out may have become unreadable, and none may be used twice. More than this
/// many fit in no damaged part that anyone would repair.
const JUMP: u64 = 1_000_000;

pub(super) struct Repair<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) store: u64,
    pub(super) segment_bytes: usize,
    pub(super) read: &'a Read,
    /// The number of the last file.
    pub(super) last: u64,
}

impl Repair<'_> {
    /// Copies everything after the sound part aside and goes on in a new file.
    ///
    /// The new file takes its place in one step, after everything was copied and before anything is
    /// removed. If this is interrupted, either the log is still damaged and can be repaired again,
    /// or it is repaired.
    pub(super) fn run(&self, damage: Damage, kept: Revision) -> io::Result<(Active, Repaired)> {
        let resumed = Revision::new(damage.newest.get().max(kept.get()).saturating_add(JUMP));
        // A log that ends before the checkpoint does has nothing to add to it.
        let end = self.read.end.filter(|_| self.read.reached == Some(kept.get()));
        let names = self.disk.list()?;
        let numbers = names.iter().filter_map(|name| segment::log_number(name));
        let is_sound = |number: &u64| end.is_some_and(|end| *number <= end.number);
        let given_up: Vec<_> = numbers.filter(|number| !is_sound(number)).collect();
        let mut aside = Vec::new();
        if let Some(end) = end {
            aside.extend(self.copy(end.number, end.offset, resumed)?);
        }
        for number in given_up.iter().filter(|number| !self.read.unused.contains(number)) {
            aside.extend(self.copy(*number, 0, resumed)?);
        }
        self.disk.sync()?;
        let number = end.map_or(self.last, |end| end.number) + 1;
        let header = Header::log(self.store, number);
        let mut start = header.encode().to_vec();
        Record::mark(Operation::Skip, resumed.get(), kept.get(), kept.get())
            .encode(header.seed(), &mut start);
        let file = segment::create(self.disk, &start, number, self.segment_bytes)?;
        // From both ends towards the new one: if power is lost half-way, there is no gap behind it.
        let (mut before, mut after): (Vec<_>, Vec<_>) = given_up
            .into_iter()
            .filter(|other| *other != number)
            .partition(|other| *other < number);
        before.sort_unstable();
        after.sort_unstable_by(|a, b| b.cmp(a));
        for other in before.into_iter().chain(after) {
            self.disk.remove(&segment::log_name(other))?;
        }
        self.disk.sync()?;
        let active = Active { file, number, offset: start.len() };
        Ok((active, Repaired { damage, aside, resumed }))
    }

    /// Moves files aside that hold nothing of the log, and returns where to.
    ///
    /// Only once the new log is there, which says that something was lost.
    pub(super) fn keep(&self, names: &[String], resumed: Revision) -> io::Result<Vec<PathBuf>> {
        let mut aside = Vec::new();
        for name in names {
            let to = format!("damaged-{resumed}-{name}");
            self.disk.rename(name, &to)?;
            aside.push(self.disk.path(&to));
        }
        self.disk.sync()?;
        Ok(aside)
    }

    /// Copies the rest of a file, and returns where to.
    fn copy(&self, number: u64, offset: usize, resumed: Revision) -> io::Result<Option<PathBuf>> {
        let name = segment::log_name(number);
        let file = self.disk.open(&name)?;
        let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
        if offset >= len {
            return Ok(None);
        }
        let mut rest = vec![0; len - offset];
        file.read_exact_at(&mut rest, at(offset))?;
        let to = format!("damaged-{resumed}-{name}-from-{offset}");
        if self.disk.list()?.contains(&to) {
            // An earlier attempt was interrupted.
            self.disk.remove(&to)?;
        }
        let copy = self.disk.create(&to)?;
        copy.write_all_at(&rest, 0)?;
        copy.sync()?;
        Ok(Some(self.disk.path(&to)))
    }
}
