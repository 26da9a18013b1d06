//! Checkpoints in the background, and the log they keep short.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use arc_swap::ArcSwap;

use crate::checkpoint;
use crate::disk::Disk;
use crate::log::{self, Log};
use crate::state::State;

/// The log, and the checkpoints that keep it short.
pub(crate) struct Durable {
    pub(crate) log: Log,
    disk: Arc<dyn Disk>,
    checkpoint_bytes: usize,
    checkpoint: Option<RunningCheckpoint>,
    /// After a checkpoint failed, the size the log has to reach before another is tried.
    retry_at: usize,
    /// There was no space for another file of the log. A checkpoint makes some.
    full: Arc<AtomicBool>,
    /// Live bytes when a checkpoint failed for lack of space: until there are clearly fewer,
    /// another would fail as well.
    too_large: Option<usize>,
    failures: Arc<AtomicU64>,
}

/// A checkpoint in progress.
struct RunningCheckpoint {
    /// Returns the files that were left for reuse.
    thread: JoinHandle<io::Result<Vec<String>>>,
    /// The log files it makes obsolete.
    closed: Vec<u64>,
}

impl Durable {
    pub(crate) fn new(disk: Arc<dyn Disk>, log: Log, checkpoint_bytes: usize) -> Self {
        let (checkpoint, failures, full) = (None, Arc::default(), Arc::default());
        let too_large = None;
        Self { log, disk, checkpoint_bytes, checkpoint, retry_at: 0, full, too_large, failures }
    }

    /// A count of checkpoints that failed.
    pub(crate) fn failures(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.failures)
    }

    /// The disk, and whether it is full.
    pub(crate) fn disk_status(&self) -> (Arc<dyn Disk>, Arc<AtomicBool>) {
        (Arc::clone(&self.disk), Arc::clone(&self.full))
    }

    pub(crate) fn set_full(&mut self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    /// The former path of the directory, if it is no longer in place.
    pub(crate) fn displaced(&self) -> Option<PathBuf> {
        (!self.disk.is_in_place()).then(|| self.disk.path(""))
    }

    /// Ends a checkpoint that is complete, and begins one that is due.
    pub(crate) fn maintain_checkpoints<X, Y>(&mut self, state: &ArcSwap<State<X, Y>>)
    where
        X: Send + Sync + 'static,
        Y: Send + Sync + 'static,
    {
        self.end_checkpoint(false);
        if self.checkpoint.is_some() || self.log.full_segments().is_empty() {
            return;
        }
        let state = state.load_full();
        let limit = self.checkpoint_bytes.max(state.live_bytes).max(self.retry_at);
        let fits = self.too_large.is_none_or(|bytes| state.live_bytes < bytes / 8 * 7);
        let full = self.full.load(Ordering::Relaxed);
        if (full && fits) || self.log.bytes() > limit {
            self.too_large = full.then_some(state.live_bytes);
            // There is no space for the history, only for the current state.
            let state = if full { Arc::new(state.without_history()) } else { state };
            self.begin_checkpoint(state);
        }
    }

    /// Begins a checkpoint of a visible state.
    pub(crate) fn begin_checkpoint<X, Y>(&mut self, state: Arc<State<X, Y>>)
    where
        X: Send + Sync + 'static,
        Y: Send + Sync + 'static,
    {
        let (disk, store) = (Arc::clone(&self.disk), self.log.id());
        let closed = self.log.full_segments().to_vec();
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
            Ok(thread) => self.checkpoint = Some(RunningCheckpoint { thread, closed }),
            Err(error) => self.postpone(&error),
        }
    }

    /// Handles the end of a checkpoint, if it has ended or is to be waited for.
    pub(crate) fn end_checkpoint(&mut self, wait: bool) {
        let Some(RunningCheckpoint { thread, closed }) = self.checkpoint.take() else { return };
        if !wait && !thread.is_finished() {
            self.checkpoint = Some(RunningCheckpoint { thread, closed });
            return;
        }
        let panicked = |_| Err(io::Error::other("the checkpoint panicked"));
        match thread.join().unwrap_or_else(panicked) {
            Ok(spares) => {
                self.log.mark_released(&closed, spares);
                self.retry_at = 0;
                self.too_large = None;
            }
            Err(error) => self.postpone(&error),
        }
    }

    /// Without a checkpoint the log is complete all the same; it only takes more of the disk.
    fn postpone(&mut self, error: &io::Error) {
        tracing::warn!(%error, "could not write a checkpoint; the log is kept and it is tried \
                                again");
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.retry_at = self.log.bytes() + self.log.segment_bytes();
    }
}

impl Drop for Durable {
    /// Waits for the checkpoint, so that nothing touches the directory once it is released.
    fn drop(&mut self) {
        self.end_checkpoint(true);
    }
}
