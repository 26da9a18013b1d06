//! The conditions of AppWrappers: their texts, and how the list is maintained.
//!
//! The texts are part of the API, because clients compare them; the trailing dots are intended.

use std::borrow::Cow;

use gantry_api::queue::{AppWrapperCondition, AppWrapperStatus};
use gantry_reconcile::Key;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// The maximum number of entries in the list.
pub const MAX_CONDITIONS: usize = 32;

/// A condition of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueCondition {
    /// It was observed for the first time.
    Init,
    /// It waits in the queue.
    Queueing,
    /// It is being evaluated.
    HeadOfLine,
    /// It waits to be tried again after a backoff.
    Backoff(BackoffReason),
    /// Its items exist.
    Dispatched,
    /// At least one of its pods runs.
    Running,
    /// It is being evicted.
    PreemptCandidate(EvictionReason),
    /// It is preempted for another AppWrapper.
    Preempted(PreemptionReason),
    /// Its items are complete, and pods still run.
    RunningHoldCompletion,
    /// It has finished.
    Completed,
    /// Its items could not be created. The text says which, and why.
    Failed(String),
}

/// Why an AppWrapper backs off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackoffReason {
    /// There is too little free capacity.
    Resources,
    /// There is too little quota.
    Quota,
    /// Quota trees are enabled and cannot be evaluated.
    QuotaUnknown,
    /// It may not be charged to the leaf it names.
    Leaf,
    /// Its author was not recorded.
    Author,
    /// It was evicted; the text is that of the reason.
    Evicted(String),
}

/// Why an AppWrapper is evicted because of its own pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionReason {
    /// Too few of its pods run.
    MinPods {
        /// How many pods should run.
        minimum: i64,
        /// How many pods run.
        running: i64,
        /// How many pods have succeeded.
        completed: i64,
    },
    /// No node accepts its pods.
    Unschedulable {
        /// How many pods are unschedulable.
        failed: usize,
        /// How many pods run.
        running: i64,
    },
    /// All of its pods are on nodes that are not ready or deleted.
    Unreachable {
        /// How many pods are unreachable.
        pods: usize,
    },
    /// It ran for longer than its deadline.
    Deadline {
        /// How many seconds it may run.
        limit: i64,
    },
}

/// Why an AppWrapper is preempted for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreemptionReason {
    /// The other AppWrapper claims quota that it owns.
    Quota {
        /// The other AppWrapper.
        by: String,
    },
    /// The other AppWrapper has a higher priority.
    Priority {
        /// The other AppWrapper.
        by: String,
    },
}

/// Condition types.
pub(crate) mod kind {
    pub(crate) const HEAD_OF_LINE: &str = "HeadOfLine";
    pub(crate) const BACKOFF: &str = "Backoff";
    pub(crate) const DISPATCHED: &str = "Dispatched";
    pub(crate) const PREEMPT_CANDIDATE: &str = "PreemptCandidate";
    pub(crate) const PREEMPTED: &str = "Preempted";
}

/// Condition reasons that decisions depend on.
pub(crate) mod reason {
    pub(crate) const PREEMPTION: &str = "PreemptionTriggered";
    pub(crate) const LEAF: &str = "QuotaLeafForbidden";
    pub(crate) const MIN_PODS: &str = "MinPodsNotRunning";
    pub(crate) const UNSCHEDULABLE: &str = "PodsFailedScheduling";
    pub(crate) const UNREACHABLE: &str = "PodsUnreachable";
    pub(crate) const DEADLINE: &str = "DispatchDeadlineExceeded";
}

