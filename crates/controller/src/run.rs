//! Runs controllers: caches, workers, the lease, and how they stop.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_process::clock::Clock;
use gantry_process::tasks::{Lost, OnLoss, Tasks};
use gantry_reconcile::{Controller, Place};
use kube::Client;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::audience::Audience;
use crate::cache::{Filter, Reflector, Timing};
use crate::events;
use crate::lease::{self, Permit};
use crate::ledger::Ledger;
use crate::meters::Meters;
use crate::outside::calls::{self, Calls};
use crate::outside::{AnyInquiry, Outside, ResponderContext, inquiries};
use crate::rate::{Limiter, Rate};
use crate::retry::{self, Retries};
use crate::wake_queue::Queue;
use crate::writer::Writer;

mod handle;
mod listeners;
mod pass;

pub use handle::{Ended, Handle};

use handle::Newcomer;
use listeners::{listeners, shelves};
use pass::Desk;

/// In whose name a controller acts.
#[derive(Clone)]
pub struct Actor {
    /// How it reaches the server, and as whom.
    pub client: Client,
    /// Who owns the fields it writes, such as `kube-controller-manager`.
    pub manager: String,
    /// Who its events come from, such as `replicaset-controller`.
    pub component: String,
    /// The machine its events come from; empty where that says nothing.
    pub host: String,
    /// Whether its client honours [`OnBehalfOf`](crate::writer::OnBehalfOf), which only a server in the same
    /// process can. Steps in the name of a user are refused where it does not.
    pub acts_for_users: bool,
}

impl Actor {
    /// An actor that writes in its own name only.
    #[must_use]
    pub fn new(client: Client, manager: &str, component: &str) -> Self {
        let (manager, component) = (manager.to_owned(), component.to_owned());
        Self { client, manager, component, host: String::new(), acts_for_users: false }
    }

    /// The same, with a client that writes in the name of the user that a request carries.
    #[must_use]
    pub fn acting_for_users(self) -> Self {
        Self { acts_for_users: true, ..self }
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Actor({} as {})", self.component, self.manager)
    }
}

/// A controller and how it is run.
#[derive(Clone)]
pub struct Seat {
    /// The controller.
    pub controller: Arc<dyn Controller>,
    /// In whose name it acts.
    pub actor: Arc<Actor>,
    /// How many keys are planned at once; at least one.
    pub workers: usize,
}

impl Seat {
    /// A controller with as many workers as most do well with.
    #[must_use]
    pub fn new(controller: Arc<dyn Controller>, actor: Arc<Actor>) -> Self {
        Self { controller, actor, workers: 4 }
    }

    /// Plans one key at a time: for decisions about things that keys share.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.workers = 1;
        self
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Seat({}, {} workers)", self.controller.name(), self.workers)
    }
}

/// How the shell runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which objects of a kind are cached for those who see it through one view; what is not named is
    /// cached whole.
    pub filters: BTreeMap<Place, Filter>,
    /// Observers, inquiries and callers.
    pub outside: Outside,
    /// How long lists and watches may take.
    pub timing: Timing,
    /// How fast the process may ask; absent for no limit.
    pub rate: Option<Rate>,
    /// How long one write may take.
    pub write_limit: Duration,
    /// How many writes of one controller may be under way.
    pub in_flight: usize,
    /// After how many refusals the rest of a plan is left for the next pass.
    pub refusals: usize,
    /// How long writes that are under way may take to end when the shell stops.
    pub grace: Duration,
    /// What to compete for before anything is written; absent where nobody competes.
    pub lease: Option<lease::Settings>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            filters: BTreeMap::new(),
            outside: Outside::default(),
            timing: Timing::default(),
            rate: None,
            write_limit: Duration::from_secs(30),
            in_flight: 16,
            refusals: 8,
            grace: Duration::from_secs(10),
            lease: None,
        }
    }
}

