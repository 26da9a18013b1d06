//! Those for whom others give their quota up.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::{Held, Key};
use jiff::Timestamp;

use super::{PASSES, Turn, Verdict};
use crate::app_wrapper::AppWrapper;
use crate::condition::{self, kind};
use crate::order::Class;

impl Turn<'_> {
    /// Tries those first for whom others give their quota up, or have just done so. An owner gets its own
    /// back from borrowers that are more important, so these come before it in the queue: they, or others like
    /// them, would take it again each time, and be told again to give it up, without end.
    pub(super) fn serve_owners(&mut self) {
        let Some(charges) = &self.charges else { return };
        let shelf = self.world.shelf::<AppWrapper>();
        let given_up = charges.yielding().chain(self.books.fresh.iter().map(|(_, key)| key));
        let mut owners: BTreeMap<Key, (Timestamp, Arc<AppWrapper>)> = BTreeMap::new();
        for (key, when) in given_up.filter_map(|key| condition::reclaimer(&shelf.get(key)?.status))
        {
            let waits = self.books.lines.class(&key).is_some() && !self.passed.contains(&key);
            let Some(owner) = shelf.get(&key).filter(|_| waits) else { continue };
            // Who was looked at since had what was given up for it, or could not use it.
            if condition::newest_since(&owner.status, kind::HEAD_OF_LINE) < Some(when) {
                let first = owners.entry(key).or_insert((when, owner));
                first.0 = first.0.min(when);
            }
        }
        let mut owners: Vec<(Timestamp, Arc<AppWrapper>)> = owners.into_values().collect();
        // For whom something was given up first. Others may be more important and have given up something
        // for that one themselves: they must not be before it again.
        owners.sort_by_key(|(when, it)| {
            (*when, Reverse(it.spec.priority), it.first_seen(), it.metadata.key())
        });
        for (_, owner) in owners.iter().take(PASSES) {
            let Some(class) = self.books.lines.class(&owner.metadata.key()) else { continue };
            match self.judge(owner, class) {
                Verdict::Fits { victims, sure } => self.pass(owner, class, &victims, sure),
                Verdict::Coming => self.await_room(owner, class),
                // Something else is in its way: it has its place in the queue.
                Verdict::Misfit(_) | Verdict::Barred(_) | Verdict::Later | Verdict::KeptBack => {}
            }
        }
    }

    /// An AppWrapper will pass when others are gone. Until then nobody else is given what it will take.
    pub(super) fn await_room(&mut self, wrapper: &AppWrapper, class: &Class) {
        self.claim(wrapper, class);
        let held = Held {
            about: wrapper.about(),
            reason: "RoomIsMade".into(),
            message: "it passes when others that were told to make room are gone".to_owned(),
            until: None,
        };
        self.plan.held.push(held);
    }
}
