//! The conditions of AppWrappers: their words, and how the list is kept.
//!
//! The words are part of the API, because clients compare them; the trailing dots are real.

use std::borrow::Cow;

use gantry_api::queue::{AppWrapperCondition, AppWrapperStatus};
use gantry_reconcile::Key;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// Entries of a list at most.
pub const MOST: usize = 32;

/// One entry of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It was seen.
    Init,
    /// It waits in the queue.
    Queueing,
    /// It is being evaluated.
    HeadOfLine,
    /// It waits to be tried again.
    Backoff(Pause),
    /// Its items are there.
    Dispatched,
    /// Pods of it run.
    Running,
    /// It is taken back.
    PreemptCandidate(Recall),
    /// It is taken back to make room for another one.
    Preempted(Preempted),
    /// Its items are complete, and pods still run.
    RunningHoldCompletion,
    /// It has finished.
    Completed,
    /// Its items could not be created. The text says which, and why.
    Failed(String),
}

/// Why an AppWrapper pauses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pause {
    /// There is no room.
    Resources,
    /// There is no quota.
    Quota,
    /// Quota trees are to be evaluated and cannot be.
    QuotaUnknown,
    /// It may not be charged to the leaf it names.
    Leaf,
    /// Nobody recorded who made it.
    Author,
    /// It was taken back; the text is that of the reason.
    Recalled(String),
}

/// Why an AppWrapper is taken back from its own pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recall {
    /// Too few of its pods run.
    MinPods {
        /// How many should.
        minimum: i64,
        /// How many do.
        running: i64,
        /// How many have succeeded.
        completed: i64,
    },
    /// No node takes its pods.
    Unschedulable {
        /// How many pods.
        failed: usize,
        /// How many run.
        running: i64,
    },
    /// All of its pods are on nodes that are not ready or gone.
    Unreachable {
        /// How many pods.
        pods: usize,
    },
    /// It ran for longer than it may.
    Deadline {
        /// How many seconds it may run.
        limit: i64,
    },
}

/// Why an AppWrapper is taken back for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preempted {
    /// The other one claims quota that is its own.
    Quota {
        /// The other one.
        by: String,
    },
    /// The other one is more important.
    Priority {
        /// The other one.
        by: String,
    },
}

/// Types of conditions.
pub(crate) mod kind {
    pub(crate) const HEAD_OF_LINE: &str = "HeadOfLine";
    pub(crate) const BACKOFF: &str = "Backoff";
    pub(crate) const DISPATCHED: &str = "Dispatched";
    pub(crate) const PREEMPT_CANDIDATE: &str = "PreemptCandidate";
    pub(crate) const PREEMPTED: &str = "Preempted";
}

/// Reasons that decisions are made by.
pub(crate) mod reason {
    pub(crate) const PREEMPTION: &str = "PreemptionTriggered";
    pub(crate) const LEAF: &str = "QuotaLeafForbidden";
    pub(crate) const MIN_PODS: &str = "MinPodsNotRunning";
    pub(crate) const UNSCHEDULABLE: &str = "PodsFailedScheduling";
    pub(crate) const UNREACHABLE: &str = "PodsUnreachable";
    pub(crate) const DEADLINE: &str = "DispatchDeadlineExceeded";
}

impl Entry {
    /// The type.
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

    /// The reason, for programs.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        Some(match self {
            Self::Init => return None,
            Self::Queueing => "AwaitingHeadOfLine",
            Self::HeadOfLine => "FrontOfQueue.",
            Self::Backoff(Pause::Resources | Pause::QuotaUnknown) => "AppWrapperNotRunnable.",
            Self::Backoff(Pause::Quota) => "quota limit exceeded",
            Self::Backoff(Pause::Leaf) => reason::LEAF,
            Self::Backoff(Pause::Author) => "AuthorNotRecorded",
            Self::Backoff(Pause::Recalled(_)) => reason::PREEMPTION,
            Self::Dispatched => "AppWrapperRunnable",
            Self::Running => "PodsRunning",
            Self::PreemptCandidate(Recall::MinPods { .. }) => reason::MIN_PODS,
            Self::PreemptCandidate(Recall::Unschedulable { .. }) => reason::UNSCHEDULABLE,
            Self::PreemptCandidate(Recall::Unreachable { .. }) => reason::UNREACHABLE,
            Self::PreemptCandidate(Recall::Deadline { .. }) => reason::DEADLINE,
            Self::Preempted(Preempted::Quota { .. }) => "QuotaReclaimed",
            Self::Preempted(Preempted::Priority { .. }) => "PriorityPreempted",
            Self::RunningHoldCompletion => "SomeItemsCompleted",
            Self::Completed => "PodsCompleted",
            Self::Failed(_) => "ItemCreationFailure.",
        })
    }

    /// The message, for people.
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
            Self::Backoff(Pause::Resources) => "Insufficient resources to dispatch AppWrapper.",
            Self::Backoff(Pause::Quota) => {
                "Insufficient quota and/or resources to dispatch AppWrapper."
            }
            Self::Backoff(Pause::QuotaUnknown) => {
                "Quota evaluation is enabled but not initialized. Insufficient quota to dispatch AppWrapper."
            }
            Self::Backoff(Pause::Leaf) => {
                "The AppWrapper may not use the quota leaf that it names."
            }
            Self::Backoff(Pause::Author) => "The author of the AppWrapper is not recorded.",
            Self::Backoff(Pause::Recalled(text)) | Self::Failed(text) => text,
            Self::PreemptCandidate(recall) => return Some(Cow::Owned(recall.message())),
            Self::Preempted(Preempted::Quota { by }) => {
                return Some(Cow::Owned(format!("{}{by}{}", RECLAIMED.0, RECLAIMED.1)));
            }
            Self::Preempted(Preempted::Priority { by }) => {
                return Some(Cow::Owned(format!("{}{by}{}", EVICTED.0, EVICTED.1)));
            }
        };
        Some(Cow::Borrowed(text))
    }

    /// Puts the entry in a list: in the place of one with the same type and reason, else at the end.
    pub fn put(&self, list: &mut Vec<AppWrapperCondition>, now: Timestamp) {
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
        while list.len() > MOST {
            // The first of those that are oldest; what was just written is not among them.
            let old = list.iter().enumerate().filter(|(_, it)| it.kind != "Init");
            let oldest = old.min_by_key(|(_, it)| since(it)).map_or(0, |(at, _)| at);
            list.remove(oldest);
        }
    }
}

