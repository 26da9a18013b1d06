//! Reports what the queue would decide now: which AppWrappers are admitted, what the others wait
//! for, and until when.
//!
//! The admission cycle itself runs, on a copy of the world that it sees. So the report is what
//! would be done, with the same settings, and there is no second implementation that could differ.

mod forecast;
mod simulated_cycle;

use std::sync::Arc;

use gantry_api::queue::{AppWrapperState, QueueState};
use gantry_reconcile::{Key, World};
use jiff::Timestamp;
use serde::Serialize;

use crate::app_wrapper::AppWrapper;
use crate::charge;
use crate::condition::{self, kind, reason};
use crate::deadline;
use crate::listing::{self, PendingAppWrapper};
use crate::order;
use crate::pod_counts::PodCounts;
use crate::quota::{Forest, Subtree};
use crate::requeue;
use crate::settings::Settings;
use crate::state::{self, Transition};

use simulated_cycle::SimulatedCycle;

/// How much of a cluster is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Everything that the queue decides by.
    Full,
    /// The AppWrappers alone: the user may not list nodes or pods. Then only what the queue has
    /// reported is known, and not what it would decide now.
    StatusOnly,
}

/// One AppWrapper, as a row for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRow {
    /// Its position among the pending ones, counted from 1; absent where it is not pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The current priority that orders the queue.
    pub priority: f64,
    /// Its state: `status.state`; empty before the queue has observed it.
    pub state: String,
    /// Its last queue state: `status.queuejobstate`.
    pub step: String,
    /// Since when it is pending, or in its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Wait>,
    /// When it starts or ends, as far as that can be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<ExpectedTime>,
    /// The last message of the queue about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What an AppWrapper waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// The reason, for programs.
    pub reason: WaitReason,
    /// The reason as a sentence.
    pub message: String,
    /// When the wait is over at the latest, or checked again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// The reason for which an AppWrapper waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WaitReason {
    /// It is not observed by the queue yet.
    Unseen,
    /// It fits, or AppWrappers ahead of it are evaluated first.
    NextCycle,
    /// It waits for free capacity.
    Resources,
    /// It waits for quota.
    Quota,
    /// It waits for its labels, which say what it is charged to.
    Labels,
    /// Its author is not recorded, or it is not known what the author may create.
    Access,
    /// It waits for AppWrappers that are preempted for it.
    Victims,
    /// It waits for the head of the line, which holds the queue for now.
    HeadOfLine,
    /// It waits for the end of its backoff after it was evicted.
    Backoff,
    /// It waits for its items to be created.
    Items,
    /// It waits for its pods.
    Pods,
    /// It waits for its objects to be gone: it is being evicted.
    Removal,
}

impl WaitReason {
    /// Returns the reason as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unseen => "Unseen",
            Self::NextCycle => "NextCycle",
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

/// An expected time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedTime {
    /// The expected event.
    pub what: ExpectedEvent,
    /// When.
    pub at: Timestamp,
}

/// An event whose time can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ExpectedEvent {
    /// It starts: there is enough free capacity.
    Starts,
    /// It does not start before.
    StartsNotBefore,
    /// It starts about then at the latest, because others reach their deadline; if no AppWrapper
    /// arrives that goes first, and the freed capacity is not too fragmented.
    StartsAfterDeadlines,
    /// It reaches its deadline.
    EndsAtLatest,
}

/// Initializes AppWrappers that the queue has not observed yet, as the queue would: for files,
/// which the queue has not processed. Their age is that of their objects, or none.
pub fn initialize_unseen(world: &World, settings: &Settings, now: Timestamp) {
    let store = world.store::<AppWrapper>();
    for wrapper in store.list() {
        let mut wrapper = AppWrapper::clone(&wrapper);
        if wrapper.state().is_none() {
            let seen = wrapper.metadata.creation_timestamp.unwrap_or(now);
            let priority = order::priority(&wrapper, settings, now);
            wrapper.status =
                Transition::Queue.apply(&wrapper, &PodCounts::default(), priority, seen);
        }
        if settings.quota && wrapper.awaits_dispatch() {
            let missing = charge::missing_labels(world, &wrapper);
            wrapper.metadata.labels.extend(missing);
        }
        store.set(wrapper);
    }
}

