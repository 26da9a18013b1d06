//! One process that runs the controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::server::{News, Server};
use crate::controller::Controller;
use crate::held::Held;
use crate::object::{Key, Resource};
use crate::plan::{Note, Step};
use crate::world::{Change, Refused, World};
use crate::write::Outcome;

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
    busy: BTreeMap<Slot, Pass>,
    pub(super) in_flight: Vec<(Slot, Step)>,
    /// How often in a row a key had to wait.
    failures: BTreeMap<Slot, u32>,
    /// What the last plan of each key holds, and what of it did not take.
    held: BTreeMap<Slot, Vec<Held>>,
}

/// A plan that is being carried out.
#[derive(Debug, Default)]
struct Pass {
    /// How many writes are under way.
    left: usize,
    /// Whether the key was woken meanwhile.
    again: bool,
    refused: Vec<Refused>,
}

impl Replica {
    /// A process that has just started: it lists everything there is.
    pub(super) fn start(controllers: &[&dyn Controller], server: &Server) -> Self {
        let world = World::new(controllers.iter().flat_map(|it| it.kinds()));
        let resources: BTreeSet<Resource> = world.shelves().map(|it| it.resource()).collect();
        let mut replica = Self {
            world,
            cursors: BTreeMap::new(),
            queue: BTreeSet::new(),
            timers: BTreeSet::new(),
            busy: BTreeMap::new(),
            in_flight: Vec::new(),
            failures: BTreeMap::new(),
            held: BTreeMap::new(),
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
        let shelves = self.world.views(resource);
        shelves.iter().flat_map(|it| it.replace(&texts, server.revision()).0).collect()
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
        for shelf in self.world.views(resource) {
            let seen = if *end { shelf.saw_end(text) } else { shelf.saw(text) };
            let change = seen.unwrap_or_else(|unreadable| unreadable.change.map(|it| *it));
            if let Some(change) = change {
                self.tell(controllers, &change);
            }
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
            Some(pass) => pass.again = true,
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

    /// Decides about one key. Returns how much is to be written, and what is told at once.
    pub(super) fn plan(
        &mut self,
        controllers: &[&dyn Controller],
        slot: &Slot,
        now: Timestamp,
    ) -> (usize, Vec<Note>) {
        self.queue.remove(slot);
        let controller = controllers[slot.0];
        let plan = controller.plan(&self.world, &slot.1, now);
        if let Some(wait) = plan.look_again {
            self.due(slot, now, wait);
        }
        self.held.insert(slot.clone(), plan.held);
        let left = plan.steps.len();
        if left > 0 {
            self.busy.insert(slot.clone(), Pass { left, ..Pass::default() });
        } else {
            self.failures.remove(slot);
            self.world.remember(controller.name(), &slot.1, Vec::new());
        }
        self.in_flight.extend(plan.steps.into_iter().map(|step| (slot.clone(), step)));
        (left, plan.notes)
    }

    /// Gives a key another turn after a while; a timer that rings at once would keep time from
    /// passing.
    fn due(&mut self, slot: &Slot, now: Timestamp, wait: Duration) -> Timestamp {
        let wait = wait.max(Duration::from_millis(1));
        let when = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        self.timers.insert((when, slot.clone()));
        when
    }

    /// Takes note of what became of a write. Returns what is told then.
    pub(super) fn answered(
        &mut self,
        controllers: &[&dyn Controller],
        slot: &Slot,
        mut step: Step,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Vec<Note> {
        let then = match outcome {
            Outcome::Done(_) => std::mem::take(&mut step.then),
            Outcome::Absent | Outcome::Stale(_) | Outcome::Refused(_) | Outcome::Unanswered(_) => {
                Vec::new()
            }
        };
        let write = &step.write;
        for change in self.world.learn(write, outcome) {
            self.tell(controllers, &change);
        }
        let until = match outcome {
            Outcome::Done(_) | Outcome::Absent => None,
            Outcome::Stale(_) | Outcome::Refused(_) | Outcome::Unanswered(_) => {
                let failures = self.failures.entry(slot.clone()).or_default();
                *failures = (*failures + 1).min(16);
                let wait = Duration::from_millis(5 << *failures);
                Some(self.due(slot, now, wait))
            }
        };
        let failed = Held::failed(write, outcome, until);
        self.held.entry(slot.clone()).or_default().extend(failed);
        if let Some(pass) = self.busy.get_mut(slot) {
            pass.left += then.len();
            pass.left -= 1;
            pass.refused.extend(Refused::of(write, outcome));
        }
        self.in_flight.extend(then.into_iter().map(|step| (slot.clone(), step)));
        if let Some(Pass { again, refused, .. }) = self.finished(slot) {
            self.world.remember(controllers[slot.0].name(), &slot.1, refused);
            if again {
                self.wake(slot.clone());
            }
        }
        step.told(outcome)
    }

    /// The plan of a key, if all of it is carried out.
    fn finished(&mut self, slot: &Slot) -> Option<Pass> {
        self.busy.get(slot).filter(|pass| pass.left == 0)?;
        self.busy.remove(slot)
    }

    /// What is held now, and what cannot be read.
    pub(super) fn held(&self) -> Vec<Held> {
        let planned = self.held.values().flatten().cloned();
        planned.chain(self.world.shelves().flat_map(|it| it.unreadable())).collect()
    }

    /// Whether there is nothing to do at this moment.
    pub(super) fn is_idle(&self, server: &Server) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty() && self.behind(server).is_empty()
    }
}
