//! What becomes of one AppWrapper: its items are made, its pods counted, and it ends or is taken back.

use std::sync::Arc;
use std::time::Duration;

use gantry_pods::view::{Node, Pod};
use gantry_reconcile::world::{AnyShelf as _, Refused, Tag};
use gantry_reconcile::{
    Change, Controller, FactChange, FactKind, Held, Key, Kind, Meta, Plan, Resource, View as _,
    World,
};
use jiff::Timestamp;

use crate::access::{self, AccessReview, KeptBack};
use crate::app_wrapper::AppWrapper;
use crate::charge;
use crate::completion;
use crate::condition::{self, kind};
use crate::count::Tally;
use crate::dispatch::{self, Fault, LABEL, Made};
use crate::kind_discovery::{self, ServedKind};
use crate::order;
use crate::quota::Subtree;
use crate::settings::{Live, Settings};
use crate::state::{self, Facts, Items, Next, Transition};
use crate::status;
use crate::unreachable;
use crate::wrapped::{Truth, Wrapped};

mod authors;
mod before;
mod due;
mod notes;
mod removal;

use authors::{barred, kept_back, made_for, undecided};
use before::{ask, await_access, label};
use due::due;
use notes::{note, remark};
use removal::{collect_orphans, has_pods, hurry, remove, wait_for_pods};

/// How long items are tried before the status says so; after as long again they are given up.
const TRIED: Duration = Duration::from_secs(30);
/// How long it takes at most until they are tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// How long pods are waited for that nobody deleted, when everything is taken back. Pods that somebody else
/// labelled would never go.
const PODS: Duration = Duration::from_secs(300);
/// How long an object may be there before it is taken for one that came late. Somebody who leads no more may
/// see it before the news that its AppWrapper has passed.
const LATE: Duration = Duration::from_secs(30);
/// How long it is left to the decision about the whole queue to tell one who came that it waits, in one write
/// with what becomes of it. That takes milliseconds, unless there are too few requests for what comes.
const FRESH: Duration = Duration::from_secs(20);
/// How often counts are written at most.
const COUNTS: Duration = Duration::from_secs(1);

/// Looks after one AppWrapper at a time.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    settings: Live,
}

impl Progress {
    /// The name of the controller.
    pub const NAME: &str = "queue-progress";

    /// Decides by these settings.
    #[must_use]
    pub fn new(settings: Live) -> Self {
        Self { settings }
    }
}

/// What the pods of an AppWrapper are filed under.
#[must_use]
pub fn pods_of(wrapper: &Key) -> Tag {
    Pod::of_app_wrapper(wrapper.namespace(), wrapper.name())
}

impl Controller for Progress {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Vec<Kind> {
        let own = [Kind::of::<AppWrapper>(), Kind::of::<Pod>(), Kind::of::<Node>()];
        let quota = self.settings.get().quota.then(Kind::of::<Subtree>);
        // Kinds that are wrapped are followed when they are found.
        own.into_iter().chain(quota).collect()
    }

