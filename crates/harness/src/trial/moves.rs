//! The moves of a run: what each does, and how chance spoils it.

use gantry_reconcile::plan::Step;
use gantry_reconcile::write::{Outcome, Write};
use jiff::SignedDuration;

use super::{Move, Slot, Trial};

impl Trial<'_> {
    pub(super) fn act(&mut self, pick: Move) {
        match pick {
            Move::Deliver(place) => {
                let behind = self.replicas[place].behind(&self.server);
                let resource = &behind[self.rng.usize(..behind.len())];
                self.note(&format!("#{place} reads news of {resource}"));
                self.replicas[place].deliver(resource, &self.server);
            }
            Move::Plan(place) => {
                let slots: Vec<Slot> = self.replicas[place].queue.iter().cloned().collect();
                let slot = &slots[self.rng.usize(..slots.len())];
                self.plan(place, slot);
            }
            Move::Land(place) => {
                let count = self.replicas[place].in_flight.len();
                let (slot, step) =
                    self.replicas[place].in_flight.swap_remove(self.rng.usize(..count));
                self.land(place, &slot, step);
            }
            Move::Ask(place) => {
                let due = self.replicas[place].questions(self.server.now());
                let question = self.pick(&due);
                self.note(&format!("#{place} asks a question"));
                self.replicas[place].ask(question, &self.server);
            }
            Move::Answer(place) => {
                let under_way = self.replicas[place].answers();
                let answer = self.pick(&under_way);
                let lost = self.chance(self.faults.lost_answers);
                self.note(&format!("#{place} gets an answer{}", if lost { ", lost" } else { "" }));
                self.replicas[place].answer(answer, self.server.now(), lost);
            }
            Move::Send(place) => {
                let count = self.replicas[place].calls.can_send(self.server.now());
                let which = self.rng.usize(..count);
                let call = self.replicas[place].send(which, self.server.now());
                if let Some(call) = call {
                    self.note(&format!("#{place} sends {}", call.id));
                    if let Some(called) = &mut self.called {
                        called.push(call);
                    }
                }
            }
            Move::Arrive(place) => self.arrive(place),
            Move::Reply(place) => {
                let which = self.rng.usize(..self.replicas[place].calls.replies());
                let (sent, reply) = self.replicas[place].calls.take_reply(which);
                let lost = self.chance(self.faults.lost_answers);
                let shown = if lost { "its reply is lost" } else { "its reply arrives" };
                self.note(&format!("#{place} {}: {shown}", sent.call.id));
                let reply = Some(reply).filter(|_| !lost);
                self.replicas[place].end_call(&sent, reply, self.server.now());
            }
            Move::GhostCall => {
                let call = self.ghost_calls.swap_remove(self.rng.usize(..self.ghost_calls.len()));
                let reply = self.server.edges.call(&call, self.server.now());
                self.note(&format!("late {} -> {reply:?}", call.id));
            }
            Move::Ghost => {
                let write = self.ghosts.swap_remove(self.rng.usize(..self.ghosts.len()));
                let outcome = self.server.apply(&write);
                self.note(&format!("late {} {} -> {}", write.verb(), write.key(), brief(&outcome)));
            }
            Move::Collect => {
                self.server.collect();
            }
            Move::User => {
                if let Some(action) = self.script.pop_front() {
                    self.note(&format!("user action {action}"));
                    (self.scenario.script[action])(&mut self.server);
                }
            }
            Move::Wait => {
                let wait = self.rng.i64(1..3000);
                self.pass(SignedDuration::from_millis(wait));
            }
        }
    }

    pub(super) fn plan(&mut self, place: usize, slot: &Slot) {
        let now = self.server.now();
        let (steps, notes, given_up) = self.replicas[place].plan(slot, now);
        self.notes.extend(notes);
        for call in given_up {
            self.note(&format!("#{place} gives up {}", call.id));
            if self.rng.bool() {
                self.ghost_calls.push(call);
            }
        }
        let name = self.scenario.controllers[slot.0].name();
        self.note(&format!("#{place} {name} plans {}: {steps} writes", slot.1));
    }

    /// Picks one of several of each.
    fn pick(&mut self, counts: &[(usize, usize)]) -> (usize, usize) {
        let (place, count) = counts[self.rng.usize(..counts.len())];
        (place, self.rng.usize(..count))
    }

    /// Lets a call arrive, or get lost, or arrive twice, or later than anybody waits for it.
    fn arrive(&mut self, place: usize) {
        let which = self.rng.usize(..self.replicas[place].calls.requests());
        let sent = self.replicas[place].calls.take_request(which);
        let call = sent.call.clone();
        let now = self.server.now();
        if self.chance(self.faults.lost_requests) {
            self.note(&format!("#{place} {} is lost", call.id));
            if self.rng.bool() {
                self.ghost_calls.push(call);
            }
            self.replicas[place].end_call(&sent, None, now);
            return;
        }
        let mut reply = self.server.edges.call(&call, now);
        self.note(&format!("#{place} {} arrives -> {reply:?}", call.id));
        if self.chance(self.faults.doubled) {
            let second = self.server.edges.call(&call, now);
            self.note(&format!("#{place} {} arrives again -> {second:?}", call.id));
            if self.rng.bool() {
                reply = second;
            }
        }
        self.replicas[place].calls.reply(sent, reply);
    }

    fn land(&mut self, place: usize, slot: &Slot, step: Step) {
        let write = &step.write;
        let lost = || Outcome::Unanswered("lost".to_owned());
        let outcome = if self.chance(self.faults.lost_requests) {
            lost()
        } else if let Some(why) = self.unsent(&step) {
            Outcome::Stale(why)
        } else {
            let outcome = self.commit(write);
            if self.chance(self.faults.lost_answers) {
                lost()
            } else if self.chance(self.faults.doubled) {
                // The client sees the answer to either.
                let second = self.commit(write);
                if self.rng.bool() { outcome } else { second }
            } else {
                outcome
            }
        };
        let (verb, key, shown) = (write.verb(), write.key(), brief(&outcome));
        self.note(&format!("#{place} {verb} {} {key} -> {shown}", write.resource()));
        let now = self.server.now();
        let notes = self.replicas[place].answered(slot, step, &outcome, now);
        self.notes.extend(notes);
    }

    /// Why a step is not sent at this moment: the writer checks its preconditions on the server first.
    pub(super) fn unsent(&self, step: &Step) -> Option<String> {
        if let Some(gone) = step.provided.as_ref().filter(|it| !self.server.has(it)) {
            return Some(format!("{} {} is gone or going", gone.resource, gone.key));
        }
        let there = step.gone.iter().find(|it| self.server.stands(it))?;
        Some(format!("{} {} is still there", there.resource, there.key))
    }

    fn commit(&mut self, write: &Write) -> Outcome {
        if let Some(written) = &mut self.written {
            written.push(write.clone());
        }
        self.server.apply(write)
    }
}

fn brief(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(_) => "done".to_owned(),
        Outcome::Absent => "absent".to_owned(),
        Outcome::Stale(why) => format!("stale: {why}"),
        Outcome::Refused(refusal) => format!("refused: {refusal}"),
        Outcome::Unanswered(why) => format!("unanswered: {why}"),
    }
}
