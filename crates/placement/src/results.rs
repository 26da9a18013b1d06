//! Tells pods which devices they have, for those who prepare them on the node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gantry_api::devices::{
    DeviceAllocation, DeviceClaim, DeviceClaimTemplate, DevicePool, DevicePrivilegedClaim,
    PodClaims, PodDevices,
};
use gantry_pods::view::Pod;
use gantry_reconcile::{
    Change, Controller, Fence, Held, Key, Kind, Note, Part, Plan, Reference, View, World, Write,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::carrier;
use crate::claim::Claim;
use crate::gate;
use crate::scheduler::NAME;
use crate::seen::Seen;

/// From what a pod calls its claims to their names.
pub(crate) const STATUSES_ANNOTATION: &str = "devmgmtproto.k8s.io/device-claim-statuses";
/// From the names of containers to their devices.
pub(crate) const ALLOCATIONS_ANNOTATION: &str = "devmgmtproto.k8s.io/device-allocations";
/// How long it is said of a pod that nobody looks after its devices.
const SAID_FOR: Duration = Duration::from_secs(60);

/// Tells pods which devices they have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Results;

impl Controller for Results {
    fn name(&self) -> &'static str {
        "device-results"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Pod>(),
            Kind::of::<Seen<DeviceClaim>>(),
            Kind::of::<Seen<DevicePrivilegedClaim>>(),
            Kind::of::<Seen<DeviceClaimTemplate>>(),
            Kind::of::<Seen<PodDevices>>(),
            Kind::of::<Seen<DevicePool>>(),
        ]
    }

    fn enqueue(&self, _: &World, change: &Change) -> Vec<Key> {
        if let Some(pod) = change.after::<Pod>() {
            let wants = carrier::has_carrier(pod) && !pod.is_over();
            return if wants { vec![change.key.clone()] } else { Vec::new() };
        }
        let mut keys = BTreeSet::new();
        let plain = change.both::<Seen<DeviceClaim>>().map(|it| &it.status.reserved_for);
        let privileged = change.both::<Seen<DevicePrivilegedClaim>>();
        for consumers in plain.chain(privileged.map(|it| &it.status.reserved_for)) {
            keys.extend(consumers.iter().map(|it| change.key.beside(&it.name)));
        }
        keys.into_iter().collect()
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.shelf::<Pod>().get(key) else { return plan };
        if !carrier::has_carrier(&pod) || pod.is_over() || pod.metadata.is_going() {
            return plan;
        }
        if pod.spec.node_name.is_empty() {
            unmanaged(&pod, now, &mut plan);
        } else if let Some(annotations) = told(world, &pod) {
            plan.write(Write::Merge {
                resource: Pod::RESOURCE,
                key: key.clone(),
                part: Part::Main,
                fence: Fence { uid: pod.metadata.uid.clone(), revision: None },
                body: json!({"metadata": {"annotations": annotations}}),
            });
        }
        plan
    }
}

/// Says that nobody looks after the devices of a pod.
fn unmanaged(pod: &Pod, now: Timestamp, plan: &mut Plan) {
    let ours = pod.spec.scheduler_name == NAME || gate::is_gated(pod);
    if ours || gate::opened(pod).is_some() {
        return;
    }
    let about = Reference::to(&Pod::RESOURCE, &pod.metadata);
    let message = format!(
        "the pod claims devices and will run without them; set schedulerName: {NAME}, or the \
         scheduling gate {}",
        gate::GATE
    );
    let made = pod.metadata.creation_timestamp.unwrap_or(now);
    // Said while it is new: later it would only be said again.
    if now.duration_since(made).unsigned_abs() < SAID_FOR {
        plan.notes.push(Note::warning(about.clone(), "Unmanaged", message.clone()));
    }
    plan.held.push(Held { about, reason: "Unmanaged".into(), message, until: None });
}

/// What is news to a pod that has all of its devices.
fn told(world: &World, pod: &Pod) -> Option<Value> {
    let asked = carrier::read(world, pod).ok()?;
    let resolved = carrier::resolve(world, pod, &asked).ok()?;
    let uid = &pod.metadata.uid;
    let has_all =
        resolved.claims.iter().all(|(_, it)| it.is_allocated() && it.is_reserved_for(uid));
    if !resolved.missing.is_empty() || !has_all {
        return None;
    }
    let got: Vec<Got<'_>> =
        resolved.claims.iter().map(|(entry, claim)| Got::already(entry, claim)).collect();
    let annotations = annotations(world, &asked, &got);
    // A pool that is gone cannot be asked for its driver again.
    let pools = world.shelf::<Seen<DevicePool>>();
    let got = resolved.claims.iter().flat_map(|(_, it)| it.allocations());
    let gone = got.into_iter().any(|it| pools.get(&Key::cluster(&it.device_pool_name)).is_none());
    let known = |(name, text): (&String, &String)| {
        let told = pod.metadata.annotations.get(name);
        told == Some(text) || (gone && told.is_some())
    };
    (!annotations.iter().all(known)).then(|| json!(annotations))
}

/// What one claim of a pod has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Got<'a> {
    /// What the pod calls the claim.
    pub(crate) entry: &'a str,
    pub(crate) claim: &'a str,
    pub(crate) allocations: &'a [DeviceAllocation],
}

impl<'a> Got<'a> {
    /// What a claim has by its status.
    pub(crate) fn already(entry: &'a str, claim: &'a Claim) -> Self {
        Self { entry, claim: claim.name(), allocations: claim.allocations() }
    }
}

/// What a pod is told whose claims, all of them and in the order in which it names them, have this.
pub(crate) fn annotations(
    world: &World,
    asked: &PodClaims,
    claims: &[Got<'_>],
) -> BTreeMap<String, String> {
    let names: BTreeMap<&str, &str> = claims.iter().map(|it| (it.entry, it.claim)).collect();
    let devices = devices(world, asked, claims);
    BTreeMap::from([
        (STATUSES_ANNOTATION.to_owned(), json!(names).to_string()),
        (ALLOCATIONS_ANNOTATION.to_owned(), devices.to_string()),
    ])
}

/// The devices of each container, in the order in which it names them.
fn devices(world: &World, asked: &PodClaims, claims: &[Got<'_>]) -> Value {
    let mut containers = Map::new();
    for (container, references) in &asked.containers {
        let mut list = Vec::new();
        for reference in references {
            // By the name of a claim all of it, by the name of an entry in it that alone.
            let whole = claims.iter().any(|it| it.entry == reference.name);
            for at in asked.resolve(&reference.name) {
                let Some(claim) = claims.get(at) else { continue };
                let of_entry = |it: &&DeviceAllocation| {
                    whole || it.claim_name.as_ref() == Some(&reference.name)
                };
                let got = claim.allocations.iter().filter(of_entry);
                list.extend(got.map(|it| device(world, claim.claim, it)));
            }
        }
        containers.insert(container.clone(), Value::Array(list));
    }
    Value::Object(containers)
}

fn device(world: &World, claim: &str, got: &DeviceAllocation) -> Value {
    let pool = world.shelf::<Seen<DevicePool>>().get(&Key::cluster(&got.device_pool_name));
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
