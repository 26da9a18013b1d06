//! What shows that a choice leads nowhere, without following it.

use super::state::State;
use crate::bits::Bits;
use crate::prepare::{Ask, GroupKind, Prepared};
use crate::problem::Count;
use crate::table::Table;

use gantry_api::devices::AccessMode;

/// What each term needs at least, whatever alternative it takes.
#[derive(Debug)]
pub(super) struct Outlook {
    terms: Vec<Need>,
}

#[derive(Debug)]
struct Need {
    claim: usize,
    /// The fewest devices of any alternative.
    least: usize,
    /// The candidates of all alternatives.
    candidates: Bits,
    /// Whether each of these is of no use to others once the term has it.
    exclusive: bool,
    /// Whether each of these is of no use to other terms of the claim once the term has it: what an
    /// administrator holds is held once.
    disjoint: bool,
}

impl Outlook {
    pub(super) fn new(prepared: &Prepared<'_>, table: &Table<'_>) -> Self {
        let terms = prepared.terms.iter().zip(&table.candidates).map(|(term, candidates)| {
            let mut union = Bits::below(table.rows.len());
            let mut least = usize::MAX;
            let (mut exclusive, mut disjoint) = (true, true);
            for (ask, bits) in term.asks.iter().zip(candidates) {
                let count = bits.count();
                let needs = match ask.source.count {
                    Count::Between { .. } => ask.least(),
                    Count::All => count.max(1),
                };
                // An alternative that can never be had makes no demands.
                if count < needs {
                    continue;
                }
                least = least.min(needs);
                union.unite(bits);
                let alone = || {
                    bits.iter().all(|row| table.mode(row, ask) == AccessMode::ReadWriteExclusive)
                };
                exclusive &= !ask.source.admin && alone();
                disjoint &= ask.source.admin || exclusive;
            }
            Need { claim: term.claim, least, candidates: union, exclusive, disjoint }
        });
        Self { terms: terms.collect() }
    }

    /// Whether the terms from `at` on may still all be served: each can be, those that want devices
    /// for themselves find enough of them, and so do those of the claim at hand.
    pub(super) fn hopeful(
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
            // The last term counts for itself.
            return true;
        }
        let rows = table.rows.len();
        let alone = || self.terms[at..].iter().filter(|need| need.exclusive);
        let free = |need: &Need| need.without(&state.busy);
        let known = glance(alone().map(|it| (it.candidates.count_without(&state.busy), it.least)));
        if !known.unwrap_or_else(|| served(&alone().map(free).collect::<Vec<_>>(), rows)) {
            return false;
        }
        // Those of the claim at hand have what is settled, and no row serves two that cannot share it.
        let claim = self.terms[at].claim;
        let taken = &state.of_claim[claim];
        let fixed = fixed(prepared, state, at);
        let matches = |row: usize| {
            let slots = prepared.slots.len();
            fixed.iter().all(|(slot, value)| table.value(row, *slot, slots) == *value)
        };
        let of_claim = || self.terms[at..].iter().take_while(|need| need.claim == claim);
        let shared = || of_claim().filter(|need| !need.disjoint);
        let settled = |need: &Need| need.candidates.iter().filter(|row| matches(*row)).count();
        if !fixed.is_empty() && shared().any(|need| settled(need) < need.least) {
            return false;
        }
        let of_claim = || of_claim().filter(|need| need.disjoint);
        let count = |need: &Need| match fixed.is_empty() {
            true => need.candidates.count_without(taken),
            false => {
                let rows = need.candidates.iter().filter(|row| !taken.contains(*row));
                rows.filter(|row| matches(*row)).count()
            }
        };
        let free = |need: &Need| {
            let (mut free, least) = need.without(taken);
            for row in need.candidates.iter().filter(|row| !matches(*row)) {
                free.remove(row);
            }
            (free, least)
        };
        let known = glance(of_claim().map(|need| (count(need), need.least)));
        known.unwrap_or_else(|| served(&of_claim().map(free).collect::<Vec<_>>(), rows))
    }

    /// Whether later terms want what this one chooses from, for themselves.
    pub(super) fn contested(&self, term: usize, candidates: &Bits) -> bool {
        self.terms[term + 1..]
            .iter()
            .any(|need| need.exclusive && need.candidates.meets(candidates))
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
        let count = |need: &Need| (need.candidates.count_without(&state.busy), need.least);
        let counts = own.then(|| (rest.clone().count(), lacking));
        glance(counts.into_iter().chain(later().map(count))).unwrap_or_else(|| {
            let mut needs = Vec::new();
            if own {
                let mut bits = Bits::below(table.rows.len());
                for row in rest {
                    bits.insert(row);
                }
                needs.push((bits, lacking));
            }
            needs.extend(later().map(|need| need.without(&state.busy)));
            served(&needs, table.rows.len())
        })
    }
}

impl Need {
    /// Its candidates beside those that are taken, and how many of them it demands.
    fn without(&self, taken: &Bits) -> (Bits, usize) {
        let mut free = self.candidates.clone();
        free.subtract(taken);
        (free, self.least)
    }
}

