//! Reconciles one AppWrapper: creates its items, counts its pods, and completes or evicts it.

use std::sync::Arc;
use std::time::Duration;

use gantry_pods::view::{Node, Pod};
use gantry_reconcile::world::{AnyStore as _, IndexValue, RefusedWrite};
use gantry_reconcile::{
    Change, Controller, FactChange, FactKind, Held, Key, Kind, Meta, Plan, Resource, View as _,
    World,
};
use jiff::Timestamp;

use crate::access::{self, AccessReview, AuthorizationProblem};
use crate::app_wrapper::AppWrapper;
use crate::charge;
use crate::completion;
use crate::condition::{self, kind};
use crate::item_objects::{self, APP_WRAPPER_LABEL, ItemError, ItemObject};
use crate::kind_discovery::{self, ServedKind};
use crate::order;
use crate::pod_counts::PodCounts;
use crate::quota::Subtree;
use crate::settings::{LiveSettings, Settings};
use crate::state::{self, AppWrapperFacts, ItemsState, NextAction, Transition};
use crate::status;
use crate::unreachable;
use crate::wrapped::{ObjectCondition, WrappedObject};

mod authorization;
mod events;
mod eviction;
mod preconditions;
mod removal;

use authorization::{authorization_problem, create_step, denial_message, needing_access_review};
use events::{pod_event, transition_event};
use eviction::eviction_due;
use preconditions::{add_quota_labels, await_access, await_kind_discovery};
use removal::{collect_orphans, force_overdue, has_pods, remove_objects, wait_for_pods};

/// How long item creation is retried before the status says so; after as long again it is given up.
const ITEM_CREATION_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it takes at most until items are retried.
const ITEM_RETRY_DELAY: Duration = Duration::from_secs(5);
/// How long pods are waited for that are not being deleted, when an AppWrapper is evicted. Pods
/// that a user labelled would never go.
const POD_REMOVAL_TIMEOUT: Duration = Duration::from_secs(300);
/// How old an object may be before it counts as one that was created late. A former leader may
/// observe it before the update that admitted its AppWrapper.
const LATE_OBJECT_AGE: Duration = Duration::from_secs(30);
/// How long the admission cycle has to write the first status of a new AppWrapper together with its
/// outcome. That takes milliseconds, unless the request rate limit is too low for the load.
const FIRST_STATUS_DELAY: Duration = Duration::from_secs(20);
/// How often pod counts are written at most.
const COUNT_WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Reconciles AppWrappers, one at a time.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    settings: LiveSettings,
}

impl Progress {
    /// The name of the controller.
    pub const NAME: &str = "queue-progress";

    /// Creates the controller with these settings.
    #[must_use]
    pub fn new(settings: LiveSettings) -> Self {
        Self { settings }
    }
}

/// Returns the index value of the pods of an AppWrapper.
#[must_use]
pub fn pods_tag(wrapper: &Key) -> IndexValue {
    Pod::app_wrapper_tag(wrapper.namespace(), wrapper.name())
}

