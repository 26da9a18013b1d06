//! Groups and hosts: which group has which children and members, and how deep it is.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::finding::Place;
use crate::value::Node;

/// The index of a group in its [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(crate) usize);

/// The index of a host in its [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(crate) usize);

/// The group that every host is in.
pub const ALL: GroupId = GroupId(0);
/// The group of hosts that are in no other.
pub const UNGROUPED: GroupId = GroupId(1);

/// A variable that is set for a group or a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The name of the variable.
    pub name: String,
    /// Where the name stands.
    pub at: Place,
    /// Its value.
    pub value: Node,
}

/// A group.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name.
    pub name: String,
    /// Where it was first named.
    pub declared: Place,
    /// The hosts that are members by themselves, in order.
    pub hosts: Vec<HostId>,
    /// The groups that it contains, in order.
    pub children: Vec<GroupId>,
    /// The groups that contain it.
    pub parents: Vec<GroupId>,
    /// Variables of the inventory itself, not of `group_vars`; of several the last counts.
    pub variables: Vec<Assignment>,
    /// `ansible_group_priority`.
    pub priority: i64,
    /// The longest way from `all`.
    pub depth: usize,
}

/// A host.
#[derive(Clone, Debug)]
pub struct Host {
    /// The name.
    pub name: String,
    /// Where it was first named.
    pub declared: Place,
    /// Variables of the inventory itself, not of `host_vars`; of several the last counts.
    pub variables: Vec<Assignment>,
}

/// All groups and hosts of an inventory.
#[derive(Clone, Debug)]
pub struct Tree {
    groups: Vec<Group>,
    hosts: Vec<Host>,
    group_ids: HashMap<String, GroupId>,
    host_ids: HashMap<String, HostId>,
    memberships: HashSet<(GroupId, HostId)>,
}

impl Default for Tree {
    fn default() -> Self {
        let mut tree = Self {
            groups: Vec::new(),
            hosts: Vec::new(),
            group_ids: HashMap::new(),
            host_ids: HashMap::new(),
            memberships: HashSet::new(),
        };
        let all = tree.add_group("all", Place::default());
        let ungrouped = tree.add_group("ungrouped", Place::default());
        tree.groups[all.0].children.push(ungrouped);
        tree.groups[ungrouped.0].parents.push(all);
        tree
    }
}

impl Tree {
    /// Returns the group with this name, and adds it if it is new.
    pub(crate) fn add_group(&mut self, name: &str, declared: Place) -> GroupId {
        if let Some(id) = self.group_ids.get(name) {
            return *id;
        }
        let id = GroupId(self.groups.len());
        self.groups.push(Group {
            name: name.to_owned(),
            declared,
            hosts: Vec::new(),
            children: Vec::new(),
            parents: Vec::new(),
            variables: Vec::new(),
            priority: 1,
            depth: 0,
        });
        self.group_ids.insert(name.to_owned(), id);
        id
    }

    /// Returns the host with this name and whether it is new.
    pub(crate) fn add_host(&mut self, name: &str, declared: Place) -> (HostId, bool) {
        if let Some(id) = self.host_ids.get(name) {
            return (*id, false);
        }
        let id = HostId(self.hosts.len());
        self.hosts.push(Host { name: name.to_owned(), declared, variables: Vec::new() });
        self.host_ids.insert(name.to_owned(), id);
        (id, true)
    }

    /// Makes a host a member of a group.
    pub(crate) fn add_member(&mut self, group: GroupId, host: HostId) {
        if self.memberships.insert((group, host)) {
            self.groups[group.0].hosts.push(host);
        }
    }

    /// Makes a group a child of another one.
    ///
    /// # Errors
    /// The child contains the parent: the groups on the way from the child to the parent.
    pub(crate) fn add_child(
        &mut self,
        parent: GroupId,
        child: GroupId,
    ) -> Result<(), Vec<GroupId>> {
        if child == ALL {
            // It contains the parent, if not yet then in the end.
            return Err(if parent == ALL { vec![ALL] } else { vec![ALL, parent] });
        }
        if let Some(way) = self.way_down(child, parent) {
            return Err(way);
        }
        if !self.groups[parent.0].children.contains(&child) {
            self.groups[parent.0].children.push(child);
            self.groups[child.0].parents.push(parent);
        }
        Ok(())
    }

    /// Puts groups without a parent below `all`, and hosts without a group into `ungrouped`; takes
    /// hosts that have a group out of it. Then computes depths.
    pub(crate) fn reconcile(&mut self) {
        let in_group: HashSet<HostId> = self
            .memberships
            .iter()
            .filter(|(group, _)| !matches!(*group, ALL | UNGROUPED))
            .map(|(_, host)| *host)
            .collect();
        for index in 1..self.groups.len() {
            if self.groups[index].parents.is_empty() {
                self.groups[index].parents.push(ALL);
                self.groups[0].children.push(GroupId(index));
            }
        }
        self.groups[UNGROUPED.0].hosts.retain(|host| !in_group.contains(host));
        self.memberships.retain(|(group, host)| *group != UNGROUPED || !in_group.contains(host));
        for index in 0..self.hosts.len() {
            if !in_group.contains(&HostId(index)) {
                self.add_member(UNGROUPED, HostId(index));
            }
        }
        self.compute_depths();
    }

    fn compute_depths(&mut self) {
        // There are no cycles, so every group is finished after its last parent.
        let mut open: Vec<usize> = self.groups.iter().map(|group| group.parents.len()).collect();
        let mut ready = vec![ALL];
        while let Some(id) = ready.pop() {
            let depth = self.groups[id.0].depth + 1;
            for child in self.groups[id.0].children.clone() {
                let group = &mut self.groups[child.0];
                group.depth = group.depth.max(depth);
                open[child.0] -= 1;
                if open[child.0] == 0 {
                    ready.push(child);
                }
            }
        }
    }

