//! The log: changes in the order they were made, in files of one size.
//!
//! Files are filled with zeros before they are written to, or reused from before a checkpoint, so
//! that appending changes no file's size or place on disk: a synchronisation then writes the data
//! and nothing else. The next file is made ready in the background while one is being filled.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::disk::{Disk, File, is_full};
use crate::error::Failure;
use crate::header::{self, Header};
use crate::record::{self, Operation, Record};
use crate::{Entry, Revision};

pub(crate) mod segment;

use segment::{log_name, prepare, spare_name};

/// The end of the log, where changes are appended.
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    id: u64,
    segment_bytes: usize,
    active: ActiveSegment,
    next: NextSegment,
    /// Full files, oldest first.
    full_segments: Vec<u64>,
    /// Files to be used again.
    spares: Vec<String>,
    /// Records that are not yet written.
    buffer: Vec<u8>,
    /// The last revision that is on disk.
    durable: u64,
}

/// The file that is being filled.
pub(crate) struct ActiveSegment {
    pub(crate) file: Box<dyn File>,
    pub(crate) number: u64,
    /// Where the next record is written.
    pub(crate) offset: usize,
}

/// The file after it.
enum NextSegment {
    /// It is being prepared.
    Preparing(JoinHandle<io::Result<Box<dyn File>>>),
    /// It is ready.
    Ready(Box<dyn File>),
    /// There was no space, or it was not requested.
    Missing,
}

/// Why the log cannot continue in another file.
pub(crate) enum RotateError {
    Full(Arc<io::Error>),
    Failed(Failure),
}

impl Log {
    /// Continues in a file that contains everything up to a durable revision.
    ///
    /// A new file records that revision at once: once the files before it are gone, nothing else
    /// does.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        id: u64,
        segment_bytes: usize,
        active: ActiveSegment,
        closed: Vec<u64>,
        spares: Vec<String>,
        revision: Revision,
    ) -> Result<Self, Failure> {
        let (buffer, durable) = (Vec::new(), revision.get());
        let next = NextSegment::Missing;
        disk.track(&log_name(active.number));
        let mut log = Self {
            disk,
            id,
            segment_bytes,
            active,
            next,
            full_segments: closed,
            spares,
            buffer,
            durable,
        };
        if log.active.offset == header::HEADER_BYTES {
            log.mark(revision);
            log.flush(revision)?;
        }
        log.prepare_next_segment();
        Ok(log)
    }

    /// Bytes a record may have: it must fit in a file beside the mark that begins it.
    pub(crate) fn max_record_bytes(&self) -> usize {
        max_record_bytes(self.segment_bytes)
    }

    /// Whether a record still fits in the file.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        self.active.offset + self.buffer.len() + bytes <= self.segment_bytes
    }

    /// The same, and what is kept free for deletions stays free.
    pub(crate) fn fits_before_reserve(&self, bytes: usize) -> bool {
        self.fits(bytes.saturating_add(self.segment_bytes / DELETION_RESERVE_DIVISOR))
    }

    /// Whether the next file is there. Waits for it if it is being made ready.
    pub(crate) fn has_next(&mut self) -> bool {
        self.next = match std::mem::replace(&mut self.next, NextSegment::Missing) {
            // Why it could not be made ready is found out again when it is needed.
            NextSegment::Preparing(thread) => {
                join(thread).map_or(NextSegment::Missing, NextSegment::Ready)
            }
            known => known,
        };
        matches!(self.next, NextSegment::Ready(_))
    }

    /// Bytes of files the log takes up and a checkpoint would free, and those in use.
    pub(crate) fn bytes(&self) -> usize {
        self.full_segments.len() * self.segment_bytes + self.active.offset
    }

    /// Adds a change to what [`Self::flush`] writes.
    pub(crate) fn append<X>(&mut self, operation: Operation, space: &str, entry: &Entry<X>) {
        let record = Record {
            operation,
            revision: entry.revision.get(),
            durable: self.durable,
            created: entry.created.get(),
            space,
            key: &entry.key,
            value: &entry.value,
        };
        record.encode(self.seed(), &mut self.buffer);
    }

    /// The same for a deletion of which there is no space for more than the key. What was deleted
    /// is found again in what came before.
    pub(crate) fn append_deletion<X>(&mut self, space: &str, entry: &Entry<X>) {
        let record = Record {
            operation: Operation::Delete,
            revision: entry.revision.get(),
            durable: self.durable,
            created: entry.created.get(),
            space,
            key: &entry.key,
            value: &[],
        };
        record.encode(self.seed(), &mut self.buffer);
    }

    /// Writes what was appended and returns when it is safe.
    pub(crate) fn flush(&mut self, revision: Revision) -> Result<(), Failure> {
        let failed = |what, source: io::Error| self.failure(what, source);
        let file = &self.active.file;
        file.write_all_at(&self.buffer, file_offset(self.active.offset))
            .map_err(|e| failed("write", e))?;
        file.sync().map_err(|error| failed("synchronise", error))?;
        self.active.offset += self.buffer.len();
        self.buffer.clear();
        self.durable = revision.get();
        Ok(())
    }

    /// Continues in the next file. Everything must have been flushed.
    pub(crate) fn rotate(&mut self) -> Result<(), RotateError> {
        let number = self.active.number + 1;
        let made = match std::mem::replace(&mut self.next, NextSegment::Missing) {
            NextSegment::Preparing(thread) => Some(join(thread)),
            NextSegment::Ready(file) => Some(Ok(file)),
            NextSegment::Missing => None,
        };
        // That there was no space then does not mean there is none now.
        let made = made.filter(|made| !made.as_ref().is_err_and(is_full)).unwrap_or_else(|| {
            let spare = self.spares.pop();
            prepare(&*self.disk, spare.as_deref(), number, self.id, self.segment_bytes)
        });
        let file = made.map_err(|source| {
            if is_full(&source) {
                return RotateError::Full(Arc::new(source));
            }
            let path = self.disk.path(&log_name(number));
            RotateError::Failed(Failure { what: "prepare", path, source: Arc::new(source) })
        })?;
        self.full_segments.push(self.active.number);
        self.active = ActiveSegment { file, number, offset: header::HEADER_BYTES };
        self.disk.track(&log_name(number));
        self.mark(Revision::new(self.durable));
        self.prepare_next_segment();
        Ok(())
    }

    /// Ends the log with a mark that shows it was ended on purpose.
    pub(crate) fn seal(&mut self, revision: Revision) -> Result<(), Failure> {
        if let NextSegment::Preparing(thread) =
            std::mem::replace(&mut self.next, NextSegment::Missing)
            && let Err(error) = join(thread)
        {
            tracing::debug!(%error, "could not prepare a file of the log that is not needed now");
        }
        if !self.fits(MARK_BYTES) {
            return Ok(());
        }
        self.mark(revision);
        self.flush(revision)
    }

    /// The full files, all of whose changes a checkpoint made now will hold.
    pub(crate) fn full_segments(&self) -> &[u64] {
        &self.full_segments
    }

    /// Records that a checkpoint has made files obsolete and left these for reuse.
    pub(crate) fn mark_released(&mut self, numbers: &[u64], spares: Vec<String>) {
        self.full_segments.retain(|number| !numbers.contains(number));
        self.spares.extend(spares);
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn spares(&self) -> usize {
        self.spares.len()
    }

    pub(crate) fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// Marks that everything up to a revision is on disk, and nothing beyond it came before this
    /// position.
    fn mark(&mut self, revision: Revision) {
        let number = revision.get();
        Record::mark(Operation::Mark, number, self.durable, 0)
            .encode(self.seed(), &mut self.buffer);
    }

    fn seed(&self) -> u32 {
        Header::log(self.id, self.active.number).seed()
    }

    fn prepare_next_segment(&mut self) {
        let (disk, spare) = (Arc::clone(&self.disk), self.spares.pop());
        let (number, id, bytes) = (self.active.number + 1, self.id, self.segment_bytes);
        let work = move || prepare(&*disk, spare.as_deref(), number, id, bytes);
        self.next = match thread::Builder::new().name("store-segment".to_owned()).spawn(work) {
            Ok(thread) => NextSegment::Preparing(thread),
            // No thread could be started: it is created when it is needed.
            Err(_) => NextSegment::Missing,
        };
    }

    fn failure(&self, what: &'static str, source: io::Error) -> Failure {
        let path = self.disk.path(&log_name(self.active.number));
        Failure { what, path, source: Arc::new(source) }
    }
}

