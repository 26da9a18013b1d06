//! Replica sets: as many pods of one template as are wanted.

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
use crate::view::{Pod, ReplicaSet};

mod status;
mod victims;

/// The controller of replica sets.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaSets;

impl Controller for ReplicaSets {
    fn name(&self) -> &'static str {
        "replicaset"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ReplicaSet>(), Kind::of::<Pod>()]
    }

    fn wakes(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<ReplicaSet>() {
            return vec![change.key.clone()];
        }
        let mut keys = Vec::new();
        for pod in change.both::<Pod>() {
            match pod.metadata.controller() {
                Some(owner) if owner.kind == ReplicaSet::RESOURCE.kind => {
                    keys.push(change.key.beside(&owner.name));
                }
                Some(_) => {}
                None => {
                    let sets = world.shelf::<ReplicaSet>().within(&pod.metadata.namespace);
                    let means = |set: &&Arc<ReplicaSet>| {
                        set.spec
                            .selector
                            .as_ref()
                            .is_some_and(|it| it.matches(&pod.metadata.labels))
                    };
                    keys.extend(sets.iter().filter(means).map(|set| set.metadata.key()));
                }
            }
        }
        keys.dedup();
        keys
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        observe(world, key, now).map(|seen| plan(&seen)).unwrap_or_default()
    }
}

/// What one decision about a replica set may use.
#[derive(Debug)]
struct Seen {
    now: Timestamp,
    set: Arc<ReplicaSet>,
    claim: Claim<Pod>,
    /// How many pods of this set and of the others of its owner each node has.
    crowds: BTreeMap<String, usize>,
    births: Births,
    /// What the server said no to when the last plan was carried out.
    refused: Vec<Refused>,
}

impl Seen {
    /// How many pods are missing; below zero, how many are too many.
    fn missing(&self) -> i64 {
        let count = i64::try_from(self.claim.mine.len()).unwrap_or(i64::MAX);
        self.set.spec.replicas.saturating_sub(count)
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

fn observe(world: &World, key: &Key, now: Timestamp) -> Option<Seen> {
    let set = world.shelf::<ReplicaSet>().get(key)?;
    let shelf = world.shelf::<Pod>();
    let active = |pods: Vec<Arc<Pod>>| pods.into_iter().filter(|it| is_active(it)).collect();
    let owned = active(shelf.owned_by(&set.metadata.uid));
    let orphans = active(shelf.tagged(&Pod::without_owner(key.namespace())));
    let means = |pod: &Pod| {
        set.spec.selector.as_ref().is_some_and(|selector| selector.matches(&pod.metadata.labels))
    };
    let claim = Claim::of::<ReplicaSet>(&set.metadata, means, owned, orphans);
    let refused = world.refused(ReplicaSets.name(), key);
    let births = Births::default();
    let mut seen = Seen { now, set, claim, crowds: BTreeMap::new(), births, refused };
    let missing = seen.missing();
    if missing > 0 {
        let count = usize::try_from(missing).unwrap_or(MOST).min(MOST);
        seen.births = Births::of(world, &seen.set.metadata, count);
    } else if missing < 0 {
        seen.crowds = crowds(world, &seen.set);
    }
    Some(seen)
}

/// Active pods by node, of a set and of all sets with the same owner.
fn crowds(world: &World, set: &ReplicaSet) -> BTreeMap<String, usize> {
    let pods = world.shelf::<Pod>();
    let owner = set.metadata.controller();
    let siblings = owner.map(|it| world.shelf::<ReplicaSet>().owned_by(&it.uid));
    let uids = match &siblings {
        Some(sets) => sets.iter().map(|it| &it.metadata.uid).collect(),
        None => vec![&set.metadata.uid],
    };
    let mut crowds = BTreeMap::new();
    for pod in uids.into_iter().flat_map(|uid| pods.owned_by(uid)).filter(|it| is_active(it)) {
        *crowds.entry(pod.spec.node_name.clone()).or_default() += 1;
    }
    crowds
}

fn plan(seen: &Seen) -> Plan {
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
    let outdated = counted.status != seen.set.status;
    let direction =
        if seen.set.metadata.is_going() { Ordering::Equal } else { seen.missing().cmp(&0) };
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
        plan.write(status::write(&seen.set, &counted.status));
    }
    plan
}

/// Makes pods that are missing.
fn make(seen: &Seen, plan: &mut Plan) {
    let meta = &seen.set.metadata;
    let about = Reference::to(&ReplicaSet::RESOURCE, meta);
    for name in &seen.births.names {
        let body = template::pod::<ReplicaSet>(&seen.set.spec.template, meta, name);
        let step = Step::new(writes::create::<Pod>(body));
        plan.steps.push(told(step, &about, Told::Create, name));
    }
    if seen.missing() > i64::try_from(MOST).unwrap_or(i64::MAX) {
        plan.look_within(Duration::ZERO);
    }
}

/// Removes pods that are too many.
fn remove(seen: &Seen, plan: &mut Plan) {
    let about = Reference::to(&ReplicaSet::RESOURCE, &seen.set.metadata);
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
