//! What the controllers here read of each kind.
//!
//! Only what somebody decides by. Templates of pods are kept as they are, because they are copied.

mod autoscaler;
mod certificate_signing_request;
mod controller_revision;
mod cron_job;
mod daemon_set;
mod deployment;
mod job;
mod lease;
mod namespace;
mod program;
mod replica_set;
mod resource_claim;
mod service;
mod source;
mod stateful_set;
mod storage;

pub use gantry_pods::view::{
    Action, Address, Affinity, Amounts, BudgetSpec, BudgetStatus, ClaimSource, Condition,
    ConfigMapVolume, Container, ContainerState, ContainerStatus, DownwardFile, DownwardVolume,
    EmptyDir, EnvFrom, EphemeralSource, Exec, FieldRef, Grpc, HttpGet, HttpHeader, KeyPath, KeyRef,
    Lifecycle, Named, Namespace, NamespaceStatus, Node, NodeAffinity, NodeCondition, NodeInfo,
    NodeSelector, NodeSelectorTerm, NodeSpec, NodeStatus, ObjectRef, Phase, Pod, PodAddress,
    PodAffinity, PodAffinityTerm, PodDisruptionBudget, PodResourceClaim, PodResourceClaimStatus,
    PodSpec, PodStatus, Port, PortName, Preferred, Probe, ProjectedObject, ProjectedVolume,
    Projection, ReadinessGate, ResourceFieldRef, Resources, RestartPolicy, Rounding, Running,
    SecretVolume, Share, Sleep, SpreadConstraint, Taint, TaintEffect, TcpSocket, Terminated,
    TerminationMessagePolicy, TokenFile, Toleration, Truth, UsedClaim, Variable, VariableSource,
    Volume, VolumeMount, Waiting, Weighted,
};

pub use autoscaler::{
    AutoscalerSpec, AutoscalerStatus, AutoscalerTarget, Behavior, HorizontalPodAutoscaler,
    MetricSpec, MetricTarget, ResourceMetric, Scale, ScaleTarget, ScalingPolicy, ScalingRules,
    TargetScale,
};
pub use certificate_signing_request::{
    CertificateSigningRequest, CertificateSigningRequestSpec, CertificateSigningRequestStatus,
};
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
pub use namespace::{ConfigMap, ServiceAccount};
pub use program::{
    ContainerKey, FailedHook, Hook, ProbeKey, ProbeKind, ProbeResult, ProbeVerdict, Program,
    ProgramState, probes_of, programs_of,
};
pub use replica_set::{ReplicaSet, ReplicaSetSpec, ReplicaSetStatus, ReplicationController};
pub use resource_claim::{
    AllocatedDevice, AllocatedDevices, AllocationResult, ClaimConsumer, DeviceClaim, DeviceClass,
    DeviceRequest, DeviceSubRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec,
    ResourceClaimStatus, ResourceClaimTemplate,
};
pub use service::{
    Endpoint, EndpointConditions, EndpointPort, EndpointSlice, Endpoints, Service, ServicePort,
    ServiceSpec, Subset, SubsetAddress, TargetPort, TargetRef,
};
pub use source::{SourceKey, SourceKind, SourceObject};
pub use stateful_set::{
    Management, Ordinals, Partition, Retention, RetentionPolicy, StatefulSet, StatefulSetSpec,
    StatefulSetStatus, UpdateKind, UpdateStrategy,
};
pub use storage::{
    BindingMode, ClaimReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
    PersistentVolumeStatus, ReclaimPolicy, StorageClass, VolumeClaimSpec, VolumeClaimStatus,
    VolumeNodeAffinity,
};
