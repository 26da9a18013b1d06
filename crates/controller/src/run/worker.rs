//! Reconciles keys: plans a key, executes the plan and records the outcome.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::TaskError;
use gantry_reconcile::world::RefusedWrite;
use gantry_reconcile::{Controller, Held, Key, ObjectReference, Outcome, Plan, Step, Uid, Write};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::Registration;
use crate::events::EventRecorder;
use crate::external::calls::Calls;
use crate::held_reasons::HeldReasons;
use crate::metrics::{ControllerMetrics, ReconcileResult};
use crate::retry::KeyBackoff;
use crate::subscribers::Subscribers;
use crate::work_queue::WorkQueue;
use crate::writer::{WriteResponse, Writer};

/// How long a deferrable write is deferred when requests are scarce. Then its key is planned again.
const DEFER_DELAY: Duration = Duration::from_secs(5);
/// The minimum delay of a deferred write, whatever the plan asks for.
const MIN_DEFER_DELAY: Duration = Duration::from_secs(1);

/// Everything the workers of one controller share.
pub(super) struct WorkerContext {
    pub(super) registration: Registration,
    pub(super) queue: Arc<WorkQueue>,
    pub(super) calls: Calls,
    pub(super) backoff: Mutex<KeyBackoff<Key>>,
    /// How many writes of this controller may be in flight, and the permits to send them.
    pub(super) max_in_flight_writes: usize,
    pub(super) write_permits: Semaphore,
    pub(super) writer: Writer,
    pub(super) subscribers: Arc<Subscribers>,
    pub(super) recorder: EventRecorder,
    pub(super) held_reasons: HeldReasons,
    pub(super) metrics: ControllerMetrics,
    pub(super) clock: Clock,
    pub(super) max_refusals: usize,
}

/// The outcome of the writes of one plan.
#[derive(Debug, Default, PartialEq, Eq)]
struct PlanResult {
    /// Writes that failed, or whose outcome is unknown.
    failed: Vec<Held>,
    /// How many of them were refused or got no response.
    failures: usize,
    /// Writes that the server refused.
    refused: Vec<RefusedWrite>,
    /// The longest delay the server asked for.
    retry_after: Option<Duration>,
    /// Deferrable writes that were deferred.
    deferred: usize,
}

impl PlanResult {
    fn add(&mut self, write: &Write, answer: &WriteResponse) {
        let unheard = match &answer.outcome {
            Outcome::Done(_) | Outcome::NotFound | Outcome::Conflict(_) => false,
            Outcome::Refused(_) | Outcome::Unknown(_) => true,
        };
        self.failures += usize::from(unheard);
        self.failed.extend(Held::failed_write(write, &answer.outcome, None));
        self.refused.extend(RefusedWrite::of(write, &answer.outcome));
        self.retry_after = self.retry_after.max(answer.retry_after);
    }
}

impl WorkerContext {
    /// Reconciles one key after the other until `stop` is cancelled. A reconcile in progress is
    /// finished, but starts no further write.
    pub(super) async fn run_worker(
        self: Arc<Self>,
        stop: CancellationToken,
    ) -> Result<(), TaskError> {
        let controller = self.registration.controller.name();
        loop {
            let key = tokio::select! {
                biased;
                // Either is cancel-safe: waiting takes nothing from the queue.
                () = stop.cancelled() => return Ok(()),
                key = self.queue.next() => key,
            };
            let began = self.clock.moment();
            let span = tracing::info_span!("pass", controller, key = %key);
            let (how, next) = self.reconcile(&key, &stop).instrument(span).await;
            self.queue.done(&key, next);
            self.metrics.reconciled(controller, how, self.clock.moment() - began);
            self.metrics.queue_length(controller, self.queue.ready());
        }
    }

    /// Plans a key and executes the plan. Returns the result and when to requeue the key.
    async fn reconcile(
        &self,
        key: &Key,
        stop: &CancellationToken,
    ) -> (ReconcileResult, Option<Moment>) {
        let controller = &self.registration.controller;
        let (name, now, world) = (controller.name(), self.clock.now(), self.subscribers.world());
        let plan = AssertUnwindSafe(|| controller.plan(world, key, now));
        let Ok(plan) = catch_unwind(plan) else {
            self.metrics.panicked(name);
            let wait = self.backoff().failed(key);
            tracing::error!(wait = ?wait, "controller panicked on a key, retrying");
            let until = self.clock.now().checked_add(wait).ok();
            self.record_held(key, held_for_panic(controller.as_ref(), key, until));
            return (ReconcileResult::Panicked, Some(self.clock.moment() + wait));
        };
        let Plan { mut steps, calls, events: notes, mut held, requeue_after } = plan;
        self.calls.set_wanted(name, key, calls);
        for note in notes {
            self.recorder.record(&self.registration.actor, note);
        }
        let planned = steps.len();
        // Writes that were refused before are tried last, so that their refusals do not end the
        // plan before the others were tried. Deferrable writes come after all others.
        let refused = world.refused_writes(name, key);
        steps.sort_by_key(|step| {
            (refused.iter().any(|it| it.matches(&step.write)), step.deferrable)
        });
        let tally = self.execute(steps, stop).await;
        world.record_refusals(name, key, tally.refused);
        if planned > 0 {
            let failed = tally.failed.len();
            tracing::debug!(writes = planned, failed, deferred = tally.deferred, "plan executed");
        }
        let requeue_after = match tally.deferred {
            0 => requeue_after,
            // A key with nothing else to do would only be deferred again at once.
            all if all == planned => {
                Some(requeue_after.unwrap_or(DEFER_DELAY).clamp(MIN_DEFER_DELAY, DEFER_DELAY))
            }
            _ => Some(requeue_after.unwrap_or(DEFER_DELAY).min(DEFER_DELAY)),
        };
        let (how, wait) = if tally.failed.is_empty() {
            self.backoff().succeeded(key);
            (ReconcileResult::Done, requeue_after)
        } else {
            let wait = self.backoff().failed(key);
            // A requeue time of the plan is kept, unless the server asked for a longer delay.
            let wait = requeue_after.map_or(wait, |again| again.min(wait));
            (ReconcileResult::Failed, Some(wait.max(tally.retry_after.unwrap_or_default())))
        };
        let until = wait.and_then(|wait| self.clock.now().checked_add(wait).ok());
        held.extend(tally.failed.into_iter().map(|held| Held { until, ..held }));
        self.record_held(key, held);
        (how, wait.map(|wait| self.clock.moment() + wait))
    }

