//! What each back end does, by the same words.

use std::collections::BTreeMap;

use gantry_reconcile::{Key, Plan, World};

use crate::demand::Demand;
use crate::ledger::{Grant, Ledger, Lot};
use crate::machine_set::{duplicate, reuse};
use crate::reason::Reason;
use crate::settings::Backend;
use crate::{group, pool};

impl Backend {
    /// Where the nodes of a job are to come from. What it has stays where it is, as far as it is needed.
    ///
    /// # Errors
    /// There is nothing they could come from.
    pub(crate) fn place(
        self,
        world: &World,
        ledger: &Ledger,
        job: &Key,
        id: &str,
        demand: &Demand,
        lots: &[Lot],
    ) -> Result<Vec<Lot>, Reason> {
        let mut kept = keep(demand, lots);
        for (instance, count) in demand.iter() {
            let have: u32 =
                kept.iter().filter(|lot| lot.instance == instance).map(|lot| lot.count).sum();
            let missing = count.saturating_sub(have);
            if missing == 0 {
                continue;
            }
            let more = match self {
                Self::Reuse => reuse::add(world, instance, missing, &kept)?,
                Self::Duplicate => duplicate::add(world, job, instance, missing)?,
                Self::Pools(kind) => {
                    pool::add(world, ledger, job, id, kind, (instance, missing), &kept)?
                }
                Self::Groups => group::add(world, ledger, ledger.place(), (instance, missing))?,
            };
            for lot in more {
                let same = |it: &&mut Lot| it.place == lot.place && it.instance == lot.instance;
                match kept.iter_mut().find(same) {
                    Some(before) => before.count = before.count.saturating_add(lot.count),
                    None => kept.push(lot),
                }
            }
        }
        kept.sort();
        Ok(kept)
    }

    /// Makes true what was granted. Returns how many nodes are ready.
    ///
    /// # Errors
    /// What keeps it from being made true.
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
            Self::Groups => group::provide(world, beside, job, grant, plan),
        }
    }

    /// Gives back what a job has. Returns whether nothing is left.
    pub(crate) fn give_back(
        self,
        world: &World,
        job: &Key,
        grant: Option<&Grant>,
        plan: &mut Plan,
    ) -> bool {
        match self {
            Self::Reuse => reuse::give_back(world, job, grant, plan),
            Self::Duplicate => duplicate::give_back(world, job, plan),
            Self::Pools(_) => pool::give_back(world, job, grant, plan),
            Self::Groups => group::give_back(world, job, plan),
        }
    }

    /// What there is for a job, by its marks alone.
    pub(crate) fn found(self, world: &World, beside: &Key, job: &Key) -> Vec<Lot> {
        match self {
            Self::Reuse => reuse::found(world, job),
            Self::Duplicate => duplicate::found(world, job),
            Self::Pools(_) => pool::found(world, job),
            Self::Groups => group::found(world, beside, job),
        }
    }

    /// The grant that it was bought for, where it says so.
    pub(crate) fn grant_of(self, world: &World, job: &Key) -> Option<String> {
        match self {
            Self::Reuse | Self::Pools(_) => None,
            Self::Duplicate => duplicate::grant_of(world, job),
            Self::Groups => group::grant_of(world, job),
        }
    }

    /// Whether nodes can be handed over from one job to another.
    pub(crate) fn hands_over(self) -> bool {
        match self {
            Self::Reuse => true,
            Self::Duplicate | Self::Pools(_) | Self::Groups => false,
        }
    }

    /// Whether anything bears the marks of a job that handed its nodes over.
    pub(crate) fn bears(self, world: &World, job: &Key) -> bool {
        match self {
            Self::Reuse => reuse::bears(world, job),
            Self::Duplicate | Self::Pools(_) | Self::Groups => false,
        }
    }
}

/// The lots that are needed: of a type that is needed less, the last are cut.
fn keep(demand: &Demand, lots: &[Lot]) -> Vec<Lot> {
    let mut room: BTreeMap<&str, u32> = demand.iter().collect();
    let mut kept = Vec::new();
    for lot in lots {
        let left = room.entry(lot.instance.as_str()).or_default();
        let count = lot.count.min(*left);
        *left -= count;
        if count > 0 {
            kept.push(Lot { count, ..lot.clone() });
        }
    }
    kept
}
