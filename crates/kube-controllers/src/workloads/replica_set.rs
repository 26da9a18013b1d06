//! ReplicaSets and ReplicationControllers: a number of pods of one template.
//!
//! A ReplicationController is a ReplicaSet whose selector has labels only. The same functions plan
//! for both, through the trait [`PodSet`].

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::world::RefusedWrite;
use gantry_reconcile::{Change, Controller, Key, Kind, ObjectReference, Plan, Step, View, World};
use jiff::Timestamp;

use super::claim::ClaimedObjects;
use super::pod_names::PodNames;
use super::{MAX_WRITES_PER_PLAN, PodChange, template, with_events, writes};
use crate::view::{Pod, ReplicaSet, ReplicaSetSpec, ReplicaSetStatus, ReplicationController};

mod deletion_order;
mod status;

/// The ReplicaSet controller.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaSetController;

/// The ReplicationController controller.
#[derive(Clone, Copy, Debug)]
pub struct ReplicationManager;

impl Controller for ReplicaSetController {
    fn name(&self) -> &'static str {
        ReplicaSet::CONTROLLER
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ReplicaSet>(), Kind::of::<Pod>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        affected_sets::<ReplicaSet>(world, change)
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        observe::<ReplicaSet>(world, key, now).map(|observed| plan(&observed)).unwrap_or_default()
    }
}

impl Controller for ReplicationManager {
    fn name(&self) -> &'static str {
        ReplicationController::CONTROLLER
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::of::<ReplicationController>(), Kind::of::<Pod>()]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        affected_sets::<ReplicationController>(world, change)
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let observed = observe::<ReplicationController>(world, key, now);
        observed.map(|seen| plan(&seen)).unwrap_or_default()
    }
}

/// An object that maintains a number of pods of one template.
trait PodSet: View {
    /// The name of its controller.
    const CONTROLLER: &'static str;

    /// Returns the desired state.
    fn spec(&self) -> &ReplicaSetSpec;

    /// Returns the observed state.
    fn status(&self) -> &ReplicaSetStatus;

    /// Returns whether its selector matches a pod.
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

/// Returns the sets that a change affects: the owner of a pod, or those that select one without an
/// owner.
fn affected_sets<S: PodSet>(world: &World, change: &Change) -> Vec<Key> {
    if change.is::<S>() {
        return vec![change.key.clone()];
    }
    let mut keys = Vec::new();
    for pod in change.both::<Pod>() {
        match pod.metadata.controller() {
            Some(owner) if owner.kind == S::RESOURCE.kind => {
                keys.push(change.key.in_same_namespace(&owner.name));
            }
            Some(_) => {}
            None => {
                let sets = world.store::<S>().in_namespace(&pod.metadata.namespace);
                let meant = sets.iter().filter(|set| set.selects(pod));
                keys.extend(meant.map(|set| set.meta().key()));
            }
        }
    }
    keys.dedup();
    keys
}

/// The inputs of one decision about a set.
#[derive(Debug)]
struct ObservedPodSet<S> {
    now: Timestamp,
    set: Arc<S>,
    claim: ClaimedObjects<Pod>,
    /// The number of pods on each node, of this set and of the others of its owner.
    pods_per_node: BTreeMap<String, usize>,
    pod_names: PodNames,
    /// The writes of the last plan that the server rejected.
    refused: Vec<RefusedWrite>,
}

impl<S: PodSet> ObservedPodSet<S> {
    /// Returns how many pods are missing; below zero, how many are surplus.
    fn missing_pods(&self) -> i64 {
        let count = i64::try_from(self.claim.owned.len()).unwrap_or(i64::MAX);
        self.set.spec().replicas.saturating_sub(count)
    }

