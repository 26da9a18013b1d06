//! The ledgers of all pools: which claim has or has reserved what of which device.

use std::collections::HashMap;
use std::sync::Arc;

use gantry_api::devices::{
    AccessMode, ClaimReference, DeviceAllocation, DeviceClaim, DevicePool, HoldState, LedgerEntry,
};
pub(crate) use gantry_pods::devices::ledger_claim_tag;
use gantry_reconcile::{Key, Subresource, View, World, Write};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::claim::{Claim, is_hold};
use crate::condition::truncate_to_second;
use crate::views::DeviceObject;

/// The size an object must stay below, or the server rejects it: a MiB, less what other clients
/// write to it.
const MAX_POOL_BYTES: usize = (1 << 20) - (64 << 10);

/// The reason why a pool whose ledger is full takes no more reservations.
pub(crate) const LEDGER_FULL_MESSAGE: &str = "its ledger is full; its driver should split it";

/// Every entry of every pool, by the UID of its claim.
#[derive(Debug, Default)]
pub(crate) struct AllocationLedger<'a>(HashMap<&'a str, Vec<PoolLedgerEntry<'a>>>);

/// An entry, and the pool it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolLedgerEntry<'a> {
    pub(crate) pool: &'a str,
    pub(crate) entry: &'a LedgerEntry,
}

impl<'a> AllocationLedger<'a> {
    pub(crate) fn new(pools: &'a [Arc<DeviceObject<DevicePool>>]) -> Self {
        let mut lines = HashMap::<&'a str, Vec<PoolLedgerEntry<'a>>>::new();
        for pool in pools {
            for entry in &pool.status.allocations {
                let line = PoolLedgerEntry { pool: &pool.metadata.name, entry };
                lines.entry(&entry.claim_ref.uid).or_default().push(line);
            }
        }
        Self(lines)
    }

    /// Returns the entries of a claim.
    pub(crate) fn entries_of(&self, claim: &Claim) -> &[PoolLedgerEntry<'a>] {
        self.0.get(claim.uid().as_str()).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the entries of a claim on which it may be allocated devices.
    pub(crate) fn live_entries(&self, claim: &Claim) -> Vec<PoolLedgerEntry<'a>> {
        let horizon = claim.allocation_changed_at();
        self.entries_of(claim).iter().filter(|it| is_live(it.entry, horizon)).copied().collect()
    }

    /// Returns the void entries of a claim.
    pub(crate) fn void_entries(&self, claim: &Claim) -> impl Iterator<Item = PoolLedgerEntry<'a>> {
        let is_void = |it: &&PoolLedgerEntry<'a>| {
            matches!(entry_state_for_claim(claim, it.pool, it.entry), EntryState::Void(_))
        };
        self.entries_of(claim).iter().filter(is_void).copied()
    }

    /// Whether a claim's allocation is in a ledger.
    pub(crate) fn contains(&self, claim: &Claim, allocation: &DeviceAllocation) -> bool {
        self.entries_of(claim).iter().any(|it| is_entry_for(it.entry, it.pool, allocation))
    }
}

/// The state of an entry, derived from its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryState {
    /// The claim has what the entry says.
    Allocated,
    /// The claim may be allocated what the entry says.
    Reserved,
    /// The claim will never have anything by this entry: it released its devices at this time. That
    /// stays true whatever happens to the claim.
    Void(Timestamp),
    /// The claim cannot be parsed.
    ClaimInvalid,
    /// The claim is in no cache. It may be gone, or new.
    ClaimMissing,
}

/// Returns the state of an entry of a pool.
pub(crate) fn entry_state(world: &World, pool: &str, entry: &LedgerEntry) -> EntryState {
    let (claims, key) = (world.store::<DeviceObject<DeviceClaim>>(), claim_key(entry));
    let seen = claims.get(&key).filter(|it| it.metadata.uid.as_str() == entry.claim_ref.uid);
    let Some(seen) = seen else {
        return if claims.is_unreadable(&key) {
            EntryState::ClaimInvalid
        } else {
            EntryState::ClaimMissing
        };
    };
    entry_state_for_claim(&Claim::Plain(seen), pool, entry)
}

