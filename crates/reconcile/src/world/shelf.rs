//! The objects of one kind.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde::Deserialize;
use serde_json::Value;

use super::{Change, Place, Tag, Unreadable, View};
use crate::held::Held;
use crate::object::{Key, Meta, Resource, Revision, Uid};
use crate::write::{Outcome, Part, Write};

/// One kind's objects by key.
#[derive(Debug)]
pub struct Shelf<V> {
    resource: Resource,
    state: RwLock<State<V>>,
}

#[derive(Debug)]
struct State<V> {
    objects: BTreeMap<Key, Arc<V>>,
    tags: HashMap<Tag, BTreeSet<Key>>,
    /// Removed by our own hand, until the watch says so too: an older copy that is still under way
    /// must not bring it back.
    removed: BTreeSet<Uid>,
    /// How far the watch has come. What an answer shows from before that is no news: the watch has
    /// shown it, and perhaps its end as well.
    seen: Revision,
    filled: bool,
    /// Objects that are there and do not fit the view, and why.
    unreadable: BTreeMap<Key, String>,
}

impl<V> Default for State<V> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            tags: HashMap::new(),
            removed: BTreeSet::new(),
            seen: Revision::default(),
            filled: false,
            unreadable: BTreeMap::new(),
        }
    }
}

impl<V: View> Default for Shelf<V> {
    fn default() -> Self {
        Self::at(V::RESOURCE)
    }
}

impl<V: View> Shelf<V> {
    /// An empty shelf for a kind that is seen through `V`.
    #[must_use]
    pub fn at(resource: Resource) -> Self {
        Self { resource, state: RwLock::default() }
    }

