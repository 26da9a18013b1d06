//! Keeps the ledger of each pool true, and says what the pool is worth.

use std::collections::BTreeSet;

use gantry_api::devices::{
    DeviceClaim, DeviceClass, DeviceDriver, DevicePool, HoldState, LedgerEntry,
};
use gantry_devices::lower::Snapshot;
use gantry_devices::problem::Pool;
use gantry_reconcile::{
    Change, Controller, Key, Kind, Part, Plan, Reference, Step, Uid, View, World, Write,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::claim::{self, Claim, is_hold};
use crate::condition::{self, Says, second};
use crate::gate;
use crate::ledger::{self, Worth};
use crate::scheduler::scene::catalog;
use crate::seen::Seen;

/// Crosses out entries that no claim stands for, puts back those a claim stands for, and says how far
/// each has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Books;

/// How old an entry is before it is said that its claim stands for it: nobody waits to know, and
/// whoever sets devices aside in the same pool meanwhile need not try again.
const LAZY: SignedDuration = SignedDuration::from_secs(5);

/// How long an entry that is worth nothing may stay: nobody is kept from its device by it, and whoever
/// writes to the pool next crosses it out in the same write.
const SWEEP: SignedDuration = SignedDuration::from_secs(1);

type Claims = Seen<DeviceClaim>;
type Pools = Seen<DevicePool>;

impl Controller for Books {
    fn name(&self) -> &'static str {
        "device-books"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Pools>(),
            Kind::of::<Claims>(),
            Kind::of::<Seen<DeviceDriver>>(),
            Kind::of::<Seen<DeviceClass>>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Pools>() {
            return vec![change.key.clone()];
        }
        let pools = world.shelf::<Pools>();
        let mut keys = BTreeSet::new();
        for claim in change.both::<Claims>() {
            let tagged = pools.tagged(&ledger::names(&claim.metadata.uid));
            keys.extend(tagged.iter().map(|it| it.metadata.key()));
            let named = claim.status.allocations.iter();
            keys.extend(named.map(|it| Key::cluster(&it.device_pool_name)));
        }
        if change.is::<Seen<DeviceDriver>>() {
            let of_driver =
                |it: &Pools| it.object.as_ref().is_ok_and(|it| it.spec.driver == change.key.name());
            let all = pools.all();
            keys.extend(all.iter().filter(|it| of_driver(it)).map(|it| it.metadata.key()));
        }
        keys.into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pool) = world.shelf::<Pools>().get(key) else { return plan };
        let (mut entries, gone) = kept(world, &pool, now, &mut plan);
        restore(world, &pool, &mut entries, now);
        let mut status = Map::new();
        if entries != pool.status.allocations {
            status.insert("allocations".to_owned(), json!(entries));
        }
        let (refusals, next) = gate::refusal::left(&pool, now);
        if let Some(next) = next {
            plan.look_at(next, now);
        }
        if refusals != pool.status.refusals {
            status.insert("refusals".to_owned(), json!(refusals));
        }
        let says = standing(world, &pool, &entries);
        let news: Vec<Says> =
            says.into_iter().filter(|it| !it.is_said(&pool.status.conditions)).collect();
        if !news.is_empty() {
            let before = &pool.status.conditions;
            let conditions = condition::with(before, &news, pool.metadata.generation, now);
            status.insert("conditions".to_owned(), condition::spell(&conditions));
        }
        if !status.is_empty() {
            let write = Write::Merge {
                resource: <Pools as View>::RESOURCE,
                key: key.clone(),
                part: Part::Status,
                fence: pool.metadata.fence(),
                body: json!({"status": Value::Object(status)}),
            };
            plan.steps.push(gone.into_iter().fold(Step::new(write), Step::gone));
        }
        plan
    }
}

/// The entries that stay, and the claims that must be gone for the others to go.
fn kept(
    world: &World,
    pool: &Pools,
    now: Timestamp,
    plan: &mut Plan,
) -> (Vec<LedgerEntry>, Vec<Reference>) {
    let mut gone = Vec::new();
    let mut entries = Vec::new();
    let mut due = |since: Timestamp, wait: SignedDuration| {
        let due = since.checked_add(wait).unwrap_or(since);
        if due > now {
            plan.look_at(due, now);
        }
        due <= now
    };
    for entry in &pool.status.allocations {
        match ledger::worth(world, &pool.metadata.name, entry) {
            Worth::Stands => {
                let mut entry = entry.clone();
                if entry.state == HoldState::Reserved && due(entry.since.0, LAZY) {
                    entry.state = HoldState::Bound;
                }
                entries.push(entry);
            }
            Worth::Nothing(since) if due(since, SWEEP) => {}
            Worth::Counts | Worth::Unknown | Worth::Nothing(_) => entries.push(entry.clone()),
            Worth::Unclaimed => {
                let (resource, key) = (<Claims as View>::RESOURCE, ledger::claim_key(entry));
                let uid = Uid::new(&entry.claim_ref.uid);
                let claim = Reference { resource, key, uid, field: String::new() };
                if !gone.contains(&claim) {
                    gone.push(claim);
                }
            }
        }
    }
    (entries, gone)
}

