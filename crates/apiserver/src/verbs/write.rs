//! Creates and changes objects: the steps every write goes through.

use std::sync::Arc;

use gantry_store::{CommitError, Hold, Precondition};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::access::{Attributes, Caller};
use crate::admission::quotas::Reservation;
use crate::api::{Api, Entry, ResourceRequest};
use crate::request::query::WriteOptions;
use crate::resource::Resource;
use crate::resource::convert::ConvertedVersions;
use crate::resource::names;
use crate::resource::rules::WrittenSubresource;
use crate::resource::stored::encode;
use crate::response::status::StatusError;
use crate::services::service_allocator::ServiceClaims;

/// A write: its caller, its target and its options.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: WrittenSubresource,
    pub(crate) manager: String,
    pub(crate) ownership: Ownership,
    pub(crate) caller: Caller,
    pub(crate) dry_run: bool,
    /// The request is an update or patch; if it creates an object, that must be authorized too.
    pub(crate) is_update: bool,
    /// The server writes for itself; there is no request.
    pub(crate) by_server: bool,
    /// The object in other versions, for the computation of field ownership.
    pub(crate) versions: ConvertedVersions,
    /// The given options, as admission shows them.
    pub(crate) options: Map<String, Value>,
    /// The reserved quota.
    pub(crate) reservation: Option<Reservation>,
    /// The allocated addresses and ports.
    pub(crate) claims: Option<ServiceClaims>,
    pub(crate) now: Timestamp,
    pub(crate) warnings: Vec<String>,
}

/// Reservations of a write, released when neither the request, which may be dropped at any time,
/// nor the store, which completes the write all the same, holds them any longer.
#[derive(Debug)]
struct HeldReservations {
    reservation: Option<Reservation>,
    _claims: Option<ServiceClaims>,
}

impl HeldReservations {
    /// Marks the write as stored: its quota stays counted.
    fn commit(&self) {
        if let Some(reserved) = &self.reservation {
            reserved.commit();
        }
    }
}

/// How the field owners of a new object are determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The writer owns all written fields.
    ByChange,
    /// An apply has determined them already.
    Applied,
}

/// The result of a write.
#[derive(Debug)]
pub(crate) enum Written {
    /// A stored object.
    Stored(Arc<Entry>),
    /// An object that is not, or no longer, stored: a dry run, or the last finalizer was removed.
    NotStored(Value),
}

/// Attempts of a change before the caller gets a conflict. A failed attempt means that another
/// change succeeded, so a caller that names no revision gets a conflict only after this many.
const MAX_CONFLICT_RETRIES: usize = 1_000;
/// The largest object, in bytes: the limit of Kubernetes, so that every object can be moved there.
const MAX_OBJECT_BYTES: usize = 1536 * 1024;
/// Names tried for a prefix.
const MAX_NAME_ATTEMPTS: usize = 8;

impl Write {
    pub(crate) fn of(ask: &ResourceRequest, options: &WriteOptions) -> Self {
        Self {
            resource: Arc::clone(&ask.resource),
            namespace: ask.target.namespace.clone(),
            name: ask.target.name.clone(),
            subresource: WrittenSubresource::Main,
            manager: ask.field_manager(&options.manager),
            ownership: Ownership::ByChange,
            caller: ask.caller.clone(),
            dry_run: options.dry_run,
            is_update: false,
            by_server: false,
            versions: ConvertedVersions::default(),
            options: options.raw.clone(),
            reservation: None,
            claims: None,
            now: ask.now,
            warnings: Vec::new(),
        }
    }

    /// Returns the current time in the format of objects.
    pub(crate) fn timestamp(&self) -> String {
        format_seconds(self.now)
    }

    /// Returns the reservations that the store has to hold until the write is decided.
    fn take_reservations(&mut self) -> Arc<HeldReservations> {
        Arc::new(HeldReservations {
            reservation: self.reservation.take(),
            _claims: self.claims.take(),
        })
    }

    fn refusal(&self, make: impl Fn(&str, &str, &str) -> StatusError, name: &str) -> StatusError {
        make(&self.resource.group, &self.resource.plural, name)
    }
}

/// Formats a time to the second, as objects have it.
pub(crate) fn format_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns a string in the metadata of an object.
pub(crate) fn meta<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"][name].as_str().unwrap_or_default()
}

