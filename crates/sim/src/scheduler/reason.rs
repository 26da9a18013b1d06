//! What is said of a pod that no node will do for.

use std::collections::BTreeMap;

use gantry_pods::Reason;

/// What is said when there are no nodes at all.
pub(super) const NO_NODES: &str = "no nodes available to schedule pods";

/// What is said of ResourceClaims when no device can be taken from a claim that does not use it.
pub(super) const NO_NEW_CLAIMS: &str = "no new claims to deallocate";
/// The same for a pod that has ResourceClaims.
pub(super) const STILL_NOT_SCHEDULABLE: &str = "still not schedulable";

/// The message with why nothing can be done about it: about its ResourceClaims, and by preemption.
pub(super) fn with_way_out(message: &str, claims: &str, preemption: &str) -> String {
    format!("{message} {claims}, preemption: {preemption}")
}

/// `0/3 nodes are available: persistentvolumeclaim "data" not found.`
pub(super) fn whatever_node(nodes: usize, why: &str) -> String {
    format!("0/{nodes} nodes are available: {why}.")
}

/// `0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods.`
pub(super) fn message<'a>(nodes: usize, reasons: impl IntoIterator<Item = &'a Reason>) -> String {
    let mut counts = BTreeMap::<&Reason, usize>::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let texts = counts.into_iter().map(|(reason, count)| format!("{count} {}", reason.text()));
    // Sorted as texts, numbers and all: that is the order everybody is used to.
    let mut texts: Vec<String> = texts.collect();
    texts.sort();
    let mut message = format!("0/{nodes} nodes are available:");
    if !texts.is_empty() {
        message.push_str(&format!(" {}.", texts.join(", ")));
    }
    message
}
