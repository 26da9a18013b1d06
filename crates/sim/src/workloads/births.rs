//! Names of pods to be made.

use gantry_reconcile::{Meta, World, names};
use jiff::{SignedDuration, Timestamp};

use crate::view::Pod;

/// How long the answers to creates may take to be seen, before the owner's status may be written.
///
/// Writing it gives the owner a new revision, and with that the pods other names: one that was made
/// and not yet seen would be made twice.
const SETTLING: SignedDuration = SignedDuration::from_secs(10);

/// Names for pods of one owner that follow from its revision.
#[derive(Clone, Debug, Default)]
pub(super) struct Births {
    /// Names that no pod has.
    pub(super) names: Vec<String>,
    /// When the last pod was made that has such a name.
    pub(super) last: Option<Timestamp>,
}

impl Births {
    /// Names for `count` pods of `owner`.
    pub(super) fn of(world: &World, owner: &Meta, count: usize) -> Self {
        let pods = world.shelf::<Pod>();
        let (key, revision) = (owner.key(), owner.resource_version.to_string());
        let mut births = Self::default();
        let mut ordinal = 0_u64;
        while births.names.len() < count {
            let parts = [owner.uid.as_str(), &revision, &ordinal.to_string()];
            let name = names::join(&owner.name, &names::suffix(&parts));
            match pods.get(&key.beside(&name)) {
                // Two ordinals may give the same name.
                None if births.names.contains(&name) => {}
                None => births.names.push(name),
                Some(pod) => births.last = births.last.max(pod.metadata.creation_timestamp),
            }
            ordinal += 1;
        }
        births
    }

    /// Names for one pod on each of these nodes.
    pub(super) fn on_nodes(world: &World, owner: &Meta, nodes: &[String]) -> Self {
        let pods = world.shelf::<Pod>();
        let (key, revision) = (owner.key(), owner.resource_version.to_string());
        let mut births = Self::default();
        for node in nodes {
            let mut attempt = 0_u64;
            loop {
                let parts = [owner.uid.as_str(), &revision, node, &attempt.to_string()];
                let name = names::join(&owner.name, &names::suffix(&parts));
                match pods.get(&key.beside(&name)) {
                    None if births.names.contains(&name) => {}
                    None => {
                        births.names.push(name);
                        break;
                    }
                    Some(pod) => births.last = births.last.max(pod.metadata.creation_timestamp),
                }
                attempt += 1;
            }
        }
        births
    }

    /// Until when pods may have been made that were not seen yet.
    pub(super) fn settle_at(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.last?.checked_add(SETTLING).ok()?;
        (until > now).then_some(until)
    }
}
