//! The state of the search: what the decisions so far have taken, with undo.

use gantry_api::devices::{AccessMode, Sharing, TopologyPolicy};

use crate::bit_set::BitSet;
use crate::capacity::allows_holder;
use crate::capacity_split::{self, SplitOptions};
use crate::prepare::{AmountRequest, GroupKind, Prepared, PreparedAlternative};
use crate::problem::{CapacityPart, Symbol, holders};
use crate::table::{NO_VALUE, Table};

/// A device that a term takes.
#[derive(Clone, Debug)]
pub(super) struct Pick {
    pub(super) row: usize,
    pub(super) mode: AccessMode,
    /// The parts that are taken, each with the request that it serves.
    pub(super) parts: Vec<(usize, CapacityPart)>,
}

/// Everything a decision changes. Changes are recorded on a trail, and undone from its end.
#[derive(Debug)]
pub(super) struct State<'a> {
    prepared: &'a Prepared<'a>,
    table: &'a Table<'a>,
    /// The holders of each row, old and new.
    sharing: Vec<Sharing>,
    /// How many new holds each row has.
    new_holds: Vec<u32>,
    /// Rows with new holds.
    pub(super) busy: BitSet,
    /// What is taken of each entry of each row, by old and new holds.
    used: Vec<i128>,
    /// What is left of each resource of each pool.
    pub(super) left: Vec<i128>,
    /// The rows of each claim.
    pub(super) of_claim: Vec<BitSet>,
    /// Those of them that it holds with administrator access.
    admin_of_claim: Vec<BitSet>,
    pub(super) groups: Vec<GroupMembers>,
    /// For each rule, the topology domains that parts are in.
    rules: Vec<Vec<Symbol>>,
    /// For each term, what its requests still lack, if its devices serve together.
    pub(super) missing: Vec<Vec<i128>>,
    /// For each term, what it takes.
    pub(super) picks: Vec<Vec<Pick>>,
    trail: Vec<StateChange>,
}

/// The members of a group.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupMembers {
    /// Their values, in the order in which they were added.
    pub(super) values: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
enum StateChange {
    Held { row: usize, mode: AccessMode },
    Claimed { claim: usize, row: usize, admin: bool },
    Joined { group: usize },
    Placed { rule: usize },
    Used { entry: usize, amount: i128 },
    Served { term: usize, want: usize, amount: i128 },
    Picked { term: usize },
    Drawn { term: usize, pick: usize },
}

impl<'a> State<'a> {
    pub(super) fn new(prepared: &'a Prepared<'a>, table: &'a Table<'a>) -> Self {
        let rows = table.rows.len();
        let alone = Sharing::default();
        let terms = prepared.terms.len();
        Self {
            prepared,
            table,
            sharing: table
                .rows
                .iter()
                .map(|row| row.device.map_or_else(|| alone.clone(), |d| d.sharing.clone()))
                .collect(),
            new_holds: vec![0; rows],
            busy: BitSet::below(rows),
            used: table
                .rows
                .iter()
                .filter_map(|row| row.device)
                .flat_map(|device| device.capacities.iter().map(|entry| entry.used))
                .collect(),
            left: table.left.clone(),
            of_claim: vec![BitSet::below(rows); prepared.request.claims.len()],
            admin_of_claim: vec![BitSet::below(rows); prepared.request.claims.len()],
            groups: vec![GroupMembers::default(); prepared.groups.len()],
            rules: vec![Vec::new(); prepared.rules.len()],
            missing: vec![Vec::new(); terms],
            picks: vec![Vec::new(); terms],
            // Taking a row records a handful of changes.
            trail: Vec::with_capacity(8 * terms),
        }
    }

