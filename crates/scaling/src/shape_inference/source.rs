//! The node shapes that could be added, and what each of them has.
//!
//! The best model of a node is an existing one. Where there is none of a type, declarations count:
//! the annotations of a MachineSet that the cluster autoscaler reads to scale from zero, or the
//! node that a group declares. Nothing is bought of a type for which neither is known.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_pods::view::{NodeSpec, NodeStatus};
use gantry_queue::node_shape::{NodeShape, RejectedShape};
use gantry_reconcile::{Key, Meta, World};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::grant_record::Grant;
use crate::machine_set::instance_type;
use crate::node_group::{INSTANCE_TYPE_LABEL, NodeGroup};
use crate::owner_labels::{COPY_LABEL, GRANT_LABEL, OwnerLabels};
use crate::pool;
use crate::settings::{Backend, Settings};
use crate::view::{ConfigMap, MachineSet, Node, is_ready};

/// The annotation of a MachineSet with the number of processors of a machine.
const CPU_ANNOTATION: &str = "machine.openshift.io/vCPU";
/// The annotation of a MachineSet with the memory of a machine, in units of 2^20 bytes.
const MEMORY_ANNOTATION: &str = "machine.openshift.io/memoryMb";
/// The annotation of a MachineSet with the number of GPUs of a machine.
const GPU_ANNOTATION: &str = "machine.openshift.io/GPU";
/// The annotation of a MachineSet with further labels of its nodes.
const LABELS_ANNOTATION: &str = "capacity.cluster-autoscaler.kubernetes.io/labels";

/// The annotations of simulated nodes: what such a node has for pods, and what it has in all.
const SIMULATED_NODE_ANNOTATIONS: [&str; 2] =
    ["gantry.dev/sim-allocatable", "gantry.dev/sim-capacity"];

/// Nodes of one type of which more could be added.
struct NodeSource {
    instance: String,
    /// How many more a job may have.
    max_count: u32,
    /// A sample node, as far as it is declared.
    declared: Option<Node>,
    /// The remedy where neither that nor an existing node is known.
    remedy: &'static str,
}

/// Returns the shapes of nodes that could be added for a job, and the types of which nothing is
/// known.
pub(super) fn shapes(
    world: &World,
    settings: &Settings,
    job: &Key,
    grant: Option<&Grant>,
) -> (Vec<NodeShape>, Vec<RejectedShape>) {
    let (mut shapes, mut unknown) = (Vec::new(), Vec::new());
    for source in sources(world, settings, grant) {
        let NodeSource { instance, max_count: most, declared, remedy } = source;
        let there = existing_nodes(world, &instance);
        let like = there.first().map(|it| it.metadata.name.clone());
        let Some(mut node) = common_model(&there).or(declared) else {
            let why = format!("the resources of its nodes are not known; {remedy}");
            unknown.push(RejectedShape { shape: instance, why });
            continue;
        };
        // They will have these labels when they are bought for the job, and pods may select them.
        let marks = OwnerLabels::of(job);
        let own = marks.labels().into_iter().chain([(INSTANCE_TYPE_LABEL, instance.as_str())]);
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        node.metadata.labels.extend(own);
        shapes.push(NodeShape { name: instance, node, existing_node: like, max_count: most });
    }
    (shapes, unknown)
}

/// Returns what the back end could buy besides what was granted.
fn sources(world: &World, settings: &Settings, grant: Option<&Grant>) -> Vec<NodeSource> {
    let limit = settings.limits.max_nodes.saturating_sub(grant.map_or(0, Grant::total));
    match settings.backend {
        Backend::Reuse | Backend::Duplicate => {
            let mut types: BTreeMap<String, Vec<Arc<MachineSet>>> = BTreeMap::new();
            for set in world.store::<MachineSet>().list() {
                let usable =
                    !set.metadata.labels.contains_key(COPY_LABEL) && !set.metadata.is_terminating();
                match instance_type(&set) {
                    Ok(instance) if usable && !instance.is_empty() => {
                        types.entry(instance.to_owned()).or_default().push(set);
                    }
                    Ok(_) | Err(_) => {}
                }
            }
            let source = |(instance, sets): (String, Vec<Arc<MachineSet>>)| NodeSource {
                instance,
                max_count: limit,
                declared: declared_by(&sets),
                remedy: "give its MachineSet the annotations machine.openshift.io/vCPU and \
                         machine.openshift.io/memoryMb",
            };
            types.into_iter().map(source).collect()
        }
        Backend::Pools(_) => {
            let source = |instance| NodeSource {
                instance,
                max_count: limit,
                declared: None,
                remedy: "one node of a pool must be there and be ready",
            };
            pool::listed_types(world).into_iter().map(source).collect()
        }
        Backend::Groups => {
            let objects =
                world.store::<ConfigMap>().in_namespace(settings.grant_record.namespace());
            let mut sources: Vec<NodeSource> = Vec::new();
            for group in objects.iter().filter_map(|it| NodeGroup::read(it)) {
                let has = grant.map_or(0, |it| it.count_from(&group.name));
                // The first group of a type provides its nodes.
                if sources.iter().all(|it| it.instance != group.instance_type) {
                    sources.push(NodeSource {
                        declared: declared_in(&group),
                        max_count: group.max_nodes.saturating_sub(has).min(limit),
                        instance: group.instance_type,
                        remedy: "give the node of its group the annotation gantry.dev/sim-capacity",
                    });
                }
            }
            sources
        }
    }
}

