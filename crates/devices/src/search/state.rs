//! What the decisions so far have taken, and how it is given back.

use gantry_api::devices::{AccessMode, Sharing, TopologyPolicy};

use crate::bits::Bits;
use crate::capacity::bears;
use crate::parts::{self, Manner};
use crate::prepare::{Ask, GroupKind, Prepared, Want};
use crate::problem::{Part, Symbol, holders};
use crate::table::{NO_VALUE, Table};

/// A device that a term takes.
#[derive(Clone, Debug)]
pub(super) struct Pick {
    pub(super) row: usize,
    pub(super) mode: AccessMode,
    /// What is taken, each with the request that it serves.
    pub(super) parts: Vec<(usize, Part)>,
}

/// Everything a decision changes. Changes are written on a trail, and taken back from its end.
#[derive(Debug)]
pub(super) struct State<'a> {
    prepared: &'a Prepared<'a>,
    table: &'a Table<'a>,
    /// Who holds each row, of old and of late.
    sharing: Vec<Sharing>,
    /// How many new holds each row has.
    fresh: Vec<u32>,
    /// Rows with new holds.
    pub(super) busy: Bits,
    /// What is taken of each entry of each row, of old and of late.
    used: Vec<i128>,
    /// What is left of each resource of each pool.
    pub(super) left: Vec<i128>,
    /// The rows of each claim.
    pub(super) of_claim: Vec<Bits>,
    /// Those of them that it holds as an administrator.
    admin_of_claim: Vec<Bits>,
    pub(super) groups: Vec<Members>,
    /// For each rule, the places that parts are in.
    rules: Vec<Vec<Symbol>>,
    /// For each term, what its requests still lack, if its devices serve together.
    pub(super) missing: Vec<Vec<i128>>,
    /// For each term, what it takes.
    pub(super) picks: Vec<Vec<Pick>>,
    trail: Vec<Change>,
}

