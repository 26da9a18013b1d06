//! The writer: the one thread that makes changes.
//!
//! It takes all waiting changes, checks each against the state and the changes before it, writes
//! all of them to the log with one sync, and only then makes them visible and responds. While the
//! disk works, the next changes queue up. It never inspects a value.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::durable::Durable;
use crate::error::{CommitError, Failure};
use crate::log::{self, RotateError};
use crate::record::Operation;
use crate::state::{CheckedChange as Made, WorkingState};
use crate::store::Shared;
use crate::write::{Change, Hold, Precondition, Write};
use crate::{Event, EventKind};

/// How much of a change is written to the log.
enum AppendMode {
    /// All of it.
    Full,
    /// Only the key of a deleted entry, and not its last value.
    KeyOnly,
}

/// A waiting change, and where its response is sent.
pub(crate) struct CommitRequest<X, Y> {
    pub(crate) write: Write,
    pub(crate) reply: oneshot::Sender<CommitResult<X, Y>>,
}

pub(crate) type CommitResult<X, Y> = Result<Arc<Event<X, Y>>, CommitError<X>>;

/// A response, where it is sent, and what is held until it is true.
pub(crate) struct PendingReply<X, Y> {
    sender: oneshot::Sender<CommitResult<X, Y>>,
    result: CommitResult<X, Y>,
    hold: Option<Hold>,
}

/// The maximum number of changes in one batch. More would make the first of them wait for the last.
const MAX_BATCH_CHANGES: usize = 1024;
/// Bytes of a batch after which it is written, for the same reason.
const MAX_BATCH_BYTES: usize = 4 << 20;
/// The largest deletion that is written whole to a full disk. Of a larger one only the key is
/// written, so that there is space for more of them.
const MAX_WHOLE_DELETION_BYTES: usize = 1 << 10;
/// A checkpoint on close must not take longer than this much work.
const MAX_CLOSING_CHECKPOINT_BYTES: usize = 16 << 20;

/// The thread's state.
pub(crate) struct Writer<X, Y> {
    pub(crate) working: WorkingState<X, Y>,
    /// Absent if changes are kept in memory only.
    pub(crate) durable: Option<Durable>,
    /// Spaces with changes that are not visible yet.
    pub(crate) changed: BTreeSet<Arc<str>>,
    /// Responses that wait until their changes are durable.
    pub(crate) pending_replies: Vec<PendingReply<X, Y>>,
    /// Last, because the directory must be released before any waiter is notified of the end.
    pub(crate) close_guard: CloseOnDrop<X, Y>,
}

/// Notifies all waiters when the thread ends, however it does.
pub(crate) struct CloseOnDrop<X, Y>(pub(crate) Arc<Shared<X, Y>>);

