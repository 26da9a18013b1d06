//! Which devices a term takes: counts, pools, shares of pools and devices, in canonical order.

use super::bounds::Supply;
use super::pool_set::{PoolSetBuilder, most_from};
use super::{Search, SearchResult};
use crate::prepare::{GroupKind, PreparedAlternative};
use crate::problem::{Draws, Policy};

/// What a term chooses from, with one of its alternatives, and how many devices it takes.
#[derive(Debug)]
pub(super) struct Move<'m> {
    pub(super) term: usize,
    pub(super) ask: &'m PreparedAlternative<'m>,
    /// The rows that can be taken in the current state, pool by pool; all in one list if pools do
    /// not matter.
    lists: Vec<PoolRows>,
    /// How many rows are taken.
    count: usize,
    /// What rows can give, if their amounts add up.
    supply: Supply,
    /// Whether later terms compete for the rows.
    contested: bool,
}

impl Move<'_> {
    /// Whether it matters which of the taken rows comes first: where amounts add up, each gives
    /// what those before it left to be given. A row that was skipped then stands only for its
    /// equals at the same position; after another row was taken they give in another order, and
    /// perhaps with another score.
    fn in_order(&self) -> bool {
        self.count > 1 && matches!(self.ask.source.draws, Draws::Together(_))
    }
}

#[derive(Debug)]
pub(super) struct PoolRows {
    rows: Vec<usize>,
    /// How many of them can be taken together, as far as their pool's resources go.
    pub(super) max_taken: usize,
    /// The pool's class, unless something was taken from the pool.
    class: Option<usize>,
    /// For each match group whose value is open, the values in the list and how often each occurs.
    pub(super) values: Vec<Vec<(u32, usize)>>,
}

impl<'a> Search<'a> {
    /// Takes every candidate.
    pub(super) fn take_all(
        &mut self,
        term: usize,
        ask: &'a PreparedAlternative<'a>,
    ) -> SearchResult {
        let candidates = &self.table.candidates[term][self.decided[term].alternative];
        if candidates.is_empty() {
            return Ok(false);
        }
        let chosen = Move {
            term,
            ask,
            lists: Vec::new(),
            count: candidates.count(),
            supply: Supply::default(),
            contested: false,
        };
        let mark = self.state.mark();
        for row in candidates.iter() {
            self.step()?;
            if !self.state.take(term, ask, row) {
                self.state.undo_to(mark);
                return Ok(false);
            }
        }
        let found = self.by_score(&chosen, |search| search.draw_all_again(&chosen))?;
        if !found {
            self.state.undo_to(mark);
        }
        Ok(found)
    }

    /// Draws with the rows that are picked, and leaves no changes behind if that fails.
    fn draw_all_again(&mut self, chosen: &Move<'_>) -> SearchResult {
        let mark = self.state.mark();
        let found = self.draw_all(chosen)?;
        if !found {
            self.state.undo_to(mark);
        }
        Ok(found)
    }

