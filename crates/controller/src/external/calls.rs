//! Keeps the calls in flight that plans want.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::{Backoff, TaskError};
use gantry_reconcile::call::{CallAttempt, CallBounds, CallChange, CallTable};
use gantry_reconcile::{Call, CallId, CallState, Key, Reply, World};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::BoxFuture;
use crate::lease::Permit;
use crate::metrics::{CallOutcome, ControllerMetrics};
use crate::retry;
use crate::work_queue::WorkQueue;

/// Executes the calls of one protocol.
pub trait Caller: Send + Sync {
    /// The protocol, as [`Target::protocol`](gantry_reconcile::Target::protocol) has it.
    fn protocol(&self) -> &'static str;

    /// Makes one attempt. It may be dropped at any time; it is unknown then whether the target has
    /// executed the call. The address and identity of the target are looked up here, right before
    /// it is called.
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Reply, CallError>>;
}

/// Why an attempt ended without a reply.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CallError(pub String);

/// The delay before a call is retried: the first, and the longest.
pub const RETRY_DELAYS: (Duration, Duration) =
    (Duration::from_millis(200), Duration::from_secs(30));

/// The owner of a call: a key of a controller.
type CallOwner = (&'static str, Key);

/// The calls of a process. Clones share them.
#[derive(Clone)]
pub struct Calls(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    notify: Notify,
    callers: BTreeMap<&'static str, Arc<dyn Caller>>,
    world: Arc<World>,
    queues: BTreeMap<&'static str, Arc<WorkQueue>>,
    permit: Permit,
    clock: Clock,
    metrics: ControllerMetrics,
    backoff: Backoff,
}

struct State {
    table: CallTable<CallOwner, Moment>,
    /// The tokens that cancel the attempts in flight.
    attempts: BTreeMap<CallId, (CallAttempt, CancellationToken)>,
    jitter: fastrand::Rng,
}

/// What calls need of their manager.
pub(crate) struct CallsContext {
    pub(crate) world: Arc<World>,
    pub(crate) queues: BTreeMap<&'static str, Arc<WorkQueue>>,
    pub(crate) permit: Permit,
    pub(crate) clock: Clock,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) jitter: fastrand::Rng,
}

/// An attempt that ended.
struct EndedAttempt {
    call: Call,
    attempt: CallAttempt,
    /// Absent when it was cancelled.
    outcome: Option<Result<Reply, String>>,
    took: Duration,
}

impl Calls {
    pub(crate) fn new(
        callers: &[Arc<dyn Caller>],
        bounds: CallBounds,
        context: CallsContext,
    ) -> Self {
        let CallsContext { world, queues, permit, clock, metrics: meters, jitter } = context;
        let state = State { table: CallTable::new(bounds), attempts: BTreeMap::new(), jitter };
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            notify: Notify::new(),
            callers: callers.iter().map(|it| (it.protocol(), Arc::clone(it))).collect(),
            world,
            queues,
            permit,
            clock,
            metrics: meters,
            backoff: retry::backoff_between(RETRY_DELAYS),
        }))
    }

    /// Sets the calls that the plan of a key wants. Calls that are no longer wanted are cancelled.
    pub(crate) fn set_wanted(&self, controller: &'static str, key: &Key, calls: Vec<Call>) {
        let begins = !calls.is_empty();
        let mut state = self.0.lock();
        let moment = self.0.clock.moment();
        let given_up = state.table.set_wanted(&(controller, key.clone()), calls, moment);
        for call in &given_up {
            if let Some((_, attempt)) = state.attempts.remove(&call.call.id) {
                attempt.cancel();
            }
        }
        drop(state);
        for call in &given_up {
            // No key is left that wants it and would be enqueued.
            let _ = self.0.world.facts::<CallState>().forget(&call.call.id);
        }
        if begins || !given_up.is_empty() {
            self.0.notify.notify_one();
        }
    }

    /// The numbers of wanted calls and of calls in flight.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.table.len(), state.attempts.len())
    }

    /// Sends calls until `stop` is cancelled. Calls in flight are cancelled then.
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
                // Each is cancel-safe: a notification is kept, and calls in flight stay in the set.
                () = stop.cancelled() => return Ok(()),
                Some(ended) = under_way.next() => inner.end(ended),
                () = inner.notify.notified() => {}
                () = due => {}
            }
        }
    }
}

