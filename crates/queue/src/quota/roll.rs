//! A forest that is kept from one decision to the next.

use std::sync::Arc;

use super::bindings::Bindings;
use super::forest::{Allocation, Forest};
use super::standing::{Standing, in_order};
use super::subtree::Subtree;

/// Everyone who holds quota, in a forest: the one that [`Forest::standing`] would make.
///
/// Between two decisions few come and go, and most of them at the end of the order in which consumers are
/// put back. So those from the first difference on are taken out again, the last one first, and put back as
/// they are now.
#[derive(Debug, Default)]
pub struct Roll {
    /// What the trees were made of, by name.
    subtrees: Vec<Arc<Subtree>>,
    forest: Forest,
    /// Who may be charged to which node.
    bindings: Bindings,
    /// Who was put back, in this order, and what that did to the forest.
    seated: Vec<(Standing, Allocation)>,
}

impl Roll {
    /// Makes it the forest of these trees, in any order. Who was put back stays if they are as before.
    pub fn read(&mut self, mut subtrees: Vec<Arc<Subtree>>) {
        subtrees.sort_by_cached_key(|it| it.metadata.key());
        if !are_alike(&self.subtrees, &subtrees) {
            let (forest, _) = Forest::new(subtrees.iter().cloned());
            let bindings = Bindings::of(&subtrees);
            *self = Self { subtrees, forest, bindings, seated: Vec::new() };
        }
    }

    /// Makes it the forest of these consumers. The order in which they are given is of no matter.
    pub fn call(&mut self, holders: impl IntoIterator<Item = Standing>) {
        let holders = in_order(holders);
        let pairs = self.seated.iter().zip(&holders);
        let same = pairs.take_while(|((was, _), is)| was == *is).count();
        while self.seated.len() > same {
            let Some((_, allocation)) = self.seated.pop() else { break };
            let undone = self.forest.undo(allocation);
            debug_assert!(undone.is_ok(), "the last one that was put back goes first");
        }
        for holder in holders.into_iter().skip(same) {
            let allocation = self.forest.take_up(&holder.consumer);
            self.seated.push((holder, allocation));
        }
    }

    /// The forest.
    #[must_use]
    pub fn forest(&self) -> &Forest {
        &self.forest
    }

    /// Who may be charged to which node.
    #[must_use]
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// The forest, for whoever takes back what it does to it before the roll is called again.
    pub(crate) fn forest_mut(&mut self) -> &mut Forest {
        &mut self.forest
    }
}

/// Whether trees made of either are the same.
fn are_alike(one: &[Arc<Subtree>], two: &[Arc<Subtree>]) -> bool {
    one.len() == two.len() && one.iter().zip(two).all(|(one, two)| one.is_like(two))
}
