//! Why a consumer does not get what it asks for.

use std::collections::BTreeMap;
use std::fmt;

use super::amount::quantity;

/// The node of a tree at which an allocation ended, and what is missing there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The tree; of several that refuse, the first by name.
    pub tree: String,
    /// The node: the one named, or the last one that was asked.
    pub node: String,
    /// What stands in the way.
    pub why: Why,
}

/// What stands in the way of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The tree has no such node.
    Unknown,
    /// The node has children, and only leaves are charged.
    Inner,
    /// The quota of the node is used, and nobody gives way.
    Exceeded {
        /// What would have to be free in addition, for each resource that is short, in counted
        /// units.
        missing: BTreeMap<String, i128>,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tree, node, why } = self;
        match why {
            Why::Unknown => write!(to, "quota tree {tree} has no node {node:?}"),
            Why::Inner => write!(to, "node {node:?} of quota tree {tree} is not a leaf"),
            Why::Exceeded { missing } => {
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

impl std::error::Error for Refusal {}
