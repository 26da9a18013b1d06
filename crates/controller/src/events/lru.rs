//! A cache of a fixed size that evicts the least recently used entry.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Values by key.
#[derive(Debug)]
pub(super) struct Lru<K, V> {
    size: usize,
    values: HashMap<K, (u64, V)>,
    /// Keys by their last use.
    used: BTreeMap<u64, K>,
    ticks: u64,
}

impl<K: Eq + Hash + Clone, V> Lru<K, V> {
    pub(super) fn new(size: usize) -> Self {
        Self { size: size.max(1), values: HashMap::new(), used: BTreeMap::new(), ticks: 0 }
    }

    /// The value of a key, created if it is not in the cache.
    pub(super) fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.ticks += 1;
        let tick = self.ticks;
        if let Some((used, _)) = self.values.get(key) {
            self.used.remove(used);
        } else if self.values.len() >= self.size
            && let Some((_, oldest)) = self.used.pop_first()
        {
            self.values.remove(&oldest);
        }
        self.used.insert(tick, key.clone());
        let entry = self.values.entry(key.clone()).or_insert_with(|| (tick, make()));
        entry.0 = tick;
        &mut entry.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_is_evicted() {
        let mut lru = Lru::new(2);
        let mut use_of = |key: char, make: u32| *lru.get_or_insert_with(&key, || make);
        assert_eq!((use_of('a', 1), use_of('b', 1), use_of('a', 2)), (1, 1, 1));
        assert_eq!(use_of('c', 1), 1, "it evicts b");
        assert_eq!((use_of('a', 3), use_of('b', 3)), (1, 3), "a was used since");
        assert_eq!((lru.values.len(), lru.used.len()), (2, 2));
    }
}
