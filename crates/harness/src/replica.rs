//! One process that runs the controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::Scenario;
use super::calls::{Calls, SentAttempt};
use super::external::InquiryRunner;
use super::server::{Server, WatchEvent};
use gantry_reconcile::Held;
use gantry_reconcile::object::{Key, Resource};
use gantry_reconcile::plan::{Event, Step};
use gantry_reconcile::world::{Change, RefusedWrite, World};
use gantry_reconcile::write::Outcome;
use gantry_reconcile::{Call, FactChange, Kind, Observer, Reply};

/// The index of a controller in the scenario, and a key.
pub(super) type ControllerKey = (usize, Key);

/// The memory of a process.
#[derive(Debug)]
pub(super) struct Replica<'a> {
    scenario: &'a Scenario<'a>,
    world: World,
    /// For each kind, the index of the next watch event to read.
    cursors: BTreeMap<Resource, usize>,
    pub(super) queue: BTreeSet<ControllerKey>,
    /// When keys are due; a key may be due more than once.
    timers: BTreeSet<(Timestamp, ControllerKey)>,
    busy: BTreeMap<ControllerKey, RunningPlan>,
    pub(super) in_flight: Vec<(ControllerKey, Step)>,
    /// How many reconciles of a key have failed in a row.
    failures: BTreeMap<ControllerKey, u32>,
    /// The held reasons of the last plan of each key, and its failed writes.
    held: BTreeMap<ControllerKey, Vec<Held>>,
    inquiry_runners: Vec<Box<dyn InquiryRunner + 'a>>,
    pub(super) calls: Calls,
}

/// A plan in execution.
#[derive(Debug, Default)]
struct RunningPlan {
    /// The number of writes in flight.
    pending_writes: usize,
    /// Whether the key was enqueued meanwhile.
    again: bool,
    refused: Vec<RefusedWrite>,
}

