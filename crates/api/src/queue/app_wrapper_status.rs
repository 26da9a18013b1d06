//! The status of an AppWrapper, with the values of the original.

use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where an AppWrapper stands. Zero values are left out: clients test for presence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "the wire format of the original")]
pub struct AppWrapperStatus {
    /// The state of the job: `Pending`, `Running`, `Deleted`, `Failed`, `Completed` or
    /// `RunningHoldCompletion`; absent before the controller has seen it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "word")]
    pub state: Option<AppWrapperState>,
    /// The last notable step.
    #[serde(rename = "queuejobstate", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "word")]
    pub queue_state: Option<QueueState>,
    /// Whether the job passed evaluation and holds its reservation and quota. Absent, not `false`,
    /// otherwise.
    #[serde(rename = "canrun", skip_serializing_if = "std::ops::Not::not")]
    pub can_run: bool,
    /// Set only when work is dispatched to other clusters.
    #[serde(rename = "isdispatched", skip_serializing_if = "std::ops::Not::not")]
    pub is_dispatched: bool,
    /// Pods pending.
    #[serde(skip_serializing_if = "is_zero")]
    pub pending: i32,
    /// Pods running.
    #[serde(skip_serializing_if = "is_zero")]
    pub running: i32,
    /// Pods that succeeded.
    #[serde(rename = "Succeeded", skip_serializing_if = "is_zero")]
    pub succeeded: i32,
    /// Pods that failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: i32,
    /// Declared by the original and never set.
    #[serde(skip_serializing_if = "is_zero")]
    pub template: i32,
    /// The priority that orders the queue at present.
    #[serde(rename = "systempriority", skip_serializing_if = "is_flat")]
    pub system_priority: f64,
    /// When the controller saw the AppWrapper first.
    #[serde(rename = "controllerfirsttimestamp", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "micro_time")]
    pub first_seen: Option<MicroTime>,
    /// When a pod of it was first seen running; the run-time limit counts from here.
    #[serde(
        rename = "controllerfirstdispatchtimestamp",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "micro_time")]
    pub first_dispatched: Option<MicroTime>,
    /// What happened, oldest first. A type may occur several times with different reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<AppWrapperCondition>,
    /// Pods that cannot be scheduled, and why.
    #[serde(rename = "pendingpodconditions", skip_serializing_if = "Vec::is_empty")]
    pub pending_pods: Vec<PendingPod>,
    /// Milli cpu requested by running and succeeded pods.
    #[serde(rename = "totalcpu", skip_serializing_if = "is_zero")]
    pub total_cpu: i32,
    /// Bytes of memory requested by the same pods, at most 2147483647.
    #[serde(rename = "totalmemory", skip_serializing_if = "is_zero")]
    pub total_memory: i32,
    /// GPUs requested by the same pods.
    #[serde(rename = "totalgpu", skip_serializing_if = "is_zero")]
    pub total_gpu: i32,
    /// The wait before the next check of the pods, as grown so far; 0 until the first requeuing.
    #[serde(rename = "requeueingTimeInSeconds", skip_serializing_if = "is_zero_long")]
    pub requeuing_time_in_seconds: i64,
    /// How often the AppWrapper was requeued.
    #[serde(rename = "numberOfRequeueings", skip_serializing_if = "is_zero_long")]
    pub number_of_requeuings: i64,
    /// Why the job is where it is, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Which step wrote the status last, for debugging.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// A hint between parts of the original; written as true.
    #[serde(rename = "filterignore", skip_serializing_if = "std::ops::Not::not")]
    pub filter_ignore: bool,
    /// A hint between parts of the original; ignored.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
}

/// The state of a job. The original keeps it as free text, so values of other releases are kept
/// too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AppWrapperState {
    /// The job is queued.
    Pending,
    /// The job was dispatched.
    Running,
    /// The job is deleted or being deleted.
    Deleted,
    /// The job failed and will not run.
    Failed,
    /// The job has finished.
    Completed,
    /// Its items are complete but pods still run.
    RunningHoldCompletion,
    /// A value that this release does not have.
    #[serde(untagged)]
    Other(String),
}

/// The last notable step of a job; values of other releases are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueState {
    /// The controller has observed the job.
    Init,
    /// The job waits in the queue.
    Queueing,
    /// The job is being evaluated.
    HeadOfLine,
    /// The job did not fit and will be evaluated again.
    Backoff,
    /// Its items were created.
    Dispatched,
    /// Its pods run.
    Running,
    /// The job will be preempted.
    PreemptCandidate,
    /// The job was preempted.
    Preempted,
    /// The job is deleted or being deleted.
    Deleted,
    /// The job failed and will not run.
    Failed,
    /// The job has finished.
    Completed,
    /// Its items are complete but pods still run.
    RunningHoldCompletion,
    /// A value that this release does not have.
    #[serde(untagged)]
    Other(String),
}

/// One thing that happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperCondition {
    /// What happened.
    #[serde(rename = "type")]
    pub kind: String,
    /// Always `True`.
    pub status: String,
    /// When the entry was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "micro_time")]
    pub last_update_micro_time: Option<MicroTime>,
    /// When it came to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "micro_time")]
    pub last_transition_micro_time: Option<MicroTime>,
    /// Why, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A pod that cannot be scheduled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PendingPod {
    /// Name of the pod.
    #[serde(rename = "podname", default, skip_serializing_if = "String::is_empty")]
    pub pod_name: String,
    /// The conditions of the pod that say so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::kubernetes::pod_conditions")]
    pub conditions: Vec<PodCondition>,
}

fn word(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string"})
}

fn micro_time(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "format": "date-time"})
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn is_zero_long(number: &i64) -> bool {
    *number == 0
}

fn is_flat(number: &f64) -> bool {
    *number == 0.0
}
