//! Simulates jobs: each runs for the duration in its spec, and is then marked complete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gantry_process::clock::{Clock, Moment};
use gantry_process::tasks::{OnLoss, TaskError, Tasks};
use gantry_testkit::http::{Client, Request};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::watch::{Change, Event, Watch};
use super::wrapper::PLAYED;

/// Jobs that are completed concurrently, as in Kueue's runner.
const COMPLETION_WORKERS: usize = 5;
/// Capacity of the channel of jobs that are due and not completed yet.
const MAX_DUE_JOBS: usize = 10_000;

/// The fields of a job that are needed.
#[derive(Debug, Deserialize)]
struct Job {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Debug, Deserialize)]
struct Spec {
    #[serde(rename = "runtimeMs")]
    runtime: u64,
}

/// The name and namespace of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SimulatedJob {
    uid: String,
    path: String,
}

/// The number of writes to jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteCounter(Arc<AtomicU64>);

impl WriteCounter {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Simulates every job that this watch reports, until the tasks are stopped.
pub(crate) fn simulate_jobs(
    mut watch: Watch,
    client: &Client,
    clock: &Clock,
    tasks: &mut Tasks,
) -> WriteCounter {
    let writes = WriteCounter::default();
    let mut hands = Vec::new();
    for _ in 0..COMPLETION_WORKERS {
        let (give, mut given) = mpsc::channel::<SimulatedJob>(MAX_DUE_JOBS);
        hands.push(give);
        let (client, writes) = (client.clone(), writes.clone());
        tasks.spawn("hand", OnLoss::EndOwner, move |_| async move {
            while let Some(job) = given.recv().await {
                complete(&client, &job).await?;
                writes.0.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    let clock = clock.clone();
    tasks.spawn("player", OnLoss::EndOwner, move |stop| async move {
        let mut running = RunningJobs::default();
        let mut turn = hands.iter().cycle();
        loop {
            let next = running.next();
            tokio::select! {
                // Cancel-safe: an event that was not received is received by the next call, and a
                // watch that was not restarted is restarted then.
                event = watch.next::<Job>() => running.observe(event?, clock.moment()),
                () = wait(&clock, next) => {
                    for job in running.due(clock.moment()) {
                        let Some(hand) = turn.next() else { return Ok(()) };
                        if hand.send(job).await.is_err() {
                            return Ok(());
                        }
                    }
                }
                () = stop.cancelled() => return Ok(()),
            }
        }
    });
    writes
}

async fn wait(clock: &Clock, until: Option<Moment>) {
    match until {
        Some(until) => clock.sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// The running jobs, by the time at which they end.
#[derive(Debug, Default)]
struct RunningJobs {
    ends: BTreeMap<(Moment, String), String>,
    by_uid: BTreeMap<String, Moment>,
}

impl RunningJobs {
    fn observe(&mut self, event: Event<Job>, now: Moment) {
        let Job { metadata: Metadata { namespace, name, uid }, spec } = event.object;
        match event.kind {
            Change::Added => {
                let end = now + Duration::from_millis(spec.runtime);
                let path = format!("{PLAYED}/namespaces/{namespace}/playedjobs/{name}/status");
                self.ends.insert((end, uid.clone()), path);
                self.by_uid.insert(uid, end);
            }
            Change::Deleted => {
                if let Some(end) = self.by_uid.remove(&uid) {
                    self.ends.remove(&(end, uid));
                }
            }
            Change::Modified | Change::Error => {}
        }
    }

    fn next(&self) -> Option<Moment> {
        self.ends.first_key_value().map(|((end, _), _)| *end)
    }

    fn due(&mut self, now: Moment) -> Vec<SimulatedJob> {
        let mut due = Vec::new();
        while let Some(first) = self.ends.first_entry() {
            if first.key().0 > now {
                break;
            }
            let ((_, uid), path) = first.remove_entry();
            self.by_uid.remove(&uid);
            due.push(SimulatedJob { uid, path });
        }
        due
    }
}

/// Marks a job as complete, unless it is deleted or was replaced by another of its name.
async fn complete(client: &Client, job: &SimulatedJob) -> Result<(), TaskError> {
    let complete = json!({"type": "Complete", "status": "True"});
    let body = json!({"metadata": {"uid": job.uid}, "status": {"conditions": [complete]}});
    let request = Request::patch(&job.path, "application/merge-patch+json", &body);
    let answer = client.send(request).await?;
    let gone = matches!(answer.status.as_u16(), 404 | 409);
    if answer.status.is_success() || gone {
        return Ok(());
    }
    Err(format!("{}: {}: {}", job.path, answer.status, answer.text()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: Change, uid: &str, runtime: u64) -> Event<Job> {
        let metadata = Metadata { namespace: "q".into(), name: "a".into(), uid: uid.into() };
        Event { kind, object: Job { metadata, spec: Spec { runtime } } }
    }

    #[test]
    fn jobs_are_due_when_they_have_run() {
        let start = Moment::default();
        let at = |ms| start + Duration::from_millis(ms);
        let mut running = RunningJobs::default();
        running.observe(event(Change::Added, "slow", 1000), start);
        running.observe(event(Change::Added, "quick", 200), start);
        running.observe(event(Change::Added, "gone", 100), start);
        running.observe(event(Change::Deleted, "gone", 100), at(50));
        running.observe(event(Change::Modified, "quick", 200), at(60));
        assert_eq!(running.next(), Some(at(200)));
        let uids = |due: Vec<SimulatedJob>| due.into_iter().map(|it| it.uid).collect::<Vec<_>>();
        assert!(running.due(at(199)).is_empty());
        assert_eq!(uids(running.due(at(1000))), ["quick", "slow"]);
        assert_eq!(running.next(), None);
        assert!(running.by_uid.is_empty());
    }
}
