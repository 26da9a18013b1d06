//! Reports everything about one AppWrapper, to explain its current state.
//!
//! Everything is computed by the functions that decide; nothing is decided here.

mod advice;
mod capacity_report;
mod quota_report;

use std::collections::BTreeMap;

use gantry_pods::view::Pod;
use gantry_reconcile::{Key, World};
use jiff::Timestamp;
use serde::Serialize;

pub use capacity_report::{CapacityReport, CapacityShare};
pub use quota_report::{QuotaCharge, QuotaNodeUse};

use crate::amounts::{Amounts, GPU, format_amount};
use crate::app_wrapper::AppWrapper;
use crate::condition;
use crate::deadline;
use crate::item_objects::ItemError;
use crate::pod_counts::PodCounts;
use crate::progress::{self, ItemPresence, pods_tag};
use crate::queue_report::{self, QueueRow, Visibility};
use crate::requeue;
use crate::settings::{Inference, Settings};

/// One AppWrapper, with all that is known of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperReport {
    /// Its position in the queue, and what it waits for.
    #[serde(flatten)]
    pub row: QueueRow,
    /// The number of pending AppWrappers.
    pub waiting: usize,
    /// `spec.priority`, without what it gains by waiting.
    pub static_priority: i32,
    /// `spec.priorityslope`.
    pub slope: f64,
    /// What happened, the oldest first.
    pub history: Vec<HistoryEvent>,
    /// The wrapped objects.
    pub items: Vec<ItemReport>,
    /// The total demand of its pods.
    pub demand: BTreeMap<String, String>,
    /// How the demand was determined where it is not declared.
    pub inference: &'static str,
    /// The available and the missing capacity, while it is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<CapacityReport>,
    /// What it is charged to, tree by tree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quota: Vec<QuotaCharge>,
    /// The AppWrappers that would be preempted if it were admitted now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<String>,
    /// Its pods.
    pub pods: PodsReport,
    /// Its requeuing settings, and when its pods are checked.
    pub requeuing: RequeuingReport,
    /// What a user can do now.
    pub advice: Vec<String>,
}

/// Something that happened: a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEvent {
    /// When it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The condition type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The condition reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The condition message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A wrapped object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemReport {
    /// Its kind, as the template has it.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The demand of its pods.
    pub demand: BTreeMap<String, String>,
    /// The source of that demand.
    pub source: DemandSource,
    /// The state of its object.
    pub standing: ItemStatus,
    /// Why it cannot be created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The conditions that mean it has finished, as the user named them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub completion: String,
    /// Whether it has finished, where it names conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// The conditions it has, as `Type=Status`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
}

/// The source of the demand of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum DemandSource {
    /// It was declared in `custompodresources`.
    Declared,
    /// It was declared there, and is less than the template requests, which counts.
    Raised,
    /// It was derived from the template.
    Template,
    /// There is none: the object creates no pods, or that is unknown.
    Nothing,
}

impl DemandSource {
    /// Returns the text for people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Declared => "declared in custompodresources",
            Self::Raised => "what the template asks for, which is more than is declared",
            Self::Template => "found in the template",
            Self::Nothing => "nothing declared, and no pods found in the template",
        }
    }
}

/// The state of the object of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ItemStatus {
    /// It does not exist.
    Absent,
    /// It exists.
    Made,
    /// It is being deleted.
    Going,
    /// The name is taken by an object that does not belong to the AppWrapper.
    Foreign,
    /// It does not exist, and cannot be created.
    Impossible,
}

impl ItemStatus {
    /// Returns the text for people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Absent => "not made",
            Self::Made => "made",
            Self::Going => "going",
            Self::Foreign => "the name is taken by another object",
            Self::Impossible => "cannot be created",
        }
    }
}

