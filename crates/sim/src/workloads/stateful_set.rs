//! Stateful sets: pods with a number, a name and volumes of their own.
//!
//! A pod comes after those before it and goes before them, one at a time unless the set says
//! otherwise. Its name is its place, so no two pods are ever at the same one.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_reconcile::{Change, Controller, Held, Key, Kind, Plan, Reference, View, World};
use jiff::Timestamp;
use serde_json::Value;

use super::claim::Claim;
use super::revisions::{self, Present, Revisions};
use super::template;
use crate::view::{ControllerRevision, PersistentVolumeClaim, Pod, StatefulSet};

mod claims;
mod order;
mod pods;
mod status;

/// The label of a revision that carries its hash.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// The label of a pod that names its revision.
const REVISION_LABEL: &str = "controller-revision-hash";

/// The controller of stateful sets.
#[derive(Clone, Copy, Debug)]
pub struct StatefulSets;

impl Controller for StatefulSets {
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
                    keys.push(change.key.beside(&owner.name));
                }
                Some(_) => {}
                // Only the set whose name the pod's begins with may want it.
                None => keys.extend(
                    pods::place(&pod.metadata.name)
                        .map(|(name, _)| name)
                        .map(|name| change.key.beside(name)),
                ),
            }
        }
        for revision in change.both::<ControllerRevision>() {
            let owner = revision.metadata.controller();
            let owner = owner.filter(|it| it.kind == StatefulSet::RESOURCE.kind);
            keys.extend(owner.map(|it| change.key.beside(&it.name)));
        }
        if change.is::<PersistentVolumeClaim>() {
            // A claim's name ends with its pod's.
            let name = change.key.name();
            let tails = name.match_indices('-').map(|(at, _)| &name[at + 1..]);
            keys.extend(tails.filter_map(pods::place).map(|(set, _)| change.key.beside(set)));
        }
        keys.retain(|key| world.shelf::<StatefulSet>().get(key).is_some());
        keys.sort();
        keys.dedup();
        keys
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        observe(world, key, now).map(|seen| plan(&seen)).unwrap_or_default()
    }
}

/// What one decision about a stateful set may use.
#[derive(Debug)]
struct Seen {
    now: Timestamp,
    set: Arc<StatefulSet>,
    pods: Claim<Pod>,
    revisions: Revisions,
    /// What stands for the template.
    hash: String,
    /// Whether a revision is there already under the name the next one would have.
    name_taken: bool,
    /// The claims of its pods that are there.
    claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
}

impl Seen {
    /// Whether a pod has been ready for long enough; `Err` says from when on.
    fn availability(&self, pod: &Pod) -> Option<Result<Timestamp, Timestamp>> {
        pod.available_since(self.set.spec.min_ready_seconds, self.now)
    }

    /// Whether a pod is available and stays.
    fn is_available(&self, pod: &Pod) -> bool {
        !pod.metadata.is_going() && matches!(self.availability(pod), Some(Ok(_)))
    }

    fn about(&self) -> Reference {
        Reference::to(&StatefulSet::RESOURCE, &self.set.metadata)
    }
}

/// The templates a set is between: the one rolled out last, and the one it has now.
#[derive(Debug)]
struct Templates<'a> {
    current: (&'a str, Value),
    update: (&'a str, Value),
}

fn observe(world: &World, key: &Key, now: Timestamp) -> Option<Seen> {
    let set = world.shelf::<StatefulSet>().get(key)?;
    let meta = &set.metadata;
    let selector = &set.spec.selector.selector;
    let shelf = world.shelf::<Pod>();
    let means = |pod: &Pod| {
        let mine = pods::place(&pod.metadata.name).is_some_and(|(name, _)| name == meta.name);
        mine && !selector.is_empty() && selector.matches(&pod.metadata.labels)
    };
    let orphans = shelf.tagged(&Pod::without_owner(key.namespace()));
    let pods = Claim::of::<StatefulSet>(meta, means, shelf.owned_by(&meta.uid), orphans);
    let revisions = Revisions::of::<StatefulSet>(world, meta, selector);
    let collisions = set.status.collision_count.unwrap_or_default();
    let hash = template::hash(&set.spec.template, Some(collisions));
    let taken = key.beside(&revisions::name(meta, &hash));
    let name_taken = world.shelf::<ControllerRevision>().get(&taken).is_some();
    let mut seen = Seen { now, set, pods, revisions, hash, name_taken, claims: BTreeMap::new() };
    let shelf = world.shelf::<PersistentVolumeClaim>();
    let present = seen.pods.mine.iter().filter_map(|it| pods::ordinal(it));
    let ordinals: Vec<i64> = present.chain(pods::range(&seen.set)).collect();
    for name in ordinals.iter().flat_map(|ordinal| claims::names(&seen.set, *ordinal)) {
        if let Some(claim) = shelf.get(&key.beside(&name)) {
            seen.claims.insert(name, claim);
        }
    }
    Some(seen)
}

fn plan(seen: &Seen) -> Plan {
    let mut plan = Plan::default();
    let set = &seen.set;
    if set.spec.selector.selector.is_empty() {
        let message = "This StatefulSet is selecting all pods. A non-empty selector is required.";
        hold(seen, &mut plan, "SelectingAll", message.to_owned());
        return plan;
    }
    let claims = seen.pods.steps.iter().chain(&seen.revisions.claim.steps);
    plan.steps.extend(claims.cloned());
    if !plan.steps.is_empty() {
        // What is counted changes with these, so they come first and alone.
        return plan;
    }
    let update = match seen.revisions.present(&set.spec.template) {
        // Everything else refers to the revision, so it comes first and alone.
        Present::Earlier(revision) if !set.metadata.is_going() => {
            plan.write(seen.revisions.renew(revision));
            return plan;
        }
        Present::Latest(revision) | Present::Earlier(revision) => revision,
        Present::None => {
            if set.metadata.is_going() {
                return plan;
            }
            if seen.name_taken {
                plan.write(status::collided(set));
                return plan;
            }
            plan.write(revisions::make::<StatefulSet>(
                &set.metadata,
                &set.spec.template,
                (HASH_LABEL, &seen.hash),
                seen.revisions.next(),
            ));
            return plan;
        }
    };
    let current =
        seen.revisions.all().iter().find(|it| it.metadata.name == set.status.current_revision);
    let current = current.unwrap_or(update);
    let templates = Templates {
        current: (&current.metadata.name, revisions::restored(current)),
        update: (&update.metadata.name, revisions::restored(update)),
    };
    if !set.metadata.is_going() {
        order::step(seen, &templates, &mut plan);
    }
    status::report(seen, &templates, &mut plan);
    let used = |it: &ControllerRevision| {
        let name = it.metadata.name.as_str();
        name == templates.current.0
            || name == templates.update.0
            || seen.pods.mine.iter().any(|pod| pods::revision(pod) == name)
    };
    seen.revisions.forget(set.spec.revision_history_limit, used, &mut plan);
    plan
}

/// Says what is not done.
fn hold(seen: &Seen, plan: &mut Plan, reason: &'static str, message: String) {
    plan.hold(Held { about: seen.about(), reason: reason.into(), message, until: None }, seen.now);
}

#[cfg(test)]
mod tests;
