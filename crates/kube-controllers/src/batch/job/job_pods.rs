//! The state of a job's pods on which its sync decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::index_set::IndexSet;
use super::pods::{
    completion_index, completion_indexes, ended_at, index_failures, is_active, is_failed,
    is_terminating, is_tracked,
};
use super::policy::{FailureEffect, match_failure_policy};
use crate::view::{Job, Phase, Pod};

/// The pods of a job by state, and its counters including what is not yet written.
pub(super) struct JobPods<'a> {
    pub(super) job: &'a Job,
    /// All its pods, in order of their indexes and names.
    pub(super) pods: Vec<&'a Pod>,
    /// The pods that are pending or running.
    pub(super) active: Vec<&'a Pod>,
    /// The pods that are active and lack the finalizer, so that they cannot be counted: they are
    /// deleted.
    pub(super) untracked: Vec<&'a Pod>,
    /// The number of terminating pods.
    pub(super) terminating: usize,
    /// The number of succeeded pods, whether in the counters yet or not.
    pub(super) succeeded: i64,
    /// The number of failed pods, whether in the counters yet or not.
    pub(super) failed: i64,
    /// The state of the indexes of an indexed job.
    pub(super) indexed: Option<IndexedJobState<'a>>,
}

/// The state of the indexes of an indexed job.
pub(super) struct IndexedJobState<'a> {
    /// The number of indexes.
    pub(super) end: u32,
    /// The indexes that the status records as succeeded.
    pub(super) recorded: IndexSet,
    /// The indexes that have succeeded.
    pub(super) succeeded: IndexSet,
    /// The indexes that have failed permanently, with a backoff limit per index.
    pub(super) failed: Option<IndexSet>,
    /// The last failed pod of each index that is to be retried. The replacement pod takes the
    /// failure count from it, so it stays until there is one.
    pub(super) failed_pods: BTreeMap<u32, &'a Pod>,
}

impl<'a> JobPods<'a> {
    pub(super) fn of(job: &'a Job, pods: impl Iterator<Item = &'a Arc<Pod>>) -> Self {
        let mut pods: Vec<&Pod> = pods.map(|pod| &**pod).collect();
        pods.sort_by_key(|pod| (completion_index(pod), &pod.metadata.name));
        let (active, untracked): (Vec<&Pod>, Vec<&Pod>) =
            pods.iter().copied().filter(|pod| is_active(pod)).partition(|pod| is_tracked(pod));
        let end = job.is_indexed().then(|| index_count(job));
        let numbered =
            |pod: &Pod| end.is_none_or(|end| completion_index(pod).is_some_and(|it| it < end));
        let noted = uncounted_pods(job);
        let fresh = pods.iter().copied().filter(|pod| {
            is_tracked(pod) && !noted.contains(pod.metadata.uid.as_str()) && numbered(pod)
        });
        let (mut succeeded, mut failed) = (job.status.succeeded, job.status.failed);
        if let Some(uncounted) = &job.status.uncounted_terminated_pods {
            succeeded += count(uncounted.succeeded.len());
            failed += count(uncounted.failed.len());
        }
        for pod in fresh {
            if pod.status.phase == Phase::Succeeded {
                succeeded += 1;
            } else if is_failed(job, pod) && failure_effect(job, pod) != FailureEffect::Ignored {
                failed += 1;
            }
        }
        let numbers = end.map(|end| IndexedJobState::of(job, &pods, &active, end));
        if let Some(numbers) = &numbers {
            succeeded = numbers.succeeded.len();
        }
        let terminating = pods.iter().filter(|pod| is_terminating(pod)).count();
        Self { job, pods, active, untracked, terminating, succeeded, failed, indexed: numbers }
    }
}

impl<'a> IndexedJobState<'a> {
    fn of(job: &Job, pods: &[&'a Pod], active: &[&Pod], end: u32) -> Self {
        let recorded = IndexSet::parse(&job.status.completed_indexes, end);
        let tracked = pods.iter().copied().filter(|pod| is_tracked(pod));
        let numbered =
            tracked.filter_map(|pod| Some((completion_index(pod).filter(|it| *it < end)?, pod)));
        let numbered: Vec<(u32, &'a Pod)> = numbered.collect();
        let mut succeeded = recorded.clone();
        for (index, pod) in &numbered {
            if pod.status.phase == Phase::Succeeded {
                succeeded.insert(*index);
            }
        }
        let mut numbers =
            Self { end, recorded, succeeded, failed: None, failed_pods: BTreeMap::new() };
        let Some(limit) = job.spec.backoff_limit_per_index else { return numbers };
        let text = job.status.failed_indexes.as_deref().unwrap_or_default();
        let mut failed = IndexSet::parse(text, end);
        // A pod that is terminated because the job ends does not decide about its index.
        let ends = job.condition("FailureTarget").or_else(|| job.condition("SuccessCriteriaMet"));
        let by_itself = |pod: &Pod| ends.is_none() || !pod.metadata.is_terminating();
        let failures_of_own =
            numbered.iter().filter(|(_, pod)| is_failed(job, pod) && by_itself(pod));
        for (index, pod) in failures_of_own {
            let given_up = match failure_effect(job, pod) {
                FailureEffect::FailsIndex => true,
                FailureEffect::Ignored => false,
                FailureEffect::Counts | FailureEffect::FailsJob(_) => {
                    index_failures(pod).0 >= limit
                }
            };
            if given_up {
                failed.insert(*index);
            }
        }
        let running = completion_indexes(active.iter().copied());
        for (index, pod) in numbered.into_iter().filter(|(_, pod)| is_failed(job, pod)) {
            let done = numbers.succeeded.contains(index) || failed.contains(index);
            if done || running.contains(index) {
                continue;
            }
            let rank = |pod: &Pod| {
                let (counted, ignored) = index_failures(pod);
                (counted + ignored, ended_at(pod))
            };
            let last = numbers.failed_pods.entry(index).or_insert(pod);
            if rank(last) < rank(pod) {
                *last = pod;
            }
        }
        numbers.failed = Some(failed);
        numbers
    }
}

/// Returns the effect of a pod's failure on its job.
pub(super) fn failure_effect(job: &Job, pod: &Pod) -> FailureEffect {
    match_failure_policy(job.spec.pod_failure_policy.as_ref(), pod)
}

/// Returns the number of indexes of an indexed job.
fn index_count(job: &Job) -> u32 {
    let completions = job.spec.completions.unwrap_or(0);
    u32::try_from(completions.clamp(0, i64::from(u32::MAX))).unwrap_or(0)
}

/// Returns the UIDs of the pods that are recorded in the status and not yet in the counters.
pub(super) fn uncounted_pods(job: &Job) -> BTreeSet<&str> {
    let noted = job.status.uncounted_terminated_pods.iter();
    noted.flat_map(|it| it.succeeded.iter().chain(&it.failed)).map(String::as_str).collect()
}

pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
