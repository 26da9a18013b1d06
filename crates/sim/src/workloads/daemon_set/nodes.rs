//! Which nodes should have a pod of a daemon set, and what is missing there or too much.

use gantry_pods::fit;
use gantry_reconcile::{Change, Key, Note, Plan, World};
use jiff::SignedDuration;
use std::sync::Arc;

use super::{ByNode, HASH_LABEL, Moves, Seen, pods};
use crate::view::{DaemonSet, Node, Phase, Pod, PodSpec, Rounding, Share, TaintEffect, UpdateKind};

/// How old a pod that failed must be to be replaced. Without that, a node that refuses a pod would
/// be sent one after the other.
const REPLACE_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// What a node is to a daemon set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// A pod should be there.
    Wanted,
    /// None should be made, but one that is there stays.
    Kept,
    /// None should be there.
    Refused,
}

/// What a node is to pods like this.
pub(super) fn fit(spec: &PodSpec, node: &Node) -> Fit {
    let named = spec.node_name.is_empty() || spec.node_name == node.metadata.name;
    if !named || !fit::wants_node(&spec.node_selector, &spec.affinity, node) {
        return Fit::Refused;
    }
    let untolerated = |effects: &[TaintEffect]| {
        fit::untolerated(&node.spec.taints, effects, &spec.tolerations).is_some()
    };
    if untolerated(&[TaintEffect::NoExecute]) {
        Fit::Refused
    } else if untolerated(&[TaintEffect::NoSchedule]) {
        Fit::Kept
    } else {
        Fit::Wanted
    }
}

/// The daemon sets to which a node became something else.
pub(super) fn enqueue(world: &World, change: &Change) -> Vec<Key> {
    let decides = |it: &Node| (it.metadata.labels.clone(), it.spec.taints.clone());
    let before = change.before::<Node>().map(decides);
    if before.is_some() && before == change.after::<Node>().map(decides) {
        return Vec::new();
    }
    let affected = |set: &&Arc<DaemonSet>| {
        let Some(spec) = pods::spec(&set.spec.template) else { return false };
        let was = change.before::<Node>().map(|it| fit(&spec, it));
        was != change.after::<Node>().map(|it| fit(&spec, it))
    };
    let sets = world.shelf::<DaemonSet>().all();
    sets.iter().filter(affected).map(|it| it.metadata.key()).collect()
}

/// What is missing on nodes, and what is too much there.
pub(super) fn moves<'a>(
    seen: &'a Seen,
    spec: &PodSpec,
    hash: &str,
    by_node: &ByNode<'a>,
    plan: &mut Plan,
) -> Moves<'a> {
    let mut moves = Moves::default();
    for node in &seen.nodes {
        let name = node.metadata.name.as_str();
        let pods = by_node.get(name).map(Vec::as_slice).unwrap_or_default();
        match fit(spec, node) {
            Fit::Wanted if pods.is_empty() => moves.make.push(name.to_owned()),
            fit @ (Fit::Wanted | Fit::Kept) => {
                let running = sort_out(seen, name, pods, &mut moves, plan);
                if surge(&seen.set, 1) == 0 {
                    moves.remove.extend(running.into_iter().skip(1));
                } else if running.is_empty() {
                    if fit == Fit::Wanted {
                        moves.make.push(name.to_owned());
                    }
                } else {
                    pair(seen, hash, &running, &mut moves);
                }
            }
            Fit::Refused => moves.remove.extend(pods.iter().filter(|it| !it.metadata.is_going())),
        }
    }
    // Pods for nodes that are no more are never given to one, and nobody else removes them.
    let known = |name: &str| {
        seen.nodes.iter().any(|it| it.metadata.name == name) || seen.hidden.contains(name)
    };
    for (_, pods) in by_node.iter().filter(|(name, _)| !known(name)) {
        let waiting = |it: &&&Arc<Pod>| it.spec.node_name.is_empty() && !it.metadata.is_going();
        moves.remove.extend(pods.iter().filter(waiting));
    }
    moves
}

/// Those of a node's pods that run. The others are replaced when it is time.
fn sort_out<'a>(
    seen: &Seen,
    node: &str,
    pods: &[&'a Arc<Pod>],
    moves: &mut Moves<'a>,
    plan: &mut Plan,
) -> Vec<&'a Arc<Pod>> {
    let mut running = Vec::new();
    for pod in pods.iter().copied().filter(|it| !it.metadata.is_going()) {
        let name = format!("{}/{} on node {node}", pod.metadata.namespace, pod.metadata.name);
        match pod.status.phase {
            Phase::Failed => {
                let made = pod.metadata.creation_timestamp.unwrap_or(seen.now);
                let due = made.checked_add(REPLACE_AFTER).unwrap_or(made);
                if due > seen.now {
                    plan.look_at(due, seen.now);
                    continue;
                }
                let message = format!("Found failed daemon pod {name}, will try to kill it");
                moves.notes.push(Note::warning(seen.about(), "FailedDaemonPod", message));
                moves.remove.push(pod);
            }
            Phase::Succeeded => {
                let message = format!("Found succeeded daemon pod {name}, will try to delete it");
                moves.notes.push(Note::normal(seen.about(), "SucceededDaemonPod", message));
                moves.remove.push(pod);
            }
            Phase::Pending | Phase::Running | Phase::Unknown => running.push(pod),
        }
    }
    running
}

/// Where an old pod stays until the new one is available: keeps the oldest of each, and only the
/// new one when that is available or the old one is not even ready.
fn pair<'a>(seen: &Seen, hash: &str, running: &[&'a Arc<Pod>], moves: &mut Moves<'a>) {
    let is_new = |it: &&&Arc<Pod>| it.metadata.labels.get(HASH_LABEL).is_some_and(|it| it == hash);
    let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = running.iter().partition(|it| is_new(it));
    moves.remove.extend(new.iter().skip(1).chain(old.iter().skip(1)).copied());
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!old.is_ready() || seen.is_available(new))
    {
        moves.remove.push(old);
    }
}

/// How many pods there may be beyond one for each of `wanted` nodes.
pub(super) fn surge(set: &DaemonSet, wanted: i64) -> i64 {
    share(set, set.spec.update_strategy.rolling_update.max_surge.as_ref(), wanted)
}

/// On how many of `wanted` nodes the pod may be unavailable.
pub(super) fn unavailable(set: &DaemonSet, wanted: i64) -> i64 {
    share(set, set.spec.update_strategy.rolling_update.max_unavailable.as_ref(), wanted)
}

fn share(set: &DaemonSet, share: Option<&Share>, wanted: i64) -> i64 {
    match set.spec.update_strategy.kind {
        UpdateKind::OnDelete => 0,
        UpdateKind::RollingUpdate => {
            share.and_then(|it| it.of(wanted, Rounding::Up)).unwrap_or_default()
        }
    }
}
