//! The held reasons of each key's last plan, and the objects that cannot be decoded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_reconcile::{Held, Key, World};

/// All held reasons. Clones share them; there is at most one entry per controller and key, and none
/// for keys that hold nothing.
#[derive(Clone, Debug, Default)]
pub struct HeldReasons {
    entries: Arc<Mutex<HeldByKey>>,
    world: Arc<World>,
}

/// The name under which unreadable objects are listed: no controller receives them.
const CACHE_CONTROLLER: &str = "cache";

type HeldByKey = BTreeMap<(&'static str, Key), Vec<Held>>;

/// The held reasons of one controller about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldEntry {
    /// The controller.
    pub controller: &'static str,
    /// The key it planned.
    pub key: Key,
    /// The held reasons.
    pub held: Vec<Held>,
}

impl HeldReasons {
    /// No held reasons but the unreadable objects of this world.
    pub(crate) fn of(world: Arc<World>) -> Self {
        Self { entries: Arc::default(), world }
    }

    /// All held reasons, by controller and key, and then the unreadable objects.
    #[must_use]
    pub fn snapshot(&self) -> Vec<HeldEntry> {
        let entry = |((controller, key), held): (&(&'static str, Key), &Vec<Held>)| HeldEntry {
            controller,
            key: key.clone(),
            held: held.clone(),
        };
        let mut all: Vec<HeldEntry> = self.lock().iter().map(entry).collect();
        let unreadable = self.unreadable().map(|held| HeldEntry {
            controller: CACHE_CONTROLLER,
            key: held.about.key.clone(),
            held: vec![held],
        });
        all.extend(unreadable);
        all
    }

    /// The number of held reasons.
    #[must_use]
    pub fn count(&self) -> usize {
        let planned: usize = self.lock().values().map(Vec::len).sum();
        planned + self.unreadable().count()
    }

    fn unreadable(&self) -> impl Iterator<Item = Held> {
        self.world.stores().flat_map(|shelf| shelf.unreadable())
    }

    /// Records the held reasons of a key's last plan, and returns by how much the count changed.
    pub(crate) fn record(&self, controller: &'static str, key: &Key, held: Vec<Held>) -> i64 {
        let after = held.len();
        let entry = (controller, key.clone());
        let mut entries = self.lock();
        let before =
            if held.is_empty() { entries.remove(&entry) } else { entries.insert(entry, held) };
        let count = |many: usize| i64::try_from(many).unwrap_or(i64::MAX);
        count(after) - count(before.map_or(0, |held| held.len()))
    }

    fn lock(&self) -> MutexGuard<'_, HeldByKey> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use gantry_reconcile::write::PODS;
    use gantry_reconcile::{ObjectReference, Uid};

    use super::*;

    #[test]
    fn the_last_plan_of_a_key_counts() {
        let held = |name: &str| Held {
            about: ObjectReference {
                resource: PODS.clone(),
                key: Key::new("n", name),
                uid: Uid::new("u"),
                field: String::new(),
            },
            reason: "NoRoom".into(),
            message: "no node has enough free capacity".to_owned(),
            until: None,
        };
        let reasons = HeldReasons::default();
        let key = Key::new("n", "a");
        assert_eq!(reasons.record("one", &key, vec![held("a"), held("b")]), 2);
        assert_eq!(reasons.record("two", &key, vec![held("a")]), 1);
        assert_eq!(reasons.record("one", &key, vec![held("b")]), -1);
        assert_eq!(reasons.count(), 2);
        let snapshot = reasons.snapshot();
        let seen: Vec<_> =
            snapshot.iter().map(|it| (it.controller, it.held[0].about.key.name())).collect();
        assert_eq!(seen, [("one", "b"), ("two", "a")]);
        assert_eq!(reasons.record("one", &key, Vec::new()), -1);
        assert_eq!(reasons.record("two", &key, Vec::new()), -1);
        assert!(reasons.snapshot().is_empty(), "a key that holds nothing has no entry");
    }
}
