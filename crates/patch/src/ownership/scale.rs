//! Ownership of the `scale` subresource, which is ownership of the replicas of its parent.
//!
//! A Scale is not stored. To update or apply one, show it the entries of its parent with
//! [`Parent::to_scale`], let [`update`](super::update()) or [`apply`](super::apply()) work on the
//! Scale, and give the parent what [`Parent::to_parent`] makes of the result.

use serde_json::Value;

use super::managed_fields::{ManagedFieldsEntry, ManagedFieldsError, Operation};
use crate::path::Path;
use crate::set::FieldSet;

/// The version of a Scale.
pub const API_VERSION: &str = "autoscaling/v1";

/// The parent of a Scale.
#[derive(Debug, Clone, Copy)]
pub struct Parent<'a> {
    /// The version of the parent in the request.
    pub api_version: &'a str,
    /// For each served version where the replicas are; a version that cannot be scaled has none.
    pub replicas: &'a [(&'a str, Option<Path>)],
}

impl Parent<'_> {
    /// The entries of a Scale: those of the owners of the parent's replicas.
    ///
    /// # Errors
    /// If the parent's entries cannot be read.
    pub fn to_scale(self, parent: &Value) -> Result<Option<Value>, ManagedFieldsError> {
        let entries = ManagedFieldsEntry::read_all(parent)?.into_iter().filter_map(|entry| {
            let path = self.path(&entry.api_version)?.as_ref()?;
            entry.fields.contains(&path.0).then(|| ManagedFieldsEntry {
                api_version: API_VERSION.to_owned(),
                fields: replicas_of_scale(),
                ..entry
            })
        });
        Ok(ManagedFieldsEntry::write_all(entries.collect()))
    }

    /// The parent's entries after a write to its Scale: a manager that no longer owns the replicas
    /// of the Scale no longer owns the parent's.
    ///
    /// The original server takes an unchanged owner by plain write for another one, because the
    /// versions differ, and writes a second entry under the same name; here it keeps its entry.
    ///
    /// # Errors
    /// If the entries of either cannot be read.
    pub fn to_parent(
        self,
        parent: &Value,
        scale: &Value,
    ) -> Result<Option<Value>, ManagedFieldsError> {
        let mut scale: Vec<ManagedFieldsEntry> = ManagedFieldsEntry::read_all(scale)?
            .into_iter()
            .filter(|entry| entry.fields.contains(&replicas_of_scale_path().0))
            .collect();
        let mut entries = Vec::new();
        for mut entry in ManagedFieldsEntry::read_all(parent)? {
            let Some(path) = self.path(&entry.api_version) else { continue };
            if let Some(path) = path
                && entry.fields.contains(&path.0)
            {
                match scale.iter().position(|other| is_same_manager(other, &entry)) {
                    Some(place) => {
                        scale.remove(place);
                    }
                    None => entry.fields = entry.fields.difference(&[path].into_iter().collect()),
                }
            }
            if !entry.fields.is_empty() {
                entries.push(entry);
            }
        }
        if let Some(Some(path)) = self.path(self.api_version) {
            entries.extend(scale.into_iter().map(|entry| ManagedFieldsEntry {
                api_version: self.api_version.to_owned(),
                fields: [path].into_iter().collect(),
                // As in the original server: the parent was not written to.
                time: None,
                ..entry
            }));
        }
        Ok(ManagedFieldsEntry::write_all(entries))
    }

    fn path(&self, api_version: &str) -> Option<&Option<Path>> {
        self.replicas.iter().find(|(version, _)| *version == api_version).map(|(_, path)| path)
    }
}

fn is_same_manager(scale: &ManagedFieldsEntry, parent: &ManagedFieldsEntry) -> bool {
    let of = |entry: &ManagedFieldsEntry| -> (String, Operation, String) {
        (entry.manager.clone(), entry.operation, entry.subresource.clone())
    };
    of(scale) == of(parent)
}

fn replicas_of_scale_path() -> Path {
    Path::fields(&["spec", "replicas"])
}

fn replicas_of_scale() -> FieldSet {
    [&replicas_of_scale_path()].into_iter().collect()
}
