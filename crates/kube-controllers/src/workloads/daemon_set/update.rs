//! Replaces daemons of former templates, a few at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::nodes::{self, NodeFit, node_fit};
use super::{ByNode, DaemonPodChanges, ObservedDaemonSet, pods};
use crate::view::{Pod, PodSpec};

/// Decides which daemons are replaced now.
pub(super) fn pod_changes<'a>(
    observed: &'a ObservedDaemonSet,
    spec: &PodSpec,
    hash: &str,
    by_node: &ByNode<'a>,
) -> DaemonPodChanges<'a> {
    let wanted = observed.nodes.iter().filter(|it| node_fit(spec, it) == NodeFit::ShouldRun);
    let wanted: Vec<&str> = wanted.map(|it| it.metadata.name.as_str()).collect();
    let mut places: BTreeMap<&str, Option<NodePods<'a>>> =
        wanted.iter().map(|it| (*it, Some(NodePods::default()))).collect();
    for (node, pods) in by_node {
        places.insert(node, NodePods::of(observed, hash, pods));
    }
    let count = i64::try_from(wanted.len()).unwrap_or(i64::MAX);
    let surge = nodes::max_surge(&observed.set, count);
    let unavailable = nodes::max_unavailable(&observed.set, count);
    if surge == 0 {
        // With neither, the rollout could not proceed.
        rolling_replace(observed, &places, unavailable.max(1))
    } else {
        surge_replace(observed, &wanted, &places, surge)
    }
}

/// The pods of one node that are not terminating: at most one old and one new.
#[derive(Clone, Copy, Debug, Default)]
struct NodePods<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

impl<'a> NodePods<'a> {
    /// Returns `None` when there are more of either; the surplus is deleted first.
    fn of(observed: &ObservedDaemonSet, hash: &str, pods: &[&'a Arc<Pod>]) -> Option<Self> {
        let mut place = Self::default();
        for pod in pods.iter().filter(|it| !it.metadata.is_terminating()) {
            let updated = pods::is_updated(&observed.set, hash, pod);
            let slot = if updated { &mut place.new } else { &mut place.old };
            if slot.replace(pod).is_some() {
                return None;
            }
        }
        Some(place)
    }
}

/// Deletes old pods, so that no more nodes than allowed are without an available one. Old pods that
/// are not available may always be deleted: that makes nothing worse.
fn rolling_replace<'a>(
    observed: &ObservedDaemonSet,
    places: &BTreeMap<&str, Option<NodePods<'a>>>,
    allowed: i64,
) -> DaemonPodChanges<'a> {
    let mut missing = 0;
    let mut useless = Vec::new();
    let mut useful = Vec::new();
    for place in places.values() {
        match place.map(|it| (it.new, it.old)) {
            Some((Some(new), None)) => missing += i64::from(!observed.is_available(new)),
            Some((None, Some(old))) if observed.is_available(old) => useful.push(old),
            Some((None, Some(old))) => {
                useless.push(old);
                missing += 1;
            }
            None | Some((None, None) | (Some(_), Some(_))) => missing += 1,
        }
    }
    let left = usize::try_from(allowed - missing).unwrap_or_default();
    useless.extend(useful.into_iter().take(left));
    DaemonPodChanges { delete: useless, ..DaemonPodChanges::default() }
}

/// Creates new pods beside old ones, no more than allowed at a time, and deletes an old one when
/// the new one is available.
fn surge_replace<'a>(
    observed: &ObservedDaemonSet,
    wanted: &[&str],
    places: &BTreeMap<&str, Option<NodePods<'a>>>,
    allowed: i64,
) -> DaemonPodChanges<'a> {
    let mut moves = DaemonPodChanges::default();
    let (mut doubled, mut available) = (0, 0);
    let mut candidates = Vec::new();
    let mut misplaced = Vec::new();
    for (node, place) in places {
        let Some(place) = place else {
            doubled += 1;
            continue;
        };
        let best = place.old.or(place.new);
        available += i64::from(best.is_some_and(|it| observed.is_available(it)));
        let Some(old) = place.old else { continue };
        let Some(new) = place.new else {
            match (wanted.contains(node), observed.is_available(old)) {
                (true, true) => candidates.push((*node).to_owned()),
                (true, false) => moves.create.push((*node).to_owned()),
                (false, true) => misplaced.push(old),
                (false, false) => moves.delete.push(old),
            }
            continue;
        };
        if observed.is_available(new) {
            moves.delete.push(old);
        } else {
            doubled += 1;
        }
    }
    // A pod on a node that should have none is deleted when there is an available one for it
    // elsewhere.
    let spare = available - i64::try_from(wanted.len()).unwrap_or(i64::MAX);
    moves.delete.extend(misplaced.into_iter().take(usize::try_from(spare).unwrap_or_default()));
    let left = usize::try_from(allowed - doubled).unwrap_or_default();
    moves.create.extend(candidates.into_iter().take(left));
    moves
}
