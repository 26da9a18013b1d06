//! Which entries of a device serve a request, and in which order the ways are tried.

use crate::prepare::Want;
use crate::problem::{Entry, Part, Place, Symbol};

/// Whether a device can serve a request by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scarcity {
    Enough,
    Short,
}

/// How the ways to serve a request are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner<'a> {
    /// Whether the device has to serve the whole request.
    pub(crate) whole: bool,
    /// Whether few parts are better than early ones.
    pub(crate) few: bool,
    /// Kinds of places in which all parts have to agree, and where they already are.
    pub(crate) required: &'a [(Symbol, Option<Symbol>)],
}

/// How many sets of entries are looked at for one request on one device. Two dozen entries of one
/// name can be split in more ways than a search lives for.
const MOST_SETS: u32 = 1 << 14;

/// Whether the entries as they are can serve the whole request. If nobody knows, they may.
pub(crate) fn scarcity(entries: &[Entry], want: &Want<'_>) -> Scarcity {
    let manner = Manner { whole: true, few: false, required: &[] };
    let used = |at: usize| entries[at].used;
    match serve(entries, &used, want, want.amount, manner) {
        Some(ways) if ways.is_empty() => Scarcity::Short,
        Some(_) | None => Scarcity::Enough,
    }
}

/// The ways to serve `amount` of what a request wants, best first. With `manner.whole` each serves
/// all of it; else each gives as much as any way with the same required places. None if there are
/// more sets of entries than are looked at.
pub(crate) fn serve(
    entries: &[Entry],
    used: &dyn Fn(usize) -> i128,
    want: &Want<'_>,
    amount: i128,
    manner: Manner<'_>,
) -> Option<Vec<Vec<Part>>> {
    let of_name = |entry: &&(usize, &Entry)| Some(entry.1.name) == want.name;
    let named: Vec<(usize, &Entry)> = entries.iter().enumerate().filter(|e| of_name(&e)).collect();
    let (parts, found) = (Vec::new(), Vec::new());
    let mut finder = Finder { named: &named, used, manner, parts, found, sets: 0 };
    if amount == 0 {
        for (at, entry) in &named {
            if finder.agrees(entry) {
                finder.found.push((vec![Part { entry: *at, amount: 0 }], 0));
            }
        }
    } else {
        finder.find(0, amount)?;
    }
    let mut found = finder.found;
    if !manner.whole {
        let places = |parts: &[Part]| required_places(entries, parts, manner.required);
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

/// Where parts are, in each required kind of place.
fn required_places(
    entries: &[Entry],
    parts: &[Part],
    required: &[(Symbol, Option<Symbol>)],
) -> Vec<Option<Symbol>> {
    let of = |kind: Symbol| {
        let mut places = parts.iter().flat_map(|part| &entries[part.entry].places);
        places.find(|place| place.kind == kind).map(|place| place.name)
    };
    required.iter().map(|(kind, _)| of(*kind)).collect()
}

struct Finder<'a> {
    named: &'a [(usize, &'a Entry)],
    used: &'a dyn Fn(usize) -> i128,
    manner: Manner<'a>,
    parts: Vec<Part>,
    /// Ways, and what they leave unserved.
    found: Vec<(Vec<Part>, i128)>,
    /// How many sets were looked at.
    sets: u32,
}

impl Finder<'_> {
    /// Adds entries from `from` on, earlier ones first, each giving all it can; none if there are
    /// too many sets.
    fn find(&mut self, from: usize, missing: i128) -> Option<()> {
        for at in from..self.named.len() {
            let (index, entry) = self.named[at];
            let joins = self.parts.is_empty() || entry.splits && self.all_split();
            if !joins || !self.agrees(entry) {
                continue;
            }
            let size = entry.grain.size();
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
            if self.sets > MOST_SETS {
                return None;
            }
            self.parts.push(Part { entry: index, amount: given });
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
            self.named.iter().any(|(index, entry)| *index == part.entry && entry.splits)
        })
    }

    /// Whether an entry is where required places are, and where the other parts are.
    fn agrees(&self, entry: &Entry) -> bool {
        let places = |kind: Symbol| move |place: &&Place| place.kind == kind;
        self.manner.required.iter().all(|(kind, fixed)| {
            let Some(here) = entry.places.iter().find(places(*kind)) else { return true };
            let mut others = self
                .parts
                .iter()
                .filter_map(|part| self.named.iter().find(|(index, _)| *index == part.entry))
                .flat_map(|(_, entry)| entry.places.iter().filter(places(*kind)));
            fixed.is_none_or(|fixed| fixed == here.name)
                && others.all(|other| other.name == here.name)
        })
    }
}

pub(crate) fn round_up(amount: i128, size: i128) -> i128 {
    let over = amount % size;
    if over == 0 { amount } else { amount - over + size }
}
