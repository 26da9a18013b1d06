//! An exhaustive solver that is slow and obviously right.
//!
//! It implements only the definition in `gantry_devices::problem`: for each term and alternative it
//! lists every set of devices and every way to draw from them, removes what breaks a rule, sorts
//! the rest by the stated order and tries them one after the other. Rules are checked from scratch
//! against everything chosen so far; no broken rule can be repaired by choosing more, so nothing is
//! lost by removing early.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use gantry_api::devices::{
    AccessMode, RequestedCapacity, Taint, TaintEffect, Toleration, TolerationEffect,
    TolerationOperator, TopologyPolicy, TopologyRule,
};
use gantry_devices::problem::{
    Alternative, CapacityPart, Count, Device, Draws, Granularity, Hold, Inventory, Policy, Pool,
    PoolDevices, Request, Verdict,
};

/// What one term gets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) claim: usize,
    pub(crate) term: usize,
    pub(crate) alternative: usize,
    pub(crate) score: u32,
    pub(crate) holds: Vec<Hold>,
}

/// Returns the canonical solution for the pools of a node; `None` if there is none.
pub(crate) fn solve(inventory: &Inventory, node: usize, request: &Request) -> Option<Vec<Chosen>> {
    let claims = request.claims.iter().enumerate();
    let terms = claims.flat_map(|(claim, c)| (0..c.terms.len()).map(move |term| (claim, term)));
    let pools = &inventory.nodes()[node].pools;
    let oracle = Oracle { inventory, pools, request, terms: terms.collect() };
    let mut chosen = Vec::new();
    oracle.search(&mut chosen).then_some(chosen)
}

/// The mean of the means, as scores are defined.
pub(crate) fn score(request: &Request, chosen: &[Chosen]) -> u32 {
    let mean = |scores: Vec<u32>| match scores.len() {
        0 => 100,
        count => scores.iter().sum::<u32>() / u32::try_from(count).unwrap(),
    };
    let claims = 0..request.claims.len();
    let of = |claim| mean(chosen.iter().filter(|c| c.claim == claim).map(|c| c.score).collect());
    mean(claims.map(of).collect())
}

struct Oracle<'a> {
    inventory: &'a Inventory,
    pools: &'a [usize],
    request: &'a Request,
    terms: Vec<(usize, usize)>,
}

/// The order of moves within an alternative.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    devices: usize,
    pools: usize,
    score: Reverse<u32>,
    pool_set: Vec<usize>,
    from_each: Vec<Reverse<usize>>,
    places: Vec<(usize, usize)>,
    parts: Vec<(usize, Vec<usize>)>,
}

/// A device as an index in the node's list of pools and an index in its pool.
type DeviceIndex = (usize, usize);

