//! Builds trees from QuotaSubtrees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gantry_reconcile::Key;

use super::amount::{Amount, TRACKED_RESOURCES, quota_units};
use super::problem::{QuotaProblem, QuotaProblemKind};
use super::subtree::{Child, Subtree};
use super::tree::{Node, Tree};

/// Builds every tree that has a root, by name, and reports what in the objects is ignored.
pub(super) fn trees<'a>(
    subtrees: impl IntoIterator<Item = &'a Subtree>,
) -> (Vec<Tree>, Vec<QuotaProblem>) {
    let mut by_tree: BTreeMap<&str, Vec<&Subtree>> = BTreeMap::new();
    for subtree in subtrees {
        if let Some(tree) = subtree.tree() {
            by_tree.entry(tree).or_default().push(subtree);
        }
    }
    let mut problems = Vec::new();
    let trees = by_tree.into_iter().filter_map(|(name, mut objects)| {
        // Of two nodes with the same name the first counts, so there must be an order.
        objects.sort_by_cached_key(|subtree| subtree.metadata.key());
        TreeBuilder::read(name, &objects, &mut problems).build(&mut problems)
    });
    (trees.collect(), problems)
}

/// The nodes of one tree, by name, before it is known how they are connected.
struct TreeBuilder<'a> {
    tree: &'a str,
    nodes: BTreeMap<&'a str, NodeSpec<'a>>,
}

/// A node as it is written.
struct NodeSpec<'a> {
    object: Key,
    parent: Option<&'a str>,
    child: &'a Child,
}

