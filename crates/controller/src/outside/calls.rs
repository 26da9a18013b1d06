//! Keeps the calls under way that plans want.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::{Backoff, TaskError};
use gantry_reconcile::call::{Attempt, CallBounds, CallChange, CallTable};
use gantry_reconcile::{Call, CallId, CallState, Key, Reply, World};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Later;
use crate::lease::Permit;
use crate::meters::{CallOutcome, Meters};
use crate::retry;
use crate::wake_queue::Queue;

/// Carries out the calls of one protocol.
pub trait Caller: Send + Sync {
    /// The protocol, as [`Target::protocol`](gantry_reconcile::Target::protocol) has it.
    fn protocol(&self) -> &'static str;

    /// Makes one attempt. It may be dropped at any time; whether the target has done what was asked for is
    /// not known then. The address and identity of the target are looked up here, right before it is called.
    fn call<'a>(&'a self, call: &'a Call) -> Later<'a, Result<Reply, CallError>>;
}

/// Why an attempt ended without a reply.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CallError(pub String);

/// The pause before a call is tried again: the first, and the longest.
pub const RETRY_DELAYS: (Duration, Duration) =
    (Duration::from_millis(200), Duration::from_secs(30));

/// A key of a controller.
type Owner = (&'static str, Key);

/// The calls of a process. Clones are the same.
#[derive(Clone)]
pub struct Calls(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    news: Notify,
    callers: BTreeMap<&'static str, Arc<dyn Caller>>,
    world: Arc<World>,
    queues: BTreeMap<&'static str, Arc<Queue>>,
    permit: Permit,
    clock: Clock,
    meters: Meters,
    backoff: Backoff,
}

struct State {
    table: CallTable<Owner, Moment>,
    /// How the attempts that are under way are given up.
    attempts: BTreeMap<CallId, (Attempt, CancellationToken)>,
    jitter: fastrand::Rng,
}

/// What calls need of their shell.
pub(crate) struct Context {
    pub(crate) world: Arc<World>,
    pub(crate) queues: BTreeMap<&'static str, Arc<Queue>>,
    pub(crate) permit: Permit,
    pub(crate) clock: Clock,
    pub(crate) meters: Meters,
    pub(crate) jitter: fastrand::Rng,
}

/// An attempt that ended.
struct Ended {
    call: Call,
    attempt: Attempt,
    /// Absent when it was given up.
    outcome: Option<Result<Reply, String>>,
    took: Duration,
}

impl Calls {
    pub(crate) fn new(callers: &[Arc<dyn Caller>], bounds: CallBounds, context: Context) -> Self {
        let Context { world, queues, permit, clock, meters, jitter } = context;
        let state = State { table: CallTable::new(bounds), attempts: BTreeMap::new(), jitter };
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            news: Notify::new(),
            callers: callers.iter().map(|it| (it.protocol(), Arc::clone(it))).collect(),
            world,
            queues,
            permit,
            clock,
            meters,
            backoff: retry::between(RETRY_DELAYS),
        }))
    }

    /// Lets these be the calls that the plan of a key wants. What is no longer wanted is given up.
    pub(crate) fn want(&self, controller: &'static str, key: &Key, calls: Vec<Call>) {
        let begins = !calls.is_empty();
        let mut state = self.0.lock();
        let moment = self.0.clock.moment();
        let given_up = state.table.want(&(controller, key.clone()), calls, moment);
        for call in &given_up {
            if let Some((_, attempt)) = state.attempts.remove(&call.call.id) {
                attempt.cancel();
            }
        }
        drop(state);
        for call in &given_up {
            // Nobody who wants it is left to be enqueued.
            let _ = self.0.world.facts::<CallState>().forget(&call.call.id);
        }
        if begins || !given_up.is_empty() {
            self.0.news.notify_one();
        }
    }

    /// How many calls are wanted, and how many are under way.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.table.len(), state.attempts.len())
    }

    /// Sends calls until told to stop. What is under way then is given up.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), TaskError> {
        let inner = &self.0;
        let mut under_way = FuturesUnordered::new();
        loop {
            for (call, attempt, given_up) in inner.start() {
                under_way.push(inner.attempt(call, attempt, given_up));
            }
            let next = inner.lock().table.next_due(inner.clock.moment());
            let due = async {
                match next {
                    Some(at) => inner.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // Each may be dropped: a notice is kept, and what is under way stays there.
                () = stop.cancelled() => return Ok(()),
                Some(ended) = under_way.next() => inner.end(ended),
                () = inner.news.notified() => {}
                () = due => {}
            }
        }
    }
}

