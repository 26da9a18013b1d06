//! What the queue would decide now, for people: who passes, who waits for what, and until when.
//!
//! The decision itself is asked, on a copy of the world that it sees. So what is told is what would
//! be done, by the same settings, and there is no second opinion that could differ.

mod answer;
mod forecast;

use std::sync::Arc;

use gantry_api::queue::{AppWrapperState, QueueState};
use gantry_reconcile::{Key, World};
use jiff::Timestamp;
use serde::Serialize;

use crate::app_wrapper::AppWrapper;
use crate::charge;
use crate::condition::{self, kind, reason};
use crate::count::Tally;
use crate::deadline;
use crate::listing::{self, Entry};
use crate::order;
use crate::quota::{Forest, Subtree};
use crate::requeue;
use crate::settings::Settings;
use crate::state::{self, Transition};

use answer::Answer;

/// How much of a cluster was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Everything that the queue decides by.
    Whole,
    /// The AppWrappers alone: nodes or pods are not shown to whoever looks. Then only what the queue
    /// has said is known, and not what it would say now.
    Told,
}

/// One AppWrapper as people see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its place among those that wait, counted from 1; none where it does not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The priority that orders the queue, now.
    pub priority: f64,
    /// Where it stands: `status.state`; empty before the queue has seen it.
    pub state: String,
    /// The last notable step: `status.queuejobstate`.
    pub step: String,
    /// Since when it waits, or stands where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Wait>,
    /// What can be known of when it starts, or ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
    /// What the queue said about it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What an AppWrapper waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// In one word.
    pub reason: Reason,
    /// In a sentence.
    pub message: String,
    /// When it is over at the latest, or looked at again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What an AppWrapper waits for, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Reason {
    /// To be seen by the queue.
    Unseen,
    /// Nothing any more, or those before it.
    Turn,
    /// Room in the cluster.
    Resources,
    /// Quota.
    Quota,
    /// Its labels, which say what it is charged to.
    Labels,
    /// Its author: who that is, or what it may create.
    Access,
    /// Others that make room for it.
    Victims,
    /// The head of the line, which nobody passes for now.
    HeadOfLine,
    /// The end of its pause after it was taken back.
    Backoff,
    /// Its items to be made.
    Items,
    /// Its pods.
    Pods,
    /// Its objects to be gone: it is being taken back.
    Removal,
}

impl Reason {
    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unseen => "Unseen",
            Self::Turn => "Turn",
            Self::Resources => "Resources",
            Self::Quota => "Quota",
            Self::Labels => "Labels",
            Self::Access => "Access",
            Self::Victims => "Victims",
            Self::HeadOfLine => "HeadOfLine",
            Self::Backoff => "Backoff",
            Self::Items => "Items",
            Self::Pods => "Pods",
            Self::Removal => "Removal",
        }
    }
}

/// A time that can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Expected {
    /// What happens.
    pub what: Happens,
    /// When.
    pub at: Timestamp,
}

/// What happens at a time that can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Happens {
    /// It starts: there is room.
    Starts,
    /// It does not start before.
    StartsNotBefore,
    /// It starts about then at the latest, because others have run for as long as they may; if nobody
    /// comes that goes first, and what they leave is in pieces that are large enough.
    StartsAfterDeadlines,
    /// It has run for as long as it may.
    EndsAtLatest,
}

/// Takes in those that the queue has not seen yet, as it would: for files, which have not been through
/// its hands. Their age is that of their objects, or none.
pub fn enter(world: &World, settings: &Settings, now: Timestamp) {
    let shelf = world.shelf::<AppWrapper>();
    for wrapper in shelf.all() {
        let mut wrapper = AppWrapper::clone(&wrapper);
        if wrapper.state().is_none() {
            let seen = wrapper.metadata.creation_timestamp.unwrap_or(now);
            let priority = order::priority(&wrapper, settings, now);
            wrapper.status = Transition::Queue.apply(&wrapper, &Tally::default(), priority, seen);
        }
        if settings.quota && wrapper.waits() {
            let missing = charge::missing_labels(world, &wrapper);
            wrapper.metadata.labels.extend(missing);
        }
        shelf.set(wrapper);
    }
}

