//! Pods.

use std::collections::BTreeMap;

use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{Meta, Resource, View, Write};
use jiff::Timestamp;
use serde::Deserialize;

use super::{
    Affinity, EnvFrom, EnvVar, Lifecycle, PodResourceClaim, PodResourceClaimStatus, Probe,
    ResourceList, SecurityContext, TerminationMessagePolicy, Toleration, TopologySpreadConstraint,
    UsedVolumeClaim, Volume, VolumeMount,
};

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: PodSpec,
    /// The observed state.
    pub status: PodStatus,
}

impl View for Pod {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "pods", "Pod");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        let owner = match self.metadata.controller() {
            Some(owner) => IndexValue::owner(&owner.uid),
            None => Self::unowned_tag(&self.metadata.namespace),
        };
        let job = self.metadata.labels.get(Self::APP_WRAPPER_LABEL);
        let job = job.map(|name| Self::app_wrapper_tag(&self.metadata.namespace, name));
        let namespace = &self.metadata.namespace;
        let claims = self.volume_claims().map(|it| Self::volume_claim_tag(namespace, &it.claim));
        let tags = [owner, Self::node_tag(&self.spec.node_name)].into_iter().chain(job);
        tags.chain(claims).collect()
    }

    /// A pod that was bound to a node is there, whatever the watch still shows: the next decision
    /// relies on it.
    fn after(&self, write: &Write) -> Option<Self> {
        match write {
            Write::Bind { uid, node, annotations, .. } if *uid == self.metadata.uid => {
                let mut pod = self.clone();
                pod.spec.node_name.clone_from(node);
                pod.metadata.annotations.extend(annotations.clone());
                Some(pod)
            }
            Write::Bind { .. }
            | Write::Evict { .. }
            | Write::Create { .. }
            | Write::Merge { .. }
            | Write::Apply { .. }
            | Write::Delete { .. } => None,
        }
    }
}

impl Pod {
    /// The label that names the AppWrapper a pod belongs to.
    pub const APP_WRAPPER_LABEL: &str = "appwrapper.mcad.ibm.com";

    /// Returns the index value of the pods of an AppWrapper.
    #[must_use]
    pub fn app_wrapper_tag(namespace: &str, name: &str) -> IndexValue {
        IndexValue { index: "appwrapper", value: format!("{namespace}/{name}") }
    }

    /// Returns the index value of the pods on a node; pods without a node have the empty name.
    #[must_use]
    pub fn node_tag(node: &str) -> IndexValue {
        IndexValue { index: "node", value: node.to_owned() }
    }

    /// Returns the index value of the pods of a namespace that have no controller.
    #[must_use]
    pub fn unowned_tag(namespace: &str) -> IndexValue {
        IndexValue { index: "orphan", value: namespace.to_owned() }
    }

    /// Returns one of its conditions.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|it| it.kind == kind)
    }

    /// Whether its `Ready` condition is true.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|it| it.status == ConditionStatus::True)
    }

    /// Returns since when it has been ready for `seconds`; `Err` says when that will be, `None`
    /// that it is not ready.
    #[must_use]
    pub fn available_since(
        &self,
        seconds: i64,
        now: Timestamp,
    ) -> Option<Result<Timestamp, Timestamp>> {
        let ready = self.condition("Ready").filter(|it| it.status == ConditionStatus::True)?;
        let since = ready.last_transition_time.unwrap_or(now);
        let from = since.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(since);
        Some(if from <= now { Ok(from) } else { Err(from) })
    }

    /// Whether it has succeeded or failed.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Returns the PersistentVolumeClaims it uses, in the order of its volumes.
    pub fn volume_claims(&self) -> impl Iterator<Item = UsedVolumeClaim<'_>> {
        self.spec.volumes.iter().filter_map(|volume| {
            let (claim, ephemeral) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(source), _) => (source.claim_name.as_str().into(), false),
                (None, Some(_)) => (format!("{}-{}", self.metadata.name, volume.name).into(), true),
                (None, None) => return None,
            };
            Some(UsedVolumeClaim { volume: &volume.name, claim, ephemeral })
        })
    }

    /// Returns the index value of the pods that use a PersistentVolumeClaim.
    #[must_use]
    pub fn volume_claim_tag(namespace: &str, claim: &str) -> IndexValue {
        IndexValue { index: "claim", value: format!("{namespace}/{claim}") }
    }
}

/// The spec of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is bound to; empty until then.
    pub node_name: String,
    /// Its containers.
    pub containers: Vec<Container>,
    /// Containers that run before the others, or beside them with restart policy `Always`.
    pub init_containers: Vec<Container>,
    /// The taints it tolerates.
    pub tolerations: Vec<Toleration>,
    /// Labels its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Its affinity to nodes and other pods.
    pub affinity: Affinity,
    /// What must be removed before it is scheduled.
    pub scheduling_gates: Vec<NameReference>,
    /// The scheduler that binds it to a node.
    pub scheduler_name: String,
    /// Its priority.
    pub priority: i32,
    /// Whether it may preempt other pods: `Never` or `PreemptLowerPriority`.
    pub preemption_policy: String,
    /// What happens when a container ends.
    pub restart_policy: RestartPolicy,
    /// Whether it has the node's address.
    pub host_network: bool,
    /// How long it may take to end, in seconds.
    pub termination_grace_period_seconds: Option<i64>,
    /// How long it may run, in seconds.
    pub active_deadline_seconds: Option<i64>,
    /// Conditions beside its containers that make it ready.
    pub readiness_gates: Vec<ReadinessGate>,
    /// What it needs beside its containers.
    pub overhead: ResourceList,
    /// What it needs as a whole, if that is given.
    pub resources: ResourceRequirements,
    /// How it spreads with similar pods.
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Its host name.
    pub hostname: String,
    /// The headless service that its host name is below.
    pub subdomain: String,
    /// Its volumes.
    pub volumes: Vec<Volume>,
    /// The ResourceClaims its containers use, by their names in the pod.
    pub resource_claims: Vec<PodResourceClaim>,
    /// The service account it runs as.
    pub service_account_name: String,
}

