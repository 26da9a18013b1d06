//! Which pods go first when there are too many.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::view::{Phase, Pod, RestartPolicy};

/// What a pod costs to lose, as its annotations say.
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The `count` pods whose loss hurts least, those first that hurt least of all.
pub(super) fn choose<'a>(
    pods: &'a [Arc<Pod>],
    crowds: &BTreeMap<String, usize>,
    count: usize,
    now: Timestamp,
) -> Vec<&'a Arc<Pod>> {
    let mut pods: Vec<&Arc<Pod>> = pods.iter().collect();
    pods.sort_by_cached_key(|pod| worth(pod, crowds, now));
    pods.truncate(count);
    pods
}

/// How much a pod is worth; less goes first. In this order:
///
/// - on a node, more than on none;
/// - running, more than of unknown state, more than pending;
/// - ready, more than not;
/// - of a greater cost;
/// - on a node with fewer others of its kind;
/// - ready for longer, where times of the same power of two count as equal, so that not always the
///   youngest of many alike goes;
/// - restarted less often, containers beside the main ones last;
/// - made earlier, by powers of two again;
/// - and by identity, which is as good as chance.
fn worth(pod: &Pod, crowds: &BTreeMap<String, usize>, now: Timestamp) -> impl Ord + use<> {
    let phase = match pod.status.phase {
        Phase::Pending => 0,
        Phase::Unknown => 1,
        Phase::Running | Phase::Succeeded | Phase::Failed => 2,
    };
    let ready = pod.is_ready();
    let since = pod.condition("Ready").and_then(|it| it.last_transition_time);
    let crowd = crowds.get(&pod.spec.node_name).copied().unwrap_or_default();
    let (restarts, beside) = restarts(pod);
    let age = magnitude(pod.metadata.creation_timestamp, now);
    (
        (!pod.spec.node_name.is_empty(), phase, ready, cost(pod)),
        Reverse(crowd),
        ready.then(|| magnitude(since, now)),
        (Reverse(restarts), Reverse(beside)),
        (age, pod.metadata.uid.clone()),
    )
}

/// The power of two of the nanoseconds since `then`; below zero when that is not known or to come.
fn magnitude(then: Option<Timestamp>, now: Timestamp) -> i32 {
    let Some(then) = then else { return -2 };
    let nanoseconds = now.duration_since(then).as_nanos();
    match u128::try_from(nanoseconds) {
        Ok(age) if age > 0 => i32::try_from(age.ilog2()).unwrap_or(i32::MAX),
        Ok(_) | Err(_) => -1,
    }
}

/// The annotation's number; nothing when it is written in an unusual way.
fn cost(pod: &Pod) -> i32 {
    let text = pod.metadata.annotations.get(COST).map_or("0", String::as_str);
    let usual = text == "0" || text.starts_with(|it: char| it == '-' || ('1'..='9').contains(&it));
    if usual { text.parse().unwrap_or_default() } else { 0 }
}

/// The most restarts of a main container, and of one that runs beside them.
fn restarts(pod: &Pod) -> (i64, i64) {
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