/// Returns a row for every AppWrapper: pending ones in the order in which they are evaluated, then
/// dispatched ones, then finished ones, each by name.
///
/// The world must have the kinds of [`Dispatch`](crate::Dispatch).
#[must_use]
pub fn rows(
    world: &World,
    settings: &Settings,
    sight: Visibility,
    now: Timestamp,
) -> Vec<QueueRow> {
    let store = world.store::<AppWrapper>();
    let order = listing::list_pending(world, settings, now);
    let answer = match sight {
        Visibility::Full => Some(SimulatedCycle::of(world, settings, now)),
        Visibility::StatusOnly => None,
    };
    let mut rows = Vec::with_capacity(store.len());
    for entry in &order {
        let Some(wrapper) = store.get(&entry.key) else { continue };
        let wait = match &answer {
            Some(answer) => answer.wait(entry, &wrapper, world, settings),
            None => reported_wait(entry, &wrapper),
        };
        let mut row = row(&wrapper, settings, now);
        row.position = Some(entry.position);
        row.since = Some(waiting_since(&wrapper));
        row.expected = expected_start(&wait, now);
        row.waits_for = Some(wait);
        rows.push(row);
    }
    if sight == Visibility::Full {
        forecast::add_forecasts(&mut rows, &order, world, settings, now);
    }
    let mut others: Vec<Arc<AppWrapper>> = store.list();
    others.retain(|it| !it.awaits_dispatch());
    others.sort_by_cached_key(|it| (sort_rank(it), it.metadata.key()));
    rows.extend(others.iter().map(|it| row(it, settings, now)));
    rows
}

