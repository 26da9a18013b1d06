//! Makes the claims of generic ephemeral volumes.

use gantry_reconcile::object::controlled_by;
use gantry_reconcile::{
    Change, Controller, Held, Key, Kind, Note, Plan, Reference, Step, View, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::view::{PersistentVolumeClaim, Pod, Volume};

/// Makes a claim for each generic ephemeral volume of a pod. The claim belongs to the pod and goes
/// with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct EphemeralClaims;

impl EphemeralClaims {
    /// The account it acts as.
    pub const ACCOUNT: &str = "ephemeral-volume-controller";
}

impl Controller for EphemeralClaims {
    fn name(&self) -> &'static str {
        "ephemeral-volume"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<Pod>(), Kind::of::<PersistentVolumeClaim>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<Pod>() {
            let has = |it: &Pod| it.spec.volumes.iter().any(|it| it.ephemeral.is_some());
            let concerned = change.after::<Pod>().is_some_and(has);
            return concerned.then(|| change.key.clone()).into_iter().collect();
        }
        // A claim that is gone is made again for a pod that is still there.
        let using = Pod::using_claim(change.key.namespace(), change.key.name());
        let using = world.shelf::<Pod>().tagged(&using);
        using.iter().map(|it| it.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.shelf::<Pod>().get(key) else { return plan };
        if pod.metadata.is_going() || pod.is_over() {
            return plan;
        }
        for volume in &pod.spec.volumes {
            let Some(source) = &volume.ephemeral else { continue };
            make(world, &pod, volume, &source.volume_claim_template, &mut plan);
        }
        plan
    }
}

fn make(world: &World, pod: &Pod, volume: &Volume, template: &Value, plan: &mut Plan) {
    let meta = &pod.metadata;
    let key = Key::new(&meta.namespace, &format!("{}-{}", meta.name, volume.name));
    let claims = world.shelf::<PersistentVolumeClaim>();
    if claims.is_unreadable(&key) {
        return;
    }
    let about = Reference::to(&Pod::RESOURCE, meta);
    let failed = format!("ephemeral volume {}", volume.name);
    if let Some(claim) = claims.get(&key) {
        if !claim.metadata.is_controlled_by(&meta.uid) {
            let why =
                format!("PVC {key} was not created for pod {} (pod is not owner)", meta.key());
            let message = format!("{failed}: {why}");
            plan.notes.push(Note::warning(about.clone(), "FailedBinding", message.clone()));
            plan.held.push(Held { about, reason: "FailedBinding".into(), message, until: None });
        }
        return;
    }
    let mut body = json!({
        "apiVersion": "v1",
        "kind": PersistentVolumeClaim::RESOURCE.kind,
        "metadata": {
            "name": key.name(),
            "namespace": key.namespace(),
            "ownerReferences": [controlled_by(&Pod::RESOURCE, meta)],
        },
        "spec": template["spec"],
    });
    for field in ["labels", "annotations"] {
        if let Some(values) = template["metadata"].get(field) {
            body["metadata"][field] = values.clone();
        }
    }
    let create = Write::Create { resource: PersistentVolumeClaim::RESOURCE, body };
    let step = Step::new(create)
        .refused(Note::warning(about.clone(), "FailedBinding", failed))
        .provided(about);
    plan.steps.push(step);
}
