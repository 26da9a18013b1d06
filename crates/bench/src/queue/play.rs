//! Plays the jobs: each runs for as long as it says, and then says that it is complete.

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

/// Jobs that are completed at a time, as in Kueue's runner.
const HANDS: usize = 5;
/// Jobs that are due and not completed yet.
const DUE: usize = 10_000;

/// As much of a job as is needed.
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

/// Which job, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Played {
    uid: String,
    path: String,
}

/// How often jobs were written to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes(Arc<AtomicU64>);

impl Writes {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Plays every job that this watch tells of, until the tasks are stopped.
pub(crate) fn play(mut watch: Watch, client: &Client, clock: &Clock, tasks: &mut Tasks) -> Writes {
    let writes = Writes::default();
    let mut hands = Vec::new();
    for _ in 0..HANDS {
        let (give, mut given) = mpsc::channel::<Played>(DUE);
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
        let mut running = Running::default();
        let mut turn = hands.iter().cycle();
        loop {
            let next = running.next();
            tokio::select! {
                // May be dropped: what was not taken is taken by the next, and a watch that was not begun
                // anew is begun then.
                event = watch.next::<Job>() => running.saw(event?, clock.moment()),
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

/// The jobs that run, by when they end.
#[derive(Debug, Default)]
struct Running {
    ends: BTreeMap<(Moment, String), String>,
    by_uid: BTreeMap<String, Moment>,
}

impl Running {
    fn saw(&mut self, event: Event<Job>, now: Moment) {
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

    fn due(&mut self, now: Moment) -> Vec<Played> {
        let mut due = Vec::new();
        while let Some(first) = self.ends.first_entry() {
            if first.key().0 > now {
                break;
            }
            let ((_, uid), path) = first.remove_entry();
            self.by_uid.remove(&uid);
            due.push(Played { uid, path });
        }
        due
    }
}

/// Says that a job is complete, unless it is gone or another of its name has come.
async fn complete(client: &Client, job: &Played) -> Result<(), TaskError> {
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
        let mut running = Running::default();
        running.saw(event(Change::Added, "slow", 1000), start);
        running.saw(event(Change::Added, "quick", 200), start);
        running.saw(event(Change::Added, "gone", 100), start);
        running.saw(event(Change::Deleted, "gone", 100), at(50));
        running.saw(event(Change::Modified, "quick", 200), at(60));
        assert_eq!(running.next(), Some(at(200)));
        let uids = |due: Vec<Played>| due.into_iter().map(|it| it.uid).collect::<Vec<_>>();
        assert!(running.due(at(199)).is_empty());
        assert_eq!(uids(running.due(at(1000))), ["quick", "slow"]);
        assert_eq!(running.next(), None);
        assert!(running.by_uid.is_empty());
    }
}
