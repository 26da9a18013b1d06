//! What the server said no to.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::object::{Key, Resource};
use crate::write::{Outcome, Refusal, Write};

/// A write that the server said no to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What it was to do: [`Write::verb`].
    pub verb: &'static str,
    /// To which kind.
    pub resource: Resource,
    /// To which object.
    pub key: Key,
    /// What the server said.
    pub refusal: Refusal,
}

impl Refused {
    /// A write by what became of it; nothing unless the server said no.
    #[must_use]
    pub fn of(write: &Write, outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Refused(refusal) => Some(Self {
                verb: write.verb(),
                resource: write.resource().clone(),
                key: write.key(),
                refusal: refusal.clone(),
            }),
            Outcome::Done(_) | Outcome::Absent | Outcome::Stale(_) | Outcome::Unanswered(_) => None,
        }
    }

    /// Whether this is about such a write.
    #[must_use]
    pub fn is(&self, write: &Write) -> bool {
        self.verb == write.verb() && self.resource == *write.resource() && self.key == write.key()
    }
}

/// Refusals by controller and key; none for keys whose last plan was not refused anything.
#[derive(Debug, Default)]
pub(super) struct Refusals(RwLock<HashMap<&'static str, HashMap<Key, Vec<Refused>>>>);

impl Refusals {
    pub(super) fn get(&self, controller: &str, key: &Key) -> Vec<Refused> {
        // No code of others runs under the lock, so a poisoned one is still good.
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(controller).and_then(|keys| keys.get(key)).cloned().unwrap_or_default()
    }

    pub(super) fn put(&self, controller: &'static str, key: &Key, refused: Vec<Refused>) {
        // Most plans are refused nothing and follow such as were not either: they only read.
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
