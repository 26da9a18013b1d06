//! Decides which devices a pod gets, as a pure function: without clock, network or randomness.
//!
//! An [`Inventory`](problem::Inventory) lists the devices and what of them is held; a
//! [`Request`](problem::Request) is what a pod claims; [`allocate()`] computes what it gets on a
//! node, or why it gets nothing; [`choose()`] selects the node, and [`allocate_group`] decides
//! whether many pods get everything they need at once. [`lower`] converts the objects of a cluster
//! or of files to both, where [`constraint`]s decide which devices qualify, and [`dump`] prints the
//! result for users. [`schedule`], [`top`], [`generate`] and [`inject`] implement the commands of
//! the command line.

mod allocate;
mod bit_set;
pub mod capacity;
mod capacity_split;
mod choose;
pub mod constraint;
pub mod dump;
mod eligible;
pub mod generate;
mod group;
pub mod inject;
pub mod lower;
mod prepare;
pub mod problem;
mod report;
pub mod schedule;
mod search;
mod table;
#[cfg(test)]
mod tests;
pub mod top;

pub use allocate::allocate;
pub use choose::{FeasibleNode, NodeChoice, Packing, Placement, choose};
pub use eligible::tolerates;
pub use group::{Gang, GangMember, GroupOutcome, PlacedPod, Shortfall, allocate_group};
