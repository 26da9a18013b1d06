//! Records the observed states of AppWrappers, with times.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::bail;
use gantry_process::clock::Moment;
use serde::Deserialize;

use super::watch::{Change, Event};
use super::wrapper::CLASS;

/// The fields of an AppWrapper that are needed.
#[derive(Debug, Deserialize)]
pub(crate) struct ObservedAppWrapper {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    namespace: String,
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    canrun: bool,
    state: String,
    queuejobstate: String,
    message: String,
}

/// The history of one job.
#[derive(Debug)]
struct JobTimeline {
    class: String,
    first_seen: Moment,
    /// When it was first admitted.
    admitted: Option<Moment>,
    /// Since when it holds its requested resources.
    held_since: Option<Moment>,
    /// How long it held them in total.
    held: Duration,
    queued: bool,
    created: bool,
    completed: bool,
    preemptions: u32,
}

/// The history of all observed jobs.
#[derive(Debug, Default)]
pub(crate) struct Record {
    jobs: HashMap<(String, String), JobTimeline>,
    pub(crate) queued: usize,
    pub(crate) admitted: usize,
    /// Jobs whose items are created.
    pub(crate) created: usize,
    pub(crate) completed: usize,
    first: Option<Moment>,
    last: Option<Moment>,
}

/// The statistics of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClassRecord {
    /// Time from the first event of each job until its admission.
    pub(crate) waits: Vec<Duration>,
    /// How long its jobs held their resources, all together.
    pub(crate) held: Duration,
    /// How often they were preempted.
    pub(crate) preemptions: u32,
}

impl Record {
    /// Records an event.
    ///
    /// # Errors
    /// An AppWrapper failed or was deleted: the run cannot be measured.
    pub(crate) fn observe(
        &mut self,
        event: Event<ObservedAppWrapper>,
        now: Moment,
    ) -> anyhow::Result<()> {
        let ObservedAppWrapper { metadata, status } = event.object;
        let Metadata { namespace, name, mut labels } = metadata;
        if event.kind == Change::Deleted || status.state == "Failed" {
            bail!("{namespace}/{name} was {:?}: {}", event.kind, status.message);
        }
        let job = self.jobs.entry((namespace, name)).or_insert_with(|| JobTimeline {
            class: labels.remove(CLASS).unwrap_or_default(),
            first_seen: now,
            admitted: None,
            held_since: None,
            held: Duration::ZERO,
            queued: false,
            created: false,
            completed: false,
            preemptions: 0,
        });
        self.first.get_or_insert(now);
        if !status.queuejobstate.is_empty() && !job.queued {
            job.queued = true;
            self.queued += 1;
        }
        let completed = status.state == "Completed";
        let holds = status.canrun && !completed;
        if (status.canrun || completed) && job.admitted.is_none() {
            job.admitted = Some(now);
            self.admitted += 1;
        }
        if !job.created && (completed || status.state.starts_with("Running")) {
            job.created = true;
            self.created += 1;
        }
        match (job.held_since, holds) {
            (None, true) => job.held_since = Some(now),
            (Some(since), false) => {
                job.held_since = None;
                job.held += now - since;
                job.preemptions += u32::from(!completed);
            }
            (None, false) | (Some(_), true) => {}
        }
        if completed && !job.completed {
            job.completed = true;
            self.completed += 1;
            self.last = Some(now);
        }
        Ok(())
    }

    /// Time from the first event of the first job to the last completion.
    pub(crate) fn wall_time(&self) -> Duration {
        self.last.zip(self.first).map_or(Duration::ZERO, |(last, first)| last - first)
    }

    /// The statistics by class.
    pub(crate) fn classes(&self) -> BTreeMap<String, ClassRecord> {
        let mut classes: BTreeMap<String, ClassRecord> = BTreeMap::new();
        for job in self.jobs.values() {
            let class = classes.entry(job.class.clone()).or_default();
            class.waits.extend(job.admitted.map(|admitted_at| admitted_at - job.first_seen));
            class.held += job.held;
            class.preemptions += job.preemptions;
        }
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn event(kind: &str, name: &str, status: &Value) -> Event<ObservedAppWrapper> {
        serde_json::from_value(json!({"type": kind, "object": {
            "metadata": {"namespace": "q", "name": name, "labels": {CLASS: "small"}},
            "status": status,
        }}))
        .unwrap()
    }

    #[test]
    fn a_job_waits_for_admission_then_runs() {
        let at = |ms| Moment::default() + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        let mut record = Record::default();
        let script = [
            (10, "ADDED", "a", json!({})),
            (20, "MODIFIED", "a", json!({"state": "Pending", "queuejobstate": "Queueing"})),
            (30, "ADDED", "b", json!({"state": "Pending", "queuejobstate": "Queueing"})),
            (50, "MODIFIED", "a", json!({"canrun": true, "queuejobstate": "HeadOfLine"})),
            (60, "MODIFIED", "a", json!({"canrun": true, "state": "Running"})),
            // It is preempted, and admitted again.
            (80, "MODIFIED", "a", json!({"state": "Pending", "queuejobstate": "Preempted"})),
            (90, "MODIFIED", "a", json!({"canrun": true, "state": "Running"})),
            (95, "MODIFIED", "a", json!({"canrun": true, "state": "Completed"})),
            (96, "MODIFIED", "a", json!({"canrun": true, "state": "Completed"})),
        ];
        for (when, kind, name, status) in script {
            record.observe(event(kind, name, &status), at(when)).unwrap();
        }
        assert_eq!((record.queued, record.admitted), (2, 1));
        assert_eq!((record.created, record.completed), (1, 1), "each once");
        assert_eq!(record.wall_time(), ms(85));
        let expected = ClassRecord { waits: vec![ms(40)], held: ms(35), preemptions: 1 };
        assert_eq!(record.classes()["small"], expected);
    }

    #[test]
    fn a_failure_ends_the_measurement() {
        let now = Moment::default();
        let failed = json!({"state": "Failed", "message": "no such kind"});
        let error = Record::default().observe(event("MODIFIED", "a", &failed), now).unwrap_err();
        assert!(error.to_string().contains("no such kind"), "{error}");
        Record::default().observe(event("DELETED", "a", &json!({})), now).unwrap_err();
    }
}