/// Every AppWrapper: those that wait in the order in which they are looked at, then those that were
/// dispatched, then those that are over, each by name.
///
/// The world must have the kinds of [`Dispatch`](crate::Dispatch).
#[must_use]
pub fn rows(world: &World, settings: &Settings, sight: Sight, now: Timestamp) -> Vec<Row> {
    let shelf = world.shelf::<AppWrapper>();
    let order = listing::list(world, settings, now);
    let answer = match sight {
        Sight::Whole => Some(Answer::of(world, settings, now)),
        Sight::Told => None,
    };
    let mut rows = Vec::with_capacity(shelf.len());
    for entry in &order {
        let Some(wrapper) = shelf.get(&entry.key) else { continue };
        let wait = match &answer {
            Some(answer) => answer.wait(entry, &wrapper, world, settings),
            None => told(entry, &wrapper),
        };
        let mut row = row(&wrapper, settings, now);
        row.position = Some(entry.position);
        row.since = Some(waiting_since(&wrapper));
        row.expected = start(&wait, now);
        row.waits_for = Some(wait);
        rows.push(row);
    }
    if sight == Sight::Whole {
        forecast::add(&mut rows, &order, world, settings, now);
    }
    let mut others: Vec<Arc<AppWrapper>> = shelf.all();
    others.retain(|it| !it.waits());
    others.sort_by_cached_key(|it| (rank(it), it.metadata.key()));
    rows.extend(others.iter().map(|it| row(it, settings, now)));
    rows
}

