//! What follows every change and writes nothing.

use crate::fact::{FactChange, FactKind};
use crate::world::{Change, Kind, World};

/// Keeps something up to date with the objects: counts, caches, pages, processes.
///
/// It is shown every change of its [`kinds`](Observer::kinds), in the order seen, and every object there is
/// when it starts; a change may be shown more than once. Observers are shown a change before any controller
/// is asked which keys it concerns, so a cache that a plan reads is as new as the objects beside it.
pub trait Observer: Send + Sync {
    /// The name in logs and metrics.
    fn name(&self) -> &'static str;

    /// The kinds it follows.
    fn kinds(&self) -> Vec<Kind>;

    /// Takes a change into account. It must not block: changes are shown one after the other.
    fn observe(&self, world: &World, change: &Change);

    /// The facts it follows.
    fn facts(&self) -> Vec<FactKind> {
        Vec::new()
    }

    /// Takes a change of a fact into account. It must not block either.
    fn observe_fact(&self, world: &World, change: &FactChange) {
        let _ = (world, change);
    }
}