    /// Records the held reasons of a key.
    fn record_held(&self, key: &Key, held: Vec<Held>) {
        let controller = self.registration.controller.name();
        let by = self.held_reasons.record(controller, key, held);
        self.metrics.held(controller, by);
    }

    /// Executes steps concurrently, and the steps after a write when it succeeded. After too many
    /// refusals the rest is left for the next reconcile: more of the same would be refused as well.
    async fn execute(&self, steps: Vec<Step>, stop: &CancellationToken) -> PlanResult {
        let mut tally = PlanResult::default();
        let mut steps = VecDeque::from(steps);
        let mut under_way = FuturesUnordered::new();
        loop {
            while under_way.len() < self.max_in_flight_writes
                && tally.failures < self.max_refusals
                && !stop.is_cancelled()
            {
                let Some(step) = steps.pop_front() else { break };
                if step.deferrable && !self.writer.limiter.has_spare_capacity() {
                    self.metrics.wrote(
                        self.registration.controller.name(),
                        step.write.verb(),
                        "deferred",
                    );
                    tally.deferred += 1;
                    continue;
                }
                under_way.push(self.execute_step(step));
            }
            let Some((mut step, answer)) = under_way.next().await else { break };
            tally.add(&step.write, &answer);
            if let Outcome::Done(_) = answer.outcome {
                // Steps that follow a successful write go before those not yet started.
                std::mem::take(&mut step.then)
                    .into_iter()
                    .rev()
                    .for_each(|it| steps.push_front(it));
            }
            for note in step.events_for(&answer.outcome) {
                self.recorder.record(&self.registration.actor, note);
            }
        }
        tally
    }

    async fn execute_step(&self, step: Step) -> (Step, WriteResponse) {
        let write = &step.write;
        let place = self.write_permits.acquire().await;
        let mut provided = match &step.require_present {
            Some(object) => self.writer.check_present(&self.registration.actor, object).await,
            None => Ok(()),
        };
        for object in &step.require_absent {
            if provided.is_ok() {
                provided = self.writer.check_absent(&self.registration.actor, object).await;
            }
        }
        let answer = match provided {
            Ok(()) => {
                self.writer
                    .write(&self.registration.actor, write, step.impersonate.as_deref())
                    .await
            }
            Err(answer) => answer,
        };
        drop(place);
        let outcome = &answer.outcome;
        self.subscribers.assume(self.registration.controller.name(), write, outcome);
        self.report(write, outcome);
        (step, answer)
    }

    /// Counts an outcome, and logs those that a user may have to look at.
    fn report(&self, write: &Write, outcome: &Outcome) {
        let (controller, verb) = (self.registration.controller.name(), write.verb());
        let (resource, object) = (write.resource().to_string(), write.key().to_string());
        let word = match outcome {
            Outcome::Done(_) => "done",
            Outcome::NotFound => "not_found",
            Outcome::Conflict(why) => {
                tracing::debug!(verb, resource, object, why, "write conflicted");
                "conflict"
            }
            Outcome::Refused(refusal) => {
                let (code, why) = (refusal.code, &refusal.message);
                tracing::warn!(verb, resource, object, code, why, "write was refused");
                "refused"
            }
            Outcome::Unknown(why) => {
                tracing::warn!(verb, resource, object, why, "write got no response");
                "unknown"
            }
        };
        self.metrics.wrote(controller, verb, word);
    }

    /// No foreign code runs under the lock, so the data of a poisoned lock is still intact.
    fn backoff(&self) -> std::sync::MutexGuard<'_, KeyBackoff<Key>> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The held reason of a key that a controller panics on.
fn held_for_panic(controller: &dyn Controller, key: &Key, until: Option<Timestamp>) -> Vec<Held> {
    // The first kind that a controller lists is the one it reconciles.
    let resource = controller.kinds().first().map(|kind| kind.resource().clone());
    let held = |resource| Held {
        about: ObjectReference {
            resource,
            key: key.clone(),
            uid: Uid::default(),
            field: String::new(),
        },
        reason: "Panicked".into(),
        message: format!("controller {} panicked on this object; see the log", controller.name()),
        until,
    };
    resource.map(held).into_iter().collect()
}
