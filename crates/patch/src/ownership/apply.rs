//! Server-side apply.

use serde_json::Value;

use super::conflict::Conflicts;
use super::managed_fields::{ManagedFieldsEntry, ManagedFieldsError, Operation};
use super::prune::prune;
use super::update::{
    VersionedChanges, managed_fields_of, own_all_changes, reconcile_entries, set_managed_fields,
    without_managed_fields,
};
use super::{Context, last_applied, never_owned};
use crate::path::is_same_value;
use crate::typed::{self, Duplicates, TypedError, compare, field_set, validate};

/// The manager of what was there before the first apply to an object without entries.
const BEFORE_FIRST_APPLY_MANAGER: &str = "before-first-apply";

/// Why an object was not applied, by the response the client gets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The config carries entries of its own: 400.
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
    /// Others own what would change: 409.
    #[error(transparent)]
    Conflict(#[from] Conflicts),
    /// An object is not of its type: 500 with this text.
    #[error("{0}")]
    Typed(String),
    /// The entries of the stored object cannot be read: 500.
    #[error("failed to decode managed fields: {0}")]
    Entries(#[from] ManagedFieldsError),
}

/// The object after the context's manager applied `config` to it, with its entries.
///
/// Where there is no stored object, the result is a new one. Nulls of the config stay in the
/// result, and so do nulls in place of what was emptied: decoding and defaulting take them out.
/// Afterwards [`is_unchanged`](super::is_unchanged) tells whether there is anything to store.
///
/// # Errors
/// If the config is not of its type, or would change what others own and is not forced.
pub fn apply(
    context: &Context<'_>,
    live: Option<&Value>,
    config: &Value,
    force: bool,
) -> Result<Value, ApplyError> {
    if !managed_fields_of(config).is_null() {
        return Err(ApplyError::ManagedFields);
    }
    let mut entries = ManagedFieldsEntry::read_all(live.map_or(&Value::Null, managed_fields_of))?;
    let live = without_managed_fields(live.unwrap_or(context.empty));
    if entries.is_empty() {
        let all = own_all_changes(context, context.empty, &live, BEFORE_FIRST_APPLY_MANAGER);
        entries = all.map_err(|fault| {
            ApplyError::Typed(format!("failed to create manager for existing fields: {fault}"))
        })?;
    }
    let step = ApplyAttempt { context, live: &live, config };
    let applied = match step.apply(entries.clone(), force) {
        Err(ApplyError::Conflict(conflicts)) if context.manager == last_applied::MANAGER => {
            // Who moves from client-side to server-side apply owns what it last applied there.
            match last_applied::client_applied_fields(context, &live) {
                Some(owned) => {
                    let conflicts = conflicts.without(&owned);
                    if !conflicts.is_empty() {
                        return Err(conflicts.into());
                    }
                    step.apply(entries, true)?
                }
                None => return Err(conflicts.into()),
            }
        }
        other => other?,
    };
    let mut object = applied.object.unwrap_or(live);
    if context.manager == last_applied::MANAGER {
        last_applied::update_annotation(&mut object, config);
    }
    set_managed_fields(&mut object, ManagedFieldsEntry::write_all(applied.entries));
    Ok(object)
}

/// One attempt to apply.
struct ApplyAttempt<'a> {
    context: &'a Context<'a>,
    live: &'a Value,
    config: &'a Value,
}

struct ApplyResult {
    /// The new object, if it differs from the stored one.
    object: Option<Value>,
    entries: Vec<ManagedFieldsEntry>,
}

impl ApplyAttempt<'_> {
    fn apply(
        &self,
        mut entries: Vec<ManagedFieldsEntry>,
        force: bool,
    ) -> Result<ApplyResult, ApplyError> {
        let Self { context, live, config } = *self;
        let schema = context.schema;
        validate(schema, config, Duplicates::Refused)
            .map_err(|fault| typed_error("failed to create typed patch object", config, &fault))?;
        validate(schema, live, Duplicates::Allowed)
            .map_err(|fault| typed_error("failed to create typed live object", live, &fault))?;
        reconcile_entries(context, &mut entries);

        let merged = typed::merge(schema, live, config)
            .map_err(|fault| ApplyError::Typed(format!("failed to merge config: {fault}")))?;
        let fields = field_set(schema, config).recursive_difference(context.reset_fields);
        let own = ManagedFieldsEntry {
            manager: context.manager().to_owned(),
            operation: Operation::Apply,
            api_version: context.api_version.to_owned(),
            time: None,
            subresource: context.subresource.to_owned(),
            fields,
        };
        let last = entries
            .iter()
            .position(|entry| entry.identity() == own.identity())
            .map(|place| entries.remove(place));
        let time = last.as_ref().and_then(|last| last.time.clone());
        let new = match &last {
            Some(last) => prune(context, merged, last, &own, &entries),
            None => merged,
        };
        let own = ManagedFieldsEntry { time, ..own };
        let mut entries = self.take_ownership(entries, &new, force)?;

        let changed = !is_same_value(live, &new);
        let fields = own.fields.difference(never_owned());
        if !fields.is_empty() {
            // Who joins in owning what is already there changed nothing, at no time.
            let time = if changed { Some(context.now.to_owned()) } else { own.time };
            entries.push(ManagedFieldsEntry { fields, time, ..own });
        }
        Ok(ApplyResult { object: changed.then_some(new), entries })
    }

    /// Takes the changed fields from their owners, or returns the conflicts.
    fn take_ownership(
        &self,
        entries: Vec<ManagedFieldsEntry>,
        new: &Value,
        force: bool,
    ) -> Result<Vec<ManagedFieldsEntry>, ApplyError> {
        let Self { context, live, .. } = *self;
        let failed =
            |fault: TypedError| ApplyError::Typed(format!("failed to compare objects: {fault}"));
        let change =
            compare(context.schema, live, new).map_err(failed)?.without(context.reset_fields);
        let mut changes = VersionedChanges::new(context, live, new, change);
        let mut conflicts = Conflicts::default();
        let mut kept = Vec::with_capacity(entries.len() + 1);
        for mut entry in entries {
            let Some(change) = changes.in_version(&entry.api_version).map_err(failed)? else {
                continue;
            };
            let taken = entry.fields.intersection(&change.added.union(&change.modified));
            if !taken.is_empty() {
                conflicts.add(&entry, &taken);
                entry.fields = entry.fields.difference(&taken);
            }
            entry.fields = entry.fields.difference(&change.removed);
            if !entry.fields.is_empty() {
                kept.push(entry);
            }
        }
        if !force && !conflicts.is_empty() {
            return Err(conflicts.into());
        }
        Ok(kept)
    }
}

/// A fault of an object, with what the original server says about the object.
fn typed_error(failed: &str, object: &Value, fault: &TypedError) -> ApplyError {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let version = if version.contains('/') { version } else { format!("/{version}") };
    let namespace = text(&object["metadata"]["namespace"]);
    let name = text(&object["metadata"]["name"]);
    let kind = text(&object["kind"]);
    ApplyError::Typed(format!("{failed} ({namespace}/{name}; {version}, Kind={kind}): {fault}"))
}
