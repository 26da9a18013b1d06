//! Jobs.

use gantry_reconcile::{Meta, Resource, Selector, View};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Truth;

/// A job: pods that run until enough of them have ended well.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Job {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: JobSpec,
    /// What is.
    pub status: JobStatus,
}

impl View for Job {
    const RESOURCE: Resource = Resource::namespaced("batch", "v1", "jobs", "Job");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Job {
    /// The finalizer that keeps a pod until its end is counted.
    pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";

    /// One of its conditions, if it is true.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&JobCondition> {
        self.status.conditions.iter().find(|it| it.kind == kind && it.status == Truth::True)
    }

    /// The condition that says it has ended, well or badly.
    #[must_use]
    pub fn finished(&self) -> Option<&JobCondition> {
        self.condition("Complete").or_else(|| self.condition("Failed"))
    }

    /// Whether each of its pods has a number.
    #[must_use]
    pub fn is_indexed(&self) -> bool {
        self.spec.completion_mode == "Indexed"
    }

    /// Whether somebody else takes care of it.
    #[must_use]
    pub fn is_managed_elsewhere(&self) -> bool {
        let by = self.spec.managed_by.as_deref();
        by.is_some_and(|name| name != "kubernetes.io/job-controller")
    }

    /// Whether a pod is replaced only once it has ended, and not as soon as it is asked to.
    #[must_use]
    pub fn is_replacing_only_ended(&self) -> bool {
        self.spec.pod_replacement_policy == "Failed" || self.spec.pod_failure_policy.is_some()
    }
}

/// What is wanted of a job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// How many pods may run at once.
    pub parallelism: Option<i64>,
    /// How many must end well; when absent, one that does ends the job.
    pub completions: Option<i64>,
    /// `NonIndexed` or `Indexed`.
    pub completion_mode: String,
    /// How many may fail.
    pub backoff_limit: Option<i64>,
    /// How many may fail for each number.
    pub backoff_limit_per_index: Option<i64>,
    /// How many numbers may fail.
    pub max_failed_indexes: Option<i64>,
    /// How long it may run, in seconds.
    pub active_deadline_seconds: Option<i64>,
    /// What a failure means.
    pub pod_failure_policy: Option<PodFailurePolicy>,
    /// What is success, if not every number.
    pub success_policy: Option<SuccessPolicy>,
    /// Whether it rests.
    pub suspend: bool,
    /// Who takes care of it; the controller here when absent.
    pub managed_by: Option<String>,
    /// `TerminatingOrFailed` or `Failed`.
    pub pod_replacement_policy: String,
    /// Its pods.
    pub selector: Option<Selector>,
    /// What its pods are like.
    pub template: Value,
    /// How long it stays after its end, in seconds; until somebody removes it when absent.
    pub ttl_seconds_after_finished: Option<i64>,
}

/// What failures of pods mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodFailurePolicy {
    /// The first that fits decides.
    pub rules: Vec<PodFailureRule>,
}

/// What some failures mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodFailureRule {
    /// What follows.
    pub action: FailureAction,
    /// Failures with these exit codes are meant.
    pub on_exit_codes: Option<ExitCodes>,
    /// Failures of pods with one of these conditions are meant.
    pub on_pod_conditions: Vec<ConditionPattern>,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum FailureAction {
    /// The job fails.
    FailJob,
    /// The number of the pod fails.
    FailIndex,
    /// It does not count.
    Ignore,
    /// It counts.
    Count,
    /// A word of a newer server: the rule says nothing.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Exit codes of containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExitCodes {
    /// The container; any when absent.
    pub container_name: Option<String>,
    /// `In` or `NotIn`.
    pub operator: String,
    /// The codes.
    pub values: Vec<i64>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ConditionPattern {
    /// Which.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether.
    pub status: Truth,
}

/// What is success.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SuccessPolicy {
    /// Any of these.
    pub rules: Vec<SuccessRule>,
}

/// A way to succeed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessRule {
    /// These numbers; all when absent.
    pub succeeded_indexes: Option<String>,
    /// So many of them; all when absent.
    pub succeeded_count: Option<i64>,
}

/// What is true of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// Pods that run or will.
    pub active: i64,
    /// Those of them that are ready.
    pub ready: Option<i64>,
    /// Pods that are about to end.
    pub terminating: Option<i64>,
    /// Pods that have ended well.
    pub succeeded: i64,
    /// Pods that have not.
    pub failed: i64,
    /// Since when it runs.
    pub start_time: Option<Timestamp>,
    /// When it was complete.
    pub completion_time: Option<Timestamp>,
    /// The numbers whose pods have ended well: `0-3,5`.
    pub completed_indexes: String,
    /// The numbers that have failed.
    pub failed_indexes: Option<String>,
    /// Pods whose end is written down and not yet in the counters.
    pub uncounted_terminated_pods: Option<Uncounted>,
    /// What is true of it.
    pub conditions: Vec<JobCondition>,
}

/// Pods whose end is written down and not yet in the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Uncounted {
    /// Ended well.
    pub succeeded: Vec<String>,
    /// Ended badly.
    pub failed: Vec<String>,
}

/// Something that is true or false of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobCondition {
    /// What.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether.
    #[serde(serialize_with = "spell")]
    pub status: Truth,
    /// When it was last looked at.
    pub last_probe_time: Option<Timestamp>,
    /// Since when.
    pub last_transition_time: Option<Timestamp>,
    /// Why, in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, in a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn spell<S: serde::Serializer>(truth: &Truth, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(truth.as_str())
}
