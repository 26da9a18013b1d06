//! The pods of Jobs.

use std::sync::Arc;

use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{Key, World};

use crate::view::{Job, ModulePod};

/// The pods of a Job.
pub(super) fn pods_of(world: &World, job: &Key) -> Vec<Arc<ModulePod>> {
    let Some(job) = world.store::<Job>().get(job) else { return Vec::new() };
    world.store::<ModulePod>().by_index(&IndexValue::owner(&job.metadata.uid))
}
