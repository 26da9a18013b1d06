//! Computes the next action for an AppWrapper, and the status after a transition.
//!
//! The numbers are those of the table of transitions in `docs/specs/queue.md`. [`next_action`]
//! decides about one AppWrapper from facts about it alone (T1, T7 to T15, T17, T18); which of many
//! AppWrappers are admitted (T2 to T6, T16) is decided in
//! [`admission_cycle`](crate::admission_cycle), also for AppWrappers without a status yet: T1 is
//! then part of the same write.
//!
//! Evictions and preemptions take two steps. First the status records the eviction, and the
//! AppWrapper keeps its reservation; when its items and their pods are gone, the status records the
//! outcome. If the process dies in between, the status holds everything its successor needs.

use gantry_api::queue::{AppWrapperState, AppWrapperStatus, QueueState};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::app_wrapper::AppWrapper;
use crate::condition::{
    self, BackoffReason, EvictionReason, PreemptionReason, QueueCondition, kind, reason,
};
use crate::pod_counts::PodCounts;
use crate::requeue;
use crate::unreachable;

/// Facts about one AppWrapper that the next action depends on.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each of which may be so or not")]
pub struct AppWrapperFacts {
    /// The state in its status.
    pub state: Option<AppWrapperState>,
    /// The last queue state in its status.
    pub step: Option<QueueState>,
    /// Whether it holds a reservation.
    pub can_run: bool,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Whether it is so new that the admission cycle may still record in one write that it was
    /// observed and what follows.
    pub awaits_first_cycle: bool,
    /// The outcome of its removal, where it is being evicted or preempted.
    pub removal: Option<RemovalOutcome>,
    /// The state of its items.
    pub items: ItemsState,
    /// Whether objects of it exist.
    pub has_objects: bool,
    /// Whether some of them have existed for so long that the cached AppWrapper is newer.
    pub has_old_objects: bool,
    /// Whether pods of it exist that use resources.
    pub has_pods: bool,
    /// Whether every item with a completion condition is complete, and there is at least one.
    pub is_complete: bool,
    /// The number of its running pods.
    pub running: i64,
    /// The number of its pending pods.
    pub pending: i64,
    /// The eviction that is due by the clock, if any.
    pub eviction: Option<EvictionReason>,
    /// Whether its pod counts differ from the status.
    pub counts_changed: bool,
    /// Whether its priority differs from the status.
    pub priority_changed: bool,
    /// Why its author may not create it, where it is pending and that is the case.
    pub denied: Option<String>,
}

impl AppWrapperFacts {
    /// Returns whether a pod of it runs or is pending.
    fn has_active_pods(&self) -> bool {
        self.running + self.pending > 0
    }
}

/// The state of the items of an admitted AppWrapper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemsState {
    /// All items exist.
    Present,
    /// Some items are missing, and are to be created.
    Missing,
    /// Some items have been missing for a while. They are retried once more from now on.
    Late,
    /// Some items cannot be created. The text says why.
    Impossible(String),
}

/// The next action for an AppWrapper.
#[derive(Clone, Debug, PartialEq)]
pub enum NextAction {
    /// Nothing is to be done.
    Idle,
    /// Its status is updated.
    UpdateStatus(Transition),
    /// Its items are created.
    CreateItems,
    /// Its objects are deleted.
    RemoveObjects,
}

/// A change of the status.
#[derive(Clone, Debug, PartialEq)]
pub enum Transition {
    /// T1: it was observed, and is pending.
    Queue,
    /// T2 and T4: it is the head of the line, and blocks the queue.
    HoldHeadOfLine,
    /// T3: it is admitted. The reservation is durable before any item is created.
    Reserve,
    /// T5: it backs off.
    BackOff(BackoffReason, String),
    /// T7: all of its items exist. Where it has no pods, its run time begins.
    Dispatch,
    /// The creation of its items is retried once more.
    Retry,
    /// T8: its items cannot be created.
    Fail(String),
    /// T8 of one that is not admitted: its author may not create what it wraps. No item was
    /// created.
    Deny(String),
    /// T9: a pod of it runs.
    Run,
    /// T10: its items are complete, and pods still run.
    HoldCompletion,
    /// T11: it has finished.
    Complete,
    /// T7 and T11: all of its items exist, and it finished before that was written.
    DispatchAndComplete,
    /// T12 to T15: it is evicted because of its own pods or deadline.
    Evict(EvictionReason),
    /// T16: it is preempted for another AppWrapper.
    Preempt(PreemptionReason),
    /// T8 and T12 to T16, second step: all of its objects are gone.
    FinishRemoval(RemovalOutcome),
    /// Its pod counts changed.
    UpdateCounts,
    /// T18: its priority changed.
    UpdatePriority,
}

