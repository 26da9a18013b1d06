//! Ownership of writes other than apply: the manager owns what it writes.

use serde_json::Value;

use super::cap_managers::cap_update_managers;
use super::managed_fields::{ManagedFieldsEntry, ManagerIdentifier, Operation, is_reset};
use super::{Context, never_owned};
use crate::typed::{Comparison, TypedError, compare, reconcile};

/// Why ownership could not be worked out. The object is then left without entries: the original
/// server stores it so rather than refuse the write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("could not work out who owns the fields of the object")]
pub struct UpdateError {
    #[from]
    source: TypedError,
}

/// Gives the new object its entries, after a create, update or patch by the context's manager.
///
/// `live` is the stored object; for a create there is none. What the client sent as entries counts
/// only if it can be read: it then replaces the stored entries, and an empty list forgets them. An
/// object without entries stays so until it is applied to.
///
/// # Errors
/// If a changed part of either object is not of its type.
pub fn update(
    context: &Context<'_>,
    live: Option<&Value>,
    new: &mut Value,
) -> Result<(), UpdateError> {
    let none = Value::Null;
    let stored = live.map_or(&none, managed_fields_of);
    let sent = take_managed_fields(new);
    // Through a part of the object its entries cannot be set.
    let sent = if context.subresource.is_empty() { sent } else { Value::Null };
    let resets = is_reset(&sent);
    let keeps_stored = !resets && (sent.is_null() || sent == *stored);
    let creates =
        live.is_none_or(|live| live["metadata"]["uid"].as_str().is_none_or(str::is_empty));
    if keeps_stored && stored.as_array().is_none_or(Vec::is_empty) && !creates {
        return Ok(());
    }
    let live = live.unwrap_or(context.empty);
    let change = compare_ownable(context, live, new)?;
    if keeps_stored && change.is_empty() {
        set_managed_fields(new, (!stored.is_null()).then(|| stored.clone()));
        return Ok(());
    }
    let mut entries = if resets {
        Vec::new()
    } else {
        // What cannot be read is as if it had not been sent; if the stored entries cannot be read
        // either, tracking begins anew.
        let sent = ManagedFieldsEntry::read_all(&sent).unwrap_or_default();
        if sent.is_empty() {
            ManagedFieldsEntry::read_all(stored).unwrap_or_default()
        } else {
            sent
        }
    };
    if entries.is_empty() && !creates {
        return Ok(());
    }
    own_changes(context, live, new, change, &mut entries, context.manager())?;
    set_managed_fields(new, ManagedFieldsEntry::write_all(entries));
    Ok(())
}

/// What a write changed, as far as anybody can own it.
fn compare_ownable(
    context: &Context<'_>,
    live: &Value,
    new: &Value,
) -> Result<Comparison, TypedError> {
    let change = compare(context.schema, live, new)?.without(context.reset_fields);
    Ok(Comparison {
        added: change.added.difference(never_owned()),
        modified: change.modified.difference(never_owned()),
        removed: change.removed.difference(never_owned()),
    })
}

/// Gives what changed from `live` to `new` to a manager, in fresh entries.
pub(super) fn own_all_changes(
    context: &Context<'_>,
    live: &Value,
    new: &Value,
    manager: &str,
) -> Result<Vec<ManagedFieldsEntry>, TypedError> {
    let mut entries = Vec::new();
    let change = compare_ownable(context, live, new)?;
    own_changes(context, live, new, change, &mut entries, manager)?;
    Ok(entries)
}

