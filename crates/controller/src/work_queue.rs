//! The work queue of a controller: each key is in it at most once.
//!
//! Any number of enqueues of a key cause one plan, and a key is never planned concurrently: an
//! enqueue during its plan means one more plan after it. Keys are taken in the order they became
//! due. With a minimum interval
//! ([`Controller::min_plan_interval`](gantry_reconcile::Controller::min_plan_interval)) a key is
//! held back after each plan as if that were still in progress.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};
use gantry_reconcile::Key;
use tokio::sync::Notify;

/// The state of all keys that are queued, delayed or being processed.
#[derive(Debug, Default)]
pub struct WorkQueueState {
    items: HashMap<Key, WorkItem>,
    /// Keys that are due, each once.
    ready: VecDeque<Key>,
    /// Keys that become due later, by time and then in the order they were added.
    delayed: BTreeMap<Ticket, Key>,
    last_ticket: u64,
}

/// The position of a delayed key: its time, and a number that keeps equal times in order.
type Ticket = (Moment, u64);

#[derive(Debug)]
enum WorkItem {
    /// In `ready`.
    Ready,
    /// In `delayed`, under this ticket.
    Delayed(Ticket),
    /// Being planned; or within its minimum interval after that, and then also in `delayed`.
    Processing {
        /// It was enqueued meanwhile.
        dirty: bool,
        /// It is to be requeued at this time.
        requeue_at: Option<Moment>,
    },
}

impl WorkQueueState {
    /// Enqueues a key now.
    pub fn enqueue(&mut self, key: Key) {
        match self.items.entry(key) {
            Entry::Vacant(slot) => {
                self.ready.push_back(slot.key().clone());
                slot.insert(WorkItem::Ready);
            }
            Entry::Occupied(mut slot) => match slot.get_mut() {
                WorkItem::Ready => {}
                WorkItem::Delayed(ticket) => {
                    self.delayed.remove(ticket);
                    self.ready.push_back(slot.key().clone());
                    slot.insert(WorkItem::Ready);
                }
                WorkItem::Processing { dirty: again, .. } => *again = true,
            },
        }
    }

    /// Enqueues a key at `at`, unless it is due before.
    pub fn enqueue_at(&mut self, key: Key, at: Moment) {
        match self.items.get_mut(&key) {
            None => self.delay_until(key, at),
            Some(WorkItem::Ready) => {}
            Some(WorkItem::Delayed(ticket)) if ticket.0 <= at => {}
            Some(WorkItem::Delayed(ticket)) => {
                self.delayed.remove(ticket);
                self.delay_until(key, at);
            }
            Some(WorkItem::Processing { requeue_at: later, .. }) => {
                *later = Some(later.map_or(at, |before| before.min(at)));
            }
        }
    }

    /// Takes the key that has been due for longest. It counts as being processed until
    /// [`done`](WorkQueueState::done) is called.
    pub fn take(&mut self, now: Moment) -> Option<Key> {
        while let Some(first) = self.delayed.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            if matches!(self.items.get(&key), Some(WorkItem::Processing { .. })) {
                self.done(&key, None);
                continue;
            }
            self.items.insert(key.clone(), WorkItem::Ready);
            self.ready.push_back(key);
        }
        let key = self.ready.pop_front()?;
        self.items.insert(key.clone(), WorkItem::Processing { dirty: false, requeue_at: None });
        Some(key)
    }

    /// Ends the processing of a key that was taken; it is requeued at `next`.
    pub fn done(&mut self, key: &Key, next: Option<Moment>) {
        let Some(WorkItem::Processing { dirty: again, requeue_at: later }) = self.items.remove(key)
        else {
            return;
        };
        if again {
            self.enqueue(key.clone());
        } else if let Some(at) = [later, next].into_iter().flatten().min() {
            self.delay_until(key.clone(), at);
        }
    }

    /// Ends the processing of a key that was taken; it is requeued at `next`, but not before
    /// `until`.
    pub fn done_not_before(&mut self, key: &Key, next: Option<Moment>, until: Moment) {
        let Some(WorkItem::Processing { requeue_at: later, .. }) = self.items.get_mut(key) else {
            return;
        };
        *later = [*later, next].into_iter().flatten().min();
        self.last_ticket += 1;
        self.delayed.insert((until, self.last_ticket), key.clone());
    }

    /// When the next delayed key becomes due, or the next minimum interval ends.
    #[must_use]
    pub fn next_at(&self) -> Option<Moment> {
        self.delayed.first_key_value().map(|(ticket, _)| ticket.0)
    }

    /// The number of keys that can be taken now, not counting those that have become due since.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// The number of keys in any state.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether no key is queued, delayed or being processed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn delay_until(&mut self, key: Key, at: Moment) {
        self.last_ticket += 1;
        let ticket = (at, self.last_ticket);
        self.delayed.insert(ticket, key.clone());
        self.items.insert(key, WorkItem::Delayed(ticket));
    }
}

