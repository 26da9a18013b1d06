//! Provisions simulated volumes for claims, and deletes them.

use std::collections::BTreeSet;

use gantry_reconcile::{
    Change, Controller, Event, Key, Kind, ObjectReference, Plan, Step, Subresource, View, World,
    Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{STORAGE_RESOURCE, annotation, claim_reference, matching, object_patch};
use crate::view::{Node, PersistentVolume, PersistentVolumeClaim, ReclaimPolicy, StorageClass};

/// The name of this provisioner in StorageClasses, and of the driver in volumes.
pub const PROVISIONER: &str = "volumes.gantry.dev";

/// Returns the default StorageClass. Simulated volumes are accessible from every node, so nothing
/// is gained by waiting for the first consumer.
#[must_use]
pub fn default_class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": StorageClass::RESOURCE.kind,
        "metadata": {
            "name": "standard",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    })
}

/// Provisions a volume for each claim of its StorageClasses, and deletes released ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeProvisioner;

impl VolumeProvisioner {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "volume-provisioner";
}

impl Controller for VolumeProvisioner {
    fn name(&self) -> &'static str {
        "volume-provisioner"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<PersistentVolumeClaim>(),
            Kind::of::<PersistentVolume>(),
            Kind::of::<StorageClass>(),
            Kind::of::<Node>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        let claims = world.store::<PersistentVolumeClaim>();
        if change.is::<StorageClass>() {
            let of_class = claims.by_index(&PersistentVolumeClaim::of_class(change.key.name()));
            return of_class.iter().map(|it| it.metadata.key()).collect();
        }
        if change.is::<Node>() {
            // Only the deletion of a node affects the claims for which it was selected.
            let selected = |it: &PersistentVolumeClaim| {
                it.spec.volume_name.is_empty() && selected_node(it) == Some(change.key.name())
            };
            let all = if change.is_removal() { claims.list() } else { Vec::new() };
            return all.iter().filter(|it| selected(it)).map(|it| it.metadata.key()).collect();
        }
        // Volumes have no namespace, claims have: the key tells the two apart.
        vec![change.key.clone()]
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        if key.namespace().is_empty() {
            if let Some(volume) = world.store::<PersistentVolume>().get(key) {
                delete(&volume, &mut plan);
            }
        } else if let Some(claim) = world.store::<PersistentVolumeClaim>().get(key) {
            provision(world, &claim, &mut plan);
        }
        plan
    }
}

fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.metadata.annotations.get(annotation::SELECTED_NODE).map(String::as_str)
}

/// Provisions the volume of a claim.
fn provision(world: &World, claim: &PersistentVolumeClaim, plan: &mut Plan) {
    let meta = &claim.metadata;
    let asked = meta.annotations.get(annotation::PROVISIONER);
    let ours = asked.is_some_and(|it| it == PROVISIONER);
    if !ours || meta.is_terminating() || !claim.spec.volume_name.is_empty() {
        return;
    }
    let Some(class) = matching::class_of(world, claim) else { return };
    if class.provisioner != PROVISIONER {
        return;
    }
    if matching::is_delayed(Some(&class)) {
        let Some(node) = selected_node(claim) else { return };
        let nodes = world.store::<Node>();
        let node = Key::cluster(node);
        if nodes.get(&node).is_none() && !nodes.is_unreadable(&node) {
            // The pod is scheduled again.
            let body =
                json!({"metadata": {"annotations": {annotation::SELECTED_NODE: Value::Null}}});
            plan.write(object_patch::<PersistentVolumeClaim>(meta, Subresource::Main, body));
            return;
        }
    }
    let reserved = PersistentVolume::of_claim(&meta.namespace, &meta.name);
    let reserved = world.store::<PersistentVolume>().by_index(&reserved);
    if reserved.iter().any(|it| it.is_reserved_for(meta)) {
        return;
    }
    // The name follows from the claim, so that no second volume is created for it.
    let name = format!("pvc-{}", meta.uid);
    let about = ObjectReference::to(&PersistentVolumeClaim::RESOURCE, meta);
    let key = meta.key();
    let begins = format!("External provisioner is provisioning volume for claim \"{key}\"");
    let done = format!("Successfully provisioned volume {name}");
    let failed =
        format!("failed to provision volume with StorageClass \"{}\"", class.metadata.name);
    let create = Write::Create {
        resource: PersistentVolume::RESOURCE,
        body: volume_body(claim, &class, &name),
    };
    let step = Step::new(create)
        .on_success(Event::normal(about.clone(), "Provisioning", begins))
        .on_success(Event::normal(about.clone(), "ProvisioningSucceeded", done))
        .on_refusal(Event::warning(about.clone(), "ProvisioningFailed", failed))
        .require_present(about);
    plan.steps.push(step);
}

/// Returns the volume for a claim.
fn volume_body(claim: &PersistentVolumeClaim, class: &StorageClass, name: &str) -> Value {
    let policy = match class.reclaim_policy {
        None | Some(ReclaimPolicy::Delete) => "Delete",
        Some(ReclaimPolicy::Recycle | ReclaimPolicy::Retain) => "Retain",
    };
    let wanted = claim.spec.resources.requests.get(STORAGE_RESOURCE);
    let mode = Some(&claim.spec.volume_mode).filter(|it| !it.is_empty());
    let mut spec = json!({
        "accessModes": claim.spec.access_modes,
        "capacity": {STORAGE_RESOURCE: wanted.map(ToString::to_string)},
        "claimRef": claim_reference(claim),
        "csi": {"driver": PROVISIONER, "volumeHandle": name},
        "persistentVolumeReclaimPolicy": policy,
        "storageClassName": class.metadata.name,
        "volumeMode": mode.map_or("Filesystem", String::as_str),
    });
    if !class.mount_options.is_empty() {
        spec["mountOptions"] = json!(class.mount_options);
    }
    let terms: BTreeSet<String> = class.allowed_topologies.iter().map(term).collect();
    if !terms.is_empty() {
        let terms: Vec<Value> =
            terms.iter().filter_map(|it| serde_json::from_str(it).ok()).collect();
        spec["nodeAffinity"]["required"]["nodeSelectorTerms"] = json!(terms);
    }
    json!({
        "apiVersion": "v1",
        "kind": PersistentVolume::RESOURCE.kind,
        "metadata": {"name": name, "annotations": {annotation::PROVISIONED_BY: PROVISIONER}},
        "spec": spec,
    })
}

/// Returns the allowed topology of a StorageClass, as volumes spell it.
fn term(allowed: &Value) -> String {
    let expressions = allowed["matchLabelExpressions"].as_array().cloned().unwrap_or_default();
    let expressions = expressions
        .iter()
        .map(|it| json!({"key": it["key"], "operator": "In", "values": it["values"]}));
    json!({"matchExpressions": expressions.collect::<Vec<_>>()}).to_string()
}

/// Deletes a volume that this provisioner created and whose claim is gone.
fn delete(volume: &PersistentVolume, plan: &mut Plan) {
    let meta = &volume.metadata;
    let ours = meta.annotations.get(annotation::PROVISIONED_BY);
    let ours = ours.is_some_and(|it| it == PROVISIONER);
    let policy = volume.spec.persistent_volume_reclaim_policy;
    let released = volume.status.phase == "Released" && policy == ReclaimPolicy::Delete;
    if ours && released && !meta.is_terminating() {
        plan.write(Write::Delete {
            resource: PersistentVolume::RESOURCE,
            key: meta.key(),
            fence: meta.fence(),
            grace: None,
            propagation: None,
        });
    }
}
