//! Records changes of a tree, so that they can be undone.

use std::sync::Arc;

use super::tree::{Holder, Placement};

/// Changes in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Journal(Vec<Entry>);

/// One change.
#[derive(Debug)]
pub(super) enum Entry {
    /// The next arrival got this placement.
    Placed(Placement),
    /// A consumer lost this placement.
    Displaced(Placement, Arc<Holder>),
    /// A node was charged.
    Charged(usize, Arc<Holder>),
    /// A charge was removed from a node.
    Discharged(usize, Arc<Holder>),
}

impl Journal {
    pub(super) fn record(&mut self, entry: Entry) {
        self.0.push(entry);
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.0.pop()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
