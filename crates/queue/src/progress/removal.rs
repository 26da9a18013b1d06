//! Everything of an AppWrapper that is taken back goes, and its pods are waited for.

use std::time::Duration;

use gantry_pods::view::Pod;
use gantry_reconcile::{
    Fence, Held, Key, Meta, Note, Plan, Propagation, Reference, Resource, Step, View as _, World,
    Write,
};
use jiff::Timestamp;

use super::{PODS, Seen, pods_of};
use crate::app_wrapper::AppWrapper;
use crate::condition::{self, kind};
use crate::state;
use crate::unreachable::{self, UnreachablePod};

/// How long pods that were deleted without grace are still waited for. The server removes them at once,
/// unless it refuses that, or they have finalizers.
const FORCED: Duration = Duration::from_secs(60);

/// Since when an AppWrapper is being taken back.
pub(super) fn since_leaving(wrapper: &AppWrapper) -> Option<Timestamp> {
    let kinds = [kind::PREEMPT_CANDIDATE, kind::PREEMPTED, "Failed"];
    kinds.iter().filter_map(|it| condition::newest_since(&wrapper.status, it)).max()
}

/// Whether pods of an AppWrapper that is taken back may still run, so that it keeps its reservation.
pub(super) fn has_pods(seen: &Seen) -> bool {
    seen.pods.iter().any(|pod| waited_for(seen, pod).is_some_and(|until| seen.now < until))
}

/// Until when a pod is waited for; nothing where nothing of it can run any more.
fn waited_for(seen: &Seen, pod: &Pod) -> Option<Timestamp> {
    let since = since_leaving(&seen.wrapper)?;
    let until = |time: Duration| since.checked_add(time).ok();
    match pod.metadata.deletion_grace_period_seconds {
        _ if pod.is_over() => None,
        _ if !pod.metadata.is_going() => until(PODS),
        // It was deleted without grace, and stays because of its finalizers alone.
        Some(0) => None,
        Some(_) | None => until(limit(seen, &pod.metadata).saturating_add(FORCED)),
    }
}

/// How long a pod of an AppWrapper may take to go, before it is deleted without grace.
fn limit(seen: &Seen, meta: &Meta) -> Duration {
    unreachable::force_deletion_limit(&seen.wrapper, unreachable_pod(seen, meta).is_some())
}

/// What is known of a pod whose node is not ready or gone.
fn unreachable_pod<'a>(seen: &'a Seen, meta: &Meta) -> Option<&'a UnreachablePod> {
    seen.tally.unreachable.iter().find(|it| it.pod == meta.name)
}

/// Says which pods are waited for, where they are, and what is done when their time is over.
pub(super) fn wait_for_pods(seen: &Seen, plan: &mut Plan) {
    let waited: Vec<(&Pod, Timestamp)> = seen
        .pods
        .iter()
        .filter_map(|pod| Some((&**pod, waited_for(seen, pod)?)))
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
    let next = match force_from(seen, &pod.metadata) {
        Some(when) if pod.metadata.is_going() => {
            format!("it is deleted without grace at {}", whole_seconds(when))
        }
        Some(_) | None => "nobody has deleted it: remove the pod, or its label".to_owned(),
    };
    let held = Held {
        about: seen.wrapper.about(),
        reason: "PodsRemain".into(),
        message: format!(
            "it is taken back when its pods are gone: pod {name:?}{place}{more}; {next}"
        ),
        until,
    };
    plan.hold(held, seen.now);
}

/// Times are told to the second.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
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
    let uid = &seen.wrapper.metadata.uid;
    let pods = seen.pods.iter().filter(|it| !it.metadata.is_controlled_by(uid));
    let pods = pods.map(|it| (Pod::RESOURCE, &it.metadata));
    let objects = seen.objects.iter().map(|(resource, meta)| (resource.clone(), meta));
    for (resource, meta) in objects.chain(pods) {
        // Once it has no more time, there is nothing to add.
        let has_time = meta.deletion_grace_period_seconds.is_some_and(|it| it > 0);
        let Some(from) = force_from(seen, meta).filter(|_| meta.is_going() && has_time) else {
            continue;
        };
        if seen.now < from {
            plan.look_at(from, seen.now);
            continue;
        }
        let pod = unreachable_pod(seen, meta).filter(|_| resource == Pod::RESOURCE);
        plan.steps.push(force(seen.wrapper.about(), &resource, meta, pod));
    }
}

/// Deletes without grace, and tells about it.
fn force(about: Reference, resource: &Resource, meta: &Meta, pod: Option<&UnreachablePod>) -> Step {
    let name = &meta.name;
    let why = match pod {
        Some(UnreachablePod { node, why, .. }) => format!("is on node {node:?}, {why}"),
        None => "did not go in the time it has".to_owned(),
    };
    let said = format!("Deleted {resource} {name:?} without grace: it {why}");
    let step = Step::new(delete(resource, meta, Some(0)));
    step.done(Note::warning(about, "ForcedDeletion", said))
}

/// From when on an object of an AppWrapper that is taken back is deleted without grace.
fn force_from(seen: &Seen, meta: &Meta) -> Option<Timestamp> {
    state::leaving(&seen.wrapper)?;
    since_leaving(&seen.wrapper)?.checked_add(limit(seen, meta)).ok()
}

/// Removes without grace the pods of an AppWrapper that was deleted which can never answer: they are
/// terminating, on nodes that are not ready or gone. Their names would be taken for ever, and an AppWrapper
/// that is deleted in the foreground would wait for them and hold its quota.
pub(super) fn collect_orphans(world: &World, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for pod in world.shelf::<Pod>().tagged(&pods_of(key)) {
        let Some(why) = unreachable::of(world, &pod) else { continue };
        let Some(from) = unreachable::force_deletion_of_orphan(&pod) else { continue };
        if now < from {
            plan.look_at(from, now);
            continue;
        }
        let (meta, node) = (&pod.metadata, pod.spec.node_name.clone());
        let lost = UnreachablePod { pod: meta.name.clone(), node, why };
        let about = Reference::to(&Pod::RESOURCE, meta);
        plan.steps.push(force(about, &Pod::RESOURCE, meta, Some(&lost)));
    }
    plan
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
