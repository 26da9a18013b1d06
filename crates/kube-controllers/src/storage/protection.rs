//! Releases deleted claims and volumes when nothing uses them any more.

use gantry_reconcile::{
    Change, Controller, Held, Key, Kind, Meta, ObjectReference, Plan, Subresource, View, World,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::object_patch;
use crate::view::{PersistentVolume, PersistentVolumeClaim, Pod};

/// The finalizer of a claim in use.
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// The finalizer of a bound volume.
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Releases a deleted claim when no pod uses it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PvcProtectionController;

impl PvcProtectionController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "pvc-protection-controller";
}

impl Controller for PvcProtectionController {
    fn name(&self) -> &'static str {
        "pvc-protection"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<PersistentVolumeClaim>(), Kind::of::<Pod>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<PersistentVolumeClaim>() {
            return vec![change.key.clone()];
        }
        let claims = world.store::<PersistentVolumeClaim>();
        let keys = change.both::<Pod>().flat_map(|pod| {
            let used = pod.volume_claims();
            used.map(|it| Key::new(&pod.metadata.namespace, &it.claim)).collect::<Vec<_>>()
        });
        keys.filter(|key| claims.get(key).is_some_and(|it| it.metadata.is_terminating())).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(claim) = world.store::<PersistentVolumeClaim>().get(key) else { return plan };
        let using = Pod::volume_claim_tag(key.namespace(), key.name());
        let mut using = world.store::<Pod>().by_index(&using);
        using.retain(|pod| uses(pod, &claim));
        let user = using.iter().map(|it| it.metadata.name.as_str()).min();
        let why = user.map(|pod| format!("pod \"{pod}\" uses it; it is deleted after the pod"));
        update_finalizer::<PersistentVolumeClaim>(&claim.metadata, CLAIM_FINALIZER, why, &mut plan);
        plan
    }
}

/// Returns whether a pod uses a claim. A pod without a node is never started with a claim that is
/// being deleted.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let meta = &pod.metadata;
    let ended = meta.is_terminating() && meta.deletion_grace_period_seconds == Some(0);
    let name = &claim.metadata.name;
    let mut used = pod.volume_claims().filter(|it| it.claim == name.as_str());
    !pod.spec.node_name.is_empty()
        && used.any(|it| match it.ephemeral {
            true => !ended && claim.metadata.is_controlled_by(&meta.uid),
            false => true,
        })
}

/// Releases a deleted volume when it is not bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct PvProtectionController;

impl PvProtectionController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "pv-protection-controller";
}

impl Controller for PvProtectionController {
    fn name(&self) -> &'static str {
        "pv-protection"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<PersistentVolume>()]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        vec![change.key.clone()]
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(volume) = world.store::<PersistentVolume>().get(key) else { return plan };
        let claim = volume.spec.claim_ref.as_ref().filter(|_| volume.status.phase == "Bound");
        let why = claim.map(|it| {
            let (namespace, name) = (&it.namespace, &it.name);
            format!("claim \"{namespace}/{name}\" is bound to it; it is deleted after the claim")
        });
        update_finalizer::<PersistentVolume>(&volume.metadata, VOLUME_FINALIZER, why, &mut plan);
        plan
    }
}

/// Removes the finalizer from an unused object that is being deleted, and adds it to one that lacks
/// it.
fn update_finalizer<V: View>(meta: &Meta, finalizer: &str, used: Option<String>, plan: &mut Plan) {
    let has = meta.finalizers.iter().any(|it| it == finalizer);
    let next: Vec<&str> = match (meta.is_terminating(), has, used) {
        (true, true, None) => {
            let others = meta.finalizers.iter().filter(|it| *it != finalizer);
            others.map(String::as_str).collect()
        }
        (true, true, Some(message)) => {
            let about = ObjectReference::to(&V::RESOURCE, meta);
            let reason = "InUse".into();
            plan.held.push(Held { about, reason, message, until: None });
            return;
        }
        (false, false, _) => {
            meta.finalizers.iter().map(String::as_str).chain([finalizer]).collect()
        }
        (true, false, _) | (false, true, _) => return,
    };
    let next = if next.is_empty() { Value::Null } else { json!(next) };
    let body = json!({"metadata": {"finalizers": next}});
    plan.write(object_patch::<V>(meta, Subresource::Main, body));
}
