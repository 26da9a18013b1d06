//! Reads the state of a job's pod.

use std::cmp::Ordering;

use jiff::{SignedDuration, Timestamp};

use super::index_set::IndexSet;
use crate::view::{ConditionStatus, ContainerStatus, Job, Phase, Pod, RestartPolicy};

/// The annotation and the label with the completion index of a pod.
pub(super) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The annotation with the number of earlier failures of this index that count.
pub(super) const INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
/// The annotation with the number of earlier failures of this index that are ignored.
pub(super) const INDEX_IGNORED_FAILURE_COUNT: &str =
    "batch.kubernetes.io/job-index-ignored-failure-count";

/// The backoff after the first failure; it doubles with each further one.
const INITIAL_BACKOFF: SignedDuration = SignedDuration::from_secs(10);
/// The longest backoff.
const MAX_BACKOFF: SignedDuration = SignedDuration::from_mins(10);

/// Returns the completion index of a pod.
pub(super) fn completion_index(pod: &Pod) -> Option<u32> {
    pod.metadata.annotations.get(COMPLETION_INDEX)?.parse().ok()
}

/// Returns the number of earlier failures of this pod's index: those that count, and those that are
/// ignored.
pub(super) fn index_failures(pod: &Pod) -> (i64, i64) {
    let read = |name: &str| -> i64 {
        let text = pod.metadata.annotations.get(name);
        text.and_then(|it| it.parse::<i32>().ok()).filter(|it| *it >= 0).unwrap_or(0).into()
    };
    (read(INDEX_FAILURE_COUNT), read(INDEX_IGNORED_FAILURE_COUNT))
}

/// Returns whether the pod has the finalizer: it has not finished, or is not yet counted.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().any(|it| it == Job::TRACKING_FINALIZER)
}

/// Returns whether the pod is pending or running and not terminating.
pub(super) fn is_active(pod: &Pod) -> bool {
    !pod.is_terminal() && !pod.metadata.is_terminating()
}

/// Returns whether the pod is terminating and not finished.
pub(super) fn is_terminating(pod: &Pod) -> bool {
    !pod.is_terminal() && pod.metadata.is_terminating()
}

/// Returns whether the pod has failed. A pod that is being deleted counts as well, unless the job
/// replaces pods only when they have failed: it may never report how it ended.
pub(super) fn is_failed(job: &Job, pod: &Pod) -> bool {
    pod.status.phase == Phase::Failed
        || (is_terminating(pod) && !job.replaces_only_terminated_pods())
}

/// Returns when the pod finished, as far as that is known.
pub(super) fn ended_at(pod: &Pod) -> Timestamp {
    let beside = |it: &&ContainerStatus| {
        let mut containers = pod.spec.init_containers.iter();
        containers.any(|c| c.name == it.name && c.restart_policy == Some(RestartPolicy::Always))
    };
    let containers = pod.status.container_statuses.iter();
    let all = containers.chain(pod.status.init_container_statuses.iter().filter(beside));
    let ends: Option<Vec<Timestamp>> =
        all.map(|it| it.state.terminated.as_ref()?.finished_at).collect();
    let of_containers = ends.and_then(|ends| ends.into_iter().max());
    let not_ready = || {
        let ready = pod.condition("Ready").filter(|it| it.status == ConditionStatus::False)?;
        ready.last_transition_time
    };
    let removed = || {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        let until = pod.metadata.deletion_timestamp?;
        until.checked_sub(SignedDuration::from_secs(grace)).ok()
    };
    let made = pod.metadata.creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
    of_containers.or_else(not_ready).or_else(removed).unwrap_or(made)
}

/// Returns when a pod may be created again after the failures since the last success.
pub(super) fn retry_at<'a>(
    job: &Job,
    pods: impl Iterator<Item = &'a Pod> + Clone,
) -> Option<Timestamp> {
    let succeeded = pods.clone().filter(|pod| pod.status.phase == Phase::Succeeded);
    let success = succeeded.map(ended_at).max();
    let failed = pods.filter(|pod| is_failed(job, pod)).map(ended_at);
    let since: Vec<Timestamp> = failed.filter(|at| Some(*at) > success).collect();
    let last = since.iter().max()?;
    Some(backoff_until(*last, i64::try_from(since.len()).unwrap_or(i64::MAX)))
}

/// Returns when the pod of an index may be created again after this one failed.
pub(super) fn retry_after(pod: &Pod) -> Timestamp {
    let (counted, ignored) = index_failures(pod);
    backoff_until(ended_at(pod), counted + ignored + 1)
}

fn backoff_until(last: Timestamp, count: i64) -> Timestamp {
    // Six doublings reach the longest backoff.
    let doublings = u32::try_from(count.clamp(1, 8) - 1).unwrap_or(0);
    let wait = INITIAL_BACKOFF.saturating_mul(1 << doublings).min(MAX_BACKOFF);
    last.checked_add(wait).unwrap_or(last)
}

/// Orders two pods by which is deleted first: the one that has progressed less.
pub(super) fn by_deletion_preference(one: &Pod, other: &Pod) -> Ordering {
    let stage = |pod: &Pod| match pod.status.phase {
        Phase::Pending => 0,
        Phase::Unknown => 1,
        Phase::Running | Phase::Succeeded | Phase::Failed => 2,
    };
    let ready_since = |pod: &Pod| {
        let ready = pod.condition("Ready").filter(|it| it.status == ConditionStatus::True);
        ready.and_then(|it| it.last_transition_time)
    };
    let restarts = |pod: &Pod| {
        let all = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
        all.map(|it| it.restart_count).max().unwrap_or(0)
    };
    let newer = |one: Option<Timestamp>, other: Option<Timestamp>| match (one, other) {
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (one, other) => other.cmp(&one),
    };
    (!one.spec.node_name.is_empty())
        .cmp(&!other.spec.node_name.is_empty())
        .then_with(|| stage(one).cmp(&stage(other)))
        .then_with(|| one.is_ready().cmp(&other.is_ready()))
        .then_with(|| newer(ready_since(one), ready_since(other)))
        .then_with(|| restarts(other).cmp(&restarts(one)))
        .then_with(|| newer(one.metadata.creation_timestamp, other.metadata.creation_timestamp))
        .then_with(|| one.metadata.name.cmp(&other.metadata.name))
}

/// Returns the completion indexes of pods.
pub(super) fn completion_indexes<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> IndexSet {
    let mut indexes = IndexSet::default();
    for index in pods.into_iter().filter_map(completion_index) {
        indexes.insert(index);
    }
    indexes
}