/// A condition that must be true for a pod to be ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReadinessGate {
    /// The condition.
    pub condition_type: String,
}

/// A reference of which only the name matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NameReference {
    /// The name.
    pub name: String,
}

/// What happens when a container ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum RestartPolicy {
    /// It is restarted.
    #[default]
    Always,
    /// It is restarted if it failed.
    OnFailure,
    /// It is not restarted.
    Never,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// The entrypoint, if not the image's own.
    pub command: Vec<String>,
    /// The arguments of the entrypoint.
    pub args: Vec<String>,
    /// Its environment.
    pub env: Vec<EnvVar>,
    /// `Always` for a sidecar, which starts before the others and keeps running.
    pub restart_policy: Option<RestartPolicy>,
    /// Its resource requests and limits.
    pub resources: ResourceRequirements,
    /// The ports it listens on.
    pub ports: Vec<ContainerPort>,
    /// ConfigMaps and Secrets whose keys become environment variables.
    pub env_from: Vec<EnvFrom>,
    /// Where volumes are mounted.
    pub volume_mounts: Vec<VolumeMount>,
    /// The probe that decides whether it has started.
    pub startup_probe: Option<Box<Probe>>,
    /// The probe that decides whether it is ready.
    pub readiness_probe: Option<Box<Probe>>,
    /// The probe that decides whether it must be restarted.
    pub liveness_probe: Option<Box<Probe>>,
    /// The hooks after its start and before its end.
    pub lifecycle: Option<Box<Lifecycle>>,
    /// The path of the file with its termination message.
    pub termination_message_path: String,
    /// Where else the termination message is read from.
    pub termination_message_policy: TerminationMessagePolicy,
    /// What it may do on its node.
    pub security_context: Option<Box<SecurityContext>>,
}

/// Resource requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceRequirements {
    /// The minimum amounts.
    pub requests: ResourceList,
    /// The maximum amounts.
    pub limits: ResourceList,
    /// The ResourceClaims of the pod that it uses.
    pub claims: Vec<ContainerClaim>,
}

/// A ResourceClaim that a container uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerClaim {
    /// The claim, by its name in the pod.
    pub name: String,
    /// The request of the claim, if not all of it.
    pub request: String,
}

/// A port that a container listens on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// The name of the port.
    pub name: String,
    /// The port of the pod.
    pub container_port: i32,
    /// The port of the node; zero for none.
    pub host_port: i32,
    /// The node's address it listens on; empty for all.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// The status of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Its phase.
    pub phase: Phase,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// The reason for the phase, in CamelCase.
    pub reason: String,
    /// The reason for the phase, as a sentence.
    pub message: String,
    /// Its IP address.
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    /// All its IP addresses, one per family.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
    /// Its node's IP address.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// When its kubelet acknowledged it.
    pub start_time: Option<Timestamp>,
    /// The node on which other pods are preempted for it.
    pub nominated_node_name: String,
    /// The statuses of its containers.
    pub container_statuses: Vec<ContainerStatus>,
    /// The statuses of its init containers.
    pub init_container_statuses: Vec<ContainerStatus>,
    /// The generation of the pod that its kubelet has observed.
    pub observed_generation: Option<i64>,
    /// The claims that were created from templates.
    pub resource_claim_statuses: Vec<PodResourceClaimStatus>,
}

/// An address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodIp {
    /// The address.
    pub ip: String,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum Phase {
    /// Not all of its containers have started.
    #[default]
    Pending,
    /// All of its containers have started.
    Running,
    /// All containers have ended with success.
    Succeeded,
    /// All containers have ended, at least one with failure.
    Failed,
    /// Its node does not report.
    Unknown,
}

impl Phase {
    /// Returns the name as objects spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition of an object: something that is true, false or unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// The type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The reason, as a sentence.
    pub message: String,
    /// When the status last changed.
    pub last_transition_time: Option<Timestamp>,
    /// When it was last written, where that is given.
    pub last_update_time: Option<Timestamp>,
    /// The generation of the object it is about, where that is given.
    pub observed_generation: Option<i64>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// It is unknown.
    #[default]
    #[serde(other)]
    Unknown,
}

impl ConditionStatus {
    /// Returns the name as objects spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// The status of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// The digest of the image.
    #[serde(rename = "imageID")]
    pub image_id: String,
    /// The ID of the current run.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// Whether its startup probe has succeeded.
    pub started: bool,
    /// Whether it is ready.
    pub ready: bool,
    /// How often it was restarted.
    pub restart_count: i64,
    /// Its current state.
    pub state: ContainerState,
    /// The state of its previous run.
    pub last_state: ContainerState,
}

/// The state of a container: one of these, or none yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It waits.
    pub waiting: Option<ContainerStateWaiting>,
    /// It runs.
    pub running: Option<ContainerStateRunning>,
    /// It has ended.
    pub terminated: Option<ContainerStateTerminated>,
}

/// Why a container does not run yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerStateWaiting {
    /// The reason, in CamelCase.
    pub reason: String,
    /// The reason, as a sentence.
    pub message: String,
}

/// The state of a running container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStateRunning {
    /// When it started.
    pub started_at: Option<Timestamp>,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStateTerminated {
    /// Its exit code; zero is success.
    pub exit_code: i64,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The ID of the run that ended.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Its termination message.
    pub message: String,
}
