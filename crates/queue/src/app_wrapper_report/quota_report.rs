//! Reports what an AppWrapper is charged to, or would be.

use std::collections::BTreeMap;

use gantry_reconcile::World;
use serde::Serialize;

use crate::app_wrapper::AppWrapper;
use crate::charge;
use crate::queue_report;
use crate::quota::{Bindings, NodeUsage, Subtree, quantity};
use crate::quota_leaf;
use crate::settings::Settings;

/// What an AppWrapper is charged to in one tree, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "facts, each of which may be so or not")]
pub struct QuotaCharge {
    /// The tree.
    pub tree: String,
    /// The node that is named.
    pub node: String,
    /// Whether a label names it; else it is the default.
    pub is_labelled: bool,
    /// The node it is placed on, or would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placed: Option<String>,
    /// Whether it borrows there, or would.
    pub borrows: bool,
    /// Whether it holds that quota now.
    pub holds: bool,
    /// Why it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Whether it is refused because it may not use the leaf.
    pub is_forbidden: bool,
    /// The nodes from the named one up to the root; empty where there is no such node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<QuotaNodeUse>,
    /// The leaves of the tree, where another one should have been named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaves: Vec<String>,
}

/// A node, and how much of it is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaNodeUse {
    /// Its name.
    pub node: String,
    /// Whether borrowing past it is forbidden.
    pub hard: bool,
    /// What is charged to it.
    pub used: BTreeMap<String, String>,
    /// Its quota.
    pub limit: BTreeMap<String, String>,
}

/// Returns what an AppWrapper is charged to in every tree, and which AppWrappers would be preempted
/// for it.
pub(super) fn of(
    world: &World,
    wrapper: &AppWrapper,
    settings: &Settings,
) -> (Vec<QuotaCharge>, Vec<String>) {
    let mut forest = queue_report::charged_forest(world, settings);
    let consumer = charge::consumer(wrapper, settings);
    let bindings = Bindings::of(&world.store::<Subtree>().list());
    let forbidden = quota_leaf::check_leaves(world, wrapper, &bindings, settings).err();
    let usage = forest.usage();
    let holds = forest.holds(&consumer.id);
    let mut placed = forest.placed(&consumer.id);
    let mut refusal = None;
    let mut victims = Vec::new();
    if !holds && wrapper.awaits_dispatch() && forbidden.is_none() {
        match forest.try_allocate(&consumer) {
            Ok(allocation) => {
                placed.clone_from(&allocation.placed);
                victims.extend(allocation.victims.iter().map(|it| it.key().to_string()));
            }
            Err(refused) => refusal = Some(refused),
        }
    }
    let mut charges = Vec::new();
    for (tree, nodes) in &usage {
        let node = consumer.node_in(tree).to_owned();
        let placed = placed.get(tree).cloned();
        let refused = refusal.as_ref().filter(|it| it.tree == *tree);
        let forbidden_here = forbidden.as_ref().filter(|it| it.tree == *tree);
        let forbidden_here = forbidden_here.map(ToString::to_string);
        let path = path(nodes, &node);
        let is_leaf = !path.is_empty() && is_leaf(nodes, &node);
        charges.push(QuotaCharge {
            tree: tree.clone(),
            is_labelled: wrapper.metadata.labels.contains_key(tree),
            borrows: placed.as_ref().is_some_and(|it| *it != node),
            placed,
            holds,
            is_forbidden: forbidden_here.is_some(),
            refused: forbidden_here.or_else(|| refused.map(ToString::to_string)),
            path,
            leaves: if is_leaf { Vec::new() } else { leaves(nodes) },
            node,
        });
    }
    (charges, victims)
}

/// Returns the nodes from one up to the root.
fn path(nodes: &BTreeMap<String, NodeUsage>, from: &str) -> Vec<QuotaNodeUse> {
    let mut path = Vec::new();
    let mut next = Some(from.to_owned());
    // A tree has no cycles; the count bounds the loop if one is built nevertheless.
    for _ in 0..nodes.len() {
        let Some((name, usage)) = next.as_ref().and_then(|it| nodes.get_key_value(it)) else {
            break;
        };
        let limit = usage.quota.iter().map(|(resource, units)| (resource, i128::from(*units)));
        let used = usage.allocated.iter().map(|(resource, units)| (resource, *units));
        let used = used.filter(|(resource, units)| {
            *units != 0 || usage.quota.get(*resource).is_some_and(|it| *it > 0)
        });
        path.push(QuotaNodeUse {
            node: name.clone(),
            hard: usage.hard_limit,
            used: shown(used),
            limit: shown(limit.filter(|(_, units)| *units != 0)),
        });
        next.clone_from(&usage.parent);
    }
    path
}

fn shown<'a>(amounts: impl Iterator<Item = (&'a String, i128)>) -> BTreeMap<String, String> {
    amounts.map(|(name, units)| (name.clone(), quantity(name, units).to_string())).collect()
}

fn is_leaf(nodes: &BTreeMap<String, NodeUsage>, name: &str) -> bool {
    nodes.values().all(|it| it.parent.as_deref() != Some(name))
}

fn leaves(nodes: &BTreeMap<String, NodeUsage>) -> Vec<String> {
    nodes.keys().filter(|name| is_leaf(nodes, name)).cloned().collect()
}
