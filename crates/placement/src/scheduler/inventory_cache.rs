//! Caches what follows from drivers, classes, pools and nodes together from one plan to the next.
//!
//! It can be rebuilt from the world at any time, and is whenever more than ledgers has changed.
//! Most often only a few ledgers did: their old entries are removed and their new ones added.

use std::sync::{Arc, Mutex, PoisonError};

use gantry_api::devices::{DeviceClass, DeviceDriver, DevicePool};
use gantry_devices::lower::{Catalog, NodeLabels, Snapshot};
use gantry_pods::view::Node;
use gantry_reconcile::World;

use super::cycle_state::catalog_of;
use crate::views::DeviceObject;

/// Holds the inventory between two plans. One that is taken and not stored again is rebuilt.
#[derive(Debug, Default)]
pub(super) struct InventoryCache(Mutex<Option<SchedulingInventory>>);

impl InventoryCache {
    /// Takes the inventory that follows from these objects.
    pub(super) fn take(&self, objects: &SourceObjects) -> SchedulingInventory {
        // Nothing can panic under the lock.
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        SchedulingInventory::update_or_rebuild(objects, before)
    }

    /// Stores an inventory that is in the state in which it was taken.
    pub(super) fn store(&self, inventory: SchedulingInventory) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(inventory);
    }
}

/// The published devices and what ledgers say about them.
#[derive(Debug)]
pub(super) struct SchedulingInventory {
    sources: SourceObjects,
    pub(super) catalog: Catalog,
    /// What is free: published, less what is in ledgers.
    pub(super) snapshot: Snapshot,
}

/// The objects that an inventory is built from.
#[derive(Clone, Debug)]
pub(super) struct SourceObjects {
    drivers: Vec<Arc<DeviceObject<DeviceDriver>>>,
    classes: Vec<Arc<DeviceObject<DeviceClass>>>,
    pub(super) pools: Vec<Arc<DeviceObject<DevicePool>>>,
    pub(super) nodes: Vec<Arc<Node>>,
}

impl SchedulingInventory {
    /// Returns the objects it was built from.
    pub(super) fn sources(&self) -> &SourceObjects {
        &self.sources
    }

    fn update_or_rebuild(objects: &SourceObjects, before: Option<Self>) -> Self {
        // A reservation whose device is not found was never added, so it cannot be removed.
        let follows = |it: &Self| {
            it.snapshot.lost_holds.is_empty() && it.sources.differs_only_in_ledgers(objects)
        };
        let Some(mut inventory) = before.filter(follows) else { return Self::new(objects) };
        for (old, new) in inventory.sources.pools.iter().zip(&objects.pools) {
            if !Arc::ptr_eq(old, new) && new.object.is_ok() {
                let name = &new.metadata.name;
                for entry in &old.status.allocations {
                    inventory.snapshot.release_entry(name, entry);
                }
                for entry in &new.status.allocations {
                    inventory.snapshot.hold_entry(name, entry);
                }
            }
        }
        Self { sources: objects.clone(), ..inventory }
    }

    fn new(objects: &SourceObjects) -> Self {
        let catalog = catalog_of(&objects.drivers, &objects.classes);
        let labels: Vec<NodeLabels> = objects.nodes.iter().map(|node| labels(node)).collect();
        let pools: Vec<DevicePool> =
            objects.pools.iter().filter_map(|it| it.with_ledger()).collect();
        let snapshot = Snapshot::new(&catalog, &labels, &pools);
        Self { sources: objects.clone(), catalog, snapshot }
    }
}

impl SourceObjects {
    pub(super) fn new(world: &World) -> Self {
        Self {
            drivers: world.store::<DeviceObject<DeviceDriver>>().list(),
            classes: world.store::<DeviceObject<DeviceClass>>().list(),
            pools: world.store::<DeviceObject<DevicePool>>().list(),
            nodes: world.store::<Node>().list(),
        }
    }

    /// Whether every search has the same result with both, if the same is used of their nodes.
    pub(super) fn is_search_equivalent(&self, other: &Self) -> bool {
        self.differs_only_in_ledgers(other)
            && lists_match(&self.pools, &other.pools, |one, other| {
                one.status.allocations == other.status.allocations
            })
            && lists_match(&self.nodes, &other.nodes, |one, other| {
                one.spec == other.spec
                    && one.status.allocatable == other.status.allocatable
                    && one.is_ready() == other.is_ready()
            })
    }

    /// Whether two differ in nothing but their ledgers.
    fn differs_only_in_ledgers(&self, other: &Self) -> bool {
        lists_match(&self.drivers, &other.drivers, |one, other| {
            let (said, says) = (one.object.as_ref().ok(), other.object.as_ref().ok());
            one.metadata.name == other.metadata.name
                && said.map(|it| &it.device_types) == says.map(|it| &it.device_types)
        }) && lists_match(&self.classes, &other.classes, |one, other| {
            let (said, says) = (one.object.as_ref().ok(), other.object.as_ref().ok());
            one.metadata.name == other.metadata.name
                && said.map(|it| &it.spec) == says.map(|it| &it.spec)
        }) && lists_match(&self.pools, &other.pools, |one, other| {
            let (said, says) = (one.object.as_ref().ok(), other.object.as_ref().ok());
            one.metadata.name == other.metadata.name
                && said.map(|it| &it.spec) == says.map(|it| &it.spec)
        }) && lists_match(&self.nodes, &other.nodes, |one, other| {
            let (one, other) = (&one.metadata, &other.metadata);
            one.name == other.name && one.labels == other.labels
        })
    }
}

/// Whether two lists have the same objects, or equal ones.
fn lists_match<T>(one: &[Arc<T>], other: &[Arc<T>], are: impl Fn(&T, &T) -> bool) -> bool {
    let mut pairs = one.iter().zip(other);
    one.len() == other.len() && pairs.all(|(one, other)| Arc::ptr_eq(one, other) || are(one, other))
}

fn labels(node: &Node) -> NodeLabels {
    NodeLabels { name: node.metadata.name.clone(), labels: node.metadata.labels.clone() }
}

#[cfg(test)]
mod tests;
