//! What is told from a pod of a job.

use std::cmp::Ordering;

use jiff::{SignedDuration, Timestamp};

use super::indexes::Indexes;
use crate::view::{ContainerStatus, Job, Phase, Pod, RestartPolicy, Truth};

/// The annotation and the label with the number of a pod.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often pods of this number failed before, as it counts.
pub(super) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// How often they failed without counting.
pub(super) const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// The wait after the first failure; it doubles with each further one.
const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(10);
/// The longest wait.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(10);

/// The number of a pod.
pub(super) fn index(pod: &Pod) -> Option<u32> {
    pod.metadata.annotations.get(INDEX)?.parse().ok()
}

/// How often pods of this one's number failed before it: as it counts, and without counting.
pub(super) fn failures(pod: &Pod) -> (i64, i64) {
    let read = |name: &str| -> i64 {
        let text = pod.metadata.annotations.get(name);
        text.and_then(|it| it.parse::<i32>().ok()).filter(|it| *it >= 0).unwrap_or(0).into()
    };
    (read(FAILURES), read(IGNORED_FAILURES))
}

/// Whether its end is still to be counted, or it has not ended.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().any(|it| it == Job::TRACKING)
}

/// Whether it runs or will, and is to go on.
pub(super) fn is_active(pod: &Pod) -> bool {
    !pod.is_over() && !pod.metadata.is_going()
}

/// Whether it is about to end.
pub(super) fn is_terminating(pod: &Pod) -> bool {
    !pod.is_over() && pod.metadata.is_going()
}

/// Whether it has failed. A pod that was removed counts as well, unless its end is waited for: it may
/// never get to say how it ended.
pub(super) fn is_failed(job: &Job, pod: &Pod) -> bool {
    pod.status.phase == Phase::Failed || (is_terminating(pod) && !job.is_replacing_only_ended())
}

/// When it ended, as well as that is known.
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
        let ready = pod.condition("Ready").filter(|it| it.status == Truth::False)?;
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

/// When a pod may be made again after the failures since the last success.
pub(super) fn retry_at<'a>(
    job: &Job,
    pods: impl Iterator<Item = &'a Pod> + Clone,
) -> Option<Timestamp> {
    let succeeded = pods.clone().filter(|pod| pod.status.phase == Phase::Succeeded);
    let success = succeeded.map(ended_at).max();
    let failed = pods.filter(|pod| is_failed(job, pod)).map(ended_at);
    let since: Vec<Timestamp> = failed.filter(|at| Some(*at) > success).collect();
    let last = since.iter().max()?;
    Some(after_failures(*last, i64::try_from(since.len()).unwrap_or(i64::MAX)))
}

/// When the pod of a number may be made again after this one failed.
pub(super) fn retry_after(pod: &Pod) -> Timestamp {
    let (counted, ignored) = failures(pod);
    after_failures(ended_at(pod), counted + ignored + 1)
}

fn after_failures(last: Timestamp, count: i64) -> Timestamp {
    // Six doublings reach the longest wait.
    let doublings = u32::try_from(count.clamp(1, 8) - 1).unwrap_or(0);
    let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    last.checked_add(wait).unwrap_or(last)
}

/// Which of two pods is rather removed: the one that has come less far.
pub(super) fn by_worth(one: &Pod, other: &Pod) -> Ordering {
    let stage = |pod: &Pod| match pod.status.phase {
        Phase::Pending => 0,
        Phase::Unknown => 1,
        Phase::Running | Phase::Succeeded | Phase::Failed => 2,
    };
    let ready_since = |pod: &Pod| {
        let ready = pod.condition("Ready").filter(|it| it.status == Truth::True);
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

/// The numbers of pods.
pub(super) fn indexes<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Indexes {
    let mut indexes = Indexes::default();
    for index in pods.into_iter().filter_map(index) {
        indexes.insert(index);
    }
    indexes
}
