//! What there is at one moment, and the requests that can be made of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gantry_api::devices::{
    AccessMode, Attribute, DeviceAllocation, DevicePool, LedgerEntry, PodCapacityClaim,
    ResourceAllocation,
};
use gantry_api::finding::Source;

use super::catalog::Catalog;
use super::claim::{ClaimError, Lower, Lowered, Wanted};
use super::reach::{NodeLabels, reaches};
use super::selector::{Look, Selector};
use super::{file_claims, pool};
use crate::constraint::Constraints;
use crate::problem::{
    Counted, Device, Hold, Inventory, Node, Part, Pool, Request, Signature, Stock, Symbols, Verdict,
};

/// Pools with their holds, the nodes that reach them, and what constraints say about their devices.
///
/// Constraints are evaluated once for each selector and each look of a device, for as long as the
/// snapshot lives.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// What is searched.
    pub inventory: Inventory,
    /// What is held and not to be found: the device is gone, or a part of it. The holders keep it.
    pub lost: Vec<Lost>,
    looks: Vec<Look>,
    /// Where each pool is in the inventory, by its name.
    places: HashMap<String, usize>,
    /// What the only look of devices leaves out, by pool and device.
    names: Vec<Vec<Option<String>>>,
    /// Whether devices that differ only by name have looks of their own.
    identified: bool,
    rows: HashMap<String, Arc<[Verdict]>>,
}

/// How many selectors are remembered with what they say about every look. Past it all are forgotten:
/// those in use come back at once.
const ROWS: usize = 1_024;

/// A hold on something that is not published any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The pool.
    pub pool: String,
    /// The device; none for a pool that only counts.
    pub device: Option<String>,
    /// What of the device is gone, if not all of it.
    pub capacity: Option<String>,
}

/// What somebody has of a pool, in the words of ledgers and claims.
struct Taken<'a> {
    device: Option<&'a str>,
    count: u32,
    mode: AccessMode,
    parts: &'a [ResourceAllocation],
}

impl<'a> Taken<'a> {
    fn by(entry: &'a LedgerEntry) -> Self {
        Self {
            device: entry.device_name.as_deref(),
            count: entry.count.unwrap_or(1),
            mode: entry.access_mode,
            parts: &entry.allocations,
        }
    }
}

/// The same in the words of the inventory, and what of it is not published any more.
#[derive(Default)]
struct Held {
    hold: Option<Hold>,
    times: usize,
    gone: Vec<String>,
}

