//! Generates small problems from seeds, with everything in them that a problem can have.

use std::sync::Arc;

use gantry_api::devices::{
    AccessMode, RequestedCapacity, Sharing, Taint, TaintEffect, Toleration, TolerationEffect,
    TolerationOperator, TopologyPolicy, TopologyRule, TypedRequest,
};
use gantry_api::quantity::Quantity;
use gantry_devices::problem::{
    Alternative, Charge, Claim, Count, CountedDevices, Device, DeviceCapacity, Draws, Granularity,
    Inventory, Node, Policy, Pool, PoolDevices, PoolResource, Refusal, Request, Signature, Symbol,
    Symbols, Term, TopologyDomain, Value, ValueSymbol, Verdict,
};

/// One problem on one node that reaches all pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProblemCase {
    pub(crate) symbols: Symbols,
    pub(crate) pools: Vec<Pool>,
    pub(crate) request: Request,
}

impl ProblemCase {
    pub(crate) fn inventory(&self) -> Inventory {
        let node = Node { name: "node".to_owned(), pools: (0..self.pools.len()).collect() };
        Inventory::new(self.symbols.clone(), self.pools.clone(), vec![node])
    }
}

/// A deterministic random number generator (`SplitMix64`).
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns true in `percent` of all cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(u64::try_from(from.len()).unwrap())).unwrap()]
    }
}

const SIGNATURES: u64 = 4;
const ATTRIBUTES: [&str; 3] = ["numa", "root", "model"];
const RESOURCES: [&str; 2] = ["memory", "cores"];
const KINDS: [&str; 2] = ["numa", "pci"];

/// Returns the problem of a seed.
pub(crate) fn case(seed: u64) -> ProblemCase {
    let mut make = CaseBuilder { dice: SeededRandom::new(seed), symbols: Symbols::default() };
    let pools = (0..1 + make.dice.below(3)).map(|number| make.pool(number)).collect();
    let request = make.request();
    ProblemCase { symbols: make.symbols, pools, request }
}

struct CaseBuilder {
    dice: SeededRandom,
    symbols: Symbols,
}

impl CaseBuilder {
    fn pool(&mut self, number: u64) -> Pool {
        let fault = self.dice.chance(2).then(|| "broken".to_owned());
        let resources: Vec<PoolResource> = (0..self.dice.pick(&[0, 0, 1, 2]))
            .map(|number| {
                let capacity = i128::from(2 + self.dice.below(6)) * Granularity::UNIT;
                let used = if self.dice.chance(15) { capacity / 2 } else { 0 };
                let name = self.symbols.intern(["mem", "sm"][number]);
                PoolResource { name, capacity, used }
            })
            .collect();
        let stock = if self.dice.chance(25) {
            let count = u32::try_from(self.dice.below(5)).unwrap();
            let held = if self.dice.chance(30) { 1 } else { 0 };
            let (signature, attributes) = (self.signature(), self.attributes());
            PoolDevices::Counted(CountedDevices { count, held, signature, attributes })
        } else {
            let devices = self.dice.pick(&[0, 1, 2, 3, 3, 4]);
            PoolDevices::Listed((0..devices).map(|at| self.device(at, &resources)).collect())
        };
        Pool { name: format!("pool-{number}"), invalid_reason: fault, resources, devices: stock }
    }

    fn signature(&mut self) -> Signature {
        Signature(u32::try_from(self.dice.below(SIGNATURES)).unwrap())
    }

    fn attributes(&mut self) -> Vec<(Symbol, ValueSymbol)> {
        let mut attributes = Vec::new();
        for name in ATTRIBUTES {
            if self.dice.chance(93) {
                let value = i64::try_from(self.dice.below(2)).unwrap();
                let value = self.symbols.intern_value(&Value::Int(value));
                attributes.push((self.symbols.intern(name), value));
            }
        }
        attributes.sort_unstable();
        attributes
    }

