//! Delivers changes of objects to observers, controllers and inquiries.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gantry_reconcile::world::AnyStore;
use gantry_reconcile::{
    Change, Controller, FactChange, Key, Kind, Observer, Outcome, StoreId, World, Write,
};
use tokio::sync::watch;

use crate::external::AnyInquiry;
use crate::metrics::ControllerMetrics;
use crate::work_queue::WorkQueue;

/// The observers, controllers and inquiries, each with its work queue.
pub struct Subscribers {
    world: Arc<World>,
    subscribers: Vec<Subscriber>,
    subscriptions: RwLock<BTreeMap<StoreId, Arc<Subscription>>>,
    meters: ControllerMetrics,
    /// Whether changes are delivered. They are not before all stores are synced: a controller that
    /// uses one kind to find the keys of another would miss some.
    is_started: AtomicBool,
    /// Notifies of a store that was synced.
    sync_notifier: watch::Sender<()>,
}

/// A receiver of changes.
#[derive(Clone)]
pub(crate) enum Subscriber {
    /// Receives each change before controllers and inquiries do.
    Observer(Arc<dyn Observer>),
    /// A controller and its work queue.
    Controller(Arc<dyn Controller>, Arc<WorkQueue>),
    /// An inquiry and its work queue.
    Inquiry(Arc<dyn AnyInquiry>, Arc<WorkQueue>),
}

impl Subscriber {
    fn name(&self) -> &'static str {
        match self {
            Self::Observer(observer) => observer.name(),
            Self::Controller(controller, _) => controller.name(),
            Self::Inquiry(inquiry, _) => inquiry.name(),
        }
    }

    fn kinds(&self) -> Vec<Kind> {
        match self {
            Self::Observer(observer) => observer.kinds(),
            Self::Controller(controller, _) => controller.kinds(),
            Self::Inquiry(inquiry, _) => inquiry.kinds(),
        }
    }

    fn is_controller(&self, name: &str) -> bool {
        matches!(self, Self::Controller(controller, _) if controller.name() == name)
    }
}

/// The observer that keeps the cache of a controller up to date.
pub(crate) struct ControllerObserver(pub(crate) Arc<dyn Controller>);

impl Observer for ControllerObserver {
    fn name(&self) -> &'static str {
        self.0.observer().map_or_else(|| self.0.name(), Observer::name)
    }

    fn kinds(&self) -> Vec<Kind> {
        self.0.observer().map(Observer::kinds).unwrap_or_default()
    }

    fn observe(&self, world: &World, change: &Change) {
        if let Some(observer) = self.0.observer() {
            observer.observe(world, change);
        }
    }
}

/// A store and its subscribers.
struct Subscription {
    store: Arc<dyn AnyStore>,
    /// Held while a change is applied and delivered, so that all subscribers receive changes in
    /// order.
    update_lock: Mutex<()>,
    subscribers: Vec<usize>,
    /// Whether it was added while the manager runs. The initial sync does not wait for it then.
    added_later: bool,
}

impl Subscription {
    fn new(store: Arc<dyn AnyStore>, listeners: Vec<usize>, is_late: bool) -> Self {
        Self { store, update_lock: Mutex::default(), subscribers: listeners, added_later: is_late }
    }
}

impl Subscribers {
    /// Subscribers of `world`. Observers receive a change first.
    pub(crate) fn new(
        world: Arc<World>,
        mut listeners: Vec<Subscriber>,
        meters: ControllerMetrics,
    ) -> Self {
        listeners.sort_by_key(|it| !matches!(it, Subscriber::Observer(_)));
        let mut all: BTreeMap<StoreId, Vec<usize>> = BTreeMap::new();
        for (place, listener) in listeners.iter().enumerate() {
            for kind in listener.kinds() {
                let subscription = all.entry(kind.store_id().clone()).or_default();
                if subscription.last() != Some(&place) {
                    subscription.push(place);
                }
            }
        }
        let subscription = |(place, listeners)| {
            let store = world.store_by_id(&place)?;
            Some((place, Arc::new(Subscription::new(store, listeners, false))))
        };
        let subscriptions = RwLock::new(all.into_iter().filter_map(subscription).collect());
        let fills = watch::channel(()).0;
        Self {
            world,
            subscribers: listeners,
            subscriptions,
            meters,
            is_started: AtomicBool::new(false),
            sync_notifier: fills,
        }
    }

    /// Adds a store whose changes one controller receives from now on. Returns whether it is new.
    pub(crate) fn add_store(&self, controller: &str, kind: &Kind) -> bool {
        let listeners = self.subscribers.iter().enumerate();
        let listeners = listeners.filter(|(_, it)| it.is_controller(controller));
        let listeners = listeners.map(|(at, _)| at).collect();
        let (store, is_new) = self.world.add_store(kind);
        if is_new {
            let subscription = Arc::new(Subscription::new(store, listeners, true));
            let mut subscriptions =
                self.subscriptions.write().unwrap_or_else(PoisonError::into_inner);
            subscriptions.insert(kind.store_id().clone(), subscription);
        }
        is_new
    }

    /// The world they read.
    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Applies changes to a store and delivers them before any other change of it. Does nothing if
    /// the store has no subscribers.
    pub fn update_store<R>(
        &self,
        place: &StoreId,
        act: impl FnOnce(&dyn AnyStore) -> (Vec<Change>, R),
    ) -> Option<R> {
        let subscription = self.subscription(place)?;
        // A poisoned lock is still usable: it guards an order, not data.
        let _order = subscription.update_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let (changes, result) = act(subscription.store.as_ref());
        if self.is_started.load(Ordering::Acquire) {
            changes.iter().for_each(|change| self.notify_all(&subscription, change));
        }
        Some(result)
    }