impl Snapshot {
    /// Reads pools and what is in their books.
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
        let mut build = Build::default();
        let lowered = ordered.iter().map(|pool| build.pool(catalog, pool)).collect();
        let nodes = nodes.iter().zip(reached(nodes, &ordered));
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
            looks: build.looks,
            names: names.collect(),
            // Of two with one name, which only files can have, the first.
            places: ordered.iter().enumerate().rev().map(name).collect(),
            ..Self::default()
        };
        for (place, pool) in ordered.iter().enumerate() {
            let ledger = pool.status.as_ref().map_or(&[] as &[LedgerEntry], |s| &s.allocations);
            for entry in ledger {
                snapshot.take(place, &Taken::by(entry));
            }
        }
        snapshot
    }

    /// Puts what a claim's status says into the books, for claims that are in no pool's ledger.
    pub fn hold(&mut self, allocation: &DeviceAllocation) {
        let name = &allocation.device_pool_name;
        let Some(place) = self.place(name) else {
            let device = allocation.device_name.clone();
            self.lost.push(Lost { pool: name.clone(), device, capacity: None });
            return;
        };
        let mode = allocation.access_mode.unwrap_or(AccessMode::ReadWriteExclusive);
        let device = allocation.device_name.as_deref();
        let count = allocation.device_count.unwrap_or(1);
        self.take(place, &Taken { device, count, mode, parts: &allocation.allocations });
    }

    /// Takes an entry out of the books of a pool, as if it were not written there. What is not in
    /// them is not missed.
    pub fn release(&mut self, pool: &str, entry: &LedgerEntry) {
        let Some(place) = self.place(pool) else { return };
        let Held { hold, times, .. } = self.held(place, &Taken::by(entry));
        for hold in hold.iter().cycle().take(times) {
            // Who was never put in, for want of the device, cannot be taken out.
            let _ = self.inventory.release(hold);
        }
    }

    /// Puts an entry into the books of a pool.
    pub fn enter(&mut self, pool: &str, entry: &LedgerEntry) {
        if let Some(place) = self.place(pool) {
            self.take(place, &Taken::by(entry));
        }
    }

    /// Lets nobody take more of a pool, for this reason; who has something of it keeps that. The
    /// inventory is made anew, so this is for what happens rarely.
    pub fn close(&mut self, pool: &str, why: &str) {
        let Some(place) = self.place(pool) else { return };
        let mut pools = self.inventory.pools().to_vec();
        if let Some(pool) = pools.get_mut(place) {
            pool.fault.get_or_insert_with(|| why.to_owned());
        }
        let symbols = self.inventory.symbols().clone();
        let nodes = self.inventory.nodes().to_vec();
        self.inventory = Inventory::new(symbols, pools, nodes);
    }

    fn place(&self, pool: &str) -> Option<usize> {
        self.places.get(pool).copied()
    }

    fn take(&mut self, place: usize, taken: &Taken<'_>) {
        let Held { hold, times, gone } = self.held(place, taken);
        let all = hold.iter().cycle().take(times);
        let held = hold.is_some() && all.map(|hold| self.inventory.hold(hold)).all(|it| it.is_ok());
        if !held {
            self.lose(place, taken.device, None);
        }
        for capacity in gone {
            self.lose(place, taken.device, Some(capacity));
        }
    }

    /// What is held: one device, or a number of them that nobody tells apart.
    fn held(&self, place: usize, taken: &Taken<'_>) -> Held {
        let stock = self.inventory.pools().get(place).map(|pool| &pool.stock);
        let mut held = Held::default();
        match (stock, taken.device) {
            (Some(Stock::Listed(devices)), Some(name)) => {
                let Some(at) = devices.iter().position(|device| device.name == name) else {
                    return held;
                };
                let mut parts = Vec::new();
                for part in taken.parts {
                    match self.entry(place, at, part) {
                        Some(entry) => {
                            parts.push(Part { entry, amount: part.allocation.nanos() });
                        }
                        None => held.gone.push(part.name.clone()),
                    }
                }
                let (device, mode) = (Some(at), taken.mode);
                held.hold = Some(Hold { pool: place, device, mode, admin: false, parts });
                held.times = 1;
            }
            (Some(Stock::Counted(counted)), None) => {
                let mode = AccessMode::ReadWriteExclusive;
                let parts = Vec::new();
                held.hold = Some(Hold { pool: place, device: None, mode, admin: false, parts });
                // More than all of them is as much as any number beyond.
                let times = taken.count.min(counted.count.saturating_add(1));
                held.times = times.try_into().unwrap_or(usize::MAX);
            }
            (Some(Stock::Listed(_)), None) | (Some(Stock::Counted(_)), Some(_)) | (None, _) => {}
        }
        held
    }

    /// The entry of a device that an allocation was taken from.
    fn entry(&self, place: usize, at: usize, allocation: &ResourceAllocation) -> Option<usize> {
        let symbols = self.inventory.symbols();
        let Stock::Listed(devices) = &self.inventory.pools().get(place)?.stock else { return None };
        let wanted: BTreeMap<&str, &str> =
            allocation.topologies.iter().map(|t| (t.r#type.as_str(), t.name.as_str())).collect();
        devices.get(at)?.entries.iter().position(|entry| {
            let places = entry.places.iter();
            symbols.name(entry.name) == allocation.name
                && places
                    .map(|p| (symbols.name(p.kind), symbols.name(p.name)))
                    .collect::<BTreeMap<_, _>>()
                    == wanted
        })
    }

    fn lose(&mut self, place: usize, device: Option<&str>, capacity: Option<String>) {
        let pool = self.inventory.pools().get(place).map_or_else(String::new, |p| p.name.clone());
        self.lost.push(Lost { pool, device: device.map(ToOwned::to_owned), capacity });
    }

    /// The place of a node in the inventory.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<usize> {
        self.inventory.nodes().iter().position(|node| node.name == name)
    }

    /// What a pod's claims ask for, in the order in which they choose.
    ///
    /// # Errors
    /// The first claim that contradicts itself or its class, or whose class is missing.
    pub fn request(
        &mut self,
        catalog: &Catalog,
        constraints: &Constraints,
        claims: &[(&str, Wanted<'_>)],
    ) -> Result<Lowered, ClaimError> {
        let mut lower = Lower::new(catalog, constraints);
        let claims = claims.iter().map(|(name, wanted)| lower.wanted(name, *wanted));
        let claims = claims.collect::<Result<_, _>>()?;
        let request =
            Request { claims, verdicts: self.rows(&lower.selectors), ..Request::default() };
        Ok(Lowered { request, notes: lower.notes })
    }

    /// What the claims of a pod in the oldest files ask for.
    ///
    /// # Errors
    /// As for [`Snapshot::request`].
    pub fn file_request(
        &mut self,
        catalog: &Catalog,
        constraints: &Constraints,
        pod: &PodCapacityClaim,
    ) -> Result<Lowered, ClaimError> {
        let mut lower = Lower::new(catalog, constraints);
        let claims = file_claims(pod).into_iter().map(|claim| {
            let lowered = lower.terms(&claim.name, &claim.claims)?;
            Ok(crate::problem::Claim { topologies: claim.topologies.clone(), ..lowered })
        });
        let claims = claims.collect::<Result<_, _>>()?;
        let request = Request {
            claims,
            verdicts: self.rows(&lower.selectors),
            topologies: pod.topologies.clone(),
            ..Request::default()
        };
        Ok(Lowered { request, notes: lower.notes })
    }

    fn rows(&mut self, selectors: &[Selector]) -> Vec<Arc<[Verdict]>> {
        if !self.identified && selectors.iter().any(Selector::looks_at_identity) {
            self.identify();
        }
        let looks = &self.looks;
        let rows = selectors.iter().map(|selector| {
            if let Some(known) = self.rows.get(selector.key()) {
                return Arc::clone(known);
            }
            if self.rows.len() >= ROWS {
                self.rows.clear();
            }
            let row: Arc<[Verdict]> = looks.iter().map(|look| selector.judge(look)).collect();
            self.rows.insert(selector.key().to_owned(), Arc::clone(&row));
            row
        });
        rows.collect()
    }

    /// Gives each device a look of its own, once a constraint asks for names.
    fn identify(&mut self) {
        let mut pools = self.inventory.pools().to_vec();
        let mut looks = Vec::new();
        for (pool, names) in pools.iter_mut().zip(&self.names) {
            let mut give = |signature: &mut Signature, name: &Option<String>| {
                let look = self.looks.get(signature.index()).cloned().unwrap_or_default();
                looks.push(Look { pool: pool.name.clone(), name: name.clone(), ..look });
                *signature = last(&looks);
            };
            match &mut pool.stock {
                Stock::Listed(devices) => {
                    for (device, name) in devices.iter_mut().zip(names) {
                        give(&mut device.signature, name);
                    }
                }
                Stock::Counted(counted) => give(&mut counted.signature, &None),
            }
        }
        let symbols = self.inventory.symbols().clone();
        let nodes = self.inventory.nodes().to_vec();
        self.inventory = Inventory::new(symbols, pools, nodes);
        self.looks = looks;
        self.rows.clear();
        self.identified = true;
    }
}

/// The pools that each node reaches, in their order. Most are of one node, and are found by its name.
fn reached(nodes: &[NodeLabels], pools: &[&DevicePool]) -> Vec<Vec<usize>> {
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

fn last(looks: &[Look]) -> Signature {
    let place = looks.len().saturating_sub(1);
    Signature(u32::try_from(place).expect("an inventory has fewer than 2^32 devices"))
}

/// Pools under construction: names get numbers, and devices that look alike share a look.
#[derive(Default)]
struct Build {
    symbols: Symbols,
    looks: Vec<Look>,
    /// Looks of the pool that is being read, by the attributes of the device.
    known: HashMap<String, Signature>,
}

impl Build {
    fn pool(&mut self, catalog: &Catalog, published: &DevicePool) -> Pool {
        let spec = &published.spec;
        let look = Look {
            driver: spec.driver.clone(),
            types: catalog.types_of(spec),
            pool_attributes: sorted(&spec.attributes).into(),
            ..Look::default()
        };
        let stock = if spec.devices.is_empty() && spec.device_count.is_some() {
            Stock::Counted(Counted {
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
            Stock::Listed(devices.collect())
        };
        Pool {
            name: published.metadata.name.clone().unwrap_or_default(),
            fault: pool::fault(published, catalog.source()),
            resources: pool::pooled(spec, &mut self.symbols),
            stock,
        }
    }

    /// The column of a look, a new one if nothing has looked so before.
    fn signature(&mut self, look: &Look, attributes: &[Attribute]) -> Signature {
        let look = Look { device_attributes: sorted(attributes), ..look.clone() };
        let key = format!("{look:?}");
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        self.looks.push(look);
        let signature = last(&self.looks);
        self.known.insert(key, signature);
        signature
    }
}

fn sorted(attributes: &[Attribute]) -> Vec<Attribute> {
    let mut sorted = attributes.to_vec();
    sorted.sort_by(|one, two| one.name.cmp(&two.name));
    sorted
}
