//! Bounds that show that a choice cannot succeed, without following it.

use super::state::State;
use crate::bit_set::BitSet;
use crate::prepare::{GroupKind, Prepared, PreparedAlternative};
use crate::problem::Count;
use crate::table::Table;

use gantry_api::devices::AccessMode;

/// What each term needs at least, whatever alternative it takes.
#[derive(Debug)]
pub(super) struct FeasibilityBounds {
    terms: Vec<TermDemand>,
}

#[derive(Debug)]
struct TermDemand {
    claim: usize,
    /// The fewest devices of any alternative.
    least: usize,
    /// The candidates of all alternatives.
    candidates: BitSet,
    /// Whether each of these is of no use to other claims once the term has it.
    exclusive: bool,
    /// Whether each of these is of no use to other terms of the claim once the term has it: a hold
    /// with administrator access is exclusive within its claim.
    disjoint: bool,
}

impl FeasibilityBounds {
    pub(super) fn new(prepared: &Prepared<'_>, table: &Table<'_>) -> Self {
        let terms = prepared.terms.iter().zip(&table.candidates).map(|(term, candidates)| {
            let mut union = BitSet::below(table.rows.len());
            let mut least = usize::MAX;
            let (mut exclusive, mut disjoint) = (true, true);
            for (ask, bits) in term.alternatives.iter().zip(candidates) {
                let count = bits.count();
                let needs = match ask.source.count {
                    Count::Between { .. } => ask.least(),
                    Count::All => count.max(1),
                };
                // An alternative that can never be satisfied needs nothing.
                if count < needs {
                    continue;
                }
                least = least.min(needs);
                union.union_with(bits);
                let alone = || {
                    bits.iter().all(|row| table.mode(row, ask) == AccessMode::ReadWriteExclusive)
                };
                exclusive &= !ask.source.admin && alone();
                disjoint &= ask.source.admin || exclusive;
            }
            TermDemand { claim: term.claim, least, candidates: union, exclusive, disjoint }
        });
        Self { terms: terms.collect() }
    }

    /// Whether the terms from `at` on may still all be served: each can be, those that need
    /// exclusive devices find enough of them, and so do those of the current claim.
    pub(super) fn may_be_feasible(
        &self,
        prepared: &Prepared<'_>,
        table: &Table<'_>,
        state: &State<'_>,
        at: usize,
    ) -> bool {
        if self.terms[at..].iter().any(|need| need.least == usize::MAX) {
            return false;
        }
        if at + 1 == self.terms.len() && at > 0 {
            // The last term is checked by itself.
            return true;
        }
        let rows = table.rows.len();
        let alone = || self.terms[at..].iter().filter(|need| need.exclusive);
        let free = |need: &TermDemand| need.without(&state.busy);
        let known =
            quick_check(alone().map(|it| (it.candidates.difference_count(&state.busy), it.least)));
        if !known.unwrap_or_else(|| has_assignment(&alone().map(free).collect::<Vec<_>>(), rows)) {
            return false;
        }
        // Those of the current claim have their fixed values, and no row serves two that cannot
        // share it.
        let claim = self.terms[at].claim;
        let taken = &state.of_claim[claim];
        let fixed = fixed(prepared, state, at);
        let matches = |row: usize| {
            let slots = prepared.slots.len();
            fixed.iter().all(|(slot, value)| table.value(row, *slot, slots) == *value)
        };
        let of_claim = || self.terms[at..].iter().take_while(|need| need.claim == claim);
        let shared = || of_claim().filter(|need| !need.disjoint);
        let settled =
            |need: &TermDemand| need.candidates.iter().filter(|row| matches(*row)).count();
        if !fixed.is_empty() && shared().any(|need| settled(need) < need.least) {
            return false;
        }
        let of_claim = || of_claim().filter(|need| need.disjoint);
        let count = |need: &TermDemand| match fixed.is_empty() {
            true => need.candidates.difference_count(taken),
            false => {
                let rows = need.candidates.iter().filter(|row| !taken.contains(*row));
                rows.filter(|row| matches(*row)).count()
            }
        };
        let free = |need: &TermDemand| {
            let (mut free, least) = need.without(taken);
            for row in need.candidates.iter().filter(|row| !matches(*row)) {
                free.remove(row);
            }
            (free, least)
        };
        let known = quick_check(of_claim().map(|need| (count(need), need.least)));
        known.unwrap_or_else(|| has_assignment(&of_claim().map(free).collect::<Vec<_>>(), rows))
    }

