//! One process that runs the controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::server::{News, Server};
use crate::controller::Controller;
use crate::object::{Key, Resource};
use crate::plan::Step;
use crate::world::{Change, World};
use crate::write::{Outcome, Write};

/// A controller by its place in the scenario, and an object.
pub(super) type Slot = (usize, Key);

/// What a process has in memory.
#[derive(Debug)]
pub(super) struct Replica {
    world: World,
    /// For each kind, the place in the server's news that was not read yet.
    cursors: BTreeMap<Resource, usize>,
    pub(super) queue: BTreeSet<Slot>,
    /// When keys are due; a key may be due more than once.
    timers: BTreeSet<(Timestamp, Slot)>,
    /// How many writes of a key are under way, and whether it was woken meanwhile.
    busy: BTreeMap<Slot, (usize, bool)>,
    pub(super) in_flight: Vec<(Slot, Step)>,
    /// How often in a row a key had to wait.
    failures: BTreeMap<Slot, u32>,
}

impl Replica {
    /// A process that has just started: it lists everything there is.
    pub(super) fn start(controllers: &[&dyn Controller], server: &Server) -> Self {
        let world = World::new(controllers.iter().flat_map(|it| it.kinds()));
        let resources: Vec<Resource> = world.shelves().map(|it| it.resource()).collect();
        let mut replica = Self {
            world,
            cursors: BTreeMap::new(),
            queue: BTreeSet::new(),
            timers: BTreeSet::new(),
            busy: BTreeMap::new(),
            in_flight: Vec::new(),
            failures: BTreeMap::new(),
        };
        let filled: Vec<Change> =
            resources.iter().flat_map(|it| replica.relist(it, server)).collect();
        // Told only when every shelf is filled, as the real shell does.
        for change in &filled {
            replica.tell(controllers, change);
        }
        replica
    }

    /// Reads a kind anew.
    pub(super) fn relist(&mut self, resource: &Resource, server: &Server) -> Vec<Change> {
        let texts: Vec<String> = server.list(resource).iter().map(|it| it.to_string()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.cursors.insert(resource.clone(), server.news(resource).len());
        let Some(shelf) = self.world.find(resource) else { return Vec::new() };
        shelf.replace(&texts, server.revision()).0
    }

    /// The kinds about which there are news.
    pub(super) fn behind(&self, server: &Server) -> Vec<Resource> {
        let behind = self.cursors.iter();
        let behind = behind.filter(|(resource, cursor)| **cursor < server.news(resource).len());
        behind.map(|(resource, _)| resource.clone()).collect()
    }

    pub(super) fn kinds(&self) -> Vec<Resource> {
        self.cursors.keys().cloned().collect()
    }

    /// Reads the next news about a kind.
    pub(super) fn deliver(
        &mut self,
        controllers: &[&dyn Controller],
        resource: &Resource,
        server: &Server,
    ) {
        let Some(cursor) = self.cursors.get_mut(resource) else { return };
        let Some(News { text, end }) = server.news(resource).get(*cursor) else { return };
        *cursor += 1;
        let Some(shelf) = self.world.find(resource) else { return };
        let seen = if *end { shelf.saw_end(text) } else { shelf.saw(text) };
        // What cannot be read is as good as absent; the shell counts it.
        if let Ok(Some(change)) = seen {
            self.tell(controllers, &change);
        }
    }

    pub(super) fn tell(&mut self, controllers: &[&dyn Controller], change: &Change) {
        for (place, controller) in controllers.iter().enumerate() {
            if controller.kinds().iter().any(|kind| *kind.resource() == change.resource) {
                for key in controller.wakes(&self.world, change) {
                    self.wake((place, key));
                }
            }
        }
    }

    fn wake(&mut self, slot: Slot) {
        match self.busy.get_mut(&slot) {
            Some((_, again)) => *again = true,
            None => {
                self.queue.insert(slot);
            }
        }
    }

    /// Lets whoever is due have a turn.
    pub(super) fn ring(&mut self, now: Timestamp) {
        while let Some((when, _)) = self.timers.first() {
            if *when > now {
                break;
            }
            if let Some((_, slot)) = self.timers.pop_first() {
                self.wake(slot);
            }
        }
    }

    /// When the next one is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.timers.first().map(|(when, _)| *when)
    }

    /// Decides about one key. Returns what was planned, for the trace.
    pub(super) fn plan(
        &mut self,
        controllers: &[&dyn Controller],
        slot: &Slot,
        now: Timestamp,
    ) -> usize {
        self.queue.remove(slot);
        let plan = controllers[slot.0].plan(&self.world, &slot.1, now);
        if let Some(wait) = plan.look_again {
            self.due(slot, now, wait);
        }
        let count = plan.steps.len();
        if count > 0 {
            self.busy.insert(slot.clone(), (count, false));
        } else {
            self.failures.remove(slot);
        }
        self.in_flight.extend(plan.steps.into_iter().map(|step| (slot.clone(), step)));
        count
    }

    fn due(&mut self, slot: &Slot, now: Timestamp, wait: Duration) {
        // A timer that rings at once would keep time from passing.
        let wait = wait.max(Duration::from_millis(1));
        self.timers.insert((now.checked_add(wait).unwrap_or(Timestamp::MAX), slot.clone()));
    }

    /// Takes note of what became of a write.
    pub(super) fn answered(
        &mut self,
        controllers: &[&dyn Controller],
        slot: &Slot,
        write: &Write,
        outcome: &Outcome,
        now: Timestamp,
    ) {
        if let Some(change) = self.world.learn(write, outcome) {
            self.tell(controllers, &change);
        }
        match outcome {
            Outcome::Done(_) | Outcome::Absent => {}
            Outcome::Stale(_) | Outcome::Refused(_) | Outcome::Unanswered(_) => {
                let failures = self.failures.entry(slot.clone()).or_default();
                *failures = (*failures + 1).min(16);
                let wait = Duration::from_millis(5 << *failures);
                self.due(slot, now, wait);
            }
        }
        let Some((left, again)) = self.busy.get_mut(slot) else { return };
        *left -= 1;
        if *left == 0 {
            let again = *again;
            self.busy.remove(slot);
            if again {
                self.wake(slot.clone());
            }
        }
    }
}
