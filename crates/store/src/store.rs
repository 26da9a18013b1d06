//! The handle to a store.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::{mpsc, oneshot};

use crate::disk::{Directory, Disk};
use crate::durable::Durable;
use crate::error::{CommitError, Failure, NotReady, OpenError};
use crate::notifier::Notifier;
use crate::options::{Durability, Options};
use crate::recover::{self, Recovery};
use crate::snapshot::{Snapshot, SnapshotCache, SpaceSnapshot, TooOld};
use crate::state::{State, WorkingState};
use crate::watch::Watch;
use crate::write::Write;
use crate::writer::{CloseOnDrop, CommitRequest, Writer};
use crate::{Event, Revision};

/// A store. Clones are handles to the same one; it ends when it is closed or the last is dropped.
///
/// `X` and `Y` are user data of entries and events, see [`Entry`](crate::Entry).
pub struct Store<X = (), Y = ()> {
    handle: Arc<Handle<X, Y>>,
}

/// What the handles share and the writer must not hold, because it ends when they do.
struct Handle<X, Y> {
    shared: Arc<Shared<X, Y>>,
    queue: ArcSwapOption<mpsc::Sender<CommitRequest<X, Y>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the writer and the readers share.
pub(crate) struct Shared<X, Y> {
    pub(crate) state: ArcSwap<State<X, Y>>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) snapshot_cache: SnapshotCache<X>,
    failure: OnceLock<Failure>,
    closed: AtomicBool,
    failed_checkpoints: Arc<AtomicU64>,
    /// The disk; absent if changes are kept in memory only.
    disk_status: Option<DiskStatus>,
}

/// The disk, for health checks.
struct DiskStatus {
    /// The writer owns it, and releases it when it ends.
    disk: Weak<dyn Disk>,
    /// There was no space for another file when one was last needed.
    full: Arc<AtomicBool>,
    /// Bytes of such a file.
    segment_bytes: u64,
}

/// Sizes of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// The last change.
    pub revision: Revision,
    /// Entries of all spaces.
    pub entries: usize,
    /// Bytes of all entries, with what keeping them costs.
    pub live_bytes: usize,
    /// Events in all windows.
    pub window_events: usize,
    /// Bytes of all windows, as their bounds count them.
    pub window_bytes: usize,
    /// Checkpoints that could not be written since the store was opened. Nothing is lost by it, but
    /// the log takes more of the disk.
    pub failed_checkpoints: u64,
}

/// The store was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store is closed")]
pub struct Closed;

