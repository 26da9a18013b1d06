//! Events about the transitions of an AppWrapper.

use gantry_api::queue::AppWrapperStatus;
use gantry_reconcile::Event;

use super::ObservedAppWrapper;
use crate::state::{RemovalOutcome as L, Transition};

/// Returns the event about the pods of an AppWrapper when its status begins to report them: which
/// nodes do not answer, and that the pods request more than was admitted.
pub(super) fn pod_event(seen: &ObservedAppWrapper, next: &AppWrapperStatus) -> Option<Event> {
    let wrapper = &seen.wrapper;
    let remark = seen.pod_counts.message().filter(|it| next.message.as_ref() == Some(it))?;
    let is_new = wrapper.status.message.as_ref() != Some(&remark);
    is_new.then(|| Event::warning(wrapper.reference(), seen.pod_counts.message_reason(), remark))
}

/// Returns the event about a transition that results in this status.
pub(super) fn transition_event(
    seen: &ObservedAppWrapper,
    change: &Transition,
    next: &AppWrapperStatus,
) -> Option<Event> {
    let wrapper = &seen.wrapper;
    let normal =
        |said: &str| Event::normal(wrapper.reference(), change.event_reason(), said.to_owned());
    let warning = |said: String| Event::warning(wrapper.reference(), change.event_reason(), said);
    Some(match change {
        Transition::Queue => normal("Waits in the queue"),
        Transition::Dispatch => normal("All items were created"),
        Transition::Run => normal("Pods are running"),
        Transition::HoldCompletion => normal("All items are complete, and pods are still running"),
        Transition::Complete | Transition::DispatchAndComplete => normal("All items are complete"),
        Transition::Fail(why) | Transition::Deny(why) => warning(why.clone()),
        Transition::Evict(recall) => {
            warning(next.message.clone().unwrap_or_else(|| recall.message()))
        }
        Transition::FinishRemoval(L::Failed) => normal("All its objects were removed"),
        Transition::FinishRemoval(L::DeadlineExceeded) => {
            normal("It exceeded its deadline, and all its objects were removed")
        }
        Transition::FinishRemoval(L::GivenUp) => {
            warning("It reached its requeue limit, and all its objects were removed".to_owned())
        }
        Transition::FinishRemoval(L::Requeued | L::Rescheduled | L::Preempted) => {
            normal("All its objects were removed; it is queued again")
        }
        Transition::UpdatePriority => normal("The priority changed"),
        // Counts alone make no event; [`pod_event`] makes those about the pods.
        Transition::UpdateCounts
        | Transition::HoldHeadOfLine
        | Transition::Reserve
        | Transition::BackOff(..)
        | Transition::Retry
        | Transition::Preempt(_) => return None,
    })
}
