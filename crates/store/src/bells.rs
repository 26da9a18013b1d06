//! Waking those who wait, on a thread of its own.
//!
//! Waking a thousand watchers is a millisecond's work here and many more for those who are woken:
//! each sends what it found. If all of them were woken at each change, whoever wants to make the next
//! change would wait behind them. The writer therefore only notes which bells are due, and another
//! thread rings them, a group of watchers at a time. Changes that are made meanwhile are found by
//! the groups that are still to come, and told together with the first.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Notify;

/// Watches on one bell.
const GROUP: usize = 64;
/// How long those who were woken have before as many others are. About what sending takes them on
/// one processor: less, and they pile up; more, and the processor waits for bells.
const PAUSE: Duration = Duration::from_millis(1);

/// Everything that can be waited for.
pub(crate) struct Bells {
    /// Rung at every new revision.
    pub(crate) any: Arc<Notify>,
    /// The bells of each space. As many watches hang on a bell as others than this hold it.
    spaces: RwLock<HashMap<Arc<str>, Vec<Arc<Notify>>>>,
    due: Mutex<Due>,
    wake: Condvar,
}

#[derive(Default)]
struct Due {
    /// Spaces that changed.
    spaces: BTreeSet<Arc<str>>,
    any: bool,
    stop: bool,
}

impl Bells {
    pub(crate) fn new() -> Self {
        let (any, spaces) = (Arc::default(), RwLock::default());
        Self { any, spaces, due: Mutex::default(), wake: Condvar::new() }
    }

    /// A bell for a watch of a space.
    pub(crate) fn of(&self, space: &str) -> Arc<Notify> {
        let mut spaces = self.spaces.write().unwrap_or_else(PoisonError::into_inner);
        if !spaces.contains_key(space) {
            spaces.insert(Arc::from(space), Vec::new());
        }
        let bells = spaces.get_mut(space).expect("it was just put there");
        if let Some(bell) = bells.iter().find(|bell| watches(bell) < GROUP) {
            return Arc::clone(bell);
        }
        let bell = Arc::default();
        bells.push(Arc::clone(&bell));
        bell
    }

    /// Notes that spaces have changed. Returns at once.
    pub(crate) fn changed(&self, spaces: BTreeSet<Arc<str>>) {
        let mut due = self.due();
        due.any = true;
        due.spaces.extend(spaces);
        drop(due);
        self.wake.notify_one();
    }

    /// Starts the thread that rings.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let bells = Arc::clone(self);
        thread::Builder::new().name("store-bells".to_owned()).spawn(move || bells.run())
    }

    /// Rings everything once more and ends the thread.
    pub(crate) fn stop(&self) {
        self.due().stop = true;
        self.wake.notify_one();
    }

    fn run(&self) {
        let mut round = Round::default();
        let mut woken = 0;
        loop {
            let due = self.take(round.is_over(), woken >= GROUP);
            if woken >= GROUP {
                woken = 0;
            }
            if due.any {
                self.any.notify_waiters();
            }
            if due.stop {
                let spaces = self.spaces.read().unwrap_or_else(PoisonError::into_inner);
                spaces.values().flatten().for_each(|bell| bell.notify_waiters());
                return;
            }
            round.add(due.spaces);
            let Some((space, place)) = round.next(|space| self.count(space)) else { continue };
            let spaces = self.spaces.read().unwrap_or_else(PoisonError::into_inner);
            let bell = spaces.get(&space).and_then(|bells| bells.get(place)).cloned();
            // Not while the map is held: someone may want to add to it.
            drop(spaces);
            if let Some(bell) = bell {
                woken += watches(&bell);
                bell.notify_waiters();
            }
        }
    }

    /// What has become due: waits for it if there is nothing else to do, and leaves those who were
    /// just woken some time.
    fn take(&self, idle: bool, pause: bool) -> Due {
        let mut due = self.due();
        if pause {
            let wait = self.wake.wait_timeout_while(due, PAUSE, |due| !due.stop);
            due = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        if idle {
            let wait = self.wake.wait_while(due, |due| !due.any && !due.stop);
            due = wait.unwrap_or_else(PoisonError::into_inner);
        }
        mem::take(&mut due)
    }

    /// How many bells a space has.
    fn count(&self, space: &str) -> usize {
        let spaces = self.spaces.read().unwrap_or_else(PoisonError::into_inner);
        spaces.get(space).map_or(0, Vec::len)
    }

    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many watches hang on a bell, or one more while it is being rung.
fn watches(bell: &Arc<Notify>) -> usize {
    Arc::strong_count(bell) - 1
}

/// The order in which bells are rung: the spaces take turns, so that one with many watches does not
/// keep those of another waiting.
#[derive(Default)]
struct Round(VecDeque<Turn>);

struct Turn {
    space: Arc<str>,
    /// The bell that is next.
    place: usize,
    /// It changed after some of its bells were rung.
    again: bool,
}

impl Round {
    fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Spaces that have changed.
    fn add(&mut self, spaces: BTreeSet<Arc<str>>) {
        for space in spaces {
            match self.0.iter_mut().find(|turn| turn.space == space) {
                Some(turn) => turn.again |= turn.place > 0,
                None => self.0.push_back(Turn { space, place: 0, again: false }),
            }
        }
    }

    /// The bell to ring now: that of a space with a number.
    fn next(&mut self, count: impl Fn(&str) -> usize) -> Option<(Arc<str>, usize)> {
        let mut turn = self.0.pop_front()?;
        let now = (Arc::clone(&turn.space), turn.place);
        turn.place += 1;
        if turn.place >= count(&turn.space) {
            turn.place = 0;
            if !mem::take(&mut turn.again) {
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

    /// The bells that are rung, until nothing is due or `most` were.
    fn ring(round: &mut Round, most: usize) -> String {
        let count = |space: &str| if space == "many" { 3 } else { 1 };
        let rung = std::iter::from_fn(|| round.next(count)).take(most);
        rung.map(|(space, place)| format!("{space}{place} ")).collect::<String>().trim().to_owned()
    }

    #[test]
    fn spaces_take_turns() {
        let mut round = Round::default();
        round.add(spaces("a many b"));
        assert_eq!(ring(&mut round, 9), "a0 b0 many0 many1 many2");
        assert!(round.is_over());
    }

    #[test]
    fn a_space_that_changes_meanwhile_is_rung_again_from_the_start() {
        let mut round = Round::default();
        round.add(spaces("many"));
        assert_eq!(ring(&mut round, 2), "many0 many1");
        round.add(spaces("many a"));
        round.add(spaces("many"));
        assert_eq!(ring(&mut round, 9), "many2 a0 many0 many1 many2");
        assert!(round.is_over());
    }

    #[test]
    fn what_changes_before_its_turn_is_rung_once() {
        let mut round = Round::default();
        round.add(spaces("a many"));
        round.add(spaces("many"));
        assert_eq!(ring(&mut round, 9), "a0 many0 many1 many2");
    }

    #[test]
    fn bells_are_shared_by_few_and_given_to_the_next() {
        let bells = Bells::new();
        let mut held: Vec<_> = (0..2 * GROUP + 1).map(|_| bells.of("a")).collect();
        assert_eq!(bells.count("a"), 3);
        assert_eq!(held.iter().filter(|bell| Arc::ptr_eq(bell, &held[0])).count(), GROUP);
        let first = Arc::downgrade(&held[0]);
        held.drain(..1);
        assert!(std::ptr::eq(first.as_ptr(), Arc::as_ptr(&bells.of("a"))), "the place is taken");
        assert_eq!(bells.count("a"), 3);
        assert_eq!(bells.count("b"), 0);
    }
}
