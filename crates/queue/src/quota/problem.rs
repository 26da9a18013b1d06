//! What is wrong with the QuotaSubtrees, none of it fatal.

use gantry_reconcile::Key;

/// Something in a QuotaSubtree that does not count as it is written. The rest counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quota tree {tree}: node {node:?} of {object} {fault}")]
pub struct Problem {
    /// The QuotaSubtree.
    pub object: Key,
    /// The tree it belongs to.
    pub tree: String,
    /// The node.
    pub node: String,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
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
        /// The root that counts.
        kept: String,
    },
    /// Its parent does not exist, and it is left out.
    #[error("is left out: there is no node {parent:?} to hang it below")]
    UnknownParent {
        /// The missing node.
        parent: String,
    },
    /// It is below a node that is left out.
    #[error("is left out: it is below {ancestor:?}, which is left out")]
    Cut {
        /// The nearest ancestor with a problem of its own.
        ancestor: String,
    },
    /// Its parents lead in a circle.
    #[error("is left out: its parents lead in a circle")]
    Circle,
    /// An amount is no quantity or is negative, and counts as 0.
    #[error("has no quota of {resource}, because {text} is not an amount: {why}")]
    BadAmount {
        /// The resource.
        resource: String,
        /// As written.
        text: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Fault {
    /// The fault in one word, as conditions and events have it.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unnamed => "Unnamed",
            Self::Duplicate { .. } => "Duplicate",
            Self::SecondRoot { .. } => "SecondRoot",
            Self::UnknownParent { .. } => "UnknownParent",
            Self::Cut { .. } => "BelowLeftOut",
            Self::Circle => "Circle",
            Self::BadAmount { .. } => "BadAmount",
        }
    }
}
