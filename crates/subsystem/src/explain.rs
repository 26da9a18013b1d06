//! Pages of `gantry explain`: what a subsystem knows about one object.

use std::fmt;

use gantry_reconcile::{Key, Kind, Resource, World};
use jiff::Timestamp;
use serde_json::Value;

use crate::settings::Values;

/// A page about the objects of one kind.
///
/// `gantry explain` shows what every object has (conditions, events, what controllers hold back), then what the
/// pages of its kind add.
#[derive(Clone, Copy)]
pub struct ExplainPage {
    /// The kind.
    pub resource: fn() -> Resource,
    /// The kinds that it looks at, the own one among them. They are read from the cluster; where the caller may
    /// not read one, its objects are not there, and the page must not conclude that there are none.
    pub kinds: fn() -> Vec<Kind>,
    /// What there is to say. Pure.
    pub explain: fn(&ExplainRequest<'_>) -> Option<Explanation>,
}

impl fmt::Debug for ExplainPage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "ExplainPage({})", (self.resource)())
    }
}

/// What a page is about.
#[derive(Clone, Copy, Debug)]
pub struct ExplainRequest<'a> {
    /// The object.
    pub key: &'a Key,
    /// All objects of the kinds of the page that could be read.
    pub world: &'a World,
    /// The kinds that could not be read.
    pub unread: &'a [Resource],
    /// The settings in force, or the defaults where those cannot be read.
    pub values: &'a Values,
    /// The time.
    pub now: Timestamp,
}

/// What a page says.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The heading.
    pub title: &'static str,
    /// One line for each thing to say, for people.
    pub lines: Vec<String>,
    /// The same facts, for programs.
    pub facts: Value,
}
