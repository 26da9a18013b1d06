//! Everything of an AppWrapper that is taken back goes, and its pods are waited for.

use std::time::Duration;

use gantry_pods::view::Pod;
use gantry_reconcile::{Fence, Held, Meta, Plan, Propagation, Resource, View as _, Write};
use jiff::Timestamp;

use super::{PODS, Seen};
use crate::app_wrapper::AppWrapper;
use crate::condition::{self, kind};
use crate::state;

/// Since when an AppWrapper is being taken back.
pub(super) fn since_leaving(wrapper: &AppWrapper) -> Option<Timestamp> {
    let kinds = [kind::PREEMPT_CANDIDATE, kind::PREEMPTED, "Failed"];
    kinds.iter().filter_map(|it| condition::newest_since(&wrapper.status, it)).max()
}

pub(super) fn wait_for_pods(seen: &Seen, plan: &mut Plan) {
    let until = since_leaving(&seen.wrapper).and_then(|it| it.checked_add(PODS).ok());
    let held = Held {
        about: seen.wrapper.about(),
        reason: "PodsRemain".into(),
        message: "it is taken back when its pods are gone".to_owned(),
        until,
    };
    plan.hold(held, seen.now);
}

/// Removes every object of an AppWrapper.
pub(super) fn remove(seen: &Seen, plan: &mut Plan) {
    for (resource, meta) in seen.objects.iter().filter(|(_, meta)| !meta.is_going()) {
        plan.write(delete(resource, meta, None));
    }
}

/// Removes without grace what still goes when its time is over: objects of an AppWrapper that is taken back,
/// and their pods. Pods that nobody removed yet are left alone: they may be somebody else's.
pub(super) fn hurry(seen: &Seen, plan: &mut Plan) {
    let Some(from) = force_from(&seen.wrapper) else { return };
    if seen.now < from {
        plan.look_at(from, seen.now);
        return;
    }
    let uid = &seen.wrapper.metadata.uid;
    let pods = seen.pods.iter().filter(|it| !it.metadata.is_controlled_by(uid));
    let pods = pods.map(|it| (Pod::RESOURCE, &it.metadata));
    let objects = seen.objects.iter().map(|(resource, meta)| (resource.clone(), meta));
    for (resource, meta) in objects.chain(pods) {
        // Once it has no more time, there is nothing to add.
        if meta.is_going() && meta.deletion_grace_period_seconds.is_some_and(|it| it > 0) {
            plan.write(delete(&resource, meta, Some(0)));
        }
    }
}

/// From when on what is left of an AppWrapper that is taken back is removed without grace.
fn force_from(wrapper: &AppWrapper) -> Option<Timestamp> {
    state::leaving(wrapper)?;
    let seconds = wrapper.scheduling()?.force_deletion_time_in_seconds;
    let seconds = u64::try_from(seconds).ok().filter(|it| *it > 0)?;
    since_leaving(wrapper)?.checked_add(Duration::from_secs(seconds)).ok()
}

fn delete(resource: &Resource, meta: &Meta, grace: Option<u32>) -> Write {
    Write::Delete {
        resource: resource.clone(),
        key: meta.key(),
        fence: Fence { uid: meta.uid.clone(), revision: None },
        grace,
        propagation: Some(Propagation::Background),
    }
}
