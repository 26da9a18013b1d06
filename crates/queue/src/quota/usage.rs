//! Usage of quota trees, for statuses and reports.

use std::collections::BTreeMap;

use gantry_api::quantity::Quantity;
use gantry_api::queue::{ChildAllocation, QuotaSubtreeStatus};

use super::amount::quantity;
use super::forest::Forest;
use super::subtree::Subtree;
use super::tree::{Node, Tree};

/// The quota of a node, and what is charged to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUsage {
    /// The node above it.
    pub parent: Option<String>,
    /// Whether borrowing past it is forbidden.
    pub hard_limit: bool,
    /// Its quota, in counted units.
    pub quota: BTreeMap<String, i64>,
    /// What is charged to it, in counted units: the sum of the consumers placed on it or below.
    pub allocated: BTreeMap<String, i128>,
    /// How many consumers are placed on this very node.
    pub consumers: usize,
}

impl Forest {
    /// Returns every node of every tree.
    #[must_use]
    pub fn usage(&self) -> BTreeMap<String, BTreeMap<String, NodeUsage>> {
        self.trees().map(|tree| (tree.name().to_owned(), tree.usage())).collect()
    }

    /// Returns the status of a QuotaSubtree: what is charged to those of its children that are in
    /// the tree. A resource is shown where a node lists it or something of it is charged.
    #[must_use]
    pub fn status(&self, subtree: &Subtree) -> QuotaSubtreeStatus {
        let tree = subtree.tree().and_then(|name| self.tree(name));
        let object = subtree.metadata.key();
        let mut status = QuotaSubtreeStatus::default();
        let mut total: BTreeMap<String, i128> = BTreeMap::new();
        let mut seen = std::collections::BTreeSet::new();
        for child in &subtree.spec.children {
            let node =
                tree.and_then(|tree| Some((tree, &tree.nodes[*tree.by_name.get(&*child.name)?])));
            let Some((tree, node)) = node.filter(|(_, node)| node.object == object) else {
                continue;
            };
            if !seen.insert(&child.name) {
                continue;
            }
            let amounts = tree.shown(node);
            for (resource, units) in &amounts {
                *total.entry(resource.clone()).or_default() += units;
            }
            let allocated = quantities(amounts);
            status.children.push(ChildAllocation { name: child.name.clone(), allocated });
        }
        status.total_allocation = quantities(total);
        status
    }
}

impl Tree {
    fn usage(&self) -> BTreeMap<String, NodeUsage> {
        let usage = |node: &Node| NodeUsage {
            parent: node.parent.map(|parent| self.nodes[parent].name.to_string()),
            hard_limit: node.hard_limit,
            quota: self.named(&node.quota).filter_map(|(name, it)| Some((name, (*it)?))).collect(),
            allocated: self.named(&node.allocated).map(|(name, it)| (name, *it)).collect(),
            consumers: node.placed.len(),
        };
        self.nodes.iter().map(|node| (node.name.to_string(), usage(node))).collect()
    }

    fn shown(&self, node: &Node) -> BTreeMap<String, i128> {
        let amounts = self.named(&node.allocated).zip(&node.quota);
        let shown = amounts
            .filter(|((_, units), quota)| **units != 0 || quota.is_some_and(|quota| quota > 0));
        shown.map(|((name, units), _)| (name, *units)).collect()
    }

    fn named<'a, T>(&'a self, amounts: &'a [T]) -> impl Iterator<Item = (String, &'a T)> {
        self.resources.iter().map(|name| name.to_string()).zip(amounts)
    }
}

fn quantities(amounts: BTreeMap<String, i128>) -> BTreeMap<String, Quantity> {
    let shown = |(resource, units): (String, i128)| {
        let amount = quantity(&resource, units);
        (resource, amount)
    };
    amounts.into_iter().map(shown).collect()
}
