//! Chooses the pools that a request takes devices from.

use super::moves::PoolRows;

/// A set of pools under construction.
#[derive(Debug)]
pub(super) struct PoolSetBuilder {
    /// How many pools it will have.
    pub(super) pools: usize,
    /// For each position, how many rows the best so many pools from there on have.
    pub(super) most: Vec<Vec<usize>>,
    pub(super) set: Vec<usize>,
    /// For each open match group, the values that every pool of the set has, and how often.
    pub(super) common: Vec<Vec<(u32, usize)>>,
}

impl PoolSetBuilder {
    /// Adds a pool's values. Returns whether some value is left that enough rows have or may have.
    pub(super) fn join(&mut self, list: &PoolRows, wanted: usize, rest: usize) -> bool {
        if self.set.is_empty() {
            self.common.clone_from(&list.values);
        } else {
            for (common, values) in self.common.iter_mut().zip(&list.values) {
                common.retain_mut(|(value, count)| {
                    let here = values.iter().find(|(known, _)| known == value);
                    *count += here.map_or(0, |(_, count)| *count);
                    here.is_some()
                });
            }
        }
        self.common.iter().all(|values| values.iter().any(|(_, count)| count + rest >= wanted))
    }
}

/// Returns for each position and each number up to `pools`, how many rows the best so many pools
/// from there on have.
pub(super) fn most_from(lists: &[PoolRows], pools: usize) -> Vec<Vec<usize>> {
    let mut best: Vec<usize> = Vec::with_capacity(pools + 1);
    let sums = |best: &[usize]| {
        let mut sums = vec![0; pools + 1];
        for count in 1..=pools {
            sums[count] = sums[count - 1] + best.get(count - 1).copied().unwrap_or(0);
        }
        sums
    };
    let mut most = vec![sums(&best)];
    for list in lists.iter().rev() {
        let at = best.partition_point(|rows| *rows >= list.max_taken);
        best.insert(at, list.max_taken);
        best.truncate(pools);
        most.push(sums(&best));
    }
    most.reverse();
    most
}
