//! The views of each kind that the controllers here read.
//!
//! They have only the fields that a controller decides by. Pod templates are kept unparsed, because
//! they are copied.

mod autoscaler;
mod certificate_signing_request;
mod controller_revision;
mod cron_job;
mod daemon_set;
mod deployment;
mod job;
mod lease;
mod namespace;
mod replica_set;
mod resource_claim;
mod service;
mod stateful_set;
mod storage;

pub use gantry_pods::view::{
    Affinity, BudgetSpec, BudgetStatus, Capabilities, Condition, ConditionStatus,
    ConfigMapVolumeSource, Container, ContainerPort, ContainerState, ContainerStateRunning,
    ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, DownwardApiVolumeFile,
    DownwardApiVolumeSource, EmptyDir, EnvFrom, EnvVar, EnvVarSource, EphemeralVolumeSource, Exec,
    FieldRef, Grpc, Handler, HostPath, HttpGet, HttpHeader, IntOrPercent, KeySelector, KeyToPath,
    Lifecycle, NameReference, Namespace, NamespaceStatus, Node, NodeAddress, NodeAffinity,
    NodeCondition, NodeSelector, NodeSelectorTerm, NodeSpec, NodeStatus, NodeSystemInfo, ObjectRef,
    PersistentVolumeClaimSource, Phase, Pod, PodAffinity, PodAffinityTerm, PodDisruptionBudget,
    PodIp, PodResourceClaim, PodResourceClaimStatus, PodSpec, PodStatus, PortName,
    PreferredSchedulingTerm, Probe, ProjectedObject, ProjectedVolumeSource, ReadinessGate,
    ResourceFieldRef, ResourceList, ResourceRequirements, RestartPolicy, Rounding,
    SecretVolumeSource, SecurityContext, ServiceAccountTokenProjection, Sleep, Taint, TaintEffect,
    TcpSocket, TerminationMessagePolicy, Toleration, TopologySpreadConstraint, UsedVolumeClaim,
    Volume, VolumeMount, VolumeProjection, WeightedPodAffinityTerm,
};

pub use autoscaler::{
    AutoscalerBehavior, AutoscalerSpec, AutoscalerStatus, AutoscalerTarget,
    HorizontalPodAutoscaler, MetricSpec, MetricTarget, ResourceMetric, Scale, ScaleTarget,
    ScalingPolicy, ScalingRules, TargetScale,
};
pub use certificate_signing_request::{
    CertificateSigningRequest, CertificateSigningRequestSpec, CertificateSigningRequestStatus,
};
pub use controller_revision::ControllerRevision;
pub use cron_job::{ConcurrencyPolicy, CronJob, CronJobSpec, CronJobStatus, JobReference};
pub use daemon_set::{DaemonSet, DaemonSetSpec, DaemonSetStatus, DaemonSetUpdateStrategy};
pub use deployment::{
    Deployment, DeploymentSpec, DeploymentStatus, DeploymentStrategy, DeploymentStrategyKind,
    ParsedSelector, RollingUpdate,
};
pub use job::{
    ConditionPattern, ExitCodes, Job, JobCondition, JobSpec, JobStatus, PodFailurePolicy,
    PodFailurePolicyAction, PodFailurePolicyRule, SuccessPolicy, SuccessPolicyRule,
    UncountedTerminatedPods,
};
pub use lease::{Lease, LeaseSpec};
pub use namespace::{ConfigMap, ServiceAccount};
pub use replica_set::{ReplicaSet, ReplicaSetSpec, ReplicaSetStatus, ReplicationController};
pub use resource_claim::{
    AllocatedDevice, AllocatedDevices, AllocationResult, ClaimConsumer, DeviceClaim, DeviceClass,
    DeviceRequest, DeviceSubRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec,
    ResourceClaimStatus, ResourceClaimTemplate,
};
pub use service::{
    Endpoint, EndpointAddress, EndpointConditions, EndpointPort, EndpointSlice, EndpointSubset,
    Endpoints, Service, ServicePort, ServiceSpec, TargetPort, TargetRef,
};
pub use stateful_set::{
    ClaimRetention, ClaimRetentionPolicy, Ordinals, PodManagementPolicy, StatefulRollingUpdate,
    StatefulSet, StatefulSetSpec, StatefulSetStatus, StatefulSetUpdateStrategy, UpdateStrategyKind,
};
pub use storage::{
    ClaimReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus, PersistentVolumeSpec, PersistentVolumeStatus, ReclaimPolicy,
    StorageClass, VolumeBindingMode, VolumeNodeAffinity,
};
