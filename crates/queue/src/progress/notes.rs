//! What is told about the changes of an AppWrapper.

use gantry_api::queue::AppWrapperStatus;
use gantry_reconcile::Note;

use super::Seen;
use crate::state::{Leaving as L, Transition};

/// The event about the pods of an AppWrapper when its status begins to report them: which nodes do not answer, and
/// that the pods ask for more than was admitted.
pub(super) fn remark(seen: &Seen, next: &AppWrapperStatus) -> Option<Note> {
    let wrapper = &seen.wrapper;
    let remark = seen.tally.remark().filter(|it| next.message.as_ref() == Some(it))?;
    let is_new = wrapper.status.message.as_ref() != Some(&remark);
    is_new.then(|| Note::warning(wrapper.about(), seen.tally.remark_reason(), remark))
}

/// What is told about a change that makes this of the status.
pub(super) fn note(seen: &Seen, change: &Transition, next: &AppWrapperStatus) -> Option<Note> {
    let wrapper = &seen.wrapper;
    let normal = |said: &str| Note::normal(wrapper.about(), change.word(), said.to_owned());
    let warning = |said: String| Note::warning(wrapper.about(), change.word(), said);
    Some(match change {
        Transition::Queue => normal("Waits in the queue"),
        Transition::Dispatch => normal("All items were created"),
        Transition::Run => normal("Pods are running"),
        Transition::HoldCompletion => normal("All items are complete, and pods are still running"),
        Transition::Complete | Transition::Finish => normal("All items are complete"),
        Transition::Fail(why) | Transition::Bar(why) => warning(why.clone()),
        Transition::Recall(recall) => {
            warning(next.message.clone().unwrap_or_else(|| recall.message()))
        }
        Transition::Settle(L::Failed) => normal("All objects of it were removed"),
        Transition::Settle(L::Overrun) => {
            normal("It ran for too long, and all objects of it were removed")
        }
        Transition::Settle(L::GivenUp) => warning(
            "It was requeued as often as it may, and all objects of it were removed".to_owned(),
        ),
        Transition::Settle(L::Requeued | L::Rescheduled | L::Preempted) => {
            normal("All objects of it were removed; it waits in the queue again")
        }
        Transition::Reprioritise => normal("Has another priority"),
        // Counts alone make no event; `remark` makes those about the pods.
        Transition::Count
        | Transition::Lead
        | Transition::Reserve
        | Transition::Park(..)
        | Transition::Retry
        | Transition::Yield(_) => return None,
    })
}
