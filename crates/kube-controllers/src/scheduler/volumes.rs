//! The PersistentVolumeClaims of a pod: checks whether a node fits them, and binds those that wait
//! for the first consumer.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_pods::RejectionReason;
use gantry_reconcile::{Key, Plan, Subresource, World};
use serde_json::{Value, json};

use crate::storage::matching::{self, NodeConstraint};
use crate::storage::{annotation, claim_reference, object_patch};
use crate::view::{
    Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, UsedVolumeClaim,
};

/// The PersistentVolumeClaims of one pod.
#[derive(Debug, Default)]
pub(super) struct VolumeClaims<'w> {
    /// The volumes its claims are bound to.
    bound: Vec<Arc<PersistentVolume>>,
    /// Whether one of these volumes does not exist.
    missing: bool,
    /// Whether another pod uses a `ReadWriteOncePod` claim.
    in_use: bool,
    /// The claims that are bound once a node is selected.
    delayed: Vec<DelayedClaim<'w>>,
}

/// A claim that is bound once a node is selected.
#[derive(Debug)]
struct DelayedClaim<'w> {
    world: &'w World,
    claim: Arc<PersistentVolumeClaim>,
    class: Arc<StorageClass>,
}

/// The source of a claim's volume.
enum VolumeSource {
    /// An existing volume.
    Volume(Arc<PersistentVolume>),
    /// A volume that is provisioned for the node.
    Provisioner,
}

impl<'w> VolumeClaims<'w> {
    /// Returns the claims of a pod, or why no node fits as long as they are unchanged.
    pub(super) fn find(world: &'w World, pod: &Pod) -> Result<Self, String> {
        let mut claims = Self::default();
        for used in pod.volume_claims() {
            let claim = find_claim(world, pod, &used)?;
            let one_pod = claim.spec.access_modes.iter().any(|it| it == "ReadWriteOncePod");
            claims.in_use |= one_pod && is_used_by_others(world, pod, &used.claim);
            let volume = &claim.spec.volume_name;
            if claim.metadata.annotations.contains_key(annotation::BIND_COMPLETED)
                && !volume.is_empty()
            {
                let volume = world.store::<PersistentVolume>().get(&Key::cluster(volume));
                claims.missing |= volume.is_none();
                claims.bound.extend(volume);
                continue;
            }
            let class = matching::class_of(world, &claim);
            match class.filter(|it| matching::is_delayed(Some(it)) && volume.is_empty()) {
                Some(class) => claims.delayed.push(DelayedClaim { world, claim, class }),
                None => return Err("pod has unbound immediate PersistentVolumeClaims".to_owned()),
            }
        }
        Ok(claims)
    }

    /// Returns why a node does not fit. Volumes in `taken` were assigned to other claims.
    pub(super) fn reasons(&self, node: &Node, taken: &BTreeSet<String>) -> Vec<RejectionReason> {
        let mut reasons = Vec::new();
        if self.in_use {
            reasons.push(RejectionReason::ClaimInUse);
            return reasons;
        }
        if !self.bound.iter().all(|it| matching::is_accessible_from(it, node)) {
            reasons.push(RejectionReason::VolumeAffinity);
        }
        if self.sources(node, taken).is_none() {
            reasons.push(RejectionReason::NoVolumeAvailable);
        }
        if self.missing {
            reasons.push(RejectionReason::VolumeMissing);
        }
        reasons
    }

    /// Returns the sources of the volumes on a node; `None` when one is not available.
    fn sources(&self, node: &Node, taken: &BTreeSet<String>) -> Option<Vec<VolumeSource>> {
        let mut taken = taken.clone();
        let sources = self.delayed.iter().map(|delayed| {
            let source = delayed.source(node, &taken)?;
            if let VolumeSource::Volume(volume) = &source {
                taken.insert(volume.metadata.name.clone());
            }
            Some(source)
        });
        sources.collect()
    }

