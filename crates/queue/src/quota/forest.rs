//! All quota trees together: a consumer fits into each of them, or into none.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::build;
use super::consumer::{Consumer, ConsumerId, DEFAULT_NODE};
use super::journal::Journal;
use super::problem::QuotaProblem;
use super::refusal::QuotaRefusal;
use super::subtree::Subtree;
use super::tree::{Holder, Tree};

/// All quota trees and what each consumer holds in them.
///
/// A consumer that holds quota is placed in every tree. Two forests are equal if they will always
/// give the same answers: same nodes, same consumers on the same nodes, in the same order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forest {
    /// By name.
    trees: Vec<Tree>,
    members: BTreeMap<ConsumerId, Member>,
    /// The arrival number of the next consumer.
    arrivals: u64,
    /// Counts changes. Undone changes are not counted, so the number identifies one state as long
    /// as there is an [`Allocation`] that was made from it.
    version: u64,
}

/// A consumer that holds quota.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    consumer: Arc<Consumer>,
    arrival: u64,
}

/// The quota that a consumer was given.
#[derive(Debug)]
pub struct Allocation {
    /// The consumer.
    pub id: ConsumerId,
    /// The consumers that lost all they had, in all trees, in the order in which they were
    /// preempted.
    pub victims: Vec<ConsumerId>,
    /// The node it was placed on, for each tree. It is above the requested node if the consumer
    /// borrows, and it may change when others come and go.
    pub placed: BTreeMap<String, String>,
    before: u64,
    after: u64,
    journals: Vec<Journal>,
    removed: Vec<(ConsumerId, Member)>,
}

/// An allocation that can no longer be undone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot undo the allocation of {id}: quota was given or taken since")]
pub struct Superseded {
    /// The consumer of the allocation.
    pub id: ConsumerId,
}

impl Forest {
    /// Builds a forest of all QuotaSubtrees, in any order, and reports what in them is ignored.
    ///
    /// Objects without a tree label are ignored. A tree without any root does not exist.
    pub fn new<S: Borrow<Subtree>>(
        subtrees: impl IntoIterator<Item = S>,
    ) -> (Self, Vec<QuotaProblem>) {
        let subtrees: Vec<S> = subtrees.into_iter().collect();
        let (trees, problems) = build::trees(subtrees.iter().map(Borrow::borrow));
        (Self { trees, ..Self::default() }, problems)
    }

    /// Returns whether there is no tree, and so no limit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    /// Returns the trees, by name.
    pub fn trees(&self) -> impl Iterator<Item = &Tree> {
        self.trees.iter()
    }

    /// Returns the tree of this name.
    #[must_use]
    pub fn tree(&self, name: &str) -> Option<&Tree> {
        let found = self.trees.binary_search_by(|tree| tree.name().cmp(name));
        found.ok().map(|index| &self.trees[index])
    }

    /// Returns the labels that an AppWrapper must get before it is evaluated: the default node for
    /// every tree that its own labels do not mention.
    #[must_use]
    pub fn missing_labels(&self, labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let missing = self.trees.iter().map(Tree::name).filter(|name| !labels.contains_key(*name));
        missing.map(|name| (name.to_owned(), DEFAULT_NODE.to_owned())).collect()
    }

    /// Returns whether a consumer holds quota.
    #[must_use]
    pub fn holds(&self, id: &ConsumerId) -> bool {
        self.members.contains_key(id)
    }