/// The pods of an AppWrapper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodsReport {
    /// Pending pods.
    pub pending: i64,
    /// Running pods.
    pub running: i64,
    /// Succeeded pods.
    pub succeeded: i64,
    /// Failed pods.
    pub failed: i64,
    /// Unschedulable pods, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unschedulable: Vec<Unschedulable>,
    /// Pods on nodes that are not ready or gone. They are in none of the counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<OnUnreachableNode>,
}

/// A pod on a node that is not ready or gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OnUnreachableNode {
    /// The pod.
    pub pod: String,
    /// Its node.
    pub node: String,
    /// Whether the node is not ready, or gone.
    pub why: String,
}

/// An unschedulable pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unschedulable {
    /// The pod.
    pub pod: String,
    /// The message of the scheduler.
    pub message: String,
}

/// When an AppWrapper is requeued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequeuingReport {
    /// How many pods must run or have succeeded; zero where pods are not checked.
    pub min_available: i64,
    /// How many seconds they have for that.
    pub wait_seconds: i64,
    /// How often it was requeued.
    pub so_far: i64,
    /// How often it may be requeued; absent for without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<i64>,
    /// When its pods are checked next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_check: Option<Timestamp>,
    /// When it reaches its deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// Reports about one AppWrapper; `None` where there is no such AppWrapper.
///
/// The world must have the kinds of [`Dispatch`](crate::Dispatch), and the discovered kinds of its
/// items where their objects are to be found.
#[must_use]
pub fn report(
    world: &World,
    settings: &Settings,
    sight: Visibility,
    key: &Key,
    now: Timestamp,
) -> Option<AppWrapperReport> {
    let wrapper = world.store::<AppWrapper>().get(key)?;
    let rows = queue_report::rows(world, settings, sight, now);
    let waiting = rows.iter().filter(|it| it.position.is_some()).count();
    let is_it = |row: &QueueRow| row.namespace == key.namespace() && row.name == key.name();
    let row = rows.into_iter().find(is_it)?;
    let (quota, victims) = match settings.quota {
        true => quota_report::of(world, &wrapper, settings),
        false => (Vec::new(), Vec::new()),
    };
    let rest = requeuing(&wrapper, settings, now);
    let mut story = AppWrapperReport {
        waiting,
        static_priority: wrapper.spec.priority,
        slope: wrapper.spec.slope,
        history: history(&wrapper),
        items: items(world, settings, &wrapper),
        demand: format_amounts(wrapper.demand().for_inference(settings.inference)),
        inference: match settings.inference {
            Inference::Compat => "compat",
            Inference::Full => "full",
        },
        room: match sight {
            Visibility::Full if wrapper.awaits_dispatch() => {
                Some(capacity_report::of(world, &wrapper, settings))
            }
            Visibility::Full | Visibility::StatusOnly => None,
        },
        quota,
        victims,
        pods: pods(world, &wrapper, sight),
        requeuing: rest,
        advice: Vec::new(),
        row,
    };
    story.advice = advice::advise(&story, &wrapper, settings);
    Some(story)
}

/// Returns what happened, by time; what has no time comes first.
fn history(wrapper: &AppWrapper) -> Vec<HistoryEvent> {
    let mut list: Vec<_> = wrapper.status.conditions.iter().collect();
    list.sort_by_key(|it| condition::since(it));
    let event = |it: &gantry_api::queue::AppWrapperCondition| HistoryEvent {
        at: condition::since(it),
        kind: it.kind.clone(),
        reason: it.reason.clone(),
        message: it.message.clone(),
    };
    list.into_iter().map(event).collect()
}

