//! Wires the queue: its controllers, the settings they decide by, the kinds their items may be of, and
//! what is counted.

pub mod admission;
mod counts;
pub(crate) mod reviewer;
mod scout;

use std::sync::{Arc, OnceLock};

use gantry_controller::{Actor, Handle, Seat};
use gantry_process::metrics::{Metrics, RegisterError};
use gantry_process::tasks::{OnLoss, Tasks};
use gantry_queue::access::{Recording, Right};
use gantry_queue::app_wrapper::AppWrapper;
use gantry_queue::quota_status::QuotaStatus;
use gantry_queue::{Catalog, Dispatch, Live, Progress, Settings, charge};
use gantry_reconcile::{Observer, Resource, View as _, World};
use kube::Client;

pub use scout::Rights;

use counts::Counts;
use reviewer::Reviewer;
use scout::Scout;

/// Who owns the fields the queue writes, and whom its events come from.
pub(crate) const NAME: &str = "gantry-queue";

/// What the queue finds out itself and no server serves.
pub const FACTS: [Resource; 2] = [Right::RESOURCE, Recording::RESOURCE];

/// AppWrappers that are looked after at once: as many as the decision about all of them has writes under way,
/// so that where requests are limited what was decided gets on as fast as what is decided next.
const HANDS: usize = 16;

/// The queue, ready to be started. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Part {
    settings: Live,
    scout: Arc<Scout>,
    /// Where authors must be allowed to create what they wrap.
    reviewer: Option<Arc<Reviewer>>,
    counts: Arc<Counts>,
    handle: Arc<OnceLock<Handle>>,
}

impl Part {
    /// A queue that decides by these settings, until others are set.
    ///
    /// # Errors
    /// There is one already that is counted here.
    pub fn new(settings: Settings, metrics: &Metrics) -> Result<Self, RegisterError> {
        let handle = Arc::<OnceLock<Handle>>::default();
        let catalog = Catalog::open();
        let reviewer = || Arc::new(Reviewer::new(catalog.clone(), settings.user_access));
        let live = Live::new(settings);
        Ok(Self {
            settings: live.clone(),
            reviewer: settings.user_access.is_checked().then(reviewer),
            scout: Arc::new(Scout::new(catalog)),
            counts: Arc::new(Counts::register(metrics, Arc::clone(&handle), live)?),
            handle,
        })
    }

    /// The controllers of the queue that are wanted, by their names, and who watches on their behalf.
    pub fn seats(&self, actor: &Arc<Actor>, runs: impl Fn(&str) -> bool) -> Vec<Seat> {
        let seat = |controller| Seat::new(controller, Arc::clone(actor));
        let live = self.settings.clone();
        let progress = Progress::new(live.clone(), self.scout.catalog().clone());
        let mut seats = vec![
            // AppWrappers compete: there is one decision about all of them.
            seat(Arc::new(Dispatch::new(live.clone()))).alone(),
            Seat { workers: HANDS, ..seat(Arc::new(progress)) },
        ];
        if self.settings.get().quota {
            let standing =
                move |world: &World, it: &AppWrapper| charge::standing_in(world, it, &live.get());
            // What its pods ask for is said in its message, whenever that is more than was admitted.
            let status = QuotaStatus::new(standing)
                .or_when(|old, new| old.status.message != new.status.message);
            seats.push(seat(Arc::new(status)).alone());
        }
        seats.retain(|it| runs(it.controller.name()));
        seats.push(seat(Arc::<Scout>::clone(&self.scout)).alone());
        let reviewer = self.reviewer.iter().map(|it| seat(Arc::<Reviewer>::clone(it)).alone());
        seats.extend(reviewer);
        seats
    }

    /// What counts AppWrappers as they change.
    #[must_use]
    pub fn observer(&self) -> Arc<dyn Observer> {
        Arc::<Counts>::clone(&self.counts)
    }

    /// Finds out about kinds and authors, and counts, for as long as the tasks run. `client` asks in the name of
    /// whoever makes the items.
    pub fn spawn(&self, tasks: &mut Tasks, handle: &Handle, client: Client, rights: Rights) {
        // A part is started once.
        let _ = self.handle.set(handle.clone());
        if let Some(reviewer) = self.reviewer.clone() {
            let (seen, client) = (handle.clone(), client.clone());
            let clock = tasks.clock().clone();
            tasks.spawn("rights of authors", OnLoss::EndOwner, move |stop| async move {
                tokio::select! {
                    // Either may be dropped: what was found out is put down at once.
                    () = stop.cancelled() => {}
                    () = reviewer.run(&seen, &client, &clock) => {}
                }
                Ok(())
            });
        }
        let (scout, seen) = (Arc::clone(&self.scout), handle.clone());
        let clock = tasks.clock().clone();
        tasks.spawn("kinds of items", OnLoss::EndOwner, move |stop| async move {
            tokio::select! {
                // Either may be dropped: what was found out is put down at once.
                () = stop.cancelled() => {}
                () = scout.run(&seen, &client, &clock, rights) => {}
            }
            Ok(())
        });
        let (counts, seen) = (Arc::clone(&self.counts), handle.clone());
        let clock = tasks.clock().clone();
        tasks.spawn("counts of the queue", OnLoss::EndOwner, move |stop| async move {
            tokio::select! {
                // Either may be dropped: counting can begin anew at any time.
                () = stop.cancelled() => {}
                () = counts.run(&seen, &clock) => {}
            }
            Ok(())
        });
    }

    /// What those decide by who answer the API server about AppWrappers.
    pub(crate) fn admission(&self) -> Option<admission::Known> {
        let handle = self.handle.get()?.clone();
        Some(admission::Known { handle, settings: self.settings.clone() })
    }

    /// The settings it decides by, as they change.
    pub(crate) fn live(&self) -> Live {
        self.settings.clone()
    }

    /// Lets other settings apply from now on.
    pub fn set(&self, settings: Settings) {
        self.settings.set(settings);
        if let Some(handle) = self.handle.get() {
            handle.wake(Dispatch::NAME, Dispatch::queue());
        }
    }
}

/// Who acts for the queue through a client.
#[must_use]
pub fn actor(client: Client) -> Actor {
    Actor::new(client, NAME, NAME)
}
