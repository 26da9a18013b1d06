//! StatefulSets: pods with an ordinal, a stable name and their own volumes.
//!
//! A pod is created after those before it and deleted before them, one at a time unless the set is
//! parallel. Its name follows from its ordinal, so no two pods ever have the same one.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::{Change, Controller, Held, Key, Kind, ObjectReference, Plan, View, World};
use jiff::Timestamp;
use serde_json::Value;

use super::claim::ClaimedObjects;
use super::revisions::{self, CurrentRevision, Revisions};
use super::template;
use crate::view::{ControllerRevision, PersistentVolumeClaim, Pod, StatefulSet};

mod claims;
mod order;
mod pods;
mod status;

/// The label of a revision with its hash.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// The label of a pod with the name of its revision.
const REVISION_LABEL: &str = "controller-revision-hash";

/// The StatefulSet controller.
#[derive(Clone, Copy, Debug)]
pub struct StatefulSetController;

impl Controller for StatefulSetController {
    fn name(&self) -> &'static str {
        "statefulset"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<StatefulSet>(),
            Kind::of::<Pod>(),
            Kind::of::<ControllerRevision>(),
            Kind::of::<PersistentVolumeClaim>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<StatefulSet>() {
            return vec![change.key.clone()];
        }
        let mut keys = Vec::new();
        for pod in change.both::<Pod>() {
            match pod.metadata.controller() {
                Some(owner) if owner.kind == StatefulSet::RESOURCE.kind => {
                    keys.push(change.key.in_same_namespace(&owner.name));
                }
                Some(_) => {}
                // Only the set whose name is the prefix of the pod's may adopt it.
                None => keys.extend(
                    pods::parent_and_ordinal(&pod.metadata.name)
                        .map(|(name, _)| name)
                        .map(|name| change.key.in_same_namespace(name)),
                ),
            }
        }
        for revision in change.both::<ControllerRevision>() {
            let owner = revision.metadata.controller();
            let owner = owner.filter(|it| it.kind == StatefulSet::RESOURCE.kind);
            keys.extend(owner.map(|it| change.key.in_same_namespace(&it.name)));
        }
        if change.is::<PersistentVolumeClaim>() {
            // A claim's name ends with its pod's.
            let name = change.key.name();
            let tails = name.match_indices('-').map(|(at, _)| &name[at + 1..]);
            keys.extend(
                tails
                    .filter_map(pods::parent_and_ordinal)
                    .map(|(set, _)| change.key.in_same_namespace(set)),
            );
        }
        keys.retain(|key| world.store::<StatefulSet>().get(key).is_some());
        keys.sort();
        keys.dedup();
        keys
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        observe(world, key, now).map(|observed| plan(&observed)).unwrap_or_default()
    }
}

/// The inputs of one decision about a stateful set.
#[derive(Debug)]
struct ObservedStatefulSet {
    now: Timestamp,
    set: Arc<StatefulSet>,
    pods: ClaimedObjects<Pod>,
    revisions: Revisions,
    /// The hash of the template.
    hash: String,
    /// Whether another revision has the name the next one would have.
    name_taken: bool,
    /// The existing claims of its pods.
    claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
}

impl ObservedStatefulSet {
    /// Returns since when a pod is available; `Err` has from when on it will be.
    fn availability(&self, pod: &Pod) -> Option<Result<Timestamp, Timestamp>> {
        pod.available_since(self.set.spec.min_ready_seconds, self.now)
    }

    /// Returns whether a pod is available and not terminating.
    fn is_available(&self, pod: &Pod) -> bool {
        !pod.metadata.is_terminating() && matches!(self.availability(pod), Some(Ok(_)))
    }

    fn about(&self) -> ObjectReference {
        ObjectReference::to(&StatefulSet::RESOURCE, &self.set.metadata)
    }
}

