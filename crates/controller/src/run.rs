//! Runs controllers: caches, workers, the lease, and how they stop.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::tasks::{LostTask, OnLoss, Tasks};
use gantry_reconcile::{Controller, StoreId};
use kube::Client;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::cache::{Filter, ReflectorTimeouts};
use crate::events;
use crate::external::calls::{self, Calls};
use crate::external::{AnyInquiry, ExternalSystems, ResponderContext, inquiries};
use crate::held_reasons::HeldReasons;
use crate::lease::{self, Permit};
use crate::metrics::ControllerMetrics;
use crate::rate::{Rate, RateLimiter};
use crate::retry::{self, KeyBackoff};
use crate::subscribers::Subscribers;
use crate::work_queue::WorkQueue;
use crate::writer::Writer;

mod handle;
mod reflectors;
mod wiring;
mod worker;

pub use handle::{ManagerHandle, ManagerStopped};

use handle::AddedWatch;
use reflectors::Reflectors;
use wiring::{build_world, subscribers};
use worker::WorkerContext;

/// The identity with which a controller reads and writes.
#[derive(Clone)]
pub struct Actor {
    /// The client that reaches the server, with its credentials.
    pub client: Client,
    /// The field manager of its writes, such as `kube-controller-manager`.
    pub field_manager: String,
    /// The component that its events name as source, such as `replicaset-controller`.
    pub component: String,
    /// The host that its events name as source; empty where there is no meaningful one.
    pub host: String,
    /// Whether its client honours [`ImpersonatedUser`](crate::writer::ImpersonatedUser), which only
    /// a server in the same process does. Where it does not, steps that impersonate a user are
    /// refused.
    pub can_impersonate: bool,
}

impl Actor {
    /// An actor that cannot impersonate users.
    #[must_use]
    pub fn new(client: Client, manager: &str, component: &str) -> Self {
        let (manager, component) = (manager.to_owned(), component.to_owned());
        Self {
            client,
            field_manager: manager,
            component,
            host: String::new(),
            can_impersonate: false,
        }
    }

    /// The same actor, with a client that impersonates the user in the extensions of a request.
    #[must_use]
    pub fn with_impersonation(self) -> Self {
        Self { can_impersonate: true, ..self }
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Actor({} as {})", self.component, self.field_manager)
    }
}

/// A controller and how it is run.
#[derive(Clone)]
pub struct Registration {
    /// The controller.
    pub controller: Arc<dyn Controller>,
    /// The identity with which it reads and writes.
    pub actor: Arc<Actor>,
    /// How many keys are planned concurrently; at least one.
    pub workers: usize,
}

impl Registration {
    /// A controller with the default number of workers.
    #[must_use]
    pub fn new(controller: Arc<dyn Controller>, actor: Arc<Actor>) -> Self {
        Self { controller, actor, workers: 4 }
    }

    /// Plans one key at a time: for decisions about resources that keys share.
    #[must_use]
    pub fn with_single_worker(mut self) -> Self {
        self.workers = 1;
        self
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Registration({}, {} workers)", self.controller.name(), self.workers)
    }
}

/// Options of a [`ControllerManager`].
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// Which objects a store caches; a store that is not listed caches all objects.
    pub filters: BTreeMap<StoreId, Filter>,
    /// Observers, inquiries and callers.
    pub external: ExternalSystems,
    /// Timeouts of lists and watches.
    pub reflector_timeouts: ReflectorTimeouts,
    /// The rate limit of the process; absent for no limit.
    pub rate_limit: Option<Rate>,
    /// How long one write may take.
    pub write_timeout: Duration,
    /// How many writes of one controller may be in flight.
    pub max_in_flight_writes: usize,
    /// After how many refusals the rest of a plan is left for the next reconcile.
    pub max_refusals: usize,
    /// How long writes in flight may take to finish when the manager stops.
    pub shutdown_grace: Duration,
    /// The lease to acquire before anything is written; absent without leader election.
    pub lease: Option<lease::LeaseSettings>,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            filters: BTreeMap::new(),
            external: ExternalSystems::default(),
            reflector_timeouts: ReflectorTimeouts::default(),
            rate_limit: None,
            write_timeout: Duration::from_secs(30),
            max_in_flight_writes: 16,
            max_refusals: 8,
            shutdown_grace: Duration::from_secs(10),
            lease: None,
        }
    }
}