impl<'a> TreeBuilder<'a> {
    /// Collects the nodes of all objects.
    fn read(tree: &'a str, objects: &[&'a Subtree], problems: &mut Vec<QuotaProblem>) -> Self {
        let mut draft = Self { tree, nodes: BTreeMap::new() };
        for subtree in objects {
            let object = subtree.metadata.key();
            for child in &subtree.spec.children {
                let first = draft.nodes.get(child.name.as_str());
                let fault = match first {
                    None if child.name.is_empty() => QuotaProblemKind::Unnamed,
                    Some(first) => QuotaProblemKind::Duplicate { first: first.object.clone() },
                    None => {
                        let parent = subtree.parent();
                        let written = NodeSpec { object: object.clone(), parent, child };
                        draft.nodes.insert(&child.name, written);
                        continue;
                    }
                };
                problems.push(draft.problem(&object, &child.name, fault));
            }
        }
        draft
    }

    /// Builds the tree below the first root; nodes that are not below it are left out and reported.
    fn build(self, problems: &mut Vec<QuotaProblem>) -> Option<Tree> {
        let mut below: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut roots = Vec::new();
        for (&name, node) in &self.nodes {
            match node.parent {
                Some(parent) => below.entry(parent).or_default().push(name),
                None => roots.push(name),
            }
        }
        let mut reached = BTreeSet::new();
        let order = roots.first().map(|&root| preorder(root, &below, &mut reached));
        let mut leave_out =
            |top: &'a str, fault: QuotaProblemKind, reached: &mut BTreeSet<&'a str>| {
                problems.push(self.problem(&self.nodes[top].object, top, fault));
                for (name, _) in preorder(top, &below, reached).into_iter().skip(1) {
                    let fault = QuotaProblemKind::AncestorLeftOut { ancestor: top.to_owned() };
                    problems.push(self.problem(&self.nodes[name].object, name, fault));
                }
            };
        for &root in roots.iter().skip(1) {
            let kept = roots[0].to_owned();
            leave_out(root, QuotaProblemKind::SecondRoot { kept }, &mut reached);
        }
        for (&name, node) in &self.nodes {
            let parent = node.parent.filter(|parent| !self.nodes.contains_key(parent));
            if let Some(parent) = parent {
                let fault = QuotaProblemKind::UnknownParent { parent: parent.to_owned() };
                leave_out(name, fault, &mut reached);
            }
        }
        // A node that has a parent and was not reached from any top is on or below a cycle.
        for (&name, node) in &self.nodes {
            if !reached.contains(name) {
                problems.push(self.problem(&node.object, name, QuotaProblemKind::ParentCycle));
            }
        }
        Some(self.tree(&order?, problems))
    }

    fn tree(&self, order: &[(&'a str, Option<usize>)], problems: &mut Vec<QuotaProblem>) -> Tree {
        let kept: Vec<(&NodeSpec<'_>, Option<usize>)> =
            order.iter().map(|(name, parent)| (&self.nodes[name], *parent)).collect();
        let listed = kept.iter().flat_map(|(node, _)| node.child.quotas.iter());
        let others: BTreeSet<&str> = listed
            .flat_map(|quotas| quotas.requests.keys().map(String::as_str))
            .filter(|name| !TRACKED_RESOURCES.contains(name))
            .collect();
        let resources: Vec<Arc<str>> =
            TRACKED_RESOURCES.into_iter().chain(others).map(Arc::from).collect();
        let mut ends: Vec<usize> = (1..=kept.len()).collect();
        for (index, (_, parent)) in kept.iter().enumerate().rev() {
            if let Some(parent) = *parent {
                ends[parent] = ends[parent].max(ends[index]);
            }
        }
        let nodes: Vec<Node> = kept
            .iter()
            .zip(ends)
            .map(|(&(node, parent), end)| Node {
                name: node.child.name.as_str().into(),
                object: node.object.clone(),
                parent,
                end,
                hard_limit: node.child.quotas.as_ref().is_some_and(|quotas| quotas.hard_limit),
                quota: self.quota(node, &resources, problems),
                allocated: vec![0; resources.len()].into(),
                placed: BTreeMap::new(),
                by_priority: BTreeMap::new(),
                branches: BTreeMap::new(),
            })
            .collect();
        let by_name = nodes.iter().enumerate().map(|(index, node)| (Arc::clone(&node.name), index));
        Tree {
            name: self.tree.into(),
            by_name: by_name.collect(),
            resources,
            nodes,
            placements: BTreeMap::new(),
            next_arrival: 0,
        }
    }

    /// Returns the quota of a node for each resource.
    fn quota(
        &self,
        node: &NodeSpec<'_>,
        resources: &[Arc<str>],
        problems: &mut Vec<QuotaProblem>,
    ) -> Box<[Option<i64>]> {
        let mut amount = |resource: &Arc<str>| {
            let listed = node.child.quotas.as_ref().and_then(|it| it.requests.get(&**resource));
            let Some(listed) = listed else {
                return TRACKED_RESOURCES.contains(&&**resource).then_some(0);
            };
            let (text, why) = match listed {
                Amount::Parsed(amount) if !amount.is_negative() => {
                    return Some(quota_units(resource, *amount));
                }
                Amount::Parsed(amount) => {
                    (amount.to_string(), "a quota cannot be negative".to_owned())
                }
                Amount::Unreadable { text, why } => (text.clone(), why.clone()),
            };
            let fault =
                QuotaProblemKind::InvalidAmount { resource: resource.to_string(), text, why };
            problems.push(self.problem(&node.object, &node.child.name, fault));
            Some(0)
        };
        resources.iter().map(&mut amount).collect()
    }

    fn problem(&self, object: &Key, node: &str, fault: QuotaProblemKind) -> QuotaProblem {
        let (tree, node) = (self.tree.to_owned(), node.to_owned());
        QuotaProblem { object: object.clone(), tree, node, fault }
    }
}

/// Returns a node and all below it, parents before children and children by name, each with the
/// index of its parent. It does not recurse: the depth of a tree is not limited.
fn preorder<'a>(
    top: &'a str,
    below: &BTreeMap<&'a str, Vec<&'a str>>,
    reached: &mut BTreeSet<&'a str>,
) -> Vec<(&'a str, Option<usize>)> {
    let mut order = Vec::new();
    let mut waiting = vec![(top, None)];
    while let Some((name, parent)) = waiting.pop() {
        reached.insert(name);
        let children = below.get(name).into_iter().flatten();
        waiting.extend(children.rev().map(|child| (*child, Some(order.len()))));
        order.push((name, parent));
    }
    order
}
