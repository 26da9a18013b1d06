//! Conflicts of an apply with other managers.

use std::fmt;

use super::managed_fields::{ManagedFieldsEntry, Operation};
use crate::golang;
use crate::path::Path;
use crate::set::FieldSet;

/// Fields that an apply would change although others own them. Its text is the message of the 409.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conflicts {
    conflicts: Vec<Conflict>,
}

/// One field that an apply would change although another manager owns it: one cause of the 409.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, with what identifies its entry.
    owner: String,
    /// The other manager as it is named to people, as in `"u" using apps/v1`.
    phrase: String,
    /// The field.
    pub path: Path,
}

impl Conflict {
    /// The reason of the cause.
    pub const REASON: &str = "FieldManagerConflict";

    /// The message of the cause, as in `conflict with "u" using apps/v1`.
    #[must_use]
    pub fn message(&self) -> String {
        format!("conflict with {}", self.phrase)
    }

    /// The field of the cause, as in `.spec.replicas`.
    #[must_use]
    pub fn field(&self) -> String {
        self.path.to_string()
    }
}

impl Conflicts {
    /// The conflicts, by manager and then by field.
    pub fn iter(&self) -> impl Iterator<Item = &Conflict> {
        self.conflicts.iter()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.conflicts.is_empty()
    }

    pub(super) fn add(&mut self, entry: &ManagedFieldsEntry, fields: &FieldSet) {
        let owner = entry.identity().text();
        let phrase = phrase(entry);
        let conflicts = fields.paths().into_iter().map(|path| Conflict {
            owner: owner.clone(),
            phrase: phrase.clone(),
            path,
        });
        self.conflicts.extend(conflicts);
        self.conflicts.sort_by(|one, other| one.owner.cmp(&other.owner));
    }

    /// The conflicts about fields that are not in the set.
    pub(super) fn without(mut self, fields: &FieldSet) -> Self {
        self.conflicts.retain(|conflict| !fields.contains(&conflict.path.0));
        self
    }
}

fn phrase(entry: &ManagedFieldsEntry) -> String {
    let mut phrase = golang::quoted(&entry.manager);
    if !entry.subresource.is_empty() {
        phrase.push_str(" with subresource ");
        phrase.push_str(&golang::quoted(&entry.subresource));
    }
    if entry.operation == Operation::Update {
        phrase.push_str(" using ");
        phrase.push_str(&entry.api_version);
    }
    phrase
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.conflicts.as_slice() {
            return write!(
                f,
                "Apply failed with 1 conflict: conflict with {}: {}",
                only.phrase, only.path
            );
        }
        write!(f, "Apply failed with {} conflicts: ", self.conflicts.len())?;
        let mut last = None;
        for conflict in &self.conflicts {
            if last != Some(&conflict.owner) {
                let line = if last.is_some() { "\n" } else { "" };
                write!(f, "{line}conflicts with {}:", conflict.phrase)?;
                last = Some(&conflict.owner);
            }
            write!(f, "\n- {}", conflict.path)?;
        }
        Ok(())
    }
}

impl std::error::Error for Conflicts {}
