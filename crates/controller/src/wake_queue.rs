//! Whose turn it is: one slot per key.
//!
//! A thousand wake-ups of a key are one plan, and a key is never planned twice at once: a wake-up
//! during its plan means one more plan after it. Keys are taken in the order they became due. A key that
//! is told now and then only ([`Controller::pace`](gantry_reconcile::Controller::pace)) rests after each
//! plan, as if that were still under way.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};
use gantry_reconcile::Key;
use tokio::sync::Notify;

/// The slots of all keys that have something to wait for.
#[derive(Debug, Default)]
pub struct Slots {
    slots: HashMap<Key, Slot>,
    /// Keys whose turn it is, each once.
    ready: VecDeque<Key>,
    /// Keys whose turn comes, by time and then by who asked first.
    later: BTreeMap<Ticket, Key>,
    tickets: u64,
}

/// A place in the order of things to come.
type Ticket = (Moment, u64);

#[derive(Debug)]
enum Slot {
    /// In `ready`.
    Ready,
    /// In `later`, under this ticket.
    Later(Ticket),
    /// Being planned; or resting after that, and then also in `later`, until its rest is over.
    Working {
        /// Somebody woke it meanwhile.
        again: bool,
        /// Somebody asked for another turn at this time.
        later: Option<Moment>,
    },
}

impl Slots {
    /// It is this key's turn now.
    pub fn wake(&mut self, key: Key) {
        match self.slots.entry(key) {
            Entry::Vacant(slot) => {
                self.ready.push_back(slot.key().clone());
                slot.insert(Slot::Ready);
            }
            Entry::Occupied(mut slot) => match slot.get_mut() {
                Slot::Ready => {}
                Slot::Later(ticket) => {
                    self.later.remove(ticket);
                    self.ready.push_back(slot.key().clone());
                    slot.insert(Slot::Ready);
                }
                Slot::Working { again, .. } => *again = true,
            },
        }
    }

    /// It is this key's turn at `at`, or before.
    pub fn wake_at(&mut self, key: Key, at: Moment) {
        match self.slots.get_mut(&key) {
            None => self.put_later(key, at),
            Some(Slot::Ready) => {}
            Some(Slot::Later(ticket)) if ticket.0 <= at => {}
            Some(Slot::Later(ticket)) => {
                self.later.remove(ticket);
                self.put_later(key, at);
            }
            Some(Slot::Working { later, .. }) => {
                *later = Some(later.map_or(at, |before| before.min(at)));
            }
        }
    }

    /// Takes the key whose turn has been due for longest. It is planned until
    /// [`done`](Slots::done) is called.
    pub fn take(&mut self, now: Moment) -> Option<Key> {
        while let Some(first) = self.later.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            if matches!(self.slots.get(&key), Some(Slot::Working { .. })) {
                self.done(&key, None);
                continue;
            }
            self.slots.insert(key.clone(), Slot::Ready);
            self.ready.push_back(key);
        }
        let key = self.ready.pop_front()?;
        self.slots.insert(key.clone(), Slot::Working { again: false, later: None });
        Some(key)
    }

    /// The plan of a key that was taken is carried out; it wants another turn at `next`.
    pub fn done(&mut self, key: &Key, next: Option<Moment>) {
        let Some(Slot::Working { again, later }) = self.slots.remove(key) else { return };
        if again {
            self.wake(key.clone());
        } else if let Some(at) = [later, next].into_iter().flatten().min() {
            self.put_later(key.clone(), at);
        }
    }

    /// The plan of a key that was taken is carried out; it wants another turn at `next`, and has none
    /// before `until`.
    pub fn rest(&mut self, key: &Key, next: Option<Moment>, until: Moment) {
        let Some(Slot::Working { later, .. }) = self.slots.get_mut(key) else { return };
        *later = [*later, next].into_iter().flatten().min();
        self.tickets += 1;
        self.later.insert((until, self.tickets), key.clone());
    }

    /// When the next turn that lies ahead is due, or a rest is over.
    #[must_use]
    pub fn next_at(&self) -> Option<Moment> {
        self.later.first_key_value().map(|(ticket, _)| ticket.0)
    }

    /// How many keys could be taken now, not counting those that have become due since.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// How many keys there are, whatever they wait for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nobody waits for anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn put_later(&mut self, key: Key, at: Moment) {
        self.tickets += 1;
        let ticket = (at, self.tickets);
        self.later.insert(ticket, key.clone());
        self.slots.insert(key, Slot::Later(ticket));
    }
}

/// Slots that workers wait at.
#[derive(Debug)]
pub struct Queue {
    slots: Mutex<Slots>,
    news: Notify,
    clock: Clock,
    /// How long keys rest.
    pace: Duration,
}

impl Queue {
    /// A queue in which nobody waits.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self::paced(clock, Duration::ZERO)
    }

    /// A queue in which nobody waits yet, and every key rests for so long after each plan.
    #[must_use]
    pub fn paced(clock: Clock, pace: Duration) -> Self {
        Self { slots: Mutex::default(), news: Notify::new(), clock, pace }
    }

    /// See [`Slots::wake`].
    pub fn wake(&self, key: Key) {
        self.lock().wake(key);
        self.news.notify_one();
    }

    /// See [`Slots::wake_at`].
    pub fn wake_at(&self, key: Key, at: Moment) {
        self.lock().wake_at(key, at);
        self.news.notify_one();
    }

    /// Waits for a key whose turn it is, and takes it. Dropping the future takes nothing.
    pub async fn next(&self) -> Key {
        loop {
            let next_at = {
                let mut slots = self.lock();
                if let Some(key) = slots.take(self.clock.moment()) {
                    if slots.ready() > 0 {
                        // One notice may stand for many keys: each who takes one passes it on.
                        self.news.notify_one();
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
                // Either may be dropped: both only wait, and what they wait for is looked up again.
                () = self.news.notified() => {}
                () = due => {}
            }
        }
    }

    /// Takes a key whose turn it is, if there is one.
    pub fn try_next(&self) -> Option<Key> {
        self.lock().take(self.clock.moment())
    }

    /// Returns when a key can be taken. Dropping the future takes nothing.
    pub async fn ready_now(&self) {
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
                // Either may be dropped: both only wait, and what they wait for is looked up again.
                () = self.news.notified() => {}
                () = due => {}
            }
        }
    }

    /// See [`Slots::done`], and [`Slots::rest`] where keys rest.
    pub fn done(&self, key: &Key, next: Option<Moment>) {
        match self.pace.is_zero() {
            true => self.lock().done(key, next),
            false => self.lock().rest(key, next, self.clock.moment() + self.pace),
        }
        self.news.notify_one();
    }

    /// How many keys could be taken now.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.lock().ready()
    }

    /// How many keys there are, whatever they wait for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether nobody waits for anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// No code of others runs under the lock, so a poisoned one is still good.
    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