/// A work queue that workers wait on.
#[derive(Debug)]
pub struct WorkQueue {
    state: Mutex<WorkQueueState>,
    notify: Notify,
    clock: Clock,
    /// The minimum time between two plans of a key.
    min_interval: Duration,
}

impl WorkQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self::with_min_interval(clock, Duration::ZERO)
    }

    /// An empty queue with a minimum time between two plans of a key.
    #[must_use]
    pub fn with_min_interval(clock: Clock, pace: Duration) -> Self {
        Self { state: Mutex::default(), notify: Notify::new(), clock, min_interval: pace }
    }

    /// See [`WorkQueueState::enqueue`].
    pub fn enqueue(&self, key: Key) {
        self.lock().enqueue(key);
        self.notify.notify_one();
    }

    /// See [`WorkQueueState::enqueue_at`].
    pub fn enqueue_at(&self, key: Key, at: Moment) {
        self.lock().enqueue_at(key, at);
        self.notify.notify_one();
    }

    /// Waits for a key that is due, and takes it. Dropping the future takes nothing.
    pub async fn next(&self) -> Key {
        loop {
            let next_at = {
                let mut slots = self.lock();
                if let Some(key) = slots.take(self.clock.moment()) {
                    if slots.ready() > 0 {
                        // One notification may stand for many keys: a worker that takes one
                        // notifies the next worker.
                        self.notify.notify_one();
                    }
                    return key;
                }
                slots.next_at()
            };
            let due = async {
                match next_at {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Either is cancel-safe: both only wait, and the state is read again.
                () = self.notify.notified() => {}
                () = due => {}
            }
        }
    }

    /// Takes a key that is due, if there is one.
    pub fn try_next(&self) -> Option<Key> {
        self.lock().take(self.clock.moment())
    }

    /// Returns when a key is due. Dropping the future takes nothing.
    pub async fn wait_until_ready(&self) {
        loop {
            let (ready, next_at) = {
                let slots = self.lock();
                (slots.ready() > 0, slots.next_at())
            };
            if ready || next_at.is_some_and(|at| at <= self.clock.moment()) {
                return;
            }
            let due = async {
                match next_at {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Either is cancel-safe: both only wait, and the state is read again.
                () = self.notify.notified() => {}
                () = due => {}
            }
        }
    }

    /// See [`WorkQueueState::done`], and [`WorkQueueState::done_not_before`] with a minimum
    /// interval.
    pub fn done(&self, key: &Key, next: Option<Moment>) {
        match self.min_interval.is_zero() {
            true => self.lock().done(key, next),
            false => {
                self.lock().done_not_before(key, next, self.clock.moment() + self.min_interval);
            }
        }
        self.notify.notify_one();
    }

    /// The number of keys that can be taken now.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.lock().ready()
    }

    /// The number of keys in any state.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no key is queued, delayed or being processed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// No foreign code runs under the lock, so the data of a poisoned lock is still intact.
    fn lock(&self) -> MutexGuard<'_, WorkQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
