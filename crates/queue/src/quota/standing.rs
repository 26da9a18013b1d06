//! A forest made anew from what the server knows.

use std::borrow::Borrow;

use jiff::Timestamp;

use super::consumer::Consumer;
use super::forest::Forest;
use super::problem::Problem;
use super::subtree::Subtree;

/// A consumer that holds quota already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Since when.
    pub since: Timestamp,
    /// Who, and what it holds.
    pub consumer: Consumer,
}

impl Forest {
    /// Makes a forest of all QuotaSubtrees, with everyone in it who holds quota, and says what in the
    /// objects does not count. The order in which either is given is of no matter.
    ///
    /// Those of higher priority are placed first, and of equal ones those who held quota first: on
    /// a node it is the lower priority that is pushed up, and otherwise the newcomer that borrows.
    pub fn standing<S: Borrow<Subtree>>(
        subtrees: impl IntoIterator<Item = S>,
        holders: impl IntoIterator<Item = Standing>,
    ) -> (Self, Vec<Problem>) {
        let (mut forest, problems) = Self::new(subtrees);
        for holder in &in_order(holders) {
            forest.resume(&holder.consumer);
        }
        (forest, problems)
    }
}

/// Consumers in the order in which they are put back.
pub(super) fn in_order(holders: impl IntoIterator<Item = Standing>) -> Vec<Standing> {
    let mut holders: Vec<Standing> = holders.into_iter().collect();
    holders.sort_by(|a, b| {
        // Who is the first to go has the rest of what the others leave.
        let first = a.consumer.preempt_first.cmp(&b.consumer.preempt_first);
        let priority = first.then_with(|| b.consumer.priority.cmp(&a.consumer.priority));
        priority.then_with(|| (a.since, &a.consumer.id).cmp(&(b.since, &b.consumer.id)))
    });
    holders
}
