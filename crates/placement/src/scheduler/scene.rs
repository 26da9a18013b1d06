//! Everything a plan decides on, as it is when the plan begins, and what the plan has given since.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_api::devices::{
    DeviceAllocation, DeviceClaim, DeviceClass, DeviceDriver, DevicePool, LedgerEntry,
};
use gantry_api::finding::Source;
use gantry_devices::constraint::{Constraints, Subject};
use gantry_devices::lower::Catalog;
use gantry_devices::problem::Verdict;
use gantry_pods::view::Pod;
use gantry_pods::{Need, Requests, Site};
use gantry_reconcile::World;
use jiff::Timestamp;

use crate::claim::{self, Claim};
use crate::config::Classes;
use crate::gate;
use crate::gate::refusal::Refusals;
use crate::ledger::{Ledgers, Line};
use crate::seen::Seen;

use super::overhead::{self, Overheads};
use super::stock::{Kept, Objects, Stock};

/// The state of a plan in the making.
pub(super) struct Scene<'a> {
    pub(super) world: &'a World,
    pub(super) now: Timestamp,
    pub(super) constraints: &'a Constraints,
    /// What is free: published, less what is in ledgers, less what this plan gave.
    pub(super) stock: Stock,
    /// Whether the stock is good for this plan alone: something is held that is in no ledger, or a pool
    /// is closed.
    spoilt: bool,
    pub(super) pools: &'a [Arc<Seen<DevicePool>>],
    pub(super) ledgers: Ledgers<'a>,
    /// Entries that are worth nothing, and so keep nobody from what they say.
    void: Vec<Line<'a>>,
    /// The nodes, in the order of the snapshot's.
    sites: Vec<Site<'a>>,
    /// Nodes that are not to be chosen again for a while.
    pub(super) refusals: Refusals<'a>,
    /// What devices take of their nodes.
    pub(super) overheads: Overheads<'a>,
    /// How often anything of it was changed that a search looks at.
    revision: u64,
}

impl<'a> Scene<'a> {
    pub(super) fn new(
        world: &'a World,
        objects: &'a Objects,
        pods: &'a [Arc<Pod>],
        ledgers: Ledgers<'a>,
        constraints: &'a Constraints,
        now: Timestamp,
    ) -> Self {
        let mut stock = world.kept::<Kept>().take(objects);
        let mut spoilt = false;
        let overheads = Overheads::new(objects.pools.iter().map(|it| &**it));
        let (mut taken, mut void) = (Vec::new(), Vec::new());
        // A pool that was made anew has lost its ledger. Who has devices of it still has them.
        for seen in world.shelf::<Seen<DeviceClaim>>().all() {
            let claim = Claim::Plain(seen);
            let extra = overheads.of(claim.allocations());
            if !overhead::is_none(&extra) {
                let nodes = overhead::nodes(world, &claim).into_iter();
                taken.extend(nodes.map(|node| (node, extra.clone())));
            }
            void.extend(ledgers.void(&claim));
            for allocation in claim.allocations().iter().filter(|it| claim::is_hold(it)) {
                if !ledgers.has(&claim, allocation) {
                    stock.snapshot.hold(allocation);
                    spoilt = true;
                }
            }
        }
        for line in &void {
            stock.snapshot.release(line.pool, line.entry);
        }
        let mut sites: Vec<Site<'a>> = objects.nodes.iter().map(|it| Site::new(it)).collect();
        let find =
            |name: &str| objects.nodes.binary_search_by(|it| it.metadata.name.as_str().cmp(name));
        for pod in pods.iter().filter(|it| !it.is_over()) {
            if let Ok(at) = find(&gate::node_of(pod)) {
                sites[at].put(pod);
            }
        }
        for (node, extra) in taken {
            if let Ok(at) = find(&node) {
                sites[at].used.add(&extra);
            }
        }
        let pools = objects.pools.as_slice();
        let refusals = Refusals::new(pools, now);
        Self {
            world,
            now,
            constraints,
            stock,
            spoilt,
            pools,
            ledgers,
            void,
            sites,
            refusals,
            overheads,
            revision: 0,
        }
    }

    /// Another number whenever a search could find something else than before.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether all that a search looks at follows from the stock and from what is taken of nodes, and
    /// is as it was when the plan began.
    pub(super) fn is_untouched(&self) -> bool {
        !self.spoilt && self.void.is_empty() && self.revision == 0
    }

    /// The nodes, in the order of the snapshot's.
    pub(super) fn sites(&self) -> &[Site<'a>] {
        &self.sites
    }

    /// Counts a pod in on a node.
    pub(super) fn put(&mut self, node: usize, pod: &'a Pod) {
        self.sites[node].put(pod);
        self.revision += 1;
    }

    /// Counts in what devices take of a node.
    pub(super) fn burden(&mut self, node: usize, extra: &Requests) {
        self.sites[node].used.add(extra);
        self.revision += 1;
    }

    /// Ends the plan, which gave these entries: others will be given what is left when it was carried
    /// out.
    pub(super) fn finish(mut self, given: &BTreeMap<String, Vec<LedgerEntry>>) {
        if self.spoilt {
            return;
        }
        for (pool, entries) in given {
            for entry in entries {
                self.stock.snapshot.release(pool, entry);
            }
        }
        for line in &self.void {
            self.stock.snapshot.enter(line.pool, line.entry);
        }
        self.world.kept::<Kept>().bring_back(self.stock);
    }

    /// The entries of a pool, but for those that are worth nothing.
    pub(super) fn entries(
        &self,
        pool: &'a Seen<DevicePool>,
    ) -> impl Iterator<Item = &'a LedgerEntry> {
        let void = |entry: &LedgerEntry| self.void.iter().any(|it| std::ptr::eq(it.entry, entry));
        pool.status.allocations.iter().filter(move |it| !void(it))
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
            self.stock.snapshot.release(line.pool, line.entry);
            self.revision += 1;
        }
    }

    pub(super) fn enter(&mut self, lines: &[Line<'_>]) {
        for line in lines {
            self.stock.snapshot.enter(line.pool, line.entry);
            self.revision += 1;
        }
    }

    /// Lets nobody take more of a pool.
    pub(super) fn close(&mut self, pool: &str, why: &str) {
        self.stock.snapshot.close(pool, why);
        self.spoilt = true;
        self.revision += 1;
    }

    pub(super) fn enter_one(&mut self, pool: &str, entry: &LedgerEntry) {
        self.stock.snapshot.enter(pool, entry);
        self.revision += 1;
    }
}

/// Drivers and classes that can be understood.
pub(crate) fn catalog(world: &World) -> Catalog {
    let drivers = world.shelf::<Seen<DeviceDriver>>().all();
    listed(&drivers, &world.shelf::<Seen<DeviceClass>>().all())
}

/// Those of these that can be understood.
pub(crate) fn listed(
    drivers: &[Arc<Seen<DeviceDriver>>],
    classes: &[Arc<Seen<DeviceClass>>],
) -> Catalog {
    let drivers = drivers.iter().filter_map(|it| it.object.as_ref().ok());
    let classes = classes.iter().filter_map(|it| it.object.as_ref().ok());
    Catalog::new(Source::Server, drivers, classes)
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
            let satisfied = self.stock.catalog.of_type(device_type).find(|(_, class)| {
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
