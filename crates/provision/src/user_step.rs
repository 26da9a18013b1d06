//! Steps of users: YAML beside the inventory, made of the same actions.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::state::{Observed, Want};
use crate::step::{Behavior, Change, Context, Step, Verdict};

mod reader;

use reader::Reader;

/// A step of a user.
#[derive(Clone, Debug)]
pub struct UserStep {
    /// Facts and variables with the values of which one has to hold.
    conditions: Vec<(String, Vec<String>)>,
    changes: Vec<Change>,
}

/// A file of steps is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct UserStepError {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
    /// The column, counted from 1.
    pub column: u32,
    /// What is wrong, and what is expected.
    pub message: String,
}

/// Reads the steps of a file. All errors of the file are returned.
///
/// # Errors
/// The file is not YAML, or a step has another form.
pub fn user_steps(file: &str, text: &str) -> Result<Vec<Step>, Vec<UserStepError>> {
    let error =
        |line, column, message| UserStepError { file: file.to_owned(), line, column, message };
    let documents =
        gantry_yaml::read(text).map_err(|wrong| vec![error(1, 1, wrong.to_string())])?;
    let mut reader = Reader::new(file);
    let mut steps = Vec::new();
    for document in &documents {
        match document.items() {
            Some(items) => steps.extend(items.iter().filter_map(|item| reader.step(item))),
            None if document.is_null() => {}
            None => reader.refuse(document, "expected a list of steps"),
        }
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = steps.iter().find(|step: &&Step| !names.insert(step.id.clone())) {
        reader.errors.push(error(1, 1, format!("two steps are named {}", twice.id)));
    }
    if reader.errors.is_empty() { Ok(steps) } else { Err(reader.errors) }
}

impl UserStep {
    /// What has to be observed.
    pub(crate) fn wants(&self) -> Vec<Want> {
        self.changes.iter().flat_map(|it| it.action.targets()).collect()
    }

    /// Whether its conditions hold.
    pub(crate) fn when(&self, context: &Context<'_>) -> Result<(), String> {
        for (name, values) in &self.conditions {
            let actual = match name.strip_prefix("facts.") {
                Some(fact) => context.facts.named(fact),
                None => context.settings.variables.get(name).map(|value| match value {
                    serde_json::Value::String(text) => text.clone(),
                    other => other.to_string(),
                }),
            };
            if !actual.as_ref().is_some_and(|it| values.contains(it)) {
                let actual = actual.unwrap_or_else(|| "not set".to_owned());
                return Err(format!("when: {name} is {actual}, not {}", values.join(" or ")));
            }
        }
        Ok(())
    }

    /// What has to be done.
    pub(crate) fn plan(&self, observed: &Observed) -> Verdict {
        let is_open = |change: &&Change| {
            let done = |want: &Want| change.action.is_reached(want, observed.get(want));
            !change.action.targets().iter().all(done)
        };
        let changes: Vec<Change> = self.changes.iter().filter(is_open).cloned().collect();
        if changes.is_empty() {
            return Verdict::Satisfied("as it has to be".to_owned());
        }
        Verdict::Change(changes)
    }
}

/// Makes the step of a user.
fn made(step: Step, conditions: Vec<(String, Vec<String>)>, changes: Vec<Change>) -> Step {
    let targets: BTreeSet<String> =
        changes.iter().flat_map(|it| it.action.targets()).map(|want| want.to_string()).collect();
    Step {
        owns: Cow::Owned(targets.into_iter().collect::<Vec<_>>().join(", ")),
        behavior: Behavior::User(Box::new(UserStep { conditions, changes })),
        ..step
    }
}
