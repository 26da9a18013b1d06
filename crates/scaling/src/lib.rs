//! Which nodes a waiting job needs, how they are bought, and when they are given back.
//!
//! An AppWrapper that names instance types in the label `orderedinstance` and waits for want of
//! resources gets nodes of its own: [`demand`] says how many of which type, [`limits`] whether they
//! may be bought now, and the back end where. What was decided is written down in the [`ledger`]
//! before anything is bought, in one object that everybody changes by compare and swap: so no number
//! of processes, however late their news, grants more than is allowed. Then the back end makes true
//! what the ledger says, and when the job is over it gives back what bears the job's [`marks`].
//!
//! There are four back ends: MachineSets that are made larger or copied ([`machine_set`]), pools of a
//! managed cluster ([`pool`]), and groups of simulated nodes ([`group`]). All but the pools are written
//! as any object is; pools are listed by an inquiry and changed by calls, which [`effects`] carries out.
//!
//! For AppWrappers that name no types [`shapes`] finds out which nodes would make them fit, where that is
//! wanted, by asking the queue.
//!
//! What is absent on purpose: prices are not looked at. Where the user picks the type, nothing looks at
//! sizes either, and one pod per node is assumed.

pub mod settings;
pub mod view;

pub mod demand;
pub mod marks;

pub mod ledger;
pub mod limits;
pub mod reason;

pub mod group;
pub mod machine_set;
pub mod pool;

pub mod controller;
pub mod shapes;
pub mod stock;

pub mod effects;
pub mod subsystem;

#[cfg(test)]
mod tests;

pub use controller::Scaling;
pub use settings::{Backend, Limits, PoolKind, Settings};
pub use shapes::Shapes;
pub use stock::Stock;
