//! Decides which jobs may have nodes now.

use std::sync::Arc;

use gantry_reconcile::{Key, World};
use jiff::Timestamp;

use crate::demand::{Demand, is_finished, waits_for_capacity};
use crate::grant_record::{Grant, GrantRecord};
use crate::owner_labels::{FINALIZER, GAVE_UP_ANNOTATION};
use crate::settings::Settings;
use crate::view::{AppWrapper, ORDERED_INSTANCE_LABEL};

/// Returns whether the nodes that a job needs were not ready in time, and its demand is unchanged
/// since.
#[must_use]
pub fn has_given_up(job: &AppWrapper, demand: &Demand) -> bool {
    job.metadata.annotations.get(GAVE_UP_ANNOTATION).is_some_and(|text| *text == demand.to_string())
}

/// Returns the jobs that could be granted nodes now, in order.
///
/// They are ordered by priority, then by age. A job that does not fit into the remaining limit
/// waits, and so do all behind it, or small jobs would keep a large one waiting for ever. Only a
/// job that cannot be served at all, now or later, is skipped.
#[must_use]
pub fn grantable_jobs(world: &World, ledger: &GrantRecord, settings: &Settings) -> Vec<Key> {
    let most = settings.limits.max_nodes;
    let mut room = most.saturating_sub(ledger.total());
    let mut next = Vec::new();
    for (job, demand) in pending_jobs(world, ledger) {
        let key = job.metadata.key();
        let total = demand.total();
        let id = "";
        if total > most
            || ledger.conflicting_job(&key).is_some()
            || settings.backend.allocate(world, ledger, &key, id, &demand, &[]).is_err()
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

/// Returns the jobs that wait for nodes and have none, in order.
fn pending_jobs(world: &World, ledger: &GrantRecord) -> Vec<(Arc<AppWrapper>, Demand)> {
    let jobs = world.store::<AppWrapper>().by_index(&AppWrapper::requests_nodes_tag());
    let waits = |job: &AppWrapper| {
        let held = job.metadata.finalizers.iter().any(|it| it == FINALIZER);
        held && waits_for_capacity(job)
            && !is_finished(job)
            && ledger.get(&job.metadata.key()).is_none()
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

/// Returns the job that takes over the nodes of one that is over: it needs the same types, is first
/// in order, and can have everything it needs.
#[must_use]
pub fn successor(
    world: &World,
    ledger: &GrantRecord,
    settings: &Settings,
    (job, grant): (&AppWrapper, &Grant),
) -> Option<Arc<AppWrapper>> {
    let types = job.metadata.labels.get(ORDERED_INSTANCE_LABEL)?;
    let rest = ledger.total().saturating_sub(grant.total());
    let fits = |heir: &AppWrapper, demand: &Demand| {
        let key = heir.metadata.key();
        heir.metadata.labels.get(ORDERED_INSTANCE_LABEL) == Some(types)
            && rest.saturating_add(demand.total()) <= settings.limits.max_nodes
            && ledger.conflicting_job(&key).is_none()
    };
    let mut heirs = pending_jobs(world, ledger).into_iter();
    heirs.find(|(heir, demand)| fits(heir, demand)).map(|(heir, _)| heir)
}
