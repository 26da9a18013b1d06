//! The status of a job.

use gantry_reconcile::{Event, ObjectReference, Step, Subresource, View, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::counting::CountedPods;
use super::job_pods::{JobPods, count};
use super::pods::is_tracked;
use super::result::{JobOutcome, JobResult};
use crate::status::truncate_to_seconds;
use crate::view::{ConditionStatus, Job, JobCondition, JobStatus, Pod};

/// The pods that remain after a sync.
pub(super) struct RemainingPods<'a> {
    /// Pods that are pending or running.
    pub(super) active: Vec<&'a Pod>,
    /// Pods that are terminating, or are deleted by this plan.
    pub(super) terminating: usize,
    /// Whether the job continues, so that its pods were managed.
    pub(super) goes_on: bool,
}

/// Computes the status after a sync, and the event of its write.
pub(super) fn next_status(
    job_pods: &JobPods<'_>,
    account: &CountedPods<'_>,
    ending: Option<&JobResult>,
    standing: &RemainingPods<'_>,
    now: Timestamp,
) -> (JobStatus, Option<Event>) {
    let (job, now) = (job_pods.job, truncate_to_seconds(now));
    let about = ObjectReference::to(&Job::RESOURCE, &job.metadata);
    let mut status = job.status.clone();
    status.active = count(standing.active.len());
    status.ready = Some(count(standing.active.iter().filter(|pod| pod.is_ready()).count()));
    status.terminating = Some(count(standing.terminating));
    status.uncounted_terminated_pods = Some(account.uncounted.clone());
    (status.succeeded, status.failed) = (account.succeeded, account.failed);
    if let Some(numbers) = &job_pods.indexed {
        status.succeeded = numbers.succeeded.len();
        status.completed_indexes = numbers.succeeded.to_string();
        status.failed_indexes = numbers.failed.as_ref().map(ToString::to_string);
    }
    if status.start_time.is_none() && !job.spec.suspend {
        status.start_time = Some(now);
    }
    let mut note = None;
    match ending {
        None if standing.goes_on => note = update_suspended(job, &mut status, about, now),
        Some(ending) if !ending.is_recorded => {
            let kind = ending.outcome.interim_condition();
            set_condition(
                &mut status,
                kind,
                ConditionStatus::True,
                &ending.reason,
                &ending.message,
                now,
            );
        }
        Some(ending) if is_finished(job_pods, account, standing) => {
            let kind = ending.outcome.final_condition();
            set_condition(
                &mut status,
                kind,
                ConditionStatus::True,
                &ending.reason,
                &ending.message,
                now,
            );
            note = Some(match ending.outcome {
                JobOutcome::Success => {
                    status.completion_time = Some(now);
                    Event::normal(about, "Completed", "Job completed".to_owned())
                }
                JobOutcome::Failure => Event {
                    reason: ending.reason.clone().into(),
                    ..Event::warning(about, "Failed", ending.message.clone())
                },
            });
        }
        None | Some(_) => {}
    }
    (status, note)
}

/// Returns whether no pod of a job is left that could still change its counters.
fn is_finished(
    job_pods: &JobPods<'_>,
    account: &CountedPods<'_>,
    standing: &RemainingPods<'_>,
) -> bool {
    let uncounted = &account.uncounted;
    uncounted.succeeded.is_empty()
        && uncounted.failed.is_empty()
        && standing.active.is_empty()
        && standing.terminating == 0
        && !job_pods.pods.iter().any(|pod| is_tracked(pod))
}

/// Sets the condition `Suspended`. The active deadline starts again when the job is resumed.
fn update_suspended(
    job: &Job,
    status: &mut JobStatus,
    about: ObjectReference,
    now: Timestamp,
) -> Option<Event> {
    let (truth, reason, message, word) = if job.spec.suspend {
        (ConditionStatus::True, "JobSuspended", "Job suspended", "Suspended")
    } else {
        (ConditionStatus::False, "JobResumed", "Job resumed", "Resumed")
    };
    let before = status.conditions.iter().find(|it| it.kind == "Suspended");
    let same =
        |it: &JobCondition| it.status == truth && it.reason == reason && it.message == message;
    // The event is recorded only for a job that was suspended before.
    if before.map_or(truth == ConditionStatus::False, same) {
        return None;
    }
    set_condition(status, "Suspended", truth, reason, message, now);
    if truth == ConditionStatus::False {
        status.start_time = Some(now);
    }
    Some(Event::normal(about, word, message.to_owned()))
}

fn set_condition(
    status: &mut JobStatus,
    kind: &str,
    truth: ConditionStatus,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let condition = JobCondition {
        kind: kind.to_owned(),
        status: truth,
        last_probe_time: Some(now),
        last_transition_time: Some(now),
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    match status.conditions.iter_mut().find(|it| it.kind == kind) {
        Some(old) => *old = condition,
        None => status.conditions.push(condition),
    }
}

/// Returns the write of a status, unless the job has it already.
pub(super) fn write(job: &Job, status: &JobStatus, note: Option<Event>) -> Option<Step> {
    if *status == job.status {
        return None;
    }
    // Counters are omitted when they are zero, as Kubernetes writes them.
    let some = |number: i64| if number == 0 { Value::Null } else { json!(number) };
    let list = |list: &[String]| if list.is_empty() { Value::Null } else { json!(list) };
    let text = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let body = json!({"status": {
        "active": some(status.active),
        "ready": status.ready,
        "terminating": status.terminating,
        "succeeded": some(status.succeeded),
        "failed": some(status.failed),
        "startTime": status.start_time,
        "completionTime": status.completion_time,
        "completedIndexes": text(&status.completed_indexes),
        "failedIndexes": status.failed_indexes,
        "uncountedTerminatedPods": {
            "succeeded": list(&uncounted.succeeded), "failed": list(&uncounted.failed),
        },
        "conditions": status.conditions,
    }});
    let write = Write::Merge {
        resource: Job::RESOURCE,
        key: job.metadata.key(),
        subresource: Subresource::Status,
        fence: job.metadata.fence(),
        body,
    };
    let mut step = Step::new(write);
    step.success_events.extend(note);
    Some(step)
}
