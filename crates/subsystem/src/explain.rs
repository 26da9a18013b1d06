//! Sections of `gantry explain`: what a subsystem knows about one object.

use std::fmt;

use gantry_reconcile::{Key, Kind, Resource, World};
use jiff::Timestamp;
use serde_json::Value;

use crate::settings::Values;

/// A section about the objects of one kind.
///
/// `gantry explain` shows what every object has (conditions, events, why controllers hold it), then
/// the sections of its kind.
#[derive(Clone, Copy)]
pub struct ExplainPage {
    /// The kind.
    pub resource: fn() -> Resource,
    /// The kinds that it reads, including its own. They are read from the cluster; if the caller
    /// may not list a kind, its objects are absent, and the section must not conclude that there
    /// are none.
    pub kinds: fn() -> Vec<Kind>,
    /// Explains the object. Pure.
    pub explain: fn(&ExplainRequest<'_>) -> Option<Explanation>,
}

impl fmt::Debug for ExplainPage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "ExplainPage({})", (self.resource)())
    }
}

/// The inputs of a section.
#[derive(Clone, Copy, Debug)]
pub struct ExplainRequest<'a> {
    /// The object to explain.
    pub key: &'a Key,
    /// All objects of the section's kinds that could be read.
    pub world: &'a World,
    /// The kinds that could not be read.
    pub unread: &'a [Resource],
    /// What controllers have reported about the object: the reasons why they hold it, or, where
    /// those cannot be read, its warnings, the newest first.
    pub reports: &'a [Report],
    /// The settings in effect, or the defaults if those cannot be read.
    pub values: &'a Values,
    /// The current time.
    pub now: Timestamp,
}

/// What a controller has reported about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Why, in CamelCase.
    pub reason: String,
    /// Why, and what to do next.
    pub message: String,
}

/// The content of a section.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The heading.
    pub title: &'static str,
    /// One line of text for each fact.
    pub lines: Vec<String>,
    /// The same facts, for programs.
    pub facts: Value,
}
