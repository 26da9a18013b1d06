//! The controllers of `apps/v1`: deployments, replica sets, stateful sets and daemon sets; and that
//! of the replication controllers of `v1`.
//!
//! Each observes what affects one object and plans from that alone. None remembers earlier writes:
//! the world includes own writes immediately, pods are created under names that follow from the
//! inputs of the plan, and everything else is fenced. So a lost response leads to the same writes
//! again, and those are rejected as already done.

use gantry_reconcile::{Controller, Event, ObjectReference, Step};

mod claim;
mod conditions;
mod pod_names;
mod revisions;
mod template;
mod writes;

mod daemon_set;
mod deployment;
mod replica_set;
mod stateful_set;

pub use daemon_set::DaemonSetController;
pub use deployment::DeploymentController;
pub use replica_set::{ReplicaSetController, ReplicationManager};
pub use stateful_set::StatefulSetController;

/// The most pods one plan creates or deletes. More in one plan would delay all other objects; the
/// rest is planned right after it.
const MAX_WRITES_PER_PLAN: usize = 500;

/// The account under which a controller writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerAccount {
    /// The controller's name, as [`Controller::name`] has it.
    pub controller: &'static str,
    /// The service account in namespace `kube-system`.
    pub account: &'static str,
    /// The field manager in `metadata.managedFields`.
    pub manager: &'static str,
}

/// The account of each controller.
pub const CONTROLLER_ACCOUNTS: [ControllerAccount; 5] = [
    ControllerAccount::new("daemonset", "daemon-set-controller"),
    ControllerAccount::new("deployment", "deployment-controller"),
    ControllerAccount::new("replicaset", "replicaset-controller"),
    ControllerAccount::new("replicationcontroller", "replication-controller"),
    ControllerAccount::new("statefulset", "statefulset-controller"),
];

impl ControllerAccount {
    const fn new(controller: &'static str, account: &'static str) -> Self {
        Self { controller, account, manager: "kube-controller-manager" }
    }
}

/// Returns all controllers of this module.
#[must_use]
pub fn controllers() -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(DaemonSetController),
        Box::new(DeploymentController),
        Box::new(ReplicaSetController),
        Box::new(ReplicationManager),
        Box::new(StatefulSetController),
    ]
}

/// A write about a pod with the events of the original controllers.
fn with_events(step: Step, about: &ObjectReference, what: PodChange, name: &str) -> Step {
    let (done, message, refused, error) = match what {
        PodChange::Create => ("SuccessfulCreate", "Created", "FailedCreate", "Error creating"),
        PodChange::Delete => ("SuccessfulDelete", "Deleted", "FailedDelete", "Error deleting"),
    };
    step.on_success(Event::normal(about.clone(), done, format!("{message} pod: {name}")))
        .on_refusal(Event::warning(about.clone(), refused, error.to_owned()))
}

/// The kind of change of a pod.
#[derive(Clone, Copy, Debug)]
enum PodChange {
    Create,
    Delete,
}

#[cfg(test)]
mod convergence;
