//! The instances of a launcher and the events about them, in the order of one counter. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::config::InstanceConfig;

/// The events that are kept for watchers.
pub(super) const MAX_EVENTS: usize = 1000;

/// What an instance does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Its root process runs.
    Running,
    /// Its root process has ended by itself.
    Stopped,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
        }
    }
}

/// One instance.
#[derive(Clone, Debug)]
struct Record {
    config: InstanceConfig,
    status: Status,
    revision: u64,
    is_ready: bool,
    /// Once it has ended by itself; negative for a signal.
    exit_code: Option<i32>,
}

/// A line of the watch stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) revision: u64,
    pub(super) line: Arc<str>,
}

/// Why the events since a revision cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot resume after revision {since}: list again, and resume after {oldest} to {revision}"
)]
pub(super) struct NotResumable {
    since: u64,
    oldest: u64,
    revision: u64,
}

/// Why an instance cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddError {
    #[error("Instance with ID '{0}' already exists")]
    Exists(String),
    #[error("the launcher has {0} instances already: delete one")]
    Full(usize),
}

/// The instances and the events about them.
#[derive(Debug, Default)]
pub(super) struct InstanceTable {
    revision: u64,
    instances: BTreeMap<String, Record>,
    events: VecDeque<Event>,
}

impl InstanceTable {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Says whether an instance can be added.
    pub(super) fn check_add(&self, id: &str, most: usize) -> Result<(), AddError> {
        if self.instances.contains_key(id) {
            return Err(AddError::Exists(id.to_owned()));
        }
        if self.instances.len() >= most {
            return Err(AddError::Full(most));
        }
        Ok(())
    }

    /// Adds an instance whose process runs.
    pub(super) fn add(&mut self, id: &str, config: InstanceConfig) -> Value {
        let status = Status::Running;
        let record = Record { config, status, revision: 0, is_ready: false, exit_code: None };
        self.instances.insert(id.to_owned(), record);
        self.announce("CREATED", id, None)
    }

    /// Records that a process ended by itself; a negative code is a signal.
    pub(super) fn stopped(&mut self, id: &str, exit_code: i32) {
        if let Some(record) = self.instances.get_mut(id) {
            record.status = Status::Stopped;
            record.is_ready = false;
            record.exit_code = Some(exit_code);
            self.announce("STOPPED", id, Some(exit_code));
        }
    }

    /// Removes an instance, and returns its last state.
    pub(super) fn remove(&mut self, id: &str) -> Option<Value> {
        let record = self.instances.get_mut(id)?;
        record.status = Status::Stopped;
        let state = self.announce("DELETED", id, None);
        self.instances.remove(id);
        Some(state)
    }

    /// Records that an engine answers.
    pub(super) fn ready(&mut self, id: &str) {
        if let Some(record) = self.instances.get_mut(id) {
            record.is_ready = record.status == Status::Running;
        }
    }

    /// Counts an event, and returns the state of its instance.
    fn announce(&mut self, kind: &str, id: &str, exit_code: Option<i32>) -> Value {
        self.revision += 1;
        let revision = self.revision;
        if let Some(record) = self.instances.get_mut(id) {
            record.revision = revision;
        }
        let state = self.state(id).unwrap_or_default();
        let mut event = Map::new();
        event.insert("type".to_owned(), json!(kind));
        event.insert("object".to_owned(), state.clone());
        if let Some(code) = exit_code {
            event.insert("exit_code".to_owned(), json!(code));
        }
        self.events.push_back(Event { revision, line: line(event) });
        if self.events.len() > MAX_EVENTS {
            self.events.pop_front();
        }
        state
    }

    /// Returns the state of an instance.
    pub(super) fn state(&self, id: &str) -> Option<Value> {
        let record = self.instances.get(id)?;
        let mut state = Map::new();
        state.insert("status".to_owned(), json!(record.status.name()));
        state.insert("instance_id".to_owned(), json!(id));
        state.insert("revision".to_owned(), json!(record.revision));
        record.config.describe(&mut state);
        if let Some(code) = record.exit_code {
            state.insert("exit_code".to_owned(), json!(code));
        }
        Some(Value::Object(state))
    }

    pub(super) fn is_running(&self, id: &str) -> bool {
        self.instances.get(id).is_some_and(|it| it.status == Status::Running)
    }

    pub(super) fn config(&self, id: &str) -> Option<&InstanceConfig> {
        self.instances.get(id).map(|it| &it.config)
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.instances.keys().cloned().collect()
    }

    /// Returns the response to a list with details.
    pub(super) fn list(&self) -> Value {
        let states: Vec<Value> = self.instances.keys().filter_map(|it| self.state(it)).collect();
        let running = self.instances.values().filter(|it| it.status == Status::Running).count();
        json!({
            "revision": self.revision,
            "total_instances": states.len(),
            "running_instances": running,
            "instances": states,
        })
    }

    /// Returns the response to a list without details.
    pub(super) fn list_ids(&self) -> Value {
        let ids = self.ids();
        json!({"revision": self.revision, "count": ids.len(), "instance_ids": ids})
    }

    /// Returns the events after a revision.
    pub(super) fn events_since(&self, since: u64) -> Result<Vec<Event>, NotResumable> {
        let buffered = u64::try_from(self.events.len()).unwrap_or(u64::MAX);
        let oldest = self.revision.saturating_sub(buffered);
        // A later one is of another run of the launcher: its events would never come.
        if since < oldest || since > self.revision {
            return Err(NotResumable { since, oldest, revision: self.revision });
        }
        Ok(self.events.iter().filter(|it| it.revision > since).cloned().collect())
    }

