//! Decides whether a running AppWrapper must be evicted because of its own pods, and when that is
//! checked.

use std::time::Duration;

use gantry_reconcile::Plan;

use super::ObservedAppWrapper;
use crate::app_wrapper::AppWrapper;
use crate::condition::EvictionReason;
use crate::deadline;
use crate::pod_counts::PodCounts;
use crate::requeue::{self, PodCheck};
use crate::state;

/// Returns the eviction that is due by the clock for a running AppWrapper; requeues for the next
/// check.
pub(super) fn eviction_due(seen: &ObservedAppWrapper, plan: &mut Plan) -> Option<EvictionReason> {
    let ObservedAppWrapper { wrapper, settings, now, pod_counts: tally, .. } = seen;
    let running = wrapper.state() == Some(&gantry_api::queue::AppWrapperState::Running);
    if !running || !wrapper.status.can_run || state::removal_outcome(wrapper).is_some() {
        return None;
    }
    if deadline::is_exceeded(wrapper, *now) {
        return Some(EvictionReason::Deadline { limit: wrapper.dispatch_limit_seconds() });
    }
    if let Some(end) = deadline::at(wrapper) {
        // One moment later it is exceeded.
        plan.requeue_at(end.checked_add(Duration::from_millis(1)).unwrap_or(end), *now);
    }
    let recall = insufficient_pods(wrapper, tally)?;
    match requeue::next_check(wrapper, settings, *now)? {
        PodCheck::Now(_) => Some(recall),
        PodCheck::At(when) => {
            plan.requeue_at(when, *now);
            None
        }
    }
}

/// Returns why the pods of an AppWrapper do not suffice at this moment.
fn insufficient_pods(wrapper: &AppWrapper, tally: &PodCounts) -> Option<EvictionReason> {
    let minimum = wrapper.min_available();
    let (running, completed) = (tally.running, tally.succeeded);
    if minimum > 0 {
        let recall = EvictionReason::MinPods { minimum, running, completed };
        return (running + completed < minimum).then_some(recall);
    }
    let failed = tally.unschedulable.len();
    if running > 0 || completed > 0 {
        return None;
    }
    if failed > 0 {
        return Some(EvictionReason::Unschedulable { failed, running });
    }
    // Pending pods may still come up.
    let pods = tally.unreachable.len();
    (tally.pending == 0 && pods > 0).then_some(EvictionReason::Unreachable { pods })
}
