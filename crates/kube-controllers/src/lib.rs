//! The workload controllers and the scheduler of Kubernetes.
//!
//! They do what kube-controller-manager and kube-scheduler do between an object and a pod that is
//! bound to a node, as controllers of crate `reconcile`: each reads views of objects ([`view`]) and
//! returns a plan. They know nothing of simulated nodes; what pods use comes from a
//! [`metrics::PodMetrics`].

pub mod deterministic_random;
pub mod status;
pub mod view;

pub mod autoscaling;
pub mod batch;
pub mod certificates;
pub mod controller_set;
pub mod disruption;
pub mod effects;
pub mod metrics;
pub mod namespaces;
pub mod node_lifecycle;
pub mod pod_gc;
pub mod rbac;
pub mod resource_claims;
pub mod scheduler;
pub mod services;
pub mod storage;
pub mod workloads;

pub use controller_set::{ClusterController, ControlPlaneSettings, control_plane_controllers};

#[cfg(test)]
mod test_world;
