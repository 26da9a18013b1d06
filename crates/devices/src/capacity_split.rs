//! Finds the capacity entries of a device that serve a request, in the order in which they are
//! tried.

use crate::prepare::AmountRequest;
use crate::problem::{CapacityPart, DeviceCapacity, Symbol, TopologyDomain};

/// Whether a device can serve a request by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sufficiency {
    Enough,
    Short,
}

/// How the ways to serve a request are searched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitOptions<'a> {
    /// Whether the device must serve the whole request.
    pub(crate) whole: bool,
    /// Whether few parts are better than early ones.
    pub(crate) few: bool,
    /// Kinds of topology domains in which all parts must agree, and the domains they are in
    /// already.
    pub(crate) required: &'a [(Symbol, Option<Symbol>)],
}

/// How many sets of entries are tried for one request on one device. Two dozen entries of one name
/// can be split in more ways than any search can try.
const MAX_CAPACITY_SETS: u32 = 1 << 14;

/// Whether the entries in their current state can serve the whole request. If that is unknown, they
/// may.
pub(crate) fn sufficiency(entries: &[DeviceCapacity], want: &AmountRequest<'_>) -> Sufficiency {
    let manner = SplitOptions { whole: true, few: false, required: &[] };
    let used = |at: usize| entries[at].used;
    match find_splits(entries, &used, want, want.amount, manner) {
        Some(ways) if ways.is_empty() => Sufficiency::Short,
        Some(_) | None => Sufficiency::Enough,
    }
}

/// Returns the ways to serve `amount` of a request, best first. With `manner.whole` each serves all
/// of it; else each gives as much as any way with the same required domains. `None` if there are
/// more sets of entries than are tried.
pub(crate) fn find_splits(
    entries: &[DeviceCapacity],
    used: &dyn Fn(usize) -> i128,
    want: &AmountRequest<'_>,
    amount: i128,
    manner: SplitOptions<'_>,
) -> Option<Vec<Vec<CapacityPart>>> {
    let of_name = |entry: &&(usize, &DeviceCapacity)| Some(entry.1.name) == want.name;
    let named: Vec<(usize, &DeviceCapacity)> =
        entries.iter().enumerate().filter(|e| of_name(&e)).collect();
    let (parts, found) = (Vec::new(), Vec::new());
    let mut finder = SplitFinder { named: &named, used, manner, parts, found, sets: 0 };
    if amount == 0 {
        for (at, entry) in &named {
            if finder.agrees(entry) {
                finder.found.push((vec![CapacityPart { capacity_index: *at, amount: 0 }], 0));
            }
        }
    } else {
        finder.find(0, amount)?;
    }
    let mut found = finder.found;
    if !manner.whole {
        let places = |parts: &[CapacityPart]| required_domains(entries, parts, manner.required);
        let left: Vec<_> = found.iter().map(|(parts, left)| (places(parts), *left)).collect();
        found.retain(|(parts, mine)| {
            let here = places(parts);
            left.iter().all(|(there, other)| *there != here || mine <= other)
        });
    }
    if manner.few {
        found.sort_by_key(|(parts, _)| parts.len());
    }
    Some(found.into_iter().map(|(parts, _)| parts).collect())
}

/// Returns the domains of parts, in each required kind.
fn required_domains(
    entries: &[DeviceCapacity],
    parts: &[CapacityPart],
    required: &[(Symbol, Option<Symbol>)],
) -> Vec<Option<Symbol>> {
    let of = |kind: Symbol| {
        let mut places = parts.iter().flat_map(|part| &entries[part.capacity_index].domains);
        places.find(|place| place.kind == kind).map(|place| place.name)
    };
    required.iter().map(|(kind, _)| of(*kind)).collect()
}

struct SplitFinder<'a> {
    named: &'a [(usize, &'a DeviceCapacity)],
    used: &'a dyn Fn(usize) -> i128,
    manner: SplitOptions<'a>,
    parts: Vec<CapacityPart>,
    /// Splits, and what they leave unserved.
    found: Vec<(Vec<CapacityPart>, i128)>,
    /// How many sets were tried.
    sets: u32,
}

impl SplitFinder<'_> {
    /// Adds entries from `from` on, earlier ones first, each giving all it can; `None` if there are
    /// too many sets.
    fn find(&mut self, from: usize, missing: i128) -> Option<()> {
        for at in from..self.named.len() {
            let (index, entry) = self.named[at];
            let joins = self.parts.is_empty() || entry.splits && self.all_split();
            if !joins || !self.agrees(entry) {
                continue;
            }
            let size = entry.granularity.size();
            let left = (entry.capacity - (self.used)(index)).max(0);
            let there = left - left % size;
            let wanted = round_up(missing, size);
            let given = wanted.min(there);
            if given == 0 {
                continue;
            }
            let rest = match self.manner.whole {
                true => wanted - given,
                false => (missing - given).max(0),
            };
            self.sets += 1;
            if self.sets > MAX_CAPACITY_SETS {
                return None;
            }
            self.parts.push(CapacityPart { capacity_index: index, amount: given });
            if rest == 0 {
                self.found.push((self.parts.clone(), 0));
            } else {
                if !self.manner.whole {
                    self.found.push((self.parts.clone(), rest));
                }
                self.find(at + 1, rest)?;
            }
            self.parts.pop();
        }
        Some(())
    }

    fn all_split(&self) -> bool {
        self.parts.iter().all(|part| {
            self.named.iter().any(|(index, entry)| *index == part.capacity_index && entry.splits)
        })
    }

    /// Whether an entry is in the required domains, and in those of the other parts.
    fn agrees(&self, entry: &DeviceCapacity) -> bool {
        let places = |kind: Symbol| move |place: &&TopologyDomain| place.kind == kind;
        self.manner.required.iter().all(|(kind, fixed)| {
            let Some(here) = entry.domains.iter().find(places(*kind)) else { return true };
            let mut others = self
                .parts
                .iter()
                .filter_map(|part| {
                    self.named.iter().find(|(index, _)| *index == part.capacity_index)
                })
                .flat_map(|(_, entry)| entry.domains.iter().filter(places(*kind)));
            fixed.is_none_or(|fixed| fixed == here.name)
                && others.all(|other| other.name == here.name)
        })
    }
}

pub(crate) fn round_up(amount: i128, size: i128) -> i128 {
    let over = amount % size;
    if over == 0 { amount } else { amount - over + size }
}