impl<X, Y> Store<X, Y>
where
    X: Default + Send + Sync + 'static,
    Y: Default + Send + Sync + 'static,
{
    /// Opens a store and reports what was recovered. Reads files and starts threads; may take a
    /// while.
    ///
    /// # Errors
    /// See [`OpenError`]. A torn end of the log is no error; damage before its end is.
    pub fn open(options: &Options) -> Result<(Self, Recovery), OpenError> {
        match &options.durability {
            Durability::Durable(path) => {
                Self::open_on(Arc::new(Directory::open_locked(path)?), options)
            }
            Durability::Ephemeral => {
                recover::check_options(options)?;
                let recovery = Recovery {
                    revision: Revision::EMPTY,
                    checkpoint: None,
                    changes: 0,
                    segments: 0,
                    torn_tail: None,
                    repair: None,
                };
                let store = Self::start(WorkingState::new(options.window.clone()), None, options)?;
                Ok((store, recovery))
            }
        }
    }

    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        options: &Options,
    ) -> Result<(Self, Recovery), OpenError> {
        recover::check_options(options)?;
        let (working, log, recovery) = recover::recover(Arc::clone(&disk), options)?;
        let durable = Durable::new(disk, log, options.checkpoint_bytes);
        Ok((Self::start(working, Some(durable), options)?, recovery))
    }

    fn start(
        working: WorkingState<X, Y>,
        durable: Option<Durable>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let segment_bytes = u64::try_from(options.segment_bytes).unwrap_or(u64::MAX);
        let place = durable.as_ref().map(|durable| {
            let (disk, full) = durable.disk_status();
            DiskStatus { disk: Arc::downgrade(&disk), full, segment_bytes }
        });
        let shared = Arc::new(Shared {
            disk_status: place,
            state: ArcSwap::from_pointee(working.state.clone()),
            notifier: Arc::new(Notifier::new()),
            snapshot_cache: SnapshotCache::new(),
            failure: OnceLock::new(),
            closed: AtomicBool::new(false),
            failed_checkpoints: durable.as_ref().map(Durable::failures).unwrap_or_default(),
        });
        let no_thread = |source| OpenError::Io { path: PathBuf::from("a thread"), source };
        let bells = shared.notifier.start().map_err(no_thread)?;
        let (queue, requests) = mpsc::channel(options.queue);
        let (changed, answers) = (BTreeSet::new(), Vec::new());
        let ending = CloseOnDrop(Arc::clone(&shared));
        let writer =
            Writer { working, durable, changed, pending_replies: answers, close_guard: ending };
        let run = move || writer.run(requests);
        let writer = thread::Builder::new().name("store-writer".to_owned()).spawn(run);
        let writer = writer.map_err(no_thread)?;
        let queue = ArcSwapOption::from_pointee(queue);
        let threads = Mutex::new(vec![writer, bells]);
        Ok(Self { handle: Arc::new(Handle { shared, queue, threads }) })
    }

    /// Makes a change, and returns when it is durable and visible.
    ///
    /// If the future is dropped, the change may be made or not.
    ///
    /// # Errors
    /// See [`CommitError`]. After [`CommitError::Failed`] it is not known whether the change was
    /// made; after every other error it was not.
    pub async fn commit(&self, write: Write) -> Result<Arc<Event<X, Y>>, CommitError<X>> {
        let refused = || match self.failed() {
            Some(failure) => CommitError::Failed(failure),
            None => CommitError::Closed,
        };
        let queue = self.handle.queue.load_full().ok_or_else(refused)?;
        let (answer, result) = oneshot::channel();
        queue.send(CommitRequest { write, reply: answer }).await.map_err(|_| refused())?;
        // From here on the writer owns it; holding on to the queue would keep the writer alive.
        drop(queue);
        result.await.map_err(|_| refused())?
    }
}