impl Controller for Progress {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn kinds(&self) -> Vec<Kind> {
        let own = [Kind::of::<AppWrapper>(), Kind::of::<Pod>(), Kind::of::<Node>()];
        let quota = self.settings.get().quota.then(Kind::of::<Subtree>);
        // Wrapped kinds are watched once they are discovered.
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
            if Subtree::is_status_change(change) {
                return Vec::new();
            }
            let wrappers = world.store::<AppWrapper>().list();
            let queued = wrappers.iter().filter(|it| it.is_queued());
            return queued.map(|it| it.metadata.key()).collect();
        }
        if change.is::<Node>() {
            return unreachable::affected_wrappers(world, change);
        }
        let metas = change.both::<Pod>().map(|it| &it.metadata);
        let metas = metas.chain(change.both::<WrappedObject>().map(|it| &it.metadata));
        let mut names: Vec<&str> = Vec::new();
        for meta in metas {
            let owner = meta.controller().filter(|it| it.kind == AppWrapper::RESOURCE.kind);
            names.extend(owner.map(|it| it.name.as_str()));
            names.extend(meta.labels.get(APP_WRAPPER_LABEL).map(String::as_str));
        }
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| change.key.in_same_namespace(name)).collect()
    }

    fn enqueue_for_fact(&self, world: &World, change: &FactChange) -> Vec<Key> {
        if let Some(change) = change.of::<ServedKind>() {
            return kind_discovery::affected_wrappers(world, &change);
        }
        if let Some(change) = change.of::<AccessReview>() {
            return access::affected_wrappers(world, &change, self.settings.get().user_access);
        }
        let recording = change.of::<access::AuthorRecording>();
        // The start of author recording affects every AppWrapper whose author is checked.
        if recording.is_some_and(|it| it.is_significant()) {
            needing_access_review(world)
        } else {
            Vec::new()
        }
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let wrapper = world.store::<AppWrapper>().get(key);
        let Some(wrapper) = wrapper.filter(|it| !it.metadata.is_terminating()) else {
            return collect_orphans(world, key, now);
        };
        if self.settings.get().quota && wrapper.is_queued() {
            let labels = charge::missing_labels(world, &wrapper);
            if !labels.is_empty() {
                return add_quota_labels(&wrapper, &labels);
            }
        }
        let items = items_of(world, &wrapper);
        let mut faults = items.iter().filter_map(|it| it.object.as_ref().err());
        let open = faults.find(|it| matches!(it, ItemError::KindUnresolved { .. }));
        if let Some(open) = open.filter(|_| wrapper.status.can_run) {
            return await_kind_discovery(&wrapper, open);
        }
        let access = self.settings.get().user_access;
        let kept_back = access
            .is_checked()
            .then(|| authorization_problem(world, &wrapper, &items, access, now))
            .flatten();
        if let Some(open) =
            kept_back.as_ref().filter(|it| wrapper.status.can_run && it.is_pending())
        {
            return await_access(&wrapper, open);
        }
        let pods = world.store::<Pod>().by_index(&pods_tag(key));
        let seen = ObservedAppWrapper {
            items,
            objects: objects_of(world, &wrapper),
            pod_counts: PodCounts::of(world, &pods)
                .compare_with_admitted(&wrapper, &self.settings.get()),
            pods,
            refused: world.refused_writes(Self::NAME, key),
            settings: self.settings.get(),
            authorization_problem: kept_back,
            now,
            wrapper,
        };
        plan(&seen)
    }
}

/// Returns the items of an AppWrapper, and the objects observed for them.
pub(crate) fn items_of(world: &World, wrapper: &AppWrapper) -> Vec<ObservedItem> {
    let items = wrapper.items().iter().enumerate();
    items
        .map(|(at, item)| {
            let made = item_objects::build_item(world, wrapper, at, item);
            let found = made.as_ref().ok().and_then(|it| find_object(world, &it.resource, &it.key));
            let standing = match &found {
                None => ItemPresence::Absent,
                Some((meta, _)) if !meta.is_controlled_by(&wrapper.metadata.uid) => {
                    ItemPresence::Foreign
                }
                Some((meta, _)) if meta.is_terminating() => ItemPresence::Deleting,
                Some(_) => ItemPresence::Owned,
            };
            let complete = (!item.completion.is_empty()).then(|| {
                let conditions = found.as_ref().map(|(_, conditions)| conditions.as_slice());
                standing == ItemPresence::Owned
                    && completion::is_complete(&item.completion, conditions.unwrap_or_default())
            });
            ObservedItem { object: made, presence: standing, complete }
        })
        .collect()
}

/// Returns all objects that belong to an AppWrapper, whether they are or were items of it.
fn objects_of(world: &World, wrapper: &AppWrapper) -> Vec<(Resource, Meta)> {
    let uid = &wrapper.metadata.uid;
    let pods = world.store::<Pod>().owned_by(uid);
    let mut objects: Vec<(Resource, Meta)> =
        pods.iter().map(|it| (Pod::RESOURCE, it.metadata.clone())).collect();
    for store in world.stores_with_view::<WrappedObject>() {
        let owned = store.owned_by(uid);
        objects.extend(owned.iter().map(|it| (store.resource(), it.metadata.clone())));
    }
    objects
}

/// Returns an object of a kind that may be wrapped.
pub(crate) fn find_object(
    world: &World,
    resource: &Resource,
    key: &Key,
) -> Option<(Meta, Vec<ObjectCondition>)> {
    if *resource == Pod::RESOURCE {
        let pod = world.store::<Pod>().get(key)?;
        let truth = |it: &gantry_pods::view::Condition| ObjectCondition {
            kind: it.kind.clone(),
            status: it.status.as_str().to_owned(),
        };
        return Some((pod.metadata.clone(), pod.status.conditions.iter().map(truth).collect()));
    }
    let object = world.store_for::<WrappedObject>(resource)?.get(key)?;
    Some((object.metadata.clone(), object.conditions.clone()))
}

