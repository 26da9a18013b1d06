//! Problems of QuotaSubtrees, none of them fatal.

use gantry_reconcile::Key;

/// Something in a QuotaSubtree that is ignored. The rest of the object has effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quota tree {tree}: node {node:?} of {object} {fault}")]
pub struct QuotaProblem {
    /// The QuotaSubtree.
    pub object: Key,
    /// The tree it belongs to.
    pub tree: String,
    /// The node.
    pub node: String,
    /// What is wrong.
    pub fault: QuotaProblemKind,
}

/// The problem of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaProblemKind {
    /// It has no name, and is left out.
    #[error("is left out: it has no name")]
    Unnamed,
    /// The tree has a node of that name, and the second is left out.
    #[error("is left out: {first} has a node of that name")]
    Duplicate {
        /// The object the first of them is in.
        first: Key,
    },
    /// The tree has a root whose name comes first; this one is left out.
    #[error("is left out: the tree has the root {kept:?} already")]
    SecondRoot {
        /// The root that is kept.
        kept: String,
    },
    /// Its parent does not exist, and it is left out.
    #[error("is left out: its parent {parent:?} does not exist")]
    UnknownParent {
        /// The missing node.
        parent: String,
    },
    /// It is below a node that is left out.
    #[error("is left out: it is below {ancestor:?}, which is left out")]
    AncestorLeftOut {
        /// The nearest ancestor with a problem of its own.
        ancestor: String,
    },
    /// Its parents form a cycle.
    #[error("is left out: its parents form a cycle")]
    ParentCycle,
    /// An amount is no quantity or is negative, and counts as 0.
    #[error("has no quota of {resource}, because {text} is not an amount: {why}")]
    InvalidAmount {
        /// The resource.
        resource: String,
        /// As written.
        text: String,
        /// What is wrong with it.
        why: String,
    },
}

impl QuotaProblemKind {
    /// Returns the problem in one word, as conditions and events have it.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unnamed => "Unnamed",
            Self::Duplicate { .. } => "Duplicate",
            Self::SecondRoot { .. } => "SecondRoot",
            Self::UnknownParent { .. } => "UnknownParent",
            Self::AncestorLeftOut { .. } => "BelowLeftOut",
            Self::ParentCycle => "Circle",
            Self::InvalidAmount { .. } => "BadAmount",
        }
    }
}
