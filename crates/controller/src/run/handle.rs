//! The handle of a running manager.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use gantry_reconcile::world::AnyStore;
use gantry_reconcile::{Change, Fact, Key, Kind, Resource, StoreId, World};
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::WorkerContext;
use crate::cache::{Filter, LastError};
use crate::held_reasons::HeldReasons;
use crate::lease::Permit;
use crate::rate::{Rate, RateLimiter};
use crate::subscribers::Subscribers;
use crate::work_queue::WorkQueue;

/// A handle to inspect and control a running manager. Clones are cheap.
#[derive(Clone)]
pub struct ManagerHandle(Arc<HandleInner>);

struct HandleInner {
    subscribers: Arc<Subscribers>,
    held_reasons: HeldReasons,
    permit: Permit,
    limiter: Arc<RateLimiter>,
    queues: BTreeMap<&'static str, Arc<WorkQueue>>,
    cache_errors: RwLock<BTreeMap<StoreId, LastError>>,
    added_watches: mpsc::Sender<AddedWatch>,
}

/// A watch that was added while the manager runs.
#[derive(Debug)]
pub(super) struct AddedWatch {
    pub(super) store_id: StoreId,
    pub(super) filter: Filter,
}

/// The manager no longer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controllers have stopped")]
pub struct ManagerStopped;

/// A kind whose cache was never filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsyncedKind {
    /// The kind.
    pub resource: Resource,
    /// The last error; absent while the first attempt is in flight.
    pub why: Option<String>,
}

impl ManagerHandle {
    pub(super) fn new(
        audience: Arc<Subscribers>,
        ledger: HeldReasons,
        permit: Permit,
        limiter: Arc<RateLimiter>,
        desks: &[Arc<WorkerContext>],
        newcomers: mpsc::Sender<AddedWatch>,
    ) -> Self {
        let queue = |desk: &Arc<WorkerContext>| {
            (desk.registration.controller.name(), Arc::clone(&desk.queue))
        };
        let queues = desks.iter().map(queue).collect();
        let troubles = RwLock::default();
        Self(Arc::new(HandleInner {
            subscribers: audience,
            held_reasons: ledger,
            permit,
            limiter,
            queues,
            cache_errors: troubles,
            added_watches: newcomers,
        }))
    }

    /// The objects as they were last observed.
    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        self.0.subscribers.world()
    }

    /// The held reasons of all keys.
    #[must_use]
    pub fn held_reasons(&self) -> &HeldReasons {
        &self.0.held_reasons
    }

    /// The permission of this process to write.
    #[must_use]
    pub fn permit(&self) -> &Permit {
        &self.0.permit
    }

    /// Changes the rate limit; absent for no limit.
    pub fn set_rate(&self, rate: Option<Rate>) {
        self.0.limiter.set_rate(rate);
    }

    /// Lets a controller watch one more kind from now on, and returns when its cache is synced.
    /// Nothing else waits for that. Cancel-safe: the watch continues.
    ///
    /// # Errors
    /// [`ManagerStopped`] if the manager no longer runs.
    pub async fn add_watch(
        &self,
        controller: &str,
        kind: &Kind,
        filter: Filter,
    ) -> Result<(), ManagerStopped> {
        let place = kind.store_id().clone();
        let slot = self.0.added_watches.reserve().await.map_err(|_| ManagerStopped)?;
        if self.0.subscribers.add_store(controller, kind) {
            slot.send(AddedWatch { store_id: place.clone(), filter });
        }
        tokio::select! {
            // Either is cancel-safe: both only wait.
            () = self.0.subscribers.wait_for_store_sync(&place) => Ok(()),
            () = self.0.added_watches.closed() => Err(ManagerStopped),
        }
    }

    /// Returns when every initial cache has been synced.
    pub async fn wait_for_cache_sync(&self) {
        self.0.subscribers.wait_for_cache_sync().await;
    }

    /// The kinds whose caches are not synced yet: why the manager is not ready.
    #[must_use]
    pub fn unsynced_kinds(&self) -> Vec<UnsyncedKind> {
        let missing = |shelf: &Arc<dyn AnyStore>| UnsyncedKind {
            resource: shelf.resource(),
            why: self.last_error(&shelf.store_id()).get(),
        };
        self.0.subscribers.unsynced().iter().map(missing).collect()
    }

    /// The current errors of caches, whether they were synced before or not.
    #[must_use]
    pub fn cache_errors(&self) -> BTreeMap<Resource, String> {
        // No foreign code runs under the lock, so the data of a poisoned lock is still intact.
        let troubles = self.0.cache_errors.read().unwrap_or_else(PoisonError::into_inner);
        let troubles = troubles.iter();
        let troubles = troubles.filter_map(|(it, why)| Some((it.resource().clone(), why.get()?)));
        troubles.collect()
    }

    /// Applies changes to the cache of a kind as if a watch had delivered them, and notifies the
    /// controllers. For tests without a server. Does nothing if no subscriber reads the kind.
    pub fn simulate_changes<R>(
        &self,
        resource: &Resource,
        act: impl FnOnce(&dyn AnyStore) -> (Vec<Change>, R),
    ) -> Option<R> {
        let place = self.world().single_store_for(resource)?.store_id();
        self.0.subscribers.update_store(&place, act)
    }

    /// Records a fact that was observed by other means than an inquiry, and notifies the
    /// controllers.
    pub fn record<F: Fact>(&self, subject: F::Subject, value: F, at: Timestamp) {
        let change = self.world().facts::<F>().record(subject, value, at);
        self.0.subscribers.notify_fact(&change);
    }

    /// Forgets such a fact, and notifies the controllers.
    pub fn forget<F: Fact>(&self, subject: &F::Subject) {
        if let Some(change) = self.world().facts::<F>().forget(subject) {
            self.0.subscribers.notify_fact(&change);
        }
    }

    /// Enqueues a key for reasons that are in no object. Does nothing if there is no controller of
    /// that name.
    pub fn enqueue(&self, controller: &str, key: Key) {
        if let Some(queue) = self.0.queues.get(controller) {
            queue.enqueue(key);
        }
    }

    /// The number of ready keys of each controller.
    #[must_use]
    pub fn queue_lengths(&self) -> BTreeMap<&'static str, usize> {
        self.0.queues.iter().map(|(name, queue)| (*name, queue.ready())).collect()
    }

    pub(super) fn subscribers(&self) -> &Arc<Subscribers> {
        &self.0.subscribers
    }

    /// The place where the reflector of a store records its last error.
    pub(super) fn last_error(&self, place: &StoreId) -> LastError {
        let mut troubles = self.0.cache_errors.write().unwrap_or_else(PoisonError::into_inner);
        troubles.entry(place.clone()).or_default().clone()
    }
}

impl fmt::Debug for ManagerHandle {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Handle").field(&self.0.subscribers).finish()
    }
}
