//! One tree: its nodes, the placements of consumers, and the few ways in which these change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gantry_reconcile::Key;

use super::consumer::{Consumer, ConsumerId};
use super::journal::{Entry, Journal};
use super::refusal::{QuotaRefusal, QuotaRefusalReason};

/// The nodes of one tree and what is charged to them.
///
/// Nodes are kept in pre-order, children by name, so the nodes below one are the range after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    pub(super) name: Arc<str>,
    /// The counted resources; vectors of amounts have this order.
    pub(super) resources: Vec<Arc<str>>,
    pub(super) nodes: Vec<Node>,
    pub(super) by_name: BTreeMap<Arc<str>, usize>,
    pub(super) placements: BTreeMap<ConsumerId, Placement>,
    /// The arrival number of the next placement on any node; it orders the consumers on one node.
    pub(super) next_arrival: u64,
}

/// A node of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: Arc<str>,
    /// The object it was read from.
    pub(super) object: Key,
    pub(super) parent: Option<usize>,
    /// The index after the last node below it.
    pub(super) end: usize,
    /// Whether borrowing past it is forbidden.
    pub(super) hard_limit: bool,
    /// Its quota; a resource without one is not compared.
    pub(super) quota: Box<[Option<i64>]>,
    /// What is charged to it: the sum of the consumers placed on it or below.
    pub(super) allocated: Box<[i128]>,
    /// The consumers placed on this very node, in order of arrival.
    pub(super) placed: BTreeMap<u64, Arc<Holder>>,
    /// The same by priority, with their sums: so it is known whether moving them helps before any
    /// is tried.
    pub(super) by_priority: BTreeMap<i32, PriorityTotals>,
    /// The same by the child they belong below, or the node itself if it is their home, and then by
    /// request: where something is released, only consumers are tried that it can help, and of many
    /// with the same request only the first.
    pub(super) branches: BTreeMap<usize, ArrivalsByRequest>,
}

/// Arrivals by request.
pub(super) type ArrivalsByRequest = BTreeMap<Box<[i64]>, BTreeSet<u64>>;

/// The consumers of one priority on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PriorityTotals {
    pub(super) count: usize,
    pub(super) amounts: Box<[i128]>,
}

/// A consumer as one tree sees it. It never changes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) id: ConsumerId,
    pub(super) priority: i32,
    pub(super) preemptable: bool,
    /// Whether it is preempted before others. Its priority is then the lowest there is.
    pub(super) preempt_first: bool,
    /// The node it names; the root if that does not exist.
    pub(super) home: usize,
    pub(super) request: Box<[i64]>,
}

/// The placement of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) node: usize,
    /// Its arrival number on the node.
    pub(super) arrival: u64,
}

/// The index of the root.
pub(super) const ROOT: usize = 0;

impl Tree {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the node a consumer is placed on.
    #[must_use]
    pub fn placed(&self, id: &ConsumerId) -> Option<&str> {
        self.placements.get(id).map(|seat| &*self.nodes[seat.node].name)
    }

    /// Returns the consumers placed on this very node, in order of arrival; none if there is no
    /// such node.
    pub fn placed_on(&self, node: &str) -> impl Iterator<Item = &ConsumerId> {
        let node = self.by_name.get(node).map(|&index| &self.nodes[index]);
        node.into_iter().flat_map(|node| node.placed.values().map(|holder| &holder.id))
    }

    /// Returns the consumer as this tree sees it, if it names a leaf.
    pub(super) fn leaf_holder(&self, consumer: &Consumer) -> Result<Arc<Holder>, QuotaRefusal> {
        let node = consumer.node_in(&self.name);
        let refuse =
            |why| QuotaRefusal { tree: self.name.to_string(), node: node.to_owned(), reason: why };
        match self.by_name.get(node) {
            None => Err(refuse(QuotaRefusalReason::UnknownNode)),
            Some(&home) if !self.is_leaf(home) => Err(refuse(QuotaRefusalReason::NotALeaf)),
            Some(&home) => Ok(self.holder(consumer, home)),
        }
    }

