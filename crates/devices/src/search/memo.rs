//! Memoizes states in which the remaining terms failed.

use std::collections::HashSet;

/// The size of the memo, in words of keys: a few dozen megabytes. Beyond that nothing new is
/// recorded, and the search is slower but still correct.
const MAX_MEMO_WORDS: usize = 1 << 22;

/// States that lead to no solution. Whole keys are stored: a hash alone could collide.
#[derive(Debug, Default)]
pub(super) struct Memo {
    failed: HashSet<Box<[u64]>>,
    words: usize,
    key: Vec<u64>,
}

impl Memo {
    /// Whether a state is known to lead to no solution. Its key is only computed if the memo is not
    /// empty.
    pub(super) fn contains(&mut self, describe: impl FnOnce(&mut Vec<u64>)) -> bool {
        if self.failed.is_empty() {
            return false;
        }
        self.key.clear();
        describe(&mut self.key);
        self.failed.contains(self.key.as_slice())
    }

    /// Records that a state leads to no solution.
    pub(super) fn insert(&mut self, describe: impl FnOnce(&mut Vec<u64>)) {
        if self.words > MAX_MEMO_WORDS {
            return;
        }
        self.key.clear();
        describe(&mut self.key);
        self.words += self.key.len() + 2;
        self.failed.insert(self.key.as_slice().into());
    }
}
