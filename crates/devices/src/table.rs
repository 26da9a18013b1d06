//! The devices of one node that a request can use, laid out for searching.

mod kinds;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use gantry_api::devices::AccessMode;

use self::kinds::{AlternativeKinds, first_equivalent_terms, kinds};
use crate::bit_set::{BitSet, slices_equal};
use crate::eligible::{check_eligible, check_selector, effective_mode};
use crate::prepare::{GroupKind, Prepared, PreparedAlternative};
use crate::problem::{
    Count, CountedDevices, Device, Inventory, Node, Pool, PoolDevices, Symbol, Undecided,
    ValueSymbol,
};

/// How many devices of one node are searched at most: far beyond what is promised (4096), and
/// within memory.
const MAX_DEVICES: usize = 1 << 16;

/// How many classes are compared one by one, before they are looked up by hash.
const LINEAR_COMPARE_LIMIT: usize = 8;

/// The mark of an attribute that a device does not have.
pub(crate) const NO_VALUE: u32 = u32::MAX;

/// The devices of a node that are candidates of some alternative, pool by pool and in order.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    pub(crate) rows: Vec<Row<'a>>,
    pub(crate) pools: Vec<PoolSpan>,
    /// Candidates of each alternative of each term.
    pub(crate) candidates: Vec<Vec<BitSet>>,
    /// Values of the attributes that groups read, row by row.
    pub(crate) values: Vec<u32>,
    /// What is left of each resource of each pool.
    pub(crate) left: Vec<i128>,
    /// How many classes of rows there are.
    pub(crate) classes: usize,
}

/// A device that may be used.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    /// Its pool, as an index in [`Table::pools`].
    pub(crate) pool: usize,
    /// Its index in the pool, if that lists devices.
    pub(crate) index: Option<usize>,
    pub(crate) device: Option<&'a Device>,
    /// Rows of one class are in one pool and differ in nothing that matters to the request.
    pub(crate) class: usize,
    /// The index of its first entry in the list of all entries.
    pub(crate) entries: usize,
}

/// A pool of which devices may be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolSpan {
    /// Its index in the inventory.
    pub(crate) pool: usize,
    /// The index of its first resource in [`Table::left`].
    pub(crate) resources: usize,
    /// Pools of one class have the same rows in the same order, by class of their content.
    pub(crate) class: usize,
}

impl<'a> Table<'a> {
    pub(crate) fn new(
        prepared: &Prepared<'_>,
        inventory: &'a Inventory,
        node: &Node,
    ) -> Result<Self, Undecided> {
        let mut builder = Builder {
            prepared,
            inventory,
            kinds: kinds(prepared),
            found: Vec::new(),
            pools: Vec::new(),
        };
        for pool in node.pools.iter().filter_map(|at| Some((*at, inventory.pools().get(*at)?))) {
            builder.add_pool(pool.0, pool.1);
            if builder.found.len() > MAX_DEVICES {
                return Err(Undecided::TooLarge);
            }
        }
        Ok(builder.finish())
    }

    pub(crate) fn value(&self, row: usize, slot: usize, slots: usize) -> u32 {
        self.values[row * slots + slot]
    }

    /// Returns how a row is held, after the device has upgraded the mode.
    pub(crate) fn mode(&self, row: usize, ask: &PreparedAlternative<'_>) -> AccessMode {
        match self.rows[row].device {
            Some(device) => effective_mode(device, ask),
            None => AccessMode::ReadWriteExclusive,
        }
    }
}

/// A row under construction: its device, and which alternatives it is a candidate of.
struct CandidateRow<'a> {
    pool: usize,
    index: Option<usize>,
    device: Option<&'a Device>,
    attributes: &'a [(Symbol, ValueSymbol)],
    /// A bit for each kind of alternative.
    serves: BitSet,
}

struct Builder<'a, 'p> {
    prepared: &'p Prepared<'p>,
    inventory: &'a Inventory,
    kinds: AlternativeKinds<'p>,
    found: Vec<CandidateRow<'a>>,
    pools: Vec<usize>,
}

