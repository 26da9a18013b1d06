//! The devices and holds at one moment, and the requests against them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gantry_api::devices::{
    AccessMode, Attribute, DeviceAllocation, DevicePool, LedgerEntry, PodCapacityClaim,
    ResourceAllocation,
};
use gantry_api::finding::Source;

use super::catalog::Catalog;
use super::claim::{ClaimError, ClaimLowering, ClaimSpecRef, LoweredRequest};
use super::node_selection::{NodeLabels, reaches};
use super::selector::{DeviceProfile, DeviceSelector};
use super::{file_claims, pool};
use crate::constraint::Constraints;
use crate::problem::{
    CapacityPart, CountedDevices, Device, Hold, Inventory, Node, Pool, PoolDevices, Request,
    Signature, Symbols, Verdict,
};

/// Pools with their holds, the nodes that reach them, and the verdicts of constraints about their
/// devices.
///
/// Constraints are evaluated once for each selector and each profile of a device, for as long as
/// the snapshot lives.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The inventory that is searched.
    pub inventory: Inventory,
    /// Holds on something that is not found: the device is gone, or a part of it. The holders keep
    /// it.
    pub lost_holds: Vec<LostHold>,
    profiles: Vec<DeviceProfile>,
    /// The index of each pool in the inventory, by its name.
    pool_indices: HashMap<String, usize>,
    /// The names that shared profiles of devices leave out, by pool and device.
    names: Vec<Vec<Option<String>>>,
    /// Whether devices that differ only by name have profiles of their own.
    profiles_by_name: bool,
    verdict_cache: HashMap<String, Arc<[Verdict]>>,
}

/// How many selectors are cached with their verdicts about every profile. Beyond that the cache is
/// cleared: those in use are evaluated again at once.
const MAX_CACHED_SELECTORS: usize = 1_024;

/// A hold on something that is not published any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostHold {
    /// The pool.
    pub pool: String,
    /// The device; `None` for a pool that only counts.
    pub device: Option<String>,
    /// What of the device is gone, if not all of it.
    pub capacity: Option<String>,
}

/// What a claim has of a pool, in the terms of ledgers and claims.
struct HeldAllocation<'a> {
    device: Option<&'a str>,
    count: u32,
    mode: AccessMode,
    parts: &'a [ResourceAllocation],
}

impl<'a> HeldAllocation<'a> {
    fn from_entry(entry: &'a LedgerEntry) -> Self {
        Self {
            device: entry.device_name.as_deref(),
            count: entry.count.unwrap_or(1),
            mode: entry.access_mode,
            parts: &entry.allocations,
        }
    }
}

/// The same in the terms of the inventory, and what of it is not published any more.
#[derive(Default)]
struct LocatedHold {
    hold: Option<Hold>,
    times: usize,
    missing: Vec<String>,
}

impl Snapshot {
    /// Reads pools and their ledgers.
    ///
    /// Pools are tried in the order of their names if they come from a server, and in the order
    /// given if they come from files.
    #[must_use]
    pub fn new(catalog: &Catalog, nodes: &[NodeLabels], pools: &[DevicePool]) -> Self {
        let mut ordered: Vec<&DevicePool> = pools.iter().collect();
        match catalog.source() {
            Source::File => {}
            Source::Server => ordered.sort_by(|one, two| one.metadata.name.cmp(&two.metadata.name)),
        }
        let mut build = InventoryBuilder::default();
        let lowered = ordered.iter().map(|pool| build.pool(catalog, pool)).collect();
        let nodes = nodes.iter().zip(reachable_pools(nodes, &ordered));
        let nodes = nodes.map(|(node, pools)| Node { name: node.name.clone(), pools });
        let inventory = Inventory::new(build.symbols, lowered, nodes.collect());
        let names = ordered.iter().map(|pool| {
            let devices = pool.spec.devices.iter().map(|device| Some(device.name.clone()));
            if pool.spec.devices.is_empty() { vec![None] } else { devices.collect() }
        });
        let name = |(place, pool): (usize, &&DevicePool)| {
            (pool.metadata.name.clone().unwrap_or_default(), place)
        };
        let mut snapshot = Self {
            inventory,
            profiles: build.profiles,
            names: names.collect(),
            // Of two pools with one name, which only files can have, the first counts.
            pool_indices: ordered.iter().enumerate().rev().map(name).collect(),
            ..Self::default()
        };
        for (place, pool) in ordered.iter().enumerate() {
            let ledger = pool.status.as_ref().map_or(&[] as &[LedgerEntry], |s| &s.allocations);
            for entry in ledger {
                snapshot.hold_at(place, &HeldAllocation::from_entry(entry));
            }
        }
        snapshot
    }