/// Why the shell ended.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// Two controllers have the same name.
    #[error("cannot run two controllers named {name}")]
    TwoNames {
        /// The name.
        name: &'static str,
    },
    /// The times of the lease make no election.
    #[error("cannot compete for a lease")]
    Timing(#[from] lease::TimingError),
    /// A task that cannot be spared was lost; the lease among them.
    #[error("lost a part of the shell")]
    Lost(#[from] Lost),
    /// Writes were still under way when the time to stop was up.
    #[error("writes were still under way {grace:?} after they were told to end")]
    Unfinished {
        /// The time they had.
        grace: Duration,
    },
}

/// Controllers, ready to run.
pub struct Shell {
    clock: Clock,
    jitter: fastrand::Rng,
    options: Options,
    meters: Meters,
    places: Vec<Place>,
    lookout: Lookout,
    newcomers: mpsc::Receiver<Newcomer>,
    desks: Vec<Arc<Desk>>,
    calls: Calls,
    inquiries: Vec<Inquiring>,
    permit: Permit,
    grant: Option<lease::Grant>,
    scribe: events::Scribe,
    handle: Handle,
}

impl Shell {
    /// Puts controllers together. Their caches are filled through `reader`.
    ///
    /// # Errors
    /// [`ShellError::TwoNames`] and [`ShellError::Timing`]: mistakes in the wiring and in the settings.
    pub fn new(
        clock: Clock,
        mut jitter: fastrand::Rng,
        reader: Client,
        seats: Vec<Seat>,
        options: Options,
        meters: Meters,
    ) -> Result<Self, ShellError> {
        let world = Arc::new(shelves(&seats, &options.outside)?);
        let queue = |seat: &Seat| Queue::paced(clock.clone(), seat.controller.pace());
        let queues: Vec<_> = seats.iter().map(|seat| Arc::new(queue(seat))).collect();
        let asked: Vec<Arc<Queue>> =
            options.outside.inquiries.iter().map(|_| Arc::new(Queue::new(clock.clone()))).collect();
        let listeners = listeners(&seats, &queues, &options.outside, &asked);
        let audience = Arc::new(Audience::new(world, listeners, meters.clone()));
        let limiter = Arc::new(Limiter::new(clock.clone(), options.rate));
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
            limit: options.write_limit,
        };
        let (recorder, scribe) = events::recorder(writer.clone(), jitter.fork(), meters.clone());
        let ledger = Ledger::of(Arc::clone(audience.world()));
        let named =
            |(seat, queue): (&Seat, &Arc<Queue>)| (seat.controller.name(), Arc::clone(queue));
        let context = calls::Context {
            world: Arc::clone(audience.world()),
            queues: seats.iter().zip(&queues).map(named).collect(),
            permit: permit.clone(),
            clock: clock.clone(),
            meters: meters.clone(),
            jitter: jitter.fork(),
        };
        let Outside { callers, call_bounds, .. } = &options.outside;
        let calls = Calls::new(callers, *call_bounds, context);
        let desk = |(seat, queue): (Seat, &Arc<Queue>)| {
            Arc::new(Desk {
                retries: Mutex::new(Retries::new(retry::between(retry::KEY), jitter.fork())),
                lanes: options.in_flight.max(1),
                in_flight: Semaphore::new(options.in_flight.max(1)),
                seat,
                queue: Arc::clone(queue),
                calls: calls.clone(),
                writer: writer.clone(),
                audience: Arc::clone(&audience),
                recorder: recorder.clone(),
                ledger: ledger.clone(),
                meters: meters.clone(),
                clock: clock.clone(),
                refusals: options.refusals.max(1),
            })
        };
        let desks: Vec<_> = seats.into_iter().zip(&queues).map(desk).collect();
        let places = audience.world().shelves().map(|shelf| shelf.place()).collect();
        let (sender, newcomers) = mpsc::channel(NEWCOMERS);
        let handle =
            Handle::new(audience, ledger, permit.clone(), Arc::clone(&limiter), &desks, sender);
        let inquiry = |(inquiry, queue): (&Arc<dyn AnyInquiry>, Arc<Queue>)| {
            let context = inquiries::Context {
                audience: Arc::clone(handle.audience()),
                queue,
                permit: permit.clone(),
                meters: meters.clone(),
                responder: ResponderContext { handle: handle.clone(), clock: clock.clone() },
            };
            (Arc::clone(inquiry), context)
        };
        let inquiries = options.outside.inquiries.iter().zip(asked).map(inquiry).collect();
        let lookout = Lookout {
            reader,
            limiter,
            clock: clock.clone(),
            timing: options.timing,
            meters: meters.clone(),
            handle: handle.clone(),
            jitter: jitter.fork(),
        };
        Ok(Self {
            clock,
            jitter,
            options,
            meters,
            places,
            lookout,
            newcomers,
            desks,
            calls,
            inquiries,
            permit,
            grant,
            scribe,
            handle,
        })
    }

    /// A way to look at the shell, and to tell it things, while it runs.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs until the tasks' token is cancelled, or until something is lost that cannot be spared.
    ///
    /// When told to stop it takes no more keys, waits for the writes that are under way, and gives the
    /// lease back, so that the next one can begin at once. Where that took too long, or the lease was
    /// lost, it is not given back: it ends by itself, after every write that may still arrive.
    ///
    /// # Errors
    /// [`ShellError::Lost`], for the lease as for any other task, and [`ShellError::Unfinished`].
    pub async fn run(mut self, mut tasks: Tasks) -> Result<(), ShellError> {
        let stop = tasks.token().clone();
        let mut caches = tasks.child();
        let mut workers = tasks.child();
        let (mut keeper, mut scribe) = (tasks.child(), tasks.child());
        for place in &self.places {
            let filter = self.options.filters.get(place).cloned().unwrap_or_default();
            self.lookout.keep(place, filter, &mut caches);
        }
        let (leave, left) = oneshot::channel();
        if let (Some(settings), Some(grant)) = (self.options.lease.take(), self.grant.take()) {
            let keeper_of = lease::Keeper::new(
                settings,
                self.clock.clone(),
                grant,
                self.meters.clone(),
                self.jitter.fork(),
            );
            // It goes on after it is told to stop: the lease is kept while writes are under way.
            keeper.spawn("lease", OnLoss::EndOwner, move |_| keeper_of.run(left));
        } else {
            self.meters.leading(true);
        }
        // Likewise: the last events are told after the last write.
        let hush = CancellationToken::new();
        let (pen, hushed) = (self.scribe, hush.clone());
        scribe.spawn("events", OnLoss::EndOwner, move |_| pen.run(hushed));
        let outside = (self.calls, self.inquiries);
        let outcome = {
            let mut work =
                pin!(start(&self.handle, &self.permit, &self.desks, outside, &mut workers));
            loop {
                let newcomer = tokio::select! {
                    biased;
                    // Each may be dropped: joining and receiving forget nothing, and what was started
                    // is joined below.
                    lost = ended(&mut caches) => break lost,
                    lost = ended(&mut keeper) => break lost,
                    lost = ended(&mut scribe) => break lost,
                    lost = &mut work => break lost,
                    () = stop.cancelled() => break Ok(()),
                    Some(newcomer) = self.newcomers.recv() => newcomer,
                };
                self.lookout.keep(&newcomer.place, newcomer.filter, &mut caches);
            }
        };
        // Whoever waits for a kind to be seen waits in vain from here on.
        self.newcomers.close();
        for tasks in [&caches, &workers, &keeper, &scribe] {
            tasks.token().cancel();
        }
        let grace = self.options.grace;
        let finished = self.clock.timeout(grace, ended(&mut workers)).await;
        let finished = finished.unwrap_or(Err(ShellError::Unfinished { grace }));
        // What is still under way is given up here.
        drop(workers);
        hush.cancel();
        let told = self.clock.timeout(LAST_EVENTS, ended(&mut scribe)).await;
        // An event that is under way is a write like any other.
        drop(scribe);
        let clean = outcome.is_ok() && finished.is_ok() && told.is_ok();
        let how = if clean { lease::Leave::Release } else { lease::Leave::Abandon };
        // Nobody listens where there is no lease, or where it was lost.
        let _ = leave.send(how);
        let released = ended(&mut keeper).await;
        let _ = ended(&mut caches).await;
        outcome.and(finished).and(released)
    }
}

