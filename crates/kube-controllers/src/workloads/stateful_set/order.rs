//! Decides which pod of a stateful set is created or deleted next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::Plan;

use super::{ObservedStatefulSet, Templates, claims, hold, pods};
use crate::view::{Phase, Pod, PodManagementPolicy, UpdateStrategyKind};
use crate::workloads::MAX_WRITES_PER_PLAN;

/// Plans the next step: first missing pods, then surplus ones, then those of a former template.
pub(super) fn step(observed: &ObservedStatefulSet, templates: &Templates<'_>, plan: &mut Plan) {
    let range = pods::ordinal_range(&observed.set);
    let numbered = observed.pods.owned.iter().filter_map(|it| Some((pods::ordinal(it)?, it)));
    let (members, surplus): (PodsByOrdinal<'_>, PodsByOrdinal<'_>) =
        numbered.partition(|(ordinal, _)| range.contains(ordinal));
    let flow = create_missing(observed, templates, &members, plan);
    if flow == Flow::Stop {
        return;
    }
    if scale_down(observed, &surplus, plan) == Flow::Stop {
        return;
    }
    if observed.set.spec.update_strategy.kind == UpdateStrategyKind::RollingUpdate {
        rolling_update(observed, templates, &members, plan);
    }
}

/// Pods by their ordinal.
type PodsByOrdinal<'a> = BTreeMap<i64, &'a Arc<Pod>>;

/// Whether the pods that follow may be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Go,
    Stop,
}

/// Creates missing pods. In order, a pod is processed only when all before it are available.
fn create_missing(
    observed: &ObservedStatefulSet,
    templates: &Templates<'_>,
    members: &PodsByOrdinal<'_>,
    plan: &mut Plan,
) -> Flow {
    let ordered = observed.set.spec.pod_management_policy == PodManagementPolicy::OrderedReady;
    for ordinal in pods::ordinal_range(&observed.set) {
        if is_plan_full(plan) {
            return Flow::Stop;
        }
        let waits = match members.get(&ordinal) {
            None => create_pod(observed, templates, ordinal, plan),
            Some(pod) => maintain_pod(observed, pod, ordinal, plan),
        };
        let Some(why) = waits else { continue };
        if ordered {
            let name = format!("{}-{ordinal}", observed.set.metadata.name);
            hold(observed, plan, "PodsInOrder", format!("waits for pod {name} to be {why}"));
            return Flow::Stop;
        }
    }
    Flow::Go
}

/// Creates one pod, after its claims. Returns whether the next ones wait.
fn create_pod(
    observed: &ObservedStatefulSet,
    templates: &Templates<'_>,
    ordinal: i64,
    plan: &mut Plan,
) -> Option<&'static str> {
    if claims::are_stale(observed, ordinal) {
        return Some("rid of the claims of its predecessor");
    }
    if !claims::ensure(observed, ordinal, plan) {
        return Some("given its claims");
    }
    pods::create_pod(observed, templates, ordinal, plan);
    Some("made")
}

/// Maintains one existing pod. Returns whether those after it wait.
fn maintain_pod(
    observed: &ObservedStatefulSet,
    pod: &Pod,
    ordinal: i64,
    plan: &mut Plan,
) -> Option<&'static str> {
    if pod.is_terminal() {
        if !pod.metadata.is_terminating() {
            pods::delete_pod(observed, pod, plan);
        }
        return Some("replaced");
    }
    if pod.metadata.is_terminating() {
        return Some("gone");
    }
    // Also for a running pod: a claim may be deleted with a former pod after the next one was
    // created.
    if claims::ensure(observed, ordinal, plan) {
        claims::apply_retention(observed, pod, ordinal, plan);
    }
    if pod.status.phase != Phase::Running || !pod.is_ready() {
        return Some("running and ready");
    }
    if let Some(Err(when)) = observed.availability(pod) {
        plan.requeue_at(when, observed.now);
        return Some("available");
    }
    if !pods::has_identity(pod) {
        pods::set_identity(observed, pod, ordinal, plan);
    }
    None
}

/// Deletes surplus pods, the highest ordinal first. In order, one is deleted at a time, and only
/// while all others are available; the first that is not may itself be deleted.
fn scale_down(
    observed: &ObservedStatefulSet,
    surplus: &PodsByOrdinal<'_>,
    plan: &mut Plan,
) -> Flow {
    let ordered = observed.set.spec.pod_management_policy == PodManagementPolicy::OrderedReady;
    // The owner of a claim must be set before its pod is deleted.
    let mut settled = true;
    for (ordinal, pod) in surplus.iter().rev() {
        settled &= claims::apply_retention(observed, pod, *ordinal, plan);
    }
    if !settled {
        return Flow::Stop;
    }
    let available = |pod: &Pod| pod.status.phase == Phase::Running && observed.is_available(pod);
    let first_unavailable = surplus.iter().find(|(_, pod)| !observed.is_available(pod));
    let first_unavailable = first_unavailable.map(|(ordinal, _)| *ordinal);
    for (ordinal, pod) in surplus.iter().rev() {
        if is_plan_full(plan) {
            return Flow::Stop;
        }
        let name = &pod.metadata.name;
        if pod.metadata.is_terminating() {
            if ordered {
                hold(observed, plan, "PodsInOrder", format!("waits for pod {name} to be gone"));
                return Flow::Stop;
            }
            continue;
        }
        if ordered && !available(pod) && first_unavailable != Some(*ordinal) {
            hold(observed, plan, "PodsInOrder", format!("waits for pod {name} to be available"));
            return Flow::Stop;
        }
        pods::delete_pod(observed, pod, plan);
        if ordered {
            return Flow::Stop;
        }
    }
    Flow::Go
}

/// Deletes one pod of a former template, the highest ordinal first, when all above it are
/// available.
fn rolling_update(
    observed: &ObservedStatefulSet,
    templates: &Templates<'_>,
    members: &PodsByOrdinal<'_>,
    plan: &mut Plan,
) {
    let range = pods::ordinal_range(&observed.set);
    let partition = observed.set.spec.update_strategy.rolling_update.map_or(0, |it| it.partition);
    let from = range.start.saturating_add(partition);
    for ordinal in (from..range.end).rev() {
        let Some(pod) = members.get(&ordinal) else { return };
        if pods::revision(pod) != templates.update.0 && !pod.metadata.is_terminating() {
            // A finished pod is being deleted already.
            if !pod.is_terminal() {
                pods::delete_pod(observed, pod, plan);
            }
            return;
        }
        if !observed.is_available(pod) {
            if let Some(Err(when)) = observed.availability(pod) {
                plan.requeue_at(when, observed.now);
            }
            let name = &pod.metadata.name;
            hold(observed, plan, "RollingUpdate", format!("waits for pod {name} to be available"));
            return;
        }
    }
}

/// Returns whether a plan has the most writes it may have; the rest is planned right after it.
fn is_plan_full(plan: &mut Plan) -> bool {
    let full = plan.steps.len() >= MAX_WRITES_PER_PLAN;
    if full {
        plan.requeue_after(Duration::ZERO);
    }
    full
}
