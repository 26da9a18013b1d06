//! Decides which pods are deleted first when there are too many.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::view::{Phase, Pod, RestartPolicy};

/// The annotation with the deletion cost of a pod.
const DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Returns the `count` pods with the lowest rank, the lowest first.
pub(super) fn pods_to_delete<'a>(
    pods: &'a [Arc<Pod>],
    pods_per_node: &BTreeMap<String, usize>,
    count: usize,
    now: Timestamp,
) -> Vec<&'a Arc<Pod>> {
    let mut pods: Vec<&Arc<Pod>> = pods.iter().collect();
    pods.sort_by_cached_key(|pod| deletion_rank(pod, pods_per_node, now));
    pods.truncate(count);
    pods
}

/// Returns the rank of a pod; the lowest is deleted first. In this order:
///
/// - on a node, more than on none;
/// - running, more than of unknown state, more than pending;
/// - ready, more than not;
/// - of a greater deletion cost;
/// - on a node with fewer pods of the same owner;
/// - ready for longer, where times of the same power of two count as equal, so that not always the
///   newest of many alike is deleted;
/// - restarted less often, sidecars last;
/// - created earlier, by powers of two again;
/// - and by UID, which is as good as random.
fn deletion_rank(
    pod: &Pod,
    pods_per_node: &BTreeMap<String, usize>,
    now: Timestamp,
) -> impl Ord + use<> {
    let phase = match pod.status.phase {
        Phase::Pending => 0,
        Phase::Unknown => 1,
        Phase::Running | Phase::Succeeded | Phase::Failed => 2,
    };
    let ready = pod.is_ready();
    let since = pod.condition("Ready").and_then(|it| it.last_transition_time);
    let crowd = pods_per_node.get(&pod.spec.node_name).copied().unwrap_or_default();
    let (restarts, beside) = max_restarts(pod);
    let age = age_magnitude(pod.metadata.creation_timestamp, now);
    (
        (!pod.spec.node_name.is_empty(), phase, ready, deletion_cost(pod)),
        Reverse(crowd),
        ready.then(|| age_magnitude(since, now)),
        (Reverse(restarts), Reverse(beside)),
        (age, pod.metadata.uid.clone()),
    )
}

/// Returns the power of two of the nanoseconds since `then`; below zero when that is unknown or in
/// the future.
fn age_magnitude(then: Option<Timestamp>, now: Timestamp) -> i32 {
    let Some(then) = then else { return -2 };
    let nanoseconds = now.duration_since(then).as_nanos();
    match u128::try_from(nanoseconds) {
        Ok(age) if age > 0 => i32::try_from(age.ilog2()).unwrap_or(i32::MAX),
        Ok(_) | Err(_) => -1,
    }
}

/// Returns the annotation's number; zero when it is not in canonical form.
fn deletion_cost(pod: &Pod) -> i32 {
    let text = pod.metadata.annotations.get(DELETION_COST_ANNOTATION).map_or("0", String::as_str);
    let usual = text == "0" || text.starts_with(|it: char| it == '-' || ('1'..='9').contains(&it));
    if usual { text.parse().unwrap_or_default() } else { 0 }
}

/// Returns the most restarts of a main container, and of a sidecar.
fn max_restarts(pod: &Pod) -> (i64, i64) {
    let beside = |name: &str| {
        pod.spec
            .init_containers
            .iter()
            .any(|it| it.name == name && it.restart_policy == Some(RestartPolicy::Always))
    };
    let main = pod.status.container_statuses.iter().map(|it| it.restart_count);
    let others = pod.status.init_container_statuses.iter().filter(|it| beside(&it.name));
    let others = others.map(|it| it.restart_count);
    (main.max().unwrap_or_default(), others.max().unwrap_or_default())
}
