//! A ring buffer with the last lines of one run.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::Notify;

/// The most bytes one run keeps. An annotation can fill it; a real node keeps ten megabytes on
/// disk.
pub(super) const MAX_RUN_BYTES: usize = 256 * 1024;
/// The most bytes all runs together keep. Beyond it, a run that appends drops its own oldest lines:
/// twenty thousand pods keep their last lines, and no pod can displace those of another.
pub(super) const MAX_TOTAL_BYTES: usize = 256 * 1024 * 1024;
/// The longest line; a real runtime splits them at the same length.
pub(super) const MAX_LINE_BYTES: usize = 16 * 1024;
/// The memory of a line besides its text.
const LINE_OVERHEAD_BYTES: usize = 48;

/// The last lines of one run, numbered from its start.
#[derive(Debug)]
pub(super) struct RingBuffer {
    state: Mutex<RingState>,
    changed: Notify,
    total: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct RingState {
    lines: VecDeque<(Timestamp, Box<str>)>,
    /// The number of the first line in the buffer.
    first: u64,
    bytes: usize,
    ended: bool,
}

/// Whether a reader takes another line.
pub(super) enum ReadControl {
    Continue,
    Stop,
}

impl RingBuffer {
    pub(super) fn new(total: Arc<AtomicUsize>) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), total }
    }

    /// Appends a line, in parts if it is too long, and drops the oldest when the buffer is full.
    /// Lines after the end are dropped.
    pub(super) fn push(&self, now: Timestamp, line: &str) {
        {
            let mut kept = self.lock();
            if kept.ended {
                return;
            }
            let mut rest = line;
            loop {
                let (part, after) = rest.split_at(rest.floor_char_boundary(MAX_LINE_BYTES));
                self.push_part(&mut kept, now, part);
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
        }
        self.changed.notify_waiters();
    }

    fn push_part(&self, kept: &mut RingState, now: Timestamp, part: &str) {
        let cost = part.len() + LINE_OVERHEAD_BYTES;
        kept.lines.push_back((now, part.into()));
        kept.bytes += cost;
        let mut total = self.total.fetch_add(cost, Ordering::Relaxed) + cost;
        while (kept.bytes > MAX_RUN_BYTES || total > MAX_TOTAL_BYTES) && kept.lines.len() > 1 {
            let Some((_, oldest)) = kept.lines.pop_front() else { break };
            let freed = oldest.len() + LINE_OVERHEAD_BYTES;
            kept.first += 1;
            kept.bytes -= freed;
            total = self.total.fetch_sub(freed, Ordering::Relaxed) - freed;
        }
    }

    /// Marks the end: nothing can be appended.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_waiters();
    }

    /// Completes when a line was appended, or the run ended, after this was called.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changed.notified()
    }

    /// Returns the number of the first of the last `lines` lines; of all lines without a number.
    pub(super) fn tail_position(&self, lines: Option<u64>) -> u64 {
        let kept = self.lock();
        let held = u64::try_from(kept.lines.len()).unwrap_or(u64::MAX);
        kept.first + lines.map_or(0, |lines| held.saturating_sub(lines))
    }

    /// Passes lines from number `at` on to the reader, and moves it behind those that were taken.
    /// Returns true when nothing follows, now or later.
    pub(super) fn lines_from(
        &self,
        at: &mut u64,
        mut take: impl FnMut(Timestamp, &str) -> ReadControl,
    ) -> bool {
        let kept = self.lock();
        *at = (*at).max(kept.first);
        let skipped = usize::try_from(*at - kept.first).unwrap_or(usize::MAX);
        for (time, line) in kept.lines.iter().skip(skipped) {
            *at += 1;
            match take(*time, line) {
                ReadControl::Continue => {}
                ReadControl::Stop => return false,
            }
        }
        kept.ended
    }

    fn lock(&self) -> MutexGuard<'_, RingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RingBuffer {
    fn drop(&mut self) {
        let bytes = self.lock().bytes;
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }
}
