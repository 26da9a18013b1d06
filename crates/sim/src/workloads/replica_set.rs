//! Replica sets and replication controllers: as many pods of one template as are wanted.
//!
//! A ReplicationController is a ReplicaSet whose selector has labels only. Both are decided about by
//! the same functions, over what [`PodSet`] shows of either.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::world::Refused;
use gantry_reconcile::{Change, Controller, Key, Kind, Plan, Reference, Step, View, World};
use jiff::Timestamp;

use super::births::Births;
use super::claim::Claim;
use super::{MOST, Told, template, told, writes};
use crate::view::{Pod, ReplicaSet, ReplicaSetSpec, ReplicaSetStatus, ReplicationController};

mod status;
mod victims;

/// The controller of replica sets.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaSets;

/// The controller of replication controllers.
#[derive(Clone, Copy, Debug)]
pub struct ReplicationControllers;

impl Controller for ReplicaSets {
    fn name(&self) -> &'static str {
        ReplicaSet::CONTROLLER
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ReplicaSet>(), Kind::of::<Pod>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        concerned::<ReplicaSet>(world, change)
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        observe::<ReplicaSet>(world, key, now).map(|seen| plan(&seen)).unwrap_or_default()
    }
}

impl Controller for ReplicationControllers {
    fn name(&self) -> &'static str {
        ReplicationController::CONTROLLER
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ReplicationController>(), Kind::of::<Pod>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        concerned::<ReplicationController>(world, change)
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let seen = observe::<ReplicationController>(world, key, now);
        seen.map(|seen| plan(&seen)).unwrap_or_default()
    }
}

/// An object that keeps a number of pods of one template.
trait PodSet: View {
    /// The name of the controller that decides about it.
    const CONTROLLER: &'static str;

    /// What is wanted.
    fn spec(&self) -> &ReplicaSetSpec;

    /// What it says about itself.
    fn status(&self) -> &ReplicaSetStatus;

    /// Whether its selector picks a pod.
    fn selects(&self, pod: &Pod) -> bool {
        self.spec().selector.as_ref().is_some_and(|it| it.matches(&pod.metadata.labels))
    }
}

impl PodSet for ReplicaSet {
    const CONTROLLER: &'static str = "replicaset";

    fn spec(&self) -> &ReplicaSetSpec {
        &self.spec
    }

    fn status(&self) -> &ReplicaSetStatus {
        &self.status
    }
}

impl PodSet for ReplicationController {
    const CONTROLLER: &'static str = "replicationcontroller";

    fn spec(&self) -> &ReplicaSetSpec {
        &self.spec
    }

    fn status(&self) -> &ReplicaSetStatus {
        &self.status
    }
}

/// The sets that a change concerns: the owner of a pod, or those that select one without an owner.
fn concerned<S: PodSet>(world: &World, change: &Change) -> Vec<Key> {
    if change.is::<S>() {
        return vec![change.key.clone()];
    }
    let mut keys = Vec::new();
    for pod in change.both::<Pod>() {
        match pod.metadata.controller() {
            Some(owner) if owner.kind == S::RESOURCE.kind => {
                keys.push(change.key.beside(&owner.name));
            }
            Some(_) => {}
            None => {
                let sets = world.shelf::<S>().within(&pod.metadata.namespace);
                let meant = sets.iter().filter(|set| set.selects(pod));
                keys.extend(meant.map(|set| set.meta().key()));
            }
        }
    }
    keys.dedup();
    keys
}

/// What one decision about a set may use.
#[derive(Debug)]
struct Seen<S> {
    now: Timestamp,
    set: Arc<S>,
    claim: Claim<Pod>,
    /// How many pods of this set and of the others of its owner each node has.
    crowds: BTreeMap<String, usize>,
    births: Births,
    /// What the server said no to when the last plan was carried out.
    refused: Vec<Refused>,
}

impl<S: PodSet> Seen<S> {
    /// How many pods are missing; below zero, how many are too many.
    fn missing(&self) -> i64 {
        let count = i64::try_from(self.claim.mine.len()).unwrap_or(i64::MAX);
        self.set.spec().replicas.saturating_sub(count)
    }

    /// Why pods that are missing are not made, or those that are too many not removed.
    fn refusal(&self) -> Option<&Refused> {
        let verb = match self.missing().cmp(&0) {
            Ordering::Equal => return None,
            Ordering::Greater => "create",
            Ordering::Less => "delete",
        };
        self.refused.iter().find(|it| it.verb == verb && it.resource == Pod::RESOURCE)
    }
}

