//! Making and changing objects: the steps every write goes through, whoever asks for it.

use std::sync::Arc;

use gantry_store::{CommitError, Expect, Hold};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::access::{Attributes, Caller};
use crate::addresses::Claims;
use crate::api::{Api, Ask, Entry};
use crate::authority::CLUSTER_ROLES;
use crate::convert::Views;
use crate::names;
use crate::query::WriteOptions;
use crate::quotas::Reservation;
use crate::resource::Resource;
use crate::rules::Part;
use crate::status::Refusal;
use crate::stored::encode;

/// Who writes what, and how.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) part: Part,
    pub(crate) manager: String,
    pub(crate) ownership: Ownership,
    pub(crate) caller: Caller,
    pub(crate) dry_run: bool,
    /// The request was to change an object; if it makes one, the caller must be allowed that too.
    pub(crate) changes: bool,
    /// The server writes for itself; nobody sent a request.
    pub(crate) by_server: bool,
    /// Objects in other versions, for whoever works out ownership.
    pub(crate) views: Views,
    /// The options that were said, as admission shows them.
    pub(crate) options: Map<String, Value>,
    /// What was taken from quotas for it.
    pub(crate) reserved: Option<Reservation>,
    /// Addresses and ports that were allocated for it.
    pub(crate) claims: Option<Claims>,
    pub(crate) now: Timestamp,
    pub(crate) warnings: Vec<String>,
}

/// What is reserved for a write and released when nobody holds it any longer: neither the request,
/// which may be dropped at any time, nor the store, which makes the write all the same.
#[derive(Debug)]
struct Held {
    reserved: Option<Reservation>,
    _claims: Option<Claims>,
}

impl Held {
    /// The write is stored: what it took from quotas is used.
    fn keep(&self) {
        if let Some(reserved) = &self.reserved {
            reserved.keep();
        }
    }
}

/// How the owners of a new object's fields are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// Whoever writes owns what is written.
    ByChange,
    /// An apply has said it already.
    Said,
}

/// What a write left behind.
#[derive(Debug)]
pub(crate) enum Written {
    /// A stored object.
    Stored(Arc<Entry>),
    /// An object that is not, or no longer, stored: a dry run, or the last finalizer went.
    Gone(Value),
}

/// Tries of a change that others overtake, before the caller is told. A lost try means that somebody
/// else's change went through, so a caller who names no revision sees a refusal only after being
/// overtaken this often.
const TRIES: usize = 1_000;
/// Bytes of an object. Kubernetes stores no larger ones, so what is stored here can be moved there.
const OBJECT: usize = 1536 * 1024;
/// Names tried for a prefix.
const NAMES: usize = 8;

impl Write {
    pub(crate) fn of(ask: &Ask, options: &WriteOptions) -> Self {
        Self {
            resource: Arc::clone(&ask.resource),
            namespace: ask.target.namespace.clone(),
            name: ask.target.name.clone(),
            part: Part::Whole,
            manager: ask.manager(&options.manager),
            ownership: Ownership::ByChange,
            caller: ask.caller.clone(),
            dry_run: options.dry_run,
            changes: false,
            by_server: false,
            views: Views::default(),
            options: options.said.clone(),
            reserved: None,
            claims: None,
            now: ask.now,
            warnings: Vec::new(),
        }
    }

    /// The time as objects have it.
    pub(crate) fn stamp(&self) -> String {
        seconds(self.now)
    }

    /// What the store has to hold until the write is decided.
    fn hold(&mut self) -> Arc<Held> {
        Arc::new(Held { reserved: self.reserved.take(), _claims: self.claims.take() })
    }

    fn refusal(&self, make: impl Fn(&str, &str, &str) -> Refusal, name: &str) -> Refusal {
        make(&self.resource.group, &self.resource.plural, name)
    }
}

/// A time to the second, as objects have it.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A text in the metadata of an object.
pub(crate) fn meta<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"][name].as_str().unwrap_or_default()
}

