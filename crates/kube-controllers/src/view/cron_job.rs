//! Cron jobs.

use gantry_reconcile::{Meta, Resource, View};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A CronJob: creates jobs at scheduled times.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CronJob {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: CronJobSpec,
    /// The observed state.
    pub status: CronJobStatus,
}

impl View for CronJob {
    const RESOURCE: Resource = Resource::namespaced("batch", "v1", "cronjobs", "CronJob");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The spec of a cron job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobSpec {
    /// The schedule.
    pub schedule: String,
    /// The time zone of the schedule; UTC when absent.
    pub time_zone: Option<String>,
    /// What happens when the previous job still runs.
    pub concurrency_policy: ConcurrencyPolicy,
    /// How late a job may start, in seconds; any time when absent.
    pub starting_deadline_seconds: Option<i64>,
    /// Whether it is suspended.
    pub suspend: bool,
    /// How many successful jobs are kept; all when absent.
    pub successful_jobs_history_limit: Option<i64>,
    /// How many failed jobs are kept; all when absent.
    pub failed_jobs_history_limit: Option<i64>,
    /// The template of its jobs.
    pub job_template: Value,
}

/// What happens when the previous job still runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ConcurrencyPolicy {
    /// The new job is not started.
    Forbid,
    /// The previous job is deleted.
    Replace,
    /// Both jobs run.
    #[default]
    #[serde(other)]
    Allow,
}

/// The status of a cron job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobStatus {
    /// Its running jobs.
    pub active: Vec<JobReference>,
    /// The scheduled time of the last job.
    pub last_schedule_time: Option<Timestamp>,
    /// When a job last succeeded.
    pub last_successful_time: Option<Timestamp>,
}

/// A reference to a running job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobReference {
    /// Group and version.
    pub api_version: String,
    /// `Job`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// Its resource version when it was recorded.
    pub resource_version: String,
}
