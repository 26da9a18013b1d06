//! Why a consumer does not get the quota it requests.

use std::collections::BTreeMap;
use std::fmt;

use super::amount::quantity;

/// The node of a tree at which an allocation ended, and what is missing there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaRefusal {
    /// The tree; of several that refuse, the first by name.
    pub tree: String,
    /// The node: the one named, or the last one that was tried.
    pub node: String,
    /// The reason.
    pub reason: QuotaRefusalReason,
}

/// The reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaRefusalReason {
    /// The tree has no such node.
    UnknownNode,
    /// The node has children, and only leaves are charged.
    NotALeaf,
    /// The quota of the node is used up, and no consumer can be moved or preempted.
    Exceeded {
        /// What would have to be free in addition, for each resource that is short, in counted
        /// units.
        missing: BTreeMap<String, i128>,
    },
}

impl fmt::Display for QuotaRefusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tree, node, reason: why } = self;
        match why {
            QuotaRefusalReason::UnknownNode => write!(to, "quota tree {tree} has no node {node:?}"),
            QuotaRefusalReason::NotALeaf => {
                write!(to, "node {node:?} of quota tree {tree} is not a leaf")
            }
            QuotaRefusalReason::Exceeded { missing } => {
                write!(to, "node {node:?} of quota tree {tree} lacks ")?;
                for (index, (resource, units)) in missing.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(to, "{comma}{} of {resource}", quantity(resource, *units))?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for QuotaRefusal {}
