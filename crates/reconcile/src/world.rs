//! The cached objects and facts that controllers read.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::fact::{Fact, FactTable};
use crate::object::{Key, Meta, Resource, Uid};
use crate::write::{Outcome, Write};

mod derived;
mod refusals;
mod store;

use derived::DerivedState;
pub use refusals::RefusedWrite;
use refusals::RefusedWrites;
pub use store::{AnyStore, Store};

/// The typed view of the objects of one kind: the fields that controllers read.
///
/// A view has only the fields that a decision depends on: the cache stays small, and the type says
/// what a plan may depend on. It is decoded from any object that the server stores, so it may
/// require only what the server requires.
pub trait View: DeserializeOwned + fmt::Debug + Send + Sync + 'static {
    /// The kind this is a view of.
    const RESOURCE: Resource;

    /// The object's metadata.
    fn meta(&self) -> &Meta;

    /// The index values of the object, under which it is found without a scan.
    fn index_values(&self) -> Vec<IndexValue> {
        self.meta().controller().map(|owner| IndexValue::owner(&owner.uid)).into_iter().collect()
    }

    /// The object after a write whose response does not contain it; `None` where that is not known.
    fn after(&self, write: &Write) -> Option<Self> {
        let _ = write;
        None
    }
}

/// An entry under which an object is indexed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexValue {
    /// The index: `owner`, `node`.
    pub index: &'static str,
    /// The value in that index.
    pub value: String,
}

impl IndexValue {
    /// Objects whose controller has this UID.
    #[must_use]
    pub fn owner(uid: &Uid) -> Self {
        Self { index: "owner", value: uid.as_str().to_owned() }
    }
}

/// Identifies a store: a resource, and the view through which its objects are read.
///
/// Most resources have one view. Where two readers need different fields of a resource, or
/// different objects of it, each has a store of its own.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreId {
    resource: Resource,
    view: TypeId,
}

impl StoreId {
    /// The store of the resource that `V` is a view of.
    #[must_use]
    pub fn of<V: View>() -> Self {
        Self::with_resource::<V>(V::RESOURCE)
    }

    /// The store of `resource` with view `V`.
    #[must_use]
    pub fn with_resource<V: View>(resource: Resource) -> Self {
        Self { resource, view: TypeId::of::<V>() }
    }

    /// The resource.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.resource
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Place({})", self.resource)
    }
}

/// A resource and the type of its view, for code that handles stores of many kinds.
#[derive(Clone)]
pub struct Kind {
    store_id: StoreId,
    /// Whether the view belongs to this resource alone.
    is_own: bool,
    make_store: fn(Resource) -> Arc<dyn AnyStore>,
}

impl Kind {
    /// The resource that `V` is a view of.
    #[must_use]
    pub fn of<V: View>() -> Self {
        Self { is_own: true, ..Self::with_resource::<V>(V::RESOURCE) }
    }

    /// A resource that is known only at run time, with view `V`: many resources may share one view.
    /// Its store is found by [`World::store_for`].
    #[must_use]
    pub fn with_resource<V: View>(resource: Resource) -> Self {
        let make =
            |resource| -> Arc<dyn AnyStore> { Arc::new(Store::<V>::with_resource(resource)) };
        Self { store_id: StoreId::with_resource::<V>(resource), is_own: false, make_store: make }
    }

    /// The resource as the API addresses it.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.store_id.resource
    }

    /// The store that holds its objects.
    #[must_use]
    pub fn store_id(&self) -> &StoreId {
        &self.store_id
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Kind({})", self.resource())
    }
}

/// The stores of each resource, one for each view.
type Stores = BTreeMap<Resource, Vec<Arc<dyn AnyStore>>>;

/// Everything that was observed: a store for each view of each resource. Clones share the same
/// data.
#[derive(Clone, Debug, Default)]
pub struct World {
    by_view: HashMap<TypeId, Arc<dyn AnyStore>>,
    by_resource: Arc<RwLock<Stores>>,
    refusals: Arc<RefusedWrites>,
    derived: Arc<DerivedState>,
}

