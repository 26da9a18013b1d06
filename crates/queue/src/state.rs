//! What an AppWrapper does next, and what that makes of its status.
//!
//! The numbers are those of the table of transitions in `docs/specs/queue.md`. [`next`] decides about
//! one AppWrapper from facts about it alone (T1, T7 to T15, T17, T18); who of many passes (T2 to T6,
//! T16) is decided in [`decide`](crate::decide), for those too that were not seen yet: T1 is then part of
//! what is written.
//!
//! Whatever is taken back is taken back in two steps. First the status says so, and the AppWrapper
//! still holds its reservation; when its items and their pods are gone, the status says what it became.
//! Whoever dies in between leaves behind what the next one needs to know.

use gantry_api::queue::{AppWrapperState, AppWrapperStatus, QueueState};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::app_wrapper::AppWrapper;
use crate::condition::{self, Entry, Pause, Preempted, Recall, kind, reason};
use crate::count::Tally;
use crate::requeue;
use crate::unreachable;

/// What is known of one AppWrapper when it is decided about.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each of which may be so or not")]
pub struct Facts {
    /// Where it stands.
    pub state: Option<AppWrapperState>,
    /// The last notable step.
    pub step: Option<QueueState>,
    /// Whether it holds a reservation.
    pub can_run: bool,
    /// Whether it is to go.
    pub is_going: bool,
    /// Whether it came so lately that who decides about all may still say in one write that it was seen
    /// and what becomes of it.
    pub is_fresh: bool,
    /// What becomes of it, where it is being taken back.
    pub leaving: Option<Leaving>,
    /// How far its items are.
    pub items: Items,
    /// Whether objects of it are there.
    pub has_objects: bool,
    /// Whether some of them have been there for so long that what is known of it is newer.
    pub has_old_objects: bool,
    /// Whether pods of it are there that take something.
    pub has_pods: bool,
    /// Whether every item that says when it is complete is so, and there is one.
    pub is_complete: bool,
    /// Its pods.
    pub running: i64,
    /// Its pods that wait.
    pub pending: i64,
    /// What the clock says about it.
    pub due: Option<Recall>,
    /// Whether its pods are not as the status says.
    pub is_miscounted: bool,
    /// Whether its priority is not what the status says.
    pub is_reprioritised: bool,
    /// Why its author may not have it, where it waits and that is so.
    pub barred: Option<String>,
}

impl Facts {
    /// Whether a pod of it runs, or waits to.
    fn is_busy(&self) -> bool {
        self.running + self.pending > 0
    }
}

/// How far the items of an AppWrapper that passed are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Items {
    /// All are there.
    Present,
    /// Some are not, and are to be made.
    Missing,
    /// Some have not been made for a while. They are tried once more from now on.
    Late,
    /// Some cannot be made. The text says why.
    Impossible(String),
}

/// What is next for an AppWrapper.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing.
    Rest,
    /// Another status.
    Become(Transition),
    /// Its items are made.
    Create,
    /// Its objects are removed.
    Remove,
}

/// A change of the status.
#[derive(Clone, Debug, PartialEq)]
pub enum Transition {
    /// T1: it was seen, and waits.
    Queue,
    /// T2 and T4: it is the head of the line, and holds it.
    Lead,
    /// T3: it passes. This is durable before anything is made.
    Reserve,
    /// T5: it pauses.
    Park(Pause, String),
    /// T7: all of it is there. Where it has no pods, its time begins.
    Dispatch,
    /// Its items are tried once more.
    Retry,
    /// T8: it cannot be made.
    Fail(String),
    /// T8 of one that has not passed: its author may not create what it wraps. Nothing of it was made.
    Bar(String),
    /// T9: a pod of it runs.
    Run,
    /// T10: its items are complete, and pods still run.
    HoldCompletion,
    /// T11: it has finished.
    Complete,
    /// T7 and T11: all of it is there, and has finished before that was written.
    Finish,
    /// T12 to T15: it is taken back for its own sake.
    Recall(Recall),
    /// T16: it is taken back for another one.
    Yield(Preempted),
    /// T8 and T12 to T16, their end: everything of it is gone.
    Settle(Leaving),
    /// Its pods were counted.
    Count,
    /// T18: its priority was changed.
    Reprioritise,
}