impl Api {
    /// Stores a new object, which is decoded and defaulted.
    pub(crate) async fn insert(
        &self,
        write: &mut Write,
        mut object: Value,
    ) -> Result<Written, Refusal> {
        let resource = Arc::clone(&write.resource);
        settle_namespace(write, &mut object)?;
        forget_system_fields(&mut object);
        if write.ownership == Ownership::ByChange {
            self.own_new(write, &mut object).await?;
        }
        let asked = write.name.clone();
        if write.name.is_empty() {
            meta(&object, "name").clone_into(&mut write.name);
        }
        self.mutate_write(write, None, &mut object).await?;
        settle_namespace(write, &mut object)?;
        self.check_grant(write, &asked, None, &object)?;
        if !meta(&object, "resourceVersion").is_empty() {
            let words = "resourceVersion should not be set on objects to be created";
            return Err(Refusal::failure(words));
        }
        let prefix = meta(&object, "generateName").to_owned();
        let generate = meta(&object, "name").is_empty() && !prefix.is_empty();
        for _ in 0..NAMES {
            // Another name may be needed, and with it the object as it was.
            let mut object = if generate { object.clone() } else { std::mem::take(&mut object) };
            if generate {
                object["metadata"]["name"] = json!(names::generate(&prefix));
            }
            fill_system_fields(write, &mut object);
            self.prepare_create(write, &mut object)?;
            let object = resource.normal(object)?;
            let (faults, warnings) = resource.validate_create(&object);
            let name = meta(&object, "name").to_owned();
            if !faults.is_empty() {
                let kind = kind_of(&resource, &object);
                return Err(Refusal::invalid(&resource.group, kind, &name, &faults));
            }
            write.warnings.extend(warnings);
            if write.changes {
                let asked = Attributes::resource("create", &resource.group, &resource.plural);
                self.permit(&write.caller, &asked.inside(&write.namespace).named(&name))?;
            }
            write.name.clone_from(&name);
            self.validate_write(write, None, &object).await?;
            let key = resource.key(&write.namespace, &name);
            if write.dry_run {
                let known = self.0.store.space(&resource.space);
                if known.get(key.as_bytes()).is_none() {
                    return Ok(Written::Gone(object));
                }
            } else {
                let stored = self.storable(&resource, &object).await?;
                let held = write.hold();
                let hold = Some(Hold::new(held.clone()));
                if let Some(entry) =
                    self.put_held(&resource, key, Expect::Absent, &stored, hold).await?
                {
                    held.keep();
                    let entry = self.after_create(write, &object, entry).await?;
                    return Ok(Written::Stored(self.seen(&resource, entry).await?));
                }
            }
            if !generate {
                return Err(write.refusal(Refusal::already_exists, &name));
            }
        }
        Err(write.refusal(Refusal::name_not_generated, &prefix))
    }

    /// Stores bytes; `None` when the key is not what was expected.
    pub(crate) async fn put(
        &self,
        resource: &Resource,
        key: String,
        expect: Expect,
        object: &Value,
    ) -> Result<Option<Arc<Entry>>, Refusal> {
        self.put_held(resource, key, expect, object, None).await
    }

    /// Stores bytes, and has the store hold what they rely on until that is decided.
    async fn put_held(
        &self,
        resource: &Resource,
        key: String,
        expect: Expect,
        object: &Value,
        hold: Option<Hold>,
    ) -> Result<Option<Arc<Entry>>, Refusal> {
        let halves = encode(object);
        let bytes = halves.head.len() + halves.tail.len();
        if bytes > OBJECT {
            let kind = &resource.kind;
            return Err(Refusal::too_large(format!(
                "the {kind} would be stored with {bytes} bytes, and the limit is {OBJECT}; split \
                 it, or remove what it does not need"
            )));
        }
        let value = gantry_store::Value { head: halves.head, tail: halves.tail };
        let change = gantry_store::Change::Put(value);
        self.commit(resource, key, expect, change, hold).await
    }

