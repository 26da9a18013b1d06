//! What follows from drivers, classes, pools and nodes together, kept from one plan to the next.
//!
//! It could be made from the world at any time, and is whenever more has changed than what ledgers say.
//! Most often only a few of those did: what they said is taken out, and what they say now is put in.

use std::sync::{Arc, Mutex, PoisonError};

use gantry_api::devices::{DeviceClass, DeviceDriver, DevicePool};
use gantry_devices::lower::{Catalog, NodeLabels, Snapshot};
use gantry_pods::view::Node;
use gantry_reconcile::World;

use super::scene::listed;
use crate::seen::Seen;

/// Where the stock is between two plans. One that is taken and not brought back is made anew.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<Option<Stock>>);

impl Kept {
    /// The stock that follows from these objects.
    pub(super) fn take(&self, objects: &Objects) -> Stock {
        // Nothing can panic under the lock.
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Stock::of(objects, before)
    }

    /// Keeps a stock that is as it was when it was taken.
    pub(super) fn bring_back(&self, stock: Stock) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stock);
    }
}

/// What is published and what ledgers say of it.
#[derive(Debug)]
pub(super) struct Stock {
    made_of: Objects,
    pub(super) catalog: Catalog,
    /// What is free: published, less what is in ledgers.
    pub(super) snapshot: Snapshot,
}

/// What a stock follows from.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    drivers: Vec<Arc<Seen<DeviceDriver>>>,
    classes: Vec<Arc<Seen<DeviceClass>>>,
    pub(super) pools: Vec<Arc<Seen<DevicePool>>>,
    pub(super) nodes: Vec<Arc<Node>>,
}

impl Stock {
    /// What it follows from.
    pub(super) fn made_of(&self) -> &Objects {
        &self.made_of
    }

    fn of(objects: &Objects, before: Option<Self>) -> Self {
        // What is held and not to be found is in no books it could be taken out of.
        let follows =
            |it: &Self| it.snapshot.lost.is_empty() && it.made_of.publish_the_same(objects);
        let Some(mut stock) = before.filter(follows) else { return Self::new(objects) };
        for (old, new) in stock.made_of.pools.iter().zip(&objects.pools) {
            if !Arc::ptr_eq(old, new) && new.object.is_ok() {
                let name = &new.metadata.name;
                for entry in &old.status.allocations {
                    stock.snapshot.release(name, entry);
                }
                for entry in &new.status.allocations {
                    stock.snapshot.enter(name, entry);
                }
            }
        }
        Self { made_of: objects.clone(), ..stock }
    }

    fn new(objects: &Objects) -> Self {
        let catalog = listed(&objects.drivers, &objects.classes);
        let labels: Vec<NodeLabels> = objects.nodes.iter().map(|node| labels(node)).collect();
        let pools: Vec<DevicePool> = objects.pools.iter().filter_map(|it| it.whole()).collect();
        let snapshot = Snapshot::new(&catalog, &labels, &pools);
        Self { made_of: objects.clone(), catalog, snapshot }
    }
}

impl Objects {
    pub(super) fn new(world: &World) -> Self {
        Self {
            drivers: world.shelf::<Seen<DeviceDriver>>().all(),
            classes: world.shelf::<Seen<DeviceClass>>().all(),
            pools: world.shelf::<Seen<DevicePool>>().all(),
            nodes: world.shelf::<Node>().all(),
        }
    }

    /// Whether every search has the same answer beside both, if as much is taken of their nodes.
    pub(super) fn answer_alike(&self, other: &Self) -> bool {
        self.publish_the_same(other)
            && alike(&self.pools, &other.pools, |one, other| {
                one.status.allocations == other.status.allocations
            })
            && alike(&self.nodes, &other.nodes, |one, other| {
                one.spec == other.spec
                    && one.status.allocatable == other.status.allocatable
                    && one.is_ready() == other.is_ready()
            })
    }

    /// Whether two say the same but for their ledgers.
    fn publish_the_same(&self, other: &Self) -> bool {
        alike(&self.drivers, &other.drivers, |one, other| {
            let (said, says) = (one.object.as_ref().ok(), other.object.as_ref().ok());
            one.metadata.name == other.metadata.name
                && said.map(|it| &it.device_types) == says.map(|it| &it.device_types)
        }) && alike(&self.classes, &other.classes, |one, other| {
            let (said, says) = (one.object.as_ref().ok(), other.object.as_ref().ok());
            one.metadata.name == other.metadata.name
                && said.map(|it| &it.spec) == says.map(|it| &it.spec)
        }) && alike(&self.pools, &other.pools, |one, other| {
            let (said, says) = (one.object.as_ref().ok(), other.object.as_ref().ok());
            one.metadata.name == other.metadata.name
                && said.map(|it| &it.spec) == says.map(|it| &it.spec)
        }) && alike(&self.nodes, &other.nodes, |one, other| {
            let (one, other) = (&one.metadata, &other.metadata);
            one.name == other.name && one.labels == other.labels
        })
    }
}

/// Whether two lists have the same objects, or others that are alike.
fn alike<T>(one: &[Arc<T>], other: &[Arc<T>], are: impl Fn(&T, &T) -> bool) -> bool {
    let mut pairs = one.iter().zip(other);
    one.len() == other.len() && pairs.all(|(one, other)| Arc::ptr_eq(one, other) || are(one, other))
}

fn labels(node: &Node) -> NodeLabels {
    NodeLabels { name: node.metadata.name.clone(), labels: node.metadata.labels.clone() }
}

#[cfg(test)]
mod tests;
