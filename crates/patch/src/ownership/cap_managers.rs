//! Limits the number of entries.

use super::managed_fields::{ManagedFieldsEntry, ManagerIdentifier, Operation};

/// Entries by plain writes. Clients whose name changes with every release would otherwise fill the
/// object with entries.
const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager that inherits from the oldest ones.
const OLD_UPDATES_MANAGER: &str = "ancient-changes";

/// Merges the oldest entries by plain writes, version by version, until there are few enough.
pub(super) fn cap_update_managers(entries: &mut Vec<ManagedFieldsEntry>) {
    let count = entries.iter().filter(|entry| entry.operation == Operation::Update).count();
    if count <= MAX_UPDATE_MANAGERS {
        return;
    }
    let (mut updaters, mut kept): (Vec<ManagedFieldsEntry>, Vec<ManagedFieldsEntry>) =
        entries.drain(..).partition(|entry| entry.operation == Operation::Update);
    updaters.sort_by_cached_key(|entry| (entry.time.clone(), entry.identity().text()));
    let mut surplus = count - MAX_UPDATE_MANAGERS;
    // For each version the oldest entry so far, which takes in the next oldest.
    let mut oldest: Vec<ManagedFieldsEntry> = Vec::new();
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
        OLD_UPDATES_MANAGER.clone_into(&mut heir.manager);
        heir.subresource.clear();
        surplus -= 1;
    }
    kept.extend(oldest);
    *entries = merge_old_updates_entries(kept);
}

/// An heir of this write and one of an earlier write may meet.
fn merge_old_updates_entries(entries: Vec<ManagedFieldsEntry>) -> Vec<ManagedFieldsEntry> {
    let mut joined: Vec<ManagedFieldsEntry> = Vec::with_capacity(entries.len());
    for entry in entries {
        let heir = ManagerIdentifier { manager: OLD_UPDATES_MANAGER, ..entry.identity() };
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
