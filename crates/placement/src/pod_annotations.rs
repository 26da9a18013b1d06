//! Annotates pods with their devices, for the drivers that prepare them on the node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gantry_api::devices::{
    DeviceAllocation, DeviceClaim, DeviceClaimTemplate, DevicePool, DevicePrivilegedClaim,
    PodClaims, PodDevices,
};
use gantry_pods::view::Pod;
use gantry_reconcile::{
    Change, Controller, Event, Fence, Held, Key, Kind, ObjectReference, Plan, Subresource, View,
    World, Write,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::claim::Claim;
use crate::pod_claims;
use crate::scheduler::SCHEDULER_NAME;
use crate::scheduling_gate;
use crate::views::DeviceObject;

/// The annotation that maps a pod's names for its claims to the names of the claims.
pub(crate) const CLAIM_STATUSES_ANNOTATION: &str = "devmgmtproto.k8s.io/device-claim-statuses";
/// The annotation that maps the names of containers to their devices.
pub(crate) const ALLOCATIONS_ANNOTATION: &str = "devmgmtproto.k8s.io/device-allocations";
/// How long after its creation a pod is reported whose devices no scheduler manages.
const UNMANAGED_REPORT_WINDOW: Duration = Duration::from_secs(60);

/// Annotates pods with the devices they have.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodAnnotator;

impl Controller for PodAnnotator {
    fn name(&self) -> &'static str {
        "device-results"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Pod>(),
            Kind::of::<DeviceObject<DeviceClaim>>(),
            Kind::of::<DeviceObject<DevicePrivilegedClaim>>(),
            Kind::of::<DeviceObject<DeviceClaimTemplate>>(),
            Kind::of::<DeviceObject<PodDevices>>(),
            Kind::of::<DeviceObject<DevicePool>>(),
        ]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        if let Some(pod) = change.after::<Pod>() {
            let wants = pod_claims::claims_devices(pod) && !pod.is_terminal();
            return if wants { vec![change.key.clone()] } else { Vec::new() };
        }
        let mut keys = BTreeSet::new();
        let plain = change.both::<DeviceObject<DeviceClaim>>().map(|it| &it.status.reserved_for);
        let privileged = change.both::<DeviceObject<DevicePrivilegedClaim>>();
        for consumers in plain.chain(privileged.map(|it| &it.status.reserved_for)) {
            keys.extend(consumers.iter().map(|it| change.key.in_same_namespace(&it.name)));
        }
        keys.into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.store::<Pod>().get(key) else { return plan };
        if !pod_claims::claims_devices(&pod) || pod.is_terminal() || pod.metadata.is_terminating() {
            return plan;
        }
        if pod.spec.node_name.is_empty() {
            report_unmanaged(&pod, now, &mut plan);
        } else if let Some(annotations) = annotation_patch(world, &pod) {
            plan.write(Write::Merge {
                resource: Pod::RESOURCE,
                key: key.clone(),
                subresource: Subresource::Main,
                fence: Fence { uid: pod.metadata.uid.clone(), revision: None },
                body: json!({"metadata": {"annotations": annotations}}),
            });
        }
        plan
    }
}

/// Reports that no scheduler manages the devices of a pod.
fn report_unmanaged(pod: &Pod, now: Timestamp, plan: &mut Plan) {
    let ours = pod.spec.scheduler_name == SCHEDULER_NAME || scheduling_gate::is_gated(pod);
    if ours || scheduling_gate::opened_gate(pod).is_some() {
        return;
    }
    let about = ObjectReference::to(&Pod::RESOURCE, &pod.metadata);
    let message = format!(
        "the pod claims devices and will run without them; set schedulerName: {SCHEDULER_NAME}, or \
         the scheduling gate {}",
        scheduling_gate::SCHEDULING_GATE
    );
    let made = pod.metadata.creation_timestamp.unwrap_or(now);
    // Reported only while the pod is new: later it would only be repeated.
    if now.duration_since(made).unsigned_abs() < UNMANAGED_REPORT_WINDOW {
        plan.events.push(Event::warning(about.clone(), "Unmanaged", message.clone()));
    }
    plan.held.push(Held { about, reason: "Unmanaged".into(), message, until: None });
}