impl<X, Y> Drop for CloseOnDrop<X, Y> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<X, Y> Writer<X, Y>
where
    X: Default + Send + Sync + 'static,
    Y: Default + Send + Sync + 'static,
{
    /// Works until no handle is left that could send changes.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<CommitRequest<X, Y>>) {
        while let Some(first) = queue.blocking_recv() {
            if let Err(failure) = self.commit_batch(first, &mut queue) {
                self.fail(&failure, &mut queue);
                break;
            }
        }
        self.finish();
    }

    /// Makes one batch of the waiting changes.
    fn commit_batch(
        &mut self,
        first: CommitRequest<X, Y>,
        queue: &mut mpsc::Receiver<CommitRequest<X, Y>>,
    ) -> Result<(), Failure> {
        let mut bytes = 0;
        let mut request = Some(first);
        // A change written into a directory that is no longer in place would be lost with the
        // process.
        let displaced = self.durable.as_ref().and_then(Durable::displaced);
        for _ in 0..MAX_BATCH_CHANGES {
            let Some(CommitRequest { mut write, reply: to }) = request.take() else { break };
            bytes += write.change.value().max_len();
            let hold = write.hold.take();
            let staged = match &displaced {
                Some(path) => Ok(Err(CommitError::DirectoryReplaced { path: path.clone() })),
                None => self.stage(write),
            };
            let answer = match staged {
                Ok(answer) => answer,
                Err(failure) => {
                    let answer = Err(CommitError::Failed(failure.clone()));
                    self.pending_replies.push(PendingReply { sender: to, result: answer, hold });
                    return Err(failure);
                }
            };
            self.pending_replies.push(PendingReply { sender: to, result: answer, hold });
            if bytes < MAX_BATCH_BYTES {
                request = queue.try_recv().ok();
            }
        }
        self.publish()?;
        self.maintain_checkpoints();
        Ok(())
    }

    /// Makes a change that is not visible yet. The outer error is the end of the store.
    fn stage(&mut self, write: Write) -> Result<CommitResult<X, Y>, Failure> {
        let Write { space, key, precondition: expect, change, hold: _ } = write;
        let current = self.working.get(&space, &key);
        let expected = match (expect, current, &change) {
            (Precondition::Any, Some(_), Change::Put(_) | Change::Delete(_))
            | (Precondition::Any | Precondition::Absent, None, Change::Put(_)) => true,
            (Precondition::Revision(at), Some(entry), Change::Put(_) | Change::Delete(_)) => {
                entry.revision == at
            }
            (Precondition::Absent, Some(_), Change::Put(_) | Change::Delete(_))
            | (Precondition::Revision(_), None, Change::Put(_) | Change::Delete(_))
            | (Precondition::Any | Precondition::Absent, None, Change::Delete(_)) => false,
        };
        if !expected {
            return Ok(Err(CommitError::Conflict { current: current.cloned() }));
        }
        let mut room = AppendMode::Full;
        if self.durable.is_some() {
            room = match self.reserve_log_space(&space, &key, &change)? {
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
                AppendMode::Full => durable.log.append(operation, &space, &event.entry),
                AppendMode::KeyOnly => durable.log.append_deletion(&space, &event.entry),
            }
        }
        self.changed.insert(space);
        Ok(Ok(event))
    }

    /// Makes sure that a change fits into the log file, or returns why it never or currently does
    /// not.
    ///
    /// The second half of a file is left for deletions, in case there is no space for another file:
    /// what cannot be deleted from a full disk keeps it full for ever.
    fn reserve_log_space(
        &mut self,
        space: &str,
        key: &[u8],
        change: &Change,
    ) -> Result<Result<AppendMode, CommitError<X>>, Failure> {
        let Some(durable) = &mut self.durable else { return Ok(Ok(AppendMode::Full)) };
        let limit = durable.log.max_record_bytes();
        let value = change.value().max_len();
        let bytes = log::change_bytes(space, key, value);
        let Some(bytes) = bytes.filter(|bytes| *bytes <= limit) else {
            let bytes = space.len().saturating_add(key.len()).saturating_add(value);
            return Ok(Err(CommitError::TooLarge { bytes, limit }));
        };
        if durable.log.fits_before_reserve(bytes)
            || (durable.log.fits(bytes) && durable.log.has_next())
        {
            return Ok(Ok(AppendMode::Full));
        }
        // A file is complete on disk before the next one is begun.
        self.publish()?;
        let Some(durable) = &mut self.durable else { return Ok(Ok(AppendMode::Full)) };
        match durable.log.rotate() {
            Ok(()) => {
                durable.set_full(false);
                Ok(Ok(AppendMode::Full))
            }
            Err(RotateError::Full(source)) => {
                durable.set_full(true);
                let key_only = log::change_bytes(space, key, 0);
                match change {
                    Change::Delete(_)
                        if bytes <= MAX_WHOLE_DELETION_BYTES && durable.log.fits(bytes) =>
                    {
                        Ok(Ok(AppendMode::Full))
                    }
                    Change::Delete(_) if key_only.is_some_and(|it| durable.log.fits(it)) => {
                        Ok(Ok(AppendMode::KeyOnly))
                    }
                    Change::Delete(_) | Change::Put(_) => Ok(Err(CommitError::Full { source })),
                }
            }
            Err(RotateError::Failed(failure)) => Err(failure),
        }
    }

    /// Makes staged changes durable and visible, and responds.
    fn publish(&mut self) -> Result<(), Failure> {
        let before = self.close_guard.0.state.load_full();
        let revision = self.working.state.revision;
        if revision > before.revision {
            if let Some(durable) = &mut self.durable {
                durable.log.flush(revision)?;
            }
            self.close_guard.0.state.store(Arc::new(self.working.state.clone()));
            self.close_guard.0.notifier.notify_changed(mem::take(&mut self.changed));
            if self.working.take_trimmed() {
                self.close_guard.0.snapshot_cache.trim(&self.working.state);
            }
        }
        // Before the responses: a caller may measure the memory use after its response.
        drop(before);
        for PendingReply { sender: to, result: answer, hold } in self.pending_replies.drain(..) {
            // What the change relied on is now found in the stored state, or no longer needed; the
            // caller may ask for it again after its response.
            drop(hold);
            // A caller that no longer waits has dropped the response, not the change.
            drop(to.send(answer));
        }
        Ok(())
    }

    /// Maintains checkpoints: ends one that is complete, begins one that is due.
    fn maintain_checkpoints(&mut self) {
        if let Some(durable) = &mut self.durable {
            durable.maintain_checkpoints(&self.close_guard.0.state);
        }
    }

    /// Fails the store: reports the failure to all callers from now on.
    fn fail(&mut self, failure: &Failure, queue: &mut mpsc::Receiver<CommitRequest<X, Y>>) {
        tracing::error!(error = %failure, cause = %failure.source, "the store failed");
        for PendingReply { sender: to, .. } in mem::take(&mut self.pending_replies) {
            drop(to.send(Err(CommitError::Failed(failure.clone()))));
        }
        self.close_guard.0.fail(failure.clone());
        queue.close();
        while let Some(CommitRequest { reply: answer, .. }) = queue.blocking_recv() {
            drop(answer.send(Err(CommitError::Failed(failure.clone()))));
        }
    }

    /// Leaves the disk in a clean state and notifies all waiters.
    fn finish(mut self) {
        let state = &self.working.state;
        let (revision, bytes) = (state.revision, state.live_bytes + state.window_bytes);
        if let Some(durable) = &mut self.durable {
            durable.end_checkpoint(true);
            if self.close_guard.0.failure().is_none() {
                // Worth it if the checkpoint is quicker to read than the log it replaces.
                if bytes <= MAX_CLOSING_CHECKPOINT_BYTES.min(durable.log.bytes())
                    && !durable.log.full_segments().is_empty()
                {
                    durable.begin_checkpoint(self.close_guard.0.state.load_full());
                    durable.end_checkpoint(true);
                }
                if let Err(failure) = durable.log.seal(revision) {
                    self.close_guard.0.fail(failure);
                }
            }
        }
    }
}
