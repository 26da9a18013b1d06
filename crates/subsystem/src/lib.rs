//! What a subsystem is made of: settings, rights, controllers, ways to the outside, pages.
//!
//! Each subsystem describes itself once, as one [`Subsystem`] in its own crate. `gantry up`, `gantry operator`,
//! the status page, `config/operator`, the chart, the configuration reference, `gantry explain` and `gantry
//! gather` are made from one list of them; adding a subsystem is adding a row to that list.

pub mod settings;

pub mod access;
pub mod admission;
pub mod descriptor;
pub mod explain;
pub mod start;

pub use access::{Grant, Membership, Reach, rule};
pub use descriptor::{ControllerSwitch, Feature, SettingsSection, Subsystem};
pub use start::{Host, Identity, Parts, Setup, StartError, Starting};
