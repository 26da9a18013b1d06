//! Removes job finalizers from pods that no job will count.

use gantry_reconcile::{Change, Controller, Key, Kind, Plan, World};
use jiff::Timestamp;

use super::pods::is_tracked;
use super::{owner, remove_finalizer};
use crate::view::{Job, Pod};

/// Removes the finalizer from pods whose job is gone or finished.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobFinalizerController;

impl JobFinalizerController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "job-controller";
}

impl Controller for JobFinalizerController {
    fn name(&self) -> &'static str {
        "job-tracked-pods"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>(), Kind::of::<Job>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Pod>() {
            let waits = change.after::<Pod>().is_some_and(is_tracked);
            return waits.then(|| change.key.clone()).into_iter().collect();
        }
        let ended =
            change.is_removal() || change.after::<Job>().is_some_and(|it| it.finished().is_some());
        let jobs = change.both::<Job>().filter(|_| ended);
        let pods = jobs.flat_map(|job| world.store::<Pod>().owned_by(&job.metadata.uid));
        pods.filter(|pod| is_tracked(pod)).map(|pod| pod.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.store::<Pod>().get(key).filter(|pod| is_tracked(pod)) else {
            return plan;
        };
        let is_left = match pod.metadata.controller() {
            // A job may still adopt the pod.
            None => {
                let jobs = world.store::<Job>().in_namespace(key.namespace());
                !jobs.iter().any(|job| job.finished().is_none() && super::selects(job, &pod))
            }
            Some(_) => owner(&pod).is_some_and(|owner| {
                let (jobs, key) = (world.store::<Job>(), key.in_same_namespace(&owner.name));
                let job = jobs.get(&key).filter(|job| job.metadata.uid == owner.uid);
                // A job that cannot be read is not gone, and counts its pods when it can be read
                // again.
                match job {
                    Some(job) => job.finished().is_some() && !job.is_managed_elsewhere(),
                    None => !jobs.is_unreadable(&key),
                }
            }),
        };
        if is_left {
            plan.write(remove_finalizer(&pod));
        }
        plan
    }
}