/// The outcome for an AppWrapper when all of its objects are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalOutcome {
    /// T8: it has failed.
    Failed,
    /// T12: it is pending again, with a longer wait than before.
    Requeued,
    /// T13: it reached its requeue limit.
    GivenUp,
    /// T14: it is pending again.
    Rescheduled,
    /// T15: it exceeded its deadline.
    DeadlineExceeded,
    /// T16: it is pending again, without a backoff.
    Preempted,
}

/// Decides the next action.
#[must_use]
pub fn next_action(facts: &AppWrapperFacts) -> NextAction {
    use AppWrapperState as S;
    if facts.is_deleting {
        // T17: its objects are deleted with it.
        return NextAction::Idle;
    }
    if let Some(leaving) = facts.removal {
        return next_removal(facts, leaving);
    }
    if let Some(why) = &facts.denied {
        return NextAction::UpdateStatus(Transition::Deny(why.clone()));
    }
    match &facts.state {
        None if facts.awaits_first_cycle => NextAction::Idle,
        None => NextAction::UpdateStatus(Transition::Queue),
        Some(S::Pending) if facts.can_run => next_dispatch(facts),
        Some(S::Running) if facts.can_run => next_running(facts),
        // The object was created late, or is left over from an earlier run.
        Some(S::Pending | S::Failed | S::Deleted) if facts.has_old_objects => {
            NextAction::RemoveObjects
        }
        Some(S::Pending) if facts.priority_changed => {
            NextAction::UpdateStatus(Transition::UpdatePriority)
        }
        Some(S::RunningHoldCompletion) if !facts.has_active_pods() => {
            NextAction::UpdateStatus(Transition::Complete)
        }
        Some(S::RunningHoldCompletion) if facts.counts_changed => {
            NextAction::UpdateStatus(Transition::UpdateCounts)
        }
        Some(
            S::Pending
            | S::Running
            | S::RunningHoldCompletion
            | S::Completed
            | S::Failed
            | S::Deleted
            | S::Other(_),
        ) => NextAction::Idle,
    }
}

fn next_removal(facts: &AppWrapperFacts, leaving: RemovalOutcome) -> NextAction {
    match (facts.has_objects, facts.has_pods) {
        (true, _) => NextAction::RemoveObjects,
        (false, true) => NextAction::Idle,
        (false, false) => NextAction::UpdateStatus(Transition::FinishRemoval(leaving)),
    }
}

fn next_dispatch(facts: &AppWrapperFacts) -> NextAction {
    match &facts.items {
        ItemsState::Present if facts.is_complete && !facts.has_active_pods() => {
            NextAction::UpdateStatus(Transition::DispatchAndComplete)
        }
        ItemsState::Present => NextAction::UpdateStatus(Transition::Dispatch),
        ItemsState::Missing => NextAction::CreateItems,
        ItemsState::Late => NextAction::UpdateStatus(Transition::Retry),
        ItemsState::Impossible(why) => NextAction::UpdateStatus(Transition::Fail(why.clone())),
    }
}

fn next_running(facts: &AppWrapperFacts) -> NextAction {
    if facts.is_complete {
        let change = match facts.has_active_pods() {
            true => Transition::HoldCompletion,
            false => Transition::Complete,
        };
        return NextAction::UpdateStatus(change);
    }
    if let Some(recall) = facts.eviction {
        return NextAction::UpdateStatus(Transition::Evict(recall));
    }
    if facts.running > 0 && facts.step != Some(QueueState::Running) {
        return NextAction::UpdateStatus(Transition::Run);
    }
    if facts.counts_changed {
        NextAction::UpdateStatus(Transition::UpdateCounts)
    } else {
        NextAction::Idle
    }
}

