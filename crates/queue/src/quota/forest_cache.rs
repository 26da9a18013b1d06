//! A forest that is cached from one cycle to the next.

use std::sync::Arc;

use super::bindings::Bindings;
use super::forest::{Allocation, Forest};
use super::rebuild::{QuotaHolder, in_restore_order};
use super::subtree::Subtree;

/// All consumers that hold quota, in a forest: the one that [`Forest::rebuild`] would build.
///
/// Between two cycles few consumers come and go, and most of them at the end of the order in which
/// consumers are restored. So those from the first difference on are removed again, the last one
/// first, and restored in their current form.
#[derive(Debug, Default)]
pub struct ForestCache {
    /// The objects the trees were built from, by name.
    subtrees: Vec<Arc<Subtree>>,
    forest: Forest,
    /// The bindings of the nodes.
    bindings: Bindings,
    /// The restored consumers, in this order, and the allocation of each.
    restored: Vec<(QuotaHolder, Allocation)>,
}

impl ForestCache {
    /// Updates the forest to these trees, in any order. Restored consumers stay if the trees are
    /// unchanged.
    pub fn update_trees(&mut self, mut subtrees: Vec<Arc<Subtree>>) {
        subtrees.sort_by_cached_key(|it| it.metadata.key());
        if !have_same_trees(&self.subtrees, &subtrees) {
            let (forest, _) = Forest::new(subtrees.iter().cloned());
            let bindings = Bindings::of(&subtrees);
            *self = Self { subtrees, forest, bindings, restored: Vec::new() };
        }
    }

    /// Updates the forest to these consumers. The order in which they are given does not matter.
    pub fn update_holders(&mut self, holders: impl IntoIterator<Item = QuotaHolder>) {
        let holders = in_restore_order(holders);
        let pairs = self.restored.iter().zip(&holders);
        let same = pairs.take_while(|((was, _), is)| was == *is).count();
        while self.restored.len() > same {
            let Some((_, allocation)) = self.restored.pop() else { break };
            let undone = self.forest.undo(allocation);
            debug_assert!(undone.is_ok(), "the last one that was put back goes first");
        }
        for holder in holders.into_iter().skip(same) {
            let allocation = self.forest.restore_undoable(&holder.consumer);
            self.restored.push((holder, allocation));
        }
    }

    /// Returns the forest.
    #[must_use]
    pub fn forest(&self) -> &Forest {
        &self.forest
    }

    /// Returns the bindings of the nodes.
    #[must_use]
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// Returns the forest, for callers that undo what they change before the next update.
    pub(crate) fn forest_mut(&mut self) -> &mut Forest {
        &mut self.forest
    }
}

/// Returns whether trees built from either are the same.
fn have_same_trees(one: &[Arc<Subtree>], two: &[Arc<Subtree>]) -> bool {
    one.len() == two.len() && one.iter().zip(two).all(|(one, two)| one.has_same_tree(two))
}
