//! Nodes.

use gantry_reconcile::{Meta, Resource, View};
use jiff::Timestamp;
use serde::Deserialize;

use super::{ConditionStatus, ResourceList};

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: NodeSpec,
    /// The observed state.
    pub status: NodeStatus,
}

impl View for Node {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "nodes", "Node").cluster_scoped();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Node {
    /// Returns one of its conditions.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&NodeCondition> {
        self.status.conditions.iter().find(|it| it.kind == kind)
    }

    /// Whether its `Ready` condition is true.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|it| it.status == ConditionStatus::True)
    }

    /// Whether it reports that it is not ready, or has stopped reporting. A node that has not
    /// reported yet is neither ready nor this.
    #[must_use]
    pub fn is_not_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|it| it.status != ConditionStatus::True)
    }
}

/// The spec of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Whether it is cordoned: new pods are not scheduled there.
    pub unschedulable: bool,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// The CIDR of its pods' addresses.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Its effect.
    pub effect: TaintEffect,
    /// When it was added.
    pub time_added: Option<Timestamp>,
}

/// The effect of a taint on pods that do not tolerate it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum TaintEffect {
    /// New pods are not scheduled there.
    #[default]
    NoSchedule,
    /// New pods are scheduled elsewhere if possible.
    PreferNoSchedule,
    /// New pods are not scheduled there, and running pods are evicted.
    NoExecute,
}

impl TaintEffect {
    /// Returns the name as objects spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// The status of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// The resources available for pods.
    pub allocatable: ResourceList,
    /// The resources it has in all.
    pub capacity: ResourceList,
    /// Its conditions.
    pub conditions: Vec<NodeCondition>,
    /// Its addresses.
    pub addresses: Vec<NodeAddress>,
    /// Its system information.
    pub node_info: NodeSystemInfo,
    /// `Running` once it is there.
    pub phase: String,
}

/// The system information of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSystemInfo {
    /// Its CPU architecture, as Go names it.
    pub architecture: String,
    /// The ID of its current boot.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// The name and version of its container runtime.
    pub container_runtime_version: String,
    /// The release of its kernel.
    pub kernel_version: String,
    /// The version of kube-proxy, which no longer reports it.
    pub kube_proxy_version: String,
    /// The version of its kubelet.
    pub kubelet_version: String,
    /// Its machine ID.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// Its operating system, as Go names it.
    pub operating_system: String,
    /// The name of its operating system image.
    pub os_image: String,
    /// Its system UUID, from the firmware.
    #[serde(rename = "systemUUID")]
    pub system_uuid: String,
}

/// An address of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    /// `InternalIP`, `Hostname`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The address.
    pub address: String,
}

/// A condition of a node: something that is true, false or unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    /// The type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The reason, as a sentence.
    pub message: String,
    /// When the node last reported it.
    pub last_heartbeat_time: Option<Timestamp>,
    /// When the status last changed.
    pub last_transition_time: Option<Timestamp>,
}
