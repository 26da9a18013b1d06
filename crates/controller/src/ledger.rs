//! What is held back, and why: as of each key's last plan, and objects that cannot be read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_reconcile::{Held, Key, World};

/// Everything that is held. Clones share it; it has at most one entry per controller and key, and
/// none for keys that hold nothing.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    entries: Arc<Mutex<Entries>>,
    world: Arc<World>,
}

/// Who holds what cannot be read: nobody else gets to see it.
const CACHE: &str = "cache";

type Entries = BTreeMap<(&'static str, Key), Vec<Held>>;

/// What one controller holds about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The controller.
    pub controller: &'static str,
    /// The key it planned.
    pub key: Key,
    /// What it holds.
    pub held: Vec<Held>,
}

impl Ledger {
    /// Nothing is held but what cannot be read of this world.
    pub(crate) fn of(world: Arc<World>) -> Self {
        Self { entries: Arc::default(), world }
    }

    /// Everything that is held now, by controller and key, and then what cannot be read.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Entry> {
        let entry = |((controller, key), held): (&(&'static str, Key), &Vec<Held>)| Entry {
            controller,
            key: key.clone(),
            held: held.clone(),
        };
        let mut all: Vec<Entry> = self.lock().iter().map(entry).collect();
        let unreadable = self.unreadable().map(|held| Entry {
            controller: CACHE,
            key: held.about.key.clone(),
            held: vec![held],
        });
        all.extend(unreadable);
        all
    }

    /// How many things are held.
    #[must_use]
    pub fn count(&self) -> usize {
        let planned: usize = self.lock().values().map(Vec::len).sum();
        planned + self.unreadable().count()
    }

    fn unreadable(&self) -> impl Iterator<Item = Held> {
        self.world.shelves().flat_map(|shelf| shelf.unreadable())
    }

    /// Puts down what the last plan of a key holds, and says by how much that changed the count.
    pub(crate) fn put(&self, controller: &'static str, key: &Key, held: Vec<Held>) -> i64 {
        let after = held.len();
        let entry = (controller, key.clone());
        let mut entries = self.lock();
        let before =
            if held.is_empty() { entries.remove(&entry) } else { entries.insert(entry, held) };
        let count = |many: usize| i64::try_from(many).unwrap_or(i64::MAX);
        count(after) - count(before.map_or(0, |held| held.len()))
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::write::PODS;
    use gantry_reconcile::{Reference, Uid};

    use super::*;

    #[test]
    fn the_last_plan_of_a_key_counts() {
        let held = |name: &str| Held {
            about: Reference {
                resource: PODS.clone(),
                key: Key::new("n", name),
                uid: Uid::new("u"),
                field: String::new(),
            },
            reason: "NoRoom".into(),
            message: "no node has room".to_owned(),
            until: None,
        };
        let ledger = Ledger::default();
        let key = Key::new("n", "a");
        assert_eq!(ledger.put("one", &key, vec![held("a"), held("b")]), 2);
        assert_eq!(ledger.put("two", &key, vec![held("a")]), 1);
        assert_eq!(ledger.put("one", &key, vec![held("b")]), -1);
        assert_eq!(ledger.count(), 2);
        let snapshot = ledger.snapshot();
        let seen: Vec<_> =
            snapshot.iter().map(|it| (it.controller, it.held[0].about.key.name())).collect();
        assert_eq!(seen, [("one", "b"), ("two", "a")]);
        assert_eq!(ledger.put("one", &key, Vec::new()), -1);
        assert_eq!(ledger.put("two", &key, Vec::new()), -1);
        assert!(ledger.snapshot().is_empty(), "who holds nothing takes no room");
    }
}