/// What becomes of an AppWrapper when everything of it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// T8: it has failed.
    Failed,
    /// T12: it waits again, longer than before.
    Requeued,
    /// T13: it was requeued often enough.
    GivenUp,
    /// T14: it waits again.
    Rescheduled,
    /// T15: it ran for too long.
    Overrun,
    /// T16: it waits again, at once.
    Preempted,
}

/// Decides what is next.
#[must_use]
pub fn next(facts: &Facts) -> Next {
    use AppWrapperState as S;
    if facts.is_going {
        // T17: what belongs to it goes with it.
        return Next::Rest;
    }
    if let Some(leaving) = facts.leaving {
        return leave(facts, leaving);
    }
    if let Some(why) = &facts.barred {
        return Next::Become(Transition::Bar(why.clone()));
    }
    match &facts.state {
        None if facts.is_fresh => Next::Rest,
        None => Next::Become(Transition::Queue),
        Some(S::Pending) if facts.can_run => arrive(facts),
        Some(S::Running) if facts.can_run => run(facts),
        // It came late, or is left from before.
        Some(S::Pending | S::Failed | S::Deleted) if facts.has_old_objects => Next::Remove,
        Some(S::Pending) if facts.is_reprioritised => Next::Become(Transition::Reprioritise),
        Some(S::RunningHoldCompletion) if !facts.is_busy() => Next::Become(Transition::Complete),
        Some(S::RunningHoldCompletion) if facts.is_miscounted => Next::Become(Transition::Count),
        Some(
            S::Pending
            | S::Running
            | S::RunningHoldCompletion
            | S::Completed
            | S::Failed
            | S::Deleted
            | S::Other(_),
        ) => Next::Rest,
    }
}

fn leave(facts: &Facts, leaving: Leaving) -> Next {
    match (facts.has_objects, facts.has_pods) {
        (true, _) => Next::Remove,
        (false, true) => Next::Rest,
        (false, false) => Next::Become(Transition::Settle(leaving)),
    }
}

fn arrive(facts: &Facts) -> Next {
    match &facts.items {
        Items::Present if facts.is_complete && !facts.is_busy() => Next::Become(Transition::Finish),
        Items::Present => Next::Become(Transition::Dispatch),
        Items::Missing => Next::Create,
        Items::Late => Next::Become(Transition::Retry),
        Items::Impossible(why) => Next::Become(Transition::Fail(why.clone())),
    }
}

fn run(facts: &Facts) -> Next {
    if facts.is_complete {
        let change = match facts.is_busy() {
            true => Transition::HoldCompletion,
            false => Transition::Complete,
        };
        return Next::Become(change);
    }
    if let Some(recall) = facts.due {
        return Next::Become(Transition::Recall(recall));
    }
    if facts.running > 0 && facts.step != Some(QueueState::Running) {
        return Next::Become(Transition::Run);
    }
    if facts.is_miscounted { Next::Become(Transition::Count) } else { Next::Rest }
}