    /// One object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<V>> {
        self.read().objects.get(key).cloned()
    }

    /// All objects, in order of their keys.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<V>> {
        self.read().objects.values().cloned().collect()
    }

    /// The objects in one namespace.
    #[must_use]
    pub fn within(&self, namespace: &str) -> Vec<Arc<V>> {
        let state = self.read();
        let from = state.objects.range(Key::new(namespace, "")..);
        let within = from.take_while(|(key, _)| key.namespace() == namespace);
        within.map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The objects filed under a word.
    #[must_use]
    pub fn tagged(&self, tag: &Tag) -> Vec<Arc<V>> {
        let state = self.read();
        let keys = state.tags.get(tag).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    /// What the object with this identity controls.
    #[must_use]
    pub fn owned_by(&self, uid: &Uid) -> Vec<Arc<V>> {
        self.tagged(&Tag::owner(uid))
    }

    /// Whether there is an object that cannot be read. It is on no list and [`get`](Shelf::get) does
    /// not find it; who would act on its absence must ask this first.
    #[must_use]
    pub fn is_unreadable(&self, key: &Key) -> bool {
        self.read().unreadable.contains_key(key)
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts an object in its place, whatever is there: for facts that come from no server.
    pub fn set(&self, object: V) -> Change {
        let key = object.meta().key();
        self.write().place(&self.resource, key, Some(Arc::new(object)))
    }

    /// Takes an object away: for facts that come from no server.
    pub fn unset(&self, key: &Key) -> Option<Change> {
        self.write().remove(&self.resource, key)
    }

    // A panic while a lock is held can only come from a view's own code; the maps are whole then.
    fn read(&self) -> RwLockReadGuard<'_, State<V>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<V>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: View> State<V> {
    fn put(&mut self, resource: &Resource, object: Arc<V>) -> Option<Change> {
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
        Some(self.place(resource, key, Some(object)))
    }

    fn remove(&mut self, resource: &Resource, key: &Key) -> Option<Change> {
        self.objects.contains_key(key).then(|| self.place(resource, key.clone(), None))
    }

    /// Replaces what is at a key, and files it.
    fn place(&mut self, resource: &Resource, key: Key, after: Option<Arc<V>>) -> Change {
        self.unreadable.remove(&key);
        let before = self.objects.remove(&key);
        for tag in before.iter().flat_map(|old| old.tags()) {
            if let Some(keys) = self.tags.get_mut(&tag) {
                keys.remove(&key);
                if keys.is_empty() {
                    self.tags.remove(&tag);
                }
            }
        }
        if let Some(object) = &after {
            for tag in object.tags() {
                self.tags.entry(tag).or_default().insert(key.clone());
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

/// A shelf whose view is not known by type.
pub trait AnyShelf: fmt::Debug + Send + Sync {
    /// The kind on it.
    fn resource(&self) -> Resource;
    /// The kind on it, and the view it is seen through.
    fn place(&self) -> Place;
    /// How many objects are on it.
    fn count(&self) -> usize;
    /// Whether it has once held everything there was.
    fn is_filled(&self) -> bool;
    /// Takes an object as a watch shows it, in JSON.
    ///
    /// # Errors
    /// [`Unreadable`] when the object does not fit the view. What was known of it before is taken
    /// away, because it is no longer true, and that change must be told as any other.
    fn saw(&self, object: &str) -> Result<Option<Change>, Unreadable>;
    /// Takes an object away, as a watch says.
    ///
    /// # Errors
    /// [`Unreadable`] when not even the metadata can be read.
    fn saw_end(&self, object: &str) -> Result<Option<Change>, Unreadable>;
    /// The watch has shown everything up to here.
    fn saw_up_to(&self, revision: Revision);
    /// How far the watch has come.
    fn seen(&self) -> Revision;
    /// Makes the shelf hold these objects and no others, as a list at `revision` says, but keeps what
    /// our own writes have shown since.
    fn replace(&self, objects: &[&str], revision: Revision) -> (Vec<Change>, Vec<Unreadable>);
    /// Takes note of what became of a write.
    fn learn(&self, write: &Write, answer: &Outcome) -> Option<Change>;
    /// The objects that are there and cannot be read, each with the reason.
    fn unreadable(&self) -> Vec<Held>;
    /// The keys of all objects.
    fn keys(&self) -> Vec<Key>;
    /// One object as a change that brings it, for those who must be told of everything there is.
    fn as_change(&self, key: &Key) -> Option<Change>;
    /// The shelf as what it is.
    fn as_any(&self) -> &dyn Any;
    /// The same, for those who keep it.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<V: View> AnyShelf for Shelf<V> {
    fn resource(&self) -> Resource {
        self.resource.clone()
    }

    fn place(&self) -> Place {
        Place::at::<V>(self.resource.clone())
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn is_filled(&self) -> bool {
        self.read().filled
    }

    fn saw(&self, object: &str) -> Result<Option<Change>, Unreadable> {
        match serde_json::from_str::<V>(object) {
            Ok(view) => {
                let mut state = self.write();
                state.seen = state.seen.max(view.meta().resource_version);
                Ok(state.put(&self.resource, Arc::new(view)))
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

    fn saw_end(&self, object: &str) -> Result<Option<Change>, Unreadable> {
        let ended = serde_json::from_str::<Bare>(object);
        let Bare { metadata } =
            ended.map_err(|source| Unreadable::new(self.resource.clone(), object, source))?;
        let mut state = self.write();
        state.seen = state.seen.max(metadata.resource_version);
        state.removed.remove(&metadata.uid);
        let key = metadata.key();
        state.unreadable.remove(&key);
        // Another object may have taken the name already.
        let same = state.objects.get(&key).is_some_and(|it| it.meta().uid == metadata.uid);
        Ok(if same { state.remove(&self.resource, &key) } else { None })
    }

    fn saw_up_to(&self, revision: Revision) {
        let mut state = self.write();
        state.seen = state.seen.max(revision);
    }

    fn seen(&self) -> Revision {
        self.read().seen
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
        changes.extend(views.into_values().filter_map(|view| state.put(&self.resource, view)));
        // What our own writes have shown since can be read.
        let hidden = unreadable.iter().filter(|it| !state.objects.contains_key(&it.key));
        state.unreadable = hidden.map(|it| (it.key.clone(), it.why())).collect();
        state.seen = state.seen.max(revision);
        state.filled = true;
        (changes, unreadable)
    }

    fn learn(&self, write: &Write, answer: &Outcome) -> Option<Change> {
        if matches!(write, Write::Merge { part: Part::Scale, .. }) {
            return None;
        }
        let key = write.key();
        match answer {
            // An answer that cannot be read will come by watch as well, and is counted there.
            Outcome::Done(Some(object)) if is_removed(write, object) => self.forget(&key, write),
            Outcome::Done(Some(object)) => {
                let view = V::deserialize(object).ok()?;
                let mut state = self.write();
                let news = view.meta().resource_version > state.seen;
                if news { state.put(&self.resource, Arc::new(view)) } else { None }
            }
            Outcome::Done(None) if matches!(write, Write::Delete { .. }) => {
                self.forget(&key, write)
            }
            Outcome::Done(None) => {
                let mut state = self.write();
                let next = state.objects.get(&key)?.after(write)?;
                Some(state.place(&self.resource, key, Some(Arc::new(next))))
            }
            Outcome::Absent => self.forget(&key, write),
            Outcome::Stale(_) | Outcome::Refused(_) | Outcome::Unanswered(_) => None,
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

/// Whether an answer shows the object as it was, and not as it waits to go. A write that takes away the
/// last thing a deleted object waits for removes it, and the answer has the revision from before.
fn is_removed(write: &Write, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let any = |list: &Value| list.as_array().is_some_and(|it| !it.is_empty());
    let going = metadata["deletionTimestamp"].is_string();
    let waits = any(&metadata["finalizers"])
        // Namespaces have theirs elsewhere.
        || any(&object["spec"]["finalizers"])
        || metadata["deletionGracePeriodSeconds"].as_i64().is_some_and(|it| it > 0);
    match write {
        Write::Delete { .. } => !(going && waits),
        Write::Merge { .. } | Write::Apply { .. } => going && !waits,
        Write::Create { .. } | Write::Bind { .. } => false,
    }
}

impl<V: View> Shelf<V> {
    /// Takes away what our own hand removed.
    fn forget(&self, key: &Key, write: &Write) -> Option<Change> {
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

/// An object of which only the metadata matters.
#[derive(Deserialize)]
struct Bare {
    metadata: Meta,
}
