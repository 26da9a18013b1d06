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
}

impl Outlook {
    pub(super) fn new(prepared: &Prepared<'_>, table: &Table<'_>) -> Self {
        let terms = prepared.terms.iter().zip(&table.candidates).map(|(term, candidates)| {
            let mut union = Bits::below(table.rows.len());
            let mut least = usize::MAX;
            let mut exclusive = true;
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
                exclusive &= !ask.source.admin
                    && bits
                        .iter()
                        .all(|row| table.mode(row, ask) == AccessMode::ReadWriteExclusive);
            }
            Need { claim: term.claim, least, candidates: union, exclusive }
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
        let alone = self.terms[at..].iter().filter(|need| need.exclusive);
        let alone = alone.map(|need| {
            let mut free = need.candidates.clone();
            free.subtract(&state.busy);
            (free, need.least)
        });
        if !served(&alone.collect::<Vec<_>>(), table.rows.len()) {
            return false;
        }
        let claim = self.terms[at].claim;
        let of_claim = self.terms[at..].iter().take_while(|need| need.claim == claim);
        let of_claim = of_claim.map(|need| {
            let mut free = need.candidates.clone();
            free.subtract(&state.of_claim[claim]);
            keep_matching(prepared, table, state, at, &mut free);
            (free, need.least)
        });
        served(&of_claim.collect::<Vec<_>>(), table.rows.len())
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
        rest: impl Iterator<Item = usize>,
        lacking: usize,
    ) -> bool {
        let mut needs = Vec::new();
        if lacking > 0 && self.terms[term].exclusive {
            let mut bits = Bits::below(table.rows.len());
            for row in rest {
                bits.insert(row);
            }
            needs.push((bits, lacking));
        }
        for need in self.terms[term + 1..].iter().filter(|need| need.exclusive) {
            let mut free = need.candidates.clone();
            free.subtract(&state.busy);
            needs.push((free, need.least));
        }
        served(&needs, table.rows.len())
    }
}

/// Takes away rows whose values differ from those the claim's match groups already have.
fn keep_matching(
    prepared: &Prepared<'_>,
    table: &Table<'_>,
    state: &State<'_>,
    at: usize,
    rows: &mut Bits,
) {
    let slots = prepared.slots.len();
    for group in &prepared.terms[at].claim_groups {
        let (slot, kind) = (prepared.groups[*group].slot, prepared.groups[*group].kind);
        let Some(fixed) = state.groups[*group].values.first() else { continue };
        if kind == GroupKind::Match {
            for row in rows.clone().iter() {
                if table.value(row, slot, slots) != *fixed {
                    rows.remove(row);
                }
            }
        }
    }
}

/// Whether every need can have as many rows as it demands, no row serving two: a flow through
/// needs and rows, made larger one path at a time.
fn served(needs: &[(Bits, usize)], rows: usize) -> bool {
    if needs.iter().any(|(candidates, demand)| candidates.count() < *demand) {
        return false;
    }
    if needs.len() < 2 {
        return true;
    }
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
