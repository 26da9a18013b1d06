//! What a JSON tree may look like: prune, default, check, and how lists are keyed.
//!
//! One compiled form serves custom and built-in kinds alike. Custom kinds compile it from the
//! structural schema in their definition, built-in ones from generated tables; pruning, defaulting,
//! merging and field ownership then walk the same nodes and need not know where they came from.

pub mod invalid;
pub mod tree;

pub use invalid::{Invalid, Reason};
pub use tree::{Builder, Field, ListType, MergeStrategy, Node, NodeId, Scalar, Schema, Shape};