/// The members of a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    /// Their values, in the order in which they came.
    pub(super) values: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Change {
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
            fresh: vec![0; rows],
            busy: Bits::below(rows),
            used: table
                .rows
                .iter()
                .filter_map(|row| row.device)
                .flat_map(|device| device.entries.iter().map(|entry| entry.used))
                .collect(),
            left: table.left.clone(),
            of_claim: vec![Bits::below(rows); prepared.request.claims.len()],
            admin_of_claim: vec![Bits::below(rows); prepared.request.claims.len()],
            groups: vec![Members::default(); prepared.groups.len()],
            rules: vec![Vec::new(); prepared.rules.len()],
            missing: vec![Vec::new(); terms],
            picks: vec![Vec::new(); terms],
            // A row that is taken is a handful of changes.
            trail: Vec::with_capacity(8 * terms),
        }
    }

    /// A point to come back to.
    pub(super) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Takes back every change since.
    pub(super) fn back_to(&mut self, mark: usize) {
        while self.trail.len() > mark {
            let Some(change) = self.trail.pop() else { return };
            match change {
                Change::Held { row, mode } => self.let_go(row, mode),
                Change::Claimed { claim, row, admin } => {
                    self.of_claim[claim].remove(row);
                    if admin {
                        self.admin_of_claim[claim].remove(row);
                    }
                }
                Change::Joined { group } => {
                    self.groups[group].values.pop();
                }
                Change::Placed { rule } => {
                    self.rules[rule].pop();
                }
                Change::Used { entry, amount } => self.used[entry] -= amount,
                Change::Served { term, want, amount } => self.missing[term][want] += amount,
                Change::Picked { term } => {
                    self.picks[term].pop();
                }
                Change::Drawn { term, pick } => {
                    self.picks[term][pick].parts.pop();
                }
            }
        }
    }

    fn let_go(&mut self, row: usize, mode: AccessMode) {
        *holders(&mut self.sharing[row], mode) -= 1;
        self.fresh[row] -= 1;
        if self.fresh[row] == 0 {
            self.busy.remove(row);
            self.charge(row, 1);
        }
    }

    /// Takes what a row costs its pool, or gives it back; whether that leaves no debt.
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

    /// What a row takes of one of its pool's resources, if it is not held yet.
    pub(super) fn cost(&self, row: usize, resource: usize) -> i128 {
        let device = self.table.rows[row].device.filter(|device| device.holds == 0);
        let device = device.filter(|_| self.fresh[row] == 0);
        let charges = device.map_or(&[][..], |device| &device.charges);
        charges.iter().find(|charge| charge.resource == resource).map_or(0, |charge| charge.amount)
    }

    /// Whether a row can be taken as things are. Cheaper than to try.
    pub(super) fn takeable(&self, claim: usize, ask: &Ask<'_>, row: usize) -> bool {
        // Terms of one claim share a device as those of different claims do; only what is held regardless
        // of others is held once.
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
        if !bears(&self.sharing[row], self.table.mode(row, ask)) {
            return false;
        }
        let Some(device) = self.table.rows[row].device else { return true };
        let first = self.table.pools[self.table.rows[row].pool].resources;
        let affordable = self.fresh[row] > 0
            || device.holds > 0
            || device
                .charges
                .iter()
                .all(|charge| charge.amount <= self.left[first + charge.resource]);
        // A row that nobody took since is known to serve what it is a candidate for.
        let untouched = !ask.each || self.fresh[row] == 0;
        affordable && (untouched || ask.wants.iter().all(|want| self.may_serve(ask, row, want)))
    }

    /// Takes a row for a term. If it cannot, what it changed is still to be taken back.
    pub(super) fn take(&mut self, term: usize, ask: &Ask<'_>, row: usize) -> bool {
        let claim = self.prepared.terms[term].claim;
        if !self.takeable(claim, ask, row) {
            return false;
        }
        // The first of its terms on this row is the last that leaves it.
        if !self.of_claim[claim].contains(row) {
            let admin = ask.source.admin;
            self.of_claim[claim].insert(row);
            if admin {
                self.admin_of_claim[claim].insert(row);
            }
            self.trail.push(Change::Claimed { claim, row, admin });
        }
        let slots = self.prepared.slots.len();
        for group in &ask.groups {
            let value = self.table.value(row, self.prepared.groups[*group].slot, slots);
            self.groups[*group].values.push(value);
            self.trail.push(Change::Joined { group: *group });
        }
        let mode = self.table.mode(row, ask);
        self.picks[term].push(Pick { row, mode, parts: Vec::new() });
        self.trail.push(Change::Picked { term });
        if ask.source.admin {
            return true;
        }
        *holders(&mut self.sharing[row], mode) += 1;
        self.fresh[row] += 1;
        self.trail.push(Change::Held { row, mode });
        if self.fresh[row] > 1 {
            return true;
        }
        self.busy.insert(row);
        self.charge(row, -1)
    }

    /// Whether rows of its class may stand for this one: nothing was taken of it.
    pub(super) fn untouched(&self, row: usize) -> bool {
        self.fresh[row] == 0
    }

    fn may_serve(&self, ask: &Ask<'_>, row: usize, want: &Want<'_>) -> bool {
        self.ways(ask, row, want, None).is_none_or(|ways| !ways.is_empty())
    }

    /// The ways in which a row serves a request, best first; none if there are too many to look at.
    /// `missing` is what devices that serve together still lack.
    pub(super) fn ways(
        &self,
        ask: &Ask<'_>,
        row: usize,
        want: &Want<'_>,
        missing: Option<i128>,
    ) -> Option<Vec<Vec<Part>>> {
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
        let manner =
            Manner { whole: missing.is_none(), few: !ask.rules.is_empty(), required: &required };
        let used = |entry: usize| self.used[first + entry];
        parts::serve(&device.entries, &used, want, missing.unwrap_or(want.amount), manner)
    }

    /// Draws parts of a request from the last but `pick` row of a term.
    pub(super) fn draw(
        &mut self,
        term: usize,
        ask: &Ask<'_>,
        pick: usize,
        want: usize,
        parts: &[Part],
    ) {
        let row = &self.table.rows[self.picks[term][pick].row];
        let Some(device) = row.device else { return };
        for part in parts {
            let entry = row.entries + part.entry;
            self.used[entry] += part.amount;
            self.trail.push(Change::Used { entry, amount: part.amount });
            self.picks[term][pick].parts.push((want, *part));
            self.trail.push(Change::Drawn { term, pick });
            if !ask.each {
                self.missing[term][want] -= part.amount;
                self.trail.push(Change::Served { term, want, amount: part.amount });
            }
            for rule in &ask.rules {
                let kind = self.prepared.rules[*rule].kind;
                for place in &device.entries[part.entry].places {
                    if Some(place.kind) == kind && !self.rules[*rule].contains(&place.name) {
                        self.rules[*rule].push(place.name);
                        self.trail.push(Change::Placed { rule: *rule });
                    }
                }
            }
        }
    }

    /// The score of a term whose parts are all drawn.
    pub(super) fn score(&self, term: usize, alternative: usize, ask: &Ask<'_>) -> u32 {
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
                    let entries = device.map_or(&[][..], |device| &device.entries);
                    pick.parts.iter().any(|(_, part)| {
                        entries[part.entry].places.iter().any(|place| Some(place.kind) == kind)
                    })
                })
        });
        let lost = 10 * alternative + 20 * unmet.count() + 5 * extra;
        100_u32.saturating_sub(u32::try_from(lost).unwrap_or(u32::MAX)).max(1)
    }

    /// Writes down all that the terms from `at` on depend on.
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
                (row.entries, row.device.map_or(0, |device| device.entries.len()))
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
    /// The most that a row can give to a request, as things are.
    pub(super) fn gives(&self, row: usize, want: &Want<'_>) -> i128 {
        let row = &self.table.rows[row];
        let entries = row.device.map_or(&[][..], |device| &device.entries);
        let named = entries.iter().enumerate().filter(|(_, entry)| Some(entry.name) == want.name);
        named.fold(0_i128, |sum, (at, entry)| {
            let left = (entry.capacity - self.used[row.entries + at]).max(0);
            sum.saturating_add(left - left % entry.grain.size())
        })
    }

    /// How many of the rows, all of one pool, can be paid for: for each of the pool's resources, the
    /// cheapest of them.
    pub(super) fn affordable(&self, pool: usize, rows: &[usize]) -> usize {
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

    /// Whether nothing was taken from a pool that this claim would notice.
    pub(super) fn pool_untouched(&self, claim: usize, pool: usize) -> bool {
        let mut taken = self.busy.iter().chain(self.of_claim[claim].iter());
        !taken.any(|row| self.table.rows[row].pool == pool)
    }
}