impl Inner {
    /// Starts all calls that can be sent now.
    fn start(&self) -> Vec<(Call, CallAttempt, CancellationToken)> {
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
        self.metrics.calls_under_way(state.attempts.len());
        drop(guard);
        let started = started.into_iter().map(|(call, attempt, given_up, change)| {
            self.record(change, None);
            (call, attempt, given_up)
        });
        started.collect()
    }

    async fn attempt(
        &self,
        call: Call,
        attempt: CallAttempt,
        given_up: CancellationToken,
    ) -> EndedAttempt {
        let began = self.clock.moment();
        let outcome = tokio::select! {
            biased;
            // Cancel-safe: it only waits.
            () = given_up.cancelled() => None,
            // Cancelled, the outcome is unknown, and that is what is returned.
            outcome = self.send(&call) => Some(outcome),
        };
        EndedAttempt { call, attempt, outcome, took: self.clock.moment() - began }
    }

    async fn send(&self, call: &Call) -> Result<Reply, String> {
        let protocol = call.target.protocol;
        let Some(caller) = self.callers.get(protocol) else {
            return Err(format!("no caller is registered for protocol {protocol}"));
        };
        // The last check before it is sent.
        self.permit.check().map_err(|no| no.to_string())?;
        tracing::debug!(call = %call.id, target = %call.target, purpose = call.purpose, "sending");
        let sent = AssertUnwindSafe(caller.call(call)).catch_unwind();
        tokio::select! {
            biased;
            // Cancel-safe: it only waits.
            () = self.permit.lapsed() => Err(crate::lease::NotLeading.to_string()),
            sent = self.clock.timeout(call.timeout, sent) => match sent {
                Ok(Ok(outcome)) => outcome.map_err(|error| error.to_string()),
                Ok(Err(_)) => Err(format!("the caller of {protocol} panicked: see the log")),
                Err(late) => Err(late.to_string()),
            },
        }
    }

    /// Records the result of an attempt, and enqueues the keys that want the call.
    fn end(&self, ended: EndedAttempt) {
        let EndedAttempt { call, attempt, outcome, took } = ended;
        let Call { id, target, purpose, .. } = &call;
        let Some(outcome) = outcome else {
            self.metrics.called(target.protocol, purpose, CallOutcome::Cancelled, took);
            tracing::debug!(call = %id, %target, purpose, "call was cancelled");
            return;
        };
        let how = match &outcome {
            Ok(Reply::Done(_)) => CallOutcome::Done,
            Ok(Reply::Refused(refusal)) => {
                tracing::warn!(call = %id, %target, purpose, %refusal, "call was refused");
                CallOutcome::Refused
            }
            Err(error) => {
                tracing::warn!(call = %id, %target, purpose, error, "call got no reply");
                CallOutcome::Unknown
            }
        };
        self.metrics.called(target.protocol, purpose, how, took);
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

    fn record(&self, change: CallChange<CallOwner>, retry_at: Option<Timestamp>) {
        let CallChange { id, state, owners } = change;
        let retry_at = retry_at.filter(|_| state.failures > 0 && !state.under_way);
        let state = CallState { retry_at, ..state };
        // The keys that want it are enqueued by name.
        let _ = self.world.facts::<CallState>().record(id, state, self.clock.now());
        for (controller, key) in owners {
            if let Some(queue) = self.queues.get(controller) {
                queue.enqueue(key);
            }
        }
    }

    // No foreign code runs under the lock, so the data of a poisoned lock is still intact.
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
