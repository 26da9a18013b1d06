//! Creates the stores of a manager and its subscribers.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_reconcile::{Observer, World};

use super::{ManagerError, Registration};
use crate::external::ExternalSystems;
use crate::subscribers::{ControllerObserver, Subscriber};
use crate::work_queue::WorkQueue;

/// A store for each view of each kind that a subscriber reads.
pub(super) fn build_world(
    seats: &[Registration],
    outside: &ExternalSystems,
) -> Result<World, ManagerError> {
    let mut names = BTreeSet::new();
    let controllers = seats.iter().map(|seat| seat.controller.name());
    let inquiries = outside.inquiries.iter().map(|it| it.name());
    for name in controllers.chain(inquiries) {
        if !names.insert(name) {
            return Err(ManagerError::DuplicateName { name });
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

/// Everything that receives changes.
pub(super) fn subscribers(
    seats: &[Registration],
    queues: &[Arc<WorkQueue>],
    outside: &ExternalSystems,
    asked: &[Arc<WorkQueue>],
) -> Vec<Subscriber> {
    let observers = outside.observers.iter().map(|it| Subscriber::Observer(Arc::clone(it)));
    let caches = seats.iter().filter(|seat| seat.controller.observer().is_some());
    let caches = caches
        .map(|it| Subscriber::Observer(Arc::new(ControllerObserver(Arc::clone(&it.controller)))));
    let controllers = seats.iter().zip(queues);
    let controllers = controllers.map(|(seat, queue)| {
        Subscriber::Controller(Arc::clone(&seat.controller), Arc::clone(queue))
    });
    let inquiries = outside.inquiries.iter().zip(asked);
    let inquiries =
        inquiries.map(|(it, queue)| Subscriber::Inquiry(Arc::clone(it), Arc::clone(queue)));
    observers.chain(caches).chain(controllers).chain(inquiries).collect()
}
