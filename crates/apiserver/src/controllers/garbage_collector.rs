//! Garbage collection: deletes objects whose owners are gone.
//!
//! Only edges are cached: which objects name an owner, by the owner's UID. Whether an owner exists
//! is looked up in the store at the moment of the decision, so nothing here can be stale in a way
//! that deletes too much; dropping everything and starting over gives the same result.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_store::Revision;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::access::Caller;
use crate::api::{Api, Entry};
use crate::resource::Resource;
use crate::resource::rules::WrittenSubresource;
use crate::resource::stored::{Metadata, Owner};
use crate::response::status::StatusError;
use crate::verbs::delete::{DeleteOptions, DeletionRequest, Propagation};
use crate::verbs::write::{ModifiedObject, Ownership, Write};

/// The key of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) space: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The ownership graph, and the objects that have to be processed.
#[derive(Debug, Default)]
pub(crate) struct GarbageCollector {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    dependents: HashMap<String, BTreeSet<ObjectKey>>,
    owners: HashMap<ObjectKey, KnownOwners>,
    pending: BTreeSet<ObjectKey>,
}

/// The owners of an object, and the revision of the object that named them.
#[derive(Debug)]
struct KnownOwners {
    revision: Revision,
    uids: Vec<String>,
}

impl GarbageCollector {
    /// Observes the state of an object at a revision.
    ///
    /// Requests and the first pass over the store observe concurrently, so an older state may come
    /// later. It must not remove the edges of a newer one: a dependent that is not found neither
    /// blocks the deletion of its owner nor is deleted after it.
    pub(crate) fn observe(&self, space: &str, metadata: &Metadata, revision: Revision) {
        let place = ObjectKey {
            space: space.to_owned(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        };
        let owned = !metadata.owner_references.is_empty();
        let policy = ["foregroundDeletion", "orphan"];
        let waits = metadata.deletion_timestamp.is_some()
            && metadata.finalizers.iter().any(|it| policy.contains(&it.as_str()));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.owners.get(&place);
        if !owned && !waits && known.is_none() {
            return;
        }
        if known.is_some_and(|it| it.revision > revision) {
            return;
        }
        state.remove(&place);
        if owned {
            let uids: Vec<String> =
                metadata.owner_references.iter().map(|owner| owner.uid.clone()).collect();
            for uid in &uids {
                state.dependents.entry(uid.clone()).or_default().insert(place.clone());
            }
            state.owners.insert(place.clone(), KnownOwners { revision, uids });
        }
        state.pending.insert(place);
        drop(state);
        self.wake.notify_one();
    }

    /// Whether an object is relevant here: it has owners, had some, or is being deleted.
    pub(crate) fn is_relevant(&self, space: &str, object: &Value) -> bool {
        let metadata = &object["metadata"];
        if metadata["ownerReferences"].is_array() || metadata["deletionTimestamp"].is_string() {
            return true;
        }
        let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let place = ObjectKey { space: space.to_owned(), namespace, name };
        self.state.lock().unwrap_or_else(PoisonError::into_inner).owners.contains_key(&place)
    }

    /// Observes that an object is deleted; enqueues its dependents and owners that waited for it.
    pub(crate) fn observe_deleted(&self, space: &str, metadata: &Metadata) {
        let place = ObjectKey {
            space: space.to_owned(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let has_owners = state.owners.contains_key(&place);
        state.remove(&place);
        let dependents = state.dependents.get(&metadata.uid).cloned().unwrap_or_default();
        if dependents.is_empty() && !has_owners {
            return;
        }
        state.pending.extend(dependents);
        // Owners that wait for it are found by the owner references of the deleted object.
        for owner in &metadata.owner_references {
            state.pending.insert(ObjectKey {
                space: format!("?{}/{}", owner.api_version, owner.kind),
                namespace: metadata.namespace.clone(),
                name: owner.name.clone(),
            });
        }
        drop(state);
        self.wake.notify_one();
    }

    fn dependents(&self, uid: &str) -> Vec<ObjectKey> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.dependents.get(uid).map(|it| it.iter().cloned().collect()).unwrap_or_default()
    }

    fn pop(&self) -> Option<ObjectKey> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).pending.pop_first()
    }

    fn requeue(&self, place: ObjectKey) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).pending.insert(place);
    }
}