/// Returns the patch for a pod that has all of its devices, if its annotations are outdated.
fn annotation_patch(world: &World, pod: &Pod) -> Option<Value> {
    let resolved = pod_claims::resolve(world, pod).ok()?;
    let uid = &pod.metadata.uid;
    let has_all =
        resolved.claims.iter().all(|(_, it)| it.is_allocated() && it.is_reserved_for(uid));
    if !resolved.missing.is_empty() || !has_all {
        return None;
    }
    let got: Vec<PodClaimAllocations<'_>> = resolved
        .claims
        .iter()
        .map(|(entry, claim)| PodClaimAllocations::from_status(entry, claim))
        .collect();
    let annotations = annotations(world, &resolved.requested, &got);
    // A pool that is gone cannot be asked for its driver again.
    let pools = world.store::<DeviceObject<DevicePool>>();
    let got = resolved.claims.iter().flat_map(|(_, it)| it.allocations());
    let gone = got.into_iter().any(|it| pools.get(&Key::cluster(&it.device_pool_name)).is_none());
    let known = |(name, text): (&String, &String)| {
        let told = pod.metadata.annotations.get(name);
        told == Some(text) || (gone && told.is_some())
    };
    (!annotations.iter().all(known)).then(|| json!(annotations))
}

/// The devices of one claim of a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodClaimAllocations<'a> {
    /// The name of the claim in the pod.
    pub(crate) entry: &'a str,
    pub(crate) claim: &'a str,
    pub(crate) allocations: &'a [DeviceAllocation],
}

impl<'a> PodClaimAllocations<'a> {
    /// Reads what a claim has from its status.
    pub(crate) fn from_status(entry: &'a str, claim: &'a Claim) -> Self {
        Self { entry, claim: claim.name(), allocations: claim.allocations() }
    }
}

/// Returns the annotations of a pod whose claims, all of them and in the order in which it names
/// them, have these devices.
pub(crate) fn annotations(
    world: &World,
    asked: &PodClaims,
    claims: &[PodClaimAllocations<'_>],
) -> BTreeMap<String, String> {
    let names: BTreeMap<&str, &str> = claims.iter().map(|it| (it.entry, it.claim)).collect();
    let devices = container_devices(world, asked, claims);
    BTreeMap::from([
        (CLAIM_STATUSES_ANNOTATION.to_owned(), json!(names).to_string()),
        (ALLOCATIONS_ANNOTATION.to_owned(), devices.to_string()),
    ])
}

/// Returns the devices of each container, in the order in which it names them.
fn container_devices(
    world: &World,
    asked: &PodClaims,
    claims: &[PodClaimAllocations<'_>],
) -> Value {
    let mut containers = Map::new();
    for (container, references) in &asked.containers {
        let mut list = Vec::new();
        for reference in references {
            // The name of a claim selects all of it, the name of an entry in it that alone.
            let whole = claims.iter().any(|it| it.entry == reference.name);
            for at in asked.resolve(&reference.name) {
                let Some(claim) = claims.get(at) else { continue };
                let of_entry = |it: &&DeviceAllocation| {
                    whole || it.claim_name.as_ref() == Some(&reference.name)
                };
                let got = claim.allocations.iter().filter(of_entry);
                list.extend(got.map(|it| device_json(world, claim.claim, it)));
            }
        }
        containers.insert(container.clone(), Value::Array(list));
    }
    Value::Object(containers)
}

fn device_json(world: &World, claim: &str, got: &DeviceAllocation) -> Value {
    let pool = world.store::<DeviceObject<DevicePool>>().get(&Key::cluster(&got.device_pool_name));
    let driver = pool.as_ref().and_then(|it| it.object.as_ref().ok()).map(|it| &it.spec.driver);
    let mut device = json!({"driver": driver, "pool": got.device_pool_name, "claim": claim});
    if let Some(name) = &got.device_name {
        device["device"] = json!(name);
    }
    if let Some(count) = got.device_count {
        device["count"] = json!(count);
    }
    if !got.allocations.is_empty() {
        device["allocations"] = json!(got.allocations);
    }
    device
}