/// Returns the state of an entry of a pool given its claim.
fn entry_state_for_claim(claim: &Claim, pool: &str, entry: &LedgerEntry) -> EntryState {
    let mut stands = claim.allocations().iter().filter(|it| is_hold(it));
    match claim.allocation_changed_at() {
        _ if stands.any(|it| is_entry_for(entry, pool, it)) => EntryState::Allocated,
        Some(horizon) if !is_live(entry, Some(horizon)) => EntryState::Void(horizon),
        Some(_) | None => EntryState::Reserved,
    }
}

/// Whether an entry is younger than the claim's last change of its allocation.
pub(crate) fn is_live(entry: &LedgerEntry, horizon: Option<Timestamp>) -> bool {
    horizon.is_none_or(|horizon| entry.since.0 > horizon)
}

/// Whether an entry of a pool backs an allocation.
pub(crate) fn is_entry_for(entry: &LedgerEntry, pool: &str, allocation: &DeviceAllocation) -> bool {
    allocation.device_pool_name == pool
        && allocation.claim_name.as_deref() == Some(entry.term.as_str())
        && allocation.device_name == entry.device_name
        && allocation.device_count == entry.count
        && allocation.access_mode == Some(entry.access_mode)
        && allocation.allocations == entry.allocations
}

/// Creates the entry that backs an allocation of a claim.
pub(crate) fn new_entry(
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

/// Returns the timestamp for an entry that is written now, such that it counts for the claim.
pub(crate) fn entry_time(claim: &Claim, now: Timestamp) -> Timestamp {
    let after = claim
        .allocation_changed_at()
        .and_then(|it| it.checked_add(SignedDuration::from_secs(1)).ok());
    after.map_or_else(|| truncate_to_second(now), |after| after.max(truncate_to_second(now)))
}

/// Returns the key of an entry's claim.
pub(crate) fn claim_key(entry: &LedgerEntry) -> Key {
    Key::new(&entry.claim_ref.namespace, &entry.claim_ref.name)
}

/// Replaces the entries of a pool, if it is unchanged.
pub(crate) fn write_entries(pool: &DeviceObject<DevicePool>, entries: &[LedgerEntry]) -> Write {
    Write::Merge {
        resource: <DeviceObject<DevicePool> as View>::RESOURCE,
        key: pool.metadata.key(),
        subresource: Subresource::Status,
        fence: pool.metadata.fence(),
        body: json!({"status": {"allocations": entries}}),
    }
}

/// Whether a pool's ledger is too full for these entries besides its own.
pub(crate) fn is_full(pool: &DeviceObject<DevicePool>, more: &[LedgerEntry]) -> bool {
    let size = |value: Result<Vec<u8>, serde_json::Error>| value.map_or(usize::MAX, |it| it.len());
    let spec = pool.object.as_ref().map_or(0, |it| size(serde_json::to_vec(it)));
    let ledger = size(serde_json::to_vec(&pool.status.allocations));
    spec.saturating_add(ledger).saturating_add(size(serde_json::to_vec(more))) > MAX_POOL_BYTES
}

/// Whether two allocations may have a device at the same time.
pub(crate) fn are_compatible(one: AccessMode, other: AccessMode) -> bool {
    use AccessMode::{ReadOnlyShared, ReadWriteExclusive, ReadWriteShared, WriteExclusive};
    match (one.min(other), one.max(other)) {
        (ReadOnlyShared, ReadOnlyShared | ReadWriteShared | WriteExclusive)
        | (ReadWriteShared, ReadWriteShared) => true,
        (_, ReadWriteExclusive) | (ReadWriteShared | WriteExclusive | ReadWriteExclusive, _) => {
            false
        }
    }
}