impl State {
    fn remove(&mut self, place: &ObjectKey) {
        for uid in self.owners.remove(place).map(|it| it.uids).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(&uid) {
                dependents.remove(place);
                if dependents.is_empty() {
                    self.dependents.remove(&uid);
                }
            }
        }
    }
}

/// The name of the controller that deletes dependents.
const GARBAGE_COLLECTOR: &str = "generic-garbage-collector";

/// The state of the owner in an owner reference.
enum OwnerState {
    /// The owner exists.
    Solid,
    /// The owner is deleted as soon as its dependents are gone.
    WaitingForDependents,
    /// There is no such owner.
    Dangling,
}

impl Api {
    /// Processes every stored object once, then changes, until it is stopped.
    pub(crate) async fn run_garbage_collector(self, stop: CancellationToken) {
        self.enqueue_all();
        loop {
            while let Some(place) = self.0.garbage_collector.pop() {
                if stop.is_cancelled() {
                    return;
                }
                if let Err(refusal) = self.process_object(&place).await {
                    // A conflict, or the store is full: it is enqueued again.
                    if !matches!(refusal.reason, "NotFound") {
                        tracing::debug!(?place, refusal = refusal.message, "collection retried");
                        self.0.garbage_collector.requeue(place);
                        let pause = std::time::Duration::from_millis(50);
                        tokio::select! {
                            () = stop.cancelled() => return,
                            () = self.0.clock.sleep(pause) => {}
                        }
                    }
                }
            }
            // Cancel-safe: a missed wake-up is kept by `Notify`.
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.garbage_collector.wake.notified() => {}
            }
        }
    }

    fn enqueue_all(&self) {
        let registry = self.registry();
        let snapshot = self.0.store.snapshot();
        for space in registry.resources_by_space().keys() {
            for entry in snapshot.space(space).iter() {
                // Not cached with the entry: it may never be needed again.
                let metadata = Metadata::read(&entry.value);
                self.0.garbage_collector.observe(space, &metadata, entry.revision);
            }
        }
    }

    /// Returns the resource of an object key. A key by kind is an owner named in a reference.
    fn resource_of(&self, place: &ObjectKey) -> Option<Arc<Resource>> {
        let registry = self.registry();
        match place.space.strip_prefix('?') {
            Some(kind) => {
                let (version, kind) = kind.rsplit_once('/')?;
                registry.by_kind(version, kind).cloned()
            }
            None => {
                registry.resources_by_space().get(place.space.as_str()).map(|it| Arc::clone(it))
            }
        }
    }

    async fn process_object(&self, place: &ObjectKey) -> Result<(), StatusError> {
        let Some(resource) = self.resource_of(place) else { return Ok(()) };
        let namespace = if resource.namespaced { place.namespace.as_str() } else { "" };
        let Some(entry) = self.stored_entry(&resource, namespace, &place.name) else {
            return Ok(());
        };
        let metadata = entry.extra.metadata(&entry.value).clone();
        if metadata.deletion_timestamp.is_some() {
            self.process_deletion(&resource, &metadata).await?;
        }
        if metadata.owner_references.is_empty() {
            return Ok(());
        }
        self.process_owners(&resource, &metadata).await
    }

    /// Decides about an object by the states of its owners.
    async fn process_owners(
        &self,
        resource: &Arc<Resource>,
        metadata: &Metadata,
    ) -> Result<(), StatusError> {
        let mut lost = Vec::new();
        let (mut solid, mut waiting) = (false, false);
        for owner in &metadata.owner_references {
            match self.owner_state(resource, metadata, owner) {
                OwnerState::Solid => solid = true,
                OwnerState::WaitingForDependents => {
                    waiting = true;
                    lost.push(owner.uid.clone());
                }
                OwnerState::Dangling => lost.push(owner.uid.clone()),
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        if solid {
            return self.remove_owner_references(resource, metadata, &lost).await;
        }
        if metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let has = |name: &str| metadata.finalizers.iter().any(|it| it == name);
        let blocks = waiting && !self.0.garbage_collector.dependents(&metadata.uid).is_empty();
        let policy = if blocks || has("foregroundDeletion") {
            Propagation::Foreground
        } else if has("orphan") {
            Propagation::Orphan
        } else {
            Propagation::Background
        };
        let options = DeleteOptions::for_uid(&metadata.uid, policy);
        let (namespace, name) = (&metadata.namespace, &metadata.name);
        let caller = Caller::controller(GARBAGE_COLLECTOR);
        let (caller, now, warnings) = (Some(&caller), self.now(), Vec::new());
        let mut removal =
            DeletionRequest { resource, namespace, name, options: &options, caller, now, warnings };
        match self.delete_object(&mut removal).await {
            Ok(_) => Ok(()),
            // Another object has the name now.
            Err(refusal) if refusal.reason == "Conflict" => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    fn owner_state(&self, resource: &Resource, metadata: &Metadata, owner: &Owner) -> OwnerState {
        let registry = self.registry();
        // A kind that is not served now may be served again: such an owner counts as present.
        let Some(kind) = registry.by_kind(&owner.api_version, &owner.kind) else {
            return OwnerState::Solid;
        };
        if kind.namespaced && !resource.namespaced {
            return OwnerState::Solid;
        }
        let namespace = if kind.namespaced { metadata.namespace.as_str() } else { "" };
        let Some(found) = self.stored_entry(kind, namespace, &owner.name) else {
            return OwnerState::Dangling;
        };
        let found = found.extra.metadata(&found.value);
        if found.uid != owner.uid {
            return OwnerState::Dangling;
        }
        if is_deleted_in_foreground(found) {
            OwnerState::WaitingForDependents
        } else {
            OwnerState::Solid
        }
    }

    /// Applies the propagation policy of a deleted object, and then removes its finalizer.
    async fn process_deletion(
        &self,
        resource: &Arc<Resource>,
        metadata: &Metadata,
    ) -> Result<(), StatusError> {
        let has = |name: &str| metadata.finalizers.iter().any(|it| it == name);
        if has("orphan") {
            for place in self.0.garbage_collector.dependents(&metadata.uid) {
                if let Some((kind, entry)) = self.entry_at(&place) {
                    let dependent = entry.extra.metadata(&entry.value).clone();
                    let lost = vec![metadata.uid.clone()];
                    self.remove_owner_references(&kind, &dependent, &lost).await?;
                }
            }
            return self.remove_finalizer(resource, metadata, "orphan").await;
        }
        if !has("foregroundDeletion") {
            return Ok(());
        }
        let mut blocked = false;
        for place in self.0.garbage_collector.dependents(&metadata.uid) {
            let Some((kind, entry)) = self.entry_at(&place) else { continue };
            let dependent = entry.extra.metadata(&entry.value).clone();
            let mut references = dependent.owner_references.iter();
            blocked |= references.any(|it| it.uid == metadata.uid && it.block_owner_deletion);
            Box::pin(self.process_owners(&kind, &dependent)).await?;
        }
        // Blockers may be gone by now; if not, their deletion enqueues this object again.
        if blocked && !self.has_no_blocking_dependents(&metadata.uid) {
            self.unblock_cycles(metadata).await?;
            if !self.has_no_blocking_dependents(&metadata.uid) {
                return Ok(());
            }
        }
        self.remove_finalizer(resource, metadata, "foregroundDeletion").await
    }

    fn has_no_blocking_dependents(&self, uid: &str) -> bool {
        self.blocking_dependents(uid).is_empty()
    }

    /// Returns the dependents that block the foreground deletion of an owner.
    fn blocking_dependents(&self, uid: &str) -> Vec<(Arc<Resource>, Arc<Entry>)> {
        let dependents = self.0.garbage_collector.dependents(uid);
        let mut found: Vec<_> =
            dependents.iter().filter_map(|place| self.entry_at(place)).collect();
        found.retain(|(_, entry)| {
            let mut references = entry.extra.metadata(&entry.value).owner_references.iter();
            references.any(|it| it.uid == uid && it.block_owner_deletion)
        });
        found
    }

    /// Unblocks dependents that wait, through others, for the deletion of `metadata` itself: such a
    /// cycle of owners deleted in the foreground would never end.
    ///
    /// Kubernetes unblocks a dependent whose own dependent is being deleted, which finds cycles
    /// that are deleted from one place. Here the whole cycle is searched, so that it ends also when
    /// several of its members, or one that owns itself, were deleted at once.
    async fn unblock_cycles(&self, metadata: &Metadata) -> Result<(), StatusError> {
        if metadata.owner_references.is_empty() {
            return Ok(());
        }
        let mut explored = HashSet::new();
        for (kind, entry) in self.blocking_dependents(&metadata.uid) {
            let dependent = entry.extra.metadata(&entry.value).clone();
            if !self.waits_for(entry, &metadata.uid, &mut explored) {
                continue;
            }
            let Metadata { namespace, name, .. } = &dependent;
            tracing::info!(kind = kind.kind, namespace, name, "unblocked a cycle of owners");
            self.update_as_server(&kind, &dependent, |object| {
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

    /// Whether the deletion of an object waits, through blocking dependents, for the deletion of
    /// the one with this UID. `explored` are objects that are known not to.
    fn waits_for(&self, from: Arc<Entry>, uid: &str, explored: &mut HashSet<String>) -> bool {
        let mut next = vec![from];
        while let Some(entry) = next.pop() {
            let metadata = entry.extra.metadata(&entry.value);
            if metadata.uid == uid {
                return true;
            }
            if is_deleted_in_foreground(metadata) && explored.insert(metadata.uid.clone()) {
                next.extend(
                    self.blocking_dependents(&metadata.uid).into_iter().map(|(_, entry)| entry),
                );
            }
        }
        false
    }

    fn entry_at(&self, place: &ObjectKey) -> Option<(Arc<Resource>, Arc<Entry>)> {
        let resource = self.resource_of(place)?;
        let entry = self.stored_entry(&resource, &place.namespace, &place.name)?;
        Some((resource, entry))
    }

    async fn remove_owner_references(
        &self,
        resource: &Arc<Resource>,
        metadata: &Metadata,
        lost: &[String],
    ) -> Result<(), StatusError> {
        self.update_as_server(resource, metadata, |object| {
            let owners = object["metadata"]["ownerReferences"].as_array().cloned();
            let left: Vec<Value> = owners
                .unwrap_or_default()
                .into_iter()
                .filter(|owner| !lost.iter().any(|uid| owner["uid"] == json!(uid)))
                .collect();
            set_metadata_list(object, "ownerReferences", left);
        })
        .await
    }

    /// Removes one finalizer from an object.
    pub(crate) async fn remove_finalizer(
        &self,
        resource: &Arc<Resource>,
        metadata: &Metadata,
        finalizer: &str,
    ) -> Result<(), StatusError> {
        self.update_as_server(resource, metadata, |object| {
            let list = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            let left = list.into_iter().filter(|it| *it != json!(finalizer)).collect();
            set_metadata_list(object, "finalizers", left);
        })
        .await
    }

    /// Changes an object as the server itself; one that was deleted or replaced is left alone.
    async fn update_as_server(
        &self,
        resource: &Arc<Resource>,
        metadata: &Metadata,
        change: impl Fn(&mut Value),
    ) -> Result<(), StatusError> {
        let mut write = Write {
            resource: Arc::clone(resource),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            subresource: WrittenSubresource::Main,
            manager: "gantry".to_owned(),
            ownership: Ownership::ByChange,
            caller: Caller::controller(GARBAGE_COLLECTOR),
            dry_run: false,
            is_update: false,
            by_server: true,
            versions: crate::resource::convert::ConvertedVersions::default(),
            options: serde_json::Map::new(),
            reservation: None,
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
                    write.resource.update_managed_fields(write, Some(live), &mut object);
                }
                Ok(ModifiedObject::new(object))
            })
            .await;
        match edited {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.reason == "NotFound" => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }
}

/// Whether an object waits for the deletion of its dependents.
fn is_deleted_in_foreground(metadata: &Metadata) -> bool {
    let waits = metadata.finalizers.iter().any(|it| it == "foregroundDeletion");
    waits && metadata.deletion_timestamp.is_some()
}

fn set_metadata_list(object: &mut Value, name: &str, list: Vec<Value>) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if list.is_empty() {
        metadata.shift_remove(name);
    } else {
        metadata.insert(name.to_owned(), Value::Array(list));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_state_that_is_observed_later_removes_no_edge() {
        let map = |owners: Value| {
            let object = json!({"metadata": {"name": "c", "uid": "c", "ownerReferences": owners}});
            Metadata::of(&object)
        };
        let owned = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "b"}]);
        let (created, owned) = (map(json!([])), map(owned));
        let collector = GarbageCollector::default();
        collector.observe("configmaps", &owned, Revision::new(5));
        collector.observe("configmaps", &created, Revision::new(4));
        assert_eq!(collector.dependents("b").len(), 1);
        collector.observe("configmaps", &created, Revision::new(6));
        assert_eq!(collector.dependents("b").len(), 0);
    }
}
