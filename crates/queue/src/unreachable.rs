//! Pods on nodes that are not ready or gone.
//!
//! The phase of such a pod is what its kubelet reported last, and no component corrects it: it
//! stays `Running` for five minutes, and then for as long as the pod is terminating, because only
//! the kubelet could end that. So the node is checked, not the phase.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use gantry_pods::view::{Node, Pod};
use gantry_reconcile::{Change, Key, World};
use jiff::Timestamp;

use crate::app_wrapper::AppWrapper;

/// How long pods and wrapped objects may take to terminate where `forceDeletionTimeInSeconds` is
/// not set. It ends removals that would never end, and is longer than almost every grace period.
pub const FORCE_DELETION_DEFAULT: Duration = Duration::from_secs(600);
/// The same for pods on nodes that are not ready or gone: no kubelet will end them. The time is for
/// nodes that come back.
pub const FORCE_DELETION_UNREACHABLE: Duration = Duration::from_secs(60);

/// Why the state of the pods on a node is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnreachableReason {
    /// The node is not ready.
    NotReady,
    /// The node does not exist any more.
    Gone,
}

impl fmt::Display for UnreachableReason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::NotReady => "which is not ready",
            Self::Gone => "which is gone",
        })
    }
}

/// A pod that has not ended, on a node that is not ready or gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnreachablePod {
    /// The name of the pod.
    pub pod: String,
    /// The name of its node.
    pub node: String,
    /// Why its state is unknown.
    pub why: UnreachableReason,
}

/// Returns why the state of a pod is unknown, if its node is not ready or gone. A pod that has
/// ended, or is on no node yet, is never unreachable.
#[must_use]
pub fn unreachable_reason(world: &World, pod: &Pod) -> Option<UnreachableReason> {
    let node = pod.spec.node_name.as_str();
    if node.is_empty() || pod.is_terminal() {
        return None;
    }
    match world.store::<Node>().get(&Key::cluster(node)) {
        None => Some(UnreachableReason::Gone),
        Some(node) => node.is_not_ready().then_some(UnreachableReason::NotReady),
    }
}

/// Returns the AppWrappers that have pods on a node which became reachable or unreachable. Nodes
/// report every few seconds, and almost always the same.
pub(crate) fn affected_wrappers(world: &World, change: &Change) -> Vec<Key> {
    let unreachable = |it: Option<&Node>| it.is_none_or(Node::is_not_ready);
    if unreachable(change.before::<Node>()) == unreachable(change.after::<Node>()) {
        return Vec::new();
    }
    let pods = world.store::<Pod>().by_index(&Pod::node_tag(change.key.name()));
    let mut keys: Vec<Key> = pods
        .iter()
        .filter_map(|pod| {
            let name = pod.metadata.labels.get(Pod::APP_WRAPPER_LABEL)?;
            Some(Key::new(&pod.metadata.namespace, name))
        })
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Describes how many pods are on which of these nodes; `None` where there are none.
#[must_use]
pub fn describe(pods: &[UnreachablePod]) -> Option<String> {
    let mut nodes: BTreeMap<(&str, UnreachableReason), usize> = BTreeMap::new();
    for pod in pods {
        *nodes.entry((pod.node.as_str(), pod.why)).or_default() += 1;
    }
    let text = nodes.iter().map(|((node, why), count)| {
        let pods = if *count == 1 { "pod" } else { "pods" };
        format!("{count} {pods} on node {node:?}, {why}")
    });
    let text: Vec<String> = text.collect();
    (!text.is_empty()).then(|| text.join("; "))
}

/// Returns how long pods and objects of an evicted AppWrapper may take to terminate, before they
/// are deleted with a grace period of zero.
#[must_use]
pub fn force_deletion_limit(wrapper: &AppWrapper, unreachable: bool) -> Duration {
    let set = wrapper.scheduling().map_or(0, |it| it.force_deletion_time_in_seconds);
    let set = u64::try_from(set).ok().filter(|it| *it > 0).map(Duration::from_secs);
    let limit = set.unwrap_or(FORCE_DELETION_DEFAULT);
    if unreachable { limit.min(FORCE_DELETION_UNREACHABLE) } else { limit }
}

/// Returns when a terminating pod on a node that is not ready or gone is deleted with a grace
/// period of zero without an AppWrapper: its AppWrapper was deleted.
pub(crate) fn force_deletion_of_orphan(pod: &Pod) -> Option<Timestamp> {
    let meta = &pod.metadata;
    let grace = u64::try_from(meta.deletion_grace_period_seconds?).ok().filter(|it| *it > 0)?;
    // The timestamp in the metadata is the end of the grace period.
    let asked = meta.deletion_timestamp?.checked_sub(Duration::from_secs(grace)).ok()?;
    asked.checked_add(FORCE_DELETION_UNREACHABLE).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_node_of_a_pod_is_asked() {
        let world =
            World::new([gantry_reconcile::Kind::of::<Node>(), gantry_reconcile::Kind::of::<Pod>()]);
        let node = |name: &str, conditions: Value| -> Node {
            let object = json!({"metadata": {"name": name}, "status": {"conditions": conditions}});
            serde_json::from_value(object).unwrap()
        };
        let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
        world.store::<Node>().set(node("well", ready("True")));
        world.store::<Node>().set(node("sick", ready("False")));
        world.store::<Node>().set(node("silent", ready("Unknown")));
        world.store::<Node>().set(node("new", json!([])));
        let table = [
            ("well", "Running", None),
            ("sick", "Running", Some(UnreachableReason::NotReady)),
            ("silent", "Running", Some(UnreachableReason::NotReady)),
            ("silent", "Pending", Some(UnreachableReason::NotReady)),
            ("silent", "Succeeded", None),
            ("new", "Running", None),
            ("missing", "Running", Some(UnreachableReason::Gone)),
            ("missing", "Failed", None),
            ("", "Pending", None),
        ];
        for (node, phase, expected) in table {
            let pod = json!({"metadata": {"name": "p", "namespace": "n"},
                "spec": {"nodeName": node}, "status": {"phase": phase}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(unreachable_reason(&world, &pod), expected, "{phase} on {node:?}");
        }
    }

    #[test]
    fn a_limit_that_is_set_counts_unless_the_node_is_unreachable_and_it_is_longer() {
        let table = [(0, 600, 60), (-1, 600, 60), (20, 20, 20), (4000, 4000, 60)];
        for (set, reachable, unreachable) in table {
            let wrapper: AppWrapper = serde_json::from_value(
                json!({"spec": {"schedulingSpec": {"forceDeletionTimeInSeconds": set}}}),
            )
            .unwrap();
            let limits = [false, true].map(|it| force_deletion_limit(&wrapper, it).as_secs());
            assert_eq!(limits, [reachable, unreachable], "{set}");
        }
    }

    #[test]
    fn nodes_are_named_with_their_pods() {
        let pod = |pod: &str, node: &str, why| UnreachablePod {
            pod: pod.to_owned(),
            node: node.to_owned(),
            why,
        };
        assert_eq!(describe(&[]), None);
        let pods = [
            pod("p1", "b", UnreachableReason::NotReady),
            pod("p2", "c", UnreachableReason::Gone),
            pod("p3", "b", UnreachableReason::NotReady),
        ];
        let expected =
            "2 pods on node \"b\", which is not ready; 1 pod on node \"c\", which is gone";
        assert_eq!(describe(&pods).as_deref(), Some(expected));
    }
}