/// Keeps shelves as the server shows them.
struct Lookout {
    reader: Client,
    limiter: Arc<Limiter>,
    clock: Clock,
    timing: Timing,
    meters: Meters,
    handle: Handle,
    jitter: fastrand::Rng,
}

impl Lookout {
    /// Starts to keep one.
    fn keep(&mut self, place: &Place, filter: Filter, caches: &mut Tasks) {
        let resource = place.resource();
        // Who sees a part of a kind beside others is told apart from them by what it sees.
        let name = match (self.handle.world().views(resource).len(), filter.words()) {
            (..=1, _) => resource.to_string(),
            (_, words) if words.is_empty() => resource.to_string(),
            (_, words) => format!("{resource} ({words})"),
        };
        let reflector = Reflector {
            client: self.reader.clone(),
            place: place.clone(),
            name: name.clone(),
            filter,
            audience: Arc::clone(self.handle.audience()),
            limiter: Arc::clone(&self.limiter),
            clock: self.clock.clone(),
            timing: self.timing,
            meters: self.meters.clone(),
            backoff: retry::between(retry::CONNECTION),
            trouble: self.handle.trouble(place),
        };
        let jitter = self.jitter.fork();
        let task = format!("cache {name}");
        caches.spawn(task, OnLoss::EndOwner, move |stop| reflector.run(jitter, stop));
    }
}