    fn facts(&self) -> Vec<FactKind> {
        let access = self.settings.get().user_access.is_checked().then(access::facts);
        let kinds = FactKind::of::<ServedKind>();
        access.into_iter().flatten().chain([kinds]).collect()
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<AppWrapper>() {
            return vec![change.key.clone()];
        }
        if change.is::<Subtree>() {
            if Subtree::only_says(change) {
                return Vec::new();
            }
            let wrappers = world.shelf::<AppWrapper>().all();
            let queued = wrappers.iter().filter(|it| it.is_queued());
            return queued.map(|it| it.metadata.key()).collect();
        }
        if change.is::<Node>() {
            return unreachable::concerned_by(world, change);
        }
        let metas = change.both::<Pod>().map(|it| &it.metadata);
        let metas = metas.chain(change.both::<Wrapped>().map(|it| &it.metadata));
        let mut names: Vec<&str> = Vec::new();
        for meta in metas {
            let owner = meta.controller().filter(|it| it.kind == AppWrapper::RESOURCE.kind);
            names.extend(owner.map(|it| it.name.as_str()));
            names.extend(meta.labels.get(LABEL).map(String::as_str));
        }
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| change.key.beside(name)).collect()
    }

    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        if let Some(change) = change.of::<ServedKind>() {
            return kind_discovery::concerned_by(world, &change);
        }
        if let Some(change) = change.of::<AccessReview>() {
            return access::concerned_by(world, &change, self.settings.get().user_access);
        }
        let recording = change.of::<access::AuthorRecording>();
        // Since when authors are recorded concerns every AppWrapper whose author matters.
        if recording.is_some_and(|it| it.is_news()) { undecided(world) } else { Vec::new() }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let wrapper = world.shelf::<AppWrapper>().get(key);
        let Some(wrapper) = wrapper.filter(|it| !it.metadata.is_going()) else {
            return collect_orphans(world, key, now);
        };
        if self.settings.get().quota && wrapper.is_queued() {
            let labels = charge::missing_labels(world, &wrapper);
            if !labels.is_empty() {
                return label(&wrapper, &labels);
            }
        }
        let items = items_of(world, &wrapper);
        let mut faults = items.iter().filter_map(|it| it.made.as_ref().err());
        let open = faults.find(|it| matches!(it, Fault::Unsettled { .. }));
        if let Some(open) = open.filter(|_| wrapper.status.can_run) {
            return ask(&wrapper, open);
        }
        let access = self.settings.get().user_access;
        let kept_back =
            access.is_checked().then(|| kept_back(world, &wrapper, &items, access, now)).flatten();
        if let Some(open) = kept_back.as_ref().filter(|it| wrapper.status.can_run && it.is_open()) {
            return await_access(&wrapper, open);
        }
        let pods = world.shelf::<Pod>().tagged(&pods_of(key));
        let seen = Seen {
            items,
            objects: objects_of(world, &wrapper),
            tally: Tally::of(world, &pods).against(&wrapper, &self.settings.get()),
            pods,
            refused: world.refused(Self::NAME, key),
            settings: self.settings.get(),
            kept_back,
            now,
            wrapper,
        };
        plan(&seen)
    }
}

/// The items of an AppWrapper, and what is there in their place.
pub(crate) fn items_of(world: &World, wrapper: &AppWrapper) -> Vec<ItemSeen> {
    let items = wrapper.items().iter().enumerate();
    items
        .map(|(at, item)| {
            let made = dispatch::make(world, wrapper, at, item);
            let found = made.as_ref().ok().and_then(|it| find(world, &it.resource, &it.key));
            let standing = match &found {
                None => Standing::Absent,
                Some((meta, _)) if !meta.is_controlled_by(&wrapper.metadata.uid) => {
                    Standing::Foreign
                }
                Some((meta, _)) if meta.is_going() => Standing::Going,
                Some(_) => Standing::Ours,
            };
            let complete = (!item.completion.is_empty()).then(|| {
                let conditions = found.as_ref().map(|(_, conditions)| conditions.as_slice());
                standing == Standing::Ours
                    && completion::is_complete(&item.completion, conditions.unwrap_or_default())
            });
            ItemSeen { made, standing, complete }
        })
        .collect()
}

/// All objects that belong to an AppWrapper, whether they are items of it or were.
fn objects_of(world: &World, wrapper: &AppWrapper) -> Vec<(Resource, Meta)> {
    let uid = &wrapper.metadata.uid;
    let pods = world.shelf::<Pod>().owned_by(uid);
    let mut objects: Vec<(Resource, Meta)> =
        pods.iter().map(|it| (Pod::RESOURCE, it.metadata.clone())).collect();
    for shelf in world.shelves_of::<Wrapped>() {
        let owned = shelf.owned_by(uid);
        objects.extend(owned.iter().map(|it| (shelf.resource(), it.metadata.clone())));
    }
    objects
}

/// An object of a kind that may be wrapped.
pub(crate) fn find(world: &World, resource: &Resource, key: &Key) -> Option<(Meta, Vec<Truth>)> {
    if *resource == Pod::RESOURCE {
        let pod = world.shelf::<Pod>().get(key)?;
        let truth = |it: &gantry_pods::view::Condition| Truth {
            kind: it.kind.clone(),
            status: it.status.as_str().to_owned(),
        };
        return Some((pod.metadata.clone(), pod.status.conditions.iter().map(truth).collect()));
    }
    let object = world.shelf_at::<Wrapped>(resource)?.get(key)?;
    Some((object.metadata.clone(), object.conditions.clone()))
}