/// The attributes whose values the claim's match groups have settled, and the values.
fn fixed(prepared: &Prepared<'_>, state: &State<'_>, at: usize) -> Vec<(usize, u32)> {
    let groups = prepared.terms[at].claim_groups.iter();
    let matching = groups.filter(|group| prepared.groups[**group].kind == GroupKind::Match);
    let settled = matching.filter_map(|group| {
        let value = state.groups[*group].values.first()?;
        Some((prepared.groups[*group].slot, *value))
    });
    settled.collect()
}

/// Whether every need can be served, as far as numbers alone tell: of each how many rows it may have, and
/// how many it demands. Whoever has the fewest to choose from chooses first; if each finds enough
/// whatever those before it took, all are served. It is so for most, and spares the flow.
fn glance(needs: impl Iterator<Item = (usize, usize)> + Clone) -> Option<bool> {
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

/// Whether every need can have as many rows as it demands, no row serving two: a flow through
/// needs and rows, made larger one path at a time.
fn served(needs: &[(Bits, usize)], rows: usize) -> bool {
    let mut free = Bits::below(rows);
    for (candidates, _) in needs {
        free.unite(candidates);
    }
    let total = needs.iter().fold(0_usize, |sum, (_, demand)| sum.saturating_add(*demand));
    if free.count() < total {
        return false;
    }
    let mut given: Vec<Bits> = vec![Bits::below(rows); needs.len()];
    for start in 0..needs.len() {
        for _ in 0..needs[start].1 {
            if !augment(needs, &mut given, &mut free, start) {
                return false;
            }
        }
    }
    true
}

/// Gives one more row to a need, moving rows between others if it must.
fn augment(needs: &[(Bits, usize)], given: &mut [Bits], free: &mut Bits, start: usize) -> bool {
    // For each need that was reached, from which one and over which of its rows.
    let mut reached: Vec<Option<(usize, usize)>> = vec![None; needs.len()];
    let mut queue = vec![start];
    let mut next = 0;
    while let Some(need) = queue.get(next).copied() {
        next += 1;
        if let Some(row) = needs[need].0.first_of_both(free) {
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
                && let Some(row) = needs[need].0.first_of_both(&given[other])
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
    wants: Vec<Given>,
}

#[derive(Debug)]
struct Given {
    wanted: i128,
    /// What each row can give.
    by_row: Vec<(usize, i128)>,
    /// What the best so many rows can give.
    best: Vec<i128>,
}

impl Supply {
    pub(super) fn new(state: &State<'_>, ask: &Ask<'_>, rows: &[usize]) -> Self {
        if !ask.adds_up() || ask.source.admin {
            return Self::default();
        }
        let wants = ask.wants.iter().map(|want| {
            let by_row: Vec<(usize, i128)> =
                rows.iter().map(|row| (*row, state.gives(*row, want))).collect();
            let mut amounts: Vec<i128> = by_row.iter().map(|(_, amount)| *amount).collect();
            amounts.sort_unstable_by(|one, other| other.cmp(one));
            let mut best = vec![0];
            best.extend(amounts.iter().scan(0_i128, |sum, amount| {
                *sum = sum.saturating_add(*amount);
                Some(*sum)
            }));
            Given { wanted: want.amount, by_row, best }
        });
        Self { wants: wants.collect() }
    }

    /// Whether some so many rows have enough.
    pub(super) fn suffices(&self, count: usize) -> bool {
        self.wants
            .iter()
            .all(|given| given.best.get(count).is_none_or(|best| *best >= given.wanted))
    }

    /// Whether the rows taken and the best so many others have enough.
    pub(super) fn can_still(
        &self,
        taken: &(impl Iterator<Item = usize> + Clone),
        lacking: usize,
    ) -> bool {
        self.wants.iter().all(|given| {
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

    fn need() -> impl Strategy<Value = (Bits, usize)> {
        (prop::collection::vec(0..ROWS, 0..ROWS), 0..4_usize).prop_map(|(rows, demand)| {
            let mut bits = Bits::below(ROWS);
            rows.into_iter().for_each(|row| bits.insert(row));
            (bits, demand)
        })
    }

    /// Gives rows to the needs in every way.
    fn tried(needs: &[(Bits, usize)], taken: &mut Bits) -> bool {
        let Some((first, rest)) = needs.split_first() else { return true };
        let (candidates, demand) = first;
        if *demand == 0 {
            return tried(rest, taken);
        }
        let mut free = candidates.clone();
        free.subtract(taken);
        let next = (candidates.clone(), demand - 1);
        let next: Vec<_> = std::iter::once(next).chain(rest.iter().cloned()).collect();
        free.iter().any(|row| {
            taken.insert(row);
            let served = tried(&next, taken);
            taken.remove(row);
            served
        })
    }

    proptest! {
        #[test]
        fn numbers_and_flows_tell_who_is_served(needs in prop::collection::vec(need(), 0..4)) {
            let expected = tried(&needs, &mut Bits::below(ROWS));
            prop_assert_eq!(served(&needs, ROWS), expected);
            let numbers = needs.iter().map(|(candidates, demand)| (candidates.count(), *demand));
            prop_assert!(glance(numbers).is_none_or(|known| known == expected));
        }
    }
}
