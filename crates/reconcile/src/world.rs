//! The objects as they were last seen.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::fact::{Fact, FactTable};
use crate::object::{Key, Meta, Resource, Uid};
use crate::write::{Outcome, Write};

mod kept;
mod refusals;
mod shelf;

use kept::Kept;
use refusals::Refusals;
pub use refusals::Refused;
pub use shelf::{AnyShelf, Shelf};

/// What controllers read of the objects of one kind.
///
/// A view has the fields that somebody decides by and no others: a cache of views is small, and the
/// type says what a plan may depend on. It is read from any object the server stores, so nothing in
/// it may be required that the server does not require.
pub trait View: DeserializeOwned + fmt::Debug + Send + Sync + 'static {
    /// The kind this is a view of.
    const RESOURCE: Resource;

    /// The object's metadata.
    fn meta(&self) -> &Meta;

    /// What the object is filed under beside its key, so that it is found without a search.
    fn tags(&self) -> Vec<Tag> {
        self.meta().controller().map(|owner| Tag::owner(&owner.uid)).into_iter().collect()
    }

    /// The object after a write whose answer does not show it; `None` where nothing is known.
    fn after(&self, write: &Write) -> Option<Self> {
        let _ = write;
        None
    }
}

/// One word an object is filed under.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    /// Which list of words: `owner`, `node`.
    pub index: &'static str,
    /// The word.
    pub value: String,
}

impl Tag {
    /// What the object with this identity controls.
    #[must_use]
    pub fn owner(uid: &Uid) -> Self {
        Self { index: "owner", value: uid.as_str().to_owned() }
    }
}

/// Which shelf: a kind, and the view its objects are seen through.
///
/// Most kinds are seen through one view. Where two who look at a kind decide by different things, or by
/// different objects of it, each has a shelf of its own.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    resource: Resource,
    view: TypeId,
}

impl Place {
    /// The shelf of the kind that `V` is a view of.
    #[must_use]
    pub fn of<V: View>() -> Self {
        Self::at::<V>(V::RESOURCE)
    }

    /// The shelf of a kind that is seen through `V`.
    #[must_use]
    pub fn at<V: View>(resource: Resource) -> Self {
        Self { resource, view: TypeId::of::<V>() }
    }

    /// The kind.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.resource
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Place({})", self.resource)
    }
}

/// A kind by the type of its view, for those who keep shelves of many kinds.
#[derive(Clone)]
pub struct Kind {
    place: Place,
    /// Whether the view is one of this kind alone.
    is_own: bool,
    make: fn(Resource) -> Arc<dyn AnyShelf>,
}

impl Kind {
    /// The kind that `V` is a view of.
    #[must_use]
    pub fn of<V: View>() -> Self {
        Self { is_own: true, ..Self::at::<V>(V::RESOURCE) }
    }

    /// A kind of which only at run time is known what it is, seen through `V`: many kinds may be seen
    /// through one view. Its shelf is found by [`World::shelf_at`].
    #[must_use]
    pub fn at<V: View>(resource: Resource) -> Self {
        let make = |resource| -> Arc<dyn AnyShelf> { Arc::new(Shelf::<V>::at(resource)) };
        Self { place: Place::at::<V>(resource), is_own: false, make }
    }

    /// The kind as the API addresses it.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.place.resource
    }

    /// Which shelf it is on.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Kind({})", self.resource())
    }
}

/// The shelves of each kind, one for each view.
type Shelves = BTreeMap<Resource, Vec<Arc<dyn AnyShelf>>>;

/// Everything that was seen: a shelf for each view of each kind. Clones see the same.
#[derive(Clone, Debug, Default)]
pub struct World {
    by_view: HashMap<TypeId, Arc<dyn AnyShelf>>,
    by_resource: Arc<RwLock<Shelves>>,
    refusals: Arc<Refusals>,
    kept: Arc<Kept>,
}

