//! Reconciles the ledger of each pool with the claims, and writes the pool's conditions.

use std::collections::BTreeSet;

use gantry_api::devices::{
    DeviceClaim, DeviceClass, DeviceDriver, DevicePool, HoldState, LedgerEntry,
};
use gantry_devices::lower::Snapshot;
use gantry_devices::problem::Pool;
use gantry_reconcile::{
    Change, Controller, Key, Kind, ObjectReference, Plan, Step, Subresource, Uid, View, World,
    Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::allocation_ledger::{self, EntryState};
use crate::claim::{self, Claim, is_hold};
use crate::condition::{self, ConditionUpdate, truncate_to_second};
use crate::scheduler::cycle_state::catalog;
use crate::scheduling_gate;
use crate::views::DeviceObject;

/// Removes ledger entries that no claim backs, restores those that a claim backs, and updates the
/// state of each entry.
#[derive(Clone, Copy, Debug, Default)]
pub struct LedgerReconciler;

/// The age at which an entry is marked as allocated: nothing waits for that, and a later write
/// causes fewer conflicts with reservations in the same pool.
const STATE_UPDATE_DELAY: SignedDuration = SignedDuration::from_secs(5);

/// How long a void entry may stay: it blocks no device, and the next write to the pool removes it
/// as well.
const VOID_ENTRY_SWEEP_DELAY: SignedDuration = SignedDuration::from_secs(1);

type ClaimObject = DeviceObject<DeviceClaim>;
type PoolObject = DeviceObject<DevicePool>;

impl Controller for LedgerReconciler {
    fn name(&self) -> &'static str {
        "device-ledger"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<PoolObject>(),
            Kind::of::<ClaimObject>(),
            Kind::of::<DeviceObject<DeviceDriver>>(),
            Kind::of::<DeviceObject<DeviceClass>>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<PoolObject>() {
            return vec![change.key.clone()];
        }
        let pools = world.store::<PoolObject>();
        let mut keys = BTreeSet::new();
        for claim in change.both::<ClaimObject>() {
            let tagged = pools.by_index(&allocation_ledger::ledger_claim_tag(&claim.metadata.uid));
            keys.extend(tagged.iter().map(|it| it.metadata.key()));
            let named = claim.status.allocations.iter();
            keys.extend(named.map(|it| Key::cluster(&it.device_pool_name)));
        }
        if change.is::<DeviceObject<DeviceDriver>>() {
            let of_driver = |it: &PoolObject| {
                it.object.as_ref().is_ok_and(|it| it.spec.driver == change.key.name())
            };
            let all = pools.list();
            keys.extend(all.iter().filter(|it| of_driver(it)).map(|it| it.metadata.key()));
        }
        keys.into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pool) = world.store::<PoolObject>().get(key) else { return plan };
        let (mut entries, gone) = retained_entries(world, &pool, now, &mut plan);
        restore_entries(world, &pool, &mut entries, now);
        let mut status = Map::new();
        if entries != pool.status.allocations {
            status.insert("allocations".to_owned(), json!(entries));
        }
        let (refusals, next) = scheduling_gate::node_refusals::unexpired(&pool, now);
        if let Some(next) = next {
            plan.requeue_at(next, now);
        }
        if refusals != pool.status.refusals {
            status.insert("refusals".to_owned(), json!(refusals));
        }
        let says = pool_conditions(world, &pool, &entries);
        let news: Vec<ConditionUpdate> =
            says.into_iter().filter(|it| !it.is_current(&pool.status.conditions)).collect();
        if !news.is_empty() {
            let before = &pool.status.conditions;
            let conditions = condition::merge(before, &news, pool.metadata.generation, now);
            status.insert("conditions".to_owned(), condition::to_json(&conditions));
        }
        if !status.is_empty() {
            let write = Write::Merge {
                resource: <PoolObject as View>::RESOURCE,
                key: key.clone(),
                subresource: Subresource::Status,
                fence: pool.metadata.fence(),
                body: json!({"status": Value::Object(status)}),
            };
            plan.steps.push(gone.into_iter().fold(Step::new(write), Step::require_absent));
        }
        plan
    }
}

/// Returns the entries that stay, and the claims that must be absent for the others to be removed.
fn retained_entries(
    world: &World,
    pool: &PoolObject,
    now: Timestamp,
    plan: &mut Plan,
) -> (Vec<LedgerEntry>, Vec<ObjectReference>) {
    let mut gone = Vec::new();
    let mut entries = Vec::new();
    let mut due = |since: Timestamp, wait: SignedDuration| {
        let due = since.checked_add(wait).unwrap_or(since);
        if due > now {
            plan.requeue_at(due, now);
        }
        due <= now
    };
    for entry in &pool.status.allocations {
        match allocation_ledger::entry_state(world, &pool.metadata.name, entry) {
            EntryState::Allocated => {
                let mut entry = entry.clone();
                if entry.state == HoldState::Reserved && due(entry.since.0, STATE_UPDATE_DELAY) {
                    entry.state = HoldState::Bound;
                }
                entries.push(entry);
            }
            EntryState::Void(since) if due(since, VOID_ENTRY_SWEEP_DELAY) => {}
            EntryState::Reserved | EntryState::ClaimInvalid | EntryState::Void(_) => {
                entries.push(entry.clone());
            }
            EntryState::ClaimMissing => {
                let (resource, key) =
                    (<ClaimObject as View>::RESOURCE, allocation_ledger::claim_key(entry));
                let uid = Uid::new(&entry.claim_ref.uid);
                let claim = ObjectReference { resource, key, uid, field: String::new() };
                if !gone.contains(&claim) {
                    gone.push(claim);
                }
            }
        }
    }
    (entries, gone)
}

