//! Daemon sets: one pod on every node that fits.
//!
//! Pods are made for a node and given to it by the scheduler. What a node should have is looked at
//! first ([`nodes`]); when that is so, pods of former templates are replaced ([`update`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gantry_reconcile::{
    Change, Controller, Held, Key, Kind, Note, Plan, Reference, Step, View, World,
};
use jiff::Timestamp;

use super::births::Births;
use super::claim::Claim;
use super::revisions::{self, Present, Revisions};
use super::{MOST, Told, template, told, writes};
use crate::view::{ControllerRevision, DaemonSet, Node, Pod, PodSpec, UpdateKind};

mod nodes;
mod pods;
mod status;
mod update;

/// The label of a revision and of its pods that carries the template's hash.
const HASH_LABEL: &str = "controller-revision-hash";

/// The controller of daemon sets.
#[derive(Clone, Copy, Debug)]
pub struct DaemonSets;

impl Controller for DaemonSets {
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
            return nodes::enqueue(world, change);
        }
        let mut keys = Vec::new();
        let pods = change.both::<Pod>().map(|it| &it.metadata);
        let revisions = change.both::<ControllerRevision>().map(|it| &it.metadata);
        for meta in pods.chain(revisions) {
            match meta.controller() {
                Some(owner) if owner.kind == DaemonSet::RESOURCE.kind => {
                    keys.push(change.key.beside(&owner.name));
                }
                Some(_) => {}
                None => {
                    let all = world.shelf::<DaemonSet>().within(change.key.namespace());
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
        let Some(seen) = observe(world, key, now) else { return Plan::default() };
        plan(&seen, |nodes| Births::on_nodes(world, &seen.set.metadata, nodes))
    }
}

/// What one decision about a daemon set may use.
#[derive(Debug)]
struct Seen {
    now: Timestamp,
    set: Arc<DaemonSet>,
    pods: Claim<Pod>,
    nodes: Vec<Arc<Node>>,
    /// Nodes that are there and cannot be read.
    hidden: BTreeSet<String>,
    revisions: Revisions,
    /// What of the template decides where pods are; nothing when it cannot be read.
    spec: Option<PodSpec>,
    /// What stands for the template.
    hash: String,
    /// Whether a revision is there already under the name the next one would have.
    name_taken: bool,
}

impl Seen {
    /// Whether a pod has been ready for long enough.
    fn is_available(&self, pod: &Pod) -> bool {
        matches!(pod.available_since(self.set.spec.min_ready_seconds, self.now), Some(Ok(_)))
    }

    fn about(&self) -> Reference {
        Reference::to(&DaemonSet::RESOURCE, &self.set.metadata)
    }
}

/// Pods by the node they are on or made for.
type ByNode<'a> = BTreeMap<&'a str, Vec<&'a Arc<Pod>>>;

fn observe(world: &World, key: &Key, now: Timestamp) -> Option<Seen> {
    let set = world.shelf::<DaemonSet>().get(key)?;
    let meta = &set.metadata;
    let selector = &set.spec.selector.selector;
    let shelf = world.shelf::<Pod>();
    let means = |pod: &Pod| !selector.is_empty() && selector.matches(&pod.metadata.labels);
    let orphans = shelf.tagged(&Pod::without_owner(key.namespace()));
    let pods = Claim::of::<DaemonSet>(meta, means, shelf.owned_by(&meta.uid), orphans);
    let revisions = Revisions::of::<DaemonSet>(world, meta, selector);
    let hash = template::hash(&set.spec.template, set.status.collision_count);
    let taken = key.beside(&revisions::name(meta, &hash));
    let name_taken = world.shelf::<ControllerRevision>().get(&taken).is_some();
    let nodes = world.shelf::<Node>().all();
    let hidden = hidden(world, &pods.mine);
    let spec = pods::spec(&set.spec.template);
    Some(Seen { now, set, pods, nodes, hidden, revisions, spec, hash, name_taken })
}

/// Those nodes of pods that are there and cannot be read.
fn hidden(world: &World, pods: &[Arc<Pod>]) -> BTreeSet<String> {
    let nodes = world.shelf::<Node>();
    let names = pods::by_node(pods).into_keys();
    names.filter(|name| nodes.is_unreadable(&Key::cluster(name))).map(str::to_owned).collect()
}

/// What is to be done about pods.
#[derive(Debug, Default)]
struct Moves<'a> {
    /// Nodes that get a pod.
    make: Vec<String>,
    /// Pods that go.
    remove: Vec<&'a Arc<Pod>>,
    /// What is worth telling.
    notes: Vec<Note>,
}

