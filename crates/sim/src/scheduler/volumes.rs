//! The PersistentVolumeClaims of a pod: whether a node will do for them, and how those are bound that
//! waited for a node.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_pods::Reason;
use gantry_reconcile::{Key, Part, Plan, World};
use serde_json::{Value, json};

use crate::storage::matching::{self, For};
use crate::storage::{annotation, change, reference_to};
use crate::view::{Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, UsedClaim};

/// The PersistentVolumeClaims of one pod.
#[derive(Debug, Default)]
pub(super) struct VolumeClaims<'w> {
    /// The volumes its claims are bound to.
    bound: Vec<Arc<PersistentVolume>>,
    /// Whether one of these does not exist.
    missing: bool,
    /// Whether another pod uses a claim that only one pod may use at a time.
    in_use: bool,
    /// The claims that are bound when a node was chosen.
    delayed: Vec<Delayed<'w>>,
}

/// A claim that is bound when a node was chosen.
#[derive(Debug)]
struct Delayed<'w> {
    world: &'w World,
    claim: Arc<PersistentVolumeClaim>,
    class: Arc<StorageClass>,
}

/// Where the volume of a claim comes from.
enum Source {
    /// It exists.
    Volume(Arc<PersistentVolume>),
    /// It is made for the node.
    Provisioner,
}

impl<'w> VolumeClaims<'w> {
    /// The claims of a pod, or why no node will do as long as they are as they are.
    pub(super) fn find(world: &'w World, pod: &Pod) -> Result<Self, String> {
        let mut claims = Self::default();
        for used in pod.used_claims() {
            let claim = present(world, pod, &used)?;
            let one_pod = claim.spec.access_modes.iter().any(|it| it == "ReadWriteOncePod");
            claims.in_use |= one_pod && is_used_by_others(world, pod, &used.claim);
            let volume = &claim.spec.volume_name;
            if claim.metadata.annotations.contains_key(annotation::BIND_COMPLETED)
                && !volume.is_empty()
            {
                let volume = world.shelf::<PersistentVolume>().get(&Key::cluster(volume));
                claims.missing |= volume.is_none();
                claims.bound.extend(volume);
                continue;
            }
            let class = matching::class_of(world, &claim);
            match class.filter(|it| matching::is_delayed(Some(it)) && volume.is_empty()) {
                Some(class) => claims.delayed.push(Delayed { world, claim, class }),
                None => return Err("pod has unbound immediate PersistentVolumeClaims".to_owned()),
            }
        }
        Ok(claims)
    }

    /// Why a node will not do. Volumes in `taken` were given to other claims.
    pub(super) fn reasons(&self, node: &Node, taken: &BTreeSet<String>) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if self.in_use {
            reasons.push(Reason::ClaimInUse);
            return reasons;
        }
        if !self.bound.iter().all(|it| matching::is_reached(it, node)) {
            reasons.push(Reason::VolumeAffinity);
        }
        if self.sources(node, taken).is_none() {
            reasons.push(Reason::NoVolume);
        }
        if self.missing {
            reasons.push(Reason::VolumeMissing);
        }
        reasons
    }

    /// Where the volumes come from on a node; nothing when one cannot be had.
    fn sources(&self, node: &Node, taken: &BTreeSet<String>) -> Option<Vec<Source>> {
        let mut taken = taken.clone();
        let sources = self.delayed.iter().map(|delayed| {
            let source = delayed.source(node, &taken)?;
            if let Source::Volume(volume) = &source {
                taken.insert(volume.metadata.name.clone());
            }
            Some(source)
        });
        sources.collect()
    }

    /// Has the volumes bound that waited for a node. Returns what the pod waits for, if it does.
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
        for (Delayed { claim, .. }, source) in self.delayed.iter().zip(sources) {
            match source {
                Source::Volume(volume) => {
                    taken.insert(volume.metadata.name.clone());
                    if volume.spec.claim_ref.is_none() {
                        let mut body = json!({"spec": {"claimRef": reference_to(claim)}});
                        let annotations = &mut body["metadata"]["annotations"];
                        annotations[annotation::BOUND_BY_CONTROLLER] = json!("yes");
                        plan.write(change::<PersistentVolume>(&volume.metadata, Part::Main, body));
                    }
                }
                Source::Provisioner => {
                    let name = annotation::SELECTED_NODE;
                    let node = &node.metadata.name;
                    if claim.metadata.annotations.get(name) != Some(node) {
                        let body = json!({"metadata": {"annotations": {name: node}}});
                        let meta = &claim.metadata;
                        plan.write(change::<PersistentVolumeClaim>(meta, Part::Main, body));
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

impl Delayed<'_> {
    fn source(&self, node: &Node, taken: &BTreeSet<String>) -> Option<Source> {
        let selected = self.claim.metadata.annotations.get(annotation::SELECTED_NODE);
        if let Some(selected) = selected {
            return (*selected == node.metadata.name).then_some(Source::Provisioner);
        }
        if let Some(volume) = matching::find(self.world, &self.claim, For::Node(node), taken) {
            return Some(Source::Volume(volume));
        }
        let reserved = matching::find(self.world, &self.claim, For::NoNodeYet, taken);
        let makes = self.class.provisioner != "kubernetes.io/no-provisioner";
        let allowed = &self.class.allowed_topologies;
        let allowed = allowed.is_empty() || allowed.iter().any(|it| is_allowed(it, node));
        (reserved.is_none() && makes && allowed).then_some(Source::Provisioner)
    }
}

/// Whether a StorageClass allows volumes of a node.
fn is_allowed(term: &Value, node: &Node) -> bool {
    let expressions = term["matchLabelExpressions"].as_array();
    expressions.into_iter().flatten().all(|it| {
        let label = it["key"].as_str().and_then(|key| node.metadata.labels.get(key));
        let mut values = it["values"].as_array().into_iter().flatten();
        label.is_some_and(|label| values.any(|it| it == label.as_str()))
    })
}

/// A claim that exists and stays; or what is wrong with it.
fn present(
    world: &World,
    pod: &Pod,
    used: &UsedClaim<'_>,
) -> Result<Arc<PersistentVolumeClaim>, String> {
    let name = &used.claim;
    let key = Key::new(&pod.metadata.namespace, name);
    let Some(claim) = world.shelf::<PersistentVolumeClaim>().get(&key) else {
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
    if claim.metadata.is_going() {
        return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
    }
    if used.ephemeral && !claim.metadata.is_controlled_by(&pod.metadata.uid) {
        let pod = pod.metadata.key();
        return Err(format!("PVC {key} was not created for pod {pod} (pod is not owner)"));
    }
    Ok(claim)
}

fn is_used_by_others(world: &World, pod: &Pod, claim: &str) -> bool {
    let using = Pod::using_claim(&pod.metadata.namespace, claim);
    let using = world.shelf::<Pod>().tagged(&using);
    let uses = |it: &Arc<Pod>| {
        it.metadata.uid != pod.metadata.uid && !it.spec.node_name.is_empty() && !it.is_over()
    };
    using.iter().any(uses)
}
