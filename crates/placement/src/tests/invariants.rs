//! The invariants that must hold at every revision of the server.

use std::collections::BTreeMap;

use gantry_api::devices::{DeviceClaim, DevicePool, LedgerEntry};
use gantry_api::finding::Source;
use gantry_devices::lower::{Catalog, Snapshot};
use gantry_harness::Server;
use serde_json::Value;

use super::build::{CLAIMS, POOLS};
use crate::allocation_ledger::{are_compatible, is_entry_for};
use crate::claim::is_hold;
use crate::views::DeviceObject;

/// Whether what claims have must be in ledgers at every revision too. Where pools are recreated it
/// is so in the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimInvariant {
    Always,
    InTheEnd,
}

/// Checks the whole history, in order: see [`InvariantChecker`].
pub(super) fn check_history(server: &Server, claims: ClaimInvariant) {
    let mut witness = InvariantChecker::new(claims);
    witness.check_new_revisions(server);
    witness.check_end();
}

/// Checks every revision, in order:
/// I1. what ledgers allocate never exceeds what is published at that time,
/// I2. what claims have is in ledgers, and
/// I3. no two claims have a device in incompatible access modes.
pub(super) struct InvariantChecker {
    claims: ClaimInvariant,
    state: State,
    /// How many changes of pools and of claims were read.
    read: [usize; 2],
}

impl InvariantChecker {
    pub(super) fn new(claims: ClaimInvariant) -> Self {
        Self { claims, state: State::default(), read: [0, 0] }
    }

    /// Checks what happened since. Returns how much that was.
    pub(super) fn check_new_revisions(&mut self, server: &Server) -> u64 {
        let mut events: Vec<(u64, bool, Value, bool)> = Vec::new();
        for (read, (is_pool, resource)) in
            self.read.iter_mut().zip([(true, POOLS), (false, CLAIMS)])
        {
            for (text, end) in server.history(&resource).skip(*read) {
                let object: Value = serde_json::from_str(text).unwrap();
                let revision = object["metadata"]["resourceVersion"].as_str().unwrap();
                events.push((revision.parse().unwrap(), is_pool, object, end));
                *read += 1;
            }
        }
        events.sort_by_key(|it| it.0);
        let count = events.len() as u64;
        for (revision, is_pool, object, end) in events {
            self.check_revision(revision, is_pool, object, end);
        }
        count
    }

    fn check_revision(&mut self, revision: u64, is_pool: bool, object: Value, end: bool) {
        let state = &mut self.state;
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
        match (is_pool, end) {
            (true, true) => drop(state.pools.remove(&name)),
            (false, true) => drop(state.claims.remove(&uid)),
            (true, false) => {
                let pool: DeviceObject<DevicePool> = serde_json::from_value(object).unwrap();
                check_pool(revision, &pool, state.pools.get(&name));
                state.pools.insert(name.clone(), pool);
            }
            (false, false) => {
                let claim: DeviceObject<DeviceClaim> = serde_json::from_value(object).unwrap();
                state.claims.insert(uid.clone(), claim);
            }
        }
        if self.claims == ClaimInvariant::Always {
            state.check_claims(revision, |claim| match is_pool {
                true => claim.status.allocations.iter().any(|it| it.device_pool_name == name),
                false => claim.metadata.uid.as_str() == uid,
            });
        }
    }

    /// Returns how many devices claims have now.
    pub(super) fn held(&self) -> usize {
        let all = self.state.claims.values().flat_map(|it| &it.status.allocations);
        all.filter(|it| is_hold(it)).map(|it| it.device_count.map_or(1, |it| it as usize)).sum()
    }

    /// Checks the final state.
    pub(super) fn check_end(&self) {
        self.state.check_claims(u64::MAX, |_| true);
    }
}

/// Pools by name, claims by UID.
#[derive(Default)]
struct State {
    pools: BTreeMap<String, DeviceObject<DevicePool>>,
    claims: BTreeMap<String, DeviceObject<DeviceClaim>>,
}

impl State {
    /// Checks I2, for claims that changed.
    fn check_claims(&self, revision: u64, touched: impl Fn(&DeviceObject<DeviceClaim>) -> bool) {
        for claim in self.claims.values().filter(|it| touched(it)) {
            for held in claim.status.allocations.iter().filter(|it| is_hold(it)) {
                let found = self.pools.get(&held.device_pool_name).is_some_and(|pool| {
                    pool.status.allocations.iter().any(|entry| {
                        entry.claim_ref.uid == claim.metadata.uid.as_str()
                            && is_entry_for(entry, &pool.metadata.name, held)
                    })
                });
                assert!(found, "revision {revision}: {} has {held:?}", claim.metadata.name);
            }
        }
    }
}

/// Checks I1 and I3.
fn check_pool(
    revision: u64,
    pool: &DeviceObject<DevicePool>,
    before: Option<&DeviceObject<DevicePool>>,
) {
    let entries: &[LedgerEntry] = &pool.status.allocations;
    for (at, one) in entries.iter().enumerate() {
        for other in &entries[..at] {
            let same = one.device_name.is_some() && one.device_name == other.device_name;
            assert!(
                !same || are_compatible(one.access_mode, other.access_mode),
                "revision {revision}: {one:?} beside {other:?}"
            );
        }
    }
    let given = before.is_none_or(|before| before.status.allocations != *entries);
    let over = |pool: &DeviceObject<DevicePool>| {
        let catalog = Catalog::new(Source::Server, [], []);
        let snapshot =
            Snapshot::new(&catalog, &[], &pool.with_ledger().into_iter().collect::<Vec<_>>());
        snapshot.inventory.pools().iter().any(|it| it.overcommitted())
    };
    if given && over(pool) {
        assert!(
            before.is_some_and(over),
            "revision {revision}: {} gives too much",
            pool.metadata.name
        );
    }
}
