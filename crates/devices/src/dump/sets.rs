//! Sets of pools, each considered by itself.

use std::collections::{BTreeMap, BTreeSet};

use super::{DeviceClaimResult, PoolResult, PoolSetResult};
use crate::problem::{
    Alternative, Count, Draws, Inventory, PoolDevices, PoolReport, Request, Symbol, TermAllocation,
    TermReport, ValueSymbol,
};

/// How many sets of pools are listed for a term. The search is not bound by it.
const MAX_LISTED_SETS: usize = 1024;

/// The message for a pool whose devices do not match those taken before.
const NO_MATCH: &str = "claim MatchAttributes constraint failed";

/// Returns the result for a term, and what it got.
pub(super) fn claim_result(
    inventory: &Inventory,
    request: &Request,
    term: &TermReport,
    used: Option<&TermAllocation>,
    satisfied: bool,
) -> DeviceClaimResult {
    let claim = &request.claims[term.claim];
    let named = &claim.terms[term.term];
    let claim_name = match claim.terms.len() {
        1 => claim.name.clone(),
        _ => format!("{}/{}", claim.name, named.name),
    };
    let way = used.map_or(0, |used| used.alternative);
    let (Some(asked), Some(found)) = (named.alternatives.get(way), term.alternatives.get(way))
    else {
        return DeviceClaimResult { best: -1, claim_name, ..DeviceClaimResult::default() };
    };
    let pool_name = |pool: usize| inventory.pools()[pool].name.clone();
    let ignored = found.pools.iter().filter_map(|pool| {
        let failure_reason = Some(pool.reason.as_ref()?.to_string());
        let pool_name = pool_name(pool.pool);
        Some(PoolResult { failure_reason, pool_name, ..PoolResult::default() })
    });
    let usable: Vec<&PoolReport> =
        found.pools.iter().filter(|pool| pool.reason.is_none()).collect();
    let fill = PoolSetFill {
        inventory,
        asked,
        match_claim: &claim.match_attributes,
        alternative_index: way,
    };
    let mut listed = PoolSetList::new(used_pools(used), used.is_some());
    if !usable.is_empty() {
        listed.list(&usable, |set| match used {
            Some(used) if is_used(set, used) => used_set(inventory, set, used),
            Some(_) | None => fill.set(set),
        });
    }
    let best = match (listed.used, satisfied) {
        (Some(place), _) => Some(place),
        (None, true) => listed.sets.iter().position(|set| set.failure_reason.is_none()),
        (None, false) => None,
    };
    DeviceClaimResult {
        best: best.and_then(|place| i64::try_from(place).ok()).unwrap_or(-1),
        claim_name,
        ignored_pools: ignored.collect(),
        truncated: listed.truncated,
        pool_set_results: (!usable.is_empty()).then_some(listed.sets),
    }
}

fn used_pools(used: Option<&TermAllocation>) -> BTreeSet<usize> {
    used.iter().flat_map(|used| &used.holds).map(|hold| hold.pool).collect()
}

fn is_used(set: &[&PoolReport], used: &TermAllocation) -> bool {
    set.iter().map(|pool| pool.pool).collect::<BTreeSet<_>>() == used_pools(Some(used))
}

/// Sets of pools in the order of their sizes, then of their pools.
struct PoolSetList {
    sets: Vec<PoolSetResult>,
    /// The pools of the set that is used, and whether there is one.
    wanted: BTreeSet<usize>,
    wants: bool,
    /// The index of that set.
    used: Option<usize>,
    truncated: bool,
}

impl PoolSetList {
    fn new(wanted: BTreeSet<usize>, wants: bool) -> Self {
        Self { sets: Vec::new(), wanted, wants, used: None, truncated: false }
    }

    /// Lists sets up to the first size with a sufficient one, and the set that is used.
    fn list(&mut self, pools: &[&PoolReport], look: impl Fn(&[&PoolReport]) -> PoolSetResult) {
        for size in 1..=pools.len() {
            let mut places: Vec<usize> = (0..size).collect();
            loop {
                let set: Vec<&PoolReport> = places.iter().map(|place| pools[*place]).collect();
                let ids: BTreeSet<usize> = set.iter().map(|pool| pool.pool).collect();
                let is_used = self.wants && ids == self.wanted;
                if self.sets.len() >= MAX_LISTED_SETS {
                    self.truncated = true;
                    if !self.wants || self.used.is_some() {
                        return;
                    }
                }
                if is_used {
                    self.used = Some(self.sets.len());
                }
                if is_used || !self.truncated {
                    self.sets.push(look(&set));
                }
                if !next_combination(&mut places, pools.len()) {
                    break;
                }
            }
            let suffices = self.sets.iter().any(|set| set.failure_reason.is_none());
            if suffices && (!self.wants || self.used.is_some()) {
                return;
            }
        }
    }
}

/// Advances to the next combination of indexes below `count`. Returns whether there is one.
fn next_combination(places: &mut [usize], count: usize) -> bool {
    let size = places.len();
    for at in (0..size).rev() {
        if places[at] < count - (size - at) {
            places[at] += 1;
            for after in at + 1..size {
                places[after] = places[after - 1] + 1;
            }
            return true;
        }
    }
    false
}