    /// Holds what a claim's status lists, for claims that are in no pool's ledger.
    pub fn hold_allocation(&mut self, allocation: &DeviceAllocation) {
        let name = &allocation.device_pool_name;
        let Some(place) = self.pool_index(name) else {
            let device = allocation.device_name.clone();
            self.lost_holds.push(LostHold { pool: name.clone(), device, capacity: None });
            return;
        };
        let mode = allocation.access_mode.unwrap_or(AccessMode::ReadWriteExclusive);
        let device = allocation.device_name.as_deref();
        let count = allocation.device_count.unwrap_or(1);
        self.hold_at(
            place,
            &HeldAllocation { device, count, mode, parts: &allocation.allocations },
        );
    }

    /// Releases an entry of a pool's ledger, as if it were not written there. An entry that is not
    /// held is ignored.
    pub fn release_entry(&mut self, pool: &str, entry: &LedgerEntry) {
        let Some(place) = self.pool_index(pool) else { return };
        let LocatedHold { hold, times, .. } =
            self.locate_hold(place, &HeldAllocation::from_entry(entry));
        for hold in hold.iter().cycle().take(times) {
            // An entry that was never held, because its device is not published, cannot be
            // released.
            let _ = self.inventory.release(hold);
        }
    }

    /// Holds an entry of a pool's ledger.
    pub fn hold_entry(&mut self, pool: &str, entry: &LedgerEntry) {
        if let Some(place) = self.pool_index(pool) {
            self.hold_at(place, &HeldAllocation::from_entry(entry));
        }
    }

    /// Closes a pool to further allocations, for this reason; existing holders keep their devices.
    /// The inventory is rebuilt, so this is for what happens rarely.
    pub fn close_pool(&mut self, pool: &str, why: &str) {
        let Some(place) = self.pool_index(pool) else { return };
        let mut pools = self.inventory.pools().to_vec();
        if let Some(pool) = pools.get_mut(place) {
            pool.invalid_reason.get_or_insert_with(|| why.to_owned());
        }
        let symbols = self.inventory.symbols().clone();
        let nodes = self.inventory.nodes().to_vec();
        self.inventory = Inventory::new(symbols, pools, nodes);
    }

    fn pool_index(&self, pool: &str) -> Option<usize> {
        self.pool_indices.get(pool).copied()
    }

    fn hold_at(&mut self, place: usize, taken: &HeldAllocation<'_>) {
        let LocatedHold { hold, times, missing: gone } = self.locate_hold(place, taken);
        let all = hold.iter().cycle().take(times);
        let held = hold.is_some() && all.map(|hold| self.inventory.hold(hold)).all(|it| it.is_ok());
        if !held {
            self.record_lost(place, taken.device, None);
        }
        for capacity in gone {
            self.record_lost(place, taken.device, Some(capacity));
        }
    }

    /// Finds what is held: one device, or a number of indistinguishable ones.
    fn locate_hold(&self, place: usize, taken: &HeldAllocation<'_>) -> LocatedHold {
        let stock = self.inventory.pools().get(place).map(|pool| &pool.devices);
        let mut held = LocatedHold::default();
        match (stock, taken.device) {
            (Some(PoolDevices::Listed(devices)), Some(name)) => {
                let Some(at) = devices.iter().position(|device| device.name == name) else {
                    return held;
                };
                let mut parts = Vec::new();
                for part in taken.parts {
                    match self.capacity_index(place, at, part) {
                        Some(entry) => {
                            parts.push(CapacityPart {
                                capacity_index: entry,
                                amount: part.allocation.nanos(),
                            });
                        }
                        None => held.missing.push(part.name.clone()),
                    }
                }
                let (device, mode) = (Some(at), taken.mode);
                held.hold = Some(Hold { pool: place, device, mode, admin: false, parts });
                held.times = 1;
            }
            (Some(PoolDevices::Counted(counted)), None) => {
                let mode = AccessMode::ReadWriteExclusive;
                let parts = Vec::new();
                held.hold = Some(Hold { pool: place, device: None, mode, admin: false, parts });
                // More than all of them has the same effect as any larger number.
                let times = taken.count.min(counted.count.saturating_add(1));
                held.times = times.try_into().unwrap_or(usize::MAX);
            }
            (Some(PoolDevices::Listed(_)), None)
            | (Some(PoolDevices::Counted(_)), Some(_))
            | (None, _) => {}
        }
        held
    }

