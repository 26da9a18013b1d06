//! Operations on the nodes of a running cluster.

use gantry_reconcile::{Fence, Subresource, View, Write};
use serde_json::{Value, json};

use super::NodeShape;
use crate::kubelet::annotation;
use crate::view::Node;

/// Adds the nodes of a shape to the existing ones: the numbering continues.
#[must_use]
pub fn add(shape: &NodeShape, nodes: &[impl AsRef<Node>]) -> Vec<Write> {
    let number = |it: &Node| {
        let rest = it.metadata.name.strip_prefix(&shape.name)?.strip_prefix('-')?;
        rest.parse::<u32>().ok()
    };
    let next = nodes.iter().filter_map(|it| number(it.as_ref())).max();
    let next = next.map_or(0, |it| it.saturating_add(1));
    shape.create_writes(next..next.saturating_add(shape.count))
}

/// Cordons a node.
#[must_use]
pub fn cordon(node: &Node) -> Write {
    node_patch(node, json!({"spec": {"unschedulable": true}}))
}

/// Uncordons a node.
#[must_use]
pub fn uncordon(node: &Node) -> Write {
    node_patch(node, json!({"spec": {"unschedulable": null}}))
}

/// Powers a node off: its heartbeats stop, and its pods stay as they are.
#[must_use]
pub fn power_off(node: &Node) -> Write {
    node_patch(node, json!({"metadata": {"annotations": {annotation::NODE_POWER: "down"}}}))
}

/// Powers a node on.
#[must_use]
pub fn power_on(node: &Node) -> Write {
    node_patch(node, json!({"metadata": {"annotations": {annotation::NODE_POWER: null}}}))
}

/// Reboots a node with another kernel.
#[must_use]
pub fn upgrade_kernel(node: &Node, release: &str) -> Write {
    node_patch(node, json!({"metadata": {"annotations": {annotation::KERNEL: release}}}))
}

/// Deletes a node. Its pods are deleted when the deletion is observed.
#[must_use]
pub fn remove(node: &Node) -> Write {
    Write::Delete {
        resource: Node::RESOURCE,
        key: node.metadata.key(),
        fence: Fence { uid: node.metadata.uid.clone(), revision: None },
        grace: None,
        propagation: None,
    }
}

fn node_patch(node: &Node, body: Value) -> Write {
    Write::Merge {
        resource: Node::RESOURCE,
        key: node.metadata.key(),
        subresource: Subresource::Main,
        // Right whatever else has changed about the node.
        fence: Fence { uid: node.metadata.uid.clone(), revision: None },
        body,
    }
}