/// The observed state that the plan for one AppWrapper depends on.
#[derive(Clone, Debug)]
struct ObservedAppWrapper {
    wrapper: Arc<AppWrapper>,
    items: Vec<ObservedItem>,
    /// Objects that belong to it.
    objects: Vec<(Resource, Meta)>,
    pods: Vec<Arc<Pod>>,
    /// The counts of its pods.
    pod_counts: PodCounts,
    /// The writes that the server refused last time.
    refused: Vec<RefusedWrite>,
    settings: Settings,
    /// Why its author may not create it, where that matters.
    authorization_problem: Option<AuthorizationProblem>,
    now: Timestamp,
}

/// An item, and the object observed for it.
#[derive(Clone, Debug)]
pub(crate) struct ObservedItem {
    pub(crate) object: Result<ItemObject, ItemError>,
    pub(crate) presence: ItemPresence,
    /// Whether it is complete, where it has a completion condition.
    pub(crate) complete: Option<bool>,
}

/// What is observed under the name of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemPresence {
    Absent,
    Owned,
    /// It is ours, and being deleted: the name is not free yet.
    Deleting,
    Foreign,
}

fn plan(seen: &ObservedAppWrapper) -> Plan {
    let mut plan = Plan::default();
    let facts = facts(seen, &mut plan);
    match state::next_action(&facts) {
        NextAction::Idle => {
            if facts.removal.is_some() {
                wait_for_pods(seen, &mut plan);
                force_overdue(seen, &mut plan);
            }
        }
        NextAction::CreateItems => create_items(seen, &mut plan),
        NextAction::RemoveObjects => {
            remove_objects(seen, &mut plan);
            force_overdue(seen, &mut plan);
        }
        NextAction::UpdateStatus(Transition::UpdateCounts) => write_counts(seen, &mut plan),
        NextAction::UpdateStatus(change @ Transition::Retry) => {
            // At once: the next pass may give up, and without this no attempt may have been made.
            create_items(seen, &mut plan);
            transition(seen, &change, &mut plan);
        }
        NextAction::UpdateStatus(change) => transition(seen, &change, &mut plan),
    }
    plan
}

fn facts(seen: &ObservedAppWrapper, plan: &mut Plan) -> AppWrapperFacts {
    let ObservedAppWrapper { wrapper, settings, now, pod_counts: tally, .. } = seen;
    let status = &wrapper.status;
    let priority = order::priority(wrapper, settings, *now);
    let complete: Vec<bool> = seen.items.iter().filter_map(|it| it.complete).collect();
    let leaving = state::removal_outcome(wrapper);
    let mut counted = status.clone();
    tally.write_to(&mut counted);
    counted.message = tally.message();
    AppWrapperFacts {
        state: status.state.clone(),
        step: status.queue_state.clone(),
        can_run: status.can_run,
        is_deleting: wrapper.metadata.is_terminating(),
        awaits_first_cycle: awaits_first_cycle(seen, plan),
        removal: leaving,
        items: items_state(seen),
        has_objects: !seen.objects.is_empty(),
        has_old_objects: has_old_objects(seen, plan),
        has_pods: has_pods(seen),
        is_complete: !complete.is_empty() && complete.iter().all(|it| *it),
        running: tally.running,
        pending: tally.pending,
        eviction: eviction_due(seen, plan),
        counts_changed: counted != *status,
        priority_changed: !settings.dynamic_priority
            && status.system_priority.total_cmp(&priority).is_ne(),
        denied: denial_message(wrapper, seen.authorization_problem.as_ref()),
    }
}

/// Returns whether an AppWrapper is so new that the admission cycle may write its first status
/// together with its outcome; requeues for when it is reported as queued in any case.
fn awaits_first_cycle(seen: &ObservedAppWrapper, plan: &mut Plan) -> bool {
    match first_status_deadline(&seen.wrapper).filter(|it| *it > seen.now) {
        Some(until) => {
            plan.requeue_at(until, seen.now);
            true
        }
        None => false,
    }
}

/// Returns until when the first status of a new AppWrapper is left to the admission cycle.
pub(crate) fn first_status_deadline(wrapper: &AppWrapper) -> Option<Timestamp> {
    let made = wrapper.metadata.creation_timestamp.filter(|_| wrapper.is_new())?;
    made.checked_add(FIRST_STATUS_DELAY).ok()
}