    /// Returns the consumer as this tree sees it, whatever it names.
    pub(super) fn holder_or_root(&self, consumer: &Consumer) -> Arc<Holder> {
        let home = self.by_name.get(consumer.node_in(&self.name));
        self.holder(consumer, home.copied().unwrap_or(ROOT))
    }

    fn holder(&self, consumer: &Consumer, home: usize) -> Arc<Holder> {
        let amount = |name: &Arc<str>| consumer.request.get(&**name).copied().unwrap_or(0).max(0);
        Arc::new(Holder {
            id: consumer.id.clone(),
            priority: if consumer.preempt_first { i32::MIN } else { consumer.priority },
            preemptable: consumer.preemptable,
            preempt_first: consumer.preempt_first,
            home,
            request: self.resources.iter().map(amount).collect(),
        })
    }

    pub(super) fn is_leaf(&self, node: usize) -> bool {
        self.nodes[node].end == node + 1
    }

    /// Returns whether `node` is `above` or below it.
    pub(super) fn is_within(&self, node: usize, above: usize) -> bool {
        (above..self.nodes[above].end).contains(&node)
    }

    /// Returns the node and those above it, up to the root.
    pub(super) fn path(&self, from: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(from), |&node| self.nodes[node].parent)
    }

    /// Returns the refusal at a node.
    pub(super) fn exceeded_refusal(&self, node: usize, request: &[i64]) -> QuotaRefusal {
        let at = &self.nodes[node];
        let short = |(index, name): (usize, &Arc<str>)| {
            let over = at.excess(index, request[index], 0)?;
            Some((name.to_string(), over))
        };
        let missing = self.resources.iter().enumerate().filter_map(short).collect();
        QuotaRefusal {
            tree: self.name.to_string(),
            node: at.name.to_string(),
            reason: QuotaRefusalReason::Exceeded { missing },
        }
    }
}

impl Node {
    /// Returns whether the request fits beside what is charged already.
    pub(super) fn fits(&self, request: &[i64]) -> bool {
        (0..request.len()).all(|index| self.excess(index, request[index], 0).is_none())
    }

    /// Returns whether it fits once this much is gone.
    pub(super) fn fits_without(&self, request: &[i64], gone: &[i128]) -> bool {
        (0..request.len()).all(|index| self.excess(index, request[index], gone[index]).is_none())
    }

    /// Adds what the consumers on this node hold whose priority is below the limit; all without
    /// one.
    pub(super) fn add_totals(&self, below: Option<i32>, sums: &mut [i128]) {
        for (_, rank) in
            self.by_priority.iter().take_while(|(at, _)| below.is_none_or(|it| **at < it))
        {
            sums.iter_mut().zip(&rank.amounts).for_each(|(sum, more)| *sum += more);
        }
    }

    /// Returns by how much a request exceeds the quota of one resource. A resource that is not
    /// requested is not compared: a node that an edit left short of gpus still has cpus to
    /// allocate.
    fn excess(&self, index: usize, request: i64, gone: i128) -> Option<i128> {
        let quota = self.quota[index].filter(|_| request > 0)?;
        let over = self.allocated[index] - gone + i128::from(request) - i128::from(quota);
        (over > 0).then_some(over)
    }
}

/// The elementary changes. Each is recorded in the journal, so that it can be undone.
impl Tree {
    /// Places a consumer on a node, after those already there.
    pub(super) fn place(&mut self, node: usize, holder: Arc<Holder>, journal: &mut Journal) {
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        self.insert_placement(Placement { node, arrival }, holder);
        journal.record(Entry::Placed(Placement { node, arrival }));
    }

    /// Removes a consumer from its node.
    pub(super) fn displace(
        &mut self,
        seat: Placement,
        journal: &mut Journal,
    ) -> Option<Arc<Holder>> {
        let holder = self.remove_placement(seat)?;
        journal.record(Entry::Displaced(seat, Arc::clone(&holder)));
        Some(holder)
    }