fn plan(seen: &Seen, births: impl Fn(&[String]) -> Births) -> Plan {
    let mut plan = Plan::default();
    let set = &seen.set;
    if set.spec.selector.selector.is_empty() {
        let message = "This daemon set is selecting all pods. A non-empty selector is required.";
        hold(seen, &mut plan, "SelectingAll", message.to_owned());
        return plan;
    }
    if set.metadata.is_going() {
        return plan;
    }
    let claims = seen.pods.steps.iter().chain(&seen.revisions.claim.steps);
    plan.steps.extend(claims.cloned());
    if !plan.steps.is_empty() {
        // What is counted changes with these, so they come first and alone.
        return plan;
    }
    let Some(spec) = &seen.spec else {
        hold(seen, &mut plan, "UnreadableTemplate", "cannot read its template".to_owned());
        return plan;
    };
    let present = match seen.revisions.present(&set.spec.template) {
        Present::Latest(revision) => revision,
        // Everything else refers to the revision, so it comes first and alone.
        Present::Earlier(revision) => {
            plan.write(seen.revisions.renew(revision));
            return plan;
        }
        Present::None => {
            if seen.name_taken {
                plan.write(status::collided(set));
                return plan;
            }
            plan.write(revisions::make::<DaemonSet>(
                &set.metadata,
                &set.spec.template,
                (HASH_LABEL, &seen.hash),
                seen.revisions.next(),
            ));
            return plan;
        }
    };
    let hash = present.metadata.labels.get(HASH_LABEL).unwrap_or(&present.metadata.name).as_str();
    let by_node = pods::by_node(&seen.pods.mine);
    let mut moves = nodes::moves(seen, spec, hash, &by_node, &mut plan);
    let settled = moves.make.is_empty() && moves.remove.is_empty();
    if settled && set.spec.update_strategy.kind == UpdateKind::RollingUpdate {
        moves = update::moves(seen, spec, hash, &by_node);
    }
    carry_out(seen, hash, &moves, births, &mut plan);
    let live = |it: &ControllerRevision| {
        let hash = it.metadata.labels.get(HASH_LABEL);
        it.metadata.name == present.metadata.name
            || seen.pods.mine.iter().any(|pod| pod.metadata.labels.get(HASH_LABEL) == hash)
    };
    seen.revisions.forget(set.spec.revision_history_limit, live, &mut plan);
    plan
}

/// Writes what is to be done. The status is written before pods are made: it gives the set a new
/// revision, which their names follow from.
fn carry_out(
    seen: &Seen,
    hash: &str,
    moves: &Moves<'_>,
    births: impl Fn(&[String]) -> Births,
    plan: &mut Plan,
) {
    let set = &seen.set;
    let about = seen.about();
    plan.notes.extend(moves.notes.iter().cloned());
    for pod in moves.remove.iter().take(MOST) {
        let step = Step::new(writes::delete::<Pod>(&pod.metadata));
        plan.steps.push(told(step, &about, Told::Delete, &pod.metadata.name));
    }
    if moves.make.len() > MOST || moves.remove.len() > MOST {
        plan.look_within(Duration::ZERO);
    }
    let outdated = status::write(seen, hash, plan);
    let nodes = &moves.make[..moves.make.len().min(MOST)];
    let births = births(nodes);
    if let Some(write) = outdated {
        match births.settle_at(seen.now).filter(|_| !nodes.is_empty()) {
            Some(when) => plan.look_at(when, seen.now),
            None => {
                plan.write(write);
                return;
            }
        }
    }
    for (node, name) in nodes.iter().zip(&births.names) {
        let body = pods::made_for(set, hash, node, name);
        let step = Step::new(writes::create::<Pod>(body));
        plan.steps.push(told(step, &about, Told::Create, name));
    }
}

/// Says what is not done.
fn hold(seen: &Seen, plan: &mut Plan, reason: &'static str, message: String) {
    plan.hold(Held { about: seen.about(), reason: reason.into(), message, until: None }, seen.now);
}

#[cfg(test)]
mod tests;
