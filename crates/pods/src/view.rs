//! Typed views of pods, nodes and namespaces, with only the fields that a controller decides by.

mod budget;
mod claims;
mod container;
mod int_or_percent;
mod namespace;
mod node;
mod placement;
mod pod;
mod security_context;

pub use budget::{BudgetSpec, BudgetStatus, PodDisruptionBudget};
pub use claims::{
    EmptyDir, EphemeralVolumeSource, HostPath, PersistentVolumeClaimSource, PodResourceClaim,
    PodResourceClaimStatus, UsedVolumeClaim, Volume,
};
pub use container::{
    ConfigMapVolumeSource, DownwardApiVolumeFile, DownwardApiVolumeSource, EnvFrom, EnvVar,
    EnvVarSource, Exec, FieldRef, Grpc, Handler, HttpGet, HttpHeader, KeySelector, KeyToPath,
    Lifecycle, ObjectRef, PortName, Probe, ProjectedObject, ProjectedVolumeSource,
    ResourceFieldRef, SecretVolumeSource, ServiceAccountTokenProjection, Sleep, TcpSocket,
    TerminationMessagePolicy, VolumeMount, VolumeProjection,
};
pub use int_or_percent::{IntOrPercent, Rounding};
pub use namespace::{Namespace, NamespaceStatus};
pub use node::{
    Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint, TaintEffect,
};
pub use placement::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PodAffinity, PodAffinityTerm,
    PreferredSchedulingTerm, Toleration, TopologySpreadConstraint, WeightedPodAffinityTerm,
};
pub use pod::{
    Condition, ConditionStatus, Container, ContainerPort, ContainerState, ContainerStateRunning,
    ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, NameReference, Phase, Pod,
    PodIp, PodSpec, PodStatus, ReadinessGate, ResourceRequirements, RestartPolicy,
};
pub use security_context::{Capabilities, SecurityContext};

use std::collections::BTreeMap;

use gantry_api::quantity::Quantity;

/// Quantities by resource name: `cpu`, `memory`, `example.com/gpu`.
pub type ResourceList = BTreeMap<String, Quantity>;
