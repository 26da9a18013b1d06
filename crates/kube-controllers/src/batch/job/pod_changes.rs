//! Decides which pods a job creates and which are surplus.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::job_pods::{IndexedJobState, JobPods, count};
use super::pods::{
    by_deletion_preference, completion_index, completion_indexes, is_terminating, retry_after,
    retry_at,
};
use crate::batch::MAX_WRITES_PER_PLAN;
use crate::view::Pod;

/// The changes to the pods of a job.
#[derive(Debug, Default)]
pub(super) struct JobPodChanges<'a> {
    /// Surplus pods to delete, without counting them.
    pub(super) surplus: Vec<&'a Pod>,
    /// Pods to create: the index of each, if the job is indexed.
    pub(super) to_create: Vec<Option<u32>>,
    /// When a missing pod may be created, if not yet.
    pub(super) retry_at: Option<Timestamp>,
}

/// Decides about the pods of a job that continues.
pub(super) fn pod_changes<'a>(job_pods: &JobPods<'a>, now: Timestamp) -> JobPodChanges<'a> {
    let job = job_pods.job;
    if job.spec.suspend {
        return JobPodChanges { surplus: job_pods.active.clone(), ..JobPodChanges::default() };
    }
    let active = count(job_pods.active.len());
    let parallelism = job.spec.parallelism.unwrap_or(1);
    let wanted = match job.spec.completions {
        Some(completions) => (completions - job_pods.succeeded).min(parallelism).max(0),
        // Once one pod has succeeded, no more are created, and the others run to completion.
        None if job_pods.succeeded > 0 => active,
        None => parallelism,
    };
    let surplus = surplus_pods(job_pods, usize::try_from(active - wanted).unwrap_or(0));
    if !surplus.is_empty() {
        return JobPodChanges { surplus, ..JobPodChanges::default() };
    }
    let leaving = if job.replaces_only_terminated_pods() { count(job_pods.terminating) } else { 0 };
    let missing = usize::try_from(wanted - leaving - active).unwrap_or(0);
    if missing == 0 {
        return JobPodChanges::default();
    }
    match &job_pods.indexed {
        Some(numbers) if numbers.failed.is_some() => {
            create_with_backoff_per_index(job_pods, numbers, missing, now)
        }
        Some(_) | None => {
            if let Some(at) = retry_at(job, job_pods.pods.iter().copied()).filter(|at| *at > now) {
                return JobPodChanges { retry_at: Some(at), ..JobPodChanges::default() };
            }
            let missing = missing.min(MAX_WRITES_PER_PLAN);
            let to_create = match &job_pods.indexed {
                Some(numbers) => {
                    missing_indexes(job_pods, numbers, missing).into_iter().map(Some).collect()
                }
                None => vec![None; missing],
            };
            JobPodChanges { to_create, ..JobPodChanges::default() }
        }
    }
}

/// Decides which pods to create where each index has its own backoff limit.
fn create_with_backoff_per_index<'a>(
    job_pods: &JobPods<'a>,
    numbers: &IndexedJobState<'a>,
    missing: usize,
    now: Timestamp,
) -> JobPodChanges<'a> {
    let mut crew = JobPodChanges::default();
    for index in missing_indexes(job_pods, numbers, missing.min(MAX_WRITES_PER_PLAN)) {
        match numbers.failed_pods.get(&index).map(|pod| retry_after(pod)).filter(|at| *at > now) {
            None => crew.to_create.push(Some(index)),
            Some(at) => crew.retry_at = Some(crew.retry_at.map_or(at, |before| before.min(at))),
        }
    }
    crew
}

/// Returns the first indexes without a pod.
fn missing_indexes(job_pods: &JobPods<'_>, numbers: &IndexedJobState<'_>, most: usize) -> Vec<u32> {
    let mut settled = numbers.succeeded.clone();
    settled.extend(&completion_indexes(job_pods.active.iter().copied()));
    if job_pods.job.replaces_only_terminated_pods() {
        settled.extend(&completion_indexes(
            job_pods.pods.iter().copied().filter(|pod| is_terminating(pod)),
        ));
    }
    if let Some(failed) = &numbers.failed {
        settled.extend(failed);
    }
    settled.missing(most, numbers.end)
}

/// Returns the surplus pods: those that share an index or have none, and at least `least` in all.
fn surplus_pods<'a>(job_pods: &JobPods<'a>, least: usize) -> Vec<&'a Pod> {
    let mut by_worth_first = job_pods.active.clone();
    by_worth_first.sort_by(|one, other| by_deletion_preference(one, other));
    let Some(numbers) = &job_pods.indexed else {
        by_worth_first.truncate(least);
        return by_worth_first;
    };
    // The pod of each index that is deleted last stays.
    let mut served = BTreeSet::new();
    let (mut kept, mut surplus): (Vec<&Pod>, Vec<&Pod>) =
        by_worth_first.into_iter().rev().partition(|pod| {
            completion_index(pod).is_some_and(|it| it < numbers.end && served.insert(it))
        });
    while surplus.len() < least
        && let Some(pod) = kept.pop()
    {
        surplus.push(pod);
    }
    surplus
}