    /// Binds the claims that waited for a node. Returns what the pod waits for, if it does.
    pub(super) fn bind(
        &self,
        node: &Node,
        taken: &mut BTreeSet<String>,
        plan: &mut Plan,
    ) -> Option<String> {
        if self.delayed.is_empty() {
            return None;
        }
        let sources = self.sources(node, taken).unwrap_or_default();
        for (DelayedClaim { claim, .. }, source) in self.delayed.iter().zip(sources) {
            match source {
                VolumeSource::Volume(volume) => {
                    taken.insert(volume.metadata.name.clone());
                    if volume.spec.claim_ref.is_none() {
                        let mut body = json!({"spec": {"claimRef": claim_reference(claim)}});
                        let annotations = &mut body["metadata"]["annotations"];
                        annotations[annotation::BOUND_BY_CONTROLLER] = json!("yes");
                        plan.write(object_patch::<PersistentVolume>(
                            &volume.metadata,
                            Subresource::Main,
                            body,
                        ));
                    }
                }
                VolumeSource::Provisioner => {
                    let name = annotation::SELECTED_NODE;
                    let node = &node.metadata.name;
                    if claim.metadata.annotations.get(name) != Some(node) {
                        let body = json!({"metadata": {"annotations": {name: node}}});
                        let meta = &claim.metadata;
                        plan.write(object_patch::<PersistentVolumeClaim>(
                            meta,
                            Subresource::Main,
                            body,
                        ));
                    }
                }
            }
        }
        let names = self.delayed.iter().map(|it| it.claim.metadata.name.as_str());
        let names: Vec<&str> = names.collect();
        let node = &node.metadata.name;
        Some(format!("waiting for volumes of {} on node {node}", names.join(", ")))
    }
}

impl DelayedClaim<'_> {
    fn source(&self, node: &Node, taken: &BTreeSet<String>) -> Option<VolumeSource> {
        let selected = self.claim.metadata.annotations.get(annotation::SELECTED_NODE);
        if let Some(selected) = selected {
            return (*selected == node.metadata.name).then_some(VolumeSource::Provisioner);
        }
        if let Some(volume) =
            matching::find_volume(self.world, &self.claim, NodeConstraint::Node(node), taken)
        {
            return Some(VolumeSource::Volume(volume));
        }
        let reserved =
            matching::find_volume(self.world, &self.claim, NodeConstraint::NoNodeYet, taken);
        let makes = self.class.provisioner != "kubernetes.io/no-provisioner";
        let allowed = &self.class.allowed_topologies;
        let allowed = allowed.is_empty() || allowed.iter().any(|it| allows_topology(it, node));
        (reserved.is_none() && makes && allowed).then_some(VolumeSource::Provisioner)
    }
}

/// Returns whether a StorageClass allows volumes on a node.
fn allows_topology(term: &Value, node: &Node) -> bool {
    let expressions = term["matchLabelExpressions"].as_array();
    expressions.into_iter().flatten().all(|it| {
        let label = it["key"].as_str().and_then(|key| node.metadata.labels.get(key));
        let mut values = it["values"].as_array().into_iter().flatten();
        label.is_some_and(|label| values.any(|it| it == label.as_str()))
    })
}

/// Returns a claim that exists and is not being deleted, or what is wrong with it.
fn find_claim(
    world: &World,
    pod: &Pod,
    used: &UsedVolumeClaim<'_>,
) -> Result<Arc<PersistentVolumeClaim>, String> {
    let name = &used.claim;
    let key = Key::new(&pod.metadata.namespace, name);
    let Some(claim) = world.store::<PersistentVolumeClaim>().get(&key) else {
        let why = "waiting for ephemeral volume controller to create the persistentvolumeclaim";
        return Err(match used.ephemeral {
            true => format!("{why} \"{name}\""),
            false => format!("persistentvolumeclaim \"{name}\" not found"),
        });
    };
    if claim.status.phase == "Lost" {
        let volume = &claim.spec.volume_name;
        let why = "bound to non-existent persistentvolume";
        return Err(format!("persistentvolumeclaim \"{name}\" {why} \"{volume}\""));
    }
    if claim.metadata.is_terminating() {
        return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
    }
    if used.ephemeral && !claim.metadata.is_controlled_by(&pod.metadata.uid) {
        let pod = pod.metadata.key();
        return Err(format!("PVC {key} was not created for pod {pod} (pod is not owner)"));
    }
    Ok(claim)
}

fn is_used_by_others(world: &World, pod: &Pod, claim: &str) -> bool {
    let using = Pod::volume_claim_tag(&pod.metadata.namespace, claim);
    let using = world.store::<Pod>().by_index(&using);
    let uses = |it: &Arc<Pod>| {
        it.metadata.uid != pod.metadata.uid && !it.spec.node_name.is_empty() && !it.is_terminal()
    };
    using.iter().any(uses)
}