/// Returns what is known of an AppWrapper without a simulated cycle.
fn row(wrapper: &AppWrapper, settings: &Settings, now: Timestamp) -> QueueRow {
    let newest = wrapper.status.conditions.iter().filter_map(condition::since).max();
    let word = |value: Option<serde_json::Value>| {
        value.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    let waits_for = current_wait(wrapper, settings, now);
    let ends = deadline::at(wrapper).filter(|_| is_running(wrapper));
    QueueRow {
        position: None,
        namespace: wrapper.metadata.namespace.clone(),
        name: wrapper.metadata.name.clone(),
        priority: order::priority(wrapper, settings, now),
        state: word(wrapper.state().and_then(|it| serde_json::to_value(it).ok())),
        step: word(wrapper.queue_state().and_then(|it| serde_json::to_value(it).ok())),
        since: newest.or(wrapper.metadata.creation_timestamp),
        waits_for,
        expected: ends.map(|at| ExpectedTime { what: ExpectedEvent::EndsAtLatest, at }),
        message: wrapper.status.message.clone(),
    }
}

/// Returns since when a pending AppWrapper is so: it may have run before.
fn waiting_since(wrapper: &AppWrapper) -> Timestamp {
    let status = &wrapper.status;
    let recalled = condition::newest(status, kind::BACKOFF)
        .filter(|it| it.reason.as_deref() == Some(reason::PREEMPTION))
        .and_then(condition::since);
    let queued = condition::newest_since(status, "Queueing");
    recalled.max(queued).unwrap_or_else(|| wrapper.first_seen())
}

pub(crate) fn is_running(wrapper: &AppWrapper) -> bool {
    wrapper.status.can_run && wrapper.state() == Some(&AppWrapperState::Running)
}

/// Sorts dispatched AppWrappers before finished ones.
fn sort_rank(wrapper: &AppWrapper) -> u8 {
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

/// Returns what an AppWrapper outside the queue waits for.
fn current_wait(wrapper: &AppWrapper, settings: &Settings, now: Timestamp) -> Option<Wait> {
    use AppWrapperState as S;
    let status = &wrapper.status;
    let wait = |reason, message: String, until| Some(Wait { reason, message, until });
    if wrapper.metadata.is_terminating() {
        return wait(WaitReason::Removal, "it was deleted".to_owned(), None);
    }
    if state::removal_outcome(wrapper).is_some() {
        let why = status.message.clone().unwrap_or_default();
        return wait(WaitReason::Removal, format!("its objects are being removed: {why}"), None);
    }
    match wrapper.state() {
        None => wait(WaitReason::Unseen, "the queue has not seen it yet".to_owned(), None),
        Some(S::Pending) if status.can_run => {
            wait(WaitReason::Items, "its items are being created".to_owned(), None)
        }
        Some(S::Running) => {
            let message = pod_problem(wrapper)?;
            let until = requeue::next_check(wrapper, settings, now).map(requeue::PodCheck::next);
            wait(WaitReason::Pods, message, until)
        }
        Some(S::RunningHoldCompletion) => {
            let left = i64::from(status.running) + i64::from(status.pending);
            let message = format!("its items are complete, and {left} of its pods run or wait");
            wait(WaitReason::Pods, message, None)
        }
        Some(S::Pending | S::Deleted | S::Failed | S::Completed | S::Other(_)) => None,
    }
}

/// Returns what is wrong with the pods of a dispatched AppWrapper, by its status.
fn pod_problem(wrapper: &AppWrapper) -> Option<String> {
    let status = &wrapper.status;
    let (up, minimum) =
        (i64::from(status.running) + i64::from(status.succeeded), wrapper.min_available());
    if minimum > 0 && up < minimum {
        return Some(format!("{up} of {minimum} pods run or have succeeded"));
    }
    let stuck = status.pending_pods.len();
    (stuck > 0).then(|| format!("no node takes {stuck} of its pods"))
}

/// Returns what the queue has reported about a pending AppWrapper.
fn reported_wait(entry: &PendingAppWrapper, wrapper: &AppWrapper) -> Wait {
    let status = &wrapper.status;
    let said = condition::newest(status, kind::BACKOFF);
    let said = said.filter(|_| status.queue_state == Some(QueueState::Backoff));
    let Some(said) = said else {
        let message = "no reason is reported yet".to_owned();
        return Wait { reason: WaitReason::NextCycle, message, until: None };
    };
    let reason = match said.reason.as_deref() {
        Some(reason::PREEMPTION) => WaitReason::Backoff,
        Some(text) => simulated_cycle::reason_of(text),
        None => WaitReason::Resources,
    };
    let message = match reason {
        WaitReason::Backoff => said.message.clone(),
        _ => status.message.clone().or_else(|| said.message.clone()),
    };
    Wait { reason, message: message.unwrap_or_default(), until: entry.backoff_until }
}

fn expected_start(wait: &Wait, now: Timestamp) -> Option<ExpectedTime> {
    match wait.reason {
        WaitReason::NextCycle => {
            wait.until.map(|at| ExpectedTime { what: ExpectedEvent::Starts, at: at.max(now) })
        }
        WaitReason::Backoff => {
            wait.until.map(|at| ExpectedTime { what: ExpectedEvent::StartsNotBefore, at })
        }
        WaitReason::Unseen
        | WaitReason::Resources
        | WaitReason::Quota
        | WaitReason::Labels
        | WaitReason::Access
        | WaitReason::Victims
        | WaitReason::HeadOfLine
        | WaitReason::Items
        | WaitReason::Pods
        | WaitReason::Removal => None,
    }
}

/// Returns the quota trees with every holder charged.
pub(crate) fn charged_forest(world: &World, settings: &Settings) -> Forest {
    let wrappers = world.store::<AppWrapper>().list();
    let standing = wrappers.iter().filter_map(|it| charge::held_quota_in(world, it, settings));
    Forest::rebuild(world.store::<Subtree>().list(), standing).0
}

/// Returns whether a text mentions a key as a separate word.
pub(crate) fn mentions(text: &str, key: &Key) -> bool {
    let key = key.to_string();
    text.split_whitespace().any(|word| word.trim_end_matches('.') == key)
}

#[cfg(test)]
mod tests;
