//! The store of one kind: its objects by key, with indexes.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde::Deserialize;
use serde_json::Value;

use super::{Change, IndexValue, StoreId, Unreadable, View};
use crate::held::Held;
use crate::object::{Key, Meta, Resource, Revision, Uid};
use crate::write::{Outcome, Subresource, Write};

/// The objects of one kind by key.
#[derive(Debug)]
pub struct Store<V> {
    resource: Resource,
    state: RwLock<StoreState<V>>,
}

#[derive(Debug)]
struct StoreState<V> {
    objects: BTreeMap<Key, Arc<V>>,
    indices: HashMap<IndexValue, BTreeSet<Key>>,
    /// UIDs that our own writes deleted, until the watch reports the deletion too: an older copy
    /// that still arrives must not restore the object.
    removed: BTreeSet<Uid>,
    /// The revision up to which the watch has reported everything. An object in a response that is
    /// older than this is not new: the watch has already reported it, and perhaps its deletion as
    /// well.
    last_sync_revision: Revision,
    synced: bool,
    /// Objects that exist and cannot be decoded into the view, and why.
    unreadable: BTreeMap<Key, String>,
}

impl<V> Default for StoreState<V> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            indices: HashMap::new(),
            removed: BTreeSet::new(),
            last_sync_revision: Revision::default(),
            synced: false,
            unreadable: BTreeMap::new(),
        }
    }
}

impl<V: View> Default for Store<V> {
    fn default() -> Self {
        Self::with_resource(V::RESOURCE)
    }
}

impl<V: View> Store<V> {
    /// An empty store of `resource`.
    #[must_use]
    pub fn with_resource(resource: Resource) -> Self {
        Self { resource, state: RwLock::default() }
    }

