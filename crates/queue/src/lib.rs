//! Decides which AppWrappers run now, which quota each is charged to, and which are preempted.
//!
//! No object of an AppWrapper is created before all of them are believed to fit. Two controllers do
//! the work, and both keep all their state in the API objects:
//!
//! - [`admission_cycle::Dispatch`] decides about the whole queue at once: which AppWrappers are
//!   admitted, which stay pending, and why.
//! - [`progress::Progress`] reconciles each AppWrapper: it creates the items of an admitted one,
//!   counts its pods, and detects when it has finished or must be evicted.
//!
//! [`node_shape::ShapeChooser`] names the node shapes that would let an AppWrapper fit for which
//! the cluster lacks free capacity.
//!
//! With [`quota`] trees, admitted AppWrappers are charged to tree nodes, and AppWrappers that
//! borrowed quota are preempted when its owner needs it; [`quota_status`] reports to administrators
//! what was allocated. [`quota_leaf`] checks which AppWrappers may use which leaf of a tree.
//!
//! Where authors must be allowed to create what they wrap, [`author`] records the author, and
//! [`access`] holds what is known of the author's permissions.
//!
//! Questions to the API server are asked as inquiries ([`kind_discovery`], [`access`]); the module
//! [`effects`] answers them, and is the only one that uses a client and a runtime. The states and
//! the transitions between them are in [`state`]; `docs/specs/queue.md` defines them.

pub mod access;
pub mod amounts;
pub mod app_wrapper;
pub mod author;
pub mod condition;
pub mod demand;
pub mod gang;
pub mod kind_discovery;
pub mod pod_sets;
pub mod privilege;
pub mod settings;
pub mod wrapped;

pub mod quota;
pub mod quota_status;

pub mod admission_cycle;
pub mod app_wrapper_report;
pub mod availability;
pub mod backoff;
pub mod capacity;
pub mod charge;
mod claims;
pub mod fair_share;
pub mod head_of_line;
pub mod listing;
pub mod node_shape;
pub mod order;
mod packing;
pub mod preemption;
mod queue_cache;
pub mod queue_events;
pub mod queue_report;
pub mod quota_leaf;

pub mod completion;
pub mod deadline;
pub mod item_objects;
pub mod pod_counts;
pub mod progress;
pub mod requeue;
pub mod state;
pub mod status;
pub mod unreachable;

pub mod effects;
pub mod subsystem;

#[cfg(test)]
mod scenarios;

pub use admission_cycle::Dispatch;
pub use progress::Progress;
pub use settings::{Inference, LiveSettings, Settings, UserAccess};