/// Whether a pod counts: it is neither over nor going.
fn is_active(pod: &Pod) -> bool {
    !pod.is_over() && !pod.metadata.is_going()
}

fn observe<S: PodSet>(world: &World, key: &Key, now: Timestamp) -> Option<Seen<S>> {
    let set = world.shelf::<S>().get(key)?;
    let shelf = world.shelf::<Pod>();
    let active = |pods: Vec<Arc<Pod>>| pods.into_iter().filter(|it| is_active(it)).collect();
    let owned = active(shelf.owned_by(&set.meta().uid));
    let orphans = active(shelf.tagged(&Pod::without_owner(key.namespace())));
    let claim = Claim::of::<S>(set.meta(), |pod| set.selects(pod), owned, orphans);
    let refused = world.refused(S::CONTROLLER, key);
    let births = Births::default();
    let mut seen = Seen { now, set, claim, crowds: BTreeMap::new(), births, refused };
    let missing = seen.missing();
    if missing > 0 {
        let count = usize::try_from(missing).unwrap_or(MOST).min(MOST);
        seen.births = Births::of(world, seen.set.meta(), count);
    } else if missing < 0 {
        seen.crowds = crowds(world, &*seen.set);
    }
    Some(seen)
}

/// Active pods by node, of a set and of all sets with the same owner.
fn crowds<S: PodSet>(world: &World, set: &S) -> BTreeMap<String, usize> {
    let pods = world.shelf::<Pod>();
    let owner = set.meta().controller();
    let siblings = owner.map(|it| world.shelf::<S>().owned_by(&it.uid));
    let uids = match &siblings {
        Some(sets) => sets.iter().map(|it| &it.meta().uid).collect(),
        None => vec![&set.meta().uid],
    };
    let mut crowds = BTreeMap::new();
    for pod in uids.into_iter().flat_map(|uid| pods.owned_by(uid)).filter(|it| is_active(it)) {
        *crowds.entry(pod.spec.node_name.clone()).or_default() += 1;
    }
    crowds
}

fn plan<S: PodSet>(seen: &Seen<S>) -> Plan {
    let mut plan = Plan::default();
    if !seen.claim.steps.is_empty() {
        // What is counted changes with these, so they come first and alone.
        plan.steps.extend(seen.claim.steps.iter().take(MOST).cloned());
        return plan;
    }
    let counted = status::count(seen);
    if let Some(when) = counted.next_available {
        plan.look_at(when, seen.now);
    }
    let outdated = counted.status != *seen.set.status();
    let direction =
        if seen.set.meta().is_going() { Ordering::Equal } else { seen.missing().cmp(&0) };
    match direction {
        Ordering::Equal => {}
        Ordering::Less => remove(seen, &mut plan),
        Ordering::Greater => {
            // After a refusal nothing is under way, and the reason is not kept waiting.
            let settling = seen.births.settle_at(seen.now).filter(|_| seen.refusal().is_none());
            if outdated && let Some(when) = settling {
                plan.look_at(when, seen.now);
            }
            if !outdated || settling.is_some() {
                make(seen, &mut plan);
                return plan;
            }
        }
    }
    if outdated {
        plan.write(status::write(&*seen.set, &counted.status));
    }
    plan
}

/// Makes pods that are missing.
fn make<S: PodSet>(seen: &Seen<S>, plan: &mut Plan) {
    let meta = seen.set.meta();
    let about = Reference::to(&S::RESOURCE, meta);
    for name in &seen.births.names {
        let body = template::pod::<S>(&seen.set.spec().template, meta, name);
        let step = Step::new(writes::create::<Pod>(body));
        plan.steps.push(told(step, &about, Told::Create, name));
    }
    if seen.missing() > i64::try_from(MOST).unwrap_or(i64::MAX) {
        plan.look_within(Duration::ZERO);
    }
}

/// Removes pods that are too many.
fn remove<S: PodSet>(seen: &Seen<S>, plan: &mut Plan) {
    let about = Reference::to(&S::RESOURCE, seen.set.meta());
    let surplus = usize::try_from(seen.missing().unsigned_abs()).unwrap_or(usize::MAX);
    for pod in victims::choose(&seen.claim.mine, &seen.crowds, surplus.min(MOST), seen.now) {
        let step = Step::new(writes::delete::<Pod>(&pod.metadata));
        plan.steps.push(told(step, &about, Told::Delete, &pod.metadata.name));
    }
    if surplus > MOST {
        plan.look_within(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests;
