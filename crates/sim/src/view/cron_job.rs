//! Cron jobs.

use gantry_reconcile::{Meta, Resource, View};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A cron job: jobs at certain times.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CronJob {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: CronJobSpec,
    /// What is.
    pub status: CronJobStatus,
}

impl View for CronJob {
    const RESOURCE: Resource = Resource::namespaced("batch", "v1", "cronjobs", "CronJob");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// What is wanted of a cron job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobSpec {
    /// The times.
    pub schedule: String,
    /// Where the times are meant; in UTC when absent.
    pub time_zone: Option<String>,
    /// What happens when the last job still runs.
    pub concurrency_policy: ConcurrencyPolicy,
    /// How late a job may start, in seconds; as late as it likes when absent.
    pub starting_deadline_seconds: Option<i64>,
    /// Whether it rests.
    pub suspend: bool,
    /// How many jobs that ended well are kept; all when absent.
    pub successful_jobs_history_limit: Option<i64>,
    /// How many jobs that failed are kept; all when absent.
    pub failed_jobs_history_limit: Option<i64>,
    /// What its jobs are like.
    pub job_template: Value,
}

/// What happens when the last job still runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ConcurrencyPolicy {
    /// The new one is not started.
    Forbid,
    /// The old one is removed.
    Replace,
    /// Both run.
    #[default]
    #[serde(other)]
    Allow,
}

/// What is true of a cron job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobStatus {
    /// Its jobs that run.
    pub active: Vec<JobReference>,
    /// The time the last job was for.
    pub last_schedule_time: Option<Timestamp>,
    /// When a job last ended well.
    pub last_successful_time: Option<Timestamp>,
}

/// A job that runs.
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
    /// Which of all jobs with that name.
    pub uid: String,
    /// Its revision when it was noted.
    pub resource_version: String,
}