    /// Whether later terms need exclusive devices of those this one chooses from.
    pub(super) fn contested(&self, term: usize, candidates: &BitSet) -> bool {
        self.terms[term + 1..]
            .iter()
            .any(|need| need.exclusive && need.candidates.intersects(candidates))
    }

    /// Whether a term that lacks so many of the rows in `rest` and those after it find enough.
    pub(super) fn leaves_enough(
        &self,
        state: &State<'_>,
        table: &Table<'_>,
        term: usize,
        rest: impl Iterator<Item = usize> + Clone,
        lacking: usize,
    ) -> bool {
        let own = lacking > 0 && self.terms[term].exclusive;
        let later = || self.terms[term + 1..].iter().filter(|need| need.exclusive);
        let count = |need: &TermDemand| (need.candidates.difference_count(&state.busy), need.least);
        let counts = own.then(|| (rest.clone().count(), lacking));
        quick_check(counts.into_iter().chain(later().map(count))).unwrap_or_else(|| {
            let mut needs = Vec::new();
            if own {
                let mut bits = BitSet::below(table.rows.len());
                for row in rest {
                    bits.insert(row);
                }
                needs.push((bits, lacking));
            }
            needs.extend(later().map(|need| need.without(&state.busy)));
            has_assignment(&needs, table.rows.len())
        })
    }
}

impl TermDemand {
    /// Returns its candidates without those that are taken, and how many of them it needs.
    fn without(&self, taken: &BitSet) -> (BitSet, usize) {
        let mut free = self.candidates.clone();
        free.difference_with(taken);
        (free, self.least)
    }
}

/// Returns the attributes whose values the claim's match groups have fixed, and the values.
fn fixed(prepared: &Prepared<'_>, state: &State<'_>, at: usize) -> Vec<(usize, u32)> {
    let groups = prepared.terms[at].claim_groups.iter();
    let matching = groups.filter(|group| prepared.groups[**group].kind == GroupKind::Match);
    let settled = matching.filter_map(|group| {
        let value = state.groups[*group].values.first()?;
        Some((prepared.groups[*group].slot, *value))
    });
    settled.collect()
}

/// Whether every need can be served, as far as counts alone show: for each need how many rows it
/// may have, and how many it needs. Needs with the fewest rows choose first; if each finds enough
/// whatever those before it took, all are served. That is so for most, and saves the flow.
fn quick_check(needs: impl Iterator<Item = (usize, usize)> + Clone) -> Option<bool> {
    let (mut fewest, mut total) = (usize::MAX, 0_usize);
    for (rows, demand) in needs.clone() {
        if rows < demand {
            return Some(false);
        }
        fewest = fewest.min(rows);
        total = total.saturating_add(demand);
    }
    if total <= fewest {
        return Some(true);
    }
    let mut needs: Vec<(usize, usize)> = needs.collect();
    needs.sort_unstable();
    let mut taken = 0_usize;
    let enough = needs.iter().all(|(rows, demand)| {
        taken = taken.saturating_add(*demand);
        *rows >= taken
    });
    (enough || needs.len() < 2).then_some(true)
}

/// Whether every need can have as many rows as it needs, with no row serving two: a maximum flow
/// between needs and rows, by augmenting paths.
fn has_assignment(needs: &[(BitSet, usize)], rows: usize) -> bool {
    let mut free = BitSet::below(rows);
    for (candidates, _) in needs {
        free.union_with(candidates);
    }
    let total = needs.iter().fold(0_usize, |sum, (_, demand)| sum.saturating_add(*demand));
    if free.count() < total {
        return false;
    }
    let mut given: Vec<BitSet> = vec![BitSet::below(rows); needs.len()];
    for start in 0..needs.len() {
        for _ in 0..needs[start].1 {
            if !augment(needs, &mut given, &mut free, start) {
                return false;
            }
        }
    }
    true
}

