//! Admits the owners of quota that was reclaimed from borrowers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::{Held, Key};
use jiff::Timestamp;

use super::{AdmissionCycle, MAX_ADMISSIONS_PER_CYCLE, Verdict};
use crate::app_wrapper::AppWrapper;
use crate::condition::{self, kind};
use crate::order::SchedulingClass;

impl AdmissionCycle<'_> {
    /// Tries the AppWrappers first for which quota was reclaimed. An owner reclaims its quota even
    /// from borrowers of higher priority, which come before it in the queue: these, or others like
    /// them, would borrow it again each time, and be preempted again, without end.
    pub(super) fn admit_quota_owners(&mut self) {
        let Some(charges) = &self.charges else { return };
        let store = self.world.store::<AppWrapper>();
        let given_up =
            charges.pending_preemptions().chain(self.cache.unreported.iter().map(|(_, key)| key));
        let mut owners: BTreeMap<Key, (Timestamp, Arc<AppWrapper>)> = BTreeMap::new();
        for (key, when) in
            given_up.filter_map(|key| condition::last_quota_reclaim(&store.get(key)?.status))
        {
            let waits = self.cache.pending.class(&key).is_some() && !self.admitted.contains(&key);
            let Some(owner) = store.get(&key).filter(|_| waits) else { continue };
            // If it was evaluated since, it used what was reclaimed for it, or could not use it.
            if condition::newest_since(&owner.status, kind::HEAD_OF_LINE) < Some(when) {
                let first = owners.entry(key).or_insert((when, owner));
                first.0 = first.0.min(when);
            }
        }
        let mut owners: Vec<(Timestamp, Arc<AppWrapper>)> = owners.into_values().collect();
        // The owner for which quota was reclaimed first comes first. Others may have a higher
        // priority and have lost quota to that owner themselves: they must not come before it
        // again.
        owners.sort_by_key(|(when, it)| {
            (*when, Reverse(it.spec.priority), it.first_seen(), it.metadata.key())
        });
        for (_, owner) in owners.iter().take(MAX_ADMISSIONS_PER_CYCLE) {
            let Some(class) = self.cache.pending.class(&owner.metadata.key()) else { continue };
            match self.evaluate(owner, class) {
                Verdict::Fits { victims, packing_verified: sure } => {
                    self.admit(owner, class, &victims, sure);
                }
                Verdict::AwaitingPreemption => self.await_preemption(owner, class),
                // Something else blocks it: it keeps its place in the queue.
                Verdict::DoesNotFit(_)
                | Verdict::Ineligible(_)
                | Verdict::Deferred
                | Verdict::AwaitingAuthorization => {}
            }
        }
    }

    /// Records that an AppWrapper is admitted when others are gone. Until then, what it will use is
    /// given to no other.
    pub(super) fn await_preemption(&mut self, wrapper: &AppWrapper, class: &SchedulingClass) {
        self.reserve(wrapper, class);
        let held = Held {
            about: wrapper.reference(),
            reason: "RoomIsMade".into(),
            message: "it is admitted when the AppWrappers preempted for it are gone".to_owned(),
            until: None,
        };
        self.plan.held.push(held);
    }
}
