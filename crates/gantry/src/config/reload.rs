//! What becomes of a configuration that is read again while the operator runs: decided here, from
//! what was in force and what was found. Whatever goes wrong, what was in force stays so.

use super::changes::{Change, diff};
use super::operator::Checked;
use super::values::{Remark, Report, Values};

/// What was found when the configuration was looked for again.
#[derive(Debug)]
pub enum Seen {
    /// One that can be used.
    Valid(Box<Checked>),
    /// One that cannot.
    Wrong(Report),
    /// None: it was there and is not any more. At the next start it would be made with the defaults.
    Gone {
        /// What it was called.
        source: String,
    },
    /// Nobody knows: it could not be read.
    Unreadable {
        /// Why.
        why: String,
    },
}

/// What keeps a configuration from being followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is wrong, and refused as a whole.
    Refused(Vec<Remark>),
    /// It is not there.
    Gone {
        /// What it was called.
        source: String,
    },
    /// It could not be read.
    Unreadable {
        /// Why.
        why: String,
    },
}

/// What is to be done and said after a look. Everything is in one step only: what was said once is
/// not said again until it has changed.
#[derive(Debug, Default, PartialEq)]
pub struct Step {
    /// Values that are in force from now on.
    pub applied: Vec<Change>,
    /// Values that need a start. The old one is what is in force.
    pub waiting: Vec<Change>,
    /// Values that needed a start and are again what is in force.
    pub taken_back: Vec<Change>,
    /// What was accepted and may not be meant.
    pub warnings: Vec<Remark>,
    /// Keys that nobody knows.
    pub unknown: Vec<String>,
    /// What is wrong now.
    pub fault: Option<Fault>,
    /// Whether something was wrong and is not any more.
    pub recovered: bool,
}

/// What is in force, and what has been said about the rest.
#[derive(Debug)]
pub struct Watched {
    in_force: Values,
    waiting: Vec<Change>,
    warnings: Vec<Remark>,
    fault: Option<Fault>,
}

impl Watched {
    /// What the operator started with.
    #[must_use]
    pub fn new(started: &Checked) -> Self {
        Self {
            in_force: started.values.clone(),
            waiting: Vec::new(),
            warnings: started.warnings.clone(),
            fault: None,
        }
    }

    /// Every value that is in force.
    #[must_use]
    pub fn in_force(&self) -> &Values {
        &self.in_force
    }

    /// The values that a start would change.
    #[must_use]
    pub fn waiting(&self) -> &[Change] {
        &self.waiting
    }

    /// What is wrong with the configuration as it was last seen.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Takes over what may be taken over, and says what is new.
    pub fn look(&mut self, seen: Seen) -> Step {
        let checked = match seen {
            Seen::Valid(checked) => *checked,
            Seen::Wrong(report) => return self.blame(Fault::Refused(report.errors)),
            Seen::Gone { source } => return self.blame(Fault::Gone { source }),
            Seen::Unreadable { why } => return self.blame(Fault::Unreadable { why }),
        };
        let Checked { settings: _, values, warnings, unknown } = checked;
        let recovered = self.fault.take().is_some();
        let changes = diff(&self.in_force, &values);
        for change in &changes.live {
            self.in_force.put(change.key, &values);
        }
        let new = |of: &[Change], than: &[Change]| {
            of.iter().filter(|it| !than.contains(it)).cloned().collect::<Vec<_>>()
        };
        let still = |key: &str| changes.restart.iter().any(|it| it.key == key);
        let taken_back = self.waiting.iter().filter(|it| !still(it.key)).cloned().collect();
        let step = Step {
            waiting: new(&changes.restart, &self.waiting),
            taken_back,
            unknown: if warnings == self.warnings { Vec::new() } else { unknown },
            warnings: warnings.iter().filter(|it| !self.warnings.contains(it)).cloned().collect(),
            applied: changes.live,
            fault: None,
            recovered,
        };
        self.waiting = changes.restart;
        self.warnings = warnings;
        step
    }

    fn blame(&mut self, fault: Fault) -> Step {
        if self.fault.as_ref() == Some(&fault) {
            return Step::default();
        }
        self.fault = Some(fault.clone());
        Step { fault: Some(fault), ..Step::default() }
    }
}

#[cfg(test)]
mod tests;
