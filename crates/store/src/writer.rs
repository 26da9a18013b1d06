//! The one thread that changes anything.
//!
//! It takes whatever changes are waiting, checks each against what is there and what came before
//! it, writes all of them to the log with one synchronisation, and only then shows them and answers.
//! While the disk works, the next changes gather. It never looks into a value.

use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::sync::{mpsc, oneshot};

use crate::checkpoint;
use crate::disk::Disk;
use crate::error::{CommitError, Failure};
use crate::log::{self, Log, Stuck};
use crate::record::Operation;
use crate::state::{Change as Made, Working};
use crate::store::Shared;
use crate::write::{Change, Expect, Write};
use crate::{Event, EventKind};

/// A change that waits, and where its answer goes.
pub(crate) struct Request<X, Y> {
    pub(crate) write: Write,
    pub(crate) answer: oneshot::Sender<Answer<X, Y>>,
}

pub(crate) type Answer<X, Y> = Result<Arc<Event<X, Y>>, CommitError<X>>;

/// An answer, and where it goes.
type Waiting<X, Y> = (oneshot::Sender<Answer<X, Y>>, Answer<X, Y>);

/// Changes in one batch. More would make the first of them wait for the last.
const BATCH: usize = 1024;
/// Bytes of a batch after which it is written, for the same reason.
const BATCH_BYTES: usize = 4 << 20;
/// A checkpoint when closing must be no more work than this.
const CHEAP: usize = 16 << 20;

/// The thread's state.
pub(crate) struct Writer<X, Y> {
    pub(crate) working: Working<X, Y>,
    /// Nothing if nothing is to be kept.
    pub(crate) durable: Option<Durable>,
    /// Spaces with changes that are not shown yet.
    pub(crate) changed: BTreeSet<Arc<str>>,
    /// Answers that wait until what they say is true on disk.
    pub(crate) answers: Vec<Waiting<X, Y>>,
    /// Last, because the directory is to be free for others before anyone learns of the end.
    pub(crate) ending: Ending<X, Y>,
}

/// Tells everyone who waits when the thread ends, however it does.
pub(crate) struct Ending<X, Y>(pub(crate) Arc<Shared<X, Y>>);

impl<X, Y> Drop for Ending<X, Y> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The part that concerns the disk.
pub(crate) struct Durable {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) log: Log,
    pub(crate) checkpoint_bytes: usize,
    pub(crate) checkpoint: Option<Checkpoint>,
    /// After a checkpoint failed, the size the log has to reach before another is tried.
    pub(crate) retry_at: usize,
    /// There was no space for another file of the log. A checkpoint makes some.
    pub(crate) full: bool,
}

/// A checkpoint in progress.
pub(crate) struct Checkpoint {
    /// Ends with the files that were left for new use.
    thread: JoinHandle<io::Result<Vec<String>>>,
    /// The log files it makes obsolete.
    closed: Vec<u64>,
}