impl World {
    /// A world with an empty shelf for each of these kinds. A kind may be named more than once.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let mut world = Self::default();
        for kind in kinds {
            let (shelf, _) = world.add(&kind);
            if kind.is_own {
                world.by_view.insert(kind.place.view, shelf);
            }
        }
        world
    }

    /// Adds a shelf for a kind that turned out to be of interest later, unless there is one. Returns it,
    /// and whether it is new. It is found by [`shelf_at`](World::shelf_at).
    pub fn add(&self, kind: &Kind) -> (Arc<dyn AnyShelf>, bool) {
        let Kind { place, make, .. } = kind;
        // No code of others runs under the lock, so a poisoned one is still good.
        let mut all = self.by_resource.write().unwrap_or_else(PoisonError::into_inner);
        let shelves = all.entry(place.resource.clone()).or_default();
        if let Some(known) = shelves.iter().find(|it| it.place() == *place) {
            return (Arc::clone(known), false);
        }
        let new = make(place.resource.clone());
        shelves.push(Arc::clone(&new));
        (new, true)
    }

    /// The objects of one kind.
    ///
    /// # Panics
    /// When the world has no shelf for the kind. An empty answer instead would read as "there are
    /// none", and a controller would act on that.
    #[must_use]
    pub fn shelf<V: View>(&self) -> &Shelf<V> {
        let shelf = self.by_view.get(&TypeId::of::<V>()).map(|shelf| shelf.as_any());
        shelf
            .and_then(|shelf| shelf.downcast_ref())
            .expect("a controller reads only kinds that it declared")
    }

    /// The objects of a kind that is seen through `V`, if there is a shelf for it.
    #[must_use]
    pub fn shelf_at<V: View>(&self, resource: &Resource) -> Option<Arc<Shelf<V>>> {
        let all = self.read();
        let mut shelves = all.get(resource)?.iter();
        shelves.find_map(|it| Arc::clone(it).into_any().downcast().ok())
    }

    /// All shelves that are seen through `V`, in the order of their kinds.
    #[must_use]
    pub fn shelves_of<V: View>(&self) -> Vec<Arc<Shelf<V>>> {
        let all = self.read();
        let shelves = all.values().flatten();
        shelves.filter_map(|it| Arc::clone(it).into_any().downcast().ok()).collect()
    }

    /// The shelf of a kind by its address, where it is seen through one view.
    #[must_use]
    pub fn find(&self, resource: &Resource) -> Option<Arc<dyn AnyShelf>> {
        match self.read().get(resource)?.as_slice() {
            [only] => Some(Arc::clone(only)),
            _ => None,
        }
    }

    /// One shelf.
    #[must_use]
    pub fn at(&self, place: &Place) -> Option<Arc<dyn AnyShelf>> {
        let all = self.read();
        all.get(&place.resource)?.iter().find(|it| it.place() == *place).cloned()
    }

    /// All shelves of a kind.
    #[must_use]
    pub fn views(&self, resource: &Resource) -> Vec<Arc<dyn AnyShelf>> {
        self.read().get(resource).cloned().unwrap_or_default()
    }

    /// All shelves.
    pub fn shelves(&self) -> impl Iterator<Item = Arc<dyn AnyShelf>> + use<> {
        let all: Vec<_> = self.read().values().flatten().cloned().collect();
        all.into_iter()
    }

    fn read(&self) -> RwLockReadGuard<'_, Shelves> {
        self.by_resource.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What somebody keeps beside the objects because it follows from them and takes long to find:
    /// sums, orders. There is one of each type in a world, and it begins empty.
    ///
    /// It is brought up to date by an [`Observer`](crate::Observer), which may be shown the same change more
    /// than once. A plan that reads it must come out as it
    /// would have from the shelves alone.
    #[must_use]
    pub fn kept<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.kept.get()
    }

    /// What is known about the outside of the API, of one sort. What was never recorded is not known.
    #[must_use]
    pub fn facts<F: Fact>(&self) -> Arc<FactTable<F>> {
        self.kept.get()
    }

    /// Takes note of what became of a write, so that the next plan knows it before the watch says so.
    /// What is returned must be told to the controllers, as what a watch shows is.
    #[must_use]
    pub fn learn(&self, write: &Write, answer: &Outcome) -> Vec<Change> {
        let shelves = self.views(write.resource());
        shelves.iter().filter_map(|shelf| shelf.learn(write, answer)).collect()
    }

    /// What the server said no to when the last plan of this key was carried out, in the order of the
    /// answers.
    ///
    /// A plan may say so in a status, and no more: it is forgotten when a process ends, and then only
    /// trying again brings it back.
    #[must_use]
    pub fn refused(&self, controller: &str, key: &Key) -> Vec<Refused> {
        self.refusals.get(controller, key)
    }

    /// Remembers what the server said no to when a plan was carried out, instead of what was
    /// remembered about that key before. Called once for each plan, before the next.
    pub fn remember(&self, controller: &'static str, key: &Key, refused: Vec<Refused>) {
        self.refusals.put(controller, key, refused);
    }
}

/// What happened to one object.
#[derive(Clone)]
pub struct Change {
    /// Its kind.
    pub resource: Resource,
    /// Where it is.
    pub key: Key,
    before: Option<Arc<dyn Any + Send + Sync>>,
    after: Option<Arc<dyn Any + Send + Sync>>,
}

impl Change {
    /// The object as it was, if it is a `V` and was there.
    #[must_use]
    pub fn before<V: View>(&self) -> Option<&V> {
        self.before.as_ref()?.downcast_ref()
    }

    /// The object as it is, if it is a `V` and is there.
    #[must_use]
    pub fn after<V: View>(&self) -> Option<&V> {
        self.after.as_ref()?.downcast_ref()
    }

    /// The object as it was and as it is.
    pub fn both<V: View>(&self) -> impl Iterator<Item = &V> {
        self.before::<V>().into_iter().chain(self.after::<V>())
    }

    /// Whether this is about an object of kind `V`.
    #[must_use]
    pub fn is<V: View>(&self) -> bool {
        self.before::<V>().is_some() || self.after::<V>().is_some()
    }

    /// Whether the object is gone.
    #[must_use]
    pub fn is_removal(&self) -> bool {
        self.after.is_none()
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (&self.before, &self.after) {
            (None, _) => "added",
            (Some(_), Some(_)) => "changed",
            (Some(_), None) => "removed",
        };
        write!(to, "{} {} {what}", self.resource, self.key)
    }
}

/// An object that does not fit the view of its kind.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {resource} {key}")]
pub struct Unreadable {
    /// Its kind.
    pub resource: Box<Resource>,
    /// Where it is.
    pub key: Key,
    /// What that changed, if it could be read before. It is told as any other change, so that whoever
    /// had seen the object looks again.
    pub change: Option<Box<Change>>,
    source: serde_json::Error,
}

impl Unreadable {
    fn new(resource: Resource, object: &str, source: serde_json::Error) -> Self {
        let object: Value = serde_json::from_str(object).unwrap_or_default();
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        Self {
            resource: Box::new(resource),
            key: Key::new(text("namespace"), text("name")),
            change: None,
            source,
        }
    }

    /// What is wrong, in one sentence.
    fn why(&self) -> String {
        format!("{self}: {}", self.source)
    }
}

#[cfg(test)]
mod tests;
