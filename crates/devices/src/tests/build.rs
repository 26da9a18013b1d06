//! Builders of small inventories and requests, and readable outcomes.

use std::sync::Arc;

use gantry_api::devices::{RequestedCapacity, Sharing, TopologyPolicy, TopologyRule, TypedRequest};
use gantry_api::quantity::Quantity;

use crate::allocate;
use crate::problem::{
    Allocation, AllocationOutcome, Alternative, Budget, Charge, Claim, Count, CountedDevices,
    Device, DeviceCapacity, Draws, Granularity, Hold, Inventory, Node, Pool, PoolDevices,
    PoolResource, Refusal, Request, Signature, Symbols, Term, TopologyDomain, UnsatisfiableReport,
    Value, Verdict,
};

/// A device under construction: name, kind, attributes, charges and resources.
#[derive(Clone, Default)]
pub(super) struct Dev {
    name: String,
    kind: u32,
    attributes: Vec<(String, String)>,
    charges: Vec<(usize, i128)>,
    entries: Vec<(String, Granularity, i128, Option<String>, bool)>,
    sharing: Option<Sharing>,
}

/// Creates a device of a kind; the selectors of a request say which kinds it takes.
pub(super) fn dev(name: &str, kind: u32) -> Dev {
    Dev { name: name.to_owned(), kind, ..Dev::default() }
}

impl Dev {
    pub(super) fn attr(mut self, name: &str, value: &str) -> Self {
        self.attributes.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn charge(mut self, units: &[i128]) -> Self {
        self.charges = units.iter().map(|units| units * Granularity::UNIT).enumerate().collect();
        self
    }

    pub(super) fn entry(mut self, name: &str, units: i128) -> Self {
        self.entries.push((
            name.to_owned(),
            Granularity::Block(Granularity::UNIT),
            units,
            None,
            true,
        ));
        self
    }

    pub(super) fn entry_at(mut self, name: &str, units: i128, numa: &str, splits: bool) -> Self {
        let block = Granularity::Block(Granularity::UNIT);
        self.entries.push((name.to_owned(), block, units, Some(numa.to_owned()), splits));
        self
    }

    pub(super) fn sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = Some(sharing);
        self
    }
}

/// Devices `a0`, `a1` and so on.
pub(super) fn devs(prefix: &str, count: usize, kind: u32) -> Vec<Dev> {
    (0..count).map(|at| dev(&format!("{prefix}{at}"), kind)).collect()
}

#[derive(Default)]
pub(super) struct InventoryBuilder {
    symbols: Symbols,
    pools: Vec<Pool>,
}

impl InventoryBuilder {
    pub(super) fn pool(mut self, name: &str, devices: Vec<Dev>) -> Self {
        let devices = devices.into_iter().map(|dev| self.device(dev)).collect();
        let stock = PoolDevices::Listed(devices);
        self.pools.push(Pool { name: name.to_owned(), devices: stock, ..Pool::default() });
        self
    }

    /// Gives the last pool resources that its devices are charged to.
    pub(super) fn resources(mut self, units: &[i128]) -> Self {
        let names: Vec<_> =
            (0..units.len()).map(|at| self.symbols.intern(&format!("r{at}"))).collect();
        let pooled = units.iter().zip(names).map(|(units, name)| PoolResource {
            name,
            capacity: units * Granularity::UNIT,
            used: 0,
        });
        self.pools.last_mut().unwrap().resources = pooled.collect();
        self
    }

    pub(super) fn counted(mut self, name: &str, count: u32, kind: u32) -> Self {
        let counted =
            CountedDevices { count, held: 0, signature: Signature(kind), attributes: vec![] };
        let stock = PoolDevices::Counted(counted);
        self.pools.push(Pool { name: name.to_owned(), devices: stock, ..Pool::default() });
        self
    }

    fn device(&mut self, dev: Dev) -> Device {
        let symbols = &mut self.symbols;
        let mut attributes: Vec<_> = dev
            .attributes
            .iter()
            .map(|(name, value)| {
                (symbols.intern(name), symbols.intern_value(&Value::String(value.clone())))
            })
            .collect();
        attributes.sort_unstable();
        let entries: Vec<DeviceCapacity> = dev
            .entries
            .iter()
            .map(|(name, grain, units, numa, splits)| {
                let kind = symbols.intern("numa");
                let place = |numa: &String| TopologyDomain { kind, name: symbols.intern(numa) };
                let places = numa.iter().map(place).collect();
                let (grain, capacity) = (*grain, units * Granularity::UNIT);
                let name = symbols.intern(name);
                DeviceCapacity {
                    name,
                    granularity: grain,
                    capacity,
                    used: 0,
                    domains: places,
                    splits: *splits,
                }
            })
            .collect();
        let charges = dev.charges.iter();
        let charges =
            charges.map(|(resource, amount)| Charge { resource: *resource, amount: *amount });
        Device {
            name: dev.name,
            signature: Signature(dev.kind),
            attributes,
            charges: charges.collect(),
            access: dev.sharing.as_ref().map(|_| symbols.intern("access")),
            sharing: dev.sharing.unwrap_or_else(|| Device::unlisted_sharing(&entries)),
            capacities: entries,
            ..Device::default()
        }
    }

