//! What a shell keeps caches for, and what is shown their changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_reconcile::{Observer, World};

use super::{Seat, ShellError};
use crate::audience::{CacheOf, Listener};
use crate::outside::Outside;
use crate::wake_queue::Queue;

/// A shelf for each view of each kind that somebody looks at.
pub(super) fn shelves(seats: &[Seat], outside: &Outside) -> Result<World, ShellError> {
    let mut names = BTreeSet::new();
    let controllers = seats.iter().map(|seat| seat.controller.name());
    let inquiries = outside.inquiries.iter().map(|it| it.name());
    for name in controllers.chain(inquiries) {
        if !names.insert(name) {
            return Err(ShellError::TwoNames { name });
        }
    }
    let planned = seats.iter().flat_map(|seat| {
        let cached = seat.controller.observer().map(Observer::kinds).unwrap_or_default();
        seat.controller.kinds().into_iter().chain(cached)
    });
    let observed = outside.observers.iter().flat_map(|it| it.kinds());
    let asked = outside.inquiries.iter().flat_map(|it| it.kinds());
    Ok(World::new(planned.chain(observed).chain(asked)))
}

/// Everything that is shown changes.
pub(super) fn listeners(
    seats: &[Seat],
    queues: &[Arc<Queue>],
    outside: &Outside,
    asked: &[Arc<Queue>],
) -> Vec<Listener> {
    let observers = outside.observers.iter().map(|it| Listener::Observer(Arc::clone(it)));
    let caches = seats.iter().filter(|seat| seat.controller.observer().is_some());
    let caches = caches.map(|it| Listener::Observer(Arc::new(CacheOf(Arc::clone(&it.controller)))));
    let controllers = seats.iter().zip(queues);
    let controllers = controllers
        .map(|(seat, queue)| Listener::Controller(Arc::clone(&seat.controller), Arc::clone(queue)));
    let inquiries = outside.inquiries.iter().zip(asked);
    let inquiries =
        inquiries.map(|(it, queue)| Listener::Inquiry(Arc::clone(it), Arc::clone(queue)));
    observers.chain(caches).chain(controllers).chain(inquiries).collect()
}