    /// Removes an object whose last state is `object`; `None` when it was overtaken.
    pub(crate) async fn remove(
        &self,
        resource: &Resource,
        key: String,
        expect: Expect,
        object: &Value,
    ) -> Result<Option<Arc<Entry>>, Refusal> {
        let halves = encode(object);
        let value = gantry_store::Value { head: halves.head, tail: halves.tail };
        let change = gantry_store::Change::Delete(value);
        let removed = self.commit(resource, key, expect, change, None).await?;
        if let Some(entry) = &removed {
            self.after_remove(resource, entry);
            if resource.space == crate::definitions::SPACE {
                // Names it held may be free for others now.
                let group = object["spec"]["group"].as_str().unwrap_or_default();
                Box::pin(self.settle_definitions(group)).await?;
            }
            if resource.space == CLUSTER_ROLES {
                Box::pin(self.aggregate_roles()).await?;
            }
        }
        Ok(removed)
    }

    async fn commit(
        &self,
        resource: &Resource,
        key: String,
        expect: Expect,
        change: gantry_store::Change,
        hold: Option<Hold>,
    ) -> Result<Option<Arc<Entry>>, Refusal> {
        let write = gantry_store::Write {
            space: resource.space.as_str().into(),
            key: key.into_bytes().into(),
            expect,
            change,
            hold,
        };
        match self.0.store.commit(write).await {
            Ok(event) => Ok(Some(Arc::clone(&event.entry))),
            Err(CommitError::Conflict { .. }) => Ok(None),
            Err(error @ CommitError::TooLarge { .. }) => Err(Refusal::too_large(error.to_string())),
            Err(CommitError::Full { source }) => {
                tracing::error!(error = %source, "could not store a change: the disk is full");
                Err(Refusal::insufficient_storage(format!(
                    "the change was not stored: the disk is full ({source}); free some space, or \
                     delete objects: reads and deletions are served, and other changes again once \
                     there is space"
                )))
            }
            Err(error @ CommitError::Displaced { .. }) => {
                tracing::error!(%error, "could not store a change");
                Err(Refusal::internal(&format!("the change was not stored: {error}")))
            }
            // The store has logged it. It may be stored or not; nobody should be told it is not.
            Err(CommitError::Failed(failure)) => Err(Refusal::internal(&format!(
                "{failure} ({}); whether the change is stored shows when the server is started \
                 again",
                failure.source
            ))),
            Err(CommitError::Closed) => {
                Err(Refusal::unavailable("the change was not stored: the server is stopping"))
            }
        }
    }