impl Api {
    /// Stores a new object, which is decoded and defaulted.
    pub(crate) async fn insert(
        &self,
        write: &mut Write,
        mut object: Value,
    ) -> Result<Written, StatusError> {
        let resource = Arc::clone(&write.resource);
        set_namespace(write, &mut object)?;
        clear_system_fields(&mut object);
        if write.ownership == Ownership::ByChange {
            self.set_initial_ownership(write, &mut object).await?;
        }
        let asked = write.name.clone();
        if write.name.is_empty() {
            meta(&object, "name").clone_into(&mut write.name);
        }
        self.mutate_write(write, None, &mut object).await?;
        set_namespace(write, &mut object)?;
        self.check_escalation(write, &asked, None, &object)?;
        if !meta(&object, "resourceVersion").is_empty() {
            let words = "resourceVersion should not be set on objects to be created";
            return Err(StatusError::failure(words));
        }
        let prefix = meta(&object, "generateName").to_owned();
        let generate = meta(&object, "name").is_empty() && !prefix.is_empty();
        for _ in 0..MAX_NAME_ATTEMPTS {
            // Another name may be needed, and then the original object.
            let mut object = if generate { object.clone() } else { std::mem::take(&mut object) };
            if generate {
                object["metadata"]["name"] = json!(names::generate(&prefix));
            }
            fill_system_fields(write, &mut object);
            self.prepare_create(write, &mut object)?;
            let object = resource.normalize(object)?;
            let (faults, warnings) = resource.validate_create(&object);
            let name = meta(&object, "name").to_owned();
            if !faults.is_empty() {
                let kind = kind_of(&resource, &object);
                return Err(StatusError::invalid(&resource.group, kind, &name, &faults));
            }
            write.warnings.extend(warnings);
            if write.is_update {
                let asked = Attributes::resource("create", &resource.group, &resource.plural);
                self.check_authorized(
                    &write.caller,
                    &asked.in_namespace(&write.namespace).with_name(&name),
                )?;
            }
            write.name.clone_from(&name);
            self.validate_write(write, None, &object).await?;
            let key = resource.key(&write.namespace, &name);
            if write.dry_run {
                let known = self.0.store.space(&resource.space);
                if known.get(key.as_bytes()).is_none() {
                    return Ok(Written::NotStored(object));
                }
            } else {
                let stored = self.to_storage_version(&resource, &object).await?;
                let held = write.take_reservations();
                let hold = Some(Hold::new(held.clone()));
                if let Some(entry) = self
                    .put_with_reservations(&resource, key, Precondition::Absent, &stored, hold)
                    .await?
                {
                    held.commit();
                    let entry = self.after_create(write, &object, entry).await?;
                    return Ok(Written::Stored(self.converted_entry(&resource, entry).await?));
                }
            }
            if !generate {
                return Err(write.refusal(StatusError::already_exists, &name));
            }
        }
        Err(write.refusal(StatusError::name_not_generated, &prefix))
    }

    /// Stores bytes; `None` on a conflict.
    pub(crate) async fn put(
        &self,
        resource: &Resource,
        key: String,
        expect: Precondition,
        object: &Value,
    ) -> Result<Option<Arc<Entry>>, StatusError> {
        self.put_with_reservations(resource, key, expect, object, None).await
    }

    /// Stores bytes, and has the store hold the reservations until that is decided.
    async fn put_with_reservations(
        &self,
        resource: &Resource,
        key: String,
        expect: Precondition,
        object: &Value,
        hold: Option<Hold>,
    ) -> Result<Option<Arc<Entry>>, StatusError> {
        let halves = encode(object);
        let bytes = halves.head.len() + halves.tail.len();
        if bytes > MAX_OBJECT_BYTES {
            let kind = &resource.kind;
            return Err(StatusError::too_large(format!(
                "the {kind} would be stored with {bytes} bytes, and the limit is \
                 {MAX_OBJECT_BYTES}; split it, or remove what it does not need"
            )));
        }
        let value = gantry_store::Value { head: halves.head, tail: halves.tail };
        let change = gantry_store::Change::Put(value);
        self.commit(resource, key, expect, change, hold).await
    }

