//! The controllers of `batch/v1`: jobs, cron jobs, and the cleanup of finished jobs.

mod cron_job;
mod job;
mod schedule;
mod ttl;

pub use cron_job::{CronJobController, ObservedCronJob as CronJobSeen, plan as plan_cron_job};
pub use job::{JobController, JobFinalizerController, ObservedJob as JobSeen, plan as plan_job};
pub use ttl::TtlAfterFinishedController;

use gantry_reconcile::{Event, Meta, ObjectReference, Step, View, Write};

/// The most objects one plan creates, and the most it deletes. More in one plan would delay all
/// other objects; the rest is planned right after it.
const MAX_WRITES_PER_PLAN: usize = 500;

/// Deletes an object.
fn delete<V: View>(meta: &Meta) -> Write {
    Write::Delete {
        resource: V::RESOURCE,
        key: meta.key(),
        fence: meta.fence(),
        grace: None,
        propagation: None,
    }
}

/// A create with events for its success and failure.
fn create_with_events(write: Write, about: &ObjectReference, message: String, error: &str) -> Step {
    Step::new(write)
        .on_success(Event::normal(about.clone(), "SuccessfulCreate", message))
        .on_refusal(Event::warning(about.clone(), "FailedCreate", error.to_owned()))
}

/// A delete with events for its success and failure.
fn delete_with_events(write: Write, about: &ObjectReference, message: String, error: &str) -> Step {
    Step::new(write)
        .on_success(Event::normal(about.clone(), "SuccessfulDelete", message))
        .on_refusal(Event::warning(about.clone(), "FailedDelete", error.to_owned()))
}

#[cfg(test)]
mod test_support;
