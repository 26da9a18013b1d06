//! Keeping the number of entries in bounds.

use super::entries::{Entry, Identity, Operation};

/// Entries by plain writes. Clients whose name changes with every release would otherwise fill the
/// object with entries.
const MOST_UPDATERS: usize = 10;

/// The manager that inherits from the oldest ones.
const HEIR: &str = "ancient-changes";

/// Merges the oldest entries by plain writes, version by version, until there are few enough.
pub(super) fn limit_updaters(entries: &mut Vec<Entry>) {
    let count = entries.iter().filter(|entry| entry.operation == Operation::Update).count();
    if count <= MOST_UPDATERS {
        return;
    }
    let (mut updaters, mut kept): (Vec<Entry>, Vec<Entry>) =
        entries.drain(..).partition(|entry| entry.operation == Operation::Update);
    updaters.sort_by_cached_key(|entry| (entry.time.clone(), entry.identity().text()));
    let mut surplus = count - MOST_UPDATERS;
    // For each version the oldest entry so far, which takes in the next oldest.
    let mut oldest: Vec<Entry> = Vec::new();
    for entry in updaters {
        if surplus == 0 {
            kept.push(entry);
            continue;
        }
        let Some(heir) = oldest.iter_mut().find(|heir| heir.api_version == entry.api_version)
        else {
            oldest.push(entry);
            continue;
        };
        heir.fields = heir.fields.union(&entry.fields);
        heir.time = entry.time;
        HEIR.clone_into(&mut heir.manager);
        heir.subresource.clear();
        surplus -= 1;
    }
    kept.extend(oldest);
    *entries = join_heirs(kept);
}

/// An heir of this write and one of an earlier write may meet.
fn join_heirs(entries: Vec<Entry>) -> Vec<Entry> {
    let mut joined: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries {
        let heir = Identity { manager: HEIR, ..entry.identity() };
        let known = joined.iter_mut().find(|known| known.identity() == heir);
        match known {
            Some(known) if entry.identity() == heir => {
                known.fields = known.fields.union(&entry.fields);
                known.time = known.time.take().max(entry.time);
            }
            Some(_) | None => joined.push(entry),
        }
    }
    joined
}
