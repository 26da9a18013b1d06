//! Derives what happened to an AppWrapper between two statuses, for metrics.

use std::time::Duration;

use gantry_api::queue::AppWrapperStatus;

use crate::app_wrapper::AppWrapper;
use crate::condition::{self, kind, reason};

/// Something that happened to an AppWrapper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueEvent {
    /// It was evaluated and admitted.
    Admitted,
    /// It was evaluated, and does not fit, for this reason.
    BackedOff(String),
    /// It backs off after it was evicted.
    BackedOffAfterEviction,
    /// All its items exist, this long after it was first seen.
    Dispatched(Duration),
    /// It is evicted or preempted, for this reason.
    Evicted(String),
    /// It is pending again because too few of its pods came up.
    Requeued,
}

/// Returns what happened between two successive statuses.
#[must_use]
pub fn between(before: &AppWrapper, after: &AppWrapper) -> Vec<QueueEvent> {
    let (old, new) = (&before.status, &after.status);
    let mut news = Vec::new();
    if new.can_run && !old.can_run {
        news.push(QueueEvent::Admitted);
    }
    if let Some(why) = new_reason(old, new, kind::BACKOFF) {
        news.push(if why == reason::PREEMPTION {
            QueueEvent::BackedOffAfterEviction
        } else {
            QueueEvent::BackedOff(why)
        });
    }
    if new_reason(old, new, kind::DISPATCHED).is_some()
        && let Some(at) = condition::newest_since(new, kind::DISPATCHED)
    {
        let waited = Duration::try_from(at.duration_since(after.first_seen()));
        // The clocks of two processes may disagree.
        news.push(QueueEvent::Dispatched(waited.unwrap_or_default()));
    }
    let taken = [kind::PREEMPT_CANDIDATE, kind::PREEMPTED];
    news.extend(taken.iter().filter_map(|it| new_reason(old, new, it)).map(QueueEvent::Evicted));
    if new.number_of_requeuings > old.number_of_requeuings {
        news.push(QueueEvent::Requeued);
    }
    news
}

/// Returns the reason of the newest condition of a type, where it is new.
fn new_reason(old: &AppWrapperStatus, new: &AppWrapperStatus, kind: &str) -> Option<String> {
    let newest = condition::newest(new, kind)?;
    let is_fresh = condition::since(newest) > condition::newest_since(old, kind);
    // Some reasons end with a dot, as in MCAD.
    let reason = newest.reason.as_deref().unwrap_or_default().trim_end_matches('.');
    is_fresh.then(|| reason.to_owned())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::condition::{BackoffReason, EvictionReason, PreemptionReason};
    use crate::pod_counts::PodCounts;
    use crate::state::{RemovalOutcome, Transition};

    #[test]
    fn every_step_is_reported_once() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let recall = EvictionReason::MinPods { minimum: 2, running: 1, completed: 0 };
        let victim = PreemptionReason::Quota { by: "n/b".to_owned() };
        let parked = |why: &str| QueueEvent::BackedOff(why.to_owned());
        let table = [
            (Transition::Queue, vec![]),
            (
                Transition::BackOff(BackoffReason::Resources, "x".to_owned()),
                vec![parked("AppWrapperNotRunnable")],
            ),
            (
                Transition::BackOff(BackoffReason::Quota, "x".to_owned()),
                vec![parked("quota limit exceeded")],
            ),
            (Transition::Reserve, vec![QueueEvent::Admitted]),
            (Transition::Dispatch, vec![QueueEvent::Dispatched(Duration::from_secs(4))]),
            (Transition::Run, vec![]),
            (Transition::Evict(recall), vec![QueueEvent::Evicted("MinPodsNotRunning".to_owned())]),
            (
                Transition::FinishRemoval(RemovalOutcome::Requeued),
                vec![QueueEvent::BackedOffAfterEviction, QueueEvent::Requeued],
            ),
            (Transition::Reserve, vec![QueueEvent::Admitted]),
            (Transition::Preempt(victim), vec![QueueEvent::Evicted("QuotaReclaimed".to_owned())]),
            (Transition::FinishRemoval(RemovalOutcome::Preempted), vec![]),
            (Transition::Reserve, vec![QueueEvent::Admitted]),
            (
                Transition::DispatchAndComplete,
                vec![QueueEvent::Dispatched(Duration::from_secs(12))],
            ),
        ];
        let mut wrapper: AppWrapper =
            serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "n"}})).unwrap();
        for (second, (change, expected)) in (1..).zip(table) {
            let mut next = wrapper.clone();
            next.status = change.apply(&wrapper, &PodCounts::default(), 0.0, at(second));
            assert_eq!(between(&wrapper, &next), expected, "{change:?}");
            assert_eq!(between(&next, &next), [], "the same again is no news");
            wrapper = next;
        }
    }
}
