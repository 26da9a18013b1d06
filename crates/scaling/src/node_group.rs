//! Groups of simulated nodes: the source of more nodes for a cluster on one machine.
//!
//! A group is a ConfigMap in the namespace of the grant record:
//!
//! ```yaml
//! apiVersion: v1
//! kind: ConfigMap
//! metadata:
//!   name: gpu                        # the instance type, unless the node has a label that says it
//!   labels: {gantry.dev/node-group: "true"}
//! data:
//!   max: "4"                         # the most nodes that are added to those there are
//!   node: |                          # the node, but for its name
//!     {"metadata": {"labels": {"node.kubernetes.io/instance-type": "gpu"}, "annotations": {…}},
//!      "spec": {}}
//! ```
//!
//! Declared nodes are never touched: only nodes created for a job are deleted.

use std::sync::Arc;

use gantry_reconcile::{Fence, Key, Plan, View as _, World, Write};
use serde_json::{Value, json};

use crate::grant_record::{Grant, GrantRecord, NodeAllocation};
use crate::owner_labels::{self, GRANT_LABEL, OWNER_ANNOTATION, OwnerLabels};
use crate::reason::Reason;
use crate::view::{ConfigMap, Node, is_ready, labelled_nodes};

/// The label of a ConfigMap that is a group.
pub const NODE_GROUP_LABEL: &str = "gantry.dev/node-group";

/// The label of a node that names its instance type.
pub(crate) const INSTANCE_TYPE_LABEL: &str = "node.kubernetes.io/instance-type";

/// A group of nodes that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeGroup {
    /// Its name.
    pub name: String,
    /// The type of its nodes.
    pub instance_type: String,
    /// The maximum number of nodes that are added.
    pub max_nodes: u32,
    /// A node of the group, without its name.
    pub(crate) node: Value,
}

impl NodeGroup {
    /// Reads a group; `None` if the object is none that can be read.
    #[must_use]
    pub fn read(object: &ConfigMap) -> Option<Self> {
        if !object.metadata.labels.contains_key(NODE_GROUP_LABEL)
            || object.metadata.is_terminating()
        {
            return None;
        }
        let node: Value = serde_json::from_str(object.data.get("node")?).ok()?;
        if !node["metadata"].is_object() {
            return None;
        }
        let instance = node["metadata"]["labels"][INSTANCE_TYPE_LABEL].as_str();
        let instance = instance.unwrap_or(&object.metadata.name).to_owned();
        let most = object.data.get("max")?.trim().parse().ok()?;
        Some(Self {
            name: object.metadata.name.clone(),
            instance_type: instance,
            max_nodes: most,
            node,
        })
    }
}

/// Returns the group with this name, in the namespace of the grant record.
fn find_group(world: &World, beside: &Key, name: &str) -> Option<NodeGroup> {
    world
        .store::<ConfigMap>()
        .get(&beside.in_same_namespace(name))
        .and_then(|it| NodeGroup::read(&it))
}

/// Allocates nodes from the group of a type.
pub(crate) fn allocate(
    world: &World,
    ledger: &GrantRecord,
    beside: &Key,
    (instance, missing): (&str, u32),
) -> Result<Vec<NodeAllocation>, Reason> {
    let objects = world.store::<ConfigMap>().in_namespace(beside.namespace());
    let group =
        objects.iter().filter_map(|it| NodeGroup::read(it)).find(|it| it.instance_type == instance);
    let instance = instance.to_owned();
    let Some(group) = group else {
        return Err(Reason::NoSource { instance, source: "node group" });
    };
    if ledger.granted_from(&group.name).saturating_add(missing) > group.max_nodes {
        return Err(Reason::GroupFull { group: group.name, most: group.max_nodes });
    }
    Ok(vec![NodeAllocation { instance, count: missing, place: group.name }])
}

/// Provisions what was granted. Returns how many nodes are ready.
///
/// # Errors
/// Fails with what prevents that.
pub(crate) fn provide(
    world: &World,
    beside: &Key,
    job: &Key,
    grant: &Grant,
    plan: &mut Plan,
) -> Result<u32, Reason> {
    let marks = OwnerLabels::of(job);
    let names = |lot: &NodeAllocation| {
        (0..lot.count)
            .map(|number| owner_labels::node_name(&lot.place, &grant.id, number))
            .collect::<Vec<_>>()
    };
    let wanted: Vec<(&NodeAllocation, String)> =
        grant.lots.iter().flat_map(|lot| names(lot).into_iter().map(move |it| (lot, it))).collect();
    for node in nodes(world, &marks) {
        if !wanted.iter().any(|(_, name)| *name == node.metadata.name) {
            delete_node(&node, plan);
        }
    }
    let mut ready = 0;
    for (lot, name) in &wanted {
        match world.store::<Node>().get(&Key::cluster(name)) {
            Some(node) if is_owned(&node, &marks) => ready += u32::from(is_ready(&node)),
            Some(_) => return Err(Reason::NameTaken { kind: "node", name: name.clone() }),
            None => {
                let Some(group) = find_group(world, beside, &lot.place) else {
                    let instance = lot.instance.clone();
                    return Err(Reason::NoSource { instance, source: "node group" });
                };
                let body = node_body(&group, name, &marks, grant);
                plan.write(Write::Create { resource: Node::RESOURCE, body });
            }
        }
    }
    Ok(ready)
}

