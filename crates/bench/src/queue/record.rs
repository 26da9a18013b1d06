//! What is seen of AppWrappers, and when.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::bail;
use gantry_process::clock::Moment;
use serde::Deserialize;

use super::watch::{Change, Event};
use super::wrapper::CLASS;

/// As much of an AppWrapper as is needed.
#[derive(Debug, Deserialize)]
pub(crate) struct Seen {
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

/// One job.
#[derive(Debug)]
struct Job {
    class: String,
    seen: Moment,
    /// When it first passed.
    passed: Option<Moment>,
    /// Since when it holds what it asked for.
    holds: Option<Moment>,
    /// How long it held that in all.
    held: Duration,
    queued: bool,
    made: bool,
    completed: bool,
    taken_back: u32,
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub(crate) struct Record {
    jobs: HashMap<(String, String), Job>,
    pub(crate) queued: usize,
    pub(crate) passed: usize,
    /// Those whose items are there.
    pub(crate) made: usize,
    pub(crate) completed: usize,
    first: Option<Moment>,
    last: Option<Moment>,
}

/// What there is to say of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClassRecord {
    /// From the first sight of each job until it passed.
    pub(crate) waits: Vec<Duration>,
    /// How long its jobs held what they asked for, all together.
    pub(crate) held: Duration,
    /// How often they had to give it back.
    pub(crate) taken_back: u32,
}

impl Record {
    /// Takes note of an event.
    ///
    /// # Errors
    /// An AppWrapper failed or is gone: there is nothing to measure in that.
    pub(crate) fn saw(&mut self, event: Event<Seen>, now: Moment) -> anyhow::Result<()> {
        let Seen { metadata, status } = event.object;
        let Metadata { namespace, name, mut labels } = metadata;
        if event.kind == Change::Deleted || status.state == "Failed" {
            bail!("{namespace}/{name} was {:?}: {}", event.kind, status.message);
        }
        let job = self.jobs.entry((namespace, name)).or_insert_with(|| Job {
            class: labels.remove(CLASS).unwrap_or_default(),
            seen: now,
            passed: None,
            holds: None,
            held: Duration::ZERO,
            queued: false,
            made: false,
            completed: false,
            taken_back: 0,
        });
        self.first.get_or_insert(now);
        if !status.queuejobstate.is_empty() && !job.queued {
            job.queued = true;
            self.queued += 1;
        }
        let completed = status.state == "Completed";
        let holds = status.canrun && !completed;
        if (status.canrun || completed) && job.passed.is_none() {
            job.passed = Some(now);
            self.passed += 1;
        }
        if !job.made && (completed || status.state.starts_with("Running")) {
            job.made = true;
            self.made += 1;
        }
        match (job.holds, holds) {
            (None, true) => job.holds = Some(now),
            (Some(since), false) => {
                job.holds = None;
                job.held += now - since;
                job.taken_back += u32::from(!completed);
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

    /// From the first sight of the first job to the last that was completed.
    pub(crate) fn wall(&self) -> Duration {
        self.last.zip(self.first).map_or(Duration::ZERO, |(last, first)| last - first)
    }

    /// What there is to say, by class.
    pub(crate) fn classes(&self) -> BTreeMap<String, ClassRecord> {
        let mut classes: BTreeMap<String, ClassRecord> = BTreeMap::new();
        for job in self.jobs.values() {
            let class = classes.entry(job.class.clone()).or_default();
            class.waits.extend(job.passed.map(|passed| passed - job.seen));
            class.held += job.held;
            class.taken_back += job.taken_back;
        }
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn event(kind: &str, name: &str, status: &Value) -> Event<Seen> {
        serde_json::from_value(json!({"type": kind, "object": {
            "metadata": {"namespace": "q", "name": name, "labels": {CLASS: "small"}},
            "status": status,
        }}))
        .unwrap()
    }

    #[test]
    fn a_job_waits_until_it_passes_and_holds_until_it_is_done() {
        let at = |ms| Moment::default() + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        let mut record = Record::default();
        let script = [
            (10, "ADDED", "a", json!({})),
            (20, "MODIFIED", "a", json!({"state": "Pending", "queuejobstate": "Queueing"})),
            (30, "ADDED", "b", json!({"state": "Pending", "queuejobstate": "Queueing"})),
            (50, "MODIFIED", "a", json!({"canrun": true, "queuejobstate": "HeadOfLine"})),
            (60, "MODIFIED", "a", json!({"canrun": true, "state": "Running"})),
            // It makes room, and passes again.
            (80, "MODIFIED", "a", json!({"state": "Pending", "queuejobstate": "Preempted"})),
            (90, "MODIFIED", "a", json!({"canrun": true, "state": "Running"})),
            (95, "MODIFIED", "a", json!({"canrun": true, "state": "Completed"})),
            (96, "MODIFIED", "a", json!({"canrun": true, "state": "Completed"})),
        ];
        for (when, kind, name, status) in script {
            record.saw(event(kind, name, &status), at(when)).unwrap();
        }
        assert_eq!((record.queued, record.passed), (2, 1));
        assert_eq!((record.made, record.completed), (1, 1), "each once");
        assert_eq!(record.wall(), ms(85));
        let expected = ClassRecord { waits: vec![ms(40)], held: ms(35), taken_back: 1 };
        assert_eq!(record.classes()["small"], expected);
    }

    #[test]
    fn a_failure_ends_the_measurement() {
        let now = Moment::default();
        let failed = json!({"state": "Failed", "message": "no such kind"});
        let error = Record::default().saw(event("MODIFIED", "a", &failed), now).unwrap_err();
        assert!(error.to_string().contains("no such kind"), "{error}");
        Record::default().saw(event("DELETED", "a", &json!({})), now).unwrap_err();
    }
}