/// Why the manager ended.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// Two controllers have the same name.
    #[error("cannot run two controllers named {name}")]
    DuplicateName {
        /// The name.
        name: &'static str,
    },
    /// The timings of the lease are invalid.
    #[error("invalid lease timings")]
    LeaseTiming(#[from] lease::TimingError),
    /// An essential task ended, such as the one that renews the lease.
    #[error("an essential task of the controllers ended")]
    TaskLost(#[from] LostTask),
    /// Writes were still in flight when the grace period ended.
    #[error("writes were still in flight {grace:?} after the shutdown began")]
    Unfinished {
        /// The grace period.
        grace: Duration,
    },
}

/// A set of controllers, ready to run.
pub struct ControllerManager {
    clock: Clock,
    jitter: fastrand::Rng,
    options: ManagerOptions,
    metrics: ControllerMetrics,
    store_ids: Vec<StoreId>,
    reflectors: Reflectors,
    added_watches: mpsc::Receiver<AddedWatch>,
    workers: Vec<Arc<WorkerContext>>,
    calls: Calls,
    inquiries: Vec<InquiryTask>,
    permit: Permit,
    grant: Option<lease::Grant>,
    event_writer: events::EventWriter,
    handle: ManagerHandle,
}

impl ControllerManager {
    /// Creates a manager. Caches are filled through `reader`.
    ///
    /// # Errors
    /// [`ManagerError::DuplicateName`] and [`ManagerError::LeaseTiming`]: mistakes in the
    /// wiring and in the settings.
    pub fn new(
        clock: Clock,
        mut jitter: fastrand::Rng,
        reader: Client,
        registrations: Vec<Registration>,
        options: ManagerOptions,
        metrics: ControllerMetrics,
    ) -> Result<Self, ManagerError> {
        let world = Arc::new(build_world(&registrations, &options.external)?);
        let queue = |registration: &Registration| {
            WorkQueue::with_min_interval(clock.clone(), registration.controller.min_plan_interval())
        };
        let queues: Vec<_> =
            registrations.iter().map(|registration| Arc::new(queue(registration))).collect();
        let asked: Vec<Arc<WorkQueue>> = options
            .external
            .inquiries
            .iter()
            .map(|_| Arc::new(WorkQueue::new(clock.clone())))
            .collect();
        let listeners = subscribers(&registrations, &queues, &options.external, &asked);
        let subscribers = Arc::new(Subscribers::new(world, listeners, metrics.clone()));
        let limiter = Arc::new(RateLimiter::new(clock.clone(), options.rate_limit));
        let (grant, permit) = match &options.lease {
            None => (None, Permit::always(clock.clone())),
            Some(settings) => {
                settings.timing.checked()?;
                let (grant, permit) = Permit::on_grant(clock.clone());
                (Some(grant), permit)
            }
        };
        let writer = Writer {
            clock: clock.clone(),
            limiter: Arc::clone(&limiter),
            permit: permit.clone(),
            timeout: options.write_timeout,
        };
        let (recorder, event_writer) =
            events::event_recorder(writer.clone(), jitter.fork(), metrics.clone());
        let held_reasons = HeldReasons::of(Arc::clone(subscribers.world()));
        let named = |(registration, queue): (&Registration, &Arc<WorkQueue>)| {
            (registration.controller.name(), Arc::clone(queue))
        };
        let context = calls::CallsContext {
            world: Arc::clone(subscribers.world()),
            queues: registrations.iter().zip(&queues).map(named).collect(),
            permit: permit.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            jitter: jitter.fork(),
        };
        let ExternalSystems { callers, call_bounds, .. } = &options.external;
        let calls = Calls::new(callers, *call_bounds, context);
        let worker = |(registration, queue): (Registration, &Arc<WorkQueue>)| {
            Arc::new(WorkerContext {
                backoff: Mutex::new(KeyBackoff::new(
                    retry::backoff_between(retry::KEY_RETRY_DELAYS),
                    jitter.fork(),
                )),
                max_in_flight_writes: options.max_in_flight_writes.max(1),
                write_permits: Semaphore::new(options.max_in_flight_writes.max(1)),
                registration,
                queue: Arc::clone(queue),
                calls: calls.clone(),
                writer: writer.clone(),
                subscribers: Arc::clone(&subscribers),
                recorder: recorder.clone(),
                held_reasons: held_reasons.clone(),
                metrics: metrics.clone(),
                clock: clock.clone(),
                max_refusals: options.max_refusals.max(1),
            })
        };
        let workers: Vec<_> = registrations.into_iter().zip(&queues).map(worker).collect();
        let store_ids = subscribers.world().stores().map(|store| store.store_id()).collect();
        let (sender, added_watches) = mpsc::channel(MAX_PENDING_WATCHES);
        let handle = ManagerHandle::new(
            subscribers,
            held_reasons,
            permit.clone(),
            Arc::clone(&limiter),
            &workers,
            sender,
        );
        let inquiry = |(inquiry, queue): (&Arc<dyn AnyInquiry>, Arc<WorkQueue>)| {
            let context = inquiries::InquiryContext {
                subscribers: Arc::clone(handle.subscribers()),
                queue,
                permit: permit.clone(),
                metrics: metrics.clone(),
                responder: ResponderContext { handle: handle.clone(), clock: clock.clone() },
            };
            (Arc::clone(inquiry), context)
        };
        let inquiries = options.external.inquiries.iter().zip(asked).map(inquiry).collect();
        let reflectors = Reflectors {
            reader,
            limiter,
            clock: clock.clone(),
            timeouts: options.reflector_timeouts,
            metrics: metrics.clone(),
            handle: handle.clone(),
            jitter: jitter.fork(),
        };
        Ok(Self {
            clock,
            jitter,
            options,
            metrics,
            store_ids,
            reflectors,
            added_watches,
            workers,
            calls,
            inquiries,
            permit,
            grant,
            event_writer,
            handle,
        })
    }

    /// A handle to inspect and control the manager while it runs.
    #[must_use]
    pub fn handle(&self) -> ManagerHandle {
        self.handle.clone()
    }

    /// Runs until the token of the tasks is cancelled, or until an essential task ends.
    ///
    /// On shutdown it takes no more keys, waits for the writes in flight, and releases the lease,
    /// so that the next leader can start at once. Where that took too long, or the lease was lost,
    /// the lease is not released: it expires by itself, after every write that may still arrive.
    ///
    /// # Errors
    /// [`ManagerError::TaskLost`], for the lease as for any other task, and
    /// [`ManagerError::Unfinished`].
    pub async fn run(mut self, mut tasks: Tasks) -> Result<(), ManagerError> {
        let stop = tasks.token().clone();
        let mut caches = tasks.child();
        let mut workers = tasks.child();
        let (mut lease_tasks, mut event_tasks) = (tasks.child(), tasks.child());
        for place in &self.store_ids {
            let filter = self.options.filters.get(place).cloned().unwrap_or_default();
            self.reflectors.start(place, filter, &mut caches);
        }
        let (leave, left) = oneshot::channel();
        if let (Some(settings), Some(grant)) = (self.options.lease.take(), self.grant.take()) {
            let elector = lease::LeaderElector::new(
                settings,
                self.clock.clone(),
                grant,
                self.metrics.clone(),
                self.jitter.fork(),
            );
            // It continues after the shutdown began: the lease is kept while writes are in flight.
            lease_tasks.spawn("lease", OnLoss::EndOwner, move |_| elector.run(left));
        } else {
            self.metrics.leading(true);
        }
        // Likewise: the last events are written after the last write.
        let stop_events = CancellationToken::new();
        let (event_writer, events_stopped) = (self.event_writer, stop_events.clone());
        event_tasks.spawn("events", OnLoss::EndOwner, move |_| event_writer.run(events_stopped));
        let outside = (self.calls, self.inquiries);
        let outcome = {
            let mut work = pin!(start_workers(
                &self.handle,
                &self.permit,
                &self.workers,
                outside,
                &mut workers
            ));
            loop {
                let added = tokio::select! {
                    biased;
                    // Each is cancel-safe: joining and receiving lose nothing, and tasks that were
                    // started are joined below.
                    lost = join_all(&mut caches) => break lost,
                    lost = join_all(&mut lease_tasks) => break lost,
                    lost = join_all(&mut event_tasks) => break lost,
                    lost = &mut work => break lost,
                    () = stop.cancelled() => break Ok(()),
                    Some(added) = self.added_watches.recv() => added,
                };
                self.reflectors.start(&added.store_id, added.filter, &mut caches);
            }
        };
        // From here on, no waiting `add_watch` can succeed.
        self.added_watches.close();
        for tasks in [&caches, &workers, &lease_tasks, &event_tasks] {
            tasks.token().cancel();
        }
        let grace = self.options.shutdown_grace;
        let finished = self.clock.timeout(grace, join_all(&mut workers)).await;
        let finished = finished.unwrap_or(Err(ManagerError::Unfinished { grace }));
        // Writes that are still in flight are cancelled here.
        drop(workers);
        stop_events.cancel();
        let events_written =
            self.clock.timeout(LAST_EVENTS_TIMEOUT, join_all(&mut event_tasks)).await;
        // An event in flight is a write like any other.
        drop(event_tasks);
        let clean = outcome.is_ok() && finished.is_ok() && events_written.is_ok();
        let how = if clean { lease::OnStop::Release } else { lease::OnStop::Abandon };
        // There is no receiver where there is no lease, or where it was lost.
        let _ = leave.send(how);
        let released = join_all(&mut lease_tasks).await;
        let _ = join_all(&mut caches).await;
        outcome.and(finished).and(released)
    }
}

/// An inquiry and its context.
type InquiryTask = (Arc<dyn AnyInquiry>, inquiries::InquiryContext);

/// How many added watches may wait to be started; further calls wait.
const MAX_PENDING_WATCHES: usize = 16;

/// How long the last events may take: the time during which new ones are started, and as long again
/// for the last.
const LAST_EVENTS_TIMEOUT: Duration =
    Duration::from_secs(2 * events::EVENT_DRAIN_TIMEOUT.as_secs());

/// Starts the workers once the caches are synced and the lease is held, and waits for their end.
async fn start_workers(
    handle: &ManagerHandle,
    permit: &Permit,
    desks: &[Arc<WorkerContext>],
    (calls, inquiries): (Calls, Vec<InquiryTask>),
    workers: &mut Tasks,
) -> Result<(), ManagerError> {
    handle.wait_for_cache_sync().await;
    // From here on all subscribers receive every change, beginning with all existing objects.
    handle.subscribers().start_notifying();
    // Some questions are asked by processes that are not the leader, too.
    for (inquiry, context) in inquiries {
        let name = format!("inquiry {}", inquiry.name());
        workers.spawn(name, OnLoss::EndOwner, move |stop| async move {
            tokio::select! {
                // Either is cancel-safe: a question changes nothing.
                () = stop.cancelled() => {}
                () = inquiry.run(context) => {}
            }
            Ok(())
        });
    }
    if permit.granted().await.is_err() {
        // The lease task has ended; the code that joins it knows why.
        return std::future::pending().await;
    }
    workers.spawn("calls".to_owned(), OnLoss::EndOwner, move |stop| calls.run(stop));
    for desk in desks {
        for worker in 0..desk.registration.workers.max(1) {
            let name = format!("{} {worker}", desk.registration.controller.name());
            let desk = Arc::clone(desk);
            workers.spawn(name, OnLoss::EndOwner, move |stop| desk.run_worker(stop));
        }
    }
    join_all(workers).await
}

/// Waits until all tasks have ended; forever where there are none.
async fn join_all(tasks: &mut Tasks) -> Result<(), ManagerError> {
    if tasks.is_empty() && !tasks.token().is_cancelled() {
        return std::future::pending().await;
    }
    Ok(tasks.join().await?)
}

impl fmt::Debug for ControllerManager {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Shell").field("seats", &self.workers.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