    /// All groups in the order they were first named, `all` and `ungrouped` before them.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.groups.iter().enumerate().map(|(index, group)| (GroupId(index), group))
    }

    /// All hosts in the order they were first named.
    pub fn hosts(&self) -> impl Iterator<Item = (HostId, &Host)> {
        self.hosts.iter().enumerate().map(|(index, host)| (HostId(index), host))
    }

    /// How many hosts there are.
    #[must_use]
    pub fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// A group.
    #[must_use]
    pub fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.0]
    }

    /// A host.
    #[must_use]
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[id.0]
    }

    pub(crate) fn group_mut(&mut self, id: GroupId) -> &mut Group {
        &mut self.groups[id.0]
    }

    pub(crate) fn host_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[id.0]
    }

    /// The group with this name.
    #[must_use]
    pub fn group_named(&self, name: &str) -> Option<GroupId> {
        self.group_ids.get(name).copied()
    }

    /// The host with this name.
    #[must_use]
    pub fn host_named(&self, name: &str) -> Option<HostId> {
        self.host_ids.get(name).copied()
    }

    /// The members of a group and of the groups that it contains: the nearest groups first, each in
    /// order.
    #[must_use]
    pub fn members(&self, group: GroupId) -> Vec<HostId> {
        let mut hosts = Vec::new();
        let (mut has_group, mut has_host) = (HashSet::from([group]), HashSet::new());
        let mut level = vec![group];
        while !level.is_empty() {
            let mut next = Vec::new();
            for id in level {
                let Group { hosts: own, children, .. } = self.group(id);
                hosts.extend(own.iter().copied().filter(|host| has_host.insert(*host)));
                next.extend(children.iter().copied().filter(|child| has_group.insert(*child)));
            }
            level = next;
        }
        hosts
    }

    /// The groups that a host is in, also by their children, without `all`; those whose variables
    /// win come last.
    #[must_use]
    pub fn groups_of(&self, host: HostId) -> Vec<GroupId> {
        let ids = (0..self.groups.len()).map(GroupId);
        let mut open: Vec<GroupId> =
            ids.filter(|id| self.memberships.contains(&(*id, host))).collect();
        let mut found: BTreeSet<GroupId> = BTreeSet::new();
        while let Some(id) = open.pop() {
            if id != ALL && found.insert(id) {
                open.extend(&self.group(id).parents);
            }
        }
        let mut sorted: Vec<GroupId> = found.into_iter().collect();
        sorted.sort_by_key(|id| {
            let Group { depth, priority, name, .. } = self.group(*id);
            (*depth, *priority, name)
        });
        sorted
    }

    /// The way from a group down to another one, both included.
    fn way_down(&self, from: GroupId, to: GroupId) -> Option<Vec<GroupId>> {
        let mut came_from: HashMap<GroupId, GroupId> = HashMap::from([(from, from)]);
        let mut open = vec![from];
        while let Some(id) = open.pop() {
            if id == to {
                let mut way = vec![to];
                let mut at = to;
                while at != from {
                    at = came_from[&at];
                    way.push(at);
                }
                way.reverse();
                return Some(way);
            }
            for child in &self.group(id).children {
                if !came_from.contains_key(child) {
                    came_from.insert(*child, id);
                    open.push(*child);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place() -> Place {
        Place::default()
    }

    #[test]
    fn cycles_are_named() {
        let mut tree = Tree::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| tree.add_group(name, place()));
        assert_eq!(tree.add_child(a, b), Ok(()));
        assert_eq!(tree.add_child(b, c), Ok(()));
        assert_eq!(tree.add_child(c, a), Err(vec![a, b, c]));
        assert_eq!(tree.add_child(a, a), Err(vec![a]));
        assert_eq!(tree.add_child(a, ALL), Err(vec![ALL, a]));
    }

    #[test]
    fn every_host_is_in_all_and_only_lonely_ones_are_ungrouped() {
        let mut tree = Tree::default();
        let group = tree.add_group("g", place());
        let [one, two] = ["one", "two"].map(|name| tree.add_host(name, place()).0);
        tree.add_member(ALL, one);
        tree.add_member(UNGROUPED, two);
        tree.add_member(group, two);
        tree.reconcile();
        assert_eq!(tree.group(UNGROUPED).hosts, [one]);
        assert_eq!(tree.members(ALL), [one, two]);
        assert_eq!(tree.groups_of(one), [UNGROUPED]);
        assert_eq!(tree.groups_of(two), [group]);
    }

    proptest! {
        /// Whatever edges are added, there is no cycle, and a child is deeper than its parents.
        #[test]
        fn depth_grows_downwards(
            edges in proptest::collection::vec((0usize..8, 0usize..8), 0..30),
        ) {
            let mut tree = Tree::default();
            let ids: Vec<_> = (0..8).map(|n| tree.add_group(&format!("g{n}"), place())).collect();
            for (parent, child) in edges {
                let way = tree.add_child(ids[parent], ids[child]);
                if let Err(way) = way {
                    prop_assert_eq!(way.first(), Some(&ids[child]));
                    prop_assert_eq!(way.last(), Some(&ids[parent]));
                }
            }
            tree.reconcile();
            for (id, group) in tree.groups() {
                let deepest = group.parents.iter().map(|parent| tree.group(*parent).depth).max();
                prop_assert_eq!(group.depth, deepest.map_or(0, |depth| depth + 1));
                prop_assert!(id == ALL || !group.parents.is_empty());
            }
        }
    }
}
