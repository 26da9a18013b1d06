//! Rebuilds a forest from the objects of the server.

use std::borrow::Borrow;

use jiff::Timestamp;

use super::consumer::Consumer;
use super::forest::Forest;
use super::problem::QuotaProblem;
use super::subtree::Subtree;

/// A consumer that holds quota already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaHolder {
    /// Since when it holds quota.
    pub since: Timestamp,
    /// The consumer, and what it holds.
    pub consumer: Consumer,
}

impl Forest {
    /// Builds a forest of all QuotaSubtrees, with all consumers that hold quota, and reports what
    /// in the objects is ignored. The order in which either is given does not matter.
    ///
    /// Consumers of higher priority are placed first, and of equal ones those that held quota
    /// first: on a node it is the lower priority that is pushed up, and otherwise the newer
    /// consumer that borrows.
    pub fn rebuild<S: Borrow<Subtree>>(
        subtrees: impl IntoIterator<Item = S>,
        holders: impl IntoIterator<Item = QuotaHolder>,
    ) -> (Self, Vec<QuotaProblem>) {
        let (mut forest, problems) = Self::new(subtrees);
        for holder in &in_restore_order(holders) {
            forest.restore(&holder.consumer);
        }
        (forest, problems)
    }
}

/// Returns consumers in the order in which they are restored.
pub(super) fn in_restore_order(holders: impl IntoIterator<Item = QuotaHolder>) -> Vec<QuotaHolder> {
    let mut holders: Vec<QuotaHolder> = holders.into_iter().collect();
    holders.sort_by(|a, b| {
        // Consumers to be preempted first get what the others leave.
        let first = a.consumer.preempt_first.cmp(&b.consumer.preempt_first);
        let priority = first.then_with(|| b.consumer.priority.cmp(&a.consumer.priority));
        priority.then_with(|| (a.since, &a.consumer.id).cmp(&(b.since, &b.consumer.id)))
    });
    holders
}