    /// One object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<V>> {
        self.read().objects.get(key).cloned()
    }

    /// All objects, in order of their keys.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<V>> {
        self.read().objects.values().cloned().collect()
    }

    /// The objects in one namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<V>> {
        let state = self.read();
        let from = state.objects.range(Key::new(namespace, "")..);
        let within = from.take_while(|(key, _)| key.namespace() == namespace);
        within.map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The objects with this index value.
    #[must_use]
    pub fn by_index(&self, tag: &IndexValue) -> Vec<Arc<V>> {
        let state = self.read();
        let keys = state.indices.get(tag).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    /// The objects whose controller has this UID.
    #[must_use]
    pub fn owned_by(&self, uid: &Uid) -> Vec<Arc<V>> {
        self.by_index(&IndexValue::owner(uid))
    }

    /// Whether the object exists and cannot be decoded. No list contains it and [`get`](Store::get)
    /// does not return it; code that acts on the absence of an object must check this first.
    #[must_use]
    pub fn is_unreadable(&self, key: &Key) -> bool {
        self.read().unreadable.contains_key(key)
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets an object, whatever is stored there: for data that comes from no server.
    pub fn set(&self, object: V) -> Change {
        let key = object.meta().key();
        self.write().replace_at(&self.resource, key, Some(Arc::new(object)))
    }

    /// Removes an object: for data that comes from no server.
    pub fn unset(&self, key: &Key) -> Option<Change> {
        self.write().remove(&self.resource, key)
    }

    // A panic while a lock is held can only come from a view's own code; the maps are intact then.
    fn read(&self) -> RwLockReadGuard<'_, StoreState<V>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, StoreState<V>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: View> StoreState<V> {
    fn insert_if_newer(&mut self, resource: &Resource, object: Arc<V>) -> Option<Change> {
        let meta = object.meta();
        let key = meta.key();
        if self.removed.contains(&meta.uid) {
            return None;
        }
        let old = self.objects.get(&key);
        let newer = |old: &Arc<V>| old.meta().resource_version >= meta.resource_version;
        if old.is_some_and(newer) {
            return None;
        }
        Some(self.replace_at(resource, key, Some(object)))
    }

    fn remove(&mut self, resource: &Resource, key: &Key) -> Option<Change> {
        self.objects.contains_key(key).then(|| self.replace_at(resource, key.clone(), None))
    }

    /// Replaces the object at a key and updates the indexes.
    fn replace_at(&mut self, resource: &Resource, key: Key, after: Option<Arc<V>>) -> Change {
        self.unreadable.remove(&key);
        let before = self.objects.remove(&key);
        for tag in before.iter().flat_map(|old| old.index_values()) {
            if let Some(keys) = self.indices.get_mut(&tag) {
                keys.remove(&key);
                if keys.is_empty() {
                    self.indices.remove(&tag);
                }
            }
        }
        if let Some(object) = &after {
            for tag in object.index_values() {
                self.indices.entry(tag).or_default().insert(key.clone());
            }
            self.objects.insert(key.clone(), Arc::clone(object));
        }
        Change {
            resource: resource.clone(),
            key,
            before: before.map(|it| it as Arc<dyn Any + Send + Sync>),
            after: after.map(|it| it as Arc<dyn Any + Send + Sync>),
        }
    }
}

/// A store whose view type is not known statically.
pub trait AnyStore: fmt::Debug + Send + Sync {
    /// The resource it stores.
    fn resource(&self) -> Resource;
    /// The resource it stores and its view.
    fn store_id(&self) -> StoreId;
    /// The number of objects in it.
    fn count(&self) -> usize;
    /// Whether it has been filled by a complete list.
    fn has_synced(&self) -> bool;
    /// Stores an object from a watch event, in JSON.
    ///
    /// # Errors
    /// [`Unreadable`] if the object cannot be decoded into the view. The previous version is
    /// removed, because it is no longer true; this change must be delivered like any other.
    fn observe(&self, object: &str) -> Result<Option<Change>, Unreadable>;
    /// Removes an object because of a watch event.
    ///
    /// # Errors
    /// [`Unreadable`] if not even the metadata can be decoded.
    fn observe_deletion(&self, object: &str) -> Result<Option<Change>, Unreadable>;
    /// Records that the watch has reported everything up to this revision.
    fn observe_bookmark(&self, revision: Revision);
    /// The revision up to which the watch has reported everything.
    fn last_sync_revision(&self) -> Revision;
    /// Replaces the content with the result of a list at `revision`, but keeps what the responses
    /// to our own writes have shown since.
    fn replace(&self, objects: &[&str], revision: Revision) -> (Vec<Change>, Vec<Unreadable>);
    /// Updates the store with the outcome of a write.
    fn assume(&self, write: &Write, answer: &Outcome) -> Option<Change>;
    /// The objects that exist and cannot be decoded, each with the reason.
    fn unreadable(&self) -> Vec<Held>;
    /// The keys of all objects.
    fn keys(&self) -> Vec<Key>;
    /// One object as a change that adds it, for subscribers that must receive every existing
    /// object.
    fn as_change(&self, key: &Key) -> Option<Change>;
    /// The concrete store.
    fn as_any(&self) -> &dyn Any;
    /// The concrete store, shared.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<V: View> AnyStore for Store<V> {
    fn resource(&self) -> Resource {
        self.resource.clone()
    }

    fn store_id(&self) -> StoreId {
        StoreId::with_resource::<V>(self.resource.clone())
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn has_synced(&self) -> bool {
        self.read().synced
    }

    fn observe(&self, object: &str) -> Result<Option<Change>, Unreadable> {
        match serde_json::from_str::<V>(object) {
            Ok(view) => {
                let mut state = self.write();
                state.last_sync_revision =
                    state.last_sync_revision.max(view.meta().resource_version);
                Ok(state.insert_if_newer(&self.resource, Arc::new(view)))
            }
            Err(source) => {
                let mut unreadable = Unreadable::new(self.resource.clone(), object, source);
                let mut state = self.write();
                unreadable.change = state.remove(&self.resource, &unreadable.key).map(Box::new);
                state.unreadable.insert(unreadable.key.clone(), unreadable.why());
                Err(unreadable)
            }
        }
    }

    fn observe_deletion(&self, object: &str) -> Result<Option<Change>, Unreadable> {
        let ended = serde_json::from_str::<MetadataOnly>(object);
        let MetadataOnly { metadata } =
            ended.map_err(|source| Unreadable::new(self.resource.clone(), object, source))?;
        let mut state = self.write();
        state.last_sync_revision = state.last_sync_revision.max(metadata.resource_version);
        state.removed.remove(&metadata.uid);
        let key = metadata.key();
        state.unreadable.remove(&key);
        // Another object may have taken the name already.
        let same = state.objects.get(&key).is_some_and(|it| it.meta().uid == metadata.uid);
        Ok(if same { state.remove(&self.resource, &key) } else { None })
    }

    fn observe_bookmark(&self, revision: Revision) {
        let mut state = self.write();
        state.last_sync_revision = state.last_sync_revision.max(revision);
    }

    fn last_sync_revision(&self) -> Revision {
        self.read().last_sync_revision
    }

    fn replace(&self, objects: &[&str], revision: Revision) -> (Vec<Change>, Vec<Unreadable>) {
        let mut unreadable = Vec::new();
        let mut views = BTreeMap::new();
        for object in objects {
            match serde_json::from_str::<V>(object) {
                Ok(view) => {
                    views.insert(view.meta().key(), Arc::new(view));
                }
                Err(source) => {
                    unreadable.push(Unreadable::new(self.resource.clone(), object, source));
                }
            }
        }
        let mut state = self.write();
        let older = |it: &Arc<V>| it.meta().resource_version <= revision;
        let known = state.objects.iter().filter(|(_, object)| older(object));
        let ended = known.map(|(key, _)| key).filter(|key| !views.contains_key(*key));
        let ended: Vec<Key> = ended.cloned().collect();
        let mut changes: Vec<Change> =
            ended.iter().filter_map(|key| state.remove(&self.resource, key)).collect();
        state.removed.retain(|uid| views.values().any(|it| it.meta().uid == *uid));
        changes.extend(
            views.into_values().filter_map(|view| state.insert_if_newer(&self.resource, view)),
        );
        // Objects that were restored by responses to our own writes can be decoded.
        let hidden = unreadable.iter().filter(|it| !state.objects.contains_key(&it.key));
        state.unreadable = hidden.map(|it| (it.key.clone(), it.why())).collect();
        state.last_sync_revision = state.last_sync_revision.max(revision);
        state.synced = true;
        (changes, unreadable)
    }

    fn assume(&self, write: &Write, answer: &Outcome) -> Option<Change> {
        if matches!(write, Write::Merge { subresource: Subresource::Scale, .. }) {
            return None;
        }
        let key = write.key();
        match answer {
            // An object in a response that cannot be decoded arrives by watch as well, and is
            // counted there.
            Outcome::Done(Some(object)) if removes_object(write, object) => {
                self.assume_deleted(&key, write)
            }
            Outcome::Done(Some(object)) => {
                // Read as text, as watches are: reading trees too would double the code of views.
                let view: V = serde_json::from_str(&object.to_string()).ok()?;
                let mut state = self.write();
                let news = view.meta().resource_version > state.last_sync_revision;
                if news { state.insert_if_newer(&self.resource, Arc::new(view)) } else { None }
            }
            Outcome::Done(None) if matches!(write, Write::Delete { .. }) => {
                self.assume_deleted(&key, write)
            }
            Outcome::Done(None) => {
                let mut state = self.write();
                let next = state.objects.get(&key)?.after(write)?;
                Some(state.replace_at(&self.resource, key, Some(Arc::new(next))))
            }
            Outcome::NotFound => self.assume_deleted(&key, write),
            Outcome::Conflict(_) | Outcome::Refused(_) | Outcome::Unknown(_) => None,
        }
    }

    fn unreadable(&self) -> Vec<Held> {
        let state = self.read();
        let all = state.unreadable.iter();
        all.map(|(key, why)| Held::unreadable(self.resource.clone(), key.clone(), why.clone()))
            .collect()
    }

    fn keys(&self) -> Vec<Key> {
        self.read().objects.keys().cloned().collect()
    }

    fn as_change(&self, key: &Key) -> Option<Change> {
        let object = self.get(key)?;
        Some(Change {
            resource: self.resource.clone(),
            key: key.clone(),
            before: None,
            after: Some(object as Arc<dyn Any + Send + Sync>),
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// Whether a response shows the last state of an object that no longer exists, and not one that is
/// terminating. A write that removes the last finalizer of a terminating object deletes it, and the
/// response has the revision from before.
fn removes_object(write: &Write, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let any = |list: &Value| list.as_array().is_some_and(|it| !it.is_empty());
    let going = metadata["deletionTimestamp"].is_string();
    let waits = any(&metadata["finalizers"])
        // The finalizers of a namespace are in its spec.
        || any(&object["spec"]["finalizers"])
        || metadata["deletionGracePeriodSeconds"].as_i64().is_some_and(|it| it > 0);
    match write {
        Write::Delete { .. } => !(going && waits),
        Write::Merge { .. } | Write::Apply { .. } => going && !waits,
        Write::Create { .. } | Write::Bind { .. } | Write::Evict { .. } => false,
    }
}

impl<V: View> Store<V> {
    /// Removes an object that our own write deleted.
    fn assume_deleted(&self, key: &Key, write: &Write) -> Option<Change> {
        let mut state = self.write();
        let uid = write.fence().map(|fence| fence.uid.clone());
        let old = state.objects.get(key)?.meta().uid.clone();
        if uid.is_some_and(|uid| uid != old) {
            return None;
        }
        state.removed.insert(old);
        state.remove(&self.resource, key)
    }
}

/// An object of which only the metadata is decoded.
#[derive(Deserialize)]
struct MetadataOnly {
    metadata: Meta,
}