/// Returns the nodes of a type that accept pods, in order of their names.
fn existing_nodes(world: &World, instance: &str) -> Vec<Arc<Node>> {
    let mut nodes = world.store::<Node>().list();
    nodes.retain(|node| {
        let of_type =
            node.metadata.labels.get(INSTANCE_TYPE_LABEL).is_some_and(|it| it == instance);
        of_type && is_ready(node) && !node.spec.unschedulable
    });
    nodes
}

/// Returns what existing nodes have in common. What one has for pods, all have.
fn common_model(nodes: &[Arc<Node>]) -> Option<Node> {
    let (first, others) = nodes.split_first()?;
    let mut labels = first.metadata.labels.clone();
    labels.retain(|key, value| {
        // Nodes bought for a job have a label whose value is its key.
        let is_mark = key == value || key == GRANT_LABEL;
        !is_mark && others.iter().all(|it| it.metadata.labels.get(key) == Some(value))
    });
    let mut taints = first.spec.taints.clone();
    // These describe the condition of the node, and not its shape.
    taints.retain(|it| !it.key.starts_with("node.kubernetes.io/"));
    Some(Node {
        metadata: Meta { labels, ..Meta::default() },
        spec: NodeSpec { taints, ..NodeSpec::default() },
        status: NodeStatus {
            allocatable: first.status.allocatable.clone(),
            ..NodeStatus::default()
        },
    })
}

/// Returns what MachineSets of one type declare. Which of them provides a node is not known before,
/// so only labels count that all of them give.
fn declared_by(sets: &[Arc<MachineSet>]) -> Option<Node> {
    let (first, others) = sets.split_first()?;
    let said = |name: &str| first.metadata.annotations.get(name).map(|it| it.trim().to_owned());
    let mut allocatable =
        json!({"cpu": said(CPU_ANNOTATION)?, "memory": format!("{}Mi", said(MEMORY_ANNOTATION)?)});
    if let Some(count) = said(GPU_ANNOTATION).filter(|it| it != "0") {
        allocatable["nvidia.com/gpu"] = json!(count);
    }
    let mut labels = labels_of(first);
    labels.retain(|key, value| others.iter().all(|it| labels_of(it).get(key) == Some(value)));
    let taints = &first.spec["template"]["spec"]["taints"];
    let taints = if taints.is_null() { json!([]) } else { taints.clone() };
    let node = json!({
        "metadata": {"labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": allocatable},
    });
    // Invalid amounts and invalid taints declare nothing.
    Node::deserialize(node).ok()
}

/// Returns the labels that nodes of a set have.
fn labels_of(set: &MachineSet) -> BTreeMap<String, String> {
    let fields = set.spec["template"]["spec"]["metadata"]["labels"].as_object();
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    let mut labels: BTreeMap<String, String> =
        fields.into_iter().flatten().filter_map(text).collect();
    let more =
        set.metadata.annotations.get(LABELS_ANNOTATION).map(String::as_str).unwrap_or_default();
    let more = more.split(',').filter_map(|it| it.trim().split_once('='));
    labels.extend(more.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}

/// Returns what a group of simulated nodes declares.
fn declared_in(group: &NodeGroup) -> Option<Node> {
    let mut node = group.node.clone();
    let annotations = &node["metadata"]["annotations"];
    let said = SIMULATED_NODE_ANNOTATIONS.iter().find_map(|it| annotations[*it].as_str());
    let said: Option<Value> = said.and_then(|it| serde_json::from_str(it).ok());
    if let Some(said) = said {
        node["status"] = json!({"allocatable": said});
    }
    if node["status"]["allocatable"].is_null() {
        return None;
    }
    Node::deserialize(node).ok()
}

#[cfg(test)]
mod tests;
