//! Garbage collection: deletes objects whose owners are gone.
//!
//! Only edges are cached: which objects name an owner, by the owner's UID. Whether an owner exists
//! is looked up in the store at the moment of the decision, so nothing here can be stale in a way
//! that deletes too much; dropping everything and starting over gives the same result.

mod ownership_graph;

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::access::Caller;
use crate::api::{Api, Entry};
use crate::resource::Resource;
use crate::resource::rules::WrittenSubresource;
use crate::resource::stored::{Metadata, Owner};
use crate::response::status::StatusError;
use crate::verbs::delete::{DeleteOptions, DeletionRequest, Propagation};
use crate::verbs::write::{ModifiedObject, Ownership, Write};

use ownership_graph::ObjectKey;
pub(crate) use ownership_graph::OwnershipGraph;

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