    fn device(&mut self, at: u64, pooled: &[PoolResource]) -> Device {
        let charges = (0..pooled.len())
            .filter(|_| self.dice.chance(75))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|resource| {
                let amount = i128::from(1 + self.dice.below(3)) * Granularity::UNIT;
                Charge { resource, amount }
            })
            .collect();
        let entries = self.entries();
        let access = self.dice.chance(35).then(|| self.symbols.intern("access"));
        let mut sharing = match access {
            Some(_) => Sharing {
                allow_read_only_shared: self.dice.chance(60),
                allow_read_write_shared: self.dice.chance(60),
                allow_write_exclusive: self.dice.chance(60),
                ..Sharing::default()
            },
            None => Device::unlisted_sharing(&entries),
        };
        let mut holds = 0;
        if self.dice.chance(20) {
            holds = 1;
            let wanted = self.dice.pick(&AccessMode::UPGRADE_ORDER);
            match sharing.upgrade(wanted) {
                AccessMode::ReadOnlyShared => sharing.read_only_shared = 1,
                AccessMode::ReadWriteShared => sharing.read_write_shared = 1,
                AccessMode::WriteExclusive => sharing.write_exclusive = 1,
                AccessMode::ReadWriteExclusive => sharing.read_write_exclusive = 1,
            }
        }
        Device {
            name: format!("dev-{at}"),
            signature: self.signature(),
            attributes: self.attributes(),
            charges,
            capacities: entries,
            access,
            sharing,
            holds,
            taints: self.taints(),
        }
    }

    fn entries(&mut self) -> Vec<DeviceCapacity> {
        let mut entries = Vec::new();
        for name in RESOURCES {
            if !self.dice.chance(80) {
                continue;
            }
            let grain = self.dice.pick(&[
                Granularity::Counter,
                Granularity::Any,
                Granularity::Block(2 * Granularity::UNIT),
                Granularity::Block(Granularity::UNIT * 3 / 2),
            ]);
            let name = self.symbols.intern(name);
            let kinds: Vec<&str> = KINDS.into_iter().filter(|_| self.dice.chance(45)).collect();
            let count = if kinds.is_empty() { 1 } else { 1 + self.dice.below(3) };
            for number in 0..count {
                let capacity = i128::from(self.dice.below(12)) * Granularity::UNIT / 2;
                let used = if self.dice.chance(20) { capacity / 2 } else { 0 };
                let places = kinds.iter().enumerate().map(|(at, kind)| {
                    let place = if at == 0 { number } else { number / 2 };
                    TopologyDomain {
                        kind: self.symbols.intern(kind),
                        name: self.symbols.intern(&format!("{kind}-{place}")),
                    }
                });
                let places = places.collect();
                let splits = !kinds.is_empty() && self.dice.chance(75);
                let splits = splits || kinds.is_empty();
                entries.push(DeviceCapacity {
                    name,
                    granularity: grain,
                    capacity,
                    used,
                    domains: places,
                    splits,
                });
            }
        }
        entries
    }

    fn taints(&mut self) -> Vec<Taint> {
        if !self.dice.chance(10) {
            return Vec::new();
        }
        let effect =
            self.dice.pick(&[TaintEffect::NoSchedule, TaintEffect::NoExecute, TaintEffect::None]);
        let value = self.dice.chance(50).then(|| "v".to_owned());
        vec![Taint { key: "broken".to_owned(), value, effect }]
    }

    fn request(&mut self) -> Request {
        let rows = 1 + self.dice.below(3);
        let verdicts = (0..rows).map(|_| self.row()).collect();
        let claims = (0..1 + self.dice.below(2)).map(|number| self.claim(number, rows)).collect();
        let policy = if self.dice.chance(10) { Policy::FirstFit } else { Policy::FewestPools };
        Request { claims, verdicts, topologies: self.rules(4), policy }
    }

    fn row(&mut self) -> Arc<[Verdict]> {
        let verdicts = (0..SIGNATURES).map(|_| match self.dice.chance(88) {
            true => Verdict::Met,
            false => Verdict::Refused(Refusal::Constraints),
        });
        verdicts.collect()
    }

    fn claim(&mut self, number: u64, rows: u64) -> Claim {
        let terms = (0..1 + self.dice.below(2)).map(|at| {
            let ways = if self.dice.chance(30) { 2 } else { 1 };
            let alternatives = (0..ways).map(|_| self.alternative(rows)).collect();
            Term { name: format!("term-{at}"), alternatives }
        });
        Claim {
            name: format!("claim-{number}"),
            terms: terms.collect(),
            match_attributes: self.names(8),
            distinct_attributes: self.names(3),
            topologies: self.rules(6),
        }
    }

    fn names(&mut self, percent: u64) -> Vec<String> {
        let names = ATTRIBUTES.iter().filter(|_| self.dice.chance(percent));
        names.map(|name| (*name).to_owned()).collect()
    }

    fn rules(&mut self, percent: u64) -> Vec<TopologyRule> {
        let kinds: Vec<&str> = KINDS.into_iter().filter(|_| self.dice.chance(percent)).collect();
        let rules = kinds.into_iter().map(|kind| {
            let policy = self.dice.pick(&[TopologyPolicy::Prefer, TopologyPolicy::Require]);
            TopologyRule { r#type: kind.to_owned(), policy }
        });
        rules.collect()
    }

    fn alternative(&mut self, rows: u64) -> Alternative {
        let least = self.dice.pick(&[1, 1, 1, 1, 2, 2, 3]);
        let more = self.dice.pick(&[0, 0, 1, 2, 1000]);
        let count = match self.dice.chance(12) {
            true => Count::All,
            false => Count::Between { least, most: least + more },
        };
        let tolerations = match self.dice.below(4) {
            0 => vec![self.toleration()],
            _ => Vec::new(),
        };
        Alternative {
            selector: usize::try_from(self.dice.below(rows)).unwrap(),
            count,
            draws: self.draws(),
            mode: self.dice.chance(35).then(|| self.dice.pick(&AccessMode::UPGRADE_ORDER)),
            admin: self.dice.chance(8),
            tolerations,
            match_attributes: self.names(8),
            distinct_attributes: self.names(4),
            topologies: self.rules(12),
        }
    }

    fn toleration(&mut self) -> Toleration {
        let operator = self.dice.pick(&[TolerationOperator::Exists, TolerationOperator::Equal]);
        let value = match operator {
            TolerationOperator::Exists => None,
            TolerationOperator::Equal => Some("v".to_owned()),
        };
        let keyless = operator == TolerationOperator::Exists && self.dice.chance(50);
        let key = (!keyless).then(|| "broken".to_owned());
        let effects = [None, Some(TolerationEffect::NoSchedule), Some(TolerationEffect::NoExecute)];
        Toleration { key, operator, value, effect: self.dice.pick(&effects) }
    }

    fn draws(&mut self) -> Draws {
        let names: Vec<&str> = RESOURCES.into_iter().filter(|_| self.dice.chance(45)).collect();
        match self.dice.below(3) {
            0 => Draws::default(),
            1 => {
                let mut list: Vec<TypedRequest> = Vec::new();
                if self.dice.chance(30) {
                    let request = self.dice.pick(&AccessMode::UPGRADE_ORDER);
                    let draw = RequestedCapacity::AccessMode { request };
                    list.push(TypedRequest { name: "access".to_owned(), draw });
                }
                list.extend(names.into_iter().map(|name| {
                    let draw = match self.dice.chance(35) {
                        true => RequestedCapacity::Counter {
                            request: i64::try_from(self.dice.below(4)).unwrap(),
                        },
                        false => RequestedCapacity::Quantity { request: self.amount(6) },
                    };
                    TypedRequest { name: name.to_owned(), draw }
                }));
                Draws::Each(list)
            }
            _ => {
                let amounts = names.into_iter().map(|name| (name.to_owned(), self.amount(12)));
                Draws::Together(amounts.collect())
            }
        }
    }

    /// Returns a number of halves.
    fn amount(&mut self, below: u64) -> Quantity {
        Quantity::parse(&format!("{}m", 500 * self.dice.below(below))).unwrap()
    }
}
