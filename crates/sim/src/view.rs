//! What the controllers here read of each kind.
//!
//! Only what somebody decides by. Templates of pods are kept as they are, because they are copied.

mod controller_revision;
mod daemon_set;
mod deployment;
mod node;
mod placement;
mod pod;
mod replica_set;
mod share;
mod stateful_set;

pub use controller_revision::ControllerRevision;
pub use daemon_set::{DaemonSet, DaemonSetSpec, DaemonSetStatus, DaemonStrategy};
pub use deployment::{
    Deployment, DeploymentSpec, DeploymentStatus, Picked, RollingUpdate, Strategy, StrategyKind,
};
pub use node::{Address, Node, NodeCondition, NodeSpec, NodeStatus, Taint, TaintEffect};
pub use placement::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PodAffinity, PodAffinityTerm,
    Preferred, SpreadConstraint, Toleration, Weighted,
};
pub use pod::{
    Condition, Container, ContainerState, ContainerStatus, Named, Phase, Pod, PodSpec, PodStatus,
    Port, ReadinessGate, Resources, RestartPolicy, Running, Terminated, Truth, Variable, Waiting,
};
pub use replica_set::{ReplicaSet, ReplicaSetSpec, ReplicaSetStatus};
pub use share::{Rounding, Share};
pub use stateful_set::{
    Management, Ordinals, Partition, PersistentVolumeClaim, Retention, RetentionPolicy,
    StatefulSet, StatefulSetSpec, StatefulSetStatus, UpdateKind, UpdateStrategy,
};

use std::collections::BTreeMap;

use gantry_api::quantity::Quantity;

/// Amounts by the name of what is counted: `cpu`, `memory`, `example.com/gpu`.
pub type Amounts = BTreeMap<String, Quantity>;