impl<X, Y> Writer<X, Y>
where
    X: Default + Send + Sync + 'static,
    Y: Default + Send + Sync + 'static,
{
    /// Works until there is nobody left to ask for changes.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<Request<X, Y>>) {
        while let Some(first) = queue.blocking_recv() {
            if let Err(failure) = self.batch(first, &mut queue) {
                self.fail(&failure, &mut queue);
                break;
            }
        }
        self.finish();
    }

    /// Makes one batch of changes of whatever is waiting.
    fn batch(
        &mut self,
        first: Request<X, Y>,
        queue: &mut mpsc::Receiver<Request<X, Y>>,
    ) -> Result<(), Failure> {
        let mut bytes = 0;
        let mut request = Some(first);
        for _ in 0..BATCH {
            let Some(Request { write, answer }) = request.take() else { break };
            bytes += write.change.value().max_len();
            let result = self.stage(write);
            let result = match result {
                Ok(result) => result,
                Err(failure) => {
                    self.answers.push((answer, Err(CommitError::Failed(failure.clone()))));
                    return Err(failure);
                }
            };
            self.answers.push((answer, result));
            if bytes < BATCH_BYTES {
                request = queue.try_recv().ok();
            }
        }
        self.publish()?;
        self.tend();
        Ok(())
    }

    /// Makes a change that nobody sees yet. The outer error is the end of the store.
    fn stage(&mut self, write: Write) -> Result<Answer<X, Y>, Failure> {
        let Write { space, key, expect, change } = write;
        let current = self.working.get(&space, &key);
        let expected = match (expect, current, &change) {
            (Expect::Any, Some(_), Change::Put(_) | Change::Delete(_))
            | (Expect::Any | Expect::Absent, None, Change::Put(_)) => true,
            (Expect::Revision(at), Some(entry), Change::Put(_) | Change::Delete(_)) => {
                entry.revision == at
            }
            (Expect::Absent, Some(_), Change::Put(_) | Change::Delete(_))
            | (Expect::Revision(_), None, Change::Put(_) | Change::Delete(_))
            | (Expect::Any | Expect::Absent, None, Change::Delete(_)) => false,
        };
        if !expected {
            return Ok(Err(CommitError::Conflict { current: current.cloned() }));
        }
        if self.durable.is_some()
            && let Err(refused) = self.make_room(&space, &key, change.value().max_len())?
        {
            return Ok(Err(refused));
        }
        let revision = self.working.state.revision.next();
        let (kind, operation) = match &change {
            Change::Put(_) => (EventKind::Put, Operation::Put),
            Change::Delete(_) => (EventKind::Delete, Operation::Delete),
        };
        let value = change.value().stamp(revision);
        let space = self.working.name(&space);
        let event =
            self.working.apply(Made { space: Arc::clone(&space), key, kind, revision, value });
        if let Some(durable) = &mut self.durable {
            durable.log.append(operation, &space, &event.entry);
        }
        self.changed.insert(space);
        Ok(Ok(event))
    }

    /// Sees to it that a change fits into the file of the log, or says why it never or not now does.
    fn make_room(
        &mut self,
        space: &str,
        key: &[u8],
        value: usize,
    ) -> Result<Result<(), CommitError<X>>, Failure> {
        let Some(durable) = &self.durable else { return Ok(Ok(())) };
        let limit = durable.log.limit();
        let bytes = log::change_bytes(space, key, value);
        let Some(bytes) = bytes.filter(|bytes| *bytes <= limit) else {
            let bytes = space.len().saturating_add(key.len()).saturating_add(value);
            return Ok(Err(CommitError::TooLarge { bytes, limit }));
        };
        if durable.log.fits(bytes) {
            return Ok(Ok(()));
        }
        // A file is complete on disk before the next one is begun.
        self.publish()?;
        let Some(durable) = &mut self.durable else { return Ok(Ok(())) };
        match durable.log.rotate() {
            Ok(()) => {
                durable.full = false;
                Ok(Ok(()))
            }
            Err(Stuck::Full(source)) => {
                durable.full = true;
                Ok(Err(CommitError::Full { source }))
            }
            Err(Stuck::Failed(failure)) => Err(failure),
        }
    }

    /// Makes staged changes durable, shows them, and answers.
    fn publish(&mut self) -> Result<(), Failure> {
        let before = self.ending.0.state.load_full();
        let revision = self.working.state.revision;
        if revision > before.revision {
            if let Some(durable) = &mut self.durable {
                durable.log.flush(revision)?;
            }
            self.ending.0.state.store(Arc::new(self.working.state.clone()));
            self.ending.0.bells.changed(mem::take(&mut self.changed));
            if self.working.take_trimmed() {
                self.ending.0.recent.trim(&self.working.state);
            }
        }
        // Before the answers: whoever is answered may measure what is in memory.
        drop(before);
        for (answer, result) in self.answers.drain(..) {
            // A caller that no longer waits has given up the answer, not the change.
            drop(answer.send(result));
        }
        Ok(())
    }

    /// Sees to what the disk needs: ends a checkpoint that is complete, begins one that is due.
    fn tend(&mut self) {
        let live = self.working.state.live_bytes;
        let Some(durable) = &mut self.durable else { return };
        durable.end_checkpoint(false);
        let size = durable.log.bytes();
        let due = size > durable.checkpoint_bytes.max(live).max(durable.retry_at);
        if (due || durable.full) && durable.checkpoint.is_none() && !durable.log.closed().is_empty()
        {
            durable.begin_checkpoint(&self.ending.0);
        }
    }

    /// The store is of no more use: says so to everyone who asks from now on.
    fn fail(&mut self, failure: &Failure, queue: &mut mpsc::Receiver<Request<X, Y>>) {
        tracing::error!(error = %failure, cause = %failure.source, "the store failed");
        for (answer, _) in mem::take(&mut self.answers) {
            drop(answer.send(Err(CommitError::Failed(failure.clone()))));
        }
        self.ending.0.fail(failure.clone());
        queue.close();
        while let Some(Request { answer, .. }) = queue.blocking_recv() {
            drop(answer.send(Err(CommitError::Failed(failure.clone()))));
        }
    }

    /// Leaves the disk in good order and everyone informed.
    fn finish(mut self) {
        let state = &self.working.state;
        let (revision, bytes) = (state.revision, state.live_bytes + state.window_bytes);
        if let Some(durable) = &mut self.durable {
            durable.end_checkpoint(true);
            if self.ending.0.failure().is_none() {
                // Worth it if the checkpoint is quicker to read than the log it replaces.
                if bytes <= CHEAP.min(durable.log.bytes()) && !durable.log.closed().is_empty() {
                    durable.begin_checkpoint(&self.ending.0);
                    durable.end_checkpoint(true);
                }
                if let Err(failure) = durable.log.seal(revision) {
                    self.ending.0.fail(failure);
                }
            }
        }
    }
}

