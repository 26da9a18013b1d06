//! Pods that wait to be counted by a job that never will.

use gantry_reconcile::{Change, Controller, Key, Kind, Plan, World};
use jiff::Timestamp;

use super::pods::is_tracked;
use super::{owner, release};
use crate::view::{Job, Pod};

/// Lets go of pods whose job is gone or finished.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrackedPods;

impl TrackedPods {
    /// The account it acts as.
    pub const ACCOUNT: &str = "job-controller";
}

impl Controller for TrackedPods {
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
        let pods = jobs.flat_map(|job| world.shelf::<Pod>().owned_by(&job.metadata.uid));
        pods.filter(|pod| is_tracked(pod)).map(|pod| pod.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.shelf::<Pod>().get(key).filter(|pod| is_tracked(pod)) else {
            return plan;
        };
        let is_left = match pod.metadata.controller() {
            // Somebody may take it on.
            None => {
                let jobs = world.shelf::<Job>().within(key.namespace());
                !jobs.iter().any(|job| job.finished().is_none() && super::selects(job, &pod))
            }
            Some(_) => owner(&pod).is_some_and(|owner| {
                let (jobs, key) = (world.shelf::<Job>(), key.beside(&owner.name));
                let job = jobs.get(&key).filter(|job| job.metadata.uid == owner.uid);
                // A job that cannot be read is not gone, and counts its pods when it can be.
                match job {
                    Some(job) => job.finished().is_some() && !job.is_managed_elsewhere(),
                    None => !jobs.is_unreadable(&key),
                }
            }),
        };
        if is_left {
            plan.write(release(&pod));
        }
        plan
    }
}
