//! Everything a plan decides on, as it is when the plan begins, and what the plan has given since.

use std::sync::Arc;

use gantry_api::devices::{
    DeviceAllocation, DeviceClaim, DeviceClass, DeviceDriver, DevicePool, LedgerEntry,
};
use gantry_api::finding::Source;
use gantry_devices::constraint::{Constraints, Subject};
use gantry_devices::lower::{Catalog, NodeLabels, Snapshot};
use gantry_devices::problem::Verdict;
use gantry_pods::view::{Node, Pod};
use gantry_pods::{Need, Requests, Site};
use gantry_reconcile::World;
use jiff::Timestamp;

use crate::claim::{self, Claim};
use crate::config::Classes;
use crate::ledger::{Ledgers, Line};
use crate::seen::Seen;

use super::overhead::{self, Overheads};

/// The objects themselves.
pub(super) struct Objects {
    pub(super) pools: Vec<Arc<Seen<DevicePool>>>,
    nodes: Vec<Arc<Node>>,
    pods: Vec<Arc<Pod>>,
}

impl Objects {
    pub(super) fn new(world: &World) -> Self {
        Self {
            pools: world.shelf::<Seen<DevicePool>>().all(),
            nodes: world.shelf::<Node>().all(),
            pods: world.shelf::<Pod>().all(),
        }
    }
}

/// The state of a plan in the making.
pub(super) struct Scene<'a> {
    pub(super) world: &'a World,
    pub(super) now: Timestamp,
    pub(super) constraints: &'a Constraints,
    pub(super) catalog: Catalog,
    pub(super) pools: &'a [Arc<Seen<DevicePool>>],
    pub(super) ledgers: Ledgers<'a>,
    /// What is free: published, less what is in ledgers, less what this plan gave.
    pub(super) snapshot: Snapshot,
    /// The nodes, in the order of the snapshot's.
    pub(super) sites: Vec<Site<'a>>,
    /// What devices take of their nodes.
    pub(super) overheads: Overheads<'a>,
}

impl<'a> Scene<'a> {
    pub(super) fn new(
        world: &'a World,
        objects: &'a Objects,
        ledgers: Ledgers<'a>,
        constraints: &'a Constraints,
        now: Timestamp,
    ) -> Self {
        let catalog = catalog(world);
        let labels: Vec<NodeLabels> = objects.nodes.iter().map(|node| labels(node)).collect();
        let pools: Vec<DevicePool> = objects.pools.iter().filter_map(|it| whole(it)).collect();
        let mut snapshot = Snapshot::new(&catalog, &labels, &pools);
        let overheads = Overheads::new(objects.pools.iter().map(|it| &**it));
        let mut taken = Vec::new();
        // A pool that was made anew has lost its ledger. Who has devices of it still has them.
        for seen in world.shelf::<Seen<DeviceClaim>>().all() {
            let claim = Claim::Plain(seen);
            let extra = overheads.of(claim.allocations());
            if !overhead::is_none(&extra) {
                let nodes = overhead::nodes(world, &claim).into_iter();
                taken.extend(nodes.map(|node| (node, extra.clone())));
            }
            for allocation in claim.allocations().iter().filter(|it| claim::is_hold(it)) {
                if !ledgers.has(&claim, allocation) {
                    snapshot.hold(allocation);
                }
            }
        }
        let mut sites: Vec<Site<'a>> = objects.nodes.iter().map(|it| Site::new(it)).collect();
        let find = |name: &String| objects.nodes.binary_search_by(|it| it.metadata.name.cmp(name));
        for pod in objects.pods.iter().filter(|it| !it.spec.node_name.is_empty() && !it.is_over()) {
            if let Ok(at) = find(&pod.spec.node_name) {
                sites[at].put(pod);
            }
        }
        for (node, extra) in taken {
            if let Ok(at) = find(&node) {
                sites[at].used.add(&extra);
            }
        }
        let pools = &objects.pools;
        Self { world, now, constraints, catalog, pools, ledgers, snapshot, sites, overheads }
    }

