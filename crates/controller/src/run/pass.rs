//! One pass: plan a key, carry the plan out, take note of what became of it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::TaskError;
use gantry_reconcile::world::Refused;
use gantry_reconcile::{Controller, Held, Key, Outcome, Plan, Reference, Step, Uid, Write};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::Seat;
use crate::audience::Audience;
use crate::events::Recorder;
use crate::ledger::Ledger;
use crate::meters::{Meters, Passed};
use crate::outside::calls::Calls;
use crate::retry::Retries;
use crate::wake_queue::Queue;
use crate::writer::{Answer, Writer};

/// How long a write that can wait is put off where requests are few. Then it is planned anew.
const PUT_OFF: Duration = Duration::from_secs(5);
/// How long it is put off at least, whatever the plan says.
const AT_LEAST: Duration = Duration::from_secs(1);

/// Where one controller's workers find everything they need.
pub(super) struct Desk {
    pub(super) seat: Seat,
    pub(super) queue: Arc<Queue>,
    pub(super) calls: Calls,
    pub(super) retries: Mutex<Retries<Key>>,
    /// How many writes of this controller may be under way, and who holds a place among them.
    pub(super) lanes: usize,
    pub(super) in_flight: Semaphore,
    pub(super) writer: Writer,
    pub(super) audience: Arc<Audience>,
    pub(super) recorder: Recorder,
    pub(super) ledger: Ledger,
    pub(super) meters: Meters,
    pub(super) clock: Clock,
    pub(super) refusals: usize,
}

/// What became of the writes of one plan.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Writes that did not take, or of which nobody knows.
    failed: Vec<Held>,
    /// How many of them somebody said no to, or nothing.
    unheard: usize,
    /// Those that the server said no to.
    refused: Vec<Refused>,
    /// The longest wait the server asked for.
    wait: Option<Duration>,
    /// Writes that could wait, and do.
    put_off: usize,
}

impl Tally {
    fn add(&mut self, write: &Write, answer: &Answer) {
        let unheard = match &answer.outcome {
            Outcome::Done(_) | Outcome::Absent | Outcome::Stale(_) => false,
            Outcome::Refused(_) | Outcome::Unanswered(_) => true,
        };
        self.unheard += usize::from(unheard);
        self.failed.extend(Held::failed(write, &answer.outcome, None));
        self.refused.extend(Refused::of(write, &answer.outcome));
        self.wait = self.wait.max(answer.wait);
    }
}

impl Desk {
    /// Plans one key after the other until told to stop. A pass that has begun is finished, but no
    /// write is begun after that.
    pub(super) async fn work(self: Arc<Self>, stop: CancellationToken) -> Result<(), TaskError> {
        let controller = self.seat.controller.name();
        loop {
            let key = tokio::select! {
                biased;
                // Either may be dropped: waiting takes nothing from the queue.
                () = stop.cancelled() => return Ok(()),
                key = self.queue.next() => key,
            };
            let began = self.clock.moment();
            let span = tracing::info_span!("pass", controller, key = %key);
            let (how, next) = self.pass(&key, &stop).instrument(span).await;
            self.queue.done(&key, next);
            self.meters.passed(controller, how, self.clock.moment() - began);
            self.meters.waiting(controller, self.queue.ready());
        }
    }

    /// Plans a key and carries the plan out. Says when it wants another turn.
    async fn pass(&self, key: &Key, stop: &CancellationToken) -> (Passed, Option<Moment>) {
        let controller = &self.seat.controller;
        let (name, now, world) = (controller.name(), self.clock.now(), self.audience.world());
        let plan = AssertUnwindSafe(|| controller.plan(world, key, now));
        let Ok(plan) = catch_unwind(plan) else {
            self.meters.panicked(name);
            let wait = self.retries().failed(key);
            tracing::error!(wait = ?wait, "controller panicked on a key, it will be tried again");
            let until = self.clock.now().checked_add(wait).ok();
            self.hold(key, panicked(controller.as_ref(), key, until));
            return (Passed::Panicked, Some(self.clock.moment() + wait));
        };
        let Plan { mut steps, calls, notes, mut held, look_again } = plan;
        self.calls.want(name, key, calls);
        for note in notes {
            self.recorder.tell(&self.seat.actor, note);
        }
        let planned = steps.len();
        // What was refused before is tried last: it must not use up the patience for the others. What can
        // wait does not take their turns.
        let refused = world.refused(name, key);
        steps.sort_by_key(|step| (refused.iter().any(|it| it.is(&step.write)), step.can_wait));
        let tally = self.carry_out(steps, stop).await;
        world.remember(name, key, tally.refused);
        if planned > 0 {
            let failed = tally.failed.len();
            tracing::debug!(writes = planned, failed, put_off = tally.put_off, "plan carried out");
        }
        let look_again = match tally.put_off {
            0 => look_again,
            // Whoever has nothing else to do would only be put off again at once.
            all if all == planned => Some(look_again.unwrap_or(PUT_OFF).clamp(AT_LEAST, PUT_OFF)),
            _ => Some(look_again.unwrap_or(PUT_OFF).min(PUT_OFF)),
        };
        let (how, wait) = if tally.failed.is_empty() {
            self.retries().succeeded(key);
            (Passed::Done, look_again)
        } else {
            let wait = self.retries().failed(key);
            // What is due by the clock stays due, unless the server asked for a pause.
            let wait = look_again.map_or(wait, |again| again.min(wait));
            (Passed::Failed, Some(wait.max(tally.wait.unwrap_or_default())))
        };
        let until = wait.and_then(|wait| self.clock.now().checked_add(wait).ok());
        held.extend(tally.failed.into_iter().map(|held| Held { until, ..held }));
        self.hold(key, held);
        (how, wait.map(|wait| self.clock.moment() + wait))
    }