    /// Deletes an object whose last state is `object`; `None` on a conflict.
    pub(crate) async fn remove(
        &self,
        resource: &Resource,
        key: String,
        expect: Precondition,
        object: &Value,
    ) -> Result<Option<Arc<Entry>>, StatusError> {
        let halves = encode(object);
        let value = gantry_store::Value { head: halves.head, tail: halves.tail };
        let change = gantry_store::Change::Delete(value);
        let removed = self.commit(resource, key, expect, change, None).await?;
        if let Some(entry) = &removed {
            self.after_remove(resource, object, entry).await?;
        }
        Ok(removed)
    }

    async fn commit(
        &self,
        resource: &Resource,
        key: String,
        expect: Precondition,
        change: gantry_store::Change,
        hold: Option<Hold>,
    ) -> Result<Option<Arc<Entry>>, StatusError> {
        let write = gantry_store::Write {
            space: resource.space.as_str().into(),
            key: key.into_bytes().into(),
            precondition: expect,
            change,
            hold,
        };
        match self.0.store.commit(write).await {
            Ok(event) => Ok(Some(Arc::clone(&event.entry))),
            Err(CommitError::Conflict { .. }) => Ok(None),
            Err(error @ CommitError::TooLarge { .. }) => {
                Err(StatusError::too_large(error.to_string()))
            }
            Err(CommitError::Full { source }) => {
                tracing::error!(error = %source, "could not store a change: the disk is full");
                Err(StatusError::insufficient_storage(format!(
                    "the change was not stored: the disk is full ({source}); free some space, or \
                     delete objects: reads and deletions are served, and other changes again once \
                     there is space"
                )))
            }
            Err(error @ CommitError::DirectoryReplaced { .. }) => {
                tracing::error!(%error, "could not store a change");
                Err(StatusError::internal(&format!("the change was not stored: {error}")))
            }
            // The store has logged it. It may be stored or not, so this is no refusal.
            Err(CommitError::Failed(failure)) => Err(StatusError::internal(&format!(
                "{failure} ({}); whether the change is stored shows when the server is started \
                 again",
                failure.source
            ))),
            Err(CommitError::Closed) => {
                Err(StatusError::unavailable("the change was not stored: the server is stopping"))
            }
        }
    }

    /// Changes an object with `make`, again and again until there is no conflict.
    ///
    /// `make` gets the object in the version of the request and returns the changed one.
    pub(crate) async fn modify(
        &self,
        write: &mut Write,
        mut make: impl FnMut(&Api, &Write, &Value) -> Result<ModifiedObject, StatusError>,
    ) -> Result<Written, StatusError> {
        let resource = Arc::clone(&write.resource);
        for _ in 0..MAX_CONFLICT_RETRIES {
            let Some(entry) = self.stored_entry(&resource, &write.namespace, &write.name) else {
                return Err(write.refusal(StatusError::not_found, &write.name));
            };
            let stored = entry;
            let entry = self.converted_for_update(&resource, Arc::clone(&stored)).await?;
            let live = resource.tree(&entry);
            let mut made = make(self, write, &live);
            while self.convert_missing_versions(write).await? {
                made = make(self, write, &live);
            }
            let ModifiedObject { object: mut new, warnings } = made?;
            // Warnings are returned even when the change is refused.
            write.warnings.extend(warnings);
            self.mutate_write(write, Some(&live), &mut new).await?;
            self.check_escalation(write, &write.name, Some(&live), &new)?;
            // A caller that named a revision gets a conflict in the next round; a patch without one
            // uses the revision it was applied to.
            check_revision(write, &live, &new)?;
            carry_over_system_fields(&live, &mut new);
            self.prepare_update(write, &live, &mut new)?;
            let new = resource.normalize(new)?;
            let (faults, more) = resource.validate_update(&new, &live, write.subresource);
            if !faults.is_empty() {
                let kind = kind_of(&resource, &new);
                return Err(StatusError::invalid(&resource.group, kind, &write.name, &faults));
            }
            write.warnings.extend(more);
            self.validate_write(write, Some(&live), &new).await?;
            if gantry_patch::ownership::is_unchanged(&live, &new) {
                return Ok(Written::Stored(entry));
            }
            if write.dry_run {
                return Ok(Written::NotStored(new));
            }
            let key = resource.key(&write.namespace, &write.name);
            let expect = Precondition::Revision(entry.revision);
            let outcome = if can_be_removed(&new) {
                // Watchers get the previous state; only the caller sees the change.
                let last = resource.final_stored_state(&stored, &live);
                let removed = self.remove(&resource, key, expect, &last).await?;
                removed.map(|_| Written::NotStored(new))
            } else {
                let stored = self.to_storage_version(&resource, &new).await?;
                let held = write.take_reservations();
                let hold = Some(Hold::new(held.clone()));
                match self.put_with_reservations(&resource, key, expect, &stored, hold).await? {
                    Some(entry) => {
                        held.commit();
                        let entry = self.after_update(write, &live, &new, entry).await?;
                        Some(Written::Stored(self.converted_entry(&resource, entry).await?))
                    }
                    None => None,
                }
            };
            if let Some(written) = outcome {
                return Ok(written);
            }
            write.warnings.clear();
        }
        Err(write.refusal(StatusError::modified, &write.name))
    }
}