/// Returns the outcome for an AppWrapper that is being evicted or preempted, by its status.
#[must_use]
pub fn removal_outcome(wrapper: &AppWrapper) -> Option<RemovalOutcome> {
    use QueueState as Q;
    let status = &wrapper.status;
    match status.queue_state.as_ref().filter(|_| status.can_run)? {
        Q::Failed => Some(RemovalOutcome::Failed),
        Q::Preempted => Some(RemovalOutcome::Preempted),
        Q::PreemptCandidate => {
            let candidate = condition::newest(status, kind::PREEMPT_CANDIDATE)?;
            Some(match candidate.reason.as_deref() {
                Some(reason::DEADLINE) => RemovalOutcome::DeadlineExceeded,
                Some(reason::UNSCHEDULABLE | reason::UNREACHABLE) => RemovalOutcome::Rescheduled,
                _ if requeue::is_limit_reached(wrapper) => RemovalOutcome::GivenUp,
                _ => RemovalOutcome::Requeued,
            })
        }
        Q::Init
        | Q::Queueing
        | Q::HeadOfLine
        | Q::Backoff
        | Q::Dispatched
        | Q::Running
        | Q::Deleted
        | Q::Completed
        | Q::RunningHoldCompletion
        | Q::Other(_) => None,
    }
}

impl Transition {
    /// Returns the status after the transition. T1 is part of the same write for an AppWrapper
    /// without a status.
    #[must_use]
    pub fn apply(
        &self,
        wrapper: &AppWrapper,
        tally: &PodCounts,
        priority: f64,
        now: Timestamp,
    ) -> AppWrapperStatus {
        if *self == Self::DispatchAndComplete {
            let status = Self::Dispatch.apply(wrapper, tally, priority, now);
            let dispatched = AppWrapper { status, ..wrapper.clone() };
            return Self::Complete.apply(&dispatched, tally, priority, now);
        }
        let now = condition::truncate_to_micros(now);
        let mut status = wrapper.status.clone();
        status.filter_ignore = true;
        status.sender = Some(format!("before {}", self.event_reason()));
        if status.state.is_none() {
            write_queued(&mut status, priority, now);
        }
        let mut put = |entry: QueueCondition, step: QueueState| {
            entry.upsert(&mut status.conditions, now);
            status.queue_state = Some(step);
        };
        match self {
            // Everything was written above.
            Self::Queue | Self::DispatchAndComplete => {}
            Self::HoldHeadOfLine => {
                put(QueueCondition::HeadOfLine, QueueState::HeadOfLine);
                status.system_priority = priority;
            }
            Self::Reserve => {
                put(QueueCondition::HeadOfLine, QueueState::HeadOfLine);
                (status.can_run, status.message) = (true, None);
                status.system_priority = priority;
            }
            Self::BackOff(pause, message) => {
                put(QueueCondition::HeadOfLine, QueueState::HeadOfLine);
                put(QueueCondition::Backoff(pause.clone()), QueueState::Backoff);
                status.message = Some(message.clone());
                status.system_priority = priority;
            }
            Self::Dispatch => {
                put(QueueCondition::Dispatched, QueueState::Dispatched);
                status.state = Some(AppWrapperState::Running);
                status.pending_pods.clear();
                status.message = None;
                let demand = wrapper.demand();
                if demand.compat.is_zero() && demand.full.is_zero() {
                    status.first_dispatched.get_or_insert(MicroTime(now));
                }
            }
            Self::Retry => condition::refresh(&mut status, now),
            Self::Fail(why) => {
                put(QueueCondition::Failed(why.clone()), QueueState::Failed);
                status.message = Some(why.clone());
            }
            Self::Deny(why) => {
                put(QueueCondition::Failed(why.clone()), QueueState::Failed);
                status.state = Some(AppWrapperState::Failed);
                status.message = Some(why.clone());
            }
            Self::Run => {
                put(QueueCondition::Running, QueueState::Running);
                status.first_dispatched.get_or_insert(MicroTime(now));
                tally.write_to(&mut status);
                status.message = tally.message();
            }
            Self::HoldCompletion => {
                put(QueueCondition::RunningHoldCompletion, QueueState::RunningHoldCompletion);
                status.state = Some(AppWrapperState::RunningHoldCompletion);
                tally.write_to(&mut status);
                status.message = tally.message();
            }
            Self::Complete => {
                put(QueueCondition::Completed, QueueState::Completed);
                status.state = Some(AppWrapperState::Completed);
                (status.can_run, status.message) = (false, None);
                tally.write_to(&mut status);
            }
            Self::Evict(recall) => {
                put(QueueCondition::PreemptCandidate(*recall), QueueState::PreemptCandidate);
                status.message = Some(match unreachable::describe(&tally.unreachable) {
                    Some(nodes) => format!("{} {nodes}.", recall.message()),
                    None => recall.message(),
                });
                tally.write_to(&mut status);
            }
            Self::Preempt(by) => {
                let entry = QueueCondition::Preempted(by.clone());
                let message = entry.message().map(std::borrow::Cow::into_owned);
                put(entry, QueueState::Preempted);
                status.message = message;
            }
            Self::FinishRemoval(leaving) => {
                write_removed(*leaving, wrapper, &mut status, priority, now);
            }
            Self::UpdateCounts => {
                tally.write_to(&mut status);
                status.message = tally.message();
                condition::refresh(&mut status, now);
            }
            Self::UpdatePriority => status.system_priority = priority,
        }
        status
    }

