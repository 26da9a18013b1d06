//! Who is told of what happens to objects.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_reconcile::world::AnyShelf;
use gantry_reconcile::{Change, Controller, Resource, World};
use tokio::sync::watch;

use crate::meters::Meters;
use crate::wake_queue::Queue;

/// The controllers, each with its queue.
pub struct Audience {
    world: Arc<World>,
    listeners: Vec<Listener>,
    kinds: BTreeMap<Resource, Kind>,
    meters: Meters,
    /// Whether changes are told. Before all shelves are filled nobody is: who looks at one kind to
    /// know whom another concerns would overlook somebody.
    open: AtomicBool,
    /// Says that a shelf was filled.
    fills: watch::Sender<()>,
}

/// A controller and where it waits for work.
struct Listener {
    controller: Arc<dyn Controller>,
    queue: Arc<Queue>,
}

/// Who listens to one kind.
#[derive(Default)]
struct Kind {
    /// Held while a change is made and told, so that all hear of changes in the order they were made.
    order: Mutex<()>,
    listeners: Vec<usize>,
}

impl Audience {
    /// These controllers, which look at `world`.
    pub(crate) fn new(
        world: Arc<World>,
        members: impl IntoIterator<Item = (Arc<dyn Controller>, Arc<Queue>)>,
        meters: Meters,
    ) -> Self {
        let mut kinds: BTreeMap<Resource, Kind> = BTreeMap::new();
        let mut listeners = Vec::new();
        for (controller, queue) in members {
            for kind in controller.kinds() {
                let kind = kinds.entry(kind.resource().clone()).or_default();
                if kind.listeners.last() != Some(&listeners.len()) {
                    kind.listeners.push(listeners.len());
                }
            }
            listeners.push(Listener { controller, queue });
        }
        let fills = watch::channel(()).0;
        Self { world, listeners, kinds, meters, open: AtomicBool::new(false), fills }
    }

    /// What they look at.
    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Makes changes to the shelf of a kind and tells them, before anybody else changes it. Nothing
    /// happens when nobody looks at the kind.
    pub fn make<R>(
        &self,
        resource: &Resource,
        act: impl FnOnce(&dyn AnyShelf) -> (Vec<Change>, R),
    ) -> Option<R> {
        let (kind, shelf) = (self.kinds.get(resource)?, self.world.find(resource)?);
        // A poisoned lock is still good: it guards an order, not data.
        let _order = kind.order.lock().unwrap_or_else(PoisonError::into_inner);
        let (changes, result) = act(shelf.as_ref());
        if self.open.load(Ordering::Acquire) {
            changes.iter().for_each(|change| self.tell_all(kind, change));
        }
        Some(result)
    }

    /// Tells everybody of everything there is, and from then on of every change.
    pub(crate) fn open(&self) {
        // Before the first is told, so that a change in between is told twice and not never.
        self.open.store(true, Ordering::Release);
        for (resource, kind) in &self.kinds {
            let Some(shelf) = self.world.find(resource) else { continue };
            for key in shelf.keys() {
                let _order = kind.order.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(change) = shelf.as_change(&key) {
                    self.tell_all(kind, &change);
                }
            }
        }
    }

    /// A shelf was filled.
    pub(crate) fn filled_one(&self) {
        self.fills.send_replace(());
    }

    /// Returns when every shelf has once held everything there was.
    pub(crate) async fn filled(&self) {
        let mut fills = self.fills.subscribe();
        while !self.world.shelves().all(|shelf| shelf.is_filled()) {
            // The sender lives as long as this.
            let _ = fills.changed().await;
        }
    }

    fn tell_all(&self, kind: &Kind, change: &Change) {
        for listener in &kind.listeners {
            self.tell(&self.listeners[*listener], change);
        }
    }

    /// One bad object must not silence the rest: a panic is counted, and the next change is told.
    fn tell(&self, listener: &Listener, change: &Change) {
        let Listener { controller, queue } = listener;
        let wakes = AssertUnwindSafe(|| controller.wakes(&self.world, change));
        match catch_unwind(wakes) {
            Ok(keys) => keys.into_iter().for_each(|key| queue.wake(key)),
            Err(_) => {
                let name = controller.name();
                self.meters.panicked(name);
                tracing::error!(controller = name, change = ?change, "controller panicked on a change");
            }
        }
    }
}

impl fmt::Debug for Audience {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.listeners.iter().map(|it| it.controller.name());
        to.debug_list().entries(names).finish()
    }
}
