//! Notifies waiting watches, on a thread of its own.
//!
//! Notifying a thousand watches is a millisecond's work here and many more for the tasks that are
//! woken: each sends the events it found. If all of them were woken at each change, the next write
//! would wait behind them. The writer therefore only records which spaces have changed, and another
//! thread notifies their watches, one group at a time. Groups that are notified later also find the
//! changes that were made meanwhile, and send them together with the first.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Notify;

/// The number of watches that share one [`Notify`].
const WATCHES_PER_NOTIFY: usize = 64;
/// The pause between two groups. About what sending takes a group on one processor: with less,
/// groups pile up; with more, the processor is idle.
const NOTIFY_GROUP_INTERVAL: Duration = Duration::from_millis(1);

/// Everything that can be waited for.
pub(crate) struct Notifier {
    /// Notified at every new revision.
    pub(crate) any_revision: Arc<Notify>,
    /// The notifies of each space. The number of watches on one is its reference count without
    /// ours.
    spaces: RwLock<HashMap<Arc<str>, Vec<Arc<Notify>>>>,
    pending: Mutex<PendingNotifications>,
    wake: Condvar,
}

#[derive(Default)]
struct PendingNotifications {
    /// Spaces that changed.
    spaces: BTreeSet<Arc<str>>,
    any_revision: bool,
    stop: bool,
}

impl Notifier {
    pub(crate) fn new() -> Self {
        let (any, spaces) = (Arc::default(), RwLock::default());
        Self { any_revision: any, spaces, pending: Mutex::default(), wake: Condvar::new() }
    }

    /// A notify for a watch of a space.
    pub(crate) fn subscribe(&self, space: &str) -> Arc<Notify> {
        let mut spaces = self.spaces.write().unwrap_or_else(PoisonError::into_inner);
        if !spaces.contains_key(space) {
            spaces.insert(Arc::from(space), Vec::new());
        }
        let bells = spaces.get_mut(space).expect("it was just put there");
        if let Some(bell) = bells.iter().find(|bell| subscriber_count(bell) < WATCHES_PER_NOTIFY) {
            return Arc::clone(bell);
        }
        let bell = Arc::default();
        bells.push(Arc::clone(&bell));
        bell
    }

    /// Records that spaces have changed. Returns at once.
    pub(crate) fn notify_changed(&self, spaces: BTreeSet<Arc<str>>) {
        let mut due = self.lock_pending();
        due.any_revision = true;
        due.spaces.extend(spaces);
        drop(due);
        self.wake.notify_one();
    }

