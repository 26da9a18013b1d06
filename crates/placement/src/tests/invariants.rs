//! What must hold at every revision of the server.

use std::collections::BTreeMap;

use gantry_api::devices::{DeviceClaim, DevicePool, LedgerEntry};
use gantry_api::finding::Source;
use gantry_devices::lower::{Catalog, Snapshot};
use gantry_harness::Server;
use serde_json::Value;

use super::build::{CLAIMS, POOLS};
use crate::claim::is_hold;
use crate::ledger::{beside, is_about};
use crate::seen::Seen;

/// Whether what claims have must stand in ledgers at every revision too. Where pools are made anew it
/// does so in the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Claims {
    Always,
    InTheEnd,
}

/// Goes through all that ever happened, in order: see [`Witness`].
pub(super) fn hold(server: &Server, claims: Claims) {
    let mut witness = Witness::new(claims);
    witness.read(server);
    witness.end();
}

/// Looks at every revision, in order, and checks that
/// I1. what ledgers give away never exceeds what is published when it is given,
/// I2. what claims have stands in ledgers, and
/// I3. nobody has a device beside somebody who bears no company.
pub(super) struct Witness {
    claims: Claims,
    state: State,
    /// How much was seen of what ever happened to pools and to claims.
    read: [usize; 2],
}

impl Witness {
    pub(super) fn new(claims: Claims) -> Self {
        Self { claims, state: State::default(), read: [0, 0] }
    }

    /// Looks at what happened since. Returns how much that was.
    pub(super) fn read(&mut self, server: &Server) -> u64 {
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
            self.look(revision, is_pool, object, end);
        }
        count
    }

    fn look(&mut self, revision: u64, is_pool: bool, object: Value, end: bool) {
        let state = &mut self.state;
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
        match (is_pool, end) {
            (true, true) => drop(state.pools.remove(&name)),
            (false, true) => drop(state.claims.remove(&uid)),
            (true, false) => {
                let pool: Seen<DevicePool> = serde_json::from_value(object).unwrap();
                check_pool(revision, &pool, state.pools.get(&name));
                state.pools.insert(name.clone(), pool);
            }
            (false, false) => {
                let claim: Seen<DeviceClaim> = serde_json::from_value(object).unwrap();
                state.claims.insert(uid.clone(), claim);
            }
        }
        if self.claims == Claims::Always {
            state.check_claims(revision, |claim| match is_pool {
                true => claim.status.allocations.iter().any(|it| it.device_pool_name == name),
                false => claim.metadata.uid.as_str() == uid,
            });
        }
    }

    /// How many devices claims have now.
    pub(super) fn held(&self) -> usize {
        let all = self.state.claims.values().flat_map(|it| &it.status.allocations);
        all.filter(|it| is_hold(it)).map(|it| it.device_count.map_or(1, |it| it as usize)).sum()
    }

    /// Looks at the end of it.
    pub(super) fn end(&self) {
        self.state.check_claims(u64::MAX, |_| true);
    }
}

/// Pools by name, claims by identity.
#[derive(Default)]
struct State {
    pools: BTreeMap<String, Seen<DevicePool>>,
    claims: BTreeMap<String, Seen<DeviceClaim>>,
}

impl State {
    /// I2, for claims that something happened to.
    fn check_claims(&self, revision: u64, touched: impl Fn(&Seen<DeviceClaim>) -> bool) {
        for claim in self.claims.values().filter(|it| touched(it)) {
            for held in claim.status.allocations.iter().filter(|it| is_hold(it)) {
                let found = self.pools.get(&held.device_pool_name).is_some_and(|pool| {
                    pool.status.allocations.iter().any(|entry| {
                        entry.claim_ref.uid == claim.metadata.uid.as_str()
                            && is_about(entry, &pool.metadata.name, held)
                    })
                });
                assert!(found, "revision {revision}: {} has {held:?}", claim.metadata.name);
            }
        }
    }
}

/// I1 and I3.
fn check_pool(revision: u64, pool: &Seen<DevicePool>, before: Option<&Seen<DevicePool>>) {
    let entries: &[LedgerEntry] = &pool.status.allocations;
    for (at, one) in entries.iter().enumerate() {
        for other in &entries[..at] {
            let same = one.device_name.is_some() && one.device_name == other.device_name;
            assert!(
                !same || beside(one.access_mode, other.access_mode),
                "revision {revision}: {one:?} beside {other:?}"
            );
        }
    }
    let given = before.is_none_or(|before| before.status.allocations != *entries);
    let over = |pool: &Seen<DevicePool>| {
        let catalog = Catalog::new(Source::Server, [], []);
        let snapshot = Snapshot::new(&catalog, &[], &pool.whole().into_iter().collect::<Vec<_>>());
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