/// A changed object.
#[derive(Debug)]
pub(crate) struct ModifiedObject {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

impl ModifiedObject {
    pub(crate) fn new(object: Value) -> Self {
        Self { object, warnings: Vec::new() }
    }
}

/// Checks that the namespace is the one in the path.
pub(crate) fn set_namespace(write: &Write, object: &mut Value) -> Result<(), StatusError> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let said = meta(object, "namespace").to_owned();
    let Some(metadata) = object["metadata"].as_object_mut() else { return Ok(()) };
    if !write.resource.namespaced {
        metadata.shift_remove("namespace");
    } else if said.is_empty() {
        metadata.insert("namespace".to_owned(), json!(write.namespace));
    } else if said != write.namespace {
        return Err(namespace_mismatch());
    }
    Ok(())
}

pub(crate) fn namespace_mismatch() -> StatusError {
    StatusError::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    )
}

/// Returns the kind in error messages: the one the object claims, right or wrong.
fn kind_of<'a>(resource: &'a Resource, object: &'a Value) -> &'a str {
    object["kind"].as_str().unwrap_or(&resource.kind)
}

/// Removes metadata of a new object that only the server sets.
fn clear_system_fields(object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.shift_remove(name);
    }
}

/// Sets the metadata of a new object that only the server sets.
fn fill_system_fields(write: &Write, object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    metadata.insert("uid".to_owned(), json!(names::uid()));
    metadata.insert("creationTimestamp".to_owned(), json!(write.timestamp()));
}

/// Refuses a change that names another revision than the current one.
fn check_revision(write: &Write, live: &Value, new: &Value) -> Result<(), StatusError> {
    let (current, named) = (meta(live, "resourceVersion"), meta(new, "resourceVersion"));
    if named.is_empty() || named == "0" {
        if write.resource.allows_unconditional_update() {
            return Ok(());
        }
        let fault = gantry_schema::FieldError::invalid(
            "metadata.resourceVersion",
            &json!(0),
            "must be specified for an update",
        );
        let Resource { group, plural, .. } = &*write.resource;
        return Err(StatusError::invalid(group, plural, &write.name, &[fault]));
    }
    crate::request::query::revision(named).map_err(StatusError::failure)?;
    if named == current { Ok(()) } else { Err(write.refusal(StatusError::modified, &write.name)) }
}

/// Restores metadata that an update cannot change, or may omit.
fn carry_over_system_fields(live: &Value, new: &mut Value) {
    let Some(metadata) = new["metadata"].as_object_mut() else { return };
    metadata.shift_remove("selfLink");
    for name in ["uid", "deletionGracePeriodSeconds"] {
        if metadata.get(name).is_none_or(Value::is_null) && !live["metadata"][name].is_null() {
            metadata.insert(name.to_owned(), live["metadata"][name].clone());
        }
    }
    for name in ["creationTimestamp", "resourceVersion", "namespace", "name"] {
        if !live["metadata"][name].is_null() {
            metadata.insert(name.to_owned(), live["metadata"][name].clone());
        }
    }
    if !live["metadata"]["deletionTimestamp"].is_null() {
        let when = live["metadata"]["deletionTimestamp"].clone();
        metadata.insert("deletionTimestamp".to_owned(), when);
    }
}

/// Whether no finalizer or grace period holds a deleted object any longer.
pub(crate) fn can_be_removed(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let held = metadata["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let kept = object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
        && object["kind"] == "Namespace";
    metadata["deletionTimestamp"].is_string() && !held && grace == 0 && !kept
}