    /// Updates the stores that a controller itself reads with the outcome of its write, so that it
    /// sees it at once. Other subscribers may read a filtered part of the kind that does not
    /// contain the object, and get the change from their watches.
    pub(crate) fn assume(&self, controller: &str, write: &Write, outcome: &Outcome) {
        for store in self.world.stores_for_resource(write.resource()) {
            let place = store.store_id();
            let looks = |at: &usize| self.subscribers[*at].is_controller(controller);
            if self.subscription(&place).is_some_and(|it| it.subscribers.iter().any(looks)) {
                self.update_store(&place, |store| {
                    (store.assume(write, outcome).into_iter().collect(), ())
                });
            }
        }
    }

    /// Delivers all existing objects to all subscribers, and from then on every change.
    pub(crate) fn start_notifying(&self) {
        // Set before the first delivery, so that a change in between is delivered twice and not
        // never.
        self.is_started.store(true, Ordering::Release);
        for subscription in &self.all_subscriptions() {
            for key in subscription.store.keys() {
                let _order =
                    subscription.update_lock.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(change) = subscription.store.as_change(&key) {
                    self.notify_all(subscription, &change);
                }
            }
        }
    }

    // No foreign code runs under the lock, so the data of a poisoned lock is still intact.
    fn all_subscriptions(&self) -> Vec<Arc<Subscription>> {
        self.subscriptions
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    fn subscription(&self, place: &StoreId) -> Option<Arc<Subscription>> {
        self.subscriptions.read().unwrap_or_else(PoisonError::into_inner).get(place).cloned()
    }

    /// Notifies that a store was synced.
    pub(crate) fn notify_synced(&self) {
        self.sync_notifier.send_replace(());
    }

    /// The initial stores that are not synced yet.
    pub(crate) fn unsynced(&self) -> Vec<Arc<dyn AnyStore>> {
        let all = self
            .all_subscriptions()
            .into_iter()
            .filter(|it| !it.added_later && !it.store.has_synced());
        all.map(|it| Arc::clone(&it.store)).collect()
    }

    /// Returns when every initial store has been synced.
    pub(crate) async fn wait_for_cache_sync(&self) {
        self.wait_until(|| self.unsynced().is_empty()).await;
    }

    /// Returns when one store has been synced.
    pub(crate) async fn wait_for_store_sync(&self, place: &StoreId) {
        self.wait_until(|| self.subscription(place).is_none_or(|it| it.store.has_synced())).await;
    }

    async fn wait_until(&self, is_so: impl Fn() -> bool) {
        let mut fills = self.sync_notifier.subscribe();
        while !is_so() {
            // The sender lives as long as `self`.
            let _ = fills.changed().await;
        }
    }

    fn notify_all(&self, subscription: &Subscription, change: &Change) {
        for listener in &subscription.subscribers {
            self.notify(&self.subscribers[*listener], change);
        }
    }

    /// Delivers a change to one subscriber. A panic is counted, and the next change is delivered:
    /// one bad object must not stop the rest.
    fn notify(&self, listener: &Subscriber, change: &Change) {
        match listener {
            Subscriber::Observer(observer) => {
                self.catch_panic(listener.name(), change, || observer.observe(&self.world, change));
            }
            Subscriber::Controller(controller, queue) => {
                let keys = || controller.enqueue(&self.world, change);
                enqueue(queue, self.catch_panic(listener.name(), change, keys));
            }
            Subscriber::Inquiry(inquiry, queue) => {
                let keys = || inquiry.enqueue(&self.world, change);
                enqueue(queue, self.catch_panic(listener.name(), change, keys));
            }
        }
    }

    /// Delivers a change of a fact to the observers that follow such facts, and then to the
    /// controllers and inquiries that read them.
    pub(crate) fn notify_fact(&self, change: &FactChange) {
        for listener in &self.subscribers {
            match listener {
                Subscriber::Observer(observer) if observer.facts().contains(&change.kind()) => {
                    let observe = || observer.observe_fact(&self.world, change);
                    self.catch_panic(listener.name(), change, observe);
                }
                Subscriber::Controller(controller, queue)
                    if controller.facts().contains(&change.kind()) =>
                {
                    let keys = || controller.enqueue_for_fact(&self.world, change);
                    enqueue(queue, self.catch_panic(listener.name(), change, keys));
                }
                Subscriber::Inquiry(inquiry, queue) if inquiry.facts().contains(&change.kind()) => {
                    let keys = || inquiry.enqueue_for_fact(&self.world, change);
                    enqueue(queue, self.catch_panic(listener.name(), change, keys));
                }
                Subscriber::Observer(_) | Subscriber::Controller(..) | Subscriber::Inquiry(..) => {}
            }
        }
    }

    fn catch_panic<R>(
        &self,
        name: &'static str,
        change: &dyn fmt::Debug,
        act: impl FnOnce() -> R,
    ) -> Option<R> {
        let result = catch_unwind(AssertUnwindSafe(act)).ok();
        if result.is_none() {
            self.meters.panicked(name);
            tracing::error!(subscriber = name, change = ?change, "subscriber panicked on a change");
        }
        result
    }
}

fn enqueue(queue: &WorkQueue, keys: Option<Vec<Key>>) {
    keys.into_iter().flatten().for_each(|key| queue.enqueue(key));
}

impl fmt::Debug for Subscribers {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.subscribers.iter().map(Subscriber::name);
        to.debug_list().entries(names).finish()
    }
}
