//! Following the changes of a space.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::store::Shared;
use crate::{Event, Revision};

/// A place in the changes of one space.
///
/// It is a place and nothing more: events wait in the window all watches of the space share, so a
/// watch that is never read costs nothing, and one that is read too late is told so.
pub struct Watch<X, Y> {
    shared: Arc<Shared<X, Y>>,
    bell: Arc<Notify>,
    space: Arc<str>,
    /// Every event up to here has been handed out.
    seen: Revision,
}

/// Events in their order.
type Events<X, Y> = Vec<Arc<Event<X, Y>>>;

/// Why a watch has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// Events were dropped before they were asked for: read the space again and watch from there.
    #[error("the watch fell behind: changes before revision {oldest} are no longer kept")]
    Lagged {
        /// The oldest revision a new watch can start after.
        oldest: Revision,
    },
    /// The store was closed, and all its events have been handed out.
    #[error("the store is closed")]
    Closed,
}

impl<X, Y> Watch<X, Y> {
    pub(crate) fn new(shared: Arc<Shared<X, Y>>, space: &str, after: Revision) -> Self {
        let bell = shared.bells.of(space);
        Self { shared, bell, space: Arc::from(space), seen: after }
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
        self.next_within(max, usize::MAX).await
    }

    /// The same, but no more events once their values have so many bytes. Who holds events keeps
    /// them in memory, also when the window no longer does.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn next_within(
        &mut self,
        max: usize,
        bytes: usize,
    ) -> Result<Vec<Arc<Event<X, Y>>>, WatchError> {
        loop {
            // Before looking: it hears a bell that is rung between looking and waiting.
            let rung = self.bell.notified();
            let closed = self.shared.is_closed();
            let (events, seen) = self.look(max, bytes)?;
            self.seen = seen;
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
    pub fn ready(&mut self, max: usize) -> Result<Vec<Arc<Event<X, Y>>>, WatchError> {
        let (events, seen) = self.look(max, usize::MAX)?;
        self.seen = seen;
        Ok(events)
    }

    /// The newest revision of the store such that every event of this space up to it has been
    /// handed out. It grows with every change to the store, also when this space is idle.
    ///
    /// For a watch that was started after a revision yet to come, this is the store's revision.
    pub fn caught_up(&mut self) -> Revision {
        // Falling behind is reported by `next`; until then what was handed out stays true.
        if let Ok((events, seen)) = self.look(1, usize::MAX)
            && events.is_empty()
        {
            self.seen = seen;
        }
        self.seen.min(self.shared.state.load().revision)
    }

    /// The next events, and what will have been seen with them.
    fn look(&self, max: usize, bytes: usize) -> Result<(Events<X, Y>, Revision), WatchError> {
        let state = self.shared.state.load();
        let window = state.windows.get(&self.space);
        let oldest = window.map_or(state.floor, |window| window.floor);
        if self.seen < oldest {
            return Err(WatchError::Lagged { oldest });
        }
        let mut newer =
            window.into_iter().flat_map(|w| w.events.range(Bound::Excluded(&self.seen)));
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
            Some(_) | None => state.revision.max(self.seen),
        };
        Ok((events, seen))
    }
}

impl<X, Y> fmt::Debug for Watch<X, Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Watch");
        out.field("space", &self.space).field("seen", &self.seen).finish_non_exhaustive()
    }
}
