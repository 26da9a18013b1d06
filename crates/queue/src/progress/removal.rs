//! Removes everything of an evicted AppWrapper, and waits for its pods.

use std::time::Duration;

use gantry_pods::view::Pod;
use gantry_reconcile::{
    Event, Fence, Held, Key, Meta, ObjectReference, Plan, Propagation, Resource, Step, View as _,
    World, Write,
};
use jiff::Timestamp;

use super::{ObservedAppWrapper, POD_REMOVAL_TIMEOUT, pods_tag};
use crate::app_wrapper::AppWrapper;
use crate::condition::{self, kind};
use crate::state;
use crate::unreachable::{self, UnreachablePod};

/// How long pods that were deleted without grace are still waited for. The server removes them at
/// once, unless it refuses that, or they have finalizers.
const FORCED_REMOVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns since when an AppWrapper is being evicted.
pub(super) fn removal_started_at(wrapper: &AppWrapper) -> Option<Timestamp> {
    let kinds = [kind::PREEMPT_CANDIDATE, kind::PREEMPTED, "Failed"];
    kinds.iter().filter_map(|it| condition::newest_since(&wrapper.status, it)).max()
}

/// Returns whether pods of an evicted AppWrapper may still run, so that it keeps its reservation.
pub(super) fn has_pods(seen: &ObservedAppWrapper) -> bool {
    seen.pods.iter().any(|pod| wait_deadline(seen, pod).is_some_and(|until| seen.now < until))
}

/// Returns until when a pod is waited for, or `None` where nothing of it can run any more.
fn wait_deadline(seen: &ObservedAppWrapper, pod: &Pod) -> Option<Timestamp> {
    let since = removal_started_at(&seen.wrapper)?;
    let until = |time: Duration| since.checked_add(time).ok();
    match pod.metadata.deletion_grace_period_seconds {
        _ if pod.is_terminal() => None,
        _ if !pod.metadata.is_terminating() => until(POD_REMOVAL_TIMEOUT),
        // It was deleted without grace, and only its finalizers keep it.
        Some(0) => None,
        Some(_) | None => {
            until(grace_limit(seen, &pod.metadata).saturating_add(FORCED_REMOVAL_TIMEOUT))
        }
    }
}

/// Returns how long a pod of an AppWrapper may terminate before it is deleted without grace.
fn grace_limit(seen: &ObservedAppWrapper, meta: &Meta) -> Duration {
    unreachable::force_deletion_limit(&seen.wrapper, unreachable_pod(seen, meta).is_some())
}

/// Returns the unreachable pod, if its node is not ready or gone.
fn unreachable_pod<'a>(seen: &'a ObservedAppWrapper, meta: &Meta) -> Option<&'a UnreachablePod> {
    seen.pod_counts.unreachable.iter().find(|it| it.pod == meta.name)
}

