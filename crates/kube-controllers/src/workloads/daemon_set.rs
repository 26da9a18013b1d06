//! DaemonSets: one pod on every node that fits.
//!
//! Pods are created for a node and bound to it by the scheduler. First each node gets the pod it
//! should have ([`nodes`]); when all have, pods of former templates are replaced ([`update`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::{
    Change, Controller, Event, Held, Key, Kind, ObjectReference, Plan, Step, View, World,
};
use jiff::Timestamp;

use super::claim::ClaimedObjects;
use super::pod_names::PodNames;
use super::revisions::{self, CurrentRevision, Revisions};
use super::{MAX_WRITES_PER_PLAN, PodChange, template, with_events, writes};
use crate::view::{ControllerRevision, DaemonSet, Node, Pod, PodSpec, UpdateStrategyKind};

mod nodes;
mod pods;
mod status;
mod update;

/// The label of a revision and of its pods with the hash of the template.
const HASH_LABEL: &str = "controller-revision-hash";

/// The DaemonSet controller.
#[derive(Clone, Copy, Debug)]
pub struct DaemonSetController;

impl Controller for DaemonSetController {
    fn name(&self) -> &'static str {
        "daemonset"
    }

    fn kinds(&self) -> Vec<Kind> {
        vec![
            Kind::of::<DaemonSet>(),
            Kind::of::<Pod>(),
            Kind::of::<Node>(),
            Kind::of::<ControllerRevision>(),
        ]
    }

    fn enqueue(&self, world: &World, change: &Change) -> Vec<Key> {
        if change.is::<DaemonSet>() {
            return vec![change.key.clone()];
        }
        if change.is::<Node>() {
            return nodes::affected_daemon_sets(world, change);
        }
        let mut keys = Vec::new();
        let pods = change.both::<Pod>().map(|it| &it.metadata);
        let revisions = change.both::<ControllerRevision>().map(|it| &it.metadata);
        for meta in pods.chain(revisions) {
            match meta.controller() {
                Some(owner) if owner.kind == DaemonSet::RESOURCE.kind => {
                    keys.push(change.key.in_same_namespace(&owner.name));
                }
                Some(_) => {}
                None => {
                    let all = world.store::<DaemonSet>().in_namespace(change.key.namespace());
                    let fits = all.iter().filter(|it| {
                        let selector = &it.spec.selector.selector;
                        !selector.is_empty() && selector.matches(&meta.labels)
                    });
                    keys.extend(fits.map(|it| it.metadata.key()));
                }
            }
        }
        keys.dedup();
        keys
    }

    fn plan(&self, world: &World, key: &Key, now: Timestamp) -> Plan {
        let Some(observed) = observe(world, key, now) else { return Plan::default() };
        plan(&observed, |nodes| PodNames::for_nodes(world, &observed.set.metadata, nodes))
    }
}

/// The inputs of one decision about a daemon set.
#[derive(Debug)]
struct ObservedDaemonSet {
    now: Timestamp,
    set: Arc<DaemonSet>,
    pods: ClaimedObjects<Pod>,
    nodes: Vec<Arc<Node>>,
    /// Nodes that exist and cannot be read.
    unreadable_nodes: BTreeSet<String>,
    revisions: Revisions,
    /// The fields of the template that decide where pods run; `None` when it cannot be parsed.
    spec: Option<PodSpec>,
    /// The hash of the template.
    hash: String,
    /// Whether another revision has the name the next one would have.
    name_taken: bool,
}

impl ObservedDaemonSet {
    /// Returns whether a pod is available.
    fn is_available(&self, pod: &Pod) -> bool {
        matches!(pod.available_since(self.set.spec.min_ready_seconds, self.now), Some(Ok(_)))
    }

    fn about(&self) -> ObjectReference {
        ObjectReference::to(&DaemonSet::RESOURCE, &self.set.metadata)
    }
}

/// Pods by the node they are on or were created for.
type ByNode<'a> = BTreeMap<&'a str, Vec<&'a Arc<Pod>>>;

fn observe(world: &World, key: &Key, now: Timestamp) -> Option<ObservedDaemonSet> {
    let set = world.store::<DaemonSet>().get(key)?;
    let meta = &set.metadata;
    let selector = &set.spec.selector.selector;
    let shelf = world.store::<Pod>();
    let means = |pod: &Pod| !selector.is_empty() && selector.matches(&pod.metadata.labels);
    let orphans = shelf.by_index(&Pod::unowned_tag(key.namespace()));
    let pods = ClaimedObjects::of::<DaemonSet>(meta, means, shelf.owned_by(&meta.uid), orphans);
    let revisions = Revisions::of::<DaemonSet>(world, meta, selector);
    let hash = template::hash(&set.spec.template, set.status.collision_count);
    let taken = key.in_same_namespace(&revisions::revision_name(meta, &hash));
    let name_taken = world.store::<ControllerRevision>().get(&taken).is_some();
    let nodes = world.store::<Node>().list();
    let hidden = unreadable_nodes(world, &pods.owned);
    let spec = pods::pod_spec(&set.spec.template);
    Some(ObservedDaemonSet {
        now,
        set,
        pods,
        nodes,
        unreadable_nodes: hidden,
        revisions,
        spec,
        hash,
        name_taken,
    })
}

