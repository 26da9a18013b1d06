//! What was done to a tree, so that it can be taken back.

use std::sync::Arc;

use super::tree::{Holder, Seat};

/// Steps in the order in which they were taken.
#[derive(Debug, Default)]
pub(super) struct Journal(Vec<Entry>);

/// One step.
#[derive(Debug)]
pub(super) enum Entry {
    /// The next arrival was given this seat.
    Placed(Seat),
    /// Someone lost this seat.
    Displaced(Seat, Arc<Holder>),
    /// A node was charged.
    Charged(usize, Arc<Holder>),
    /// A charge was taken from a node.
    Discharged(usize, Arc<Holder>),
}

impl Journal {
    pub(super) fn note(&mut self, entry: Entry) {
        self.0.push(entry);
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.0.pop()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
