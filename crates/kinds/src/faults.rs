//! Collecting what is wrong, field by field.

use std::fmt;

use gantry_schema::{Invalid, Reason};
use serde_json::Value;

use crate::tree::{at, is_empty, text};

/// A field, as messages name it: `spec.containers[0].ports`.
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

/// What was found so far. The checks that most kinds need are methods.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    found: Vec<Invalid>,
}

impl Faults {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn into_vec(self) -> Vec<Invalid> {
        self.found
    }

    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    pub(crate) fn add(&mut self, fault: Invalid) {
        self.found.push(fault);
    }

    pub(crate) fn required(&mut self, path: Path, detail: &str) {
        self.add(Invalid::required(path, detail));
    }

    pub(crate) fn value(&mut self, path: Path, value: impl Into<Value>, detail: &str) {
        self.add(Invalid::value(path, &value.into(), detail));
    }

    pub(crate) fn forbidden(&mut self, path: Path, detail: &str) {
        self.add(Invalid::forbidden(path, detail));
    }

    pub(crate) fn duplicate(&mut self, path: Path, value: impl Into<Value>) {
        self.add(Invalid::duplicate(path, &value.into()));
    }

    pub(crate) fn not_found(&mut self, path: Path, value: impl Into<Value>) {
        self.add(Invalid::not_found(path, &value.into()));
    }

    pub(crate) fn not_supported(&mut self, path: Path, value: impl Into<Value>, words: &[&str]) {
        self.add(Invalid::not_supported(path, &value.into(), words));
    }

    /// Every complaint of a text check, with the text itself.
    pub(crate) fn text(&mut self, path: &Path, value: &str, complaints: Vec<String>) {
        for complaint in complaints {
            self.value(path.clone(), value, &complaint);
        }
    }

    /// A field that must not be empty. Says whether there is something to check further.
    pub(crate) fn require(&mut self, tree: &Value, path: &Path, field: &str) -> bool {
        let empty = is_empty(tree, field);
        if empty {
            self.required(path.child(field), "");
        }
        !empty
    }

    /// A field of a closed set, if it is there. An empty text counts as a value.
    pub(crate) fn one_of(&mut self, tree: &Value, path: &Path, field: &str, words: &[&str]) {
        let value = at(tree, field);
        if !value.is_null() && !words.contains(&text(tree, field)) {
            self.not_supported(path.child(field), value.clone(), words);
        }
    }

    /// A field of a closed set that must be there.
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

    /// A number that is at least zero, if it is there.
    pub(crate) fn not_negative(&mut self, tree: &Value, path: &Path, field: &str) {
        let value = at(tree, field);
        if value.as_i64().is_some_and(|number| number < 0) {
            self.value(path.child(field), value.clone(), "must be greater than or equal to 0");
        }
    }

    /// A number above zero, if it is there.
    pub(crate) fn positive(&mut self, tree: &Value, path: &Path, field: &str, detail: &str) {
        let value = at(tree, field);
        if value.as_i64().is_some_and(|number| number <= 0) {
            self.value(path.child(field), value.clone(), detail);
        }
    }

    /// A field that may not change.
    pub(crate) fn immutable(&mut self, new: &Value, old: &Value, path: &Path, field: &str) {
        if !crate::tree::same(new, old, field) {
            self.value(path.child(field), at(new, field).clone(), "field is immutable");
        }
    }

    /// A fault whose message has no value in it.
    pub(crate) fn worded(&mut self, path: Path, reason: Reason, message: String) {
        self.add(Invalid::new(path, reason, message));
    }
}
