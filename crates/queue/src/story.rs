//! The whole story of one AppWrapper, for whoever asks why it is where it is.
//!
//! Everything is found by the functions that decide; nothing is decided here.

mod advice;
mod quotas;
mod room;

use std::collections::BTreeMap;

use gantry_pods::view::Pod;
use gantry_reconcile::{Key, World};
use jiff::Timestamp;
use serde::Serialize;

pub use quotas::{Charge, NodeUse};
pub use room::{Room, Share};

use crate::amounts::{Amounts, GPU, spell};
use crate::app_wrapper::AppWrapper;
use crate::condition;
use crate::count::Tally;
use crate::deadline;
use crate::dispatch::Fault;
use crate::outlook::{self, Row, Sight};
use crate::progress::{self, Standing, pods_of};
use crate::requeue;
use crate::settings::{Inference, Settings};

/// One AppWrapper, with all that is known of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Story {
    /// Its place in the queue, and what it waits for.
    #[serde(flatten)]
    pub row: Row,
    /// How many wait in all.
    pub waiting: usize,
    /// `spec.priority`, and what it gains by waiting.
    pub static_priority: i32,
    /// `spec.priorityslope`.
    pub slope: f64,
    /// What happened, the oldest first.
    pub history: Vec<Event>,
    /// The wrapped objects.
    pub items: Vec<Item>,
    /// What all its pods ask for.
    pub demand: BTreeMap<String, String>,
    /// How that was found where it is not declared.
    pub inference: &'static str,
    /// Where it waits: what there is for it, and what is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<Room>,
    /// What it is charged to, tree by tree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quota: Vec<Charge>,
    /// Who would have to make room if it passed now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<String>,
    /// Its pods.
    pub pods: Pods,
    /// How it is taken back, and when that is looked at.
    pub requeuing: Requeuing,
    /// What can be done now.
    pub advice: Vec<String>,
}

/// Something that happened: a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// What: the type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Why: the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A wrapped object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// Its kind, as the template has it.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// What its pods ask for.
    pub demand: BTreeMap<String, String>,
    /// Where that was taken from.
    pub source: Source,
    /// What is there in its place.
    pub standing: Found,
    /// Why it cannot be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The conditions that mean it has finished, as the user named them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub completion: String,
    /// Whether it has, where that is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// The conditions it has, as `Type=Status`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
}

/// Where the demand of an item was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Source {
    /// It was declared in `custompodresources`.
    Declared,
    /// It was declared there, and is less than the template asks for, which counts.
    Raised,
    /// It was found in the template.
    Template,
    /// There is none: the object makes no pods, or nobody can tell.
    Nothing,
}

impl Source {
    /// The same for people.
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

/// What is there in the place of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Found {
    /// Nothing.
    Absent,
    /// Its object.
    Made,
    /// Its object, which is on its way out.
    Going,
    /// An object of somebody else.
    Foreign,
    /// Nothing, and it cannot be made.
    Impossible,
}

impl Found {
    /// The same for people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Absent => "not made",
            Self::Made => "made",
            Self::Going => "going",
            Self::Foreign => "somebody else has the name",
            Self::Impossible => "cannot be made",
        }
    }
}

/// The pods of an AppWrapper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pods {
    /// Those that wait.
    pub pending: i64,
    /// Those that run.
    pub running: i64,
    /// Those that have succeeded.
    pub succeeded: i64,
    /// Those that have failed.
    pub failed: i64,
    /// Those that no node takes, and what is said about them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unschedulable: Vec<Unschedulable>,
    /// Those on nodes that are not ready or gone. They are in none of the counts.
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

/// A pod that no node takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unschedulable {
    /// Which.
    pub pod: String,
    /// Why.
    pub message: String,
}

/// How an AppWrapper is taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Requeuing {
    /// How many pods must run or have succeeded; none where nobody counts.
    pub min_available: i64,
    /// How many seconds they have for that.
    pub wait_seconds: i64,
    /// How often it was requeued.
    pub so_far: i64,
    /// How often it may be; none for without end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<i64>,
    /// When its pods are looked at next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_check: Option<Timestamp>,
    /// When it has run for as long as it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// Tells the story of one; nothing where there is no such AppWrapper.