    /// Returns all consumers that hold quota.
    pub fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.members.values().map(|member| &*member.consumer)
    }

    /// Returns the node a consumer is placed on, for each tree; empty if it holds nothing.
    #[must_use]
    pub fn placed(&self, id: &ConsumerId) -> BTreeMap<String, String> {
        let node = |tree: &Tree| Some((tree.name().to_owned(), tree.placed(id)?.to_owned()));
        self.trees.iter().filter_map(node).collect()
    }

    /// Gives a consumer what it requests in every tree, and preempts others if necessary.
    ///
    /// A consumer preempted in one tree leaves all of them. Trees are tried in turn by name, and
    /// one that refuses is tried again when others have found victims. A consumer that holds quota
    /// already keeps it and is not charged again. Without any tree every request succeeds.
    ///
    /// # Errors
    /// Fails if a tree has too little quota, or does not have the leaf the consumer names; then
    /// nothing has changed.
    pub fn try_allocate(&mut self, consumer: &Consumer) -> Result<Allocation, QuotaRefusal> {
        self.try_allocate_with_exemptions(consumer, &|_| false)
    }

    /// Does the same, and preempts only consumers that are not exempt.
    ///
    /// # Errors
    /// As [`Forest::try_allocate`].
    pub fn try_allocate_with_exemptions(
        &mut self,
        consumer: &Consumer,
        spares: &dyn Fn(&ConsumerId) -> bool,
    ) -> Result<Allocation, QuotaRefusal> {
        let id = &consumer.id;
        let mut allocation = self.begin_allocation(id);
        if !self.holds(id) {
            let holders: Result<Vec<_>, _> =
                self.trees.iter().map(|tree| tree.leaf_holder(consumer)).collect();
            self.allocate(&holders?, spares, &mut allocation)?;
            let member = |id: &ConsumerId| self.members.remove_entry(id);
            allocation.removed = allocation.victims.iter().filter_map(member).collect();
            self.add_member(consumer);
            self.version += 1;
            allocation.after = self.version;
        }
        allocation.placed = self.placed(id);
        Ok(allocation)
    }

    /// Returns an allocation that has changed nothing yet.
    fn begin_allocation(&self, id: &ConsumerId) -> Allocation {
        Allocation {
            id: id.clone(),
            victims: Vec::new(),
            placed: BTreeMap::new(),
            before: self.version,
            after: self.version,
            journals: self.trees.iter().map(|_| Journal::default()).collect(),
            removed: Vec::new(),
        }
    }

    /// Tries each tree in turn until all have agreed or none finds another victim.
    fn allocate(
        &mut self,
        holders: &[Arc<Holder>],
        spares: &dyn Fn(&ConsumerId) -> bool,
        allocation: &mut Allocation,
    ) -> Result<(), QuotaRefusal> {
        let Allocation { victims, journals, .. } = allocation;
        let mut agreed = vec![false; self.trees.len()];
        // How many of the victims each tree has released.
        let mut gone = vec![0; self.trees.len()];
        loop {
            let known = victims.len();
            let mut refusal = None;
            for (index, tree) in self.trees.iter_mut().enumerate() {
                let journal = &mut journals[index];
                for victim in &victims[gone[index]..] {
                    tree.release(victim, journal);
                }
                if !agreed[index] {
                    match tree.allocate(&holders[index], spares, journal) {
                        Ok(found) => {
                            agreed[index] = true;
                            victims.extend(found);
                        }
                        Err(refused) => {
                            refusal.get_or_insert(refused);
                        }
                    }
                }
                gone[index] = victims.len();
            }
            if victims.len() > known {
                continue;
            }
            let Some(refusal) = refusal else { return Ok(()) };
            self.rollback(journals);
            return Err(refusal);
        }
    }

    /// Undoes an allocation, so that the forest is exactly what it was before.
    ///
    /// # Errors
    /// Fails if anything was allocated, released or edited since, other than what was undone; then
    /// nothing has changed.
    pub fn undo(&mut self, allocation: Allocation) -> Result<(), Superseded> {
        let Allocation { id, before, after, mut journals, removed, .. } = allocation;
        if after != self.version {
            return Err(Superseded { id });
        }
        if after == before {
            return Ok(());
        }
        self.rollback(&mut journals);
        self.members.remove(&id);
        self.members.extend(removed);
        self.arrivals -= 1;
        self.version = before;
        Ok(())
    }

    /// Releases what a consumer holds in all trees; borrowers may then slide down. Returns whether
    /// it held anything.
    pub fn release(&mut self, id: &ConsumerId) -> bool {
        if self.members.remove(id).is_none() {
            return false;
        }
        for tree in &mut self.trees {
            tree.release(id, &mut Journal::default());
        }
        self.version += 1;
        true
    }

    /// Charges a consumer that runs already to the nodes it names, whether or not it fits.
    ///
    /// Where it names no node of a tree, that is its default node, and where there is no such node
    /// it is the root. A consumer that holds quota already keeps it.
    pub fn force_place(&mut self, consumer: &Consumer) {
        self.place_in_all_trees(consumer, |tree, holder, journal| {
            tree.force_place(holder.home, holder, journal);
        });
    }

    /// Charges a consumer that runs already: where it would be placed if it asked now and none had
    /// to be preempted for it, else as [`Forest::force_place`] does.
    ///
    /// A rebuilt forest does not know which consumers borrowed. With every consumer forced on its
    /// own node, no owner could reclaim what was lent. [`Forest::rebuild`] restores all consumers
    /// in the right order.
    pub fn restore(&mut self, consumer: &Consumer) {
        self.place_in_all_trees(consumer, Tree::restore);
    }

    /// Does the same, and returns an allocation that can be [undone](Forest::undo).
    pub(super) fn restore_undoable(&mut self, consumer: &Consumer) -> Allocation {
        self.place_in_all_trees(consumer, Tree::restore)
    }

    fn place_in_all_trees(
        &mut self,
        consumer: &Consumer,
        place: fn(&mut Tree, &Arc<Holder>, &mut Journal),
    ) -> Allocation {
        let mut allocation = self.begin_allocation(&consumer.id);
        if self.holds(&consumer.id) {
            return allocation;
        }
        for (tree, journal) in self.trees.iter_mut().zip(&mut allocation.journals) {
            let holder = tree.holder_or_root(consumer);
            place(tree, &holder, journal);
        }
        self.add_member(consumer);
        self.version += 1;
        allocation.after = self.version;
        allocation
    }

    /// Replaces the trees by those of these QuotaSubtrees, and reports what in them is ignored.
    ///
    /// A consumer that holds quota keeps it, over quota or not: on its node if its leaf is still
    /// below that, else on the node it names, else on the root. Consumers that were on one node
    /// keep their order, and of those that come together from several nodes the ones from below are
    /// first, then by the names of the nodes: the visible state of a forest decides, not its
    /// history.
    pub fn edit<S: Borrow<Subtree>>(
        &mut self,
        subtrees: impl IntoIterator<Item = S>,
    ) -> Vec<QuotaProblem> {
        let (mut next, problems) = Self::new(subtrees);
        for tree in &mut next.trees {
            let old = self.tree(tree.name());
            let mut order: Vec<_> = self
                .members
                .values()
                .map(|member| {
                    let seat =
                        old.and_then(|old| Some((old, old.placements.get(&member.consumer.id)?)));
                    let place = seat.map_or((Reverse(0), "", member.arrival), |(old, seat)| {
                        let depth = old.path(seat.node).count();
                        (Reverse(depth), &*old.nodes[seat.node].name, seat.arrival)
                    });
                    (place, member)
                })
                .collect();
            order.sort_by_key(|(place, _)| *place);
            for (_, member) in order {
                let holder = tree.holder_or_root(&member.consumer);
                let stayed = old
                    .and_then(|old| old.placed(&holder.id))
                    .and_then(|node| tree.by_name.get(node).copied())
                    .filter(|&node| tree.is_within(holder.home, node));
                tree.force_place(stayed.unwrap_or(holder.home), &holder, &mut Journal::default());
            }
        }
        self.trees = next.trees;
        self.version += 1;
        problems
    }

    fn rollback(&mut self, journals: &mut [Journal]) {
        for (tree, journal) in self.trees.iter_mut().zip(journals) {
            tree.rollback(journal, 0);
        }
    }

    fn add_member(&mut self, consumer: &Consumer) {
        let member = Member { consumer: Arc::new(consumer.clone()), arrival: self.arrivals };
        self.members.insert(consumer.id.clone(), member);
        self.arrivals += 1;
    }
}
