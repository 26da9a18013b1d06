//! The messages about a pod that fits no node.

use std::collections::BTreeMap;

use gantry_pods::RejectionReason;

/// The message when there are no nodes at all.
pub(super) const NO_NODES: &str = "no nodes available to schedule pods";

/// The message about ResourceClaims when there is no unused claim whose devices could be
/// deallocated.
pub(super) const NO_NEW_CLAIMS: &str = "no new claims to deallocate";
/// The same message for a pod that has ResourceClaims.
pub(super) const STILL_NOT_SCHEDULABLE: &str = "still not schedulable";

/// Appends to a message why nothing helps: neither deallocating ResourceClaims nor preemption.
pub(super) fn with_postfilter_message(message: &str, claims: &str, preemption: &str) -> String {
    format!("{message} {claims}, preemption: {preemption}")
}

/// `0/3 nodes are available: persistentvolumeclaim "data" not found.`
pub(super) fn no_node_fits(nodes: usize, why: &str) -> String {
    format!("0/{nodes} nodes are available: {why}.")
}

/// `0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods.`
pub(super) fn misfit_message<'a>(
    nodes: usize,
    reasons: impl IntoIterator<Item = &'a RejectionReason>,
) -> String {
    let mut counts = BTreeMap::<&RejectionReason, usize>::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let texts = counts.into_iter().map(|(reason, count)| format!("{count} {}", reason.text()));
    // Sorted as texts, including the numbers, as Kubernetes sorts them.
    let mut texts: Vec<String> = texts.collect();
    texts.sort();
    let mut message = format!("0/{nodes} nodes are available:");
    if !texts.is_empty() {
        message.push_str(&format!(" {}.", texts.join(", ")));
    }
    message
}