fn items(world: &World, settings: &Settings, wrapper: &AppWrapper) -> Vec<ItemReport> {
    let seen = progress::items_of(world, wrapper);
    let items = wrapper.items().iter().zip(seen);
    items
        .map(|(item, seen)| {
            let object = item.object().unwrap_or_default();
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let conditions =
                seen.object.as_ref().ok().filter(|_| seen.presence == ItemPresence::Owned);
            let conditions =
                conditions.and_then(|it| progress::find_object(world, &it.resource, &it.key));
            let conditions = conditions.map(|(_, list)| list).unwrap_or_default();
            let demand = item.demand.for_inference(settings.inference);
            ItemReport {
                kind: text(&object["kind"]),
                name: text(&object["metadata"]["name"]),
                demand: format_amounts(demand),
                source: match (item.is_declared, demand.is_zero()) {
                    (true, _) if !demand.fits_in(&item.demand.stated) => DemandSource::Raised,
                    (true, _) => DemandSource::Declared,
                    (false, false) => DemandSource::Template,
                    (false, true) => DemandSource::Nothing,
                },
                standing: item_status(&seen.object, seen.presence),
                fault: seen.object.as_ref().err().map(ItemError::to_string),
                completion: item.completion.clone(),
                complete: seen.complete,
                conditions: conditions
                    .iter()
                    .map(|it| format!("{}={}", it.kind, it.status))
                    .collect(),
            }
        })
        .collect()
}

fn item_status<T>(made: &Result<T, ItemError>, standing: ItemPresence) -> ItemStatus {
    match (made, standing) {
        (Err(_), _) => ItemStatus::Impossible,
        (Ok(_), ItemPresence::Absent) => ItemStatus::Absent,
        (Ok(_), ItemPresence::Owned) => ItemStatus::Made,
        (Ok(_), ItemPresence::Deleting) => ItemStatus::Going,
        (Ok(_), ItemPresence::Foreign) => ItemStatus::Foreign,
    }
}

/// Counts its pods, or returns the counts of its status where pods are not visible.
fn pods(world: &World, wrapper: &AppWrapper, sight: Visibility) -> PodsReport {
    let status = &wrapper.status;
    let tally = match sight {
        Visibility::Full => {
            let pods = world.store::<Pod>().by_index(&pods_tag(&wrapper.metadata.key()));
            PodCounts::of(world, &pods)
        }
        Visibility::StatusOnly => PodCounts {
            pending: status.pending.into(),
            running: status.running.into(),
            succeeded: status.succeeded.into(),
            failed: status.failed.into(),
            unschedulable: status.pending_pods.clone(),
            ..PodCounts::default()
        },
    };
    let said = tally.unschedulable.iter().map(|it| Unschedulable {
        pod: it.pod_name.clone(),
        message: it.conditions.iter().find_map(|it| it.message.clone()).unwrap_or_default(),
    });
    PodsReport {
        pending: tally.pending,
        running: tally.running,
        succeeded: tally.succeeded,
        failed: tally.failed,
        unschedulable: said.collect(),
        unreachable: tally
            .unreachable
            .into_iter()
            .map(|it| OnUnreachableNode { pod: it.pod, node: it.node, why: it.why.to_string() })
            .collect(),
    }
}

fn requeuing(wrapper: &AppWrapper, settings: &Settings, now: Timestamp) -> RequeuingReport {
    let runs = queue_report::is_running(wrapper);
    let check = requeue::next_check(wrapper, settings, now).filter(|_| runs);
    let most = wrapper.requeuing().map(|it| it.max_num_requeuings);
    RequeuingReport {
        min_available: wrapper.min_available(),
        wait_seconds: requeue::wait_seconds(wrapper, settings),
        so_far: wrapper.status.number_of_requeuings,
        most: most.filter(|it| *it > 0),
        next_check: check.map(requeue::PodCheck::next),
        deadline: deadline::at(wrapper).filter(|_| runs),
    }
}

/// Formats amounts for people, without those that are zero.
fn format_amounts(amounts: &Amounts) -> BTreeMap<String, String> {
    let three = [("cpu", amounts.cpu), ("memory", amounts.memory), (GPU, amounts.gpu)];
    let others = amounts.others.iter().map(|(name, amount)| (name.as_str(), *amount));
    let all = three.into_iter().chain(others).filter(|(_, amount)| *amount != 0);
    all.map(|(name, amount)| (name.to_owned(), format_amount(name, amount))).collect()
}

#[cfg(test)]
mod tests;
