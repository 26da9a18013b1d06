//! Pretend nodes, a scheduler and the workload controllers of Kubernetes.
//!
//! What a real cluster does between an object and a running pod is done here by controllers in the
//! words of crate `reconcile`: each looks at views of objects ([`view`]) and answers with a plan.
//! What a pretend container says is kept in [`logs`], and what runs in it on demand is [`shell`].

mod lot;
#[cfg(test)]
mod stand;
pub mod view;

pub mod autoscaling;
pub mod batch;
pub mod certificates;
pub mod device_driver;
pub mod disruption;
pub mod effects;
pub mod kubelet;
pub mod logs;
pub mod members;
pub mod namespaces;
pub mod node_lifecycle;
pub mod pod_config;
pub mod pod_gc;
pub mod programs;
pub mod resource_claims;
pub mod rights;
pub mod scheduler;
pub mod services;
pub mod shape;
pub mod shell;
pub mod storage;
pub mod subsystem;
pub mod usage;
pub mod workloads;

pub use members::{Brief, Member, members};
