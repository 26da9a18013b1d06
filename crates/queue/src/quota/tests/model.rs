//! The simplest forest that follows the rules: one list of placements, every sum recomputed from
//! that list, every attempt on a copy of everything.

use std::collections::BTreeMap;

use super::*;

/// A node of the model.
#[derive(Clone, Debug)]
pub(super) struct ModelNode {
    pub(super) name: String,
    /// The index of the parent in the list; the first node is the root.
    pub(super) parent: usize,
    pub(super) hard: bool,
    pub(super) quota: BTreeMap<String, i64>,
}

#[derive(Clone, Debug)]
pub(super) struct ModelTree {
    pub(super) nodes: Vec<ModelNode>,
    /// All consumers, in the order in which they arrived at their node.
    pub(super) placements: Vec<(Consumer, usize)>,
    name: String,
}

/// All trees, by name, and all consumers in order of first arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) trees: BTreeMap<String, ModelTree>,
    everyone: Vec<Consumer>,
}

impl ModelTree {
    pub(super) fn new(name: &str, nodes: Vec<ModelNode>) -> Self {
        Self { nodes, placements: Vec::new(), name: name.to_owned() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    fn home(&self, consumer: &Consumer) -> usize {
        self.find(consumer.node_in(&self.name)).unwrap_or(0)
    }

    fn path(&self, from: usize) -> Vec<usize> {
        let mut path = vec![from];
        while path[path.len() - 1] != 0 {
            path.push(self.nodes[path[path.len() - 1]].parent);
        }
        path
    }

    fn is_leaf(&self, node: usize) -> bool {
        !self.nodes.iter().skip(1).any(|other| other.parent == node)
    }

    /// Returns what is charged to a node: the requests of all consumers on it or below.
    pub(super) fn allocated(&self, node: usize, resource: &str) -> i128 {
        let below = self.placements.iter().filter(|(_, at)| self.path(*at).contains(&node));
        below.map(|(who, _)| i128::from(*who.request.get(resource).unwrap_or(&0))).sum()
    }

    fn fits(&self, node: usize, consumer: &Consumer) -> bool {
        consumer.request.iter().all(|(resource, &amount)| {
            let listed = self.nodes[node].quota.get(resource).copied();
            let tracked = TRACKED_RESOURCES.contains(&resource.as_str());
            let Some(quota) = listed.or_else(|| tracked.then_some(0)) else { return true };
            amount == 0 || self.allocated(node, resource) + i128::from(amount) <= i128::from(quota)
        })
    }

    fn on(&self, node: usize) -> Vec<Consumer> {
        self.placements.iter().filter(|(_, at)| *at == node).map(|(who, _)| who.clone()).collect()
    }

    fn put(&mut self, who: &Consumer, node: usize) {
        self.placements.push((who.clone(), node));
    }

    fn remove(&mut self, who: &ConsumerId) -> Option<usize> {
        let place = self.placements.iter().position(|(other, _)| other.id == *who)?;
        Some(self.placements.remove(place).1)
    }

    /// Frees quota on a node if necessary; returns the tree afterwards, and the consumers that had
    /// to leave it.
    fn room(
        &self,
        node: usize,
        who: &Consumer,
        by_priority: bool,
    ) -> Option<(Self, Vec<ConsumerId>)> {
        let (mut tree, mut out) = (self.clone(), Vec::new());
        if tree.fits(node, who) {
            return Some((tree, out));
        }
        if self.nodes[node].hard && node != 0 {
            return None;
        }
        for other in self.on(node) {
            if by_priority && other.priority >= who.priority {
                continue;
            }
            if node == 0 && !other.preemptable {
                continue;
            }
            tree.remove(&other.id);
            if node == 0 {
                out.push(other.id.clone());
                if tree.fits(node, who) {
                    return Some(self.without(&out, node, who));
                }
            } else {
                let parent = tree.nodes[node].parent;
                tree.put(&other, parent);
            }
            if tree.fits(node, who) {
                return Some((tree, out));
            }
        }
        None
    }

    /// Returns the tree without those of these consumers that must leave so that the request fits
    /// on a node, and which they are.
    fn without(&self, all: &[ConsumerId], node: usize, who: &Consumer) -> (Self, Vec<ConsumerId>) {
        let take_out = |ids: &[ConsumerId]| {
            let mut tree = self.clone();
            for id in ids {
                tree.remove(id);
            }
            tree
        };
        let mut out = all.to_vec();
        for id in all {
            let others: Vec<ConsumerId> = out.iter().filter(|it| *it != id).cloned().collect();
            if take_out(&others).fits(node, who) {
                out = others;
            }
        }
        (take_out(&out), out)
    }

    /// Walks once from leaf to root; fails with the last node that was tried.
    fn walk(&self, who: &Consumer) -> Result<(Self, Vec<ConsumerId>), usize> {
        let (mut tree, mut out, mut placed) = (self.clone(), Vec::new(), None);
        let path = self.path(self.home(who));
        let mut passed_hard = false;
        for &node in &path {
            passed_hard |= self.nodes[node].hard;
            match tree.room(node, who, placed.is_none()) {
                Some((next, more)) => {
                    tree = next;
                    out.extend(more);
                    placed = placed.or(Some(node));
                }
                None if placed.is_some() => {
                    (tree, out, placed) = (self.clone(), Vec::new(), None);
                    if passed_hard {
                        return Err(node);
                    }
                }
                None if self.nodes[node].hard => return Err(node),
                None => {}
            }
        }
        let node = placed.ok_or(0_usize)?;
        tree.put(who, node);
        Ok((tree, out))
    }

    fn allocate(&self, who: &Consumer) -> Result<(Self, Vec<ConsumerId>), String> {
        let last = match self.walk(who) {
            Ok(done) => return Ok(done),
            Err(last) => last,
        };
        let refused = Err(self.nodes[last].name.clone());
        if who.priority <= 0 {
            return refused;
        }
        let (mut tree, mut out) = (self.clone(), Vec::new());
        let path = self.path(self.home(who));
        for &node in path.iter().rev().skip_while(|node| **node != last) {
            for other in self.on(node) {
                if other.priority < who.priority && other.preemptable {
                    tree.remove(&other.id);
                    out.push(other.id.clone());
                    if tree.fits(last, who) {
                        let (tree, mut out) = self.without(&out, last, who);
                        return match tree.allocate(who) {
                            Ok((tree, more)) => {
                                out.extend(more);
                                Ok((tree, out))
                            }
                            Err(_) => refused,
                        };
                    }
                }
            }
        }
        refused
    }

    fn release(&mut self, who: &ConsumerId) {
        let Some(node) = self.remove(who) else { return };
        for node in self.path(node) {
            if node == 0 {
                continue;
            }
            for other in self.on(self.nodes[node].parent) {
                let below = self.path(self.home(&other)).contains(&node);
                if below && self.fits(node, &other) {
                    self.remove(&other.id);
                    self.put(&other, node);
                }
            }
        }
    }

    /// Places it where it would be if it asked now, if none had to leave for it; else on its home
    /// node.
    fn resume(&mut self, who: &Consumer) {
        match self.walk(who) {
            Ok((tree, out)) if out.is_empty() => *self = tree,
            Ok(_) | Err(_) => self.put(who, self.home(who)),
        }
    }
}

impl Model {
    pub(super) fn new(trees: Vec<ModelTree>) -> Self {
        let trees = trees.into_iter().map(|tree| (tree.name.clone(), tree)).collect();
        Self { trees, everyone: Vec::new() }
    }

    pub(super) fn holds(&self, who: &ConsumerId) -> bool {
        self.everyone.iter().any(|other| other.id == *who)
    }

    /// Returns the victims, or the tree and the node that refused.
    pub(super) fn try_allocate(
        &mut self,
        who: &Consumer,
    ) -> Result<Vec<ConsumerId>, (String, String)> {
        if self.holds(&who.id) {
            return Ok(Vec::new());
        }
        for tree in self.trees.values() {
            let named = who.node_in(&tree.name);
            if tree.find(named).is_none_or(|node| !tree.is_leaf(node)) {
                return Err((tree.name.clone(), named.to_owned()));
            }
        }
        let mut trees = self.trees.clone();
        let mut victims: Vec<ConsumerId> = Vec::new();
        loop {
            let known = victims.len();
            let mut refused = None;
            for (name, tree) in &mut trees {
                for victim in &victims {
                    tree.release(victim);
                }
                if tree.placements.iter().any(|(other, _)| other.id == who.id) {
                    continue;
                }
                match tree.allocate(who) {
                    Ok((next, out)) => {
                        *tree = next;
                        victims.extend(out);
                    }
                    Err(node) => refused = refused.or_else(|| Some((name.clone(), node))),
                }
            }
            match refused {
                _ if victims.len() > known => {}
                Some(refused) => return Err(refused),
                None => break,
            }
        }
        self.trees = trees;
        self.everyone.retain(|other| !victims.contains(&other.id));
        self.everyone.push(who.clone());
        Ok(victims)
    }

    pub(super) fn release(&mut self, who: &ConsumerId) {
        self.everyone.retain(|other| other.id != *who);
        for tree in self.trees.values_mut() {
            tree.release(who);
        }
    }

    pub(super) fn put(&mut self, who: &Consumer, resumed: bool) {
        if self.holds(&who.id) {
            return;
        }
        for tree in self.trees.values_mut() {
            match resumed {
                true => tree.resume(who),
                false => tree.put(who, tree.home(who)),
            }
        }
        self.everyone.push(who.clone());
    }

    pub(super) fn edit(&mut self, trees: Vec<ModelTree>) {
        let old = std::mem::replace(&mut self.trees, Self::new(trees).trees);
        for (name, tree) in &mut self.trees {
            let Some(old) = old.get(name) else {
                for who in &self.everyone {
                    tree.put(who, tree.home(who));
                }
                continue;
            };
            let depth = |name: &&String| old.path(old.find(name).unwrap()).len();
            let mut names: Vec<&String> = old.nodes.iter().map(|node| &node.name).collect();
            names.sort();
            names.sort_by_key(|name| std::cmp::Reverse(depth(name)));
            for name in names {
                for (who, _) in old.placements.iter().filter(|(_, at)| old.nodes[*at].name == *name)
                {
                    let home = tree.home(who);
                    let stayed = tree.find(name);
                    let stayed = stayed.filter(|node| tree.path(home).contains(node));
                    tree.put(who, stayed.unwrap_or(home));
                }
            }
        }
    }
}
