//! Watches: following the changes of a space.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::store::Shared;
use crate::{Event, Revision};

/// A position in the changes of one space.
///
/// It is only a position: events wait in the window that all watches of the space share, so a watch
/// that is never read costs nothing, and one that is read too late gets [`WatchError::Lagged`].
pub struct Watch<X, Y> {
    shared: Arc<Shared<X, Y>>,
    notify: Arc<Notify>,
    space: Arc<str>,
    /// Every event up to here has been returned.
    position: Revision,
}

/// Events in their order.
type Events<X, Y> = Vec<Arc<Event<X, Y>>>;

/// Why a watch has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// Events were dropped before they were read: list the space again and watch from there.
    #[error("the watch fell behind: changes before revision {oldest} are no longer kept")]
    Lagged {
        /// The oldest revision a new watch can start after.
        oldest: Revision,
    },
    /// The store was closed, and all its events have been returned.
    #[error("the store is closed")]
    Closed,
}

impl<X, Y> Watch<X, Y> {
    pub(crate) fn new(shared: Arc<Shared<X, Y>>, space: &str, after: Revision) -> Self {
        let bell = shared.notifier.subscribe(space);
        Self { shared, notify: bell, space: Arc::from(space), position: after }
    }

    /// Waits for events and returns at least one and at most `max` of them, oldest first.
    ///
    /// Every event of the space is returned exactly once, in the order of revisions. The future may
    /// be dropped at any time; nothing is lost by it.
    ///
    /// # Errors
    /// [`WatchError::Lagged`] if events were dropped before they were asked for, and
    /// [`WatchError::Closed`] if there are no more and never will be.
    pub async fn next(&mut self, max: usize) -> Result<Vec<Arc<Event<X, Y>>>, WatchError> {
        self.next_with_byte_limit(max, usize::MAX).await
    }

    /// The same, but no more events once their values exceed this many bytes. Events that the
    /// caller holds stay in memory, also when the window has dropped them.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn next_with_byte_limit(
        &mut self,
        max: usize,
        bytes: usize,
    ) -> Result<Vec<Arc<Event<X, Y>>>, WatchError> {
        loop {
            // Registered before the check, so that a notification in between is not missed.
            let rung = self.notify.notified();
            let closed = self.shared.is_closed();
            let (events, seen) = self.poll_events(max, bytes)?;
            self.position = seen;
            if !events.is_empty() {
                return Ok(events);
            }
            if closed {
                return Err(WatchError::Closed);
            }
            rung.await;
        }
    }

    /// Returns the events that are there already, at most `max` of them, without waiting.
    ///
    /// # Errors
    /// [`WatchError::Lagged`] if events were dropped before they were asked for.
    pub fn try_next(&mut self, max: usize) -> Result<Vec<Arc<Event<X, Y>>>, WatchError> {
        let (events, seen) = self.poll_events(max, usize::MAX)?;
        self.position = seen;
        Ok(events)
    }

    /// The newest revision of the store such that every event of this space up to it has been
    /// handed out. It grows with every change to the store, also when this space is idle.
    ///
    /// For a watch that was started after a revision yet to come, this is the store's revision.
    pub fn progress_revision(&mut self) -> Revision {
        // Falling behind is reported by `next`; until then what was returned stays true.
        if let Ok((events, seen)) = self.poll_events(1, usize::MAX)
            && events.is_empty()
        {
            self.position = seen;
        }
        self.position.min(self.shared.state.load().revision)
    }

    /// The next events, and the revision that is reached with them.
    fn poll_events(
        &self,
        max: usize,
        bytes: usize,
    ) -> Result<(Events<X, Y>, Revision), WatchError> {
        let state = self.shared.state.load();
        let window = state.windows.get(&self.space);
        let oldest = window.map_or(state.floor, |window| window.floor);
        if self.position < oldest {
            return Err(WatchError::Lagged { oldest });
        }
        let mut newer =
            window.into_iter().flat_map(|w| w.events.range(Bound::Excluded(&self.position)));
        let mut left = bytes.max(1);
        let mut events = Vec::new();
        while events.len() < max.max(1)
            && left > 0
            && let Some(event) = newer.next()
        {
            left = left.saturating_sub(event.entry.value.len());
            events.push(Arc::clone(event));
        }
        let seen = match events.last() {
            Some(last) if newer.next().is_some() => last.revision,
            Some(_) | None => state.revision.max(self.position),
        };
        Ok((events, seen))
    }
}

impl<X, Y> fmt::Debug for Watch<X, Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Watch");
        out.field("space", &self.space).field("seen", &self.position).finish_non_exhaustive()
    }
}
