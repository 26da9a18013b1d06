//! The controllers of `apps/v1`: deployments, replica sets, stateful sets and daemon sets; and that of
//! the replication controllers of `v1`.
//!
//! Each observes what concerns one object and plans from that alone. None remembers what it asked
//! for: the world shows our own writes at once, pods are made under names that follow from what the
//! plan was made from, and everything else is fenced. So a lost answer leads to the same writes
//! again, and those are refused as already done.

use gantry_reconcile::{Controller, Note, Reference, Step};

mod births;
mod claim;
mod conditions;
mod revisions;
mod template;
mod writes;

mod daemon_set;
mod deployment;
mod replica_set;
mod stateful_set;

pub use daemon_set::DaemonSets;
pub use deployment::Deployments;
pub use replica_set::{ReplicaSets, ReplicationControllers};
pub use stateful_set::StatefulSets;

/// The most pods one plan makes or removes. More in one go would keep everybody else waiting; the
/// rest is planned at once after that.
const MOST: usize = 500;

/// As whom the controllers here write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The controller's name, as [`Controller::name`] has it.
    pub controller: &'static str,
    /// The service account in namespace `kube-system`.
    pub account: &'static str,
    /// The manager that `metadata.managedFields` names.
    pub manager: &'static str,
}

/// Who writes for which controller.
pub const ACTORS: [Actor; 5] = [
    Actor::new("daemonset", "daemon-set-controller"),
    Actor::new("deployment", "deployment-controller"),
    Actor::new("replicaset", "replicaset-controller"),
    Actor::new("replicationcontroller", "replication-controller"),
    Actor::new("statefulset", "statefulset-controller"),
];

impl Actor {
    const fn new(controller: &'static str, account: &'static str) -> Self {
        Self { controller, account, manager: "kube-controller-manager" }
    }
}

/// All of them.
#[must_use]
pub fn controllers() -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(DaemonSets),
        Box::new(Deployments),
        Box::new(ReplicaSets),
        Box::new(ReplicationControllers),
        Box::new(StatefulSets),
    ]
}

/// A write about a pod that is told as the original controllers tell it.
fn told(step: Step, about: &Reference, what: Told, name: &str) -> Step {
    let (done, message, refused, error) = match what {
        Told::Create => ("SuccessfulCreate", "Created", "FailedCreate", "Error creating"),
        Told::Delete => ("SuccessfulDelete", "Deleted", "FailedDelete", "Error deleting"),
    };
    step.done(Note::normal(about.clone(), done, format!("{message} pod: {name}")))
        .refused(Note::warning(about.clone(), refused, error.to_owned()))
}

/// What happens to a pod.
#[derive(Clone, Copy, Debug)]
enum Told {
    Create,
    Delete,
}

#[cfg(test)]
mod convergence;
