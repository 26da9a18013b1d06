//! The last lines of one run.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::Notify;

/// What one run may keep. An annotation can fill it; a real node keeps ten megabytes on disk.
pub(super) const RING: usize = 256 * 1024;
/// What all runs together may keep. Beyond it, whoever says something forgets something of its own:
/// twenty thousand pods keep their last words, and none can silence another.
pub(super) const TOTAL: usize = 256 * 1024 * 1024;
/// The longest line; a real runtime breaks them at the same length.
pub(super) const LINE: usize = 16 * 1024;
/// What a line costs besides its text.
const COST: usize = 48;

/// The last lines of one run, numbered from its beginning.
#[derive(Debug)]
pub(super) struct Ring {
    kept: Mutex<Kept>,
    changed: Notify,
    total: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<(Timestamp, Box<str>)>,
    /// The number of the first line that is kept.
    first: u64,
    bytes: usize,
    over: bool,
}

/// Whether a reader takes another line.
pub(super) enum Taken {
    More,
    Enough,
}

impl Ring {
    pub(super) fn new(total: Arc<AtomicUsize>) -> Self {
        Self { kept: Mutex::default(), changed: Notify::new(), total }
    }

    /// Adds a line, in parts if it is too long, and drops the oldest when there is no room. What is
    /// said after the end is not heard.
    pub(super) fn push(&self, now: Timestamp, line: &str) {
        {
            let mut kept = self.lock();
            if kept.over {
                return;
            }
            let mut rest = line;
            loop {
                let (part, after) = rest.split_at(rest.floor_char_boundary(LINE));
                self.push_part(&mut kept, now, part);
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
        }
        self.changed.notify_waiters();
    }

    fn push_part(&self, kept: &mut Kept, now: Timestamp, part: &str) {
        let cost = part.len() + COST;
        kept.lines.push_back((now, part.into()));
        kept.bytes += cost;
        let mut total = self.total.fetch_add(cost, Ordering::Relaxed) + cost;
        while (kept.bytes > RING || total > TOTAL) && kept.lines.len() > 1 {
            let Some((_, oldest)) = kept.lines.pop_front() else { break };
            let freed = oldest.len() + COST;
            kept.first += 1;
            kept.bytes -= freed;
            total = self.total.fetch_sub(freed, Ordering::Relaxed) - freed;
        }
    }

    /// Nothing more will be said.
    pub(super) fn end(&self) {
        self.lock().over = true;
        self.changed.notify_waiters();
    }

    /// Ready when something was said, or it ended, after this was called.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changed.notified()
    }

    /// The number of the first of the last so many lines; of all lines without a number.
    pub(super) fn before_last(&self, lines: Option<u64>) -> u64 {
        let kept = self.lock();
        let held = u64::try_from(kept.lines.len()).unwrap_or(u64::MAX);
        kept.first + lines.map_or(0, |lines| held.saturating_sub(lines))
    }

    /// Shows lines from number `at` on, and moves it behind those that were taken. True when there
    /// is nothing behind it, now or later.
    pub(super) fn lines_from(
        &self,
        at: &mut u64,
        mut take: impl FnMut(Timestamp, &str) -> Taken,
    ) -> bool {
        let kept = self.lock();
        *at = (*at).max(kept.first);
        let skipped = usize::try_from(*at - kept.first).unwrap_or(usize::MAX);
        for (time, line) in kept.lines.iter().skip(skipped) {
            *at += 1;
            match take(*time, line) {
                Taken::More => {}
                Taken::Enough => return false,
            }
        }
        kept.over
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let bytes = self.lock().bytes;
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }
}
