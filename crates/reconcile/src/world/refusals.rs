//! Writes that the server refused.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::object::{Key, Resource};
use crate::write::{Outcome, Refusal, Write};

/// A write that the server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedWrite {
    /// The verb of the write: [`Write::verb`].
    pub verb: &'static str,
    /// The resource that was to be written.
    pub resource: Resource,
    /// The object that was to be written.
    pub key: Key,
    /// The server's refusal.
    pub refusal: Refusal,
}

impl RefusedWrite {
    /// The refused write; `None` for any other outcome.
    #[must_use]
    pub fn of(write: &Write, outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Refused(refusal) => Some(Self {
                verb: write.verb(),
                resource: write.resource().clone(),
                key: write.key(),
                refusal: refusal.clone(),
            }),
            Outcome::Done(_) | Outcome::NotFound | Outcome::Conflict(_) | Outcome::Unknown(_) => {
                None
            }
        }
    }

    /// Whether this refusal is about a write with the same verb and object.
    #[must_use]
    pub fn matches(&self, write: &Write) -> bool {
        self.verb == write.verb() && self.resource == *write.resource() && self.key == write.key()
    }
}

/// Refused writes by controller and key; keys whose last plan had none are absent.
#[derive(Debug, Default)]
pub(super) struct RefusedWrites(RwLock<HashMap<&'static str, HashMap<Key, Vec<RefusedWrite>>>>);

impl RefusedWrites {
    pub(super) fn get(&self, controller: &str, key: &Key) -> Vec<RefusedWrite> {
        // No foreign code runs under the lock, so the data of a poisoned lock is still intact.
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(controller).and_then(|keys| keys.get(key)).cloned().unwrap_or_default()
    }

    pub(super) fn put(&self, controller: &'static str, key: &Key, refused: Vec<RefusedWrite>) {
        // Most plans have no refused writes and follow plans without any: they take only the read
        // lock.
        if refused.is_empty() && self.get(controller, key).is_empty() {
            return;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let keys = all.entry(controller).or_default();
        match refused.is_empty() {
            true => keys.remove(key),
            false => keys.insert(key.clone(), refused),
        };
    }
}