impl<X, Y> Store<X, Y> {
    /// The last visible change.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.shared().state.load().revision
    }

    /// All spaces as they are now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<X> {
        Snapshot::of(&self.shared().state.load())
    }

    /// One space as it is now; empty if nothing was ever written to it.
    #[must_use]
    pub fn space(&self, name: &str) -> SpaceSnapshot<X> {
        let state = self.shared().state.load();
        SpaceSnapshot::new(state.revision, state.entries(name))
    }

    /// One space at a revision. For a future revision that is its current state: wait for it with
    /// [`Self::wait_for`] first.
    ///
    /// # Errors
    /// [`TooOld`] if changes made since are no longer kept.
    pub fn snapshot_at(&self, space: &str, revision: Revision) -> Result<SpaceSnapshot<X>, TooOld> {
        let state = self.shared().state.load_full();
        let oldest = state.floor(space);
        if revision < oldest {
            return Err(TooOld { oldest });
        }
        let newest = state.windows.get(space).and_then(|window| window.events.last());
        if newest.is_none_or(|event| event.revision <= revision) {
            let at = state.revision.min(revision);
            return Ok(SpaceSnapshot::new(at, state.entries(space)));
        }
        let entries = self.shared().snapshot_cache.get(space, revision).unwrap_or_else(|| {
            let entries = state.entries_at(space, revision);
            self.shared().snapshot_cache.put(space, revision, entries.clone());
            entries
        });
        Ok(SpaceSnapshot::new(revision, entries))
    }

    /// Waits until a revision is visible.
    ///
    /// # Errors
    /// [`Closed`] if it never will be.
    pub async fn wait_for(&self, revision: Revision) -> Result<(), Closed> {
        loop {
            // Registered before the check, so that a notification in between is not missed.
            let rung = self.shared().notifier.any_revision.notified();
            let closed = self.shared().is_closed();
            if self.revision() >= revision {
                return Ok(());
            }
            if closed {
                return Err(Closed);
            }
            rung.await;
        }
    }

    /// Watches the changes of a space after a revision, which may be a future one.
    ///
    /// # Errors
    /// [`TooOld`] if changes after it are no longer kept.
    pub fn watch(&self, space: &str, after: Revision) -> Result<Watch<X, Y>, TooOld> {
        let oldest = self.shared().state.load().floor(space);
        if after < oldest {
            return Err(TooOld { oldest });
        }
        Ok(Watch::new(Arc::clone(self.shared()), space, after))
    }

    /// Why the store accepts no more changes, if it has failed. The process should then end itself.
    #[must_use]
    pub fn failed(&self) -> Option<Failure> {
        self.shared().failure().cloned()
    }

    /// Whether the store accepts changes now.
    ///
    /// # Errors
    /// Why it does not. Checks the disk, so it finds problems before a change is tried.
    pub fn check_ready(&self) -> Result<(), NotReady> {
        if let Some(failure) = self.failed() {
            return Err(NotReady::Failed(failure));
        }
        let Some(DiskStatus { disk, full, segment_bytes }) = &self.shared().disk_status else {
            return Ok(());
        };
        let Some(disk) = disk.upgrade() else { return Ok(()) };
        if !disk.is_in_place() {
            return Err(NotReady::DirectoryReplaced);
        }
        // That there was no space then does not mean there is none now.
        let full = full.load(Ordering::Relaxed);
        if full && disk.available_bytes().is_ok_and(|bytes| bytes < *segment_bytes) {
            return Err(NotReady::Full);
        }
        Ok(())
    }

    /// Records in the directory at which address the user of this store can be reached. A process
    /// that finds the directory in use reports it.
    ///
    /// # Errors
    /// It could not be written.
    pub fn record_address(&self, address: &str) -> std::io::Result<()> {
        let disk = self.shared().disk_status.as_ref().and_then(|place| place.disk.upgrade());
        disk.map_or(Ok(()), |disk| disk.record_address(address))
    }

    /// Waits until the store has failed or is closed, and returns why.
    pub async fn wait_until_ended(&self) -> Option<Failure> {
        loop {
            // Registered before the check, so that a notification in between is not missed.
            let rung = self.shared().notifier.any_revision.notified();
            let closed = self.shared().is_closed();
            let failed = self.failed();
            if closed || failed.is_some() {
                return failed;
            }
            rung.await;
        }
    }

    /// Sizes of the store. Walks the spaces, not their entries.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let state = self.shared().state.load();
        Stats {
            revision: state.revision,
            entries: state.spaces.iter().map(|space| space.entries.len()).sum(),
            live_bytes: state.live_bytes,
            window_events: state.windows.iter().map(|window| window.events.len()).sum(),
            window_bytes: state.window_bytes,
            failed_checkpoints: self.shared().failed_checkpoints.load(Ordering::Relaxed),
        }
    }

    /// Makes the waiting changes, leaves the disk in a clean state, and releases the directory.
    /// Later changes are refused; reads still work.
    ///
    /// Blocks until that is done, so it is not for a thread that runs tasks.
    ///
    /// # Errors
    /// The failure that ended the store earlier, or that happened now.
    pub fn close(&self) -> Result<(), Failure> {
        self.handle.queue.store(None);
        let mut threads = self.handle.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                // It has reported why by panicking; what was acknowledged is on disk.
                tracing::error!("a thread of the store panicked");
            }
        }
        self.failed().map_or(Ok(()), Err)
    }

    #[cfg(test)]
    pub(crate) fn snapshot_state(&self) -> Arc<State<X, Y>> {
        self.shared().state.load_full()
    }

    fn shared(&self) -> &Arc<Shared<X, Y>> {
        &self.handle.shared
    }
}

impl<X, Y> Shared<X, Y> {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    pub(crate) fn fail(&self, failure: Failure) {
        // The first failure is the cause; later ones are consequences.
        self.failure.get_or_init(|| failure);
        self.notifier.notify_changed(BTreeSet::new());
    }

    /// Notifies all waiters that nothing more will come.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.notifier.stop();
    }
}

impl<X, Y> Clone for Store<X, Y> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

impl<X, Y> fmt::Debug for Store<X, Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("revision", &self.revision()).finish_non_exhaustive()
    }
}
