//! Groups of pretended nodes: what a cluster on one machine can have more of.
//!
//! A group is a ConfigMap beside the ledger:
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
//!     {"metadata": {"labels": {"node.kubernetes.io/instance-type": "gpu"}, "annotations": {…}}, "spec": {}}
//! ```
//!
//! Nodes that are declared are never touched: only what was made for a job is taken away.

use std::sync::Arc;

use gantry_reconcile::{Fence, Key, Plan, View as _, World, Write};
use serde_json::{Value, json};

use crate::ledger::{Grant, Ledger, Lot};
use crate::marks::{self, GRANT, Marks, OWNER};
use crate::reason::Reason;
use crate::view::{ConfigMap, Node, is_ready, marked_nodes};

/// The label of a ConfigMap that is a group.
pub const GROUP: &str = "gantry.dev/node-group";

/// The label of a node that says what type it is.
pub(crate) const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// A group of nodes that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The type of its nodes.
    pub instance: String,
    /// The most nodes that are added.
    pub most: u32,
    /// A node of it, but for its name.
    pub(crate) node: Value,
}

impl Group {
    /// Reads a group; nothing if it is none that can be read.
    #[must_use]
    pub fn read(object: &ConfigMap) -> Option<Self> {
        if !object.metadata.labels.contains_key(GROUP) || object.metadata.is_going() {
            return None;
        }
        let node: Value = serde_json::from_str(object.data.get("node")?).ok()?;
        if !node["metadata"].is_object() {
            return None;
        }
        let instance = node["metadata"]["labels"][INSTANCE_TYPE].as_str();
        let instance = instance.unwrap_or(&object.metadata.name).to_owned();
        let most = object.data.get("max")?.trim().parse().ok()?;
        Some(Self { name: object.metadata.name.clone(), instance, most, node })
    }
}

/// The group with this name, beside the ledger.
fn group(world: &World, beside: &Key, name: &str) -> Option<Group> {
    world.shelf::<ConfigMap>().get(&beside.beside(name)).and_then(|it| Group::read(&it))
}

/// Nodes from the group of a type.
pub(crate) fn add(
    world: &World,
    ledger: &Ledger,
    beside: &Key,
    (instance, missing): (&str, u32),
) -> Result<Vec<Lot>, Reason> {
    let objects = world.shelf::<ConfigMap>().within(beside.namespace());
    let group = objects.iter().filter_map(|it| Group::read(it)).find(|it| it.instance == instance);
    let instance = instance.to_owned();
    let Some(group) = group else {
        return Err(Reason::NoSource { instance, source: "node group" });
    };
    if ledger.at(&group.name).saturating_add(missing) > group.most {
        return Err(Reason::GroupFull { group: group.name, most: group.most });
    }
    Ok(vec![Lot { instance, count: missing, place: group.name }])
}

/// Makes true what was granted. Returns how many nodes are ready.
///
/// # Errors
/// What keeps it from being made true.
pub(crate) fn provide(
    world: &World,
    beside: &Key,
    job: &Key,
    grant: &Grant,
    plan: &mut Plan,
) -> Result<u32, Reason> {
    let marks = Marks::of(job);
    let names = |lot: &Lot| {
        (0..lot.count).map(|number| marks::node(&lot.place, &grant.id, number)).collect::<Vec<_>>()
    };
    let wanted: Vec<(&Lot, String)> =
        grant.lots.iter().flat_map(|lot| names(lot).into_iter().map(move |it| (lot, it))).collect();
    for node in nodes(world, &marks) {
        if !wanted.iter().any(|(_, name)| *name == node.metadata.name) {
            remove(&node, plan);
        }
    }
    let mut ready = 0;
    for (lot, name) in &wanted {
        match world.shelf::<Node>().get(&Key::cluster(name)) {
            Some(node) if is_mine(&node, &marks) => ready += u32::from(is_ready(&node)),
            Some(_) => return Err(Reason::NameTaken { kind: "node", name: name.clone() }),
            None => {
                let Some(group) = group(world, beside, &lot.place) else {
                    let instance = lot.instance.clone();
                    return Err(Reason::NoSource { instance, source: "node group" });
                };
                let body = node(&group, name, &marks, grant);
                plan.write(Write::Create { resource: Node::RESOURCE, body });
            }
        }
    }
    Ok(ready)
}

/// Takes the nodes of a job away. Returns whether none are left.
pub(crate) fn give_back(world: &World, job: &Key, plan: &mut Plan) -> bool {
    let nodes = nodes(world, &Marks::of(job));
    nodes.iter().for_each(|node| remove(node, plan));
    nodes.is_empty()
}

/// The grant that the nodes of a job were made for.
pub(crate) fn grant_of(world: &World, job: &Key) -> Option<String> {
    let nodes = nodes(world, &Marks::of(job));
    nodes.iter().find_map(|node| node.metadata.labels.get(GRANT).cloned())
}

/// What there is for a job. The nodes say which group they are of by their names alone.
pub(crate) fn found(world: &World, beside: &Key, job: &Key) -> Vec<Lot> {
    let objects = world.shelf::<ConfigMap>().within(beside.namespace());
    let groups = objects.iter().filter_map(|it| Group::read(it));
    let nodes = nodes(world, &Marks::of(job));
    let of = |node: &Node, group: &Group| {
        node.metadata.labels.get(INSTANCE_TYPE) == Some(&group.instance)
    };
    let lots = groups.map(|group| {
        let count = nodes.iter().filter(|node| of(node, &group)).count();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Lot { instance: group.instance.clone(), count, place: group.name }
    });
    lots.filter(|lot| lot.count > 0).collect()
}

fn nodes(world: &World, marks: &Marks) -> Vec<Arc<Node>> {
    let mut nodes = marked_nodes(world, &marks.mine);
    nodes.retain(|node| is_mine(node, marks));
    nodes
}

/// Whether a node was made for the job. The label alone may be anybody's.
fn is_mine(node: &Node, marks: &Marks) -> bool {
    node.metadata.annotations.get(OWNER) == Some(&marks.owner)
}

fn node(group: &Group, name: &str, marks: &Marks, grant: &Grant) -> Value {
    let mut node = group.node.clone();
    let metadata = &mut node["metadata"];
    metadata["name"] = json!(name);
    for field in ["labels", "annotations"] {
        if !metadata[field].is_object() {
            metadata[field] = json!({});
        }
    }
    metadata["labels"]["kubernetes.io/hostname"] = json!(name);
    metadata["labels"][INSTANCE_TYPE] = json!(group.instance);
    metadata["labels"][GRANT] = json!(grant.id);
    for (key, value) in marks.labels() {
        metadata["labels"][key] = json!(value);
    }
    metadata["annotations"][OWNER] = json!(marks.owner);
    node
}

fn remove(node: &Node, plan: &mut Plan) {
    if !node.metadata.is_going() {
        plan.write(Write::Delete {
            resource: Node::RESOURCE,
            key: node.metadata.key(),
            // Right whatever else has changed about it.
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
            let labels = if labelled { json!({GROUP: "true"}) } else { json!({}) };
            let object = json!({"metadata": {"name": "x", "namespace": "n", "labels": labels}, "data": data});
            let object: ConfigMap = serde_json::from_value(object).unwrap();
            let found = Group::read(&object);
            assert_eq!(found.as_ref().map(|it| (it.instance.as_str(), it.most)), expected, "{why}");
        }
    }
}