/// What decides about one AppWrapper.
#[derive(Clone, Debug)]
struct Seen {
    wrapper: Arc<AppWrapper>,
    items: Vec<ItemSeen>,
    /// Objects that belong to it.
    objects: Vec<(Resource, Meta)>,
    pods: Vec<Arc<Pod>>,
    /// Those of its pods, as counted.
    tally: Tally,
    /// What the server said no to the last time.
    refused: Vec<Refused>,
    settings: Settings,
    /// Why its author may not have it, where that matters.
    kept_back: Option<KeptBack>,
    now: Timestamp,
}

/// An item, and what is there in its place.
#[derive(Clone, Debug)]
pub(crate) struct ItemSeen {
    pub(crate) made: Result<Made, Fault>,
    pub(crate) standing: Standing,
    /// Whether it is complete, where it says when it is.
    pub(crate) complete: Option<bool>,
}

/// What is there in the place of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Absent,
    Ours,
    /// Ours, and on its way out: its place is not free yet.
    Going,
    Foreign,
}

fn plan(seen: &Seen) -> Plan {
    let mut plan = Plan::default();
    let facts = facts(seen, &mut plan);
    match state::next(&facts) {
        Next::Rest => {
            if facts.leaving.is_some() {
                wait_for_pods(seen, &mut plan);
                hurry(seen, &mut plan);
            }
        }
        Next::Create => create(seen, &mut plan),
        Next::Remove => {
            remove(seen, &mut plan);
            hurry(seen, &mut plan);
        }
        Next::Become(Transition::Count) => count(seen, &mut plan),
        Next::Become(change @ Transition::Retry) => {
            // Now, not later: whoever comes here next may give it up, and nobody may have tried.
            create(seen, &mut plan);
            become_(seen, &change, &mut plan);
        }
        Next::Become(change) => become_(seen, &change, &mut plan),
    }
    plan
}

fn facts(seen: &Seen, plan: &mut Plan) -> Facts {
    let Seen { wrapper, settings, now, tally, .. } = seen;
    let status = &wrapper.status;
    let priority = order::priority(wrapper, settings, *now);
    let complete: Vec<bool> = seen.items.iter().filter_map(|it| it.complete).collect();
    let leaving = state::leaving(wrapper);
    let mut counted = status.clone();
    tally.write(&mut counted);
    counted.message = tally.remark();
    Facts {
        state: status.state.clone(),
        step: status.queue_state.clone(),
        can_run: status.can_run,
        is_going: wrapper.metadata.is_going(),
        is_fresh: is_fresh(seen, plan),
        leaving,
        items: items(seen),
        has_objects: !seen.objects.is_empty(),
        has_old_objects: has_old_objects(seen, plan),
        has_pods: has_pods(seen),
        is_complete: !complete.is_empty() && complete.iter().all(|it| *it),
        running: tally.running,
        pending: tally.pending,
        due: due(seen, plan),
        is_miscounted: counted != *status,
        is_reprioritised: !settings.dynamic_priority
            && status.system_priority.total_cmp(&priority).is_ne(),
        barred: barred(wrapper, seen.kept_back.as_ref()),
    }
}

/// Whether an AppWrapper came so lately that the decision about the whole queue may say in one write that it
/// was seen and what becomes of it; and when it will be told to wait in any case.
fn is_fresh(seen: &Seen, plan: &mut Plan) -> bool {
    match fresh_until(&seen.wrapper).filter(|it| *it > seen.now) {
        Some(until) => {
            plan.look_at(until, seen.now);
            true
        }
        None => false,
    }
}

/// Until when it is left to the decision about the whole queue to say anything about a new AppWrapper.
pub(crate) fn fresh_until(wrapper: &AppWrapper) -> Option<Timestamp> {
    let made = wrapper.metadata.creation_timestamp.filter(|_| wrapper.is_new())?;
    made.checked_add(FRESH).ok()
}