impl Oracle<'_> {
    fn search(&self, chosen: &mut Vec<Chosen>) -> bool {
        let Some(&(claim, term)) = self.terms.get(chosen.len()) else { return true };
        for alternative in 0..self.request.claims[claim].terms[term].alternatives.len() {
            for next in self.moves(chosen, claim, term, alternative) {
                chosen.push(next);
                if self.search(chosen) {
                    return true;
                }
                chosen.pop();
            }
        }
        false
    }

    fn alternative(&self, chosen: &Chosen) -> &Alternative {
        &self.request.claims[chosen.claim].terms[chosen.term].alternatives[chosen.alternative]
    }

    fn pool(&self, place: usize) -> &Pool {
        &self.inventory.pools()[self.pools[place]]
    }

    /// Returns everything the alternative could be given, best first.
    fn moves(
        &self,
        chosen: &[Chosen],
        claim: usize,
        term: usize,
        alternative: usize,
    ) -> Vec<Chosen> {
        let this = Chosen { claim, term, alternative, score: 0, holds: Vec::new() };
        let asked = self.alternative(&this);
        let by_score = self.rules(&this).next().is_some();
        let mut moves = Vec::new();
        for set in self.sets(asked) {
            for (holds, sets) in self.draws(chosen, &this, &set) {
                let mut all = chosen.to_vec();
                all.push(Chosen { holds, ..this.clone() });
                if self.is_allowed(&all) {
                    let score = self.score(&all, &sets);
                    let next = Chosen { score, ..all.pop().unwrap() };
                    moves.push((self.rank(&set, sets, by_score, score), next));
                }
            }
        }
        moves.sort_by(|one, two| one.0.cmp(&two.0));
        moves.into_iter().map(|(_, next)| next).collect()
    }

    fn rank(&self, set: &[DeviceIndex], sets: Vec<Vec<usize>>, by_score: bool, score: u32) -> Rank {
        let mut counts = BTreeMap::<usize, usize>::new();
        for (pool, _) in set {
            *counts.entry(*pool).or_default() += 1;
        }
        let smaller_first = |set: Vec<usize>| (if by_score { set.len() } else { 0 }, set);
        let rank = Rank {
            devices: set.len(),
            pools: counts.len(),
            score: Reverse(if by_score { score } else { 0 }),
            pool_set: counts.keys().copied().collect(),
            from_each: counts.values().copied().map(Reverse).collect(),
            places: set.to_vec(),
            parts: sets.into_iter().map(smaller_first).collect(),
        };
        match self.request.policy {
            Policy::FewestPools => rank,
            Policy::FirstFit => Rank {
                pools: 0,
                score: Reverse(0),
                pool_set: Vec::new(),
                from_each: Vec::new(),
                ..rank
            },
        }
    }

    /// Returns every set of candidates of an allowed size, in order of indexes. Indistinguishable
    /// devices are taken from the front.
    fn sets(&self, asked: &Alternative) -> Vec<Vec<DeviceIndex>> {
        let mut sets = vec![Vec::new()];
        let mut candidates = 0;
        for place in 0..self.pools.len() {
            let subsets: Vec<Vec<DeviceIndex>> = match &self.pool(place).devices {
                PoolDevices::Listed(devices) => {
                    let fit = (0..devices.len()).filter(|at| self.fits(asked, place, *at));
                    let fit: Vec<DeviceIndex> = fit.map(|at| (place, at)).collect();
                    candidates += fit.len();
                    subsets(&fit)
                }
                PoolDevices::Counted(counted) => {
                    let held = if asked.admin { 0 } else { counted.held };
                    let free = usize::try_from(counted.count.saturating_sub(held)).unwrap();
                    let met = self.pool(place).invalid_reason.is_none()
                        && asked.draws.is_empty()
                        && *self.request.verdict(asked.selector, counted.signature) == Verdict::Met;
                    let free = if met { free } else { 0 };
                    candidates += free;
                    (0..=free).map(|count| (0..count).map(|at| (place, at)).collect()).collect()
                }
            };
            let with =
                |set: &Vec<DeviceIndex>, more: &Vec<DeviceIndex>| [set.as_slice(), more].concat();
            sets = sets.iter().flat_map(|set| subsets.iter().map(move |m| with(set, m))).collect();
        }
        let (least, most) = match asked.count {
            Count::Between { least, most } => {
                (usize::try_from(least).unwrap(), usize::try_from(most).unwrap())
            }
            Count::All => (candidates.max(1), candidates),
        };
        sets.retain(|set| (least..=most).contains(&set.len()));
        sets
    }

    /// Whether a listed device is a candidate.
    fn fits(&self, asked: &Alternative, place: usize, at: usize) -> bool {
        let pool = self.pool(place);
        let PoolDevices::Listed(devices) = &pool.devices else { return false };
        let device = &devices[at];
        pool.invalid_reason.is_none()
            && *self.request.verdict(asked.selector, device.signature) == Verdict::Met
            && device.taints.iter().all(|taint| is_tolerated(taint, &asked.tolerations))
            && self.publishes(asked, device)
            && (asked.admin
                || (allows_holder(device, mode(asked, device))
                    && self.serves_alone(asked, device)
                    && affords_charge(pool, device)))
    }

    /// Whether every requested name is published, in a kind that fits.
    fn publishes(&self, asked: &Alternative, device: &Device) -> bool {
        let symbols = self.inventory.symbols();
        let is_access =
            |name: &str| device.access.is_some_and(|access| symbols.name(access) == name);
        let grains = |name: &str| -> Vec<Granularity> {
            let entries = device.capacities.iter().filter(|entry| symbols.name(entry.name) == name);
            entries.map(|entry| entry.granularity).collect()
        };
        match &asked.draws {
            Draws::Each(list) => list.iter().all(|request| {
                let grains = grains(&request.name);
                match request.draw {
                    RequestedCapacity::AccessMode { .. } => is_access(&request.name),
                    RequestedCapacity::Counter { .. } => {
                        !grains.is_empty()
                            && grains.iter().all(|grain| *grain == Granularity::Counter)
                    }
                    RequestedCapacity::Quantity { .. } => {
                        !grains.is_empty()
                            && grains.iter().all(|grain| *grain != Granularity::Counter)
                    }
                }
            }),
            Draws::Together(list) => list.iter().all(|(name, amount)| {
                let grains = grains(name);
                !grains.is_empty()
                    && (amount.to_int().is_some()
                        || grains.iter().all(|grain| *grain != Granularity::Counter))
            }),
        }
    }

    /// Whether a device could serve all of a typed list if no other term drew from it.
    fn serves_alone(&self, asked: &Alternative, device: &Device) -> bool {
        match &asked.draws {
            Draws::Each(_) => {
                let lone = Context { required: &[], taken: BTreeMap::new(), fits: &|_| true };
                !self.ways(asked, device, &lone, &[]).is_empty()
            }
            Draws::Together(_) => true,
        }
    }

    /// Every way to draw from the devices of a set: the holds, and the entries used for each
    /// request of each device.
    fn draws(
        &self,
        chosen: &[Chosen],
        this: &Chosen,
        set: &[DeviceIndex],
    ) -> Vec<(Vec<Hold>, Vec<Vec<usize>>)> {
        let asked = self.alternative(this);
        let required = self.rules(this).filter(|rule| rule.policy == TopologyPolicy::Require);
        let required: Vec<&str> = required.map(|rule| rule.r#type.as_str()).collect();
        let missing: Vec<i128> = match &asked.draws {
            Draws::Each(_) => Vec::new(),
            Draws::Together(list) => list.iter().map(|(_, amount)| amount.nanos()).collect(),
        };
        let mut found = vec![(Vec::new(), Vec::new(), missing)];
        for &(place, at) in set {
            let pool = self.pools[place];
            let hold = |device, mode, parts| Hold { pool, device, mode, admin: asked.admin, parts };
            let mut next = Vec::new();
            for (holds, sets, missing) in found {
                match &self.pool(place).devices {
                    PoolDevices::Counted(_) => {
                        let hold = hold(None, AccessMode::ReadWriteExclusive, Vec::new());
                        next.push(([holds.as_slice(), &[hold]].concat(), sets, missing));
                    }
                    PoolDevices::Listed(devices) => {
                        let device = &devices[at];
                        let with = |parts: Vec<CapacityPart>| {
                            let hold = hold(Some(at), mode(asked, device), parts);
                            [holds.as_slice(), &[hold]].concat()
                        };
                        let fits = |parts: &[CapacityPart]| {
                            let now = Chosen { holds: with(parts.to_vec()), ..this.clone() };
                            self.topologies_hold(&[chosen, &[now]].concat())
                        };
                        let taken = taken(chosen, pool, at);
                        let context = Context { required: &required, taken, fits: &fits };
                        for way in self.ways(asked, device, &context, &missing) {
                            let sets = [sets.as_slice(), &way.sets].concat();
                            next.push((with(way.parts), sets, way.missing));
                        }
                    }
                }
            }
            found = next;
        }
        found.retain(|(_, _, missing)| asked.admin || missing.iter().all(|rest| *rest <= 0));
        found.into_iter().map(|(holds, sets, _)| (holds, sets)).collect()
    }

    /// Every way to draw from one device, of which some is taken by other terms.
    fn ways(
        &self,
        asked: &Alternative,
        device: &Device,
        context: &Context<'_>,
        missing: &[i128],
    ) -> Vec<DrawOption> {
        let mut ways = vec![DrawOption { missing: missing.to_vec(), ..DrawOption::default() }];
        if asked.admin {
            return ways;
        }
        let requests: Vec<(&str, i128)> = match &asked.draws {
            Draws::Each(list) => {
                list.iter().filter_map(|r| Some((&*r.name, typed(&r.draw)?))).collect()
            }
            Draws::Together(list) => list.iter().map(|(n, q)| (n.as_str(), q.nanos())).collect(),
        };
        for (number, (name, amount)) in requests.into_iter().enumerate() {
            let named =
                |at: &usize| self.inventory.symbols().name(device.capacities[*at].name) == name;
            let entries: Vec<usize> = (0..device.capacities.len()).filter(named).collect();
            let mut sets = subsets(&entries);
            sets.retain(|set| {
                !set.is_empty()
                    && (set.len() == 1 || set.iter().all(|at| device.capacities[*at].splits))
            });
            let mut next = Vec::new();
            for way in ways {
                let served: Vec<(Vec<usize>, Vec<CapacityPart>, i128)> = match &asked.draws {
                    Draws::Each(_) => {
                        let serve = |set: Vec<usize>| {
                            let (parts, rest) =
                                serve(device, &context.taken, &way.parts, &set, amount, true)?;
                            (rest == 0).then_some((set, parts, 0))
                        };
                        sets.iter().cloned().filter_map(serve).collect()
                    }
                    Draws::Together(_) => {
                        let missing = way.missing[number];
                        self.together(device, context, &way.parts, &sets, missing)
                    }
                };
                for (set, parts, rest) in served {
                    let mut missing = way.missing.clone();
                    if let Some(missing) = missing.get_mut(number) {
                        *missing = rest;
                    }
                    next.push(DrawOption {
                        parts: [way.parts.as_slice(), &parts].concat(),
                        sets: [way.sets.as_slice(), &[set]].concat(),
                        missing,
                    });
                }
            }
            ways = next;
        }
        ways
    }

    /// Returns the ways in which a device gives what it can of what is still missing of one
    /// request. It cannot give what is outside of the required topology domains.
    fn together(
        &self,
        device: &Device,
        context: &Context<'_>,
        before: &[CapacityPart],
        sets: &[Vec<usize>],
        missing: i128,
    ) -> Vec<(Vec<usize>, Vec<CapacityPart>, i128)> {
        let nothing = (Vec::new(), Vec::new(), missing);
        if missing <= 0 {
            return vec![nothing];
        }
        let serve = |set: &Vec<usize>| {
            let (parts, rest) = serve(device, &context.taken, before, set, missing, false)?;
            let fits = (context.fits)(&[before, &parts].concat());
            fits.then(|| (set.clone(), parts, rest))
        };
        let served: Vec<_> = sets.iter().filter_map(serve).collect();
        if served.is_empty() {
            return vec![nothing];
        }
        // The topology domains that required rules read.
        let symbols = self.inventory.symbols();
        let where_ = |set: &[usize]| -> BTreeSet<(&str, &str)> {
            let places = set.iter().flat_map(|at| &device.capacities[*at].domains);
            let named = places.map(|place| (symbols.name(place.kind), symbols.name(place.name)));
            named.filter(|(kind, _)| context.required.contains(kind)).collect()
        };
        let is_most = |(set, _, rest): &(Vec<usize>, Vec<CapacityPart>, i128)| {
            served.iter().all(|(other, _, left)| where_(other) != where_(set) || rest <= left)
        };
        served.iter().filter(|served| is_most(served)).cloned().collect()
    }

    /// The topology rules that apply to a term.
    fn rules<'s>(&'s self, chosen: &Chosen) -> impl Iterator<Item = &'s TopologyRule> + use<'s> {
        let claim = &self.request.claims[chosen.claim];
        let own = &claim.terms[chosen.term].alternatives[chosen.alternative].topologies;
        own.iter().chain(&claim.topologies).chain(&self.request.topologies)
    }

    /// Whether no rule is broken by what was chosen.
    fn is_allowed(&self, chosen: &[Chosen]) -> bool {
        self.no_term_twice(chosen)
            && self.stock_suffices(chosen)
            && self.groups_hold(chosen)
            && self.topologies_hold(chosen)
    }

    /// Checks that no term has a device twice, and no claim one held with administrator access.
    fn no_term_twice(&self, chosen: &[Chosen]) -> bool {
        let mut seen = BTreeMap::<_, (BTreeSet<usize>, bool)>::new();
        let mut counts = BTreeMap::<_, u32>::new();
        chosen.iter().all(|c| {
            c.holds.iter().all(|hold| {
                match (hold.device, &self.inventory.pools()[hold.pool].devices) {
                    (None, PoolDevices::Counted(counted)) => {
                        let count = counts.entry((c.claim, hold.pool)).or_default();
                        *count += 1;
                        *count <= counted.count
                    }
                    (device, _) => {
                        let place = (c.claim, hold.pool, device);
                        let (terms, admin) = seen.entry(place).or_default();
                        *admin |= hold.admin;
                        terms.insert(c.term) && (terms.len() == 1 || !*admin)
                    }
                }
            })
        })
    }

    /// Checks modes, amounts, counts and charges; administrator access is exempt from them.
    fn stock_suffices(&self, chosen: &[Chosen]) -> bool {
        let holds = || chosen.iter().flat_map(|c| &c.holds).filter(|hold| !hold.admin);
        self.inventory.pools().iter().enumerate().all(|(index, pool)| {
            let here: Vec<&Hold> = holds().filter(|hold| hold.pool == index).collect();
            let devices = match &pool.devices {
                PoolDevices::Counted(counted) => {
                    let more = u32::try_from(here.len()).unwrap();
                    return more == 0 || counted.held + more <= counted.count;
                }
                PoolDevices::Listed(devices) => devices,
            };
            let mut charges: Vec<i128> = vec![0; pool.resources.len()];
            for (at, device) in devices.iter().enumerate() {
                let here: Vec<&Hold> =
                    here.iter().copied().filter(|hold| hold.device == Some(at)).collect();
                let modes: Vec<AccessMode> = here.iter().map(|hold| hold.mode).collect();
                let old = here.iter().all(|hold| allows_holder(device, hold.mode));
                let new = modes.iter().enumerate().all(|(place, one)| {
                    modes[..place].iter().all(|two| are_compatible(*one, *two))
                });
                let parts = || here.iter().flat_map(|hold| &hold.parts);
                let amounts = device.capacities.iter().enumerate().all(|(entry, published)| {
                    let mine = parts().filter(|part| part.capacity_index == entry);
                    let sum: i128 = mine.map(|part| part.amount).sum();
                    sum <= (published.capacity - published.used).max(0)
                });
                if !(old && new && amounts) {
                    return false;
                }
                if !here.is_empty() && device.holds == 0 {
                    device.charges.iter().for_each(|c| charges[c.resource] += c.amount);
                }
            }
            pool.resources.iter().zip(&charges).all(|(resource, charge)| {
                *charge == 0 || *charge <= (resource.capacity - resource.used).max(0)
            })
        })
    }

    fn groups_hold(&self, chosen: &[Chosen]) -> bool {
        let terms = chosen.iter().all(|c| {
            let asked = self.alternative(c);
            let holds: Vec<&Hold> = c.holds.iter().collect();
            self.group_holds(&holds, &asked.match_attributes, &asked.distinct_attributes)
        });
        let claims = self.request.claims.iter().enumerate();
        terms
            && claims.into_iter().all(|(index, claim)| {
                let of = chosen.iter().filter(|c| c.claim == index);
                let holds: Vec<&Hold> = of.flat_map(|c| &c.holds).collect();
                self.group_holds(&holds, &claim.match_attributes, &claim.distinct_attributes)
            })
    }

    fn group_holds(&self, holds: &[&Hold], same: &[String], distinct: &[String]) -> bool {
        let symbols = self.inventory.symbols();
        let values = |name: &String| -> Option<Vec<_>> {
            let name = symbols.find(name);
            let value = |hold: &&Hold| {
                let attributes = match &self.inventory.pools()[hold.pool].devices {
                    PoolDevices::Listed(devices) => &devices[hold.device?].attributes,
                    PoolDevices::Counted(counted) => &counted.attributes,
                };
                attributes.iter().find(|(known, _)| Some(*known) == name).map(|(_, value)| *value)
            };
            holds.iter().map(value).collect()
        };
        same.iter()
            .all(|name| values(name).is_some_and(|v| v.iter().collect::<BTreeSet<_>>().len() <= 1))
            && distinct.iter().all(|name| {
                values(name).is_some_and(|v| v.iter().collect::<BTreeSet<_>>().len() == v.len())
            })
    }

    /// Returns the topology domains of a kind in which these terms have parts.
    fn places<'c>(&self, terms: impl Iterator<Item = &'c Chosen>, kind: &str) -> BTreeSet<&str> {
        let symbols = self.inventory.symbols();
        let mut places = BTreeSet::new();
        for hold in terms.flat_map(|c| &c.holds) {
            let (PoolDevices::Listed(devices), Some(at)) =
                (&self.inventory.pools()[hold.pool].devices, hold.device)
            else {
                continue;
            };
            for part in &hold.parts {
                let of = &devices[at].capacities[part.capacity_index].domains;
                let of_kind = of.iter().filter(|place| symbols.name(place.kind) == kind);
                places.extend(of_kind.map(|place| symbols.name(place.name)));
            }
        }
        places
    }

    fn topologies_hold(&self, chosen: &[Chosen]) -> bool {
        let is_required = |rule: &&TopologyRule| rule.policy == TopologyPolicy::Require;
        let terms = chosen.iter().all(|c| {
            let rules = self.alternative(c).topologies.iter().filter(is_required);
            rules.into_iter().all(|rule| self.places([c].into_iter(), &rule.r#type).len() <= 1)
        });
        let claims = self.request.claims.iter().enumerate().all(|(index, claim)| {
            claim.topologies.iter().filter(is_required).all(|rule| {
                let of = chosen.iter().filter(|c| c.claim == index);
                self.places(of, &rule.r#type).len() <= 1
            })
        });
        let pod = self.request.topologies.iter().filter(is_required);
        terms && claims && pod.into_iter().all(|r| self.places(chosen.iter(), &r.r#type).len() <= 1)
    }

    /// The score of the last of these terms.
    fn score(&self, chosen: &[Chosen], sets: &[Vec<usize>]) -> u32 {
        let last = chosen.last().unwrap();
        let claim = &self.request.claims[last.claim];
        let prefers = |rule: &&TopologyRule| rule.policy == TopologyPolicy::Prefer;
        let unmet = |rule: &&TopologyRule, scope: Vec<&Chosen>| {
            !self.places([last].into_iter(), &rule.r#type).is_empty()
                && self.places(scope.into_iter(), &rule.r#type).len() > 1
        };
        let of_claim = || chosen.iter().filter(|c| c.claim == last.claim).collect::<Vec<_>>();
        let own = self.alternative(last).topologies.iter().filter(prefers);
        let own = own.filter(|rule| unmet(rule, vec![last])).count();
        let claim = claim.topologies.iter().filter(prefers);
        let claim = claim.filter(|rule| unmet(rule, of_claim())).count();
        let pod = self.request.topologies.iter().filter(prefers);
        let pod = pod.filter(|rule| unmet(rule, chosen.iter().collect())).count();
        let splits: usize = sets.iter().map(|set| set.len().saturating_sub(1)).sum();
        let minus = 10 * last.alternative + 20 * (own + claim + pod) + 5 * splits;
        u32::try_from(100_usize.saturating_sub(minus).max(1)).unwrap()
    }
}

/// The context of a device.
struct Context<'a> {
    /// The kinds of topology domains that required rules read.
    required: &'a [&'a str],
    /// What other terms have taken of each entry.
    taken: BTreeMap<usize, i128>,
    /// Whether parts are in the required topology domains, beside what was chosen before.
    fits: &'a dyn Fn(&[CapacityPart]) -> bool,
}

/// A way to draw from one device, or from those of a set so far.
#[derive(Clone, Debug, Default)]
struct DrawOption {
    parts: Vec<CapacityPart>,
    /// The entries used, for each request.
    sets: Vec<Vec<usize>>,
    /// What is missing of each request that is met together.
    missing: Vec<i128>,
}

/// Returns what a set of entries gives, in listed order, and what it leaves missing; `None` if one
/// of them would give nothing. With `rounded`, what is missing is rounded up to whole blocks.
fn serve(
    device: &Device,
    taken: &BTreeMap<usize, i128>,
    before: &[CapacityPart],
    set: &[usize],
    amount: i128,
    rounded: bool,
) -> Option<(Vec<CapacityPart>, i128)> {
    if amount == 0 {
        return (set.len() == 1)
            .then(|| (vec![CapacityPart { capacity_index: set[0], amount: 0 }], 0));
    }
    let mut missing = amount;
    let mut parts = Vec::new();
    for &at in set {
        let entry = &device.capacities[at];
        let mine: i128 =
            before.iter().filter(|part| part.capacity_index == at).map(|p| p.amount).sum();
        let left = entry.capacity - entry.used - taken.get(&at).unwrap_or(&0) - mine;
        let size = entry.granularity.size();
        let (wanted, there) = ((missing + size - 1) / size * size, left.max(0) / size * size);
        let given = wanted.min(there);
        if given <= 0 {
            return None;
        }
        parts.push(CapacityPart { capacity_index: at, amount: given });
        missing = (if rounded { wanted } else { missing } - given).max(0);
    }
    Some((parts, missing))
}

fn typed(draw: &RequestedCapacity) -> Option<i128> {
    match draw {
        RequestedCapacity::Counter { request } => Some(i128::from(*request) * Granularity::UNIT),
        RequestedCapacity::Quantity { request } => Some(request.nanos()),
        RequestedCapacity::AccessMode { .. } => None,
    }
}

/// What other terms have taken of each entry of a device.
fn taken(chosen: &[Chosen], pool: usize, device: usize) -> BTreeMap<usize, i128> {
    let mut taken = BTreeMap::new();
    let holds = chosen.iter().flat_map(|c| &c.holds).filter(|hold| !hold.admin);
    for hold in holds.filter(|hold| hold.pool == pool && hold.device == Some(device)) {
        for part in &hold.parts {
            *taken.entry(part.capacity_index).or_default() += part.amount;
        }
    }
    taken
}

/// The mode of a hold on a device.
fn mode(asked: &Alternative, device: &Device) -> AccessMode {
    let explicit = match &asked.draws {
        Draws::Each(list) => list.iter().find_map(|request| match request.draw {
            RequestedCapacity::AccessMode { request } => Some(request),
            RequestedCapacity::Counter { .. } | RequestedCapacity::Quantity { .. } => None,
        }),
        Draws::Together(_) => None,
    };
    let default = if asked.draws.is_empty() {
        AccessMode::ReadWriteExclusive
    } else {
        AccessMode::ReadWriteShared
    };
    let wanted = explicit.or(asked.mode).unwrap_or(default);
    let allowed = |mode: &AccessMode| match mode {
        AccessMode::ReadOnlyShared => device.sharing.allow_read_only_shared,
        AccessMode::ReadWriteShared => device.sharing.allow_read_write_shared,
        AccessMode::WriteExclusive => device.sharing.allow_write_exclusive,
        AccessMode::ReadWriteExclusive => true,
    };
    let ladder = AccessMode::UPGRADE_ORDER.into_iter().filter(|mode| *mode >= wanted);
    ladder.into_iter().find(allowed).unwrap()
}

/// Whether a pool can afford what a device charges, if nothing else is charged.
fn affords_charge(pool: &Pool, device: &Device) -> bool {
    device.holds > 0
        || device.charges.iter().all(|charge| {
            let resource = &pool.resources[charge.resource];
            charge.amount <= (resource.capacity - resource.used).max(0)
        })
}

/// Whether the existing holds of a device allow one more.
fn allows_holder(device: &Device, mode: AccessMode) -> bool {
    let held = [
        (AccessMode::ReadOnlyShared, device.sharing.read_only_shared),
        (AccessMode::ReadWriteShared, device.sharing.read_write_shared),
        (AccessMode::WriteExclusive, device.sharing.write_exclusive),
        (AccessMode::ReadWriteExclusive, device.sharing.read_write_exclusive),
    ];
    held.iter().all(|(other, count)| *count == 0 || are_compatible(mode, *other))
}

/// The table of the specification, row by row.
fn are_compatible(wanted: AccessMode, held: AccessMode) -> bool {
    let row = match wanted {
        AccessMode::ReadOnlyShared => [true, true, true, false],
        AccessMode::ReadWriteShared => [true, true, false, false],
        AccessMode::WriteExclusive => [true, false, false, false],
        AccessMode::ReadWriteExclusive => [false, false, false, false],
    };
    let column = AccessMode::UPGRADE_ORDER.iter().position(|mode| *mode == held).unwrap();
    row[column]
}

fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    let effect = match taint.effect {
        TaintEffect::NoSchedule => TolerationEffect::NoSchedule,
        TaintEffect::NoExecute => TolerationEffect::NoExecute,
        TaintEffect::None => return true,
    };
    tolerations.iter().any(|toleration| {
        let value = match toleration.operator {
            TolerationOperator::Exists => true,
            TolerationOperator::Equal => {
                toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or("")
            }
        };
        let key = toleration.key.as_deref().unwrap_or("");
        value
            && (key == taint.key
                || (key.is_empty() && toleration.operator == TolerationOperator::Exists))
            && toleration.effect.is_none_or(|tolerated| tolerated == effect)
    })
}

/// Every subset, each in order.
fn subsets<T: Copy>(items: &[T]) -> Vec<Vec<T>> {
    let mut all = vec![Vec::new()];
    for item in items {
        let with: Vec<Vec<T>> =
            all.iter().map(|set: &Vec<T>| [set.as_slice(), &[*item]].concat()).collect();
        all.extend(with);
    }
    all
}
