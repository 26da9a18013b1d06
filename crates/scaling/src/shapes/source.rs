//! What nodes could be had, and what each of them has.
//!
//! The best model of a node is one that is there. Where there is none of a type, what is declared counts:
//! the annotations of a MachineSet that the cluster autoscaler reads to scale from zero, or the node that a
//! group has written down. Of a type of which neither is known nothing is bought.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_pods::view::{NodeSpec, NodeStatus};
use gantry_queue::shape::{Shape, Useless};
use gantry_reconcile::{Key, Meta, World};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::group::{Group, INSTANCE_TYPE};
use crate::ledger::Grant;
use crate::machine_set::instance_type;
use crate::marks::{COPY, GRANT, Marks};
use crate::pool;
use crate::settings::{Backend, Settings};
use crate::view::{ConfigMap, MachineSet, Node, is_ready};

/// The annotation of a MachineSet: how many processors a machine has.
const CPU: &str = "machine.openshift.io/vCPU";
/// The annotation of a MachineSet: how much memory a machine has, in units of 2^20 bytes.
const MEMORY: &str = "machine.openshift.io/memoryMb";
/// The annotation of a MachineSet: how many GPUs a machine has.
const GPU: &str = "machine.openshift.io/GPU";
/// The annotation of a MachineSet: which labels its nodes have besides.
const LABELS: &str = "capacity.cluster-autoscaler.kubernetes.io/labels";

/// The annotations of pretended nodes: what such a node has for pods, and what it has in all.
const PRETENDED: [&str; 2] = ["gantry.dev/sim-allocatable", "gantry.dev/sim-capacity"];

/// Nodes of one type that more could be had of.
struct Source {
    instance: String,
    /// How many more a job may have.
    most: u32,
    /// A node of it, as far as that is declared.
    declared: Option<Node>,
    /// What to do where neither that nor a node is there.
    remedy: &'static str,
}

/// The shapes of nodes that a job could have more of, and the types of which nothing is known.
pub(super) fn shapes(
    world: &World,
    settings: &Settings,
    job: &Key,
    grant: Option<&Grant>,
) -> (Vec<Shape>, Vec<Useless>) {
    let (mut shapes, mut unknown) = (Vec::new(), Vec::new());
    for source in sources(world, settings, grant) {
        let Source { instance, most, declared, remedy } = source;
        let there = there(world, &instance);
        let like = there.first().map(|it| it.metadata.name.clone());
        let Some(mut node) = model(&there).or(declared) else {
            let why = format!("nothing says what a node of it has; {remedy}");
            unknown.push(Useless { shape: instance, why });
            continue;
        };
        // They will have these when they were bought for the job, and pods may ask for them.
        let marks = Marks::of(job);
        let own = marks.labels().into_iter().chain([(INSTANCE_TYPE, instance.as_str())]);
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        node.metadata.labels.extend(own);
        shapes.push(Shape { name: instance, node, like, most });
    }
    (shapes, unknown)
}

/// What the back end could buy besides what was granted.
fn sources(world: &World, settings: &Settings, grant: Option<&Grant>) -> Vec<Source> {
    let limit = settings.limits.nodes.saturating_sub(grant.map_or(0, Grant::total));
    match settings.backend {
        Backend::Reuse | Backend::Duplicate => {
            let mut types: BTreeMap<String, Vec<Arc<MachineSet>>> = BTreeMap::new();
            for set in world.shelf::<MachineSet>().all() {
                let usable = !set.metadata.labels.contains_key(COPY) && !set.metadata.is_going();
                match instance_type(&set) {
                    Ok(instance) if usable && !instance.is_empty() => {
                        types.entry(instance.to_owned()).or_default().push(set);
                    }
                    Ok(_) | Err(_) => {}
                }
            }
            let source = |(instance, sets): (String, Vec<Arc<MachineSet>>)| Source {
                instance,
                most: limit,
                declared: declared_by(&sets),
                remedy: "give its MachineSet the annotations machine.openshift.io/vCPU and \
                         machine.openshift.io/memoryMb",
            };
            types.into_iter().map(source).collect()
        }
        Backend::Pools(_) => {
            let source = |instance| Source {
                instance,
                most: limit,
                declared: None,
                remedy: "one node of a pool must be there and be ready",
            };
            pool::types(world).into_iter().map(source).collect()
        }
        Backend::Groups => {
            let objects = world.shelf::<ConfigMap>().within(settings.ledger.namespace());
            let mut sources: Vec<Source> = Vec::new();
            for group in objects.iter().filter_map(|it| Group::read(it)) {
                let has = grant.map_or(0, |it| it.at(&group.name));
                // The first of a type gives its nodes.
                if sources.iter().all(|it| it.instance != group.instance) {
                    sources.push(Source {
                        declared: declared_in(&group),
                        most: group.most.saturating_sub(has).min(limit),
                        instance: group.instance,
                        remedy: "give the node of its group the annotation gantry.dev/sim-capacity",
                    });
                }
            }
            sources
        }
    }
}

/// The nodes of a type that could take pods, in order of their names.
fn there(world: &World, instance: &str) -> Vec<Arc<Node>> {
    let mut nodes = world.shelf::<Node>().all();
    nodes.retain(|node| {
        let of_type = node.metadata.labels.get(INSTANCE_TYPE).is_some_and(|it| it == instance);
        of_type && is_ready(node) && !node.spec.unschedulable
    });
    nodes
}

/// What nodes that are there have in common. What one has for pods, all have.
fn model(nodes: &[Arc<Node>]) -> Option<Node> {
    let (first, others) = nodes.split_first()?;
    let mut labels = first.metadata.labels.clone();
    labels.retain(|key, value| {
        // What was bought for somebody says so by a label whose value is its key.
        let is_mark = key == value || key == GRANT;
        !is_mark && others.iter().all(|it| it.metadata.labels.get(key) == Some(value))
    });
    let mut taints = first.spec.taints.clone();
    // These say how the node fares, and not what it is.
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

/// What MachineSets of one type declare. Which of them gives a node is not known before, so labels count
/// that all of them give.
fn declared_by(sets: &[Arc<MachineSet>]) -> Option<Node> {
    let (first, others) = sets.split_first()?;
    let said = |name: &str| first.metadata.annotations.get(name).map(|it| it.trim().to_owned());
    let mut allocatable = json!({"cpu": said(CPU)?, "memory": format!("{}Mi", said(MEMORY)?)});
    if let Some(count) = said(GPU).filter(|it| it != "0") {
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
    // Amounts that are none, and taints that are none, declare nothing.
    Node::deserialize(node).ok()
}

/// The labels that nodes of a set have.
fn labels_of(set: &MachineSet) -> BTreeMap<String, String> {
    let fields = set.spec["template"]["spec"]["metadata"]["labels"].as_object();
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    let mut labels: BTreeMap<String, String> =
        fields.into_iter().flatten().filter_map(text).collect();
    let more = set.metadata.annotations.get(LABELS).map(String::as_str).unwrap_or_default();
    let more = more.split(',').filter_map(|it| it.trim().split_once('='));
    labels.extend(more.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}

/// What a group of pretended nodes declares.
fn declared_in(group: &Group) -> Option<Node> {
    let mut node = group.node.clone();
    let annotations = &node["metadata"]["annotations"];
    let said = PRETENDED.iter().find_map(|it| annotations[*it].as_str());
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