    /// Returns a point to undo to.
    pub(super) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Undoes every change since the mark.
    pub(super) fn undo_to(&mut self, mark: usize) {
        while self.trail.len() > mark {
            let Some(change) = self.trail.pop() else { return };
            match change {
                StateChange::Held { row, mode } => self.release_row(row, mode),
                StateChange::Claimed { claim, row, admin } => {
                    self.of_claim[claim].remove(row);
                    if admin {
                        self.admin_of_claim[claim].remove(row);
                    }
                }
                StateChange::Joined { group } => {
                    self.groups[group].values.pop();
                }
                StateChange::Placed { rule } => {
                    self.rules[rule].pop();
                }
                StateChange::Used { entry, amount } => self.used[entry] -= amount,
                StateChange::Served { term, want, amount } => self.missing[term][want] += amount,
                StateChange::Picked { term } => {
                    self.picks[term].pop();
                }
                StateChange::Drawn { term, pick } => {
                    self.picks[term][pick].parts.pop();
                }
            }
        }
    }

    fn release_row(&mut self, row: usize, mode: AccessMode) {
        *holders(&mut self.sharing[row], mode) -= 1;
        self.new_holds[row] -= 1;
        if self.new_holds[row] == 0 {
            self.busy.remove(row);
            self.charge(row, 1);
        }
    }

    /// Charges what a row costs its pool, or refunds it. Returns whether the pool can afford it.
    fn charge(&mut self, row: usize, sign: i128) -> bool {
        let Some(device) = self.table.rows[row].device.filter(|device| device.holds == 0) else {
            return true;
        };
        let first = self.table.pools[self.table.rows[row].pool].resources;
        device.charges.iter().fold(true, |solvent, charge| {
            let left = &mut self.left[first + charge.resource];
            *left += sign * charge.amount;
            solvent && *left >= 0
        })
    }

    /// Returns what a row charges of one of its pool's resources, if it is not held yet.
    pub(super) fn cost(&self, row: usize, resource: usize) -> i128 {
        let device = self.table.rows[row].device.filter(|device| device.holds == 0);
        let device = device.filter(|_| self.new_holds[row] == 0);
        let charges = device.map_or(&[][..], |device| &device.charges);
        charges.iter().find(|charge| charge.resource == resource).map_or(0, |charge| charge.amount)
    }

    /// Whether a row can be taken in the current state. This is cheaper than an attempt.
    pub(super) fn can_take(&self, claim: usize, ask: &PreparedAlternative<'_>, row: usize) -> bool {
        // Terms of one claim share a device as those of different claims do; only holds with
        // administrator access are exclusive within a claim.
        let barred = match ask.source.admin {
            true => &self.of_claim[claim],
            false => &self.admin_of_claim[claim],
        };
        if barred.contains(row) {
            return false;
        }
        let slots = self.prepared.slots.len();
        let joins = ask.groups.iter().all(|at| {
            let group = self.prepared.groups[*at];
            let value = self.table.value(row, group.slot, slots);
            let members = &self.groups[*at].values;
            value != NO_VALUE
                && match group.kind {
                    GroupKind::Match => members.first().is_none_or(|first| *first == value),
                    GroupKind::Distinct => !members.contains(&value),
                }
        });
        if !joins || ask.source.admin {
            return joins;
        }
        if !allows_holder(&self.sharing[row], self.table.mode(row, ask)) {
            return false;
        }
        let Some(device) = self.table.rows[row].device else { return true };
        let first = self.table.pools[self.table.rows[row].pool].resources;
        let affordable = self.new_holds[row] > 0
            || device.holds > 0
            || device
                .charges
                .iter()
                .all(|charge| charge.amount <= self.left[first + charge.resource]);
        // A row that was not taken since is known to serve what it is a candidate for.
        let untouched = !ask.each || self.new_holds[row] == 0;
        affordable && (untouched || ask.amounts.iter().all(|want| self.may_serve(ask, row, want)))
    }

    /// Takes a row for a term. If that fails, the changes must still be undone.
    pub(super) fn take(&mut self, term: usize, ask: &PreparedAlternative<'_>, row: usize) -> bool {
        let claim = self.prepared.terms[term].claim;
        if !self.can_take(claim, ask, row) {
            return false;
        }
        // The first of its terms on this row is the last that leaves it.
        if !self.of_claim[claim].contains(row) {
            let admin = ask.source.admin;
            self.of_claim[claim].insert(row);
            if admin {
                self.admin_of_claim[claim].insert(row);
            }
            self.trail.push(StateChange::Claimed { claim, row, admin });
        }
        let slots = self.prepared.slots.len();
        for group in &ask.groups {
            let value = self.table.value(row, self.prepared.groups[*group].slot, slots);
            self.groups[*group].values.push(value);
            self.trail.push(StateChange::Joined { group: *group });
        }
        let mode = self.table.mode(row, ask);
        self.picks[term].push(Pick { row, mode, parts: Vec::new() });
        self.trail.push(StateChange::Picked { term });
        if ask.source.admin {
            return true;
        }
        *holders(&mut self.sharing[row], mode) += 1;
        self.new_holds[row] += 1;
        self.trail.push(StateChange::Held { row, mode });
        if self.new_holds[row] > 1 {
            return true;
        }
        self.busy.insert(row);
        self.charge(row, -1)
    }