impl Drop for Log {
    /// Waits for the background step, so that nothing touches the directory once it is released.
    fn drop(&mut self) {
        if let NextSegment::Preparing(thread) =
            std::mem::replace(&mut self.next, NextSegment::Missing)
        {
            drop(join(thread));
        }
    }
}

/// One of so many parts of a file is kept free for deletions until it is known that there is space
/// for the next file. Half of one has space for some ten thousand keys.
const DELETION_RESERVE_DIVISOR: usize = 2;
/// Bytes of a mark.
pub(crate) const MARK_BYTES: usize = 40;

/// Bytes a record may have in files of a size.
pub(crate) fn max_record_bytes(segment_bytes: usize) -> usize {
    segment_bytes.saturating_sub(header::HEADER_BYTES + MARK_BYTES)
}

/// Makes files whose changes a checkpoint holds ready for other use, oldest first, and returns
/// those that were kept.
///
/// The order matters: if power is lost half-way, the files that remain still follow each other.
pub(crate) fn release(disk: &dyn Disk, numbers: &[u64], keep: usize) -> io::Result<Vec<String>> {
    let mut spares = Vec::new();
    let present = disk.list()?;
    for number in numbers {
        let name = log_name(*number);
        if !present.contains(&name) {
            // An earlier attempt got this far.
            continue;
        }
        if spares.len() < keep {
            let spare = spare_name(*number);
            disk.rename(&name, &spare)?;
            spares.push(spare);
        } else {
            disk.remove(&name)?;
        }
    }
    // Before any of them gets new content: it must not come back under its old name.
    disk.sync()?;
    Ok(spares)
}

fn join<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a background step panicked")))
}

/// A place in a file as the system counts it.
pub(crate) fn file_offset(offset: usize) -> u64 {
    u64::try_from(offset).expect("a file offset fits in 64 bits")
}

/// Bytes of a change on disk, or nothing if its parts cannot be written at all.
pub(crate) fn change_bytes(space: &str, key: &[u8], value: usize) -> Option<usize> {
    record::size(space.len(), key.len(), value)
}
