//! Dispatches the operations of scaling to the back ends.

use std::collections::BTreeMap;

use gantry_reconcile::{Key, Plan, World};

use crate::demand::Demand;
use crate::grant_record::{Grant, GrantRecord, NodeAllocation};
use crate::machine_set::{duplicate, reuse};
use crate::reason::Reason;
use crate::settings::Backend;
use crate::{node_group, pool};

impl Backend {
    /// Returns where the nodes of a job come from. Existing allocations are kept, as far as they
    /// are needed.
    ///
    /// # Errors
    /// Fails if nothing provides them.
    pub(crate) fn allocate(
        self,
        world: &World,
        ledger: &GrantRecord,
        job: &Key,
        id: &str,
        demand: &Demand,
        lots: &[NodeAllocation],
    ) -> Result<Vec<NodeAllocation>, Reason> {
        let mut kept = keep_needed(demand, lots);
        for (instance, count) in demand.iter() {
            let have: u32 =
                kept.iter().filter(|lot| lot.instance == instance).map(|lot| lot.count).sum();
            let missing = count.saturating_sub(have);
            if missing == 0 {
                continue;
            }
            let more = match self {
                Self::Reuse => reuse::allocate(world, instance, missing, &kept)?,
                Self::Duplicate => duplicate::allocate(world, job, instance, missing)?,
                Self::Pools(kind) => {
                    pool::allocate(world, ledger, job, id, kind, (instance, missing), &kept)?
                }
                Self::Groups => node_group::allocate(
                    world,
                    ledger,
                    ledger.config_map_key(),
                    (instance, missing),
                )?,
            };
            for lot in more {
                let same =
                    |it: &&mut NodeAllocation| it.place == lot.place && it.instance == lot.instance;
                match kept.iter_mut().find(same) {
                    Some(before) => before.count = before.count.saturating_add(lot.count),
                    None => kept.push(lot),
                }
            }
        }
        kept.sort();
        Ok(kept)
    }

    /// Provisions what was granted. Returns how many nodes are ready.
    ///
    /// # Errors
    /// Fails with what prevents that.
    pub(crate) fn provide(
        self,
        world: &World,
        beside: &Key,
        job: &Key,
        grant: &Grant,
        plan: &mut Plan,
    ) -> Result<u32, Reason> {
        match self {
            Self::Reuse => Ok(reuse::provide(world, job, grant, plan)),
            Self::Duplicate => duplicate::provide(world, job, grant, plan),
            Self::Pools(_) => pool::provide(world, job, grant, plan),
            Self::Groups => node_group::provide(world, beside, job, grant, plan),
        }
    }

    /// Releases what a job has. Returns whether nothing is left.
    pub(crate) fn release(
        self,
        world: &World,
        job: &Key,
        grant: Option<&Grant>,
        plan: &mut Plan,
    ) -> bool {
        match self {
            Self::Reuse => reuse::release(world, job, grant, plan),
            Self::Duplicate => duplicate::release(world, job, plan),
            Self::Pools(_) => pool::release(world, job, grant, plan),
            Self::Groups => node_group::release(world, job, plan),
        }
    }

    /// Returns what exists for a job, by its owner labels alone.
    pub(crate) fn existing(self, world: &World, beside: &Key, job: &Key) -> Vec<NodeAllocation> {
        match self {
            Self::Reuse => reuse::existing(world, job),
            Self::Duplicate => duplicate::existing(world, job),
            Self::Pools(_) => pool::existing(world, job),
            Self::Groups => node_group::existing(world, beside, job),
        }
    }

    /// Returns the grant that it was bought for, where that is recorded.
    pub(crate) fn grant_of(self, world: &World, job: &Key) -> Option<String> {
        match self {
            Self::Reuse | Self::Pools(_) => None,
            Self::Duplicate => duplicate::grant_of(world, job),
            Self::Groups => node_group::grant_of(world, job),
        }
    }

    /// Returns whether nodes can be handed over from one job to another.
    pub(crate) fn supports_handover(self) -> bool {
        match self {
            Self::Reuse => true,
            Self::Duplicate | Self::Pools(_) | Self::Groups => false,
        }
    }

    /// Returns whether any object has the labels of a job that handed its nodes over.
    pub(crate) fn has_marked_objects(self, world: &World, job: &Key) -> bool {
        match self {
            Self::Reuse => reuse::has_marked_objects(world, job),
            Self::Duplicate | Self::Pools(_) | Self::Groups => false,
        }
    }
}

/// Returns the allocations that are needed: of a type that is needed less, the last are cut.
fn keep_needed(demand: &Demand, lots: &[NodeAllocation]) -> Vec<NodeAllocation> {
    let mut room: BTreeMap<&str, u32> = demand.iter().collect();
    let mut kept = Vec::new();
    for lot in lots {
        let left = room.entry(lot.instance.as_str()).or_default();
        let count = lot.count.min(*left);
        *left -= count;
        if count > 0 {
            kept.push(NodeAllocation { count, ..lot.clone() });
        }
    }
    kept
}