impl Inner {
    /// Counts everything as under way that can be sent now.
    fn start(&self) -> Vec<(Call, Attempt, CancellationToken)> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let mut started = Vec::new();
        for id in state.table.startable(self.clock.moment()) {
            if let Some((call, attempt, change)) = state.table.start(&id) {
                let given_up = CancellationToken::new();
                state.attempts.insert(id, (attempt, given_up.clone()));
                started.push((call, attempt, given_up, change));
            }
        }
        self.meters.calls_under_way(state.attempts.len());
        drop(guard);
        let started = started.into_iter().map(|(call, attempt, given_up, change)| {
            self.record(change, None);
            (call, attempt, given_up)
        });
        started.collect()
    }

    async fn attempt(&self, call: Call, attempt: Attempt, given_up: CancellationToken) -> Ended {
        let began = self.clock.moment();
        let outcome = tokio::select! {
            biased;
            // May be dropped: it only waits.
            () = given_up.cancelled() => None,
            // May be dropped: whether the target did it is not known then, and that is what is said.
            outcome = self.send(&call) => Some(outcome),
        };
        Ended { call, attempt, outcome, took: self.clock.moment() - began }
    }

    async fn send(&self, call: &Call) -> Result<Reply, String> {
        let protocol = call.target.protocol;
        let Some(caller) = self.callers.get(protocol) else {
            return Err(format!("nothing in this process speaks {protocol}"));
        };
        // The last moment before it is sent.
        self.permit.check().map_err(|no| no.to_string())?;
        tracing::debug!(call = %call.id, target = %call.target, purpose = call.purpose, "call is sent");
        let sent = AssertUnwindSafe(caller.call(call)).catch_unwind();
        tokio::select! {
            biased;
            // May be dropped: it only waits.
            () = self.permit.lapsed() => Err(crate::lease::NotLeading.to_string()),
            sent = self.clock.timeout(call.timeout, sent) => match sent {
                Ok(Ok(outcome)) => outcome.map_err(|error| error.to_string()),
                Ok(Err(_)) => Err(format!("the caller of {protocol} panicked: see the log")),
                Err(late) => Err(late.to_string()),
            },
        }
    }

    /// Records how an attempt ended, and enqueues the keys that want the call.
    fn end(&self, ended: Ended) {
        let Ended { call, attempt, outcome, took } = ended;
        let Call { id, target, purpose, .. } = &call;
        let Some(outcome) = outcome else {
            self.meters.called(target.protocol, purpose, CallOutcome::GivenUp, took);
            tracing::debug!(call = %id, %target, purpose, "call is given up");
            return;
        };
        let how = match &outcome {
            Ok(Reply::Done(_)) => CallOutcome::Done,
            Ok(Reply::Refused(refusal)) => {
                tracing::warn!(call = %id, %target, purpose, %refusal, "call was refused");
                CallOutcome::Refused
            }
            Err(error) => {
                tracing::warn!(call = %id, %target, purpose, error, "call was not answered");
                CallOutcome::Unanswered
            }
        };
        self.meters.called(target.protocol, purpose, how, took);
        let mut guard = self.lock();
        let state = &mut *guard;
        let delay = self.backoff.delay(state.table.failures(id), &mut state.jitter);
        let retry_at = self.clock.moment() + delay;
        let change = state.table.end(id, attempt, outcome, retry_at);
        if change.is_some() {
            state.attempts.remove(id);
        }
        drop(guard);
        if let Some(change) = change {
            self.record(change, self.clock.now().checked_add(delay).ok());
        }
    }

    fn record(&self, change: CallChange<Owner>, retry_at: Option<Timestamp>) {
        let CallChange { id, state, owners } = change;
        let retry_at = retry_at.filter(|_| state.failures > 0 && !state.under_way);
        let state = CallState { retry_at, ..state };
        // Those who want it are enqueued by name.
        let _ = self.world.facts::<CallState>().record(id, state, self.clock.now());
        for (controller, key) in owners {
            if let Some(queue) = self.queues.get(controller) {
                queue.wake(key);
            }
        }
    }

    // No code of others runs under the lock, so a poisoned one is still good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wanted, under_way) = self.count();
        write!(to, "Calls({wanted} wanted, {under_way} under way)")
    }
}
