//! The parts of a subsystem: settings, permissions, controllers, clients, explanations.
//!
//! Each subsystem describes itself once, as one [`Subsystem`] in its own crate. `gantry up`,
//! `gantry operator`, the status page, `config/operator`, the chart, the configuration reference,
//! `gantry explain` and `gantry gather` are derived from one list of them; adding a subsystem is
//! adding a row to that list.

pub mod settings;

pub mod access;
pub mod admission;
pub mod descriptor;
pub mod explain;
pub mod start;

pub use access::{Grant, GrantBinding, GrantScope, rule};
pub use descriptor::{ControllerSwitch, Feature, SettingsSection, Subsystem};
pub use start::{Host, Identity, Setup, StartError, StartFuture, SubsystemComponents};
