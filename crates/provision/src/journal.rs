//! The journal of a host: what was intended, what was there before, and how it ended.
//!
//! A record is a line of JSON. An intent is on disk before its action begins, and its end after it;
//! an intent without an end may or may not have happened, and is observed again. Contents are in no
//! record: digests are salted, and what a file contained before lies beside the journal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::content::Salt;
use crate::state::Observed;

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Record {
    /// The first line.
    Begin {
        /// The form of the journal.
        version: u32,
        /// The cluster.
        cluster: String,
        /// What digests are mixed with.
        salt: Salt,
    },
    /// An action is about to begin.
    Intent(Intent),
    /// The action has happened.
    Done {
        /// The number of its intent.
        sequence: u64,
    },
    /// The action has failed; parts of it may have happened.
    Failed {
        /// The number of its intent.
        sequence: u64,
        /// Why.
        error: String,
    },
    /// What the action left was undone, or it turned out that there is nothing to undo.
    Undone {
        /// The number of its intent.
        sequence: u64,
    },
}

/// What is about to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// The number of the intent, counted from 1.
    pub sequence: u64,
    /// The run.
    pub run: String,
    /// The step.
    pub step: String,
    /// The action, with salted digests.
    pub action: Action,
    /// The resources that it changes, as they were.
    pub before: Observed,
    /// Under which name the content of a file was saved.
    pub saved: Option<String>,
}

/// How far an action came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It may have happened.
    Open,
    /// It has happened.
    Done,
    /// It has failed.
    Failed(String),
    /// It was undone.
    Undone,
}

/// The form of journals that this version writes.
pub const JOURNAL_VERSION: u32 = 1;

/// A journal that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// The cluster.
    pub cluster: String,
    /// What digests are mixed with.
    pub salt: Salt,
    entries: BTreeMap<u64, (Intent, Outcome)>,
}

/// A journal that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// A line that is not the last has another form.
    #[error("cannot read line {line} of the journal: {error}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong.
        error: String,
    },
    /// The journal was written by another version.
    #[error("cannot read a journal of version {0}; use the gantry that wrote it, or a newer one")]
    Version(u32),
}

impl Journal {
    /// A journal without entries.
    #[must_use]
    pub fn new(cluster: &str, salt: Salt) -> Self {
        Self { cluster: cluster.to_owned(), salt, entries: BTreeMap::new() }
    }

    /// The record that a journal begins with.
    #[must_use]
    pub fn begin(&self) -> Record {
        Record::Begin {
            version: JOURNAL_VERSION,
            cluster: self.cluster.clone(),
            salt: self.salt.clone(),
        }
    }

    /// Reads a journal; without a first line there is none. A last line that a crash tore is left
    /// out: what it intended has not begun.
    ///
    /// # Errors
    /// A line that is not the last is damaged, or another version wrote the journal.
    pub fn parse(text: &str) -> Result<Option<Self>, JournalError> {
        let mut journal: Option<Self> = None;
        for (index, line) in text.split_inclusive('\n').enumerate() {
            let Some(line) = line.strip_suffix('\n') else { break };
            let damaged = |error: String| JournalError::Line { line: index + 1, error };
            let record: Record =
                serde_json::from_str(line).map_err(|error| damaged(error.to_string()))?;
            match (&mut journal, record) {
                (None, Record::Begin { version: JOURNAL_VERSION, cluster, salt }) => {
                    journal = Some(Self::new(&cluster, salt));
                }
                (None, Record::Begin { version, .. }) => {
                    return Err(JournalError::Version(version));
                }
                (Some(journal), record) => {
                    journal.apply(record).map_err(|error| damaged(error.to_owned()))?;
                }
                (None, _) => return Err(damaged("the first line is missing".to_owned())),
            }
        }
        Ok(journal)
    }

    /// How many bytes of a text are whole lines; what follows is cut off before more is written.
    #[must_use]
    pub fn whole_bytes(text: &str) -> usize {
        text.rfind('\n').map_or(0, |at| at + 1)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// The record does not follow from those before.
    pub fn apply(&mut self, record: Record) -> Result<(), &'static str> {
        let (sequence, outcome) = match record {
            Record::Begin { .. } => return Err("a second first line"),
            Record::Intent(intent) => {
                if intent.sequence != self.next_sequence() {
                    return Err("an intent has not the next number");
                }
                self.entries.insert(intent.sequence, (intent, Outcome::Open));
                return Ok(());
            }
            Record::Done { sequence } => (sequence, Outcome::Done),
            Record::Failed { sequence, error } => (sequence, Outcome::Failed(error)),
            Record::Undone { sequence } => (sequence, Outcome::Undone),
        };
        let entry = self.entries.get_mut(&sequence).ok_or("an end without an intent")?;
        entry.1 = outcome;
        Ok(())
    }

    /// The number of the next intent.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.entries.last_key_value().map_or(1, |(sequence, _)| sequence + 1)
    }

    /// All intents with their ends, the oldest first.
    #[must_use]
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (&Intent, &Outcome)> {
        self.entries.values().map(|(intent, outcome)| (intent, outcome))
    }

    /// The runs with the number of their actions, the oldest first.
    #[must_use]
    pub fn runs(&self) -> Vec<(&str, usize)> {
        let mut runs: Vec<(&str, usize)> = Vec::new();
        for (intent, _) in self.entries() {
            match runs.last_mut() {
                Some((run, count)) if *run == intent.run => *count += 1,
                Some(_) | None => runs.push((&intent.run, 1)),
            }
        }
        runs
    }
}

impl Record {
    /// The record as a line, with its end.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}