/// What is known of one without asking who passes.
fn row(wrapper: &AppWrapper, settings: &Settings, now: Timestamp) -> Row {
    let newest = wrapper.status.conditions.iter().filter_map(condition::since).max();
    let word = |value: Option<serde_json::Value>| {
        value.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    let waits_for = present(wrapper, settings, now);
    let ends = deadline::at(wrapper).filter(|_| runs(wrapper));
    Row {
        position: None,
        namespace: wrapper.metadata.namespace.clone(),
        name: wrapper.metadata.name.clone(),
        priority: order::priority(wrapper, settings, now),
        state: word(wrapper.state().and_then(|it| serde_json::to_value(it).ok())),
        step: word(wrapper.step().and_then(|it| serde_json::to_value(it).ok())),
        since: newest.or(wrapper.metadata.creation_timestamp),
        waits_for,
        expected: ends.map(|at| Expected { what: Happens::EndsAtLatest, at }),
        message: wrapper.status.message.clone(),
    }
}

/// Since when one that waits does so: it may have run before.
fn waiting_since(wrapper: &AppWrapper) -> Timestamp {
    let status = &wrapper.status;
    let recalled = condition::newest(status, kind::BACKOFF)
        .filter(|it| it.reason.as_deref() == Some(reason::PREEMPTION))
        .and_then(condition::since);
    let queued = condition::newest_since(status, "Queueing");
    recalled.max(queued).unwrap_or_else(|| wrapper.first_seen())
}

pub(crate) fn runs(wrapper: &AppWrapper) -> bool {
    wrapper.status.can_run && wrapper.state() == Some(&AppWrapperState::Running)
}

/// Those that were dispatched before those that are over.
fn rank(wrapper: &AppWrapper) -> u8 {
    use AppWrapperState as S;
    match wrapper.state() {
        None => 0,
        Some(S::Pending) => 1,
        Some(S::Running) => 2,
        Some(S::RunningHoldCompletion) => 3,
        Some(S::Other(_)) => 4,
        Some(S::Failed) => 5,
        Some(S::Deleted) => 6,
        Some(S::Completed) => 7,
    }
}

/// What one waits for that is not in the queue.
fn present(wrapper: &AppWrapper, settings: &Settings, now: Timestamp) -> Option<Wait> {
    use AppWrapperState as S;
    let status = &wrapper.status;
    let wait = |reason, message: String, until| Some(Wait { reason, message, until });
    if wrapper.metadata.is_going() {
        return wait(Reason::Removal, "it was deleted".to_owned(), None);
    }
    if state::leaving(wrapper).is_some() {
        let why = status.message.clone().unwrap_or_default();
        return wait(Reason::Removal, format!("its objects are being removed: {why}"), None);
    }
    match wrapper.state() {
        None => wait(Reason::Unseen, "the queue has not seen it yet".to_owned(), None),
        Some(S::Pending) if status.can_run => {
            wait(Reason::Items, "its items are being created".to_owned(), None)
        }
        Some(S::Running) => {
            let message = short(wrapper)?;
            let until = requeue::check(wrapper, settings, now).map(requeue::Check::next);
            wait(Reason::Pods, message, until)
        }
        Some(S::RunningHoldCompletion) => {
            let left = i64::from(status.running) + i64::from(status.pending);
            let message = format!("its items are complete, and {left} of its pods run or wait");
            wait(Reason::Pods, message, None)
        }
        Some(S::Pending | S::Deleted | S::Failed | S::Completed | S::Other(_)) => None,
    }
}

/// What is wrong with the pods of one that was dispatched, as its status has them.
fn short(wrapper: &AppWrapper) -> Option<String> {
    let status = &wrapper.status;
    let (up, minimum) =
        (i64::from(status.running) + i64::from(status.succeeded), wrapper.min_available());
    if minimum > 0 && up < minimum {
        return Some(format!("{up} of {minimum} pods run or have succeeded"));
    }
    let stuck = status.pending_pods.len();
    (stuck > 0).then(|| format!("no node takes {stuck} of its pods"))
}

/// What the queue has said about one that waits.
fn told(entry: &Entry, wrapper: &AppWrapper) -> Wait {
    let status = &wrapper.status;
    let said = condition::newest(status, kind::BACKOFF);
    let said = said.filter(|_| status.queue_state == Some(QueueState::Backoff));
    let Some(said) = said else {
        let message = "nobody has said yet why it waits".to_owned();
        return Wait { reason: Reason::Turn, message, until: None };
    };
    let reason = match said.reason.as_deref() {
        Some(reason::PREEMPTION) => Reason::Backoff,
        Some(text) => answer::reason_of(text),
        None => Reason::Resources,
    };
    let message = match reason {
        Reason::Backoff => said.message.clone(),
        _ => status.message.clone().or_else(|| said.message.clone()),
    };
    Wait { reason, message: message.unwrap_or_default(), until: entry.rests_until }
}

fn start(wait: &Wait, now: Timestamp) -> Option<Expected> {
    match wait.reason {
        Reason::Turn => wait.until.map(|at| Expected { what: Happens::Starts, at: at.max(now) }),
        Reason::Backoff => wait.until.map(|at| Expected { what: Happens::StartsNotBefore, at }),
        Reason::Unseen
        | Reason::Resources
        | Reason::Quota
        | Reason::Labels
        | Reason::Access
        | Reason::Victims
        | Reason::HeadOfLine
        | Reason::Items
        | Reason::Pods
        | Reason::Removal => None,
    }
}

/// The quota trees with everybody charged that holds something.
pub(crate) fn charged(world: &World, settings: &Settings) -> Forest {
    let wrappers = world.shelf::<AppWrapper>().all();
    let standing = wrappers.iter().filter_map(|it| charge::standing_in(world, it, settings));
    Forest::standing(world.shelf::<Subtree>().all(), standing).0
}

/// The words of a key, where it stands among other words.
pub(crate) fn mentions(text: &str, key: &Key) -> bool {
    let key = key.to_string();
    text.split_whitespace().any(|word| word.trim_end_matches('.') == key)
}

#[cfg(test)]
mod tests;
