//! Who asks for quota.

use std::collections::BTreeMap;
use std::fmt;

use gantry_reconcile::Key;

/// The node of those that name none.
pub const DEFAULT_NODE: &str = "default";

/// One AppWrapper, as quota knows it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerId(Key);

impl ConsumerId {
    /// The AppWrapper with this name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(Key::new(namespace, name))
    }

    /// Where the AppWrapper is.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.0
    }
}

impl From<Key> for ConsumerId {
    fn from(key: Key) -> Self {
        Self(key)
    }
}

impl fmt::Display for ConsumerId {
    /// As the original writes it.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "NAMESPACE_{}_AWNAME_{}", self.0.namespace(), self.0.name())
    }
}

impl fmt::Debug for ConsumerId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, to)
    }
}

/// An AppWrapper that wants quota, or has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Which AppWrapper.
    pub id: ConsumerId,
    /// Its priority, as its specification has it.
    pub priority: i32,
    /// Whether others may push it off the root of a tree.
    pub preemptable: bool,
    /// Whether it takes what it was not admitted to: then it is the first to be preempted, whatever its
    /// priority.
    pub preempt_first: bool,
    /// What it asks for, in the units of [`requested`](super::requested). Names that a tree does not
    /// know do not count there, and what is below zero counts as zero.
    pub request: BTreeMap<String, i64>,
    /// Its labels. Those whose key is the name of a tree say which node of that tree it is charged
    /// to; the others are of no matter until there is such a tree.
    pub labels: BTreeMap<String, String>,
}

impl Consumer {
    /// The node it names in a tree.
    #[must_use]
    pub fn node_in(&self, tree: &str) -> &str {
        self.labels.get(tree).map_or(DEFAULT_NODE, String::as_str)
    }
}