/// Gives what changed to the manager and takes it from everybody else.
fn own_changes(
    context: &Context<'_>,
    live: &Value,
    new: &Value,
    change: Comparison,
    entries: &mut Vec<ManagedFieldsEntry>,
    manager: &str,
) -> Result<(), TypedError> {
    reconcile_entries(context, entries);
    let mut changes = VersionedChanges::new(context, live, new, change);
    let mut kept = Vec::with_capacity(entries.len() + 1);
    for mut entry in entries.drain(..) {
        let Some(change) = changes.in_version(&entry.api_version)? else { continue };
        let lost = change.added.union(&change.modified).union(&change.removed);
        if !lost.is_empty() {
            entry.fields = entry.fields.difference(&lost);
        }
        if !entry.fields.is_empty() {
            kept.push(entry);
        }
    }
    let gained = changes.own_version.added.union(&changes.own_version.modified);
    if !gained.is_empty() {
        let own = ManagerIdentifier {
            manager,
            operation: Operation::Update,
            api_version: context.api_version,
            subresource: context.subresource,
        };
        match kept.iter_mut().find(|entry| entry.identity() == own) {
            Some(entry) => {
                entry.fields = entry.fields.union(&gained);
                entry.time = Some(context.now.to_owned());
            }
            None => kept.push(ManagedFieldsEntry {
                manager: manager.to_owned(),
                operation: Operation::Update,
                api_version: context.api_version.to_owned(),
                time: Some(context.now.to_owned()),
                subresource: context.subresource.to_owned(),
                fields: gained,
            }),
        }
    }
    *entries = kept;
    cap_update_managers(entries);
    Ok(())
}

/// What changed, in every version that entries are in.
pub(super) struct VersionedChanges<'a> {
    context: &'a Context<'a>,
    live: &'a Value,
    new: &'a Value,
    pub(super) own_version: Comparison,
    other_versions: Vec<(String, Option<Comparison>)>,
}

impl<'a> VersionedChanges<'a> {
    pub(super) fn new(
        context: &'a Context<'a>,
        live: &'a Value,
        new: &'a Value,
        own: Comparison,
    ) -> Self {
        Self { context, live, new, own_version: own, other_versions: Vec::new() }
    }

    /// What changed in the words of a version; nothing if the version is no longer served.
    pub(super) fn in_version(&mut self, version: &str) -> Result<Option<&Comparison>, TypedError> {
        if version == self.context.api_version {
            return Ok(Some(&self.own_version));
        }
        let place = match self.other_versions.iter().position(|(known, _)| known == version) {
            Some(place) => place,
            None => {
                let change = self.compare_in(version)?;
                self.other_versions.push((version.to_owned(), change));
                self.other_versions.len() - 1
            }
        };
        Ok(self.other_versions[place].1.as_ref())
    }

    fn compare_in(&self, version: &str) -> Result<Option<Comparison>, TypedError> {
        let versions = self.context.versions;
        let Some(schema) = versions.schema(version) else { return Ok(None) };
        let (Some(live), Some(new)) =
            (versions.convert(self.live, version), versions.convert(self.new, version))
        else {
            return Ok(None);
        };
        Ok(Some(compare(schema, &live, &new)?.without(self.context.reset_fields)))
    }
}

/// Brings the entries up to the present schema, and drops those of versions that are gone.
pub(super) fn reconcile_entries(context: &Context<'_>, entries: &mut Vec<ManagedFieldsEntry>) {
    entries.retain_mut(|entry| {
        let Some(schema) = context.schema_of(&entry.api_version) else { return false };
        if let Some(fields) = reconcile(schema, &entry.fields) {
            entry.fields = fields;
        }
        true
    });
}

pub(super) fn managed_fields_of(object: &Value) -> &Value {
    &object["metadata"]["managedFields"]
}

/// Takes the entries out of an object.
fn take_managed_fields(object: &mut Value) -> Value {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    metadata.and_then(|metadata| metadata.shift_remove("managedFields")).unwrap_or_default()
}

/// Puts entries in place of the object's own.
pub(super) fn set_managed_fields(object: &mut Value, entries: Option<Value>) {
    let Value::Object(members) = object else { return };
    match (members.get_mut("metadata"), entries) {
        (Some(Value::Object(metadata)), Some(entries)) => {
            metadata.insert("managedFields".to_owned(), entries);
        }
        (Some(Value::Object(metadata)), None) => {
            metadata.shift_remove("managedFields");
        }
        (_, Some(entries)) => {
            members.insert("metadata".to_owned(), serde_json::json!({ "managedFields": entries }));
        }
        (_, None) => {}
    }
}

/// The object without entries.
pub(super) fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    take_managed_fields(&mut object);
    object
}
