//! Opening a directory: the newest checkpoint, then the log after it.

use std::path::PathBuf;
use std::sync::Arc;

use crate::checkpoint;
use crate::disk::Disk;
use crate::error::{Damage, OpenError};
use crate::header;
use crate::log::{self, ActiveSegment, Log, segment};
use crate::options::{OnDamage, Options};
use crate::state::WorkingState;
use crate::{Revision, log::file_offset};

mod repair;
mod replay;

use replay::Replay;

/// What was recovered on open. Nothing in it is a problem unless [`Self::repair`] is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The revision from which the store continues.
    pub revision: Revision,
    /// The revision of the checkpoint that was read.
    pub checkpoint: Option<Revision>,
    /// Changes that were read from the log after it.
    pub changes: u64,
    /// Files of the log that were read.
    pub segments: usize,
    /// The unfinished end of the log that was dropped.
    pub torn_tail: Option<TornTail>,
    /// What a repair gave up.
    pub repair: Option<RepairReport>,
}

/// The end of a log that was being written when the machine stopped.
///
/// None of it had been acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub path: PathBuf,
    /// Where in it the sound part ends.
    pub offset: u64,
    /// Whole changes after an unfinished one.
    pub changes: u64,
}

/// What a repair gave up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairReport {
    /// What was wrong.
    pub damage: Damage,
    /// Where the damaged and the later parts of the log were put.
    pub moved_aside: Vec<PathBuf>,
    /// The revision from which the store continues, beyond all that may have been assigned.
    pub resumed: Revision,
}

/// Reads a directory and leaves its log ready to be appended to.
pub(crate) fn recover<X: Default, Y: Default>(
    disk: Arc<dyn Disk>,
    options: &Options,
) -> Result<(WorkingState<X, Y>, Log, Recovery), OpenError> {
    let whole = |source| OpenError::Io { path: disk.path(""), source };
    let names = disk.list().map_err(whole)?;
    for name in names
        .iter()
        .filter(|name| [checkpoint::TEMPORARY_FILE, segment::TEMPORARY_FILE].contains(&&***name))
    {
        disk.remove(name).map_err(whole)?;
    }
    let mut working = WorkingState::new(options.window.clone());
    let found = names.iter().filter_map(|name| checkpoint::revision(name)).max();
    let mut store = None;
    if let Some(revision) = found {
        store = Some(checkpoint::read(&*disk, revision, &mut working)?);
        checkpoint::remove_older(&*disk, revision).map_err(whole)?;
    }
    let mut numbers: Vec<_> = names.iter().filter_map(|name| segment::log_number(name)).collect();
    numbers.sort_unstable();
    let mut spares: Vec<_> = names.into_iter().filter(|name| segment::is_spare(name)).collect();

    let mut replay = Replay::new(&*disk, &mut working, store, found);
    let damage = replay.run(&numbers, &spares)?;
    let read = replay.finish();
    let is_new = found.is_none() && read.used.is_empty();
    // A new store shares nothing with one whose files are still there. Any number will do: it is
    // not used to choose anything.
    let known = read.store.filter(|_| !is_new || damage.is_some());
    let store = known.unwrap_or_else(|| fastrand::u64(1..));
    let mut recovery = Recovery {
        revision: working.state.revision,
        checkpoint: found,
        changes: read.changes,
        segments: read.used.len(),
        torn_tail: read.torn_tail.clone(),
        repair: None,
    };
    let last = numbers.last().copied().unwrap_or(0);
    let active = match damage {
        Some(damage) if options.damage == OnDamage::Refuse => return Err(damage.into()),
        Some(damage) => {
            let segment_bytes = options.segment_bytes;
            let repair = repair::Repair { disk: &*disk, store, segment_bytes, replay: &read, last };
            let (active, mut repaired) =
                repair.run(damage, working.state.revision).map_err(whole)?;
            if is_new {
                // All that is left of the former log.
                let spares = std::mem::take(&mut spares);
                repaired
                    .moved_aside
                    .extend(repair.move_aside(&spares, repaired.resumed).map_err(whole)?);
            }
            working.discard_history(repaired.resumed);
            recovery.revision = repaired.resumed;
            recovery.repair = Some(repaired);
            active
        }
        None => {
            spares.extend(read.set_unused_aside(&*disk).map_err(whole)?);
            match read.end {
                // Ended on purpose, with nothing behind the end: appending can continue here.
                Some(end) if end.sealed => {
                    let file = disk.open(&segment::log_name(end.number)).map_err(whole)?;
                    ActiveSegment { file, number: end.number, offset: end.offset }
                }
                Some(_) | None => {
                    read.rewrite_last_batch(&*disk).map_err(whole)?;
                    let number = read.used.last().map_or(1, |last| last + 1);
                    let spare = spares.pop();
                    let bytes = options.segment_bytes;
                    let file = segment::prepare(&*disk, spare.as_deref(), number, store, bytes);
                    ActiveSegment {
                        file: file.map_err(whole)?,
                        number,
                        offset: header::HEADER_BYTES,
                    }
                }
            }
        }
    };
    let closed = read.used.iter().copied().filter(|number| *number < active.number).collect();
    let revision = working.state.revision;
    let log = Log::new(disk, store, options.segment_bytes, active, closed, spares, revision)?;
    Ok((working, log, recovery))
}

/// Checks for problems that would otherwise show only once a file is full.
pub(crate) fn check_options(options: &Options) -> Result<(), OpenError> {
    // A page; anything smaller is a mistake, and the log could not continue past its own marks.
    if log::max_record_bytes(options.segment_bytes) < 4000
        || !options.segment_bytes.is_multiple_of(8)
    {
        return Err(OpenError::Options("segments that are too small or not a multiple of 8 bytes"));
    }
    if file_offset(options.segment_bytes) > u64::from(u32::MAX) {
        return Err(OpenError::Options("segments of more than 4 GiB"));
    }
    if options.queue == 0 {
        return Err(OpenError::Options("no room for changes that wait"));
    }
    Ok(())
}