/// What becomes of an AppWrapper that is taken back, by what its status says.
#[must_use]
pub fn leaving(wrapper: &AppWrapper) -> Option<Leaving> {
    use QueueState as Q;
    let status = &wrapper.status;
    match status.queue_state.as_ref().filter(|_| status.can_run)? {
        Q::Failed => Some(Leaving::Failed),
        Q::Preempted => Some(Leaving::Preempted),
        Q::PreemptCandidate => {
            let candidate = condition::newest(status, kind::PREEMPT_CANDIDATE)?;
            Some(match candidate.reason.as_deref() {
                Some(reason::DEADLINE) => Leaving::Overrun,
                Some(reason::UNSCHEDULABLE | reason::UNREACHABLE) => Leaving::Rescheduled,
                _ if requeue::is_spent(wrapper) => Leaving::GivenUp,
                _ => Leaving::Requeued,
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
    /// The status after it. Who was not seen yet is seen with it: T1 is part of the same write.
    #[must_use]
    pub fn apply(
        &self,
        wrapper: &AppWrapper,
        tally: &Tally,
        priority: f64,
        now: Timestamp,
    ) -> AppWrapperStatus {
        if *self == Self::Finish {
            let status = Self::Dispatch.apply(wrapper, tally, priority, now);
            let dispatched = AppWrapper { status, ..wrapper.clone() };
            return Self::Complete.apply(&dispatched, tally, priority, now);
        }
        let now = condition::micro(now);
        let mut status = wrapper.status.clone();
        status.filter_ignore = true;
        status.sender = Some(format!("before {}", self.word()));
        if status.state.is_none() {
            enter(&mut status, priority, now);
        }
        let mut put = |entry: Entry, step: QueueState| {
            entry.put(&mut status.conditions, now);
            status.queue_state = Some(step);
        };
        match self {
            // All there is to it was done above.
            Self::Queue | Self::Finish => {}
            Self::Lead => {
                put(Entry::HeadOfLine, QueueState::HeadOfLine);
                status.system_priority = priority;
            }
            Self::Reserve => {
                put(Entry::HeadOfLine, QueueState::HeadOfLine);
                (status.can_run, status.message) = (true, None);
                status.system_priority = priority;
            }
            Self::Park(pause, message) => {
                put(Entry::HeadOfLine, QueueState::HeadOfLine);
                put(Entry::Backoff(pause.clone()), QueueState::Backoff);
                status.message = Some(message.clone());
                status.system_priority = priority;
            }
            Self::Dispatch => {
                put(Entry::Dispatched, QueueState::Dispatched);
                status.state = Some(AppWrapperState::Running);
                status.pending_pods.clear();
                status.message = None;
                let demand = wrapper.demand();
                if demand.compat.is_nothing() && demand.full.is_nothing() {
                    status.first_dispatched.get_or_insert(MicroTime(now));
                }
            }
            Self::Retry => condition::refresh(&mut status, now),
            Self::Fail(why) => {
                put(Entry::Failed(why.clone()), QueueState::Failed);
                status.message = Some(why.clone());
            }
            Self::Bar(why) => {
                put(Entry::Failed(why.clone()), QueueState::Failed);
                status.state = Some(AppWrapperState::Failed);
                status.message = Some(why.clone());
            }
            Self::Run => {
                put(Entry::Running, QueueState::Running);
                status.first_dispatched.get_or_insert(MicroTime(now));
                tally.write(&mut status);
                status.message = tally.remark();
            }
            Self::HoldCompletion => {
                put(Entry::RunningHoldCompletion, QueueState::RunningHoldCompletion);
                status.state = Some(AppWrapperState::RunningHoldCompletion);
                tally.write(&mut status);
                status.message = tally.remark();
            }
            Self::Complete => {
                put(Entry::Completed, QueueState::Completed);
                status.state = Some(AppWrapperState::Completed);
                (status.can_run, status.message) = (false, None);
                tally.write(&mut status);
            }
            Self::Recall(recall) => {
                put(Entry::PreemptCandidate(*recall), QueueState::PreemptCandidate);
                status.message = Some(match unreachable::describe(&tally.unreachable) {
                    Some(nodes) => format!("{} {nodes}.", recall.message()),
                    None => recall.message(),
                });
                tally.write(&mut status);
            }
            Self::Yield(by) => {
                let entry = Entry::Preempted(by.clone());
                let message = entry.message().map(std::borrow::Cow::into_owned);
                put(entry, QueueState::Preempted);
                status.message = message;
            }
            Self::Settle(leaving) => settle(*leaving, wrapper, &mut status, priority, now),
            Self::Count => {
                tally.write(&mut status);
                status.message = tally.remark();
                condition::refresh(&mut status, now);
            }
            Self::Reprioritise => status.system_priority = priority,
        }
        status
    }

    /// Whether it only tells people something: nobody goes on because of it.
    #[must_use]
    pub fn can_wait(&self) -> bool {
        match self {
            Self::Queue | Self::Park(..) | Self::Count | Self::Reprioritise => true,
            Self::Lead
            | Self::Reserve
            | Self::Dispatch
            | Self::Retry
            | Self::Fail(_)
            | Self::Bar(_)
            | Self::Run
            | Self::HoldCompletion
            | Self::Complete
            | Self::Finish
            | Self::Recall(_)
            | Self::Yield(_)
            | Self::Settle(_) => false,
        }
    }

    /// What happens, in one word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Queue => "Queueing",
            Self::Lead => "HeadOfLine",
            Self::Reserve => "Dispatching",
            Self::Park(..) => "Backoff",
            Self::Dispatch => "Dispatched",
            Self::Retry => "Retrying",
            Self::Fail(_) | Self::Bar(_) => "ItemCreationFailure",
            Self::Run => "Running",
            Self::HoldCompletion => "RunningHoldCompletion",
            Self::Complete | Self::Finish => "Completed",
            Self::Recall(_) => "PreemptCandidate",
            Self::Yield(_) => "Preempted",
            Self::Settle(Leaving::Failed | Leaving::Overrun) => "Failed",
            Self::Settle(Leaving::GivenUp) => "Deleted",
            Self::Settle(Leaving::Requeued | Leaving::Rescheduled | Leaving::Preempted) => {
                "Requeued"
            }
            Self::Count => "Counting",
            Self::Reprioritise => "Reprioritised",
        }
    }
}

/// T1: it was seen, and waits.
fn enter(status: &mut AppWrapperStatus, priority: f64, now: Timestamp) {
    Entry::Init.put(&mut status.conditions, now);
    Entry::Queueing.put(&mut status.conditions, now);
    status.queue_state = Some(QueueState::Queueing);
    status.state = Some(AppWrapperState::Pending);
    status.first_seen = Some(MicroTime(now));
    status.system_priority = priority;
}

/// Everything of it is gone.
fn settle(
    leaving: Leaving,
    wrapper: &AppWrapper,
    status: &mut AppWrapperStatus,
    priority: f64,
    now: Timestamp,
) {
    status.can_run = false;
    Tally::default().write(status);
    let why = || {
        let candidate = condition::newest(&wrapper.status, kind::PREEMPT_CANDIDATE);
        candidate.and_then(|it| it.message.clone()).unwrap_or_default()
    };
    let mut end = |state: AppWrapperState, step: QueueState| {
        status.state = Some(state);
        status.queue_state = Some(step);
    };
    match leaving {
        Leaving::Failed | Leaving::Overrun => end(AppWrapperState::Failed, QueueState::Failed),
        Leaving::GivenUp => end(AppWrapperState::Deleted, QueueState::Deleted),
        Leaving::Requeued | Leaving::Rescheduled => {
            end(AppWrapperState::Pending, QueueState::Backoff);
            Entry::Backoff(Pause::Recalled(why())).put(&mut status.conditions, now);
            status.system_priority = priority;
            if leaving == Leaving::Requeued {
                status.requeuing_time_in_seconds = requeue::grown(wrapper);
                status.number_of_requeuings = status.number_of_requeuings.saturating_add(1);
            }
        }
        Leaving::Preempted => {
            end(AppWrapperState::Pending, QueueState::Queueing);
            Entry::Queueing.put(&mut status.conditions, now);
            status.system_priority = priority;
        }
    }
}

#[cfg(test)]
mod tests;