    /// Starts the thread that notifies.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let bells = Arc::clone(self);
        thread::Builder::new().name("store-bells".to_owned()).spawn(move || bells.run())
    }

    /// Notifies everything once more and ends the thread.
    pub(crate) fn stop(&self) {
        self.lock_pending().stop = true;
        self.wake.notify_one();
    }

    fn run(&self) {
        let mut round = NotifyRotation::default();
        let mut woken = 0;
        loop {
            let due = self.wait_pending(round.is_empty(), woken >= WATCHES_PER_NOTIFY);
            if woken >= WATCHES_PER_NOTIFY {
                woken = 0;
            }
            if due.any_revision {
                self.any_revision.notify_waiters();
            }
            if due.stop {
                let spaces = self.spaces.read().unwrap_or_else(PoisonError::into_inner);
                spaces.values().flatten().for_each(|bell| bell.notify_waiters());
                return;
            }
            round.add(due.spaces);
            let Some((space, place)) = round.next(|space| self.notify_count(space)) else {
                continue;
            };
            let spaces = self.spaces.read().unwrap_or_else(PoisonError::into_inner);
            let bell = spaces.get(&space).and_then(|bells| bells.get(place)).cloned();
            // Not while the map is locked: another thread may want to add to it.
            drop(spaces);
            if let Some(bell) = bell {
                woken += subscriber_count(&bell);
                bell.notify_waiters();
            }
        }
    }

    /// The spaces that have changed: waits for one if there is nothing else to do, and for the
    /// pause after a group that was just notified.
    fn wait_pending(&self, idle: bool, pause: bool) -> PendingNotifications {
        let mut due = self.lock_pending();
        if pause {
            let wait = self.wake.wait_timeout_while(due, NOTIFY_GROUP_INTERVAL, |due| !due.stop);
            due = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        if idle {
            let wait = self.wake.wait_while(due, |due| !due.any_revision && !due.stop);
            due = wait.unwrap_or_else(PoisonError::into_inner);
        }
        mem::take(&mut due)
    }

    /// The number of notifies of a space.
    fn notify_count(&self, space: &str) -> usize {
        let spaces = self.spaces.read().unwrap_or_else(PoisonError::into_inner);
        spaces.get(space).map_or(0, Vec::len)
    }

    fn lock_pending(&self) -> MutexGuard<'_, PendingNotifications> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of watches that share a notify, or one more while it is being notified.
fn subscriber_count(bell: &Arc<Notify>) -> usize {
    Arc::strong_count(bell) - 1
}

/// The order of notifications: round-robin over the spaces, so that one with many watches does not
/// delay those of another.
#[derive(Default)]
struct NotifyRotation(VecDeque<SpaceRotation>);

struct SpaceRotation {
    space: Arc<str>,
    /// The next notify.
    next_index: usize,
    /// The space changed after some of its watches were notified.
    restart: bool,
}

impl NotifyRotation {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds spaces that have changed.
    fn add(&mut self, spaces: BTreeSet<Arc<str>>) {
        for space in spaces {
            match self.0.iter_mut().find(|turn| turn.space == space) {
                Some(turn) => turn.restart |= turn.next_index > 0,
                None => self.0.push_back(SpaceRotation { space, next_index: 0, restart: false }),
            }
        }
    }

    /// The next notify: its space and its index.
    fn next(&mut self, count: impl Fn(&str) -> usize) -> Option<(Arc<str>, usize)> {
        let mut turn = self.0.pop_front()?;
        let now = (Arc::clone(&turn.space), turn.next_index);
        turn.next_index += 1;
        if turn.next_index >= count(&turn.space) {
            turn.next_index = 0;
            if !mem::take(&mut turn.restart) {
                return Some(now);
            }
        }
        self.0.push_back(turn);
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spaces(names: &str) -> BTreeSet<Arc<str>> {
        names.split_whitespace().map(Arc::from).collect()
    }

    /// The sequence of notifications, until nothing is pending or `most` were made.
    fn notified(round: &mut NotifyRotation, most: usize) -> String {
        let count = |space: &str| if space == "many" { 3 } else { 1 };
        let rung = std::iter::from_fn(|| round.next(count)).take(most);
        rung.map(|(space, place)| format!("{space}{place} ")).collect::<String>().trim().to_owned()
    }

    #[test]
    fn spaces_are_notified_round_robin() {
        let mut round = NotifyRotation::default();
        round.add(spaces("a many b"));
        assert_eq!(notified(&mut round, 9), "a0 b0 many0 many1 many2");
        assert!(round.is_empty());
    }

    #[test]
    fn changed_space_restarts_notifying() {
        let mut round = NotifyRotation::default();
        round.add(spaces("many"));
        assert_eq!(notified(&mut round, 2), "many0 many1");
        round.add(spaces("many a"));
        round.add(spaces("many"));
        assert_eq!(notified(&mut round, 9), "many2 a0 many0 many1 many2");
        assert!(round.is_empty());
    }

    #[test]
    fn pending_space_is_notified_once() {
        let mut round = NotifyRotation::default();
        round.add(spaces("a many"));
        round.add(spaces("many"));
        assert_eq!(notified(&mut round, 9), "a0 many0 many1 many2");
    }

    #[test]
    fn notifies_are_shared_and_reused() {
        let bells = Notifier::new();
        let mut held: Vec<_> =
            (0..2 * WATCHES_PER_NOTIFY + 1).map(|_| bells.subscribe("a")).collect();
        assert_eq!(bells.notify_count("a"), 3);
        assert_eq!(
            held.iter().filter(|bell| Arc::ptr_eq(bell, &held[0])).count(),
            WATCHES_PER_NOTIFY
        );
        let first = Arc::downgrade(&held[0]);
        held.drain(..1);
        assert!(
            std::ptr::eq(first.as_ptr(), Arc::as_ptr(&bells.subscribe("a"))),
            "the place is taken"
        );
        assert_eq!(bells.notify_count("a"), 3);
        assert_eq!(bells.notify_count("b"), 0);
    }
}
