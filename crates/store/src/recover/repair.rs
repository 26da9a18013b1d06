//! Repairs a log by dropping its damaged part, on request.

use std::io;
use std::path::PathBuf;

use crate::Revision;
use crate::disk::Disk;
use crate::error::Damage;
use crate::header::Header;
use crate::log::{ActiveSegment, file_offset, segment};
use crate::record::{Operation, Record};
use crate::recover::{RepairReport, replay::ReplayResult};

/// How far revisions jump beyond the newest one that was found.
///
/// Some that were assigned may have become unreadable, and none may be used twice. More than this
/// many do not fit in any damaged part that an administrator would repair.
const REVISION_JUMP: u64 = 1_000_000;

pub(super) struct Repair<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) store: u64,
    pub(super) segment_bytes: usize,
    pub(super) replay: &'a ReplayResult,
    /// The number of the last file.
    pub(super) last: u64,
}

impl Repair<'_> {
    /// Copies everything after the sound part aside and goes on in a new file.
    ///
    /// The new file takes its place in one step, after everything was copied and before anything is
    /// removed. If this is interrupted, either the log is still damaged and can be repaired again,
    /// or it is repaired.
    pub(super) fn run(
        &self,
        damage: Damage,
        kept: Revision,
    ) -> io::Result<(ActiveSegment, RepairReport)> {
        let resumed =
            Revision::new(damage.newest.get().max(kept.get()).saturating_add(REVISION_JUMP));
        // A log that ends before the checkpoint does has nothing to add to it.
        let end = self.replay.end.filter(|_| self.replay.reached == Some(kept.get()));
        let names = self.disk.list()?;
        let numbers = names.iter().filter_map(|name| segment::log_number(name));
        let is_sound = |number: &u64| end.is_some_and(|end| *number <= end.number);
        let given_up: Vec<_> = numbers.filter(|number| !is_sound(number)).collect();
        let mut aside = Vec::new();
        if let Some(end) = end {
            aside.extend(self.copy(end.number, end.offset, resumed)?);
        }
        for number in given_up.iter().filter(|number| !self.replay.unused.contains(number)) {
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
        let active = ActiveSegment { file, number, offset: start.len() };
        Ok((active, RepairReport { damage, moved_aside: aside, resumed }))
    }

    /// Moves files aside that contain nothing of the log, and returns where to.
    ///
    /// Only once the new log exists, which records that something was lost.
    pub(super) fn move_aside(
        &self,
        names: &[String],
        resumed: Revision,
    ) -> io::Result<Vec<PathBuf>> {
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
        file.read_exact_at(&mut rest, file_offset(offset))?;
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
