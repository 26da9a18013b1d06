//! Which devices a pod gets, decided without clock, network or chance.
//!
//! An [`Inventory`](problem::Inventory) says what there is and what of it is held; a
//! [`Request`](problem::Request) says what a pod wants; [`allocate`] says what it gets on a node, or
//! what stands in the way; [`choose`] says on which node, and [`allocate_group`] whether many pods find all
//! they want at once. [`lower`] makes both from the objects of a
//! cluster or of files, where [`constraint`]s say which devices qualify, and [`dump`] tells people what
//! was found. [`schedule`], [`top`], [`generate`] and [`inject`] are what the command line does with all
//! of it.

mod allocate;
mod bits;
pub mod capacity;
mod choose;
pub mod constraint;
pub mod dump;
mod eligible;
pub mod generate;
mod group;
pub mod inject;
pub mod lower;
mod parts;
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
pub use choose::{Chosen, Offer, Packing, Placement, choose};
pub use eligible::tolerates;
pub use group::{Gang, GroupAnswer, Member, Placed, Shortfall, allocate_group};
