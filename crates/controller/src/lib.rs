//! The runtime that controllers run in: caches, work queues, fenced writes, calls, inquiries,
//! leases and retries.
//!
//! A [`Controller`](gantry_reconcile::Controller) only decides; everything else it needs is here,
//! once for the whole process. A [`cache`] per kind keeps the [`World`](gantry_reconcile::World) in
//! sync with the server. Each change enqueues the keys that the controllers return, each key at
//! most once ([`work_queue`]). A worker plans a key, and the [`writer`] executes the plan, fenced
//! by the objects it was planned from and by the [`lease`]. Events are written by [`events`], and
//! held reasons are kept in [`held_reasons`]. [`external`] connects to systems outside the API.
//! [`run`] puts it all together.
//!
//! There is one code path for a real cluster and for the server in the same process: a
//! `kube::Client`, made by [`transport`] for either.
//!
//! This crate knows no particular kind, and polls nothing that can be watched.

pub mod transport;

mod api_request;
pub mod discovery;
pub mod rate;
pub mod read;
pub mod retry;

pub mod cache;
pub mod subscribers;
pub mod work_queue;

pub mod external;
pub mod lease;
pub mod writer;

pub mod events;
pub mod held_reasons;
pub mod metrics;

pub mod run;

pub use cache::Filter;
pub use external::ExternalSystems;
pub use held_reasons::HeldReasons;
pub use lease::Permit;
pub use metrics::ControllerMetrics;
pub use run::{
    Actor, ControllerManager, ManagerError, ManagerHandle, ManagerOptions, ManagerStopped,
    Registration,
};