/// An inquiry, and what it needs.
type Inquiring = (Arc<dyn AnyInquiry>, inquiries::Context);

/// How many kinds may wait to be followed: more wait for their turn.
const NEWCOMERS: usize = 16;

/// How long the last events may take: as long as more of them are begun, and as long again for the last.
const LAST_EVENTS: Duration = Duration::from_secs(2 * events::LAST.as_secs());

/// Starts the workers when the caches are filled and the lease is held, and waits for their end.
async fn start(
    handle: &Handle,
    permit: &Permit,
    desks: &[Arc<Desk>],
    (calls, inquiries): (Calls, Vec<Inquiring>),
    workers: &mut Tasks,
) -> Result<(), ShellError> {
    handle.filled().await;
    // From here on everybody is told of everything, beginning with all there is.
    handle.audience().open();
    // Some questions are asked by processes that do not lead, too.
    for (inquiry, context) in inquiries {
        let name = format!("inquiry {}", inquiry.name());
        workers.spawn(name, OnLoss::EndOwner, move |stop| async move {
            tokio::select! {
                // Either may be dropped: a question changes nothing.
                () = stop.cancelled() => {}
                () = inquiry.run(context) => {}
            }
            Ok(())
        });
    }
    if permit.granted().await.is_err() {
        // The keeper of the lease is gone; whoever joins it knows why.
        return std::future::pending().await;
    }
    workers.spawn("calls".to_owned(), OnLoss::EndOwner, move |stop| calls.run(stop));
    for desk in desks {
        for worker in 0..desk.seat.workers.max(1) {
            let name = format!("{} {worker}", desk.seat.controller.name());
            let desk = Arc::clone(desk);
            workers.spawn(name, OnLoss::EndOwner, move |stop| desk.work(stop));
        }
    }
    ended(workers).await
}

/// Waits until all tasks have ended; forever where there are none.
async fn ended(tasks: &mut Tasks) -> Result<(), ShellError> {
    if tasks.is_empty() && !tasks.token().is_cancelled() {
        return std::future::pending().await;
    }
    Ok(tasks.join().await?)
}

impl fmt::Debug for Shell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Shell").field("seats", &self.desks.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
