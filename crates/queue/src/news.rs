//! What happened to an AppWrapper between two statuses, for those who count it.

use std::time::Duration;

use gantry_api::queue::AppWrapperStatus;

use crate::app_wrapper::AppWrapper;
use crate::condition::{self, kind, reason};

/// Something that happened to an AppWrapper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It was evaluated, and passed.
    Passed,
    /// It was evaluated, and does not fit, for this reason.
    Parked(String),
    /// It pauses after it was taken back.
    Pauses,
    /// All its items are there, so long after it was first seen.
    Dispatched(Duration),
    /// It is taken back, for this reason.
    TakenBack(String),
    /// It waits again because too few of its pods came up.
    Requeued,
}

/// What happened between two statuses, one of which follows the other.
#[must_use]
pub fn between(before: &AppWrapper, after: &AppWrapper) -> Vec<News> {
    let (old, new) = (&before.status, &after.status);
    let mut news = Vec::new();
    if new.can_run && !old.can_run {
        news.push(News::Passed);
    }
    if let Some(why) = fresh(old, new, kind::BACKOFF) {
        news.push(if why == reason::PREEMPTION { News::Pauses } else { News::Parked(why) });
    }
    if fresh(old, new, kind::DISPATCHED).is_some()
        && let Some(at) = condition::newest_since(new, kind::DISPATCHED)
    {
        let waited = Duration::try_from(at.duration_since(after.first_seen()));
        // Clocks of two processes may disagree.
        news.push(News::Dispatched(waited.unwrap_or_default()));
    }
    let taken = [kind::PREEMPT_CANDIDATE, kind::PREEMPTED];
    news.extend(taken.iter().filter_map(|it| fresh(old, new, it)).map(News::TakenBack));
    if new.number_of_requeuings > old.number_of_requeuings {
        news.push(News::Requeued);
    }
    news
}

/// The reason of the newest condition of a type, where it was not there before.
fn fresh(old: &AppWrapperStatus, new: &AppWrapperStatus, kind: &str) -> Option<String> {
    let newest = condition::newest(new, kind)?;
    let is_fresh = condition::since(newest) > condition::newest_since(old, kind);
    // Some of the words have a dot, as their first author wrote them.
    let reason = newest.reason.as_deref().unwrap_or_default().trim_end_matches('.');
    is_fresh.then(|| reason.to_owned())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::condition::{Pause, Preempted, Recall};
    use crate::count::Tally;
    use crate::state::{Leaving, Transition};

    #[test]
    fn every_step_is_told_once() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let recall = Recall::MinPods { minimum: 2, running: 1, completed: 0 };
        let victim = Preempted::Quota { by: "n/b".to_owned() };
        let parked = |why: &str| News::Parked(why.to_owned());
        let table = [
            (Transition::Queue, vec![]),
            (
                Transition::Park(Pause::Resources, "x".to_owned()),
                vec![parked("AppWrapperNotRunnable")],
            ),
            (Transition::Park(Pause::Quota, "x".to_owned()), vec![parked("quota limit exceeded")]),
            (Transition::Reserve, vec![News::Passed]),
            (Transition::Dispatch, vec![News::Dispatched(Duration::from_secs(4))]),
            (Transition::Run, vec![]),
            (Transition::Recall(recall), vec![News::TakenBack("MinPodsNotRunning".to_owned())]),
            (Transition::Settle(Leaving::Requeued), vec![News::Pauses, News::Requeued]),
            (Transition::Reserve, vec![News::Passed]),
            (Transition::Yield(victim), vec![News::TakenBack("QuotaReclaimed".to_owned())]),
            (Transition::Settle(Leaving::Preempted), vec![]),
            (Transition::Reserve, vec![News::Passed]),
            (Transition::Finish, vec![News::Dispatched(Duration::from_secs(12))]),
        ];
        let mut wrapper: AppWrapper =
            serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "n"}})).unwrap();
        for (second, (change, expected)) in (1..).zip(table) {
            let mut next = wrapper.clone();
            next.status = change.apply(&wrapper, &Tally::default(), 0.0, at(second));
            assert_eq!(between(&wrapper, &next), expected, "{change:?}");
            assert_eq!(between(&next, &next), [], "the same again is no news");
            wrapper = next;
        }
    }
}
