//! Pools in whose ledgers the server lets nobody write.
//!
//! A pool may refuse every write: a policy forbids it, or it holds something that was allowed once and
//! is not any more. Whoever is best served there would try for ever, beside pools that would do. So it is
//! left alone for a while, or until somebody changes it.
//!
//! That the server said no stands in no object. It is remembered by this process, as
//! [`World::refused`] is; after a start it is learnt again by trying.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_api::devices::DevicePool;
use gantry_reconcile::{Held, Key, Reference, Uid, View, World};
use jiff::{SignedDuration, Timestamp};

use crate::seen::Seen;

/// How long such a pool is left alone: a pod that could not be helped elsewhere waits as long at most,
/// and one write in a minute is no burden for a server that refuses it.
const WAIT: SignedDuration = SignedDuration::from_secs(60);

/// The pools, by name.
#[derive(Debug, Default)]
pub(super) struct Shut(Mutex<BTreeMap<String, Entry>>);

#[derive(Clone, Debug)]
struct Entry {
    uid: Uid,
    /// What the pool said it was then: a driver that changes it may have put it right.
    generation: i64,
    until: Timestamp,
    /// In one word, and in the server's own.
    reason: String,
    why: String,
}

impl Shut {
    /// Takes note of what was refused when the last plan was carried out. Returns what is to be held
    /// back now.
    pub(super) fn learn(
        &self,
        world: &World,
        controller: &'static str,
        key: &Key,
        now: Timestamp,
    ) -> Vec<Held> {
        let pools = world.shelf::<Seen<DevicePool>>();
        // No code of others runs under the lock, so a poisoned one is still good.
        let mut shut = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let resource = <Seen<DevicePool> as View>::RESOURCE;
        for refused in world.refused(controller, key).iter().filter(|it| it.resource == resource) {
            let Some(pool) = pools.get(&refused.key) else { continue };
            let entry = Entry {
                uid: pool.metadata.uid.clone(),
                generation: pool.metadata.generation,
                until: now.checked_add(WAIT).unwrap_or(now),
                reason: refused.refusal.reason.clone(),
                why: refused.refusal.message.clone(),
            };
            // What is refused once is remembered from then on, not from each time it is looked at.
            let known = shut.entry(pool.metadata.name.clone()).or_insert_with(|| entry.clone());
            if (&known.uid, known.generation) != (&entry.uid, entry.generation)
                || known.until <= now
            {
                *known = entry;
            }
        }
        shut.retain(|name, it| {
            let pool = pools.get(&Key::cluster(name));
            it.until > now
                && pool.is_some_and(|pool| {
                    pool.metadata.uid == it.uid && pool.metadata.generation == it.generation
                })
        });
        let held = shut.iter().map(|(name, it)| Held {
            about: Reference {
                resource: resource.clone(),
                key: Key::cluster(name),
                uid: it.uid.clone(),
                field: String::new(),
            },
            reason: it.reason.clone().into(),
            message: format!("nothing can be entered in its ledger: {}", it.why),
            until: Some(it.until),
        });
        held.collect()
    }
}

/// Who of these pools is left alone, and why.
pub(super) fn named<'a>(
    pools: &'a [Arc<Seen<DevicePool>>],
    held: &'a [Held],
) -> impl Iterator<Item = (&'a str, &'a str)> {
    held.iter().filter_map(|held| {
        let name = held.about.key.name();
        let known = pools.binary_search_by(|it| it.metadata.name.as_str().cmp(name)).is_ok();
        known.then_some((name, held.message.as_str()))
    })
}
