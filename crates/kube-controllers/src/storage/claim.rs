//! Binds claims to volumes.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_reconcile::{
    Change, Controller, Event, Held, Key, Kind, ObjectReference, Plan, Step, Subresource, View,
    World,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::matching::{self, NodeConstraint};
use super::{annotation, claim_reference, object_patch};
use crate::view::{PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};

/// Binds claims to matching volumes, and requests provisioning where none matches.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClaimBinder;

impl ClaimBinder {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "persistent-volume-binder";
}

impl Controller for ClaimBinder {
    fn name(&self) -> &'static str {
        "persistent-volume-claim-binder"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<PersistentVolumeClaim>(),
            Kind::of::<PersistentVolume>(),
            Kind::of::<StorageClass>(),
            Kind::of::<Pod>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        let claims = world.store::<PersistentVolumeClaim>();
        if change.is::<PersistentVolumeClaim>() {
            return vec![change.key.clone()];
        }
        if change.is::<StorageClass>() {
            let of_class = claims.by_index(&PersistentVolumeClaim::of_class(change.key.name()));
            return of_class.iter().map(|it| it.metadata.key()).collect();
        }
        if change.is::<Pod>() {
            // The event about a claim names the pods it waits for.
            let waits = |key: &Key| claims.get(key).is_some_and(|it| !is_bind_complete(&it));
            let keys = change.both::<Pod>().flat_map(|pod| {
                let claims = pod.volume_claims();
                claims.map(|it| Key::new(&pod.metadata.namespace, &it.claim)).collect::<Vec<_>>()
            });
            return keys.filter(waits).collect();
        }
        let mut keys = BTreeSet::new();
        for volume in change.both::<PersistentVolume>() {
            if let Some(claim) = &volume.spec.claim_ref {
                keys.insert(Key::new(&claim.namespace, &claim.name));
            }
            let name = &volume.metadata.name;
            let named = claims.by_index(&PersistentVolumeClaim::of_volume(name));
            keys.extend(named.iter().map(|it| it.metadata.key()));
            // An available volume may match any claim of its class that is not bound yet.
            if volume.spec.claim_ref.is_none() {
                let all = claims.list();
                let unbound = all.iter().filter(|it| it.spec.volume_name.is_empty());
                let of_class =
                    unbound.filter(|it| it.class().unwrap_or_default() == volume.class());
                keys.extend(of_class.map(|it| it.metadata.key()));
            }
        }
        keys.into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(claim) = world.store::<PersistentVolumeClaim>().get(key) else { return plan };
        if is_bind_complete(&claim) {
            check_bound_claim(world, &claim, &mut plan);
        } else if !claim.metadata.is_terminating() {
            bind_unbound_claim(world, &claim, &mut plan);
        }
        plan
    }
}

fn is_bind_complete(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.annotations.contains_key(annotation::BIND_COMPLETED)
}

fn volume(world: &World, name: &str) -> Option<Arc<PersistentVolume>> {
    world.store::<PersistentVolume>().get(&Key::cluster(name))
}

/// Plans for a claim that is not bound yet.
fn bind_unbound_claim(world: &World, claim: &PersistentVolumeClaim, plan: &mut Plan) {
    let name = &claim.spec.volume_name;
    if name.is_empty() {
        return find_or_provision(world, claim, plan);
    }
    let Some(volume) = volume(world, name) else {
        let message = format!("volume \"{name}\" does not exist");
        plan.held.push(held(claim, "VolumeNotFound", message));
        return update_status(claim, "Pending", None, None, plan);
    };
    if volume.is_reserved_for(&claim.metadata) {
        return bind(&volume, claim, plan);
    }
    let note = match (&volume.spec.claim_ref, matching::mismatch(&volume, claim)) {
        (None, None) => return bind(&volume, claim, plan),
        (None, Some(why)) => {
            let message = format!("Cannot bind to requested volume \"{name}\": {why}");
            Event::warning(about(claim), "VolumeMismatch", message)
        }
        (Some(_), _) => {
            let message = format!("volume \"{name}\" already bound to a different claim.");
            Event::warning(about(claim), "FailedBinding", message)
        }
    };
    set_pending(claim, note, plan);
}

/// Finds a volume for a claim that names none, or has one provisioned.
fn find_or_provision(world: &World, claim: &PersistentVolumeClaim, plan: &mut Plan) {
    let class = matching::class_of(world, claim);
    let selected = claim.metadata.annotations.contains_key(annotation::SELECTED_NODE);
    let delayed = matching::is_delayed(class.as_deref()) && !selected;
    let place = if delayed { NodeConstraint::NoNodeYet } else { NodeConstraint::AnyNode };
    if let Some(volume) = matching::find_volume(world, claim, place, &BTreeSet::new()) {
        return bind(&volume, claim, plan);
    }
    if delayed {
        return set_pending(claim, waits_for_pod(world, claim), plan);
    }
    let name = claim.class().unwrap_or_default();
    if name.is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        return set_pending(
            claim,
            Event::normal(about(claim), "FailedBinding", message.to_owned()),
            plan,
        );
    }
    let Some(class) = class else {
        let message = format!("storageclass.storage.k8s.io \"{name}\" not found");
        return set_pending(
            claim,
            Event::warning(about(claim), "ProvisioningFailed", message),
            plan,
        );
    };
    if class.provisioner == "kubernetes.io/no-provisioner" {
        let message = "no volume plugin matched name: kubernetes.io/no-provisioner".to_owned();
        return set_pending(
            claim,
            Event::warning(about(claim), "ProvisioningFailed", message),
            plan,
        );
    }
    let annotations = &claim.metadata.annotations;
    let asked = |name: &str| annotations.get(name) == Some(&class.provisioner);
    if !asked(annotation::PROVISIONER) || !asked(annotation::BETA_PROVISIONER) {
        let mut body = json!({"metadata": {"annotations": {}}});
        for name in [annotation::PROVISIONER, annotation::BETA_PROVISIONER] {
            body["metadata"]["annotations"][name] = json!(class.provisioner);
        }
        plan.write(object_patch::<PersistentVolumeClaim>(&claim.metadata, Subresource::Main, body));
        return;
    }
    let provisioner = &class.provisioner;
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or \
         manually by the system administrator. If volume creation is delayed, please verify that \
         the provisioner is running and correctly registered."
    );
    set_pending(claim, Event::normal(about(claim), "ExternalProvisioning", message), plan);
}

