//! How a job ends.

use jiff::{SignedDuration, Timestamp};

use super::pods::is_failed;
use super::policy::{Verdict, success};
use super::tally::{Tally, verdict};
use crate::view::{Job, Phase};

/// How a job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// Whether it ends well.
    pub(super) outcome: Outcome,
    /// Whether that is written down. Until then nothing is done about it: the pods it follows from
    /// may go before it is.
    pub(super) is_recorded: bool,
    /// Why, in one word.
    pub(super) reason: String,
    /// Why, in a sentence.
    pub(super) message: String,
}

/// Whether a job ends well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It does.
    Success,
    /// It does not.
    Failure,
}

impl Outcome {
    /// The condition that announces it.
    pub(super) fn announced(self) -> &'static str {
        match self {
            Self::Success => "SuccessCriteriaMet",
            Self::Failure => "FailureTarget",
        }
    }

    /// The condition that says it has come to pass.
    pub(super) fn final_condition(self) -> &'static str {
        match self {
            Self::Success => "Complete",
            Self::Failure => "Failed",
        }
    }
}

/// How the job ends, if it must; that all its pods are done is seen elsewhere.
pub(super) fn ending(tally: &Tally<'_>, now: Timestamp) -> Option<Ending> {
    recorded(tally.job)
        .or_else(|| {
            let (reason, message) = failure(tally, now)?;
            Some(Ending {
                outcome: Outcome::Failure,
                is_recorded: false,
                reason: reason.to_owned(),
                message,
            })
        })
        .or_else(|| {
            let numbers = tally.numbers.as_ref()?;
            let message =
                success(tally.job.spec.success_policy.as_ref(), &numbers.succeeded, numbers.end)?;
            Some(Ending {
                outcome: Outcome::Success,
                is_recorded: false,
                reason: "SuccessPolicy".to_owned(),
                message,
            })
        })
}

/// The end of a job all of whose pods are done.
pub(super) fn complete() -> Ending {
    Ending {
        outcome: Outcome::Success,
        is_recorded: false,
        reason: "CompletionsReached".to_owned(),
        message: "Reached expected number of succeeded pods".to_owned(),
    }
}

fn recorded(job: &Job) -> Option<Ending> {
    [Outcome::Success, Outcome::Failure].into_iter().find_map(|outcome| {
        let condition = job.condition(outcome.announced())?;
        Some(Ending {
            outcome,
            is_recorded: true,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        })
    })
}

fn failure(tally: &Tally<'_>, now: Timestamp) -> Option<(&'static str, String)> {
    let job = tally.job;
    let failed = tally.pods.iter().filter(|pod| is_failed(job, pod));
    for pod in failed {
        if let Verdict::FailsJob(why) = verdict(job, pod) {
            return Some(("PodFailurePolicy", why));
        }
    }
    let limit = job.spec.backoff_limit.unwrap_or(6);
    if tally.failed > limit || restarts_exceed(tally, limit) {
        let words = "Job has reached the specified backoff limit";
        return Some(("BackoffLimitExceeded", words.to_owned()));
    }
    if deadline(job).is_some_and(|deadline| deadline <= now) {
        let words = "Job was active longer than specified deadline";
        return Some(("DeadlineExceeded", words.to_owned()));
    }
    let numbers = tally.numbers.as_ref()?;
    let failed = numbers.failed.as_ref()?.len();
    if job.spec.max_failed_indexes.is_some_and(|most| failed > most) {
        let words = "Job has exceeded the specified maximal number of failed indexes";
        return Some(("MaxFailedIndexesExceeded", words.to_owned()));
    }
    let all = failed + numbers.succeeded.len() >= i64::from(numbers.end);
    (failed > 0 && all).then(|| ("FailedIndexes", "Job has failed indexes".to_owned()))
}

/// Whether containers that start again did so too often.
fn restarts_exceed(tally: &Tally<'_>, limit: i64) -> bool {
    if tally.job.spec.template["spec"]["restartPolicy"] != "OnFailure" {
        return false;
    }
    let running =
        tally.pods.iter().filter(|pod| matches!(pod.status.phase, Phase::Running | Phase::Pending));
    let containers = running.flat_map(|pod| {
        pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses)
    });
    let restarts: i64 = containers.map(|it| it.restart_count).sum();
    restarts > 0 && restarts >= limit
}

/// Until when a job may run. The time before it rested does not count.
pub(super) fn deadline(job: &Job) -> Option<Timestamp> {
    let rests = job.spec.suspend || job.condition("Suspended").is_some();
    let start = job.status.start_time.filter(|_| !rests)?;
    let seconds = job.spec.active_deadline_seconds?;
    start.checked_add(SignedDuration::from_secs(seconds)).ok()
}