/// The templates of a rollout: the one rolled out last, and the current one.
#[derive(Debug)]
struct Templates<'a> {
    current: (&'a str, Value),
    update: (&'a str, Value),
}

fn observe(world: &World, key: &Key, now: Timestamp) -> Option<ObservedStatefulSet> {
    let set = world.store::<StatefulSet>().get(key)?;
    let meta = &set.metadata;
    let selector = &set.spec.selector.selector;
    let shelf = world.store::<Pod>();
    let means = |pod: &Pod| {
        let mine =
            pods::parent_and_ordinal(&pod.metadata.name).is_some_and(|(name, _)| name == meta.name);
        mine && !selector.is_empty() && selector.matches(&pod.metadata.labels)
    };
    let orphans = shelf.by_index(&Pod::unowned_tag(key.namespace()));
    let pods = ClaimedObjects::of::<StatefulSet>(meta, means, shelf.owned_by(&meta.uid), orphans);
    let revisions = Revisions::of::<StatefulSet>(world, meta, selector);
    let collisions = set.status.collision_count.unwrap_or_default();
    let hash = template::hash(&set.spec.template, Some(collisions));
    let taken = key.in_same_namespace(&revisions::revision_name(meta, &hash));
    let name_taken = world.store::<ControllerRevision>().get(&taken).is_some();
    let mut observed = ObservedStatefulSet {
        now,
        set,
        pods,
        revisions,
        hash,
        name_taken,
        claims: BTreeMap::new(),
    };
    let shelf = world.store::<PersistentVolumeClaim>();
    let present = observed.pods.owned.iter().filter_map(|it| pods::ordinal(it));
    let ordinals: Vec<i64> = present.chain(pods::ordinal_range(&observed.set)).collect();
    for name in ordinals.iter().flat_map(|ordinal| claims::claim_names(&observed.set, *ordinal)) {
        if let Some(claim) = shelf.get(&key.in_same_namespace(&name)) {
            observed.claims.insert(name, claim);
        }
    }
    Some(observed)
}

fn plan(observed: &ObservedStatefulSet) -> Plan {
    let mut plan = Plan::default();
    let set = &observed.set;
    if set.spec.selector.selector.is_empty() {
        let message = "This StatefulSet is selecting all pods. A non-empty selector is required.";
        hold(observed, &mut plan, "SelectingAll", message.to_owned());
        return plan;
    }
    let claims = observed.pods.steps.iter().chain(&observed.revisions.claim.steps);
    plan.steps.extend(claims.cloned());
    if !plan.steps.is_empty() {
        // Adoptions and releases change the counts, so they come first and alone.
        return plan;
    }
    let update = match observed.revisions.current(&set.spec.template) {
        // Everything else refers to the revision, so it comes first and alone.
        CurrentRevision::Earlier(revision) if !set.metadata.is_terminating() => {
            plan.write(observed.revisions.promote(revision));
            return plan;
        }
        CurrentRevision::Latest(revision) | CurrentRevision::Earlier(revision) => revision,
        CurrentRevision::None => {
            if set.metadata.is_terminating() {
                return plan;
            }
            if observed.name_taken {
                plan.write(status::collision_patch(set));
                return plan;
            }
            plan.write(revisions::create_revision::<StatefulSet>(
                &set.metadata,
                &set.spec.template,
                (HASH_LABEL, &observed.hash),
                observed.revisions.next_revision(),
            ));
            return plan;
        }
    };
    let current =
        observed.revisions.all().iter().find(|it| it.metadata.name == set.status.current_revision);
    let current = current.unwrap_or(update);
    let templates = Templates {
        current: (&current.metadata.name, revisions::restored_template(current)),
        update: (&update.metadata.name, revisions::restored_template(update)),
    };
    if !set.metadata.is_terminating() {
        order::step(observed, &templates, &mut plan);
    }
    status::write_status(observed, &templates, &mut plan);
    let used = |it: &ControllerRevision| {
        let name = it.metadata.name.as_str();
        name == templates.current.0
            || name == templates.update.0
            || observed.pods.owned.iter().any(|pod| pods::revision(pod) == name)
    };
    observed.revisions.delete_excess(set.spec.revision_history_limit, used, &mut plan);
    plan
}

/// Adds a held reason about what is not done.
fn hold(observed: &ObservedStatefulSet, plan: &mut Plan, reason: &'static str, message: String) {
    plan.hold(
        Held { about: observed.about(), reason: reason.into(), message, until: None },
        observed.now,
    );
}

#[cfg(test)]
mod tests;
