//! The names of pods to be created.

use gantry_reconcile::{Meta, World, names};
use jiff::{SignedDuration, Timestamp};

use crate::view::Pod;

/// How long creates may take to be observed, before the owner's status may be written.
///
/// Writing it changes the owner's revision, and with that the names of pods: one that was created
/// and not yet observed would be created twice.
const CREATE_SETTLE_TIME: SignedDuration = SignedDuration::from_secs(10);

/// Names for pods of one owner that follow from its revision.
#[derive(Clone, Debug, Default)]
pub(super) struct PodNames {
    /// Names that no pod has.
    pub(super) names: Vec<String>,
    /// When the last pod with such a name was created.
    pub(super) last_created: Option<Timestamp>,
}

impl PodNames {
    /// Returns names for `count` pods of `owner`.
    pub(super) fn for_owner(world: &World, owner: &Meta, count: usize) -> Self {
        let pods = world.store::<Pod>();
        let (key, revision) = (owner.key(), owner.resource_version.to_string());
        let mut pod_names = Self::default();
        let mut ordinal = 0_u64;
        while pod_names.names.len() < count {
            let parts = [owner.uid.as_str(), &revision, &ordinal.to_string()];
            let name = names::join(&owner.name, &names::suffix(&parts));
            match pods.get(&key.in_same_namespace(&name)) {
                // Two ordinals may lead to the same name.
                None if pod_names.names.contains(&name) => {}
                None => pod_names.names.push(name),
                Some(pod) => {
                    pod_names.last_created =
                        pod_names.last_created.max(pod.metadata.creation_timestamp);
                }
            }
            ordinal += 1;
        }
        pod_names
    }

    /// Returns names for one pod on each of these nodes.
    pub(super) fn for_nodes(world: &World, owner: &Meta, nodes: &[String]) -> Self {
        let pods = world.store::<Pod>();
        let (key, revision) = (owner.key(), owner.resource_version.to_string());
        let mut pod_names = Self::default();
        for node in nodes {
            let mut attempt = 0_u64;
            loop {
                let parts = [owner.uid.as_str(), &revision, node, &attempt.to_string()];
                let name = names::join(&owner.name, &names::suffix(&parts));
                match pods.get(&key.in_same_namespace(&name)) {
                    None if pod_names.names.contains(&name) => {}
                    None => {
                        pod_names.names.push(name);
                        break;
                    }
                    Some(pod) => {
                        pod_names.last_created =
                            pod_names.last_created.max(pod.metadata.creation_timestamp);
                    }
                }
                attempt += 1;
            }
        }
        pod_names
    }

    /// Returns until when created pods may not be observed yet.
    pub(super) fn settled_at(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.last_created?.checked_add(CREATE_SETTLE_TIME).ok()?;
        (until > now).then_some(until)
    }
}