impl<'a> Builder<'a, '_> {
    fn add_pool(&mut self, at: usize, pool: &'a Pool) {
        let before = self.found.len();
        let local = self.pools.len();
        match &pool.devices {
            PoolDevices::Listed(devices) => {
                self.found.reserve(devices.len());
                for (index, device) in devices.iter().enumerate() {
                    let mut serves = BitSet::below(self.kinds.alternatives.len());
                    for (kind, ask) in self.kinds.alternatives.iter().enumerate() {
                        if check_eligible(self.prepared, self.inventory, pool, device, ask).is_ok()
                        {
                            serves.insert(kind);
                        }
                    }
                    if !serves.is_empty() {
                        self.found.push(CandidateRow {
                            pool: local,
                            index: Some(index),
                            device: Some(device),
                            attributes: &device.attributes,
                            serves,
                        });
                    }
                }
            }
            PoolDevices::Counted(counted) => self.add_counted(local, pool, counted),
        }
        if self.found.len() > before {
            self.pools.push(at);
        }
    }

    /// Adds as many of a number of equal devices as the request can ever use.
    fn add_counted(&mut self, local: usize, pool: &Pool, counted: &'a CountedDevices) {
        let kinds = self.kinds.alternatives.len();
        let (mut any, mut free) = (BitSet::below(kinds), BitSet::below(kinds));
        for (at, ask) in self.kinds.alternatives.iter().enumerate() {
            if counted_eligible(self.prepared, pool, counted, ask) {
                any.insert(at);
                if !ask.source.admin {
                    free.insert(at);
                }
            }
        }
        let mut admin = any.clone();
        admin.difference_with(&free);
        let usable = self.max_usable();
        let held = usize::try_from(counted.held.min(counted.count)).unwrap_or(usize::MAX);
        let count = usize::try_from(counted.count).unwrap_or(usize::MAX);
        let held_rows = if admin.is_empty() { 0 } else { held.min(usable) };
        for (rows, serves) in [(held_rows, &admin), ((count - held).min(usable), &any)] {
            if serves.is_empty() {
                continue;
            }
            for _ in 0..rows.min(MAX_DEVICES + 1) {
                self.found.push(CandidateRow {
                    pool: local,
                    index: None,
                    device: None,
                    attributes: &counted.attributes,
                    serves: serves.clone(),
                });
            }
        }
    }

    /// Returns how many devices without capacities the request can use at most.
    fn max_usable(&self) -> usize {
        let terms = self.prepared.terms.iter().map(|term| {
            let asks = term.alternatives.iter().map(|ask| match ask.source.count {
                Count::Between { .. } => ask.least(),
                Count::All => usize::MAX,
            });
            asks.max().unwrap_or(0)
        });
        terms.fold(0, usize::saturating_add)
    }

    fn finish(self) -> Table<'a> {
        let Self { prepared, inventory, kinds, found, pools } = self;
        let slots = prepared.slots.len();
        let mut table = Table {
            rows: Vec::with_capacity(found.len()),
            pools: Vec::new(),
            candidates: Vec::new(),
            values: Vec::with_capacity(found.len() * slots),
            left: Vec::new(),
            classes: 0,
        };
        for pool in pools {
            let resources = table.left.len();
            table.pools.push(PoolSpan { pool, resources, class: 0 });
            table.left.extend(
                inventory.pools()[pool]
                    .resources
                    .iter()
                    .map(|resource| (resource.capacity - resource.used).max(0)),
            );
        }
        let mut entries = 0;
        for row in &found {
            table.rows.push(Row {
                pool: row.pool,
                index: row.index,
                device: row.device,
                class: 0,
                entries,
            });
            entries += row.device.map_or(0, |device| device.capacities.len());
            table.values.extend(prepared.slots.iter().map(|slot| {
                let value = slot.and_then(|slot| {
                    row.attributes.iter().find(|(name, _)| *name == slot).map(|(_, value)| value.0)
                });
                value.unwrap_or(NO_VALUE)
            }));
        }
        let mut by_kind = vec![BitSet::below(found.len()); kinds.alternatives.len()];
        for (at, row) in found.iter().enumerate() {
            for kind in row.serves.iter() {
                by_kind[kind].insert(at);
            }
        }
        let candidates =
            |kinds: &Vec<usize>| kinds.iter().map(|kind| by_kind[*kind].clone()).collect();
        table.candidates = kinds.of.iter().map(candidates).collect();
        table.drop_useless_values(prepared, &kinds);
        table.classify(&found, slots, inventory);
        table
    }
}

