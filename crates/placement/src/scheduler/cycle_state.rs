//! Everything a plan decides on, as it is when the plan begins, and what the plan has allocated
//! since.

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
use gantry_pods::{NodeInfo, PodRequirements, Requests};
use gantry_reconcile::World;
use jiff::Timestamp;

use crate::allocation_ledger::{AllocationLedger, PoolLedgerEntry};
use crate::claim::{self, Claim};
use crate::config::ClassMatcher;
use crate::scheduling_gate;
use crate::scheduling_gate::node_refusals::NodeRefusals;
use crate::views::DeviceObject;

use super::inventory_cache::{InventoryCache, SchedulingInventory, SourceObjects};
use super::overhead::{self, DeviceOverheads};

/// The state of a plan under construction.
pub(super) struct CycleState<'a> {
    pub(super) world: &'a World,
    pub(super) now: Timestamp,
    pub(super) constraints: &'a Constraints,
    /// What is free: published, less what is in ledgers, less what this plan allocated.
    pub(super) inventory: SchedulingInventory,
    /// Whether the inventory is valid for this plan alone: a device is held that is in no ledger,
    /// or a pool is closed.
    plan_specific: bool,
    pub(super) pools: &'a [Arc<DeviceObject<DevicePool>>],
    pub(super) ledger: AllocationLedger<'a>,
    /// Void entries, which block no device.
    void_entries: Vec<PoolLedgerEntry<'a>>,
    /// The nodes, in the order of the snapshot.
    nodes: Vec<NodeInfo<'a>>,
    /// Nodes that must not be chosen again for a while.
    pub(super) refusals: NodeRefusals<'a>,
    /// The node resources that devices use.
    pub(super) overheads: DeviceOverheads<'a>,
    /// How often anything was changed that a search reads.
    revision: u64,
}

impl<'a> CycleState<'a> {
    pub(super) fn new(
        world: &'a World,
        objects: &'a SourceObjects,
        pods: &'a [Arc<Pod>],
        ledgers: AllocationLedger<'a>,
        constraints: &'a Constraints,
        now: Timestamp,
    ) -> Self {
        let mut scheduling_inventory = world.derived::<InventoryCache>().take(objects);
        let mut spoilt = false;
        let overheads = DeviceOverheads::new(objects.pools.iter().map(|it| &**it));
        let (mut taken, mut void) = (Vec::new(), Vec::new());
        // A pool that was recreated has lost its ledger. Claims that have devices of it still have
        // them.
        for seen in world.store::<DeviceObject<DeviceClaim>>().list() {
            let claim = Claim::Plain(seen);
            let extra = overheads.total_for(claim.allocations());
            if !overhead::is_zero(&extra) {
                let nodes = overhead::charged_nodes(world, &claim).into_iter();
                taken.extend(nodes.map(|node| (node, extra.clone())));
            }
            void.extend(ledgers.void_entries(&claim));
            for allocation in claim.allocations().iter().filter(|it| claim::is_hold(it)) {
                if !ledgers.contains(&claim, allocation) {
                    scheduling_inventory.snapshot.hold_allocation(allocation);
                    spoilt = true;
                }
            }
        }
        for line in &void {
            scheduling_inventory.snapshot.release_entry(line.pool, line.entry);
        }
        let mut sites: Vec<NodeInfo<'a>> =
            objects.nodes.iter().map(|it| NodeInfo::new(it)).collect();
        let find =
            |name: &str| objects.nodes.binary_search_by(|it| it.metadata.name.as_str().cmp(name));
        for pod in pods.iter().filter(|it| !it.is_terminal()) {
            if let Ok(at) = find(&scheduling_gate::assigned_node(pod)) {
                sites[at].add_pod(pod);
            }
        }
        for (node, extra) in taken {
            if let Ok(at) = find(&node) {
                sites[at].requested.add(&extra);
            }
        }
        let pools = objects.pools.as_slice();
        let refusals = NodeRefusals::new(pools, now);
        Self {
            world,
            now,
            constraints,
            inventory: scheduling_inventory,
            plan_specific: spoilt,
            pools,
            ledger: ledgers,
            void_entries: void,
            nodes: sites,
            refusals,
            overheads,
            revision: 0,
        }
    }

    /// Returns a number that changes whenever a search could have another result than before.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether everything that a search reads follows from the inventory and from what is used of
    /// nodes, and is as it was when the plan began.
    pub(super) fn is_untouched(&self) -> bool {
        !self.plan_specific && self.void_entries.is_empty() && self.revision == 0
    }

    /// Returns the nodes, in the order of the snapshot.
    pub(super) fn nodes(&self) -> &[NodeInfo<'a>] {
        &self.nodes
    }

