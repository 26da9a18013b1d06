//! Views of the objects that scaling reads.

use std::collections::BTreeMap;
use std::sync::Arc;

pub use gantry_pods::view::Node;
pub use gantry_queue::app_wrapper::{
    AppWrapper, NODES_ANNOTATION, ORDERED_INSTANCE_LABEL, SHAPES_ANNOTATION,
};
use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{Change, Key, Meta, Resource, View, World};
use serde::Deserialize;
use serde_json::Value;

/// A MachineSet. Its spec is kept as it is, because copies are made of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MachineSet {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: Value,
    /// The observed state.
    pub status: MachineSetStatus,
}

/// The status of a MachineSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSetStatus {
    /// How many there are.
    pub replicas: i64,
    /// The generation that the status belongs to.
    pub observed_generation: i64,
}

impl View for MachineSet {
    const RESOURCE: Resource =
        Resource::namespaced("machine.openshift.io", "v1beta1", "machinesets", "MachineSet");

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl MachineSet {
    /// Returns how many machines are desired; one if unset, as in the machine API.
    #[must_use]
    pub fn replicas(&self) -> i64 {
        self.spec["replicas"].as_i64().unwrap_or(1)
    }
}

/// The label of a machine that names its set.
pub const SET_LABEL: &str = "machine.openshift.io/cluster-api-machineset";
/// The annotation of a machine that is deleted before others when its set is scaled down.
pub const DELETE_FIRST: &str = "machine.openshift.io/cluster-api-delete-machine";

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Metadata.
    pub metadata: Meta,
    /// The observed state.
    pub status: MachineStatus,
}

/// The status of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// `Provisioning`, `Provisioned`, `Running`, `Deleting`, `Failed`.
    pub phase: String,
    /// Its node.
    pub node_ref: Option<NodeRef>,
}

/// The reference of a machine to its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeRef {
    /// Its name.
    pub name: String,
}

impl View for Machine {
    const RESOURCE: Resource =
        Resource::namespaced("machine.openshift.io", "v1beta1", "machines", "Machine");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn index_values(&self) -> Vec<IndexValue> {
        let set = self.metadata.labels.get(SET_LABEL);
        set.map(|set| Self::set_tag(&Key::new(&self.metadata.namespace, set))).into_iter().collect()
    }
}

impl Machine {
    /// Returns the index value of the machines of a set.
    #[must_use]
    pub fn set_tag(set: &Key) -> IndexValue {
        IndexValue { index: "set", value: set.to_string() }
    }

    /// Returns whether it exists or is being provisioned.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        !self.metadata.is_terminating() && self.status.phase != "Deleting"
    }

    /// Returns whether it is in use.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.is_kept() && self.status.phase == "Running"
    }

    /// Returns whether it is deleted before others when its set is scaled down.
    #[must_use]
    pub fn is_deleted_first(&self) -> bool {
        self.metadata.annotations.contains_key(DELETE_FIRST)
    }
}

/// Returns the nodes with an owner label: a label whose value is its key.
#[must_use]
pub fn labelled_nodes(world: &World, mark: &str) -> Vec<Arc<Node>> {
    let mut nodes = world.store::<Node>().list();
    nodes.retain(|node| node.metadata.labels.get(mark).is_some_and(|value| value == mark));
    nodes
}

/// Returns whether a node is ready for pods.
#[must_use]
pub fn is_ready(node: &Node) -> bool {
    node.is_ready() && !node.metadata.is_terminating()
}

/// Returns whether a node change is only a heartbeat, which nodes send every few seconds.
#[must_use]
pub fn is_heartbeat(change: &Change) -> bool {
    match (change.before::<Node>(), change.after::<Node>()) {
        (Some(before), Some(after)) => {
            before.metadata.labels == after.metadata.labels && is_ready(before) == is_ready(after)
        }
        _ => false,
    }
}

/// A ConfigMap: the grant record, or a group of simulated nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ConfigMap {
    /// Metadata.
    pub metadata: Meta,
    /// The entries.
    pub data: BTreeMap<String, String>,
}

impl View for ConfigMap {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "configmaps", "ConfigMap").without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
