//! All trees together: a consumer has room in each of them, or in none.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::build;
use super::consumer::{Consumer, ConsumerId, DEFAULT_NODE};
use super::journal::Journal;
use super::problem::Problem;
use super::refusal::Refusal;
use super::subtree::Subtree;
use super::tree::{Holder, Tree};

/// All quota trees and who holds what in them.
///
/// Whoever holds quota is placed in every tree. Two forests are equal if they answer alike for ever:
/// same nodes, same consumers on the same nodes, in the same order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forest {
    /// By name.
    trees: Vec<Tree>,
    members: BTreeMap<ConsumerId, Member>,
    /// The number of the next consumer.
    arrivals: u64,
    /// Counts changes. What is undone is not counted, so the number stands for one state as long as
    /// there is an [`Allocation`] that leads away from it.
    version: u64,
}

/// Someone who holds quota.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    consumer: Arc<Consumer>,
    arrival: u64,
}

/// A consumer got what it asked for.
#[derive(Debug)]
pub struct Allocation {
    /// Who got it.
    pub id: ConsumerId,
    /// Who lost everything they had, in all trees, in the order in which they had to go.
    pub victims: Vec<ConsumerId>,
    /// The node it was placed on, for each tree. It is above the node that was asked for if the
    /// consumer borrows, and it may change when others come and go.
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
    /// Whose allocation it is.
    pub id: ConsumerId,
}

impl Forest {
    /// Makes a forest of all QuotaSubtrees, in any order, and says what in them does not count.
    ///
    /// Objects without a tree label are ignored. A tree without any root does not exist.
    pub fn new<S: Borrow<Subtree>>(subtrees: impl IntoIterator<Item = S>) -> (Self, Vec<Problem>) {
        let subtrees: Vec<S> = subtrees.into_iter().collect();
        let (trees, problems) = build::trees(subtrees.iter().map(Borrow::borrow));
        (Self { trees, ..Self::default() }, problems)
    }

    /// Whether there is no tree, and so no limit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    /// The trees, by name.
    pub fn trees(&self) -> impl Iterator<Item = &Tree> {
        self.trees.iter()
    }

    /// The tree of this name.
    #[must_use]
    pub fn tree(&self, name: &str) -> Option<&Tree> {
        let found = self.trees.binary_search_by(|tree| tree.name().cmp(name));
        found.ok().map(|index| &self.trees[index])
    }

    /// Labels that an AppWrapper must get before it is evaluated: the default node for every tree
    /// that its own labels do not mention.
    #[must_use]
    pub fn missing_labels(&self, labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let missing = self.trees.iter().map(Tree::name).filter(|name| !labels.contains_key(*name));
        missing.map(|name| (name.to_owned(), DEFAULT_NODE.to_owned())).collect()
    }

    /// Whether a consumer holds quota.
    #[must_use]
    pub fn holds(&self, id: &ConsumerId) -> bool {
        self.members.contains_key(id)
    }

