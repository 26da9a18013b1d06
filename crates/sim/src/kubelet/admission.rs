//! Decides whether a node admits a pod that is bound to it.

use std::sync::Arc;

use gantry_pods::{Requests, fit};

use crate::view::{Node, Pod, TaintEffect};

/// Why a node rejects a pod, as its status has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    /// The reason of the status.
    pub(super) reason: String,
    /// The message of the status.
    pub(super) message: String,
}

/// Returns why `node` rejects `pod` beside the others on it, if it does.
pub(super) fn admit(pod: &Pod, node: &Node, on_node: &[Arc<Pod>]) -> Option<Rejection> {
    let accepted = |it: &&Arc<Pod>| {
        it.metadata.uid != pod.metadata.uid && it.status.start_time.is_some() && !it.is_terminal()
    };
    let (mut used, mut count) = (Requests::default(), 0_i64);
    for other in on_node.iter().filter(accepted) {
        used.add(&Requests::of(other));
        count += 1;
    }
    let capacity = Requests::from_allocatable(&node.status.allocatable);
    let pods = node.status.allocatable.get("pods").map_or(0, |it| it.value_rounded_up());
    if count + 1 > pods {
        return Some(insufficient_resource("pods", 1, count, pods));
    }
    let wanted = Requests::of(pod);
    if let Some(lacking) = wanted.insufficient(&used, &capacity).first() {
        return Some(insufficient_resource(
            lacking.name,
            lacking.requested,
            lacking.used,
            lacking.capacity,
        ));
    }
    if !fit::matches_node_affinity(&pod.spec.node_selector, &pod.spec.affinity, node) {
        let why = "node(s) didn't match Pod's node affinity/selector";
        return Some(predicate_failed("NodeAffinity", why));
    }
    let tolerations = &pod.spec.tolerations;
    if fit::untolerated(&node.spec.taints, &[TaintEffect::NoExecute], tolerations).is_some() {
        let why = "node(s) had taints that the pod didn't tolerate";
        return Some(predicate_failed("TaintToleration", why));
    }
    None
}

fn insufficient_resource(name: &str, wanted: i64, used: i64, capacity: i64) -> Rejection {
    let message = format!(
        "Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, capacity: \
         {capacity}"
    );
    Rejection { reason: format!("OutOf{name}"), message }
}

fn predicate_failed(name: &str, why: &str) -> Rejection {
    Rejection { reason: name.to_owned(), message: format!("Predicate {name} failed: {why}") }
}
