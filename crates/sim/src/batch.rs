//! The controllers of `batch/v1`: jobs, cron jobs, and what cleans up after them.

mod cron_job;
mod job;
mod schedule;
mod ttl;

pub use cron_job::{CronJobs, Seen as CronJobSeen, plan as plan_cron_job};
pub use job::{Jobs, Seen as JobSeen, TrackedPods, plan as plan_job};
pub use ttl::FinishedJobs;

use gantry_reconcile::{Meta, Note, Reference, Step, View, Write};
use jiff::Timestamp;

/// The most objects one plan makes, and the most it removes. More in one go would keep everybody
/// else waiting; the rest is planned at once after that.
const MOST: usize = 500;

/// A time as objects spell it: in whole seconds.
fn stamp(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Asks for an object to go.
fn delete<V: View>(meta: &Meta) -> Write {
    Write::Delete {
        resource: V::RESOURCE,
        key: meta.key(),
        fence: meta.fence(),
        grace: None,
        propagation: None,
    }
}

/// A create that is told.
fn told_create(write: Write, about: &Reference, message: String, error: &str) -> Step {
    Step::new(write)
        .done(Note::normal(about.clone(), "SuccessfulCreate", message))
        .refused(Note::warning(about.clone(), "FailedCreate", error.to_owned()))
}

/// A delete that is told.
fn told_delete(write: Write, about: &Reference, message: String, error: &str) -> Step {
    Step::new(write)
        .done(Note::normal(about.clone(), "SuccessfulDelete", message))
        .refused(Note::warning(about.clone(), "FailedDelete", error.to_owned()))
}

#[cfg(test)]
mod pretend;