impl Durable {
    fn begin_checkpoint<X, Y>(&mut self, shared: &Arc<Shared<X, Y>>)
    where
        X: Send + Sync + 'static,
        Y: Send + Sync + 'static,
    {
        let (disk, store) = (Arc::clone(&self.disk), self.log.id());
        let (state, closed) = (shared.state.load_full(), self.log.closed());
        // As many as the log will need until the next one; more would only take up the disk.
        let wanted = self.checkpoint_bytes.max(state.live_bytes) / self.log.segment_bytes() + 1;
        let keep = wanted.saturating_sub(self.log.spares());
        let obsolete = closed.clone();
        let work = move || {
            checkpoint::write(&*disk, store, &state)?;
            drop(state);
            log::release(&*disk, &obsolete, keep)
        };
        match thread::Builder::new().name("store-checkpoint".to_owned()).spawn(work) {
            Ok(thread) => self.checkpoint = Some(Checkpoint { thread, closed }),
            Err(error) => self.postpone(&error),
        }
    }

    /// Takes note of a checkpoint's end, if it has ended or shall be waited for.
    fn end_checkpoint(&mut self, wait: bool) {
        let Some(Checkpoint { thread, closed }) = self.checkpoint.take() else { return };
        if !wait && !thread.is_finished() {
            self.checkpoint = Some(Checkpoint { thread, closed });
            return;
        }
        let panicked = |_| Err(io::Error::other("the checkpoint panicked"));
        match thread.join().unwrap_or_else(panicked) {
            Ok(spares) => {
                self.log.released(&closed, spares);
                self.retry_at = 0;
            }
            Err(error) => self.postpone(&error),
        }
    }

    /// Without a checkpoint the log is complete all the same; it only takes more of the disk.
    fn postpone(&mut self, error: &io::Error) {
        tracing::warn!(%error, "could not write a checkpoint; the log is kept and it is tried again");
        self.retry_at = self.log.bytes() + self.log.segment_bytes();
    }
}

impl Drop for Durable {
    /// Waits for the checkpoint, so that nothing touches the directory once it is given up.
    fn drop(&mut self) {
        self.end_checkpoint(true);
    }
}
