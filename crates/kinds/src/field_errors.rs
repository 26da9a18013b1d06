//! Collects validation errors, field by field.

use std::fmt;

use gantry_schema::{FieldError, FieldErrorReason};
use serde_json::Value;

use crate::tree::{at, is_empty, text};

/// The path of a field, as messages name it: `spec.containers[0].ports`.
#[derive(Clone, Debug)]
pub(crate) struct Path(String);

impl Path {
    pub(crate) fn new(root: &str) -> Self {
        Self(root.to_owned())
    }

    pub(crate) fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self::new(name) } else { Self(format!("{}.{name}", self.0)) }
    }

    pub(crate) fn index(&self, place: usize) -> Self {
        Self(format!("{}[{place}]", self.0))
    }

    pub(crate) fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.0
    }
}

/// The errors found so far. The checks that most kinds need are methods.
#[derive(Debug, Default)]
pub(crate) struct FieldErrors {
    found: Vec<FieldError>,
}

impl FieldErrors {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn into_vec(self) -> Vec<FieldError> {
        self.found
    }

    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    pub(crate) fn add(&mut self, fault: FieldError) {
        self.found.push(fault);
    }

    pub(crate) fn required(&mut self, path: Path, detail: &str) {
        self.add(FieldError::required(path, detail));
    }

    pub(crate) fn value(&mut self, path: Path, value: impl Into<Value>, detail: &str) {
        self.add(FieldError::invalid(path, &value.into(), detail));
    }

    pub(crate) fn forbidden(&mut self, path: Path, detail: &str) {
        self.add(FieldError::forbidden(path, detail));
    }

    pub(crate) fn duplicate(&mut self, path: Path, value: impl Into<Value>) {
        self.add(FieldError::duplicate(path, &value.into()));
    }

    pub(crate) fn not_found(&mut self, path: Path, value: impl Into<Value>) {
        self.add(FieldError::not_found(path, &value.into()));
    }

    pub(crate) fn not_supported(&mut self, path: Path, value: impl Into<Value>, words: &[&str]) {
        self.add(FieldError::not_supported(path, &value.into(), words));
    }

    /// Adds every message of a text check, with the text itself.
    pub(crate) fn invalid_text(&mut self, path: &Path, value: &str, complaints: Vec<String>) {
        for complaint in complaints {
            self.value(path.clone(), value, &complaint);
        }
    }

    /// Checks that a field is not empty. Returns whether there is a value to check further.
    pub(crate) fn require(&mut self, tree: &Value, path: &Path, field: &str) -> bool {
        let empty = is_empty(tree, field);
        if empty {
            self.required(path.child(field), "");
        }
        !empty
    }

    /// Checks that a field, if set, has one of a closed set of values. An empty text counts as a
    /// value.
    pub(crate) fn one_of(&mut self, tree: &Value, path: &Path, field: &str, words: &[&str]) {
        let value = at(tree, field);
        if !value.is_null() && !words.contains(&text(tree, field)) {
            self.not_supported(path.child(field), value.clone(), words);
        }
    }

    /// Checks that a required field has one of a closed set of values.
    pub(crate) fn require_one_of(
        &mut self,
        tree: &Value,
        path: &Path,
        field: &str,
        words: &[&str],
    ) {
        if self.require(tree, path, field) {
            self.one_of(tree, path, field, words);
        }
    }

    /// Checks that a number, if set, is at least zero.
    pub(crate) fn not_negative(&mut self, tree: &Value, path: &Path, field: &str) {
        let value = at(tree, field);
        if value.as_i64().is_some_and(|number| number < 0) {
            self.value(path.child(field), value.clone(), "must be greater than or equal to 0");
        }
    }

    /// Checks that a number, if set, is above zero.
    pub(crate) fn positive(&mut self, tree: &Value, path: &Path, field: &str, detail: &str) {
        let value = at(tree, field);
        if value.as_i64().is_some_and(|number| number <= 0) {
            self.value(path.child(field), value.clone(), detail);
        }
    }

    /// Checks that a field does not change.
    pub(crate) fn immutable(&mut self, new: &Value, old: &Value, path: &Path, field: &str) {
        if !crate::tree::same(new, old, field) {
            self.value(path.child(field), at(new, field).clone(), "field is immutable");
        }
    }

    /// Adds an error whose message contains no value.
    pub(crate) fn add_with_message(
        &mut self,
        path: Path,
        reason: FieldErrorReason,
        message: String,
    ) {
        self.add(FieldError::new(path, reason, message));
    }
}
