//! Who may have nodes now.

use std::sync::Arc;

use gantry_reconcile::{Key, World};
use jiff::Timestamp;

use crate::demand::{Demand, is_over, waits_for_room};
use crate::ledger::{Grant, Ledger};
use crate::marks::{FINALIZER, GAVE_UP};
use crate::settings::Settings;
use crate::view::{AppWrapper, ORDERED_INSTANCE};

/// Whether the nodes that a job needs did not come in time, and it has not asked for others since.
#[must_use]
pub fn has_given_up(job: &AppWrapper, demand: &Demand) -> bool {
    job.metadata.annotations.get(GAVE_UP).is_some_and(|text| *text == demand.to_string())
}

/// The jobs that could be granted nodes at this moment, those that go first in front.
///
/// They go by priority, then by age. One that does not fit into what is left waits, and so does everyone
/// behind it, or small jobs would keep a large one waiting for ever. Only one that cannot be served at
/// all, now or later, is passed over.
#[must_use]
pub fn next(world: &World, ledger: &Ledger, settings: &Settings) -> Vec<Key> {
    let most = settings.limits.nodes;
    let mut room = most.saturating_sub(ledger.total());
    let mut next = Vec::new();
    for (job, demand) in waiting(world, ledger) {
        let key = job.metadata.key();
        let total = demand.total();
        let id = "";
        if total > most
            || ledger.rival(&key).is_some()
            || settings.backend.place(world, ledger, &key, id, &demand, &[]).is_err()
        {
            continue;
        }
        if total > room {
            break;
        }
        room -= total;
        next.push(key);
    }
    next
}

/// The jobs that wait for nodes and have none, in order.
fn waiting(world: &World, ledger: &Ledger) -> Vec<(Arc<AppWrapper>, Demand)> {
    let jobs = world.shelf::<AppWrapper>().tagged(&AppWrapper::labelled());
    let waits = |job: &AppWrapper| {
        let held = job.metadata.finalizers.iter().any(|it| it == FINALIZER);
        held && waits_for_room(job) && !is_over(job) && ledger.get(&job.metadata.key()).is_none()
    };
    let jobs = jobs.into_iter().filter(|job| waits(job));
    let mut jobs: Vec<(Arc<AppWrapper>, Demand)> = jobs
        .filter_map(|job| {
            let demand = Demand::of(&job).filter(|demand| !has_given_up(&job, demand))?;
            Some((job, demand))
        })
        .collect();
    jobs.sort_by(|(one, _), (two, _)| {
        let age = |job: &AppWrapper| {
            let seen = job.status.first_seen.as_ref().map_or(Timestamp::MAX, |it| it.0);
            (seen, job.metadata.key())
        };
        let rank = two.status.system_priority.total_cmp(&one.status.system_priority);
        rank.then_with(|| age(one).cmp(&age(two)))
    });
    jobs
}

/// The job that takes over the nodes of one that is over: it asks for the same types, goes first, and
/// can have everything it needs.
#[must_use]
pub fn successor(
    world: &World,
    ledger: &Ledger,
    settings: &Settings,
    (job, grant): (&AppWrapper, &Grant),
) -> Option<Arc<AppWrapper>> {
    let types = job.metadata.labels.get(ORDERED_INSTANCE)?;
    let rest = ledger.total().saturating_sub(grant.total());
    let fits = |heir: &AppWrapper, demand: &Demand| {
        let key = heir.metadata.key();
        heir.metadata.labels.get(ORDERED_INSTANCE) == Some(types)
            && rest.saturating_add(demand.total()) <= settings.limits.nodes
            && ledger.rival(&key).is_none()
    };
    let mut heirs = waiting(world, ledger).into_iter();
    heirs.find(|(heir, demand)| fits(heir, demand)).map(|(heir, _)| heir)
}
