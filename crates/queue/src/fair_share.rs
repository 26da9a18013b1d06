//! Orders pending AppWrappers so that namespaces of the same priority take turns.
//!
//! A namespace that fills the queue with a thousand jobs should not keep another that has one job
//! waiting behind all of them. Where this order is chosen, namespaces of the same priority take
//! turns: next is always the one with the smallest share, counting what it holds and what it was
//! given before in this order. The share of a namespace is its *dominant share*: the largest
//! fraction it has of any resource. That makes a namespace with many GPUs and one with much memory
//! comparable, and no user gains by requesting more than is needed.
//!
//! Priority is compared first, and the order within a namespace is unchanged.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// A pending AppWrapper, in queue order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingDemand<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// What it requests, in any units as long as all arguments of [`fair_order`] use the same.
    /// Negative amounts count as zero.
    pub demand: &'a BTreeMap<String, i64>,
}

/// Returns the order in which AppWrappers of one priority are evaluated, as indexes into `waiting`.
///
/// `waiting` is in queue order, `held` is what each namespace holds at present, and `capacity` is
/// the total. A resource with a capacity of zero is not compared.
///
/// # Guarantees
/// Every AppWrapper is in the order once. Two of the same namespace keep their order. The next one
/// belongs to the namespace with the smallest share among those that still have pending
/// AppWrappers; on a tie the one that is first in the queue decides.
#[must_use]
pub fn fair_order(
    waiting: &[PendingDemand<'_>],
    held: &BTreeMap<&str, BTreeMap<String, i64>>,
    capacity: &BTreeMap<String, i64>,
) -> Vec<usize> {
    let mut lines: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for (place, entry) in waiting.iter().enumerate() {
        lines.entry(entry.namespace).or_default().push_back(place);
    }
    let mut shares = NamespaceShares::new(capacity.clone());
    held.iter().for_each(|(namespace, amounts)| shares.add_usage(namespace, amounts));
    let turn = |shares: &NamespaceShares, namespace, line: &VecDeque<usize>| {
        line.front().map(|place| {
            Reverse(NextNamespace { share: shares.of(namespace), position: *place, namespace })
        })
    };
    let mut turns: BinaryHeap<Reverse<NextNamespace<'_>>> =
        lines.iter().filter_map(|(name, line)| turn(&shares, name, line)).collect();
    let mut order = Vec::with_capacity(waiting.len());
    while let Some(Reverse(NextNamespace { position: place, namespace, .. })) = turns.pop() {
        order.push(place);
        let Some(line) = lines.get_mut(namespace) else { continue };
        line.pop_front();
        shares.add_usage(namespace, waiting[place].demand);
        turns.extend(turn(&shares, namespace, line));
    }
    order
}

/// The share of the total that each namespace has.
#[derive(Clone, Debug, Default)]
pub struct NamespaceShares {
    capacity: BTreeMap<String, i64>,
    /// What each namespace has, and its dominant share.
    usage: BTreeMap<String, (BTreeMap<String, i64>, DominantShare)>,
}

impl NamespaceShares {
    /// Creates shares in which no namespace has anything yet. A resource with a capacity of zero is
    /// not compared.
    #[must_use]
    pub fn new(capacity: BTreeMap<String, i64>) -> Self {
        Self { capacity, usage: BTreeMap::new() }
    }

    /// Adds to what a namespace has. Negative amounts count as zero.
    pub fn add_usage(&mut self, namespace: &str, amounts: &BTreeMap<String, i64>) {
        let (has, share) = self.usage.entry(namespace.to_owned()).or_default();
        for (resource, amount) in amounts {
            let sum = has.entry(resource.clone()).or_default();
            *sum = sum.saturating_add((*amount).max(0));
        }
        *share = DominantShare::dominant(has, &self.capacity);
    }

    /// Returns the dominant share of a namespace.
    #[must_use]
    pub fn of(&self, namespace: &str) -> DominantShare {
        self.usage.get(namespace).map_or(DominantShare::ZERO, |(_, share)| *share)
    }
}

/// A namespace whose next AppWrapper is at this index. Indexes differ, so no two entries are equal.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NextNamespace<'a> {
    share: DominantShare,
    position: usize,
    namespace: &'a str,
}

/// A fraction, compared exactly.
#[derive(Clone, Copy, Debug)]
pub struct DominantShare {
    part: i64,
    whole: i64,
}

impl DominantShare {
    /// The share of a namespace that has nothing.
    pub const ZERO: Self = Self { part: 0, whole: 1 };

    /// Returns the largest fraction of any resource.
    fn dominant(has: &BTreeMap<String, i64>, capacity: &BTreeMap<String, i64>) -> Self {
        let share = |(resource, part): (&String, &i64)| {
            let whole = capacity.get(resource).copied().filter(|whole| *whole > 0)?;
            Some(Self { part: (*part).max(0), whole })
        };
        has.iter().filter_map(share).max().unwrap_or(Self::ZERO)
    }
}

impl Default for DominantShare {
    fn default() -> Self {
        Self::ZERO
    }
}

impl Ord for DominantShare {
    fn cmp(&self, other: &Self) -> Ordering {
        // Both sides fit: each is a product of two numbers below 2^63.
        let [this, that] =
            [(self, other), (other, self)].map(|(a, b)| i128::from(a.part) * i128::from(b.whole));
        this.cmp(&that)
    }
}

impl PartialOrd for DominantShare {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DominantShare {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for DominantShare {}

#[cfg(test)]
mod tests;