impl Recall {
    /// What is said about it.
    #[must_use]
    pub fn message(self) -> String {
        match self {
            Self::MinPods { minimum, running, completed } => format!(
                "Insufficient number of Running and Completed pods, minimum={minimum}, running={running}, completed={completed}."
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

/// Since when an entry is so.
#[must_use]
pub fn since(entry: &AppWrapperCondition) -> Option<Timestamp> {
    entry.last_transition_micro_time.as_ref().map(|it| it.0)
}

/// The newest entry of a type.
#[must_use]
pub fn newest<'a>(status: &'a AppWrapperStatus, kind: &str) -> Option<&'a AppWrapperCondition> {
    let of_kind = status.conditions.iter().filter(|it| it.kind == kind);
    of_kind.max_by_key(|it| since(it))
}

/// When the newest entry of a type came to be.
#[must_use]
pub fn newest_since(status: &AppWrapperStatus, kind: &str) -> Option<Timestamp> {
    newest(status, kind).and_then(since)
}

/// What is said to one who gives its quota up, before the name of whom it is for, and after it.
const RECLAIMED: (&str, &str) = ("Quota was reclaimed by AppWrapper ", ".");
/// What is said to one who gives way to a higher priority.
const EVICTED: (&str, &str) = ("Makes room for AppWrapper ", ", which has a higher priority.");

/// The AppWrapper that is named between two pieces of text.
fn named_in(entry: &AppWrapperCondition, (before, after): (&str, &str)) -> Option<Key> {
    let by = entry.message.as_deref()?.strip_prefix(before)?.strip_suffix(after)?;
    let (namespace, name) = by.split_once('/')?;
    Some(Key::new(namespace, name))
}

/// For whom an AppWrapper was taken back the last time that it was, and when, whatever it has done since.
#[must_use]
pub fn taken_back(status: &AppWrapperStatus) -> Option<(Key, Timestamp)> {
    let entry = newest(status, kind::PREEMPTED)?;
    let by = named_in(entry, RECLAIMED).or_else(|| named_in(entry, EVICTED))?;
    Some((by, since(entry)?))
}

/// For whom an AppWrapper gave its quota up, and when, until it is looked at again itself.
#[must_use]
pub fn reclaimer(status: &AppWrapperStatus) -> Option<(Key, Timestamp)> {
    let entry = newest(status, kind::PREEMPTED)?;
    let looked_at = newest_since(status, kind::HEAD_OF_LINE);
    let by = named_in(entry, RECLAIMED)?;
    since(entry).filter(|it| Some(*it) > looked_at).map(|since| (by, since))
}

/// Says that the newest entry of all still holds: it was looked at now.
pub fn refresh(status: &mut AppWrapperStatus, now: Timestamp) {
    if let Some(entry) = status.conditions.iter_mut().max_by_key(|it| since(it)) {
        entry.last_update_micro_time = Some(MicroTime(now));
    }
}

/// When the status was last written, as far as conditions tell.
#[must_use]
pub fn last_written(status: &AppWrapperStatus) -> Option<Timestamp> {
    let updates = status.conditions.iter().filter_map(|it| it.last_update_micro_time.as_ref());
    updates.map(|it| it.0).max()
}

/// A time as statuses have it: nothing is finer than a microsecond.
#[must_use]
pub fn micro(now: Timestamp) -> Timestamp {
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
    fn the_catalogue_is_spelled_as_clients_compare_it() {
        let table = [
            (Entry::Init, "Init", None, None),
            (Entry::Queueing, "Queueing", Some("AwaitingHeadOfLine"), None),
            (Entry::HeadOfLine, "HeadOfLine", Some("FrontOfQueue."), None),
            (
                Entry::Backoff(Pause::Resources),
                "Backoff",
                Some("AppWrapperNotRunnable."),
                Some("Insufficient resources to dispatch AppWrapper."),
            ),
            (
                Entry::Backoff(Pause::Quota),
                "Backoff",
                Some("quota limit exceeded"),
                Some("Insufficient quota and/or resources to dispatch AppWrapper."),
            ),
            (
                Entry::Backoff(Pause::QuotaUnknown),
                "Backoff",
                Some("AppWrapperNotRunnable."),
                Some(
                    "Quota evaluation is enabled but not initialized. Insufficient quota to dispatch AppWrapper.",
                ),
            ),
            (
                Entry::Backoff(Pause::Author),
                "Backoff",
                Some("AuthorNotRecorded"),
                Some("The author of the AppWrapper is not recorded."),
            ),
            (
                Entry::Backoff(Pause::Recalled("why".to_owned())),
                "Backoff",
                Some("PreemptionTriggered"),
                Some("why"),
            ),
            (Entry::Dispatched, "Dispatched", Some("AppWrapperRunnable"), None),
            (Entry::Running, "Running", Some("PodsRunning"), None),
            (
                Entry::PreemptCandidate(Recall::MinPods { minimum: 3, running: 1, completed: 0 }),
                "PreemptCandidate",
                Some("MinPodsNotRunning"),
                Some(
                    "Insufficient number of Running and Completed pods, minimum=3, running=1, completed=0.",
                ),
            ),
            (
                Entry::PreemptCandidate(Recall::Unschedulable { failed: 2, running: 0 }),
                "PreemptCandidate",
                Some("PodsFailedScheduling"),
                Some("Pods failed scheduling failed=2, running=0."),
            ),
            (
                Entry::PreemptCandidate(Recall::Deadline { limit: 10 }),
                "PreemptCandidate",
                Some("DispatchDeadlineExceeded"),
                Some("Dispatch deadline exceeded. allowed to run for 10 seconds"),
            ),
            (
                Entry::Preempted(Preempted::Quota { by: "n/a".to_owned() }),
                "Preempted",
                Some("QuotaReclaimed"),
                Some("Quota was reclaimed by AppWrapper n/a."),
            ),
            (
                Entry::RunningHoldCompletion,
                "RunningHoldCompletion",
                Some("SomeItemsCompleted"),
                None,
            ),
            (Entry::Completed, "Completed", Some("PodsCompleted"), None),
            (
                Entry::Failed("n/a creation failure: no".to_owned()),
                "Failed",
                Some("ItemCreationFailure."),
                Some("n/a creation failure: no"),
            ),
        ];
        for (entry, kind, reason, message) in table {
            let mut list = Vec::new();
            entry.put(&mut list, at(1));
            let it = &list[0];
            assert_eq!((it.kind.as_str(), it.status.as_str()), (kind, "True"));
            assert_eq!((it.reason.as_deref(), it.message.as_deref()), (reason, message), "{kind}");
        }
    }

    /// Scenario C3: the same type and reason replaces, anything else appends.
    #[test]
    fn c_3_the_same_entry_is_replaced_and_another_one_appended() {
        let mut list = Vec::new();
        let recalled = |text: &str| Entry::Backoff(Pause::Recalled(text.to_owned()));
        let steps = [
            Entry::Init,
            Entry::Queueing,
            Entry::HeadOfLine,
            Entry::Backoff(Pause::Resources),
            recalled("one"),
            Entry::HeadOfLine,
            Entry::Backoff(Pause::Resources),
            recalled("two"),
        ];
        for (second, entry) in (0..).zip(steps) {
            entry.put(&mut list, at(second));
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
    fn a_list_has_an_end_and_init_stays() {
        let mut list = Vec::new();
        Entry::Init.put(&mut list, at(0));
        for second in 1..40 {
            // Words of other releases.
            let kind = format!("Strange{second}");
            let time = Some(MicroTime(at(second)));
            list.push(AppWrapperCondition {
                kind,
                last_transition_micro_time: time,
                ..AppWrapperCondition::default()
            });
        }
        Entry::Queueing.put(&mut list, at(50));
        assert_eq!(list.len(), MOST);
        assert_eq!((list[0].kind.as_str(), list[1].kind.as_str()), ("Init", "Strange10"));
        assert_eq!(list[31].kind, "Queueing");
    }

    #[test]
    fn what_still_holds_keeps_its_beginning() {
        let mut status = AppWrapperStatus::default();
        Entry::Running.put(&mut status.conditions, at(5));
        refresh(&mut status, at(9));
        assert_eq!(newest_since(&status, "Running"), Some(at(5)));
        assert_eq!(last_written(&status), Some(at(9)));
    }
}
