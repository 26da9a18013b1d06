//! Which volume a claim gets.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_pods::fit;
use gantry_reconcile::{Key, World};

use super::STORAGE;
use crate::view::{BindingMode, Node, PersistentVolume, PersistentVolumeClaim, StorageClass};

/// For which node a volume is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For<'a> {
    /// For whichever; nodes are not looked at.
    AnyNode,
    /// For none yet: only a volume that is reserved for the claim will do.
    NoNodeYet,
    /// For this one.
    Node(&'a Node),
}

/// The StorageClass of a claim, if it names one that exists.
pub(crate) fn class_of(world: &World, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
    let name = claim.class().filter(|it| !it.is_empty())?;
    world.shelf::<StorageClass>().get(&Key::cluster(name))
}

/// Whether a claim is bound when a pod that uses it is scheduled.
pub(crate) fn is_delayed(class: Option<&StorageClass>) -> bool {
    class.is_some_and(|it| it.volume_binding_mode == BindingMode::WaitForFirstConsumer)
}

/// The volume a claim gets: one that is reserved for it, or the smallest that will do.
pub(crate) fn find(
    world: &World,
    claim: &PersistentVolumeClaim,
    place: For<'_>,
    taken: &BTreeSet<String>,
) -> Option<Arc<PersistentVolume>> {
    let meta = &claim.metadata;
    let reached = |volume: &PersistentVolume| match place {
        For::AnyNode | For::NoNodeYet => true,
        For::Node(node) => is_reached(volume, node),
    };
    let shelf = world.shelf::<PersistentVolume>();
    let reserved = shelf.tagged(&PersistentVolume::of_claim(&meta.namespace, &meta.name));
    let reserved = reserved.into_iter().filter(|it| it.is_for(meta) && !it.metadata.is_going());
    let will_do = |it: &Arc<PersistentVolume>| is_large_enough(it, claim) && same_mode(it, claim);
    if let Some(volume) = reserved.filter(will_do).min_by_key(|it| it.metadata.name.clone()) {
        return Some(volume).filter(|it| reached(it));
    }
    if matches!(place, For::NoNodeYet) {
        return None;
    }
    let of_class = shelf.tagged(&PersistentVolume::of_class(claim.class().unwrap_or_default()));
    let free = of_class.into_iter().filter(|volume| {
        volume.spec.claim_ref.is_none()
            && volume.status.phase == "Available"
            && !volume.metadata.is_going()
            && !taken.contains(&volume.metadata.name)
    });
    let selected = |volume: &Arc<PersistentVolume>| {
        let selector = claim.spec.selector.as_ref();
        selector.is_none_or(|it| it.matches(&volume.metadata.labels))
    };
    let free = free.filter(will_do).filter(selected);
    let free = free.filter(|it| has_modes(it, claim) && reached(it));
    free.min_by_key(|it| (it.spec.capacity.get(STORAGE).copied(), it.metadata.name.clone()))
}

/// Why a volume that a claim names will not do for it.
pub(crate) fn mismatch(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
) -> Option<&'static str> {
    if !is_large_enough(volume, claim) {
        return Some("requested PV is too small");
    }
    if volume.class() != claim.class().unwrap_or_default() {
        return Some("storageClassName does not match");
    }
    if !same_mode(volume, claim) {
        return Some("incompatible volumeMode");
    }
    (!has_modes(volume, claim)).then_some("incompatible accessMode")
}

/// Whether a volume is reached from a node.
pub(crate) fn is_reached(volume: &PersistentVolume, node: &Node) -> bool {
    let required = volume.spec.node_affinity.required.as_ref();
    required.is_none_or(|it| fit::matches_node(it, node))
}

fn is_large_enough(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let wanted = claim.spec.resources.requests.get(STORAGE);
    wanted.is_none_or(|wanted| volume.spec.capacity.get(STORAGE).is_some_and(|it| it >= wanted))
}

fn same_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let mode = |text: &str| if text.is_empty() { "Filesystem".to_owned() } else { text.to_owned() };
    mode(&volume.spec.volume_mode) == mode(&claim.spec.volume_mode)
}

fn has_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim.spec.access_modes.iter().all(|it| volume.spec.access_modes.contains(it))
}