///
/// The world must have the kinds of [`Dispatch`](crate::Dispatch), and what is known of the kinds of its items
/// where those are to be found.
#[must_use]
pub fn tell(
    world: &World,
    settings: &Settings,
    sight: Sight,
    key: &Key,
    now: Timestamp,
) -> Option<Story> {
    let wrapper = world.shelf::<AppWrapper>().get(key)?;
    let rows = outlook::rows(world, settings, sight, now);
    let waiting = rows.iter().filter(|it| it.position.is_some()).count();
    let is_it = |row: &Row| row.namespace == key.namespace() && row.name == key.name();
    let row = rows.into_iter().find(is_it)?;
    let (quota, victims) = match settings.quota {
        true => quotas::of(world, &wrapper, settings),
        false => (Vec::new(), Vec::new()),
    };
    let rest = requeuing(&wrapper, settings, now);
    let mut story = Story {
        waiting,
        static_priority: wrapper.spec.priority,
        slope: wrapper.spec.slope,
        history: history(&wrapper),
        items: items(world, settings, &wrapper),
        demand: spelled(wrapper.demand().by(settings.inference)),
        inference: match settings.inference {
            Inference::Compat => "compat",
            Inference::Full => "full",
        },
        room: match sight {
            Sight::Whole if wrapper.waits() => Some(room::of(world, &wrapper, settings)),
            Sight::Whole | Sight::Told => None,
        },
        quota,
        victims,
        pods: pods(world, &wrapper, sight),
        requeuing: rest,
        advice: Vec::new(),
        row,
    };
    story.advice = advice::about(&story, &wrapper, settings);
    Some(story)
}

/// What happened, by when it did; what has no time comes first.
fn history(wrapper: &AppWrapper) -> Vec<Event> {
    let mut list: Vec<_> = wrapper.status.conditions.iter().collect();
    list.sort_by_key(|it| condition::since(it));
    let event = |it: &gantry_api::queue::AppWrapperCondition| Event {
        at: condition::since(it),
        kind: it.kind.clone(),
        reason: it.reason.clone(),
        message: it.message.clone(),
    };
    list.into_iter().map(event).collect()
}

fn items(world: &World, settings: &Settings, wrapper: &AppWrapper) -> Vec<Item> {
    let seen = progress::items_of(world, wrapper);
    let items = wrapper.items().iter().zip(seen);
    items
        .map(|(item, seen)| {
            let object = item.object().unwrap_or_default();
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let conditions = seen.made.as_ref().ok().filter(|_| seen.standing == Standing::Ours);
            let conditions = conditions.and_then(|it| progress::find(world, &it.resource, &it.key));
            let conditions = conditions.map(|(_, list)| list).unwrap_or_default();
            let demand = item.demand.by(settings.inference);
            Item {
                kind: text(&object["kind"]),
                name: text(&object["metadata"]["name"]),
                demand: spelled(demand),
                source: match (item.is_declared, demand.is_nothing()) {
                    (true, _) if !demand.fit(&item.demand.stated) => Source::Raised,
                    (true, _) => Source::Declared,
                    (false, false) => Source::Template,
                    (false, true) => Source::Nothing,
                },
                standing: found(&seen.made, seen.standing),
                fault: seen.made.as_ref().err().map(Fault::to_string),
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

fn found<T>(made: &Result<T, Fault>, standing: Standing) -> Found {
    match (made, standing) {
        (Err(_), _) => Found::Impossible,
        (Ok(_), Standing::Absent) => Found::Absent,
        (Ok(_), Standing::Ours) => Found::Made,
        (Ok(_), Standing::Going) => Found::Going,
        (Ok(_), Standing::Foreign) => Found::Foreign,
    }
}

/// Its pods as they are, or as its status has them where they are not shown.
fn pods(world: &World, wrapper: &AppWrapper, sight: Sight) -> Pods {
    let status = &wrapper.status;
    let tally = match sight {
        Sight::Whole => {
            let pods = world.shelf::<Pod>().tagged(&pods_of(&wrapper.metadata.key()));
            Tally::of(world, &pods)
        }
        Sight::Told => Tally {
            pending: status.pending.into(),
            running: status.running.into(),
            succeeded: status.succeeded.into(),
            failed: status.failed.into(),
            unschedulable: status.pending_pods.clone(),
            ..Tally::default()
        },
    };
    let said = tally.unschedulable.iter().map(|it| Unschedulable {
        pod: it.pod_name.clone(),
        message: it.conditions.iter().find_map(|it| it.message.clone()).unwrap_or_default(),
    });
    Pods {
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

fn requeuing(wrapper: &AppWrapper, settings: &Settings, now: Timestamp) -> Requeuing {
    let runs = outlook::runs(wrapper);
    let check = requeue::check(wrapper, settings, now).filter(|_| runs);
    let most = wrapper.requeuing().map(|it| it.max_num_requeuings);
    Requeuing {
        min_available: wrapper.min_available(),
        wait_seconds: requeue::wait(wrapper, settings),
        so_far: wrapper.status.number_of_requeuings,
        most: most.filter(|it| *it > 0),
        next_check: check.map(requeue::Check::next),
        deadline: deadline::at(wrapper).filter(|_| runs),
    }
}

/// Amounts as people write them, without those that are nothing.
fn spelled(amounts: &Amounts) -> BTreeMap<String, String> {
    let three = [("cpu", amounts.cpu), ("memory", amounts.memory), (GPU, amounts.gpu)];
    let others = amounts.others.iter().map(|(name, amount)| (name.as_str(), *amount));
    let all = three.into_iter().chain(others).filter(|(_, amount)| *amount != 0);
    all.map(|(name, amount)| (name.to_owned(), spell(name, amount))).collect()
}

#[cfg(test)]
mod tests;