/// Puts back what claims stand for and a pool has lost, unless somebody else has it by now.
fn restore(world: &World, pool: &Pools, entries: &mut Vec<LedgerEntry>, now: Timestamp) {
    let name = &pool.metadata.name;
    let mut lost: Vec<(Option<Timestamp>, LedgerEntry)> = Vec::new();
    for seen in world.shelf::<Claims>().tagged(&claim::has_of(name)) {
        let claim = Claim::Plain(seen);
        let held = claim.allocations().iter().filter(|it| is_hold(it));
        for allocation in held.filter(|it| it.device_pool_name == *name) {
            if !entries.iter().any(|it| {
                it.claim_ref.uid == claim.uid().as_str() && ledger::is_about(it, name, allocation)
            }) {
                let since = claim.horizon().unwrap_or_else(|| second(now));
                let entry = ledger::entry(&claim, allocation, HoldState::Bound, since);
                lost.push((claim.meta().creation_timestamp, entry));
            }
        }
    }
    // Of those who cannot both have it, the older claim.
    lost.sort_by(|one, two| {
        let key = |it: &(Option<Timestamp>, LedgerEntry)| (it.0, ledger::claim_key(&it.1));
        key(one).cmp(&key(two))
    });
    for (_, entry) in lost {
        let alone = entries.iter().filter(|it| it.device_name == entry.device_name).all(|it| {
            it.device_name.is_none() || ledger::beside(it.access_mode, entry.access_mode)
        });
        if alone && fits(world, pool, entries, &entry) {
            entries.push(entry);
        }
    }
}

/// Whether an entry asks for nothing that is not there. What is not published is not asked about: the
/// device may come back.
fn fits(world: &World, pool: &Pools, entries: &[LedgerEntry], more: &LedgerEntry) -> bool {
    let Some(before) = lowered(world, pool, entries) else { return true };
    let with: Vec<LedgerEntry> = entries.iter().chain([more]).cloned().collect();
    let after = lowered(world, pool, &with);
    before.overcommitted() || !after.is_some_and(|it| it.overcommitted())
}

/// A pool with these entries, as the search sees it.
fn lowered(world: &World, pool: &Pools, entries: &[LedgerEntry]) -> Option<Pool> {
    let mut object = pool.whole()?;
    object.status.get_or_insert_default().allocations = entries.to_vec();
    let snapshot = Snapshot::new(&catalog(world), &[], &[object]);
    snapshot.inventory.pools().first().cloned()
}

/// What is to be said of a pool. What is not worth a word is said only to take it back.
fn standing(world: &World, pool: &Pools, entries: &[LedgerEntry]) -> Vec<Says> {
    let before = &pool.status.conditions;
    let object = match &pool.object {
        Ok(object) => object,
        Err(why) => return vec![Says::no("Valid", "Invalid", why.clone())],
    };
    let Some(lowered) = lowered(world, pool, entries) else { return Vec::new() };
    let mut says = vec![match &lowered.fault {
        Some(why) => Says::no("Valid", "Invalid", why.clone()),
        None => Says::yes("Valid", "Usable"),
    }];
    let mut rare = |kind: &'static str, is: bool, reason: &'static str, message: &str| {
        if is {
            says.push(Says { message: message.to_owned(), ..Says::yes(kind, reason) });
        } else if condition::find(before, kind).is_some() {
            says.push(Says::no(kind, "AsItShouldBe", String::new()));
        }
    };
    let ambiguous = catalog(world).is_ambiguous(&object.spec);
    rare(
        "AmbiguousDeviceType",
        ambiguous,
        "SeveralTypes",
        "the driver has several types of devices and the pool names none; they count as each",
    );
    rare(
        "Overcommitted",
        lowered.overcommitted(),
        "LessPublished",
        "more is held than is published; who holds it keeps it",
    );
    says.extend(condition::normalized(&pool.remarks, before));
    says
}