    /// Takes as few candidates as possible, and at most so many.
    pub(super) fn take_between(
        &mut self,
        term: usize,
        ask: &'a PreparedAlternative<'a>,
        most: usize,
    ) -> SearchResult {
        let claim = self.prepared.terms[term].claim;
        let alternative = self.decided[term].alternative;
        let candidates = &self.table.candidates[term][alternative];
        let least = ask.least();
        if candidates.count() < least {
            return Ok(false);
        }
        let mut rows: Vec<usize> = Vec::with_capacity(candidates.count());
        rows.extend(candidates.iter().filter(|row| self.state.can_take(claim, ask, *row)));
        // More devices than needed never help, unless their amounts add up.
        let most = if ask.adds_up() && !ask.source.admin { most.min(rows.len()) } else { least };
        if rows.len() < least || most < least {
            return Ok(false);
        }
        let supply = Supply::new(&self.state, ask, &rows);
        let contested = self.bounds.contested(term, candidates);
        let lists = self.lists(claim, ask, rows);
        let mut largest: Vec<usize> = lists.iter().map(|list| list.max_taken).collect();
        largest.sort_unstable_by(|one, other| other.cmp(one));
        if largest.iter().sum::<usize>() < least {
            return Ok(false);
        }
        let mut chosen = Move { term, ask, lists, count: 0, supply, contested };
        for count in least..=most {
            if !chosen.supply.suffices(count) {
                continue;
            }
            chosen.count = count;
            let found = match self.prepared.request.policy {
                Policy::FirstFit => self.by_score(&chosen, |search| search.sets(&chosen, 1))?,
                Policy::FewestPools => {
                    let mut found = false;
                    for pools in 1..=count.min(chosen.lists.len()) {
                        if largest[..pools].iter().sum::<usize>() < count {
                            continue;
                        }
                        found = self.by_score(&chosen, |search| search.sets(&chosen, pools))?;
                        if found {
                            break;
                        }
                    }
                    found
                }
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn lists(
        &self,
        claim: usize,
        ask: &PreparedAlternative<'_>,
        rows: Vec<usize>,
    ) -> Vec<PoolRows> {
        let slots = self.prepared.slots.len();
        let open: Vec<usize> = ask
            .groups
            .iter()
            .filter(|group| self.prepared.groups[**group].kind == GroupKind::Match)
            .filter(|group| self.state.groups[**group].values.is_empty())
            .map(|group| self.prepared.groups[*group].slot)
            .collect();
        let by_pool = |one: &usize, other: &usize| match self.prepared.request.policy {
            Policy::FewestPools => self.table.rows[*one].pool == self.table.rows[*other].pool,
            Policy::FirstFit => true,
        };
        let mut chunks: Vec<Vec<usize>> = Vec::new();
        match (rows.first(), rows.last()) {
            // Rows come pool by pool.
            (Some(first), Some(last)) if by_pool(first, last) => chunks.push(rows),
            _ => chunks.extend(rows.chunk_by(by_pool).map(<[usize]>::to_vec)),
        }
        chunks
            .into_iter()
            .map(|mut rows| {
                let pool = self.table.rows[rows[0]].pool;
                let values = open.iter().map(|slot| {
                    let mut values: Vec<(u32, usize)> = Vec::new();
                    for row in &rows {
                        let value = self.table.value(*row, *slot, slots);
                        match values.iter_mut().find(|(known, _)| *known == value) {
                            Some((_, count)) => *count += 1,
                            None => values.push((value, 1)),
                        }
                    }
                    values
                });
                let values = values.collect();
                let untouched = self.state.is_pool_untouched(claim, pool);
                let class = untouched.then(|| self.table.pools[pool].class);
                let max_taken = match (self.prepared.request.policy, ask.source.admin) {
                    (Policy::FewestPools, false) => self.state.max_affordable(pool, &rows),
                    (Policy::FewestPools, true) | (Policy::FirstFit, _) => rows.len(),
                };
                if ask.source.admin {
                    // The devices of a counted pool are indistinguishable: those that other claims
                    // have taken leave the free ones to the terms of this one.
                    rows.sort_by_key(|row| {
                        let at = &self.table.rows[*row];
                        (at.pool, at.device.is_none() && self.state.is_untouched(*row))
                    });
                }
                PoolRows { rows, max_taken, class, values }
            })
            .collect()
    }

    /// Searches a move of the highest score, then of the next, if scores matter.
    fn by_score(
        &mut self,
        chosen: &Move<'_>,
        mut look: impl FnMut(&mut Self) -> SearchResult,
    ) -> SearchResult {
        let (term, ask) = (chosen.term, chosen.ask);
        self.decided[term].level = None;
        let alike = ask.rules.is_empty() || ask.amounts.is_empty() || ask.source.admin;
        if alike || self.prepared.request.policy == Policy::FirstFit {
            return look(self);
        }
        let lost = 10 * self.decided[term].alternative;
        let best = 100_u32.saturating_sub(u32::try_from(lost).unwrap_or(u32::MAX)).max(1);
        let mut level = Some(best);
        while level.is_some() {
            self.decided[term].level = level;
            self.decided[term].next_level = None;
            if look(self)? {
                return Ok(true);
            }
            level = self.decided[term].next_level;
        }
        Ok(false)
    }

    /// Tries every set of so many pools.
    fn sets(&mut self, chosen: &Move<'_>, pools: usize) -> SearchResult {
        if let ([only], 1) = (chosen.lists.as_slice(), pools) {
            // There is one set: the same without the bookkeeping for sets.
            let mut values = only.values.iter();
            let enough =
                |values: &Vec<(u32, usize)>| values.iter().any(|(_, count)| *count >= chosen.count);
            if only.max_taken < chosen.count {
                return Ok(false);
            }
            self.step()?;
            return if values.all(enough) {
                self.share(chosen, &[0], &mut [0], 0, chosen.count)
            } else {
                Ok(false)
            };
        }
        let open = chosen.lists.first().map_or(0, |list| list.values.len());
        let mut search = PoolSetBuilder {
            pools,
            most: most_from(&chosen.lists, pools),
            set: Vec::with_capacity(pools),
            common: Vec::with_capacity(open),
        };
        self.extend_set(chosen, &mut search, 0, 0)
    }

    /// Adds pools from `from` on to a set whose pools have `available` rows.
    fn extend_set(
        &mut self,
        chosen: &Move<'_>,
        sets: &mut PoolSetBuilder,
        from: usize,
        available: usize,
    ) -> SearchResult {
        let lacking = sets.pools - sets.set.len();
        if lacking == 0 {
            let mut shares = vec![0; sets.pools];
            return self.share(chosen, &sets.set.clone(), &mut shares, 0, chosen.count);
        }
        let mut skipped: Vec<usize> = Vec::new();
        for at in from..=chosen.lists.len().saturating_sub(lacking) {
            if available + sets.most[at][lacking] < chosen.count {
                break;
            }
            self.step()?;
            let list = &chosen.lists[at];
            let here = available + list.max_taken;
            let rest = sets.most[at + 1][lacking - 1];
            if here + rest < chosen.count || list.class.is_some_and(|it| skipped.contains(&it)) {
                continue;
            }
            let common = sets.common.clone();
            if sets.join(list, chosen.count, rest) {
                sets.set.push(at);
                let found = self.extend_set(chosen, sets, at + 1, here)?;
                sets.set.pop();
                if found {
                    return Ok(true);
                }
            }
            sets.common = common;
            skipped.extend(list.class);
        }
        Ok(false)
    }

    /// Tries every way to take `left` rows from the pools of a set from `at` on, the most from the
    /// first.
    fn share(
        &mut self,
        chosen: &Move<'_>,
        set: &[usize],
        shares: &mut [usize],
        at: usize,
        left: usize,
    ) -> SearchResult {
        let Some(pool) = set.get(at) else {
            let mut skipped = vec![0; self.table.classes];
            return self.devices(
                chosen,
                set,
                shares,
                &mut skipped,
                Cursor { pool: 0, from: 0, taken: 0 },
            );
        };
        let later = set.len() - at - 1;
        let rest: usize = set[at + 1..].iter().map(|pool| chosen.lists[*pool].max_taken).sum();
        let most = chosen.lists[*pool].max_taken.min(left.saturating_sub(later));
        for share in (left.saturating_sub(rest).max(1)..=most).rev() {
            self.step()?;
            shares[at] = share;
            if self.share(chosen, set, shares, at + 1, left - share)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes rows of the pools of a set, earlier ones first, then draws from them.
    fn devices(
        &mut self,
        chosen: &Move<'_>,
        set: &[usize],
        shares: &[usize],
        skipped: &mut Vec<u32>,
        mut place: Cursor,
    ) -> SearchResult {
        while place.taken == shares[place.pool] {
            place = Cursor { pool: place.pool + 1, from: 0, taken: 0 };
            if place.pool == set.len() {
                return self.draw_all(chosen);
            }
        }
        let rows = &chosen.lists[set[place.pool]].rows;
        let lacking = shares[place.pool] - place.taken;
        let mut here: Vec<usize> = Vec::new();
        let mut from = place.from;
        let found = loop {
            if rows.len() - from < lacking {
                break false;
            }
            self.step()?;
            let row = rows[from];
            from += 1;
            let class = self.table.rows[row].class;
            let stands_for_class = self.state.is_untouched(row);
            let twin_before = match chosen.in_order() {
                true => here.contains(&class),
                false => skipped[class] > 0,
            };
            if stands_for_class && twin_before {
                continue;
            }
            let mark = self.state.mark();
            if self.state.take(chosen.term, chosen.ask, row)
                && self.may_succeed(chosen, set, shares, place, from)
            {
                let next = Cursor { from, taken: place.taken + 1, ..place };
                if self.devices(chosen, set, shares, skipped, next)? {
                    break true;
                }
            }
            self.state.undo_to(mark);
            if stands_for_class {
                skipped[class] += 1;
                here.push(class);
            }
        };
        for class in here {
            skipped[class] -= 1;
        }
        Ok(found)
    }

    /// Whether the rows taken so far can be part of a move that succeeds.
    fn may_succeed(
        &self,
        chosen: &Move<'_>,
        set: &[usize],
        shares: &[usize],
        place: Cursor,
        from: usize,
    ) -> bool {
        let (term, ask) = (chosen.term, chosen.ask);
        let taken = self.state.picks[term].len();
        let lacking = chosen.count - taken;
        if !chosen.supply.can_suffice(&self.state.picks[term].iter().map(|pick| pick.row), lacking)
        {
            return false;
        }
        // What the pool lacks of its share must still be affordable.
        if self.prepared.request.policy == Policy::FewestPools && !ask.source.admin {
            let rows = &chosen.lists[set[place.pool]].rows;
            let share = shares[place.pool] - place.taken - 1;
            let pool = self.table.rows[rows[0]].pool;
            if share > 0 && self.state.max_affordable(pool, &rows[from..]) < share {
                return false;
            }
        }
        // A match group has its value with the first device: enough others must have it too.
        let matches = || {
            let groups = ask.groups.iter().map(|group| (self.prepared.groups[*group], *group));
            groups.filter(|(group, _)| group.kind == GroupKind::Match)
        };
        if taken == 1 && matches().next().is_some() {
            let slots = self.prepared.slots.len();
            let fits = |row: usize| {
                matches().all(|(group, at)| {
                    let value = self.table.value(row, group.slot, slots);
                    self.state.groups[at].values.first() == Some(&value)
                })
            };
            for (at, pool) in set.iter().enumerate() {
                let rows = &chosen.lists[*pool].rows;
                let (rows, share) = match at == place.pool {
                    true => (&rows[from..], shares[at] - 1),
                    false => (&rows[..], shares[at]),
                };
                if rows.iter().filter(|row| fits(**row)).take(share).count() < share {
                    return false;
                }
            }
        }
        !chosen.contested || {
            let rest = set.iter().enumerate().flat_map(|(at, pool)| {
                let skip = match at.cmp(&place.pool) {
                    std::cmp::Ordering::Less => usize::MAX,
                    std::cmp::Ordering::Equal => from,
                    std::cmp::Ordering::Greater => 0,
                };
                chosen.lists[*pool].rows.iter().skip(skip).copied()
            });
            self.bounds.leaves_enough(&self.state, self.table, term, rest, lacking)
        }
    }
}

/// How far the choice of devices has come.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    /// The pool of the set.
    pool: usize,
    /// The next of its rows.
    from: usize,
    /// How many of its rows are taken.
    taken: usize,
}
