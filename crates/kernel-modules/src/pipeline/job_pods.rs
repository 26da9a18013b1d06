//! The pods of Jobs: whether there are any, and what they said last.

use std::sync::Arc;

use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{Key, World};

use crate::driver_failure::quoted_end;
use crate::view::{Job, ModulePod};

/// The pods of a Job.
pub(super) fn pods_of(world: &World, job: &Key) -> Vec<Arc<ModulePod>> {
    let Some(job) = world.store::<Job>().get(job) else { return Vec::new() };
    world.store::<ModulePod>().by_index(&IndexValue::owner(&job.metadata.uid))
}

/// The last line that a container of a failed Job wrote, in quotes; empty if it is not known.
///
/// The Job itself says only that its pod failed. Its containers end with a message, or the kubelet
/// takes the end of their logs.
pub(super) fn last_words(world: &World, job: &Key) -> String {
    let pods = pods_of(world, job);
    // Jobs run one pod; of several, what is said must not depend on their order in the cache.
    let age = |pod: &&Arc<ModulePod>| (pod.metadata.creation_timestamp, pod.metadata.name.clone());
    let Some(pod) = pods.iter().max_by_key(age) else { return String::new() };
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let mut ended = statuses.filter_map(|it| it.state.terminated.as_ref());
    let failed = ended.find(|it| it.exit_code != 0);
    let line = failed.and_then(|it| it.message.lines().rfind(|line| !line.trim().is_empty()));
    quoted_end(line.unwrap_or_default())
}
