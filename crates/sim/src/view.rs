//! What the controllers here read of each kind.
//!
//! Only what somebody decides by. Templates of pods are kept as they are, because they are copied.

mod budget;
mod controller_revision;
mod cron_job;
mod daemon_set;
mod deployment;
mod job;
mod lease;
mod namespace;
mod node;
mod placement;
mod pod;
mod program;
mod replica_set;
mod service;
mod share;
mod stateful_set;

pub use budget::{BudgetSpec, BudgetStatus, PodDisruptionBudget};
pub use controller_revision::ControllerRevision;
pub use cron_job::{ConcurrencyPolicy, CronJob, CronJobSpec, CronJobStatus, JobReference};
pub use daemon_set::{DaemonSet, DaemonSetSpec, DaemonSetStatus, DaemonStrategy};
pub use deployment::{
    Deployment, DeploymentSpec, DeploymentStatus, Picked, RollingUpdate, Strategy, StrategyKind,
};
pub use job::{
    ConditionPattern, ExitCodes, FailureAction, Job, JobCondition, JobSpec, JobStatus,
    PodFailurePolicy, PodFailureRule, SuccessPolicy, SuccessRule, Uncounted,
};
pub use lease::{Lease, LeaseSpec};
pub use namespace::{ConfigMap, Namespace, NamespaceStatus, ServiceAccount};
pub use node::{Address, Node, NodeCondition, NodeInfo, NodeSpec, NodeStatus, Taint, TaintEffect};
pub use placement::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PodAffinity, PodAffinityTerm,
    Preferred, SpreadConstraint, Toleration, Weighted,
};
pub use pod::{
    Condition, Container, ContainerState, ContainerStatus, Named, Phase, Pod, PodAddress, PodSpec,
    PodStatus, Port, ReadinessGate, Resources, RestartPolicy, Running, Terminated, Truth, Variable,
    Waiting,
};
pub use program::{Program, ProgramState};
pub use replica_set::{ReplicaSet, ReplicaSetSpec, ReplicaSetStatus};
pub use service::{
    Endpoint, EndpointConditions, EndpointPort, EndpointSlice, Endpoints, Service, ServicePort,
    ServiceSpec, Subset, SubsetAddress, TargetPort, TargetRef,
};
pub use share::{Rounding, Share};
pub use stateful_set::{
    Management, Ordinals, Partition, PersistentVolumeClaim, Retention, RetentionPolicy,
    StatefulSet, StatefulSetSpec, StatefulSetStatus, UpdateKind, UpdateStrategy,
};

use std::collections::BTreeMap;

use gantry_api::quantity::Quantity;

/// Amounts by the name of what is counted: `cpu`, `memory`, `example.com/gpu`.
pub type Amounts = BTreeMap<String, Quantity>;
