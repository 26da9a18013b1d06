//! The ledgers of all pools: who has what of which device, or has set it aside.

use std::collections::HashMap;
use std::sync::Arc;

use gantry_api::devices::{
    AccessMode, ClaimReference, DeviceAllocation, DeviceClaim, DevicePool, HoldState, LedgerEntry,
};
pub(crate) use gantry_pods::devices::names;
use gantry_reconcile::{Key, Part, View, World, Write};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::claim::{Claim, is_hold};
use crate::condition::second;
use crate::seen::Seen;

/// An object must stay below this, or the server refuses it: a MiB, less what others write to it.
const LARGEST: usize = (1 << 20) - (64 << 10);

/// Why a pool takes no more holds that has no room for them.
pub(crate) const FULL: &str = "its ledger is full; its driver should split it";

/// Every entry of every pool, by the identity of its claim.
#[derive(Debug, Default)]
pub(crate) struct Ledgers<'a>(HashMap<&'a str, Vec<Line<'a>>>);

/// An entry, and the pool it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) pool: &'a str,
    pub(crate) entry: &'a LedgerEntry,
}

impl<'a> Ledgers<'a> {
    pub(crate) fn new(pools: &'a [Arc<Seen<DevicePool>>]) -> Self {
        let mut lines = HashMap::<&'a str, Vec<Line<'a>>>::new();
        for pool in pools {
            for entry in &pool.status.allocations {
                let line = Line { pool: &pool.metadata.name, entry };
                lines.entry(&entry.claim_ref.uid).or_default().push(line);
            }
        }
        Self(lines)
    }

    /// The entries of a claim.
    pub(crate) fn of(&self, claim: &Claim) -> &[Line<'a>] {
        self.0.get(claim.uid().as_str()).map(Vec::as_slice).unwrap_or_default()
    }

    /// The entries of a claim on which it may be given devices.
    pub(crate) fn live(&self, claim: &Claim) -> Vec<Line<'a>> {
        let horizon = claim.horizon();
        self.of(claim).iter().filter(|it| is_live(it.entry, horizon)).copied().collect()
    }

    /// The entries of a claim that are worth nothing.
    pub(crate) fn void(&self, claim: &Claim) -> impl Iterator<Item = Line<'a>> {
        let is_void = |it: &&Line<'a>| matches!(by(claim, it.pool, it.entry), Worth::Nothing(_));
        self.of(claim).iter().filter(is_void).copied()
    }

    /// Whether a claim's allocation stands in a ledger.
    pub(crate) fn has(&self, claim: &Claim, allocation: &DeviceAllocation) -> bool {
        self.of(claim).iter().any(|it| is_about(it.entry, it.pool, allocation))
    }
}

/// What an entry is worth, by its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// The claim has what the entry says.
    Stands,
    /// The claim may be given what the entry says.
    Counts,
    /// The claim will never have anything by this entry: it gave back what it had, at this time. That
    /// stays true whatever becomes of the claim.
    Nothing(Timestamp),
    /// The claim cannot be understood.
    Unknown,
    /// There is no such claim to be seen. It may be gone, or new.
    Unclaimed,
}

/// What an entry of a pool is worth.
pub(crate) fn worth(world: &World, pool: &str, entry: &LedgerEntry) -> Worth {
    let (claims, key) = (world.shelf::<Seen<DeviceClaim>>(), claim_key(entry));
    let seen = claims.get(&key).filter(|it| it.metadata.uid.as_str() == entry.claim_ref.uid);
    let Some(seen) = seen else {
        return if claims.is_unreadable(&key) { Worth::Unknown } else { Worth::Unclaimed };
    };
    by(&Claim::Plain(seen), pool, entry)
}

/// What an entry of a pool is worth by its claim.
fn by(claim: &Claim, pool: &str, entry: &LedgerEntry) -> Worth {
    let mut stands = claim.allocations().iter().filter(|it| is_hold(it));
    match claim.horizon() {
        _ if stands.any(|it| is_about(entry, pool, it)) => Worth::Stands,
        Some(horizon) if !is_live(entry, Some(horizon)) => Worth::Nothing(horizon),
        Some(_) | None => Worth::Counts,
    }
}

/// Whether an entry is younger than what the claim last went through.
pub(crate) fn is_live(entry: &LedgerEntry, horizon: Option<Timestamp>) -> bool {
    horizon.is_none_or(|horizon| entry.since.0 > horizon)
}

/// Whether an entry of a pool is what makes an allocation good.
pub(crate) fn is_about(entry: &LedgerEntry, pool: &str, allocation: &DeviceAllocation) -> bool {
    allocation.device_pool_name == pool
        && allocation.claim_name.as_deref() == Some(entry.term.as_str())
        && allocation.device_name == entry.device_name
        && allocation.device_count == entry.count
        && allocation.access_mode == Some(entry.access_mode)
        && allocation.allocations == entry.allocations
}

/// The entry that makes an allocation of a claim good.
pub(crate) fn entry(
    claim: &Claim,
    allocation: &DeviceAllocation,
    state: HoldState,
    since: Timestamp,
) -> LedgerEntry {
    let meta = claim.meta();
    LedgerEntry {
        claim_ref: ClaimReference {
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.as_str().to_owned(),
        },
        term: allocation.claim_name.clone().unwrap_or_default(),
        device_name: allocation.device_name.clone(),
        count: allocation.device_count,
        access_mode: allocation.access_mode.unwrap_or(AccessMode::ReadWriteExclusive),
        allocations: allocation.allocations.clone(),
        state,
        since: Time(since),
    }
}

/// When an entry for a claim is written that counts from now on.
pub(crate) fn since(claim: &Claim, now: Timestamp) -> Timestamp {
    let after = claim.horizon().and_then(|it| it.checked_add(SignedDuration::from_secs(1)).ok());
    after.map_or_else(|| second(now), |after| after.max(second(now)))
}

/// Where the claim of an entry is.
pub(crate) fn claim_key(entry: &LedgerEntry) -> Key {
    Key::new(&entry.claim_ref.namespace, &entry.claim_ref.name)
}

/// Replaces the entries of a pool, if it is as it was seen.
pub(crate) fn write(pool: &Seen<DevicePool>, entries: &[LedgerEntry]) -> Write {
    Write::Merge {
        resource: <Seen<DevicePool> as View>::RESOURCE,
        key: pool.metadata.key(),
        part: Part::Status,
        fence: pool.metadata.fence(),
        body: json!({"status": {"allocations": entries}}),
    }
}

/// Whether a pool has no room for these entries besides its own.
pub(crate) fn is_full(pool: &Seen<DevicePool>, more: &[LedgerEntry]) -> bool {
    let size = |value: Result<Vec<u8>, serde_json::Error>| value.map_or(usize::MAX, |it| it.len());
    let spec = pool.object.as_ref().map_or(0, |it| size(serde_json::to_vec(it)));
    let ledger = size(serde_json::to_vec(&pool.status.allocations));
    spec.saturating_add(ledger).saturating_add(size(serde_json::to_vec(more))) > LARGEST
}

/// Whether two may have a device at the same time.
pub(crate) fn beside(one: AccessMode, other: AccessMode) -> bool {
    use AccessMode::{ReadOnlyShared, ReadWriteExclusive, ReadWriteShared, WriteExclusive};
    match (one.min(other), one.max(other)) {
        (ReadOnlyShared, ReadOnlyShared | ReadWriteShared | WriteExclusive)
        | (ReadWriteShared, ReadWriteShared) => true,
        (_, ReadWriteExclusive) | (ReadWriteShared | WriteExclusive | ReadWriteExclusive, _) => {
            false
        }
    }
}
