//! Findings about an object: errors that reject it and warnings that do not.

use gantry_yaml::node::{Path, Position};

/// Where an object comes from, which decides which legacy forms are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A file given to a command. Files of every era of the originals are read.
    #[default]
    File,
    /// An API server, which has already rejected what the schema forbids.
    Server,
}

/// One finding about one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The field it is about.
    pub path: Path,
    /// Where the field stands, if that is no longer to be found by its path.
    pub at: Option<Position>,
    /// What is wrong, and what to do about it.
    pub text: String,
}

/// Collects findings while an object is read. All problems are reported, not only the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Where the object comes from.
    pub source: Source,
    /// Whether unknown fields are dropped with a warning instead of rejected.
    pub lenient: bool,
    /// Reasons to reject the object.
    pub errors: Vec<Finding>,
    /// Values that were accepted but should be written differently.
    pub warnings: Vec<Finding>,
}

impl Findings {
    /// Nothing found yet in an object from `source`.
    #[must_use]
    pub fn from(source: Source) -> Self {
        Self { source, ..Self::default() }
    }

    /// Rejects the object because of the value at `path`.
    pub fn error(&mut self, path: &Path, text: impl Into<String>) {
        self.errors.push(Finding { path: path.clone(), at: None, text: text.into() });
    }

    /// Rejects the object because of a value that has moved away from `path`.
    pub fn error_at(&mut self, path: &Path, at: Position, text: impl Into<String>) {
        self.errors.push(Finding { path: path.clone(), at: Some(at), text: text.into() });
    }

    /// Rejects a file because of the value at `path`. An object that a server already stores only
    /// gets a warning: rejecting it would not remove it.
    pub fn refuse_file(&mut self, path: &Path, text: impl Into<String>) {
        match self.source {
            Source::File => self.error(path, text),
            Source::Server => self.warn(path, text),
        }
    }

    /// Accepts the value at `path` with a warning about how to write it better.
    pub fn warn(&mut self, path: &Path, text: impl Into<String>) {
        self.warnings.push(Finding { path: path.clone(), at: None, text: text.into() });
    }

    /// Accepts a value that has moved away from `path` with a warning about how to write it better.
    pub fn warn_at(&mut self, path: &Path, at: Position, text: impl Into<String>) {
        self.warnings.push(Finding { path: path.clone(), at: Some(at), text: text.into() });
    }

    /// Adds the findings about a part of the object at `place`.
    pub fn append_below(&mut self, place: &Path, found: Self) {
        let below = |finding: Finding| Finding { path: place.append(&finding.path), ..finding };
        self.errors.extend(found.errors.into_iter().map(below));
        self.warnings.extend(found.warnings.into_iter().map(below));
    }

    /// Returns whether nothing rejects the object.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.errors.is_empty()
    }
}
