//! What is read of objects.

use std::collections::BTreeMap;
use std::sync::Arc;

pub use gantry_pods::app_wrapper::{AppWrapper, NODES, ORDERED_INSTANCE, SHAPES};
pub use gantry_pods::view::Node;
use gantry_reconcile::world::Tag;
use gantry_reconcile::{Change, Key, Meta, Resource, View, World};
use serde::Deserialize;
use serde_json::Value;

/// A number of equal machines. What is wanted is kept as it is, because copies are made of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MachineSet {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: Value,
    /// What is.
    pub status: MachineSetStatus,
}

/// How many machines of a set there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSetStatus {
    /// How many there are.
    pub replicas: i64,
    /// Which wish this answers to.
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
    /// How many machines are wanted; one if nothing is said, as the machine API has it.
    #[must_use]
    pub fn replicas(&self) -> i64 {
        self.spec["replicas"].as_i64().unwrap_or(1)
    }
}

/// The label of a machine that says which set it is of.
pub const SET_LABEL: &str = "machine.openshift.io/cluster-api-machineset";
/// The annotation of a machine that goes before others when its set becomes smaller.
pub const DELETE_FIRST: &str = "machine.openshift.io/cluster-api-delete-machine";

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Metadata.
    pub metadata: Meta,
    /// What is.
    pub status: MachineStatus,
}

/// What is true of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// `Provisioning`, `Provisioned`, `Running`, `Deleting`, `Failed`.
    pub phase: String,
    /// Its node.
    pub node_ref: Option<NodeRef>,
}

/// Which node a machine is.
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

    fn tags(&self) -> Vec<Tag> {
        let set = self.metadata.labels.get(SET_LABEL);
        set.map(|set| Self::of_set(&Key::new(&self.metadata.namespace, set))).into_iter().collect()
    }
}

impl Machine {
    /// What the machines of a set are filed under.
    #[must_use]
    pub fn of_set(set: &Key) -> Tag {
        Tag { index: "set", value: set.to_string() }
    }

    /// Whether it is there, or will be.
    #[must_use]
    pub fn stays(&self) -> bool {
        !self.metadata.is_going() && self.status.phase != "Deleting"
    }

    /// Whether it is in use.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.stays() && self.status.phase == "Running"
    }

    /// Whether it goes before others when its set becomes smaller.
    #[must_use]
    pub fn goes_first(&self) -> bool {
        self.metadata.annotations.contains_key(DELETE_FIRST)
    }
}

/// The nodes with a mark: a label whose value is its key.
#[must_use]
pub fn marked_nodes(world: &World, mark: &str) -> Vec<Arc<Node>> {
    let mut nodes = world.shelf::<Node>().all();
    nodes.retain(|node| node.metadata.labels.get(mark).is_some_and(|value| value == mark));
    nodes
}

/// Whether a node can take pods.
#[must_use]
pub fn is_ready(node: &Node) -> bool {
    node.is_ready() && !node.metadata.is_going()
}

/// Whether a node only says that it lives, as it does every few seconds.
#[must_use]
pub fn only_lives(change: &Change) -> bool {
    match (change.before::<Node>(), change.after::<Node>()) {
        (Some(before), Some(after)) => {
            before.metadata.labels == after.metadata.labels && is_ready(before) == is_ready(after)
        }
        _ => false,
    }
}

/// Texts by name: the ledger, and groups of pretended nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ConfigMap {
    /// Metadata.
    pub metadata: Meta,
    /// The texts.
    pub data: BTreeMap<String, String>,
}

impl View for ConfigMap {
    const RESOURCE: Resource =
        Resource::namespaced("", "v1", "configmaps", "ConfigMap").without_status();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
