//! Makes the claims that pods want for themselves.
//!
//! Nobody competes for that, so each pod is looked after on its own, and none waits for what is decided about
//! others.

use std::collections::BTreeSet;

use gantry_api::devices::{DeviceClaim, DeviceClaimTemplate, DevicePrivilegedClaim, PodDevices};
use gantry_pods::view::Pod;
use gantry_reconcile::{Change, Controller, Key, Kind, Meta, Plan, World};
use jiff::Timestamp;

use crate::carrier;
use crate::scheduler;
use crate::seen::Seen;

/// Makes claims for pods that wait for them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Supply;

impl Controller for Supply {
    fn name(&self) -> &'static str {
        "device-claims"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<Pod>(),
            Kind::of::<Seen<DeviceClaim>>(),
            Kind::of::<Seen<DevicePrivilegedClaim>>(),
            Kind::of::<Seen<DeviceClaimTemplate>>(),
            Kind::of::<Seen<PodDevices>>(),
        ]
    }

    fn wakes(&self, world: &World, change: &Change) -> Vec<Key> {
        if let Some(pod) = change.after::<Pod>() {
            return if wants(pod) { vec![change.key.clone()] } else { Vec::new() };
        }
        let plain = change.both::<Seen<DeviceClaim>>().map(|it| &it.metadata);
        let claims =
            plain.chain(change.both::<Seen<DevicePrivilegedClaim>>().map(|it| &it.metadata));
        let claims: Vec<&Meta> = claims.collect();
        // One that was made for a pod concerns that pod; any other may be what claims are made after, and
        // only when it comes: what it says is copied once.
        let owners = claims.iter().filter_map(|it| it.controller()).filter(|it| it.kind == "Pod");
        let owners: BTreeSet<Key> = owners.map(|it| change.key.beside(&it.name)).collect();
        let is_news = match claims.as_slice() {
            [] => !change.is::<Pod>(),
            [claim] => owners.is_empty() && !claim.is_going(),
            _ => false,
        };
        if !is_news {
            return owners.into_iter().collect();
        }
        let pods = world.shelf::<Pod>().all();
        let beside = pods
            .iter()
            .map(|it| &**it)
            .filter(|it| it.metadata.namespace == change.key.namespace() && wants(it));
        beside.map(|it| it.metadata.key()).collect()
    }

    fn plan(&self, world: &World, key: &Key, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.shelf::<Pod>().get(key).filter(|it| wants(it)) else { return plan };
        let Ok(asked) = carrier::read(world, &pod) else { return plan };
        // What is wrong with any of it is told by the scheduler.
        let missing = carrier::resolve(world, &pod, &asked).map(|it| it.missing);
        let steps = missing.and_then(|it| carrier::supply(world, &pod, &asked, &it));
        plan.steps.extend(steps.into_iter().flatten());
        plan
    }
}

/// Whether claims are made for a pod.
fn wants(pod: &Pod) -> bool {
    carrier::has_carrier(pod) && scheduler::is_ours(pod) && !pod.metadata.is_going()
}