impl QueueCondition {
    /// Returns the condition type.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Init => "Init",
            Self::Queueing => "Queueing",
            Self::HeadOfLine => kind::HEAD_OF_LINE,
            Self::Backoff(_) => kind::BACKOFF,
            Self::Dispatched => kind::DISPATCHED,
            Self::Running => "Running",
            Self::PreemptCandidate(_) => kind::PREEMPT_CANDIDATE,
            Self::Preempted(_) => kind::PREEMPTED,
            Self::RunningHoldCompletion => "RunningHoldCompletion",
            Self::Completed => "Completed",
            Self::Failed(_) => "Failed",
        }
    }

    /// Returns the reason, for programs.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        Some(match self {
            Self::Init => return None,
            Self::Queueing => "AwaitingHeadOfLine",
            Self::HeadOfLine => "FrontOfQueue.",
            Self::Backoff(BackoffReason::Resources | BackoffReason::QuotaUnknown) => {
                "AppWrapperNotRunnable."
            }
            Self::Backoff(BackoffReason::Quota) => "quota limit exceeded",
            Self::Backoff(BackoffReason::Leaf) => reason::LEAF,
            Self::Backoff(BackoffReason::Author) => "AuthorNotRecorded",
            Self::Backoff(BackoffReason::Evicted(_)) => reason::PREEMPTION,
            Self::Dispatched => "AppWrapperRunnable",
            Self::Running => "PodsRunning",
            Self::PreemptCandidate(EvictionReason::MinPods { .. }) => reason::MIN_PODS,
            Self::PreemptCandidate(EvictionReason::Unschedulable { .. }) => reason::UNSCHEDULABLE,
            Self::PreemptCandidate(EvictionReason::Unreachable { .. }) => reason::UNREACHABLE,
            Self::PreemptCandidate(EvictionReason::Deadline { .. }) => reason::DEADLINE,
            Self::Preempted(PreemptionReason::Quota { .. }) => "QuotaReclaimed",
            Self::Preempted(PreemptionReason::Priority { .. }) => "PriorityPreempted",
            Self::RunningHoldCompletion => "SomeItemsCompleted",
            Self::Completed => "PodsCompleted",
            Self::Failed(_) => "ItemCreationFailure.",
        })
    }

    /// Returns the message, for people.
    #[must_use]
    pub fn message(&self) -> Option<Cow<'_, str>> {
        let text: &str = match self {
            Self::Init
            | Self::Queueing
            | Self::HeadOfLine
            | Self::Dispatched
            | Self::Running
            | Self::RunningHoldCompletion
            | Self::Completed => return None,
            Self::Backoff(BackoffReason::Resources) => {
                "Insufficient resources to dispatch AppWrapper."
            }
            Self::Backoff(BackoffReason::Quota) => {
                "Insufficient quota and/or resources to dispatch AppWrapper."
            }
            Self::Backoff(BackoffReason::QuotaUnknown) => {
                "Quota evaluation is enabled but not initialized. Insufficient quota to dispatch \
                 AppWrapper."
            }
            Self::Backoff(BackoffReason::Leaf) => {
                "The AppWrapper may not use the quota leaf that it names."
            }
            Self::Backoff(BackoffReason::Author) => "The author of the AppWrapper is not recorded.",
            Self::Backoff(BackoffReason::Evicted(text)) | Self::Failed(text) => text,
            Self::PreemptCandidate(recall) => return Some(Cow::Owned(recall.message())),
            Self::Preempted(PreemptionReason::Quota { by }) => {
                return Some(Cow::Owned(format!(
                    "{}{by}{}",
                    RECLAIMED_MESSAGE.0, RECLAIMED_MESSAGE.1
                )));
            }
            Self::Preempted(PreemptionReason::Priority { by }) => {
                return Some(Cow::Owned(format!("{}{by}{}", EVICTED_MESSAGE.0, EVICTED_MESSAGE.1)));
            }
        };
        Some(Cow::Borrowed(text))
    }

    /// Inserts the entry into a list: it replaces one with the same type and reason, else it is
    /// appended.
    pub fn upsert(&self, list: &mut Vec<AppWrapperCondition>, now: Timestamp) {
        let now = Some(MicroTime(now));
        let entry = AppWrapperCondition {
            kind: self.kind().to_owned(),
            status: "True".to_owned(),
            last_update_micro_time: now.clone(),
            last_transition_micro_time: now,
            reason: self.reason().map(str::to_owned),
            message: self.message().map(Cow::into_owned),
        };
        let same = |it: &&mut AppWrapperCondition| {
            it.kind == entry.kind && it.reason.as_deref() == entry.reason.as_deref()
        };
        match list.iter_mut().find(same) {
            Some(old) => *old = entry,
            None => list.push(entry),
        }
        while list.len() > MAX_CONDITIONS {
            // The first of the oldest entries; the entry that was just written is not among them.
            let old = list.iter().enumerate().filter(|(_, it)| it.kind != "Init");
            let oldest = old.min_by_key(|(_, it)| since(it)).map_or(0, |(at, _)| at);
            list.remove(oldest);
        }
    }
}

impl EvictionReason {
    /// Returns the condition message.
    #[must_use]
    pub fn message(self) -> String {
        match self {
            Self::MinPods { minimum, running, completed } => format!(
                "Insufficient number of Running and Completed pods, minimum={minimum}, \
                 running={running}, completed={completed}."
            ),
            Self::Unschedulable { failed, running } => {
                format!("Pods failed scheduling failed={failed}, running={running}.")
            }
            Self::Unreachable { pods } => {
                format!("No pod can run, pods on nodes that are not ready or gone={pods}.")
            }
            Self::Deadline { limit } => {
                format!("Dispatch deadline exceeded. allowed to run for {limit} seconds")
            }
        }
    }
}

/// Returns since when an entry holds.
#[must_use]
pub fn since(entry: &AppWrapperCondition) -> Option<Timestamp> {
    entry.last_transition_micro_time.as_ref().map(|it| it.0)
}