    /// Counts a pod on a node as if it were bound.
    pub(super) fn assume_pod(&mut self, node: usize, pod: &'a Pod) {
        self.nodes[node].add_pod(pod);
        self.revision += 1;
    }

    /// Adds what devices use of a node.
    pub(super) fn add_overhead(&mut self, node: usize, extra: &Requests) {
        self.nodes[node].requested.add(extra);
        self.revision += 1;
    }

    /// Ends the plan, which added these entries: they are removed again, so that the next plan sees
    /// only what was really written.
    pub(super) fn finish(mut self, given: &BTreeMap<String, Vec<LedgerEntry>>) {
        if self.plan_specific {
            return;
        }
        for (pool, entries) in given {
            for entry in entries {
                self.inventory.snapshot.release_entry(pool, entry);
            }
        }
        for line in &self.void_entries {
            self.inventory.snapshot.hold_entry(line.pool, line.entry);
        }
        self.world.derived::<InventoryCache>().store(self.inventory);
    }

    /// Returns the entries of a pool except void ones.
    pub(super) fn pool_entries(
        &self,
        pool: &'a DeviceObject<DevicePool>,
    ) -> impl Iterator<Item = &'a LedgerEntry> {
        let void =
            |entry: &LedgerEntry| self.void_entries.iter().any(|it| std::ptr::eq(it.entry, entry));
        pool.status.allocations.iter().filter(move |it| !void(it))
    }

    /// Returns why a node that is feasible for a pod becomes infeasible if its devices use so much
    /// more of it.
    pub(super) fn insufficient_resources(
        &self,
        pod: &Pod,
        node: usize,
        extra: &Requests,
    ) -> Vec<String> {
        if overhead::is_zero(extra) || !pod.spec.node_name.is_empty() {
            return Vec::new();
        }
        let mut need = PodRequirements::new(pod);
        need.requests.add(extra);
        let misfit = need.rejection(&self.nodes[node]);
        let reasons = misfit.into_iter().flat_map(|it| it.reasons);
        reasons.map(|it| it.text()).collect()
    }

    pub(super) fn pool(&self, name: &str) -> Option<&'a Arc<DeviceObject<DevicePool>>> {
        let at = self.pools.binary_search_by(|it| it.metadata.name.as_str().cmp(name));
        at.ok().map(|at| &self.pools[at])
    }

    /// Treats reserved devices as free, or no longer.
    pub(super) fn release_entries(&mut self, lines: &[PoolLedgerEntry<'_>]) {
        for line in lines {
            self.inventory.snapshot.release_entry(line.pool, line.entry);
            self.revision += 1;
        }
    }

    pub(super) fn hold_entries(&mut self, lines: &[PoolLedgerEntry<'_>]) {
        for line in lines {
            self.inventory.snapshot.hold_entry(line.pool, line.entry);
            self.revision += 1;
        }
    }

    /// Closes a pool to further allocations.
    pub(super) fn close_pool(&mut self, pool: &str, why: &str) {
        self.inventory.snapshot.close_pool(pool, why);
        self.plan_specific = true;
        self.revision += 1;
    }

    pub(super) fn hold_entry(&mut self, pool: &str, entry: &LedgerEntry) {
        self.inventory.snapshot.hold_entry(pool, entry);
        self.revision += 1;
    }
}

/// Returns the drivers and classes that can be parsed.
pub(crate) fn catalog(world: &World) -> Catalog {
    let drivers = world.store::<DeviceObject<DeviceDriver>>().list();
    catalog_of(&drivers, &world.store::<DeviceObject<DeviceClass>>().list())
}

/// Returns those of these drivers and classes that can be parsed.
pub(crate) fn catalog_of(
    drivers: &[Arc<DeviceObject<DeviceDriver>>],
    classes: &[Arc<DeviceObject<DeviceClass>>],
) -> Catalog {
    let drivers = drivers.iter().filter_map(|it| it.object.as_ref().ok());
    let classes = classes.iter().filter_map(|it| it.object.as_ref().ok());
    Catalog::new(Source::Server, drivers, classes)
}

impl ClassMatcher for CycleState<'_> {
    /// Returns for each device the first class by name that it satisfies.
    fn matching_classes(
        &self,
        term: &str,
        device_type: &str,
        got: &[DeviceAllocation],
    ) -> Vec<String> {
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
            let satisfied = self.inventory.catalog.of_type(device_type).find(|(_, class)| {
                let constraint = self.constraints.get(class.constraints.as_deref());
                class.driver.as_ref().is_none_or(|driver| *driver == spec.driver)
                    && constraint.is_none_or(|it| it.evaluate(&subject) == Verdict::Met)
            });
            names.extend(satisfied.map(|(name, _)| name.to_owned()));
        }
        names.dedup();
        names
    }
}
