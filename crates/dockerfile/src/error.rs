//! Errors of Dockerfiles, with their line.

use std::fmt::Write;

/// How much of an instruction an error repeats.
const SHOWN_LENGTH: usize = 100;

/// A Dockerfile that cannot be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", position(*line, text))]
pub struct DockerfileError {
    /// The line, from 1; none if the whole text is meant.
    pub line: Option<usize>,
    /// The instruction, cut if it is long.
    pub text: String,
    /// What is wrong with it, and what to write instead.
    pub problem: String,
}

impl DockerfileError {
    pub(crate) fn new(line: usize, text: &str, problem: impl Into<String>) -> Self {
        Self { line: Some(line), text: shorten(text), problem: problem.into() }
    }

    pub(crate) fn of_file(problem: impl Into<String>) -> Self {
        Self { line: None, text: String::new(), problem: problem.into() }
    }
}

/// Writes where in the Dockerfile something is, for the start of a message.
pub(crate) fn position(line: Option<usize>, text: &str) -> String {
    let mut position = String::new();
    if let Some(line) = line {
        // Writing to a text does not fail.
        let _ = write!(position, "Dockerfile line {line}: ");
    }
    if !text.is_empty() {
        let _ = write!(position, "{text}: ");
    }
    position
}

/// The first line of a text, cut if it is long.
pub(crate) fn shorten(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default().trim();
    let mut short: String = first.chars().take(SHOWN_LENGTH).collect();
    if short.len() < first.len() {
        short.push('…');
    }
    short
}
