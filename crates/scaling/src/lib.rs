//! Buys nodes that pending jobs need, and releases them when the jobs are over.
//!
//! An AppWrapper that names instance types in the label `orderedinstance` and is pending for lack
//! of resources gets nodes of its own: [`demand`] computes how many of which type, [`limits`]
//! whether they may be bought now, and the back end where. The decision is recorded in the
//! [`grant_record`] before anything is bought, in one object that every process changes by compare
//! and swap: so no number of processes, however old their caches, grants more than is allowed. Then
//! the back end provisions what the grant record says, and when the job is over it releases what
//! has the job's [`owner_labels`].
//!
//! There are four back ends: MachineSets that are scaled up or copied ([`machine_set`]), pools of a
//! managed cluster ([`pool`]), and groups of simulated nodes ([`node_group`]). All but the pools
//! are written like any API object; pools are listed by an inquiry and changed by calls, which
//! [`effects`] carries out.
//!
//! For AppWrappers that name no types, [`shape_inference`] determines which nodes would make them
//! fit, where that is enabled, by asking the queue.
//!
//! Prices are not considered, on purpose. Where the user picks the type, sizes are not considered
//! either, and one pod per node is assumed.

pub mod settings;
pub mod view;

pub mod demand;
pub mod owner_labels;

pub mod grant_record;
pub mod limits;
pub mod reason;

pub mod machine_set;
pub mod node_group;
pub mod pool;

pub mod controller;
pub mod granted_nodes;
pub mod shape_inference;

pub mod effects;
pub mod subsystem;

#[cfg(test)]
mod tests;

pub use controller::Scaling;
pub use granted_nodes::GrantedNodes;
pub use settings::{Backend, Limits, PoolKind, Settings};
pub use shape_inference::ShapeInference;