    /// Charges a consumer to a node.
    pub(super) fn charge(&mut self, node: usize, holder: &Arc<Holder>, journal: &mut Journal) {
        add(&mut self.nodes[node].allocated, &holder.request);
        journal.record(Entry::Charged(node, Arc::clone(holder)));
    }

    /// Removes the charge of a consumer from a node.
    pub(super) fn discharge(&mut self, node: usize, holder: &Arc<Holder>, journal: &mut Journal) {
        subtract(&mut self.nodes[node].allocated, &holder.request);
        journal.record(Entry::Discharged(node, Arc::clone(holder)));
    }

    /// Undoes what was recorded since the journal had this length.
    pub(super) fn rollback(&mut self, journal: &mut Journal, length: usize) {
        while journal.len() > length {
            match journal.pop() {
                None => break,
                Some(Entry::Placed(seat)) => {
                    self.remove_placement(seat);
                    self.next_arrival = seat.arrival;
                }
                Some(Entry::Displaced(seat, holder)) => self.insert_placement(seat, holder),
                Some(Entry::Charged(node, holder)) => {
                    subtract(&mut self.nodes[node].allocated, &holder.request);
                }
                Some(Entry::Discharged(node, holder)) => {
                    add(&mut self.nodes[node].allocated, &holder.request);
                }
            }
        }
    }

    fn insert_placement(&mut self, seat: Placement, holder: Arc<Holder>) {
        let branch = self.branch(seat.node, holder.home);
        let node = &mut self.nodes[seat.node];
        let nobody = || PriorityTotals { count: 0, amounts: vec![0; holder.request.len()].into() };
        let rank = node.by_priority.entry(holder.priority).or_insert_with(nobody);
        rank.count += 1;
        add(&mut rank.amounts, &holder.request);
        let waiting = node.branches.entry(branch).or_default();
        match waiting.get_mut(&holder.request) {
            Some(arrivals) => _ = arrivals.insert(seat.arrival),
            None => _ = waiting.insert(holder.request.clone(), [seat.arrival].into()),
        }
        self.placements.insert(holder.id.clone(), seat);
        node.placed.insert(seat.arrival, holder);
    }

    fn remove_placement(&mut self, seat: Placement) -> Option<Arc<Holder>> {
        let holder = self.nodes[seat.node].placed.remove(&seat.arrival)?;
        let branch = self.branch(seat.node, holder.home);
        let node = &mut self.nodes[seat.node];
        if let Some(waiting) = node.branches.get_mut(&branch) {
            if let Some(arrivals) = waiting.get_mut(&holder.request) {
                arrivals.remove(&seat.arrival);
                if arrivals.is_empty() {
                    waiting.remove(&holder.request);
                }
            }
            if waiting.is_empty() {
                node.branches.remove(&branch);
            }
        }
        if let Some(rank) = node.by_priority.get_mut(&holder.priority) {
            rank.count -= 1;
            subtract(&mut rank.amounts, &holder.request);
            if rank.count == 0 {
                node.by_priority.remove(&holder.priority);
            }
        }
        self.placements.remove(&holder.id);
        Some(holder)
    }

    /// Returns the child of a node that `home` is or is below; the node itself if it is the home.
    fn branch(&self, node: usize, home: usize) -> usize {
        self.path(home).find(|&at| self.nodes[at].parent == Some(node)).unwrap_or(node)
    }
}

pub(super) fn add(sums: &mut [i128], request: &[i64]) {
    for (sum, amount) in sums.iter_mut().zip(request) {
        *sum += i128::from(*amount);
    }
}

pub(super) fn subtract(sums: &mut [i128], request: &[i64]) {
    for (sum, amount) in sums.iter_mut().zip(request) {
        *sum -= i128::from(*amount);
    }
}
