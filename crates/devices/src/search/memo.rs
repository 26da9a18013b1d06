//! States in which the rest of the terms failed.

use std::collections::HashSet;

/// How much is remembered, in words of keys: a few dozen megabytes. Beyond that nothing new is
/// learnt, and the search is slower but no less right.
const MOST_WORDS: usize = 1 << 22;

/// States that lead nowhere. Whole descriptions are kept: a hash alone could be wrong.
#[derive(Debug, Default)]
pub(super) struct Memo {
    failed: HashSet<Box<[u64]>>,
    words: usize,
    key: Vec<u64>,
}

impl Memo {
    /// Whether a state is known to lead nowhere. It is only described if anything is known.
    pub(super) fn knows(&mut self, describe: impl FnOnce(&mut Vec<u64>)) -> bool {
        if self.failed.is_empty() {
            return false;
        }
        self.key.clear();
        describe(&mut self.key);
        self.failed.contains(self.key.as_slice())
    }

    /// Remembers that a state leads nowhere.
    pub(super) fn learn(&mut self, describe: impl FnOnce(&mut Vec<u64>)) {
        if self.words > MOST_WORDS {
            return;
        }
        self.key.clear();
        describe(&mut self.key);
        self.words += self.key.len() + 2;
        self.failed.insert(self.key.as_slice().into());
    }
}
