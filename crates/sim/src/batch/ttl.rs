//! Jobs that go some time after their end.

use std::sync::Arc;

use gantry_reconcile::{Change, Controller, Key, Kind, Plan, Propagation, View, World, Write};
use jiff::{SignedDuration, Timestamp};

use crate::view::Job;

/// Removes jobs some time after their end, when they say so.
#[derive(Clone, Copy, Debug, Default)]
pub struct FinishedJobs;

impl FinishedJobs {
    /// The account it acts as.
    pub const ACCOUNT: &str = "ttl-after-finished-controller";
}

impl Controller for FinishedJobs {
    fn name(&self) -> &'static str {
        "ttl-after-finished"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Job>()]
    }

    fn wakes(&self, _: &World, change: &Change) -> Vec<Key> {
        let due = change.after::<Job>().is_some_and(|job| expiry(job).is_some());
        due.then(|| change.key.clone()).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        plan(world.shelf::<Job>().get(key), now)
    }
}

/// Removes a job whose time is over.
fn plan(job: Option<Arc<Job>>, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let Some(job) = job else { return plan };
    match expiry(&job) {
        None => {}
        Some(at) if at > now => plan.look_at(at, now),
        Some(_) => plan.write(Write::Delete {
            resource: Job::RESOURCE,
            key: job.metadata.key(),
            // The job may have been given more time since.
            fence: job.metadata.fence(),
            grace: None,
            propagation: Some(Propagation::Foreground),
        }),
    }
    plan
}

/// When a job is to go.
fn expiry(job: &Job) -> Option<Timestamp> {
    let stays = job.spec.ttl_seconds_after_finished.filter(|_| !job.metadata.is_going())?;
    let ended = job.finished()?.last_transition_time?;
    ended.checked_add(SignedDuration::from_secs(stays)).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn jobs_go_when_their_time_is_over() {
        let ended = json!([{
            "type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let now = "2026-01-01T00:00:30Z".parse().unwrap();
        let table: [(&str, Value, &Value, bool, Option<u64>); 5] = [
            ("over", json!(30), &ended, true, None),
            ("not yet", json!(40), &ended, false, Some(10)),
            ("for ever", Value::Null, &ended, false, None),
            ("still running", json!(0), &json!([]), false, None),
            ("at once", json!(0), &ended, true, None),
        ];
        for (why, ttl, conditions, goes, wait) in table {
            let job = json!({
                "metadata": {"name": "j", "namespace": "n"},
                "spec": {"ttlSecondsAfterFinished": ttl}, "status": {"conditions": conditions},
            });
            let plan = plan(Some(Arc::new(serde_json::from_value(job).unwrap())), now);
            assert_eq!(!plan.steps.is_empty(), goes, "{why}");
            assert_eq!(plan.look_again.map(|it| it.as_secs()), wait, "{why}");
        }
    }
}