    /// Why a node that would do for a pod will not do if its devices take so much more of it.
    pub(super) fn lacks(&self, pod: &Pod, node: usize, extra: &Requests) -> Vec<String> {
        if overhead::is_none(extra) || !pod.spec.node_name.is_empty() {
            return Vec::new();
        }
        let mut need = Need::new(pod);
        need.requests.add(extra);
        let misfit = need.misfit(&self.sites[node]);
        let reasons = misfit.into_iter().flat_map(|it| it.reasons);
        reasons.map(|it| it.text()).collect()
    }

    pub(super) fn pool(&self, name: &str) -> Option<&'a Arc<Seen<DevicePool>>> {
        let at = self.pools.binary_search_by(|it| it.metadata.name.as_str().cmp(name));
        at.ok().map(|at| &self.pools[at])
    }

    /// Treats what is set aside as free, or no longer.
    pub(super) fn release(&mut self, lines: &[Line<'_>]) {
        for line in lines {
            self.snapshot.release(line.pool, line.entry);
        }
    }

    pub(super) fn enter(&mut self, lines: &[Line<'_>]) {
        for line in lines {
            self.snapshot.enter(line.pool, line.entry);
        }
    }

    /// Lets nobody take more of a pool.
    pub(super) fn close(&mut self, pool: &str, why: &str) {
        self.snapshot.close(pool, why);
    }

    pub(super) fn enter_one(&mut self, pool: &str, entry: &LedgerEntry) {
        self.snapshot.enter(pool, entry);
    }
}

/// Drivers and classes that can be understood.
pub(crate) fn catalog(world: &World) -> Catalog {
    let drivers = world.shelf::<Seen<DeviceDriver>>().all();
    let classes = world.shelf::<Seen<DeviceClass>>().all();
    let drivers = drivers.iter().filter_map(|it| it.object.as_ref().ok());
    let classes = classes.iter().filter_map(|it| it.object.as_ref().ok());
    Catalog::new(Source::Server, drivers, classes)
}

/// A pool with its ledger; nothing for one that cannot be understood.
pub(crate) fn whole(seen: &Seen<DevicePool>) -> Option<DevicePool> {
    let object = seen.object.as_ref().ok()?;
    Some(DevicePool { status: Some(seen.status.clone()), ..object.clone() })
}

fn labels(node: &Node) -> NodeLabels {
    NodeLabels { name: node.metadata.name.clone(), labels: node.metadata.labels.clone() }
}

impl Classes for Scene<'_> {
    /// For each device the first class by name that it satisfies.
    fn of(&self, term: &str, device_type: &str, got: &[DeviceAllocation]) -> Vec<String> {
        let mut names = Vec::new();
        for allocation in got.iter().filter(|it| it.claim_name.as_deref() == Some(term)) {
            let Some(pool) = self.pool(&allocation.device_pool_name) else { continue };
            let Ok(object) = &pool.object else { continue };
            let spec = &object.spec;
            let device = allocation.device_name.as_ref();
            let device = device.and_then(|name| spec.devices.iter().find(|it| it.name == *name));
            let subject = Subject {
                device_attributes: device.map_or(&[], |it| &it.attributes),
                pool_attributes: &spec.attributes,
                driver: &spec.driver,
                pool: &pool.metadata.name,
                name: allocation.device_name.as_deref(),
                device_type: Some(device_type),
            };
            let satisfied = self.catalog.of_type(device_type).find(|(_, class)| {
                let constraint = self.constraints.get(class.constraints.as_deref());
                class.driver.as_ref().is_none_or(|driver| *driver == spec.driver)
                    && constraint.is_none_or(|it| it.judge(&subject) == Verdict::Met)
            });
            names.extend(satisfied.map(|(name, _)| name.to_owned()));
        }
        names.dedup();
        names
    }
}
