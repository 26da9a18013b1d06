//! Garbage collection: what belongs to nothing goes.
//!
//! Only edges are kept: which objects name an owner, by the owner's uid. Whether an owner is there
//! is looked up in the store at the moment of the decision, so nothing here can be stale in a way
//! that removes too much; forgetting everything and starting over gives the same end.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::access::Caller;
use crate::api::{Api, Entry};
use crate::delete::{DeleteOptions, Propagation, Removal};
use crate::resource::Resource;
use crate::rules::Part;
use crate::status::Refusal;
use crate::stored::{Metadata, Owner};
use crate::write::{Changed, Ownership, Write};

/// An object by its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) space: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Who belongs to whom, and what is to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    dependents: HashMap<String, BTreeSet<Place>>,
    owners: HashMap<Place, Vec<String>>,
    pending: BTreeSet<Place>,
}

impl Collector {
    /// Takes note of an object as it is now.
    pub(crate) fn note(&self, space: &str, metadata: &Metadata) {
        let place = Place {
            space: space.to_owned(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        };
        let owned = !metadata.owner_references.is_empty();
        let policy = ["foregroundDeletion", "orphan"];
        let waits = metadata.deletion_timestamp.is_some()
            && metadata.finalizers.iter().any(|it| policy.contains(&it.as_str()));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !owned && !waits && !state.owners.contains_key(&place) {
            return;
        }
        state.forget(&place);
        if owned {
            let uids: Vec<String> =
                metadata.owner_references.iter().map(|owner| owner.uid.clone()).collect();
            for uid in &uids {
                state.dependents.entry(uid.clone()).or_default().insert(place.clone());
            }
            state.owners.insert(place.clone(), uids);
        }
        state.pending.insert(place);
        drop(state);
        self.wake.notify_one();
    }

    /// Whether an object may concern the collector: it has owners, had some, or is going.
    pub(crate) fn concerns(&self, space: &str, object: &Value) -> bool {
        let metadata = &object["metadata"];
        if metadata["ownerReferences"].is_array() || metadata["deletionTimestamp"].is_string() {
            return true;
        }
        let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let place = Place { space: space.to_owned(), namespace, name };
        self.state.lock().unwrap_or_else(PoisonError::into_inner).owners.contains_key(&place)
    }

    /// Takes note that an object is gone: what belonged to it, and what waited for it, is looked at.
    pub(crate) fn gone(&self, space: &str, metadata: &Metadata) {
        let place = Place {
            space: space.to_owned(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let owners = state.owners.get(&place).cloned().unwrap_or_default();
        state.forget(&place);
        let dependents = state.dependents.get(&metadata.uid).cloned().unwrap_or_default();
        if dependents.is_empty() && owners.is_empty() {
            return;
        }
        state.pending.extend(dependents);
        // Owners that wait for it are found by the references of what went.
        for owner in &metadata.owner_references {
            state.pending.insert(Place {
                space: format!("?{}/{}", owner.api_version, owner.kind),
                namespace: metadata.namespace.clone(),
                name: owner.name.clone(),
            });
        }
        drop(state);
        self.wake.notify_one();
    }

    fn dependents(&self, uid: &str) -> Vec<Place> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.dependents.get(uid).map(|it| it.iter().cloned().collect()).unwrap_or_default()
    }

    fn take(&self) -> Option<Place> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).pending.pop_first()
    }

    fn put_back(&self, place: Place) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).pending.insert(place);
    }
}

impl State {
    fn forget(&mut self, place: &Place) {
        for uid in self.owners.remove(place).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(&uid) {
                dependents.remove(place);
                if dependents.is_empty() {
                    self.dependents.remove(&uid);
                }
            }
        }
    }
}

/// The name under which dependents are asked to go.
const COLLECTOR: &str = "generic-garbage-collector";

/// What an owner reference turns out to be.
enum Standing {
    /// The owner is there.
    Solid,
    /// The owner goes as soon as its dependents are gone.
    Waiting,
    /// There is no such owner.
    Dangling,
}

