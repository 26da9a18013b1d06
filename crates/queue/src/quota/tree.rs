//! One tree: its nodes, who is placed where, and the few ways in which that changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gantry_reconcile::Key;

use super::consumer::{Consumer, ConsumerId};
use super::journal::{Entry, Journal};
use super::refusal::{Refusal, Why};

/// The nodes of one tree and what is charged to them.
///
/// Nodes are kept in pre-order, children by name, so the nodes below one are the range after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    pub(super) name: Arc<str>,
    /// What is counted; vectors of amounts have this order.
    pub(super) resources: Vec<Arc<str>>,
    pub(super) nodes: Vec<Node>,
    pub(super) by_name: BTreeMap<Arc<str>, usize>,
    pub(super) seats: BTreeMap<ConsumerId, Seat>,
    /// The number of the next arrival on any node; it orders those on one node.
    pub(super) next: u64,
}

/// A node of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: Arc<str>,
    /// The object it was read from.
    pub(super) object: Key,
    pub(super) parent: Option<usize>,
    /// Where the nodes below it end.
    pub(super) end: usize,
    /// Whether nobody borrows past it.
    pub(super) hard: bool,
    /// What it may hand out; nothing is compared where there is none.
    pub(super) quota: Box<[Option<i64>]>,
    /// What is charged to it: whoever is placed on it or below.
    pub(super) allocated: Box<[i128]>,
    /// Who is placed on this very node, in order of arrival.
    pub(super) placed: BTreeMap<u64, Arc<Holder>>,
    /// The same by priority, and how much they hold: whether it helps to ask them is known before
    /// anyone is asked.
    pub(super) ranks: BTreeMap<i32, Rank>,
    /// The same by the child they belong below, or the node itself if they are at home here, and
    /// then by what they ask for: where something is released, only those are asked whom it can
    /// help, and of many that ask for the same only the first.
    pub(super) branches: BTreeMap<usize, Waiting>,
}

/// Arrivals by what they ask for.
pub(super) type Waiting = BTreeMap<Box<[i64]>, BTreeSet<u64>>;

/// Those of one priority on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    pub(super) count: usize,
    pub(super) holds: Box<[i128]>,
}

/// A consumer as one tree sees it. It never changes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) id: ConsumerId,
    pub(super) priority: i32,
    pub(super) preemptable: bool,
    /// Whether it goes before others. Its priority is the lowest there is then.
    pub(super) preempt_first: bool,
    /// The node it names; the root if that is not there.
    pub(super) home: usize,
    pub(super) request: Box<[i64]>,
}

/// Where a consumer is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) node: usize,
    /// Its number among those on the node.
    pub(super) arrival: u64,
}

/// The node without a parent.
pub(super) const ROOT: usize = 0;

impl Tree {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where a consumer is placed.
    #[must_use]
    pub fn placed(&self, id: &ConsumerId) -> Option<&str> {
        self.seats.get(id).map(|seat| &*self.nodes[seat.node].name)
    }

    /// Who is placed on this very node, in order of arrival; nobody if there is no such node.
    pub fn on(&self, node: &str) -> impl Iterator<Item = &ConsumerId> {
        let node = self.by_name.get(node).map(|&index| &self.nodes[index]);
        node.into_iter().flat_map(|node| node.placed.values().map(|holder| &holder.id))
    }

    /// The consumer as this tree sees it, if it names a leaf.
    pub(super) fn admit(&self, consumer: &Consumer) -> Result<Arc<Holder>, Refusal> {
        let node = consumer.node_in(&self.name);
        let refuse = |why| Refusal { tree: self.name.to_string(), node: node.to_owned(), why };
        match self.by_name.get(node) {
            None => Err(refuse(Why::Unknown)),
            Some(&home) if !self.is_leaf(home) => Err(refuse(Why::Inner)),
            Some(&home) => Ok(self.holder(consumer, home)),
        }
    }

    /// The consumer as this tree sees it, whatever it names.
    pub(super) fn take_in(&self, consumer: &Consumer) -> Arc<Holder> {
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

    /// Whether `node` is `above` or below it.
    pub(super) fn is_within(&self, node: usize, above: usize) -> bool {
        (above..self.nodes[above].end).contains(&node)
    }

    /// The node and those above it, up to the root.
    pub(super) fn path(&self, from: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(from), |&node| self.nodes[node].parent)
    }

    /// What a refusal at a node says.
    pub(super) fn exceeded(&self, node: usize, request: &[i64]) -> Refusal {
        let at = &self.nodes[node];
        let short = |(index, name): (usize, &Arc<str>)| {
            let over = at.over(index, request[index], 0)?;
            Some((name.to_string(), over))
        };
        let missing = self.resources.iter().enumerate().filter_map(short).collect();
        Refusal {
            tree: self.name.to_string(),
            node: at.name.to_string(),
            why: Why::Exceeded { missing },
        }
    }
}

