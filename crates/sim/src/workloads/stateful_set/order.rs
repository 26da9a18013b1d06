//! Which pod of a stateful set comes or goes next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::Plan;

use super::{Seen, Templates, claims, hold, pods};
use crate::view::{Management, Phase, Pod, UpdateKind};
use crate::workloads::MOST;

/// Decides what comes or goes: first those that are missing, then those that are too many, then
/// those of a former template.
pub(super) fn step(seen: &Seen, templates: &Templates<'_>, plan: &mut Plan) {
    let range = pods::range(&seen.set);
    let numbered = seen.pods.mine.iter().filter_map(|it| Some((pods::ordinal(it)?, it)));
    let (members, surplus): (Places<'_>, Places<'_>) =
        numbered.partition(|(ordinal, _)| range.contains(ordinal));
    let flow = fill(seen, templates, &members, plan);
    if flow == Flow::Stop {
        return;
    }
    if shrink(seen, &surplus, plan) == Flow::Stop {
        return;
    }
    if seen.set.spec.update_strategy.kind == UpdateKind::RollingUpdate {
        update(seen, templates, &members, plan);
    }
}

/// Pods by their number.
type Places<'a> = BTreeMap<i64, &'a Arc<Pod>>;

/// Whether those that come after may be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Go,
    Stop,
}

/// Makes what is missing. In order, a pod is looked at only when all before it are available.
fn fill(seen: &Seen, templates: &Templates<'_>, members: &Places<'_>, plan: &mut Plan) -> Flow {
    let ordered = seen.set.spec.pod_management_policy == Management::OrderedReady;
    for ordinal in pods::range(&seen.set) {
        if is_full(plan) {
            return Flow::Stop;
        }
        let waits = match members.get(&ordinal) {
            None => make(seen, templates, ordinal, plan),
            Some(pod) => keep(seen, pod, ordinal, plan),
        };
        let Some(why) = waits else { continue };
        if ordered {
            let name = format!("{}-{ordinal}", seen.set.metadata.name);
            hold(seen, plan, "PodsInOrder", format!("waits for pod {name} to be {why}"));
            return Flow::Stop;
        }
    }
    Flow::Go
}

/// Makes one pod, after its claims. Tells what the next ones wait for.
fn make(
    seen: &Seen,
    templates: &Templates<'_>,
    ordinal: i64,
    plan: &mut Plan,
) -> Option<&'static str> {
    if claims::are_stale(seen, ordinal) {
        return Some("rid of the volumes of the one before");
    }
    if !claims::ensure(seen, ordinal, plan) {
        return Some("given its volumes");
    }
    pods::make(seen, templates, ordinal, plan);
    Some("made")
}

/// Looks after one pod that is there. Tells what those after it wait for.
fn keep(seen: &Seen, pod: &Pod, ordinal: i64, plan: &mut Plan) -> Option<&'static str> {
    if pod.is_over() {
        if !pod.metadata.is_going() {
            pods::remove(seen, pod, plan);
        }
        return Some("replaced");
    }
    if pod.metadata.is_going() {
        return Some("gone");
    }
    // Also for one that runs: a claim may go with a former pod after the next one was made.
    if claims::ensure(seen, ordinal, plan) {
        claims::retain(seen, pod, ordinal, plan);
    }
    if pod.status.phase != Phase::Running || !pod.is_ready() {
        return Some("running and ready");
    }
    if let Some(Err(when)) = seen.availability(pod) {
        plan.look_at(when, seen.now);
        return Some("available");
    }
    if !pods::has_identity(pod) {
        pods::identify(seen, pod, ordinal, plan);
    }
    None
}

/// Removes what is too many, the highest number first. In order, one goes at a time, and only while
/// all others are available; the first that is not may go itself.
fn shrink(seen: &Seen, surplus: &Places<'_>, plan: &mut Plan) -> Flow {
    let ordered = seen.set.spec.pod_management_policy == Management::OrderedReady;
    // A claim must go with its pod before the pod goes.
    let mut settled = true;
    for (ordinal, pod) in surplus.iter().rev() {
        settled &= claims::retain(seen, pod, *ordinal, plan);
    }
    if !settled {
        return Flow::Stop;
    }
    let available = |pod: &Pod| pod.status.phase == Phase::Running && seen.is_available(pod);
    let first_unavailable = surplus.iter().find(|(_, pod)| !seen.is_available(pod));
    let first_unavailable = first_unavailable.map(|(ordinal, _)| *ordinal);
    for (ordinal, pod) in surplus.iter().rev() {
        if is_full(plan) {
            return Flow::Stop;
        }
        let name = &pod.metadata.name;
        if pod.metadata.is_going() {
            if ordered {
                hold(seen, plan, "PodsInOrder", format!("waits for pod {name} to be gone"));
                return Flow::Stop;
            }
            continue;
        }
        if ordered && !available(pod) && first_unavailable != Some(*ordinal) {
            hold(seen, plan, "PodsInOrder", format!("waits for pod {name} to be available"));
            return Flow::Stop;
        }
        pods::remove(seen, pod, plan);
        if ordered {
            return Flow::Stop;
        }
    }
    Flow::Go
}

/// Removes one pod of a former template, the highest number first, when all above it are available.
fn update(seen: &Seen, templates: &Templates<'_>, members: &Places<'_>, plan: &mut Plan) {
    let range = pods::range(&seen.set);
    let partition = seen.set.spec.update_strategy.rolling_update.map_or(0, |it| it.partition);
    let from = range.start.saturating_add(partition);
    for ordinal in (from..range.end).rev() {
        let Some(pod) = members.get(&ordinal) else { return };
        if pods::revision(pod) != templates.update.0 && !pod.metadata.is_going() {
            // One that ended is being removed already.
            if !pod.is_over() {
                pods::remove(seen, pod, plan);
            }
            return;
        }
        if !seen.is_available(pod) {
            if let Some(Err(when)) = seen.availability(pod) {
                plan.look_at(when, seen.now);
            }
            let name = &pod.metadata.name;
            hold(seen, plan, "RollingUpdate", format!("waits for pod {name} to be available"));
            return;
        }
    }
}

/// Whether a plan is as long as one may be; the rest is planned at once after it.
fn is_full(plan: &mut Plan) -> bool {
    let full = plan.steps.len() >= MOST;
    if full {
        plan.look_within(Duration::ZERO);
    }
    full
}
