//! One process that runs the controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::Scenario;
use super::calls::{Calls, Sent};
use super::outside::Asker;
use super::server::{News, Server};
use gantry_reconcile::Held;
use gantry_reconcile::object::{Key, Resource};
use gantry_reconcile::plan::{Note, Step};
use gantry_reconcile::world::{Change, Refused, World};
use gantry_reconcile::write::Outcome;
use gantry_reconcile::{Call, FactChange, Kind, Observer, Reply};

/// A controller by its place in the scenario, and an object.
pub(super) type Slot = (usize, Key);

/// What a process has in memory.
#[derive(Debug)]
pub(super) struct Replica<'a> {
    scenario: &'a Scenario<'a>,
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
    askers: Vec<Box<dyn Asker + 'a>>,
    pub(super) calls: Calls,
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

impl<'a> Replica<'a> {
    /// A process that has just started: it lists everything there is.
    pub(super) fn start(scenario: &'a Scenario<'a>, server: &Server) -> Self {
        let outside = &scenario.outside;
        let observed = observers(scenario).flat_map(|it| it.kinds());
        let asked = outside.inquiries.iter().flat_map(|it| it.kinds());
        let planned = scenario.controllers.iter().flat_map(|it| it.kinds());
        let world = World::new(planned.chain(observed).chain(asked));
        let resources: BTreeSet<Resource> = world.shelves().map(|it| it.resource()).collect();
        let mut replica = Self {
            scenario,
            askers: outside.inquiries.iter().map(|it| it.start()).collect(),
            calls: Calls::new(),
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
        let facts: Vec<FactChange> =
            outside.initial_facts.iter().flat_map(|record| record(&replica.world)).collect();
        // Told only when every shelf is filled, as the real shell does.
        for change in &filled {
            replica.tell(change, server.now());
        }
        facts.iter().for_each(|it| replica.tell_fact(it));
        replica
    }

    /// What it knows.
    pub(super) fn world(&self) -> &World {
        &self.world
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
    pub(super) fn deliver(&mut self, resource: &Resource, server: &Server) {
        let Some(cursor) = self.cursors.get_mut(resource) else { return };
        let Some(News { text, end }) = server.news(resource).get(*cursor) else { return };
        *cursor += 1;
        for shelf in self.world.views(resource) {
            let seen = if *end { shelf.saw_end(text) } else { shelf.saw(text) };
            let change = seen.unwrap_or_else(|unreadable| unreadable.change.map(|it| *it));
            if let Some(change) = change {
                self.tell(&change, server.now());
            }
        }
    }

    pub(super) fn tell(&mut self, change: &Change, now: Timestamp) {
        let scenario = self.scenario;
        let concerns = |kinds: Vec<Kind>| kinds.iter().any(|it| *it.resource() == change.resource);
        for observer in observers(scenario).filter(|it| concerns(it.kinds())) {
            observer.observe(&self.world, change);
        }
        for (place, controller) in scenario.controllers.iter().enumerate() {
            if concerns(controller.kinds()) {
                for key in controller.enqueue(&self.world, change) {
                    self.wake((place, key));
                }
            }
        }
        let inquiries = scenario.outside.inquiries.iter().enumerate();
        for (place, inquiry) in inquiries.filter(|(_, it)| concerns(it.kinds())) {
            for key in inquiry.enqueue(&self.world, change) {
                self.refresh(place, &key, now);
            }
        }
    }

    fn refresh(&mut self, place: usize, key: &Key, now: Timestamp) {
        for change in self.askers[place].refresh(&self.world, key, now) {
            self.tell_fact(&change);
        }
    }

    fn tell_fact(&mut self, change: &FactChange) {
        let scenario = self.scenario;
        for (place, controller) in scenario.controllers.iter().enumerate() {
            if controller.facts().contains(&change.kind()) {
                for key in controller.enqueue_for_fact(&self.world, change) {
                    self.wake((place, key));
                }
            }
        }
    }

    /// How many questions are due, by inquiry.
    pub(super) fn questions(&self, now: Timestamp) -> Vec<(usize, usize)> {
        let due = self.askers.iter().map(|it| it.due(now)).enumerate();
        due.filter(|(_, count)| *count > 0).collect()
    }

    /// How many answers are under way, by inquiry.
    pub(super) fn answers(&self) -> Vec<(usize, usize)> {
        let under_way = self.askers.iter().map(|it| it.under_way()).enumerate();
        under_way.filter(|(_, count)| *count > 0).collect()
    }

    /// Asks a question.
    pub(super) fn ask(&mut self, (inquiry, which): (usize, usize), server: &Server) {
        self.askers[inquiry].ask(which, server, server.now());
    }

    /// Lets an answer arrive, or get lost.
    pub(super) fn answer(&mut self, (inquiry, which): (usize, usize), now: Timestamp, lost: bool) {
        let change = self.askers[inquiry].arrive(which, &self.world, now, lost);
        if let Some(change) = change {
            self.tell_fact(&change);
        }
    }

    /// Sends a call.
    pub(super) fn send(&mut self, which: usize, now: Timestamp) -> Option<Call> {
        let (slots, call) = self.calls.send(which, &self.world, now)?;
        slots.into_iter().for_each(|slot| self.wake(slot));
        Some(call)
    }

    /// Ends the attempt of a call.
    pub(super) fn end_call(&mut self, sent: &Sent, reply: Option<Reply>, now: Timestamp) {
        let slots = self.calls.end(sent, reply, &self.world, now);
        slots.into_iter().for_each(|slot| self.wake(slot));
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
        for place in 0..self.askers.len() {
            for key in self.askers[place].requeued(now) {
                self.refresh(place, &key, now);
            }
        }
    }

    /// When the next one is due.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let planned = self.timers.first().map(|(when, _)| *when);
        let asked = self.askers.iter().filter_map(|it| it.next_due(now));
        planned.into_iter().chain(asked).chain(self.calls.next_due(now)).min()
    }

    /// Plans one key. Returns how many writes there are, the events to record at once, and the calls that are
    /// given up and may arrive all the same.
    pub(super) fn plan(&mut self, slot: &Slot, now: Timestamp) -> (usize, Vec<Note>, Vec<Call>) {
        self.queue.remove(slot);
        let controller = self.scenario.controllers[slot.0];
        let plan = controller.plan(&self.world, &slot.1, now);
        if let Some(wait) = plan.look_again {
            self.due(slot, now, wait);
        }
        self.held.insert(slot.clone(), plan.held);
        let given_up = self.calls.want(slot, plan.calls, &self.world, now);
        let left = plan.steps.len();
        if left > 0 {
            self.busy.insert(slot.clone(), Pass { left, ..Pass::default() });
        } else {
            self.failures.remove(slot);
            self.world.remember(controller.name(), &slot.1, Vec::new());
        }
        self.in_flight.extend(plan.steps.into_iter().map(|step| (slot.clone(), step)));
        (left, plan.notes, given_up)
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
            self.tell(&change, now);
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
            let name = self.scenario.controllers[slot.0].name();
            self.world.remember(name, &slot.1, refused);
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
        let now = server.now();
        let outside = self.questions(now).is_empty() && self.answers().is_empty();
        let calls = self.calls.requests() + self.calls.replies() + self.calls.can_send(now);
        outside
            && calls == 0
            && self.queue.is_empty()
            && self.in_flight.is_empty()
            && self.behind(server).is_empty()
    }
}

/// Everybody who follows changes and writes nothing.
fn observers<'a>(scenario: &'a Scenario<'a>) -> impl Iterator<Item = &'a dyn Observer> {
    let caches = scenario.controllers.iter().filter_map(|it| it.observer());
    caches.chain(scenario.outside.observers.iter().copied())
}
