//! Schedules pods that claim devices, and keeps the allocation ledgers of device pools.
//!
//! The commit point is the ledger in the status of each pool. A device is allocated to a pod when
//! the pod's claim says so, and a claim says so only after the ledgers do; both are written with
//! the resource version they were decided on. Between the two writes a process may die, lose a
//! response or compete with another one that believes it is the leader: every step follows from the
//! observed objects, so the next process continues or reverts it.
//!
//! One rule about time makes that safe. A claim records when it last gained or lost its devices
//! (its horizon), and an entry in a ledger records when it was written. A claim is given devices
//! only on entries younger than its horizon, and an entry is removed only when it is not younger
//! than the horizon and not what the claim has. So a controller that wants to remove an entry must
//! first move the horizon of the claim, and from then on every write that was decided on the older
//! claim conflicts.
//!
//! [`Scheduler`] decides about all pending pods together, because they compete;
//! [`ReleaseController`] releases devices, claim by claim; [`LedgerReconciler`] reconciles ledgers,
//! pool by pool; [`PodAnnotator`] annotates pods with their devices; [`GateController`] handles
//! pods that another scheduler binds; [`ClassStatusController`] and [`DriverStatusController`]
//! write the statuses of classes and drivers. [`admission`] answers the admission webhooks of the
//! API server. [`ConfigInquiry`] decides which objects that configure devices must be read, and
//! [`effects`] reads them.

mod allocation_ledger;
mod claim;
mod condition;
mod config;
mod pod_claims;
mod views;

pub mod admission;

mod ledger_reconciler;
mod pod_annotations;
mod release;
mod scheduler;
mod scheduling_gate;
mod status_controllers;

pub mod effects;
pub mod subsystem;

#[cfg(test)]
mod tests;

pub use config::{CONFIG_LABEL, ConfigInquiry, ConfigObject, DeviceConfigReference, ReferencedBy};
pub use ledger_reconciler::LedgerReconciler;
pub use pod_annotations::PodAnnotator;
pub use release::ReleaseController;
pub use scheduler::{AdminQuota, SCHEDULER_NAME, Scheduler};
pub use scheduling_gate::{GateController, SCHEDULING_GATE};
pub use status_controllers::{ClassStatusController, DriverStatusController};
pub use views::{DeviceKind, DeviceObject, ResourceQuota};
