//! Sets the phase of volumes, and reclaims those whose claim is gone.

use gantry_reconcile::{
    Change, Controller, Event, Key, Kind, ObjectReference, Plan, Step, Subresource, View, World,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{annotation, object_patch};
use crate::view::{ClaimReference, PersistentVolume, PersistentVolumeClaim, ReclaimPolicy};

/// Sets whether volumes are available, bound or released, and marks those that nothing reclaims as
/// failed.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeBinder;

impl VolumeBinder {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "persistent-volume-binder";
}

impl Controller for VolumeBinder {
    fn name(&self) -> &'static str {
        "persistent-volume-binder"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<PersistentVolume>(), Kind::of::<PersistentVolumeClaim>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<PersistentVolume>() {
            return vec![change.key.clone()];
        }
        let (namespace, name) = (change.key.namespace(), change.key.name());
        let reserved = PersistentVolume::of_claim(namespace, name);
        let reserved = world.store::<PersistentVolume>().by_index(&reserved);
        reserved.iter().map(|it| it.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(volume) = world.store::<PersistentVolume>().get(key) else { return plan };
        let reference = volume.spec.claim_ref.as_ref();
        let Some(reference) = reference.filter(|it| !it.uid.as_str().is_empty()) else {
            update_status(&volume, "Available", None, &mut plan);
            return plan;
        };
        let claims = world.store::<PersistentVolumeClaim>();
        let key = Key::new(&reference.namespace, &reference.name);
        if claims.is_unreadable(&key) {
            return plan;
        }
        match claims.get(&key).filter(|it| it.metadata.uid == reference.uid) {
            None => release(&volume, reference, &mut plan),
            // The claim is bound next.
            Some(claim) if claim.spec.volume_name.is_empty() => {}
            Some(claim) if claim.spec.volume_name == volume.metadata.name => {
                update_status(&volume, "Bound", None, &mut plan);
            }
            Some(_) if provisioner(&volume).is_some() && has_delete_policy(&volume) => {
                release(&volume, reference, &mut plan);
            }
            Some(_) => unbind(&volume, &mut plan),
        }
        plan
    }
}

fn provisioner(volume: &PersistentVolume) -> Option<&String> {
    volume.metadata.annotations.get(annotation::PROVISIONED_BY)
}

fn has_delete_policy(volume: &PersistentVolume) -> bool {
    volume.spec.persistent_volume_reclaim_policy == ReclaimPolicy::Delete
}

/// Reclaims a volume whose claim is gone, by its policy.
fn release(volume: &PersistentVolume, reference: &ClaimReference, plan: &mut Plan) {
    let phase = volume.status.phase.as_str();
    if phase != "Released" && phase != "Failed" {
        // A claim that is not observed yet is not gone: the server is asked before the volume is
        // released.
        let gone = ObjectReference {
            resource: PersistentVolumeClaim::RESOURCE,
            key: Key::new(&reference.namespace, &reference.name),
            uid: reference.uid.clone(),
            field: String::new(),
        };
        update_status(volume, "Released", None, plan);
        plan.steps.iter_mut().for_each(|step| step.require_absent.push(gone.clone()));
        return;
    }
    let (reason, message) = match volume.spec.persistent_volume_reclaim_policy {
        ReclaimPolicy::Retain => return,
        // The provisioner of the volume deletes it, and volumes of CSI drivers are left to these.
        ReclaimPolicy::Delete if provisioner(volume).is_some() || volume.spec.csi.is_some() => {
            return;
        }
        ReclaimPolicy::Delete => {
            let name = &volume.metadata.name;
            let why = "no deletable volume plugin matched";
            let message =
                format!("error getting deleter volume plugin for volume \"{name}\": {why}");
            ("VolumeFailedDelete", message)
        }
        ReclaimPolicy::Recycle => {
            ("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned())
        }
    };
    let about = ObjectReference::to(&PersistentVolume::RESOURCE, &volume.metadata);
    update_status(volume, "Failed", Some(Event::warning(about, reason, message)), plan);
}

/// Unbinds a volume whose claim is bound to another one.
fn unbind(volume: &PersistentVolume, plan: &mut Plan) {
    let by_controller = volume.metadata.annotations.contains_key(annotation::BOUND_BY_CONTROLLER);
    let body = match by_controller {
        true => json!({
            "metadata": {"annotations": {annotation::BOUND_BY_CONTROLLER: Value::Null}},
            "spec": {"claimRef": Value::Null},
        }),
        // The user reserved it for a claim of that name.
        false => {
            json!({"spec": {"claimRef": {"uid": Value::Null, "resourceVersion": Value::Null}}})
        }
    };
    plan.write(object_patch::<PersistentVolume>(&volume.metadata, Subresource::Main, body));
}

/// Writes the status of a volume, when it has changed.
fn update_status(volume: &PersistentVolume, phase: &str, note: Option<Event>, plan: &mut Plan) {
    if volume.status.phase == phase {
        return;
    }
    let message = note.as_ref().map(|it| it.message.clone());
    let body = json!({"status": {"phase": phase, "message": message}});
    let mut step =
        Step::new(object_patch::<PersistentVolume>(&volume.metadata, Subresource::Status, body));
    step.success_events.extend(note);
    plan.steps.push(step);
}
