//! Decides what a reloaded configuration changes while the operator runs, from the values in effect
//! and the reloaded ones. Whatever goes wrong, the values in effect stay.

use super::changes::{Change, diff};
use super::operator::CheckedConfig;
use super::values::{ConfigMessage, ConfigReport, Values};

/// The result of reading the configuration again.
#[derive(Debug)]
pub enum ReloadedConfig {
    /// A valid configuration.
    Valid(Box<CheckedConfig>),
    /// An invalid configuration.
    Invalid(ConfigReport),
    /// The configuration existed and was deleted. The next start would create it with the defaults.
    Deleted {
        /// Its name in messages.
        source: String,
    },
    /// The configuration could not be read.
    Unreadable {
        /// The reason.
        why: String,
    },
}

/// Why a changed configuration cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigProblem {
    /// It is invalid, and rejected as a whole.
    Invalid(Vec<ConfigMessage>),
    /// It does not exist.
    Deleted {
        /// Its name in messages.
        source: String,
    },
    /// It could not be read.
    Unreadable {
        /// The reason.
        why: String,
    },
}

/// What to apply and to report after a reload. Everything is reported once, and again only after it
/// has changed.
#[derive(Debug, Default, PartialEq)]
pub struct ReloadResult {
    /// Values that take effect now.
    pub applied: Vec<Change>,
    /// Values that need a restart. The old value is the one in effect.
    pub restart_required: Vec<Change>,
    /// Values that needed a restart and are again equal to the values in effect.
    pub reverted: Vec<Change>,
    /// Warnings about values that may be mistakes.
    pub warnings: Vec<ConfigMessage>,
    /// Unknown keys.
    pub unknown: Vec<String>,
    /// The problem, if it is new.
    pub problem: Option<ConfigProblem>,
    /// Whether a problem has been resolved.
    pub recovered: bool,
}

/// The values in effect, and what has been reported about the others.
#[derive(Debug)]
pub struct ConfigTracker {
    in_force: Values,
    restart_required: Vec<Change>,
    warnings: Vec<ConfigMessage>,
    problem: Option<ConfigProblem>,
}

impl ConfigTracker {
    /// Starts from the configuration the operator started with.
    #[must_use]
    pub fn new(started: &CheckedConfig) -> Self {
        Self {
            in_force: started.values.clone(),
            restart_required: Vec::new(),
            warnings: started.warnings.clone(),
            problem: None,
        }
    }

    /// Returns every value in effect.
    #[must_use]
    pub fn in_force(&self) -> &Values {
        &self.in_force
    }

    /// Returns the values that a restart would change.
    #[must_use]
    pub fn restart_required(&self) -> &[Change] {
        &self.restart_required
    }

    /// Returns the problem of the configuration as last read.
    #[must_use]
    pub fn problem(&self) -> Option<&ConfigProblem> {
        self.problem.as_ref()
    }

    /// Applies the changes that need no restart, and returns what is new.
    pub fn apply_reload(&mut self, seen: ReloadedConfig) -> ReloadResult {
        let checked = match seen {
            ReloadedConfig::Valid(checked) => *checked,
            ReloadedConfig::Invalid(report) => {
                return self.record_problem(ConfigProblem::Invalid(report.errors));
            }
            ReloadedConfig::Deleted { source } => {
                return self.record_problem(ConfigProblem::Deleted { source });
            }
            ReloadedConfig::Unreadable { why } => {
                return self.record_problem(ConfigProblem::Unreadable { why });
            }
        };
        let CheckedConfig { settings: _, values, warnings, unknown } = checked;
        let recovered = self.problem.take().is_some();
        let changes = diff(&self.in_force, &values);
        for change in &changes.live {
            self.in_force.copy_from(change.key, &values);
        }
        let new = |of: &[Change], than: &[Change]| {
            of.iter().filter(|it| !than.contains(it)).cloned().collect::<Vec<_>>()
        };
        let still = |key: &str| changes.restart.iter().any(|it| it.key == key);
        let reverted = self.restart_required.iter().filter(|it| !still(it.key)).cloned().collect();
        let step = ReloadResult {
            restart_required: new(&changes.restart, &self.restart_required),
            reverted,
            unknown: if warnings == self.warnings { Vec::new() } else { unknown },
            warnings: warnings.iter().filter(|it| !self.warnings.contains(it)).cloned().collect(),
            applied: changes.live,
            problem: None,
            recovered,
        };
        self.restart_required = changes.restart;
        self.warnings = warnings;
        step
    }

    fn record_problem(&mut self, fault: ConfigProblem) -> ReloadResult {
        if self.problem.as_ref() == Some(&fault) {
            return ReloadResult::default();
        }
        self.problem = Some(fault.clone());
        ReloadResult { problem: Some(fault), ..ReloadResult::default() }
    }
}

#[cfg(test)]
mod tests;