/// Gives one more row to a need, moving rows between others if necessary.
fn augment(
    needs: &[(BitSet, usize)],
    given: &mut [BitSet],
    free: &mut BitSet,
    start: usize,
) -> bool {
    // For each need that was reached, from which one and over which of its rows.
    let mut reached: Vec<Option<(usize, usize)>> = vec![None; needs.len()];
    let mut queue = vec![start];
    let mut next = 0;
    while let Some(need) = queue.get(next).copied() {
        next += 1;
        if let Some(row) = needs[need].0.first_common(free) {
            free.remove(row);
            let mut need = need;
            given[need].insert(row);
            while let Some((from, over)) = reached[need] {
                given[need].remove(over);
                given[from].insert(over);
                need = from;
            }
            return true;
        }
        for other in 0..needs.len() {
            if other != start
                && other != need
                && reached[other].is_none()
                && let Some(row) = needs[need].0.first_common(&given[other])
            {
                reached[other] = Some((need, row));
                queue.push(other);
            }
        }
    }
    false
}

/// What rows can give to requests that add up, largest first.
#[derive(Debug, Default)]
pub(super) struct Supply {
    requests: Vec<RequestSupply>,
}

#[derive(Debug)]
struct RequestSupply {
    wanted: i128,
    /// What each row can give.
    by_row: Vec<(usize, i128)>,
    /// What the best so many rows can give.
    best: Vec<i128>,
}

impl Supply {
    pub(super) fn new(state: &State<'_>, ask: &PreparedAlternative<'_>, rows: &[usize]) -> Self {
        if !ask.adds_up() || ask.source.admin {
            return Self::default();
        }
        let wants = ask.amounts.iter().map(|want| {
            let by_row: Vec<(usize, i128)> =
                rows.iter().map(|row| (*row, state.gives(*row, want))).collect();
            let mut amounts: Vec<i128> = by_row.iter().map(|(_, amount)| *amount).collect();
            amounts.sort_unstable_by(|one, other| other.cmp(one));
            let mut best = vec![0];
            best.extend(amounts.iter().scan(0_i128, |sum, amount| {
                *sum = sum.saturating_add(*amount);
                Some(*sum)
            }));
            RequestSupply { wanted: want.amount, by_row, best }
        });
        Self { requests: wants.collect() }
    }

    /// Whether some so many rows have enough.
    pub(super) fn suffices(&self, count: usize) -> bool {
        self.requests
            .iter()
            .all(|given| given.best.get(count).is_none_or(|best| *best >= given.wanted))
    }

    /// Whether the rows taken and the best so many others have enough.
    pub(super) fn can_suffice(
        &self,
        taken: &(impl Iterator<Item = usize> + Clone),
        lacking: usize,
    ) -> bool {
        self.requests.iter().all(|given| {
            let of = |row: usize| {
                let at = given.by_row.binary_search_by_key(&row, |(row, _)| *row);
                at.map_or(0, |at| given.by_row[at].1)
            };
            let sum: i128 = taken.clone().map(of).sum();
            sum + given.best.get(lacking).copied().unwrap_or(i128::MAX / 2) >= given.wanted
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROWS: usize = 6;

    fn need() -> impl Strategy<Value = (BitSet, usize)> {
        (prop::collection::vec(0..ROWS, 0..ROWS), 0..4_usize).prop_map(|(rows, demand)| {
            let mut bits = BitSet::below(ROWS);
            rows.into_iter().for_each(|row| bits.insert(row));
            (bits, demand)
        })
    }

    /// Assigns rows to the needs in every way.
    fn brute_force(needs: &[(BitSet, usize)], taken: &mut BitSet) -> bool {
        let Some((first, rest)) = needs.split_first() else { return true };
        let (candidates, demand) = first;
        if *demand == 0 {
            return brute_force(rest, taken);
        }
        let mut free = candidates.clone();
        free.difference_with(taken);
        let next = (candidates.clone(), demand - 1);
        let next: Vec<_> = std::iter::once(next).chain(rest.iter().cloned()).collect();
        free.iter().any(|row| {
            taken.insert(row);
            let served = brute_force(&next, taken);
            taken.remove(row);
            served
        })
    }

    proptest! {
        #[test]
        fn quick_check_and_flow_match_brute_force(needs in prop::collection::vec(need(), 0..4)) {
            let expected = brute_force(&needs, &mut BitSet::below(ROWS));
            prop_assert_eq!(has_assignment(&needs, ROWS), expected);
            let numbers = needs.iter().map(|(candidates, demand)| (candidates.count(), *demand));
            prop_assert!(quick_check(numbers).is_none_or(|known| known == expected));
        }
    }
}