    /// Returns an event for each instance, as if it was created now.
    pub(super) fn current(&self) -> Vec<Event> {
        let synthetic = |id: &String| {
            let mut event = Map::new();
            event.insert("type".to_owned(), json!("CREATED"));
            event.insert("object".to_owned(), self.state(id)?);
            Some(Event { revision: self.revision, line: line(event) })
        };
        self.instances.keys().filter_map(synthetic).collect()
    }

    /// Returns the instances whose engines answer, each with the event that says so. These events
    /// have no number of their own: they are repeated whenever a watch begins.
    pub(super) fn ready_events(&self) -> BTreeMap<(String, u64), Arc<str>> {
        let ready = self.instances.iter().filter(|(_, it)| it.is_ready);
        let event = |(id, record): (&String, &Record)| {
            let mut event = Map::new();
            event.insert("type".to_owned(), json!("READY"));
            event.insert("object".to_owned(), self.state(id)?);
            Some(((id.clone(), record.revision), line(event)))
        };
        ready.filter_map(event).collect()
    }
}

fn line(event: Map<String, Value>) -> Arc<str> {
    format!("{}\n", Value::Object(event)).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(events: &[Event]) -> Vec<String> {
        let short = |it: &Event| {
            let value: Value = serde_json::from_str(&it.line).unwrap();
            let object = &value["object"];
            assert!(value.get("revision").is_none(), "the revision is inside the object only");
            assert_eq!(it.line.matches('\n').count(), 1);
            format!(
                "{} {} {} {}",
                value["type"].as_str().unwrap(),
                object["instance_id"].as_str().unwrap(),
                object["revision"],
                value["exit_code"]
            )
        };
        events.iter().map(short).collect()
    }

    #[test]
    fn as_64_events_have_one_counter() {
        let mut table = InstanceTable::default();
        assert_eq!(table.events_since(0).unwrap(), []);
        table.add("a", InstanceConfig::default());
        table.add("b", InstanceConfig::default());
        table.stopped("a", -9);
        let state = table.remove("b").unwrap();
        assert_eq!(state["status"], "stopped");
        assert_eq!(
            lines(&table.events_since(0).unwrap()),
            ["CREATED a 1 null", "CREATED b 2 null", "STOPPED a 3 -9", "DELETED b 4 null"]
        );
        assert_eq!(lines(&table.events_since(3).unwrap()), ["DELETED b 4 null"]);
        assert_eq!(lines(&table.current()), ["CREATED a 3 null"]);
        assert_eq!(table.list()["running_instances"], 0);
        assert_eq!(table.list_ids(), json!({"revision": 4, "count": 1, "instance_ids": ["a"]}));
        assert_eq!(table.list()["instances"][0]["exit_code"], -9);
        assert_eq!(table.check_add("a", 9), Err(AddError::Exists("a".into())));
        assert_eq!(table.check_add("c", 1), Err(AddError::Full(1)));
        assert!(table.remove("b").is_none());
    }

    #[test]
    fn as_64_what_left_the_buffer_is_too_old() {
        let mut table = InstanceTable::default();
        for _ in 0..MAX_EVENTS {
            table.add("a", InstanceConfig::default());
            table.remove("a");
        }
        let revision = table.revision();
        let oldest = revision - u64::try_from(MAX_EVENTS).unwrap();
        assert_eq!(table.events_since(oldest).unwrap().len(), MAX_EVENTS);
        for since in [oldest - 1, revision + 1] {
            let expected = NotResumable { since, oldest, revision };
            assert_eq!(table.events_since(since), Err(expected));
        }
    }

    #[test]
    fn as_81_ready_is_told_while_it_is_so() {
        let mut table = InstanceTable::default();
        table.add("a", InstanceConfig::default());
        assert!(table.ready_events().is_empty());
        table.ready("a");
        assert_eq!(table.ready_events().len(), 1);
        assert_eq!(table.revision(), 1, "clients that do not ask for it see no gap");
        table.stopped("a", 1);
        assert!(table.ready_events().is_empty());
        table.ready("a");
        assert!(table.ready_events().is_empty(), "a stopped engine is never ready");
    }

    proptest! {
        /// A watcher that resumes wherever it was cut off has each event once and in order.
        #[test]
        fn as_64_resumption_loses_nothing(
            moves in prop::collection::vec((0_u8..3, 0_usize..4), 0..60),
            cuts in prop::collection::vec(0_usize..60, 0..10),
        ) {
            let mut table = InstanceTable::default();
            let (mut seen, mut position) = (Vec::new(), 0);
            for (at, (kind, which)) in moves.into_iter().enumerate() {
                let id = format!("i{which}");
                match kind {
                    0 if table.check_add(&id, 99).is_ok() => {
                        table.add(&id, InstanceConfig::default());
                    }
                    1 if table.is_running(&id) => table.stopped(&id, 0),
                    _ => {
                        table.remove(&id);
                    }
                }
                if cuts.contains(&at) {
                    for event in table.events_since(position).unwrap() {
                        position = event.revision;
                        seen.push(event.revision);
                    }
                }
            }
            seen.extend(table.events_since(position).unwrap().iter().map(|it| it.revision));
            prop_assert_eq!(seen, (1..=table.revision()).collect::<Vec<_>>());
        }
    }
}
