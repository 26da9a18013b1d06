//! Removes fields that a manager no longer applies.

use std::borrow::Cow;
use std::collections::BTreeMap;

use gantry_schema::Schema;
use serde_json::Value;

use super::Context;
use super::managed_fields::ManagedFieldsEntry;
use crate::set::FieldSet;
use crate::typed::{field_set, remove, with_named_fields};

/// The merged object without what the manager applied last time, does not apply now, and no other
/// manager owns.
///
/// Sets name fields in the version they were written in, so each is looked up in an object of that
/// version.
pub(super) fn prune(
    context: &Context<'_>,
    merged: Value,
    last: &ManagedFieldsEntry,
    own: &ManagedFieldsEntry,
    others: &[ManagedFieldsEntry],
) -> Value {
    let same_version = last.api_version == own.api_version;
    if last.fields.is_empty() || same_version && last.fields.difference(&own.fields).is_empty() {
        return merged;
    }
    let Some(start) = VersionedObject::of(context, &merged).into_version(&last.api_version) else {
        return merged;
    };
    let given_up = with_named_fields(start.schema, &last.fields);
    let bare = start.with(remove(start.schema, &start.object, &given_up));
    let kept = add_back_owned(&start, bare, own, others);
    // What was removed along with what was given up, but was never applied, comes back.
    let Some(kept) = kept.into_version(&last.api_version) else { return merged };
    let named = |object: &Value| with_named_fields(start.schema, &field_set(start.schema, object));
    let gone = named(&start.object).difference(&named(&kept.object)).intersection(&given_up);
    let pruned = start.with(remove(start.schema, &start.object, &gone));
    match pruned.into_version(context.api_version) {
        Some(pruned) => pruned.object.into_owned(),
        None => merged,
    }
}

/// Brings back what is owned by anyone, first in the version at hand: what another version needs
/// for the conversion may be among it.
fn add_back_owned<'a>(
    merged: &VersionedObject<'a>,
    bare: VersionedObject<'a>,
    own: &ManagedFieldsEntry,
    others: &[ManagedFieldsEntry],
) -> VersionedObject<'a> {
    let mut owned: BTreeMap<&str, FieldSet> = BTreeMap::new();
    for entry in others.iter().chain([own]) {
        let fields = owned.entry(&entry.api_version).or_default();
        *fields = fields.union(&entry.fields);
    }
    let here = owned.remove_entry(&*merged.version);
    let (mut merged, mut kept) = (merged.clone(), bare);
    for (version, owned) in here.into_iter().chain(owned) {
        let (Some(whole), Some(bare)) =
            (merged.clone().into_version(version), kept.clone().into_version(version))
        else {
            continue;
        };
        let schema = whole.schema;
        let named = |set: &FieldSet| with_named_fields(schema, set);
        let wanted = named(&field_set(schema, &bare.object)).union(&named(&owned));
        let gone = named(&field_set(schema, &whole.object)).difference(&wanted);
        kept = whole.with(remove(schema, &whole.object, &gone));
        merged = whole;
    }
    kept
}

/// An object in one of its versions.
#[derive(Clone)]
struct VersionedObject<'a> {
    context: &'a Context<'a>,
    version: Cow<'a, str>,
    schema: &'a Schema,
    object: Cow<'a, Value>,
}

impl<'a> VersionedObject<'a> {
    fn of(context: &'a Context<'a>, object: &'a Value) -> Self {
        Self {
            context,
            version: Cow::Borrowed(context.api_version),
            schema: context.schema,
            object: Cow::Borrowed(object),
        }
    }

    fn with(&self, object: Value) -> Self {
        Self { object: Cow::Owned(object), ..self.clone() }
    }

    /// The object in another version, if that is served.
    fn into_version(self, version: &str) -> Option<Self> {
        if self.version == version {
            return Some(self);
        }
        let schema = self.context.schema_of(version)?;
        let object = self.context.versions.convert(&self.object, version)?;
        Some(Self {
            version: Cow::Owned(version.to_owned()),
            schema,
            object: Cow::Owned(object),
            ..self
        })
    }
}
