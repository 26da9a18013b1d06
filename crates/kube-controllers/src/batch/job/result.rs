//! Decides whether and how a job finishes.

use jiff::{SignedDuration, Timestamp};

use super::job_pods::{JobPods, failure_effect};
use super::pods::is_failed;
use super::policy::{FailureEffect, match_success_policy};
use crate::view::{Job, Phase};

/// The result of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobResult {
    /// Whether the job succeeds or fails.
    pub(super) outcome: JobOutcome,
    /// Whether the status records the result. Until then nothing is deleted: the pods the result
    /// follows from may be gone before it is written.
    pub(super) is_recorded: bool,
    /// The reason of the condition.
    pub(super) reason: String,
    /// The message of the condition.
    pub(super) message: String,
}

/// Whether a job succeeds or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobOutcome {
    /// The job succeeds.
    Success,
    /// The job fails.
    Failure,
}

impl JobOutcome {
    /// Returns the condition that announces the outcome.
    pub(super) fn interim_condition(self) -> &'static str {
        match self {
            Self::Success => "SuccessCriteriaMet",
            Self::Failure => "FailureTarget",
        }
    }

    /// Returns the condition that is set when the job has finished.
    pub(super) fn final_condition(self) -> &'static str {
        match self {
            Self::Success => "Complete",
            Self::Failure => "Failed",
        }
    }
}

/// Returns the result of the job, if it must finish; that all its pods have completed is decided
/// elsewhere.
pub(super) fn job_result(job_pods: &JobPods<'_>, now: Timestamp) -> Option<JobResult> {
    recorded_result(job_pods.job)
        .or_else(|| {
            let (reason, message) = failure_reason(job_pods, now)?;
            Some(JobResult {
                outcome: JobOutcome::Failure,
                is_recorded: false,
                reason: reason.to_owned(),
                message,
            })
        })
        .or_else(|| {
            let numbers = job_pods.indexed.as_ref()?;
            let message = match_success_policy(
                job_pods.job.spec.success_policy.as_ref(),
                &numbers.succeeded,
                numbers.end,
            )?;
            Some(JobResult {
                outcome: JobOutcome::Success,
                is_recorded: false,
                reason: "SuccessPolicy".to_owned(),
                message,
            })
        })
}

/// Returns the result of a job whose pods have all completed.
pub(super) fn completed() -> JobResult {
    JobResult {
        outcome: JobOutcome::Success,
        is_recorded: false,
        reason: "CompletionsReached".to_owned(),
        message: "Reached expected number of succeeded pods".to_owned(),
    }
}

fn recorded_result(job: &Job) -> Option<JobResult> {
    [JobOutcome::Success, JobOutcome::Failure].into_iter().find_map(|outcome| {
        let condition = job.condition(outcome.interim_condition())?;
        Some(JobResult {
            outcome,
            is_recorded: true,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        })
    })
}

fn failure_reason(job_pods: &JobPods<'_>, now: Timestamp) -> Option<(&'static str, String)> {
    let job = job_pods.job;
    let failed = job_pods.pods.iter().filter(|pod| is_failed(job, pod));
    for pod in failed {
        if let FailureEffect::FailsJob(why) = failure_effect(job, pod) {
            return Some(("PodFailurePolicy", why));
        }
    }
    let limit = job.spec.backoff_limit.unwrap_or(6);
    if job_pods.failed > limit || restarts_exceed(job_pods, limit) {
        let words = "Job has reached the specified backoff limit";
        return Some(("BackoffLimitExceeded", words.to_owned()));
    }
    if deadline(job).is_some_and(|deadline| deadline <= now) {
        let words = "Job was active longer than specified deadline";
        return Some(("DeadlineExceeded", words.to_owned()));
    }
    let numbers = job_pods.indexed.as_ref()?;
    let failed = numbers.failed.as_ref()?.len();
    if job.spec.max_failed_indexes.is_some_and(|most| failed > most) {
        let words = "Job has exceeded the specified maximal number of failed indexes";
        return Some(("MaxFailedIndexesExceeded", words.to_owned()));
    }
    let all = failed + numbers.succeeded.len() >= i64::from(numbers.end);
    (failed > 0 && all).then(|| ("FailedIndexes", "Job has failed indexes".to_owned()))
}

/// Returns whether containers restarted too often.
fn restarts_exceed(job_pods: &JobPods<'_>, limit: i64) -> bool {
    if job_pods.job.spec.template["spec"]["restartPolicy"] != "OnFailure" {
        return false;
    }
    let running = job_pods
        .pods
        .iter()
        .filter(|pod| matches!(pod.status.phase, Phase::Running | Phase::Pending));
    let containers = running.flat_map(|pod| {
        pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses)
    });
    let restarts: i64 = containers.map(|it| it.restart_count).sum();
    restarts > 0 && restarts >= limit
}

/// Returns until when a job may run. The time before a suspension does not count.
pub(super) fn deadline(job: &Job) -> Option<Timestamp> {
    let rests = job.spec.suspend || job.condition("Suspended").is_some();
    let start = job.status.start_time.filter(|_| !rests)?;
    let seconds = job.spec.active_deadline_seconds?;
    start.checked_add(SignedDuration::from_secs(seconds)).ok()
}