/// Deletes the nodes of a job. Returns whether none are left.
pub(crate) fn release(world: &World, job: &Key, plan: &mut Plan) -> bool {
    let nodes = nodes(world, &OwnerLabels::of(job));
    nodes.iter().for_each(|node| delete_node(node, plan));
    nodes.is_empty()
}

/// Returns the grant that the nodes of a job were created for.
pub(crate) fn grant_of(world: &World, job: &Key) -> Option<String> {
    let nodes = nodes(world, &OwnerLabels::of(job));
    nodes.iter().find_map(|node| node.metadata.labels.get(GRANT_LABEL).cloned())
}

/// Returns what exists for a job. The nodes identify their group by their names alone.
pub(crate) fn existing(world: &World, beside: &Key, job: &Key) -> Vec<NodeAllocation> {
    let objects = world.store::<ConfigMap>().in_namespace(beside.namespace());
    let groups = objects.iter().filter_map(|it| NodeGroup::read(it));
    let nodes = nodes(world, &OwnerLabels::of(job));
    let of = |node: &Node, group: &NodeGroup| {
        node.metadata.labels.get(INSTANCE_TYPE_LABEL) == Some(&group.instance_type)
    };
    let lots = groups.map(|group| {
        let count = nodes.iter().filter(|node| of(node, &group)).count();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        NodeAllocation { instance: group.instance_type.clone(), count, place: group.name }
    });
    lots.filter(|lot| lot.count > 0).collect()
}

fn nodes(world: &World, marks: &OwnerLabels) -> Vec<Arc<Node>> {
    let mut nodes = labelled_nodes(world, &marks.owner_label);
    nodes.retain(|node| is_owned(node, marks));
    nodes
}

/// Returns whether a node was created for the job. Any user could have set the label alone.
fn is_owned(node: &Node, marks: &OwnerLabels) -> bool {
    node.metadata.annotations.get(OWNER_ANNOTATION) == Some(&marks.owner)
}

fn node_body(group: &NodeGroup, name: &str, marks: &OwnerLabels, grant: &Grant) -> Value {
    let mut node = group.node.clone();
    let metadata = &mut node["metadata"];
    metadata["name"] = json!(name);
    for field in ["labels", "annotations"] {
        if !metadata[field].is_object() {
            metadata[field] = json!({});
        }
    }
    metadata["labels"]["kubernetes.io/hostname"] = json!(name);
    metadata["labels"][INSTANCE_TYPE_LABEL] = json!(group.instance_type);
    metadata["labels"][GRANT_LABEL] = json!(grant.id);
    for (key, value) in marks.labels() {
        metadata["labels"][key] = json!(value);
    }
    metadata["annotations"][OWNER_ANNOTATION] = json!(marks.owner);
    node
}

fn delete_node(node: &Node, plan: &mut Plan) {
    if !node.metadata.is_terminating() {
        plan.write(Write::Delete {
            resource: Node::RESOURCE,
            key: node.metadata.key(),
            // Valid whatever else has changed about it.
            fence: Fence { uid: node.metadata.uid.clone(), revision: None },
            grace: None,
            propagation: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_texts() {
        let node = r#"{"metadata":{"labels":{"node.kubernetes.io/instance-type":"g"}}}"#;
        let table = [
            ("a group", true, json!({"max": "4", "node": node}), Some(("g", 4))),
            (
                "by its own name",
                true,
                json!({"max": " 1\n", "node": "{\"metadata\":{}}"}),
                Some(("x", 1)),
            ),
            ("no label", false, json!({"max": "4", "node": node}), None),
            ("no number", true, json!({"max": "many", "node": node}), None),
            ("no node", true, json!({"max": "4"}), None),
            ("nothing that is a node", true, json!({"max": "4", "node": "{}"}), None),
        ];
        for (why, labelled, data, expected) in table {
            let labels = if labelled { json!({NODE_GROUP_LABEL: "true"}) } else { json!({}) };
            let object = json!({"metadata": {"name": "x", "namespace": "n", "labels": labels}, "data": data});
            let object: ConfigMap = serde_json::from_value(object).unwrap();
            let found = NodeGroup::read(&object);
            assert_eq!(
                found.as_ref().map(|it| (it.instance_type.as_str(), it.max_nodes)),
                expected,
                "{why}"
            );
        }
    }
}
