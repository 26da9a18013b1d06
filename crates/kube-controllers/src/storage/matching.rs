//! Finds the volume for a claim.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_pods::fit;
use gantry_reconcile::{Key, World};

use super::STORAGE_RESOURCE;
use crate::view::{Node, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeBindingMode};

/// The node for which a volume is searched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NodeConstraint<'a> {
    /// Any node: topology is not checked.
    AnyNode,
    /// No node is selected yet: only a volume that is reserved for the claim matches.
    NoNodeYet,
    /// This node.
    Node(&'a Node),
}

/// Returns the StorageClass of a claim, if it names one that exists.
pub(crate) fn class_of(world: &World, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
    let name = claim.class().filter(|it| !it.is_empty())?;
    world.store::<StorageClass>().get(&Key::cluster(name))
}

/// Returns whether a claim is bound when a pod that uses it is scheduled.
pub(crate) fn is_delayed(class: Option<&StorageClass>) -> bool {
    class.is_some_and(|it| it.volume_binding_mode == VolumeBindingMode::WaitForFirstConsumer)
}

/// Returns the volume for a claim: one that is reserved for it, or the smallest that matches.
pub(crate) fn find_volume(
    world: &World,
    claim: &PersistentVolumeClaim,
    place: NodeConstraint<'_>,
    taken: &BTreeSet<String>,
) -> Option<Arc<PersistentVolume>> {
    let meta = &claim.metadata;
    let reached = |volume: &PersistentVolume| match place {
        NodeConstraint::AnyNode | NodeConstraint::NoNodeYet => true,
        NodeConstraint::Node(node) => is_accessible_from(volume, node),
    };
    let shelf = world.store::<PersistentVolume>();
    let reserved = shelf.by_index(&PersistentVolume::of_claim(&meta.namespace, &meta.name));
    let reserved =
        reserved.into_iter().filter(|it| it.is_reserved_for(meta) && !it.metadata.is_terminating());
    let will_do = |it: &Arc<PersistentVolume>| is_large_enough(it, claim) && same_mode(it, claim);
    if let Some(volume) = reserved.filter(will_do).min_by_key(|it| it.metadata.name.clone()) {
        return Some(volume).filter(|it| reached(it));
    }
    if matches!(place, NodeConstraint::NoNodeYet) {
        return None;
    }
    let of_class = shelf.by_index(&PersistentVolume::of_class(claim.class().unwrap_or_default()));
    let free = of_class.into_iter().filter(|volume| {
        volume.spec.claim_ref.is_none()
            && volume.status.phase == "Available"
            && !volume.metadata.is_terminating()
            && !taken.contains(&volume.metadata.name)
    });
    let selected = |volume: &Arc<PersistentVolume>| {
        let selector = claim.spec.selector.as_ref();
        selector.is_none_or(|it| it.matches(&volume.metadata.labels))
    };
    let free = free.filter(will_do).filter(selected);
    let free = free.filter(|it| has_modes(it, claim) && reached(it));
    free.min_by_key(|it| {
        (it.spec.capacity.get(STORAGE_RESOURCE).copied(), it.metadata.name.clone())
    })
}

/// Returns why the volume that a claim names does not match it.
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

/// Returns whether a volume is accessible from a node.
pub(crate) fn is_accessible_from(volume: &PersistentVolume, node: &Node) -> bool {
    let required = volume.spec.node_affinity.required.as_ref();
    required.is_none_or(|it| fit::matches_node(it, node))
}

fn is_large_enough(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let wanted = claim.spec.resources.requests.get(STORAGE_RESOURCE);
    wanted.is_none_or(|wanted| {
        volume.spec.capacity.get(STORAGE_RESOURCE).is_some_and(|it| it >= wanted)
    })
}

fn same_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let mode = |text: &str| if text.is_empty() { "Filesystem".to_owned() } else { text.to_owned() };
    mode(&volume.spec.volume_mode) == mode(&claim.spec.volume_mode)
}

fn has_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim.spec.access_modes.iter().all(|it| volume.spec.access_modes.contains(it))
}
