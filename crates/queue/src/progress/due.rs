//! Whether an AppWrapper that runs must be taken back for its own sake, and when that is looked at.

use std::time::Duration;

use gantry_reconcile::Plan;

use super::Seen;
use crate::app_wrapper::AppWrapper;
use crate::condition::Recall;
use crate::count::Tally;
use crate::deadline;
use crate::requeue::{self, Check};
use crate::state;

/// What the clock says about an AppWrapper that runs, and when it says more.
pub(super) fn due(seen: &Seen, plan: &mut Plan) -> Option<Recall> {
    let Seen { wrapper, settings, now, tally, .. } = seen;
    let running = wrapper.state() == Some(&gantry_api::queue::AppWrapperState::Running);
    if !running || !wrapper.status.can_run || state::leaving(wrapper).is_some() {
        return None;
    }
    if deadline::is_over(wrapper, *now) {
        return Some(Recall::Deadline { limit: wrapper.limit() });
    }
    if let Some(end) = deadline::at(wrapper) {
        // A moment later it is over.
        plan.look_at(end.checked_add(Duration::from_millis(1)).unwrap_or(end), *now);
    }
    let recall = short(wrapper, tally)?;
    match requeue::check(wrapper, settings, *now)? {
        Check::Now(_) => Some(recall),
        Check::At(when) => {
            plan.look_at(when, *now);
            None
        }
    }
}

/// Why the pods of an AppWrapper will not do, at this moment.
fn short(wrapper: &AppWrapper, tally: &Tally) -> Option<Recall> {
    let minimum = wrapper.min_available();
    let (running, completed) = (tally.running, tally.succeeded);
    if minimum > 0 {
        let recall = Recall::MinPods { minimum, running, completed };
        return (running + completed < minimum).then_some(recall);
    }
    let failed = tally.unschedulable.len();
    if running > 0 || completed > 0 {
        return None;
    }
    if failed > 0 {
        return Some(Recall::Unschedulable { failed, running });
    }
    // Pods that wait may still come up.
    let pods = tally.unreachable.len();
    (tally.pending == 0 && pods > 0).then_some(Recall::Unreachable { pods })
}