    /// Returns the capacity entry of a device that an allocation was taken from.
    fn capacity_index(
        &self,
        place: usize,
        at: usize,
        allocation: &ResourceAllocation,
    ) -> Option<usize> {
        let symbols = self.inventory.symbols();
        let PoolDevices::Listed(devices) = &self.inventory.pools().get(place)?.devices else {
            return None;
        };
        let wanted: BTreeMap<&str, &str> =
            allocation.topologies.iter().map(|t| (t.r#type.as_str(), t.name.as_str())).collect();
        devices.get(at)?.capacities.iter().position(|entry| {
            let places = entry.domains.iter();
            symbols.name(entry.name) == allocation.name
                && places
                    .map(|p| (symbols.name(p.kind), symbols.name(p.name)))
                    .collect::<BTreeMap<_, _>>()
                    == wanted
        })
    }

    fn record_lost(&mut self, place: usize, device: Option<&str>, capacity: Option<String>) {
        let pool = self.inventory.pools().get(place).map_or_else(String::new, |p| p.name.clone());
        self.lost_holds.push(LostHold { pool, device: device.map(ToOwned::to_owned), capacity });
    }

    /// Returns the index of a node in the inventory.
    #[must_use]
    pub fn node_index(&self, name: &str) -> Option<usize> {
        self.inventory.nodes().iter().position(|node| node.name == name)
    }

    /// Converts a pod's claims to a request, in the order in which they choose.
    ///
    /// # Errors
    /// The first claim that contradicts itself or its class, or whose class is missing.
    pub fn request(
        &mut self,
        catalog: &Catalog,
        constraints: &Constraints,
        claims: &[(&str, ClaimSpecRef<'_>)],
    ) -> Result<LoweredRequest, ClaimError> {
        let mut lower = ClaimLowering::new(catalog, constraints);
        let claims = claims.iter().map(|(name, wanted)| lower.claim(name, *wanted));
        let claims = claims.collect::<Result<_, _>>()?;
        let request =
            Request { claims, verdicts: self.verdict_rows(&lower.selectors), ..Request::default() };
        Ok(LoweredRequest { request, warnings: lower.warnings })
    }

    /// Converts the claims of a pod in the oldest files to a request.
    ///
    /// # Errors
    /// As for [`Snapshot::request`].
    pub fn file_request(
        &mut self,
        catalog: &Catalog,
        constraints: &Constraints,
        pod: &PodCapacityClaim,
    ) -> Result<LoweredRequest, ClaimError> {
        let mut lower = ClaimLowering::new(catalog, constraints);
        let claims = file_claims(pod).into_iter().map(|claim| {
            let lowered = lower.terms(&claim.name, &claim.claims)?;
            Ok(crate::problem::Claim { topologies: claim.topologies.clone(), ..lowered })
        });
        let claims = claims.collect::<Result<_, _>>()?;
        let request = Request {
            claims,
            verdicts: self.verdict_rows(&lower.selectors),
            topologies: pod.topologies.clone(),
            ..Request::default()
        };
        Ok(LoweredRequest { request, warnings: lower.warnings })
    }

    fn verdict_rows(&mut self, selectors: &[DeviceSelector]) -> Vec<Arc<[Verdict]>> {
        if !self.profiles_by_name && selectors.iter().any(DeviceSelector::depends_on_identity) {
            self.split_profiles_by_name();
        }
        let looks = &self.profiles;
        let rows = selectors.iter().map(|selector| {
            if let Some(known) = self.verdict_cache.get(selector.key()) {
                return Arc::clone(known);
            }
            if self.verdict_cache.len() >= MAX_CACHED_SELECTORS {
                self.verdict_cache.clear();
            }
            let row: Arc<[Verdict]> = looks.iter().map(|look| selector.evaluate(look)).collect();
            self.verdict_cache.insert(selector.key().to_owned(), Arc::clone(&row));
            row
        });
        rows.collect()
    }

    /// Gives each device a profile of its own, once a constraint reads names.
    fn split_profiles_by_name(&mut self) {
        let mut pools = self.inventory.pools().to_vec();
        let mut looks = Vec::new();
        for (pool, names) in pools.iter_mut().zip(&self.names) {
            let mut give = |signature: &mut Signature, name: &Option<String>| {
                let look = self.profiles.get(signature.index()).cloned().unwrap_or_default();
                looks.push(DeviceProfile { pool: pool.name.clone(), name: name.clone(), ..look });
                *signature = last_signature(&looks);
            };
            match &mut pool.devices {
                PoolDevices::Listed(devices) => {
                    for (device, name) in devices.iter_mut().zip(names) {
                        give(&mut device.signature, name);
                    }
                }
                PoolDevices::Counted(counted) => give(&mut counted.signature, &None),
            }
        }
        let symbols = self.inventory.symbols().clone();
        let nodes = self.inventory.nodes().to_vec();
        self.inventory = Inventory::new(symbols, pools, nodes);
        self.profiles = looks;
        self.verdict_cache.clear();
        self.profiles_by_name = true;
    }
}

/// Returns the pools that each node reaches, in their order. Most belong to one node, and are found
/// by its name.
fn reachable_pools(nodes: &[NodeLabels], pools: &[&DevicePool]) -> Vec<Vec<usize>> {
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        by_name.entry(&node.name).or_default().push(at);
    }
    let mut reached = vec![Vec::new(); nodes.len()];
    for (place, pool) in pools.iter().enumerate() {
        let spec = &pool.spec;
        if spec.all_nodes || spec.node_selector.is_some() {
            let at = nodes.iter().enumerate().filter(|(_, node)| reaches(node, spec));
            at.for_each(|(at, _)| reached[at].push(place));
        } else if let Some(at) = spec.node_name.as_deref().and_then(|name| by_name.get(name)) {
            at.iter().for_each(|at| reached[*at].push(place));
        }
    }
    reached
}

fn last_signature(looks: &[DeviceProfile]) -> Signature {
    let place = looks.len().saturating_sub(1);
    Signature(u32::try_from(place).expect("an inventory has fewer than 2^32 devices"))
}

/// Pools under construction: names get numbers, and equal devices share a profile.
#[derive(Default)]
struct InventoryBuilder {
    symbols: Symbols,
    profiles: Vec<DeviceProfile>,
    /// Profiles of the pool that is being read, by the attributes of the device.
    signatures: HashMap<String, Signature>,
}

impl InventoryBuilder {
    fn pool(&mut self, catalog: &Catalog, published: &DevicePool) -> Pool {
        let spec = &published.spec;
        let look = DeviceProfile {
            driver: spec.driver.clone(),
            types: catalog.types_of(spec),
            pool_attributes: sorted(&spec.attributes).into(),
            ..DeviceProfile::default()
        };
        let stock = if spec.devices.is_empty() && spec.device_count.is_some() {
            PoolDevices::Counted(CountedDevices {
                count: spec.device_count.unwrap_or(0),
                held: 0,
                signature: self.signature(&look, &[]),
                attributes: pool::attributes(&spec.attributes, &[], &mut self.symbols),
            })
        } else {
            let devices = spec.devices.iter().map(|device| Device {
                signature: self.signature(&look, &device.attributes),
                ..pool::device(spec, device, &mut self.symbols)
            });
            PoolDevices::Listed(devices.collect())
        };
        Pool {
            name: published.metadata.name.clone().unwrap_or_default(),
            invalid_reason: pool::invalid_reason(published, catalog.source()),
            resources: pool::pool_resources(spec, &mut self.symbols),
            devices: stock,
        }
    }

    /// Returns the column of a profile, a new one if the profile is new.
    fn signature(&mut self, look: &DeviceProfile, attributes: &[Attribute]) -> Signature {
        let look = DeviceProfile { device_attributes: sorted(attributes), ..look.clone() };
        let key = format!("{look:?}");
        if let Some(known) = self.signatures.get(&key) {
            return *known;
        }
        self.profiles.push(look);
        let signature = last_signature(&self.profiles);
        self.signatures.insert(key, signature);
        signature
    }
}

fn sorted(attributes: &[Attribute]) -> Vec<Attribute> {
    let mut sorted = attributes.to_vec();
    sorted.sort_by(|one, two| one.name.cmp(&two.name));
    sorted
}
