//! The trait that every controller implements.

use std::time::Duration;

use jiff::Timestamp;

use crate::fact::{FactChange, FactKind};
use crate::object::Key;
use crate::observer::Observer;
use crate::plan::Plan;
use crate::world::{Change, Kind, World};

/// Reconciles the objects of one kind, one key at a time.
pub trait Controller: Send + Sync {
    /// The controller's name in logs, metrics and `gantry status`.
    fn name(&self) -> &'static str;

    /// The kinds the controller reads; the first is the kind that it reconciles.
    fn kinds(&self) -> Vec<Kind>;

    /// The kinds of facts the controller reads, beside the state of its own calls.
    fn facts(&self) -> Vec<FactKind> {
        Vec::new()
    }

    /// The observer that keeps the caches up to date that this controller's plans read. It receives
    /// each change before [`enqueue`] is called with it.
    ///
    /// [`enqueue`]: Controller::enqueue
    fn observer(&self) -> Option<&dyn Observer> {
        None
    }

    /// Returns the keys to reconcile after a change: keys of the kind that this controller
    /// reconciles. Pure.
    ///
    /// It is called with every change of each of its [`kinds`](Controller::kinds), in the order
    /// observed, and with every existing object at startup. Returning a key too many costs one
    /// plan; returning one too few leaves work undone until the next change.
    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key>;

    /// Returns the keys to reconcile after a change of one of its [`facts`](Controller::facts).
    /// Pure.
    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        let _ = (world, change);
        Vec::new()
    }

    /// Plans what to do about the object with this key, which may have been deleted.
    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan;

    /// The minimum time between two plans of the same key; zero for most controllers.
    ///
    /// It is for controllers that write text for users to read. A key that is enqueued earlier is
    /// planned when the interval ends: frequent changes are reported now and then, and the last
    /// state is always reported.
    fn min_plan_interval(&self) -> Duration {
        Duration::ZERO
    }
}
