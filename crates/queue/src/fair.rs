//! Whose turn it is among namespaces, for those who want more than first come, first served.
//!
//! A namespace that fills the queue with a thousand jobs should not keep another that has one job
//! waiting behind all of them. Where this order is chosen, namespaces of the same priority take
//! turns: next is always the one that has the least, counting what it holds and what it was promised
//! before in this order. How much a namespace has is its *dominant share*: the largest part it has of
//! any resource. That makes one who holds many GPUs and one who holds much memory comparable, and
//! nobody gains by asking for more than they need.
//!
//! Priority goes first as ever, and within a namespace nothing changes.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// One that waits, in the order of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting<'a> {
    /// Whose it is.
    pub namespace: &'a str,
    /// What it asks for, in any units that [`order`] is given throughout. What is below zero counts
    /// as zero.
    pub demand: &'a BTreeMap<String, i64>,
}

/// The order in which those of one priority are evaluated, as places in `waiting`.
///
/// `waiting` is in the order of the queue, `held` is what each namespace holds at present, and
/// `capacity` what there is. A resource of which there is nothing is not compared.
///
/// # Guarantees
/// Everyone is in the order once. Two of the same namespace stay in their order. Whoever comes next
/// is of a namespace that has the least among those that still wait; between equals the one decides
/// that was first in the queue.
#[must_use]
pub fn order(
    waiting: &[Waiting<'_>],
    held: &BTreeMap<&str, BTreeMap<String, i64>>,
    capacity: &BTreeMap<String, i64>,
) -> Vec<usize> {
    let mut lines: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for (place, entry) in waiting.iter().enumerate() {
        lines.entry(entry.namespace).or_default().push_back(place);
    }
    let mut shares = Shares::new(capacity.clone());
    held.iter().for_each(|(namespace, amounts)| shares.give(namespace, amounts));
    let turn = |shares: &Shares, namespace, line: &VecDeque<usize>| {
        line.front()
            .map(|place| Reverse(Turn { share: shares.of(namespace), place: *place, namespace }))
    };
    let mut turns: BinaryHeap<Reverse<Turn<'_>>> =
        lines.iter().filter_map(|(name, line)| turn(&shares, name, line)).collect();
    let mut order = Vec::with_capacity(waiting.len());
    while let Some(Reverse(Turn { place, namespace, .. })) = turns.pop() {
        order.push(place);
        let Some(line) = lines.get_mut(namespace) else { continue };
        line.pop_front();
        shares.give(namespace, waiting[place].demand);
        turns.extend(turn(&shares, namespace, line));
    }
    order
}

/// What part of all there is each namespace has.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    capacity: BTreeMap<String, i64>,
    /// What each has, and its largest part of anything.
    has: BTreeMap<String, (BTreeMap<String, i64>, Share)>,
}

impl Shares {
    /// Nobody has anything yet. A resource of which there is nothing is not compared.
    #[must_use]
    pub fn new(capacity: BTreeMap<String, i64>) -> Self {
        Self { capacity, has: BTreeMap::new() }
    }

    /// Counts in what a namespace has besides. What is below zero counts as zero.
    pub fn give(&mut self, namespace: &str, amounts: &BTreeMap<String, i64>) {
        let (has, share) = self.has.entry(namespace.to_owned()).or_default();
        for (resource, amount) in amounts {
            let sum = has.entry(resource.clone()).or_default();
            *sum = sum.saturating_add((*amount).max(0));
        }
        *share = Share::dominant(has, &self.capacity);
    }

    /// The dominant share of a namespace.
    #[must_use]
    pub fn of(&self, namespace: &str) -> Share {
        self.has.get(namespace).map_or(Share::NOTHING, |(_, share)| *share)
    }
}

/// A namespace whose next would come at this place. Places differ, so no two turns are equal.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn<'a> {
    share: Share,
    place: usize,
    namespace: &'a str,
}

/// A part of a whole, compared exactly.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    part: i64,
    whole: i64,
}

impl Share {
    /// Nothing of anything.
    pub const NOTHING: Self = Self { part: 0, whole: 1 };

    /// The largest part of any resource.
    fn dominant(has: &BTreeMap<String, i64>, capacity: &BTreeMap<String, i64>) -> Self {
        let share = |(resource, part): (&String, &i64)| {
            let whole = capacity.get(resource).copied().filter(|whole| *whole > 0)?;
            Some(Self { part: (*part).max(0), whole })
        };
        has.iter().filter_map(share).max().unwrap_or(Self::NOTHING)
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        // Both sides fit: each is a product of two numbers below 2^63.
        let [this, that] =
            [(self, other), (other, self)].map(|(a, b)| i128::from(a.part) * i128::from(b.whole));
        this.cmp(&that)
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Share {}

#[cfg(test)]
mod tests;
