//! Pods.

use std::collections::BTreeMap;

use gantry_reconcile::world::Tag;
use gantry_reconcile::{Meta, Resource, View, Write};
use jiff::Timestamp;
use serde::Deserialize;

use super::{
    Affinity, Amounts, EnvFrom, Lifecycle, PodResourceClaim, PodResourceClaimStatus, Probe,
    SpreadConstraint, TerminationMessagePolicy, Toleration, UsedClaim, Variable, Volume,
    VolumeMount,
};

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: PodSpec,
    /// What is.
    pub status: PodStatus,
}

impl View for Pod {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "pods", "Pod");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn tags(&self) -> Vec<Tag> {
        let owner = match self.metadata.controller() {
            Some(owner) => Tag::owner(&owner.uid),
            None => Self::without_owner(&self.metadata.namespace),
        };
        let job = self.metadata.labels.get(Self::APP_WRAPPER);
        let job = job.map(|name| Self::of_app_wrapper(&self.metadata.namespace, name));
        let namespace = &self.metadata.namespace;
        let claims = self.used_claims().map(|it| Self::using_claim(namespace, &it.claim));
        let tags = [owner, Self::on_node(&self.spec.node_name)].into_iter().chain(job);
        tags.chain(claims).collect()
    }

    /// A pod that was given to a node is there, whatever the watch still shows: the next decision
    /// counts on it.
    fn after(&self, write: &Write) -> Option<Self> {
        match write {
            Write::Bind { uid, node, annotations, .. } if *uid == self.metadata.uid => {
                let mut pod = self.clone();
                pod.spec.node_name.clone_from(node);
                pod.metadata.annotations.extend(annotations.clone());
                Some(pod)
            }
            Write::Bind { .. }
            | Write::Create { .. }
            | Write::Merge { .. }
            | Write::Apply { .. }
            | Write::Delete { .. } => None,
        }
    }
}

impl Pod {
    /// The label that says which AppWrapper a pod belongs to.
    pub const APP_WRAPPER: &str = "appwrapper.mcad.ibm.com";

    /// What the pods of an AppWrapper are filed under.
    #[must_use]
    pub fn of_app_wrapper(namespace: &str, name: &str) -> Tag {
        Tag { index: "appwrapper", value: format!("{namespace}/{name}") }
    }

    /// What the pods on a node are filed under; those on none are under the empty name.
    #[must_use]
    pub fn on_node(node: &str) -> Tag {
        Tag { index: "node", value: node.to_owned() }
    }

    /// What the pods of a namespace that nobody controls are filed under.
    #[must_use]
    pub fn without_owner(namespace: &str) -> Tag {
        Tag { index: "orphan", value: namespace.to_owned() }
    }

    /// One of its conditions.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|it| it.kind == kind)
    }

    /// Whether it says it can do its work.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|it| it.status == Truth::True)
    }

    /// Since when it has been ready for `seconds`; `Err` says when that will be, `None` that it is
    /// not ready.
    #[must_use]
    pub fn available_since(
        &self,
        seconds: i64,
        now: Timestamp,
    ) -> Option<Result<Timestamp, Timestamp>> {
        let ready = self.condition("Ready").filter(|it| it.status == Truth::True)?;
        let since = ready.last_transition_time.unwrap_or(now);
        let from = since.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(since);
        Some(if from <= now { Ok(from) } else { Err(from) })
    }

    /// Whether it has ended, well or badly.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.status.phase, Phase::Succeeded | Phase::Failed)
    }

    /// The PersistentVolumeClaims it uses, in the order of its volumes.
    pub fn used_claims(&self) -> impl Iterator<Item = UsedClaim<'_>> {
        self.spec.volumes.iter().filter_map(|volume| {
            let (claim, ephemeral) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(source), _) => (source.claim_name.as_str().into(), false),
                (None, Some(_)) => (format!("{}-{}", self.metadata.name, volume.name).into(), true),
                (None, None) => return None,
            };
            Some(UsedClaim { volume: &volume.name, claim, ephemeral })
        })
    }

    /// What the pods that use a PersistentVolumeClaim are filed under.
    #[must_use]
    pub fn using_claim(namespace: &str, claim: &str) -> Tag {
        Tag { index: "claim", value: format!("{namespace}/{claim}") }
    }
}

/// What is wanted of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is given to; empty until then.
    pub node_name: String,
    /// What runs.
    pub containers: Vec<Container>,
    /// What runs before, or beside when it restarts always.
    pub init_containers: Vec<Container>,
    /// Taints it puts up with.
    pub tolerations: Vec<Toleration>,
    /// Labels its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Where it wants to be.
    pub affinity: Affinity,
    /// What must be removed before it is given to a node.
    pub scheduling_gates: Vec<Named>,
    /// Who gives it to a node.
    pub scheduler_name: String,
    /// How important it is.
    pub priority: i32,
    /// Whether others may be pushed out for it: `Never` or `PreemptLowerPriority`.
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
    pub overhead: Amounts,
    /// What it needs as a whole, when that is said.
    pub resources: Resources,
    /// How it spreads with others of its kind.
    pub topology_spread_constraints: Vec<SpreadConstraint>,
    /// Its name on the network.
    pub hostname: String,
    /// The headless service that name is below.
    pub subdomain: String,
    /// Its volumes.
    pub volumes: Vec<Volume>,
    /// The ResourceClaims its containers use, by names of its own.
    pub resource_claims: Vec<PodResourceClaim>,
    /// The account it acts as.
    pub service_account_name: String,
}

