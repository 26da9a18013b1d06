//! The one thread that changes anything.
//!
//! It takes whatever changes are waiting, checks each against what is there and what came before
//! it, writes all of them to the log with one synchronisation, and only then shows them and answers.
//! While the disk works, the next changes gather. It never looks into a value.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::durable::Durable;
use crate::error::{CommitError, Failure};
use crate::log::{self, Stuck};
use crate::record::Operation;
use crate::state::{Change as Made, Working};
use crate::store::Shared;
use crate::write::{Change, Expect, Hold, Write};
use crate::{Event, EventKind};

/// How much of a change is written to the log.
enum Room {
    /// All of it.
    Whole,
    /// The key of what is deleted, and not what it was.
    WithoutValue,
}

/// A change that waits, and where its answer goes.
pub(crate) struct Request<X, Y> {
    pub(crate) write: Write,
    pub(crate) answer: oneshot::Sender<Answer<X, Y>>,
}

pub(crate) type Answer<X, Y> = Result<Arc<Event<X, Y>>, CommitError<X>>;

/// An answer, where it goes, and what is held until it is true.
pub(crate) struct Waiting<X, Y> {
    to: oneshot::Sender<Answer<X, Y>>,
    answer: Answer<X, Y>,
    hold: Option<Hold>,
}

/// Changes in one batch. More would make the first of them wait for the last.
const BATCH: usize = 1024;
/// Bytes of a batch after which it is written, for the same reason.
const BATCH_BYTES: usize = 4 << 20;
/// A deletion that is written whole to a full disk. Of a larger one only the key is written, so that
/// there is space for more of them.
const SMALL: usize = 1 << 10;
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
        // What is written into a directory that nobody finds again is lost with the process.
        let displaced = self.durable.as_ref().and_then(Durable::displaced);
        for _ in 0..BATCH {
            let Some(Request { mut write, answer: to }) = request.take() else { break };
            bytes += write.change.value().max_len();
            let hold = write.hold.take();
            let staged = match &displaced {
                Some(path) => Ok(Err(CommitError::Displaced { path: path.clone() })),
                None => self.stage(write),
            };
            let answer = match staged {
                Ok(answer) => answer,
                Err(failure) => {
                    let answer = Err(CommitError::Failed(failure.clone()));
                    self.answers.push(Waiting { to, answer, hold });
                    return Err(failure);
                }
            };
            self.answers.push(Waiting { to, answer, hold });
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
        let Write { space, key, expect, change, hold: _ } = write;
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
        let mut room = Room::Whole;
        if self.durable.is_some() {
            room = match self.make_room(&space, &key, &change)? {
                Ok(room) => room,
                Err(refused) => return Ok(Err(refused)),
            };
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
            match room {
                Room::Whole => durable.log.append(operation, &space, &event.entry),
                Room::WithoutValue => durable.log.append_deletion(&space, &event.entry),
            }
        }
        self.changed.insert(space);
        Ok(Ok(event))
    }

    /// Sees to it that a change fits into the file of the log, or says why it never or not now does.
    ///
    /// The second half of a file is left for deletions, in case there is no space for another file:
    /// what cannot be deleted from a full disk keeps it full for ever.
    fn make_room(
        &mut self,
        space: &str,
        key: &[u8],
        change: &Change,
    ) -> Result<Result<Room, CommitError<X>>, Failure> {
        let Some(durable) = &mut self.durable else { return Ok(Ok(Room::Whole)) };
        let limit = durable.log.limit();
        let value = change.value().max_len();
        let bytes = log::change_bytes(space, key, value);
        let Some(bytes) = bytes.filter(|bytes| *bytes <= limit) else {
            let bytes = space.len().saturating_add(key.len()).saturating_add(value);
            return Ok(Err(CommitError::TooLarge { bytes, limit }));
        };
        if durable.log.fits_before_reserve(bytes)
            || (durable.log.fits(bytes) && durable.log.has_next())
        {
            return Ok(Ok(Room::Whole));
        }
        // A file is complete on disk before the next one is begun.
        self.publish()?;
        let Some(durable) = &mut self.durable else { return Ok(Ok(Room::Whole)) };
        match durable.log.rotate() {
            Ok(()) => {
                durable.set_full(false);
                Ok(Ok(Room::Whole))
            }
            Err(Stuck::Full(source)) => {
                durable.set_full(true);
                let key_only = log::change_bytes(space, key, 0);
                match change {
                    Change::Delete(_) if bytes <= SMALL && durable.log.fits(bytes) => {
                        Ok(Ok(Room::Whole))
                    }
                    Change::Delete(_) if key_only.is_some_and(|it| durable.log.fits(it)) => {
                        Ok(Ok(Room::WithoutValue))
                    }
                    Change::Delete(_) | Change::Put(_) => Ok(Err(CommitError::Full { source })),
                }
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
        for Waiting { to, answer, hold } in self.answers.drain(..) {
            // What the change relied on is now found in what is stored, or no longer needed; whoever
            // is answered may ask for it again.
            drop(hold);
            // A caller that no longer waits has given up the answer, not the change.
            drop(to.send(answer));
        }
        Ok(())
    }

    /// Sees to what the disk needs: ends a checkpoint that is complete, begins one that is due.
    fn tend(&mut self) {
        if let Some(durable) = &mut self.durable {
            durable.tend(&self.ending.0.state);
        }
    }

    /// The store is of no more use: says so to everyone who asks from now on.
    fn fail(&mut self, failure: &Failure, queue: &mut mpsc::Receiver<Request<X, Y>>) {
        tracing::error!(error = %failure, cause = %failure.source, "the store failed");
        for Waiting { to, .. } in mem::take(&mut self.answers) {
            drop(to.send(Err(CommitError::Failed(failure.clone()))));
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
                    durable.begin_checkpoint(self.ending.0.state.load_full());
                    durable.end_checkpoint(true);
                }
                if let Err(failure) = durable.log.seal(revision) {
                    self.ending.0.fail(failure);
                }
            }
        }
    }
}
