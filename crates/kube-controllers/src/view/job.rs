//! Jobs.

use gantry_reconcile::{Meta, Resource, Selector, View};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ConditionStatus;

/// A Job: runs pods until enough of them have succeeded.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Job {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: JobSpec,
    /// The observed state.
    pub status: JobStatus,
}

impl View for Job {
    const RESOURCE: Resource = Resource::namespaced("batch", "v1", "jobs", "Job");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Job {
    /// The finalizer that keeps a pod until it is counted.
    pub const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";

    /// Returns one of its conditions, if it is true.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&JobCondition> {
        self.status
            .conditions
            .iter()
            .find(|it| it.kind == kind && it.status == ConditionStatus::True)
    }

    /// Returns the condition that it is complete or failed.
    #[must_use]
    pub fn finished(&self) -> Option<&JobCondition> {
        self.condition("Complete").or_else(|| self.condition("Failed"))
    }

    /// Returns whether each of its pods has an index.
    #[must_use]
    pub fn is_indexed(&self) -> bool {
        self.spec.completion_mode == "Indexed"
    }

    /// Returns whether another controller manages it.
    #[must_use]
    pub fn is_managed_elsewhere(&self) -> bool {
        let by = self.spec.managed_by.as_deref();
        by.is_some_and(|name| name != "kubernetes.io/job-controller")
    }

    /// Returns whether a pod is replaced only once it has finished, and not as soon as it is
    /// deleted.
    #[must_use]
    pub fn replaces_only_terminated_pods(&self) -> bool {
        self.spec.pod_replacement_policy == "Failed" || self.spec.pod_failure_policy.is_some()
    }
}

/// The spec of a job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// How many pods may run at once.
    pub parallelism: Option<i64>,
    /// How many pods must succeed; when absent, the first success completes the job.
    pub completions: Option<i64>,
    /// `NonIndexed` or `Indexed`.
    pub completion_mode: String,
    /// How many pods may fail.
    pub backoff_limit: Option<i64>,
    /// How many pods may fail for each index.
    pub backoff_limit_per_index: Option<i64>,
    /// How many indexes may fail.
    pub max_failed_indexes: Option<i64>,
    /// How long it may run, in seconds.
    pub active_deadline_seconds: Option<i64>,
    /// The effect of pod failures.
    pub pod_failure_policy: Option<PodFailurePolicy>,
    /// When the job succeeds, if not with every index.
    pub success_policy: Option<SuccessPolicy>,
    /// Whether it is suspended.
    pub suspend: bool,
    /// The controller that manages it; the one here when absent.
    pub managed_by: Option<String>,
    /// `TerminatingOrFailed` or `Failed`.
    pub pod_replacement_policy: String,
    /// The selector of its pods.
    pub selector: Option<Selector>,
    /// The template of its pods.
    pub template: Value,
    /// How long it is kept after it has finished, in seconds; until a user deletes it when absent.
    pub ttl_seconds_after_finished: Option<i64>,
}

/// The effects of pod failures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodFailurePolicy {
    /// The rules; the first that matches decides.
    pub rules: Vec<PodFailurePolicyRule>,
}

/// The effect of matching failures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodFailurePolicyRule {
    /// The action.
    pub action: PodFailurePolicyAction,
    /// The exit codes that match.
    pub on_exit_codes: Option<ExitCodes>,
    /// The pod conditions that match.
    pub on_pod_conditions: Vec<ConditionPattern>,
}

/// The effect of a pod failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum PodFailurePolicyAction {
    /// The job fails.
    FailJob,
    /// The index of the pod fails.
    FailIndex,
    /// The failure does not count.
    Ignore,
    /// The failure counts.
    Count,
    /// A value of a newer server: the rule is ignored.
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
    /// The type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status.
    pub status: ConditionStatus,
}

/// When a job succeeds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SuccessPolicy {
    /// The rules; any of them suffices.
    pub rules: Vec<SuccessPolicyRule>,
}

/// A rule of a success policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessPolicyRule {
    /// The indexes; all when absent.
    pub succeeded_indexes: Option<String>,
    /// How many of them must succeed; all when absent.
    pub succeeded_count: Option<i64>,
}

/// The status of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// The number of pending and running pods.
    pub active: i64,
    /// The number of ready pods.
    pub ready: Option<i64>,
    /// The number of terminating pods.
    pub terminating: Option<i64>,
    /// The number of succeeded pods.
    pub succeeded: i64,
    /// The number of failed pods.
    pub failed: i64,
    /// When it was started.
    pub start_time: Option<Timestamp>,
    /// When it completed.
    pub completion_time: Option<Timestamp>,
    /// The indexes that have succeeded: `0-3,5`.
    pub completed_indexes: String,
    /// The indexes that have failed.
    pub failed_indexes: Option<String>,
    /// Finished pods that are recorded and not yet in the counters.
    pub uncounted_terminated_pods: Option<UncountedTerminatedPods>,
    /// The conditions.
    pub conditions: Vec<JobCondition>,
}

/// Finished pods that are recorded and not yet in the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UncountedTerminatedPods {
    /// The UIDs of the succeeded ones.
    pub succeeded: Vec<String>,
    /// The UIDs of the failed ones.
    pub failed: Vec<String>,
}

/// A condition of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobCondition {
    /// The type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status.
    #[serde(serialize_with = "spell")]
    pub status: ConditionStatus,
    /// When it was last probed.
    pub last_probe_time: Option<Timestamp>,
    /// When the status last changed.
    pub last_transition_time: Option<Timestamp>,
    /// The reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn spell<S: serde::Serializer>(truth: &ConditionStatus, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(truth.as_str())
}