/// A condition that must be true for a pod to be ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReadinessGate {
    /// The condition.
    pub condition_type: String,
}

/// Something of which only the name matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Named {
    /// The name.
    pub name: String,
}

/// What happens when a container ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum RestartPolicy {
    /// It starts again.
    #[default]
    Always,
    /// It starts again if it failed.
    OnFailure,
    /// Nothing.
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
    /// The program, if not the image's own.
    pub command: Vec<String>,
    /// What the program is told.
    pub args: Vec<String>,
    /// Its environment.
    pub env: Vec<Variable>,
    /// `Always` for one that starts before the others and stays.
    pub restart_policy: Option<RestartPolicy>,
    /// What it needs.
    pub resources: Resources,
    /// Where it listens.
    pub ports: Vec<Port>,
    /// Objects whose keys become variables.
    pub env_from: Vec<EnvFrom>,
    /// Where it finds volumes.
    pub volume_mounts: Vec<VolumeMount>,
    /// Whether it has started.
    pub startup_probe: Option<Box<Probe>>,
    /// Whether it is ready.
    pub readiness_probe: Option<Box<Probe>>,
    /// Whether it must be started again.
    pub liveness_probe: Option<Box<Probe>>,
    /// What is done when it starts and before it stops.
    pub lifecycle: Option<Box<Lifecycle>>,
    /// The file of its last words.
    pub termination_message_path: String,
    /// Where else they are found.
    pub termination_message_policy: TerminationMessagePolicy,
}

/// What is needed at least and at most.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// At least.
    pub requests: Amounts,
    /// At most.
    pub limits: Amounts,
}

/// Where a container listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// What others call it.
    pub name: String,
    /// The port of the pod.
    pub container_port: i32,
    /// The port of the node; zero for none.
    pub host_port: i32,
    /// The node's address it takes; empty for all.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// What is true of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// How far it is.
    pub phase: Phase,
    /// What is true of it.
    pub conditions: Vec<Condition>,
    /// Why it is so, in one word.
    pub reason: String,
    /// Why it is so, in a sentence.
    pub message: String,
    /// Its address.
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    /// All its addresses, one per family.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodAddress>,
    /// Its node's address.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// When its node took it on.
    pub start_time: Option<Timestamp>,
    /// The node others are pushed out of for it.
    pub nominated_node_name: String,
    /// Its containers.
    pub container_statuses: Vec<ContainerStatus>,
    /// Its init containers.
    pub init_container_statuses: Vec<ContainerStatus>,
    /// The generation of the pod that its node has seen.
    pub observed_generation: Option<i64>,
    /// The claims that were made from templates.
    pub resource_claim_statuses: Vec<PodResourceClaimStatus>,
}

/// An address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodAddress {
    /// The address.
    pub ip: String,
}

/// How far a pod is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum Phase {
    /// Not all of its containers have started.
    #[default]
    Pending,
    /// They have.
    Running,
    /// All have ended well.
    Succeeded,
    /// All have ended, one of them badly.
    Failed,
    /// Its node does not answer.
    Unknown,
}

impl Phase {
    /// As objects spell it.
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

/// Something that is true, false or not known of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether.
    pub status: Truth,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
    /// Since when.
    pub last_transition_time: Option<Timestamp>,
    /// When it was last written, where that is told.
    pub last_update_time: Option<Timestamp>,
    /// The generation of the object it is about, where that is told.
    pub observed_generation: Option<i64>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum Truth {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Truth {
    /// As objects spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// What is true of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// The image's content.
    #[serde(rename = "imageID")]
    pub image_id: String,
    /// Which of all its runs this is.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// Whether it has begun its work.
    pub started: bool,
    /// Whether it can do its work.
    pub ready: bool,
    /// How often it was started again.
    pub restart_count: i64,
    /// What it does now.
    pub state: ContainerState,
    /// What it did before.
    pub last_state: ContainerState,
}

/// What a container does: one of these, or nothing yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It waits.
    pub waiting: Option<Waiting>,
    /// It runs.
    pub running: Option<Running>,
    /// It has ended.
    pub terminated: Option<Terminated>,
}

/// Why a container does not run yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// In one word.
    pub reason: String,
    /// In a sentence.
    pub message: String,
}

/// Since when a container runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// Since when.
    pub started_at: Option<Timestamp>,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// What it answered; zero is well.
    pub exit_code: i64,
    /// Why, in one word.
    pub reason: String,
    /// Which of its runs it was.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Its last words.
    pub message: String,
}
