//! The backtracking search: terms in order, for each its moves in canonical order.
//!
//! The first solution found is the result, so nothing here may reorder moves. What is left out is
//! only what cannot come first or cannot succeed:
//! - of devices that differ in nothing, those listed first are used first (`devices`), and likewise
//!   of pools (`pools`);
//! - a move ends as soon as counts, amounts, charges, groups or later terms show that it fails
//!   (`bounds`);
//! - a state in which the remaining terms failed once is not entered again (`memo`).

mod bounds;
mod draws;
mod memo;
mod moves;
mod pool_set;
mod state;

use std::sync::atomic::Ordering;

use self::bounds::FeasibilityBounds;
use self::memo::Memo;
use self::state::State;
use crate::prepare::Prepared;
use crate::problem::{Allocation, Budget, ClaimAllocation, Count, Hold, TermAllocation, Undecided};
use crate::table::Table;

/// Whether a solution was found, or why that is undecided.
type SearchResult = Result<bool, Undecided>;

/// How often, in steps, the search checks whether it was stopped.
const STOP_CHECK_INTERVAL: u64 = 1 << 12;

/// A search on one node.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    prepared: &'a Prepared<'a>,
    table: &'a Table<'a>,
    bounds: FeasibilityBounds,
    budget: Budget<'a>,
    steps: u64,
    state: State<'a>,
    memo: Memo,
    /// The decision for each term.
    decided: Vec<TermDecision>,
}

/// The decision about a term, as far as the search has come.
#[derive(Clone, Debug, Default)]
struct TermDecision {
    alternative: usize,
    score: u32,
    /// The score that moves must have at present, if scores matter.
    level: Option<u32>,
    /// The highest score below that level that a move would have had.
    next_level: Option<u32>,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        prepared: &'a Prepared<'a>,
        table: &'a Table<'a>,
        budget: Budget<'a>,
    ) -> Self {
        Self {
            prepared,
            table,
            bounds: FeasibilityBounds::new(prepared, table),
            budget,
            steps: 0,
            state: State::new(prepared, table),
            memo: Memo::default(),
            decided: vec![TermDecision::default(); prepared.terms.len()],
        }
    }

    /// Returns the canonical solution; `None` if there is none.
    pub(crate) fn run(mut self) -> Result<(Option<Allocation>, u64), Undecided> {
        let found = self.term(0)?;
        Ok((found.then(|| self.allocation()), self.steps))
    }

    /// Decides a term and all after it.
    fn term(&mut self, at: usize) -> SearchResult {
        let Some(term) = self.prepared.terms.get(at) else { return Ok(true) };
        self.step()?;
        if !self.bounds.may_be_feasible(self.prepared, self.table, &self.state, at) {
            return Ok(false);
        }
        if self.memo.contains(|key| self.state.describe(self.prepared, at, key)) {
            return Ok(false);
        }
        for (alternative, ask) in term.alternatives.iter().enumerate() {
            self.decided[at].alternative = alternative;
            let found = match ask.source.count {
                Count::All => self.take_all(at, ask)?,
                Count::Between { most, .. } => {
                    let most = usize::try_from(most).unwrap_or(usize::MAX);
                    self.take_between(at, ask, most)?
                }
            };
            if found {
                return Ok(true);
            }
        }
        self.memo.insert(|key| self.state.describe(self.prepared, at, key));
        Ok(false)
    }

    /// Counts a step, and ends the search if it was the last.
    fn step(&mut self) -> Result<(), Undecided> {
        self.steps += 1;
        if self.steps > self.budget.steps {
            return Err(Undecided::Steps(self.budget.steps));
        }
        let look = self.steps.is_multiple_of(STOP_CHECK_INTERVAL);
        if look && self.budget.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Undecided::Stopped);
        }
        Ok(())
    }

    fn allocation(&self) -> Allocation {
        let request = self.prepared.request;
        let mut claims: Vec<ClaimAllocation> = request
            .claims
            .iter()
            .map(|claim| ClaimAllocation {
                terms: Vec::with_capacity(claim.terms.len()),
                ..ClaimAllocation::default()
            })
            .collect();
        let terms = self.prepared.terms.iter().zip(&self.decided).zip(&self.state.picks);
        for ((term, decided), picks) in terms {
            let ask = &term.alternatives[decided.alternative];
            let holds = picks.iter().map(|pick| {
                let row = &self.table.rows[pick.row];
                Hold {
                    pool: self.table.pools[row.pool].pool,
                    device: row.index,
                    mode: pick.mode,
                    admin: ask.source.admin,
                    parts: pick.parts.iter().map(|(_, part)| *part).collect(),
                }
            });
            let (alternative, score) = (decided.alternative, decided.score);
            let term_allocation = TermAllocation { alternative, score, holds: holds.collect() };
            claims[term.claim].terms.push(term_allocation);
        }
        for claim in &mut claims {
            claim.score = mean(claim.terms.iter().map(|term| term.score));
        }
        let score = mean(claims.iter().map(|claim| claim.score));
        Allocation { claims, score, steps: self.steps }
    }
}

/// Returns the integer mean; 100 of nothing, because nothing is missing.
fn mean(scores: impl Iterator<Item = u32>) -> u32 {
    let (sum, count) = scores.fold((0_u32, 0), |(sum, count), score| (sum + score, count + 1));
    sum.checked_div(count).unwrap_or(100)
}
