//! What is done to the nodes of a running cluster.

use gantry_reconcile::{Fence, Part, View, Write};
use serde_json::{Value, json};

use super::Shape;
use crate::kubelet::annotation;
use crate::view::Node;

/// Adds the nodes of a shape to those there are: numbers go on where they end.
#[must_use]
pub fn add(shape: &Shape, nodes: &[impl AsRef<Node>]) -> Vec<Write> {
    let number = |it: &Node| {
        let rest = it.metadata.name.strip_prefix(&shape.name)?.strip_prefix('-')?;
        rest.parse::<u32>().ok()
    };
    let next = nodes.iter().filter_map(|it| number(it.as_ref())).max();
    let next = next.map_or(0, |it| it.saturating_add(1));
    shape.makes(next..next.saturating_add(shape.count))
}

/// Keeps new pods away from a node.
#[must_use]
pub fn cordon(node: &Node) -> Write {
    merge(node, json!({"spec": {"unschedulable": true}}))
}

/// Lets new pods on a node again.
#[must_use]
pub fn uncordon(node: &Node) -> Write {
    merge(node, json!({"spec": {"unschedulable": null}}))
}

/// Takes a node's power away: it falls silent, and its pods stay as they are.
#[must_use]
pub fn kill(node: &Node) -> Write {
    merge(node, json!({"metadata": {"annotations": {annotation::POWER: "down"}}}))
}

/// Gives a node its power back.
#[must_use]
pub fn revive(node: &Node) -> Write {
    merge(node, json!({"metadata": {"annotations": {annotation::POWER: null}}}))
}

/// Starts a node anew with another kernel.
#[must_use]
pub fn upgrade_kernel(node: &Node, release: &str) -> Write {
    merge(node, json!({"metadata": {"annotations": {annotation::KERNEL: release}}}))
}

/// Takes a node away. Its pods go when it is noticed.
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

fn merge(node: &Node, body: Value) -> Write {
    Write::Merge {
        resource: Node::RESOURCE,
        key: node.metadata.key(),
        part: Part::Main,
        // Right whatever else has changed about it.
        fence: Fence { uid: node.metadata.uid.clone(), revision: None },
        body,
    }
}