impl<'a> Replica<'a> {
    /// A process that has just started: it lists all objects.
    pub(super) fn start(scenario: &'a Scenario<'a>, server: &Server) -> Self {
        let outside = &scenario.external;
        let observed = observers(scenario).flat_map(|it| it.kinds());
        let asked = outside.inquiries.iter().flat_map(|it| it.kinds());
        let planned = scenario.controllers.iter().flat_map(|it| it.kinds());
        let world = World::new(planned.chain(observed).chain(asked));
        let resources: BTreeSet<Resource> = world.stores().map(|it| it.resource()).collect();
        let mut replica = Self {
            scenario,
            inquiry_runners: outside.inquiries.iter().map(|it| it.start()).collect(),
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
        // Delivered only when every store is synced, as the real runtime does.
        for change in &filled {
            replica.notify(change, server.now());
        }
        facts.iter().for_each(|it| replica.notify_fact(it, server.now()));
        replica
    }

    /// The world of this process.
    pub(super) fn world(&self) -> &World {
        &self.world
    }

    /// Lists a kind again.
    pub(super) fn relist(&mut self, resource: &Resource, server: &Server) -> Vec<Change> {
        let texts: Vec<String> = server.list(resource).iter().map(|it| it.to_string()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.cursors.insert(resource.clone(), server.watch_events(resource).len());
        let shelves = self.world.stores_for_resource(resource);
        shelves.iter().flat_map(|it| it.replace(&texts, server.revision()).0).collect()
    }

    /// The kinds with unread watch events.
    pub(super) fn lagging_kinds(&self, server: &Server) -> Vec<Resource> {
        let behind = self.cursors.iter();
        let behind =
            behind.filter(|(resource, cursor)| **cursor < server.watch_events(resource).len());
        behind.map(|(resource, _)| resource.clone()).collect()
    }

    pub(super) fn kinds(&self) -> Vec<Resource> {
        self.cursors.keys().cloned().collect()
    }

    /// Reads the next watch event of a kind.
    pub(super) fn deliver(&mut self, resource: &Resource, server: &Server) {
        let Some(cursor) = self.cursors.get_mut(resource) else { return };
        let Some(WatchEvent { text, is_deletion: end }) =
            server.watch_events(resource).get(*cursor)
        else {
            return;
        };
        *cursor += 1;
        for shelf in self.world.stores_for_resource(resource) {
            let seen = if *end { shelf.observe_deletion(text) } else { shelf.observe(text) };
            let change = seen.unwrap_or_else(|unreadable| unreadable.change.map(|it| *it));
            if let Some(change) = change {
                self.notify(&change, server.now());
            }
        }
    }

    pub(super) fn notify(&mut self, change: &Change, now: Timestamp) {
        let scenario = self.scenario;
        let concerns = |kinds: Vec<Kind>| kinds.iter().any(|it| *it.resource() == change.resource);
        for observer in observers(scenario).filter(|it| concerns(it.kinds())) {
            observer.observe(&self.world, change);
        }
        for (place, controller) in scenario.controllers.iter().enumerate() {
            if concerns(controller.kinds()) {
                for key in controller.enqueue(&self.world, change) {
                    self.enqueue((place, key));
                }
            }
        }
        let inquiries = scenario.external.inquiries.iter().enumerate();
        for (place, inquiry) in inquiries.filter(|(_, it)| concerns(it.kinds())) {
            for key in inquiry.enqueue(&self.world, change) {
                self.refresh(place, &key, now);
            }
        }
    }

    fn refresh(&mut self, place: usize, key: &Key, now: Timestamp) {
        for change in self.inquiry_runners[place].refresh(&self.world, key, now) {
            self.notify_fact(&change, now);
        }
    }

    fn notify_fact(&mut self, change: &FactChange, now: Timestamp) {
        let scenario = self.scenario;
        for (place, controller) in scenario.controllers.iter().enumerate() {
            if controller.facts().contains(&change.kind()) {
                for key in controller.enqueue_for_fact(&self.world, change) {
                    self.enqueue((place, key));
                }
            }
        }
        let inquiries = scenario.external.inquiries.iter().enumerate();
        for (place, inquiry) in inquiries.filter(|(_, it)| it.facts().contains(&change.kind())) {
            for key in inquiry.enqueue_for_fact(&self.world, change) {
                self.refresh(place, &key, now);
            }
        }
    }

    /// The number of due questions, by inquiry.
    pub(super) fn questions(&self, now: Timestamp) -> Vec<(usize, usize)> {
        let due = self.inquiry_runners.iter().map(|it| it.due(now)).enumerate();
        due.filter(|(_, count)| *count > 0).collect()
    }

    /// The number of answers in flight, by inquiry.
    pub(super) fn answers(&self) -> Vec<(usize, usize)> {
        let under_way = self.inquiry_runners.iter().map(|it| it.under_way()).enumerate();
        under_way.filter(|(_, count)| *count > 0).collect()
    }

    /// Asks a question.
    pub(super) fn ask(&mut self, (inquiry, which): (usize, usize), server: &Server) {
        self.inquiry_runners[inquiry].ask(which, server, server.now());
    }

    /// Delivers or loses an answer.
    pub(super) fn answer(&mut self, (inquiry, which): (usize, usize), now: Timestamp, lost: bool) {
        let change = self.inquiry_runners[inquiry].arrive(which, &self.world, now, lost);
        if let Some(change) = change {
            self.notify_fact(&change, now);
        }
    }

    /// Sends a call.
    pub(super) fn send(&mut self, which: usize, now: Timestamp) -> Option<Call> {
        let (slots, call) = self.calls.send(which, &self.world, now)?;
        slots.into_iter().for_each(|slot| self.enqueue(slot));
        Some(call)
    }

    /// Ends the attempt of a call.
    pub(super) fn end_call(&mut self, sent: &SentAttempt, reply: Option<Reply>, now: Timestamp) {
        let slots = self.calls.end(sent, reply, &self.world, now);
        slots.into_iter().for_each(|slot| self.enqueue(slot));
    }

    fn enqueue(&mut self, slot: ControllerKey) {
        match self.busy.get_mut(&slot) {
            Some(pass) => pass.again = true,
            None => {
                self.queue.insert(slot);
            }
        }
    }

    /// Enqueues the keys that are due.
    pub(super) fn fire_timers(&mut self, now: Timestamp) {
        while let Some((when, _)) = self.timers.first() {
            if *when > now {
                break;
            }
            if let Some((_, slot)) = self.timers.pop_first() {
                self.enqueue(slot);
            }
        }
        for place in 0..self.inquiry_runners.len() {
            for key in self.inquiry_runners[place].requeued(now) {
                self.refresh(place, &key, now);
            }
        }
    }

    /// When the next key is due.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let planned = self.timers.first().map(|(when, _)| *when);
        let asked = self.inquiry_runners.iter().filter_map(|it| it.next_due(now));
        planned.into_iter().chain(asked).chain(self.calls.next_due(now)).min()
    }

    /// Plans one key. Returns how many writes there are, the events to record at once, and the
    /// calls that are cancelled and may arrive all the same.
    pub(super) fn plan(
        &mut self,
        slot: &ControllerKey,
        now: Timestamp,
    ) -> (usize, Vec<Event>, Vec<Call>) {
        self.queue.remove(slot);
        let controller = self.scenario.controllers[slot.0];
        let plan = controller.plan(&self.world, &slot.1, now);
        if let Some(wait) = plan.requeue_after {
            self.requeue_after(slot, now, wait);
        }
        self.held.insert(slot.clone(), plan.held);
        let given_up = self.calls.set_wanted(slot, plan.calls, &self.world, now);
        let left = plan.steps.len();
        if left > 0 {
            self.busy.insert(
                slot.clone(),
                RunningPlan { pending_writes: left, ..RunningPlan::default() },
            );
        } else {
            self.failures.remove(slot);
            self.world.record_refusals(controller.name(), &slot.1, Vec::new());
        }
        self.in_flight.extend(plan.steps.into_iter().map(|step| (slot.clone(), step)));
        (left, plan.events, given_up)
    }

    /// Requeues a key after a delay; a timer that fires at once would keep time from advancing.
    fn requeue_after(&mut self, slot: &ControllerKey, now: Timestamp, wait: Duration) -> Timestamp {
        let wait = wait.max(Duration::from_millis(1));
        let when = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        self.timers.insert((when, slot.clone()));
        when
    }

    /// Processes the outcome of a write. Returns the events to record.
    pub(super) fn complete_write(
        &mut self,
        slot: &ControllerKey,
        mut step: Step,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Vec<Event> {
        let then = match outcome {
            Outcome::Done(_) => std::mem::take(&mut step.then),
            Outcome::NotFound
            | Outcome::Conflict(_)
            | Outcome::Refused(_)
            | Outcome::Unknown(_) => Vec::new(),
        };
        let write = &step.write;
        for change in self.world.assume(write, outcome) {
            self.notify(&change, now);
        }
        let until = match outcome {
            Outcome::Done(_) | Outcome::NotFound => None,
            Outcome::Conflict(_) | Outcome::Refused(_) | Outcome::Unknown(_) => {
                let failures = self.failures.entry(slot.clone()).or_default();
                *failures = (*failures + 1).min(16);
                let wait = Duration::from_millis(5 << *failures);
                Some(self.requeue_after(slot, now, wait))
            }
        };
        let failed = Held::failed_write(write, outcome, until);
        self.held.entry(slot.clone()).or_default().extend(failed);
        if let Some(pass) = self.busy.get_mut(slot) {
            pass.pending_writes += then.len();
            pass.pending_writes -= 1;
            pass.refused.extend(RefusedWrite::of(write, outcome));
        }
        self.in_flight.extend(then.into_iter().map(|step| (slot.clone(), step)));
        if let Some(RunningPlan { again, refused, .. }) = self.finished(slot) {
            let name = self.scenario.controllers[slot.0].name();
            self.world.record_refusals(name, &slot.1, refused);
            if again {
                self.enqueue(slot.clone());
            }
        }
        step.events_for(outcome)
    }

    /// The plan of a key, if it is completely executed.
    fn finished(&mut self, slot: &ControllerKey) -> Option<RunningPlan> {
        self.busy.get(slot).filter(|pass| pass.pending_writes == 0)?;
        self.busy.remove(slot)
    }

    /// The current held reasons, and the unreadable objects.
    pub(super) fn held(&self) -> Vec<Held> {
        let planned = self.held.values().flatten().cloned();
        planned.chain(self.world.stores().flat_map(|it| it.unreadable())).collect()
    }

    /// Whether there is nothing to do now.
    pub(super) fn is_idle(&self, server: &Server) -> bool {
        let now = server.now();
        let outside = self.questions(now).is_empty() && self.answers().is_empty();
        let calls = self.calls.requests() + self.calls.replies() + self.calls.can_send(now);
        outside
            && calls == 0
            && self.queue.is_empty()
            && self.in_flight.is_empty()
            && self.lagging_kinds(server).is_empty()
    }
}

/// All observers, those of the controllers included.
fn observers<'a>(scenario: &'a Scenario<'a>) -> impl Iterator<Item = &'a dyn Observer> {
    let caches = scenario.controllers.iter().filter_map(|it| it.observer());
    caches.chain(scenario.external.observers.iter().copied())
}