/// Reports which pods are waited for, where they are, and what is done when their time is over.
pub(super) fn wait_for_pods(seen: &ObservedAppWrapper, plan: &mut Plan) {
    let waited: Vec<(&Pod, Timestamp)> = seen
        .pods
        .iter()
        .filter_map(|pod| Some((&**pod, wait_deadline(seen, pod)?)))
        .filter(|(_, until)| seen.now < *until)
        .collect();
    let until = waited.iter().map(|(_, until)| *until).min();
    let Some((pod, _)) = waited.first() else { return };
    let more = match waited.len() - 1 {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let name = &pod.metadata.name;
    let place = match unreachable_pod(seen, &pod.metadata) {
        Some(UnreachablePod { node, why, .. }) => format!(" on node {node:?}, {why},"),
        None if pod.spec.node_name.is_empty() => String::new(),
        None => format!(" on node {:?}", pod.spec.node_name),
    };
    let next = match force_deletion_time(seen, &pod.metadata) {
        Some(when) if pod.metadata.is_terminating() => {
            format!("it is deleted without grace at {}", whole_seconds(when))
        }
        Some(_) | None => "it is not being deleted: delete the pod, or remove its label".to_owned(),
    };
    let held = Held {
        about: seen.wrapper.reference(),
        reason: "PodsRemain".into(),
        message: format!(
            "the eviction ends when its pods are gone: pod {name:?}{place}{more}; {next}"
        ),
        until,
    };
    plan.hold(held, seen.now);
}

/// Truncates a time to seconds.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Deletes every object of an AppWrapper.
pub(super) fn remove_objects(seen: &ObservedAppWrapper, plan: &mut Plan) {
    for (resource, meta) in seen.objects.iter().filter(|(_, meta)| !meta.is_terminating()) {
        plan.write(delete_write(resource, meta, None));
    }
}

/// Deletes without grace what is still terminating when its time is over: objects of an evicted
/// AppWrapper, and their pods. Pods that are not terminating are left alone: they may belong to
/// something else.
pub(super) fn force_overdue(seen: &ObservedAppWrapper, plan: &mut Plan) {
    let uid = &seen.wrapper.metadata.uid;
    let pods = seen.pods.iter().filter(|it| !it.metadata.is_controlled_by(uid));
    let pods = pods.map(|it| (Pod::RESOURCE, &it.metadata));
    let objects = seen.objects.iter().map(|(resource, meta)| (resource.clone(), meta));
    for (resource, meta) in objects.chain(pods) {
        // Once its grace period is zero, there is nothing to add.
        let has_time = meta.deletion_grace_period_seconds.is_some_and(|it| it > 0);
        let Some(from) =
            force_deletion_time(seen, meta).filter(|_| meta.is_terminating() && has_time)
        else {
            continue;
        };
        if seen.now < from {
            plan.requeue_at(from, seen.now);
            continue;
        }
        let pod = unreachable_pod(seen, meta).filter(|_| resource == Pod::RESOURCE);
        plan.steps.push(force_delete(seen.wrapper.reference(), &resource, meta, pod));
    }
}

/// Returns the step that deletes without grace, with an event.
fn force_delete(
    about: ObjectReference,
    resource: &Resource,
    meta: &Meta,
    pod: Option<&UnreachablePod>,
) -> Step {
    let name = &meta.name;
    let why = match pod {
        Some(UnreachablePod { node, why, .. }) => format!("is on node {node:?}, {why}"),
        None => "was not removed within its time limit".to_owned(),
    };
    let said = format!("Deleted {resource} {name:?} without grace: it {why}");
    let step = Step::new(delete_write(resource, meta, Some(0)));
    step.on_success(Event::warning(about, "ForcedDeletion", said))
}

/// Returns from when on an object of an evicted AppWrapper is deleted without grace.
fn force_deletion_time(seen: &ObservedAppWrapper, meta: &Meta) -> Option<Timestamp> {
    state::removal_outcome(&seen.wrapper)?;
    removal_started_at(&seen.wrapper)?.checked_add(grace_limit(seen, meta)).ok()
}

/// Deletes without grace the pods of a deleted AppWrapper that can never terminate by themselves:
/// they are terminating, on nodes that are not ready or gone. Their names would be taken for ever,
/// and an AppWrapper that is deleted in the foreground would wait for them and hold its quota.
pub(super) fn collect_orphans(world: &World, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for pod in world.store::<Pod>().by_index(&pods_tag(key)) {
        let Some(why) = unreachable::unreachable_reason(world, &pod) else { continue };
        let Some(from) = unreachable::force_deletion_of_orphan(&pod) else { continue };
        if now < from {
            plan.requeue_at(from, now);
            continue;
        }
        let (meta, node) = (&pod.metadata, pod.spec.node_name.clone());
        let lost = UnreachablePod { pod: meta.name.clone(), node, why };
        let about = ObjectReference::to(&Pod::RESOURCE, meta);
        plan.steps.push(force_delete(about, &Pod::RESOURCE, meta, Some(&lost)));
    }
    plan
}

fn delete_write(resource: &Resource, meta: &Meta, grace: Option<u32>) -> Write {
    Write::Delete {
        resource: resource.clone(),
        key: meta.key(),
        fence: Fence { uid: meta.uid.clone(), revision: None },
        grace,
        propagation: Some(Propagation::Background),
    }
}