impl World {
    /// A world with an empty store for each of these kinds. A kind may be listed more than once.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let mut world = Self::default();
        for kind in kinds {
            let (shelf, _) = world.add_store(&kind);
            if kind.is_own {
                world.by_view.insert(kind.store_id.view, shelf);
            }
        }
        world
    }

    /// Adds a store for a kind that is needed only later, unless there is one. Returns it, and
    /// whether it is new. It is found by [`store_for`](World::store_for).
    pub fn add_store(&self, kind: &Kind) -> (Arc<dyn AnyStore>, bool) {
        let Kind { store_id: place, make_store: make, .. } = kind;
        // No foreign code runs under the lock, so the data of a poisoned lock is still intact.
        let mut all = self.by_resource.write().unwrap_or_else(PoisonError::into_inner);
        let shelves = all.entry(place.resource.clone()).or_default();
        if let Some(known) = shelves.iter().find(|it| it.store_id() == *place) {
            return (Arc::clone(known), false);
        }
        let new = make(place.resource.clone());
        shelves.push(Arc::clone(&new));
        (new, true)
    }

    /// The objects of one kind.
    ///
    /// # Panics
    /// If the world has no store for the kind. An empty store instead would read as "there are
    /// none", and a controller would act on that.
    #[must_use]
    pub fn store<V: View>(&self) -> &Store<V> {
        let shelf = self.by_view.get(&TypeId::of::<V>()).map(|shelf| shelf.as_any());
        shelf
            .and_then(|shelf| shelf.downcast_ref())
            .expect("a controller reads only kinds that it declared")
    }

    /// The objects of a resource with view `V`, if there is a store for it.
    #[must_use]
    pub fn store_for<V: View>(&self, resource: &Resource) -> Option<Arc<Store<V>>> {
        let all = self.read();
        let mut shelves = all.get(resource)?.iter();
        shelves.find_map(|it| Arc::clone(it).into_any().downcast().ok())
    }

    /// All stores with view `V`, ordered by resource.
    #[must_use]
    pub fn stores_with_view<V: View>(&self) -> Vec<Arc<Store<V>>> {
        let all = self.read();
        let shelves = all.values().flatten();
        shelves.filter_map(|it| Arc::clone(it).into_any().downcast().ok()).collect()
    }

    /// The store of a resource that has exactly one view; `None` otherwise.
    #[must_use]
    pub fn single_store_for(&self, resource: &Resource) -> Option<Arc<dyn AnyStore>> {
        match self.read().get(resource)?.as_slice() {
            [only] => Some(Arc::clone(only)),
            _ => None,
        }
    }

    /// The store with this id.
    #[must_use]
    pub fn store_by_id(&self, place: &StoreId) -> Option<Arc<dyn AnyStore>> {
        let all = self.read();
        all.get(&place.resource)?.iter().find(|it| it.store_id() == *place).cloned()
    }

    /// All stores of a resource.
    #[must_use]
    pub fn stores_for_resource(&self, resource: &Resource) -> Vec<Arc<dyn AnyStore>> {
        self.read().get(resource).cloned().unwrap_or_default()
    }

    /// All stores.
    pub fn stores(&self) -> impl Iterator<Item = Arc<dyn AnyStore>> + use<> {
        let all: Vec<_> = self.read().values().flatten().cloned().collect();
        all.into_iter()
    }

    fn read(&self) -> RwLockReadGuard<'_, Stores> {
        self.by_resource.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// State that is derived from the objects and expensive to compute, such as sums and sorted
    /// lists. There is one value of each type in a world, and it starts as the default.
    ///
    /// An [`Observer`](crate::Observer) keeps it up to date, and may receive the same change more
    /// than once. A plan that reads it must be the same as one made from the stores alone.
    #[must_use]
    pub fn derived<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.derived.get()
    }

    /// The facts of one kind. A fact that was never recorded is unknown.
    #[must_use]
    pub fn facts<F: Fact>(&self) -> Arc<FactTable<F>> {
        self.derived.get()
    }

    /// Updates the stores with the outcome of a write, so that the next plan sees it before the
    /// watch delivers it. The returned changes must be delivered to the controllers like those of a
    /// watch.
    #[must_use]
    pub fn assume(&self, write: &Write, answer: &Outcome) -> Vec<Change> {
        let shelves = self.stores_for_resource(write.resource());
        shelves.iter().filter_map(|shelf| shelf.assume(write, answer)).collect()
    }

    /// The writes that the server refused when the last plan of this key was executed, in the order
    /// of the responses.
    ///
    /// A plan may report them in a status, and must not depend on them otherwise: they are lost
    /// when the process ends, and only another attempt restores them.
    #[must_use]
    pub fn refused_writes(&self, controller: &str, key: &Key) -> Vec<RefusedWrite> {
        self.refusals.get(controller, key)
    }

    /// Records the writes that the server refused when a plan was executed, and replaces those
    /// recorded for the key before. It is called once for each plan, before the next one.
    pub fn record_refusals(&self, controller: &'static str, key: &Key, refused: Vec<RefusedWrite>) {
        self.refusals.put(controller, key, refused);
    }
}

/// A change of one object.
#[derive(Clone)]
pub struct Change {
    /// Its resource.
    pub resource: Resource,
    /// Its namespace and name.
    pub key: Key,
    before: Option<Arc<dyn Any + Send + Sync>>,
    after: Option<Arc<dyn Any + Send + Sync>>,
}

impl Change {
    /// The object before the change, if it existed and is a `V`.
    #[must_use]
    pub fn before<V: View>(&self) -> Option<&V> {
        self.before.as_ref()?.downcast_ref()
    }

    /// The object after the change, if it exists and is a `V`.
    #[must_use]
    pub fn after<V: View>(&self) -> Option<&V> {
        self.after.as_ref()?.downcast_ref()
    }

    /// The object before and after the change.
    pub fn both<V: View>(&self) -> impl Iterator<Item = &V> {
        self.before::<V>().into_iter().chain(self.after::<V>())
    }

    /// Whether this is a change of an object of kind `V`.
    #[must_use]
    pub fn is<V: View>(&self) -> bool {
        self.before::<V>().is_some() || self.after::<V>().is_some()
    }

    /// Whether the object was deleted.
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

/// An object that cannot be decoded into the view of its kind.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {resource} {key}")]
pub struct Unreadable {
    /// Its resource.
    pub resource: Box<Resource>,
    /// Its namespace and name.
    pub key: Key,
    /// The removal of the object from the store, if it was readable before. It is delivered like
    /// any other change, so that controllers that read the object plan again.
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

    /// The decoding error, in one sentence.
    fn why(&self) -> String {
        format!("{self}: {}", self.source)
    }
}

#[cfg(test)]
mod tests;