/// Returns the newest entry of a type.
#[must_use]
pub fn newest<'a>(status: &'a AppWrapperStatus, kind: &str) -> Option<&'a AppWrapperCondition> {
    let of_kind = status.conditions.iter().filter(|it| it.kind == kind);
    of_kind.max_by_key(|it| since(it))
}

/// Returns when the newest entry of a type was added.
#[must_use]
pub fn newest_since(status: &AppWrapperStatus, kind: &str) -> Option<Timestamp> {
    newest(status, kind).and_then(since)
}

/// The message when quota is reclaimed, before and after the name of the preemptor.
const RECLAIMED_MESSAGE: (&str, &str) = ("Quota was reclaimed by AppWrapper ", ".");
/// The message of an AppWrapper that is preempted for a higher priority.
const EVICTED_MESSAGE: (&str, &str) =
    ("Preempted by AppWrapper ", ", which has a higher priority.");

/// Returns the AppWrapper that is named between two pieces of text.
fn parse_preemptor(entry: &AppWrapperCondition, (before, after): (&str, &str)) -> Option<Key> {
    let by = entry.message.as_deref()?.strip_prefix(before)?.strip_suffix(after)?;
    let (namespace, name) = by.split_once('/')?;
    Some(Key::new(namespace, name))
}

/// Returns the preemptor and the time of the last preemption, regardless of later conditions.
#[must_use]
pub fn last_preemption(status: &AppWrapperStatus) -> Option<(Key, Timestamp)> {
    let entry = newest(status, kind::PREEMPTED)?;
    let by = parse_preemptor(entry, RECLAIMED_MESSAGE)
        .or_else(|| parse_preemptor(entry, EVICTED_MESSAGE))?;
    Some((by, since(entry)?))
}

/// Returns which AppWrapper reclaimed quota, and when, until this one is evaluated again.
#[must_use]
pub fn last_quota_reclaim(status: &AppWrapperStatus) -> Option<(Key, Timestamp)> {
    let entry = newest(status, kind::PREEMPTED)?;
    let looked_at = newest_since(status, kind::HEAD_OF_LINE);
    let by = parse_preemptor(entry, RECLAIMED_MESSAGE)?;
    since(entry).filter(|it| Some(*it) > looked_at).map(|since| (by, since))
}

/// Records that the newest entry still holds: it was checked now.
pub fn refresh(status: &mut AppWrapperStatus, now: Timestamp) {
    if let Some(entry) = status.conditions.iter_mut().max_by_key(|it| since(it)) {
        entry.last_update_micro_time = Some(MicroTime(now));
    }
}

/// Returns when the status was last written, as far as conditions show.
#[must_use]
pub fn last_written(status: &AppWrapperStatus) -> Option<Timestamp> {
    let updates = status.conditions.iter().filter_map(|it| it.last_update_micro_time.as_ref());
    updates.map(|it| it.0).max()
}