/// Returns whether objects have existed for so long that they were created late, if the AppWrapper
/// should have none; requeues for when they will have.
fn has_old_objects(seen: &ObservedAppWrapper, plan: &mut Plan) -> bool {
    if seen.wrapper.status.can_run {
        return false;
    }
    let made = seen.objects.iter().filter_map(|(_, meta)| meta.creation_timestamp).min();
    let late = made.and_then(|it| it.checked_add(LATE_OBJECT_AGE).ok());
    match late {
        Some(when) if when > seen.now => {
            plan.requeue_at(when, seen.now);
            false
        }
        Some(_) => true,
        None => !seen.objects.is_empty(),
    }
}

/// Returns the message of a creation failure.
fn failure(wrapper: &AppWrapper, why: &dyn std::fmt::Display) -> String {
    format!("{} creation failure: {why}", wrapper.metadata.key())
}

/// Returns the state of the items.
fn items_state(seen: &ObservedAppWrapper) -> ItemsState {
    let no = |why: &str| ItemsState::Impossible(failure(&seen.wrapper, &why));
    for item in &seen.items {
        match &item.object {
            Err(fault) => return no(&fault.to_string()),
            Ok(made) if item.presence == ItemPresence::Foreign => {
                let (resource, name) = (made.resource.to_string(), made.key.name().to_owned());
                return no(&ItemError::AlreadyExists { resource, name }.to_string());
            }
            Ok(_) => {}
        }
    }
    let missing = seen.items.iter().filter(|it| it.presence != ItemPresence::Owned);
    let missing: Vec<&ItemObject> = missing.filter_map(|it| it.object.as_ref().ok()).collect();
    if missing.is_empty() {
        return ItemsState::Present;
    }
    if let Some(why) = &seen.authorization_problem {
        return no(&why.to_string());
    }
    let refused = seen.refused.iter().find(|it| it.verb == "create");
    if let Some(refused) = refused {
        return no(&refused.refusal.message);
    }
    match condition::newest(&seen.wrapper.status, kind::HEAD_OF_LINE) {
        Some(passed) => {
            let updated = passed.last_update_micro_time.as_ref().map(|it| it.0);
            let until = updated.and_then(|it| it.checked_add(ITEM_CREATION_TIMEOUT).ok());
            match until.is_none_or(|until| seen.now < until) {
                true => ItemsState::Missing,
                false if updated == condition::since(passed) => ItemsState::Late,
                false => {
                    let names =
                        missing.iter().map(|it| format!("{} \"{}\"", it.resource, it.key.name()));
                    let names: Vec<String> = names.collect();
                    no(&format!("{} could not be created in time", names.join(", ")))
                }
            }
        }
        None => ItemsState::Missing,
    }
}

/// Creates the missing items.
fn create_items(seen: &ObservedAppWrapper, plan: &mut Plan) {
    let wrapper = &seen.wrapper;
    for item in &seen.items {
        let Ok(made) = &item.object else { continue };
        match item.presence {
            ItemPresence::Absent => {
                plan.steps.extend(create_step(wrapper, made, seen.settings.user_access));
            }
            ItemPresence::Deleting => plan.held.push(Held {
                about: wrapper.reference(),
                reason: "ItemGoing".into(),
                message: format!(
                    "{} {} is created when the former one is gone",
                    made.resource, made.key
                ),
                until: None,
            }),
            ItemPresence::Owned | ItemPresence::Foreign => {}
        }
    }
    // However many attempts failed: the time in which one must succeed is short.
    plan.requeue_after(ITEM_RETRY_DELAY);
}

/// Writes counts, but not too often.
fn write_counts(seen: &ObservedAppWrapper, plan: &mut Plan) {
    let written = condition::last_written(&seen.wrapper.status);
    match written
        .and_then(|it| it.checked_add(COUNT_WRITE_INTERVAL).ok())
        .filter(|it| *it > seen.now)
    {
        Some(when) => plan.requeue_at(when, seen.now),
        None => transition(seen, &Transition::UpdateCounts, plan),
    }
}

fn transition(seen: &ObservedAppWrapper, change: &Transition, plan: &mut Plan) {
    let wrapper = &seen.wrapper;
    let priority = order::priority(wrapper, &seen.settings, seen.now);
    let next = change.apply(wrapper, &seen.pod_counts, priority, seen.now);
    let step = status::write_status(wrapper, change, &next, transition_event(seen, change, &next));
    plan.steps.extend(step.map(|step| match pod_event(seen, &next) {
        Some(remark) => step.on_success(remark),
        None => step,
    }));
}