    /// One node that reaches all pools.
    pub(super) fn build(self) -> Inventory {
        let node = Node { name: "n".to_owned(), pools: (0..self.pools.len()).collect() };
        Inventory::new(self.symbols, self.pools, vec![node])
    }
}

/// So many devices of one of these kinds.
pub(super) fn want(count: u32, kinds: &[u32]) -> TermRequest {
    let alternative = Alternative { count: Count::exactly(count), ..Alternative::default() };
    TermRequest { kinds: kinds.to_vec(), alternative }
}

#[derive(Clone)]
pub(super) struct TermRequest {
    kinds: Vec<u32>,
    pub(super) alternative: Alternative,
}

impl TermRequest {
    pub(super) fn matching(mut self, name: &str) -> Self {
        self.alternative.match_attributes.push(name.to_owned());
        self
    }

    pub(super) fn distinct(mut self, name: &str) -> Self {
        self.alternative.distinct_attributes.push(name.to_owned());
        self
    }

    pub(super) fn at_most(mut self, most: u32) -> Self {
        self.alternative.count = Count::Between { least: 1, most };
        self
    }

    pub(super) fn all(mut self) -> Self {
        self.alternative.count = Count::All;
        self
    }

    pub(super) fn admin(mut self) -> Self {
        self.alternative.admin = true;
        self
    }

    pub(super) fn together(mut self, name: &str, amount: &str) -> Self {
        let amount = Quantity::parse(amount).unwrap();
        self.alternative.draws = Draws::Together(vec![(name.to_owned(), amount)]);
        self
    }

    pub(super) fn each(mut self, draws: &[(&str, RequestedCapacity)]) -> Self {
        let list = draws.iter();
        let list =
            list.map(|(name, draw)| TypedRequest { name: (*name).to_owned(), draw: draw.clone() });
        self.alternative.draws = Draws::Each(list.collect());
        self
    }

    pub(super) fn numa(mut self, policy: TopologyPolicy) -> Self {
        self.alternative.topologies.push(TopologyRule { r#type: "numa".to_owned(), policy });
        self
    }
}

pub(super) fn amount(text: &str) -> RequestedCapacity {
    RequestedCapacity::Quantity { request: Quantity::parse(text).unwrap() }
}

/// A request of claims, of terms, of alternatives.
pub(super) fn request(claims: &[&[&[TermRequest]]]) -> Request {
    let mut request = Request::default();
    for terms in claims {
        let mut claim = Claim::default();
        for wants in *terms {
            let alternatives = wants.iter().map(|want| {
                let row: Vec<Verdict> = (0..16)
                    .map(|kind| match want.kinds.contains(&kind) {
                        true => Verdict::Met,
                        false => Verdict::Refused(Refusal::Constraints),
                    })
                    .collect();
                request.verdicts.push(Arc::from(row));
                Alternative { selector: request.verdicts.len() - 1, ..want.alternative.clone() }
            });
            claim.terms.push(Term { name: String::new(), alternatives: alternatives.collect() });
        }
        request.claims.push(claim);
    }
    request
}

pub(super) fn allocate_first_node(inventory: &Inventory, request: &Request) -> AllocationOutcome {
    allocate(inventory, 0, request, &Budget::default())
}

pub(super) fn granted(inventory: &Inventory, request: &Request) -> Allocation {
    match allocate_first_node(inventory, request) {
        AllocationOutcome::Allocated(allocation) => allocation,
        other => panic!("not allocated: {other:?}"),
    }
}

pub(super) fn refused(inventory: &Inventory, request: &Request) -> UnsatisfiableReport {
    match allocate_first_node(inventory, request) {
        AllocationOutcome::Unsatisfiable(report) => report,
        other => panic!("not unsatisfiable: {other:?}"),
    }
}

/// Names of the devices of each term; a pool's own name for a device that it only counts.
pub(super) fn names(inventory: &Inventory, allocation: &Allocation) -> Vec<Vec<String>> {
    let name = |hold: &Hold| {
        let pool = &inventory.pools()[hold.pool];
        match (&pool.devices, hold.device) {
            (PoolDevices::Listed(devices), Some(at)) => devices[at].name.clone(),
            (PoolDevices::Listed(_) | PoolDevices::Counted(_), _) => pool.name.clone(),
        }
    };
    let terms = allocation.claims.iter().flat_map(|claim| &claim.terms);
    terms.map(|term| term.holds.iter().map(name).collect()).collect()
}

/// What each device of the only term gives, in units.
pub(super) fn amounts(allocation: &Allocation) -> Vec<Vec<i128>> {
    let parts =
        |hold: &Hold| hold.parts.iter().map(|part| part.amount / Granularity::UNIT).collect();
    allocation.holds().map(parts).collect()
}