/// Truncates a time to the precision of statuses, which is a microsecond.
#[must_use]
pub fn truncate_to_micros(now: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn words(list: &[AppWrapperCondition]) -> Vec<String> {
        let word = |it: &AppWrapperCondition| {
            format!("{} {} {}", it.kind, it.reason.as_deref().unwrap_or("-"), since(it).unwrap())
        };
        list.iter().map(word).collect()
    }

    #[test]
    fn conditions_have_the_words_of_the_api() {
        let table = [
            (QueueCondition::Init, "Init", None, None),
            (QueueCondition::Queueing, "Queueing", Some("AwaitingHeadOfLine"), None),
            (QueueCondition::HeadOfLine, "HeadOfLine", Some("FrontOfQueue."), None),
            (
                QueueCondition::Backoff(BackoffReason::Resources),
                "Backoff",
                Some("AppWrapperNotRunnable."),
                Some("Insufficient resources to dispatch AppWrapper."),
            ),
            (
                QueueCondition::Backoff(BackoffReason::Quota),
                "Backoff",
                Some("quota limit exceeded"),
                Some("Insufficient quota and/or resources to dispatch AppWrapper."),
            ),
            (
                QueueCondition::Backoff(BackoffReason::QuotaUnknown),
                "Backoff",
                Some("AppWrapperNotRunnable."),
                Some(
                    "Quota evaluation is enabled but not initialized. Insufficient quota to dispatch AppWrapper.",
                ),
            ),
            (
                QueueCondition::Backoff(BackoffReason::Author),
                "Backoff",
                Some("AuthorNotRecorded"),
                Some("The author of the AppWrapper is not recorded."),
            ),
            (
                QueueCondition::Backoff(BackoffReason::Evicted("why".to_owned())),
                "Backoff",
                Some("PreemptionTriggered"),
                Some("why"),
            ),
            (QueueCondition::Dispatched, "Dispatched", Some("AppWrapperRunnable"), None),
            (QueueCondition::Running, "Running", Some("PodsRunning"), None),
            (
                QueueCondition::PreemptCandidate(EvictionReason::MinPods {
                    minimum: 3,
                    running: 1,
                    completed: 0,
                }),
                "PreemptCandidate",
                Some("MinPodsNotRunning"),
                Some(
                    "Insufficient number of Running and Completed pods, minimum=3, running=1, completed=0.",
                ),
            ),
            (
                QueueCondition::PreemptCandidate(EvictionReason::Unschedulable {
                    failed: 2,
                    running: 0,
                }),
                "PreemptCandidate",
                Some("PodsFailedScheduling"),
                Some("Pods failed scheduling failed=2, running=0."),
            ),
            (
                QueueCondition::PreemptCandidate(EvictionReason::Deadline { limit: 10 }),
                "PreemptCandidate",
                Some("DispatchDeadlineExceeded"),
                Some("Dispatch deadline exceeded. allowed to run for 10 seconds"),
            ),
            (
                QueueCondition::Preempted(PreemptionReason::Quota { by: "n/a".to_owned() }),
                "Preempted",
                Some("QuotaReclaimed"),
                Some("Quota was reclaimed by AppWrapper n/a."),
            ),
            (
                QueueCondition::RunningHoldCompletion,
                "RunningHoldCompletion",
                Some("SomeItemsCompleted"),
                None,
            ),
            (QueueCondition::Completed, "Completed", Some("PodsCompleted"), None),
            (
                QueueCondition::Failed("n/a creation failure: no".to_owned()),
                "Failed",
                Some("ItemCreationFailure."),
                Some("n/a creation failure: no"),
            ),
        ];
        for (entry, kind, reason, message) in table {
            let mut list = Vec::new();
            entry.upsert(&mut list, at(1));
            let it = &list[0];
            assert_eq!((it.kind.as_str(), it.status.as_str()), (kind, "True"));
            assert_eq!((it.reason.as_deref(), it.message.as_deref()), (reason, message), "{kind}");
        }
    }

    /// Scenario C3: an entry of the same type and reason is replaced, any other is appended.
    #[test]
    fn c_3_the_same_entry_is_replaced_and_another_one_appended() {
        let mut list = Vec::new();
        let recalled =
            |text: &str| QueueCondition::Backoff(BackoffReason::Evicted(text.to_owned()));
        let steps = [
            QueueCondition::Init,
            QueueCondition::Queueing,
            QueueCondition::HeadOfLine,
            QueueCondition::Backoff(BackoffReason::Resources),
            recalled("one"),
            QueueCondition::HeadOfLine,
            QueueCondition::Backoff(BackoffReason::Resources),
            recalled("two"),
        ];
        for (second, entry) in (0..).zip(steps) {
            entry.upsert(&mut list, at(second));
        }
        assert_eq!(
            words(&list),
            [
                "Init - 1970-01-01T00:00:00Z",
                "Queueing AwaitingHeadOfLine 1970-01-01T00:00:01Z",
                "HeadOfLine FrontOfQueue. 1970-01-01T00:00:05Z",
                "Backoff AppWrapperNotRunnable. 1970-01-01T00:00:06Z",
                "Backoff PreemptionTriggered 1970-01-01T00:00:07Z",
            ],
            "times are fresh, places are kept"
        );
        assert_eq!(list[4].message.as_deref(), Some("two"));
    }

    #[test]
    fn the_list_is_bounded_and_init_stays() {
        let mut list = Vec::new();
        QueueCondition::Init.upsert(&mut list, at(0));
        for second in 1..40 {
            // Condition types of other releases.
            let kind = format!("Strange{second}");
            let time = Some(MicroTime(at(second)));
            list.push(AppWrapperCondition {
                kind,
                last_transition_micro_time: time,
                ..AppWrapperCondition::default()
            });
        }
        QueueCondition::Queueing.upsert(&mut list, at(50));
        assert_eq!(list.len(), MAX_CONDITIONS);
        assert_eq!((list[0].kind.as_str(), list[1].kind.as_str()), ("Init", "Strange10"));
        assert_eq!(list[31].kind, "Queueing");
    }

    #[test]
    fn an_unchanged_condition_keeps_its_transition_time() {
        let mut status = AppWrapperStatus::default();
        QueueCondition::Running.upsert(&mut status.conditions, at(5));
        refresh(&mut status, at(9));
        assert_eq!(newest_since(&status, "Running"), Some(at(5)));
        assert_eq!(last_written(&status), Some(at(9)));
    }
}