impl Api {
    /// Looks at every stored object once, then at what changes, until told to stop.
    pub(crate) async fn collect(self, stop: CancellationToken) {
        self.survey();
        loop {
            while let Some(place) = self.0.collector.take() {
                if stop.is_cancelled() {
                    return;
                }
                if let Err(refusal) = self.look_at(&place).await {
                    // Someone was in between, or the store is full: it is looked at again.
                    if !matches!(refusal.reason, "NotFound") {
                        tracing::debug!(?place, refusal = refusal.message, "collected later");
                        self.0.collector.put_back(place);
                        let pause = std::time::Duration::from_millis(50);
                        tokio::select! {
                            () = stop.cancelled() => return,
                            () = self.0.clock.sleep(pause) => {}
                        }
                    }
                }
            }
            // Both may be dropped: a wake-up that is missed here is kept by `Notify`.
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.collector.wake.notified() => {}
            }
        }
    }

    fn survey(&self) {
        let registry = self.registry();
        let snapshot = self.0.store.snapshot();
        for space in registry.spaces().keys() {
            for entry in snapshot.space(space).iter() {
                // Not kept with the entry: nobody may ever ask for it again.
                self.0.collector.note(space, &Metadata::read(&entry.value));
            }
        }
    }

    /// The resource a place is in. A place by kind is an owner named in a reference.
    fn resource_of(&self, place: &Place) -> Option<Arc<Resource>> {
        let registry = self.registry();
        match place.space.strip_prefix('?') {
            Some(kind) => {
                let (version, kind) = kind.rsplit_once('/')?;
                registry.by_kind(version, kind).cloned()
            }
            None => registry.spaces().get(place.space.as_str()).map(|it| Arc::clone(it)),
        }
    }

    async fn look_at(&self, place: &Place) -> Result<(), Refusal> {
        let Some(resource) = self.resource_of(place) else { return Ok(()) };
        let namespace = if resource.namespaced { place.namespace.as_str() } else { "" };
        let Some(entry) = self.stored(&resource, namespace, &place.name) else { return Ok(()) };
        let metadata = entry.extra.metadata(&entry.value).clone();
        if metadata.deletion_timestamp.is_some() {
            self.finish_deletion(&resource, &metadata).await?;
        }
        if metadata.owner_references.is_empty() {
            return Ok(());
        }
        self.judge(&resource, &metadata).await
    }

    /// Decides about an object by what became of its owners.
    async fn judge(&self, resource: &Arc<Resource>, metadata: &Metadata) -> Result<(), Refusal> {
        let mut lost = Vec::new();
        let (mut solid, mut waiting) = (false, false);
        for owner in &metadata.owner_references {
            match self.standing(resource, metadata, owner) {
                Standing::Solid => solid = true,
                Standing::Waiting => {
                    waiting = true;
                    lost.push(owner.uid.clone());
                }
                Standing::Dangling => lost.push(owner.uid.clone()),
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        if solid {
            return self.drop_owners(resource, metadata, &lost).await;
        }
        if metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let has = |name: &str| metadata.finalizers.iter().any(|it| it == name);
        let blocks = waiting && !self.0.collector.dependents(&metadata.uid).is_empty();
        let policy = if blocks || has("foregroundDeletion") {
            Propagation::Foreground
        } else if has("orphan") {
            Propagation::Orphan
        } else {
            Propagation::Background
        };
        let options = DeleteOptions::exactly(&metadata.uid, policy);
        let (namespace, name) = (&metadata.namespace, &metadata.name);
        let caller = Caller::controller(COLLECTOR);
        let (caller, now, warnings) = (Some(&caller), self.now(), Vec::new());
        let mut removal =
            Removal { resource, namespace, name, options: &options, caller, now, warnings };
        match self.delete_object(&mut removal).await {
            Ok(_) => Ok(()),
            // Another object has the name now.
            Err(refusal) if refusal.reason == "Conflict" => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    fn standing(&self, resource: &Resource, metadata: &Metadata, owner: &Owner) -> Standing {
        let registry = self.registry();
        // A kind that is not served now may be served again: such an owner is left alone.
        let Some(kind) = registry.by_kind(&owner.api_version, &owner.kind) else {
            return Standing::Solid;
        };
        if kind.namespaced && !resource.namespaced {
            return Standing::Solid;
        }
        let namespace = if kind.namespaced { metadata.namespace.as_str() } else { "" };
        let Some(found) = self.stored(kind, namespace, &owner.name) else {
            return Standing::Dangling;
        };
        let found = found.extra.metadata(&found.value);
        if found.uid != owner.uid {
            return Standing::Dangling;
        }
        if is_deleted_in_foreground(found) { Standing::Waiting } else { Standing::Solid }
    }

    /// Does what a deleted object's policy asks, and lets it go when that is done.
    async fn finish_deletion(
        &self,
        resource: &Arc<Resource>,
        metadata: &Metadata,
    ) -> Result<(), Refusal> {
        let has = |name: &str| metadata.finalizers.iter().any(|it| it == name);
        if has("orphan") {
            for place in self.0.collector.dependents(&metadata.uid) {
                if let Some((kind, entry)) = self.at(&place) {
                    let dependent = entry.extra.metadata(&entry.value).clone();
                    let lost = vec![metadata.uid.clone()];
                    self.drop_owners(&kind, &dependent, &lost).await?;
                }
            }
            return self.drop_finalizer(resource, metadata, "orphan").await;
        }
        if !has("foregroundDeletion") {
            return Ok(());
        }
        let mut blocked = false;
        for place in self.0.collector.dependents(&metadata.uid) {
            let Some((kind, entry)) = self.at(&place) else { continue };
            let dependent = entry.extra.metadata(&entry.value).clone();
            let mut references = dependent.owner_references.iter();
            blocked |= references.any(|it| it.uid == metadata.uid && it.block_owner_deletion);
            Box::pin(self.judge(&kind, &dependent)).await?;
        }
        // What blocked may be gone by now; its going wakes this object again if not.
        if blocked && !self.nothing_blocks(&metadata.uid) {
            self.break_circles(metadata).await?;
            if !self.nothing_blocks(&metadata.uid) {
                return Ok(());
            }
        }
        self.drop_finalizer(resource, metadata, "foregroundDeletion").await
    }

    fn nothing_blocks(&self, uid: &str) -> bool {
        self.blocking(uid).is_empty()
    }

    /// The dependents without whose end an owner that is deleted in the foreground stays.
    fn blocking(&self, uid: &str) -> Vec<(Arc<Resource>, Arc<Entry>)> {
        let dependents = self.0.collector.dependents(uid);
        let mut found: Vec<_> = dependents.iter().filter_map(|place| self.at(place)).collect();
        found.retain(|(_, entry)| {
            let mut references = entry.extra.metadata(&entry.value).owner_references.iter();
            references.any(|it| it.uid == uid && it.block_owner_deletion)
        });
        found
    }

    /// Makes dependents that wait, through others, for the end of `metadata` itself no longer block
    /// it: such a circle of owners deleted in the foreground would never end.
    ///
    /// Kubernetes unblocks a dependent whose own dependent is being deleted, which finds circles
    /// that are deleted from one place. Here the whole circle is looked for, so that it ends also
    /// when several of its members, or one that owns itself, were deleted at once.
    async fn break_circles(&self, metadata: &Metadata) -> Result<(), Refusal> {
        if metadata.owner_references.is_empty() {
            return Ok(());
        }
        let mut explored = HashSet::new();
        for (kind, entry) in self.blocking(&metadata.uid) {
            let dependent = entry.extra.metadata(&entry.value).clone();
            if !self.waits_for(entry, &metadata.uid, &mut explored) {
                continue;
            }
            let Metadata { namespace, name, .. } = &dependent;
            tracing::info!(kind = kind.kind, namespace, name, "a circle of owners is broken");
            self.edit(&kind, &dependent, |object| {
                let owners = object["metadata"]["ownerReferences"].as_array_mut();
                for owner in owners.into_iter().flatten() {
                    if owner["uid"] == json!(metadata.uid) {
                        owner["blockOwnerDeletion"] = json!(false);
                    }
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Whether the end of an object waits, through dependents that block, for the end of the one
    /// with this uid. `explored` are objects of which it is known that they do not.
    fn waits_for(&self, from: Arc<Entry>, uid: &str, explored: &mut HashSet<String>) -> bool {
        let mut next = vec![from];
        while let Some(entry) = next.pop() {
            let metadata = entry.extra.metadata(&entry.value);
            if metadata.uid == uid {
                return true;
            }
            if is_deleted_in_foreground(metadata) && explored.insert(metadata.uid.clone()) {
                next.extend(self.blocking(&metadata.uid).into_iter().map(|(_, entry)| entry));
            }
        }
        false
    }

    fn at(&self, place: &Place) -> Option<(Arc<Resource>, Arc<Entry>)> {
        let resource = self.resource_of(place)?;
        let entry = self.stored(&resource, &place.namespace, &place.name)?;
        Some((resource, entry))
    }

    async fn drop_owners(
        &self,
        resource: &Arc<Resource>,
        metadata: &Metadata,
        lost: &[String],
    ) -> Result<(), Refusal> {
        self.edit(resource, metadata, |object| {
            let owners = object["metadata"]["ownerReferences"].as_array().cloned();
            let left: Vec<Value> = owners
                .unwrap_or_default()
                .into_iter()
                .filter(|owner| !lost.iter().any(|uid| owner["uid"] == json!(uid)))
                .collect();
            set_list(object, "ownerReferences", left);
        })
        .await
    }

    /// Takes one finalizer from an object.
    pub(crate) async fn drop_finalizer(
        &self,
        resource: &Arc<Resource>,
        metadata: &Metadata,
        finalizer: &str,
    ) -> Result<(), Refusal> {
        self.edit(resource, metadata, |object| {
            let list = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            let left = list.into_iter().filter(|it| *it != json!(finalizer)).collect();
            set_list(object, "finalizers", left);
        })
        .await
    }

    /// Changes an object as the server itself; an object that went or was replaced is left alone.
    async fn edit(
        &self,
        resource: &Arc<Resource>,
        metadata: &Metadata,
        change: impl Fn(&mut Value),
    ) -> Result<(), Refusal> {
        let mut write = Write {
            resource: Arc::clone(resource),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            part: Part::Whole,
            manager: "gantry".to_owned(),
            ownership: Ownership::ByChange,
            caller: Caller::controller(COLLECTOR),
            dry_run: false,
            changes: false,
            by_server: true,
            views: crate::convert::Views::default(),
            options: serde_json::Map::new(),
            reserved: None,
            claims: None,
            now: self.now(),
            warnings: Vec::new(),
        };
        let uid = metadata.uid.clone();
        let edited = self
            .modify(&mut write, |_, write, live| {
                let mut object = live.clone();
                if live["metadata"]["uid"] == json!(uid) {
                    change(&mut object);
                    write.resource.own(write, Some(live), &mut object);
                }
                Ok(Changed::to(object))
            })
            .await;
        match edited {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.reason == "NotFound" => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }
}

/// Whether an object goes when its dependents are gone.
fn is_deleted_in_foreground(metadata: &Metadata) -> bool {
    let waits = metadata.finalizers.iter().any(|it| it == "foregroundDeletion");
    waits && metadata.deletion_timestamp.is_some()
}

fn set_list(object: &mut Value, name: &str, list: Vec<Value>) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if list.is_empty() {
        metadata.shift_remove(name);
    } else {
        metadata.insert(name.to_owned(), Value::Array(list));
    }
}