/// Returns what was really taken from the pools of a set.
fn used_set(inventory: &Inventory, set: &[&PoolReport], used: &TermAllocation) -> PoolSetResult {
    let pools = set.iter().map(|report| {
        let pool = &inventory.pools()[report.pool];
        let holds: Vec<_> = used.holds.iter().filter(|hold| hold.pool == report.pool).collect();
        let names = match &pool.devices {
            PoolDevices::Listed(devices) => holds
                .iter()
                .filter_map(|hold| devices.get(hold.device?))
                .map(|device| device.name.clone())
                .collect(),
            PoolDevices::Counted(_) => Vec::new(),
        };
        PoolResult {
            device_count: holds.len() as u64,
            device_names: names,
            failure_reason: None,
            pool_name: pool.name.clone(),
        }
    });
    PoolSetResult { failure_reason: None, pool_results: pools.collect(), score: used.score }
}

/// Takes devices from one pool after the other, as if there were no other requests.
struct PoolSetFill<'a> {
    inventory: &'a Inventory,
    asked: &'a Alternative,
    match_claim: &'a [String],
    alternative_index: usize,
}

impl PoolSetFill<'_> {
    fn set(&self, set: &[&PoolReport]) -> PoolSetResult {
        let all: u64 = set.iter().map(|pool| pool.candidates).sum();
        let (wanted, most) = match self.asked.count {
            Count::Between { least, most } => (u64::from(least), u64::from(most)),
            Count::All => (all.max(1), all),
        };
        let mut state = FillState { missing: self.amounts(), ..FillState::default() };
        let pools = set.iter().map(|report| self.pool(report, wanted, most, &mut state)).collect();
        let lacking = wanted.saturating_sub(state.count);
        let short = state.missing.values().any(|missing| *missing > 0);
        let failure_reason = (lacking > 0 || short).then(|| {
            // Devices that are there and do not have enough lack at least one more.
            let lacking = lacking.max(1);
            format!("unable to satisfy {lacking} of {} device requests", wanted.max(lacking))
        });
        let score = match &failure_reason {
            Some(_) => 0,
            None => u32::try_from(100_usize.saturating_sub(10 * self.alternative_index).max(1))
                .unwrap_or(1),
        };
        PoolSetResult { failure_reason, pool_results: pools, score }
    }

    /// Returns what all devices together must have, by resource.
    fn amounts(&self) -> BTreeMap<Option<Symbol>, i128> {
        match &self.asked.draws {
            Draws::Each(_) => BTreeMap::new(),
            Draws::Together(list) => {
                let find = |name: &str| self.inventory.symbols().find(name);
                list.iter().map(|(name, amount)| (find(name), amount.nanos())).collect()
            }
        }
    }

    fn pool(
        &self,
        report: &PoolReport,
        wanted: u64,
        most: u64,
        state: &mut FillState,
    ) -> PoolResult {
        let pool = &self.inventory.pools()[report.pool];
        let mut result = PoolResult { pool_name: pool.name.clone(), ..PoolResult::default() };
        let mut mismatched = false;
        let no_entries = &[][..];
        let mut take = |attributes: &[(Symbol, ValueSymbol)],
                        entries: &[crate::problem::DeviceCapacity]| {
            let enough = state.count >= wanted && state.missing.values().all(|left| *left <= 0);
            if enough || state.count >= most {
                return;
            }
            if !self.joins(attributes, state) {
                mismatched = true;
                return;
            }
            state.count += 1;
            result.device_count += 1;
            for entry in entries {
                if let Some(missing) = state.missing.get_mut(&Some(entry.name)) {
                    *missing -= entry.available();
                }
            }
        };
        match &pool.devices {
            PoolDevices::Counted(counted) => {
                (0..report.candidates).for_each(|_| take(&counted.attributes, no_entries));
            }
            PoolDevices::Listed(devices) => {
                let refused: BTreeSet<usize> = report.devices.iter().map(|d| d.device).collect();
                let fit = devices.iter().enumerate().filter(|(at, _)| !refused.contains(at));
                fit.for_each(|(_, device)| take(&device.attributes, &device.capacities));
            }
        }
        if result.device_count == 0 && mismatched {
            result.failure_reason = Some(NO_MATCH.to_owned());
        }
        result
    }

    /// Whether a device is compatible with those taken before; if so, it is added to them.
    fn joins(&self, attributes: &[(Symbol, ValueSymbol)], state: &mut FillState) -> bool {
        let value = |name: &String| {
            let symbol = self.inventory.symbols().find(name)?;
            attributes.iter().find(|(known, _)| *known == symbol).map(|(_, value)| *value)
        };
        let same: Vec<_> = self.match_claim.iter().chain(&self.asked.match_attributes).collect();
        let fits = same.iter().all(|name| {
            let (here, before) = (value(name), state.values.get(*name));
            here.is_some() && before.is_none_or(|before| Some(*before) == here)
        });
        let differs = self.asked.distinct_attributes.iter().all(|name| {
            value(name).is_some_and(|here| !state.excluded.contains(&(name.clone(), here)))
        });
        if !(fits && differs) {
            return false;
        }
        for name in same {
            state.values.extend(value(name).map(|value| (name.clone(), value)));
        }
        for name in &self.asked.distinct_attributes {
            state.excluded.extend(value(name).map(|value| (name.clone(), value)));
        }
        true
    }
}

/// What a set has given so far.
#[derive(Default)]
struct FillState {
    count: u64,
    missing: BTreeMap<Option<Symbol>, i128>,
    /// The values that further devices must match.
    values: BTreeMap<String, ValueSymbol>,
    /// The values that further devices must not have.
    excluded: BTreeSet<(String, ValueSymbol)>,
}
