//! What controllers read of pods, nodes and namespaces: only what somebody decides by.

mod budget;
mod claims;
mod container;
mod namespace;
mod node;
mod placement;
mod pod;
mod share;

pub use budget::{BudgetSpec, BudgetStatus, PodDisruptionBudget};
pub use claims::{
    ClaimSource, EmptyDir, EphemeralSource, PodResourceClaim, PodResourceClaimStatus, UsedClaim,
    Volume,
};
pub use container::{
    Action, ConfigMapVolume, DownwardFile, DownwardVolume, EnvFrom, Exec, FieldRef, Grpc, HttpGet,
    HttpHeader, KeyPath, KeyRef, Lifecycle, ObjectRef, PortName, Probe, ProjectedObject,
    ProjectedVolume, Projection, ResourceFieldRef, SecretVolume, Sleep, TcpSocket,
    TerminationMessagePolicy, TokenFile, Variable, VariableSource, VolumeMount,
};
pub use namespace::{Namespace, NamespaceStatus};
pub use node::{Address, Node, NodeCondition, NodeInfo, NodeSpec, NodeStatus, Taint, TaintEffect};
pub use placement::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PodAffinity, PodAffinityTerm,
    Preferred, SpreadConstraint, Toleration, Weighted,
};
pub use pod::{
    Condition, Container, ContainerState, ContainerStatus, Named, Phase, Pod, PodAddress, PodSpec,
    PodStatus, Port, ReadinessGate, Resources, RestartPolicy, Running, Terminated, Truth, Waiting,
};
pub use share::{Rounding, Share};

use std::collections::BTreeMap;

use gantry_api::quantity::Quantity;

/// Amounts by the name of what is counted: `cpu`, `memory`, `example.com/gpu`.
pub type Amounts = BTreeMap<String, Quantity>;
