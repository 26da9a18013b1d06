//! Pools whose ledgers the server does not allow to be written.
//!
//! A pool may reject every write: a policy forbids it, or the object contains something that was
//! valid once and is not any more. Pods for which it is the best pool would retry for ever,
//! although other pools would do. So the pool is skipped for a while, or until it is changed.
//!
//! No object records that the server rejected the write. This process remembers it, as
//! [`World::refused_writes`] does; after a restart it is found out again by trying.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gantry_api::devices::DevicePool;
use gantry_reconcile::{Held, Key, ObjectReference, Uid, View, World};
use jiff::{SignedDuration, Timestamp};

use crate::views::DeviceObject;

/// How long such a pool is skipped: a pod that cannot be placed elsewhere waits this long at most,
/// and one write per minute is no burden for a server that rejects it.
const CLOSED_POOL_RETRY_DELAY: SignedDuration = SignedDuration::from_secs(60);

/// The closed pools, by name.
#[derive(Debug, Default)]
pub(super) struct ClosedPools(Mutex<BTreeMap<String, ClosedPool>>);

#[derive(Clone, Debug)]
struct ClosedPool {
    uid: Uid,
    /// The generation of the pool at that time: a driver that changes it may have fixed it.
    generation: i64,
    until: Timestamp,
    /// The reason in CamelCase, and the server's message.
    reason: String,
    message: String,
}

impl ClosedPools {
    /// Records which writes were rejected when the last plan was executed. Returns the pools that
    /// are closed now.
    pub(super) fn observe_refused_writes(
        &self,
        world: &World,
        controller: &'static str,
        key: &Key,
        now: Timestamp,
    ) -> Vec<Held> {
        let pools = world.store::<DeviceObject<DevicePool>>();
        // No caller's code runs under the lock, so a poisoned lock still guards consistent data.
        let mut shut = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let resource = <DeviceObject<DevicePool> as View>::RESOURCE;
        for refused in
            world.refused_writes(controller, key).iter().filter(|it| it.resource == resource)
        {
            let Some(pool) = pools.get(&refused.key) else { continue };
            let entry = ClosedPool {
                uid: pool.metadata.uid.clone(),
                generation: pool.metadata.generation,
                until: now.checked_add(CLOSED_POOL_RETRY_DELAY).unwrap_or(now),
                reason: refused.refusal.reason.clone(),
                message: refused.refusal.message.clone(),
            };
            // A rejection counts from the first time it is observed, not from each time.
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
            about: ObjectReference {
                resource: resource.clone(),
                key: Key::cluster(name),
                uid: it.uid.clone(),
                field: String::new(),
            },
            reason: it.reason.clone().into(),
            message: format!("its ledger cannot be written: {}", it.message),
            until: Some(it.until),
        });
        held.collect()
    }
}

/// Returns which of these pools are closed, and why.
pub(super) fn closed_among<'a>(
    pools: &'a [Arc<DeviceObject<DevicePool>>],
    held: &'a [Held],
) -> impl Iterator<Item = (&'a str, &'a str)> {
    held.iter().filter_map(|held| {
        let name = held.about.key.name();
        let known = pools.binary_search_by(|it| it.metadata.name.as_str().cmp(name)).is_ok();
        known.then_some((name, held.message.as_str()))
    })
}
