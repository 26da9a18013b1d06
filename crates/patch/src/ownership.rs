//! Field ownership: `metadata.managedFields` and server-side apply.
//!
//! Every write names a manager. [`update()`] makes the manager the owner of what it changed, in
//! place of all others; [`apply()`] makes it an owner of what its configuration contains, removes
//! what it no longer contains and no other manager owns, and refuses to change what others own
//! unless it is forced.

mod apply;
mod cap_managers;
mod conflict;
mod last_applied;
mod managed_fields;
mod prune;
pub mod scale;
mod update;

use std::sync::LazyLock;

use gantry_schema::Schema;
use serde_json::Value;

pub use apply::{ApplyError, apply};
pub use conflict::{Conflict, Conflicts};
pub use managed_fields::{ManagedFieldsEntry, ManagedFieldsError, Operation, check_managed_fields};
pub use update::{UpdateError, update};

use crate::path::Path;
use crate::set::FieldSet;

/// What a warning says when admission left entries that cannot be read; the entries from before are
/// then kept. The reason follows.
pub const INVALID_AFTER_ADMISSION: &str = ".metadata.managedFields was in an invalid state after \
    admission; this could be caused by an outdated mutating admission controller; please fix your \
    requests: ";

/// What a write is about, apart from the objects.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The type of the objects, in the version of the request.
    pub schema: &'a Schema,
    /// The version of the request, in which all objects are handed in.
    pub api_version: &'a str,
    /// Who writes: the `fieldManager` parameter or the name of the client. Empty is `unknown`.
    pub manager: &'a str,
    /// The part of the object that is written, or nothing for the object itself.
    pub subresource: &'a str,
    /// The time of the write, as in `2006-01-02T15:04:05Z`.
    pub now: &'a str,
    /// What a write to this endpoint does not change: `status` on the object itself, for example.
    pub reset_fields: &'a FieldSet,
    /// What an object of this kind has before anything is set.
    ///
    /// Custom objects have their `apiVersion` and `kind`. Built-in ones also have every field that
    /// is written even when it is empty (`spec: {}`, `containers: null`): creating an object does
    /// not make anyone the owner of these, only of what is inside.
    pub empty: &'a Value,
    /// The other versions of the kind.
    pub versions: &'a dyn VersionConverter,
}

/// The versions of a kind other than the one of the request.
///
/// Entries are kept in the version they were written in. Where a version is no longer served, its
/// entries go away.
pub trait VersionConverter {
    /// The type of the objects in `api_version`, if it is served.
    fn schema(&self, api_version: &str) -> Option<&Schema>;
    /// The object in `api_version`, if it is served.
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value>;
}

/// A kind that has one version only.
#[derive(Debug, Clone, Copy, Default)]
pub struct SingleVersion;

impl VersionConverter for SingleVersion {
    fn schema(&self, _api_version: &str) -> Option<&Schema> {
        None
    }

    fn convert(&self, _object: &Value, _api_version: &str) -> Option<Value> {
        None
    }
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("api_version", &self.api_version)
            .field("manager", &self.manager)
            .field("subresource", &self.subresource)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

impl<'a> Context<'a> {
    fn manager(&self) -> &'a str {
        if self.manager.is_empty() { "unknown" } else { self.manager }
    }

    fn schema_of(&self, api_version: &str) -> Option<&'a Schema> {
        if api_version == self.api_version {
            return Some(self.schema);
        }
        self.versions.schema(api_version)
    }
}

/// Whether two objects are the same but for the times of their entries: then there is nothing to
/// store, and the old object is the answer. Revisions are not looked at, they were checked before.
#[must_use]
pub fn is_unchanged(old: &Value, new: &Value) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return old == new };
    old.len() == new.len()
        && old.iter().all(|(name, old)| {
            new.get(name).is_some_and(|new| match name.as_str() {
                "metadata" => is_metadata_unchanged(old, new),
                _ => old == new,
            })
        })
}

fn is_metadata_unchanged(old: &Value, new: &Value) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return old == new };
    let kept = |name: &&String| *name != "resourceVersion";
    old.keys().filter(kept).count() == new.keys().filter(kept).count()
        && old.iter().filter(|(name, _)| kept(name)).all(|(name, old)| {
            new.get(name).is_some_and(|new| match name.as_str() {
                "managedFields" => managed_fields::equal_ignoring_times(old, new),
                _ => old == new,
            })
        })
}

/// Fields that are never owned: they are the object's identity or the server's own.
fn never_owned() -> &'static FieldSet {
    static SET: LazyLock<FieldSet> = LazyLock::new(|| {
        let top = ["apiVersion", "kind", "metadata"].map(|name| Path::fields(&[name]));
        let metadata = [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        ]
        .map(|name| Path::fields(&["metadata", name]));
        top.iter().chain(&metadata).collect()
    });
    &SET
}

#[cfg(test)]
mod tests;
