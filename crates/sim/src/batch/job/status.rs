//! The status of a job.

use gantry_reconcile::{Note, Part, Reference, Step, View, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::account::Account;
use super::ending::{Ending, Outcome};
use super::pods::is_tracked;
use super::tally::{Tally, count};
use crate::batch::stamp;
use crate::view::{Job, JobCondition, JobStatus, Pod, Truth};

/// What is told of the pods that are to go on and those that are not.
pub(super) struct Standing<'a> {
    /// Pods that run or will.
    pub(super) active: Vec<&'a Pod>,
    /// Pods that are about to end, or will be asked to by this plan.
    pub(super) terminating: usize,
    /// Whether the job was looked after as one that goes on.
    pub(super) goes_on: bool,
}

/// The status after a pass, and what is told when it is written.
pub(super) fn next(
    tally: &Tally<'_>,
    account: &Account<'_>,
    ending: Option<&Ending>,
    standing: &Standing<'_>,
    now: Timestamp,
) -> (JobStatus, Option<Note>) {
    let (job, now) = (tally.job, stamp(now));
    let about = Reference::to(&Job::RESOURCE, &job.metadata);
    let mut status = job.status.clone();
    status.active = count(standing.active.len());
    status.ready = Some(count(standing.active.iter().filter(|pod| pod.is_ready()).count()));
    status.terminating = Some(count(standing.terminating));
    status.uncounted_terminated_pods = Some(account.uncounted.clone());
    (status.succeeded, status.failed) = (account.succeeded, account.failed);
    if let Some(numbers) = &tally.numbers {
        status.succeeded = numbers.succeeded.len();
        status.completed_indexes = numbers.succeeded.to_string();
        status.failed_indexes = numbers.failed.as_ref().map(ToString::to_string);
    }
    if status.start_time.is_none() && !job.spec.suspend {
        status.start_time = Some(now);
    }
    let mut note = None;
    match ending {
        None if standing.goes_on => note = rest(job, &mut status, about, now),
        Some(ending) if !ending.is_recorded => {
            let kind = ending.outcome.announced();
            set(&mut status, kind, Truth::True, &ending.reason, &ending.message, now);
        }
        Some(ending) if is_over(tally, account, standing) => {
            let kind = ending.outcome.final_condition();
            set(&mut status, kind, Truth::True, &ending.reason, &ending.message, now);
            note = Some(match ending.outcome {
                Outcome::Success => {
                    status.completion_time = Some(now);
                    Note::normal(about, "Completed", "Job completed".to_owned())
                }
                Outcome::Failure => Note {
                    reason: ending.reason.clone().into(),
                    ..Note::warning(about, "Failed", ending.message.clone())
                },
            });
        }
        None | Some(_) => {}
    }
    (status, note)
}

/// Whether nothing of a job is left that could still change its counters.
fn is_over(tally: &Tally<'_>, account: &Account<'_>, standing: &Standing<'_>) -> bool {
    let uncounted = &account.uncounted;
    uncounted.succeeded.is_empty()
        && uncounted.failed.is_empty()
        && standing.active.is_empty()
        && standing.terminating == 0
        && !tally.pods.iter().any(|pod| is_tracked(pod))
}

/// Says whether the job rests. The clock of its deadline starts again when it no longer does.
fn rest(job: &Job, status: &mut JobStatus, about: Reference, now: Timestamp) -> Option<Note> {
    let (truth, reason, message, word) = if job.spec.suspend {
        (Truth::True, "JobSuspended", "Job suspended", "Suspended")
    } else {
        (Truth::False, "JobResumed", "Job resumed", "Resumed")
    };
    let before = status.conditions.iter().find(|it| it.kind == "Suspended");
    let same =
        |it: &JobCondition| it.status == truth && it.reason == reason && it.message == message;
    // That it does not rest is worth telling only of a job that did.
    if before.map_or(truth == Truth::False, same) {
        return None;
    }
    set(status, "Suspended", truth, reason, message, now);
    if truth == Truth::False {
        status.start_time = Some(now);
    }
    Some(Note::normal(about, word, message.to_owned()))
}

fn set(
    status: &mut JobStatus,
    kind: &str,
    truth: Truth,
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

/// The write of a status, unless it is what is there.
pub(super) fn write(job: &Job, status: &JobStatus, note: Option<Note>) -> Option<Step> {
    if *status == job.status {
        return None;
    }
    // Counters are left out when they are zero, as everybody else writes them.
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
        part: Part::Status,
        fence: job.metadata.fence(),
        body,
    };
    Some(Step { done: note, ..Step::new(write) })
}