    /// Returns whether the write is only informative: no controller depends on it.
    #[must_use]
    pub fn is_deferrable(&self) -> bool {
        match self {
            Self::Queue | Self::BackOff(..) | Self::UpdateCounts | Self::UpdatePriority => true,
            Self::HoldHeadOfLine
            | Self::Reserve
            | Self::Dispatch
            | Self::Retry
            | Self::Fail(_)
            | Self::Deny(_)
            | Self::Run
            | Self::HoldCompletion
            | Self::Complete
            | Self::DispatchAndComplete
            | Self::Evict(_)
            | Self::Preempt(_)
            | Self::FinishRemoval(_) => false,
        }
    }

    /// Returns the event reason.
    #[must_use]
    pub fn event_reason(&self) -> &'static str {
        match self {
            Self::Queue => "Queueing",
            Self::HoldHeadOfLine => "HeadOfLine",
            Self::Reserve => "Dispatching",
            Self::BackOff(..) => "Backoff",
            Self::Dispatch => "Dispatched",
            Self::Retry => "Retrying",
            Self::Fail(_) | Self::Deny(_) => "ItemCreationFailure",
            Self::Run => "Running",
            Self::HoldCompletion => "RunningHoldCompletion",
            Self::Complete | Self::DispatchAndComplete => "Completed",
            Self::Evict(_) => "PreemptCandidate",
            Self::Preempt(_) => "Preempted",
            Self::FinishRemoval(RemovalOutcome::Failed | RemovalOutcome::DeadlineExceeded) => {
                "Failed"
            }
            Self::FinishRemoval(RemovalOutcome::GivenUp) => "Deleted",
            Self::FinishRemoval(
                RemovalOutcome::Requeued | RemovalOutcome::Rescheduled | RemovalOutcome::Preempted,
            ) => "Requeued",
            Self::UpdateCounts => "Counting",
            Self::UpdatePriority => "Reprioritised",
        }
    }
}

/// T1: it was observed, and is pending.
fn write_queued(status: &mut AppWrapperStatus, priority: f64, now: Timestamp) {
    QueueCondition::Init.upsert(&mut status.conditions, now);
    QueueCondition::Queueing.upsert(&mut status.conditions, now);
    status.queue_state = Some(QueueState::Queueing);
    status.state = Some(AppWrapperState::Pending);
    status.first_seen = Some(MicroTime(now));
    status.system_priority = priority;
}

/// Writes the status after all of its objects are gone.
fn write_removed(
    leaving: RemovalOutcome,
    wrapper: &AppWrapper,
    status: &mut AppWrapperStatus,
    priority: f64,
    now: Timestamp,
) {
    status.can_run = false;
    PodCounts::default().write_to(status);
    let why = || {
        let candidate = condition::newest(&wrapper.status, kind::PREEMPT_CANDIDATE);
        candidate.and_then(|it| it.message.clone()).unwrap_or_default()
    };
    let mut end = |state: AppWrapperState, step: QueueState| {
        status.state = Some(state);
        status.queue_state = Some(step);
    };
    match leaving {
        RemovalOutcome::Failed | RemovalOutcome::DeadlineExceeded => {
            end(AppWrapperState::Failed, QueueState::Failed);
        }
        RemovalOutcome::GivenUp => end(AppWrapperState::Deleted, QueueState::Deleted),
        RemovalOutcome::Requeued | RemovalOutcome::Rescheduled => {
            end(AppWrapperState::Pending, QueueState::Backoff);
            QueueCondition::Backoff(BackoffReason::Evicted(why()))
                .upsert(&mut status.conditions, now);
            status.system_priority = priority;
            if leaving == RemovalOutcome::Requeued {
                status.requeuing_time_in_seconds = requeue::next_wait_seconds(wrapper);
                status.number_of_requeuings = status.number_of_requeuings.saturating_add(1);
            }
        }
        RemovalOutcome::Preempted => {
            end(AppWrapperState::Pending, QueueState::Queueing);
            QueueCondition::Queueing.upsert(&mut status.conditions, now);
            status.system_priority = priority;
        }
    }
}

#[cfg(test)]
mod tests;