    /// Returns why missing pods are not created, or surplus ones not deleted.
    fn refusal(&self) -> Option<&RefusedWrite> {
        let verb = match self.missing_pods().cmp(&0) {
            Ordering::Equal => return None,
            Ordering::Greater => "create",
            Ordering::Less => "delete",
        };
        self.refused.iter().find(|it| it.verb == verb && it.resource == Pod::RESOURCE)
    }
}

/// Returns whether a pod counts: it is neither finished nor terminating.
fn is_active(pod: &Pod) -> bool {
    !pod.is_terminal() && !pod.metadata.is_terminating()
}

fn observe<S: PodSet>(world: &World, key: &Key, now: Timestamp) -> Option<ObservedPodSet<S>> {
    let set = world.store::<S>().get(key)?;
    let shelf = world.store::<Pod>();
    let active = |pods: Vec<Arc<Pod>>| pods.into_iter().filter(|it| is_active(it)).collect();
    let owned = active(shelf.owned_by(&set.meta().uid));
    let orphans = active(shelf.by_index(&Pod::unowned_tag(key.namespace())));
    let claim = ClaimedObjects::of::<S>(set.meta(), |pod| set.selects(pod), owned, orphans);
    let refused = world.refused_writes(S::CONTROLLER, key);
    let pod_names = PodNames::default();
    let mut observed =
        ObservedPodSet { now, set, claim, pods_per_node: BTreeMap::new(), pod_names, refused };
    let missing = observed.missing_pods();
    if missing > 0 {
        let count =
            usize::try_from(missing).unwrap_or(MAX_WRITES_PER_PLAN).min(MAX_WRITES_PER_PLAN);
        observed.pod_names = PodNames::for_owner(world, observed.set.meta(), count);
    } else if missing < 0 {
        observed.pods_per_node = pods_per_node(world, &*observed.set);
    }
    Some(observed)
}

/// Returns the active pods by node, of a set and of all sets with the same owner.
fn pods_per_node<S: PodSet>(world: &World, set: &S) -> BTreeMap<String, usize> {
    let pods = world.store::<Pod>();
    let owner = set.meta().controller();
    let siblings = owner.map(|it| world.store::<S>().owned_by(&it.uid));
    let uids = match &siblings {
        Some(sets) => sets.iter().map(|it| &it.meta().uid).collect(),
        None => vec![&set.meta().uid],
    };
    let mut counts = BTreeMap::new();
    for pod in uids.into_iter().flat_map(|uid| pods.owned_by(uid)).filter(|it| is_active(it)) {
        *counts.entry(pod.spec.node_name.clone()).or_default() += 1;
    }
    counts
}

fn plan<S: PodSet>(observed: &ObservedPodSet<S>) -> Plan {
    let mut plan = Plan::default();
    if !observed.claim.steps.is_empty() {
        // Adoptions and releases change the counts, so they come first and alone.
        plan.steps.extend(observed.claim.steps.iter().take(MAX_WRITES_PER_PLAN).cloned());
        return plan;
    }
    let counted = status::compute_status(observed);
    if let Some(when) = counted.next_available {
        plan.requeue_at(when, observed.now);
    }
    let outdated = counted.status != *observed.set.status();
    let direction = if observed.set.meta().is_terminating() {
        Ordering::Equal
    } else {
        observed.missing_pods().cmp(&0)
    };
    match direction {
        Ordering::Equal => {}
        Ordering::Less => delete_pods(observed, &mut plan),
        Ordering::Greater => {
            // After a rejection no create is in flight, and its report is not delayed.
            let settling = observed
                .pod_names
                .settled_at(observed.now)
                .filter(|_| observed.refusal().is_none());
            if outdated && let Some(when) = settling {
                plan.requeue_at(when, observed.now);
            }
            if !outdated || settling.is_some() {
                create_pods(observed, &mut plan);
                return plan;
            }
        }
    }
    if outdated {
        plan.write(status::write(&*observed.set, &counted.status));
    }
    plan
}

/// Creates missing pods.
fn create_pods<S: PodSet>(observed: &ObservedPodSet<S>, plan: &mut Plan) {
    let meta = observed.set.meta();
    let about = ObjectReference::to(&S::RESOURCE, meta);
    for name in &observed.pod_names.names {
        let body = template::pod::<S>(&observed.set.spec().template, meta, name);
        let step = Step::new(writes::create::<Pod>(body));
        plan.steps.push(with_events(step, &about, PodChange::Create, name));
    }
    if observed.missing_pods() > i64::try_from(MAX_WRITES_PER_PLAN).unwrap_or(i64::MAX) {
        plan.requeue_after(Duration::ZERO);
    }
}

/// Deletes surplus pods.
fn delete_pods<S: PodSet>(observed: &ObservedPodSet<S>, plan: &mut Plan) {
    let about = ObjectReference::to(&S::RESOURCE, observed.set.meta());
    let surplus = usize::try_from(observed.missing_pods().unsigned_abs()).unwrap_or(usize::MAX);
    for pod in deletion_order::pods_to_delete(
        &observed.claim.owned,
        &observed.pods_per_node,
        surplus.min(MAX_WRITES_PER_PLAN),
        observed.now,
    ) {
        let step = Step::new(writes::delete::<Pod>(&pod.metadata));
        plan.steps.push(with_events(step, &about, PodChange::Delete, &pod.metadata.name));
    }
    if surplus > MAX_WRITES_PER_PLAN {
        plan.requeue_after(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests;
