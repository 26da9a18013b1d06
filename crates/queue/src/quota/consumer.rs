//! Consumers of quota.

use std::collections::BTreeMap;
use std::fmt;

use gantry_reconcile::Key;

/// The default node, for consumers that name none.
pub const DEFAULT_NODE: &str = "default";

/// The identity of an AppWrapper as a quota consumer.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerId(Key);

impl ConsumerId {
    /// Returns the identity of the AppWrapper with this name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(Key::new(namespace, name))
    }

    /// Returns the key of the AppWrapper.
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
    /// Formats it as the original does.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "NAMESPACE_{}_AWNAME_{}", self.0.namespace(), self.0.name())
    }
}

impl fmt::Debug for ConsumerId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, to)
    }
}

/// An AppWrapper that requests quota, or holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// The AppWrapper.
    pub id: ConsumerId,
    /// Its priority, from its specification.
    pub priority: i32,
    /// Whether others may push it off the root of a tree.
    pub preemptable: bool,
    /// Whether it uses more than it was admitted for: then it is the first to be preempted,
    /// whatever its priority.
    pub preempt_first: bool,
    /// What it requests, in the units of [`requested`](super::requested). Resources that a tree
    /// does not know are ignored there, and negative amounts count as zero.
    pub request: BTreeMap<String, i64>,
    /// Its labels. Those whose key is the name of a tree name the node of that tree it is charged
    /// to; the others have no effect until there is such a tree.
    pub labels: BTreeMap<String, String>,
}

impl Consumer {
    /// Returns the node it names in a tree.
    #[must_use]
    pub fn node_in(&self, tree: &str) -> &str {
        self.labels.get(tree).map_or(DEFAULT_NODE, String::as_str)
    }
}
