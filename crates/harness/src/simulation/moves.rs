//! The moves of a run: what each does, and which faults can hit it.

use gantry_reconcile::plan::Step;
use gantry_reconcile::write::{Outcome, Write};
use jiff::SignedDuration;

use super::{ControllerKey, Move, Simulation};

impl Simulation<'_> {
    pub(super) fn act(&mut self, pick: Move) {
        match pick {
            Move::Deliver(place) => {
                let behind = self.replicas[place].lagging_kinds(&self.server);
                let resource = &behind[self.rng.usize(..behind.len())];
                self.trace_line(&format!("#{place} observes an event of {resource}"));
                self.replicas[place].deliver(resource, &self.server);
            }
            Move::Plan(place) => {
                let slots: Vec<ControllerKey> =
                    self.replicas[place].queue.iter().cloned().collect();
                let slot = &slots[self.rng.usize(..slots.len())];
                self.plan(place, slot);
            }
            Move::ApplyWrite(place) => {
                let count = self.replicas[place].in_flight.len();
                let (slot, step) =
                    self.replicas[place].in_flight.swap_remove(self.rng.usize(..count));
                self.apply_write(place, &slot, step);
            }
            Move::Ask(place) => {
                let due = self.replicas[place].questions(self.server.now());
                let question = self.pick(&due);
                self.trace_line(&format!("#{place} asks a question"));
                self.replicas[place].ask(question, &self.server);
            }
            Move::Answer(place) => {
                let under_way = self.replicas[place].answers();
                let answer = self.pick(&under_way);
                let lost = self.chance(self.faults.lost_answers);
                self.trace_line(&format!(
                    "#{place} gets an answer{}",
                    if lost { ", lost" } else { "" }
                ));
                self.replicas[place].answer(answer, self.server.now(), lost);
            }
            Move::Send(place) => {
                let count = self.replicas[place].calls.can_send(self.server.now());
                let which = self.rng.usize(..count);
                let call = self.replicas[place].send(which, self.server.now());
                if let Some(call) = call {
                    self.trace_line(&format!("#{place} sends {}", call.id));
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
                self.trace_line(&format!("#{place} {}: {shown}", sent.call.id));
                let reply = Some(reply).filter(|_| !lost);
                self.replicas[place].end_call(&sent, reply, self.server.now());
            }
            Move::LateCall => {
                let call = self.late_calls.swap_remove(self.rng.usize(..self.late_calls.len()));
                let reply = self.server.peers.call(&call, self.server.now());
                self.trace_line(&format!("late {} -> {reply:?}", call.id));
            }
            Move::LateWrite => {
                let write = self.late_writes.swap_remove(self.rng.usize(..self.late_writes.len()));
                let outcome = self.server.apply(&write);
                self.trace_line(&format!(
                    "late {} {} -> {}",
                    write.verb(),
                    write.key(),
                    brief(&outcome)
                ));
            }
            Move::CollectGarbage => {
                self.server.collect_garbage();
            }
            Move::User => {
                if let Some(action) = self.script.pop_front() {
                    self.trace_line(&format!("user action {action}"));
                    (self.scenario.script[action])(&mut self.server);
                }
            }
            Move::Wait => {
                let wait = self.rng.i64(1..3000);
                self.advance(SignedDuration::from_millis(wait));
            }
        }
    }

    pub(super) fn plan(&mut self, place: usize, slot: &ControllerKey) {
        let now = self.server.now();
        let (steps, notes, given_up) = self.replicas[place].plan(slot, now);
        self.events.extend(notes);
        for call in given_up {
            self.trace_line(&format!("#{place} cancels {}", call.id));
            if self.rng.bool() {
                self.late_calls.push(call);
            }
        }
        let name = self.scenario.controllers[slot.0].name();
        self.trace_line(&format!("#{place} {name} plans {}: {steps} writes", slot.1));
    }

    /// Picks one item from several groups.
    fn pick(&mut self, counts: &[(usize, usize)]) -> (usize, usize) {
        let (place, count) = counts[self.rng.usize(..counts.len())];
        (place, self.rng.usize(..count))
    }

    /// Delivers a call, loses it, delivers it twice, or delivers it after the caller has stopped
    /// waiting.
    fn arrive(&mut self, place: usize) {
        let which = self.rng.usize(..self.replicas[place].calls.requests());
        let sent = self.replicas[place].calls.take_request(which);
        let call = sent.call.clone();
        let now = self.server.now();
        if self.chance(self.faults.lost_requests) {
            self.trace_line(&format!("#{place} {} is lost", call.id));
            if self.rng.bool() {
                self.late_calls.push(call);
            }
            self.replicas[place].end_call(&sent, None, now);
            return;
        }
        let mut reply = self.server.peers.call(&call, now);
        self.trace_line(&format!("#{place} {} arrives -> {reply:?}", call.id));
        if self.chance(self.faults.doubled) {
            let second = self.server.peers.call(&call, now);
            self.trace_line(&format!("#{place} {} arrives again -> {second:?}", call.id));
            if self.rng.bool() {
                reply = second;
            }
        }
        self.replicas[place].calls.reply(sent, reply);
    }

    fn apply_write(&mut self, place: usize, slot: &ControllerKey, step: Step) {
        let write = &step.write;
        let lost = || Outcome::Unknown("lost".to_owned());
        let outcome = if self.chance(self.faults.lost_requests) {
            lost()
        } else if let Some(why) = self.failed_precondition(&step) {
            Outcome::Conflict(why)
        } else {
            let outcome = self.apply_and_record(write);
            if self.chance(self.faults.lost_answers) {
                lost()
            } else if self.chance(self.faults.doubled) {
                // The client receives the response to either.
                let second = self.apply_and_record(write);
                if self.rng.bool() { outcome } else { second }
            } else {
                outcome
            }
        };
        let (verb, key, shown) = (write.verb(), write.key(), brief(&outcome));
        self.trace_line(&format!("#{place} {verb} {} {key} -> {shown}", write.resource()));
        let now = self.server.now();
        let notes = self.replicas[place].complete_write(slot, step, &outcome, now);
        self.events.extend(notes);
    }

    /// Why a step is not sent now: the writer checks its preconditions on the server first.
    pub(super) fn failed_precondition(&self, step: &Step) -> Option<String> {
        if let Some(gone) = step.require_present.as_ref().filter(|it| !self.server.is_present(it)) {
            return Some(format!(
                "{} {} does not exist or is terminating",
                gone.resource, gone.key
            ));
        }
        let there = step.require_absent.iter().find(|it| self.server.exists(it))?;
        Some(format!("{} {} still exists", there.resource, there.key))
    }

    fn apply_and_record(&mut self, write: &Write) -> Outcome {
        if let Some(written) = &mut self.written {
            written.push(write.clone());
        }
        self.server.apply(write)
    }
}

fn brief(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(_) => "done".to_owned(),
        Outcome::NotFound => "not found".to_owned(),
        Outcome::Conflict(why) => format!("stale: {why}"),
        Outcome::Refused(refusal) => format!("refused: {refusal}"),
        Outcome::Unknown(why) => format!("unanswered: {why}"),
    }
}
