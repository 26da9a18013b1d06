//! Counts finished pods, each exactly once.
//!
//! A pod has a finalizer until it is counted. First its UID is written into the job's status, then
//! the finalizer is removed, then the UID becomes part of a counter. Whichever write is lost in
//! between, the next plan sees which of the three has happened. Pods with an index that succeed
//! need no UID: the index is an element of a set and cannot be counted twice.

use std::collections::BTreeSet;

use super::job_pods::{JobPods, count, failure_effect, uncounted_pods};
use super::pods::{completion_index, is_failed, is_terminating, is_tracked};
use super::policy::FailureEffect;
use super::result::{JobOutcome, JobResult};
use crate::batch::MAX_WRITES_PER_PLAN;
use crate::view::{JobStatus, Phase, Pod, UncountedTerminatedPods};

/// The next step of a pod that is not yet counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountingStep {
    /// The pod is kept as it is.
    Unchanged,
    /// The pod is recorded as succeeded.
    Succeeded,
    /// The pod is recorded as failed.
    Failed,
    /// The pod's finalizer is removed: it is recorded already, or does not count.
    Released,
}

/// The counts of one sync.
#[derive(Debug)]
pub(super) struct CountedPods<'a> {
    /// The pods whose finalizer is to be removed.
    pub(super) released: Vec<&'a Pod>,
    /// The pods that are recorded in the status and not yet in the counters, after this sync.
    pub(super) uncounted: UncountedTerminatedPods,
    /// The number of succeeded pods after this sync.
    pub(super) succeeded: i64,
    /// The number of failed pods after this sync.
    pub(super) failed: i64,
}

impl<'a> CountedPods<'a> {
    pub(super) fn of(job_pods: &JobPods<'a>, ending: Option<&JobResult>) -> Self {
        let status = &job_pods.job.status;
        let mut account = Self::count_released(job_pods, status);
        let noted = uncounted_pods(job_pods.job);
        for pod in job_pods.pods.iter().copied().filter(|pod| is_tracked(pod)) {
            let lists = &mut account.uncounted;
            let has_capacity = lists.succeeded.len() + lists.failed.len() < MAX_WRITES_PER_PLAN;
            let uid = || pod.metadata.uid.as_str().to_owned();
            match counting_step(job_pods, ending, pod, noted.contains(pod.metadata.uid.as_str())) {
                CountingStep::Released => account.released.push(pod),
                CountingStep::Succeeded if has_capacity => lists.succeeded.push(uid()),
                CountingStep::Failed if has_capacity => lists.failed.push(uid()),
                CountingStep::Unchanged | CountingStep::Succeeded | CountingStep::Failed => {}
            }
        }
        account
    }

    /// Moves recorded pods that have lost their finalizer into the counters.
    fn count_released(job_pods: &JobPods<'a>, status: &JobStatus) -> Self {
        let tracked = job_pods.pods.iter().filter(|pod| is_tracked(pod));
        let tracked: BTreeSet<&str> = tracked.map(|pod| pod.metadata.uid.as_str()).collect();
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let left = |list: &[String]| -> Vec<String> {
            list.iter().filter(|uid| tracked.contains(uid.as_str())).cloned().collect()
        };
        let (succeeded, failed) = (left(&uncounted.succeeded), left(&uncounted.failed));
        Self {
            released: Vec::new(),
            succeeded: status.succeeded + count(uncounted.succeeded.len() - succeeded.len()),
            failed: status.failed + count(uncounted.failed.len() - failed.len()),
            uncounted: UncountedTerminatedPods { succeeded, failed },
        }
    }
}

fn counting_step(
    job_pods: &JobPods<'_>,
    ending: Option<&JobResult>,
    pod: &Pod,
    is_noted: bool,
) -> CountingStep {
    if is_noted {
        return CountingStep::Released;
    }
    let number = completion_index(pod);
    let has_place = job_pods.indexed.as_ref().is_none_or(|it| number.is_some_and(|n| n < it.end));
    if pod.status.phase == Phase::Succeeded {
        return match (&job_pods.indexed, number) {
            (None, _) => CountingStep::Succeeded,
            // Its index becomes part of the set, which is written first.
            (Some(numbers), Some(number)) if has_place && !numbers.recorded.contains(number) => {
                CountingStep::Unchanged
            }
            (Some(_), _) => CountingStep::Released,
        };
    }
    let recorded = ending.filter(|it| it.is_recorded).map(|it| it.outcome);
    let has_failed = match recorded {
        // The pod was deleted because the success policy was met.
        Some(JobOutcome::Success) if pod.metadata.is_terminating() => {
            return CountingStep::Released;
        }
        // A pod that is terminated by the failure of the job has failed too.
        Some(JobOutcome::Failure) => pod.is_terminal() || is_terminating(pod),
        Some(JobOutcome::Success) | None => is_failed(job_pods.job, pod),
    };
    if !has_failed {
        return if job_pods.job.metadata.is_terminating() {
            CountingStep::Released
        } else {
            CountingStep::Unchanged
        };
    }
    let awaited = || {
        let numbers = job_pods.indexed.as_ref()?;
        numbers.failed_pods.get(&number?).filter(|it| it.metadata.uid == pod.metadata.uid)
    };
    if !has_place || failure_effect(job_pods.job, pod) == FailureEffect::Ignored {
        // The replacement pod still needs the failure count of the index.
        let waits =
            ending.is_none() && !job_pods.job.metadata.is_terminating() && awaited().is_some();
        return if waits { CountingStep::Unchanged } else { CountingStep::Released };
    }
    if ending.is_none() && !job_pods.job.metadata.is_terminating() && awaited().is_some() {
        return CountingStep::Unchanged;
    }
    CountingStep::Failed
}