impl Node {
    /// Whether the request fits beside what is charged already.
    pub(super) fn fits(&self, request: &[i64]) -> bool {
        (0..request.len()).all(|index| self.over(index, request[index], 0).is_none())
    }

    /// Whether it fits once this much is gone.
    pub(super) fn fits_without(&self, request: &[i64], gone: &[i128]) -> bool {
        (0..request.len()).all(|index| self.over(index, request[index], gone[index]).is_none())
    }

    /// Counts in what those on this node hold whose priority is below the limit; all without one.
    pub(super) fn count(&self, below: Option<i32>, sums: &mut [i128]) {
        for (_, rank) in self.ranks.iter().take_while(|(at, _)| below.is_none_or(|it| **at < it)) {
            sums.iter_mut().zip(&rank.holds).for_each(|(sum, more)| *sum += more);
        }
    }

    /// By how much a request exceeds the quota of one resource. What is not asked for is not
    /// compared: a node that an edit left short of gpus still hands out cpus.
    fn over(&self, index: usize, request: i64, gone: i128) -> Option<i128> {
        let quota = self.quota[index].filter(|_| request > 0)?;
        let over = self.allocated[index] - gone + i128::from(request) - i128::from(quota);
        (over > 0).then_some(over)
    }
}

/// The steps that everything is made of. Each is noted, so that it can be taken back.
impl Tree {
    /// Places a consumer on a node, after those who are there.
    pub(super) fn place(&mut self, node: usize, holder: Arc<Holder>, journal: &mut Journal) {
        let arrival = self.next;
        self.next += 1;
        self.seat(Seat { node, arrival }, holder);
        journal.note(Entry::Placed(Seat { node, arrival }));
    }

    /// Takes a consumer from its node.
    pub(super) fn displace(&mut self, seat: Seat, journal: &mut Journal) -> Option<Arc<Holder>> {
        let holder = self.unseat(seat)?;
        journal.note(Entry::Displaced(seat, Arc::clone(&holder)));
        Some(holder)
    }

    /// Charges a consumer to a node.
    pub(super) fn charge(&mut self, node: usize, holder: &Arc<Holder>, journal: &mut Journal) {
        add(&mut self.nodes[node].allocated, &holder.request);
        journal.note(Entry::Charged(node, Arc::clone(holder)));
    }

    /// Takes the charge of a consumer from a node.
    pub(super) fn discharge(&mut self, node: usize, holder: &Arc<Holder>, journal: &mut Journal) {
        subtract(&mut self.nodes[node].allocated, &holder.request);
        journal.note(Entry::Discharged(node, Arc::clone(holder)));
    }

    /// Takes back what was noted since the journal had this length.
    pub(super) fn take_back(&mut self, journal: &mut Journal, length: usize) {
        while journal.len() > length {
            match journal.pop() {
                None => break,
                Some(Entry::Placed(seat)) => {
                    self.unseat(seat);
                    self.next = seat.arrival;
                }
                Some(Entry::Displaced(seat, holder)) => self.seat(seat, holder),
                Some(Entry::Charged(node, holder)) => {
                    subtract(&mut self.nodes[node].allocated, &holder.request);
                }
                Some(Entry::Discharged(node, holder)) => {
                    add(&mut self.nodes[node].allocated, &holder.request);
                }
            }
        }
    }

    fn seat(&mut self, seat: Seat, holder: Arc<Holder>) {
        let branch = self.branch(seat.node, holder.home);
        let node = &mut self.nodes[seat.node];
        let nobody = || Rank { count: 0, holds: vec![0; holder.request.len()].into() };
        let rank = node.ranks.entry(holder.priority).or_insert_with(nobody);
        rank.count += 1;
        add(&mut rank.holds, &holder.request);
        let waiting = node.branches.entry(branch).or_default();
        match waiting.get_mut(&holder.request) {
            Some(arrivals) => _ = arrivals.insert(seat.arrival),
            None => _ = waiting.insert(holder.request.clone(), [seat.arrival].into()),
        }
        self.seats.insert(holder.id.clone(), seat);
        node.placed.insert(seat.arrival, holder);
    }

    fn unseat(&mut self, seat: Seat) -> Option<Arc<Holder>> {
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
        if let Some(rank) = node.ranks.get_mut(&holder.priority) {
            rank.count -= 1;
            subtract(&mut rank.holds, &holder.request);
            if rank.count == 0 {
                node.ranks.remove(&holder.priority);
            }
        }
        self.seats.remove(&holder.id);
        Some(holder)
    }

    /// The child of a node that `home` is or is below; the node itself if it is at home there.
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