/// Returns the nodes of pods that exist and cannot be read.
fn unreadable_nodes(world: &World, pods: &[Arc<Pod>]) -> BTreeSet<String> {
    let nodes = world.store::<Node>();
    let names = pods::by_node(pods).into_keys();
    names.filter(|name| nodes.is_unreadable(&Key::cluster(name))).map(str::to_owned).collect()
}

/// The planned changes of pods.
#[derive(Debug, Default)]
struct DaemonPodChanges<'a> {
    /// Nodes that get a pod.
    create: Vec<String>,
    /// Pods to delete.
    delete: Vec<&'a Arc<Pod>>,
    /// The events to record.
    notes: Vec<Event>,
}

fn plan(observed: &ObservedDaemonSet, pod_names: impl Fn(&[String]) -> PodNames) -> Plan {
    let mut plan = Plan::default();
    let set = &observed.set;
    if set.spec.selector.selector.is_empty() {
        let message = "This daemon set is selecting all pods. A non-empty selector is required.";
        hold(observed, &mut plan, "SelectingAll", message.to_owned());
        return plan;
    }
    if set.metadata.is_terminating() {
        return plan;
    }
    let claims = observed.pods.steps.iter().chain(&observed.revisions.claim.steps);
    plan.steps.extend(claims.cloned());
    if !plan.steps.is_empty() {
        // Adoptions and releases change the counts, so they come first and alone.
        return plan;
    }
    let Some(spec) = &observed.spec else {
        hold(observed, &mut plan, "UnreadableTemplate", "cannot parse the pod template".to_owned());
        return plan;
    };
    let present = match observed.revisions.current(&set.spec.template) {
        CurrentRevision::Latest(revision) => revision,
        // Everything else refers to the revision, so it comes first and alone.
        CurrentRevision::Earlier(revision) => {
            plan.write(observed.revisions.promote(revision));
            return plan;
        }
        CurrentRevision::None => {
            if observed.name_taken {
                plan.write(status::collision_patch(set));
                return plan;
            }
            plan.write(revisions::create_revision::<DaemonSet>(
                &set.metadata,
                &set.spec.template,
                (HASH_LABEL, &observed.hash),
                observed.revisions.next_revision(),
            ));
            return plan;
        }
    };
    let hash = present.metadata.labels.get(HASH_LABEL).unwrap_or(&present.metadata.name).as_str();
    let by_node = pods::by_node(&observed.pods.owned);
    let mut moves = nodes::pod_changes(observed, spec, hash, &by_node, &mut plan);
    let settled = moves.create.is_empty() && moves.delete.is_empty();
    if settled && set.spec.update_strategy.kind == UpdateStrategyKind::RollingUpdate {
        moves = update::pod_changes(observed, spec, hash, &by_node);
    }
    write_changes(observed, hash, &moves, pod_names, &mut plan);
    let live = |it: &ControllerRevision| {
        let hash = it.metadata.labels.get(HASH_LABEL);
        it.metadata.name == present.metadata.name
            || observed.pods.owned.iter().any(|pod| pod.metadata.labels.get(HASH_LABEL) == hash)
    };
    observed.revisions.delete_excess(set.spec.revision_history_limit, live, &mut plan);
    plan
}

/// Writes the changes. The status is written before pods are created: it changes the set's
/// revision, from which their names follow.
fn write_changes(
    observed: &ObservedDaemonSet,
    hash: &str,
    moves: &DaemonPodChanges<'_>,
    pod_names: impl Fn(&[String]) -> PodNames,
    plan: &mut Plan,
) {
    let set = &observed.set;
    let about = observed.about();
    plan.events.extend(moves.notes.iter().cloned());
    for pod in moves.delete.iter().take(MAX_WRITES_PER_PLAN) {
        let step = Step::new(writes::delete::<Pod>(&pod.metadata));
        plan.steps.push(with_events(step, &about, PodChange::Delete, &pod.metadata.name));
    }
    if moves.create.len() > MAX_WRITES_PER_PLAN || moves.delete.len() > MAX_WRITES_PER_PLAN {
        plan.requeue_after(Duration::ZERO);
    }
    let outdated = status::write(observed, hash, plan);
    let nodes = &moves.create[..moves.create.len().min(MAX_WRITES_PER_PLAN)];
    let pod_names = pod_names(nodes);
    if let Some(write) = outdated {
        match pod_names.settled_at(observed.now).filter(|_| !nodes.is_empty()) {
            Some(when) => plan.requeue_at(when, observed.now),
            None => {
                plan.write(write);
                return;
            }
        }
    }
    for (node, name) in nodes.iter().zip(&pod_names.names) {
        let body = pods::pod_body(set, hash, node, name);
        let step = Step::new(writes::create::<Pod>(body));
        plan.steps.push(with_events(step, &about, PodChange::Create, name));
    }
}

/// Adds a held reason about what is not done.
fn hold(observed: &ObservedDaemonSet, plan: &mut Plan, reason: &'static str, message: String) {
    plan.hold(
        Held { about: observed.about(), reason: reason.into(), message, until: None },
        observed.now,
    );
}

#[cfg(test)]
mod tests;