impl Table<'_> {
    /// Assigns one class to rows, and one to pools, that differ in nothing that matters.
    fn classify(&mut self, found: &[CandidateRow<'_>], slots: usize, inventory: &Inventory) {
        let alike = |one: usize, other: usize| {
            let values = |at: usize| &self.values[at * slots..(at + 1) * slots];
            found[one].serves == found[other].serves
                && slices_equal(values(one), values(other))
                && match (found[one].device, found[other].device) {
                    (Some(one), Some(other)) => devices_alike(one, other),
                    (None, None) => true,
                    (Some(_), None) | (None, Some(_)) => false,
                }
        };
        let look = |at: usize| {
            let mut hasher = DefaultHasher::new();
            (&found[at].serves, &self.values[at * slots..(at + 1) * slots]).hash(&mut hasher);
            if let Some(device) = found[at].device {
                (&device.capacities, &device.charges, device.holds == 0).hash(&mut hasher);
            }
            hasher.finish()
        };
        // Drivers list equal devices one after another, and few kinds of them: a row is compared
        // with the last classes of its pool first, and only then with those of equal hash.
        let mut first_of: Vec<usize> = Vec::new();
        let mut looks: HashMap<(usize, u64), Vec<usize>> = HashMap::new();
        // How many classes are in `looks`.
        let mut looked_at = 0;
        let mut classes = Vec::with_capacity(found.len());
        for (at, row) in found.iter().enumerate() {
            let of_pool = |class: &usize| found[first_of[*class]].pool == row.pool;
            let mut last = (0..first_of.len()).rev().take_while(of_pool);
            let known =
                last.by_ref().take(LINEAR_COMPARE_LIMIT).find(|class| alike(first_of[*class], at));
            let known = match known {
                None if last.next().is_some() => {
                    for (class, first) in first_of.iter().enumerate().skip(looked_at) {
                        looks.entry((found[*first].pool, look(*first))).or_default().push(class);
                    }
                    looked_at = first_of.len();
                    let same_look = looks.get(&(row.pool, look(at)));
                    let mut same_look = same_look.into_iter().flatten().copied();
                    same_look.find(|class| alike(first_of[*class], at))
                }
                known => known,
            };
            classes.push(known.unwrap_or_else(|| {
                first_of.push(at);
                first_of.len() - 1
            }));
        }
        let mut starts: Vec<usize> = vec![0; self.pools.len() + 1];
        for (at, row) in found.iter().enumerate() {
            starts[row.pool + 1] = at + 1;
        }
        let pools_alike = |one: usize, other: usize| {
            let rows = |pool: usize| starts[pool]..starts[pool + 1];
            let resources = |pool: usize| &inventory.pools()[self.pools[pool].pool].resources;
            rows(one).len() == rows(other).len()
                && resources(one) == resources(other)
                && rows(one).zip(rows(other)).all(|(one, other)| alike(one, other))
        };
        let mut pool_classes: Vec<usize> = Vec::with_capacity(self.pools.len());
        let mut pool_looks: HashMap<(usize, u64), Vec<usize>> = HashMap::new();
        for pool in 0..self.pools.len() {
            if self.pools.len() <= LINEAR_COMPARE_LIMIT {
                let known = (0..pool).find(|other| pools_alike(*other, pool));
                pool_classes.push(known.map_or(pool, |known| pool_classes[known]));
                continue;
            }
            if pool > 0 && pools_alike(pool - 1, pool) {
                pool_classes.push(pool_classes[pool - 1]);
                continue;
            }
            let key = (starts[pool + 1] - starts[pool], look(starts[pool]));
            let same_look = pool_looks.entry(key).or_default();
            let known = same_look.iter().find(|other| pools_alike(**other, pool)).copied();
            pool_classes.push(known.map_or(pool, |known| pool_classes[known]));
            same_look.push(pool);
        }
        self.classes = first_of.len();
        for (row, class) in self.rows.iter_mut().zip(classes) {
            row.class = class;
        }
        for (pool, class) in self.pools.iter_mut().zip(pool_classes) {
            pool.class = class;
        }
    }

    /// Removes candidates that no solution uses: those without an attribute that a group reads, and
    /// those with a value that too few others have. `All` keeps what it must take.
    fn drop_useless_values(&mut self, prepared: &Prepared<'_>, kinds: &AlternativeKinds<'_>) {
        let slots = prepared.slots.len();
        if slots == 0 {
            return;
        }
        let twins = first_equivalent_terms(prepared, kinds);
        for (term_at, term) in prepared.terms.iter().enumerate() {
            if twins[term_at] != term_at {
                continue;
            }
            for (ask_at, ask) in term.alternatives.iter().enumerate() {
                if ask.source.count == Count::All {
                    continue;
                }
                for group in ask.groups.iter().map(|group| prepared.groups[*group]) {
                    let least = match group.kind {
                        GroupKind::Match => ask.least(),
                        GroupKind::Distinct => 1,
                    };
                    let counts = self.count_values(term_at, ask_at, group.slot, slots);
                    let bits = self.candidates[term_at][ask_at].clone();
                    for row in bits.iter() {
                        let value = self.value(row, group.slot, slots);
                        if value == NO_VALUE || counts.of(value) < least {
                            self.candidates[term_at][ask_at].remove(row);
                        }
                    }
                }
            }
        }
        self.drop_values_of_claims(prepared, slots, &twins);
        for (term, twin) in twins.into_iter().enumerate() {
            if twin != term {
                let same = self.candidates[twin].clone();
                self.candidates[term] = same;
            }
        }
    }

    /// Removes candidates whose value some other term of the claim cannot have.
    fn drop_values_of_claims(&mut self, prepared: &Prepared<'_>, slots: usize, twins: &[usize]) {
        for (first, term) in prepared.terms.iter().enumerate() {
            if first > 0 && prepared.terms[first - 1].claim == term.claim {
                continue;
            }
            let terms: Vec<usize> = (first..prepared.terms.len())
                .take_while(|at| prepared.terms[*at].claim == term.claim)
                .collect();
            if terms.len() < 2 {
                continue;
            }
            let terms: Vec<usize> = terms.into_iter().filter(|at| twins[*at] == *at).collect();
            for group in term.claim_groups.iter().map(|group| prepared.groups[*group]) {
                if group.kind == GroupKind::Distinct {
                    continue;
                }
                let counts: Vec<Vec<ValueCounts>> = terms
                    .iter()
                    .map(|at| {
                        let asks = prepared.terms[*at].alternatives.iter().enumerate();
                        asks.map(|(ask, _)| self.count_values(*at, ask, group.slot, slots))
                            .collect()
                    })
                    .collect();
                // Values are few and rows are many: each value is checked once for all rows.
                let mut viable: Vec<u32> = counts[0].iter().flat_map(ValueCounts::values).collect();
                viable.sort_unstable();
                viable.dedup();
                viable.retain(|value| {
                    terms.iter().zip(&counts).all(|(at, counts)| {
                        let asks = prepared.terms[*at].alternatives.iter();
                        asks.zip(counts).any(|(ask, counts)| counts.of(*value) >= ask.least())
                    })
                });
                for at in &terms {
                    for (ask_at, ask) in prepared.terms[*at].alternatives.iter().enumerate() {
                        if ask.source.count == Count::All {
                            continue;
                        }
                        let bits = self.candidates[*at][ask_at].clone();
                        for row in bits.iter() {
                            let value = self.value(row, group.slot, slots);
                            if viable.binary_search(&value).is_err() {
                                self.candidates[*at][ask_at].remove(row);
                            }
                        }
                    }
                }
            }
        }
    }

    fn count_values(&self, term: usize, ask: usize, slot: usize, slots: usize) -> ValueCounts {
        let rows = &self.candidates[term][ask];
        let mut values: Vec<u32> = Vec::with_capacity(rows.count());
        values.extend(rows.iter().map(|row| self.value(row, slot, slots)));
        values.sort_unstable();
        let same = values.chunk_by(|one, other| one == other);
        ValueCounts(same.map(|same| (same[0], same.len())).collect())
    }
}

/// How many rows have each value, by value.
struct ValueCounts(Vec<(u32, usize)>);

impl ValueCounts {
    fn of(&self, value: u32) -> usize {
        let at = self.0.binary_search_by_key(&value, |(value, _)| *value);
        at.map_or(0, |at| self.0[at].1)
    }

    fn values(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|(value, _)| *value)
    }
}

/// Whether two devices offer the same, to the same holders, for the same charge. What constraints
/// and groups read of them is compared elsewhere.
fn devices_alike(one: &Device, other: &Device) -> bool {
    one.capacities == other.capacities
        && one.sharing == other.sharing
        && one.access == other.access
        && one.charges == other.charges
        && (one.holds == 0) == (other.holds == 0)
}

fn counted_eligible(
    prepared: &Prepared<'_>,
    pool: &Pool,
    counted: &CountedDevices,
    ask: &PreparedAlternative<'_>,
) -> bool {
    pool.invalid_reason.is_none()
        && ask.amounts.is_empty()
        && ask.access.is_empty()
        && check_selector(prepared, ask, counted.signature).is_ok()
}