/// Returns the event about a claim that is bound when a pod that uses it is scheduled.
fn waits_for_pod(world: &World, claim: &PersistentVolumeClaim) -> Event {
    let meta = &claim.metadata;
    let using = world.store::<Pod>().by_index(&Pod::volume_claim_tag(&meta.namespace, &meta.name));
    let waiting = using.iter().filter(|it| it.spec.node_name.is_empty() && !it.is_terminal());
    let mut names: Vec<&str> = waiting.map(|it| it.metadata.name.as_str()).collect();
    names.sort_unstable();
    let (reason, message) = match names.as_slice() {
        [] => {
            let message = "waiting for first consumer to be created before binding";
            ("WaitForFirstConsumer", message.to_owned())
        }
        [name] => ("WaitForPodScheduled", format!("waiting for pod {name} to be scheduled")),
        names => {
            let names = names.join(",");
            ("WaitForPodScheduled", format!("waiting for pods {names} to be scheduled"))
        }
    };
    Event::normal(about(claim), reason, message)
}

/// Completes the status of a bound claim, or marks it as lost.
fn check_bound_claim(world: &World, claim: &PersistentVolumeClaim, plan: &mut Plan) {
    let name = &claim.spec.volume_name;
    let lost = |reason, message: &str| Event::warning(about(claim), reason, message.to_owned());
    let note = match volume(world, name) {
        _ if name.is_empty() => {
            let message =
                "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
            lost("ClaimLost", message)
        }
        None if world.store::<PersistentVolume>().is_unreadable(&Key::cluster(name)) => return,
        None => {
            let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
            lost("ClaimLost", message)
        }
        Some(volume)
            if volume.spec.claim_ref.is_none() || volume.is_reserved_for(&claim.metadata) =>
        {
            return bind(&volume, claim, plan);
        }
        Some(_) => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            lost("ClaimMisbound", message)
        }
    };
    update_status(claim, "Lost", None, Some(note), plan);
}

/// Plans the next of the writes that bind a claim and a volume to each other. The volume comes
/// first: its revision decides between competing claims.
fn bind(volume: &PersistentVolume, claim: &PersistentVolumeClaim, plan: &mut Plan) {
    let meta = &claim.metadata;
    let reference = volume.spec.claim_ref.as_ref();
    if reference.is_none_or(|it| it.uid != meta.uid) {
        let mut body = json!({"spec": {"claimRef": claim_reference(claim)}});
        if reference.is_none() {
            body["metadata"]["annotations"][annotation::BOUND_BY_CONTROLLER] = json!("yes");
        }
        let write = object_patch::<PersistentVolume>(&volume.metadata, Subresource::Main, body);
        plan.steps.push(Step::new(write).require_present(about(claim)));
        return;
    }
    if claim.spec.volume_name != volume.metadata.name || !is_bind_complete(claim) {
        let mut body = json!({"spec": {"volumeName": volume.metadata.name}});
        let annotations = &mut body["metadata"]["annotations"];
        annotations[annotation::BIND_COMPLETED] = json!("yes");
        if claim.spec.volume_name.is_empty() {
            annotations[annotation::BOUND_BY_CONTROLLER] = json!("yes");
        }
        plan.write(object_patch::<PersistentVolumeClaim>(meta, Subresource::Main, body));
        return;
    }
    update_status(claim, "Bound", Some(volume), None, plan);
}

/// Marks a claim as pending, with an event about the reason.
fn set_pending(claim: &PersistentVolumeClaim, note: Event, plan: &mut Plan) {
    let (about, reason) = (about(claim), note.reason.clone());
    plan.held.push(Held { about, reason, message: note.message.clone(), until: None });
    plan.events.push(note);
    update_status(claim, "Pending", None, None, plan);
}

/// Writes the status of a claim, when it has changed.
fn update_status(
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
    note: Option<Event>,
    plan: &mut Plan,
) {
    let status = &claim.status;
    let changed = status.phase != phase;
    let body = match volume {
        Some(volume) => {
            let spec = &volume.spec;
            if !changed
                && status.access_modes == spec.access_modes
                && status.capacity == spec.capacity
            {
                return;
            }
            json!({"phase": phase, "accessModes": spec.access_modes, "capacity": spec.capacity})
        }
        None if !changed => return,
        None => json!({"phase": phase, "accessModes": Value::Null, "capacity": Value::Null}),
    };
    let body = json!({"status": body});
    let mut step = Step::new(object_patch::<PersistentVolumeClaim>(
        &claim.metadata,
        Subresource::Status,
        body,
    ));
    step.success_events.extend(note);
    plan.steps.push(step);
}

fn about(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference::to(&PersistentVolumeClaim::RESOURCE, &claim.metadata)
}

fn held(claim: &PersistentVolumeClaim, reason: &'static str, message: String) -> Held {
    Held { about: about(claim), reason: reason.into(), message, until: None }
}
