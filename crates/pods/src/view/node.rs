//! Nodes.

use gantry_reconcile::{Meta, Resource, View};
use jiff::Timestamp;
use serde::Deserialize;

use super::{Amounts, Truth};

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: NodeSpec,
    /// What is.
    pub status: NodeStatus,
}

impl View for Node {
    const RESOURCE: Resource = Resource::namespaced("", "v1", "nodes", "Node").cluster_wide();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Node {
    /// One of its conditions.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&NodeCondition> {
        self.status.conditions.iter().find(|it| it.kind == kind)
    }

    /// Whether it says it can take pods.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|it| it.status == Truth::True)
    }

    /// Whether it reports that it is not ready, or has stopped reporting. A node that has not reported yet
    /// is neither ready nor this.
    #[must_use]
    pub fn is_not_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|it| it.status != Truth::True)
    }
}

/// What is wanted of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Whether new pods stay away.
    pub unschedulable: bool,
    /// What keeps pods away.
    pub taints: Vec<Taint>,
    /// The addresses of its pods.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
}

/// What keeps pods away from a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Its name.
    pub key: String,
    /// Its value.
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
    /// Since when.
    pub time_added: Option<Timestamp>,
}

/// What a taint does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum TaintEffect {
    /// New pods stay away.
    #[default]
    NoSchedule,
    /// New pods rather stay away.
    PreferNoSchedule,
    /// New pods stay away and those there go.
    NoExecute,
}

impl TaintEffect {
    /// As objects spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// What is true of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// What it has for pods.
    pub allocatable: Amounts,
    /// What it has in all.
    pub capacity: Amounts,
    /// What is true of it.
    pub conditions: Vec<NodeCondition>,
    /// Where it is reached.
    pub addresses: Vec<Address>,
    /// What it is.
    pub node_info: NodeInfo,
    /// `Running` once it is there.
    pub phase: String,
}

/// What a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfo {
    /// Its processor, as Go names it.
    pub architecture: String,
    /// Which of its starts this is.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// What runs containers.
    pub container_runtime_version: String,
    /// The release of its kernel.
    pub kernel_version: String,
    /// The version of the proxy that no longer says so.
    pub kube_proxy_version: String,
    /// The version of its kubelet.
    pub kubelet_version: String,
    /// Which machine it is.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// Its system, as Go names it.
    pub operating_system: String,
    /// Its system, as people name it.
    pub os_image: String,
    /// Which machine it is, by its firmware.
    #[serde(rename = "systemUUID")]
    pub system_uuid: String,
}

/// Where a node is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Address {
    /// `InternalIP`, `Hostname`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The address.
    pub address: String,
}

/// Something that is true, false or not known of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    /// What.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether.
    pub status: Truth,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
    /// When the node last said so.
    pub last_heartbeat_time: Option<Timestamp>,
    /// Since when.
    pub last_transition_time: Option<Timestamp>,
}