    /// Puts down what is held about a key.
    fn hold(&self, key: &Key, held: Vec<Held>) {
        let controller = self.seat.controller.name();
        let by = self.ledger.put(controller, key, held);
        self.meters.held(controller, by);
    }

    /// Carries out steps side by side, and what comes after a write when it took. When too many were refused, the rest is left for the next
    /// pass: more of the same would be refused as well.
    async fn carry_out(&self, steps: Vec<Step>, stop: &CancellationToken) -> Tally {
        let mut tally = Tally::default();
        let mut steps = VecDeque::from(steps);
        let mut under_way = FuturesUnordered::new();
        loop {
            while under_way.len() < self.lanes
                && tally.unheard < self.refusals
                && !stop.is_cancelled()
            {
                let Some(step) = steps.pop_front() else { break };
                if step.can_wait && !self.writer.limiter.has_spare() {
                    self.meters.wrote(self.seat.controller.name(), step.write.verb(), "put off");
                    tally.put_off += 1;
                    continue;
                }
                under_way.push(self.carry_out_one(step));
            }
            let Some((mut step, answer)) = under_way.next().await else { break };
            tally.add(&step.write, &answer);
            if let Outcome::Done(_) = answer.outcome {
                // What was begun is brought to its end before more is begun.
                std::mem::take(&mut step.then)
                    .into_iter()
                    .rev()
                    .for_each(|it| steps.push_front(it));
            }
            for note in step.told(&answer.outcome) {
                self.recorder.tell(&self.seat.actor, note);
            }
        }
        tally
    }

    async fn carry_out_one(&self, step: Step) -> (Step, Answer) {
        let write = &step.write;
        let place = self.in_flight.acquire().await;
        let mut provided = match &step.provided {
            Some(object) => self.writer.find(&self.seat.actor, object).await,
            None => Ok(()),
        };
        for object in &step.gone {
            if provided.is_ok() {
                provided = self.writer.miss(&self.seat.actor, object).await;
            }
        }
        let answer = match provided {
            Ok(()) => {
                self.writer.write(&self.seat.actor, write, step.on_behalf_of.as_deref()).await
            }
            Err(answer) => answer,
        };
        drop(place);
        let outcome = &answer.outcome;
        self.audience.learn(self.seat.controller.name(), write, outcome);
        self.report(write, outcome);
        (step, answer)
    }

    /// Counts an outcome, and logs what a person may have to look at.
    fn report(&self, write: &Write, outcome: &Outcome) {
        let (controller, verb) = (self.seat.controller.name(), write.verb());
        let (resource, object) = (write.resource().to_string(), write.key().to_string());
        let word = match outcome {
            Outcome::Done(_) => "done",
            Outcome::Absent => "absent",
            Outcome::Stale(why) => {
                tracing::debug!(verb, resource, object, why, "write was stale");
                "stale"
            }
            Outcome::Refused(refusal) => {
                let (code, why) = (refusal.code, &refusal.message);
                tracing::warn!(verb, resource, object, code, why, "write was refused");
                "refused"
            }
            Outcome::Unanswered(why) => {
                tracing::warn!(verb, resource, object, why, "write was not answered");
                "unanswered"
            }
        };
        self.meters.wrote(controller, verb, word);
    }

    /// No code of others runs under the lock, so a poisoned one is still good.
    fn retries(&self) -> std::sync::MutexGuard<'_, Retries<Key>> {
        self.retries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is held about a key that a controller panics on.
fn panicked(controller: &dyn Controller, key: &Key, until: Option<Timestamp>) -> Vec<Held> {
    // The first kind a controller names is the one it decides about.
    let resource = controller.kinds().first().map(|kind| kind.resource().clone());
    let held = |resource| Held {
        about: Reference { resource, key: key.clone(), uid: Uid::default(), field: String::new() },
        reason: "Panicked".into(),
        message: format!("{} cannot plan it: see its log", controller.name()),
        until,
    };
    resource.map(held).into_iter().collect()
}
