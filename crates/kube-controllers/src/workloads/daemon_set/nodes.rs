//! Decides which nodes should have a pod of a daemon set, and which pods are missing or surplus.

use gantry_pods::fit;
use gantry_reconcile::{Change, Event, Key, Plan, World};
use jiff::SignedDuration;
use std::sync::Arc;

use super::{ByNode, DaemonPodChanges, HASH_LABEL, ObservedDaemonSet, pods};
use crate::view::{
    DaemonSet, IntOrPercent, Node, Phase, Pod, PodSpec, Rounding, TaintEffect, UpdateStrategyKind,
};

/// How old a failed pod must be to be replaced. Without that, a node that rejects a pod would get
/// one after the other.
const FAILED_POD_REPLACE_DELAY: SignedDuration = SignedDuration::from_secs(10);

/// Whether a node runs the pod of a daemon set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeFit {
    /// The node should have a pod.
    ShouldRun,
    /// No pod is created, but an existing one stays.
    MayContinue,
    /// The node must not have a pod.
    MustNotRun,
}

/// Returns whether a node runs pods with this spec.
pub(super) fn node_fit(spec: &PodSpec, node: &Node) -> NodeFit {
    let named = spec.node_name.is_empty() || spec.node_name == node.metadata.name;
    if !named || !fit::matches_node_affinity(&spec.node_selector, &spec.affinity, node) {
        return NodeFit::MustNotRun;
    }
    let untolerated = |effects: &[TaintEffect]| {
        fit::untolerated(&node.spec.taints, effects, &spec.tolerations).is_some()
    };
    if untolerated(&[TaintEffect::NoExecute]) {
        NodeFit::MustNotRun
    } else if untolerated(&[TaintEffect::NoSchedule]) {
        NodeFit::MayContinue
    } else {
        NodeFit::ShouldRun
    }
}

/// Returns the daemon sets for which the fit of a node changed.
pub(super) fn affected_daemon_sets(world: &World, change: &Change) -> Vec<Key> {
    let decides = |it: &Node| (it.metadata.labels.clone(), it.spec.taints.clone());
    let before = change.before::<Node>().map(decides);
    if before.is_some() && before == change.after::<Node>().map(decides) {
        return Vec::new();
    }
    let affected = |set: &&Arc<DaemonSet>| {
        let Some(spec) = pods::pod_spec(&set.spec.template) else { return false };
        let was = change.before::<Node>().map(|it| node_fit(&spec, it));
        was != change.after::<Node>().map(|it| node_fit(&spec, it))
    };
    let sets = world.store::<DaemonSet>().list();
    sets.iter().filter(affected).map(|it| it.metadata.key()).collect()
}

/// Returns the missing and surplus pods of nodes.
pub(super) fn pod_changes<'a>(
    observed: &'a ObservedDaemonSet,
    spec: &PodSpec,
    hash: &str,
    by_node: &ByNode<'a>,
    plan: &mut Plan,
) -> DaemonPodChanges<'a> {
    let mut moves = DaemonPodChanges::default();
    for node in &observed.nodes {
        let name = node.metadata.name.as_str();
        let pods = by_node.get(name).map(Vec::as_slice).unwrap_or_default();
        match node_fit(spec, node) {
            NodeFit::ShouldRun if pods.is_empty() => moves.create.push(name.to_owned()),
            fit @ (NodeFit::ShouldRun | NodeFit::MayContinue) => {
                let running = running_pods(observed, name, pods, &mut moves, plan);
                if max_surge(&observed.set, 1) == 0 {
                    moves.delete.extend(running.into_iter().skip(1));
                } else if running.is_empty() {
                    if fit == NodeFit::ShouldRun {
                        moves.create.push(name.to_owned());
                    }
                } else {
                    keep_surge_pair(observed, hash, &running, &mut moves);
                }
            }
            NodeFit::MustNotRun => {
                moves.delete.extend(pods.iter().filter(|it| !it.metadata.is_terminating()));
            }
        }
    }
    // Pods for deleted nodes are never bound, and no other controller deletes them.
    let known = |name: &str| {
        observed.nodes.iter().any(|it| it.metadata.name == name)
            || observed.unreadable_nodes.contains(name)
    };
    for (_, pods) in by_node.iter().filter(|(name, _)| !known(name)) {
        let waiting =
            |it: &&&Arc<Pod>| it.spec.node_name.is_empty() && !it.metadata.is_terminating();
        moves.delete.extend(pods.iter().filter(waiting));
    }
    moves
}

/// Returns those of a node's pods that run. The others are replaced when it is time.
fn running_pods<'a>(
    observed: &ObservedDaemonSet,
    node: &str,
    pods: &[&'a Arc<Pod>],
    moves: &mut DaemonPodChanges<'a>,
    plan: &mut Plan,
) -> Vec<&'a Arc<Pod>> {
    let mut running = Vec::new();
    for pod in pods.iter().copied().filter(|it| !it.metadata.is_terminating()) {
        let name = format!("{}/{} on node {node}", pod.metadata.namespace, pod.metadata.name);
        match pod.status.phase {
            Phase::Failed => {
                let made = pod.metadata.creation_timestamp.unwrap_or(observed.now);
                let due = made.checked_add(FAILED_POD_REPLACE_DELAY).unwrap_or(made);
                if due > observed.now {
                    plan.requeue_at(due, observed.now);
                    continue;
                }
                let message = format!("Found failed daemon pod {name}, will try to kill it");
                moves.notes.push(Event::warning(observed.about(), "FailedDaemonPod", message));
                moves.delete.push(pod);
            }
            Phase::Succeeded => {
                let message = format!("Found succeeded daemon pod {name}, will try to delete it");
                moves.notes.push(Event::normal(observed.about(), "SucceededDaemonPod", message));
                moves.delete.push(pod);
            }
            Phase::Pending | Phase::Running | Phase::Unknown => running.push(pod),
        }
    }
    running
}

/// Keeps the oldest old and new pod of a node with surge; only the new one when that is available
/// or the old one is not even ready.
fn keep_surge_pair<'a>(
    observed: &ObservedDaemonSet,
    hash: &str,
    running: &[&'a Arc<Pod>],
    moves: &mut DaemonPodChanges<'a>,
) {
    let is_new = |it: &&&Arc<Pod>| it.metadata.labels.get(HASH_LABEL).is_some_and(|it| it == hash);
    let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = running.iter().partition(|it| is_new(it));
    moves.delete.extend(new.iter().skip(1).chain(old.iter().skip(1)).copied());
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!old.is_ready() || observed.is_available(new))
    {
        moves.delete.push(old);
    }
}

/// Returns how many pods there may be beyond one for each of `wanted` nodes.
pub(super) fn max_surge(set: &DaemonSet, wanted: i64) -> i64 {
    resolve_share(set, set.spec.update_strategy.rolling_update.max_surge.as_ref(), wanted)
}

/// Returns on how many of `wanted` nodes the pod may be unavailable.
pub(super) fn max_unavailable(set: &DaemonSet, wanted: i64) -> i64 {
    resolve_share(set, set.spec.update_strategy.rolling_update.max_unavailable.as_ref(), wanted)
}

fn resolve_share(set: &DaemonSet, share: Option<&IntOrPercent>, wanted: i64) -> i64 {
    match set.spec.update_strategy.kind {
        UpdateStrategyKind::OnDelete => 0,
        UpdateStrategyKind::RollingUpdate => {
            share.and_then(|it| it.of(wanted, Rounding::Up)).unwrap_or_default()
        }
    }
}
