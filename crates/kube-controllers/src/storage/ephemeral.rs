//! Creates the claims of generic ephemeral volumes.

use gantry_reconcile::object::controller_reference;
use gantry_reconcile::{
    Change, Controller, Event, Held, Key, Kind, ObjectReference, Plan, Step, View, World, Write,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::view::{PersistentVolumeClaim, Pod, Volume};

/// Creates a claim for each generic ephemeral volume of a pod. The pod owns the claim, which is
/// deleted with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct EphemeralVolumeController;

impl EphemeralVolumeController {
    /// The service account the controller acts as.
    pub const ACCOUNT: &str = "ephemeral-volume-controller";
}

impl Controller for EphemeralVolumeController {
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
        // A deleted claim is recreated for a pod that still exists.
        let using = Pod::volume_claim_tag(change.key.namespace(), change.key.name());
        let using = world.store::<Pod>().by_index(&using);
        using.iter().map(|it| it.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.store::<Pod>().get(key) else { return plan };
        if pod.metadata.is_terminating() || pod.is_terminal() {
            return plan;
        }
        for volume in &pod.spec.volumes {
            let Some(source) = &volume.ephemeral else { continue };
            create_claim(world, &pod, volume, &source.volume_claim_template, &mut plan);
        }
        plan
    }
}

fn create_claim(world: &World, pod: &Pod, volume: &Volume, template: &Value, plan: &mut Plan) {
    let meta = &pod.metadata;
    let key = Key::new(&meta.namespace, &format!("{}-{}", meta.name, volume.name));
    let claims = world.store::<PersistentVolumeClaim>();
    if claims.is_unreadable(&key) {
        return;
    }
    let about = ObjectReference::to(&Pod::RESOURCE, meta);
    let failed = format!("ephemeral volume {}", volume.name);
    if let Some(claim) = claims.get(&key) {
        if !claim.metadata.is_controlled_by(&meta.uid) {
            let why =
                format!("PVC {key} was not created for pod {} (pod is not owner)", meta.key());
            let message = format!("{failed}: {why}");
            plan.events.push(Event::warning(about.clone(), "FailedBinding", message.clone()));
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
            "ownerReferences": [controller_reference(&Pod::RESOURCE, meta)],
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
        .on_refusal(Event::warning(about.clone(), "FailedBinding", failed))
        .require_present(about);
    plan.steps.push(step);
}
