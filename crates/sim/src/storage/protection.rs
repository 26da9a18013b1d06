//! Lets deleted claims and volumes go when nothing uses them any more.

use gantry_reconcile::{
    Change, Controller, Held, Key, Kind, Meta, Part, Plan, Reference, View, World,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::change;
use crate::view::{PersistentVolume, PersistentVolumeClaim, Pod};

/// What keeps a claim that is used.
const CLAIM: &str = "kubernetes.io/pvc-protection";
/// What keeps a volume that is bound.
const VOLUME: &str = "kubernetes.io/pv-protection";

/// Lets a deleted claim go when no pod uses it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClaimProtection;

impl ClaimProtection {
    /// The account it acts as.
    pub const ACCOUNT: &str = "pvc-protection-controller";
}

impl Controller for ClaimProtection {
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
        let claims = world.shelf::<PersistentVolumeClaim>();
        let keys = change.both::<Pod>().flat_map(|pod| {
            let used = pod.used_claims();
            used.map(|it| Key::new(&pod.metadata.namespace, &it.claim)).collect::<Vec<_>>()
        });
        keys.filter(|key| claims.get(key).is_some_and(|it| it.metadata.is_going())).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(claim) = world.shelf::<PersistentVolumeClaim>().get(key) else { return plan };
        let using = Pod::using_claim(key.namespace(), key.name());
        let mut using = world.shelf::<Pod>().tagged(&using);
        using.retain(|pod| uses(pod, &claim));
        let user = using.iter().map(|it| it.metadata.name.as_str()).min();
        let why = user.map(|pod| format!("pod \"{pod}\" uses it; it goes when the pod is deleted"));
        protect::<PersistentVolumeClaim>(&claim.metadata, CLAIM, why, &mut plan);
        plan
    }
}

/// Whether a pod keeps a claim. One that has no node yet is never started with a claim that goes.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let meta = &pod.metadata;
    let ended = meta.is_going() && meta.deletion_grace_period_seconds == Some(0);
    let name = &claim.metadata.name;
    let mut used = pod.used_claims().filter(|it| it.claim == name.as_str());
    !pod.spec.node_name.is_empty()
        && used.any(|it| match it.ephemeral {
            true => !ended && claim.metadata.is_controlled_by(&meta.uid),
            false => true,
        })
}

/// Lets a deleted volume go when it is not bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeProtection;

impl VolumeProtection {
    /// The account it acts as.
    pub const ACCOUNT: &str = "pv-protection-controller";
}

impl Controller for VolumeProtection {
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
        let Some(volume) = world.shelf::<PersistentVolume>().get(key) else { return plan };
        let claim = volume.spec.claim_ref.as_ref().filter(|_| volume.status.phase == "Bound");
        let why = claim.map(|it| {
            let (namespace, name) = (&it.namespace, &it.name);
            format!(
                "claim \"{namespace}/{name}\" is bound to it; it goes when the claim is deleted"
            )
        });
        protect::<PersistentVolume>(&volume.metadata, VOLUME, why, &mut plan);
        plan
    }
}

/// Takes the finalizer from an object that is to go and that nothing uses, and gives it to one that
/// lacks it.
fn protect<V: View>(meta: &Meta, finalizer: &str, used: Option<String>, plan: &mut Plan) {
    let has = meta.finalizers.iter().any(|it| it == finalizer);
    let next: Vec<&str> = match (meta.is_going(), has, used) {
        (true, true, None) => {
            let others = meta.finalizers.iter().filter(|it| *it != finalizer);
            others.map(String::as_str).collect()
        }
        (true, true, Some(message)) => {
            let about = Reference::to(&V::RESOURCE, meta);
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
    plan.write(change::<V>(meta, Part::Main, body));
}
