//! The TTL controller: deletes jobs some time after they have finished.

use std::sync::Arc;

use gantry_reconcile::{Change, Controller, Key, Kind, Plan, Propagation, View, World, Write};
use jiff::{SignedDuration, Timestamp};

use crate::view::Job;

/// Deletes finished jobs after their `ttlSecondsAfterFinished`.
#[derive(Clone, Copy, Debug, Default)]
pub struct TtlAfterFinishedController;

impl TtlAfterFinishedController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "ttl-after-finished-controller";
}

impl Controller for TtlAfterFinishedController {
    fn name(&self) -> &'static str {
        "ttl-after-finished"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Job>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        let due = change.after::<Job>().is_some_and(|job| expiry(job).is_some());
        due.then(|| change.key.clone()).into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        plan(world.store::<Job>().get(key), now)
    }
}

/// Deletes a job whose TTL has expired.
fn plan(job: Option<Arc<Job>>, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let Some(job) = job else { return plan };
    match expiry(&job) {
        None => {}
        Some(at) if at > now => plan.requeue_at(at, now),
        Some(_) => plan.write(Write::Delete {
            resource: Job::RESOURCE,
            key: job.metadata.key(),
            // The job may have got a longer TTL since.
            fence: job.metadata.fence(),
            grace: None,
            propagation: Some(Propagation::Foreground),
        }),
    }
    plan
}

/// Returns when the TTL of a job expires.
fn expiry(job: &Job) -> Option<Timestamp> {
    let stays = job.spec.ttl_seconds_after_finished.filter(|_| !job.metadata.is_terminating())?;
    let ended = job.finished()?.last_transition_time?;
    ended.checked_add(SignedDuration::from_secs(stays)).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gantry_harness::{Faults, Scenario, Server, prove_worlds};
    use serde_json::{Value, json};

    use super::*;
    use crate::batch::test_support::{defaults, job};
    use crate::test_world::{assert_proof, faulty_objects, is_faulty};

    #[test]
    fn jobs_are_deleted_after_their_ttl() {
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
            assert_eq!(plan.requeue_after.map(|it| it.as_secs()), wait, "{why}");
        }
    }

    /// A scenario in which jobs finish, some of them with a TTL.
    fn scenario<'a>(controllers: &'a [&'a dyn Controller], stay: &[Option<i64>]) -> Scenario<'a> {
        let jobs = stay.iter().enumerate().map(|(number, seconds)| {
            job(&format!("j{number}"), json!({"ttlSecondsAfterFinished": seconds}))
        });
        Scenario {
            controllers,
            defaults,
            objects: jobs.collect(),
            script: vec![Box::new(finish_all)],
            replicas: 1,
            horizon: Duration::from_secs(600),
            ..Scenario::default()
        }
    }

    fn finish_all(server: &mut Server) {
        let at = Timestamp::from_second(server.now().as_second()).unwrap().to_string();
        let jobs = server.list(&Job::RESOURCE);
        let name = |job: &&Value| Key::new("n", job["metadata"]["name"].as_str().unwrap());
        let keys: Vec<Key> = jobs.iter().map(name).collect();
        for key in keys {
            server.edit(&Job::RESOURCE, &key, |job| {
                job["status"]["conditions"] =
                    json!([{"type": "Complete", "status": "True", "lastTransitionTime": at}]);
            });
        }
    }

    fn remaining_jobs(server: &Server) -> Value {
        let jobs = server.list(&Job::RESOURCE);
        let names = jobs.iter().map(|it| it["metadata"]["name"].clone());
        names.filter(|name| !is_faulty(name)).collect()
    }

    #[test]
    fn finished_jobs_are_deleted_whatever_happens() {
        let controllers: [&dyn Controller; 1] = [&TtlAfterFinishedController];
        let scenario = scenario(&controllers, &[Some(30), None, Some(0)]);
        let calm = scenario.run(1, Faults::none()).unwrap();
        assert_eq!(remaining_jobs(&calm.server), json!(["j1"]));
        assert_proof(scenario.prove(0..8, remaining_jobs));
        let make = |name: &str| job(name, json!({"ttlSecondsAfterFinished": 5}));
        let bad = faulty_objects("job", "/spec/parallelism", make);
        assert_proof(scenario.prove_isolation(&bad, 0..4, remaining_jobs));
    }

    #[test]
    fn random_finished_jobs_are_deleted() {
        let controllers: [&dyn Controller; 1] = [&TtlAfterFinishedController];
        let world = |seed| {
            let rng = &mut fastrand::Rng::with_seed(seed);
            let stay = |rng: &mut fastrand::Rng| rng.bool().then(|| rng.i64(0..100));
            let stay: Vec<Option<i64>> = (0..rng.usize(1..5)).map(|_| stay(rng)).collect();
            scenario(&controllers, &stay)
        };
        assert_proof(prove_worlds(0..20, world, remaining_jobs));
    }
}