    /// Whether rows of its class may stand for this one: nothing was taken of it.
    pub(super) fn is_untouched(&self, row: usize) -> bool {
        self.new_holds[row] == 0
    }

    fn may_serve(
        &self,
        ask: &PreparedAlternative<'_>,
        row: usize,
        want: &AmountRequest<'_>,
    ) -> bool {
        self.splits(ask, row, want, None).is_none_or(|ways| !ways.is_empty())
    }

    /// Returns the ways in which a row serves a request, best first; `None` if there are too many
    /// to consider. `missing` is what devices that serve together still lack.
    pub(super) fn splits(
        &self,
        ask: &PreparedAlternative<'_>,
        row: usize,
        want: &AmountRequest<'_>,
        missing: Option<i128>,
    ) -> Option<Vec<Vec<CapacityPart>>> {
        let Some(device) = self.table.rows[row].device else { return Some(Vec::new()) };
        let first = self.table.rows[row].entries;
        let required: Vec<_> = ask
            .rules
            .iter()
            .filter(|rule| self.prepared.rules[**rule].policy == TopologyPolicy::Require)
            .filter_map(|rule| {
                Some((self.prepared.rules[*rule].kind?, self.rules[*rule].first().copied()))
            })
            .collect();
        let manner = SplitOptions {
            whole: missing.is_none(),
            few: !ask.rules.is_empty(),
            required: &required,
        };
        let used = |entry: usize| self.used[first + entry];
        capacity_split::find_splits(
            &device.capacities,
            &used,
            want,
            missing.unwrap_or(want.amount),
            manner,
        )
    }

    /// Draws parts of a request from the last but `pick` row of a term.
    pub(super) fn draw(
        &mut self,
        term: usize,
        ask: &PreparedAlternative<'_>,
        pick: usize,
        want: usize,
        parts: &[CapacityPart],
    ) {
        let row = &self.table.rows[self.picks[term][pick].row];
        let Some(device) = row.device else { return };
        for part in parts {
            let entry = row.entries + part.capacity_index;
            self.used[entry] += part.amount;
            self.trail.push(StateChange::Used { entry, amount: part.amount });
            self.picks[term][pick].parts.push((want, *part));
            self.trail.push(StateChange::Drawn { term, pick });
            if !ask.each {
                self.missing[term][want] -= part.amount;
                self.trail.push(StateChange::Served { term, want, amount: part.amount });
            }
            for rule in &ask.rules {
                let kind = self.prepared.rules[*rule].kind;
                for place in &device.capacities[part.capacity_index].domains {
                    if Some(place.kind) == kind && !self.rules[*rule].contains(&place.name) {
                        self.rules[*rule].push(place.name);
                        self.trail.push(StateChange::Placed { rule: *rule });
                    }
                }
            }
        }
    }

    /// Returns the score of a term whose parts are all drawn.
    pub(super) fn score(
        &self,
        term: usize,
        alternative: usize,
        ask: &PreparedAlternative<'_>,
    ) -> u32 {
        let picks = &self.picks[term];
        let mut extra = 0;
        for pick in picks {
            let parts = pick.parts.iter().zip(pick.parts.iter().skip(1));
            extra += parts.filter(|((one, _), (next, _))| one == next).count();
        }
        let unmet = ask.rules.iter().filter(|rule| {
            let (kind, policy) = {
                let rule = self.prepared.rules[**rule];
                (rule.kind, rule.policy)
            };
            policy == TopologyPolicy::Prefer
                && self.rules[**rule].len() > 1
                && picks.iter().any(|pick| {
                    let device = self.table.rows[pick.row].device;
                    let entries = device.map_or(&[][..], |device| &device.capacities);
                    pick.parts.iter().any(|(_, part)| {
                        entries[part.capacity_index]
                            .domains
                            .iter()
                            .any(|place| Some(place.kind) == kind)
                    })
                })
        });
        let lost = 10 * alternative + 20 * unmet.count() + 5 * extra;
        100_u32.saturating_sub(u32::try_from(lost).unwrap_or(u32::MAX)).max(1)
    }