    /// Changes an object with `make`, again and again until nobody is in between.
    ///
    /// `make` gets the object in the version of the request and returns it as it should be.
    pub(crate) async fn modify(
        &self,
        write: &mut Write,
        mut make: impl FnMut(&Api, &Write, &Value) -> Result<Changed, Refusal>,
    ) -> Result<Written, Refusal> {
        let resource = Arc::clone(&write.resource);
        for _ in 0..TRIES {
            let Some(entry) = self.stored(&resource, &write.namespace, &write.name) else {
                return Err(write.refusal(Refusal::not_found, &write.name));
            };
            let stored = entry;
            let entry = self.seen_before(&resource, Arc::clone(&stored)).await?;
            let live = resource.tree(&entry);
            let mut made = make(self, write, &live);
            while self.fetch_views(write).await? {
                made = make(self, write, &live);
            }
            let Changed { object: mut new, warnings } = made?;
            // Said also when the change is refused.
            write.warnings.extend(warnings);
            self.mutate_write(write, Some(&live), &mut new).await?;
            self.check_grant(write, &write.name, Some(&live), &new)?;
            // A caller who named a revision that is now overtaken is refused here the next time
            // round; a patch that named none has taken over the one it was applied to.
            check_revision(write, &live, &new)?;
            carry_over(&live, &mut new);
            self.prepare_update(write, &live, &mut new)?;
            let new = resource.normal(new)?;
            let (faults, more) = resource.validate_update(&new, &live, write.part);
            if !faults.is_empty() {
                let kind = kind_of(&resource, &new);
                return Err(Refusal::invalid(&resource.group, kind, &write.name, &faults));
            }
            write.warnings.extend(more);
            self.validate_write(write, Some(&live), &new).await?;
            if gantry_patch::ownership::unchanged(&live, &new) {
                return Ok(Written::Stored(entry));
            }
            if write.dry_run {
                return Ok(Written::Gone(new));
            }
            let key = resource.key(&write.namespace, &write.name);
            let expect = Expect::Revision(entry.revision);
            let outcome = if goes_away(&new) {
                // Watchers are told what was there last; only the caller sees the change.
                let last = resource.last_state(&stored, &live);
                let removed = self.remove(&resource, key, expect, &last).await?;
                removed.map(|_| Written::Gone(new))
            } else {
                let stored = self.storable(&resource, &new).await?;
                let held = write.hold();
                let hold = Some(Hold::new(held.clone()));
                match self.put_held(&resource, key, expect, &stored, hold).await? {
                    Some(entry) => {
                        held.keep();
                        let entry = self.after_update(write, &live, &new, entry).await?;
                        Some(Written::Stored(self.seen(&resource, entry).await?))
                    }
                    None => None,
                }
            };
            if let Some(written) = outcome {
                return Ok(written);
            }
            write.warnings.clear();
        }
        Err(write.refusal(Refusal::modified, &write.name))
    }
}

/// An object as it should be.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

impl Changed {
    pub(crate) fn to(object: Value) -> Self {
        Self { object, warnings: Vec::new() }
    }
}

/// The namespace is the one in the path.
pub(crate) fn settle_namespace(write: &Write, object: &mut Value) -> Result<(), Refusal> {
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

pub(crate) fn namespace_mismatch() -> Refusal {
    Refusal::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    )
}

/// The kind refusals name: the one the object claims, right or wrong.
fn kind_of<'a>(resource: &'a Resource, object: &'a Value) -> &'a str {
    object["kind"].as_str().unwrap_or(&resource.kind)
}

/// What only the server says about an object is not taken from a new one.
fn forget_system_fields(object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.shift_remove(name);
    }
}

/// What only the server says about a new object.
fn fill_system_fields(write: &Write, object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    metadata.insert("uid".to_owned(), json!(names::uid()));
    metadata.insert("creationTimestamp".to_owned(), json!(write.stamp()));
}

/// Refuses a change that names another revision than the current one.
fn check_revision(write: &Write, live: &Value, new: &Value) -> Result<(), Refusal> {
    let (current, named) = (meta(live, "resourceVersion"), meta(new, "resourceVersion"));
    if named.is_empty() || named == "0" {
        if write.resource.may_update_blindly() {
            return Ok(());
        }
        let fault = gantry_schema::Invalid::value(
            "metadata.resourceVersion",
            &json!(0),
            "must be specified for an update",
        );
        let Resource { group, plural, .. } = &*write.resource;
        return Err(Refusal::invalid(group, plural, &write.name, &[fault]));
    }
    crate::query::revision(named).map_err(Refusal::failure)?;
    if named == current { Ok(()) } else { Err(write.refusal(Refusal::modified, &write.name)) }
}

/// What an update cannot change, or need not say.
fn carry_over(live: &Value, new: &mut Value) {
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

/// Whether nothing holds a deleted object any longer.
pub(crate) fn goes_away(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let held = metadata["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let kept = object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
        && object["kind"] == "Namespace";
    metadata["deletionTimestamp"].is_string() && !held && grace == 0 && !kept
}
