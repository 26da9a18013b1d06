//! Observers: they follow every change and write nothing.

use crate::fact::{FactChange, FactKind};
use crate::world::{Change, Kind, World};

/// Keeps derived state up to date with the objects: counters, caches, status pages, processes.
///
/// An observer receives every change of its [`kinds`](Observer::kinds), in the order observed, and
/// every existing object at startup; it may receive a change more than once. Observers receive a
/// change before any controller is asked which keys it concerns, so a cache that a plan reads is as
/// recent as the objects next to it.
pub trait Observer: Send + Sync {
    /// The name in logs and metrics.
    fn name(&self) -> &'static str;

    /// The kinds the observer follows.
    fn kinds(&self) -> Vec<Kind>;

    /// Processes one change. It must not block: changes are delivered one after the other.
    fn observe(&self, world: &World, change: &Change);

    /// The kinds of facts the observer follows.
    fn facts(&self) -> Vec<FactKind> {
        Vec::new()
    }

    /// Processes one change of a fact. It must not block either.
    fn observe_fact(&self, world: &World, change: &FactChange) {
        let _ = (world, change);
    }
}