    /// Writes everything that the terms from `at` on depend on into a key.
    pub(super) fn describe(&self, prepared: &Prepared<'_>, at: usize, key: &mut Vec<u64>) {
        let number = |number: usize| number as u64;
        let wide = |key: &mut Vec<u64>, amount: i128| {
            key.extend(amount.to_le_bytes().chunks_exact(8).map(|bytes| {
                bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
            }));
        };
        key.push(number(at));
        for row in self.busy.iter() {
            let Sharing {
                read_only_shared,
                read_write_shared,
                write_exclusive,
                read_write_exclusive,
                ..
            } = &self.sharing[row];
            key.push(number(row));
            key.push(u64::from(*read_only_shared) << 32 | u64::from(*read_write_shared));
            key.push(u64::from(*write_exclusive) << 32 | u64::from(*read_write_exclusive));
            let (first, entries) = {
                let row = &self.table.rows[row];
                (row.entries, row.device.map_or(0, |device| device.capacities.len()))
            };
            for entry in first..first + entries {
                wide(key, self.used[entry]);
            }
        }
        key.push(u64::MAX);
        let term = &prepared.terms[at];
        if at > 0 && prepared.terms[at - 1].claim == term.claim {
            if prepared.has_admin_terms(term.claim) {
                key.extend(self.of_claim[term.claim].words());
                key.extend(self.admin_of_claim[term.claim].words());
            }
            for group in &term.claim_groups {
                let mut values = self.groups[*group].values.clone();
                values.sort_unstable();
                values.dedup();
                key.push(number(values.len()));
                key.extend(values.into_iter().map(u64::from));
            }
        }
        for rule in &term.outer_rules {
            if prepared.rules[*rule].policy == TopologyPolicy::Require {
                let place = self.rules[*rule].first();
                key.push(place.map_or(u64::MAX, |place| u64::from(place.number())));
            }
        }
    }
}

impl State<'_> {
    /// Returns the most that a row can give to a request in the current state.
    pub(super) fn gives(&self, row: usize, want: &AmountRequest<'_>) -> i128 {
        let row = &self.table.rows[row];
        let entries = row.device.map_or(&[][..], |device| &device.capacities);
        let named = entries.iter().enumerate().filter(|(_, entry)| Some(entry.name) == want.name);
        named.fold(0_i128, |sum, (at, entry)| {
            let left = (entry.capacity - self.used[row.entries + at]).max(0);
            sum.saturating_add(left - left % entry.granularity.size())
        })
    }

    /// Returns how many of the rows, all of one pool, are affordable: for each of the pool's
    /// resources, the cheapest of them.
    pub(super) fn max_affordable(&self, pool: usize, rows: &[usize]) -> usize {
        let begin = self.table.pools[pool].resources;
        let end = self.table.pools.get(pool + 1).map_or(self.left.len(), |next| next.resources);
        let counts = (begin..end).map(|at| {
            let mut costs: Vec<i128> = rows.iter().map(|row| self.cost(*row, at - begin)).collect();
            costs.sort_unstable();
            let mut left = self.left[at];
            let paid = costs.iter().take_while(|cost| {
                left -= **cost;
                left >= 0
            });
            paid.count()
        });
        counts.min().unwrap_or(rows.len())
    }

    /// Whether nothing was taken from a pool that matters to this claim.
    pub(super) fn is_pool_untouched(&self, claim: usize, pool: usize) -> bool {
        let mut taken = self.busy.iter().chain(self.of_claim[claim].iter());
        !taken.any(|row| self.table.rows[row].pool == pool)
    }
}