/// Restores entries that claims back and a pool has lost, unless another claim has the devices by
/// now.
fn restore_entries(
    world: &World,
    pool: &PoolObject,
    entries: &mut Vec<LedgerEntry>,
    now: Timestamp,
) {
    let name = &pool.metadata.name;
    let mut lost: Vec<(Option<Timestamp>, LedgerEntry)> = Vec::new();
    for seen in world.store::<ClaimObject>().by_index(&claim::allocated_from_pool_tag(name)) {
        let claim = Claim::Plain(seen);
        let held = claim.allocations().iter().filter(|it| is_hold(it));
        for allocation in held.filter(|it| it.device_pool_name == *name) {
            if !entries.iter().any(|it| {
                it.claim_ref.uid == claim.uid().as_str()
                    && allocation_ledger::is_entry_for(it, name, allocation)
            }) {
                let since =
                    claim.allocation_changed_at().unwrap_or_else(|| truncate_to_second(now));
                let entry =
                    allocation_ledger::new_entry(&claim, allocation, HoldState::Bound, since);
                lost.push((claim.meta().creation_timestamp, entry));
            }
        }
    }
    // Of claims that cannot both have a device, the older one gets it.
    lost.sort_by(|one, two| {
        let key =
            |it: &(Option<Timestamp>, LedgerEntry)| (it.0, allocation_ledger::claim_key(&it.1));
        key(one).cmp(&key(two))
    });
    for (_, entry) in lost {
        let alone = entries.iter().filter(|it| it.device_name == entry.device_name).all(|it| {
            it.device_name.is_none()
                || allocation_ledger::are_compatible(it.access_mode, entry.access_mode)
        });
        if alone && entry_fits(world, pool, entries, &entry) {
            entries.push(entry);
        }
    }
}

/// Whether an entry requests only what is available. Devices that are not published are not
/// checked: they may come back.
fn entry_fits(
    world: &World,
    pool: &PoolObject,
    entries: &[LedgerEntry],
    more: &LedgerEntry,
) -> bool {
    let Some(before) = inventory_pool(world, pool, entries) else { return true };
    let with: Vec<LedgerEntry> = entries.iter().chain([more]).cloned().collect();
    let after = inventory_pool(world, pool, &with);
    before.overcommitted() || !after.is_some_and(|it| it.overcommitted())
}

/// Returns a pool with these entries, as the search sees it.
fn inventory_pool(world: &World, pool: &PoolObject, entries: &[LedgerEntry]) -> Option<Pool> {
    let mut object = pool.with_ledger()?;
    object.status.get_or_insert_default().allocations = entries.to_vec();
    let snapshot = Snapshot::new(&catalog(world), &[], &[object]);
    snapshot.inventory.pools().first().cloned()
}

/// Returns the conditions of a pool. Conditions in their usual state are written only to replace an
/// earlier unusual one.
fn pool_conditions(
    world: &World,
    pool: &PoolObject,
    entries: &[LedgerEntry],
) -> Vec<ConditionUpdate> {
    let before = &pool.status.conditions;
    let object = match &pool.object {
        Ok(object) => object,
        Err(why) => return vec![ConditionUpdate::new_false("Valid", "Invalid", why.clone())],
    };
    let Some(lowered) = inventory_pool(world, pool, entries) else { return Vec::new() };
    let mut says = vec![match &lowered.invalid_reason {
        Some(why) => ConditionUpdate::new_false("Valid", "Invalid", why.clone()),
        None => ConditionUpdate::new_true("Valid", "Usable"),
    }];
    let mut rare = |kind: &'static str, is: bool, reason: &'static str, message: &str| {
        if is {
            says.push(ConditionUpdate {
                message: message.to_owned(),
                ..ConditionUpdate::new_true(kind, reason)
            });
        } else if condition::find(before, kind).is_some() {
            says.push(ConditionUpdate::new_false(kind, "AsItShouldBe", String::new()));
        }
    };
    let ambiguous = catalog(world).is_ambiguous(&object.spec);
    rare(
        "AmbiguousDeviceType",
        ambiguous,
        "SeveralTypes",
        "the driver has several types of devices and the pool names none; its devices count as \
         each type",
    );
    rare(
        "Overcommitted",
        lowered.overcommitted(),
        "LessPublished",
        "more is held than is published; claims keep the devices they have",
    );
    says.extend(condition::spec_normalized(&pool.warnings, before));
    says
}