    /// Everyone who holds quota.
    pub fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.members.values().map(|member| &*member.consumer)
    }

    /// The node a consumer is placed on, for each tree; empty if it holds nothing.
    #[must_use]
    pub fn placed(&self, id: &ConsumerId) -> BTreeMap<String, String> {
        let node = |tree: &Tree| Some((tree.name().to_owned(), tree.placed(id)?.to_owned()));
        self.trees.iter().filter_map(node).collect()
    }

    /// Gives a consumer what it asks for in every tree, at the expense of others if it must.
    ///
    /// A consumer preempted in one tree leaves all of them. Trees take turns by name, and one that
    /// has no room is asked again when others have found victims. A consumer that holds quota
    /// already keeps what it has and is not charged again. Without any tree everyone gets everything.
    ///
    /// # Errors
    /// If a tree has no room, or does not have the leaf the consumer names; then nothing has changed.
    pub fn try_allocate(&mut self, consumer: &Consumer) -> Result<Allocation, Refusal> {
        self.try_allocate_beside(consumer, &|_| false)
    }

    /// The same, at the expense of those only whom it does not spare.
    ///
    /// # Errors
    /// As [`Forest::try_allocate`].
    pub fn try_allocate_beside(
        &mut self,
        consumer: &Consumer,
        spares: &dyn Fn(&ConsumerId) -> bool,
    ) -> Result<Allocation, Refusal> {
        let id = &consumer.id;
        let mut allocation = self.begin(id);
        if !self.holds(id) {
            let holders: Result<Vec<_>, _> =
                self.trees.iter().map(|tree| tree.admit(consumer)).collect();
            self.allocate(&holders?, spares, &mut allocation)?;
            let member = |id: &ConsumerId| self.members.remove_entry(id);
            allocation.removed = allocation.victims.iter().filter_map(member).collect();
            self.enter(consumer);
            self.version += 1;
            allocation.after = self.version;
        }
        allocation.placed = self.placed(id);
        Ok(allocation)
    }

    /// An allocation of which nothing is done yet.
    fn begin(&self, id: &ConsumerId) -> Allocation {
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

    /// Asks each tree in turn until all have agreed or none finds another victim.
    fn allocate(
        &mut self,
        holders: &[Arc<Holder>],
        spares: &dyn Fn(&ConsumerId) -> bool,
        allocation: &mut Allocation,
    ) -> Result<(), Refusal> {
        let Allocation { victims, journals, .. } = allocation;
        let mut agreed = vec![false; self.trees.len()];
        // How many of the victims each tree has let go.
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
            self.take_back(journals);
            return Err(refusal);
        }
    }

    /// Takes an allocation back, so that the forest is exactly what it was before.
    ///
    /// # Errors
    /// If anything was given, taken or edited since, other than what was undone; then nothing has
    /// changed.
    pub fn undo(&mut self, allocation: Allocation) -> Result<(), Superseded> {
        let Allocation { id, before, after, mut journals, removed, .. } = allocation;
        if after != self.version {
            return Err(Superseded { id });
        }
        if after == before {
            return Ok(());
        }
        self.take_back(&mut journals);
        self.members.remove(&id);
        self.members.extend(removed);
        self.arrivals -= 1;
        self.version = before;
        Ok(())
    }

    /// Takes from a consumer what it holds in all trees; who borrowed may then slide down. Says
    /// whether it held anything.
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

    /// Charges a consumer that runs already to the nodes it names, whether or not there is room.
    ///
    /// Where it names no node of a tree that is its default node, and where there is no such node it
    /// is the root. A consumer that holds quota already keeps what it has.
    pub fn force_place(&mut self, consumer: &Consumer) {
        self.put(consumer, |tree, holder, journal| tree.force(holder.home, holder, journal));
    }

    /// Charges a consumer that runs already: where it would be placed if it asked now and nobody had
    /// to go for it, else as [`Forest::force_place`] does.
    ///
    /// A forest made anew has forgotten who borrowed. With everyone forced on their own nodes,
    /// nobody could take back what was lent. [`Forest::standing`] gives everyone in the right order.
    pub fn resume(&mut self, consumer: &Consumer) {
        self.put(consumer, Tree::resume);
    }

    /// The same, to be [undone](Forest::undo) by whoever keeps the forest.
    pub(super) fn take_up(&mut self, consumer: &Consumer) -> Allocation {
        self.put(consumer, Tree::resume)
    }

    fn put(
        &mut self,
        consumer: &Consumer,
        place: fn(&mut Tree, &Arc<Holder>, &mut Journal),
    ) -> Allocation {
        let mut allocation = self.begin(&consumer.id);
        if self.holds(&consumer.id) {
            return allocation;
        }
        for (tree, journal) in self.trees.iter_mut().zip(&mut allocation.journals) {
            let holder = tree.take_in(consumer);
            place(tree, &holder, journal);
        }
        self.enter(consumer);
        self.version += 1;
        allocation.after = self.version;
        allocation
    }

    /// Makes the trees what these QuotaSubtrees say, and says what in them does not count.
    ///
    /// Whoever holds quota keeps it, over quota or not: on its node if its leaf is still below that,
    /// else on the node it names, else on the root. Those who were on one node stay in their order, and
    /// of those who come together from several nodes the ones from below are first, then by the names of
    /// the nodes: what can be seen of a forest decides, not how it came about.
    pub fn edit<S: Borrow<Subtree>>(
        &mut self,
        subtrees: impl IntoIterator<Item = S>,
    ) -> Vec<Problem> {
        let (mut next, problems) = Self::new(subtrees);
        for tree in &mut next.trees {
            let old = self.tree(tree.name());
            let mut order: Vec<_> = self
                .members
                .values()
                .map(|member| {
                    let seat = old.and_then(|old| Some((old, old.seats.get(&member.consumer.id)?)));
                    let place = seat.map_or((Reverse(0), "", member.arrival), |(old, seat)| {
                        let depth = old.path(seat.node).count();
                        (Reverse(depth), &*old.nodes[seat.node].name, seat.arrival)
                    });
                    (place, member)
                })
                .collect();
            order.sort_by_key(|(place, _)| *place);
            for (_, member) in order {
                let holder = tree.take_in(&member.consumer);
                let stayed = old
                    .and_then(|old| old.placed(&holder.id))
                    .and_then(|node| tree.by_name.get(node).copied())
                    .filter(|&node| tree.is_within(holder.home, node));
                tree.force(stayed.unwrap_or(holder.home), &holder, &mut Journal::default());
            }
        }
        self.trees = next.trees;
        self.version += 1;
        problems
    }

    fn take_back(&mut self, journals: &mut [Journal]) {
        for (tree, journal) in self.trees.iter_mut().zip(journals) {
            tree.take_back(journal, 0);
        }
    }

    fn enter(&mut self, consumer: &Consumer) {
        let member = Member { consumer: Arc::new(consumer.clone()), arrival: self.arrivals };
        self.members.insert(consumer.id.clone(), member);
        self.arrivals += 1;
    }
}