/// Whether objects have been there for so long that they came late, if the AppWrapper should have none; and
/// when they will have been.
fn has_old_objects(seen: &Seen, plan: &mut Plan) -> bool {
    if seen.wrapper.status.can_run {
        return false;
    }
    let made = seen.objects.iter().filter_map(|(_, meta)| meta.creation_timestamp).min();
    let late = made.and_then(|it| it.checked_add(LATE).ok());
    match late {
        Some(when) if when > seen.now => {
            plan.look_at(when, seen.now);
            false
        }
        Some(_) => true,
        None => !seen.objects.is_empty(),
    }
}

/// What is said of one that cannot be made.
fn failure(wrapper: &AppWrapper, why: &dyn std::fmt::Display) -> String {
    format!("{} creation failure: {why}", wrapper.metadata.key())
}

/// How far the items are.
fn items(seen: &Seen) -> Items {
    let no = |why: &str| Items::Impossible(failure(&seen.wrapper, &why));
    for item in &seen.items {
        match &item.made {
            Err(fault) => return no(&fault.to_string()),
            Ok(made) if item.standing == Standing::Foreign => {
                let (resource, name) = (made.resource.to_string(), made.key.name().to_owned());
                return no(&Fault::Taken { resource, name }.to_string());
            }
            Ok(_) => {}
        }
    }
    let missing = seen.items.iter().filter(|it| it.standing != Standing::Ours);
    let missing: Vec<&Made> = missing.filter_map(|it| it.made.as_ref().ok()).collect();
    if missing.is_empty() {
        return Items::Present;
    }
    if let Some(why) = &seen.kept_back {
        return no(&why.to_string());
    }
    let refused = seen.refused.iter().find(|it| it.verb == "create");
    if let Some(refused) = refused {
        return no(&refused.refusal.message);
    }
    match condition::newest(&seen.wrapper.status, kind::HEAD_OF_LINE) {
        Some(passed) => {
            let updated = passed.last_update_micro_time.as_ref().map(|it| it.0);
            let until = updated.and_then(|it| it.checked_add(TRIED).ok());
            match until.is_none_or(|until| seen.now < until) {
                true => Items::Missing,
                false if updated == condition::since(passed) => Items::Late,
                false => {
                    let names =
                        missing.iter().map(|it| format!("{} \"{}\"", it.resource, it.key.name()));
                    let names: Vec<String> = names.collect();
                    no(&format!("{} could not be created in time", names.join(", ")))
                }
            }
        }
        None => Items::Missing,
    }
}

/// Makes the items that are missing.
fn create(seen: &Seen, plan: &mut Plan) {
    let wrapper = &seen.wrapper;
    for item in &seen.items {
        let Ok(made) = &item.made else { continue };
        match item.standing {
            Standing::Absent => {
                plan.steps.extend(made_for(wrapper, made, seen.settings.user_access));
            }
            Standing::Going => plan.held.push(Held {
                about: wrapper.about(),
                reason: "ItemGoing".into(),
                message: format!(
                    "{} {} is made when the former one is gone",
                    made.resource, made.key
                ),
                until: None,
            }),
            Standing::Ours | Standing::Foreign => {}
        }
    }
    // However often it was in vain: the time in which it must succeed is short.
    plan.look_within(AGAIN);
}

/// Writes counts, but not too often.
fn count(seen: &Seen, plan: &mut Plan) {
    let written = condition::last_written(&seen.wrapper.status);
    match written.and_then(|it| it.checked_add(COUNTS).ok()).filter(|it| *it > seen.now) {
        Some(when) => plan.look_at(when, seen.now),
        None => become_(seen, &Transition::Count, plan),
    }
}

fn become_(seen: &Seen, change: &Transition, plan: &mut Plan) {
    let wrapper = &seen.wrapper;
    let priority = order::priority(wrapper, &seen.settings, seen.now);
    let next = change.apply(wrapper, &seen.tally, priority, seen.now);
    let step = status::write(wrapper, change, &next, note(seen, change, &next));
    plan.steps.extend(step.map(|step| match remark(seen, &next) {
        Some(remark) => step.done(remark),
        None => step,
    }));
}
