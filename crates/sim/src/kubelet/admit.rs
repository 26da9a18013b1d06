//! Whether a node takes a pod on that was given to it.

use std::sync::Arc;

use gantry_pods::{Requests, fit};

use crate::view::{Node, Pod, TaintEffect};

/// Why a node does not take a pod on, as its status says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    /// In one word.
    pub(super) reason: String,
    /// In a sentence.
    pub(super) message: String,
}

/// Why `node` does not take `pod` on beside the others on it.
pub(super) fn check(pod: &Pod, node: &Node, on_node: &[Arc<Pod>]) -> Option<Rejection> {
    let accepted = |it: &&Arc<Pod>| {
        it.metadata.uid != pod.metadata.uid && it.status.start_time.is_some() && !it.is_over()
    };
    let (mut used, mut count) = (Requests::default(), 0_i64);
    for other in on_node.iter().filter(accepted) {
        used.add(&Requests::of(other));
        count += 1;
    }
    let room = Requests::available(&node.status.allocatable);
    let pods = node.status.allocatable.get("pods").map_or(0, |it| it.value_rounded_up());
    if count + 1 > pods {
        return Some(lack("pods", 1, count, pods));
    }
    let wanted = Requests::of(pod);
    if let Some(lacking) = wanted.lacking(&used, &room).first() {
        return Some(lack(lacking.name, lacking.wanted, lacking.used, lacking.room));
    }
    if !fit::wants_node(&pod.spec.node_selector, &pod.spec.affinity, node) {
        let why = "node(s) didn't match Pod's node affinity/selector";
        return Some(predicate("NodeAffinity", why));
    }
    let tolerations = &pod.spec.tolerations;
    if fit::untolerated(&node.spec.taints, &[TaintEffect::NoExecute], tolerations).is_some() {
        let why = "node(s) had taints that the pod didn't tolerate";
        return Some(predicate("TaintToleration", why));
    }
    None
}

fn lack(name: &str, wanted: i64, used: i64, room: i64) -> Rejection {
    let message = format!(
        "Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, capacity: {room}"
    );
    Rejection { reason: format!("OutOf{name}"), message }
}

fn predicate(name: &str, why: &str) -> Rejection {
    Rejection { reason: name.to_owned(), message: format!("Predicate {name} failed: {why}") }
}
